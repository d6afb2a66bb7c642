/* markup.h - text within HTML and SVG. What is written into a page comes from files, and so is escaped. */
#ifndef TRAINER_MARKUP_H
#define TRAINER_MARKUP_H

#include <stdio.h>

void markup_write(FILE *file, const char *text);

#endif
