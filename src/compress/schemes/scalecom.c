/* scalecom - all-reduce compatible sparsification (Chen, Ni, Lu, Cui, Chen, Sun, Wang, Venkataramani, Srinivasan,
 * Zhang, Gopalakrishnan; NeurIPS 2020, arXiv 2104.11125).
 *
 * One rank a step, in turn, is the leader and chooses for all: the largest |p| of each chunk of `rate` elements. Its
 * indices are broadcast, and the values there, aligned on all ranks, go through an all-reduce: a worker's bytes do not
 * grow with their number. Per rank, with g already scaled by 1/N:
 *     p = m + g;  s = p at the leader's indices, else 0
 *     m = (1 - beta)*m + beta*(p - s)     the memory, low-pass filtered; beta = 1 is plain error feedback
 * Momentum stays with the optimiser.
 *
 * One pass suffices, and it needs no indices: m += beta*g, of which p = m + (1 - beta)*g and, where s was sent,
 * m - beta*s follow. All ranks make it at once, so that the others only wait while the packet itself travels.
 *
 * After the paper: the rule and the memory. Our own: values travel in half precision by default, scaled by a power of
 * two from the leader's packet into the middle of fp16's range, and what rounding and clamping lose is not taken out of
 * m. So is the warm-up: where the paper's descriptions have a dense one, the rate grows by fours to its final value, as
 * DGC's does. The chunks are as those descriptions have them; its rates per layer are not known for certain, so there
 * is one rate, and `rates` for exceptions. */
#include "aligned.h"
#include "chunked.h"
#include "delivered.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "rates.h"
#include "sound.h"
#include "sparse.h"
#include "warmup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    AHEAD = 48,   /* chunks between an element's prefetch and its use */
    BLOCK = 1024, /* values scaled and sent at a time: they stay in the first-level cache */
    RUN = 1024,   /* elements, about, that are looked at and taken in: they stay in the second-level cache */
    HEADROOM = 4, /* a rank's value may be 2^HEADROOM times the leader's largest and is not clamped */
};

/* One compressed tensor. */
typedef struct part {
    size_t rate;                       /* its final one */
    tw_chunked chunked;                /* as this step cuts it */
    size_t first_element, first_chunk; /* where it begins in the memory, and in the arrays with an entry a chunk */
} part;

typedef struct scalecom {
    tw_scheme scheme;
    double beta;
    int64_t rate, min_sent, warmup_steps, warmup_rate;
    char *rates;
    int values;
    part *parts;         /* one a tensor */
    size_t elements;     /* of all compressed tensors */
    size_t chunks;       /* of this step, and the three below, too */
    size_t index_bytes;  /* of the packed positions */
    size_t packet_bound; /* the most bytes of a packet */
    float *memory;
    uint32_t *index; /* one a chunk: the element of its tensor that is sent; before that, the position in its chunk */
    float *unsent;   /* the memory there as it was, for revert */
    tw_aligned aligned; /* the values there, as they travel */
    unsigned char *packet;
    int sent; /* this step took something out of the memory */
    tw_dense leftovers;
} scalecom;

static const tw_option options[] = {
    {"rate", TW_OPTION_INTEGER, offsetof(scalecom, rate), "100", 1, TW_MOST_RATE, NULL,
     "one element in so many is sent: the largest of each chunk of that length"},
    {"rates", TW_OPTION_TEXT, offsetof(scalecom, rates), "", 0, 0, NULL,
     "other rates for some tensors: PATTERN@RATE, separated by |; @1 sends all of it"},
    TW_OPTION_MIN_SENT(scalecom),
    {"beta", TW_OPTION_REAL, offsetof(scalecom, beta), "0.1", 0.001, 1, NULL, "low-pass filter of the memory; 1: none"},
    {"warmup_steps", TW_OPTION_INTEGER, offsetof(scalecom, warmup_steps), "400", 0, 1e9, NULL,
     "steps over which the rate grows to its final value"},
    {"warmup_rate", TW_OPTION_INTEGER, offsetof(scalecom, warmup_rate), "16", 1, TW_MOST_RATE, NULL,
     "rate of the first of these steps; each next level is four times that"},
    {"values", TW_OPTION_CHOICE, offsetof(scalecom, values), "fp16", 0, 0, TW_DENSE_CHOICES,
     "how a value travels; what rounding loses stays in the memory"},
};

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

/* The rate of a tensor without one of its own. A small tensor at the common rate would learn too slowly: its few
 * elements cost next to nothing. */
static size_t common_rate(const scalecom *self, size_t count)
{
    size_t rate = (size_t)self->rate, most = count / (size_t)self->min_sent;
    if (rate > most) rate = most;
    return rate ? rate : 1;
}

static tw_status find_rate(scalecom *self, size_t tensor)
{
    const tw_scheme_tensor *of = &self->scheme.tensors[tensor];
    part *t = &self->parts[tensor];
    t->first_element = self->elements;
    self->elements += of->count;
    return tw_rate_of(self->rates, of->name, common_rate(self, of->count), &t->rate);
}

/* Cuts the tensors into chunks of `most` elements at most. */
static void scalecom_cut(scalecom *self, size_t most)
{
    const tw_scheme *scheme = &self->scheme;
    self->chunks = self->index_bytes = 0;
    self->packet_bound = tw_packet_bound_header();
    for (size_t i = 0; i < scheme->count; i++) {
        part *t = &self->parts[i];
        if (!scheme->tensors[i].compressed) continue;
        t->chunked = tw_chunked_make(scheme->tensors[i].count, t->rate < most ? t->rate : most);
        t->first_chunk = self->chunks;
        self->chunks += t->chunked.chunks;
        self->index_bytes += tw_chunked_bytes(&t->chunked);
        self->packet_bound += tw_chunked_bound(&t->chunked);
    }
    self->aligned.count = self->chunks;
}

static tw_status scalecom_check(const tw_scheme *scheme, const tw_tensor *tensors, size_t count)
{
    return tw_rates_check(((const scalecom *)scheme)->rates, tensors, count);
}

/* The most elements that a chunk of step `step` has: the warm-up's rate grows as a density falls. */
static size_t rate_at(const scalecom *self, uint64_t step)
{
    tw_warmup warmup = {self->warmup_steps, 1 / (double)self->warmup_rate};
    double last = 1 / (double)self->rate;
    if (!tw_warmup_is_on(&warmup, step, last)) return SIZE_MAX;
    return (size_t)(1 / tw_warmup_density(&warmup, step, last) + 0.5);
}

/* Makes room for every level of the warm-up: the first has the most chunks, but a rate of 1 has no positions. */
static tw_status scalecom_make_room(scalecom *self)
{
    size_t chunks = 0, bytes = 0;
    for (size_t rate = rate_at(self, 0);; rate = rate < (size_t)self->rate ? 4 * rate : SIZE_MAX) {
        scalecom_cut(self, rate);
        if (self->chunks > chunks) chunks = self->chunks;
        if (self->packet_bound > bytes) bytes = self->packet_bound;
        if (rate == SIZE_MAX) break;
    }
    TW_TRY(tw_allocate(chunks, sizeof *self->index, &self->index));
    TW_TRY(tw_allocate(chunks, sizeof *self->unsent, &self->unsent));
    TW_TRY(tw_aligned_create(&self->aligned, self->values, self->scheme.size, chunks));
    return tw_allocate(bytes, 1, &self->packet);
}

static tw_status scalecom_create(tw_scheme *scheme)
{
    scalecom *self = (scalecom *)scheme;
    TW_TRY(tw_allocate(scheme->count, sizeof *self->parts, &self->parts));
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) TW_TRY(find_rate(self, i));
    TW_TRY(tw_allocate(self->elements, sizeof *self->memory, &self->memory));
    TW_TRY(scalecom_make_room(self));
    return tw_leftovers_create(&self->leftovers, scheme);
}

static void scalecom_destroy(tw_scheme *scheme)
{
    scalecom *self = (scalecom *)scheme;
    tw_free(self->parts);
    tw_free(self->memory);
    tw_free(self->index);
    tw_free(self->unsent);
    tw_aligned_destroy(&self->aligned);
    tw_free(self->packet);
    tw_dense_destroy(&self->leftovers);
}

/* ---- the pass, and the leader's packet --------------------------------------------------------------------------- */

static int leader_of(const tw_scheme *scheme)
{
    return (int)(scheme->step % (uint64_t)scheme->size);
}

static int is_leader(const tw_scheme *scheme)
{
    return leader_of(scheme) == scheme->rank;
}

/* What p is above the new memory, as a multiple of g. */
static float unfiltered(const scalecom *self)
{
    return (float)((1 - self->beta) * (double)self->scheme.scale);
}

/* Places the leader's largest value HEADROOM below the most that may be sent. */
static int choose_exponent(const scalecom *self, float largest)
{
    int from, to;
    if (self->aligned.dtype != TW_F16 || largest == 0) return 0;
    frexpf(largest, &from);
    frexpf(self->aligned.largest, &to);
    int exponent = to - 1 - HEADROOM - from;
    if (exponent > TW_MOST_EXPONENT) return TW_MOST_EXPONENT;
    return exponent < -TW_MOST_EXPONENT ? -TW_MOST_EXPONENT : exponent;
}

/* Takes in elements first .. first+n of a tensor, a whole number of chunks. The leader's largest of them is returned.
 */
static float accumulate_run(scalecom *self, const part *t, const float *gradient, size_t first, size_t n)
{
    const tw_kernels *kernels = tw_kernels_best();
    size_t rate = t->chunked.length;
    float *memory = self->memory + t->first_element + first;
    float filtered = (float)(self->beta * (double)self->scheme.scale);
    if (is_leader(&self->scheme))
        return kernels->chunks->accumulate_top(memory, gradient + first, n, filtered, unfiltered(self), rate,
                                               self->index + t->first_chunk + first / rate);
    kernels->quantise->accumulate(memory, gradient + first, n, filtered);
    return 0;
}

/* Each run is looked at, up to the end of its last group, and taken in while it is in the cache. */
static void scalecom_accumulate(scalecom *self, size_t tensor)
{
    tw_scheme *scheme = &self->scheme;
    part *t = &self->parts[tensor];
    float *gradient = scheme->gradients[tensor], largest = 0;
    size_t count = t->chunked.count, rate = t->chunked.length, run = rate < RUN ? RUN / rate * rate : rate, looked = 0;
    for (size_t first = 0, n; first < count; first += n) {
        n = count - first < run ? count - first : run;
        looked = tw_sound_silence(scheme, gradient, count, looked, first + n);
        float top = accumulate_run(self, t, gradient, first, n);
        if (top > largest) largest = top;
    }
    t->chunked.exponent = choose_exponent(self, largest);
}

static tw_status put_positions(const scalecom *self, size_t tensor, tw_packet_writer *writer)
{
    const part *t = &self->parts[tensor];
    return tw_chunked_put(&t->chunked, self->index + t->first_chunk, writer);
}

static tw_status scalecom_write_packet(scalecom *self, size_t *size)
{
    const tw_scheme *scheme = &self->scheme;
    tw_packet_writer writer;
    tw_packet_begin(&writer, self->packet, self->packet_bound, (uint32_t)scheme->step, !scheme->finite,
                    scheme->carried);
    for (size_t i = 0; scheme->finite && i < scheme->count; i++)
        if (scheme->tensors[i].compressed) TW_TRY(put_positions(self, i, &writer));
    *size = tw_packet_end(&writer);
    return TW_OK;
}

static tw_status start_broadcast(scalecom *self, tw_round *round)
{
    tw_scheme *scheme = &self->scheme;
    const int may_be_finite = scheme->finite; /* what is not sound stays outside, and all else is taken in */
    for (size_t i = 0; may_be_finite && i < scheme->count; i++)
        if (scheme->tensors[i].compressed) scalecom_accumulate(self, i);
    tw_sound_together(scheme);
    round->kind = TW_ROUND_BROADCAST;
    round->root = leader_of(scheme);
    round->data = self->packet;
    round->size = 0;
    round->capacity = self->packet_bound;
    return is_leader(scheme) ? scalecom_write_packet(self, &round->size) : TW_OK;
}

/* ---- everybody reads it ------------------------------------------------------------------------------------------ */

static tw_status get_positions(scalecom *self, size_t tensor, tw_packet_reader *reader)
{
    part *t = &self->parts[tensor];
    return tw_chunked_get(&t->chunked, self->index + t->first_chunk, reader);
}

static tw_status read_packet(scalecom *self, const tw_round *round)
{
    tw_scheme *scheme = &self->scheme;
    tw_packet_reader reader;
    TW_TRY(tw_packet_open(&reader, round->packets[0], round->sizes[0], scheme->carried));
    if (reader.info.step != (uint32_t)scheme->step)
        return tw_fail(TW_ERROR_PACKET, "a packet of step %u in step %u", reader.info.step, (uint32_t)scheme->step);
    scheme->skipped = reader.info.nonfinite;
    for (size_t i = 0; !scheme->skipped && i < scheme->count; i++)
        if (scheme->tensors[i].compressed) TW_TRY(get_positions(self, i, &reader));
    return tw_packet_close(&reader);
}

/* ---- the aligned values ------------------------------------------------------------------------------------------ */

/* Reads p of a run of chunks, and what the memory holds there. The elements lie a chunk apart and are not in the cache:
 * several are asked for at once. */
static void gather_block(scalecom *self, const part *t, const float *gradient, size_t first, size_t n, float *p)
{
    const uint32_t *index = self->index + t->first_chunk;
    const float *memory = self->memory + t->first_element;
    float *unsent = self->unsent + t->first_chunk, rest = unfiltered(self);
    for (size_t c = first; c < first + n; c++) {
        uint32_t ahead = index[c + AHEAD < t->chunked.chunks ? c + AHEAD : c], i = index[c];
        __builtin_prefetch(&memory[ahead], 1);
        __builtin_prefetch(&gradient[ahead]);
        unsent[c] = memory[i];
        *p++ = memory[i] + rest * gradient[i];
    }
}

/* Takes a run of chunks' values out of the memory, as the others will see them; of a tensor that is absent, zeros. */
static void send_block(scalecom *self, size_t tensor, size_t first, size_t n)
{
    const part *t = &self->parts[tensor];
    size_t at = t->first_chunk + first;
    const uint32_t *index = self->index + at;
    float *memory = self->memory + t->first_element, *unsent = self->unsent + at, sent[BLOCK];
    float up = ldexpf(1, t->chunked.exponent), down = ldexpf(1, -t->chunked.exponent);
    gather_block(self, t, self->scheme.gradients[tensor], first, n, sent);
    if (self->scheme.absent[tensor]) up = 0;
    for (size_t j = 0; j < n; j++) sent[j] *= up;
    tw_aligned_put(&self->aligned, at, sent, n);
    for (size_t j = 0; j < n; j++) memory[index[j]] = unsent[j] - (float)self->beta * (sent[j] * down);
}

static void send_tensor(scalecom *self, size_t tensor)
{
    const part *t = &self->parts[tensor];
    for (size_t first = 0, n; first < t->chunked.chunks; first += n) {
        n = t->chunked.chunks - first < BLOCK ? t->chunked.chunks - first : BLOCK;
        send_block(self, tensor, first, n);
    }
}

/* A rank whose gradient is not finite makes the sum so, and keeps its memory as it is. */
static void start_values(scalecom *self, tw_round *round)
{
    tw_scheme *scheme = &self->scheme;
    for (size_t i = 0; scheme->finite && i < scheme->count; i++)
        if (scheme->tensors[i].compressed) send_tensor(self, i);
    self->sent = scheme->finite;
    scheme->account.elements_sent = self->chunks;
    scheme->account.index_bytes = self->index_bytes;
    scheme->account.packet_bytes = round->sizes[0] + tw_aligned_bytes(&self->aligned);
    tw_aligned_start(&self->aligned, scheme->finite, round);
}

static int scalecom_receive(const scalecom *self, size_t tensor)
{
    const part *t = &self->parts[tensor];
    tw_aligned_tensor sums = {self->scheme.gradients[tensor], t->chunked.count, t->chunked.chunks,
                              self->index + t->first_chunk};
    return tw_aligned_spread(&self->aligned, t->first_chunk, ldexpf(1, -t->chunked.exponent), sums);
}

static void finish_values(scalecom *self)
{
    tw_scheme *scheme = &self->scheme;
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed && !scalecom_receive(self, i)) scheme->skipped = 1;
}

/* ---- the rounds -------------------------------------------------------------------------------------------------- */

enum { START, START_VALUES, FINISH_VALUES, FINISH_LEFTOVERS };

static tw_status start_leftovers(scalecom *self, tw_round *round)
{
    tw_scheme *scheme = &self->scheme;
    scheme->phase = FINISH_LEFTOVERS;
    round->kind = TW_ROUND_DONE;
    if (!scheme->skipped && self->leftovers.count) tw_leftovers_pack(&self->leftovers, round);
    return TW_OK;
}

static tw_status scalecom_start(scalecom *self, tw_round *round)
{
    tw_scheme *scheme = &self->scheme;
    size_t rate = rate_at(self, scheme->step);
    self->sent = 0;
    scheme->account.warmup = rate != SIZE_MAX;
    scalecom_cut(self, rate);
    if (self->elements) return start_broadcast(self, round);
    tw_sound_together(scheme);
    return start_leftovers(self, round);
}

static tw_status scalecom_next(tw_scheme *scheme, tw_round *round)
{
    scalecom *self = (scalecom *)scheme;
    switch (scheme->phase++) {
    case START:
        return scalecom_start(self, round);
    case START_VALUES:
        TW_TRY(tw_delivered_blame(leader_of(scheme), read_packet(self, round)));
        if (scheme->skipped) break;
        start_values(self, round);
        return TW_OK;
    case FINISH_VALUES:
        finish_values(self);
        break;
    default:
        scheme->skipped = !tw_dense_unpack(&self->leftovers);
        round->kind = TW_ROUND_DONE;
        return TW_OK;
    }
    return start_leftovers(self, round);
}

static void scalecom_put_back(scalecom *self, const part *t)
{
    float *memory = self->memory + t->first_element;
    for (size_t c = t->first_chunk; c < t->first_chunk + t->chunked.chunks; c++)
        memory[self->index[c]] = self->unsent[c];
}

static void scalecom_revert(tw_scheme *scheme)
{
    scalecom *self = (scalecom *)scheme;
    tw_dense_revert(&self->leftovers);
    for (size_t i = 0; self->sent && i < scheme->count; i++)
        if (scheme->tensors[i].compressed) scalecom_put_back(self, &self->parts[i]);
}

static tw_status scalecom_walk(tw_scheme *scheme, tw_walk *visitor)
{
    scalecom *self = (scalecom *)scheme;
    for (size_t i = 0; i < scheme->count; i++) {
        const tw_scheme_tensor *tensor = &scheme->tensors[i];
        if (!tensor->compressed) continue;
        TW_TRY(tw_walk_floats(visitor, "memory", tensor, TW_STATE_ADDS, self->memory + self->parts[i].first_element));
    }
    return tw_dense_walk(&self->leftovers, visitor);
}

static void scalecom_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    const part *t = &((const scalecom *)scheme)->parts[tensor];
    snprintf(text, capacity, "scalecom: %zu of %zu elements, the largest of each %zu", t->chunked.chunks,
             scheme->tensors[tensor].count, t->chunked.length);
}

/* The memory is read and written, the gradient read. */
const tw_scheme_ops tw_scheme_scalecom = {
    .name = "scalecom",
    .summary = "one rank in turn selects for all, chunk by chunk: an all-reduce whose bytes do not grow with the ranks",
    .one_pass = 1,
    .floor_bytes = 12,
    .struct_size = sizeof(scalecom),
    TW_OPTIONS(options),
    .check = scalecom_check,
    .create = scalecom_create,
    .next = scalecom_next,
    .revert = scalecom_revert,
    .walk = scalecom_walk,
    .plan = scalecom_plan,
    .destroy = scalecom_destroy,
};
