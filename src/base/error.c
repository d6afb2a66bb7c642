/* One text a thread. The function that finds an error writes it; the rest pass the status on. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char text[1024];

/* What files and peers call something is in the text, too, and no terminal is to obey it: '?' stands for control
 * characters, those of two bytes in UTF-8 among them. */
static void make_printable(char *at)
{
    for (; *at; at++) {
        const unsigned char first = (unsigned char)at[0], second = (unsigned char)at[1];
        if (first == 0xC2 && second >= 0x80 && second < 0xA0) *at++ = '?', *at = '?';
        if ((first < ' ' && first != '\n' && first != '\t') || first == 0x7F) *at = '?';
    }
}

tw_status tw_fail(tw_status status, const char *format, ...)
{
    char next[sizeof text] = "";
    va_list args;
    if (!format) return tw_fail(status, "%s", tw_status_sentence(status));
    va_start(args, format);
    vsnprintf(next, sizeof next, format, args);
    va_end(args);
    make_printable(next);
    memcpy(text, next, strlen(next) + 1);
    return status;
}

tw_status tw_fail_in(tw_status status, const char *place)
{
    return tw_fail(status, "%s: %s", place, text);
}

const char *tw_last_error(void)
{
    return text;
}

int tw_status_is_known(uint32_t number)
{
#define CASE(name, value, sentence) +(number == (value))
    return TW_STATUS_MAP(CASE);
#undef CASE
}

int tw_status_is_error(tw_status status)
{
    return status != TW_OK && status != TW_SKIPPED;
}

const char *tw_status_name(tw_status status)
{
    switch (status) {
#define CASE(name, value, sentence)                                                                                    \
    case name:                                                                                                         \
        return #name;
        TW_STATUS_MAP(CASE)
#undef CASE
    }
    return "TW_UNKNOWN";
}

const char *tw_status_sentence(tw_status status)
{
    switch (status) {
#define CASE(name, value, sentence)                                                                                    \
    case name:                                                                                                         \
        return sentence;
        TW_STATUS_MAP(CASE)
#undef CASE
    }
    return "not a status of this library";
}
