/* What the ranks of a gossip remember, taken over by groups of other sizes: the mean over the ranks stays, both ends of
 * an edge have the same bits, and no step is lost afterwards. */
#include <math.h>
#include <thinwire/thinwire_gossip.h>

#include "gossip_players.h"
#include "support/assert.h"

enum { STEPS = 7 };

static const char *const specs[] = {"dpsgd",
                                    "dpsgd:order=atc",
                                    "adpsgd-d1:mode=A",
                                    "adpsgd-d1:mode=B",
                                    "adpsgd-d1:mode=C",
                                    "adpsgd-fixed",
                                    "adpsgd-random",
                                    "prague",
                                    "choco:check=1",
                                    "cold:check=1",
                                    "choco:check=1,values=sign",
                                    "gasloc:every=3,outer_lr=1,outer_momentum=0"};
enum { SPECS = sizeof specs / sizeof *specs };

/* What a group leaves. */
typedef struct group {
    const char *spec;
    int size;
    tw_state *states[MOST_RANKS];
    const struct group *before; /* whose states it begins with; NULL: with equal weights */
    int finishes;
} group;

static tw_status source(void *context, int rank, const tw_state **state)
{
    *state = ((const group *)context)->states[rank];
    return TW_OK;
}

static tw_status regroup(const group *before, int rank, int size, tw_state **state)
{
    tw_status status = tw_state_create(state);
    if (status != TW_OK) return status;
    return tw_gossip_regroup_state(before->spec, table, TENSORS, before->size, source, (void *)(uintptr_t)before, rank,
                                   size, "g/", *state);
}

static float step_of(int size, int rank, int k, size_t i)
{
    return 0.01F * (float)((size * 31 + rank * 17 + k * 5 + (int)i * 3) % 23 - 11);
}

static tw_status load(player *self, const group *all)
{
    tw_state *state = NULL;
    tw_status status = regroup(all->before, self->rank, self->size, &state);
    if (status == TW_OK) status = tw_gossip_load_state(self->gossip, "g/", state);
    tw_state_destroy(state);
    return status;
}

static tw_status take_steps(player *self)
{
    tw_status status = TW_OK;
    for (int k = 0; status == TW_OK && k < STEPS; k++) {
        values steps;
        status = players_read(self);
        for (size_t i = 0; i < ELEMENTS; i++) steps.at[i] = step_of(self->size, self->rank, k, i);
        if (status == TW_OK) status = players_add(self, &steps);
    }
    return status;
}

/* Nobody leaves before all have saved. */
static tw_status save(player *self, group *all)
{
    tw_status status = tw_state_create(&all->states[self->rank]);
    if (status == TW_OK) status = tw_gossip_save_state(self->gossip, "g/", all->states[self->rank]);
    return status == TW_OK ? tw_comm_barrier(self->comm) : status;
}

static tw_status play(player *self)
{
    group *all = self->shared;
    tw_status status = all->before ? load(self, all) : TW_OK;
    if (status == TW_OK) status = take_steps(self);
    if (status != TW_OK) return status;
    return all->finishes ? players_finish(self) : save(self, all);
}

static void run(group *all, player players[MOST_RANKS])
{
    memset(players, 0, MOST_RANKS * sizeof *players);
    for (int r = 0; r < all->size; r++) {
        players[r].shared = all;
        for (size_t i = 0; i < ELEMENTS; i++) players[r].weights.at[i] = all->before ? 0 : (float)i / 8;
    }
    players_run(players, all->size, all->spec, play);
    for (int r = 0; r < all->size; r++)
        if (players[r].status != TW_OK) fail_msg("%s: rank %d of %d: %s", all->spec, r, all->size, players[r].text);
}

static void release(group *all)
{
    for (int r = 0; r < all->size; r++) tw_state_destroy(all->states[r]);
}

/* All tensors of one thing that is remembered; 0 if it is not. */
static int fetch(const tw_state *state, const char *what, float dst[ELEMENTS])
{
    for (size_t t = 0; t < TENSORS; t++) {
        char name[64];
        snprintf(name, sizeof name, "g/%s/%s", what, table[t].name);
        if (tw_state_get(state, name, TW_F32, tw_tensor_count(&table[t]), dst + t * FIRST) != TW_OK) return 0;
    }
    return 1;
}

static int mean_of(tw_state *const *states, int size, const char *what, double mean[ELEMENTS])
{
    float at[ELEMENTS];
    memset(mean, 0, ELEMENTS * sizeof *mean);
    for (int r = 0; r < size; r++) {
        if (!fetch(states[r], what, at)) return 0;
        for (size_t i = 0; i < ELEMENTS; i++) mean[i] += (double)at[i] / size;
    }
    return 1;
}

static const char *const own[] = {"weights", "estimate", "pull", "dual", "previous", "pending", "start", "last"};

/* What `size` ranks would begin with, of what the group has saved. */
static void check_means(const group *before, int size, tw_state *states[MOST_RANKS])
{
    for (int r = 0; r < size; r++) assert_ok(regroup(before, r, size, &states[r]));
    for (size_t o = 0; o < sizeof own / sizeof *own; o++) {
        double old[ELEMENTS], now[ELEMENTS];
        int there = mean_of(before->states, before->size, own[o], old);
        assert_int_equal(mean_of(states, size, own[o], now), there);
        for (size_t i = 0; there && i < ELEMENTS; i++) assert_near(now[i], old[i], 1e-6 * (1 + fabs(old[i])));
    }
    for (int r = 0; strncmp(before->spec, "gasloc", 6) == 0 && r < size; r++) {
        uint64_t steps = 0; /* STEPS a group, and those of the groups before it */
        assert_ok(tw_state_get(states[r], "g/steps/gasloc", TW_U64, 1, &steps));
        assert_true(steps > 0 && steps % STEPS == 0);
    }
}

static void assert_same_bits(const char *spec, const tw_state *left, const char *what, const tw_state *right,
                             const char *other)
{
    float a[ELEMENTS], b[ELEMENTS];
    assert_true(fetch(left, what, a) && fetch(right, other, b));
    if (memcmp(a, b, sizeof a) != 0) fail_msg("%s: %s differs from %s", spec, what, other);
}

static void check_edges(const char *spec, tw_state *const *states, int size)
{
    float at[ELEMENTS];
    for (int r = 0; r < size; r++) {
        int left = (r + size - 1) % size, right = (r + 1) % size;
        if (!fetch(states[r], "estimate", at)) return;
        if (size > 1) assert_same_bits(spec, states[r], "estimate_of_left", states[left], "estimate");
        if (size > 2) assert_same_bits(spec, states[r], "estimate_of_right", states[right], "estimate");
        assert_int_equal(fetch(states[r], "estimate_of_left", at), size > 1);
        assert_int_equal(fetch(states[r], "estimate_of_right", at), size > 2);
    }
}

/* Where all ranks begin alike they stay so, to the bit. */
static void check_alike(const char *spec, tw_state *const *states, int size)
{
    for (int r = 1; strstr(spec, "mode=C") && r < size; r++)
        assert_same_bits(spec, states[r], "weights", states[0], "weights");
}

TEST(test_means_and_edges_stay)
{
    static const int sizes[] = {2, 8, 3, 1, 5, 4};
    for (size_t s = 0; s < SPECS; s++) {
        player players[MOST_RANKS];
        group four = {.spec = specs[s], .size = 4};
        run(&four, players);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            group next = {.spec = specs[s], .size = sizes[i]};
            check_means(&four, next.size, next.states);
            check_edges(specs[s], next.states, next.size);
            check_alike(specs[s], next.states, next.size);
            if (next.size == 4) assert_int_equal(tw_state_count(next.states[1]), tw_state_count(four.states[1]));
            release(&next);
        }
        release(&four);
    }
}

/* 4, 2, 8: the consensus is the mean that the last began with, and the mean of all steps since. What adpsgd-d1 mode C
 * has still to add is a step, too. */
TEST(test_no_step_is_lost_from_four_to_two_to_eight)
{
    for (size_t s = 0; s < SPECS; s++) {
        player players[MOST_RANKS];
        group four = {.spec = specs[s], .size = 4}, two = {.spec = specs[s], .size = 2, .before = &four};
        group eight = {.spec = specs[s], .size = 8, .before = &two, .finishes = 1};
        tw_state *begun[MOST_RANKS];
        double mean[ELEMENTS], pending[ELEMENTS];
        run(&four, players);
        run(&two, players);
        check_means(&two, 8, begun);
        assert_true(mean_of(begun, 8, "weights", mean));
        if (!mean_of(begun, 8, "pending", pending)) memset(pending, 0, sizeof pending);
        run(&eight, players);
        for (size_t i = 0; i < ELEMENTS; i++) {
            double expected = mean[i] + pending[i];
            for (int r = 0; r < 8; r++)
                for (int k = 0; k < STEPS; k++) expected += (double)step_of(8, r, k, i) / 8;
            if (fabs((double)players[5].weights.at[i] - expected) > 1e-5)
                fail_msg("%s: %g became %g", specs[s], expected, (double)players[5].weights.at[i]);
        }
        for (int r = 0; r < 8; r++) tw_state_destroy(begun[r]);
        release(&four);
        release(&two);
    }
}

/* ---- by hand ---------------------------------------------------------------------------------------------------- */

static void make_weights(group *all, int size)
{
    *all = (group){.spec = "dpsgd", .size = size};
    for (int r = 0; r < size; r++) {
        values at;
        for (size_t i = 0; i < ELEMENTS; i++) at.at[i] = (float)(12 * (r + 1));
        assert_ok(tw_state_create(&all->states[r]));
        for (size_t t = 0; t < TENSORS; t++) {
            char name[64];
            snprintf(name, sizeof name, "g/weights/%s", table[t].name);
            assert_ok(tw_state_put(all->states[r], name, TW_F32, table[t].dims, table[t].shape, parts_of(&at)[t]));
        }
    }
}

static float weight_of(const group *before, int rank, int size)
{
    float at[ELEMENTS];
    tw_state *state;
    assert_ok(regroup(before, rank, size, &state));
    assert_true(fetch(state, "weights", at));
    tw_state_destroy(state);
    return at[ELEMENTS - 1];
}

TEST(test_means_by_hand)
{
    group four, two;
    make_weights(&four, 4); /* 12, 24, 36, 48 */
    make_weights(&two, 2);
    assert_true(weight_of(&four, 0, 2) == 18 && weight_of(&four, 1, 2) == 42 && weight_of(&four, 0, 1) == 30);
    for (int r = 0; r < 8; r++) assert_true(weight_of(&two, r, 8) == (r < 4 ? 12 : 24));
    assert_true(weight_of(&four, 0, 3) == 15 && weight_of(&four, 1, 3) == 30 && weight_of(&four, 2, 3) == 45);
    release(&four);
    release(&two);
}

TEST(test_hostile_states_are_refused_by_name)
{
    group four;
    tw_state *got;
    float nan[FIRST] = {NAN};
    make_weights(&four, 4);
    assert_ok(tw_state_put(four.states[1], "g/weights/weight", TW_F32, 1, (size_t[]){FIRST}, nan));
    assert_fails(regroup(&four, 0, 2, &got), TW_ERROR_STATE, "rank 1 of the 4 before: g/weights/weight holds NaN");
    assert_int_equal(tw_state_count(got), 0);
    tw_state_destroy(got);
    assert_ok(tw_state_put(four.states[3], "g/weights/bias", TW_F32, 1, (size_t[]){2}, nan));
    assert_fails(regroup(&four, 1, 2, &got), TW_ERROR_STATE, "'g/weights/bias' of the saved state has 2 elements");
    tw_state_destroy(got);
    four.spec = "choco";
    assert_fails(regroup(&four, 1, 2, &got), TW_ERROR_STATE, "has no tensor 'g/");
    tw_state_destroy(got);
    four.spec = "dpsgd:per_host=2";
    assert_fails(regroup(&four, 0, 3, &got), TW_ERROR_SPEC, "per_host=2 does not divide the 3 workers");
    tw_state_destroy(got);
    release(&four);
}

/* ---- visits ----------------------------------------------------------------------------------------------------- */

static tw_status note(void *context, const tw_remembered *entry)
{
    int *seen = context;
    int is_other = strncmp(entry->what, "estimate_of", 11) == 0;
    float first = entry->count == FIRST ? 1 / 8.0F : (FIRST + 1) / 8.0F;
    seen[0]++;
    seen[1] += entry->kind == (is_other ? TW_STATE_OWN : TW_STATE_AVERAGES);
    seen[2] += strcmp(entry->what, "weights") == 0 && ((const float *)entry->data)[1] == first;
    return TW_OK;
}

static tw_status visit(player *self)
{
    int *seen = self->shared;
    tw_status status = tw_gossip_visit_state(self->gossip, note, &seen[3 * self->rank]);
    return status == TW_OK ? players_finish(self) : status;
}

TEST(test_a_visit_tells_what_is_whose)
{
    int seen[9] = {0};
    player players[MOST_RANKS] = {0};
    for (int r = 0; r < 3; r++) players[r].shared = seen;
    for (size_t i = 0; i < ELEMENTS; i++) players[0].weights.at[i] = (float)i / 8;
    players_run(players, 3, "choco", visit);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(players[r].status, TW_OK);
        assert_int_equal(seen[3 * r], 5 * TENSORS);
        assert_int_equal(seen[3 * r + 1], 5 * TENSORS);
        assert_int_equal(seen[3 * r + 2], TENSORS);
    }
}

RUN_TESTS(NULL, NULL)
