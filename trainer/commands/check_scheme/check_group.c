#include "check_group.h"
#include "error.h"
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_by_hand.h>

const tw_tensor check_table[CHECK_TENSORS] = {{.name = "matrix", .dims = 2, .shape = {12, 12}},
                                              {.name = "bias", .dims = 1, .shape = {5}},
                                              {.name = "large", .dims = 2, .shape = {37, 41}}};

tw_status check_group_create(check_group *group, const char *spec, int size)
{
    *group = (check_group){.size = size};
    for (int r = 0; r < size; r++)
        TW_TRY(tw_scheme_create(spec, check_table, CHECK_TENSORS, r, size, &group->scheme[r]));
    return TW_OK;
}

void check_group_destroy(check_group *group)
{
    for (int r = 0; r < group->size; r++) tw_scheme_destroy(group->scheme[r]);
}

static tw_status check_group_begin(check_group *group)
{
    static const unsigned char without[CHECK_TENSORS] = {1};
    for (int r = 0; r < group->size; r++) {
        float *gradients[CHECK_TENSORS], *at = group->values[r];
        for (int t = 0; t < CHECK_TENSORS; at += tw_tensor_count(&check_table[t++])) gradients[t] = at;
        int lacks = group->absent && r == group->size - 1;
        TW_TRY(tw_scheme_begin_without(group->scheme[r], gradients, lacks ? without : NULL, -1));
    }
    return TW_OK;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static tw_status check_alike(const tw_round *round, int size)
{
    for (int r = 1; r < size; r++) {
        int sums = round->kind == TW_ROUND_ALLREDUCE;
        int differs = round[r].kind != round->kind || (sums && round[r].count != round->count) ||
                      (round->kind == TW_ROUND_DONE && round[r].skipped != round->skipped) ||
                      (round->kind == TW_ROUND_BROADCAST && round[r].root != round->root);
        if (differs) return tw_fail(TW_ERROR_ARGUMENT, "rank %d asks for another round than rank 0", r);
    }
    return TW_OK;
}

/* bfloat16 is the upper half of a float. Nearest, ties up: no promise hangs on it. */
static float check_group_read_value(const tw_round *round, size_t i)
{
    float value;
    if (round->dtype == TW_F32) return ((const float *)round->values)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)round->values)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void write_value(const tw_round *round, size_t i, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    int is_nan = value != value;
    if (round->dtype == TW_F32)
        ((float *)round->values)[i] = value;
    else
        ((uint16_t *)round->values)[i] = is_nan ? 0x7fc0 : (uint16_t)((bits + 0x8000) >> 16);
}

static tw_status add_up(tw_round *round, int size)
{
    if (round->dtype == TW_F16) return tw_fail(TW_ERROR_UNSUPPORTED, "sums in fp16 are not tried here");
    for (size_t i = 0; i < round->count; i++) {
        float sum = check_group_read_value(&round[0], i);
        for (int r = 1; r < size; r++) sum += check_group_read_value(&round[r], i);
        for (int r = 0; r < size; r++) write_value(&round[r], i, sum);
    }
    return TW_OK;
}

/* The packets of a round on their way, from each rank to each. */
typedef struct post {
    void *packets[CHECK_RANKS][CHECK_RANKS]; /* [to][from] */
    size_t sizes[CHECK_RANKS][CHECK_RANKS];
} post;

static tw_status check_group_put(post *all, int to, int from, const void *data, size_t size, size_t capacity)
{
    if (size > capacity) return tw_fail(TW_ERROR_ARGUMENT, "rank %d sends more than its round has room for", from);
    free(all->packets[to][from]);
    all->packets[to][from] = calloc(size + 1, 1);
    if (!all->packets[to][from]) return tw_fail(TW_ERROR_MEMORY, "no memory for a packet");
    if (size) memcpy(all->packets[to][from], data, size);
    all->sizes[to][from] = size;
    return TW_OK;
}

static tw_status collect(post *all, const tw_round *round, int size)
{
    int one = round->kind == TW_ROUND_BROADCAST, each = round->kind == TW_ROUND_ALLTOALL;
    for (int to = 0; to < size; to++)
        for (int from = 0; from < (one ? 1 : size); from++) {
            const tw_round *of = &round[one ? round->root : from];
            TW_TRY(check_group_put(all, to, from, each ? of->packets[to] : of->data, each ? of->sizes[to] : of->size,
                                   of->capacity));
        }
    return TW_OK;
}

/* The last sender's packet, alike to everybody. */
static void damage(check_group *group, post *all, int from)
{
    const harm *h = &group->harm;
    for (int to = 0; to < group->size; to++) {
        unsigned char *packet = all->packets[to][from];
        size_t *size = &all->sizes[to][from];
        if (h->kind == HARM_EXTEND) ++*size;
        if (h->kind == HARM_EXTEND || h->byte >= *size) continue;
        if (h->kind == HARM_CUT) *size = h->byte;
        if (h->kind == HARM_FLIP) packet[h->byte] ^= (unsigned char)(1 << h->bit);
    }
}

static tw_status deliver(check_group *group, tw_round *round, post *all)
{
    TW_TRY(check_alike(round, group->size));
    if (round->kind == TW_ROUND_ALLREDUCE) return add_up(round, group->size);
    TW_TRY(collect(all, round, group->size));
    int number = group->packet_rounds++, from = round->kind == TW_ROUND_BROADCAST ? 0 : group->size - 1;
    if (number < 8) group->packet_bytes[number] = all->sizes[0][from];
    if (group->harm.kind != HARM_NONE && number == group->harm.round) damage(group, all, from);
    for (int r = 0; r < group->size; r++) {
        round[r].packets = (const void *const *)all->packets[r];
        round[r].sizes = all->sizes[r];
    }
    return TW_OK;
}

static tw_status take_rounds(check_group *group, tw_round *round, post *all)
{
    for (;;) {
        for (int r = 0; r < group->size; r++) TW_TRY(tw_scheme_next(group->scheme[r], &round[r]));
        if (round->kind == TW_ROUND_DONE) return check_alike(round, group->size);
        TW_TRY(deliver(group, round, all));
    }
}

tw_status check_group_step(check_group *group)
{
    tw_round round[CHECK_RANKS] = {{.kind = TW_ROUND_DONE}};
    post all = {{{NULL}}, {{0}}};
    group->packet_rounds = 0;
    TW_TRY(check_group_begin(group));
    tw_status status = take_rounds(group, round, &all);
    group->skipped = round->skipped;
    for (int to = 0; to < CHECK_RANKS; to++)
        for (int from = 0; from < CHECK_RANKS; from++) free(all.packets[to][from]);
    return status;
}
