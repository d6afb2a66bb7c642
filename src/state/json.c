#include "json.h"

#include "memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Reading ------------------------------------------------------------------------------------------------------- */

int tw_json_refuse(tw_json *json, const char *wrong)
{
    if (!json->wrong) json->wrong = wrong;
    return 0;
}

static void skip_blanks(tw_json *json)
{
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
        json->at++;
}

int tw_json_take(tw_json *json, char character)
{
    skip_blanks(json);
    if (json->wrong || json->at == json->end || *json->at != character) return 0;
    json->at++;
    return 1;
}

int tw_json_expect(tw_json *json, char character)
{
    return tw_json_take(json, character) ||
           tw_json_refuse(json, "a bracket, colon, comma or quotation mark is missing");
}

int tw_json_ended(tw_json *json)
{
    skip_blanks(json);
    return json->at == json->end;
}

int tw_json_whole(tw_json *json, uint64_t *number)
{
    skip_blanks(json);
    const char *start = json->at;
    uint64_t value = 0;
    if (json->wrong) return 0;
    for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*json->at - '0'), &value))
            return tw_json_refuse(json, "a number is above 64 bits");
    if (json->at == start) return tw_json_refuse(json, "a whole number is missing");
    if (*start == '0' && json->at - start > 1) return tw_json_refuse(json, "a number begins with a zero");
    *number = value;
    return 1;
}

static int hex_digit(char character)
{
    if (character >= '0' && character <= '9') return character - '0';
    if (character >= 'a' && character <= 'f') return character - 'a' + 10;
    if (character >= 'A' && character <= 'F') return character - 'A' + 10;
    return -1;
}

/* The four digits of \uXXXX; -1 if they are not there. */
static long read_hex(tw_json *json)
{
    long value = 0;
    if (json->end - json->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(*json->at++);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* What follows \u: one code point, from two escapes when it lies above U+FFFF. -1 for half a pair. */
static long read_code_point(tw_json *json)
{
    long high = read_hex(json);
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high > 0xDBFF || json->end - json->at < 6 || json->at[0] != '\\' || json->at[1] != 'u') return -1;
    json->at += 2;
    long low = read_hex(json);
    if (low < 0xDC00 || low > 0xDFFF) return -1;
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

static char *write_utf8(char *dst, long point)
{
    static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
    int bytes = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (int i = bytes - 1; i > 0; i--, point >>= 6) dst[i] = (char)(0x80 | (point & 0x3F));
    dst[0] = (char)(marks[bytes] | point);
    if (bytes == 1) dst[0] = (char)point;
    return dst + bytes;
}

/* What follows a backslash, decoded to dst; NULL if there is no such escape. */
static char *read_escape(tw_json *json, char *dst)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (json->at == json->end) return NULL;
    char letter = *json->at++;
    if (letter == 'u') {
        long point = read_code_point(json);
        return point > 0 ? write_utf8(dst, point) : NULL; /* U+0000 would end a C string early */
    }
    const char *found = letter ? strchr(letters, letter) : NULL;
    if (!found) return NULL;
    *dst = meanings[found - letters];
    return dst + 1;
}

char *tw_json_string(tw_json *json)
{
    if (!tw_json_expect(json, '"')) return NULL;
    char *start = json->at, *dst = start;
    while (json->at < json->end && *json->at != '"') {
        char character = *json->at++;
        if ((unsigned char)character < 0x20) return tw_json_refuse(json, "a string has a bare control character"), NULL;
        if (character != '\\')
            *dst++ = character;
        else if (!(dst = read_escape(json, dst)))
            return tw_json_refuse(json, "a string has an escape that means nothing"), NULL;
    }
    if (!tw_json_expect(json, '"')) return NULL;
    if (!tw_utf8_valid(start, (size_t)(dst - start))) return tw_json_refuse(json, "a string is not UTF-8"), NULL;
    *dst = 0;
    return start;
}

/* Writing ------------------------------------------------------------------------------------------------------- */

void tw_text_append(tw_text *text, const char *bytes, size_t size)
{
    if (text->status == TW_OK && text->capacity - text->size < size) {
        size_t larger = 2 * text->capacity + size;
        text->status = tw_resize(&text->bytes, text->size, larger);
        if (text->status == TW_OK) text->capacity = larger;
    }
    if (text->status != TW_OK || size == 0) return;
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
}

void tw_text_add(tw_text *text, const char *string)
{
    tw_text_append(text, string, strlen(string));
}

static void add_quoted_byte(tw_text *text, char byte)
{
    char escape[7];
    if (byte == '"' || byte == '\\') tw_text_add(text, "\\");
    if ((unsigned char)byte >= 0x20) {
        tw_text_append(text, &byte, 1);
    } else {
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)byte);
        tw_text_add(text, escape);
    }
}

void tw_text_add_quoted(tw_text *text, const char *string)
{
    tw_text_add(text, "\"");
    for (; *string; string++) add_quoted_byte(text, *string);
    tw_text_add(text, "\"");
}

void tw_text_add_number(tw_text *text, uint64_t number)
{
    char digits[21];
    snprintf(digits, sizeof digits, "%" PRIu64, number);
    tw_text_add(text, digits);
}

void tw_text_release(tw_text *text)
{
    tw_free(text->bytes);
    *text = (tw_text){0};
}
