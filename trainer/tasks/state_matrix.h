/* state_matrix.h - the shapes of a checkpoint's matrices, which tell a network's sizes. Inside tasks/ only. */
#ifndef TRAINER_TASKS_STATE_MATRIX_H
#define TRAINER_TASKS_STATE_MATRIX_H

#include <thinwire/thinwire_plugin.h>

/* 0 where the state has no matrix of this name. */
static inline int find_matrix(const tw_state *state, const char *name, size_t shape[2])
{
    tw_state_entry entry;
    if (tw_state_at(state, tw_state_index(state, name), &entry) != TW_OK || entry.dims != 2) return 0;
    shape[0] = entry.shape[0];
    shape[1] = entry.shape[1];
    return 1;
}

#endif
