/* CTC against its definition: the sum over all paths; and where there are too many, against sums of logarithms. */
#include "ctc.h"
#include "support.h"

enum { MOST_FRAMES = 5, MOST_LABELS = 3, MOST_TARGET = 3 };

/* A sequence alone in its batch. */
static ctc_batch alone(const float *logits, const uint32_t *frames, size_t labels, const uint32_t *target,
                       const uint32_t *length)
{
    return (ctc_batch){*frames, 1, labels, logits, frames, target, length};
}

static double loss_of(const float *logits, uint32_t frames, size_t labels, const uint32_t *target, uint32_t length,
                      float *gradient)
{
    ctc *c;
    ctc_result result;
    ctc_batch batch = alone(logits, &frames, labels, target, &length);
    assert_ok(ctc_create(frames, labels, length, &c));
    assert_ok(ctc_loss(c, &batch, CTC_BY_SEQUENCE, gradient, &result));
    ctc_destroy(c);
    assert_int_equal(result.feasible + result.infeasible, 1);
    return result.feasible ? result.sum : INFINITY;
}

/* The probability of a target, and each label's share of it in each frame. */
static double enumerate(const float *logits, size_t frames, size_t labels, const uint32_t *target, size_t length,
                        double shares[MOST_FRAMES][MOST_LABELS])
{
    double p[MOST_FRAMES][MOST_LABELS], all = 0.0;
    uint32_t path[MOST_FRAMES] = {0}, spelt[MOST_FRAMES];
    for (size_t t = 0; t < frames; t++) softmax(logits + t * labels, labels, p[t]);
    memset(shares, 0, sizeof(double[MOST_FRAMES][MOST_LABELS]));
    do {
        double product = 1.0;
        if (collapse(path, frames, spelt) != length || memcmp(spelt, target, length * sizeof *target) != 0) continue;
        for (size_t t = 0; t < frames; t++) product *= p[t][path[t]];
        for (size_t t = 0; t < frames; t++) shares[t][path[t]] += product;
        all += product;
    } while (next_path(path, frames, labels));
    return all;
}

static void check_against_all_paths(const float *logits, uint32_t frames, size_t labels, const uint32_t *target,
                                    uint32_t length)
{
    double shares[MOST_FRAMES][MOST_LABELS], p[MOST_LABELS];
    float gradient[MOST_FRAMES * MOST_LABELS];
    double all = enumerate(logits, frames, labels, target, length, shares);
    double loss = loss_of(logits, frames, labels, target, length, gradient);
    if (all == 0.0) {
        assert_true(isinf(loss));
        for (size_t i = 0; i < frames * labels; i++) assert_true(gradient[i] == 0.0f);
        return;
    }
    assert_near(loss, -log(all), 1e-13);
    for (size_t t = 0; t < frames; t++) {
        softmax(logits + t * labels, labels, p);
        for (size_t k = 0; k < labels; k++) assert_near(gradient[t * labels + k], p[k] - shares[t][k] / all, 6e-8);
    }
}

TEST(every_small_target_has_the_sum_over_its_paths)
{
    for (uint32_t frames = 1; frames <= MOST_FRAMES; frames++)
        for (size_t labels = 2; labels <= MOST_LABELS; labels++)
            for (uint32_t length = 0; length <= MOST_TARGET; length++) {
                float logits[MOST_FRAMES * MOST_LABELS];
                uint32_t digits[MOST_TARGET] = {0};
                fill_uniform(frames * 16 + labels * 4 + length, 3, logits, frames * labels);
                do {
                    uint32_t target[MOST_TARGET];
                    for (size_t i = 0; i < MOST_TARGET; i++) target[i] = digits[i] + 1;
                    check_against_all_paths(logits, frames, labels, target, length);
                } while (next_path(digits, length, labels - 1));
            }
}

static double log_add(double a, double b)
{
    double top = a > b ? a : b;
    return top == -INFINITY ? top : top + log(exp(a - top) + exp(b - top));
}

/* Forward variables as logarithms, as the textbook has them. */
static double reference_loss(const float *logits, size_t frames, size_t labels, const uint32_t *target, size_t length)
{
    size_t states = 2 * length + 1;
    double *now = malloc(states * sizeof *now), *before = malloc(states * sizeof *before);
    for (size_t t = 0; t < frames; t++, logits += labels) {
        double top = logits[0], sum = 0.0;
        for (size_t k = 1; k < labels; k++) top = logits[k] > top ? logits[k] : top;
        for (size_t k = 0; k < labels; k++) sum += exp(logits[k] - top);
        for (size_t s = 0; s < states; s++) {
            uint32_t label = s % 2 ? target[s / 2] : 0;
            double reached = t == 0 ? (s < 2 ? 0.0 : -INFINITY) : before[s];
            if (t > 0 && s > 0) reached = log_add(reached, before[s - 1]);
            if (t > 0 && s > 2 && s % 2 && label != target[s / 2 - 1]) reached = log_add(reached, before[s - 2]);
            now[s] = reached + logits[label] - top - log(sum);
        }
        memcpy(before, now, states * sizeof *now);
    }
    double loss = -(length ? log_add(now[states - 1], now[states - 2]) : now[0]);
    free(now);
    free(before);
    return loss;
}

/* Rows sum to zero, each entry is a probability less a posterior, and they follow the slope of the reference. */
static void check_long(uint64_t seed, float scale, float blank, uint32_t length)
{
    enum { FRAMES = 1000, LABELS = 8 };
    static float logits[FRAMES * LABELS], gradient[FRAMES * LABELS];
    static uint32_t target[FRAMES];
    fill_uniform(seed, scale, logits, FRAMES * LABELS);
    for (size_t t = 0; t < FRAMES; t++) logits[t * LABELS] += blank;
    for (size_t i = 0; i < length; i++) target[i] = 1 + (uint32_t)(i * 3 + draw(seed, i, 2)) % (LABELS - 1);
    double loss = loss_of(logits, FRAMES, LABELS, target, length, gradient);
    double expected = reference_loss(logits, FRAMES, LABELS, target, length);
    assert_near(loss, expected, 1e-11 * expected);
    for (size_t t = 0; t < FRAMES; t++) {
        double sum = 0.0;
        for (size_t k = 0; k < LABELS; k++) {
            assert_in_range((int)(gradient[t * LABELS + k] + 2.0f), 1, 3);
            sum += gradient[t * LABELS + k];
        }
        assert_near(sum, 0.0, 2e-7);
    }
    for (size_t i = 0; i < 3; i++) {
        size_t at = draw(seed + 1, i, FRAMES * LABELS);
        float kept = logits[at], step = 0x1p-6f;
        logits[at] = kept + step;
        double above = reference_loss(logits, FRAMES, LABELS, target, length), upper = logits[at];
        logits[at] = kept - step;
        double below = reference_loss(logits, FRAMES, LABELS, target, length), lower = logits[at];
        logits[at] = kept;
        assert_near(gradient[at], (above - below) / (upper - lower), 5e-5);
    }
}

/* The second and third are networks that say blank everywhere: e^-6000 and less lies between states that all matter. */
TEST(long_sequences_lose_nothing)
{
    check_long(3, 4, 0, 300);
    check_long(4, 1, 20, 300);
    check_long(5, 1, 60, 450);
    check_long(6, 8, 0, 500);
    check_long(7, 2, 0, 0);
}

TEST(impossible_labels_cost_what_they_must)
{
    const uint32_t target[] = {1};
    float gradient[4];
    const float far[2 * 2] = {5e4f, 0, 5e4f, 0};
    assert_near(loss_of(far, 2, 2, target, 1, gradient), 5e4 - log(2), 1e-8);
    for (size_t i = 0; i < 4; i++) assert_near(gradient[i], i % 2 ? -0.5 : 0.5, 1e-7);
    const float infinite[2] = {0, -INFINITY};
    assert_near(loss_of(infinite, 1, 2, target, 1, gradient), 1048576 * log(2), 1e-6);
    assert_true(gradient[0] == 1.0f && gradient[1] == -1.0f);
}

TEST(a_logit_that_is_no_number_is_not_hidden)
{
    const uint32_t target[] = {1};
    const float bad[] = {NAN, INFINITY};
    for (size_t kind = 0; kind < 2; kind++)
        for (size_t at = 0; at < 6; at++) {
            float logits[6] = {0}, gradient[6];
            logits[at] = bad[kind];
            assert_true(isnan(loss_of(logits, 3, 2, target, 1, gradient)));
            for (size_t i = 0; i < 6; i++) assert_true(isnan(gradient[i]));
        }
}

/* Five sequences: padded, infeasible, empty, without frames, and of full length. */
enum { TIME = 12, BATCH = 5, LABELS = 4 };
static const uint32_t batch_frames[BATCH] = {7, 3, 9, 0, TIME}, batch_lengths[BATCH] = {3, 2, 0, 0, 4};
static const uint32_t batch_targets[] = {1, 1, 2, 3, 3, 2, 1, 3, 3};

TEST(a_batch_is_its_sequences)
{
    static float logits[TIME * BATCH * LABELS], gradient[TIME * BATCH * LABELS];
    const uint32_t frames[BATCH] = {7, 2, 9, 0, TIME};
    ctc_batch batch = {TIME, BATCH, LABELS, logits, frames, batch_targets, batch_lengths};
    ctc_result result;
    ctc *c;
    fill_uniform(9, 2, logits, TIME * BATCH * LABELS);
    assert_ok(ctc_create(TIME + 3, LABELS, 6, &c));
    for (int kind = CTC_BY_SEQUENCE; kind <= CTC_BY_LABEL; kind++) {
        double sum = 0.0;
        const uint32_t *target = batch_targets;
        memset(gradient, 0x7f, sizeof gradient); /* old values must not matter */
        assert_ok(ctc_loss(c, &batch, (ctc_weight)kind, gradient, &result));
        for (size_t n = 0; n < BATCH; target += batch_lengths[n++]) {
            float own[TIME * LABELS], own_gradient[TIME * LABELS] = {0};
            double share = kind == CTC_BY_LABEL && batch_lengths[n] ? 1.0 / batch_lengths[n] : 1.0;
            for (size_t t = 0; t < TIME; t++)
                memcpy(own + t * LABELS, logits + (t * BATCH + n) * LABELS, LABELS * sizeof(float));
            double loss = frames[n] ? loss_of(own, frames[n], LABELS, target, batch_lengths[n], own_gradient) : 0.0;
            if (isfinite(loss)) sum += share * loss;
            for (size_t t = 0; t < TIME; t++)
                for (size_t k = 0; k < LABELS; k++) {
                    double expected = t < frames[n] ? own_gradient[t * LABELS + k] * share / BATCH : 0.0;
                    assert_near(gradient[(t * BATCH + n) * LABELS + k], expected, 2e-8);
                }
        }
        assert_int_equal(result.feasible, 4);
        assert_int_equal(result.infeasible, 1);
        assert_near(result.sum, sum, 1e-12);
    }
    ctc_destroy(c);
}

TEST(what_does_not_fit_is_refused)
{
    static float logits[TIME * BATCH * LABELS];
    const uint32_t blank[] = {1, 0, 2, 3, 3, 2, 1, 3, 3}, beyond[] = {1, 1, 2, 3, 4, 2, 1, 3, 3};
    ctc_batch good = {TIME, BATCH, LABELS, logits, batch_frames, batch_targets, batch_lengths}, bad = good;
    ctc_result result;
    ctc *c;
    assert_refused(ctc_create(0, 4, 4, &c), "0 frames");
    assert_refused(ctc_create(10, 1, 4, &c), "1 labels");
    assert_refused(ctc_create(10, 2, SIZE_MAX, &c), "targets");
    assert_ok(ctc_create(TIME, LABELS, 4, &c));
    assert_ok(ctc_loss(c, &good, CTC_BY_LABEL, NULL, &result));
    bad.targets = blank;
    assert_refused(ctc_loss(c, &bad, CTC_BY_LABEL, NULL, &result), "label 1 of sequence 0 is 0");
    bad.targets = beyond;
    assert_refused(ctc_loss(c, &bad, CTC_BY_LABEL, NULL, &result), "label 1 of sequence 1 is 4");
    bad = good;
    bad.frames = (const uint32_t[BATCH]){TIME, TIME, TIME, TIME, TIME + 1};
    assert_refused(ctc_loss(c, &bad, CTC_BY_LABEL, NULL, &result), "sequence 4");
    bad = good;
    bad.time = TIME + 1;
    assert_refused(ctc_loss(c, &bad, CTC_BY_LABEL, NULL, &result), "room for 12");
    bad = good;
    bad.labels = LABELS - 1;
    assert_refused(ctc_loss(c, &bad, CTC_BY_LABEL, NULL, &result), "3 labels");
    ctc_destroy(c);
    assert_ok(ctc_create(TIME, LABELS, 3, &c));
    assert_refused(ctc_loss(c, &good, CTC_BY_LABEL, NULL, &result), "4 labels");
    ctc_destroy(c);
    ctc_destroy(NULL);
}

RUN_TESTS(NULL, NULL)
