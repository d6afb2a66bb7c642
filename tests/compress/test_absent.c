/* Tensors for which a rank has no gradient, in every scheme of the list: what the rank remembers for them stays as it
 * is, to the bit, the others' mean arrives, and what is not sent is kept. */
#include <math.h>
#include <stdlib.h>

#include "conformance.h"
#include "support/cmocka.h"
#include "support/parts.h"

enum { TENSORS = 3, STEPS = 6 };

static const tw_tensor table[TENSORS] = {{.name = "a.weight", .dims = 2, .shape = {60, 50}},
                                         {.name = "a.bias", .dims = 1, .shape = {40}},
                                         {.name = "b.weight", .dims = 2, .shape = {64, 100}}};

/* A group that pieces are summed in, one that exchanges packets, and the same options for every scheme: those with
 * which a step's books can be kept. */
static const int sizes[] = {3, 6};
#define BOOKS "feedback=on,momentum=0,beta2=0,beta=1,decay=1,warmup_steps=0,rank=2,exchange=gather"

typedef struct group {
    loopback ranks;
    batch *gradients;
    unsigned char absent[MOST_RANKS][TENSORS];
    const char *spec;
} group;

static void create(group *g, const char *spec, int size)
{
    *g = (group){.spec = spec, .gradients = batch_create(table, TENSORS)};
    if (loopback_create(&g->ranks, spec, table, TENSORS, size) != TW_OK) fail_msg("%s: %s", spec, tw_last_error());
}

static void destroy(group *g)
{
    loopback_destroy(&g->ranks);
    batch_destroy(g->gradients);
}

enum { ELEMENTS = 60 * 50 + 40 + 64 * 100, SEEDS = 128, RANKS = 6 };

/* Every variant of every scheme gets the same values, and so they are drawn once. */
static const float *draw_all(int step, int rank)
{
    static float *kept[SEEDS][RANKS];
    float **drawn = &kept[step][rank];
    if (!*drawn) {
        *drawn = malloc(ELEMENTS * sizeof **drawn);
        assert_non_null(*drawn);
        for (size_t k = 0; k < ELEMENTS; k++) {
            uint32_t words[4];
            tw_random(5, (uint64_t)(step * 64 + rank), k, words);
            (*drawn)[k] = (float)words[0] / 4294967296.0F - 0.5F;
        }
    }
    return *drawn;
}

static float draw(int step, int rank, size_t i)
{
    return draw_all(step, rank)[i];
}

static void fill(group *g, int step)
{
    for (int r = 0; r < g->ranks.size; r++)
        memcpy(g->gradients->values[r], draw_all(step, r), ELEMENTS * sizeof(float));
}

/* One step; what stands in the buffers of absent tensors is NaN, and nobody may mind. */
static void run(group *g, int step)
{
    int skipped;
    fill(g, step);
    for (int r = 0; r < g->ranks.size; r++) {
        g->ranks.absent[r] = g->absent[r];
        for (size_t t = 0; t < TENSORS; t++)
            for (size_t i = 0; g->absent[r][t] && i < tw_tensor_count(&table[t]); i++)
                g->gradients->tensors[r][t][i] = NAN;
    }
    if (loopback_step(&g->ranks, g->gradients->ranks, -1, NULL, &skipped) != TW_OK)
        fail_msg("%s: %s", g->spec, tw_last_error());
    if (skipped) fail_msg("%s skips the step", g->spec);
    for (int r = 1; r < g->ranks.size; r++)
        assert_memory_equal(g->gradients->values[0], g->gradients->values[r], g->gradients->elements * sizeof(float));
}

/* ---- what is remembered ------------------------------------------------------------------------------------------ */

static int is_of(const char *entry, const char *kind, const char *tensor)
{
    const char *slash = strchr(entry, '/');
    if (strcmp(slash + 1, tensor)) return 0;
    return !kind || (strlen(kind) == (size_t)(slash - entry) && !strncmp(entry, kind, strlen(kind)));
}

/* What all ranks have in common, and so all of them change: the sums' residual, the factor to start from, and the
 * moments of what is not compressed. */
static int is_common(const group *g, const char *entry, size_t tensor)
{
    const char *name = table[tensor].name;
    int is_leftover = !g->ranks.scheme[0]->tensors[tensor].compressed ||
                      strcmp(g->ranks.scheme[0]->ops->name, "onebit-adam") == 0; /* which has all moments in common */
    return is_of(entry, "section", name) || is_of(entry, "start", name) ||
           (is_leftover && (is_of(entry, "momentum", name) || is_of(entry, "second_moment", name)));
}

static tw_state *save(group *g, int rank)
{
    tw_state *saved = loopback_save(g->ranks.scheme[rank], "");
    assert_non_null(saved);
    return saved;
}

/* All of a tensor's entries are alike in both. */
static void compare(const group *g, tw_state *before, tw_state *after, size_t tensor, int common_too)
{
    for (size_t i = 0; i < tw_state_count(before); i++) {
        tw_state_entry was, is;
        assert_int_equal(tw_state_at(before, i, &was), TW_OK);
        assert_int_equal(tw_state_at(after, i, &is), TW_OK);
        if (!is_of(was.name, NULL, table[tensor].name)) continue;
        if (!common_too && is_common(g, was.name, tensor)) continue;
        if (memcmp(was.data, is.data, was.bytes)) fail_msg("%s: %s has changed", g->spec, was.name);
    }
}

static void check_kept(group *g, const char *spec, int size)
{
    create(g, spec, size);
    for (int step = 0; step < STEPS; step++) {
        int rank = step % size; /* each in turn, the leader of scalecom too, and then its neighbour */
        size_t tensor = (size_t)step % TENSORS;
        tw_state *before = save(g, rank);
        memset(g->absent, 0, sizeof g->absent);
        g->absent[rank][tensor] = 1;
        run(g, step);
        tw_state *after = save(g, rank);
        compare(g, before, after, tensor, 0);
        tw_state_destroy(before);
        tw_state_destroy(after);
    }
    destroy(g);
}

static void keep_in_both_groups(const tw_scheme_ops *ops, const char *spec)
{
    group g;
    (void)ops;
    for (int s = 0; s < in_part(1, 2); s++) check_kept(&g, spec, sizes[s]);
}

TEST(test_what_is_remembered_stays)
{
    for (size_t s = first_tried; tw_scheme_at(s); s++)
        for_each_variant(tw_scheme_at(s), "warmup_steps=2", keep_in_both_groups);
}

/* ---- on all ranks ------------------------------------------------------------------------------------------------ */

static int is_zero(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (values[i] != 0) return 0;
    return 1;
}

/* Nobody applies what comes, so nothing may: not of residuals, not of momentum. */
static void check_nobody(const tw_scheme_ops *ops, const char *spec)
{
    (void)ops;
    for (int s = 0; s < in_part(1, 2); s++) {
        group g;
        tw_state *before[MOST_RANKS];
        create(&g, spec, sizes[s]);
        for (int step = 0; step < STEPS; step++) {
            size_t tensor = (size_t)step % TENSORS;
            memset(g.absent, 0, sizeof g.absent);
            for (int r = 0; r < sizes[s]; r++) g.absent[r][tensor] = step >= TENSORS;
            for (int r = 0; r < sizes[s]; r++) before[r] = save(&g, r);
            run(&g, step);
            for (int r = 0; r < sizes[s]; r++) {
                tw_state *after = save(&g, r);
                if (step >= TENSORS) {
                    compare(&g, before[r], after, tensor, 1);
                    if (!is_zero(g.gradients->tensors[r][tensor], tw_tensor_count(&table[tensor])))
                        fail_msg("%s sends of a tensor that nobody has", spec);
                }
                tw_state_destroy(before[r]);
                tw_state_destroy(after);
            }
        }
        destroy(&g);
    }
}

TEST(test_absent_everywhere_moves_nothing)
{
    for (size_t s = first_tried; tw_scheme_at(s); s++)
        for_each_variant(tw_scheme_at(s), "warmup_steps=4", check_nobody);
}

/* ---- the books --------------------------------------------------------------------------------------------------- */

/* What all ranks keep of a tensor, element by element. -1 if they keep nothing. */
static int add_kept(group *g, size_t tensor, double *sum)
{
    static const char *const kinds[] = {"residual", "memory", "rounding"};
    int found = 0;
    for (int r = 0; r < g->ranks.size; r++) {
        tw_state *saved = save(g, r);
        for (size_t e = 0; e < tw_state_count(saved); e++) {
            tw_state_entry entry;
            assert_int_equal(tw_state_at(saved, e, &entry), TW_OK);
            for (size_t k = 0; k < 3; k++)
                if (is_of(entry.name, kinds[k], table[tensor].name)) {
                    for (size_t i = 0; i < entry.bytes / 4; i++) sum[i] += (double)((const float *)entry.data)[i];
                    found = 1;
                }
        }
        tw_state_destroy(saved);
    }
    return found;
}

/* Sent and kept is what was kept before and what came in, whoever is absent. */
static void check_books(const char *spec, int size, double tolerance)
{
    enum { MOST = 64 * 100 };
    static double before[TENSORS][MOST], after[MOST];
    int keeps[TENSORS];
    group g;
    create(&g, spec, size);
    for (int step = 0; step < 2 * STEPS; step++) {
        memset(before, 0, sizeof before);
        for (size_t t = 0; t < TENSORS; t++) keeps[t] = add_kept(&g, t, before[t]);
        for (int r = 0; r < size; r++)
            for (size_t t = 0; t < TENSORS; t++) {
                g.absent[r][t] = draw(step + 100, r, t) < 0;
                for (size_t i = 0, n = tw_tensor_count(&table[t]); !g.absent[r][t] && i < n; i++)
                    before[t][i] +=
                        (double)draw(step, r, (size_t)(g.gradients->tensors[r][t] - g.gradients->values[r]) + i) / size;
            }
        run(&g, step);
        for (size_t t = 0; t < TENSORS; t++) {
            memset(after, 0, sizeof after);
            add_kept(&g, t, after);
            for (size_t i = 0, n = tw_tensor_count(&table[t]); keeps[t] && i < n; i++)
                if (fabs(after[i] + (double)g.gradients->tensors[0][t][i] - before[t][i]) > tolerance)
                    fail_msg("%s, %d ranks, step %d: of %s element %zu %g is kept and %g sent, not %g", spec, size,
                             step, table[t].name, i, after[i], (double)g.gradients->tensors[0][t][i], before[t][i]);
        }
    }
    destroy(&g);
}

/* A sum in half precision is rounded once more, and that is nobody's to keep; what is sent wrongly is far more. Sums in
 * pieces are encoded twice, and the second rounding is kept by the piece: other books. */
TEST(test_nothing_is_lost)
{
    for (size_t s = first_tried; tw_scheme_at(s); s++) {
        char spec[SPEC_LENGTH];
        make_spec(spec, tw_scheme_at(s), BOOKS);
        check_books(spec, 3, 4e-3);
        add_options(spec, tw_scheme_at(s), "values=fp32,leftovers=fp32");
        check_books(spec, 6, sets_option(spec, "values") ? 2e-5 : 4e-3);
    }
}

/* ---- taken back -------------------------------------------------------------------------------------------------- */

static void check_revert(const tw_scheme_ops *ops, const char *spec)
{
    (void)ops;
    for (size_t s = 0; s < 2; s++) {
        group g;
        create(&g, spec, sizes[s]);
        run(&g, 0);
        g.absent[1][0] = g.absent[1][1] = g.absent[0][2] = 1;
        tw_state *before[2] = {save(&g, 0), save(&g, 1)}, *after[2];
        run(&g, 1);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(tw_scheme_revert(g.ranks.scheme[r]), TW_OK);
            after[r] = save(&g, r);
        }
        compare(&g, before[1], after[1], 0, 0);
        compare(&g, before[1], after[1], 1, 0);
        compare(&g, before[0], after[0], 2, 0);
        for (int r = 0; r < 2; r++) {
            tw_state_destroy(before[r]);
            tw_state_destroy(after[r]);
        }
        destroy(&g);
    }
}

TEST(test_a_step_taken_back_leaves_it)
{
    for (size_t s = first_tried; tw_scheme_at(s); s++) {
        for_each_variant(tw_scheme_at(s), "", check_revert);
        for_each_variant(tw_scheme_at(s), "warmup_steps=1", check_revert);
    }
}

/* A list of schemes may be another's. */
static void need(const char *name)
{
    for (size_t s = first_tried; tw_scheme_at(s); s++)
        if (strcmp(tw_scheme_at(s)->name, name) == 0) return;
    skip();
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

TEST(test_the_mean_is_of_those_who_have_it)
{
    group g;
    need("allreduce");
    create(&g, "allreduce", 3);
    g.absent[0][0] = g.absent[1][1] = 1;
    run(&g, 0);
    const float third = 1.0F / 3;
    for (size_t i = 0; i < 3000; i++)
        assert_true(g.gradients->values[2][i] == draw(0, 1, i) * third + draw(0, 2, i) * third);
    for (size_t i = 3000; i < 3040; i++)
        assert_true(g.gradients->values[2][i] == draw(0, 0, i) * third + draw(0, 2, i) * third);
    destroy(&g);
}

/* A gradient of zeros is one, whatever their sign: momentum goes on and fades. Without any it stays. */
static void check_velocity(const char *spec, float gradient, int absent, float expected)
{
    group g;
    int skipped;
    create(&g, spec, 2);
    for (size_t i = 0; i < 40; i++) g.gradients->tensors[0][1][i] = g.gradients->tensors[1][1][i] = 1;
    assert_int_equal(loopback_step(&g.ranks, g.gradients->ranks, -1, NULL, &skipped), TW_OK);
    for (int r = 0; r < 2; r++) {
        g.absent[r][1] = (unsigned char)absent;
        g.ranks.absent[r] = g.absent[r];
        for (size_t i = 0; i < 40; i++) g.gradients->tensors[r][1][i] = gradient;
    }
    assert_int_equal(loopback_step(&g.ranks, g.gradients->ranks, -1, NULL, &skipped), TW_OK);
    for (size_t i = 0; i < 40; i++) assert_true(g.gradients->tensors[0][1][i] == expected);
    float velocity[40];
    assert_int_equal(loopback_saved(g.ranks.scheme[0], "momentum/a.bias", 40, velocity), TW_OK);
    for (size_t i = 0; i < 40; i++) assert_true(velocity[i] == (absent ? 1 : expected));
    destroy(&g);
}

TEST(test_zeros_are_a_gradient)
{
    static const char *const specs[] = {
        "dgc:momentum=0.5,dense=a.bias,leftovers=fp32", "dgc:momentum=0.5,dense=a.bias,leftovers=bf16",
        "dgc:momentum=0.5,dense=a.bias,leftovers=fp16", "dgc:momentum=0.5,dense=*,leftovers=fp32",
        "dgc:momentum=0.5,dense=*,leftovers=bf16"};
    need("dgc");
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        check_velocity(specs[i], 0.0F, 0, 0.5F);
        check_velocity(specs[i], -0.0F, 0, 0.5F);
        check_velocity(specs[i], NAN, 1, 0.0F);
    }
}

int main(int argc, char **argv)
{
    load_tried(argc, argv);
    return cmocka_run_group_tests(all_tests, NULL, NULL);
}
