/* powersgd - PowerSGD: low-rank gradients (Vogels, Karimireddy, Jaggi; NeurIPS 2019, arXiv 1905.13727).
 *
 * A tensor is a matrix: its first dimension by the product of the others. On every rank, with g already scaled by 1/N
 * and sums over the ranks:
 *     M = e + g
 *     P = sum of M*Q;  orthonormalise P's columns      one step of the power iteration
 *     Q = sum of M'*P                                  kept: the next step starts from it (warm start)
 *     the gradient becomes P*Q';  e = M - P*Q' / N     sum of e = sum of M - P*Q': nothing is lost
 * Two all-reduces of rank * (rows + columns) values in all, whatever the number of ranks, and with P's of a count:
 * where a tensor is absent on some ranks, N is the number of those that have it.
 *
 * Not the paper's: Q is orthonormalised before it is used, which spans the same space but keeps P as large as the
 * gradient, not as its square; a column of Q that has vanished (a zero gradient, or one of lower rank) is drawn anew,
 * for it would stay zero for ever.
 *
 * Nor are the `warmup_steps` at the beginning, which sum M itself, and e is what rounding takes from it: without them
 * AdamW learns less in short runs (PyTorch's hook has such steps, too). Who has the factors travel as fp32 gives up no
 * bit here either.
 *
 * The residual is left at M until the next step subtracts P*Q'/N on its way: a pass less over memory, and a step that
 * must be taken back only has to be forgotten. */
#include "error.h"
#include "kernels.h"
#include "leftovers.h"
#include "matrix.h"
#include "memory.h"
#include "orthonormal.h"
#include "smaller.h"
#include "sound.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One all-reduce: one factor of every matrix. */
typedef struct factors {
    size_t count, more; /* values, and counters behind them */
    float *values;
} factors;

typedef struct powersgd {
    tw_scheme scheme;
    int64_t rank, seed;
    int warm_start, feedback, values;
    tw_matrix *matrices; /* one a tensor */
    float **residual;    /* of each; NULL without feedback */
    float **counter;     /* of each, in p: the ranks that have it in the step under way */
    float *present;      /* of each: how many ranks had it in the last step */
    float *kept;         /* of each: of P*Q' of the last step, what is this rank's in the residual */
    factors p, q;
    float *starts, *residuals; /* of all */
    uint16_t *halves;          /* with values=bf16: what travels */
    double *scratch;           /* for the longest column */
    /* The last step is done, but its P*Q' has still to leave the residual, and its Q to become the start. */
    int pending;
    int64_t warmup_steps;
    tw_dense whole; /* the matrices, for the beginning; its residual is theirs */
    tw_dense leftovers;
} powersgd;

enum { FP32, BF16 };

static const tw_option options[] = {
    {"rank", TW_OPTION_INTEGER, offsetof(powersgd, rank), "4", 1, TW_MATRIX_MAX_RANK, NULL,
     "columns of the two factors that stand for a matrix"},
    {"warm_start", TW_OPTION_SWITCH, offsetof(powersgd, warm_start), "on", 0, 0, NULL,
     "start from the last step's factor; off: from a random one"},
    {"feedback", TW_OPTION_SWITCH, offsetof(powersgd, feedback), "on", 0, 0, NULL,
     "error feedback: what is not sent is added to the next step's gradient"},
    {"values", TW_OPTION_CHOICE, offsetof(powersgd, values), "bf16", 0, 0, "fp32|bf16",
     "how the factors travel; what rounding loses stays in the residual"},
    {"seed", TW_OPTION_INTEGER, offsetof(powersgd, seed), "1", 0, 1e15, NULL, "of the random factors"},
    {"warmup_steps", TW_OPTION_INTEGER, offsetof(powersgd, warmup_steps), "5", 0, 1e9, NULL,
     "steps at the beginning that send every element, as fp32 or bf16 by `values`"},
};

/* More than five were hardly better, whatever the length of the run, and cost bytes: docs/schemes.md. */
static void powersgd_of_run(uint64_t steps, double *density, int64_t *warmup_steps)
{
    enum { MOST = 5 };
    (void)density;
    *warmup_steps = steps / 20 < MOST ? (int64_t)(steps / 20) : MOST;
}

/* ---- the start --------------------------------------------------------------------------------------------------- */

/* What is drawn is the same on all ranks, and whichever message the tensor is in. */
static void refresh_start(powersgd *self, size_t tensor)
{
    const char *name = self->scheme.tensors[tensor].name;
    uint64_t stream = self->scheme.step << 32 | tw_crc32c(0, name, strlen(name));
    tw_matrix_refresh_start(&self->matrices[tensor], (uint64_t)self->seed, stream, self->scratch);
}

/* What the next product starts from. */
static void choose_start(powersgd *self, size_t tensor)
{
    tw_matrix *m = &self->matrices[tensor];
    size_t bytes = m->rank * m->columns * sizeof(float);
    if (!self->warm_start)
        memset(m->start, 0, bytes);
    else if (self->pending && self->present[tensor] > 0)
        memcpy(m->start, m->q, bytes);
    else
        return;
    refresh_start(self, tensor);
}

/* ---- create ------------------------------------------------------------------------------------------------------ */

/* Sees a tensor as a matrix; one whose factors are no smaller than itself is better left as it is. */
static void measure(const powersgd *self, tw_scheme_tensor *tensor, tw_matrix *m)
{
    m->rows = tensor->dims ? tensor->shape[0] : 1;
    m->columns = tensor->count / m->rows;
    m->rank = tw_matrix_rank((size_t)self->rank, m->rows, m->columns);
    if (m->rank) return;
    snprintf(tensor->plan, sizeof tensor->plan, "dense: rank %zu of %zu x %zu is no smaller", (size_t)self->rank,
             m->rows, m->columns);
    tensor->compressed = 0;
}

static size_t longest(size_t length, const tw_matrix *m)
{
    size_t longer = m->rows > m->columns ? m->rows : m->columns;
    return longer > length ? longer : length;
}

/* Of a matrix: its ranks are counted by so many at a time, as a sum of bf16 is exact up to there. */
enum { COUNTED = 256 };

static size_t counters_of(const powersgd *self)
{
    return ((size_t)self->scheme.size + COUNTED - 1) / COUNTED;
}

/* Allocates what the matrices share. */
static tw_status powersgd_create_arrays(powersgd *self)
{
    size_t elements = 0, length = 0;
    for (size_t i = 0; i < self->scheme.count; i++) {
        const tw_matrix *m = &self->matrices[i];
        if (!m->rank) continue;
        elements += m->rows * m->columns;
        self->p.count += m->rank * m->rows;
        self->q.count += m->rank * m->columns;
        self->p.more += counters_of(self);
        length = longest(length, m);
    }
    TW_TRY(tw_allocate(self->p.count + self->p.more, sizeof(float), &self->p.values));
    TW_TRY(tw_allocate(self->q.count, sizeof(float), &self->q.values));
    TW_TRY(tw_allocate(self->q.count, sizeof(float), &self->starts));
    TW_TRY(tw_allocate(length, sizeof(double), &self->scratch));
    if (self->feedback) TW_TRY(tw_allocate(elements, sizeof(float), &self->residuals));
    if (self->values != BF16) return TW_OK;
    size_t values = self->p.count + self->p.more;
    return tw_allocate(values > self->q.count ? values : self->q.count, sizeof(uint16_t), &self->halves);
}

/* Gives each matrix its part of the arrays. */
static void lay_out(powersgd *self)
{
    float *residual = self->residuals, *p = self->p.values, *q = self->q.values, *start = self->starts;
    float *counter = p + self->p.count;
    for (size_t i = 0; i < self->scheme.count; i++) {
        tw_matrix *m = &self->matrices[i];
        m->p = p;
        m->q = q;
        m->start = start;
        p += m->rank * m->rows;
        q += m->rank * m->columns;
        start += m->rank * m->columns;
        if (!m->rank) continue;
        self->counter[i] = counter;
        counter += counters_of(self);
        if (!self->feedback) continue;
        self->residual[i] = residual;
        residual += m->rows * m->columns;
    }
}

static tw_status create_whole(powersgd *self)
{
    return tw_dense_create(&self->whole, &self->scheme,
                           (tw_dense_settings){.compressed = 1,
                                               .dtype = self->values == BF16 ? TW_BF16 : TW_F32,
                                               .feedback = self->feedback,
                                               .residual = self->residuals});
}

static tw_status powersgd_create(tw_scheme *scheme)
{
    powersgd *self = (powersgd *)scheme;
    TW_TRY(tw_allocate(scheme->count, sizeof *self->matrices, &self->matrices));
    TW_TRY(tw_allocate(scheme->count, sizeof *self->residual, &self->residual));
    TW_TRY(tw_allocate(scheme->count, sizeof *self->counter, &self->counter));
    TW_TRY(tw_allocate(scheme->count, sizeof *self->present, &self->present));
    TW_TRY(tw_allocate(scheme->count, sizeof *self->kept, &self->kept));
    for (size_t i = 0; i < scheme->count; i++)
        if (scheme->tensors[i].compressed) measure(self, &scheme->tensors[i], &self->matrices[i]);
    TW_TRY(powersgd_create_arrays(self));
    lay_out(self);
    for (size_t i = 0; i < scheme->count; i++)
        if (self->matrices[i].rank) refresh_start(self, i);
    if (self->warmup_steps) TW_TRY(create_whole(self));
    return tw_leftovers_create(&self->leftovers, scheme);
}

/* ---- the matrix -------------------------------------------------------------------------------------------------- */

/* M of the step under way: the residual, or the gradient itself. */
static float *values_of(const powersgd *self, size_t tensor)
{
    return self->feedback ? self->residual[tensor] : self->scheme.gradients[tensor];
}

static size_t rows_from(const tw_matrix *m, size_t row)
{
    return tw_smaller(TW_MATRIX_ROWS, m->rows - row);
}

/* Takes this rank's share of what was sent out of a few rows of the residual, if that is still to be done, and adds the
 * gradient's rows, unless that is NULL. */
static void update_rows(const powersgd *self, size_t tensor, size_t row, const float *gradient)
{
    const tw_matrix *m = &self->matrices[tensor];
    float kept = self->pending ? self->kept[tensor] : 0;
    size_t first = row * m->columns;
    if (kept == 0 && !gradient) return;
    tw_matrix_update_rows(m, row, rows_from(m, row), self->residual[tensor] + first, -kept,
                          gradient ? gradient + first : NULL, self->scheme.scale);
}

/* Does what the next step would have done first. */
static void powersgd_settle(tw_scheme *scheme)
{
    powersgd *self = (powersgd *)scheme;
    for (size_t i = 0; self->pending && i < self->scheme.count; i++) {
        const tw_matrix *m = &self->matrices[i];
        if (!m->rank) continue;
        choose_start(self, i);
        for (size_t row = 0; self->feedback && row < m->rows; row += TW_MATRIX_ROWS) update_rows(self, i, row, NULL);
    }
    self->pending = 0;
}

/* Puts this rank among those that have the tensor, or not. */
static void count_in(powersgd *self, size_t tensor)
{
    float *counter = self->counter[tensor];
    memset(counter, 0, counters_of(self) * sizeof *counter);
    counter[self->scheme.rank / COUNTED] = self->scheme.absent[tensor] ? 0 : 1;
}

static float count_present(const powersgd *self, size_t tensor)
{
    const float *counter = self->counter[tensor];
    float present = 0;
    for (size_t i = 0; i < counters_of(self); i++) present += counter[i];
    return present;
}

/* M = e + g, and this rank's part of P. A few rows are looked at and taken in at a time, since they stay in the cache;
 * P's own rows are read before they are written. Of a tensor that is absent, e stays behind, and so do the rows. */
static void update_and_multiply(powersgd *self, size_t tensor)
{
    tw_matrix *m = &self->matrices[tensor];
    float *values = values_of(self, tensor), *gradient = self->scheme.gradients[tensor];
    int absent = self->scheme.absent[tensor];
    size_t count = m->rows * m->columns, looked = 0;
    choose_start(self, tensor);
    for (size_t row = 0; row < m->rows; row += TW_MATRIX_ROWS) {
        size_t rows = rows_from(m, row);
        looked = tw_sound_silence(&self->scheme, gradient, count, looked, (row + rows) * m->columns);
        if (self->feedback)
            update_rows(self, tensor, row, absent ? NULL : gradient);
        else
            tw_kernels_best()->scale(values + row * m->columns, self->scheme.scale, rows * m->columns);
        for (size_t r = row; !absent && r < row + rows; r++) tw_matrix_multiply_row(m, r, values + r * m->columns);
    }
    if (absent) memset(m->p, 0, m->rank * m->rows * sizeof *m->p);
    count_in(self, tensor);
}

/* Q's part of a tensor that is absent is zero, as its P. */
static void multiply_back(powersgd *self, size_t tensor)
{
    tw_matrix *m = &self->matrices[tensor];
    int absent = self->scheme.absent[tensor];
    float present = self->present[tensor] = count_present(self, tensor);
    self->kept[tensor] = absent || present < 1 ? 0 : 1 / present;
    tw_orthonormalise(m->p, m->rank, m->rows, self->scratch);
    if (absent)
        memset(m->q, 0, m->rank * m->columns * sizeof *m->q);
    else
        tw_matrix_multiply_transposed(m, values_of(self, tensor));
}

/* ---- the rounds -------------------------------------------------------------------------------------------------- */

/* Asks for the sum of everybody's factors. */
static void start_sum(powersgd *self, const factors *factor, tw_round *round)
{
    size_t count = factor->count + factor->more;
    round->kind = TW_ROUND_ALLREDUCE;
    round->count = count;
    round->dtype = self->values == BF16 ? TW_BF16 : TW_F32;
    round->values = factor->values;
    if (self->values == BF16) {
        tw_kernels_best()->to_bf16(self->halves, factor->values, count);
        round->values = self->halves;
    }
    self->scheme.account.elements_sent += factor->count;
    self->scheme.account.packet_bytes += count * (self->values == BF16 ? sizeof(uint16_t) : sizeof(float));
}

/* Receives it. Sets skipped unless it is finite, and so small that P*Q' is too: P's rows are no longer than 1. */
static int finish_sum(powersgd *self, const factors *factor)
{
    const double largest_norm = 1e37;
    size_t count = factor->count + factor->more;
    if (self->values == BF16) tw_kernels_best()->from_bf16(factor->values, self->halves, count);
    double squares = tw_kernels_best()->sum_squares(factor->values, count);
    self->scheme.skipped = !(squares <= largest_norm * largest_norm); /* NaN is not */
    return !self->scheme.skipped;
}

/* A rank whose gradient is not finite lets nothing of that in, and makes the sum so. */
static void start_p(powersgd *self, tw_round *round)
{
    tw_scheme *scheme = &self->scheme;
    const int may_be_finite = scheme->finite; /* what is not sound stays outside, and all else is taken in */
    if (!may_be_finite) powersgd_settle(scheme);
    for (size_t i = 0; may_be_finite && i < scheme->count; i++)
        if (self->matrices[i].rank) update_and_multiply(self, i);
    self->pending = 0;
    tw_sound_together(scheme);
    if (!scheme->finite) self->p.values[0] = NAN;
    start_sum(self, &self->p, round);
}

static void start_q(powersgd *self, tw_round *round)
{
    for (size_t i = 0; i < self->scheme.count; i++)
        if (self->matrices[i].rank) multiply_back(self, i);
    start_sum(self, &self->q, round);
}

static void finish_q(powersgd *self)
{
    for (size_t i = 0; i < self->scheme.count; i++)
        if (self->matrices[i].rank) tw_matrix_product(&self->matrices[i], self->scheme.gradients[i]);
    self->pending = 1;
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

static int is_beginning(const powersgd *self)
{
    return self->scheme.step < (uint64_t)self->warmup_steps;
}

/* A run needs it for its first steps alone; a state of these may be loaded later. */
static tw_status make_room_for_whole(powersgd *self)
{
    if (is_beginning(self)) return self->whole.scheme ? TW_OK : create_whole(self);
    tw_dense_destroy(&self->whole);
    self->whole = (tw_dense){0};
    return TW_OK;
}

static void start_whole(powersgd *self, tw_round *round)
{
    tw_scheme *scheme = &self->scheme;
    for (size_t i = 0; scheme->finite && i < scheme->count; i++) {
        size_t count = scheme->tensors[i].count;
        if (self->matrices[i].rank) tw_sound_silence(scheme, scheme->gradients[i], count, 0, count);
    }
    tw_sound_together(scheme);
    tw_dense_pack(&self->whole, scheme->scale, round);
    scheme->account.elements_sent = self->whole.count;
    scheme->account.packet_bytes = tw_dense_bytes(&self->whole);
}

/* ---- the course of a step ---------------------------------------------------------------------------------------- */

static void finish_or_start_leftovers(powersgd *self, tw_round *round)
{
    round->kind = TW_ROUND_DONE;
    if (!self->scheme.skipped && self->leftovers.count) tw_leftovers_pack(&self->leftovers, round);
}

enum { START_P, START_Q, FINISH_Q, FINISH_LEFTOVERS, START_WHOLE, FINISH_WHOLE };

/* Which rounds the step takes. */
static tw_status choose_rounds(powersgd *self)
{
    tw_scheme *scheme = &self->scheme;
    TW_TRY(make_room_for_whole(self));
    scheme->account.warmup = is_beginning(self);
    if (!self->p.count) {
        scheme->phase = FINISH_Q;
        tw_sound_together(scheme);
    } else if (is_beginning(self)) {
        scheme->phase = START_WHOLE;
    }
    return TW_OK;
}

static tw_status powersgd_next(tw_scheme *scheme, tw_round *round)
{
    powersgd *self = (powersgd *)scheme;
    if (scheme->phase == START_P) TW_TRY(choose_rounds(self));
    switch (scheme->phase++) {
    case START_P:
        start_p(self, round);
        break;
    case START_Q:
        if (finish_sum(self, &self->p))
            start_q(self, round);
        else
            round->kind = TW_ROUND_DONE;
        break;
    case FINISH_Q:
        if (self->p.count && finish_sum(self, &self->q)) finish_q(self);
        finish_or_start_leftovers(self, round);
        break;
    case FINISH_LEFTOVERS:
        scheme->skipped = !tw_dense_unpack(&self->leftovers);
        round->kind = TW_ROUND_DONE;
        break;
    case START_WHOLE:
        start_whole(self, round);
        break;
    case FINISH_WHOLE:
        scheme->skipped = !tw_dense_unpack(&self->whole);
        scheme->phase = FINISH_LEFTOVERS;
        finish_or_start_leftovers(self, round);
        break;
    }
    return TW_OK;
}

/* A healthy rank's residual is M, as if nothing of it had been sent; the start is still the step's own. */
static void powersgd_revert(tw_scheme *scheme)
{
    powersgd *self = (powersgd *)scheme;
    self->pending = 0;
    tw_dense_revert(&self->whole);
    tw_dense_revert(&self->leftovers);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

static tw_status powersgd_walk(tw_scheme *scheme, tw_walk *visitor)
{
    powersgd *self = (powersgd *)scheme;
    for (size_t i = 0; i < scheme->count; i++) {
        const tw_scheme_tensor *tensor = &scheme->tensors[i];
        const tw_matrix *m = &self->matrices[i];
        tw_remembered start = {.what = "start",
                               .tensor = tensor->name,
                               .kind = TW_STATE_SAME,
                               .dtype = TW_F32,
                               .count = m->rank * m->columns,
                               .data = m->start};
        if (m->rank && self->feedback)
            TW_TRY(tw_walk_floats(visitor, "residual", tensor, TW_STATE_ADDS, self->residual[i]));
        if (m->rank && self->warm_start) TW_TRY(visitor->visit(visitor, &start));
    }
    return tw_dense_walk(&self->leftovers, visitor);
}

static void powersgd_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    const tw_matrix *m = &((const powersgd *)scheme)->matrices[tensor];
    snprintf(text, capacity, "powersgd: rank %zu of %zu x %zu, %zu values", m->rank, m->rows, m->columns,
             m->rank * (m->rows + m->columns));
}

static void powersgd_destroy(tw_scheme *scheme)
{
    powersgd *self = (powersgd *)scheme;
    tw_free(self->matrices);
    tw_free(self->residual);
    tw_free(self->counter);
    tw_free(self->present);
    tw_free(self->kept);
    tw_free(self->p.values);
    tw_free(self->q.values);
    tw_free(self->starts);
    tw_free(self->residuals);
    tw_free(self->halves);
    tw_free(self->scratch);
    tw_dense_destroy(&self->whole);
    tw_dense_destroy(&self->leftovers);
}

/* Bytes an element: gradient 4, residual read and written 8, read again for Q 4, the mean written 4. */
const tw_scheme_ops tw_scheme_powersgd = {
    .name = "powersgd",
    .summary = "PowerSGD: two thin factors of each matrix by a warm-started power iteration, with error feedback",
    .one_pass = 1,
    .floor_bytes = 20,
    .struct_size = sizeof(powersgd),
    TW_OPTIONS(options),
    .of_run = powersgd_of_run,
    .create = powersgd_create,
    .next = powersgd_next,
    .revert = powersgd_revert,
    .settle = powersgd_settle,
    .walk = powersgd_walk,
    .plan = powersgd_plan,
    .destroy = powersgd_destroy,
};
