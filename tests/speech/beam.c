/* Decoding against all paths, and beam search against what CTC says of its result. */
#include "beam.h"
#include "ctc.h"
#include "decode.h"
#include "support.h"

enum { FRAMES = 5, LABELS = 3, SPELLINGS = 1 << (FRAMES + 1) };

static utterance of(const float *logits, size_t frames, size_t labels)
{
    return (utterance){logits, labels, frames, labels};
}

static double log_probability(const float *logits, uint32_t frames, size_t labels, const uint32_t *target, size_t count)
{
    uint32_t length = (uint32_t)count;
    ctc_batch batch = {frames, 1, labels, logits, &frames, target, &length};
    ctc_result result;
    ctc *c;
    assert_ok(ctc_create(frames, labels, length, &c));
    assert_ok(ctc_loss(c, &batch, CTC_BY_SEQUENCE, NULL, &result));
    ctc_destroy(c);
    return -result.sum;
}

/* A number for each sequence of labels 1 and 2: its digits in base two, after a one. */
static size_t number_of(const uint32_t *labels, size_t count)
{
    size_t number = 1;
    for (size_t i = 0; i < count; i++) number = 2 * number + labels[i] - 1;
    return number;
}

static size_t length_of(size_t number)
{
    size_t length = 0;
    while (number >> (length + 1)) length++;
    return length;
}

/* The spelling with the best sum over its paths, of all there are. */
static size_t best_of_all(const float *logits, double bonus, double *log_best)
{
    double p[FRAMES][LABELS], sums[SPELLINGS] = {0}, best = -INFINITY;
    uint32_t path[FRAMES] = {0}, spelt[FRAMES];
    size_t found = 0;
    for (size_t t = 0; t < FRAMES; t++) softmax(logits + t * LABELS, LABELS, p[t]);
    do {
        double product = 1.0;
        for (size_t t = 0; t < FRAMES; t++) product *= p[t][path[t]];
        sums[number_of(spelt, collapse(path, FRAMES, spelt))] += product;
    } while (next_path(path, FRAMES, LABELS));
    for (size_t i = 1; i < SPELLINGS; i++) {
        double score = log(sums[i]) + bonus * (double)length_of(i);
        if (!(score > best)) continue;
        best = score;
        *log_best = log(sums[i]);
        found = i;
    }
    return found;
}

TEST(a_wide_beam_finds_the_best_spelling)
{
    beam *b;
    assert_ok(beam_create(FRAMES, LABELS, SPELLINGS, &b));
    for (uint64_t seed = 0; seed < 200; seed++) {
        float logits[FRAMES * LABELS];
        double expected = 0, bonus = (double)(seed % 3) * 0.5;
        uint32_t found[FRAMES];
        beam_result result;
        utterance u = of(logits, FRAMES, LABELS);
        fill_uniform(seed, 2, logits, FRAMES * LABELS);
        size_t best = best_of_all(logits, bonus, &expected);
        assert_ok(beam_search(b, &u, bonus, found, &result));
        assert_int_equal(number_of(found, result.count), best);
        assert_near(result.log_probability, expected, 1e-12);
    }
    beam_destroy(b);
}

TEST(greedy_spells_the_best_path)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        float logits[FRAMES * LABELS];
        uint32_t best[FRAMES], expected[FRAMES], found[FRAMES];
        utterance u = of(logits, FRAMES, LABELS);
        fill_uniform(seed, 2, logits, FRAMES * LABELS);
        for (size_t t = 0; t < FRAMES; t++) {
            best[t] = 0;
            for (uint32_t k = 1; k < LABELS; k++)
                if (logits[t * LABELS + k] > logits[t * LABELS + best[t]]) best[t] = k;
        }
        size_t count = collapse(best, FRAMES, expected);
        assert_int_equal(decode_greedy(&u, found), count);
        assert_memory_equal(found, expected, count * sizeof *found);
    }
}

/* A network fairly sure of a path whose labels last a few frames. */
static void fill_as_spoken(uint64_t seed, float *logits, size_t frames, size_t labels)
{
    fill_uniform(seed, 2, logits, frames * labels);
    for (size_t t = 0; t < frames; t++) logits[t * labels + draw(seed, t / 3, (uint32_t)labels)] += 4;
}

/* A narrow beam counts no path twice, and none that is not there. Where the network is fairly sure, it finds nothing
 * worse than greedy decoding does, unless it is so narrow that it drops that too early. */
TEST(a_narrow_beam_claims_no_more_than_there_is)
{
    enum { LONG = 60, MANY = 12 };
    static float logits[LONG * MANY];
    uint32_t greedy[LONG], found[LONG], again[LONG];
    utterance u = of(logits, LONG, MANY);
    static const size_t widths[] = {1, 2, 32, 500};
    for (uint64_t seed = 0; seed < 10; seed++) {
        fill_as_spoken(seed, logits, LONG, MANY);
        size_t count = decode_greedy(&u, greedy);
        double least = log_probability(logits, LONG, MANY, greedy, count);
        for (size_t i = 0; i < 4; i++) {
            beam_result result, repeated;
            beam *b;
            assert_ok(beam_create(LONG + 5, MANY, widths[i], &b));
            assert_ok(beam_search(b, &u, 0, found, &result));
            double all = log_probability(logits, LONG, MANY, found, result.count);
            assert_true(result.log_probability <= all + 1e-9);
            if (widths[i] == 500) assert_true(all >= least - 1e-9);
            assert_ok(beam_search(b, &u, 0, again, &repeated)); /* nothing of the first search is left */
            assert_int_equal(repeated.count, result.count);
            assert_memory_equal(again, found, result.count * sizeof *found);
            beam_destroy(b);
        }
    }
}

TEST(equals_are_settled_by_rule)
{
    const float logits[3 * 4] = {0};
    utterance u = of(logits, 3, 4);
    uint32_t found[3];
    beam_result result;
    beam *b;
    assert_ok(beam_create(3, 4, 64, &b));
    assert_ok(beam_search(b, &u, 0, found, &result));
    assert_int_equal(result.count, 1); /* 6 of 64 paths spell "1", as many "2" or "3" */
    assert_int_equal(found[0], 1);
    assert_near(result.log_probability, log(6.0 / 64), 1e-12);
    beam_destroy(b);
}

TEST(strides_are_followed)
{
    float wide[FRAMES * 2 * LABELS], own[FRAMES * LABELS];
    uint32_t expected[FRAMES], found[FRAMES];
    beam_result first, second;
    beam *b;
    fill_uniform(77, 3, wide, FRAMES * 2 * LABELS);
    for (size_t t = 0; t < FRAMES; t++) memcpy(own + t * LABELS, wide + (2 * t + 1) * LABELS, LABELS * sizeof(float));
    utterance a = of(own, FRAMES, LABELS), same = {wide + LABELS, 2 * LABELS, FRAMES, LABELS};
    assert_ok(beam_create(FRAMES, LABELS, 8, &b));
    assert_ok(beam_search(b, &a, 0, expected, &first));
    assert_ok(beam_search(b, &same, 0, found, &second));
    assert_int_equal(first.count, second.count);
    assert_memory_equal(found, expected, first.count * sizeof *found);
    assert_true(first.log_probability == second.log_probability);
    size_t count = decode_greedy(&a, expected);
    assert_int_equal(decode_greedy(&same, found), count);
    assert_memory_equal(found, expected, count * sizeof *found);
    beam_destroy(b);
}

TEST(what_does_not_fit_is_refused)
{
    const float logits[4 * 3] = {0};
    utterance none = of(logits, 0, 3), longer = of(logits, 4, 3), fewer = of(logits, 3, 2);
    beam_result result;
    uint32_t found[4];
    beam *b;
    assert_refused(beam_create(3, 3, 0, &b), "a beam of 0");
    assert_refused(beam_create(3, 1, 4, &b), "1 labels");
    assert_refused(beam_create(1u << 30, 3, 16, &b), "1073741824 frames");
    assert_ok(beam_create(3, 3, 4, &b));
    assert_refused(beam_search(b, &longer, 0, found, &result), "4 frames");
    assert_refused(beam_search(b, &fewer, 0, found, &result), "2 labels");
    assert_ok(beam_search(b, &none, 0, found, &result));
    assert_int_equal(result.count, 0);
    assert_true(result.log_probability == 0.0);
    beam_destroy(b);
    beam_destroy(NULL);
}

RUN_TESTS(NULL, NULL)
