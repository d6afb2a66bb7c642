#include "alphabet.h"

#include <locale.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <wctype.h>

#include "code_point.h"
#include "error.h"
#include "room.h"

size_t transcript_capacity(const char *src)
{
    return 2 * strlen(src) + 1; /* a letter's lower case may take more bytes than itself: U+023A */
}

/* What a character becomes; 0 for what only separates words. */
static uint32_t fold(uint32_t point, locale_t unicode)
{
    if (point == '\'' || point == 0x2018 || point == 0x2019 || point == 0x02bc) return '\'';
    bool mark = point >= 0x0300 && point < 0x0370;
    return mark || iswalnum_l((wint_t)point, unicode) ? (uint32_t)towlower_l((wint_t)point, unicode) : 0;
}

static tw_status alphabet_normalise(const char *src, char *dst, locale_t unicode)
{
    char *begin = dst;
    bool space = false;
    for (size_t left = strlen(src), length; left > 0; src += length, left -= length) {
        uint32_t point;
        length = code_point_read(src, left, &point);
        if (length == 0) return tw_fail(TW_ERROR_FORMAT, "a transcript is not UTF-8: \"%.40s\"", src);
        uint32_t letter = fold(point, unicode);
        if (letter && space && dst > begin) *dst++ = ' ';
        if (letter) dst += code_point_write(letter, dst);
        space = !letter;
    }
    *dst = 0;
    return TW_OK;
}

tw_status transcript_normalise(const char *src, char *dst)
{
    locale_t unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!unicode) return tw_fail(TW_ERROR_SYSTEM, "the locale C.UTF-8, which knows letters, is not there");
    tw_status status = alphabet_normalise(src, dst, unicode);
    freelocale(unicode);
    return status;
}

/* Where a letter stands, or would stand: the order is Unicode's. */
static size_t place_of(const alphabet *a, uint32_t letter)
{
    size_t low = 0, high = a->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (a->letters[middle] < letter)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static tw_status insert(alphabet *a, size_t place, uint32_t letter)
{
    if (!room_make(&a->letters, &a->capacity, a->count + 1, sizeof *a->letters))
        return tw_fail(TW_ERROR_MEMORY, "no memory for an alphabet of %zu letters", a->count + 1);
    memmove(a->letters + place + 1, a->letters + place, (a->count - place) * sizeof *a->letters);
    a->letters[place] = letter;
    a->count++;
    return TW_OK;
}

tw_status alphabet_add(alphabet *a, const char *transcript)
{
    for (size_t left = strlen(transcript), length; left > 0; transcript += length, left -= length) {
        uint32_t letter;
        length = code_point_read(transcript, left, &letter);
        if (length == 0) return tw_fail(TW_ERROR_FORMAT, "a transcript is not UTF-8: \"%.40s\"", transcript);
        size_t place = place_of(a, letter);
        if (place == a->count || a->letters[place] != letter) TW_TRY(insert(a, place, letter));
    }
    return TW_OK;
}

void alphabet_release(alphabet *a)
{
    free(a->letters);
    *a = (alphabet){0};
}

tw_status alphabet_text(const alphabet *a, char **text)
{
    char *at = malloc(CODE_POINT_BYTES * a->count + 1);
    if (!at) return tw_fail(TW_ERROR_MEMORY, "no memory for the text of an alphabet");
    *text = at;
    for (size_t i = 0; i < a->count; i++) at += code_point_write(a->letters[i], at);
    *at = 0;
    return TW_OK;
}

/* 0 when the letter is not there. */
static uint32_t number_of(const alphabet *a, uint32_t letter)
{
    size_t place = place_of(a, letter);
    return place < a->count && a->letters[place] == letter ? (uint32_t)place + 1 : 0;
}

static tw_status parse(const char *text, alphabet *a)
{
    if (!*text) return tw_fail(TW_ERROR_FORMAT, "an alphabet without a letter");
    for (size_t left = strlen(text), length; left > 0; text += length, left -= length) {
        uint32_t letter;
        length = code_point_read(text, left, &letter);
        if (length == 0) return tw_fail(TW_ERROR_FORMAT, "an alphabet that is not UTF-8: \"%.40s\"", text);
        if (number_of(a, letter))
            return tw_fail(TW_ERROR_FORMAT, "an alphabet with a letter twice: \"%.*s\"", (int)length, text);
        TW_TRY(insert(a, place_of(a, letter), letter));
    }
    return TW_OK;
}

tw_status alphabet_parse(const char *text, alphabet *a)
{
    alphabet read = {0};
    tw_status status = parse(text, &read);
    if (status == TW_OK)
        *a = read;
    else
        alphabet_release(&read);
    return status;
}

tw_status alphabet_encode(const alphabet *a, const char *transcript, uint32_t *numbers, size_t *count)
{
    size_t written = 0;
    for (size_t left = strlen(transcript), length; left > 0; transcript += length, left -= length) {
        uint32_t letter;
        length = code_point_read(transcript, left, &letter);
        uint32_t number = length ? number_of(a, letter) : 0;
        if (number == 0)
            return tw_fail(TW_ERROR_FORMAT, "the alphabet has no \"%.*s\"", (int)(length ? length : 1), transcript);
        numbers[written++] = number;
    }
    *count = written;
    return TW_OK;
}

void alphabet_decode(const alphabet *a, const uint32_t *numbers, size_t count, char *text)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] > 0 && numbers[i] <= a->count) text += code_point_write(a->letters[numbers[i] - 1], text);
    *text = 0;
}
