/* rows.h - a table of wrong calls that writes itself down while it is tried: one row a function and argument. With
 * --list a program prints its rows instead of judging them; complete.py compares them with headers and libraries. */
#ifndef TEST_API_ROWS_H
#define TEST_API_ROWS_H

#include <stdio.h>
#include <string.h>

#include <thinwire/thinwire_plugin.h>

#include "support/cmocka.h"

static FILE *rows_list; /* not NULL: where rows go */

static inline void rows_note(const char *function, const char *argument)
{
    if (rows_list) fprintf(rows_list, "%s %s\n", function, argument);
}

/* The call is refused, and its text names the argument. */
static inline void rows_refused(const char *function, const char *argument, tw_status got)
{
    rows_note(function, argument);
    if (got != TW_ERROR_ARGUMENT) fail_msg("%s: %s is NULL: %s", function, argument, tw_status_name(got));
    if (!strstr(tw_last_error(), argument))
        fail_msg("%s: \"%s\" does not name %s", function, tw_last_error(), argument);
}

static inline void rows_answered(const char *function, const char *argument, int right)
{
    rows_note(function, argument);
    if (!right) fail_msg("%s: %s is NULL, and it does not answer as promised", function, argument);
}

/* `argument` must be given: this call, in which it is not, is TW_ERROR_ARGUMENT. */
#define NEEDED(function, argument, ...) rows_refused(#function, #argument, function(__VA_ARGS__))
/* Without it the call returns what is promised. */
#define WITHOUT(function, argument, condition) rows_answered(#function, #argument, (condition))
/* Without it the call does nothing. */
#define NOTHING(function, argument, ...) (function(__VA_ARGS__), rows_answered(#function, #argument, 1))

static inline int rows_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) rows_list = stdout;
    return _cmocka_run_group_tests("arguments", tests, count, NULL, NULL);
}

#endif
