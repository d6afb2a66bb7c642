/* Forward and backward variables fall far below what a double can hold, and not by a common factor: while a network
 * still prefers blanks, the states of one frame lie thousands of powers of two apart and all matter. So each number has
 * an exponent of its own: mantissa * 2^exponent, the exponent a whole number kept in a double. That has a double's
 * precision, and unlike sums of logarithms it costs a few vector instructions. */
#include "ctc.h"
#include "error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The exponent of zero. Below all that can come about, and what is added to it leaves it a whole number. */
#define NOTHING (-0x1p51)
/* The least exponent of a probability. */
#define LEAST (-0x1p20)
/* The most frames, whose least exponents add up to more than NOTHING; and of all else, so that no size overflows. */
#define LIMIT ((size_t)1 << 28)
/* States before the first, all zero, so that every state has two predecessors. */
#define PADDING 2

#define LOG2_E 0x1.71547652b82fep0
#define LN2 0x1.62e42fefa39efp-1

typedef struct row {
    double *mantissa, *exponent;
} row;

typedef struct number {
    double mantissa, exponent;
} number;

struct ctc {
    size_t time, labels, target; /* the most there may be */
    size_t states;               /* of the target in hand: its labels, and a blank before, between and after them */
    row probabilities;           /* (time, labels) */
    row forward;                 /* (time + 1, PADDING + states): row t is before frame t */
    row backward[2];             /* (PADDING + states), as if time and target ran backwards */
    row emission;                /* (states): the frame's probability of each state's label */
    double *blocked;             /* (states): NOTHING where the state two before is no predecessor, else 0 */
    double *posterior;           /* (states) */
    double *occupied;            /* (labels): posterior of each label */
    uint32_t *path;              /* (states): their labels */
};

static inline uint64_t to_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* 2^exponent for whole numbers up to 1023; 0 from -1023 down. Added to 2^52, a whole number stands in the low bits. */
static inline double power(double exponent)
{
    double kept = exponent < -1023.0 ? -1023.0 : exponent;
    return from_bits(to_bits(kept + (0x1p52 + 1023.0)) << 52);
}

/* value = *mantissa * 2^result, 1 <= *mantissa < 2; of positive, normal values. */
static inline double ctc_split(double value, double *mantissa)
{
    uint64_t bits = to_bits(value);
    *mantissa = from_bits((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
    return from_bits(bits >> 52 | 0x4330000000000000) - (0x1p52 + 1023.0);
}

static inline double ctc_larger(double a, double b)
{
    return a > b ? a : b;
}

static row row_at(row base, size_t offset)
{
    return (row){base.mantissa + offset, base.exponent + offset};
}

static void ctc_clear(row dst, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        dst.mantissa[i] = 1.0;
        dst.exponent[i] = NOTHING;
    }
}

/* One frame: dst(s) = emission(s) * (src(s) + src(s-1) + src(s-2) unless blocked). */
static void ctc_advance(const ctc *c, row src, row dst)
{
    const double *restrict m = src.mantissa, *restrict e = src.exponent, *restrict blocked = c->blocked;
    const double *restrict emitted_m = c->emission.mantissa, *restrict emitted_e = c->emission.exponent;
    double *restrict next_m = dst.mantissa + PADDING, *restrict next_e = dst.exponent + PADDING;
    for (size_t s = 0; s < c->states; s++) {
        double stay = e[s + 2], step = e[s + 1], skip = e[s] + blocked[s];
        double top = ctc_larger(ctc_larger(stay, step), skip);
        double sum = m[s + 2] * power(stay - top) + m[s + 1] * power(step - top) + m[s] * power(skip - top);
        next_e[s] = top + emitted_e[s] + ctc_split(sum * emitted_m[s], &next_m[s]);
    }
}

/* Where every path begins, before the first frame: at the first blank, from where it may stay or step. */
static void ctc_begin(const ctc *c, row dst)
{
    ctc_clear(dst, PADDING + c->states);
    dst.exponent[PADDING] = 0.0;
}

/* The softmax of one frame. Returns 0 where it has none. */
static int emit_frame(const float *logits, size_t labels, row dst)
{
    double top = logits[0], sum = 0.0;
    for (size_t k = 1; k < labels; k++) top = ctc_larger(top, logits[k]);
    for (size_t k = 0; k < labels; k++) {
        double whole, log2 = (logits[k] - top) * LOG2_E;
        if (log2 < LEAST) log2 = LEAST;
        dst.exponent[k] = whole = floor(log2);
        dst.mantissa[k] = exp2(log2 - whole);
        sum += dst.mantissa[k] * power(whole);
    }
    for (size_t k = 0; k < labels; k++) dst.mantissa[k] /= sum;
    return isfinite(sum) != 0;
}

static int ctc_emit(const ctc *c, const utterance *u)
{
    int finite = 1;
    for (size_t t = 0; t < u->frames; t++)
        finite &= emit_frame(u->values + t * u->stride, u->labels, row_at(c->probabilities, t * u->labels));
    return finite;
}

/* The states of a target, from either end: what may follow what is the same backwards. From a label to the next there
 * is a way past the blank between them, unless both are the same: those would be merged. */
static void lay_path(ctc *c, const uint32_t *target, size_t length, int backwards)
{
    c->states = 2 * length + 1;
    for (size_t s = 0; s < c->states; s++) {
        c->path[s] = s % 2 == 0 ? CTC_BLANK : target[backwards ? length - 1 - s / 2 : s / 2];
        c->blocked[s] = s % 2 == 0 || s == 1 || c->path[s] == c->path[s - 2] ? NOTHING : 0.0;
    }
}

static void gather_emission(const ctc *c, size_t frame, size_t labels)
{
    row p = row_at(c->probabilities, frame * labels);
    for (size_t s = 0; s < c->states; s++) {
        c->emission.mantissa[s] = p.mantissa[c->path[s]];
        c->emission.exponent[s] = p.exponent[c->path[s]];
    }
}

static row forward_row(const ctc *c, size_t t)
{
    return row_at(c->forward, t * (PADDING + c->states));
}

static void run_forward(const ctc *c, const utterance *u)
{
    ctc_begin(c, forward_row(c, 0));
    for (size_t t = 0; t < u->frames; t++) {
        gather_emission(c, t, u->labels);
        row next = forward_row(c, t + 1);
        ctc_clear(next, PADDING);
        ctc_advance(c, forward_row(c, t), next);
    }
}

/* The probability of the target: paths end at its last label or at the blank after it. */
static number ctc_total(const ctc *c, size_t frames)
{
    row end = row_at(forward_row(c, frames), PADDING + c->states - 2); /* of an empty target, the first is padding */
    double top = ctc_larger(end.exponent[0], end.exponent[1]);
    double sum = end.mantissa[0] * power(end.exponent[0] - top) + end.mantissa[1] * power(end.exponent[1] - top);
    number all;
    all.exponent = top + ctc_split(sum, &all.mantissa);
    return all;
}

/* The share of `all` that passes through each state; the state's emission is in the rows of both directions. */
static void weigh_states(const ctc *c, row forward, row backward, number all)
{
    const double *restrict f_m = forward.mantissa + PADDING, *restrict f_e = forward.exponent + PADDING;
    const double *restrict b_m = backward.mantissa + PADDING, *restrict b_e = backward.exponent + PADDING;
    const double *restrict p_m = c->emission.mantissa, *restrict p_e = c->emission.exponent;
    double *restrict posterior = c->posterior;
    for (size_t s = 0, last = c->states - 1; s <= last; s++) {
        double exponent = f_e[last - s] + b_e[s] - p_e[s] - all.exponent;
        posterior[s] = f_m[last - s] * b_m[s] / (p_m[s] * all.mantissa) * power(exponent);
    }
}

/* d loss / d logit = softmax - the label's posterior. */
static void write_frame(const ctc *c, size_t frame, size_t labels, double weight, float *gradient)
{
    row p = row_at(c->probabilities, frame * labels);
    memset(c->occupied, 0, labels * sizeof *c->occupied);
    for (size_t s = 0; s < c->states; s++) c->occupied[c->path[s]] += c->posterior[s];
    for (size_t k = 0; k < labels; k++)
        gradient[k] = (float)(weight * (p.mantissa[k] * power(p.exponent[k]) - c->occupied[k]));
}

static void run_backward(const ctc *c, const utterance *u, number all, double weight, float *gradient)
{
    row now = c->backward[0], next = c->backward[1];
    ctc_begin(c, now);
    ctc_clear(next, PADDING);
    for (size_t t = u->frames; t-- > 0;) {
        gather_emission(c, t, u->labels);
        ctc_advance(c, now, next);
        weigh_states(c, forward_row(c, t + 1), next, all);
        write_frame(c, t, u->labels, weight, gradient + t * u->stride);
        row free_row = now;
        now = next;
        next = free_row;
    }
}

static void spoil(const utterance *u, float *gradient)
{
    for (size_t t = 0; t < u->frames; t++)
        for (size_t k = 0; k < u->labels; k++) gradient[t * u->stride + k] = NAN;
}

/* The loss of one feasible sequence. */
static double ctc_lose(ctc *c, const utterance *u, const uint32_t *target, size_t length, double weight,
                       float *gradient)
{
    if (!ctc_emit(c, u)) {
        if (gradient) spoil(u, gradient);
        return NAN;
    }
    lay_path(c, target, length, 0);
    run_forward(c, u);
    number all = ctc_total(c, u->frames);
    if (gradient) {
        lay_path(c, target, length, 1);
        run_backward(c, u, all, weight, gradient);
    }
    return -(all.exponent * LN2 + log(all.mantissa));
}

static size_t frames_needed(const uint32_t *target, size_t length)
{
    size_t needed = length;
    for (size_t i = 1; i < length; i++) needed += target[i] == target[i - 1];
    return needed;
}

static tw_status check_target(const ctc *c, const ctc_batch *b, size_t n, const uint32_t *target)
{
    if (b->frames[n] > b->time || b->target_lengths[n] > c->target)
        return tw_fail(TW_ERROR_ARGUMENT, "sequence %zu has %u frames and %u labels, but there is room for %zu and %zu",
                       n, b->frames[n], b->target_lengths[n], b->time, c->target);
    for (size_t i = 0; i < b->target_lengths[n]; i++)
        if (target[i] == CTC_BLANK || target[i] >= b->labels)
            return tw_fail(TW_ERROR_ARGUMENT,
                           "label %zu of sequence %zu is %u, but labels are 1 to %zu (0 is the blank)", i, n, target[i],
                           b->labels - 1);
    return TW_OK;
}

static tw_status ctc_check(const ctc *c, const ctc_batch *b)
{
    if (b->time > c->time || b->labels != c->labels)
        return tw_fail(TW_ERROR_ARGUMENT, "a batch of %zu frames and %zu labels, but there is room for %zu and %zu",
                       b->time, b->labels, c->time, c->labels);
    const uint32_t *target = b->targets;
    for (size_t n = 0; n < b->batch; target += b->target_lengths[n++]) TW_TRY(check_target(c, b, n, target));
    return TW_OK;
}

tw_status ctc_loss(ctc *c, const ctc_batch *b, ctc_weight weight, float *gradient, ctc_result *result)
{
    TW_TRY(ctc_check(c, b));
    *result = (ctc_result){0};
    size_t stride = b->batch * b->labels;
    if (gradient) memset(gradient, 0, b->time * stride * sizeof *gradient);
    const uint32_t *target = b->targets;
    for (size_t n = 0; n < b->batch; target += b->target_lengths[n++]) {
        size_t length = b->target_lengths[n];
        if (b->frames[n] < frames_needed(target, length)) {
            result->infeasible++;
            continue;
        }
        utterance u = {b->logits + n * b->labels, stride, b->frames[n], b->labels};
        double share = 1.0 / (weight == CTC_BY_LABEL && length > 0 ? (double)length : 1.0);
        float *rows = gradient ? gradient + n * b->labels : NULL;
        result->sum += share * ctc_lose(c, &u, target, length, share / (double)b->batch, rows);
        result->feasible++;
    }
    return TW_OK;
}

static row create_row(size_t count)
{
    double *values = calloc(2 * count, sizeof *values);
    return (row){values, values ? values + count : NULL};
}

static int ctc_allocate(ctc *c)
{
    size_t states = 2 * c->target + 1;
    c->probabilities = create_row(c->time * c->labels);
    c->forward = create_row((c->time + 1) * (PADDING + states));
    c->backward[0] = create_row(PADDING + states);
    c->backward[1] = create_row(PADDING + states);
    c->emission = create_row(states);
    c->blocked = calloc(states, sizeof *c->blocked);
    c->posterior = calloc(states, sizeof *c->posterior);
    c->occupied = calloc(c->labels, sizeof *c->occupied);
    c->path = calloc(states, sizeof *c->path);
    return c->probabilities.mantissa && c->forward.mantissa && c->backward[0].mantissa && c->backward[1].mantissa &&
           c->emission.mantissa && c->blocked && c->posterior && c->occupied && c->path;
}

tw_status ctc_create(size_t time, size_t labels, size_t target, ctc **out)
{
    if (time < 1 || time > LIMIT || labels < 2 || labels > LIMIT || target > LIMIT)
        return tw_fail(TW_ERROR_ARGUMENT, "CTC of %zu frames, %zu labels and targets of %zu; at least 1, 2 and 0", time,
                       labels, target);
    ctc *c = calloc(1, sizeof *c);
    if (c) *c = (ctc){.time = time, .labels = labels, .target = target};
    if (!c || !ctc_allocate(c)) {
        ctc_destroy(c);
        return tw_fail(TW_ERROR_MEMORY, "no memory for CTC of %zu frames, %zu labels and targets of %zu", time, labels,
                       target);
    }
    *out = c;
    return TW_OK;
}

void ctc_destroy(ctc *c)
{
    if (!c) return;
    free(c->probabilities.mantissa);
    free(c->forward.mantissa);
    free(c->backward[0].mantissa);
    free(c->backward[1].mantissa);
    free(c->emission.mantissa);
    free(c->blocked);
    free(c->posterior);
    free(c->occupied);
    free(c->path);
    free(c);
}
