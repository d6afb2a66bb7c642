/* listen.h - what is said on stderr meanwhile. */
#ifndef TESTS_SUPPORT_LISTEN_H
#define TESTS_SUPPORT_LISTEN_H

#include <stdio.h>
#include <unistd.h>

#include "support/cmocka.h"

typedef struct listening {
    int own;
    FILE *file;
} listening;

static inline listening listen_begin(void)
{
    listening l = {dup(STDERR_FILENO), tmpfile()};
    assert_true(l.own >= 0);
    assert_non_null(l.file);
    dup2(fileno(l.file), STDERR_FILENO);
    return l;
}

/* From its beginning on. The caller closes it. */
static inline FILE *listen_end(listening l)
{
    dup2(l.own, STDERR_FILENO);
    close(l.own);
    rewind(l.file);
    return l.file;
}

#endif
