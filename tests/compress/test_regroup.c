/* What a group of ranks remembers, taken over by groups of other sizes: nothing is lost, of any scheme of the list, and
 * what does not fit is refused by name. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "promises.h"
#include "support/assert.h"
#include "support/outside.h"

static const tw_tensor table[] = {{"w", 2, {30, 40}}, {"b", 1, {40}}, {"x", 2, {15, 10}}, {"y", 2, {3, 3}}};
enum { TENSORS = sizeof table / sizeof *table, ELEMENTS = 30 * 40 + 40 + 15 * 10 + 3 * 3, STEPS = 4 };

/* ---- one group follows another ---------------------------------------------------------------------------------- */

typedef struct saved_group {
    int size, asked; /* asked: how often for a state, and for which */
    int order[LOOPBACK_RANKS];
    tw_state *states[LOOPBACK_RANKS];
} saved_group;

static void save_group(const loopback *group, saved_group *saved)
{
    *saved = (saved_group){.size = group->size};
    for (int r = 0; r < group->size; r++) assert_non_null(saved->states[r] = loopback_save(group->scheme[r], "s."));
}

static void release_group(saved_group *saved)
{
    for (int r = 0; r < saved->size; r++) tw_state_destroy(saved->states[r]);
}

static tw_status source(void *context, int rank, const tw_state **state)
{
    saved_group *self = context;
    self->order[self->asked++] = rank;
    *state = self->states[rank];
    return TW_OK;
}

static tw_status regroup(const char *spec, saved_group *saved, int rank, int size, tw_state **state)
{
    saved->asked = 0;
    assert_ok(tw_state_create(state));
    return tw_reducer_regroup_state(spec, table, TENSORS, saved->size, source, saved, rank, size, "s.", *state);
}

static tw_status load_regrouped(loopback *group, const char *spec, saved_group *saved)
{
    for (int r = 0; r < group->size; r++) {
        tw_state *state;
        tw_status status = regroup(spec, saved, r, group->size, &state);
        if (status == TW_OK) status = tw_scheme_load_state(group->scheme[r], "s.", state);
        tw_state_destroy(state);
        if (status != TW_OK) return status;
    }
    return TW_OK;
}

/* `size` ranks take the group's place. */
static tw_status follow(loopback *group, const char *spec, int size)
{
    saved_group saved;
    save_group(group, &saved);
    loopback_destroy(group);
    assert_ok(loopback_create(group, spec, table, TENSORS, size));
    tw_status status = load_regrouped(group, spec, &saved);
    release_group(&saved);
    return status;
}

/* ---- sums over the ranks ---------------------------------------------------------------------------------------- */

/* Of what adds, an account for what is owed, whatever it is called, and one for momentum; and how large its terms are.
 * Of what is the same everywhere, whether it is. */
enum { OWED, MOMENTUM, ACCOUNTS };

typedef struct sums {
    double sum[ACCOUNTS][ELEMENTS], size[ACCOUNTS][ELEMENTS];
    int held[ELEMENTS], firm[ELEMENTS]; /* how often the element is there, and as more than a rounding */
    uint64_t steps;
    int same, own;
} sums;

static tw_status add_up(void *context, const tw_remembered *entry)
{
    sums *self = context;
    size_t first = entry->first;
    int account = strcmp(entry->what, "momentum") == 0 ? MOMENTUM : OWED;
    if (strcmp(entry->tensor, "steps") == 0) self->steps = *(const uint64_t *)entry->data;
    self->same += entry->kind == TW_STATE_SAME;
    self->own += entry->kind == TW_STATE_OWN;
    if (entry->kind != TW_STATE_ADDS) return TW_OK;
    for (size_t t = 0; strcmp(table[t].name, entry->tensor) != 0; t++) first += tw_tensor_count(&table[t]);
    for (size_t i = 0; i < entry->count; i++) {
        double value = entry_value(entry, i);
        self->sum[account][first + i] += value;
        self->size[account][first + i] += fabs(value);
        self->held[first + i]++;
        self->firm[first + i] += !entry->is_rounding;
    }
    return TW_OK;
}

static sums *sum_group(const loopback *group)
{
    sums *all = calloc(1, sizeof *all);
    for (int r = 0; r < group->size; r++) assert_ok(tw_scheme_visit_state(group->scheme[r], add_up, all));
    return all;
}

static void assert_same_sums(const char *spec, const sums *before, const sums *after, double rounding)
{
    assert_int_equal(before->steps, after->steps);
    for (int a = 0; a < ACCOUNTS; a++)
        for (size_t i = 0; i < ELEMENTS; i++)
            if ((before->firm[i] || after->held[i]) &&
                fabs(before->sum[a][i] - after->sum[a][i]) > rounding * before->size[a][i] + 1e-40)
                fail_msg("%s: element %zu of account %d adds up to %.9g and then to %.9g", spec, i, a,
                         before->sum[a][i], after->sum[a][i]);
}

/* ---- every scheme ----------------------------------------------------------------------------------------------- */

static const int sizes[] = {4, 2, 8, 3, 5, 1, 7, 4};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* `given`: what went in and did not come out is added to it; NULL: nobody asks. */
static void run_steps(loopback *group, batch *b, int first, double *given)
{
    for (int step = first; step < first + STEPS; step++) {
        int skipped;
        batch_fill(b, group->size, normal, step);
        for (int r = 0; r < group->size; r++)
            for (size_t i = 0; given && i < ELEMENTS; i++) given[i] += (double)b->values[r][i] / group->size;
        assert_ok(loopback_step(group, b->ranks, -1, NULL, &skipped));
        assert_false(skipped);
        for (size_t i = 0; given && i < ELEMENTS; i++) given[i] -= (double)b->values[0][i];
    }
}

/* A tensor that was compressed and in a larger group travels as fp32 has no residual there. */
static int may_be_refused(const char *spec)
{
    return strstr(spec, "leftovers=fp32") && strstr(tw_last_error(), "has no place among");
}

static int keeps_account(const char *spec)
{
    int is_of_coefficients = strncmp(spec, "demo", 4) == 0; /* whose sum is no sum of elements */
    return !strstr(spec, "feedback=off") && !strstr(spec, "leftovers=fp32") && !is_of_coefficients;
}

/* Sums of what travels in half precision are rounded once more, behind the back of any residual. */
static void note_leftovers(const tw_scheme *scheme, double tolerance[TENSORS])
{
    for (size_t t = 0; t < TENSORS; t++)
        if (!scheme->tensors[t].compressed) tolerance[t] = 5e-2;
}

static void assert_balance(const char *spec, const sums *held, const double *given, const double tolerance[TENSORS])
{
    for (size_t t = 0, i = 0; t < TENSORS; t++)
        for (size_t end = i + tw_tensor_count(&table[t]); i < end; i++)
            if (held->size[OWED][i] > 0 && fabs(held->sum[OWED][i] - given[i]) > tolerance[t])
                fail_msg("%s: %g of %s went in that did not come out, and %g is left", spec, given[i], table[t].name,
                         held->sum[OWED][i]);
}

/* Through all these sizes: the sums stay when the ranks change, and in the end what came out and what is held add up to
 * what went in. */
static void check_sizes(const tw_scheme_ops *ops, const char *spec)
{
    loopback group;
    batch *b = batch_create(table, TENSORS);
    double *given = calloc(ELEMENTS, sizeof *given);
    double tolerance[TENSORS];
    sums *now = NULL;
    for (size_t t = 0; t < TENSORS; t++)
        tolerance[t] = promise_of(ops).imbalance + 1e-6 * STEPS * SIZES + 2 * rounding_of(spec);
    assert_ok(loopback_create(&group, spec, table, TENSORS, sizes[0]));
    for (int s = 0; s < SIZES; s++) {
        sums *before = sum_group(&group);
        tw_status status = s > 0 ? follow(&group, spec, sizes[s]) : TW_OK;
        if (status != TW_OK && may_be_refused(spec)) {
            free(before);
            break;
        }
        if (status != TW_OK) fail_msg("%s: %d to %d: %s", spec, sizes[s - 1], sizes[s], tw_last_error());
        note_leftovers(group.scheme[0], tolerance);
        now = sum_group(&group);
        assert_same_sums(spec, before, now, rounding_of(spec) > 0 ? 0x1p-6 : 3e-7);
        free(before);
        free(now);
        run_steps(&group, b, STEPS * s, given);
    }
    now = sum_group(&group);
    if (keeps_account(spec) && !ends_in(spec, promise_of(ops).drops)) assert_balance(spec, now, given, tolerance);
    free(now);
    loopback_destroy(&group);
    batch_destroy(b);
    free(given);
}

TEST(test_nothing_is_lost_whatever_the_number_of_ranks)
{
    const tw_scheme_ops *ops;
    for (size_t s = 0; (ops = tw_scheme_at(s)); s++) {
        char spec[SPEC_LENGTH], options[SPEC_LENGTH];
        long_run_spec(spec, ops);
        check_sizes(ops, spec);
        const char *own = promise_of(ops).options;
        snprintf(options, sizeof options, "%s%s" LONG_RUN, own, *own ? "," : "");
        for_each_variant(ops, options, check_sizes);
    }
}

/* Whoever had no gradient, or a NaN, when the learning rate changed is at that of the others all the same. */
TEST(test_who_took_nothing_in_joins_the_others)
{
    static const char *const specs[] = {"sdagc:leftovers=fp32", "dgc:revision=rate"};
    static const unsigned char no_w[TENSORS] = {1};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (int sick = 0; sick < 2; sick++) {
            loopback group;
            int skipped;
            batch *b = batch_create(table, TENSORS);
            assert_ok(loopback_create(&group, specs[s], table, TENSORS, 3));
            for (int step = 0; step < 2; step++) {
                for (int r = 0; r < 3; r++) assert_ok(tw_scheme_set_rate(group.scheme[r], 1.0F / (float)(1 + step)));
                batch_fill(b, 3, normal, step);
                if (step && sick) b->tensors[1][1][0] = NAN;
                if (step && !sick) group.absent[1] = no_w;
                assert_ok(loopback_step(&group, b->ranks, -1, NULL, &skipped));
                assert_int_equal(skipped, step && sick);
            }
            assert_ok(follow(&group, specs[s], 2));
            loopback_destroy(&group);
            batch_destroy(b);
        }
}

/* At their defaults too, where the schemes that own the momentum have some; only the sums are looked at. */
TEST(test_momentum_is_kept_as_well)
{
    static const char *const specs[] = {"dgc",
                                        "dgc:min_dims=2,nesterov=on",
                                        "sdagc",
                                        "sdagc:revision=age,min_dims=2",
                                        "scalecom",
                                        "powersgd",
                                        "powersgd:warmup_steps=0",
                                        "sign:exchange=scatter",
                                        "dgc:exchange=scatter",
                                        "topk:exchange=scatter"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        loopback group;
        batch *b = batch_create(table, TENSORS);
        assert_ok(loopback_create(&group, specs[s], table, TENSORS, sizes[0]));
        run_steps(&group, b, 0, NULL);
        for (int i = 1; i < SIZES; i++) {
            sums *before = sum_group(&group), *after;
            assert_ok(follow(&group, specs[s], sizes[i]));
            after = sum_group(&group);
            assert_same_sums(specs[s], before, after, 3e-7);
            assert_int_equal(before->same * sizes[i], after->same * sizes[i - 1]);
            assert_int_equal(before->own * sizes[i], after->own * sizes[i - 1]);
            free(before);
            free(after);
            run_steps(&group, b, STEPS * i, NULL);
        }
        loopback_destroy(&group);
        batch_destroy(b);
    }
}

/* At density 1 without masking dgc is momentum SGD on the mean, whoever holds the momentum. */
TEST(test_the_course_of_momentum_goes_on)
{
    enum { ALL = 12 };
    const char *spec = "dgc-bold:density=1,warmup_steps=0,momentum=0.9,masking=off,values=fp32";
    loopback group;
    batch *b = batch_create(table, TENSORS);
    double *velocity = calloc(ELEMENTS, sizeof *velocity);
    assert_ok(loopback_create(&group, spec, table, TENSORS, 4));
    for (int step = 0; step < ALL; step++) {
        int skipped;
        if (step == 4) assert_ok(follow(&group, spec, 2));
        if (step == 8) assert_ok(follow(&group, spec, 8));
        batch_fill(b, group.size, normal, step);
        for (size_t i = 0; i < ELEMENTS; i++) {
            double mean = 0;
            for (int r = 0; r < group.size; r++) mean += (double)b->values[r][i] / group.size;
            velocity[i] = 0.9 * velocity[i] + mean;
        }
        assert_ok(loopback_step(&group, b->ranks, -1, NULL, &skipped));
        for (size_t i = 0; i < ELEMENTS; i++) assert_near((double)b->values[0][i], velocity[i], 1e-5);
    }
    loopback_destroy(&group);
    batch_destroy(b);
    free(velocity);
}

/* ---- exactly ---------------------------------------------------------------------------------------------------- */

/* A state of topk with one residual, all ones times `value`. */
static tw_state *make_state(float value)
{
    tw_state *state;
    uint64_t steps = 5;
    float values[ELEMENTS];
    for (size_t i = 0; i < ELEMENTS; i++) values[i] = value * (float)(1 + i % 1000);
    assert_ok(tw_state_create(&state));
    assert_ok(tw_state_put(state, "s.scheme/steps", TW_U64, 1, (size_t[]){1}, &steps));
    for (size_t t = 0; t < TENSORS; t++) {
        char name[64];
        snprintf(name, sizeof name, "s.residual/%s", table[t].name);
        assert_ok(tw_state_put(state, name, TW_F32, table[t].dims, table[t].shape, values));
    }
    return state;
}

static const char topk[] = "topk:min_dims=0,min_elements=1";

static void make_group(saved_group *saved, int size)
{
    *saved = (saved_group){.size = size};
    for (int r = 0; r < size; r++) saved->states[r] = make_state((float)(r + 1));
}

/* What rank `rank` of `size` has of element 2 of w, of which old rank r has 3 (r + 1). */
static float share_of(saved_group *saved, int rank, int size)
{
    float residual[30 * 40];
    tw_state *state;
    assert_ok(regroup(topk, saved, rank, size, &state));
    assert_ok(tw_state_get(state, "s.residual/w", TW_F32, 30 * 40, residual));
    tw_state_destroy(state);
    return residual[2];
}

TEST(test_shares_by_hand)
{
    saved_group four, two, three;
    make_group(&four, 4);
    make_group(&two, 2);
    make_group(&three, 3);
    assert_true(share_of(&four, 0, 2) == 3 * (1 + 2)); /* two become one */
    assert_true(share_of(&four, 1, 2) == 3 * (3 + 4));
    assert_true(share_of(&four, 0, 1) == 3 * 10);
    for (int r = 0; r < 8; r++) assert_true(share_of(&two, r, 8) == 3.0F * (float)(1 + r / 4) / 4); /* a quarter each */
    assert_true(share_of(&three, 0, 2) == 3 * (1 + 2 / 2.0F)); /* the middle one is cut in halves */
    assert_true(share_of(&three, 1, 2) == 3 * (2 / 2.0F + 3));
    assert_near((double)share_of(&two, 0, 3), 3 * (1 * 2 / 3.0), 1e-6);
    assert_near((double)share_of(&two, 1, 3), 3 * (1 / 3.0 + 2 / 3.0), 1e-6);
    release_group(&four);
    release_group(&two);
    release_group(&three);
}

/* Nobody asks for a file that he does not need. */
TEST(test_only_what_is_needed_is_asked_for)
{
    saved_group eight;
    make_group(&eight, 8);
    share_of(&eight, 3, 4);
    assert_int_equal(eight.asked, 3);
    assert_int_equal(eight.order[0], 0);
    assert_int_equal(eight.order[1], 6);
    assert_int_equal(eight.order[2], 7);
    share_of(&eight, 0, 4);
    assert_int_equal(eight.asked, 2);
    release_group(&eight);
}

/* Pieces of sums and all. */
TEST(test_as_many_as_before_have_what_they_had)
{
    static const char *const specs[] = {"dgc", "sign:exchange=scatter", "powersgd:warmup_steps=0", "sdagc:revision=age",
                                        "dgc:exchange=scatter,state=bf16"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        loopback group;
        saved_group saved;
        batch *b = batch_create(table, TENSORS);
        assert_ok(loopback_create(&group, specs[s], table, TENSORS, 5));
        run_steps(&group, b, 0, NULL);
        save_group(&group, &saved);
        for (int r = 0; r < 5; r++) {
            tw_state *again;
            assert_ok(regroup(specs[s], &saved, r, 5, &again));
            assert_true(loopback_same_state(again, saved.states[r], NULL));
            tw_state_destroy(again);
        }
        release_group(&saved);
        loopback_destroy(&group);
        batch_destroy(b);
    }
}

/* A host is one rank: the states of its other ranks are not asked for, and they get none. */
TEST(test_hosts_are_ranks)
{
    char spec[64];
    float residual[30 * 40];
    saved_group saved = {.size = 8};
    for (int r = 0; r < 8; r += 2) saved.states[r] = make_state((float)(r / 2 + 1));
    snprintf(spec, sizeof spec, "%s,per_host=2", topk);
    for (int r = 0; r < 4; r++) {
        tw_state *got;
        assert_ok(regroup(spec, &saved, r, 4, &got));
        assert_int_equal(saved.asked, r % 2 ? 0 : r == 2 ? 3 : 2);
        assert_int_equal(tw_state_count(got), r % 2 ? 0 : 1 + TENSORS);
        if (r % 2 == 0) assert_ok(tw_state_get(got, "s.residual/w", TW_F32, 30 * 40, residual));
        if (r % 2 == 0) assert_true(residual[2] == (r == 0 ? 3 * (1 + 2) : 3 * (3 + 4)));
        tw_state_destroy(got);
    }
    tw_state *none;
    assert_fails(regroup(spec, &saved, 0, 3, &none), TW_ERROR_SPEC, "per_host=2 does not divide the 3 workers");
    tw_state_destroy(none);
    release_group(&saved);
}

/* ---- states that are lost --------------------------------------------------------------------------------------- */

static void lose(saved_group *saved, int rank)
{
    tw_state_destroy(saved->states[rank]);
    saved->states[rank] = NULL;
}

TEST(test_what_a_lost_rank_held_back_is_dropped)
{
    saved_group four;
    make_group(&four, 4);
    lose(&four, 1);
    assert_true(share_of(&four, 0, 2) == 3 * 1);
    assert_true(share_of(&four, 1, 2) == 3 * (3 + 4));
    assert_true(share_of(&four, 0, 1) == 3 * (1 + 3 + 4));
    for (int r = 0; r < 4; r++) assert_true(share_of(&four, r, 4) == (r == 1 ? 0 : 3.0F * (float)(r + 1)));
    lose(&four, 0);
    assert_true(share_of(&four, 0, 2) == 0);
    assert_int_equal(four.asked, 3); /* until one is there */
    assert_int_equal(four.order[2], 2);
    release_group(&four);
}

/* The group without its rank `lost`. */
static sums *sum_others(loopback *group, int lost)
{
    sums *all = calloc(1, sizeof *all);
    for (int r = 0; r < group->size; r++)
        if (r != lost) assert_ok(tw_scheme_visit_state(group->scheme[r], add_up, all));
    return all;
}

/* Of every rank in turn, and by fewer, as many and more ranks. They go on, and agree on what all have alike. */
TEST(test_the_others_go_on_without_a_lost_rank)
{
    static const char *const specs[] = {"dgc", "powersgd:warmup_steps=0", "scalecom", "sdagc:revision=age", "sign",
                                        "topk"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (int lost = 0; lost < 3; lost++)
            for (int size = 2; size <= 4; size++) {
                loopback group;
                saved_group saved;
                batch *b = batch_create(table, TENSORS);
                assert_ok(loopback_create(&group, specs[s], table, TENSORS, 3));
                run_steps(&group, b, 0, NULL);
                sums *before = sum_others(&group, lost), *after;
                save_group(&group, &saved);
                lose(&saved, lost);
                loopback_destroy(&group);
                assert_ok(loopback_create(&group, specs[s], table, TENSORS, size));
                assert_ok(load_regrouped(&group, specs[s], &saved));
                after = sum_group(&group);
                assert_same_sums(specs[s], before, after, 3e-7);
                assert_int_equal(before->same * size, after->same * 2);
                run_steps(&group, b, STEPS, NULL);
                free(before);
                free(after);
                release_group(&saved);
                loopback_destroy(&group);
                batch_destroy(b);
            }
}

/* ---- states that do not fit ------------------------------------------------------------------------------------- */

/* Rank 0 of 2 of a group of 4. */
static void assert_refused(const char *spec, saved_group *saved, tw_status status, const char *words)
{
    tw_state *got;
    assert_fails(regroup(spec, saved, 0, 2, &got), status, words);
    assert_int_equal(tw_state_count(got), 0);
    tw_state_destroy(got);
}

TEST(test_hostile_states_are_refused_by_name)
{
    float values[30 * 40] = {0};
    uint64_t steps = 6;
    saved_group saved;
    make_group(&saved, 4);
    assert_ok(tw_state_put(saved.states[1], "s.scheme/steps", TW_U64, 1, (size_t[]){1}, &steps));
    assert_refused(topk, &saved, TW_ERROR_STATE, "rank 1 of the 4 before: scheme/steps is not what rank 0 has");
    values[7] = NAN;
    assert_ok(tw_state_put(saved.states[0], "s.residual/w", TW_F32, 2, (size_t[]){30, 40}, values));
    assert_refused(topk, &saved, TW_ERROR_STATE,
                   "rank 0 of the 4 before: tensor 's.residual/w' of the saved state "
                   "holds NaN");
    assert_ok(tw_state_put(saved.states[0], "s.residual/w", TW_F32, 1, (size_t[]){30}, values));
    assert_refused(topk, &saved, TW_ERROR_STATE, "'s.residual/w' of the saved state has 30 elements");
    assert_ok(tw_state_put(saved.states[0], "s.residual/w", TW_F16, 1, (size_t[]){30}, values));
    assert_refused(topk, &saved, TW_ERROR_STATE, "'s.residual/w' of the saved state is F16");
    assert_refused("dgc", &saved, TW_ERROR_STATE, "rank 0 of the 4 before");
    lose(&saved, 0);
    tw_state *got;
    assert_fails(regroup(topk, &saved, 1, 2, &got), TW_ERROR_STATE,
                 "rank 2 of the 4 before: scheme/steps is not what rank 1 has");
    tw_state_destroy(got);
    assert_ok(tw_state_create(&saved.states[0]));
    assert_refused(topk, &saved, TW_ERROR_STATE, "has no tensor 's.");
    for (int r = 0; r < saved.size; r++) lose(&saved, r);
    assert_refused(topk, &saved, TW_ERROR_ARGUMENT, "there is no state of any of the ranks before");
    release_group(&saved);
}

/* What each rank may hold, their sum may not: nobody could load it. */
TEST(test_a_sum_beyond_bounds_is_refused)
{
    saved_group saved = {.size = 2};
    for (int r = 0; r < 2; r++) saved.states[r] = make_state(9e32F);
    tw_state *got;
    assert_fails(regroup(topk, &saved, 0, 1, &got), TW_ERROR_STATE, "value beyond 1e+36");
    assert_int_equal(tw_state_count(got), 0);
    tw_state_destroy(got);
    release_group(&saved);
}

TEST(test_what_has_no_place_is_refused)
{
    const char *spec = "sign:leftovers=fp32,min_elements=1,min_dims=0";
    loopback group;
    batch *b = batch_create(table, TENSORS);
    assert_ok(loopback_create(&group, spec, table, TENSORS, 4));
    run_steps(&group, b, 0, NULL);
    assert_int_equal(follow(&group, spec, 16), TW_ERROR_STATE);
    assert_said("residual/", "has no place among 16 ranks");
    loopback_destroy(&group);
    batch_destroy(b);
}

TEST(test_groups_that_cannot_be)
{
    tw_state *got;
    saved_group saved;
    make_group(&saved, 2);
    assert_ok(tw_state_create(&got));
    assert_fails(tw_reducer_regroup_state(topk, table, TENSORS, 0, source, &saved, 0, 1, "", got), TW_ERROR_ARGUMENT,
                 "0 old ranks");
    assert_fails(tw_reducer_regroup_state(topk, table, TENSORS, 2, source, &saved, 1, 1, "", got), TW_ERROR_ARGUMENT,
                 "rank 1 of 1");
    assert_fails(tw_reducer_regroup_state("nosuch", table, TENSORS, 2, source, &saved, 0, 1, "", got), TW_ERROR_SPEC,
                 "nosuch");
    tw_state_destroy(got);
    release_group(&saved);
}

/* ---- visits ----------------------------------------------------------------------------------------------------- */

typedef struct look {
    const tw_state *saved;
    int seen, stop_at;
    const void *first;
} look;

static tw_status compare(void *context, const tw_remembered *entry)
{
    look *self = context;
    char name[128];
    float values[ELEMENTS];
    if (self->seen == self->stop_at) return TW_ERROR_IO;
    if (!self->first) self->first = entry->data;
    self->seen++;
    if (entry->dtype != TW_F32) return TW_OK;
    snprintf(name, sizeof name, "s.%s/%s", entry->what, entry->tensor);
    assert_ok(tw_state_get(self->saved, name, entry->dtype, entry->count, values));
    assert_memory_equal(values, entry->data, entry->count * sizeof *values);
    return TW_OK;
}

TEST(test_a_visit_shows_what_is_saved_where_it_lies)
{
    const tw_scheme_ops *ops;
    for (size_t s = 0; (ops = tw_scheme_at(s)); s++) {
        loopback group;
        batch *b = batch_create(table, TENSORS);
        assert_ok(loopback_create(&group, ops->name, table, TENSORS, 5));
        run_steps(&group, b, 0, NULL);
        tw_state *saved = loopback_save(group.scheme[1], "s.");
        look all = {.saved = saved, .stop_at = -1}, again = all, one = {.saved = saved, .stop_at = 1};
        assert_ok(tw_scheme_visit_state(group.scheme[1], compare, &all));
        assert_int_equal(all.seen, tw_state_count(saved));
        assert_ok(tw_scheme_visit_state(group.scheme[1], compare, &again));
        assert_ptr_equal(all.first, again.first);
        if (all.seen > 1) assert_int_equal(tw_scheme_visit_state(group.scheme[1], compare, &one), TW_ERROR_IO);
        tw_state_destroy(saved);
        loopback_destroy(&group);
        batch_destroy(b);
    }
}

/* ---- a scheme from outside, which the tests above do not find in the list ---------------------------------------- */

static tw_status remember_more_on_later_ranks(void *self, tw_scheme *scheme, tw_walk *walk)
{
    static double alike[LOOPBACK_RANKS];
    (void)self;
    return tw_walk_visit(walk, "alike", "all", TW_STATE_SAME, TW_F64, 1 + (size_t)tw_scheme_rank(scheme), alike);
}

static tw_status remember_another_type(void *self, tw_scheme *scheme, tw_walk *walk)
{
    static double alike[1];
    (void)self;
    return tw_walk_visit(walk, "alike", "all", TW_STATE_SAME, tw_scheme_rank(scheme) ? TW_F64 : TW_U64, 1, alike);
}

TEST(test_what_is_the_same_is_as_long_on_all_ranks)
{
    assert_ok(register_outside("longer", remember_more_on_later_ranks));
    assert_ok(register_outside("typed", remember_another_type));
    for (int i = 0; i < 2; i++) {
        loopback group;
        assert_ok(loopback_create(&group, i ? "typed" : "longer", table, TENSORS, 2));
        assert_int_equal(follow(&group, i ? "typed" : "longer", 1), TW_ERROR_STATE);
        assert_said("alike/all is not what rank 0 has", "though it is the same on all ranks");
        loopback_destroy(&group);
    }
}

RUN_TESTS(NULL, NULL)
