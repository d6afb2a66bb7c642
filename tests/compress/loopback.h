/* loopback.h - drives the N sides of a scheme in one thread, as a reducer would over a perfect network. */
#ifndef LOOPBACK_H
#define LOOPBACK_H

#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire.h>

enum { LOOPBACK_RANKS = 16 };

typedef struct loopback {
    int size;
    tw_scheme *scheme[LOOPBACK_RANKS];
    size_t packet_bytes; /* rank 0's, of the last step */
} loopback;

static inline tw_status loopback_create(loopback *group, const char *spec, const tw_tensor *tensors, size_t count,
                                        int size)
{
    *group = (loopback){.size = size};
    for (int r = 0; r < size; r++) {
        tw_status status = tw_scheme_create(spec, tensors, count, r, size, &group->scheme[r]);
        if (status != TW_OK) return status;
    }
    return TW_OK;
}

static inline void loopback_destroy(loopback *group)
{
    for (int r = 0; r < group->size; r++) tw_scheme_destroy(group->scheme[r]);
}

/* What the ranks asked for in one round; `damage` (may be NULL) may change what is delivered. */
typedef void (*loopback_damage)(void *packets[], size_t sizes[], int size);

static inline tw_status loopback_deliver(loopback *group, tw_round *round, loopback_damage damage)
{
    static const void *packets[LOOPBACK_RANKS];
    static size_t sizes[LOOPBACK_RANKS];
    static void *copies[LOOPBACK_RANKS];
    for (int r = 0; r < LOOPBACK_RANKS; r++) {
        free(copies[r]);
        copies[r] = NULL;
    }
    if (round[0].kind == TW_ROUND_ALLREDUCE) {
        for (size_t i = 0; i < round[0].count; i++) {
            float sum = round[0].values[i];
            for (int r = 1; r < group->size; r++) sum += round[r].values[i];
            for (int r = 0; r < group->size; r++) round[r].values[i] = sum;
        }
        return TW_OK;
    }
    group->packet_bytes = round[0].size;
    for (int r = 0; r < group->size; r++) {
        if (round[r].size > round[r].capacity || round[r].capacity != round[0].capacity) return TW_ERROR_ARGUMENT;
        copies[r] = malloc(round[r].size ? round[r].size : 1);
        memcpy(copies[r], round[r].data, round[r].size);
        sizes[r] = round[r].size;
    }
    if (damage) damage(copies, sizes, group->size);
    for (int r = 0; r < group->size; r++) packets[r] = copies[r];
    for (int r = 0; r < group->size; r++) {
        round[r].packets = packets;
        round[r].sizes = sizes;
    }
    return TW_OK;
}

/* One step: gradients[r][t] is rank r's gradient of tensor t, and receives the mean. *skipped as the round says. */
static inline tw_status loopback_step(loopback *group, float **gradients[], double norm, loopback_damage damage,
                                      int *skipped)
{
    tw_round round[LOOPBACK_RANKS];
    memset(round, 0, sizeof round);
    for (int r = 0; r < group->size; r++) {
        tw_status status = tw_scheme_begin(group->scheme[r], gradients[r], norm);
        if (status != TW_OK) return status;
    }
    for (;;) {
        for (int r = 0; r < group->size; r++) {
            tw_status status = tw_scheme_next(group->scheme[r], &round[r]);
            if (status != TW_OK) return status;
        }
        if (round[0].kind == TW_ROUND_DONE) break;
        tw_status status = loopback_deliver(group, round, damage);
        if (status != TW_OK) return status;
    }
    *skipped = round[0].skipped;
    return TW_OK;
}

#endif
