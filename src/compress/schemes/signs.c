/* sign - EF-signSGD: signs and one magnitude, with error feedback (Karimireddy, Rebjock, Stich, Jaggi; ICML 2019,
 * arXiv 1901.09847).
 *
 * Per tensor of n elements: p = e + g; send s = |p|_1 / n and the signs of p; e = p - s sign(p). An element that is 0
 * counts as positive. Without the feedback signs may lead uphill; it is not an option here. The paper feeds back
 * learning_rate * gradient; here the gradient itself, so that the rate belongs to the optimiser.
 *
 * onebit - 1-bit SGD: signs and two reconstruction values, with error feedback (Seide, Fu, Droppo, Li, Yu; Interspeech
 * 2014).
 *
 * Per tensor: p = e + g; send the signs of p, the mean of its negative elements and the mean of the others, which are
 * what the receiver puts for them; e = p - sent. These two values make the squared error the least that one bit with a
 * threshold at 0 allows. The paper has two values a column of each matrix; here a tensor has two.
 *
 * onebit-adam - 1-bit Adam (Tang et al., ICML 2021, arXiv 2102.02888; the equations as DeepSpeed's release has them).
 *
 * A beginning of `warmup_steps` is Adam of the exact mean. Then v stands still, and the ranks share m by its signs:
 *     m = C(the mean of C(beta1*m + (1 - beta1)*g + e) + e');  direction = m / (sqrt(v) + epsilon)
 * C(x) is the signs of x times its root mean square, and e and e' are what it lost at the rank, and at the owner of the
 * piece. So it is with divide=after. The bias corrections, which the release leaves out, are Adam's; v's stands still
 * with v.
 *
 * With `refresh` single steps after the beginning are Adam's of the exact mean, too, and v takes them in. When they
 * come is 0/1 Adam's rule (Lu et al., ICLR 2023, arXiv 2202.06009; adam.h), of which no more is here.
 *
 * divide=before is ours: C is given what is divided by sqrt(v) + epsilon. One magnitude a tensor then stands for
 * elements of one size, where m has as many sizes as the gradients have, and what is small in m would be made enormous
 * by the division behind C.
 *
 * Memory is passed over once. The residual keeps p = e + a*g itself, and `sent` what its elements were sent as: the
 * next step finds e = p - (p < 0 ? sent[1] : sent[0]) while it adds the gradient, and to take a step back is to forget
 * what was sent. */
#include "quantised.h"

#include "error.h"
#include "memory.h"
#include "smaller.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct signs {
    tw_quantised quantised;
    int means;   /* that travel: 1, of the magnitudes; or 2, of the elements that are not negative and of the others */
    int is_root; /* the one mean is that of squares, of which it is the root */
    const float *alive; /* of the compressed tensors: an element with 0 does not count in it; NULL: all do */
    char *has_still;    /* with `alive`: whether a tensor has elements that do not */
    float (*sent)[2];   /* a part's elements that were not negative, and that were, when it was encoded last */
    /* (optional) What elements first .. first+n of this rank's share become before they are encoded. */
    void (*turn)(const struct signs *self, const tw_quantised_part *part, size_t first, size_t n, float *turned);
} signs;

static const tw_option options[] = {TW_OPTION_EXCHANGE};

/* A section is the means, then the packed signs. */
static size_t signs_head_bytes(const tw_scheme *scheme)
{
    return (size_t)((const signs *)scheme)->means * sizeof(float);
}

static size_t signs_bytes(const tw_scheme *scheme, size_t n)
{
    return signs_head_bytes(scheme) + (n + 7) / 8;
}

/* What a bit of 0 and one of 1 stand for. */
static void read_means(const tw_scheme *scheme, const unsigned char *section, float mean[2])
{
    mean[0] = tw_quantised_get_float(section);
    mean[1] = ((const signs *)scheme)->means == 2 ? tw_quantised_get_float(section + sizeof(float)) : -mean[0];
}

/* The mean as a float, which a sum of many can only leave if something has gone wrong before. */
static float signs_mean_of(double sum, size_t count)
{
    return count ? (float)fmax(fmin(sum / (double)count, FLT_MAX), -FLT_MAX) : 0;
}

/* Sets those of elements first .. first+n of the residual that do not count. Returns their number. */
static size_t fill_still(const signs *self, const tw_quantised_part *part, size_t first, size_t n, float value)
{
    if (!self->alive || !self->has_still[part->tensor]) return 0;
    const float *alive = self->alive + self->quantised.offset[part->tensor] + part->first + first;
    return tw_kernels_best()->quantise->fill_still(part->residual + first, alive, n, value);
}

/* What a part's elements add up to. */
typedef struct part_sums {
    tw_sign_sums signs;
    double squares[16]; /* for a root; of those that count */
    size_t still;       /* do not */
} part_sums;

/* Of an element that does not count the signs say something all the same. Nobody listens, and what the next step finds
 * of it is zero. */
static float signs_root_mean_square(const signs *self, const tw_quantised_part *part, part_sums *sums)
{
    size_t count = part->n - sums->still;
    if (!count) return 0;
    float mean = signs_mean_of(sqrt(tw_kernels_fold(sums->squares) / (double)count), 1);
    if (sums->still) fill_still(self, part, 0, part->n, mean);
    return mean;
}

static void write_means(const signs *self, const tw_quantised_part *part, part_sums *sums, unsigned char *section)
{
    size_t n = part->n, negatives = sums->signs.negatives;
    double positive = tw_kernels_fold(sums->signs.positive), negative = tw_kernels_fold(sums->signs.negative);
    if (self->means == 2) {
        tw_quantised_put_float(section, signs_mean_of(positive, n - negatives));
        tw_quantised_put_float(section + sizeof(float), signs_mean_of(negative, negatives));
    } else if (self->is_root) {
        tw_quantised_put_float(section, signs_root_mean_square(self, part, sums));
    } else {
        tw_quantised_put_float(section, signs_mean_of(positive - negative, n));
    }
}

static void encode_block(signs *self, const tw_quantised_part *part, size_t first, size_t n, unsigned char *bits,
                         part_sums *sums)
{
    static const float nothing[2];
    const tw_quantise_rows *rows = tw_kernels_best()->quantise;
    const float *values = part->values + first, *sent = self->sent[part->index];
    float turned[TW_QUANTISED_BLOCK], *residual = part->residual + first;
    tw_quantised_look(&self->quantised, part, first, n);
    if (part->before) {
        rows->take_signs(residual, n, sent);
        memcpy(part->before + first, residual, n * sizeof *residual);
        sent = nothing;
    } else if (self->turn) {
        self->turn(self, part, first, n, turned);
        values = turned;
    }
    rows->send_signs(residual, values, n, part->scale, sent, bits, &sums->signs);
    if (!self->is_root) return;
    sums->still += fill_still(self, part, first, n, 0);
    tw_kernels_best()->add_squares(sums->squares, residual, n);
}

static void signs_encode(tw_quantised *quantised, const tw_quantised_part *part, unsigned char *section)
{
    const tw_scheme *scheme = &quantised->scheme;
    signs *self = (signs *)quantised;
    unsigned char *bits = section + signs_head_bytes(scheme);
    part_sums sums = {0};
    for (size_t first = 0, count; first < part->n; first += count) {
        count = tw_smaller(part->n - first, TW_QUANTISED_BLOCK);
        encode_block(self, part, first, count, bits + first / 8, &sums);
    }
    write_means(self, part, &sums, section);
    read_means(scheme, section, self->sent[part->index]);
}

/* Leaves in the residual what the next step would find. */
static void subtract_sent(tw_quantised *quantised, const tw_quantised_part *part)
{
    float *sent = ((signs *)quantised)->sent[part->index];
    tw_kernels_best()->quantise->take_signs(part->residual, part->n, sent);
    memset(sent, 0, 2 * sizeof *sent);
}

static const char *signs_check(const tw_scheme *scheme, const unsigned char *section, size_t n, float *largest)
{
    float mean[2];
    (void)n;
    read_means(scheme, section, mean);
    *largest = fmaxf(mean[0], -mean[1]);
    int sound = mean[0] >= 0 && mean[1] <= 0 && *largest <= FLT_MAX; /* false for NaN */
    return sound ? NULL : "a mean is not finite or of the wrong sign";
}

static void signs_add(const tw_scheme *scheme, const unsigned char *section, size_t n, size_t first,
                      const tw_addition *to)
{
    float mean[2];
    (void)n;
    read_means(scheme, section, mean);
    tw_kernels_best()->quantise->add_signs(to, section + signs_head_bytes(scheme) + first / 8, mean);
}

#define SECTIONS                                                                                                       \
    .block = TW_QUANTISED_BLOCK, .bytes = signs_bytes, .encode = signs_encode, .close = subtract_sent,                 \
    .check = signs_check, .add = signs_add

static const tw_quantised_ops sections = {SECTIONS};

static tw_status create_signs(tw_scheme *scheme, const tw_quantised_ops *ops, int means)
{
    signs *self = (signs *)scheme;
    self->means = means;
    self->quantised.feedback = 1;
    TW_TRY(tw_quantised_create(scheme, ops));
    return tw_allocate(tw_quantised_parts(&self->quantised), sizeof *self->sent, &self->sent);
}

static void signs_destroy(tw_scheme *scheme)
{
    signs *self = (signs *)scheme;
    tw_free(self->sent);
    tw_free(self->has_still);
    tw_quantised_destroy(scheme);
}

/* What was sent of elements that do not count was made up, and so is what is kept of them. */
static void forget_sent(tw_quantised *quantised, const tw_quantised_part *part)
{
    fill_still((signs *)quantised, part, 0, part->n, 0);
    memset(((signs *)quantised)->sent[part->index], 0, 2 * sizeof(float));
}

/* The residual of the sums is then as it was once what had been sent before was subtracted. */
static void signs_revert(tw_scheme *scheme)
{
    tw_quantised *quantised = (tw_quantised *)scheme;
    if (tw_quantised_revert_sums(quantised)) tw_quantised_each_sum(quantised, forget_sent);
    if (scheme->taken) tw_quantised_each_share(quantised, forget_sent);
}

static void signs_settle(tw_scheme *scheme)
{
    tw_quantised_each_share((tw_quantised *)scheme, subtract_sent);
    tw_quantised_each_sum((tw_quantised *)scheme, subtract_sent);
}

static tw_status sign_create(tw_scheme *scheme)
{
    return create_signs(scheme, &sections, 1);
}

static tw_status onebit_create(tw_scheme *scheme)
{
    return create_signs(scheme, &sections, 2);
}

/* ---- onebit-adam ------------------------------------------------------------------------------------------------- */

typedef struct onebit_adam {
    signs signs;
    tw_adam adam;
    int64_t warmup_steps, refresh;
    int divide;                        /* DIVIDE_BEFORE or _AFTER */
    tw_velocity compressed, leftovers; /* m and v, alike on all ranks */
    tw_shared_step now;                /* the step under way, if it shares m */
    int divisors_stand;                /* as v does: they are in its squares_before, which no revert needs meanwhile */
} onebit_adam;

enum { DIVIDE_BEFORE, DIVIDE_AFTER };

static const tw_option adam_options[] = {
    TW_OPTION_EXCHANGE,
    {"momentum", TW_OPTION_REAL, offsetof(onebit_adam, adam.beta1), "0.9", 0, 0.9999, NULL,
     "Adam's beta1; the optimiser applies none beside it"},
    {"beta2", TW_OPTION_REAL, offsetof(onebit_adam, adam.beta2), "0.999", 0, 0.999999, NULL,
     "Adam's memory of squares; 0: momentum SGD"},
    {"epsilon", TW_OPTION_REAL, offsetof(onebit_adam, adam.epsilon), "1e-8", 1e-30, 1, NULL,
     "what Adam adds to the root of the squares"},
    {"warmup_steps", TW_OPTION_INTEGER, offsetof(onebit_adam, warmup_steps), "2000", 0, 1e9, NULL,
     "steps of Adam, with nothing compressed, before its squares stand still; one at least, unless they are refreshed"},
    {"refresh", TW_OPTION_INTEGER, offsetof(onebit_adam, refresh), "0", 0, 1e9, NULL,
     "steps after it that are not compressed and renew the squares: so many in a row, then as many every 2, 4, 8..."},
    {"divide", TW_OPTION_CHOICE, offsetof(onebit_adam, divide), "before", 0, 0, "before|after",
     "by the root of the squares before the signs are taken, or after, as published"},
};

static const tw_preset adam_presets[] = {{"exchange", "scatter"}, {NULL, NULL}};

/* The release's guide has 15 to 25 per cent of the run. */
static void onebit_adam_of_run(uint64_t steps, double *density, int64_t *warmup_steps)
{
    const double LONGEST = 1e9; /* that the option takes */
    (void)density;
    *warmup_steps = (int64_t)fmin((double)steps / 5, LONGEST);
}

static uint64_t steps_of_adam(const onebit_adam *self)
{
    if (self->adam.beta2 == 0) return 0;
    return self->warmup_steps || self->refresh ? (uint64_t)self->warmup_steps : 1;
}

/* How many of the first `steps` steps are not compressed. */
static uint64_t whole_among(const onebit_adam *self, uint64_t steps)
{
    uint64_t beginning = steps_of_adam(self);
    if (steps <= beginning || self->adam.beta2 == 0) return tw_smaller(steps, beginning);
    return beginning + tw_adam_refreshes((uint64_t)self->refresh, steps - beginning);
}

/* Of squares that have taken in one gradient, and `before` others. */
static tw_adam_step step_with_squares(const onebit_adam *self, uint64_t before)
{
    tw_adam_step now = tw_adam_begin(&self->adam, 0, self->signs.quantised.scheme.step, 1);
    now.correct_root = tw_adam_begin(&self->adam, 0, before, 1).correct_root;
    return now;
}

static tw_adam_step step_of_frozen(const onebit_adam *self)
{
    return step_with_squares(self, whole_among(self, self->signs.quantised.scheme.step) - 1);
}

/* What compressed element i's direction is its m over; 0 of one that never had a gradient and does not move. */
static float divisor_of_squares(const onebit_adam *self, const tw_adam_step *frozen, size_t i)
{
    const float *squares = self->compressed.squares_now;
    if (squares[i] <= 0) return 0;
    return frozen->correct_root * sqrtf(squares[i]) + frozen->epsilon;
}

/* What its m is divided by before the signs are taken. */
static float divisor(const onebit_adam *self, const tw_adam_step *frozen, size_t i)
{
    float by = self->compressed.squares_now ? divisor_of_squares(self, frozen, i) : 1;
    return by > 0 && self->divide == DIVIDE_AFTER ? 1 : by;
}

/* Whether some do not move. */
static int find_divisors_of(onebit_adam *self, const tw_adam_step *frozen, size_t first, size_t n)
{
    float *divisors = self->compressed.squares_before;
    int has_still = 0;
    for (size_t i = first; i < first + n; i++) {
        divisors[i] = divisor_of_squares(self, frozen, i);
        has_still |= divisors[i] == 0;
    }
    return has_still;
}

/* Roots take as long as memory does, so that each is taken once. */
static void find_divisors(onebit_adam *self, const tw_adam_step *frozen)
{
    signs *head = &self->signs;
    const tw_scheme *scheme = &head->quantised.scheme;
    const size_t *offset = head->quantised.offset;
    for (size_t t = 0; head->alive && !self->divisors_stand && t < scheme->count; t++) {
        if (!scheme->tensors[t].compressed) continue;
        head->has_still[t] = (char)find_divisors_of(self, frozen, offset[t], scheme->tensors[t].count);
    }
    self->divisors_stand = 1;
}

/* What a rank would have for m, in units of its gradient. */
static void begin_shared(onebit_adam *self)
{
    const tw_scheme *scheme = &self->signs.quantised.scheme;
    tw_adam_step frozen = step_of_frozen(self);
    int adapts = self->adam.beta2 > 0, divides = adapts && self->divide == DIVIDE_BEFORE;
    float unit = 1 / ((float)scheme->size * scheme->scale);
    find_divisors(self, &frozen);
    self->now = (tw_shared_step){.kept = (float)self->adam.beta1 * unit,
                                 .fresh = (float)(adapts ? 1 - self->adam.beta1 : 1),
                                 .most = divides ? unit / sqrtf(frozen.fresh_square) : FLT_MAX,
                                 .correction = adapts ? frozen.correction : 1,
                                 .divides = divides};
}

static void blend(const signs *head, const tw_quantised_part *part, size_t first, size_t n, float *blended)
{
    const onebit_adam *self = (const onebit_adam *)head;
    size_t at = head->quantised.offset[part->tensor] + part->first + first;
    const float *divisors = self->compressed.squares_before;
    tw_kernels_best()->directions->share(&self->now, self->compressed.now + at, divisors ? divisors + at : NULL,
                                         part->values + first, blended, n);
}

/* A rank without a gradient has its share of m all the same. Whoever sums adds that, since it alone knows whether
 * others have one: where nobody has, m stays as it is. A rank that has one says zero only where m is zero, too. */
static void add_shares_of_absent(const tw_quantised *quantised, const tw_piece *piece, float *sum)
{
    const onebit_adam *self = (const onebit_adam *)quantised;
    tw_adam_step frozen = step_of_frozen(self);
    size_t first = quantised->offset[piece->tensor] + piece->first;
    int size = quantised->scheme.size, absent = 0;
    for (int r = 0; r < size; r++) absent += tw_quantised_get_float(quantised->delivered[r]) == 0;
    float kept = (float)(self->adam.beta1 * absent / size), most = (float)TW_LARGEST_KEPT;
    for (size_t i = 0; absent > 0 && absent < size && i < piece->count; i++) {
        float by = divisor(self, &frozen, first + i);
        if (by > 0) sum[i] = fmaxf(fminf(sum[i] + kept * self->compressed.now[first + i] / by, most), -most);
    }
}

/* Turns what arrived into steps. */
static void direct(onebit_adam *self)
{
    const tw_quantised *quantised = &self->signs.quantised;
    uint64_t step = quantised->scheme.step;
    tw_adam_step now = tw_adam_begin(&self->adam, 0, step, 1),
                 renewed = step_with_squares(self, whole_among(self, step));
    if (self->adam.beta2 > 0)
        tw_velocity_adapt(&self->leftovers, &now);
    else
        tw_velocity_apply(&self->leftovers, (float)self->adam.beta1, 0);
    if (quantised->gather.is_whole)
        tw_velocity_adapt(&self->compressed, &renewed);
    else
        tw_velocity_replace(&self->compressed, &self->now, self->compressed.squares_before);
}

static tw_status onebit_adam_next(tw_scheme *scheme, tw_round *round)
{
    onebit_adam *self = (onebit_adam *)scheme;
    if (scheme->phase == 0) {
        int is_whole = whole_among(self, scheme->step + 1) > whole_among(self, scheme->step);
        scheme->account.warmup = scheme->step < steps_of_adam(self);
        self->signs.quantised.gather.is_whole = is_whole;
        tw_velocity_mark(&self->compressed);
        tw_velocity_mark(&self->leftovers);
        if (is_whole)
            self->divisors_stand = 0;
        else
            begin_shared(self);
    }
    TW_TRY(tw_quantised_next(scheme, round));
    if (round->kind == TW_ROUND_DONE && !scheme->skipped) direct(self);
    return TW_OK;
}

/* Of what blend gave the residual, the gradient alone stays there: m is still to come, and would come twice. */
static void take_momentum_back(tw_quantised *quantised, const tw_quantised_part *part)
{
    const onebit_adam *self = (const onebit_adam *)quantised;
    size_t first = (size_t)(part->residual - quantised->residual);
    tw_adam_step frozen = step_of_frozen(self);
    float kept = (float)(self->adam.beta1 / quantised->scheme.size);
    for (size_t i = 0; !quantised->scheme.absent[part->tensor] && i < part->n; i++) {
        float by = divisor(self, &frozen, first + i);
        if (by > 0) part->residual[i] -= kept * self->compressed.now[first + i] / by;
    }
}

static void onebit_adam_revert(tw_scheme *scheme)
{
    onebit_adam *self = (onebit_adam *)scheme;
    tw_quantised *quantised = &self->signs.quantised;
    tw_velocity_revert(&self->compressed);
    tw_velocity_revert(&self->leftovers);
    if (quantised->gather.is_whole) { /* what was sent last is that of a step before, which stays */
        tw_gather_revert(&quantised->gather);
        return;
    }
    signs_revert(scheme);
    if (scheme->finite) tw_quantised_each_share(quantised, take_momentum_back);
}

/* Other squares may be loaded. */
static void onebit_adam_settle(tw_scheme *scheme)
{
    ((onebit_adam *)scheme)->divisors_stand = 0;
    signs_settle(scheme);
}

static tw_status onebit_adam_walk(tw_scheme *scheme, tw_walk *walk)
{
    onebit_adam *self = (onebit_adam *)scheme;
    TW_TRY(tw_quantised_walk(scheme, walk));
    TW_TRY(tw_velocity_walk(&self->compressed, walk));
    return tw_velocity_walk(&self->leftovers, walk);
}

/* The corrections of squares that stand still stand still, too. An Adam's are those of its own count of steps. */
static void rescale_squares(onebit_adam *self, int to_adam)
{
    uint64_t done = self->signs.quantised.scheme.step;
    if (self->adam.beta2 == 0 || whole_among(self, done) == done) return;
    float frozen = step_of_frozen(self).correct_root, adams = tw_adam_begin(&self->adam, 0, done - 1, 1).correct_root;
    float factor = to_adam ? frozen / adams : adams / frozen;
    for (size_t i = 0; i < self->compressed.dense->count; i++) self->compressed.squares_now[i] *= factor * factor;
}

static void onebit_adam_take_moments(tw_scheme *scheme)
{
    rescale_squares((onebit_adam *)scheme, 0);
}

/* The residual would have entered the next momentum, beside beta1 of the last. */
static void onebit_adam_give_moments(tw_scheme *scheme)
{
    onebit_adam *self = (onebit_adam *)scheme;
    tw_quantised *quantised = &self->signs.quantised;
    tw_adam_step frozen = step_of_frozen(self);
    float beta1 = (float)self->adam.beta1;
    for (size_t i = 0; beta1 > 0 && i < self->compressed.dense->count; i++) {
        self->compressed.now[i] += tw_adam_bounded(quantised->residual[i] * divisor(self, &frozen, i) / beta1);
        quantised->residual[i] = 0;
    }
    rescale_squares(self, 1);
}

static tw_status onebit_adam_create(tw_scheme *scheme)
{
    static const tw_quantised_ops momentum = {SECTIONS, .fill = add_shares_of_absent};
    onebit_adam *self = (onebit_adam *)scheme;
    tw_gather *gather = &self->signs.quantised.gather;
    int adapts = self->adam.beta2 > 0;
    TW_TRY(tw_adam_check(self->adam.beta1, self->adam.beta2));
    if (self->refresh && !adapts)
        return tw_fail(TW_ERROR_SPEC, "refresh=%" PRId64 " with beta2=0, which has no squares to renew; leave it out",
                       self->refresh);
    self->signs.is_root = 1;
    self->signs.turn = blend;
    TW_TRY(create_signs(scheme, &momentum, 1));
    TW_TRY(tw_gather_create_whole(gather));
    TW_TRY(tw_velocity_create(&self->compressed, &gather->wide, adapts));
    self->signs.alive = self->compressed.squares_before; /* the divisors */
    TW_TRY(tw_allocate(scheme->count, 1, &self->signs.has_still));
    return tw_velocity_create(&self->leftovers, &gather->leftovers, adapts);
}

static float onebit_adam_momentum(const tw_scheme *scheme, int *nesterov)
{
    *nesterov = 0;
    return (float)((const onebit_adam *)scheme)->adam.beta1;
}

static void onebit_adam_destroy(tw_scheme *scheme)
{
    onebit_adam *self = (onebit_adam *)scheme;
    tw_velocity_destroy(&self->compressed);
    tw_velocity_destroy(&self->leftovers);
    signs_destroy(scheme);
}

#define SIGNS                                                                                                          \
    .one_pass = 1, .floor_bytes = 12, .struct_size = sizeof(signs), TW_OPTIONS(options), .next = tw_quantised_next,    \
    .revert = signs_revert, .settle = signs_settle, .walk = tw_quantised_walk, .plan = tw_quantised_plan,              \
    .destroy = signs_destroy

const tw_scheme_ops tw_scheme_sign = {
    .name = "sign",
    .summary = "EF-signSGD: one bit an element and the mean magnitude of each tensor, with error feedback",
    .create = sign_create,
    SIGNS,
};

const tw_scheme_ops tw_scheme_onebit = {
    .name = "onebit",
    .summary = "1-bit SGD: one bit an element and two mean values of each tensor, with error feedback",
    .create = onebit_create,
    SIGNS,
};

/* The gradient, the residual and m, which are written as well, and of v what is read. What is kept of sums is of one
 * element in N, and does not count. */
static unsigned onebit_adam_floor(const tw_scheme *scheme)
{
    return ((const onebit_adam *)scheme)->adam.beta2 > 0 ? 24 : 20;
}

const tw_scheme_ops tw_scheme_onebit_adam = {
    .name = "onebit-adam",
    .summary =
        "1-bit Adam: after a beginning of Adam its squares stand still, and one bit an element tells the momentum",
    .floor = onebit_adam_floor,
    .struct_size = sizeof(onebit_adam),
    TW_OPTIONS(adam_options),
    .preset = adam_presets,
    .of_run = onebit_adam_of_run,
    .create = onebit_adam_create,
    .next = onebit_adam_next,
    .revert = onebit_adam_revert,
    .settle = onebit_adam_settle,
    .walk = onebit_adam_walk,
    .momentum = onebit_adam_momentum,
    .take_moments = onebit_adam_take_moments,
    .give_moments = onebit_adam_give_moments,
    .plan = tw_quantised_plan,
    .destroy = onebit_adam_destroy,
};
