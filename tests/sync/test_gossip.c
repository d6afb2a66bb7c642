/* Gossip over the threads transport: no step is lost, the mean is kept, the synchronous schemes equal their formulas.
 */
#include "gossip_players.h"

#include "schedule.h"
#include "support/parts.h"

#include <math.h>
#include <thinwire/thinwire_gossip.h>

enum { STEPS = 9 };

static const char *const specs[] = {"dpsgd",
                                    "dpsgd:order=atc",
                                    "adpsgd-fixed",
                                    "adpsgd-fixed:pace=free,mixing=three",
                                    "adpsgd-random",
                                    "adpsgd-random:mixing=three",
                                    "prague",
                                    "prague:group=3,order=random,pace=free",
                                    "adpsgd-d1",
                                    "adpsgd-d1:mode=B",
                                    "adpsgd-d1:mode=C",
                                    "choco",
                                    "cold:values=log8",
                                    "adpsgd-random:survive=off",
                                    "gasloc:every=4,outer_lr=1,outer_momentum=0"};
enum { SPECS = sizeof specs / sizeof *specs };

static const char *const hosts[] = {"adpsgd-fixed:per_host=2", "adpsgd-random:per_host=3", "prague:per_host=1",
                                    "adpsgd-random:per_host=6,pace=free"};

/* ---- no step is lost --------------------------------------------------------------------------------------------- */

static float whole_step(int rank, int step, size_t i)
{
    uint32_t words[4];
    tw_random(5, (uint64_t)(rank * 64 + step), i, words);
    return (float)(words[0] % 33) - 16;
}

static tw_status walk(player *self)
{
    values steps;
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < ELEMENTS; i++) steps.at[i] = whole_step(self->rank, step, i);
        tw_status status = players_read(self);
        if (status == TW_OK) status = players_add(self, &steps);
        if (status != TW_OK) return status;
    }
    return players_finish(self);
}

static double mean_of_walks(int size, size_t i)
{
    double sum = 0;
    for (int rank = 0; rank < size; rank++)
        for (int step = 0; step < STEPS; step++) sum += whole_step(rank, step, i);
    return sum / size;
}

/* A synchronous scheme exchanges before each step and once more, or after each; others as they have time. */
static uint64_t rounds_of(const char *spec)
{
    size_t index = 0;
    while (strncmp(spec, tw_gossips_name(index), strlen(tw_gossips_name(index))) != 0) index++;
    if (!tw_gossips_is_synchronous(index)) return 0;
    if (strncmp(spec, "gasloc:every=4", 14) == 0) return STEPS / 4;
    return strstr(spec, "order=atc") || strncmp(spec, "cold", 4) == 0 ? STEPS : STEPS + 1;
}

/* Every rank begins with rank 0's weights and ends with the same: these, and the mean of all steps of all ranks. */
static void check_walk(int size, const char *spec)
{
    player players[MOST_RANKS] = {0};
    for (int rank = 0; rank < size; rank++)
        for (size_t i = 0; i < ELEMENTS; i++) players[rank].weights.at[i] = (float)i + 100 * (float)rank;
    players_run(players, size, spec, walk);
    for (int rank = 0; rank < size; rank++) {
        if (players[rank].status != TW_OK) fail_msg("%s, rank %d of %d: %s", spec, rank, size, players[rank].text);
        assert_memory_equal(players[rank].weights.at, players[0].weights.at, sizeof players[0].weights.at);
        assert_int_equal(players[rank].stats.steps, STEPS);
        assert_true(players[rank].stats.rounds > 0 || size == 1 || strstr(spec, "per_host"));
        if (rounds_of(spec) && players[rank].stats.rounds != rounds_of(spec))
            fail_msg("%s, %d ranks: %d rounds", spec, size, (int)players[rank].stats.rounds);
        assert_true(players[rank].stats.bytes_sent > 0 || size == 1);
    }
    for (size_t i = 0; i < ELEMENTS; i++) {
        double want = (double)i + mean_of_walks(size, i), got = players[0].weights.at[i];
        if (fabs(got - want) > 2e-4) fail_msg("%s, %d ranks: weight %zu is %g, not %g", spec, size, i, got, want);
    }
}

TEST(test_no_step_is_lost)
{
    for (size_t s = 0; s < SPECS; s++)
        for (int size = 1; size <= in_part(4, 9); size++) check_walk(size, specs[s]);
    for (size_t s = 0; s < SPECS; s++) check_walk(MOST_RANKS, specs[s]);
    for (size_t s = 0; s < sizeof hosts / sizeof *hosts; s++) check_walk(6, hosts[s]);
}

/* ---- the formulas ------------------------------------------------------------------------------------------------ */

static float start_weight(size_t i)
{
    return (float)(i % 13) * 0.37f - 1;
}

/* Where worker `rank` is drawn to: the gradient at w is w - target. */
static float target(int rank, size_t i)
{
    return (float)(i % 5) * 0.3f - 0.7f * (float)rank;
}

static float descent(int rank, size_t i, float weight)
{
    return -0.1f * (weight - target(rank, i));
}

static tw_status descend(player *self)
{
    values steps;
    for (int step = 0; step < STEPS; step++) {
        tw_status status = players_read(self);
        if (status != TW_OK) return status;
        for (size_t i = 0; i < ELEMENTS; i++) steps.at[i] = descent(self->rank, i, self->weights.at[i]);
        status = players_add(self, &steps);
        if (status != TW_OK) return status;
    }
    tw_status status = players_read(self);
    return status == TW_OK ? tw_comm_barrier(self->comm) : status; /* nobody leaves while others still ask */
}

static void run_descent(player *players, int size, const char *spec)
{
    memset(players, 0, MOST_RANKS * sizeof *players);
    for (int rank = 0; rank < size; rank++)
        for (size_t i = 0; i < ELEMENTS; i++) players[rank].weights.at[i] = start_weight(i);
    players_run(players, size, spec, descend);
    for (int rank = 0; rank < size; rank++)
        if (players[rank].status != TW_OK) fail_msg("%s, rank %d of %d: %s", spec, rank, size, players[rank].text);
}

/* One element of every worker, as a naive loop over steps has it. */
typedef struct line {
    float now[MOST_RANKS], before[MOST_RANKS], pending[MOST_RANKS];
    float start[MOST_RANKS], last[MOST_RANKS];
    int steps;
} line;

static float mean_of(const float *all, int size)
{
    float sum = all[0];
    for (int rank = 1; rank < size; rank++) sum += all[rank];
    return sum / (float)size;
}

static float ring_mean(const float *all, int rank, int size)
{
    float own = all[rank], left = all[(rank + size - 1) % size], right = all[(rank + 1) % size];
    if (size == 1) return own;
    if (size == 2) return own + (left - own) * 0.5f;
    return own + ((left - own) + (right - own)) * (1.0f / 3);
}

static void step_d1_a(line *all, int size, size_t i)
{
    float mean = mean_of(all->now, size);
    for (int rank = 0; rank < size; rank++) all->now[rank] = mean + descent(rank, i, all->now[rank]);
}

static void step_d1_b(line *all, int size, size_t i)
{
    float mean = mean_of(all->now, size);
    for (int rank = 0; rank < size; rank++) {
        float step = descent(rank, i, all->before[rank]);
        all->before[rank] = all->now[rank];
        all->now[rank] = mean + step;
    }
}

static void step_d1_c(line *all, int size, size_t i)
{
    float mean = mean_of(all->pending, size);
    for (int rank = 0; rank < size; rank++) {
        all->pending[rank] = descent(rank, i, all->now[rank]);
        all->now[rank] += mean;
    }
}

static void step_awc(line *all, int size, size_t i)
{
    line old = *all;
    for (int rank = 0; rank < size; rank++)
        all->now[rank] = ring_mean(old.now, rank, size) + descent(rank, i, old.now[rank]);
}

static void step_atc(line *all, int size, size_t i)
{
    line adapted;
    for (int rank = 0; rank < size; rank++) adapted.now[rank] = all->now[rank] + descent(rank, i, all->now[rank]);
    for (int rank = 0; rank < size; rank++) all->now[rank] = ring_mean(adapted.now, rank, size);
}

static int partner_of(int rank, int size, uint64_t round)
{
    tw_schedule schedule;
    int partner = rank;
    assert_int_equal(tw_schedule_create(&schedule, size, 2, 1, 7), TW_OK);
    tw_schedule_partners(&schedule, round, rank, &partner);
    tw_schedule_release(&schedule);
    return partner;
}

/* every=4, outer_lr=0.5, outer_momentum=0.25, mixing=0.75 and seed=7. */
static void step_gasloc(line *all, int size, size_t i)
{
    line y;
    for (int rank = 0; rank < size; rank++) all->now[rank] += descent(rank, i, all->now[rank]);
    if (++all->steps % 4 != 0) return;
    for (int rank = 0; rank < size; rank++) y.now[rank] = all->start[rank] + 0.5f * (all->now[rank] - all->start[rank]);
    for (int rank = 0; rank < size; rank++) {
        int partner = partner_of(rank, size, (uint64_t)all->steps / 4);
        float half = (y.now[partner] - y.now[rank]) * 0.5f, moved = y.now[rank] - all->last[rank];
        all->now[rank] = all->start[rank] = (y.now[rank] + 0.75f * half) + 0.25f * moved;
        all->last[rank] = y.now[rank];
    }
}

typedef struct formula {
    const char *spec;
    void (*step)(line *all, int size, size_t i);
    int shows_before;
} formula;

static const formula formulas[] = {
    {"adpsgd-d1", step_d1_a, 0},
    {"adpsgd-d1:mode=B", step_d1_b, 1},
    {"adpsgd-d1:mode=C", step_d1_c, 0},
    {"dpsgd", step_awc, 0},
    {"dpsgd:order=atc", step_atc, 0},
    {"gasloc:every=4,outer_lr=0.5,outer_momentum=0.25,mixing=0.75,seed=7", step_gasloc, 0}};
enum { FORMULAS = sizeof formulas / sizeof *formulas };

static void check_formula(const formula *want, const player *players, int size, int steps)
{
    for (size_t i = 0; i < ELEMENTS; i++) {
        line all = {0};
        for (int rank = 0; rank < size; rank++)
            all.now[rank] = all.before[rank] = all.start[rank] = all.last[rank] = start_weight(i);
        for (int step = 0; step < steps; step++) want->step(&all, size, i);
        for (int rank = 0; rank < size; rank++) {
            float weight = want->shows_before ? all.before[rank] : all.now[rank];
            if (memcmp(&weight, &players[rank].weights.at[i], sizeof weight) != 0)
                fail_msg("%s, rank %d of %d, weight %zu: %.9g, not %.9g", want->spec, rank, size, i,
                         players[rank].weights.at[i], weight);
        }
    }
}

TEST(test_synchronous_schemes_equal_their_formulas)
{
    for (size_t f = 0; f < FORMULAS; f++)
        for (int size = 1; size <= 5; size++) {
            player players[MOST_RANKS];
            run_descent(players, size, formulas[f].spec);
            check_formula(&formulas[f], players, size, STEPS);
        }
}

/* Whoever meets whom: the mean of the workers is what SGD with Nesterov's momentum makes of the mean of what they moved
 * by, which is DiLoCo. */
TEST(test_gasloc_moves_the_mean_as_diloco_does)
{
    for (int size = 1; size <= 6; size++) {
        player players[MOST_RANKS] = {0};
        players_run(players, size, "gasloc:every=3,mixing=0.4", walk);
        for (size_t i = 0; i < ELEMENTS; i++) {
            double mean = 0, velocity = 0;
            for (int round = 0; round < STEPS / 3; round++) {
                double moved = 0;
                for (int rank = 0; rank < size; rank++)
                    for (int step = 3 * round; step < 3 * round + 3; step++) moved += whole_step(rank, step, i) / size;
                velocity = 0.5 * velocity + moved;
                mean += 0.7 * (moved + 0.5 * velocity);
            }
            for (int rank = 0; rank < size; rank++) {
                assert_int_equal(players[rank].status, TW_OK);
                if (fabs(players[rank].weights.at[i] - mean) > 1e-4)
                    fail_msg("%d ranks: weight %zu is %g, not %g", size, i, players[rank].weights.at[i], mean);
            }
        }
    }
}

/* ---- saved and continued ----------------------------------------------------------------------------------------- */

static tw_status descend_restart_descend(player *self)
{
    tw_status status = descend(self);
    if (status == TW_OK) status = players_restart(self);
    return status == TW_OK ? descend(self) : status;
}

TEST(test_a_loaded_synchronous_gossip_continues_bit_for_bit)
{
    for (size_t f = 0; f < FORMULAS; f++) {
        player players[MOST_RANKS] = {0};
        for (int rank = 0; rank < 3; rank++)
            for (size_t i = 0; i < ELEMENTS; i++) players[rank].weights.at[i] = start_weight(i);
        players_run(players, 3, formulas[f].spec, descend_restart_descend);
        for (int rank = 0; rank < 3; rank++) assert_int_equal(players[rank].status, TW_OK);
        check_formula(&formulas[f], players, 3, 2 * STEPS);
    }
}

static tw_status load_too_late(player *self)
{
    tw_state *saved = NULL;
    tw_status status = tw_state_create(&saved), late = TW_OK, missing = TW_OK;
    if (status == TW_OK) missing = tw_gossip_load_state(self->gossip, "g/", saved);
    if (status == TW_OK) status = players_read(self);
    if (status == TW_OK) status = tw_gossip_save_state(self->gossip, "g/", saved);
    if (status == TW_OK) late = tw_gossip_load_state(self->gossip, "g/", saved);
    tw_state_destroy(saved);
    if (status == TW_OK) status = players_finish(self);
    if (status != TW_OK) return status;
    return missing == TW_ERROR_STATE && late == TW_ERROR_ORDER ? TW_OK : TW_ERROR_STATE;
}

TEST(test_state_is_loaded_first_or_refused)
{
    player players[MOST_RANKS] = {0};
    players_run(players, 2, "adpsgd-fixed", load_too_late);
    assert_int_equal(players[0].status, TW_OK);
    assert_int_equal(players[1].status, TW_OK);
}

/* A good first tensor, and a NaN in the second. */
static tw_status load_nan(player *self)
{
    tw_state *saved = NULL;
    values spoilt = {0};
    for (size_t i = 0; i < ELEMENTS; i++) spoilt.at[i] = i == ELEMENTS - 1 ? NAN : 1;
    tw_status status = tw_state_create(&saved), loaded = TW_OK;
    for (size_t t = 0; status == TW_OK && t < TENSORS; t++) {
        char name[64];
        snprintf(name, sizeof name, "g/weights/%s", table[t].name);
        status = tw_state_put(saved, name, TW_F32, table[t].dims, table[t].shape, parts_of(&spoilt)[t]);
    }
    if (status == TW_OK) loaded = tw_gossip_load_state(self->gossip, "g/", saved);
    tw_state_destroy(saved);
    if (status == TW_OK) status = players_finish(self);
    if (status != TW_OK) return status;
    return loaded == TW_ERROR_STATE ? TW_OK : TW_ERROR_STATE;
}

TEST(test_nan_is_not_loaded)
{
    player players[MOST_RANKS] = {0};
    players_run(players, 2, "adpsgd-fixed", load_nan);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(players[rank].status, TW_OK);
        for (size_t i = 0; i < ELEMENTS; i++) assert_true(players[rank].weights.at[i] == 0); /* as they were */
    }
}

/* ---- nobody waits ------------------------------------------------------------------------------------------------ */

typedef struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int passed;
} gate;

enum { ROUNDS_WITHOUT = 25 };

/* Rank 0 is in the middle of a gradient until every other rank has been through many rounds, with steps of its own. */
static tw_status one_is_slow(player *self)
{
    gate *all = self->shared;
    values steps = {0};
    tw_status status = players_read(self);
    tw_gossip_counts stats = {.struct_size = sizeof stats};
    if (self->rank > 0) {
        while (status == TW_OK && stats.rounds < ROUNDS_WITHOUT) {
            status = players_add(self, &steps);
            tw_gossip_stats(self->gossip, &stats);
        }
        pthread_mutex_lock(&all->mutex);
        all->passed++;
        pthread_cond_broadcast(&all->changed);
        pthread_mutex_unlock(&all->mutex);
    } else {
        pthread_mutex_lock(&all->mutex);
        while (all->passed < self->size - 1) pthread_cond_wait(&all->changed, &all->mutex);
        pthread_mutex_unlock(&all->mutex);
        status = players_add(self, &steps);
    }
    return status == TW_OK ? players_finish(self) : status;
}

TEST(test_a_slow_worker_stops_nobody)
{
    for (size_t s = 2; s < 8; s += (size_t)in_part(2, 1)) {
        gate all = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
        player players[MOST_RANKS] = {0};
        for (int rank = 0; rank < 5; rank++) players[rank].shared = &all;
        players_run(players, 5, specs[s], one_is_slow);
        for (int rank = 0; rank < 5; rank++) {
            assert_int_equal(players[rank].status, TW_OK);
            assert_true(players[rank].stats.rounds >= ROUNDS_WITHOUT);
            /* All leave after the same round. */
            assert_int_equal(players[rank].stats.rounds, players[0].stats.rounds);
        }
    }
}

/* Ranks come to their ends in an order that chance decides. */
static tw_status finish_sometime(player *self)
{
    values steps = {0};
    uint32_t words[4];
    tw_random(77, (uint64_t)(uintptr_t)self->shared, (uint64_t)self->rank, words);
    for (uint32_t step = 0; step < words[0] % 64; step++) {
        for (size_t i = 0; i < ELEMENTS; i++) steps.at[i] = step % 2 ? -1 : 1;
        tw_status status = players_add(self, &steps);
        if (status != TW_OK) return status;
        for (uint32_t turn = 0; turn < words[1] % 8; turn++) sched_yield();
    }
    return players_finish(self);
}

TEST(test_all_stop_after_the_same_round)
{
    for (uintptr_t trial = 0; trial < (uintptr_t)in_part(13, 40); trial++) {
        player players[MOST_RANKS] = {0};
        int size = 2 + (int)(trial * 5 % 13);
        for (int rank = 0; rank < size; rank++) players[rank].shared = (void *)(trial + 1);
        players_run(players, size, specs[2 + trial % 6], finish_sometime);
        for (int rank = 0; rank < size; rank++) {
            if (players[rank].status != TW_OK) fail_msg("rank %d of %d: %s", rank, size, players[rank].text);
            assert_int_equal(players[rank].stats.rounds, players[0].stats.rounds);
        }
    }
}

/* Without gradients the workers draw together. */
static tw_status part_and_meet(player *self)
{
    values steps = {0};
    tw_gossip_counts stats = {.struct_size = sizeof stats};
    for (size_t i = 0; i < ELEMENTS; i++) steps.at[i] = (float)self->rank;
    tw_status status = players_add(self, &steps);
    memset(&steps, 0, sizeof steps);
    while (status == TW_OK && stats.rounds < 40) {
        status = players_add(self, &steps);
        tw_gossip_stats(self->gossip, &stats);
    }
    self->stats = stats;
    if (status == TW_OK && !(stats.last_distance < 1e-3)) status = TW_ERROR_STATE;
    tw_status finished = players_finish(self);
    return status == TW_OK ? finished : status;
}

TEST(test_workers_draw_together)
{
    for (size_t s = 2; s < 8; s += (size_t)in_part(2, 1)) {
        player players[MOST_RANKS] = {0};
        players_run(players, 6, specs[s], part_and_meet);
        for (int rank = 0; rank < 6; rank++) {
            if (players[rank].status != TW_OK) fail_msg("%s: %s", specs[s], tw_status_name(players[rank].status));
            assert_float_equal(players[rank].weights.at[0], 2.5f, 1e-4);
        }
    }
}

RUN_TESTS(NULL, NULL)
