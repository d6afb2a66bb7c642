/* support.h - what every cmocka program needs, and a folder of its own to write in. */
#ifndef TEST_TRAIN_SUPPORT_H
#define TEST_TRAIN_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <thinwire/thinwire_plugin.h>

#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        tw_status assert_status = (call);                                                                              \
        if (assert_status != TW_OK) fail_msg("%s: %s", tw_status_name(assert_status), tw_last_error());                \
    } while (0)

/* The call fails with `status`, and its text holds `word`. */
#define assert_fails(call, status, word)                                                                               \
    do {                                                                                                               \
        assert_int_equal(call, status);                                                                                \
        if (!strstr(tw_last_error(), word)) fail_msg("'%s' is not in: %s", word, tw_last_error());                     \
    } while (0)

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path);
}

/* For cmocka_unit_test_setup_teardown: *state is the folder's path. */
static inline int make_folder(void **state)
{
    char *path = strdup("/tmp/thinwire-test-XXXXXX");
    *state = mkdtemp(path);
    return *state ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    nftw(*state, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return 0;
}

#endif
