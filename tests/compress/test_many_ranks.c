/* What a rank sends in pieces does not grow with the number of ranks: told from the packets of one rank of 8, 64 and
 * 1,024. And so many ranks, all of them in one thread, get the same bits. */
#include <math.h>
#include <stdlib.h>
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_plugin.h>

#include "support/cmocka.h"
#include "support/parts.h"

static const char *const specs[] = {"qsgd", "terngrad", "sign", "onebit", "natural", "fp8"};
static const int sizes[] = {8, 64, 1024};
enum { SPECS = sizeof specs / sizeof *specs, SIZES = sizeof sizes / sizeof *sizes };
#define SPARSE "topk:density=0.01,exchange="

static float draw(uint64_t seed, size_t i)
{
    uint32_t words[4];
    tw_random(3, seed, i, words);
    return (float)(int32_t)words[0] * 0x1p-31f;
}

static void must(tw_status status)
{
    if (status != TW_OK) fail_msg("%s", tw_last_error());
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* A small model: 11 million parameters, of which two tensors have fewer pieces than 1,024. */
static const tw_tensor model[] = {{"embedding", 2, {16000, 512}},
                                  {"layer", 2, {1536, 512}},
                                  {"kernel", 4, {512, 512, 3, 3}},
                                  {"first", 2, {300, 512}},
                                  {"head", 2, {100, 512}}};
enum { MODEL = sizeof model / sizeof *model };

static size_t elements_of_model(void)
{
    size_t elements = 0;
    for (size_t t = 0; t < MODEL; t++) elements += tw_tensor_count(&model[t]);
    return elements;
}

/* What rank `rank` sends in one step. Whatever the others would send it, it is as long as its own packet to itself. */
static double bytes_of(const char *spec, int rank, int size, float **gradients)
{
    tw_scheme *scheme;
    tw_round round = {0};
    double bytes = 0;
    const void **packets = calloc((size_t)size, sizeof *packets);
    size_t *lengths = calloc((size_t)size, sizeof *lengths);
    must(tw_scheme_create(spec, model, MODEL, rank, size, &scheme));
    must(tw_scheme_begin(scheme, gradients, 1));
    must(tw_scheme_next(scheme, &round));
    for (int r = 0; round.kind == TW_ROUND_ALLTOALL && r < size; r++) {
        if (r != rank) bytes += (double)round.sizes[r];
        packets[r] = round.packets[rank];
        lengths[r] = round.sizes[rank];
    }
    if (round.kind == TW_ROUND_ALLTOALL) {
        round.packets = packets;
        round.sizes = lengths;
        must(tw_scheme_next(scheme, &round));
    }
    assert_int_equal(round.kind, TW_ROUND_ALLGATHER);
    bytes += (double)round.size * (size - 1);
    tw_scheme_destroy(scheme);
    free(packets);
    free(lengths);
    return bytes;
}

/* On average over ranks: the second round's are those of the pieces, of which small tensors have few. */
static double mean_bytes(const char *spec, int size, float **gradients)
{
    const int asked = in_part(4, 8);
    double bytes = 0;
    for (int k = 0; k < asked; k++) bytes += bytes_of(spec, k * size / asked, size, gradients);
    return bytes / asked;
}

/* What a ring sends of so many bytes: one's own part, 1/N of it, does not travel. */
static double ring(double bytes, int size)
{
    return 2 * bytes * (size - 1) / size;
}

/* 2/8 of what goes to all, and headers. */
static void check_sparse(float *values, float **gradients)
{
    double sent[3];
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < elements_of_model(); i++) values[i] = (float)(int32_t)((uint32_t)i * 2654435761U);
        sent[k] = bytes_of(k ? SPARSE "scatter" : SPARSE "gather", k < 2 ? 3 : 300, k < 2 ? 8 : 512, gradients);
    }
    print_message("topk, 8 ranks: %.0f bytes each, %.0f to all; 512 ranks: %.0f\n", sent[1], sent[0], sent[2]);
    assert_true(sent[1] < 0.3 * sent[0]);
    assert_true(sent[2] < 1.5 * sent[1]);
}

TEST(test_bytes_do_not_grow_with_the_ranks)
{
    size_t n = elements_of_model();
    float *values = malloc(n * sizeof *values), *gradients[MODEL];
    for (size_t t = 0, at = 0; t < MODEL; at += tw_tensor_count(&model[t++])) gradients[t] = values + at;
    check_sparse(values, gradients);
    for (size_t s = 0; s < SPECS; s++) {
        double least = INFINITY, most = 0;
        for (int z = 0; z < SIZES; z++) {
            for (size_t i = 0; i < n; i++) values[i] = (float)((int)(i % 255) - 127);
            double bytes = mean_bytes(specs[s], sizes[z], gradients);
            double share = bytes / ring(4 * (double)n, sizes[z]);
            print_message("%s, %d ranks: %.0f bytes a rank, 1/%.2f of a ring's\n", specs[s], sizes[z], bytes,
                          1 / share);
            least = fmin(least, share);
            most = fmax(most, share);
            if (bytes >= ring(2 * (double)n, sizes[z])) fail_msg("%s: no less than fp16", specs[s]);
        }
        if (most > 1.05 * least) fail_msg("%s: between %g and %g of a ring's bytes", specs[s], least, most);
    }
    free(values);
}

/* ---- replicas ---------------------------------------------------------------------------------------------------- */

static const tw_tensor few[] = {{"w", 2, {120, 100}}, {"v", 2, {90, 100}}};
enum { FEW = 2, COUNT = 120 * 100 + 90 * 100, MOST = 1024 };

typedef struct crowd {
    int size;
    tw_scheme *scheme[MOST];
    tw_round round[MOST];
    float *values[MOST], *tensors[MOST][FEW];
    const void **packets; /* size by size */
    size_t *lengths;
} crowd;

static crowd *crowd_create(const char *spec, int size)
{
    crowd *c = calloc(1, sizeof *c);
    size_t pairs = (size_t)size * (size_t)size;
    c->size = size;
    c->packets = calloc(pairs, sizeof *c->packets);
    c->lengths = calloc(pairs, sizeof *c->lengths);
    for (int r = 0; r < size; r++) {
        c->values[r] = malloc(COUNT * sizeof(float));
        c->tensors[r][0] = c->values[r];
        c->tensors[r][1] = c->values[r] + 120 * 100;
        must(tw_scheme_create(spec, few, FEW, r, size, &c->scheme[r]));
    }
    return c;
}

static void crowd_destroy(crowd *c)
{
    for (int r = 0; r < c->size; r++) {
        tw_scheme_destroy(c->scheme[r]);
        free(c->values[r]);
    }
    free(c->packets);
    free(c->lengths);
    free(c);
}

/* Packets stay where their senders have them until the next round of their kind. */
static void deliver(crowd *c)
{
    size_t size = (size_t)c->size;
    for (size_t to = 0; to < size; to++)
        for (size_t from = 0; from < size; from++) {
            const tw_round *round = &c->round[from];
            int all_to_all = round->kind == TW_ROUND_ALLTOALL;
            c->packets[to * size + from] = all_to_all ? round->packets[to] : round->data;
            c->lengths[to * size + from] = all_to_all ? round->sizes[to] : round->size;
            assert_true(c->lengths[to * size + from] <= round->capacity);
        }
    for (size_t to = 0; to < size; to++) {
        c->round[to].packets = c->packets + to * size;
        c->round[to].sizes = c->lengths + to * size;
    }
}

/* Returns what the step was: skipped or not. */
static int crowd_step(crowd *c)
{
    for (int r = 0; r < c->size; r++) must(tw_scheme_begin(c->scheme[r], c->tensors[r], -1));
    do {
        for (int r = 0; r < c->size; r++) must(tw_scheme_next(c->scheme[r], &c->round[r]));
        for (int r = 1; r < c->size; r++) assert_int_equal(c->round[r].kind, c->round[0].kind);
        assert_true(c->round[0].kind == TW_ROUND_ALLTOALL || c->round[0].kind == TW_ROUND_ALLGATHER ||
                    c->round[0].kind == TW_ROUND_DONE);
        if (c->round[0].kind != TW_ROUND_DONE) deliver(c);
    } while (c->round[0].kind != TW_ROUND_DONE);
    for (int r = 1; r < c->size; r++) assert_int_equal(c->round[r].skipped, c->round[0].skipped);
    return c->round[0].skipped;
}

/* All ranks have the same gradient but for a little noise, of which the mean is soon rid. */
static void fill(crowd *c, uint64_t step)
{
    static float common[COUNT], noise[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        common[i] = draw(step, i);
        noise[i] = 0.25f * draw(1000 + step, i);
    }
    for (int r = 0; r < c->size; r++)
        for (size_t i = 0; i < COUNT; i++) c->values[r][i] = common[i] + noise[(i + 31 * (size_t)r) % COUNT];
}

/* The cosine between what came and what all ranks have in common. */
static double likeness(const crowd *c, uint64_t step)
{
    double both = 0, came = 0, common = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double x = c->values[0][i], y = draw(step, i);
        both += x * y;
        came += x * x;
        common += y * y;
    }
    return both / sqrt(came * common);
}

static void check_crowd(const char *spec, int size)
{
    crowd *c = crowd_create(spec, size);
    for (uint64_t step = 0; step < 3; step++) {
        fill(c, step);
        if (step == 1) c->values[size / 2][7] = NAN;
        assert_int_equal(crowd_step(c), step == 1);
        if (step == 1) continue;
        for (int r = 1; r < size; r++) assert_memory_equal(c->values[r], c->values[0], COUNT * sizeof(float));
        if (step == 0 && likeness(c, step) < 0.6) fail_msg("%s, %d ranks: %g alike", spec, size, likeness(c, step));
    }
    crowd_destroy(c);
}

TEST(test_a_thousand_replicas_are_alike)
{
    for (size_t s = 0; s < SPECS; s++)
        for (int z = 0; z < (s == 0 ? SIZES : in_part(SIZES - 1, SIZES)); z++) check_crowd(specs[s], sizes[z]);
}

RUN_TESTS(NULL, NULL)
