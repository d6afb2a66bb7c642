/* A plug-in whose constructor loads another plug-in: both are there, and nothing stands still. */
#include <thinwire/thinwire_scheme.h>
#include <unistd.h>

#include "support/assert.h"

enum { PATIENCE = 60 };

TEST(test_a_plugin_loads_another)
{
    size_t before = tw_schemes_count();
    alarm(PATIENCE); /* instead of a wait for ever */
    assert_ok(tw_plugin_load(OUTER));
    assert_int_equal(tw_schemes_count(), before + 1);
    assert_ok(tw_plugin_load(INNER)); /* it is there already */
    assert_ok(tw_plugin_load(OUTER));
    assert_int_equal(tw_schemes_count(), before + 1);
}

RUN_TESTS(NULL, NULL)
