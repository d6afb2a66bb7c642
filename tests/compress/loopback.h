/* loopback.h - drives the N sides of a scheme in one thread, as a reducer would over a perfect network. */
#ifndef LOOPBACK_H
#define LOOPBACK_H

#include "half.h"

#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_plugin.h>

enum { LOOPBACK_RANKS = 16 };

/* Options of the sparse schemes with which nothing is rounded on its way, and biases are left as they are: what
 * bit-exact oracles need. */
#define LOOPBACK_EXACT "values=fp32,leftovers=fp32,min_dims=2"

typedef struct loopback {
    int size;
    tw_scheme *scheme[LOOPBACK_RANKS];
    size_t packet_bytes;                         /* rank 0's, of the last step */
    const unsigned char *absent[LOOPBACK_RANKS]; /* of each rank's tensors; NULL: none */
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

static inline float loopback_value(const tw_round *round, size_t i)
{
    if (round->dtype == TW_F16) return tw_from_fp16(((uint16_t *)round->values)[i]);
    if (round->dtype == TW_BF16) return tw_from_bf16(((uint16_t *)round->values)[i]);
    return ((float *)round->values)[i];
}

static inline void loopback_set(const tw_round *round, size_t i, float value)
{
    if (round->dtype == TW_F16)
        ((uint16_t *)round->values)[i] = tw_to_fp16(value);
    else if (round->dtype == TW_BF16)
        ((uint16_t *)round->values)[i] = tw_to_bf16(value);
    else
        ((float *)round->values)[i] = value;
}

static inline void loopback_sum(tw_round *round, int size)
{
    for (size_t i = 0; i < round[0].count; i++) {
        float sum = loopback_value(&round[0], i);
        for (int r = 1; r < size; r++) sum += loopback_value(&round[r], i);
        for (int r = 0; r < size; r++) loopback_set(&round[r], i, sum);
    }
}

/* 1 when all ranks ask for the same exchange, or end the step alike. */
static inline int loopback_agree(const tw_round *round, int size)
{
    for (int r = 1; r < size; r++) {
        if (round[r].kind != round[0].kind) return 0;
        if (round[0].kind == TW_ROUND_DONE) {
            if (round[r].skipped != round[0].skipped) return 0;
            continue;
        }
        if (round[0].kind == TW_ROUND_ALLREDUCE &&
            (round[r].count != round[0].count || round[r].dtype != round[0].dtype))
            return 0;
        if (round[0].kind == TW_ROUND_BROADCAST && round[r].root != round[0].root) return 0;
        if (round[0].kind != TW_ROUND_ALLREDUCE && round[r].capacity != round[0].capacity) return 0;
    }
    return 1;
}

/* Makes a packet's checksum fit what it holds: a stranger's packet, not a damaged one. */
static inline void loopback_seal(unsigned char *packet, size_t size)
{
    enum { CHECKED = 20, HEADER = 24 };
    const uint32_t check = tw_crc32c(tw_crc32c(0, packet, CHECKED), packet + HEADER, size - HEADER);
    memcpy(packet + CHECKED, &check, sizeof check);
}

/* What the ranks asked for in one round; `damage` (may be NULL) may change what is delivered. */
typedef void (*loopback_damage)(void *packets[], size_t sizes[], int size);

/* Each rank's packets to each rank; `damage` changes what the last rank, which stands for all, is given. */
static inline tw_status loopback_alltoall(loopback *group, tw_round *round, loopback_damage damage)
{
    static void *copies[LOOPBACK_RANKS][LOOPBACK_RANKS];
    static const void *packets[LOOPBACK_RANKS][LOOPBACK_RANKS];
    static size_t sizes[LOOPBACK_RANKS][LOOPBACK_RANKS];
    group->packet_bytes = 0;
    for (int to = 0; to < group->size; to++) {
        for (int from = 0; from < group->size; from++) {
            size_t size = sizes[to][from] = round[from].sizes[to];
            if (size > round[from].capacity) return TW_ERROR_ARGUMENT;
            free(copies[to][from]);
            copies[to][from] = malloc(size ? size : 1);
            memcpy(copies[to][from], round[from].packets[to], size);
        }
        group->packet_bytes += sizes[to][0];
    }
    if (damage) damage(copies[group->size - 1], sizes[group->size - 1], group->size);
    for (int to = 0; to < group->size; to++) {
        for (int from = 0; from < group->size; from++) packets[to][from] = copies[to][from];
        round[to].packets = packets[to];
        round[to].sizes = sizes[to];
    }
    return TW_OK;
}

static inline tw_status loopback_deliver(loopback *group, tw_round *round, loopback_damage damage)
{
    static const void *packets[LOOPBACK_RANKS];
    static size_t sizes[LOOPBACK_RANKS];
    static void *copies[LOOPBACK_RANKS];
    for (int r = 0; r < LOOPBACK_RANKS; r++) {
        free(copies[r]);
        copies[r] = NULL;
    }
    if (!loopback_agree(round, group->size)) return TW_ERROR_ARGUMENT;
    if (round[0].kind == TW_ROUND_ALLREDUCE) {
        loopback_sum(round, group->size);
        return TW_OK;
    }
    int first = 0, senders = group->size;
    if (round[0].kind == TW_ROUND_ALLTOALL) return loopback_alltoall(group, round, damage);
    if (round[0].kind == TW_ROUND_BROADCAST) {
        first = round[0].root;
        senders = 1;
    }
    group->packet_bytes = round[first].size;
    for (int r = 0; r < senders; r++) {
        const tw_round *from = &round[first + r];
        if (from->size > from->capacity) return TW_ERROR_ARGUMENT;
        copies[r] = malloc(from->size ? from->size : 1);
        memcpy(copies[r], from->data, from->size);
        sizes[r] = from->size;
    }
    if (damage) damage(copies, sizes, senders);
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
    *skipped = 0;
    for (int r = 0; r < group->size; r++) {
        tw_status status = tw_scheme_begin_without(group->scheme[r], gradients[r], group->absent[r], norm);
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
    return loopback_agree(round, group->size) ? TW_OK : TW_ERROR_ARGUMENT;
}

/* ---- saved state ------------------------------------------------------------------------------------------------- */

/* What a scheme remembers, under names that begin with `prefix`; NULL if it cannot be saved. */
static inline tw_state *loopback_save(tw_scheme *scheme, const char *prefix)
{
    tw_state *saved;
    if (tw_state_create(&saved) != TW_OK) return NULL;
    if (tw_scheme_save_state(scheme, prefix, saved) == TW_OK) return saved;
    tw_state_destroy(saved);
    return NULL;
}

/* 1 if both hold the same entries, to the bit; but for those called `but` (NULL: none). */
static inline int loopback_same_state(const tw_state *left, const tw_state *right, const char *but)
{
    if (tw_state_count(left) != tw_state_count(right)) return 0;
    for (size_t i = 0; i < tw_state_count(left); i++) {
        tw_state_entry a, b;
        if (tw_state_at(left, i, &a) != TW_OK || tw_state_at(right, i, &b) != TW_OK) return 0;
        if (but && strcmp(a.name, but) == 0) continue;
        if (strcmp(a.name, b.name) != 0 || a.bytes != b.bytes || memcmp(a.data, b.data, a.bytes) != 0) return 0;
    }
    return 1;
}

/* One entry of what it remembers, count floats. */
static inline tw_status loopback_saved(tw_scheme *scheme, const char *name, size_t count, float *dst)
{
    tw_state *saved = loopback_save(scheme, "");
    tw_status status = saved ? tw_state_get(saved, name, TW_F32, count, dst) : TW_ERROR_STATE;
    tw_state_destroy(saved);
    return status;
}

/* Every rank of `to` loads what that of `from` saves. */
static inline tw_status loopback_move(const loopback *from, loopback *to)
{
    for (int r = 0; r < from->size; r++) {
        tw_state *saved = loopback_save(from->scheme[r], "rank/");
        tw_status status = saved ? tw_scheme_load_state(to->scheme[r], "rank/", saved) : TW_ERROR_STATE;
        tw_state_destroy(saved);
        if (status != TW_OK) return status;
    }
    return TW_OK;
}

/* Moves what the group remembers into a fresh one, which takes its place. */
static inline tw_status loopback_restart(loopback *group, const char *spec, const tw_tensor *tensors, size_t count)
{
    loopback fresh;
    tw_status status = loopback_create(&fresh, spec, tensors, count, group->size);
    if (status == TW_OK) status = loopback_move(group, &fresh);
    loopback_destroy(group);
    *group = fresh;
    return status;
}

#endif
