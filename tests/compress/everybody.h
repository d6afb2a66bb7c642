/* everybody.h - the gradients of one step on every rank, and the step itself. Who includes it has TENSORS, MOST
 * (elements of a tensor), RANKS and the table of tensors before. */
#ifndef EVERYBODY_H
#define EVERYBODY_H

#include "loopback.h"
#include "support/cmocka.h"

typedef struct step {
    float values[RANKS][TENSORS][MOST];
    float *tensor[RANKS][TENSORS];
    float **rank[RANKS];
} step;

static step *step_create(void)
{
    step *g = calloc(1, sizeof *g);
    assert_non_null(g);
    for (int r = 0; r < RANKS; r++) {
        for (int t = 0; t < TENSORS; t++) g->tensor[r][t] = g->values[r][t];
        g->rank[r] = g->tensor[r];
    }
    return g;
}

/* Takes the step with all ranks, and returns whether they skipped it. */
static int run(loopback *group, step *g)
{
    int skipped = -1;
    assert_int_equal(loopback_step(group, g->rank, -1, NULL, &skipped), TW_OK);
    return skipped;
}

static void create(loopback *group, const char *spec, int size)
{
    if (loopback_create(group, spec, table, TENSORS, size) != TW_OK) fail_msg("%s: %s", spec, tw_last_error());
}

#endif
