/* Sparse schemes whose packets go in pieces (exchange=scatter): against a second implementation that sorts, and
 * against their books. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradients.h"
#include "packet.h"
#include "support/cmocka.h"

enum { MOST = 9000, SMALL = 1500 /* one piece */ };

/* ---- a second implementation ------------------------------------------------------------------------------------- */

/* Moves the k largest out of `from` and adds them to `to`. */
static void move_largest(float *from, size_t n, size_t k, float *to)
{
    float *sorted = sorted_magnitudes(from, n), least = sorted[k - 1];
    free(sorted);
    for (size_t i = 0; i < n; i++) {
        if (from[i] == 0 || fabsf(from[i]) < least) continue;
        to[i] += from[i];
        from[i] = 0;
    }
}

static size_t rounded_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

typedef struct naive {
    size_t n, k;
    int ranks, keeps;
    float residual[LOOPBACK_RANKS][MOST], owed[MOST], mean[MOST];
} naive;

static void naive_step(naive *all, float **drawn[])
{
    static float sum[MOST];
    memset(sum, 0, sizeof sum);
    memset(all->mean, 0, sizeof all->mean);
    for (int r = 0; r < all->ranks; r++) {
        float scale = (float)(1.0 / all->ranks);
        if (!all->keeps) memset(all->residual[r], 0, sizeof all->residual[r]);
        for (size_t i = 0; i < all->n; i++) all->residual[r][i] += scale * drawn[r][0][i];
        move_largest(all->residual[r], all->n, all->k, sum);
    }
    if (!all->keeps) memset(all->owed, 0, sizeof all->owed);
    for (size_t i = 0; i < all->n; i++) all->owed[i] += sum[i];
    for (int owner = 0; owner < all->ranks; owner++) {
        piece own = piece_of(all->n, all->ranks, owner);
        if (!own.count) continue;
        move_largest(all->owed + own.first, own.count, rounded_up(all->k * own.count, all->n), all->mean + own.first);
    }
}

/* What the group remembers is what the naive one does. */
static void check_memory(const loopback *group, const naive *all)
{
    static float kept[MOST];
    for (int r = 0; r < group->size; r++) {
        piece own = piece_of(all->n, all->ranks, r);
        assert_true(remembered(group->scheme[r], "residual", "w", kept));
        for (size_t i = 0; i < all->n; i++) assert_true(kept[i] == all->residual[r][i]);
        assert_int_equal(remembered(group->scheme[r], "section", "w", kept), own.count > 0);
        for (size_t i = 0; i < own.count; i++) assert_true(kept[i] == all->owed[own.first + i]);
    }
}

static void check_against_naive(const char *options, int keeps, size_t n, int ranks)
{
    static naive all;
    char spec[128];
    const tw_tensor w = {"w", 1, {n}};
    loopback group;
    gradients g;
    all = (naive){.n = n, .k = rounded_up(n * 3, 100), .ranks = ranks, .keeps = keeps};
    snprintf(spec, sizeof spec, "topk:exchange=scatter,density=0.03,min_dims=1,values=fp32%s", options);
    group_create(&group, &g, spec, &w, 1, ranks);
    for (int step = 0; step < 6; step++) {
        gradients_draw(&g, 4, step, 0);
        naive_step(&all, g.rank);
        assert_false(group_step(&group, &g));
        for (int r = 0; r < ranks; r++)
            for (size_t i = 0; i < n; i++)
                if (g.rank[r][0][i] != all.mean[i])
                    fail_msg("n = %zu, %d ranks, step %d: element %zu is %a, naively %a", n, ranks, step, i,
                             (double)g.rank[r][0][i], (double)all.mean[i]);
        if (keeps) check_memory(&group, &all);
    }
    group_destroy(&group, &g);
}

TEST(the_largest_sums_are_sent_on)
{
    static const size_t counts[] = {700, 2047, 2048, 5000, MOST};
    static const int ranks[] = {2, 3, 5, 8, 13};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
            check_against_naive("", 1, counts[c], ranks[r]);
            check_against_naive(",feedback=off", 0, counts[c], ranks[r]);
        }
}

/* A section has values of its own: the mean magnitude of a piece, not that of the tensor. */
TEST(each_piece_is_rounded_alone)
{
    enum { N = 4096, RANKS = 2 };
    const tw_tensor w = {"w", 1, {N}};
    loopback group;
    gradients g;
    group_create(&group, &g, "topk:exchange=scatter,density=1,min_dims=1,values=sign", &w, 1, RANKS);
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < N; i++) g.rank[r][0][i] = (i < N / 2 ? 1.0F : 64.0F) * (i % 3 ? 1 : -1);
    assert_false(group_step(&group, &g));
    for (size_t i = 0; i < N; i++) assert_true(g.rank[1][0][i] == (i < N / 2 ? 1.0F : 64.0F) * (i % 3 ? 1 : -1));
    group_destroy(&group, &g);
}

/* ---- books ------------------------------------------------------------------------------------------------------- */

enum { N = 3000, RANKS = 4, T = 0 };
static const tw_tensor table[] = {{"w", 2, {60, 50}}};

/* What the group holds back of element i: on all ranks, and at the owner of its piece. */
static void add_held_back(const loopback *group, double *held)
{
    static float kept[N];
    memset(held, 0, N * sizeof *held);
    for (int r = 0; r < group->size; r++) {
        piece own = piece_of(N, group->size, r);
        assert_true(remembered(group->scheme[r], "residual", "w", kept));
        for (size_t i = 0; i < N; i++) held[i] += (double)kept[i];
        if (!remembered(group->scheme[r], "section", "w", kept)) continue;
        for (size_t i = 0; i < own.count; i++) held[own.first + i] += (double)kept[i];
    }
}

/* Draws 12 steps of values that floats add exactly. What was sent and what is held back, each at its rate, is the sum
 * of the gradients, after steps that were taken back or skipped, too. */
static void check_books(const char *spec, int changing)
{
    static double balance[N], held[N];
    static const float rates[] = {0.5F, 0.5F, 0.25F, 0.125F, 1};
    double owed = 0;
    loopback group;
    gradients g;
    memset(balance, 0, sizeof balance);
    group_create(&group, &g, spec, table, 1, RANKS);
    for (int step = 0; step < 12; step++) {
        double rate = changing ? (double)rates[step % 5] : 1;
        for (int r = 0; r < RANKS; r++) assert_int_equal(tw_scheme_set_rate(group.scheme[r], (float)rate), TW_OK);
        gradients_draw(&g, 5, step, 0.25);
        if (step == 8) memset(g.rank[1][T], 0, N * sizeof(float)); /* whose share is lost */
        for (int r = 0; r < RANKS; r++)
            for (size_t i = 0; i < N; i++) balance[i] += rate * (double)g.rank[r][T][i] / RANKS;
        if (step == 8) g.rank[1][T][0] = NAN;
        int skipped = group_step(&group, &g);
        assert_int_equal(skipped, step == 8);
        int reverted = step % 4 == 3;
        for (int r = 0; reverted && r < RANKS; r++) assert_int_equal(tw_scheme_revert(group.scheme[r]), TW_OK);
        for (size_t i = 0; i < N && !reverted && !skipped; i++) balance[i] -= rate * (double)g.rank[0][T][i];
        add_held_back(&group, held);
        for (size_t i = 0; i < N; i++)
            if (balance[i] != rate * held[i])
                fail_msg("%s, step %d: element %zu owes %g and %g is held back", spec, step, i, balance[i],
                         rate * held[i]);
        for (size_t i = 0; i < N; i++) owed += fabs(held[i]);
    }
    assert_true(owed > 0);
    group_destroy(&group, &g);
}

TEST(nothing_is_lost)
{
#define EXACT "exchange=scatter,density=0.02,values=fp32"
    check_books("topk:" EXACT, 0);
    check_books("dgc:momentum=0,warmup_steps=0," EXACT, 0);
    check_books("dgc:momentum=0,warmup_steps=8," EXACT, 0);
    check_books("dgc:momentum=0,warmup_steps=0,revision=rate," EXACT, 1);
    check_books("sdagc:momentum=0,warmup_steps=0," EXACT, 0);
    check_books("sdagc:momentum=0,warmup_steps=0," EXACT, 1);
}

/* Of a rank that has no gradient of w, or nothing but NaN in another tensor, and of the owner of a piece without a
 * gradient, what is held back is worth as much at another rate. */
static void check_who_takes_nothing_in(const char *spec)
{
    static const tw_tensor both[] = {{"w", 2, {60, 50}}, {"b", 1, {40}}};
    static const unsigned char no_w[] = {1, 0};
    static double balance[N], held[N];
    loopback group;
    gradients g;
    memset(balance, 0, sizeof balance);
    group_create(&group, &g, spec, both, 2, RANKS);
    for (int step = 0; step < 6; step++) {
        int away = step == 1 || step == 4 ? step % RANKS : -1, sick = step == 2;
        double rate = 1.0 / (double)(1 << step);
        float collected[RANKS];
        gradients_draw(&g, 6, step, 0.25);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(tw_scheme_set_rate(group.scheme[r], (float)rate), TW_OK);
            group.absent[r] = r == away || (away == 1 && r > 1) ? no_w : NULL;
            for (size_t i = 0; !group.absent[r] && !(sick && r == 1) && i < N; i++)
                balance[i] += rate * (double)g.rank[r][T][i] / RANKS;
        }
        if (sick) g.rank[1][1][0] = NAN;
        assert_int_equal(group_step(&group, &g), sick);
        for (size_t i = 0; i < N && !sick; i++) balance[i] -= rate * (double)g.rank[0][T][i];
        add_held_back(&group, held);
        for (size_t i = 0; i < N; i++)
            if (balance[i] != rate * held[i])
                fail_msg("%s, step %d: element %zu owes %g and %g is held back", spec, step, i, balance[i],
                         rate * held[i]);
        for (int r = 0; r < RANKS; r++) assert_true(remembered(group.scheme[r], "rate", "w", &collected[r]));
        for (int r = 0; r < RANKS; r++) assert_true(collected[r] == (float)rate);
    }
    group_destroy(&group, &g);
}

TEST(who_takes_nothing_in_follows_the_rate)
{
    check_who_takes_nothing_in("sdagc:momentum=0,warmup_steps=0,leftovers=fp32," EXACT);
    check_who_takes_nothing_in("dgc:momentum=0,warmup_steps=0,revision=rate,leftovers=fp32," EXACT);
    check_who_takes_nothing_in("dgc:momentum=0,warmup_steps=0,revision=rate,leftovers=fp32,density=0.02,values=fp32");
}

/* ---- too large --------------------------------------------------------------------------------------------------- */

static float large;
static int rounds;

/* What rank 0 sends the owner, who is the last rank: one element. */
static void send_large(void *packets[], size_t sizes[], int size)
{
    const uint32_t index = 7;
    const tw_coding coding = {TW_VALUES_FP32, TW_INDICES_AUTO, 0};
    size_t capacity = tw_packet_bound_header() + tw_packet_bound_sparse(SMALL, 1, coding);
    tw_packet_writer writer;
    (void)size;
    if (rounds++) return;
    free(packets[0]);
    packets[0] = malloc(capacity);
    tw_packet_begin(&writer, packets[0], capacity, 1, 0, 0);
    assert_int_equal(tw_packet_put_sparse(&writer, SMALL, 1, &index, &large, coding), TW_OK);
    sizes[0] = tw_packet_end(&writer);
}

/* Only one rank sees it, and all skip the step with it; the sums that it keeps stay as they were. What a rank keeps has
 * a narrower bound than what it only adds up. */
TEST(a_sum_that_is_too_large_is_skipped)
{
    static const float values[] = {FLT_MAX, 1e37F, 1e35F};
    static float before[SMALL], after[SMALL];
    const tw_tensor w = {"w", 1, {SMALL}};
    gradients g;
    gradients_create(&g, &w, 1, 2);
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        loopback group;
        int skipped;
        large = values[k];
        rounds = 0;
        assert_int_equal(loopback_create(&group, "topk:min_dims=1," EXACT, &w, 1, 2), TW_OK);
        gradients_draw(&g, 8, 0, 0);
        assert_int_equal(loopback_step(&group, g.rank, -1, NULL, &skipped), TW_OK);
        assert_true(remembered(group.scheme[1], "section", "w", before));
        gradients_draw(&g, 8, 1, 0);
        assert_int_equal(loopback_step(&group, g.rank, -1, send_large, &skipped), TW_OK);
        assert_int_equal(skipped, k < 2);
        assert_true(remembered(group.scheme[1], "section", "w", after));
        if (skipped) assert_memory_equal(before, after, sizeof before);
        loopback_destroy(&group);
    }
    gradients_destroy(&g);
}

RUN_TESTS(NULL, NULL)
