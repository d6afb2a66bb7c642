#include "text_lines.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "code_point.h"
#include "error.h"
#include "file.h"

static const char blanks[] = " \t\r\v\f";

static tw_status check_text(const char *path, const char *text, size_t size)
{
    size_t line = 1;
    for (size_t at = 0; at < size;) {
        uint32_t point;
        size_t length = code_point_read(text + at, size - at, &point);
        if (length == 0 || point == 0)
            return tw_fail(TW_ERROR_FORMAT, "%s: line %zu is not UTF-8 text (byte 0x%02x)", path, line,
                           (unsigned)(unsigned char)text[at]);
        line += point == '\n';
        at += length;
    }
    return TW_OK;
}

/* Takes over `bytes`. */
static tw_status take_text(const char *path, char *bytes, size_t size, text_lines *lines)
{
    char *text = realloc(bytes, size + 1); /* and the zero byte at the end of the last line */
    if (!text) {
        free(bytes);
        return tw_fail(TW_ERROR_MEMORY, "%s: no memory for %zu bytes of it", path, size);
    }
    tw_status status = check_text(path, text, size);
    if (status != TW_OK) {
        free(text);
        return status;
    }
    *lines = (text_lines){.text = text, .size = size};
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) lines->at = 3;
    return TW_OK;
}

tw_status text_lines_open(const char *path, text_lines *lines)
{
    uint8_t *bytes;
    size_t size;
    TW_TRY(file_read(path, &bytes, &size));
    return take_text(path, (char *)bytes, size, lines);
}

char *text_lines_next(text_lines *lines)
{
    while (lines->at < lines->size) {
        char *line = lines->text + lines->at;
        char *end = memchr(line, '\n', lines->size - lines->at);
        if (!end) end = lines->text + lines->size;
        lines->at = (size_t)(end - lines->text) + 1;
        lines->number++;
        *end = 0;
        line += strspn(line, blanks);
        while (end > line && strchr(blanks, end[-1])) *--end = 0;
        if (*line) return line;
    }
    return NULL;
}

void text_lines_close(text_lines *lines)
{
    free(lines->text);
    *lines = (text_lines){0};
}

char *text_word(char **rest)
{
    char *word = *rest;
    char *end = word + strcspn(word, blanks);
    *rest = end + strspn(end, blanks);
    *end = 0;
    return word;
}
