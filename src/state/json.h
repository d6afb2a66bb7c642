/* json.h - the JSON of a safetensors header: objects, strings, arrays and whole numbers, strictly; nothing recursive.
 * The core library needs no more and depends on libc alone. */
#ifndef TW_STATE_JSON_H
#define TW_STATE_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

/* 1 if these bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
int tw_utf8_valid(const char *text, size_t bytes);

/* Reading. Strings are decoded in place, since a decoded string is never longer than its escapes. After the first thing
 * that is not as it must be, `wrong` says what, and every further call returns 0. */
typedef struct tw_json {
    char *at, *end;
    const char *wrong; /* NULL: all is well so far */
} tw_json;

/* Takes blanks and then the character: 1. Or leaves it and returns 0, without a complaint. */
int tw_json_take(tw_json *json, char character);
/* Takes blanks and the character, or complains: 0. */
int tw_json_expect(tw_json *json, char character);
/* The next string, terminated; NULL after a complaint. A string with a zero byte inside is refused. */
char *tw_json_string(tw_json *json);
/* The next whole number, 0 .. 2^64-1. */
int tw_json_whole(tw_json *json, uint64_t *number);
/* Takes blanks; 1 if nothing follows. */
int tw_json_ended(tw_json *json);
/* Records what is wrong, if nothing was yet, and returns 0. */
int tw_json_refuse(tw_json *json, const char *wrong);

/* Writing: a text that grows. After a failure `status` keeps it and further calls do nothing. */
typedef struct tw_text {
    char *bytes;
    size_t size, capacity;
    tw_status status;
} tw_text;

void tw_text_append(tw_text *text, const char *bytes, size_t size);
/* Zero-terminated text as it is. */
void tw_text_add(tw_text *text, const char *string);
/* UTF-8 in quotation marks, with JSON's escapes. */
void tw_text_add_quoted(tw_text *text, const char *string);
void tw_text_add_number(tw_text *text, uint64_t number);
void tw_text_release(tw_text *text);

#endif
