/* The reducer over the threads transport: ranks are threads, oracles are sums in rank order and hand-driven schemes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#include "memory.h"
#include "registry.h"
#include "scheme.h"
#include "support/parts.h"
#include "support/ranks.h"

enum { RANKS = 4, TENSORS = 5, STEPS = 12, ELEMENTS = 2000 + 30 + 5000 + 50 + 600 };

static const tw_tensor table[TENSORS] = {{"a.weight", 2, {40, 50}},
                                         {"a.bias", 1, {30}},
                                         {"b.weight", 2, {100, 50}},
                                         {"b.bias", 1, {50}},
                                         {"c.weight", 2, {20, 30}}};

static float draw(int step, int rank, size_t i)
{
    uint32_t words[4];
    tw_random(11, (uint64_t)(step * 64 + rank), i, words);
    return (float)words[0] / 4294967296.0f - 0.5f;
}

static size_t offset_of(size_t tensor)
{
    size_t offset = 0;
    for (size_t t = 0; t < tensor; t++) offset += tw_tensor_count(&table[t]);
    return offset;
}

/* ---- ranks as threads -------------------------------------------------------------------------------------------- */

/* What one rank does, and what it leaves behind: assertions are made on the test's own thread. */
typedef struct player {
    int rank, size, steps;
    const char *spec, *error;
    const char *next_spec; /* after the restart; NULL: the same */
    tw_comm *comm;
    int sick_step, sick_rank; /* whose gradient is not finite, and when; -1 never */
    size_t sick_tensor;
    int stop_after; /* save, destroy, make a new reducer and load after this many steps; 0 never */
    int reversed;   /* submits in table order instead of backward's */
    float weights[ELEMENTS];
    tw_status last[STEPS];
    tw_reducer_counts stats;
    tw_traffic traffic;
} player;

static tw_status exchange(player *self, tw_reducer *reducer, int step, float *gradient)
{
    for (size_t i = 0; i < ELEMENTS; i++) gradient[i] = draw(step, self->rank, i);
    if (step == self->sick_step && self->rank == self->sick_rank) gradient[offset_of(self->sick_tensor) + 3] = NAN;
    for (size_t n = 0; n < TENSORS; n++) {
        size_t t = self->reversed ? n : TENSORS - 1 - n;
        tw_status status = tw_reducer_submit(reducer, t, gradient + offset_of(t));
        if (status != TW_OK) return status;
    }
    return tw_reducer_wait(reducer);
}

static tw_status restart(player *self, tw_reducer **reducer)
{
    tw_state *state = NULL;
    tw_status status = tw_state_create(&state);
    if (status == TW_OK) status = tw_reducer_save_state(*reducer, "r/", state);
    tw_reducer_destroy(*reducer);
    *reducer = NULL;
    const char *spec = self->next_spec ? self->next_spec : self->spec;
    if (status == TW_OK) status = tw_reducer_create(self->comm, spec, table, TENSORS, reducer);
    if (status == TW_OK) status = tw_reducer_load_state(*reducer, "r/", state);
    tw_state_destroy(state);
    return status;
}

static void play_steps(player *self, tw_reducer **reducer)
{
    float *gradient = malloc(ELEMENTS * sizeof *gradient);
    for (int step = 0; step < self->steps; step++) {
        if (self->stop_after && step == self->stop_after && restart(self, reducer) != TW_OK) {
            self->error = "restart";
            break;
        }
        self->last[step] = exchange(self, *reducer, step, gradient);
        if (self->last[step] == TW_OK)
            for (size_t i = 0; i < ELEMENTS; i++) self->weights[i] -= 0.125f * gradient[i];
        else if (self->last[step] != TW_SKIPPED)
            break;
    }
    free(gradient);
}

static void play(void *players, int rank, tw_comm *comm)
{
    player *self = (player *)players + rank;
    tw_reducer *reducer = NULL;
    self->comm = comm;
    tw_status status = tw_reducer_create(self->comm, self->spec, table, TENSORS, &reducer);
    if (status == TW_OK) {
        play_steps(self, &reducer);
        self->stats.struct_size = sizeof self->stats;
        tw_reducer_stats(reducer, &self->stats);
    } else {
        self->error = tw_status_name(status);
    }
    tw_reducer_destroy(reducer);
    self->traffic.struct_size = sizeof self->traffic;
    tw_comm_traffic(self->comm, &self->traffic);
}

static player *players_create(int size, const char *spec)
{
    player *players = calloc((size_t)size, sizeof *players);
    for (int r = 0; r < size; r++)
        players[r] = (player){.rank = r, .size = size, .steps = STEPS, .spec = spec, .sick_step = -1};
    return players;
}

static void players_run(player *players)
{
    run_on_threads(players[0].size, play, players);
}

/* Runs a group with everything at its default. */
static player *run(int size, const char *spec)
{
    player *players = players_create(size, spec);
    players_run(players);
    for (int r = 0; r < size; r++) {
        assert_null(players[r].error);
        for (int s = 0; s < STEPS; s++) assert_int_equal(players[r].last[s], TW_OK);
    }
    return players;
}

/* ---- what comes out ---------------------------------------------------------------------------------------------- */

TEST(test_allreduce_is_the_sum_in_rank_order)
{
    for (int size = 1; size <= RANKS; size++) {
        player *players = run(size, "allreduce");
        float *weights = calloc(ELEMENTS, sizeof *weights), share = (float)(1.0 / size);
        for (int step = 0; step < STEPS; step++)
            for (size_t i = 0; i < ELEMENTS; i++) {
                float sum = share * draw(step, 0, i);
                for (int r = 1; r < size; r++) sum += share * draw(step, r, i);
                weights[i] -= 0.125f * sum;
            }
        for (int r = 0; r < size; r++) assert_memory_equal(players[r].weights, weights, sizeof players[r].weights);
        free(weights);
        free(players);
    }
}

/* Every scheme at its defaults, and some whose steps differ from each other. */
static void for_each_spec(void (*check)(const char *spec))
{
    static const char *const specs[] = {"dgc:density=0.01,warmup_steps=6,min_dims=2",
                                        "dgc:density=0.01,warmup_steps=8,clip=3",
                                        "topk:density=0.05,leftovers=fp16",
                                        "sign:exchange=scatter",
                                        "qsgd:exchange=scatter,feedback=on",
                                        "dgc:density=0.01,warmup_steps=6,exchange=scatter",
                                        "topk:exchange=scatter,state=bf16"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) check(specs[s]);
    for (size_t s = 0; s < tw_schemes_count(); s++) check(tw_schemes_name(s));
}

static void check_fusion(const char *plain)
{
    static const char *const fused[] = {"message_kb=1,threads=3",
                                        "message_kb=8,overlap=off",
                                        "message_kb=1,in_flight=8",
                                        "message_kb=8",
                                        "message_kb=1,in_flight=1",
                                        "message_kb=1",
                                        "overlap=off"};
    player *expected = run(RANKS, plain);
    for (int r = 1; r < RANKS; r++)
        assert_memory_equal(expected[r].weights, expected[0].weights, sizeof expected[0].weights);
    for (int f = 0; f < in_part(3, 7); f++) {
        char spec[128];
        snprintf(spec, sizeof spec, "%s%c%s", plain, strchr(plain, ':') ? ',' : ':', fused[f]);
        player *players = players_create(RANKS, spec);
        for (int r = 0; r < RANKS; r++) players[r].reversed = f % 2;
        players_run(players);
        for (int r = 0; r < RANKS; r++)
            if (memcmp(players[r].weights, expected[0].weights, sizeof expected[0].weights) != 0)
                fail_msg("%s: other bits than %s", spec, plain);
        free(players);
    }
    free(expected);
}

/* The same bits however tensors are fused and submitted, on a thread or not. */
TEST(test_fusion_order_and_overlap_do_not_matter)
{
    for_each_spec(check_fusion);
}

static void check_resume(const char *spec)
{
    player *expected = run(RANKS, spec);
    for (int stop = 1; stop < STEPS; stop += in_part(8, 4)) {
        player *players = players_create(RANKS, spec);
        for (int r = 0; r < RANKS; r++) players[r].stop_after = stop;
        players_run(players);
        for (int r = 0; r < RANKS; r++) {
            assert_null(players[r].error);
            if (memcmp(players[r].weights, expected[0].weights, sizeof expected[0].weights) != 0)
                fail_msg("%s: other bits after a restart", spec);
        }
        free(players);
    }
    free(expected);
}

TEST(test_resume_is_bit_for_bit)
{
    for_each_spec(check_resume);
}

/* A state saved with some messages loads into others: one that holds everything, one a tensor, and back. */
TEST(test_state_does_not_depend_on_messages)
{
    static const char *const specs[][2] = {
        {"dgc:density=0.01,warmup_steps=8,message_kb=1", "dgc:density=0.01,warmup_steps=8,message_kb=4096"},
        {"dgc:density=0.01,warmup_steps=8,message_kb=8,min_dims=2",
         "dgc:density=0.01,warmup_steps=8,message_kb=1,min_dims=2"},
        {"topk:density=0.01", "topk:density=0.01,message_kb=3,overlap=off"},
    };
    for (int s = 0; s < 3; s++) {
        player *expected = run(RANKS, specs[s][0]), *players = players_create(RANKS, specs[s][0]);
        for (int r = 0; r < RANKS; r++) {
            players[r].stop_after = 5;
            players[r].next_spec = specs[s][1];
        }
        players_run(players);
        for (int r = 0; r < RANKS; r++) {
            assert_null(players[r].error);
            assert_memory_equal(players[r].weights, expected[0].weights, sizeof expected[0].weights);
        }
        free(players);
        free(expected);
    }
}

/* One rank's NaN in one message skips the step on every rank, in every message. */
static void check_nonfinite(const tw_scheme_ops *ops, size_t tensor)
{
    char spec[64];
    snprintf(spec, sizeof spec, "%s:message_kb=1", ops->name);
    player *players = players_create(RANKS, spec);
    for (int r = 0; r < RANKS; r++) {
        players[r].sick_step = 4;
        players[r].sick_rank = 2;
        players[r].sick_tensor = tensor;
    }
    players_run(players);
    for (int r = 0; r < RANKS; r++) {
        for (int step = 0; step < STEPS; step++)
            assert_int_equal(players[r].last[step], step == 4 ? TW_SKIPPED : TW_OK);
        assert_int_equal(players[r].stats.steps_skipped, 1);
        assert_int_equal(players[r].stats.steps, STEPS);
        if (!players[r].stats.steps_warmup) assert_int_equal(players[r].stats.message_fp32, (STEPS - 1) * 4 * ELEMENTS);
        assert_memory_equal(players[r].weights, players[0].weights, sizeof players[0].weights);
    }
    for (size_t i = 0; i < ELEMENTS; i++) assert_true(isfinite(players[0].weights[i]));
    free(players);
}

TEST(test_nonfinite_skips_the_whole_step)
{
    const tw_scheme_ops *ops;
    for (size_t s = 0; (ops = tw_scheme_at(s)); s++)
        for (size_t tensor = 0; tensor < TENSORS; tensor += (size_t)in_part(2, 1)) check_nonfinite(ops, tensor);
}

/* A reducer of a lone worker; it is destroyed with its comm. */
static tw_reducer *open_alone(const char *spec, tw_comm **comm)
{
    tw_reducer *reducer;
    assert_ok(tw_comm_create_threads(1, comm));
    assert_ok(tw_reducer_create(*comm, spec, table, TENSORS, &reducer));
    return reducer;
}

static void close_alone(tw_reducer *reducer, tw_comm *comm)
{
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
}

/* A skipped step loses nothing of the healthy: one worker's top-k run with a bad step delivers all the good gradients.
 */
TEST(test_skipped_steps_lose_nothing)
{
    tw_comm *comm;
    tw_reducer *reducer = open_alone("topk:density=0.01,message_kb=1", &comm);
    float *gradient = malloc(ELEMENTS * sizeof *gradient);
    double total[2] = {0}, came[2] = {0};
    size_t last = offset_of(TENSORS - 1);
    for (int step = 0; step < 300; step++) {
        int sick = step == 10; /* in the last tensor: 64 elements are lost, the others and the first's are taken back */
        for (size_t i = 0; i < ELEMENTS; i++) gradient[i] = step < 20 ? rintf(draw(step, 0, i) * 64) : 0;
        for (size_t i = 0; i < 2000; i++) total[0] += gradient[i];
        for (size_t i = last + (sick ? 64 : 0); i < ELEMENTS; i++) total[1] += gradient[i];
        if (sick) gradient[last] = INFINITY;
        for (size_t t = 0; t < TENSORS; t++) tw_reducer_submit(reducer, t, gradient + offset_of(t));
        assert_int_equal(tw_reducer_wait(reducer), sick ? TW_SKIPPED : TW_OK);
        for (size_t i = 0; i < 2000 && !sick; i++) came[0] += gradient[i];
        for (size_t i = last; i < ELEMENTS && !sick; i++) came[1] += gradient[i];
    }
    assert_true(came[0] == total[0]);
    assert_true(came[1] == total[1]);
    close_alone(reducer, comm);
    free(gradient);
}

/* One step of a lone worker whose gradient has `large` as the last element of two tensors, of different messages. */
static tw_status step_with(const char *spec, float large)
{
    tw_comm *comm;
    tw_reducer *reducer = open_alone(spec, &comm);
    float *gradient = calloc(ELEMENTS, sizeof *gradient);
    gradient[offset_of(1) - 1] = gradient[ELEMENTS - 1] = large;
    for (size_t t = TENSORS; t-- > 0;) assert_ok(tw_reducer_submit(reducer, t, gradient + offset_of(t)));
    tw_status status = tw_reducer_wait(reducer);
    close_alone(reducer, comm);
    free(gradient);
    return status;
}

/* The bound is on the norm of the whole gradient, for every scheme, however the tensors are fused. */
TEST(test_a_norm_above_the_bound_skips_the_step)
{
    static const char *const messages[] = {"message_kb=1", "message_kb=4096"};
    const tw_scheme_ops *ops;
    for (size_t s = 0; (ops = tw_scheme_at(s)); s++)
        for (int m = 0; m < 2; m++) {
            char spec[64];
            snprintf(spec, sizeof spec, "%s:%s", ops->name, messages[m]);
            int is_fp16 = strcmp(ops->name, "fp16") == 0; /* which holds none of these */
            if (step_with(spec, 7e32f) != (is_fp16 ? TW_SKIPPED : TW_OK)) fail_msg("%s: 9.9e32", spec);
            if (step_with(spec, 7.1e32f) != TW_SKIPPED) fail_msg("%s: 1.004e33", spec);
            if (step_with(spec, 3e38f) != TW_SKIPPED) fail_msg("%s: 4e38", spec);
        }
}

/* ---- what is counted --------------------------------------------------------------------------------------------- */

TEST(test_bytes_are_the_transports)
{
    player *dense = run(RANKS, "allreduce"),
           *sparse = run(RANKS, "dgc:density=0.01,warmup_steps=0,message_kb=1,min_dims=2");
    uint64_t sent = 0, received = 0;
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(dense[r].stats.bytes_sent, dense[r].traffic.bytes_sent);
        assert_int_equal(sparse[r].stats.bytes_sent, sparse[r].traffic.bytes_sent);
        assert_int_equal(sparse[r].stats.bytes_received, sparse[r].traffic.bytes_received);
        assert_int_equal(dense[r].stats.bytes_dense, (uint64_t)STEPS * 2 * 3 * 4 * ELEMENTS / 4);
        sent += dense[r].traffic.bytes_sent;
        received += dense[r].traffic.bytes_received;
    }
    /* Every step moves 2 (N-1) * 4 bytes an element over all ranks. In create each tells two others 48 bytes, and
     * 24 go up a tree to rank 0 and down again. */
    assert_int_equal(sent, (uint64_t)STEPS * 2 * 3 * 4 * ELEMENTS + 4 * 2 * 48 + 3 * 2 * 24);
    assert_int_equal(received, sent);
    const tw_reducer_counts *stats = &sparse[0].stats;
    assert_int_equal(stats->elements_total, STEPS * 7600);
    assert_int_equal(stats->elements_sent, STEPS * (20 + 50 + 16));
    assert_int_equal(stats->compressed_fp32, STEPS * 4 * 7600);
    assert_int_equal(stats->message_fp32, STEPS * 4 * ELEMENTS);
    assert_int_equal(stats->message_packet, stats->compressed_packet + STEPS * 2 * 80);
    /* What went over the wire is those packets to three peers, the biases in bf16 within them, and create's. */
    uint64_t exact = 0, packets = 0, all = 0;
    for (int r = 0; r < RANKS; r++) {
        all += sparse[r].traffic.bytes_sent;
        packets += 3 * sparse[r].stats.compressed_packet;
        exact += 2 * 48;
    }
    exact += 2 * 3 * 24;
    assert_int_equal(all, packets + exact + (uint64_t)STEPS * 4 * 3 * 2 * 80);
    free(dense);
    free(sparse);
}

/* Whatever the messages hold: the first to leave has no tensor that is compressed. */
TEST(test_warmup_is_of_the_whole_step)
{
    static const char *const specs[] = {
        "dgc:warmup_steps=8,message_kb=1,dense=c.*", "sdagc:warmup_steps=8,message_kb=1,dense=c.*",
        "scalecom:warmup_steps=8,message_kb=1,dense=c.*", "powersgd:warmup_steps=8,message_kb=1,dense=c.*"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        player *players = run(2, specs[s]);
        assert_int_equal(players[0].stats.steps_warmup, 8);
        assert_int_equal(players[0].stats.message_fp32, (STEPS - 8) * 4 * ELEMENTS);
        free(players);
    }
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* A rule for a tensor that is not there is a mistake, wherever the others are; one that fits keeps tensors exact. */
TEST(test_patterns_must_match)
{
    static const struct {
        const char *spec, *says;
    } cases[] = {{"topk:dense=a.*|z*", "dense=z*: no tensor"},
                 {"topk:dense=b.wait", "b.wait"},
                 {"topk:message_kb=1,dense=c.*|b*", NULL}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        tw_comm *comm;
        tw_reducer *reducer = NULL;
        assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
        tw_status status = tw_reducer_create(comm, cases[c].spec, table, TENSORS, &reducer);
        assert_int_equal(status, cases[c].says ? TW_ERROR_SPEC : TW_OK);
        if (cases[c].says)
            assert_non_null(strstr(tw_last_error(), cases[c].says));
        else
            assert_non_null(strstr(tw_reducer_plan(reducer, 2), "dense bf16: dense="));
        close_alone(reducer, comm);
    }
}

/* A rank that leaves after some steps: the others get TW_ERROR_PEER, and nobody hangs. */
TEST(test_a_lost_peer_is_an_error)
{
    static const char *const specs[] = {"allreduce", "dgc:density=0.01", "topk:overlap=off"};
    for (int s = 0; s < 3; s++) {
        player *players = players_create(RANKS, specs[s]);
        players[1].steps = 5;
        players_run(players);
        for (int r = 0; r < RANKS; r++) {
            if (r == 1) continue;
            assert_int_equal(players[r].last[4], TW_OK);
            assert_int_equal(players[r].last[5], TW_ERROR_PEER);
        }
        free(players);
    }
}

TEST(test_order_is_checked)
{
    static float gradient[ELEMENTS];
    tw_comm *comm;
    tw_reducer *reducer = open_alone("topk", &comm);
    tw_reducer_counts stats = {0};
    assert_int_equal(tw_reducer_wait(reducer), TW_ERROR_ORDER);
    assert_int_equal(tw_reducer_submit(reducer, TENSORS, gradient), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_reducer_submit(reducer, 0, gradient), TW_OK);
    assert_int_equal(tw_reducer_submit(reducer, 0, gradient), TW_ERROR_ORDER);
    /* One buffer for all layers in turn. */
    assert_int_equal(tw_reducer_submit(reducer, 1, gradient), TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "its own memory"));
    assert_int_equal(tw_reducer_submit(reducer, 1, gradient + offset_of(1)), TW_OK);
    tw_state *saved;
    assert_int_equal(tw_state_create(&saved), TW_OK);
    assert_int_equal(tw_reducer_save_state(reducer, "", saved), TW_ERROR_ORDER);
    tw_state_destroy(saved);
    assert_int_equal(tw_reducer_stats(reducer, &stats), TW_ERROR_ARGUMENT);
    close_alone(reducer, comm);
}

/* sdagc remembers the rate that each tensor's last gradient came with. */
TEST(test_every_message_is_told_the_rate)
{
    static float gradient[ELEMENTS];
    tw_comm *comm;
    tw_reducer *reducer = open_alone("sdagc-bold:message_kb=1", &comm);
    tw_state *saved;
    assert_int_equal(tw_reducer_set_rate(reducer, 0.25f), TW_OK);
    for (size_t t = TENSORS; t-- > 0;) assert_int_equal(tw_reducer_submit(reducer, t, gradient + offset_of(t)), TW_OK);
    assert_int_equal(tw_reducer_set_rate(reducer, 0.5f), TW_ERROR_ORDER);
    assert_int_equal(tw_reducer_wait(reducer), TW_OK);
    assert_int_equal(tw_state_create(&saved), TW_OK);
    assert_int_equal(tw_reducer_save_state(reducer, "", saved), TW_OK);
    for (size_t t = 0; t < TENSORS; t++) {
        char name[64];
        float rate;
        snprintf(name, sizeof name, "rate/%s", table[t].name);
        assert_int_equal(tw_state_get(saved, name, TW_F32, 1, &rate), TW_OK);
        assert_true(rate == 0.25f);
    }
    tw_state_destroy(saved);
    close_alone(reducer, comm);
}

static float first_residual(tw_reducer *reducer, size_t tensor)
{
    static float values[5000];
    char name[64];
    tw_state *saved;
    snprintf(name, sizeof name, "residual/%s", table[tensor].name);
    assert_int_equal(tw_state_create(&saved), TW_OK);
    assert_int_equal(tw_reducer_save_state(reducer, "", saved), TW_OK);
    assert_int_equal(tw_state_get(saved, name, TW_F32, tw_tensor_count(&table[tensor]), values), TW_OK);
    tw_state_destroy(saved);
    return values[0];
}

typedef struct visited {
    const tw_state *saved;
    size_t seen, different;
} visited;

static tw_status look(void *context, const tw_remembered *entry)
{
    visited *self = context;
    tw_state_entry stored = {0};
    char name[300];
    snprintf(name, sizeof name, "v/%s/%s", entry->what, entry->tensor);
    for (size_t i = 0; i < tw_state_count(self->saved) && (!stored.name || strcmp(stored.name, name) != 0); i++)
        assert_int_equal(tw_state_at(self->saved, i, &stored), TW_OK);
    self->different += strcmp(stored.name, name) != 0 || memcmp(stored.data, entry->data, stored.bytes) != 0;
    self->seen++;
    return TW_OK;
}

/* Whatever the messages: the count of steps, which they share, is shown once. */
TEST(test_a_visit_shows_each_thing_once)
{
    static const char *const specs[] = {"dgc:message_kb=1", "dgc:message_kb=1000", "sdagc:message_kb=1", "allreduce"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        tw_comm *comm;
        tw_reducer *reducer = open_alone(specs[s], &comm);
        tw_state *saved;
        assert_int_equal(tw_state_create(&saved), TW_OK);
        assert_int_equal(tw_reducer_save_state(reducer, "v/", saved), TW_OK);
        visited all = {.saved = saved};
        assert_int_equal(tw_reducer_visit_state(reducer, look, &all), TW_OK);
        assert_int_equal(all.seen, tw_state_count(saved));
        assert_int_equal(all.different, 0);
        tw_state_destroy(saved);
        close_alone(reducer, comm);
    }
}

/* Gives what `saved` has, and has no more after `most` things. */
typedef struct giver {
    const tw_state *saved;
    size_t most, asked;
    float spoilt; /* the first value of each residual, if it is not 0 */
} giver;

static tw_status give(void *context, const tw_remembered *entry)
{
    giver *self = context;
    char name[300];
    for (size_t i = 0; i < entry->count; i++) assert_int_equal(((const uint32_t *)entry->data)[i], 0);
    if (self->asked++ == self->most) return tw_fail(TW_ERROR_IO, "there is no more");
    snprintf(name, sizeof name, "v/%s/%s", entry->what, entry->tensor);
    assert_ok(tw_state_get(self->saved, name, entry->dtype, entry->count, entry->data));
    if (self->spoilt != 0 && strcmp(entry->what, "residual") == 0) *(float *)entry->data = self->spoilt;
    return TW_OK;
}

static tw_state *all_of(tw_reducer *reducer)
{
    tw_state *saved;
    assert_ok(tw_state_create(&saved));
    assert_ok(tw_reducer_save_state(reducer, "v/", saved));
    return saved;
}

static size_t count_different(tw_reducer *reducer, const tw_state *saved)
{
    visited all = {.saved = saved};
    assert_ok(tw_reducer_visit_state(reducer, look, &all));
    return all.different;
}

static void take_one_step(tw_reducer *reducer)
{
    static float gradient[ELEMENTS];
    for (size_t i = 0; i < ELEMENTS; i++) gradient[i] = draw(0, 0, i);
    for (size_t t = TENSORS; t-- > 0;) assert_ok(tw_reducer_submit(reducer, t, gradient + offset_of(t)));
    assert_ok(tw_reducer_wait(reducer));
}

/* Each thing once, whatever the messages; what ends early or is refused changes nothing. */
TEST(test_what_is_asked_for_is_loaded)
{
    static const char *const specs[] = {"dgc:warmup_steps=0,message_kb=1", "dgc:warmup_steps=0,message_kb=1000"};
    for (size_t s = 0; s < 2; s++) {
        tw_comm *comm, *other_comm;
        tw_reducer *from = open_alone(specs[s], &comm), *to = open_alone(specs[1 - s], &other_comm);
        take_one_step(from);
        tw_state *saved = all_of(from), *before = all_of(to);
        giver spoils = {saved, SIZE_MAX, 0, NAN}, stops = {saved, 2, 0, 0}, gives = {saved, SIZE_MAX, 0, 0};
        assert_int_equal(tw_reducer_fill_state(to, give, &spoils), TW_ERROR_STATE);
        assert_int_equal(tw_reducer_fill_state(to, give, &stops), TW_ERROR_IO);
        assert_string_equal(tw_last_error(), "there is no more");
        assert_int_equal(stops.asked, 3);
        assert_int_equal(count_different(to, before), 0);
        assert_ok(tw_reducer_fill_state(to, give, &gives));
        assert_int_equal(gives.asked, tw_state_count(saved));
        assert_int_equal(count_different(to, saved), 0);
        assert_true(count_different(to, before) > 0);
        tw_state_destroy(saved);
        tw_state_destroy(before);
        close_alone(from, comm);
        close_alone(to, other_comm);
    }
}

/* What `other` remembers of moments would be lost in a reducer of fewer. */
static void refuse_moments(tw_comm *comm, tw_reducer *reducer, const char *spec, const char *what)
{
    tw_reducer *other;
    tw_state *saved;
    assert_int_equal(tw_reducer_create(comm, spec, table, TENSORS, &other), TW_OK);
    assert_int_equal(tw_state_create(&saved), TW_OK);
    assert_int_equal(tw_reducer_save_state(other, "m/", saved), TW_OK);
    assert_int_equal(tw_reducer_load_state(reducer, "m/", saved), TW_ERROR_STATE);
    assert_non_null(strstr(tw_last_error(), what));
    assert_non_null(strstr(tw_last_error(), "has no place"));
    assert_int_equal(tw_reducer_load_state(other, "m/", saved), TW_OK);
    tw_state_destroy(saved);
    tw_reducer_destroy(other);
}

/* State of another scheme, or of other tensors, is refused whole: nothing of it has been taken. */
TEST(test_foreign_state_is_refused)
{
    tw_comm *comm;
    tw_reducer *topk, *dgc;
    tw_state *saved;
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    assert_int_equal(tw_reducer_create(comm, "topk:message_kb=1", table, TENSORS, &topk), TW_OK);
    assert_int_equal(tw_reducer_create(comm, "dgc:message_kb=1", table, TENSORS, &dgc), TW_OK);
    assert_int_equal(tw_state_create(&saved), TW_OK);
    assert_int_equal(tw_reducer_save_state(topk, "x/", saved), TW_OK);
    assert_int_equal(tw_reducer_load_state(topk, "x/", saved), TW_OK);
    assert_int_equal(tw_reducer_load_state(topk, "y/", saved), TW_ERROR_STATE);
    assert_int_equal(tw_reducer_load_state(dgc, "x/", saved), TW_ERROR_STATE);
    assert_non_null(strstr(tw_last_error(), "momentum/"));
    refuse_moments(comm, topk, "dgc:message_kb=1", "momentum/");
    refuse_moments(comm, dgc, "dgc-adam:message_kb=1", "second_moment/");
    /* c.weight is in the first message, a.weight in the last: what is wrong there must keep c.weight from changing. */
    size_t right = 600, whole = 2000, wrong = 7;
    static float values[2000] = {3};
    assert_int_equal(tw_state_put(saved, "x/residual/c.weight", TW_F32, 1, &right, values), TW_OK);
    assert_int_equal(tw_reducer_load_state(topk, "x/", saved), TW_OK);
    assert_true(first_residual(topk, 4) == 3);
    values[0] = 4;
    values[1999] = NAN;
    assert_int_equal(tw_state_put(saved, "x/residual/c.weight", TW_F32, 1, &right, values), TW_OK);
    assert_int_equal(tw_state_put(saved, "x/residual/a.weight", TW_F32, 1, &wrong, values), TW_OK);
    assert_int_equal(tw_reducer_load_state(topk, "x/", saved), TW_ERROR_STATE);
    assert_non_null(strstr(tw_last_error(), "residual/a.weight"));
    assert_true(first_residual(topk, 4) == 3);
    assert_int_equal(tw_state_put(saved, "x/residual/a.weight", TW_F32, 1, &whole, values), TW_OK);
    assert_int_equal(tw_reducer_load_state(topk, "x/", saved), TW_ERROR_STATE);
    assert_non_null(strstr(tw_last_error(), "residual/a.weight"));
    assert_true(first_residual(topk, 4) == 3);
    tw_state_destroy(saved);
    tw_reducer_destroy(topk);
    tw_reducer_destroy(dgc);
    tw_comm_destroy(comm);
}

TEST(test_no_memory_is_a_status)
{
    tw_comm *comm;
    tw_reducer *reducer = NULL;
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    for (long n = 1;; n++) {
        tw_fail_allocation(n);
        tw_status status = tw_reducer_create(comm, "dgc:message_kb=1", table, TENSORS, &reducer);
        tw_fail_allocation(0);
        if (status == TW_OK) break;
        assert_int_equal(status, TW_ERROR_MEMORY);
    }
    close_alone(reducer, comm);
}

RUN_TESTS(NULL, NULL)
