/* What every scheme of the list must do, whatever its method. What a scheme promises beyond that is a row of the table
 * in promises.h; one without a row is held to the defaults. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress.h"
#include "kernels.h"
#include "memory.h"
#include "promises.h"
#include "support/cmocka.h"
#include "support/parts.h"

/* ---- what goes in ----------------------------------------------------------------------------------------------- */

/* Sizes that are no multiple of anything, one element in any shape, and more than one block of a selection. */
static const tw_tensor odd[] = {{"scalar", 0, {0}},      {"one", 2, {1, 1}},          {"bias", 1, {70}},
                                {"matrix", 2, {13, 11}}, {"kernel", 4, {5, 3, 3, 3}}, {"row", 1, {257}},
                                {"large", 2, {97, 101}}};
enum { ODD = sizeof odd / sizeof *odd };

static float zeros(int step, int rank, size_t i)
{
    (void)step;
    (void)rank;
    (void)i;
    return 0;
}

static float equals(int step, int rank, size_t i)
{
    (void)step;
    (void)i;
    return (float)(rank + 1);
}

static float huge(int step, int rank, size_t i)
{
    (void)step;
    return (i % 2 ? 1e30F : -1e30F) / (float)(rank + 1);
}

static float denormals(int step, int rank, size_t i)
{
    (void)step;
    return (float)(i % 100 + (size_t)rank) * 1e-42F;
}

/* One element of each tensor of `odd`, or none of the small ones. */
static float lonely(int step, int rank, size_t i)
{
    return i % 211 == 0 ? (float)(step + rank + 1) : 0;
}

/* The same in every step. */
static float constant(int step, int rank, size_t i)
{
    (void)step;
    return normal(0, rank, i);
}

static void create_group(loopback *group, const char *spec, const tw_tensor *table, size_t count, int size)
{
    tw_status status = loopback_create(group, spec, table, count, size);
    if (status != TW_OK) fail_msg("%s: %s", spec, tw_last_error());
}

/* A step, and whether it was skipped. If not: the same bits on all ranks, all of them finite. */
static int try_step(loopback *group, const char *spec, batch *b)
{
    int skipped;
    tw_status status = loopback_step(group, b->ranks, -1, NULL, &skipped);
    if (status != TW_OK) fail_msg("%s: %s: %s", spec, tw_status_name(status), tw_last_error());
    if (skipped) return 1;
    for (int r = 1; r < group->size; r++)
        if (memcmp(b->values[r], b->values[0], b->elements * sizeof(float)) != 0)
            fail_msg("%s: rank %d of %d has other bits than rank 0", spec, r, group->size);
    for (size_t i = 0; i < b->elements; i++)
        if (!isfinite(b->values[0][i])) fail_msg("%s: element %zu is %g", spec, i, (double)b->values[0][i]);
    return 0;
}

static void run_step(loopback *group, const char *spec, batch *b, int expected_skip)
{
    int skipped = try_step(group, spec, b);
    if (skipped != expected_skip) fail_msg("%s: %s", spec, skipped ? "skipped" : "not skipped");
}

/* ---- what comes out --------------------------------------------------------------------------------------------- */

/* What is not compressed and travels as fp32 is the sum in rank order. */
static void check_exact(const loopback *group, const char *spec, const batch *b, filling f)
{
    const tw_scheme *scheme = group->scheme[0];
    float share = (float)(1.0 / group->size);
    for (size_t t = 0, first = 0; t < b->tensor_count; first += scheme->tensors[t++].count) {
        if (scheme->tensors[t].compressed) continue;
        for (size_t i = first; i < first + scheme->tensors[t].count; i++) {
            float sum = share * f(0, 0, i);
            for (int r = 1; r < group->size; r++) sum += share * f(0, r, i);
            if (b->values[0][i] != sum) fail_msg("%s: %s is not the exact mean", spec, b->table[t].name);
        }
    }
}

static void check_zero(const char *spec, const batch *b)
{
    for (size_t i = 0; i < b->elements; i++)
        if (b->values[0][i] != 0) fail_msg("%s: something came of nothing", spec);
}

static void check_fillings(const tw_scheme_ops *ops, const char *spec, int size, int steps)
{
    static const filling fillings[] = {zeros, equals, huge, denormals, lonely, normal};
    batch *b = batch_create(odd, ODD);
    for (size_t f = 0; f < sizeof fillings / sizeof *fillings; f++) {
        loopback group;
        create_group(&group, spec, odd, ODD, size);
        for (int step = 0; step < steps; step++) {
            batch_fill(b, size, fillings[f], step);
            int skipped = try_step(&group, spec, b);
            if (skipped && !(promise_of(ops).overflows && fillings[f] == huge)) fail_msg("%s: skipped", spec);
            if (fillings[f] == zeros) check_zero(spec, b);
            if (step == 0 && !promise_of(ops).directs &&
                (strstr(spec, "leftovers=fp32") || strcmp(spec, "allreduce") == 0))
                check_exact(&group, spec, b, fillings[f]);
        }
        loopback_destroy(&group);
    }
    batch_destroy(b);
}

static void check_variant(const tw_scheme_ops *ops, const char *spec)
{
    check_fillings(ops, spec, 3, in_part(1, 3));
}

/* Zeros stay zero, nothing is skipped that is finite, every output is finite, and replicas never part. */
TEST(test_any_gradient_comes_out_finite_and_alike)
{
    static const int sizes[] = {1, 2, 3, 4, 8};
    const tw_scheme_ops *ops;
    for (size_t s = first_tried; (ops = tw_scheme_at(s)); s++) {
        for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++) check_fillings(ops, ops->name, sizes[z], 3);
        for_each_variant(ops, "warmup_steps=0", check_variant);
    }
}

/* ---- what arrives in the long run ------------------------------------------------------------------------------- */

static const tw_tensor few[] = {{"w", 2, {30, 40}}, {"b", 1, {40}}, {"x", 2, {15, 10}}};
enum { FEW = sizeof few / sizeof *few };

/* The average over many steps of a constant gradient comes near it: by chance where a scheme is unbiased, by its
 * residuals where it is not. */
static void check_long_run(const tw_scheme_ops *ops)
{
    enum { STEPS = 1000, RANKS = 2 };
    char spec[SPEC_LENGTH];
    loopback group;
    batch *b = batch_create(few, FEW);
    double *came = calloc(b->elements, sizeof *came), off = 0, norm = 0;
    long_run_spec(spec, ops);
    create_group(&group, spec, few, FEW, RANKS);
    for (int step = 0; step < STEPS; step++) {
        batch_fill(b, RANKS, constant, step);
        run_step(&group, spec, b, 0);
        for (size_t i = 0; i < b->elements; i++) came[i] += b->values[0][i];
    }
    for (size_t i = 0; i < b->elements; i++) {
        double mean = 0;
        for (int r = 0; r < RANKS; r++) mean += (double)constant(0, r, i) / RANKS;
        off += (came[i] / STEPS - mean) * (came[i] / STEPS - mean);
        norm += mean * mean;
    }
    if (sqrt(off / norm) > promise_of(ops).distance)
        fail_msg("%s: %g away from the mean, not %g", spec, sqrt(off / norm), promise_of(ops).distance);
    loopback_destroy(&group);
    batch_destroy(b);
    free(came);
}

TEST(test_the_mean_arrives_in_the_long_run)
{
    const tw_scheme_ops *ops;
    for (size_t s = first_tried; (ops = tw_scheme_at(s)); s++) check_long_run(ops);
}

/* Adds up what a scheme still owes, and notes of which elements it keeps account. */
typedef struct debts {
    tw_walk walk;
    double *sum;
    char *kept;
} debts;

static int is_debt(const char *kind)
{
    return strcmp(kind, "residual") == 0 || strcmp(kind, "memory") == 0 || strcmp(kind, "rounding") == 0 ||
           strcmp(kind, "section") == 0;
}

static tw_status add_debt(tw_walk *walk, const tw_remembered *entry)
{
    debts *self = (debts *)walk;
    size_t first = entry->first;
    if ((entry->dtype != TW_F32 && entry->dtype != TW_BF16) || !is_debt(entry->what)) return TW_OK;
    for (size_t t = 0; strcmp(few[t].name, entry->tensor) != 0; t++) first += tw_tensor_count(&few[t]);
    for (size_t i = 0; i < entry->count; i++) {
        self->sum[first + i] += entry_value(entry, i);
        self->kept[first + i] = 1;
    }
    return TW_OK;
}

/* Leftovers have a rule of their own: what healthy ranks had of them in a step that is skipped may be dropped. */
static void forget_leftovers(debts *owed, const tw_scheme *scheme)
{
    for (size_t t = 0, first = 0; t < FEW; first += tw_tensor_count(&few[t++]))
        if (!scheme->tensors[t].compressed) memset(owed->kept + first, 0, tw_tensor_count(&few[t]));
}

static size_t tensor_of(const tw_scheme *scheme, size_t element, size_t *within)
{
    size_t t = 0;
    for (*within = element; *within >= scheme->tensors[t].count; t++) *within -= scheme->tensors[t].count;
    return t;
}

/* Whether an element of a sick rank's gradient, in which element `ill` is not finite, goes into the residual all the
 * same: a scheme of one pass leaves out the block alone, if it is of a compressed tensor. */
static int is_taken(const tw_scheme *scheme, size_t ill, size_t element)
{
    size_t i, j, t = tensor_of(scheme, ill, &i), u = tensor_of(scheme, element, &j);
    if (!scheme->ops->one_pass || !scheme->tensors[t].compressed || !scheme->tensors[u].compressed) return 0;
    return t != u || i / TW_GROUP != j / TW_GROUP;
}

static void check_balance(const char *spec, int size, double imbalance)
{
    /* In the matrix, which a scheme of one pass looks at late; in the vector, of which most know before they begin. */
    enum { STEPS = 20 };
    static const size_t ill[STEPS] = {[6] = 7, [16] = 30 * 40 + 5};
    int sick = size - 1;
    loopback group;
    batch *b = batch_create(few, FEW);
    double *given = calloc(b->elements, sizeof *given);
    debts owed = {{add_debt, NULL}, calloc(b->elements, sizeof(double)), calloc(b->elements, 1)};
    create_group(&group, spec, few, FEW, size);
    for (int step = 0; step < STEPS; step++) {
        int taken_back = step % 5 == 4, skipped = ill[step] > 0;
        batch_fill(b, size, normal, step);
        for (int r = 0; r < size; r++)
            for (size_t i = 0; i < b->elements; i++)
                if (!skipped || r != sick || is_taken(group.scheme[0], ill[step], i))
                    given[i] += (double)b->values[r][i] / size;
        if (skipped) b->values[sick][ill[step]] = NAN;
        run_step(&group, spec, b, skipped);
        for (int r = 0; taken_back && r < size; r++) assert_int_equal(tw_scheme_revert(group.scheme[r]), TW_OK);
        for (size_t i = 0; i < b->elements && !skipped && !taken_back; i++) given[i] -= b->values[0][i];
    }
    for (int r = 0; r < size; r++) assert_int_equal(tw_scheme_walk(group.scheme[r], &owed.walk), TW_OK);
    if (size > 1) forget_leftovers(&owed, group.scheme[0]);
    for (size_t i = 0; i < b->elements; i++)
        if (owed.kept[i] && fabs(owed.sum[i] - given[i]) > imbalance)
            fail_msg("%s: %g went in that did not come out, and %g is left", spec, given[i], owed.sum[i]);
    loopback_destroy(&group);
    batch_destroy(b);
    free(given);
    free(owed.sum);
    free(owed.kept);
}

/* A rank alone, where nothing but its own rounding comes between; and three. */
static void check_balances(const tw_scheme_ops *ops, const char *spec)
{
    double imbalance = promise_of(ops).imbalance, alone = fmin(imbalance, 1e-4);
    if (ends_in(spec, promise_of(ops).drops)) return;
    check_balance(spec, 1, alone + rounding_of(spec));
    check_balance(spec, 3, imbalance + rounding_of(spec));
}

/* Every residual of a rank, and what has arrived, add up to what was given: through steps that are taken back and two
 * that are skipped, in which only the sick rank's part is lost. */
TEST(test_residuals_hold_what_has_not_arrived)
{
    const tw_scheme_ops *ops;
    for (size_t s = first_tried; (ops = tw_scheme_at(s)); s++) {
        char spec[SPEC_LENGTH], options[SPEC_LENGTH];
        long_run_spec(spec, ops);
        check_balances(ops, spec);
        const char *own = promise_of(ops).options;
        snprintf(options, sizeof options, "%s%s" LONG_RUN, own, *own ? "," : "");
        for_each_variant(ops, options, check_balances);
    }
}

/* ---- state ------------------------------------------------------------------------------------------------------ */

static int same_memory(const tw_state *left, const tw_state *right)
{
    return loopback_same_state(left, right, "scheme/steps");
}

/* Where tensor `name` begins in a batch of `odd`; *count receives its elements. */
static size_t place_of(const char *name, size_t *count)
{
    size_t first = 0, t = 0;
    while (strcmp(odd[t].name, name) != 0) first += tw_tensor_count(&odd[t++]);
    *count = tw_tensor_count(&odd[t]);
    return first;
}

/* An entry with a number an element of a compressed tensor; `name` receives the tensor's. */
static int is_per_element(const tw_scheme *scheme, const tw_state_entry *entry, const char **name)
{
    const char *slash = strchr(entry->name, '/');
    if (entry->dtype != TW_F32) return 0;
    for (size_t t = 0; t < scheme->count; t++)
        if (scheme->tensors[t].compressed && strcmp(scheme->tensors[t].name, slash + 1) == 0) {
            *name = scheme->tensors[t].name;
            return entry->bytes == 4 * scheme->tensors[t].count;
        }
    return 0;
}

static void check_part(const char *spec, const loopback *group, const tw_state *states[3], size_t ill)
{
    for (size_t e = 0; e < tw_state_count(states[1]); e++) {
        tw_state_entry before, after, healthy;
        const char *name;
        assert_int_equal(tw_state_at(states[0], e, &before), TW_OK);
        assert_int_equal(tw_state_at(states[1], e, &after), TW_OK);
        assert_int_equal(tw_state_at(states[2], e, &healthy), TW_OK);
        if (!is_per_element(group->scheme[0], &after, &name)) continue;
        size_t count, first = place_of(name, &count);
        for (size_t i = 0; i < count; i++) {
            float now = ((const float *)after.data)[i], was = ((const float *)before.data)[i];
            float would = ((const float *)healthy.data)[i];
            int taken = is_taken(group->scheme[0], ill, first + i);
            if (!(taken ? fabsf(now - would) <= 1e-5F * (1 + fabsf(would)) : now == was))
                fail_msg("%s: %s[%zu] of a sick rank is %g, after %g, and %g on a healthy one", spec, after.name, i,
                         (double)now, (double)was, (double)would);
        }
    }
}

/* What a rank of one pass keeps of a step in which it was sick is what it would keep, were it healthy and another rank
 * sick, but for the block with the sick element. */
static void check_what_is_kept(const char *spec, const loopback *group, int sick, int step, size_t ill,
                               tw_state *const before[], const tw_state *after)
{
    loopback twin;
    batch *b = batch_create(odd, ODD);
    create_group(&twin, spec, odd, ODD, group->size);
    for (int r = 0; r < group->size; r++) assert_int_equal(tw_scheme_load_state(twin.scheme[r], "", before[r]), TW_OK);
    batch_fill(b, group->size, normal, step);
    run_step(&twin, spec, b, 0);
    for (int r = 0; r < group->size; r++) assert_int_equal(tw_scheme_revert(twin.scheme[r]), TW_OK);
    tw_state *healthy = loopback_save(twin.scheme[sick], "");
    check_part(spec, group, (const tw_state *[]){before[sick], after, healthy}, ill);
    tw_state_destroy(healthy);
    loopback_destroy(&twin);
    batch_destroy(b);
}

/* NaN, infinity, or a norm that no residual could gather for long. */
static void check_sick(const tw_scheme_ops *ops, const char *spec)
{
    enum { RANKS = 3, SICK = 2 };
    static const float ills[] = {NAN, INFINITY, 3e38F};
    static const size_t places[] = {0, 5, 1 + 1 + 70, 1 + 1 + 70 + 143 + 135 + 257 + 9796};
    const int looks = ops->one_pass;
    loopback group;
    batch *b = batch_create(odd, ODD);
    create_group(&group, spec, odd, ODD, RANKS);
    for (int step = 0; step < 12; step++) {
        size_t ill = places[step / 2 % 4];
        batch_fill(b, RANKS, normal, step);
        tw_state *before[RANKS];
        for (int r = 0; r < RANKS; r++) before[r] = loopback_save(group.scheme[r], "");
        if (step % 2) b->values[SICK][ill] = ills[step % 3];
        run_step(&group, spec, b, step % 2);
        tw_state *after = loopback_save(group.scheme[SICK], "");
        if (step % 2 && looks) check_what_is_kept(spec, &group, SICK, step, ill, before, after);
        if (step % 2 && !looks && !same_memory(before[SICK], after)) fail_msg("%s: a sick rank remembers it", spec);
        for (int r = 0; r < RANKS; r++) tw_state_destroy(before[r]);
        tw_state_destroy(after);
    }
    loopback_destroy(&group);
    batch_destroy(b);
}

/* What is not finite on one rank skips the step on all and leaves that rank as it was, or takes in what is finite; the
 * next step goes on. */
TEST(test_what_is_not_finite_is_skipped)
{
    const tw_scheme_ops *ops;
    for (size_t s = first_tried; (ops = tw_scheme_at(s)); s++) {
        check_sick(ops, ops->name);
        for_each_variant(ops, "warmup_steps=0", check_sick);
    }
}

/* Saving changes nothing, and a fresh group that loads what was saved goes on bit for bit, wherever it was stopped: in
 * the midst of the warm-up, after a step that was skipped, after one that was taken back. */
static void check_state(const tw_scheme_ops *ops, const char *spec)
{
    enum { RANKS = 3, STEPS = 8 };
    loopback whole, broken;
    batch *expected = batch_create(odd, ODD), *got = batch_create(odd, ODD);
    (void)ops;
    create_group(&whole, spec, odd, ODD, RANKS);
    create_group(&broken, spec, odd, ODD, RANKS);
    for (int step = 0; step < STEPS; step++) {
        batch_fill(expected, RANKS, normal, step);
        batch_fill(got, RANKS, normal, step);
        if (step == 3) expected->values[1][80] = got->values[1][80] = NAN;
        run_step(&whole, spec, expected, step == 3);
        run_step(&broken, spec, got, step == 3);
        if (step != 3 && memcmp(got->values[0], expected->values[0], got->elements * sizeof(float)) != 0)
            fail_msg("%s: other bits in step %d after a restart", spec, step);
        for (int r = 0; step == 5 && r < RANKS; r++) {
            assert_int_equal(tw_scheme_revert(whole.scheme[r]), TW_OK);
            assert_int_equal(tw_scheme_revert(broken.scheme[r]), TW_OK);
        }
        assert_int_equal(loopback_restart(&broken, spec, odd, ODD), TW_OK);
    }
    loopback_destroy(&whole);
    loopback_destroy(&broken);
    batch_destroy(expected);
    batch_destroy(got);
}

TEST(test_a_restart_changes_no_bit)
{
    const tw_scheme_ops *ops;
    for (size_t s = first_tried; (ops = tw_scheme_at(s)); s++) {
        char spec[SPEC_LENGTH];
        make_spec(spec, ops, "warmup_steps=6");
        check_state(ops, spec);
        for_each_variant(ops, "warmup_steps=0", check_state);
    }
}

/* `saved` but for its last entry, which is of another type. */
static tw_state *spoil_last(tw_state *saved)
{
    static const int64_t other = 1;
    tw_state_entry last;
    assert_int_equal(tw_state_at(saved, tw_state_count(saved) - 1, &last), TW_OK);
    assert_int_equal(tw_state_put(saved, last.name, TW_I64, 0, NULL, &other), TW_OK);
    return saved;
}

/* A state that is refused leaves the scheme as it was, and its last step one that can be taken back. */
static void check_refusal(const tw_scheme_ops *ops, const char *spec)
{
    enum { RANKS = 3, STEPS = 6 };
    loopback whole, tried;
    batch *expected = batch_create(odd, ODD), *got = batch_create(odd, ODD);
    (void)ops;
    create_group(&whole, spec, odd, ODD, RANKS);
    create_group(&tried, spec, odd, ODD, RANKS);
    for (int step = 0; step < STEPS; step++) {
        loopback donor;
        create_group(&donor, spec, odd, ODD, RANKS);
        tw_state *bad = spoil_last(loopback_save(donor.scheme[0], ""));
        batch_fill(expected, RANKS, normal, step);
        batch_fill(got, RANKS, normal, step);
        run_step(&whole, spec, expected, 0);
        run_step(&tried, spec, got, 0);
        if (memcmp(got->values[0], expected->values[0], got->elements * sizeof(float)) != 0)
            fail_msg("%s: other bits in step %d after a load that was refused", spec, step);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(tw_scheme_load_state(tried.scheme[r], "", bad), TW_ERROR_STATE);
            if (step % 2 == 0) continue;
            if (tw_scheme_revert(tried.scheme[r]) != TW_OK) fail_msg("%s: %s", spec, tw_last_error());
            assert_int_equal(tw_scheme_revert(whole.scheme[r]), TW_OK);
        }
        tw_state_destroy(bad);
        loopback_destroy(&donor);
    }
    for (int r = 0; r < RANKS; r++) {
        tw_state *left = loopback_save(whole.scheme[r], ""), *right = loopback_save(tried.scheme[r], "");
        if (!same_memory(left, right)) fail_msg("%s: a load that was refused changed what rank %d remembers", spec, r);
        tw_state_destroy(left);
        tw_state_destroy(right);
    }
    loopback_destroy(&whole);
    loopback_destroy(&tried);
    batch_destroy(expected);
    batch_destroy(got);
}

TEST(test_a_refused_state_changes_nothing)
{
    const tw_scheme_ops *ops;
    for (size_t s = first_tried; (ops = tw_scheme_at(s)); s++) {
        check_refusal(ops, ops->name);
        if (in_part(0, 1)) for_each_variant(ops, "warmup_steps=0", check_refusal);
    }
}

/* ---- rounds that were not answered ------------------------------------------------------------------------------ */

/* Whoever forgets the packets is told, as often as he does, and goes on when they are there: here the rank's own. */
static void answer_late(tw_scheme *scheme, const char *spec, tw_round *round)
{
    int both_ways = round->kind == TW_ROUND_ALLTOALL;
    const void *packet = both_ways ? round->packets[0] : round->data, *none = NULL;
    size_t size = both_ways ? round->sizes[0] : round->size;
    int expects = round->kind == TW_ROUND_ALLGATHER || round->kind == TW_ROUND_BROADCAST || both_ways;
    const tw_round asked = *round;
    for (int way = 0; expects && way < 4 + both_ways; way++) {
        *round = asked; /* which is the fifth way, where packets go out as well */
        if (way < 4) round->packets = way == 1 ? &packet : way == 3 ? &none : NULL;
        if (way < 4) round->sizes = way >= 2 ? &size : NULL;
        if (tw_scheme_next(scheme, round) != TW_ERROR_ARGUMENT) fail_msg("%s: way %d was taken", spec, way);
    }
    *round = asked;
    round->packets = &packet; // cppcheck-suppress autoVariables
    round->sizes = &size;     // cppcheck-suppress autoVariables
    if (tw_scheme_next(scheme, round) != TW_OK) fail_msg("%s: %s", spec, tw_last_error());
    assert_null(round->packets); /* those of one round do not pass for those of the next */
    assert_null(round->sizes);
}

static void check_unanswered(const tw_scheme_ops *ops, const char *spec)
{
    tw_scheme *scheme;
    batch *b = batch_create(odd, ODD);
    (void)ops;
    assert_int_equal(tw_scheme_create(spec, odd, ODD, 0, 1, &scheme), TW_OK);
    for (int step = 0; step < 3; step++) {
        tw_round round = {0};
        batch_fill(b, 1, normal, step);
        assert_int_equal(tw_scheme_begin(scheme, b->ranks[0], -1), TW_OK);
        assert_int_equal(tw_scheme_next(scheme, &round), TW_OK);
        while (round.kind != TW_ROUND_DONE) answer_late(scheme, spec, &round);
    }
    tw_scheme_destroy(scheme);
    batch_destroy(b);
}

TEST(test_packets_that_are_not_there_are_told)
{
    const tw_scheme_ops *ops;
    for (size_t s = first_tried; (ops = tw_scheme_at(s)); s++) {
        check_unanswered(ops, ops->name);
        for_each_variant(ops, "warmup_steps=0", check_unanswered);
    }
}

/* ---- seeds ------------------------------------------------------------------------------------------------------ */

static void take_one_step(const tw_scheme_ops *ops, const char *seed, batch *b)
{
    char spec[SPEC_LENGTH];
    loopback group;
    snprintf(spec, sizeof spec, "%s:seed=%s%s", ops->name, seed, takes_option(ops, "state") ? ",state=bf16" : "");
    add_options(spec, ops, "warmup_steps=0");
    create_group(&group, spec, odd, ODD, 2);
    batch_fill(b, 2, normal, 0);
    run_step(&group, spec, b, 0);
    loopback_destroy(&group);
}

static const tw_option *seed_of(const tw_scheme_ops *ops)
{
    for (size_t i = 0; i < ops->option_count; i++)
        if (strcmp(ops->options[i].key, "seed") == 0) return &ops->options[i];
    return NULL;
}

/* The whole seed counts, up to the largest: it draws otherwise than the one before it, and than its lower 32 bits. */
TEST(test_every_digit_of_a_seed_counts)
{
    const tw_scheme_ops *ops;
    const tw_option *seed;
    batch *most = batch_create(odd, ODD), *other = batch_create(odd, ODD);
    size_t bytes = most->elements * sizeof(float);
    for (size_t s = first_tried; (ops = tw_scheme_at(s)); s++) {
        char text[32];
        if (!(seed = seed_of(ops))) continue;
        snprintf(text, sizeof text, "%.0f", seed->most);
        take_one_step(ops, text, most);
        snprintf(text, sizeof text, "%.0f", seed->most - 1);
        take_one_step(ops, text, other);
        assert_memory_not_equal(most->values[0], other->values[0], bytes);
        snprintf(text, sizeof text, "%" PRIu32, (uint32_t)(uint64_t)seed->most);
        take_one_step(ops, text, other);
        assert_int_equal(memcmp(most->values[0], other->values[0], bytes) == 0, seed->most <= UINT32_MAX);
    }
    batch_destroy(most);
    batch_destroy(other);
}

/* ---- create ----------------------------------------------------------------------------------------------------- */

static tw_status create_with_failure(const char *spec, long failing)
{
    tw_scheme *scheme = NULL;
    tw_fail_allocation(failing);
    tw_status status = tw_scheme_create(spec, odd, ODD, 0, 8, &scheme);
    tw_fail_allocation(0);
    assert_true((status == TW_OK) == (scheme != NULL));
    tw_scheme_destroy(scheme);
    return status;
}

/* Every allocation of create fails once: a status each time, and (under the address sanitizer) no leak. One whose
 * failure goes unnoticed is followed by others whose failure does not. */
TEST(test_no_memory_is_a_status)
{
    enum { BEYOND = 8 };
    for (size_t s = first_tried; s < tw_schemes_count(); s++) {
        long failing = 1;
        while (create_with_failure(tw_schemes_name(s), failing) == TW_ERROR_MEMORY) failing++;
        for (int more = 0; more < BEYOND; more++)
            assert_int_equal(create_with_failure(tw_schemes_name(s), failing + more), TW_OK);
    }
}

/* No step allocates. */
TEST(test_a_step_needs_no_memory)
{
    const tw_scheme_ops *ops;
    batch *b = batch_create(odd, ODD);
    for (size_t s = first_tried; (ops = tw_scheme_at(s)); s++) {
        loopback group;
        create_group(&group, ops->name, odd, ODD, 2);
        tw_fail_allocation(1);
        for (int step = 0; step < 3; step++) {
            batch_fill(b, 2, normal, step);
            run_step(&group, ops->name, b, 0);
        }
        tw_fail_allocation(0);
        loopback_destroy(&group);
    }
    batch_destroy(b);
}

int main(int argc, char **argv)
{
    load_tried(argc, argv);
    return cmocka_run_group_tests(all_tests, NULL, NULL);
}
