/* language.h - a program that has chosen a language with a decimal comma. */
#ifndef TEST_SUPPORT_LANGUAGE_H
#define TEST_SUPPORT_LANGUAGE_H

#include <locale.h>
#include <stddef.h>

/* 0: none is installed here. setlocale(LC_ALL, "C") is the way back. */
static inline int choose_decimal_comma(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ru_RU.UTF-8", "de_DE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_ALL, names[i]) && *localeconv()->decimal_point == ',') return 1;
    return 0;
}

#endif
