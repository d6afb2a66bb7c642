/* What a caller may say of a gradient, and how long he may wait: absent tensors, other types, gradients that are not
 * there yet, waits that end early; over threads and in a world. Oracles are the same step with plain gradients,
 * converted by hand, and schemes driven by hand. */
#include <math.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#include "compress/loopback.h"
#include "half.h"
#include "memory.h"
#include "reducer.h"
#include "support/ranks.h"

enum { MOST_RANKS = 6, TENSORS = 4, STEPS = 6, LARGEST = 60 * 50, ELEMENTS = 3000 + 40 + 64 * 40 + 800 };

static const tw_tensor table[TENSORS] = {{.name = "a.weight", .dims = 2, .shape = {60, 50}},
                                         {.name = "a.bias", .dims = 1, .shape = {40}},
                                         {.name = "b.weight", .dims = 2, .shape = {64, 40}},
                                         {.name = "c.weight", .dims = 2, .shape = {20, 40}}};

static size_t offset_of(size_t tensor)
{
    size_t offset = 0;
    for (size_t t = 0; t < tensor; t++) offset += tw_tensor_count(&table[t]);
    return offset;
}

static float draw(int step, int rank, size_t i)
{
    uint32_t words[4];
    tw_random(3, (uint64_t)(step * 64 + rank), i, words);
    return (float)words[0] / 4294967296.0F - 0.5F;
}

/* ---- ranks in a group -------------------------------------------------------------------------------------------- */

/* How all ranks take their steps, and what they leave behind; assertions are made on the test's own thread. */
typedef struct program {
    const char *spec;
    int ranks;
    int absent;      /* some tensors are, here and there, and once one is everywhere */
    int typed;       /* 1: gradients come in types that differ from tensor to tensor and rank to rank; 2: as floats, but
                        rounded to these types */
    int asked;       /* gradients are there when they were asked for so often */
    int sound;       /* ranks say that they have looked at theirs */
    double scale;    /* that gradients come with in odd steps, twice that in even ones; 0: none */
    int rates;       /* 1: one a tensor; 2: one for all */
    double patience; /* seconds of a single wait; 0: no end */
    float *means[MOST_RANKS][STEPS];
    tw_state *state[MOST_RANKS];
    uint64_t bytes[MOST_RANKS];
    tw_status status[MOST_RANKS];
    int is_wrong[MOST_RANKS]; /* a callback was asked again, or a buffer was touched early */
} program;

typedef struct player {
    program *all;
    tw_comm *comm;
    int rank, step;
} player;

/* A tensor as the caller keeps it. */
typedef struct kept {
    unsigned char data[LARGEST * sizeof(double)];
    tw_dtype dtype;
    player *of;
    size_t tensor;
    int asked;
} kept;

static int is_absent(const program *all, int rank, int step, size_t tensor)
{
    if (!all->absent) return 0;
    return (step == 2 && tensor == 0) || draw(step + 100, rank, tensor) < 0;
}

static tw_dtype dtype_of(const program *all, int rank, int step, size_t tensor)
{
    static const tw_dtype dtypes[] = {TW_F32, TW_F16, TW_BF16, TW_F64};
    return all->typed ? dtypes[((size_t)rank + tensor + (size_t)step) % 4] : TW_F32;
}

static void put(tw_dtype dtype, void *data, size_t i, double value)
{
    if (dtype == TW_F64) ((double *)data)[i] = value;
    if (dtype == TW_F32) ((float *)data)[i] = (float)value;
    if (dtype == TW_F16) ((uint16_t *)data)[i] = tw_to_fp16((float)value);
    if (dtype == TW_BF16) ((uint16_t *)data)[i] = tw_to_bf16((float)value);
}

static double get(tw_dtype dtype, const void *data, size_t i)
{
    if (dtype == TW_F64) return ((const double *)data)[i];
    if (dtype == TW_F32) return (double)((const float *)data)[i];
    return (double)(dtype == TW_F16 ? tw_from_fp16 : tw_from_bf16)(((const uint16_t *)data)[i]);
}

static float as_float(tw_dtype dtype, float value)
{
    double one = 0;
    put(dtype, &one, 0, (double)value);
    return (float)get(dtype, &one, 0);
}

static double scale_in(const program *all, int step)
{
    if (all->scale == 0) return 1;
    return step % 2 ? all->scale : 2 * all->scale;
}

/* A double has more digits than the float it becomes. */
static void fill(kept *tensor)
{
    const player *me = tensor->of;
    size_t offset = offset_of(tensor->tensor), count = tw_tensor_count(&table[tensor->tensor]);
    tw_dtype wanted = dtype_of(me->all, me->rank, me->step, tensor->tensor);
    for (size_t i = 0; i < count; i++) {
        float value = draw(me->step, me->rank, offset + i);
        double exact = wanted == TW_F64 ? (double)value * (1 + 0x1p-30) : (double)as_float(wanted, value);
        put(tensor->dtype, tensor->data, i, exact * scale_in(me->all, me->step));
    }
}

static int is_ready(void *context)
{
    kept *tensor = context;
    int most = tensor->of->all->asked;
    if (++tensor->asked < most) return 0;
    if (tensor->asked > most) tensor->of->all->is_wrong[tensor->of->rank] = 1;
    fill(tensor);
    return 1;
}

static tw_status submit(player *me, tw_reducer *reducer, kept *tensors)
{
    for (size_t t = TENSORS; t-- > 0;) {
        kept *tensor = &tensors[t];
        *tensor = (kept){
            .dtype = me->all->typed == 1 ? dtype_of(me->all, me->rank, me->step, t) : TW_F32, .of = me, .tensor = t};
        tw_gradient gradient = {.struct_size = sizeof gradient,
                                .data = tensor->data,
                                .dtype = tensor->dtype,
                                .absent = is_absent(me->all, me->rank, me->step, t)};
        for (size_t i = 0; i < tw_tensor_count(&table[t]); i++) put(tensor->dtype, tensor->data, i, (double)NAN);
        if (me->all->asked && !gradient.absent) {
            gradient.ready = is_ready;
            gradient.context = tensor;
        } else if (!gradient.absent) {
            fill(tensor);
        }
        tw_status status = (me->all->sound ? tw_reducer_submit_sound : tw_reducer_submit_with)(reducer, t, &gradient);
        if (status != TW_OK) return status;
    }
    return TW_OK;
}

static tw_status wait(const program *all, tw_reducer *reducer)
{
    int done = 0;
    tw_status status = TW_OK;
    if (all->patience == 0) return tw_reducer_wait(reducer);
    while (status == TW_OK && !done) status = tw_reducer_wait_for(reducer, all->patience, &done);
    return status;
}

static tw_status tell(const player *me, tw_reducer *reducer)
{
    const program *all = me->all;
    const float slow = 1 / (float)(1 + me->step), rates[TENSORS] = {slow, 1, slow, 2};
    if (all->scale != 0) {
        tw_status status = tw_reducer_set_gradient_scale(reducer, scale_in(all, me->step));
        if (status != TW_OK) return status;
    }
    if (all->rates == 2) return tw_reducer_set_rate(reducer, slow);
    return all->rates ? tw_reducer_set_rates(reducer, rates) : TW_OK;
}

static tw_status play_step(player *me, tw_reducer *reducer, kept *tensors)
{
    tw_status status = tell(me, reducer);
    if (status == TW_OK) status = submit(me, reducer, tensors);
    if (status == TW_OK) status = wait(me->all, reducer);
    float *means = me->all->means[me->rank][me->step] = malloc(ELEMENTS * sizeof *means);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < tw_tensor_count(&table[t]); i++)
            *means++ = (float)(get(tensors[t].dtype, tensors[t].data, i) / scale_in(me->all, me->step));
    return status;
}

static void play(void *context, int rank, tw_comm *comm)
{
    player me = {.all = context, .comm = comm, .rank = rank};
    tw_reducer *reducer = NULL;
    kept *tensors = malloc(TENSORS * sizeof *tensors);
    tw_status status = tw_reducer_create(comm, me.all->spec, table, TENSORS, &reducer);
    for (; status == TW_OK && me.step < STEPS; me.step++) status = play_step(&me, reducer, tensors);
    if (status == TW_OK) status = tw_state_create(&me.all->state[rank]);
    if (status == TW_OK) status = tw_reducer_save_state(reducer, "", me.all->state[rank]);
    if (status == TW_OK) me.all->bytes[rank] = tw_reducer_state_bytes(reducer);
    me.all->status[rank] = status;
    tw_reducer_destroy(reducer);
    free(tensors);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static void run_world(int ranks, tw_world_worker play_rank, void *context)
{
    run_in_world((tw_world_options){.workers = ranks, .bandwidth = 1e8}, play_rank, context);
}

static program *play_program(program settings, int in_world)
{
    program *all = malloc(sizeof *all);
    *all = settings;
    (in_world ? run_world : run_on_threads)(all->ranks, play, all);
    for (int r = 0; r < all->ranks; r++) {
        if (all->status[r] != TW_OK) fail_msg("%s: %s", all->spec, tw_status_name(all->status[r]));
        assert_false(all->is_wrong[r]);
    }
    return all;
}

static void end(program *all)
{
    for (int r = 0; r < all->ranks; r++) {
        for (int s = 0; s < STEPS; s++) free(all->means[r][s]);
        tw_state_destroy(all->state[r]);
    }
    free(all);
}

static void compare_states(const program *a, const program *b)
{
    for (int r = 0; r < a->ranks; r++) {
        assert_int_equal(tw_state_count(a->state[r]), tw_state_count(b->state[r]));
        for (size_t i = 0; i < tw_state_count(a->state[r]); i++) {
            tw_state_entry left, right;
            unsigned char *data;
            assert_int_equal(tw_state_at(a->state[r], i, &left), TW_OK);
            data = malloc(left.bytes);
            assert_int_equal(tw_state_get(b->state[r], left.name, left.dtype, left.shape[0], data), TW_OK);
            right = (tw_state_entry){.data = data};
            if (memcmp(left.data, right.data, left.bytes)) fail_msg("%s, %s: %s differs", a->spec, b->spec, left.name);
            free(data);
        }
    }
}

static void compare_means(const program *a, const program *b)
{
    for (int r = 0; r < a->ranks; r++)
        for (int s = 0; s < STEPS; s++)
            for (size_t i = 0; i < ELEMENTS; i++)
                if (a->means[r][s][i] != b->means[r][s][i])
                    fail_msg("%s, %s: rank %d, step %d, element %zu: %g and %g", a->spec, b->spec, r, s, i,
                             (double)a->means[r][s][i], (double)b->means[r][s][i]);
}

static void check_same(program settings, int in_world, const program *expected)
{
    program *all = play_program(settings, in_world);
    compare_means(expected, all);
    compare_states(expected, all);
    end(all);
}

/* However messages are cut, taken and waited for. */
static void check_all_ways(program settings, const char *const ways[], size_t count, const program *expected)
{
    for (size_t w = 0; w < count; w++) {
        char spec[200];
        snprintf(spec, sizeof spec, "%s%c%s", settings.spec, strchr(settings.spec, ':') ? ',' : ':', ways[w]);
        program other = settings;
        other.spec = spec;
        check_same(other, 0, expected);
        if (w == 0) check_same(other, 1, expected);
    }
}

static const char *const ways[] = {"message_kb=1,in_flight=3,threads=2", "message_kb=1,overlap=off", "message_kb=11"};
static const char *const hosts[] = {"message_kb=1,in_flight=3,threads=2", "message_kb=1,overlap=off"};

/* ---- absent tensors ---------------------------------------------------------------------------------------------- */

/* The same with schemes by hand, all tensors in one message. */
static void compare_with_schemes(const program *all)
{
    loopback group;
    float *values = malloc(MOST_RANKS * ELEMENTS * sizeof *values), *tensor[MOST_RANKS][TENSORS], **rank[MOST_RANKS];
    unsigned char absent[MOST_RANKS][TENSORS];
    assert_int_equal(loopback_create(&group, all->spec, table, TENSORS, all->ranks), TW_OK);
    for (int s = 0; s < STEPS; s++) {
        int skipped;
        for (int r = 0; r < all->ranks; r++) {
            for (size_t t = 0; t < TENSORS; t++) {
                tensor[r][t] = values + (size_t)r * ELEMENTS + offset_of(t);
                absent[r][t] = (unsigned char)is_absent(all, r, s, t);
            }
            for (size_t i = 0; i < ELEMENTS; i++) values[(size_t)r * ELEMENTS + i] = draw(s, r, i);
            rank[r] = tensor[r];
            group.absent[r] = absent[r];
        }
        assert_int_equal(loopback_step(&group, rank, -1, NULL, &skipped), TW_OK);
        assert_memory_equal(values, all->means[all->ranks - 1][s], ELEMENTS * sizeof *values);
    }
    loopback_destroy(&group);
    free(values);
}

TEST(test_absent_tensors)
{
    static const char *const specs[] = {"allreduce",
                                        "topk",
                                        "dgc:dense=a.bias|c.weight,warmup_steps=3",
                                        "sdagc",
                                        "scalecom",
                                        "randomk",
                                        "powersgd:warmup_steps=3",
                                        "sign",
                                        "qsgd:feedback=on",
                                        "bf16:feedback=on",
                                        "adacomp"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (int ranks = 3; ranks <= 6; ranks += 3) {
            program settings = {.spec = specs[s], .ranks = ranks, .absent = 1};
            program *plain = play_program(settings, 0);
            compare_with_schemes(plain);
            check_all_ways(settings, ways, 3, plain);
            end(plain);
        }
}

/* A host's tensor is absent when it is for all its members, and its mean is of those that have it. By hand: hosts are
 * the ranks of a scheme that is given these means. */
TEST(test_absent_tensors_of_hosts)
{
    static const char *const specs[] = {"allreduce", "dgc:dense=a.bias", "powersgd:warmup_steps=3", "sign",
                                        "dgc:clip=1"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        char spec[200];
        snprintf(spec, sizeof spec, "%s%cper_host=2", specs[s], strchr(specs[s], ':') ? ',' : ':');
        program settings = {.spec = spec, .ranks = 6, .absent = 1};
        program *all = play_program(settings, 0);
        loopback group;
        float *values = malloc(3 * ELEMENTS * sizeof *values), *tensor[3][TENSORS], **rank[3];
        unsigned char absent[3][TENSORS];
        int skipped, lonely = 0, nobody = 0;
        assert_int_equal(loopback_create(&group, specs[s], table, TENSORS, 3), TW_OK);
        for (int step = 0; step < STEPS; step++) {
            for (int h = 0; h < 3; h++) {
                for (size_t t = 0; t < TENSORS; t++) {
                    int first = is_absent(all, 2 * h, step, t), second = is_absent(all, 2 * h + 1, step, t);
                    float *at = tensor[h][t] = values + (size_t)h * ELEMENTS + offset_of(t);
                    absent[h][t] = first && second;
                    lonely += first != second;
                    nobody += first && second;
                    for (size_t i = 0, o = offset_of(t); i < tw_tensor_count(&table[t]); i++)
                        at[i] = (first ? 0 : draw(step, 2 * h, o + i) * 0.5F) +
                                (second ? 0 : draw(step, 2 * h + 1, o + i) * 0.5F);
                }
                rank[h] = tensor[h];
                group.absent[h] = absent[h];
            }
            assert_int_equal(loopback_step(&group, rank, -1, NULL, &skipped), TW_OK);
            for (int r = 0; r < 6; r++)
                for (size_t i = 0; i < ELEMENTS; i++) assert_true(all->means[r][step][i] == values[i]);
        }
        assert_true(lonely > 3 && nobody > 3);
        check_all_ways(settings, hosts, 2, all);
        loopback_destroy(&group);
        free(values);
        end(all);
    }
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

/* What comes out is the plain run's mean, rounded to each rank's type. */
static void check_types(const char *spec, int absent)
{
    program settings = {.spec = spec, .ranks = 4, .typed = 2, .absent = absent};
    program *plain = play_program(settings, 0);
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < STEPS; s++)
            for (size_t t = 0; t < TENSORS; t++)
                for (size_t i = offset_of(t); i < offset_of(t) + tw_tensor_count(&table[t]); i++)
                    plain->means[r][s][i] = as_float(dtype_of(plain, r, s, t), plain->means[r][s][i]);
    settings.typed = 1;
    settings.patience = 1e300; /* longer than any clock */
    check_same(settings, 0, plain);
    check_all_ways(settings, strstr(spec, "per_host") ? hosts : ways, 2, plain);
    end(plain);
}

TEST(test_types)
{
    static const char *const specs[] = {"allreduce",
                                        "topk",
                                        "dgc:clip=0.5",
                                        "qsgd",
                                        "powersgd:warmup_steps=3",
                                        "fp16",
                                        "topk:per_host=2",
                                        "allreduce:per_host=2",
                                        "dgc:clip=0.5,per_host=2"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) check_types(specs[s], s % 2 == 0);
}

static tw_status submit_one(tw_reducer *reducer, size_t index, void *data, tw_dtype dtype)
{
    const tw_gradient gradient = {.struct_size = sizeof gradient, .data = data, .dtype = dtype};
    return tw_reducer_submit_with(reducer, index, &gradient);
}

/* The place for floats is made once. Where there is none, nothing was submitted, and the step can go on without. */
TEST(test_types_take_memory_once)
{
    static double doubles[LARGEST];
    static float floats[ELEMENTS];
    tw_comm *comm;
    tw_reducer *reducer;
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    assert_int_equal(tw_reducer_create(comm, "topk:message_kb=1,overlap=off", table, TENSORS, &reducer), TW_OK);
    tw_fail_allocation(1);
    assert_int_equal(submit_one(reducer, 0, doubles, TW_F64), TW_ERROR_MEMORY);
    tw_fail_allocation(0);
    assert_int_equal(submit_one(reducer, 0, floats, TW_F32), TW_OK);
    for (int step = 0; step < 3; step++) {
        for (size_t t = 1; t < TENSORS; t++)
            assert_int_equal(submit_one(reducer, t, floats + offset_of(t), TW_F32), TW_OK);
        int done = 0;
        assert_int_equal(tw_reducer_wait_for(reducer, 1e300, &done), TW_OK);
        assert_int_equal(done, 1);
        if (step == 1) tw_fail_allocation(1); /* no more, from here on */
        assert_int_equal(submit_one(reducer, 0, doubles, TW_F64), TW_OK);
    }
    tw_fail_allocation(0);
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
}

/* A NaN in any type skips the step; in a tensor that is absent there is none. */
TEST(test_what_is_not_finite_in_any_type)
{
    static const tw_dtype dtypes[] = {TW_F32, TW_F16, TW_BF16, TW_F64};
    static const char *const specs[] = {"allreduce", "topk", "dgc:clip=1", "sign"};
    for (size_t s = 0; s < 4; s++)
        for (size_t d = 0; d < 4; d++) {
            static double sick[LARGEST];
            static float floats[ELEMENTS];
            tw_comm *comm;
            tw_reducer *reducer;
            assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
            assert_int_equal(tw_reducer_create(comm, specs[s], table, TENSORS, &reducer), TW_OK);
            for (int absent = 0; absent < 2; absent++) {
                tw_gradient gradient = {
                    .struct_size = sizeof gradient, .data = sick, .dtype = dtypes[d], .absent = absent};
                memset(sick, 0, sizeof sick);
                memset(floats, 0, sizeof floats);
                put(dtypes[d], sick, 77, d == 1 ? (double)INFINITY : (double)NAN);
                for (size_t t = 1; t < TENSORS; t++)
                    assert_int_equal(submit_one(reducer, t, floats + offset_of(t), TW_F32), TW_OK);
                assert_int_equal(tw_reducer_submit_with(reducer, 0, &gradient), TW_OK);
                assert_int_equal(tw_reducer_wait(reducer), absent ? TW_OK : TW_SKIPPED);
                if (absent) assert_true(get(dtypes[d], sick, 77) == 0);
            }
            tw_reducer_destroy(reducer);
            tw_comm_destroy(comm);
        }
}

/* A step of ranks whose last tensor holds NaN, though they say that they have looked. */
typedef struct trust {
    const char *spec;
    tw_status status[2];
} trust;

static void step_with_nan(void *context, int rank, tw_comm *comm)
{
    trust *all = context;
    tw_reducer *reducer = NULL;
    float *values = calloc(ELEMENTS, sizeof *values);
    tw_status status = tw_reducer_create(comm, all->spec, table, TENSORS, &reducer);
    values[ELEMENTS - 1] = NAN;
    for (size_t t = TENSORS; status == TW_OK && t-- > 0;) {
        tw_gradient gradient = {.struct_size = sizeof gradient, .data = values + offset_of(t)};
        status = tw_reducer_submit_sound(reducer, t, &gradient);
    }
    all->status[rank] = status == TW_OK ? tw_reducer_wait(reducer) : status;
    tw_reducer_destroy(reducer);
    free(values);
}

/* Who has looked is believed. What comes of the sum is looked at. */
TEST(test_what_is_sound_is_not_looked_at_again)
{
    static const struct {
        const char *spec;
        int ranks;
        tw_status status;
    } cases[] = {{"allreduce", 1, TW_OK}, {"allreduce", 2, TW_SKIPPED}, {"topk", 1, TW_SKIPPED}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        trust all = {.spec = cases[c].spec};
        run_on_threads(cases[c].ranks, step_with_nan, &all);
        for (int r = 0; r < cases[c].ranks; r++) assert_int_equal(all.status[r], cases[c].status);
    }
}

/* Whoever has looked, the means are the same: also where the norm itself is needed. */
TEST(test_what_is_sound_has_a_norm)
{
    static const char *const specs[] = {"allreduce", "powersgd", "dgc:clip=1", "dgc:clip=1,message_kb=1"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        program settings = {.spec = specs[s], .ranks = 2, .absent = 1};
        program *plain = play_program(settings, 0);
        settings.sound = 1;
        check_same(settings, 0, plain);
        end(plain);
    }
}

/* ---- gradients that are not there yet ---------------------------------------------------------------------------- */

TEST(test_gradients_are_asked_for)
{
    static const char *const specs[] = {
        "allreduce", "topk", "dgc:clip=0.5", "qsgd", "topk:per_host=2", "dgc:clip=0.5,per_host=2"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        program settings = {.spec = specs[s], .ranks = 4, .absent = 1};
        program *plain = play_program(settings, 0);
        const char *const *these = strstr(specs[s], "per_host") ? hosts : ways;
        settings.asked = 3;
        check_all_ways(settings, these, 2, plain);
        settings.patience = 1e-3;
        check_all_ways(settings, these, 2, plain);
        end(plain);
    }
}

/* What a rank met, and when; of those that wait for a gradient that never comes, or for a rank that leaves. */
typedef struct meeting {
    tw_status status[3];
    char text[3][300];
    double at[3];
    int answer;     /* of the callback of one rank */
    int sick;       /* that rank */
    int stuck;      /* 1: the gradient of the message before is not there, either */
    double seconds; /* that its wait may last; 0: as long as it takes */
    const char *spec;
} meeting;

static int give_answer(void *context)
{
    return ((meeting *)context)->answer;
}

static int never(void *context)
{
    (void)context;
    return 0;
}

static void meet(void *context, int rank, tw_comm *comm)
{
    int done;
    meeting *all = context;
    tw_reducer *reducer = NULL;
    static float values[3][ELEMENTS];
    tw_comm_set_timeout(comm, rank == all->sick ? 5 : 100);
    all->status[rank] = tw_reducer_create(comm, all->spec, table, TENSORS, &reducer);
    if (all->status[rank] != TW_OK) return;
    for (size_t t = TENSORS; t-- > 0;) {
        tw_gradient gradient = {.struct_size = sizeof gradient,
                                .data = values[rank] + offset_of(t),
                                .ready = rank == all->sick && t == 2 ? give_answer : NULL,
                                .context = context};
        if (rank == all->sick && all->stuck && t == 3) gradient.ready = never;
        all->status[rank] = tw_reducer_submit_with(reducer, t, &gradient);
    }
    if (all->status[rank] == TW_OK)
        all->status[rank] = tw_reducer_wait_for(reducer, all->seconds > 0 ? all->seconds : INFINITY, &done);
    snprintf(all->text[rank], sizeof all->text[rank], "%s", tw_last_error());
    all->at[rank] = tw_clock();
    tw_reducer_destroy(reducer);
}

/* The deadline is kept, and the others do not wait for theirs. */
TEST(test_a_gradient_that_never_comes)
{
    static const char *const specs[] = {"topk:message_kb=1", "topk:message_kb=1,overlap=off"};
    for (size_t s = 0; s < 2; s++) {
        meeting late = {.spec = specs[s], .sick = 1}, never = {.spec = specs[s], .sick = 1, .answer = -7};
        run_world(3, meet, &late);
        assert_int_equal(late.status[1], TW_ERROR_SYSTEM);
        assert_non_null(strstr(late.text[1], "not ready within 5 seconds"));
        run_world(3, meet, &never);
        assert_int_equal(never.status[1], TW_ERROR_SYSTEM);
        assert_non_null(strstr(never.text[1], "tensor 2 will never be ready"));
        assert_non_null(strstr(never.text[1], "-7"));
        for (int r = 0; r < 3; r++) {
            assert_true(late.at[r] > 4.9 && late.at[r] < 5.1);
            assert_true(never.at[r] < 0.1);
            if (r != 1) assert_int_equal(late.status[r], TW_ERROR_PEER);
            if (r != 1) assert_int_equal(never.status[r], TW_ERROR_PEER);
        }
    }
}

/* One message waits for its gradient, and the next learns that its own will not come. Nobody waits for the first any
 * more, also where one rank is alone and no comm breaks, and where the wait has an end of its own. */
TEST(test_a_gradient_that_fails_beside_one_that_is_late)
{
    for (int run = 0; run < 6; run++) {
        int ranks = 1 + run / 2;
        meeting all = {.spec = "topk:message_kb=1", .sick = ranks - 1, .stuck = 1, .answer = -7};
        all.seconds = run % 2 ? 0.1 : 0;
        run_world(ranks, meet, &all);
        assert_int_equal(all.status[all.sick], TW_ERROR_SYSTEM);
        assert_non_null(strstr(all.text[all.sick], "tensor 2 will never be ready"));
        for (int r = 0; r < ranks; r++) {
            assert_true(all.at[r] < 0.1);
            if (r != all.sick) assert_int_equal(all.status[r], TW_ERROR_PEER);
        }
    }
}

/* ---- scale and rates --------------------------------------------------------------------------------------------- */

TEST(test_scaled_gradients)
{
    static const char *const specs[] = {"allreduce", "dgc:clip=0.5",           "scalecom", "powersgd:warmup_steps=3",
                                        "sign",      "dgc:clip=0.5,per_host=2"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        program settings = {.spec = specs[s], .ranks = 4};
        program *plain = play_program(settings, 0);
        settings.scale = 2;
        check_all_ways(settings, strstr(specs[s], "per_host") ? hosts : ways, 2, plain);
        end(plain);
    }
}

/* Its gradients, which lie apart, have to be put back. */
TEST(test_scaled_gradients_of_a_rank_alone)
{
    program settings = {.spec = "allreduce", .ranks = 1, .absent = 1};
    program *plain = play_program(settings, 0);
    settings.scale = 2;
    check_same(settings, 0, plain);
    end(plain);
}

/* Tensors of one rate are as in a run in which all have it. */
TEST(test_rates_of_tensors)
{
    program settings = {.spec = "sdagc:warmup_steps=0,density=0.01", .ranks = 3, .rates = 2};
    program *slow = play_program(settings, 0);
    settings.rates = 0;
    program *fast = play_program(settings, 0);
    settings.rates = 1;
    program *both = play_program(settings, 0);
    for (int s = 0; s < STEPS; s++)
        for (size_t t = 0; t < TENSORS; t++) {
            const program *like = t % 2 ? fast : slow; /* a rate that never changes is as none */
            size_t at = offset_of(t), count = tw_tensor_count(&table[t]);
            assert_memory_equal(both->means[1][s] + at, like->means[1][s] + at, count * sizeof(float));
        }
    assert_memory_not_equal(slow->means[0][STEPS - 1], fast->means[0][STEPS - 1], 3000 * sizeof(float));
    check_all_ways(settings, ways, 3, both);
    end(slow);
    end(fast);
    end(both);
}

TEST(test_bytes_of_the_state)
{
    static const char *const specs[] = {"dgc:message_kb=1", "powersgd:warmup_steps=3,message_kb=1",
                                        "sdagc:per_host=2,message_kb=1"};
    for (size_t s = 0; s < 3; s++) {
        program *all = play_program((program){.spec = specs[s], .ranks = 4}, 0);
        for (int r = 0; r < 4; r++) {
            uint64_t bytes = 0;
            for (size_t i = 0; i < tw_state_count(all->state[r]); i++) {
                tw_state_entry entry;
                assert_int_equal(tw_state_at(all->state[r], i, &entry), TW_OK);
                if (strncmp(entry.name, "scheme/", 7) != 0) bytes += entry.bytes;
            }
            assert_int_equal(all->bytes[r], bytes);
        }
        end(all);
    }
}

/* ---- waits ------------------------------------------------------------------------------------------------------- */

typedef struct patience {
    const char *spec;
    int waits, done, early; /* of rank 0 */
    double at;
    tw_status status[2], order, unknown, too_early;
    float mean, later;
} patience;

static tw_status submit_all(tw_reducer *reducer, float *values, size_t from, size_t to)
{
    tw_status status = TW_OK;
    for (size_t t = to; status == TW_OK && t-- > from;) status = tw_reducer_submit(reducer, t, values + offset_of(t));
    return status;
}

/* Rank 1 has its gradients a second later; rank 0 looks four times a second. */
static void play_waits(void *context, int rank, tw_comm *comm)
{
    patience *all = context;
    tw_reducer *reducer = NULL;
    static float values[2][ELEMENTS];
    for (size_t i = 0; i < ELEMENTS; i++) values[rank][i] = (float)(1 + rank);
    all->status[rank] = tw_reducer_create(comm, all->spec, table, TENSORS, &reducer);
    double start = tw_clock();
    if (rank == 1) tw_world_compute(1);
    if (all->status[rank] == TW_OK) all->status[rank] = submit_all(reducer, values[rank], 1, TENSORS);
    if (rank == 0) all->order = tw_reducer_wait_for(reducer, 0, &all->done);
    if (all->status[rank] == TW_OK) all->status[rank] = submit_all(reducer, values[rank], 0, 1);
    if (rank == 1) {
        if (all->status[rank] == TW_OK) all->status[rank] = tw_reducer_wait(reducer);
    } else {
        while (all->status[rank] == TW_OK && !all->done) {
            all->status[rank] = tw_reducer_wait_for(reducer, 0.25, &all->done);
            all->waits++;
            all->early += !all->done && tw_reducer_set_rate(reducer, 1) == TW_ERROR_ORDER;
        }
        all->mean = values[0][0];
        all->at = tw_clock() - start;
    }
    tw_reducer_destroy(reducer);
}

TEST(test_a_wait_of_some_time)
{
    patience all = {.spec = "allreduce:message_kb=1"};
    run_world(2, play_waits, &all);
    assert_int_equal(all.order, TW_ERROR_ORDER);
    assert_int_equal(all.status[0], TW_OK);
    assert_int_equal(all.status[1], TW_OK);
    assert_int_equal(all.done, 1);
    assert_int_equal(all.early, all.waits - 1);
    assert_in_range(all.waits, 4, 5); /* three that were too short, or four */
    assert_true(all.mean == 1.5F && all.at >= 1 && all.at < 1.01);
}

/* Where the caller does the work, a call takes a message. */
TEST(test_a_wait_that_does_the_work)
{
    patience all = {.spec = "allreduce:message_kb=1,overlap=off"};
    run_world(2, play_waits, &all);
    assert_int_equal(all.status[0], TW_OK);
    assert_int_equal(all.done, 1);
    assert_true(all.waits >= 2 && all.waits <= TENSORS && all.mean == 1.5F);
}

/* The last tensors' mean is there while the first has not been handed over. */
static void play_tensor(void *context, int rank, tw_comm *comm)
{
    patience *all = context;
    tw_reducer *reducer = NULL;
    static float values[2][ELEMENTS];
    int done = 0, other = 7;
    for (size_t i = 0; i < ELEMENTS; i++) values[rank][i] = (float)(1 + rank);
    all->status[rank] = tw_reducer_create(comm, all->spec, table, TENSORS, &reducer);
    if (rank == 0) all->order = tw_reducer_wait_tensor(reducer, 3, 1, &done);
    if (all->status[rank] == TW_OK) all->status[rank] = submit_all(reducer, values[rank], 2, TENSORS);
    if (rank == 1) tw_world_compute(1);
    if (rank == 0) {
        while (all->status[0] == TW_OK && !done) {
            all->status[0] = tw_reducer_wait_tensor(reducer, 2, 0.25, &done);
            all->waits++;
        }
        all->mean = values[0][offset_of(2)];
        all->unknown = tw_reducer_wait_tensor(reducer, 0, INFINITY, &other);
        all->too_early = submit_all(reducer, values[0], 0, 1); /* its message lacks tensor 1 */
        if (all->too_early == TW_OK) all->too_early = tw_reducer_wait_tensor(reducer, 0, INFINITY, &all->early);
    }
    if (all->status[rank] == TW_OK) all->status[rank] = submit_all(reducer, values[rank], rank == 0, 2);
    if (all->status[rank] == TW_OK && rank == 0)
        all->status[0] = tw_reducer_wait_tensor(reducer, 0, INFINITY, &all->done);
    all->later = rank == 0 ? values[0][0] : all->later;
    if (all->status[rank] == TW_OK) all->status[rank] = tw_reducer_wait(reducer);
    tw_reducer_destroy(reducer);
}

TEST(test_a_wait_for_one_tensor)
{
    static const char *const specs[] = {"allreduce:message_kb=1", "allreduce:message_kb=1,in_flight=3,threads=2",
                                        "allreduce:message_kb=1,overlap=off"};
    for (size_t s = 0; s < 3; s++) {
        patience all = {.spec = specs[s], .early = 7};
        (s == 2 ? run_on_threads : run_world)(2, play_tensor, &all);
        assert_int_equal(all.order, TW_ERROR_ORDER);
        assert_int_equal(all.unknown, TW_ERROR_ORDER);
        assert_int_equal(all.status[0], TW_OK);
        assert_int_equal(all.status[1], TW_OK);
        assert_int_equal(all.too_early, TW_OK);
        assert_int_equal(all.early, 0);
        assert_int_equal(all.done, 1);
        assert_true(all.mean == 1.5F && all.later == 1.5F);
    }
}

/* ---- leaving ----------------------------------------------------------------------------------------------------- */

/* Ranks 0 and 1 wait; rank 2 leaves after a second. */
static void play_farewell(void *context, int rank, tw_comm *comm)
{
    meeting *all = context;
    tw_reducer *reducer = NULL;
    static float values[3][ELEMENTS];
    all->status[rank] = tw_reducer_create(comm, all->spec, table, TENSORS, &reducer);
    if (rank == 2) {
        tw_world_compute(1);
        tw_comm_leave(comm);
        tw_comm_leave(comm);
    }
    if (all->status[rank] == TW_OK) all->status[rank] = submit_all(reducer, values[rank], 0, TENSORS);
    if (all->status[rank] == TW_OK) all->status[rank] = tw_reducer_wait(reducer);
    snprintf(all->text[rank], sizeof all->text[rank], "%s", tw_last_error());
    all->at[rank] = tw_clock();
    tw_reducer_destroy(reducer);
}

TEST(test_who_leaves_keeps_nobody)
{
    meeting all = {.spec = "topk:message_kb=1"};
    run_world(3, play_farewell, &all);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(all.status[r], TW_ERROR_PEER);
        assert_true(all.at[r] >= 1 && all.at[r] < 1.1);
    }
    assert_non_null(strstr(all.text[2], "has left"));
}

/* Also where the step is over, and where nothing is under way yet. */
TEST(test_nothing_goes_on_after_a_leave)
{
    static const char *const specs[] = {"topk", "topk:overlap=off"};
    static float values[ELEMENTS];
    for (size_t s = 0; s < 2; s++)
        for (size_t submitted = 0; submitted <= TENSORS; submitted += TENSORS) {
            tw_comm *comm;
            tw_reducer *reducer;
            int done = 7;
            assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
            assert_int_equal(tw_reducer_create(comm, specs[s], table, TENSORS, &reducer), TW_OK);
            assert_int_equal(submit_all(reducer, values, 0, submitted), TW_OK);
            tw_comm_leave(comm);
            for (int times = 0; times < 2; times++) {
                assert_int_equal(tw_reducer_submit(reducer, 0, values), TW_ERROR_PEER);
                assert_non_null(strstr(tw_last_error(), "has left"));
                assert_int_equal(tw_reducer_wait_tensor(reducer, TENSORS - 1, INFINITY, &done), TW_ERROR_PEER);
                assert_int_equal(tw_reducer_wait_for(reducer, 0, &done), TW_ERROR_PEER);
            }
            assert_int_equal(done, 7);
            tw_reducer_destroy(reducer);
            tw_comm_destroy(comm);
        }
}

static void *call_back(void *argument)
{
    tw_comm_leave(argument);
    return NULL;
}

/* Rank 0's wait, for a peer that never submits or a gradient that never comes, is ended by another thread, whenever
 * that gets to it. Rank 1 meets it in its own wait. */
static void play_called_back(void *context, int rank, tw_comm *comm)
{
    meeting *all = context;
    tw_reducer *reducer = NULL;
    pthread_t other;
    static float values[2][ELEMENTS];
    all->status[rank] = tw_reducer_create(comm, all->spec, table, TENSORS, &reducer);
    if (all->status[rank] != TW_OK) return;
    if (rank == 0 && pthread_create(&other, NULL, call_back, comm) != 0) return;
    for (size_t t = TENSORS; t-- > 0 && all->status[rank] == TW_OK;) {
        tw_gradient gradient = {.struct_size = sizeof gradient, .data = values[rank] + offset_of(t)};
        if (rank == 0 && strstr(all->spec, "clip")) gradient.ready = never;
        all->status[rank] = tw_reducer_submit_with(reducer, t, &gradient);
    }
    if (rank == 1 && all->status[1] == TW_OK) all->status[1] = tw_reducer_wait(reducer);
    if (rank == 0 && all->status[0] == TW_OK) all->status[0] = tw_reducer_wait(reducer);
    if (rank == 0) pthread_join(other, NULL);
    if (rank == 0 && all->status[0] == TW_OK) all->status[0] = tw_comm_barrier(comm); /* the step had been quicker */
    tw_reducer_destroy(reducer);
}

typedef struct second_wait {
    tw_reducer *reducer;
    sem_t refused;
    tw_status first, second, tensor, status[2];
    char text[256];
} second_wait;

/* Until the other thread is out of its own wait, which looks for a moment. */
static void *wait_there(void *argument)
{
    second_wait *all = argument;
    do all->first = tw_reducer_wait(all->reducer);
    while (all->first == TW_ERROR_ORDER);
    return NULL;
}

/* Rank 1 has nothing to give before a second thread of rank 0 was refused: until then the first is in its wait. */
static void play_two_waits(void *context, int rank, tw_comm *comm)
{
    second_wait *all = context;
    static float values[2][ELEMENTS];
    tw_reducer *reducer = NULL;
    pthread_t other;
    double end = tw_clock() + 20;
    int done = 0;
    all->status[rank] = tw_reducer_create(comm, "topk", table, TENSORS, &reducer);
    if (rank == 1) sem_wait(&all->refused);
    if (all->status[rank] == TW_OK) all->status[rank] = submit_all(reducer, values[rank], 0, TENSORS);
    if (rank == 1 && all->status[1] == TW_OK) all->status[1] = tw_reducer_wait(reducer);
    if (rank == 0 && all->status[0] == TW_OK) {
        all->reducer = reducer;
        if (pthread_create(&other, NULL, wait_there, all) != 0) return;
        while (all->second == TW_OK && tw_clock() < end) all->second = tw_reducer_wait_for(reducer, 0, &done);
        snprintf(all->text, sizeof all->text, "%s", tw_last_error());
        all->tensor = tw_reducer_wait_tensor(reducer, 0, 0, &done);
    }
    if (rank == 0) sem_post(&all->refused);
    if (rank == 0 && all->reducer) pthread_join(other, NULL);
    tw_reducer_destroy(reducer);
}

TEST(test_one_thread_waits)
{
    second_wait all = {0};
    assert_int_equal(sem_init(&all.refused, 0, 0), 0);
    run_on_threads(2, play_two_waits, &all);
    assert_int_equal(all.second, TW_ERROR_ORDER);
    assert_non_null(strstr(all.text, "another thread waits"));
    assert_int_equal(all.tensor, TW_ERROR_ORDER);
    assert_int_equal(all.first, TW_OK);
    for (int rank = 0; rank < 2; rank++) assert_int_equal(all.status[rank], TW_OK);
    sem_destroy(&all.refused);
}

TEST(test_a_wait_is_called_back)
{
    static const char *const specs[] = {"topk", "dgc:clip=1", "topk:overlap=off", "dgc:clip=1,overlap=off",
                                        "topk:per_host=2"};
    for (size_t s = 0; s < 5; s++) {
        meeting all = {.spec = specs[s]};
        run_on_threads(2, play_called_back, &all);
        assert_int_equal(all.status[0], TW_ERROR_PEER);
        if (strstr(specs[s], "clip")) assert_int_equal(all.status[1], TW_ERROR_PEER);
    }
}

RUN_TESTS(NULL, NULL)
