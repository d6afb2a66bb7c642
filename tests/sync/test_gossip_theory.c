/* Whole gossips in a world against the theory of mixing: how fast workers draw together without gradients, that their
 * mean stays where it was, that estimates are the same at both ends of an edge; and that a run is the same every time.
 */
#include "gossip_registry.h"
#include "gossip_world.h"
#include "support/parts.h"

#define PI 3.14159265358979323846
#define NOISE 1e-9 /* of the spread: below, rounding is in what is seen */

/* ---- how fast it mixes ------------------------------------------------------------------------------------------- */

enum { MOST_ROUNDS = 60 };

typedef struct mixing {
    float (*start)(const scene *all, int rank, int i);
    int rounds; /* to be seen */
    int again;  /* set apart anew every so many rounds; 0: never */
    int synchronous;
    float after[MOST_ROUNDS + 1][MOST_WORKERS][MOST_WIDTH];  /* so many rounds */
    float before[MOST_ROUNDS + 1][MOST_WORKERS][MOST_WIDTH]; /* the next: with the step that sets the workers apart */
    int seen[MOST_ROUNDS + 1];
} mixing;

static float scatter(const scene *all, int rank, int i)
{
    (void)all;
    return scene_draw(1, rank, i);
}

/* The slowest mode of a ring: one wave round it, a phase for each element. */
static float wave(const scene *all, int rank, int i)
{
    return (float)cos(2 * PI * rank / all->workers + PI * i / all->width);
}

static void keep(scene *all, int rank, int round, const float *step)
{
    mixing *way = all->context;
    memcpy(way->after[round][rank], all->at[rank], sizeof all->at[rank]);
    for (int i = 0; i < all->width; i++) way->before[round][rank][i] = all->at[rank][i] + step[i];
    way->seen[round]++;
}

static int rounds_of(tw_gossip *gossip)
{
    tw_gossip_counts stats = {.struct_size = sizeof stats};
    tw_gossip_stats(gossip, &stats);
    return (int)stats.rounds;
}

/* Steps of nothing, one a second, but for those that set the workers apart. Messages take no time, and so all ranks'
 * rounds are over when they look: of an asynchronous gossip there is one between two steps (the first is half a second
 * after the first step, where the doubling pauses of the beginning have led), of a synchronous one with each step,
 * which shows with the next. */
static tw_status mix(scene *all, int rank, tw_gossip *gossip)
{
    const mixing *way = all->context;
    tw_status status = scene_read(all, rank, gossip);
    int late = way->synchronous, first = 0;
    for (int k = 0; status == TW_OK && k <= way->rounds + late; k++) {
        float step[MOST_WIDTH] = {0};
        tw_world_compute(1);
        if (k == 0 || (way->again && k % way->again == 0))
            for (int i = 0; i < all->width; i++) step[i] = way->start(all, rank, i);
        status = scene_read(all, rank, gossip);
        if (k == late) first = rounds_of(gossip);
        if (k >= late && rounds_of(gossip) - first == k - late) keep(all, rank, k - late, step);
        if (status == TW_OK) status = scene_add(gossip, step);
    }
    return status == TW_OK ? scene_finish(all, rank, gossip) : status;
}

static mixing *see(const char *spec, int workers, float (*start)(const scene *all, int rank, int i), int rounds,
                   int again)
{
    const tw_gossip_ops *ops;
    mixing *way = malloc(sizeof *way);
    assert_int_equal(tw_gossip_find(spec, &ops), TW_OK);
    *way = (mixing){.start = start, .rounds = rounds, .again = again, .synchronous = ops->exchange != NULL};
    free(scene_run((scene){.spec = spec, .workers = workers, .play = mix, .context = way}));
    for (int round = 0; round <= rounds; round++) assert_int_equal(way->seen[round], workers);
    return way;
}

/* The squared distance of all from their mean. */
static double spread(float (*at)[MOST_WIDTH], int workers)
{
    double sum = 0;
    for (int i = 0; i < MOST_WIDTH; i++) {
        double mean = 0;
        for (int rank = 0; rank < workers; rank++) mean += at[rank][i] / (double)workers;
        for (int rank = 0; rank < workers; rank++) sum += (at[rank][i] - mean) * (at[rank][i] - mean);
    }
    return sum;
}

static void assert_near(const char *spec, int workers, double got, double want)
{
    if (!(fabs(got - want) <= 0.1 * want)) fail_msg("%s, %d workers: %g, not %g", spec, workers, got, want);
}

/* Rounds until the spread is a hundredth, when each multiplies it by `factor`. */
static double rounds_to_a_hundredth(double factor)
{
    return log(0.01) / log(factor);
}

/* On a fixed ring, from the slowest mode on: what a round leaves of the spread, also told as rounds to a hundredth. */
static void check_fixed(const char *spec, int workers, double want)
{
    int rounds = (int)(log(NOISE) / log(want));
    if (rounds > 24) rounds = 24;
    mixing *way = see(spec, workers, wave, rounds, 0);
    double got = pow(spread(way->after[rounds], workers) / spread(way->before[0], workers), 1.0 / rounds);
    assert_near(spec, workers, got, want);
    assert_near(spec, workers, rounds_to_a_hundredth(got), rounds_to_a_hundredth(want));
    free(way);
}

TEST(test_fixed_rings_mix_as_their_eigenvalues_say)
{
    for (int workers = 4; workers <= in_part(32, MOST_WORKERS); workers *= 2) {
        double side = cos(2 * PI / workers), eigenvalue = (1 + 2 * side) / 3;
        check_fixed("dpsgd", workers, eigenvalue * eigenvalue);
        check_fixed("adpsgd-fixed:mixing=three", workers, eigenvalue * eigenvalue);
        if (workers > 4) check_fixed("adpsgd-fixed", workers, side * side);
    }
}

/* On a ring that is shuffled, whatever the start: the expectation of a round. */
static void check_random(const char *spec, int workers, double want)
{
    int rounds = MOST_ROUNDS;
    mixing *way = see(spec, workers, scatter, rounds, 1);
    double sum = 0;
    for (int round = 0; round < rounds; round++)
        sum += spread(way->after[round + 1], workers) / spread(way->before[round], workers);
    assert_near(spec, workers, sum / rounds, want);
    free(way);
}

TEST(test_shuffled_rings_mix_alike_at_any_size)
{
    for (int workers = 4; workers <= in_part(32, MOST_WORKERS); workers *= 2) {
        double others = workers - 1;
        check_random("adpsgd-random:mixing=three", workers, (workers - 3) / (3 * others));
        check_random("adpsgd-random", workers, (workers - 2) / (2 * others));
        if (workers > 4) check_random("prague:order=random", workers, (workers - 4) / (4 * others));
    }
}

static void check_agreement(const char *spec, int workers, int rounds)
{
    mixing *way = see(spec, workers, scatter, rounds, 0);
    assert_true(spread(way->before[0], workers) > 1);
    assert_true(spread(way->after[rounds], workers) < 1e-12);
    free(way);
}

/* Two matchings of four workers, and one mean over all, leave nothing. */
TEST(test_some_agree_at_once)
{
    check_agreement("adpsgd-fixed", 4, 2);
    check_agreement("adpsgd-d1", 16, 1);
    check_agreement("prague", 4, 1);
}

/* ---- the mean stays ---------------------------------------------------------------------------------------------- */

typedef struct drift {
    double means[MOST_WIDTH]; /* of the scattered steps */
    double most;              /* that a mean was seen away from it */
} drift;

static void note_mean(const scene *all)
{
    drift *seen = all->context;
    for (int i = 0; i < all->width; i++) seen->most = fmax(seen->most, fabs(scene_mean(all, i) - seen->means[i]));
}

/* One step sets the workers apart; after it there are none. At three quarters of each second no round is under way. */
static tw_status rest(scene *all, int rank, tw_gossip *gossip)
{
    int last;
    float step[MOST_WIDTH];
    for (int i = 0; i < all->width; i++) step[i] = scatter(all, rank, i);
    tw_status status = scene_read(all, rank, gossip);
    tw_world_compute(1);
    for (int round = 0; status == TW_OK && round < 30; round++) {
        status = scene_add(gossip, step);
        memset(step, 0, sizeof step);
        tw_world_compute(0.75);
        if (status == TW_OK) status = scene_show(all, rank, gossip, &last);
        if (status == TW_OK && last) note_mean(all);
        tw_world_compute(0.25);
    }
    return status == TW_OK ? scene_finish(all, rank, gossip) : status;
}

static void check_mean(const char *spec, int workers)
{
    drift seen = {.most = 0};
    for (int i = 0; i < MOST_WIDTH; i++) {
        for (int rank = 0; rank < workers; rank++) seen.means[i] += scatter(NULL, rank, i);
        seen.means[i] /= workers;
    }
    scene *all = scene_run((scene){.spec = spec, .workers = workers, .latency = 1e-3, .play = rest, .context = &seen});
    note_mean(all); /* of what finish gave */
    for (int rank = 1; rank < workers; rank++) assert_memory_equal(all->at[rank], all->at[0], sizeof all->at[0]);
    free(all);
    if (!(seen.most < 2e-6)) fail_msg("%s, %d workers: a mean moved by %g", spec, workers, seen.most);
}

TEST(test_no_scheme_moves_the_mean)
{
    static const int workers[] = {1, 2, 3, 5, 8, 16};
    for (size_t scheme = 0; scheme < tw_gossips_count(); scheme++) {
        const char *spec =
            tw_gossips_name(scheme); /* what sets the workers apart is a step, of which this takes a part */
        if (strcmp(spec, "gasloc") == 0) spec = "gasloc:every=1,outer_lr=1,outer_momentum=0";
        for (size_t w = 0; w < sizeof workers / sizeof *workers; w++) check_mean(spec, workers[w]);
    }
}

/* ---- the same every time ----------------------------------------------------------------------------------------- */

enum { RECORDED = 9, PLAYED = 12 };

/* All that can be seen of a run, in the order in which it happened. */
typedef struct record {
    uint32_t crc;
    double at;
} record;

static void note(scene *all, const void *data, size_t size)
{
    record *seen = all->context;
    seen->crc = tw_crc32c(seen->crc, data, size);
}

/* A descent at a pace that differs from rank to rank and from step to step. */
static tw_status walk(scene *all, int rank, tw_gossip *gossip)
{
    tw_status status = TW_OK;
    for (int k = 0; status == TW_OK && k < PLAYED; k++) {
        float step[MOST_WIDTH];
        status = scene_read(all, rank, gossip);
        double now = tw_clock();
        note(all, &rank, sizeof rank);
        note(all, &now, sizeof now);
        note(all, all->at[rank], sizeof all->at[rank]);
        for (int i = 0; i < all->width; i++) step[i] = -0.1f * (all->at[rank][i] - scene_draw(9, rank, i));
        tw_world_compute(1 + rank % 3 + scene_draw(2, rank, k));
        if (status == TW_OK) status = scene_add(gossip, step);
    }
    return status == TW_OK ? scene_finish(all, rank, gossip) : status;
}

static record record_of(const char *spec)
{
    record seen = {0};
    scene *all = scene_run(
        (scene){.spec = spec, .workers = RECORDED, .bandwidth = 1e4, .latency = 1e-3, .play = walk, .context = &seen});
    for (int rank = 0; rank < RECORDED; rank++) {
        note(all, all->at[rank], sizeof all->at[rank]);
        note(all, &all->stats[rank], sizeof all->stats[rank]);
    }
    seen.at = all->seconds;
    free(all);
    return seen;
}

TEST(test_a_world_is_the_same_every_time)
{
    for (size_t scheme = 0; scheme < tw_gossips_count(); scheme++) {
        record first = record_of(tw_gossips_name(scheme)), second = record_of(tw_gossips_name(scheme));
        assert_true(first.crc == second.crc && first.at == second.at);
    }
    record one = record_of("adpsgd-random:seed=1"), two = record_of("adpsgd-random:seed=2");
    assert_true(one.crc != two.crc);
}

/* ---- estimates at both ends -------------------------------------------------------------------------------------- */

enum { KINDS = 4 };

static const char *const kinds[KINDS] = {"e/estimate/weights", "e/estimate_of_left/weights",
                                         "e/estimate_of_right/weights", "e/dual/weights"};

typedef struct estimates {
    float at[MOST_WORKERS][KINDS][MOST_WIDTH];
    tw_status got[MOST_WORKERS][KINDS];
} estimates;

static tw_status keep_estimates(scene *all, int rank, tw_gossip *gossip)
{
    estimates *kept = all->context;
    tw_state *saved;
    tw_status status = tw_state_create(&saved);
    if (status == TW_OK) status = tw_gossip_save_state(gossip, "e/", saved);
    for (int kind = 0; status == TW_OK && kind < KINDS; kind++)
        kept->got[rank][kind] = tw_state_get(saved, kinds[kind], TW_F32, (size_t)all->width, kept->at[rank][kind]);
    tw_state_destroy(saved);
    return status;
}

/* An exchange ends no rank's before all have begun theirs; saving waits for it. */
static tw_status descend_and_keep(scene *all, int rank, tw_gossip *gossip)
{
    tw_status status = TW_OK;
    for (int k = 0; status == TW_OK && k < 50; k++) {
        float step[MOST_WIDTH];
        status = scene_read(all, rank, gossip);
        for (int i = 0; i < all->width; i++) step[i] = -0.1f * (all->at[rank][i] - 9 * scene_draw(9, rank, i));
        if (status == TW_OK) status = scene_add(gossip, step);
    }
    if (status == TW_OK) status = keep_estimates(all, rank, gossip);
    return status == TW_OK ? scene_finish(all, rank, gossip) : status;
}

static void check_duals(const estimates *kept, int workers)
{
    for (int i = 0; i < MOST_WIDTH; i++) {
        double sum = 0, size = 0;
        for (int rank = 0; rank < workers; rank++) {
            assert_int_equal(kept->got[rank][3], TW_OK);
            sum += kept->at[rank][3][i];
            size += fabs(kept->at[rank][3][i]);
        }
        assert_true(size > 0 && fabs(sum) < 1e-5 * size);
    }
}

static void check_estimates(const char *spec, int workers)
{
    estimates *kept = calloc(1, sizeof *kept);
    scene *all = scene_run(
        (scene){.spec = spec, .workers = workers, .latency = 1e-3, .play = descend_and_keep, .context = kept});
    for (int rank = 0; rank < workers; rank++) {
        int left = (rank + workers - 1) % workers, right = (rank + 1) % workers;
        assert_int_equal(kept->got[rank][0], TW_OK);
        assert_int_equal(kept->got[rank][1], TW_OK);
        assert_memory_equal(kept->at[rank][1], kept->at[left][0], sizeof kept->at[left][0]);
        if (workers == 2) continue; /* left and right are the same */
        assert_int_equal(kept->got[rank][2], TW_OK);
        assert_memory_equal(kept->at[rank][2], kept->at[right][0], sizeof kept->at[right][0]);
    }
    if (strncmp(spec, "cold", 4) == 0) check_duals(kept, workers);
    free(all);
    free(kept);
}

TEST(test_estimates_are_the_same_at_both_ends_and_duals_cancel)
{
    static const char *const specs[] = {
        "choco:gamma=0.05", "choco:values=bf16,gamma=0.05", "choco:values=sign,gamma=0.02",
        "cold:gamma=0.05",  "cold:values=log8,gamma=0.05",  "cold:density=1,gamma=1"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (int workers = 2; workers <= 7; workers++) check_estimates(specs[s], workers);
}

RUN_TESTS(NULL, NULL)
