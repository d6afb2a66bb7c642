/* Gradients and states at the ends of what a float holds: whatever the scheme, a step is taken or skipped, replicas
 * never part, and nothing that is remembered is lost to infinity. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress.h"
#include "conformance.h"
#include "support/cmocka.h"
#include "support/parts.h"

enum { RANKS = 3, STEPS = 4, SEEDS = 8 };

static const tw_tensor table[] = {{"bias", 1, {70}}, {"matrix", 2, {13, 11}}, {"large", 2, {97, 101}}};
enum { TENSORS = sizeof table / sizeof *table };

static const float extremes[] = {0,     -0.0F,  0x1p-149F, -0x1p-149F, FLT_MIN, -FLT_MIN, 1,
                                 -1,    65504,  65520,     -1e30F,     1e30F,   1e31F,    -1e31F,
                                 1e33F, -1e33F, FLT_MAX,   -FLT_MAX,   NAN,     INFINITY};
enum { EXTREMES = sizeof extremes / sizeof *extremes, BORNE = 14 /* the first, whose norm no count brings to 1e33 */ };

/* Nine gradients of ten have nothing but what can be borne; a seed prefers two of the values. */
static float draw(uint64_t seed, int step, int rank, size_t i)
{
    uint32_t words[4];
    tw_random(seed, (uint64_t)(step * RANKS + rank), i + 1, words);
    if (words[0] % 8 == 0) return extremes[(seed * 7 + words[1] % 2) % BORNE];
    return words[0] % 64 == 1 ? extremes[words[1] % BORNE] : (float)words[2] * 0x1p-32F - 0.5F;
}

enum { ELEMENTS = 70 + 13 * 11 + 97 * 101 };

/* A step's gradients, and whether some rank's may not be taken. */
typedef struct drawn_step {
    int is_drawn, sick;
    float values[RANKS][ELEMENTS];
} drawn_step;

static void draw_step(drawn_step *drawn, uint64_t seed, int step)
{
    for (int r = 0; r < RANKS; r++) {
        uint32_t words[4];
        double squares = 0;
        float *values = drawn->values[r];
        for (size_t i = 0; i < ELEMENTS; i++) values[i] = draw(seed, step, r, i);
        tw_random(seed, (uint64_t)(step * RANKS + r), 0, words);
        if (words[0] % 10 == 0) values[words[1] % ELEMENTS] = extremes[BORNE + words[2] % (EXTREMES - BORNE)];
        for (size_t i = 0; i < ELEMENTS; i++) squares += (double)values[i] * (double)values[i];
        drawn->sick |= !(sqrt(squares) <= TW_LARGEST_NORM);
    }
    drawn->is_drawn = 1;
}

/* Fills a step; returns whether some rank's gradient may not be taken. Every variant of every scheme gets the same
 * ones, and so they are drawn once. */
static int fill(batch *b, uint64_t seed, int step)
{
    static drawn_step kept[SEEDS][STEPS];
    drawn_step *drawn = &kept[seed][step];
    assert_int_equal(b->elements, ELEMENTS);
    if (!drawn->is_drawn) draw_step(drawn, seed, step);
    for (int r = 0; r < RANKS; r++) memcpy(b->values[r], drawn->values[r], sizeof drawn->values[r]);
    return drawn->sick;
}

static tw_status assert_finite(tw_walk *walk, const tw_remembered *entry)
{
    for (size_t i = 0; entry->dtype == TW_F32 && i < entry->count; i++)
        if (!isfinite(((const float *)entry->data)[i]))
            fail_msg("%s: %s/%s remembers what is not finite", (const char *)walk->context, entry->what, entry->tensor);
    return TW_OK;
}

static int take_step(loopback *group, const char *spec, batch *b)
{
    int skipped;
    tw_status status = loopback_step(group, b->ranks, -1, NULL, &skipped);
    if (status != TW_OK) fail_msg("%s: %s: %s", spec, tw_status_name(status), tw_last_error());
    for (int r = 0; r < RANKS; r++) {
        tw_walk walk = {assert_finite, (void *)(uintptr_t)spec};
        assert_int_equal(tw_scheme_walk(group->scheme[r], &walk), TW_OK);
    }
    for (int r = 1; !skipped && r < RANKS; r++)
        if (memcmp(b->values[r], b->values[0], b->elements * sizeof(float)) != 0)
            fail_msg("%s: rank %d has other bits than rank 0", spec, r);
    for (size_t i = 0; !skipped && i < b->elements; i++)
        if (!isfinite(b->values[0][i])) fail_msg("%s: element %zu is %g", spec, i, (double)b->values[0][i]);
    return skipped;
}

/* What may not be taken is skipped. What may is taken, unless a sum leaves what it travels as. */
static void check_gradients(const tw_scheme_ops *ops, const char *spec)
{
    batch *b = batch_create(table, TENSORS);
    int overflows = strcmp(ops->name, "fp16") == 0 || strstr(spec, "leftovers=fp16") || strstr(spec, "values=fp16");
    for (uint64_t seed = 0; seed < (uint64_t)in_part(2, SEEDS); seed++) {
        loopback group;
        assert_int_equal(loopback_create(&group, spec, table, TENSORS, RANKS), TW_OK);
        for (int step = 0; step < STEPS; step++) {
            int sick = fill(b, seed, step), skipped = take_step(&group, spec, b);
            if (skipped != sick && !(skipped && overflows))
                fail_msg("%s: seed %d, step %d is %s", spec, (int)seed, step, skipped ? "skipped" : "taken");
        }
        loopback_destroy(&group);
    }
    batch_destroy(b);
}

TEST(test_extreme_gradients_are_taken_or_skipped)
{
    const tw_scheme_ops *ops;
    for (size_t s = 0; (ops = tw_scheme_at(s)); s++) {
        check_gradients(ops, ops->name);
        for_each_variant(ops, "warmup_steps=0", check_gradients);
    }
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

/* Every float of what is saved becomes +value or -value. */
static void set_floats(tw_state *saved, float value, const char *only)
{
    for (size_t i = 0; i < tw_state_count(saved); i++) {
        tw_state_entry entry;
        assert_int_equal(tw_state_at(saved, i, &entry), TW_OK);
        if (entry.dtype != TW_F32 || (only && strcmp(only, entry.name) != 0)) continue;
        size_t count = entry.bytes / sizeof(float);
        float *values = malloc(entry.bytes);
        for (size_t v = 0; v < count; v++) values[v] = v % 3 ? value : -value;
        assert_int_equal(tw_state_put(saved, entry.name, TW_F32, entry.dims, entry.shape, values), TW_OK);
        free(values);
    }
}

/* From the largest state that is loaded, steps are taken or skipped, and never anything else. */
static void check_largest(const tw_scheme_ops *ops, const char *spec)
{
    loopback group;
    batch *b = batch_create(table, TENSORS);
    (void)ops;
    assert_int_equal(loopback_create(&group, spec, table, TENSORS, RANKS), TW_OK);
    for (int r = 0; r < RANKS; r++) {
        tw_state *saved = loopback_save(group.scheme[r], "");
        set_floats(saved, nextafterf((float)TW_LARGEST_KEPT, 0), NULL);
        if (tw_scheme_load_state(group.scheme[r], "", saved) != TW_OK) fail_msg("%s: %s", spec, tw_last_error());
        tw_state_destroy(saved);
    }
    for (int step = 0; step < STEPS; step++) {
        batch_fill(b, RANKS, normal, step);
        take_step(&group, spec, b);
    }
    loopback_destroy(&group);
    batch_destroy(b);
}

static void check_beyond(const tw_scheme_ops *ops, const char *spec)
{
    static const float beyond[] = {FLT_MAX, 1.001e36F};
    tw_scheme *scheme;
    (void)ops;
    assert_int_equal(tw_scheme_create(spec, table, TENSORS, 0, RANKS, &scheme), TW_OK);
    tw_state *list = loopback_save(scheme, "");
    for (size_t i = 0; i < tw_state_count(list); i++) {
        tw_state_entry entry;
        assert_int_equal(tw_state_at(list, i, &entry), TW_OK);
        for (size_t k = 0; entry.dtype == TW_F32 && k < sizeof beyond / sizeof *beyond; k++) {
            tw_state *bad = loopback_save(scheme, "");
            set_floats(bad, beyond[k], entry.name);
            if (tw_scheme_load_state(scheme, "", bad) != TW_ERROR_STATE) fail_msg("%s: %s is taken", spec, entry.name);
            assert_non_null(strstr(tw_last_error(), entry.name));
            tw_state_destroy(bad);
        }
    }
    tw_state_destroy(list);
    tw_scheme_destroy(scheme);
}

TEST(test_the_largest_state_is_borne_and_a_larger_one_refused)
{
    const tw_scheme_ops *ops;
    for (size_t s = 0; (ops = tw_scheme_at(s)); s++) {
        check_largest(ops, ops->name);
        check_beyond(ops, ops->name);
        for_each_variant(ops, "warmup_steps=0", check_largest);
        for_each_variant(ops, "warmup_steps=0", check_beyond);
    }
}

RUN_TESTS(NULL, NULL)
