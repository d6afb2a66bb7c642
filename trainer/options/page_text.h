/* page_text.h - pages for people, as wide as their terminal: titles, paragraphs, and names with what they mean. */
#ifndef TRAINER_PAGE_TEXT_H
#define TRAINER_PAGE_TEXT_H

#include <stdbool.h>
#include <stdio.h>

typedef struct page_text {
    FILE *file;
    int width;
    bool bold; /* titles and names are, on a terminal */
} page_text;

/* As wide as COLUMNS says, else the terminal, else 80 columns. Letters are bold on a terminal, unless NO_COLOR is set.
 */
page_text page_text_begin(FILE *file);
void page_text_title(const page_text *page, const char *title); /* on a line of its own, behind an empty one */
void page_text_paragraph(const page_text *page, const char *text);
/* A name, what stands for its value ("" for none), and what it means. */
void page_text_entry(const page_text *page, const char *name, const char *value, const char *meaning);

#endif
