/* text_lines.h - a text file, line by line. */
#ifndef TRAINER_SPEECH_TEXT_LINES_H
#define TRAINER_SPEECH_TEXT_LINES_H

#include <stddef.h>
#include <thinwire/thinwire.h>

typedef struct text_lines {
    char *text; /* what is left begins at `at`; lines already given out end in a zero byte */
    size_t size, at;
    size_t number; /* of the line given out last, from 1 */
} text_lines;

/* Reads the whole file, packed by gzip or not. TW_ERROR_IO, or TW_ERROR_FORMAT when it is empty, or not UTF-8 without
 * zero bytes; the text names the file and the line. A byte order mark is skipped. */
tw_status text_lines_open(const char *path, text_lines *lines);
/* The next line that is not blank, without blanks at its ends; NULL after the last. Good until text_lines_close. */
char *text_lines_next(text_lines *lines);
void text_lines_close(text_lines *lines);

/* Cuts the first word off a line and returns it; *rest is what follows, without the blanks between. */
char *text_word(char **rest);

#endif
