#include "carry.h"
#include "best.h"
#include "checkpoint.h"
#include "error.h"
#include "exchange.h"
#include "tensor_table.h"
#include "worker_file.h"
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_outer.h>

#define WEIGHTS "own/" /* as an exchange saves them, where it does */
#define BASE_BUFFERS "base/"
enum { LARGEST_NAME = 512, TOLL = 4096 /* bytes that each tensor counts for beside its own */ };

void carry_release(carry *c)
{
    tw_state_destroy(c->own);
    c->own = NULL;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static tw_status pack(worker *w, tw_state *state)
{
    const learner *l = w->learner;
    TW_TRY(worker_show_own(w));
    TW_TRY(checkpoint_pack_worker(w, state));
    if (l->based) TW_TRY(tensor_table_put(state, BASE_BUFFERS, l->buffer_tensors, l->buffer_tensor_count, l->buffers));
    if (w->exchange->save) return TW_OK;
    return tensor_table_put(state, WEIGHTS, l->tensors, l->tensor_count, l->parameters);
}

tw_status carry_pack(worker *w, int cut, carry *c)
{
    tw_state *state;
    TW_TRY(tw_state_create(&state));
    tw_status status = pack(w, state);
    if (status != TW_OK) {
        tw_state_destroy(state);
        return status;
    }
    carry_release(c);
    *c = (carry){.own = state,
                 .rounds = w->rounds,
                 .taken = w->taken,
                 .moment = {.step = w->step,
                            .steps_per_epoch = w->steps_per_epoch,
                            .best_loss = w->schedule.best_loss,
                            .falls = w->schedule.falls,
                            .best = w->best,
                            .base = w->base,
                            .unseen = cut || w->unseen}};
    memcpy(c->moment.run, w->run, sizeof w->run);
    return TW_OK;
}

/* ---- what the donor gives ---------------------------------------------------------------------------------------- */

/* Each has weights of its own, and what a newcomer reads of the base it has read itself. */
static int is_given(const worker *w, const char *name)
{
    if (strncmp(name, BASE_BUFFERS, sizeof BASE_BUFFERS - 1) == 0) return 0;
    return !w->exchange->save || strncmp(name, WEIGHTS, sizeof WEIGHTS - 1) != 0;
}

/* One tensor on its way; without a name, the end. */
typedef struct parcel {
    char name[LARGEST_NAME];
    int64_t dtype;
    uint64_t dims, shape[TW_MAX_DIMS];
} parcel;

/* More than that nobody remembers of weights of this size. */
static uint64_t most_bytes(const worker *w)
{
    return 64 * (uint64_t)w->learner->parameter_count * sizeof(float) + ((uint64_t)1 << 24);
}

static uint64_t width_of(const parcel *p)
{
    return p->dtype == TW_F32 ? 4 : 8;
}

/* More than `most`: it cannot be. */
static uint64_t bytes_of(const parcel *p, uint64_t most)
{
    uint64_t bytes = width_of(p);
    if (p->dims > TW_MAX_DIMS || (p->dtype != TW_F32 && p->dtype != TW_F64 && p->dtype != TW_U64)) return most + 1;
    for (uint64_t i = 0; i < p->dims; i++) {
        if (p->shape[i] > most || bytes * p->shape[i] > most) return most + 1;
        bytes *= p->shape[i];
    }
    return bytes;
}

static tw_status take_parcel(const worker *w, int donor, parcel *p, const void *given, uint64_t *left, tw_state *state)
{
    size_t shape[TW_MAX_DIMS] = {0};
    uint64_t room = *left > TOLL ? *left - TOLL : 0; /* one without bytes counts, too: there is an end */
    uint64_t bytes = bytes_of(p, room);
    p->name[LARGEST_NAME - 1] = 0;
    if (!room || bytes > room)
        return tw_fail(TW_ERROR_PACKET, "rank %d gives %.100s of a size or type that no network like this has", donor,
                       p->name);
    *left = room - bytes;
    void *data = malloc((size_t)bytes + 1);
    if (!data) return tw_fail(TW_ERROR_MEMORY, "no memory for the %.100s that rank %d gives", p->name, donor);
    if (given) memcpy(data, given, (size_t)bytes);
    for (uint64_t i = 0; i < p->dims; i++) shape[i] = (size_t)p->shape[i];
    uint64_t width = width_of(p);
    tw_status status = tw_comm_broadcast_packed(w->comm, donor, data, (size_t)(bytes / width), (size_t)width);
    if (status == TW_OK && w->rank != donor)
        status = tw_state_put(state, p->name, (tw_dtype)p->dtype, (size_t)p->dims, shape, data);
    free(data);
    return status;
}

static tw_status wrap(const tw_state_entry *entry, parcel *p)
{
    *p = (parcel){.dtype = entry->dtype, .dims = entry->dims};
    if (strlen(entry->name) >= LARGEST_NAME)
        return tw_fail(TW_ERROR_ARGUMENT, "the name %.100s... is too long to be given to others", entry->name);
    memcpy(p->name, entry->name, strlen(entry->name));
    for (size_t i = 0; i < entry->dims; i++) p->shape[i] = entry->shape[i];
    return TW_OK;
}

/* The donor's next tensor that is given, from entry *at on; none is a parcel without a name. */
static tw_status next_parcel(const worker *w, const tw_state *own, size_t *at, parcel *p, const void **data)
{
    tw_state_entry entry;
    *p = (parcel){.name = ""};
    while (*at < tw_state_count(own)) {
        TW_TRY(tw_state_at(own, (*at)++, &entry));
        if (!is_given(w, entry.name)) continue;
        *data = entry.data;
        return wrap(&entry, p);
    }
    return TW_OK;
}

/* A collective: what the donor has in `own` comes into the others' `state`. */
static tw_status spread(const worker *w, int donor, const tw_state *own, tw_state *state)
{
    uint64_t left = most_bytes(w);
    size_t at = 0;
    for (;;) {
        parcel p = {.name = ""};
        const void *data = NULL;
        if (w->rank == donor) TW_TRY(next_parcel(w, own, &at, &p, &data));
        TW_TRY(tw_comm_broadcast(w->comm, donor, &p, sizeof p));
        if (!*p.name) return TW_OK;
        TW_TRY(take_parcel(w, donor, &p, data, &left, state));
    }
}

/* ---- what those that leave hand over ----------------------------------------------------------------------------- */

static tw_status hand_over(worker *w, int leaver, int heir)
{
    tw_state *held;
    TW_TRY(tw_state_create(&held));
    tw_status status = w->rank == leaver ? w->exchange->give_held(w, held) : TW_OK;
    if (status == TW_OK) status = spread(w, leaver, held, held);
    if (status == TW_OK && w->rank == heir) status = w->exchange->take_held(w, held);
    tw_state_destroy(held);
    return status;
}

tw_status carry_hand_over(worker *w, int leaves)
{
    int all[TW_MEMBERS_MOST], heir = 0;
    if (!w->exchange->give_held) return TW_OK;
    TW_TRY(tw_comm_allgather(w->comm, &leaves, sizeof leaves, all));
    while (heir < w->size && all[heir]) heir++;
    for (int r = 0; r < w->size && heir < w->size; r++) {
        if (!all[r])
            heir = r;
        else
            TW_TRY(hand_over(w, r, heir));
    }
    return TW_OK;
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

/* Left behind by the group, with what nobody else has. */
static int is_late(const worker *w, const tw_generation *place)
{
    return place->late && w->exchange->bring;
}

/* What each tells the others. */
typedef struct word {
    uint64_t step, rounds, taken;
    int64_t behind;
} word;

/* Those that have been there may be some steps apart, if one noticed later than another that somebody is lost. */
static tw_status hear_words(worker *w, const tw_generation *place, const carry *c, int *any_behind)
{
    w->taken = place->behind && !is_late(w, place) ? 0 : c->taken;
    word own = {.step = checkpoint_find_step(w, c->moment.step, c->moment.steps_per_epoch),
                .rounds = c->rounds,
                .taken = w->taken,
                .behind = place->behind},
         all[TW_MEMBERS_MOST];
    TW_TRY(tw_comm_allgather(w->comm, &own, sizeof own, all));
    *any_behind = w->owes = 0;
    w->step = 0;
    for (int r = 0; r < w->size; r++) {
        *any_behind |= all[r].behind != 0;
        w->owes |= all[r].taken > 0;
        if (all[r].behind) continue;
        if (all[r].step > w->step) w->step = all[r].step;
    }
    w->rounds = all[place->donor].rounds;
    if (w->step <= w->steps) return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "the group is at step %llu, and the run ends after %llu",
                   (unsigned long long)w->step, (unsigned long long)w->steps);
}

static tw_status take_moment(worker *w, const tw_generation *place, const carry *c)
{
    carry_moment m = c->moment;
    TW_TRY(tw_comm_broadcast(w->comm, place->donor, &m, sizeof m));
    if (m.steps_per_epoch == 0) return tw_fail(TW_ERROR_PACKET, "rank %d tells of epochs without steps", place->donor);
    m.base.sum[sizeof m.base.sum - 1] = m.run[sizeof m.run - 1] = 0;
    if (w->learner->based && strcmp(m.base.sum, c->moment.base.sum) != 0)
        return tw_fail(TW_ERROR_STATE,
                       "--init-from has weights of checksum %s, and the group trains beside those of %s",
                       c->moment.base.sum, m.base.sum);
    w->base = c->moment.base;
    w->schedule.best_loss = m.best_loss;
    w->schedule.falls = m.falls;
    w->best = m.best;
    best_convert(w, checkpoint_find_step(w, m.best.step, m.steps_per_epoch));
    w->unseen = m.unseen != 0;
    memcpy(w->run, m.run, sizeof w->run);
    if (!w->best.step) return TW_OK;
    if (w->rank == 0) best_check(w); /* it may be on the disk of one that is lost */
    return tw_comm_broadcast(w->comm, 0, &w->best, sizeof w->best);
}

/* What it has counted is its own. */
static tw_status keep_sums(const carry *c, tw_state *state)
{
    totals sums;
    double epoch[EPOCH_COUNT];
    TW_TRY(worker_file_get_sums(c->own, &sums, epoch));
    memset(epoch, 0, sizeof epoch);
    return worker_file_put_sums(state, &sums, epoch);
}

/* In place of its own. */
static tw_status become_donors(const worker *w, tw_state *given, const carry *c)
{
    const learner *l = w->learner;
    TW_TRY(keep_sums(c, given));
    if (!l->based) return TW_OK; /* the base is the same */
    TW_TRY(tensor_table_get(c->own, BASE_BUFFERS, l->buffer_tensors, l->buffer_tensor_count, l->buffers));
    return tensor_table_put(given, BASE_BUFFERS, l->buffer_tensors, l->buffer_tensor_count, l->buffers);
}

/* Of the old states this worker's own; who is behind has none, but the donor's. */
typedef struct old_states {
    int rank;
    const tw_state *state;
} old_states;

static tw_status find_old(void *context, int rank, const tw_state **state)
{
    const old_states *old = context;
    *state = rank == old->rank ? old->state : NULL;
    return TW_OK;
}

static tw_status unpack(worker *w, const tw_generation *place, const tw_state *state)
{
    const learner *l = w->learner;
    old_states old = {place->behind && !is_late(w, place) ? place->donor : w->rank, state};
    tw_state *made;
    TW_TRY(checkpoint_unpack_worker(w, state));
    if (l->based) TW_TRY(tensor_table_get(state, BASE_BUFFERS, l->buffer_tensors, l->buffer_tensor_count, l->buffers));
    TW_TRY(optimiser_load(w->optimiser, state));
    if (!w->exchange->regroup) return tensor_table_get(state, WEIGHTS, l->tensors, l->tensor_count, l->parameters);
    TW_TRY(tw_state_create(&made));
    tw_status status = w->exchange->regroup(w, w->size, WORKER_FILE_SCHEME, find_old, &old, made);
    tw_state_destroy(made);
    return status;
}

static tw_status take_donors(worker *w, const tw_generation *place, const carry *c)
{
    tw_state *given;
    TW_TRY(tw_state_create(&given));
    tw_status status = spread(w, place->donor, c->own, given);
    if (status == TW_OK && place->behind) status = become_donors(w, given, c);
    if (status == TW_OK && is_late(w, place)) status = w->exchange->bring(w, WORKER_FILE_SCHEME, c->own, given);
    if (status == TW_OK) status = unpack(w, place, place->behind ? given : c->own);
    tw_state_destroy(given);
    return status;
}

tw_status carry_take(worker *w, const tw_generation *place, const carry *c)
{
    int any_behind;
    if (place->donor < 0) return tw_fail(TW_ERROR_STATE, "nobody in the group has the shared weights any more");
    TW_TRY(hear_words(w, place, c, &any_behind));
    TW_TRY(take_moment(w, place, c));
    return any_behind ? take_donors(w, place, c) : unpack(w, place, c->own);
}
