/* sign, onebit, qsgd, terngrad, natural, fp8: against a second, naive implementation, bit for bit, packet by packet and
 * in pieces; sizes; what feedback bears; sections from a hostile peer. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_plugin.h>

#include "gradients.h"
#include "packet.h"
#include "support/cmocka.h"

enum { MOST = 5063, RANKS = 8 };

typedef enum method { SIGN, ONEBIT, QSGD, TERNGRAD, NATURAL, FP8 } method;

/* A spec, and the same in numbers for the naive implementation. */
typedef struct subject {
    const char *spec;
    method method;
    int bits, bucket, l2, feedback;
    double clip;
} subject;

#define ALL_OF_THEM "min_elements=1,min_dims=1"
#define EVERY ALL_OF_THEM ",exchange=gather"
static const subject subjects[] = {
    {.spec = "sign:" EVERY, .method = SIGN, .feedback = 1},
    {.spec = "onebit:" EVERY, .method = ONEBIT, .feedback = 1},
    {.spec = "qsgd:" EVERY, .method = QSGD, .bits = 4, .bucket = 512},
    {.spec = "qsgd:bits=8,bucket=128,feedback=on," EVERY, .method = QSGD, .bits = 8, .bucket = 128, .feedback = 1},
    {.spec = "qsgd:bits=3,bucket=1024,norm=l2," EVERY, .method = QSGD, .bits = 3, .bucket = 1024, .l2 = 1},
    {.spec = "terngrad:" EVERY, .method = TERNGRAD, .clip = 2.5},
    {.spec = "terngrad:clip=0," EVERY, .method = TERNGRAD},
    {.spec = "natural:" EVERY, .method = NATURAL},
    {.spec = "natural:feedback=on," EVERY, .method = NATURAL, .feedback = 1},
    {.spec = "fp8:" EVERY, .method = FP8, .feedback = 1},
    {.spec = "fp8:feedback=off," EVERY, .method = FP8},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

/* ---- the naive implementation ------------------------------------------------------------------------------------ */

/* Where random bits come from: a rank's share has its number, a sum the number of ranks more; and where the tensor's
 * elements begin that are encoded. */
typedef struct lottery {
    int number;
    uint64_t step;
    size_t first;
} lottery;

/* The random bits of element i, as quantise.h has it, from the definition: those 32 apart in a row of 64 share a hash.
 */
static uint32_t random_bits(const lottery *l, size_t element)
{
    size_t i = l->first + element;
    uint32_t words[4], number = (uint32_t)(i / 64 * 64 + i % 32);
    tw_random(1, (uint64_t)l->number << 32 | tw_crc32c(0, "w", 1), l->step, words);
    uint32_t x = (number ^ words[0]) * 0x9E3779B1u;
    x = ((x ^ (x >> 15)) + words[1]) * 0x846CA68Bu;
    x = (x ^ (x >> 13)) * 0x7FEB352Du;
    return i & 32 ? x << 16 | x >> 16 : x;
}

/* level, in units of 2^-24, down or up. */
static float at_random(float level, uint32_t random)
{
    return (float)floor(((double)(int64_t)level + (random >> 8)) * 0x1p-24);
}

static double fold(double partial[16])
{
    for (int half = 8; half > 0; half /= 2)
        for (int k = 0; k < half; k++) partial[k] += partial[k + half];
    return partial[0];
}

static void naive_signs(const subject *s, const float *p, size_t n, float *sent)
{
    double sums[2][16] = {{0}};
    size_t negatives = 0, whole = n / 1024 * 1024;
    for (size_t i = 0; i < n; i++) negatives += p[i] < 0;
    for (size_t lane = 0; lane < whole / 32; lane++) { /* 32 of each group, whose elements are 32 apart */
        float sum[2] = {0};
        const float *first = p + lane / 32 * 1024 + lane % 32;
        for (size_t i = 0; i < 1024; i += 32) sum[first[i] < 0] += first[i];
        for (int k = 0; k < 2; k++) sums[k][lane % 16] += sum[k];
    }
    for (size_t i = whole; i < n; i++) sums[p[i] < 0][i % 16] += p[i];
    double positive = fold(sums[0]), negative = fold(sums[1]);
    float low = -(float)((positive - negative) / (double)n), high = -low;
    if (s->method == ONEBIT) {
        high = negatives < n ? (float)(positive / (double)(n - negatives)) : 0;
        low = negatives ? (float)(negative / (double)negatives) : 0;
    }
    for (size_t i = 0; i < n; i++) sent[i] = p[i] < 0 ? low : high;
}

static double naive_peak(const float *x, size_t n)
{
    double peak = 0;
    for (size_t i = 0; i < n; i++) peak = fmax(peak, fabs(x[i]));
    return peak;
}

static double naive_norm(const float *x, size_t n)
{
    double squares[16] = {0};
    for (size_t i = 0; i < n; i++) squares[i % 16] += (double)x[i] * x[i];
    return fold(squares);
}

/* In all random ones x is the gradient or the residual, and p = a*x what is sent of it. */
static void naive_qsgd(const subject *s, const float *x, float a, size_t n, const lottery *l, float *sent)
{
    int levels = (1 << (s->bits - 1)) - 1;
    for (size_t first = 0; first < n; first += (size_t)s->bucket) {
        size_t count = n - first < (size_t)s->bucket ? n - first : (size_t)s->bucket;
        double norm = s->l2 ? sqrt(naive_norm(x + first, count)) : naive_peak(x + first, count);
        float unit = norm > 0 ? (float)fmax(norm * a / levels * (1 + 0x1p-22), 0x1p-100) : 0;
        for (size_t i = first; i < first + count; i++) {
            float level = a * x[i] * ((unit > 0 ? 1 / unit : 0) * 0x1p24f);
            sent[i] = at_random(level, random_bits(l, i)) * unit;
        }
    }
}

static void naive_terngrad(const subject *s, const float *x, float a, size_t n, const lottery *l, float *sent)
{
    double squares = 0, limit = naive_peak(x, n);
    for (size_t first = 0; first < n; first += 640) squares += naive_norm(x + first, n - first < 640 ? n - first : 640);
    if (s->clip > 0) limit = fmin(limit, s->clip * sqrt(squares / (double)n));
    float unit = limit > 0 ? (float)fmax(a * limit, 0x1p-100) : 0;
    for (size_t i = 0; i < n; i++) {
        float level = a * x[i] * ((unit > 0 ? 1 / unit : 0) * 0x1p24f);
        sent[i] = at_random(fmaxf(fminf(level, 0x1p24f), -0x1p24f), random_bits(l, i)) * unit;
    }
}

/* With frexp instead of the bits of a float; nothing here is as small as 2^-126 of the largest. */
static void naive_natural(const float *x, float a, size_t n, const lottery *l, float *sent)
{
    for (size_t i = 0; i < n; i++) {
        int exponent;
        double mantissa = 2 * frexp(fabsf(a * x[i]), &exponent) - 1; /* of 2^(exponent-1) * (1 + mantissa) */
        int up = mantissa * 0x1p23 + (random_bits(l, i) >> 9) >= 0x1p23;
        float power = x[i] == 0 ? 0 : (float)ldexp(up ? 2 : 1, exponent - 1);
        sent[i] = a * x[i] < 0 ? -power : power;
    }
}

/* With frexp, and the rounding of the processor; nothing here is beyond 448 powers of two. */
static void naive_fp8(const float *x, float a, size_t n, float *sent)
{
    for (size_t first = 0; first < n; first += 1024) {
        size_t count = n - first < 1024 ? n - first : 1024;
        double peak = (float)(a * naive_peak(x + first, count)), scale = ldexp(1, -126);
        while (peak / scale > 448) scale *= 2;
        for (size_t i = first; i < first + count; i++) {
            double y = (a * x[i]) / scale;
            int exponent;
            frexp(y, &exponent);
            double unit = ldexp(1, exponent < -5 ? -9 : exponent - 4);
            sent[i] = (float)(rint(y / unit) * unit * scale);
        }
    }
}

/* What a*g is sent as; updates the residual. */
static void naive_encode(const subject *s, float a, const float *g, size_t n, const lottery *l, float *residual,
                         float *sent)
{
    float p[MOST];
    const float *x = g;
    if (s->feedback) {
        for (size_t i = 0; i < n; i++) p[i] = residual[i] + a * g[i];
        x = p;
        a = 1;
    }
    if (s->method == SIGN || s->method == ONEBIT) naive_signs(s, p, n, sent);
    if (s->method == QSGD) naive_qsgd(s, x, a, n, l, sent);
    if (s->method == TERNGRAD) naive_terngrad(s, x, a, n, l, sent);
    if (s->method == NATURAL) naive_natural(x, a, n, l, sent);
    if (s->method == FP8) naive_fp8(x, a, n, sent);
    for (size_t i = 0; s->feedback && i < n; i++) residual[i] = p[i] - sent[i];
}

/* ---- a group with one tensor ------------------------------------------------------------------------------------- */

static float shares[RANKS][MOST];
static float *tensors[RANKS][1], **ranks[RANKS];

typedef float (*filling)(uint64_t seed, size_t i);

static float draws(uint64_t seed, size_t i)
{
    uint32_t words[4];
    tw_random(11, seed, i, words);
    float u = (float)(int32_t)words[0] * 0x1p-31f;
    return u * u * u * (i % 7 ? 1 : 10);
}

static float zeros(uint64_t seed, size_t i)
{
    (void)seed;
    (void)i;
    return 0;
}

static float denormals(uint64_t seed, size_t i)
{
    return (float)((int)((i + seed) % 9) - 4) * 1e-42f;
}

static float integers(uint64_t seed, size_t i)
{
    return (float)((int)((i * 37 + seed * 11) % 255) - 127);
}

static void fill(int size, size_t n, uint64_t step, filling f)
{
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < n; i++) shares[r][i] = f(step * RANKS + (uint64_t)r, i);
        tensors[r][0] = shares[r];
        ranks[r] = tensors[r];
    }
}

static void create(loopback *group, const char *spec, size_t n, int size)
{
    tw_tensor tensor = {"w", 1, {n}};
    assert_int_equal(loopback_create(group, spec, &tensor, 1, size), TW_OK);
}

static int step_of(loopback *group, loopback_damage damage)
{
    int skipped;
    tw_status status = loopback_step(group, ranks, -1, damage, &skipped);
    if (status != TW_OK) fail_msg("%s", tw_last_error());
    return skipped;
}

static void read_residual(tw_scheme *scheme, size_t n, float *residual)
{
    assert_int_equal(loopback_saved(scheme, "residual/w", n, residual), TW_OK);
}

/* ---- bit for bit ------------------------------------------------------------------------------------------------- */

/* A subject whose packets hold pieces. */
static const char *in_pieces(const subject *s)
{
    static char spec[128];
    snprintf(spec, sizeof spec, "%.*s" ALL_OF_THEM ",exchange=scatter", (int)(strlen(s->spec) - strlen(EVERY)),
             s->spec);
    return spec;
}

static void read_owed(tw_scheme *scheme, size_t n, int size, int rank, float *owed)
{
    piece own = piece_of(n, size, rank);
    if (own.count) assert_int_equal(loopback_saved(scheme, "section/w", own.count, owed + own.first), TW_OK);
}

/* The mean of a piece, as all ranks get it; each remembers what it does in `residual`, and its owner, if it has one,
 * in `owed`. */
static void naive_piece(const subject *s, const piece *own, int size, uint64_t step, float residual[][MOST],
                        float *owed, float *mean)
{
    float sent[MOST], sum[MOST] = {0};
    for (int r = 0; r < size; r++) {
        lottery l = {r, step, own->first};
        naive_encode(s, (float)(1.0 / size), shares[r] + own->first, own->count, &l, residual[r] + own->first, sent);
        for (size_t i = 0; i < own->count; i++) sum[i] += sent[i];
    }
    lottery l = {size + own->owner, step, own->first};
    if (own->owner >= 0)
        naive_encode(s, 1, sum, own->count, &l, owed + own->first, mean + own->first);
    else
        memcpy(mean, sum, own->count * sizeof *sum);
}

static void naive_mean(const subject *s, int pieces, size_t n, int size, uint64_t step, float residual[][MOST],
                       float *owed, float *mean)
{
    for (int owner = 0; owner < (pieces ? size : 1); owner++) {
        piece own = pieces ? piece_of(n, size, owner) : (piece){0, n, -1};
        if (own.count) naive_piece(s, &own, size, step, residual, owed, mean);
    }
}

static void check_against_naive(const subject *s, int pieces, size_t n, int size, filling f)
{
    static float residual[RANKS][MOST], owed[MOST], mean[MOST], kept[MOST];
    const char *spec = pieces ? in_pieces(s) : s->spec;
    loopback group;
    create(&group, spec, n, size);
    memset(residual, 0, sizeof residual);
    memset(owed, 0, sizeof owed);
    for (uint64_t step = 0; step < 4; step++) {
        fill(size, n, step, f);
        naive_mean(s, pieces, n, size, step, residual, owed, mean);
        assert_int_equal(step_of(&group, NULL), 0);
        for (int r = 0; r < size; r++)
            for (size_t i = 0; i < n; i++)
                if (shares[r][i] != mean[i])
                    fail_msg("%s, n = %zu, %d ranks, step %d: element %zu is %a, naively %a", spec, n, size, (int)step,
                             i, shares[r][i], mean[i]);
    }
    for (int r = 0; s->feedback && r < size; r++) {
        read_residual(group.scheme[r], n, kept);
        for (size_t i = 0; i < n; i++) assert_true(kept[i] == residual[r][i]);
        if (pieces) read_owed(group.scheme[r], n, size, r, mean);
    }
    for (size_t i = 0; s->feedback && pieces && i < n; i++) assert_true(mean[i] == owed[i]);
    loopback_destroy(&group);
}

static void check_all(int pieces)
{
    static const size_t sizes[] = {1, 7, 640, 1023, 1024, 2048, 3001, MOST};
    static const int groups[] = {1, 2, 3, 4, 8};
    for (size_t s = 0; s < SUBJECTS; s++)
        for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++)
            for (size_t k = 0; k < sizeof groups / sizeof *groups; k++) {
                check_against_naive(&subjects[s], pieces, sizes[z], groups[k], draws);
                check_against_naive(&subjects[s], pieces, sizes[z], groups[k], zeros);
            }
}

TEST(test_equals_the_naive_implementation)
{
    check_all(0);
}

TEST(test_pieces_equal_the_naive_implementation)
{
    check_all(1);
}

/* A state from before there were pieces has no residual of sums: it is zero, whatever was there. */
TEST(test_a_state_without_sums_loads)
{
    static float owed[MOST];
    loopback group;
    int owner = (int)(tw_crc32c(0, "w", 1) % 4);
    create(&group, in_pieces(&subjects[0]), MOST, 4);
    fill(4, MOST, 0, draws);
    step_of(&group, NULL);
    tw_state *saved = loopback_save(group.scheme[owner], ""), *older;
    assert_int_equal(tw_state_create(&older), TW_OK);
    tw_state_entry entry;
    for (size_t i = 0; tw_state_at(saved, i, &entry) == TW_OK; i++)
        if (strcmp(entry.name, "section/w") != 0)
            assert_int_equal(tw_state_put(older, entry.name, entry.dtype, entry.dims, entry.shape, entry.data), TW_OK);
    assert_int_equal(tw_state_count(older) + 1, tw_state_count(saved));
    assert_int_equal(tw_scheme_load_state(group.scheme[owner], "", older), TW_OK);
    memset(owed, 1, sizeof owed);
    read_owed(group.scheme[owner], MOST, 4, owner, owed);
    piece own = piece_of(MOST, 4, owner);
    for (size_t i = own.first; i < own.first + own.count; i++) assert_true(owed[i] == 0);
    tw_state_destroy(saved);
    tw_state_destroy(older);
    loopback_destroy(&group);
}

/* What was held back of its sums has no place where packets go to everybody. */
TEST(test_a_state_with_sums_needs_pieces)
{
    loopback group, other;
    int owner = (int)(tw_crc32c(0, "w", 1) % 4);
    create(&group, in_pieces(&subjects[0]), MOST, 4);
    create(&other, subjects[0].spec, MOST, 4);
    fill(4, MOST, 0, draws);
    step_of(&group, NULL);
    tw_state *saved = loopback_save(group.scheme[owner], "x/");
    assert_int_equal(tw_scheme_load_state(other.scheme[owner], "x/", saved), TW_ERROR_STATE);
    assert_non_null(strstr(tw_last_error(), "'x/section/w'"));
    assert_non_null(strstr(tw_last_error(), "exchange=scatter"));
    assert_int_equal(tw_scheme_load_state(group.scheme[owner], "x/", saved), TW_OK);
    tw_state_destroy(saved);
    loopback_destroy(&group);
    loopback_destroy(&other);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static size_t varint_bytes(size_t x)
{
    return x < 128 ? 1 : 1 + varint_bytes(x / 128);
}

static int is_bytewise(const subject *s)
{
    return s->method == NATURAL || s->method == FP8;
}

static size_t naive_bytes(const subject *s, size_t n)
{
    int bytewise = is_bytewise(s);
    size_t bits = bytewise ? 8 : s->method == QSGD ? (size_t)s->bits : 1, packed = (n * bits + 7) / 8;
    if (s->method == QSGD) return (n + (size_t)s->bucket - 1) / (size_t)s->bucket * 4 + packed;
    if (s->method == TERNGRAD) return 4 + (n + 4) / 5;
    if (bytewise) return (n + 1023) / 1024 + packed;
    return (s->method == ONEBIT ? 8 : 4) + packed;
}

TEST(test_packets_have_the_bytes_that_are_promised)
{
    static const size_t sizes[] = {1, 5, 8, 9, 639, 640, 1023, 1024, 1025, MOST};
    for (size_t s = 0; s < SUBJECTS; s++)
        for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++) {
            size_t n = sizes[z], bytes = naive_bytes(&subjects[s], n);
            loopback group;
            create(&group, subjects[s].spec, n, 1); /* with more, some would go dense */
            fill(1, n, 0, draws);
            step_of(&group, NULL);
            assert_int_equal(group.packet_bytes, tw_packet_bound_header() + 1 + varint_bytes(bytes) + bytes);
            loopback_destroy(&group);
        }
}

/* ---- extremes ---------------------------------------------------------------------------------------------------- */

/* So small that a step between levels has to be larger: 0, or what a level is worth, but a number. */
TEST(test_denormal_gradients_are_harmless)
{
    for (size_t s = 0; s < SUBJECTS; s++) {
        loopback group;
        create(&group, subjects[s].spec, MOST, 2);
        for (uint64_t step = 0; step < 4; step++) {
            fill(2, MOST, step, denormals);
            assert_int_equal(step_of(&group, NULL), 0);
            for (size_t i = 0; i < MOST; i++) assert_true(fabsf(shares[0][i]) <= 0x1p-99f);
        }
        loopback_destroy(&group);
    }
}

static unsigned char hostile[8192];
static size_t hostile_bytes;
static uint32_t hostile_step;

/* Rank 1's packet becomes one whose only section is `hostile`. */
static void replace(void *packets[], size_t sizes[], int size)
{
    tw_packet_writer writer;
    unsigned char *section;
    (void)size;
    packets[1] = realloc(packets[1], sizeof hostile + 64);
    tw_packet_begin(&writer, packets[1], sizeof hostile + 64, hostile_step, 0, 0);
    assert_int_equal(tw_packet_put_block(&writer, hostile_bytes, &section), TW_OK);
    memcpy(section, hostile, hostile_bytes);
    sizes[1] = tw_packet_end(&writer);
}

static tw_status deliver_hostile(const subject *s, size_t n, int *skipped)
{
    loopback group;
    create(&group, s->spec, n, 2);
    fill(2, n, 0, draws);
    tw_status status = loopback_step(&group, ranks, -1, replace, skipped);
    loopback_destroy(&group);
    return status;
}

static void check_head(const subject *s, float head, size_t place)
{
    int skipped;
    memset(hostile, 0, sizeof hostile);
    hostile_bytes = naive_bytes(s, MOST);
    assert_int_equal(deliver_hostile(s, MOST, &skipped), TW_OK);
    memcpy(hostile + place, &head, sizeof head);
    assert_int_equal(deliver_hostile(s, MOST, &skipped), TW_ERROR_PACKET);
    assert_non_null(strstr(tw_last_error(), "rank 1's section of w is damaged"));
}

/* The largest element of the residual after many steps of the same integers. */
static float residual_after(const char *spec, uint64_t steps)
{
    static float residual[MOST];
    float largest = 0;
    loopback group;
    create(&group, spec, MOST, 1);
    for (uint64_t step = 0; step < steps; step++) {
        fill(1, MOST, step, integers);
        step_of(&group, NULL);
    }
    read_residual(group.scheme[0], MOST, residual);
    for (size_t i = 0; i < MOST; i++) largest = fmaxf(largest, fabsf(residual[i]));
    loopback_destroy(&group);
    return largest;
}

/* Feedback is only there where rounding loses less than there was: the residual stays within bounds. */
TEST(test_feedback_that_would_diverge_is_refused)
{
    static const struct {
        int bucket, least_bits;
    } cases[] = {{128, 4}, {256, 5}, {512, 5}, {1024, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int bits = 2; bits <= cases[i].least_bits; bits++) {
            tw_tensor tensor = {"w", 1, {MOST}};
            tw_scheme *scheme;
            char spec[128];
            snprintf(spec, sizeof spec, "qsgd:norm=l2,feedback=on,bits=%d,bucket=%d," EVERY, bits, cases[i].bucket);
            if (bits == cases[i].least_bits) {
                assert_true(residual_after(spec, 300) < 2 * residual_after(spec, 100));
                continue;
            }
            assert_int_equal(tw_scheme_create(spec, &tensor, 1, 0, 1, &scheme), TW_ERROR_SPEC);
            assert_non_null(strstr(tw_last_error(), "feedback=on"));
        }
}

TEST(test_hostile_sections_are_refused)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    int skipped;
    for (size_t s = 0; s < SUBJECTS; s++) {
        for (size_t k = 0; k < 4 && !is_bytewise(&subjects[s]); k++) check_head(&subjects[s], bad[k], 0);
        memset(hostile, 0, sizeof hostile);
        for (int longer = -1; longer <= 1; longer += 2) {
            hostile_bytes = naive_bytes(&subjects[s], MOST) + (size_t)longer;
            assert_int_equal(deliver_hostile(&subjects[s], MOST, &skipped), TW_ERROR_PACKET);
        }
    }
    check_head(&subjects[0], -1, 0);
    check_head(&subjects[1], -1, 0);
    check_head(&subjects[1], 1, 4); /* a mean of negatives */
    check_head(&subjects[2], -1, 4 * 9);
    check_head(&subjects[5], -1, 0);
    for (unsigned byte = 0; byte < 256; byte++) {
        memset(hostile, 0, sizeof hostile);
        hostile_bytes = naive_bytes(&subjects[5], MOST);
        hostile[hostile_bytes - 1] = (unsigned char)byte;
        assert_int_equal(deliver_hostile(&subjects[5], MOST, &skipped), byte > 242 ? TW_ERROR_PACKET : TW_OK);
        memset(hostile, 0, sizeof hostile);
        hostile_bytes = naive_bytes(&subjects[7], MOST);
        hostile[4] = (unsigned char)byte;
        assert_int_equal(deliver_hostile(&subjects[7], MOST, &skipped), byte > 254 ? TW_ERROR_PACKET : TW_OK);
        assert_int_equal(deliver_hostile(&subjects[9], MOST, &skipped), byte > 246 ? TW_ERROR_PACKET : TW_OK);
        hostile[4] = 0;
        hostile[hostile_bytes - 1] = (unsigned char)byte;
        assert_int_equal(deliver_hostile(&subjects[9], MOST, &skipped), byte % 128 == 127 ? TW_ERROR_PACKET : TW_OK);
    }
}

/* A finite section whose sum with others may overflow: a skipped step, not an error, and no infinity. */
TEST(test_a_sum_that_overflows_is_skipped)
{
    static const int which[] = {0, 1, 5};
    static const float largest = FLT_MAX;
    int skipped;
    for (size_t k = 0; k < 3; k++) {
        memset(hostile, 0, sizeof hostile);
        hostile_bytes = naive_bytes(&subjects[which[k]], MOST);
        memcpy(hostile, &largest, sizeof largest);
        assert_int_equal(deliver_hostile(&subjects[which[k]], MOST, &skipped), TW_OK);
        assert_int_equal(skipped, 1);
    }
}

static int rounds_of_packets;

static void replace_first(void *packets[], size_t sizes[], int size)
{
    if (rounds_of_packets++ == 0) replace(packets, sizes, size);
}

/* One piece, which is rank 1's, where rank 0's section begins so. */
static void check_pieces_beside(const subject *from, const void *begin, size_t bytes, int skips)
{
    enum { N = 1500 };
    static float before[MOST], after[MOST];
    loopback group;
    int skipped;
    create(&group, in_pieces(from), N, 2);
    fill(2, N, 0, draws);
    step_of(&group, NULL);
    read_owed(group.scheme[1], N, 2, 1, before);
    memset(hostile, 0, sizeof hostile);
    hostile_bytes = naive_bytes(from, N);
    memcpy(hostile, begin, bytes);
    rounds_of_packets = 0;
    hostile_step = 1;
    fill(2, N, 1, draws);
    assert_int_equal(loopback_step(&group, ranks, -1, replace_first, &skipped), TW_OK);
    hostile_step = 0;
    assert_int_equal(skipped, skips);
    read_owed(group.scheme[1], N, 2, 1, after);
    if (skipped) assert_memory_equal(before, after, N * sizeof *before);
    loopback_destroy(&group);
}

/* In pieces only one rank sees it, and all the others skip the step with it; the sums that they keep stay as they were.
 * What a rank keeps has a narrower bound than what it only adds up. */
TEST(test_a_sum_that_overflows_in_pieces_is_skipped)
{
    static const float large[] = {FLT_MAX, 1e37F, 1e35F};
    static const unsigned char scales[] = {246, 240, 234}; /* 448 * 2^119, 4.7e36 and 7.3e34 */
    for (size_t k = 0; k < 3; k++) {
        check_pieces_beside(&subjects[0], &large[k], sizeof large[k], k < 2);
        check_pieces_beside(&subjects[9], &scales[k], sizeof scales[k], k < 2);
    }
}

RUN_TESTS(NULL, NULL)
