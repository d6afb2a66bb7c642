/* THINWIRE_ISA: a supported level is taken, anything else is ignored by the choice and refused by the check. */
#include "cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void no_wish_means_the_best(void **state)
{
    (void)state;
    unsetenv("THINWIRE_ISA");
    assert_int_equal(tw_isa_best(), tw_isa_supported());
    assert_int_equal(tw_isa_check(), TW_OK);
    setenv("THINWIRE_ISA", "", 1);
    assert_int_equal(tw_isa_best(), tw_isa_supported());
    assert_int_equal(tw_isa_check(), TW_OK);
}

static void a_level_is_taken_if_supported(void **state)
{
    (void)state;
    for (int level = 0; level < TW_ISA_LEVELS; level++) {
        int supported = level <= (int)tw_isa_supported();
        setenv("THINWIRE_ISA", tw_isa_name((tw_isa_level)level), 1);
        assert_int_equal(tw_isa_best(), supported ? level : (int)tw_isa_supported());
        assert_int_equal(tw_isa_check(), supported ? TW_OK : TW_ERROR_UNSUPPORTED);
    }
}

static void an_unknown_level_is_refused_by_name(void **state)
{
    (void)state;
    setenv("THINWIRE_ISA", "AVX2", 1);
    assert_int_equal(tw_isa_best(), tw_isa_supported());
    assert_int_equal(tw_isa_check(), TW_ERROR_UNSUPPORTED);
    assert_non_null(strstr(tw_last_error(), "AVX2"));
    assert_non_null(strstr(tw_last_error(), tw_isa_name(tw_isa_supported())));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_wish_means_the_best),
        cmocka_unit_test(a_level_is_taken_if_supported),
        cmocka_unit_test(an_unknown_level_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
