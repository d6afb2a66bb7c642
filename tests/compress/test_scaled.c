/* Gradients that come multiplied, for loss scaling, and learning rates of single tensors: in every scheme of the list.
 */

#include "conformance.h"
#include "support/cmocka.h"

enum { RANKS = 3, TENSORS = 3, STEPS = 6 };

static const tw_tensor table[TENSORS] = {{.name = "a.weight", .dims = 2, .shape = {40, 30}},
                                         {.name = "a.bias", .dims = 1, .shape = {20}},
                                         {.name = "b.weight", .dims = 2, .shape = {30, 50}}};

static const tw_scheme_ops *ops_of(const char *name)
{
    size_t index = 0;
    while (strcmp(tw_scheme_at(index)->name, name) != 0) index++;
    return tw_scheme_at(index);
}

static void create(loopback *group, const char *spec)
{
    if (loopback_create(group, spec, table, TENSORS, RANKS) != TW_OK) fail_msg("%s: %s", spec, tw_last_error());
}

static void set_scale(const loopback *group, double scale)
{
    for (int r = 0; r < RANKS; r++) assert_int_equal(tw_scheme_set_gradient_scale(group->scheme[r], scale), TW_OK);
}

static int step_scaled(loopback *group, batch *b, int step, float scale)
{
    int skipped;
    batch_fill(b, RANKS, normal, step);
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < b->elements; i++) b->values[r][i] *= scale;
    assert_int_equal(loopback_step(group, b->ranks, -1, NULL, &skipped), TW_OK);
    return skipped;
}

/* ---- the scale --------------------------------------------------------------------------------------------------- */

/* By a power of two that changes, up and down: the same means but for it, and the same state. */
static void check_scale(const tw_scheme_ops *ops, const char *spec)
{
    static const float scales[STEPS] = {4, 2, 65536, 1, 0.25F, 0x1p30F};
    loopback plain, scaled;
    batch *b = batch_create(table, TENSORS), *c = batch_create(table, TENSORS);
    (void)ops;
    create(&plain, spec);
    create(&scaled, spec);
    for (int step = 0; step < STEPS; step++) {
        set_scale(&scaled, (double)scales[step]);
        assert_false(step_scaled(&plain, b, step, 1));
        assert_false(step_scaled(&scaled, c, step, scales[step]));
        for (int r = 0; r < RANKS; r++)
            for (size_t i = 0; i < b->elements; i++)
                if (b->values[r][i] * scales[step] != c->values[r][i])
                    fail_msg("%s, step %d: element %zu is %g, not %g", spec, step, i, (double)c->values[r][i],
                             (double)(b->values[r][i] * scales[step]));
    }
    for (int r = 0; r < RANKS; r++) {
        tw_state *one = loopback_save(plain.scheme[r], ""), *other = loopback_save(scaled.scheme[r], "");
        for (size_t i = 0; i < tw_state_count(one); i++) {
            tw_state_entry left, right;
            assert_int_equal(tw_state_at(one, i, &left), TW_OK);
            assert_int_equal(tw_state_at(other, i, &right), TW_OK);
            if (memcmp(left.data, right.data, left.bytes)) fail_msg("%s: %s differs", spec, left.name);
        }
        tw_state_destroy(one);
        tw_state_destroy(other);
    }
    loopback_destroy(&plain);
    loopback_destroy(&scaled);
    batch_destroy(b);
    batch_destroy(c);
}

TEST(test_a_power_of_two_changes_no_bit)
{
    for (size_t s = 0; tw_scheme_at(s); s++) for_each_variant(tw_scheme_at(s), "", check_scale);
    check_scale(ops_of("dgc"), "dgc:clip=0.5");
    check_scale(ops_of("sdagc"), "sdagc:clip=0.5");
}

/* What a mean becomes when it is multiplied is looked at; what had been sent of it comes back. */
TEST(test_a_mean_that_overflows_is_skipped)
{
    loopback group;
    batch *b = batch_create(table, TENSORS);
    float before[1200], after[1200];
    create(&group, "topk:density=0.1,values=fp32");
    set_scale(&group, 0x1p-19);
    assert_false(step_scaled(&group, b, 0, 0x1p80F));
    assert_int_equal(loopback_saved(group.scheme[1], "residual/a.weight", 1200, before), TW_OK);
    set_scale(&group, 0x1p60);
    assert_true(step_scaled(&group, b, 1, 0)); /* of the residual the largest go */
    assert_int_equal(loopback_saved(group.scheme[1], "residual/a.weight", 1200, after), TW_OK);
    assert_memory_equal(before, after, sizeof before);
    set_scale(&group, 1);
    assert_false(step_scaled(&group, b, 2, 1));
    loopback_destroy(&group);
    batch_destroy(b);
}

/* The bound is on what comes, and on what it stands for where that is larger. */
TEST(test_the_bound_is_on_both)
{
    static const char *const specs[] = {"topk", "qsgd", "dgc:clip=1"};
    for (size_t s = 0; s < 3; s++) {
        loopback group;
        batch *b = batch_create(table, TENSORS);
        create(&group, specs[s]);
        set_scale(&group, 0x1p10);
        assert_true(step_scaled(&group, b, 0, 1e33F));
        set_scale(&group, 0x1p-10);
        assert_true(step_scaled(&group, b, 0, 0x1p-10F * 1e33F));
        assert_false(step_scaled(&group, b, 0, 0x1p-10F * 1e30F));
        loopback_destroy(&group);
        batch_destroy(b);
    }
}

/* ---- rates ------------------------------------------------------------------------------------------------------- */

static void set_rates(const loopback *group, const float *rates)
{
    for (int r = 0; r < RANKS; r++) assert_int_equal(tw_scheme_set_rates(group->scheme[r], rates), TW_OK);
}

static void set_rate(const loopback *group, float rate)
{
    for (int r = 0; r < RANKS; r++) assert_int_equal(tw_scheme_set_rate(group->scheme[r], rate), TW_OK);
}

/* Each group of tensors is as in a run of its own rate: tensors know nothing of each other. The runs go on from a saved
 * state in the middle, with what was told in it. */
static void check_rates(const char *spec)
{
    enum { HALF = STEPS / 2 };
    static const float low[STEPS] = {1, 1, 0.5F, 0.25F, 0.25F, 0.125F}, high[STEPS] = {8, 4, 4, 4, 2, 1};
    loopback lows, highs, both;
    batch *l = batch_create(table, TENSORS), *h = batch_create(table, TENSORS), *b = batch_create(table, TENSORS);
    create(&lows, spec);
    create(&highs, spec);
    create(&both, spec);
    for (int step = 0; step < STEPS; step++) {
        const float rates[TENSORS] = {low[step], high[step], high[step]};
        set_rate(&lows, low[step]);
        set_rate(&highs, high[step]);
        set_rates(&both, rates);
        if (step == HALF) {
            assert_int_equal(loopback_restart(&both, spec, table, TENSORS), TW_OK);
            assert_int_equal(loopback_restart(&lows, spec, table, TENSORS), TW_OK);
            assert_int_equal(loopback_restart(&highs, spec, table, TENSORS), TW_OK);
        }
        assert_false(step_scaled(&lows, l, step, 1));
        assert_false(step_scaled(&highs, h, step, 1));
        assert_false(step_scaled(&both, b, step, 1));
        assert_memory_equal(b->tensors[0][0], l->tensors[0][0], 1200 * sizeof(float));
        assert_memory_equal(b->tensors[0][1], h->tensors[0][1], 20 * sizeof(float));
        assert_memory_equal(b->tensors[0][2], h->tensors[0][2], 1500 * sizeof(float));
        if (step > 0) assert_memory_not_equal(l->tensors[0][2], h->tensors[0][2], 1500 * sizeof(float));
    }
    loopback_destroy(&lows);
    loopback_destroy(&highs);
    loopback_destroy(&both);
    batch_destroy(l);
    batch_destroy(h);
    batch_destroy(b);
}

TEST(test_each_tensor_has_its_rate)
{
    check_rates("sdagc:warmup_steps=0,density=0.05");
    check_rates("dgc:revision=rate,warmup_steps=0,density=0.05");
}

/* By hand: v was collected at rate 4 and is worth twice as much at rate 2; another tensor's rate does not matter. */
TEST(test_the_residual_follows_its_own_rate)
{
    loopback group;
    int skipped;
    float v[1500];
    batch *b = batch_create(table, TENSORS);
    create(&group, "dgc:revision=rate,warmup_steps=0,density=0.001,min_sent=1,momentum=0,values=fp32");
    set_rates(&group, (const float[TENSORS]){1, 1, 4});
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < b->elements; i++) b->values[r][i] = 3;
    assert_int_equal(loopback_step(&group, b->ranks, -1, NULL, &skipped), TW_OK);
    set_rates(&group, (const float[TENSORS]){1, 1, 2});
    for (int r = 0; r < RANKS; r++) memset(b->values[r], 0, b->elements * sizeof(float));
    assert_int_equal(loopback_step(&group, b->ranks, -1, NULL, &skipped), TW_OK);
    assert_int_equal(loopback_saved(group.scheme[2], "residual/b.weight", 1500, v), TW_OK);
    for (size_t i = 4; i < 1500; i++) assert_true(v[i] == 2); /* 3 / RANKS * 4/2; the first four were sent */
    assert_int_equal(loopback_saved(group.scheme[2], "residual/a.weight", 1200, v), TW_OK);
    for (size_t i = 4; i < 1200; i++) assert_true(v[i] == 1);
    loopback_destroy(&group);
    batch_destroy(b);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

/* As many bytes as are saved, but for what all tensors share. */
static void check_bytes(const tw_scheme_ops *ops, const char *spec)
{
    loopback group;
    uint64_t bytes = 0;
    (void)ops;
    create(&group, spec);
    tw_state *saved = loopback_save(group.scheme[1], "");
    for (size_t i = 0; i < tw_state_count(saved); i++) {
        tw_state_entry entry;
        assert_int_equal(tw_state_at(saved, i, &entry), TW_OK);
        if (strncmp(entry.name, "scheme/", 7) != 0) bytes += entry.bytes;
    }
    if (tw_scheme_state_bytes(group.scheme[1]) != bytes) fail_msg("%s saves %d bytes", spec, (int)bytes);
    tw_state_destroy(saved);
    loopback_destroy(&group);
}

TEST(test_state_has_the_bytes_that_are_saved)
{
    for (size_t s = 0; tw_scheme_at(s); s++) for_each_variant(tw_scheme_at(s), "", check_bytes);
    loopback group;
    create(&group, "topk:leftovers=fp32");
    assert_int_equal(tw_scheme_state_bytes(group.scheme[0]), 4 * (1200 + 1500));
    loopback_destroy(&group);
}

TEST(test_momentum_and_plan)
{
    loopback group;
    int nesterov = -1;
    create(&group, "dgc:momentum=0.75,nesterov=on");
    assert_true(tw_scheme_momentum(group.scheme[0], &nesterov) == 0.75F);
    assert_int_equal(nesterov, 1);
    assert_non_null(strstr(tw_scheme_plan(group.scheme[0], 2), "of 1500 elements"));
    loopback_destroy(&group);
    create(&group, "topk");
    assert_true(tw_scheme_momentum(group.scheme[0], &nesterov) == 0);
    assert_int_equal(nesterov, 0);
    assert_non_null(strstr(tw_scheme_plan(group.scheme[0], 1), "dense"));
    loopback_destroy(&group);
}

/* ---- sweeps over the list ---------------------------------------------------------------------------------------- */

static uint64_t tried;

static void note_variant(const tw_scheme_ops *ops, const char *spec)
{
    (void)ops;
    tried += tw_crc32c(0, spec, strlen(spec));
}

static void note_again(const tw_scheme_ops *ops, const char *spec)
{
    note_variant(ops, spec);
}

static uint64_t sweep(spec_check check)
{
    tried = 0;
    for (size_t s = 0; tw_scheme_at(s); s++) for_each_variant(tw_scheme_at(s), "", check);
    return tried;
}

TEST(test_sweeps_of_a_suite_try_each_variant_in_turn)
{
    const uint64_t all = sweep(note_variant);
    setenv("TEST_PART", "most", 1);
    const uint64_t first = sweep(note_again), second = sweep(note_variant), third = sweep(note_again);
    unsetenv("TEST_PART");
    assert_true(first > 0 && second > 0 && third > 0);
    assert_true(first + second + third == all);
}

RUN_TESTS(NULL, NULL)
