#include "tokens.h"

#include "code_point.h"
#include "error.h"

#include <stdint.h>
#include <string.h>

const char *text_unit_name(text_unit unit)
{
    static const char *const names[TEXT_UNITS] = {
        [TEXT_WORDS] = "words", [TEXT_CHARACTERS] = "characters", [TEXT_PIECES] = "pieces", [TEXT_IDS] = "ids"};
    return names[unit];
}

static bool parts_words(char c)
{
    return c == '\n' || c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static bool is_space(text_unit unit, char c)
{
    return parts_words(c) && (c != '\n' || unit == TEXT_IDS);
}

static bool next_word(token_reader *r, const char **token, size_t *length)
{
    while (r->at < r->end && is_space(r->unit, *r->at)) r->at++;
    if (r->at == r->end) return false;
    *token = r->at;
    if (*r->at == '\n') {
        r->at++;
        *token = TOKEN_END_OF_LINE;
        *length = strlen(TOKEN_END_OF_LINE);
        return true;
    }
    while (r->at < r->end && !parts_words(*r->at)) r->at++;
    *length = (size_t)(r->at - *token);
    return true;
}

bool token_next(token_reader *r, const char **token, size_t *length)
{
    if (r->unit != TEXT_CHARACTERS) return next_word(r, token, length);
    if (r->at == r->end) return false;
    *token = r->at;
    *length = utf8_length(r->at, (size_t)(r->end - r->at));
    r->at += *length;
    return true;
}

size_t token_word_rest(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size && !parts_words(text[at])) at++;
    return at < size ? at : 0;
}

size_t utf8_length(const char *text, size_t size)
{
    uint32_t point;
    return code_point_read(text, size, &point);
}

size_t utf8_prefix(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size && text[at]) {
        size_t length = utf8_length(text + at, size - at);
        if (length == 0) break;
        at += length;
    }
    return at;
}

tw_status token_refuse_unknown(const char *path, unsigned long long line, const char *token, size_t length,
                               text_unit unit)
{
    char shown[TOKEN_SHOWN];
    return tw_fail(
        TW_ERROR_FORMAT,
        "%s: line %llu: \"%s\" is not in the vocabulary, which is that of the training text (the first 90 %% of a "
        "single file), and there is no <unk> to stand for it; train on a text that has it, leave it out, or make one "
        "of the rarest where the vocabulary is made, by --vocabulary N, with N below the number of different %s%s",
        path, line, code_point_show(token, length, shown, TOKEN_SHOWN), text_unit_name(unit),
        unit == TEXT_WORDS ? ", or take characters with --unit char" : "");
}

tw_status token_refuse_byte(const char *path, unsigned long long line, unsigned long long offset, unsigned char byte)
{
    if (byte == 0)
        return tw_fail(TW_ERROR_FORMAT, "%s: line %llu, byte offset %llu: a zero byte; a text in UTF-8 has none", path,
                       line, offset);
    return tw_fail(TW_ERROR_FORMAT,
                   "%s: line %llu, byte offset %llu: 0x%02x is not UTF-8 there; iconv can convert a text", path, line,
                   offset, byte);
}
