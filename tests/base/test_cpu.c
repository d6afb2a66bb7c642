/* THINWIRE_ISA: a supported level is taken, anything else is ignored by the choice and refused by the check. */
#include "cpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/cmocka.h"

/* The environment is read once, so each wish has a process of its own: 0 if it all came out as expected. */
static int outcome(const char *wish, tw_isa_level best, tw_status status)
{
    pid_t child = fork();
    if (child == 0) {
        setenv("THINWIRE_ISA", wish, 1);
        int right = tw_isa_best() == best && tw_isa_check() == status;
        if (status != TW_OK) right &= strstr(tw_last_error(), wish) && strstr(tw_last_error(), tw_isa_name(best));
        _exit(right ? 0 : 1);
    }
    int exit_status = -1;
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    return exit_status;
}

/* Likewise asked in another process: asking here would be remembered by the ones that follow. */
static int supported(tw_isa_level level)
{
    pid_t child = fork();
    if (child == 0) _exit(tw_isa_supported(level));
    int exit_status = -1;
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    return WEXITSTATUS(exit_status);
}

static tw_isa_level most(void)
{
    int level = TW_ISA_LEVELS - 1;
    while (!supported((tw_isa_level)level)) level--;
    return (tw_isa_level)level;
}

TEST(no_wish_means_the_best)
{
    assert_int_equal(outcome("", most(), TW_OK), 0);
}

TEST(a_level_is_taken_if_supported)
{
    for (int level = 0; level < TW_ISA_LEVELS; level++) {
        tw_isa_level wish = (tw_isa_level)level;
        tw_isa_level best = supported(wish) ? wish : most();
        assert_int_equal(outcome(tw_isa_name(wish), best, best == wish ? TW_OK : TW_ERROR_UNSUPPORTED), 0);
    }
}

TEST(the_levels_are_listed_whatever_the_wish)
{
    char expected[64] = "";
    for (int level = 0; level < TW_ISA_LEVELS; level++)
        if (supported((tw_isa_level)level)) {
            if (*expected) strcat(expected, " ");
            strcat(expected, tw_isa_name((tw_isa_level)level));
        }
    pid_t child = fork();
    if (child == 0) {
        setenv("THINWIRE_ISA", "scalar", 1);
        _exit(strcmp(tw_isa_levels(), expected) == 0 ? 0 : 1);
    }
    int exit_status = -1;
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_int_equal(exit_status, 0);
}

TEST(an_unknown_level_is_refused_by_name)
{
    assert_int_equal(outcome("AVX2", most(), TW_ERROR_UNSUPPORTED), 0);
}

RUN_TESTS(NULL, NULL)
