/* A vocabulary as a text, and back. */
#include "vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

/* Appends a token and the end of its line. `dst` may take two bytes for one. */
static char *escape(char *dst, const char *token)
{
    for (; *token; token++) {
        if (*token == '\n' || *token == '\\') *dst++ = '\\';
        *dst++ = *token == '\n' ? 'n' : *token;
    }
    *dst++ = '\n';
    return dst;
}

static tw_status write_pieces(const piece_set *model, char **text)
{
    static const char digits[] = "0123456789abcdef";
    size_t size;
    const uint8_t *bytes = pieces_bytes(model, &size);
    *text = malloc(2 * size + 16);
    if (!*text) return tw_fail(TW_ERROR_MEMORY, "no memory to write the vocabulary: %zu bytes", 2 * size);
    char *end = escape(*text, text_unit_name(TEXT_PIECES));
    for (size_t i = 0; i < size; i++) {
        *end++ = digits[bytes[i] >> 4];
        *end++ = digits[bytes[i] & 15];
    }
    *end = 0;
    return TW_OK;
}

static tw_status write_ids(size_t count, char **text)
{
    enum { ROOM = 32 };
    *text = malloc(ROOM);
    if (!*text) return tw_fail(TW_ERROR_MEMORY, "no memory to write the vocabulary");
    snprintf(*text, ROOM, "%s\n%zu\n", text_unit_name(TEXT_IDS), count);
    return TW_OK;
}

tw_status vocabulary_write(const vocabulary *v, char **text)
{
    const char *unit = text_unit_name(vocabulary_unit(v));
    if (vocabulary_pieces(v)) return write_pieces(vocabulary_pieces(v), text);
    if (vocabulary_unit(v) == TEXT_IDS) return write_ids(vocabulary_count(v), text);
    size_t room = strlen(unit) + 2;
    for (uint32_t id = 0; id < vocabulary_count(v); id++) room += 2 * strlen(vocabulary_token(v, id)) + 1;
    *text = malloc(room);
    if (!*text) return tw_fail(TW_ERROR_MEMORY, "no memory to write the vocabulary: %zu bytes", room);
    char *end = escape(*text, unit);
    for (uint32_t id = 0; id < vocabulary_count(v); id++) end = escape(end, vocabulary_token(v, id));
    *end = 0;
    return TW_OK;
}

/* The line at `src`, without its escapes, into `dst`, which has room for it; returns where the next begins, or NULL
 * where the line has no end or holds an escape that is none. */
static const char *unescape(const char *src, char *dst, size_t *length)
{
    const char *start = dst;
    for (; *src && *src != '\n'; src++) {
        if (*src != '\\') {
            *dst++ = *src;
            continue;
        }
        src++;
        if (*src != 'n' && *src != '\\') return NULL;
        *dst++ = *src == 'n' ? '\n' : '\\';
    }
    *length = (size_t)(dst - start);
    return *src ? src + 1 : NULL;
}

/* A character is one code point, or stands for those that are unknown. */
static bool vocabulary_text_fits(text_unit unit, const char *token, size_t length)
{
    if (length == 0) return false;
    if (unit == TEXT_WORDS) return true;
    if (length == strlen(TOKEN_UNKNOWN) && memcmp(token, TOKEN_UNKNOWN, length) == 0) return true;
    return utf8_length(token, length) == length;
}

static tw_status read_tokens(const char *text, char *token, vocabulary *v)
{
    for (size_t line = 2; *text; line++) {
        size_t length;
        uint32_t id;
        text = unescape(text, token, &length);
        if (!text || !vocabulary_text_fits(vocabulary_unit(v), token, length))
            return tw_fail(TW_ERROR_FORMAT, "the vocabulary is damaged: line %zu is not a token", line);
        TW_TRY(vocabulary_add(v, token, length, &id));
        if (id != line - 2)
            return tw_fail(TW_ERROR_FORMAT, "the vocabulary is damaged: line %zu repeats line %u", line, id + 2);
    }
    if (vocabulary_count(v)) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "the vocabulary is empty");
}

static tw_status read_unit(const char **text, text_unit *unit)
{
    for (int i = 0; i < TEXT_UNITS; i++) {
        const char *name = text_unit_name((text_unit)i);
        size_t length = strlen(name);
        if (strncmp(*text, name, length) != 0 || (*text)[length] != '\n') continue;
        *unit = (text_unit)i;
        *text += length + 1;
        return TW_OK;
    }
    return tw_fail(TW_ERROR_FORMAT,
                   "the vocabulary is damaged: it begins neither with \"words\" nor with \"characters\", \"pieces\" "
                   "or \"ids\"");
}

/* Below 0 where it is none. */
static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static tw_status read_bytes(const char *text, uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const int high = digit_of(text[2 * i]), low = high < 0 ? -1 : digit_of(text[2 * i + 1]);
        if (low < 0) return tw_fail(TW_ERROR_FORMAT, "the vocabulary is damaged: byte %zu is not hexadecimal", i);
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (!text[2 * size]) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "the vocabulary is damaged: byte %zu is not hexadecimal", size);
}

static tw_status read_pieces(const char *text, vocabulary **out)
{
    const size_t size = strlen(text) / 2;
    piece_set *model = NULL;
    uint8_t *bytes = malloc(size + 1);
    tw_status status = bytes ? read_bytes(text, bytes, size) : tw_fail(TW_ERROR_MEMORY, "no memory for the vocabulary");
    if (status == TW_OK) status = pieces_read(bytes, size, &model);
    free(bytes);
    return status == TW_OK ? vocabulary_of_pieces(model, out) : status;
}

static tw_status read_ids(const char *text, vocabulary **out)
{
    char digits[8], end[2];
    if (sscanf(text, "%7[0-9]%1[\n]", digits, end) == 2 && strlen(text) == strlen(digits) + 1 && *digits != '0' &&
        vocabulary_of_ids((size_t)atol(digits), out) == TW_OK)
        return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "the vocabulary is damaged: line 2 is not how many ids there are, 2 to %d",
                   VOCABULARY_IDS_MOST);
}

tw_status vocabulary_read(const char *text, vocabulary **out)
{
    text_unit unit = TEXT_WORDS;
    vocabulary *v;
    TW_TRY(read_unit(&text, &unit));
    if (unit == TEXT_PIECES) return read_pieces(text, out);
    if (unit == TEXT_IDS) return read_ids(text, out);
    TW_TRY(vocabulary_create(unit, &v));
    char *token = malloc(strlen(text) + 1);
    tw_status status = token ? read_tokens(text, token, v) : tw_fail(TW_ERROR_MEMORY, "no memory for the vocabulary");
    free(token);
    if (status == TW_OK)
        *out = v;
    else
        vocabulary_destroy(v);
    return status;
}
