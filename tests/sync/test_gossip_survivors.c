/* Gossips that lose ranks: who is left goes on, agrees, and ends with the same bits, whatever the moment. All of it in
 * a world, so every seed's kills, silences and pauses fall at the same moments in every run. */
#include "gossip_players.h"

#include <math.h>
#include <thinwire/thinwire_gossip.h>

#include "support/parts.h"
#include "support/ranks.h"
#include "thread.h"
#include "wire.h"

static const char *const specs[] = {"adpsgd-fixed",   "adpsgd-fixed:mixing=three",   "adpsgd-random",
                                    "prague:group=3", "prague:group=4,order=random", "adpsgd-random:mixing=three"};
enum { SPECS = sizeof specs / sizeof *specs, MOST = 8 };

static uint64_t seeds(void)
{
    return (uint64_t)in_part(25, 100);
}

#define DEADLINE 1.0  /* seconds, all of them virtual */
#define CREATED 0.01  /* by this time all have their gossip: create knows of no survivors */
#define GRADIENT 0.01 /* how long one takes */
#define END 0.015     /* before the end: the last rounds, and agreeing on the mean */
#define QUIET 6.0     /* by this time whatever was lost is known, and all weights are one */

typedef struct part part;

/* What happens to one rank. */
typedef struct fate {
    double dies_at;      /* INFINITY: never */
    double silent_from;  /* all of its messages wait from here */
    double silent_until; /* to here */
} fate;

struct part {
    fate fate;
    int rank;
    tw_status status;
    double ended;
    uint64_t lost;
    values before, weights; /* after the quiet, after finish */
    char text[256];
};

typedef struct drama {
    const char *spec;
    int size, steps, conserves;
    part parts[MOST];
} drama;

/* ---- a rank's transport that falls silent ------------------------------------------------------------------------ */

static void stand_still(wire *through, int sends)
{
    const fate *own = through->context;
    double now = tw_clock();
    (void)sends;
    if (now >= own->silent_from && now < own->silent_until) tw_pause(own->silent_until - now);
}

/* ---- what a rank does -------------------------------------------------------------------------------------------- */

static void *die_in_time(void *argument)
{
    const part *me = argument;
    tw_pause(me->fate.dies_at);
    tw_world_kill();
    return NULL;
}

static float step_of(int rank, int step, size_t element)
{
    uint32_t words[4];
    tw_random((uint64_t)rank, (uint64_t)step, element, words);
    return (float)words[0] / 4294967296.0f - 0.5f;
}

static void set_step(values *steps, int rank, int step)
{
    for (size_t i = 0; i < ELEMENTS; i++) steps->at[i] = step_of(rank, step, i);
}

static tw_status walk(const drama *all, part *me, tw_gossip *gossip)
{
    tw_status status = TW_OK;
    values steps;
    for (int step = 0; status == TW_OK && step < all->steps; step++) {
        status = tw_gossip_read(gossip, parts_of(&me->weights));
        tw_world_compute(GRADIENT * (1 + 0.1 * me->rank));
        set_step(&steps, me->rank, step);
        if (status == TW_OK) status = tw_gossip_add(gossip, (const float *const *)parts_of(&steps));
    }
    if (status != TW_OK || !all->conserves) return status;
    tw_world_compute(QUIET - tw_clock());
    status = tw_gossip_read(gossip, parts_of(&me->before));
    tw_world_compute(1); /* all have read before anybody adds */
    return status == TW_OK ? tw_gossip_add(gossip, (const float *const *)parts_of(&steps)) : status;
}

static tw_status play(const drama *all, part *me, tw_gossip *gossip)
{
    tw_status status = walk(all, me, gossip);
    if (status == TW_OK) status = tw_gossip_finish(gossip, parts_of(&me->weights));
    if (status != TW_OK) snprintf(me->text, sizeof me->text, "%s", tw_last_error());
    tw_gossip_counts stats = {.struct_size = sizeof stats};
    tw_gossip_stats(gossip, &stats);
    me->lost = stats.ranks_lost;
    return status;
}

static void live(void *context, int rank, tw_comm *comm)
{
    drama *all = context;
    part *me = &all->parts[rank];
    tw_gossip *gossip = NULL;
    tw_thread killer;
    wire through = {.before = stand_still, .context = &me->fate};
    int mortal = isfinite(me->fate.dies_at);
    me->rank = rank;
    tw_comm_set_timeout(comm, DEADLINE);
    put_between(&through, comm);
    if (mortal && tw_thread_start(&killer, die_in_time, me) != TW_OK) abort();
    me->status =
        tw_gossip_create(comm, all->spec, table, TENSORS, (const float *const *)parts_of(&me->weights), &gossip);
    if (me->status == TW_OK) me->status = play(all, me, gossip);
    me->ended = tw_clock();
    tw_gossip_destroy(gossip);
    if (mortal) tw_thread_join(killer);
    take_away(&through, comm);
}

static void run_drama(drama *all)
{
    run_in_world((tw_world_options){.workers = all->size, .bandwidth = 1e5, .latency = 5e-4, .time_limit = 500}, live,
                 all);
}

/* ---- what is to be ----------------------------------------------------------------------------------------------- */

static double draw(uint64_t seed, uint64_t what)
{
    uint32_t words[4];
    tw_random(seed, 77, what, words);
    return words[0] / 4294967296.0;
}

/* The rank dies at `at`, by a cut or in silence. */
static void doom(part *victim, double at, int cut)
{
    victim->fate = (fate){cut ? at : (double)INFINITY, at, cut ? at : at + 60};
}

static void begin_drama(drama *all, uint64_t seed)
{
    *all = (drama){.spec = specs[seed % SPECS], .size = 5 + (int)(4 * draw(seed, 0)), .steps = 20};
    for (int rank = 0; rank < all->size; rank++)
        all->parts[rank].fate = (fate){(double)INFINITY, (double)INFINITY, (double)INFINITY};
}

/* One or two ranks die from the first round on, others stand still for less than the deadline. */
static void write_drama(drama *all, uint64_t seed, int conserves)
{
    begin_drama(all, seed);
    all->conserves = conserves;
    double length = 1.3 * all->steps * GRADIENT * (1 + 0.1 * all->size);
    for (int rank = 0; rank < all->size; rank++) {
        fate *one = &all->parts[rank].fate;
        if (draw(seed, 20 + (uint64_t)rank) > 0.3) continue;
        one->silent_from = CREATED + length * draw(seed, 10 + (uint64_t)rank);
        one->silent_until = one->silent_from + 0.4 * DEADLINE;
    }
    for (uint64_t i = 0; i < 1 + (draw(seed, 1) < 0.5); i++)
        doom(&all->parts[(int)(all->size * draw(seed, 30 + i))], CREATED + length * draw(seed, 40 + i),
             draw(seed, 50 + i) < 0.5);
}

static int is_victim(const part *one)
{
    return isfinite(one->fate.dies_at) || one->fate.silent_until - one->fate.silent_from > DEADLINE;
}

static int same_bits(const values *a, const values *b)
{
    return memcmp(a->at, b->at, sizeof a->at) == 0;
}

/* Who ends well, a victim too, ends with the same bits as all others that do. */
static void check_ends(const drama *all, uint64_t seed)
{
    int victims = 0;
    const part *first = NULL;
    for (int rank = 0; rank < all->size; rank++) victims += is_victim(&all->parts[rank]);
    for (int rank = 0; rank < all->size; rank++) {
        const part *one = &all->parts[rank];
        if (is_victim(one) && one->status == TW_ERROR_PEER) continue;
        if (one->status != TW_OK)
            fail_msg("seed %d, %s: rank %d of %d: %s (%s)", (int)seed, all->spec, rank, all->size,
                     tw_status_name(one->status), one->text);
        if (!first) first = one;
        if (!same_bits(&one->weights, &first->weights) || one->lost != first->lost || one->lost > (uint64_t)victims)
            fail_msg("seed %d, %s: rank %d lost %d, rank %d lost %d", (int)seed, all->spec, first->rank,
                     (int)first->lost, rank, (int)one->lost);
        if (!is_victim(one) && one->ended > 3 + (all->conserves ? QUIET : 0) + 4 * DEADLINE)
            fail_msg("seed %d, %s: rank %d ended after %g s", (int)seed, all->spec, rank, one->ended);
    }
}

TEST(test_survivors_end_alike)
{
    int losses = 0;
    for (uint64_t seed = 0; seed < seeds(); seed++) {
        drama all;
        write_drama(&all, seed, 0);
        run_drama(&all);
        check_ends(&all, seed);
        for (int rank = 0; rank < all.size; rank++) losses += all.parts[rank].status != TW_OK;
    }
    assert_true(losses > (int)seeds() / 2); /* else nothing has been tested */
}

/* The last moments of a run without a loss are run again with one or two. */
TEST(test_a_loss_at_the_very_end)
{
    for (uint64_t seed = 0; seed < seeds(); seed++) {
        drama all;
        double end = 0;
        begin_drama(&all, seed);
        run_drama(&all);
        for (int rank = 0; rank < all.size; rank++) end = fmax(end, all.parts[rank].ended);
        begin_drama(&all, seed);
        for (uint64_t i = 0; i < 1 + seed % 2; i++)
            doom(&all.parts[(int)(all.size * draw(seed, 30 + i))], end - END * draw(seed, 40 + i),
                 draw(seed, 50 + i) < 0.7);
        run_drama(&all);
        check_ends(&all, seed);
    }
}

/* All weights are one before the last steps, so the consensus is that, and the mean of the survivors' last steps. */
static void check_mean(const drama *all, uint64_t seed)
{
    for (size_t i = 0; i < ELEMENTS; i++) {
        double sum = 0, left = 0;
        const part *last = NULL;
        for (int rank = 0; rank < all->size; rank++) {
            const part *one = &all->parts[rank];
            if (one->status != TW_OK) continue;
            sum += one->before.at[i] + step_of(rank, all->steps - 1, i);
            left++;
            last = one;
        }
        assert_non_null(last);
        if (fabs(last->weights.at[i] - sum / left) > 1e-5)
            fail_msg("seed %d, %s: element %d is %g, not %g", (int)seed, all->spec, (int)i, last->weights.at[i],
                     sum / left);
    }
}

TEST(test_the_mean_of_the_survivors_is_kept)
{
    for (uint64_t seed = 0; seed < seeds(); seed++) {
        drama all;
        write_drama(&all, seed, 1);
        run_drama(&all);
        check_ends(&all, seed);
        check_mean(&all, seed);
    }
}

TEST(test_the_same_losses_give_the_same_bits)
{
    for (uint64_t seed = 0; seed < SPECS; seed++) {
        drama once, again;
        write_drama(&once, seed, 0);
        write_drama(&again, seed, 0);
        run_drama(&once);
        run_drama(&again);
        for (int rank = 0; rank < once.size; rank++) {
            assert_true(same_bits(&once.parts[rank].weights, &again.parts[rank].weights));
            assert_true(once.parts[rank].ended == again.parts[rank].ended);
        }
    }
}

/* Without the option, whoever is left is told, or had finished. */
TEST(test_without_survival_all_are_told)
{
    for (uint64_t seed = 0; seed < seeds(); seed++) {
        drama all;
        char spec[64];
        write_drama(&all, seed, 0);
        snprintf(spec, sizeof spec, "%s%csurvive=off", all.spec, strchr(all.spec, ':') ? ',' : ':');
        all.spec = spec;
        run_drama(&all);
        for (int rank = 0; rank < all.size; rank++) {
            const part *one = &all.parts[rank];
            assert_true(one->status == TW_OK || one->status == TW_ERROR_PEER);
            assert_true(is_victim(one) || one->ended < 3 + 4 * DEADLINE);
            assert_int_equal(one->lost, 0);
        }
    }
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static tw_status leave_early(player *self)
{
    values steps = {0};
    tw_status status = players_read(self);
    return status == TW_OK ? players_add(self, &steps) : status;
}

static uint64_t ranks_lost(const player *self)
{
    tw_gossip_counts stats = {.struct_size = sizeof stats};
    tw_gossip_stats(self->gossip, &stats);
    return stats.ranks_lost;
}

/* The sum over the survivors' comm of 1 and of the weights: how many they are, and whether they have the same. */
static tw_status meet_survivors(player *self)
{
    tw_comm *survivors;
    float sums[2] = {1, self->weights.at[0]};
    tw_status status = tw_gossip_survivors(self->gossip, &survivors);
    if (status != TW_OK) return status;
    status = tw_comm_allreduce(survivors, sums, 2);
    int as_it_should = (uint64_t)sums[0] == (uint64_t)self->size - ranks_lost(self) &&
                       tw_comm_size(survivors) == (int)sums[0] &&
                       fabsf(sums[1] / sums[0] - self->weights.at[0]) < 1e-5f;
    tw_comm_destroy(survivors);
    return status == TW_OK && !as_it_should ? TW_ERROR_STATE : status;
}

static tw_status go_on(player *self)
{
    values steps = {0};
    tw_comm *none;
    tw_status status = TW_OK;
    if (tw_gossip_survivors(self->gossip, &none) != TW_ERROR_ORDER) return TW_ERROR_STATE;
    while (status == TW_OK && ranks_lost(self) < *(uint64_t *)self->shared) status = players_add(self, &steps);
    set_step(&steps, self->rank, 0);
    if (status == TW_OK) status = players_add(self, &steps);
    if (status == TW_OK) status = players_finish(self);
    return status == TW_OK ? meet_survivors(self) : status;
}

static void check_threads(const char *spec, int leaving)
{
    player players[MOST_RANKS] = {0};
    uint64_t lost = leaving >= 0;
    for (int rank = 0; rank < 5; rank++) players[rank].shared = &lost;
    if (leaving >= 0) players[leaving].part = leave_early;
    players_run(players, 5, spec, go_on);
    for (int rank = 0; rank < 5; rank++) {
        assert_int_equal(players[rank].status, TW_OK);
        if (rank != leaving) assert_true(same_bits(&players[rank].weights, &players[(leaving + 1) % 5].weights));
    }
}

TEST(test_threads_go_on_without_one_that_leaves)
{
    for (int leaving = -1; leaving < 2; leaving++) check_threads(specs[leaving + 1], leaving);
}

static tw_status only_finish(player *self)
{
    tw_comm *none;
    tw_status status = players_finish(self);
    if (status != TW_OK) return status;
    return tw_gossip_survivors(self->gossip, &none) == TW_ERROR_ORDER ? TW_OK : TW_ERROR_STATE;
}

TEST(test_there_are_survivors_of_what_survives_only)
{
    static const char *const mortal[] = {"adpsgd-random:survive=off", "dpsgd"};
    for (int i = 0; i < 2; i++) {
        player players[MOST_RANKS] = {0};
        players_run(players, 3, mortal[i], only_finish);
        for (int rank = 0; rank < 3; rank++) assert_int_equal(players[rank].status, TW_OK);
    }
}

/* Silent for a minute, it comes back to those who have gone on, and hears so. */
TEST(test_one_that_was_given_up_is_told)
{
    for (uint64_t seed = 0; seed < SPECS; seed++) {
        drama *all = malloc(sizeof *all);
        begin_drama(all, seed);
        doom(&all->parts[2], CREATED + 3 * GRADIENT, 0);
        run_drama(all);
        check_ends(all, seed);
        assert_int_equal(all->parts[2].status, TW_ERROR_PEER);
        if (!strstr(all->parts[2].text, "the others went on without rank 2"))
            fail_msg("%s: %s", all->spec, all->parts[2].text);
        free(all);
    }
}

/* Of two ranks, only the first may believe that it was the other that was lost. */
TEST(test_the_smaller_part_gives_up)
{
    for (int leaving = 0; leaving < 2; leaving++) {
        player players[MOST_RANKS] = {0};
        uint64_t lost = 1;
        players[leaving].part = leave_early;
        players[!leaving].shared = &lost;
        players_run(players, 2, "adpsgd-fixed", go_on);
        assert_int_equal(players[leaving].status, TW_OK);
        assert_int_equal(players[!leaving].status, leaving == 0 ? TW_ERROR_PEER : TW_OK);
    }
}

RUN_TESTS(NULL, NULL)
