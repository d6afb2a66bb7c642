/* A scheme driven by hand, saved and loaded: it continues bit for bit, or refuses the state and stays as it was. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_plugin.h>

#include "loopback.h"
#include "support/cmocka.h"
#include "support/sanitizers.h"

#include <unistd.h>

enum { RANKS = 3, TENSORS = 3, ELEMENTS = 1800 + 40 + 600, STEPS = 8 };

static const tw_tensor table[TENSORS] = {{"a.weight", 2, {30, 60}}, {"a.bias", 1, {40}}, {"b.weight", 2, {20, 30}}};

/* The step count shows in dgc's density, which falls during the warm-up. */
static const char *const specs[] = {"dgc:density=0.01,warmup_steps=6,clip=2",
                                    "dgc:density=0.02,nesterov=on",
                                    "topk:density=0.01",
                                    "allreduce",
                                    "dgc:density=0.01,nesterov=on,state=bf16",
                                    "topk:density=0.01,state=bf16",
                                    "sdagc"};
enum { SPECS = sizeof specs / sizeof *specs };

/* The gradients of a step on all ranks, and after it the means. */
typedef struct step_gradients {
    float values[RANKS][ELEMENTS];
    float *tensors[RANKS][TENSORS], **ranks[RANKS];
} step_gradients;

static void run_step(loopback *group, int step, step_gradients *g)
{
    int skipped;
    for (int r = 0; r < RANKS; r++) {
        float *at = g->values[r];
        for (size_t t = 0; t < TENSORS; at += tw_tensor_count(&table[t++])) g->tensors[r][t] = at;
        g->ranks[r] = g->tensors[r];
        for (size_t i = 0; i < ELEMENTS; i++) {
            uint32_t words[4];
            tw_random(5, (uint64_t)(step * RANKS + r), i, words);
            g->values[r][i] = (float)words[0] / 4294967296.0f - 0.5f;
        }
    }
    assert_int_equal(loopback_step(group, g->ranks, -1, NULL, &skipped), TW_OK);
    assert_false(skipped);
}

static tw_state *save(tw_scheme *scheme, const char *prefix)
{
    tw_state *saved = loopback_save(scheme, prefix);
    assert_non_null(saved);
    return saved;
}

/* Saving settles what a step left open, so a saved step stands, and goes on as if it had not been saved. */
TEST(test_a_saved_step_cannot_be_taken_back)
{
    static step_gradients expected, got;
    for (int s = 0; s < SPECS; s++) {
        loopback whole, saved;
        assert_int_equal(loopback_create(&whole, specs[s], table, TENSORS, RANKS), TW_OK);
        assert_int_equal(loopback_create(&saved, specs[s], table, TENSORS, RANKS), TW_OK);
        for (int step = 0; step < STEPS; step++) {
            run_step(&whole, step, &expected);
            run_step(&saved, step, &got);
            assert_memory_equal(got.values, expected.values, sizeof got.values);
            for (int r = 0; r < RANKS; r++) {
                tw_state_destroy(save(saved.scheme[r], ""));
                assert_int_equal(tw_scheme_revert(saved.scheme[r]), TW_ERROR_ORDER);
            }
        }
        loopback_destroy(&whole);
        loopback_destroy(&saved);
    }
}

TEST(test_entries_have_the_documented_names)
{
    static step_gradients g;
    loopback group;
    static const size_t counts[TENSORS] = {1800, 40, 600};
    float values[1800];
    uint64_t steps = 0;
    assert_int_equal(loopback_create(&group, "dgc:min_dims=2", table, TENSORS, RANKS), TW_OK);
    for (int step = 0; step < 2; step++) run_step(&group, step, &g);
    tw_state *saved = save(group.scheme[0], "x.");
    assert_int_equal(tw_state_count(saved), 1 + 2 + 3 + 1);
    assert_int_equal(tw_state_get(saved, "x.scheme/steps", TW_U64, 1, &steps), TW_OK);
    assert_int_equal(steps, 2);
    for (size_t t = 0; t < TENSORS; t++) {
        char name[64];
        snprintf(name, sizeof name, "x.momentum/%s", table[t].name);
        assert_int_equal(tw_state_get(saved, name, TW_F32, counts[t], values), TW_OK);
        snprintf(name, sizeof name, "x.residual/%s", table[t].name);
        assert_int_equal(tw_state_get(saved, name, TW_F32, counts[t], values), t == 1 ? TW_ERROR_STATE : TW_OK);
        snprintf(name, sizeof name, "x.rounding/%s", table[t].name);
        assert_int_equal(tw_state_get(saved, name, TW_F32, counts[t], values), t == 1 ? TW_OK : TW_ERROR_STATE);
    }
    tw_state_destroy(saved);
    loopback_destroy(&group);
}

/* The state is refused by name, and nothing of it was taken. */
static void check_refused(tw_scheme *scheme, const tw_state *bad, const char *name)
{
    tw_state *before = save(scheme, "");
    if (tw_scheme_load_state(scheme, "", bad) != TW_ERROR_STATE) fail_msg("a state is taken with a wrong %s", name);
    if (!strstr(tw_last_error(), name)) fail_msg("\"%s\" does not name %s", tw_last_error(), name);
    tw_state *after = save(scheme, "");
    assert_true(loopback_same_state(before, after, NULL));
    tw_state_destroy(before);
    tw_state_destroy(after);
}

/* Everything of `source` but the entry `name`. */
static tw_state *copy_without(const tw_state *source, const char *name)
{
    tw_state *copy;
    assert_int_equal(tw_state_create(&copy), TW_OK);
    for (size_t i = 0; i < tw_state_count(source); i++) {
        tw_state_entry entry;
        assert_int_equal(tw_state_at(source, i, &entry), TW_OK);
        if (strcmp(entry.name, name) != 0)
            assert_int_equal(tw_state_put(copy, entry.name, entry.dtype, entry.dims, entry.shape, entry.data), TW_OK);
    }
    return copy;
}

static void check_entry(tw_scheme *scheme, const tw_state *good, const tw_state_entry *entry)
{
    static const float sick[] = {NAN, INFINITY, -INFINITY};
    tw_state *bad = copy_without(good, entry->name);
    if (strncmp(entry->name, "told/", 5) != 0) check_refused(scheme, bad, entry->name); /* older states have none */
    size_t fewer = entry->shape[0] - 1;
    assert_int_equal(tw_state_put(bad, entry->name, entry->dtype, 1, &fewer, entry->data), TW_OK);
    check_refused(scheme, bad, entry->name);
    tw_dtype other = entry->dtype == TW_F32 ? TW_I32 : entry->dtype == TW_BF16 ? TW_F16 : TW_I64;
    assert_int_equal(tw_state_put(bad, entry->name, other, 1, entry->shape, entry->data), TW_OK);
    check_refused(scheme, bad, entry->name);
    for (int i = 0; (entry->dtype == TW_F32 || entry->dtype == TW_F64) && i < 3; i++) {
        const double wide = (double)sick[i];
        size_t size = entry->dtype == TW_F32 ? sizeof *sick : sizeof wide;
        unsigned char *values = malloc(entry->bytes);
        memcpy(values, entry->data, entry->bytes);
        memcpy(values + entry->bytes - size, size == sizeof wide ? (const void *)&wide : &sick[i], size);
        assert_int_equal(tw_state_put(bad, entry->name, entry->dtype, 1, entry->shape, values), TW_OK);
        check_refused(scheme, bad, entry->name);
        free(values);
    }
    tw_state_destroy(bad);
}

/* One step of `spec` on one rank. */
static tw_state *saved_after_a_step(const char *spec, loopback *group)
{
    static step_gradients g;
    assert_int_equal(loopback_create(group, spec, table, TENSORS, RANKS), TW_OK);
    run_step(group, 0, &g);
    return save(group->scheme[0], "");
}

/* Half of it is half as much to remember, and neither takes the other for its own. */
TEST(test_fp32_and_bf16_are_told_apart)
{
    static const char *const names[] = {"dgc", "sdagc", "topk", "threshold"};
    for (size_t s = 0; s < sizeof names / sizeof *names; s++) {
        char spec[64];
        loopback whole, half;
        tw_state *floats = saved_after_a_step(names[s], &whole);
        snprintf(spec, sizeof spec, "%s:state=bf16", names[s]);
        tw_state *halves = saved_after_a_step(spec, &half);
        uint64_t bytes = tw_scheme_state_bytes(whole.scheme[0]), fewer = tw_scheme_state_bytes(half.scheme[0]);
        size_t compressed = (s < 2 ? 2 : 1) * (ELEMENTS - 40); /* all but a.bias; dgc and sdagc have a momentum, too */
        assert_int_equal(bytes - fewer, 2 * compressed);
        check_refused(whole.scheme[0], halves, " of the saved state is BF16 and F32 was wanted");
        check_refused(half.scheme[0], floats, " of the saved state is F32 and BF16 was wanted");
        tw_state_destroy(floats);
        tw_state_destroy(halves);
        loopback_destroy(&whole);
        loopback_destroy(&half);
    }
}

/* A step reads the gradient, and reads and writes what is remembered. */
TEST(test_what_is_remembered_is_the_floor)
{
    static const char *const of_floats[] = {"topk",  "threshold", "dgc",           "dgc-bold",
                                            "sdagc", "dgc-adam",  "dgc:beta2=0.99"};
    static const tw_tensor one = {"weight", 2, {256, 256}};
    for (size_t s = 0; s < 2 * sizeof of_floats / sizeof *of_floats; s++) {
        char spec[64];
        const char *name = of_floats[s / 2];
        tw_scheme *scheme;
        snprintf(spec, sizeof spec, "%s%s%s", name, s % 2 ? (strchr(name, ':') ? "," : ":") : "",
                 s % 2 ? "state=bf16" : "");
        assert_int_equal(tw_scheme_create(spec, &one, 1, 0, 1, &scheme), TW_OK);
        assert_int_equal(tw_spec_floor_bytes(spec), 4 + 2 * (tw_scheme_state_bytes(scheme) / (256 * 256)));
        tw_scheme_destroy(scheme);
    }
}

/* Whose squares stand still only reads them. */
TEST(test_squares_that_stand_still_are_read)
{
    assert_int_equal(tw_spec_floor_bytes("onebit-adam"), 4 + 2 * (4 + 4) + 4);
    assert_int_equal(tw_spec_floor_bytes("onebit-adam:beta2=0"), 4 + 2 * (4 + 4));
}

static uint64_t bytes_written(void)
{
    struct rusage use;
    assert_int_equal(getrusage(RUSAGE_SELF, &use), 0);
    return (uint64_t)use.ru_minflt * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* And nothing that a step writes before it reads it: what of dgc's 25 % in its warm-up, say. Of fresh memory each page
 * is counted that is written to, where it is a small one. */
TEST(test_what_is_remembered_is_all_that_create_writes)
{
#if defined(TSAN) || defined(ASAN)
    skip(); /* a sanitizer keeps books of memory in memory */
#endif
    static const char *const some[] = {"dgc", "dgc-adam", "sdagc", "topk:density=0.25", "threshold:state=bf16"};
    static const tw_tensor one = {"weight", 2, {2048, 2048}};
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    for (size_t s = 0; s < sizeof some / sizeof *some; s++) {
        tw_scheme *scheme;
        const uint64_t before = bytes_written();
        assert_int_equal(tw_scheme_create(some[s], &one, 1, 0, 3, &scheme), TW_OK);
        assert_in_range(bytes_written() - before, 0, tw_scheme_state_bytes(scheme) * 3 / 2);
        tw_scheme_destroy(scheme);
    }
}

TEST(test_a_wrong_state_changes_nothing)
{
    static step_gradients g;
    for (int s = 0; s < SPECS; s++) {
        loopback group, other;
        assert_int_equal(loopback_create(&group, specs[s], table, TENSORS, RANKS), TW_OK);
        assert_int_equal(loopback_create(&other, specs[s], table, TENSORS, RANKS), TW_OK);
        for (int step = 0; step < 3; step++) run_step(&group, step, &g);
        for (int step = 3; step < 5; step++) run_step(&other, step, &g);
        tw_state *good = save(group.scheme[1], "");
        for (size_t i = 0; i < tw_state_count(good); i++) {
            tw_state_entry entry;
            assert_int_equal(tw_state_at(good, i, &entry), TW_OK);
            check_entry(other.scheme[1], good, &entry);
        }
        assert_int_equal(tw_scheme_load_state(other.scheme[1], "", good), TW_OK);
        tw_state *now = save(other.scheme[1], "");
        assert_true(loopback_same_state(now, good, NULL));
        tw_state_destroy(now);
        tw_state_destroy(good);
        loopback_destroy(&group);
        loopback_destroy(&other);
    }
}

/* What a selection guesses by is not saved. It must not show in a rank that a NaN has met, either: a guess too high has
 * the values looked at once more, and among them those that the NaN kept from being taken in. */
static void check_nan_after_restart(const char *spec)
{
    const tw_tensor w = {"w", 2, {30, 60}};
    static float values[2][1800], held[2][1800];
    loopback group[2];
    for (int k = 0; k < 2; k++) assert_int_equal(loopback_create(&group[k], spec, &w, 1, 1), TW_OK);
    for (int step = 0; step < 2; step++)
        for (int k = 0; k < 2; k++) {
            float *tensors[] = {values[k]}, **ranks[] = {tensors};
            int skipped;
            if (step && k) assert_int_equal(loopback_restart(&group[k], spec, &w, 1), TW_OK);
            for (size_t i = 0; i < 1800; i++) {
                uint32_t words[4];
                tw_random(5, (uint64_t)step, i, words);
                float size = step || i > 63 ? 1e-4F : ldexpf(1, -(int)(i % 10)); /* so that returning rounds */
                values[k][i] = ((float)words[0] / 4294967296.0f - 0.5f) * size;
            }
            if (step) values[k][3] = NAN;
            assert_int_equal(loopback_step(&group[k], ranks, -1, NULL, &skipped), TW_OK);
            assert_int_equal(skipped, step);
        }
    for (int k = 0; k < 2; k++) {
        assert_int_equal(loopback_saved(group[k].scheme[0], "residual/w", 1800, held[k]), TW_OK);
        loopback_destroy(&group[k]);
    }
    if (memcmp(held[0], held[1], sizeof *held)) fail_msg("%s: a restart before the NaN has changed the residual", spec);
}

TEST(test_a_nan_after_a_restart_changes_no_bit)
{
    check_nan_after_restart("topk:density=0.01,values=sign");
    check_nan_after_restart("dgc:density=0.01,values=sign,warmup_steps=0");
    check_nan_after_restart("sdagc:density=0.01,values=sign,warmup_steps=0");
    check_nan_after_restart("threshold:tau=0.1");
}

/* The step before the load is not one of the loaded scheme's: there is nothing to take back. */
TEST(test_nothing_is_taken_back_after_a_load)
{
    static step_gradients g;
    for (int s = 0; s < SPECS; s++) {
        loopback group;
        assert_int_equal(loopback_create(&group, specs[s], table, TENSORS, RANKS), TW_OK);
        tw_state *fresh = save(group.scheme[0], "");
        run_step(&group, 0, &g);
        assert_int_equal(tw_scheme_load_state(group.scheme[0], "", fresh), TW_OK);
        assert_int_equal(tw_scheme_revert(group.scheme[0]), TW_OK);
        tw_state *now = save(group.scheme[0], "");
        assert_true(loopback_same_state(now, fresh, NULL));
        tw_state_destroy(now);
        tw_state_destroy(fresh);
        loopback_destroy(&group);
    }
}

TEST(test_not_within_a_step_and_not_by_any_prefix)
{
    static float values[ELEMENTS];
    float *gradients[TENSORS] = {values, values + 1800, values + 1840};
    char prefix[257];
    loopback group;
    assert_int_equal(loopback_create(&group, "topk", table, TENSORS, 1), TW_OK);
    tw_state *saved = save(group.scheme[0], "");
    memset(prefix, 'p', 256);
    prefix[256] = 0;
    assert_int_equal(tw_scheme_save_state(group.scheme[0], prefix, saved), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_scheme_load_state(group.scheme[0], prefix, saved), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_scheme_begin(group.scheme[0], gradients, -1), TW_OK);
    assert_int_equal(tw_scheme_save_state(group.scheme[0], "", saved), TW_ERROR_ORDER);
    assert_int_equal(tw_scheme_load_state(group.scheme[0], "", saved), TW_ERROR_ORDER);
    tw_state_destroy(saved);
    loopback_destroy(&group);
}

RUN_TESTS(NULL, NULL)
