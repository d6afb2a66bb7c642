/* row.h - the row of a plan that is of a spec. */
#ifndef TEST_PLAN_ROW_H
#define TEST_PLAN_ROW_H

#include "support/assert.h"

#include <string.h>
#include <thinwire/thinwire_plan.h>

static inline tw_plan_row row_of(const tw_plan *plan, const char *spec)
{
    tw_plan_row row = {.struct_size = sizeof row};
    for (size_t i = 0; tw_plan_row_at(plan, i, &row) == TW_OK; i++)
        if (strcmp(row.spec, spec) == 0) return row;
    fail_msg("the plan has no %s", spec);
    return row;
}

#endif
