/* Which steps are stable, and where compressed schemes end: whole gossips in a world on quadratics, against theory and
 * against a simulation in double precision. */
#include "gossip_world.h"

/* ---- the largest stable step ------------------------------------------------------------------------------------- */

enum { WORKERS = 16, STEPS = 400 };

typedef struct descent {
    float rate;            /* times the curvature: the step at w is -rate * w */
    int steps;             /* of a rest */
    double middle, at_end; /* squared norms of all weights, or of their distances from the mean */
} descent;

static double squares_of(const scene *all)
{
    double sum = 0;
    for (int rank = 0; rank < all->workers; rank++)
        for (int i = 0; i < all->width; i++) sum += (double)all->at[rank][i] * all->at[rank][i];
    return sum;
}

/* The first step puts the workers somewhere, in every mode of the mixing. */
static tw_status descend(scene *all, int rank, tw_gossip *gossip)
{
    descent *way = all->context;
    tw_status status = TW_OK;
    for (int k = 0; status == TW_OK && k <= STEPS; k++) {
        int last;
        float step[MOST_WIDTH];
        status = scene_show(all, rank, gossip, &last);
        if (last && k == STEPS / 2) way->middle = squares_of(all);
        if (last && k == STEPS) way->at_end = squares_of(all);
        for (int i = 0; i < all->width; i++) step[i] = k == 0 ? scene_draw(3, rank, i) : -way->rate * all->at[rank][i];
        tw_world_compute(1);
        if (status == TW_OK) status = scene_add(gossip, step);
    }
    return status == TW_OK ? scene_finish(all, rank, gossip) : status;
}

/* In the second half of the run. */
static int shrinks(const char *spec, double rate)
{
    descent way = {.rate = (float)rate};
    scene *all = calloc(1, sizeof *all);
    *all = (scene){.spec = spec, .workers = WORKERS, .width = 4, .play = descend, .context = &way};
    scene_run(all);
    free(all);
    assert_true(way.middle > 0);
    return way.at_end < way.middle;
}

static void check_limit(const char *spec, double limit)
{
    if (!shrinks(spec, 0.95 * limit)) fail_msg("%s is not stable at 0.95 of %g", spec, limit);
    if (shrinks(spec, 1.05 * limit)) fail_msg("%s is stable at 1.05 of %g", spec, limit);
}

/* With the exchange beside the gradient 1 + the mixing's least eigenvalue: -1/3 for an even ring, 1/3 for the lazy one,
 * that goes half the way, 0 for the mean over all; with a gradient that is a step old 1; with the exchange behind the
 * step 2. */
static void test_stability_ends_where_theory_says(void **state)
{
    (void)state;
    check_limit("dpsgd", 2.0 / 3);
    check_limit("dpsgd:order=atc", 2);
    check_limit("choco:density=1,gamma=0.5", 4.0 / 3);
    check_limit("adpsgd-d1", 1);
    check_limit("adpsgd-d1:mode=B", 1);
    check_limit("adpsgd-d1:mode=C", 1);
}

/* ---- where nothing is curved ------------------------------------------------------------------------------------- */

/* One step sets the workers apart, and no gradient brings them back: what a network is in most of its directions. */
static tw_status rest(scene *all, int rank, tw_gossip *gossip)
{
    descent *way = all->context;
    float step[MOST_WIDTH];
    for (int i = 0; i < all->width; i++) step[i] = scene_draw(3, rank, i);
    tw_status status = scene_read(all, rank, gossip);
    for (int k = 0; status == TW_OK && k <= way->steps; k++) {
        int last;
        status = scene_add(gossip, step);
        memset(step, 0, sizeof step);
        if (status == TW_OK) status = scene_show(all, rank, gossip, &last);
        if (status == TW_OK && last && k == way->steps / 2) way->middle = scene_spread(all);
        if (status == TW_OK && last && k == way->steps) way->at_end = scene_spread(all);
    }
    return status == TW_OK ? scene_finish(all, rank, gossip) : status;
}

/* How much is left, at the end of a run, of the spread in its middle. What single precision cannot tell from agreement
 * is nothing. */
static double left_of_spread(const char *spec, int workers, int steps)
{
    descent way = {.steps = steps};
    scene *all = calloc(1, sizeof *all);
    *all = (scene){.spec = spec, .workers = workers, .play = rest, .context = &way};
    scene_run(all);
    free(all);
    return way.at_end < 1e-9 ? 0 : way.at_end / way.middle;
}

static void check_agreement(const char *spec, int workers, int steps)
{
    double left = left_of_spread(spec, workers, steps);
    if (!(left < 0.5)) fail_msg("%s, %d workers: %g of their spread is left", spec, workers, left);
}

/* Nothing damps there but the pull: what compression holds back must not make the duals swing. */
static void test_compressed_schemes_agree_where_nothing_is_curved(void **state)
{
    (void)state;
    static const int workers[] = {2, 3, 4, 8};
    static const char *const specs[] = {"choco", "cold", "cold:density=0.5", "cold:density=1"};
    for (size_t w = 0; w < sizeof workers / sizeof *workers; w++)
        for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) check_agreement(specs[i], workers[w], 1000);
    check_agreement("cold", 16, 4000); /* the longer a ring, the slower its waves */
    check_agreement("choco:density=0.02", 4, 2000);
    check_agreement("cold:density=0.02", 4, 4000);
}

/* With a share w of a difference sent in a step the limit is w / (1 - w): a dual of 1 needs more than half of it. */
static void test_duals_that_learn_too_fast_swing(void **state)
{
    (void)state;
    assert_true(left_of_spread("cold:density=0.1,dual=1,gamma=0.1", 8, 400) > 2);
    assert_true(left_of_spread("cold:density=0.1,dual=1,gamma=0.01", 8, 1500) > 2);
    check_agreement("cold:density=0.6,dual=1,gamma=0.1", 8, 1000);
}

/* ---- the draws of the simulation --------------------------------------------------------------------------------- */

/* MT19937 (Matsumoto and Nishimura 1998), seeded with the array {1} as Python seeds it, so that the losses below are
 * those of the simulation that the figures come from. */
enum { TWIST = 624, SHIFT = 397 };

typedef struct twister {
    uint32_t state[TWIST];
    int used;
    double spare; /* the second of a pair of normal draws; NAN: none */
} twister;

static void seed_with_one(twister *random)
{
    uint32_t *mt = random->state;
    mt[0] = 19650218;
    for (uint32_t i = 1; i < TWIST; i++) mt[i] = 1812433253u * (mt[i - 1] ^ mt[i - 1] >> 30) + i;
    for (uint32_t n = 0, i = 1; n < TWIST; n++) {
        mt[i] = (mt[i] ^ (mt[i - 1] ^ mt[i - 1] >> 30) * 1664525u) + 1;
        if (++i == TWIST) mt[0] = mt[TWIST - 1], i = 1;
    }
    for (uint32_t n = 0, i = 2; n < TWIST - 1; n++) {
        mt[i] = (mt[i] ^ (mt[i - 1] ^ mt[i - 1] >> 30) * 1566083941u) - i;
        if (++i == TWIST) mt[0] = mt[TWIST - 1], i = 1;
    }
    mt[0] = 0x80000000u;
    random->used = TWIST;
    random->spare = NAN;
}

static uint32_t draw_word(twister *random)
{
    uint32_t *mt = random->state;
    if (random->used == TWIST) {
        for (int i = 0; i < TWIST; i++) {
            uint32_t y = (mt[i] & 0x80000000u) | (mt[(i + 1) % TWIST] & 0x7fffffffu);
            mt[i] = mt[(i + SHIFT) % TWIST] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        random->used = 0;
    }
    uint32_t y = mt[random->used++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static double draw_uniform(twister *random)
{
    uint32_t high = draw_word(random) >> 5, low = draw_word(random) >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
}

static double draw_normal(twister *random)
{
    double z = random->spare;
    random->spare = NAN;
    if (!isnan(z)) return z;
    double angle = draw_uniform(random) * 6.283185307179586, radius = sqrt(-2 * log(1 - draw_uniform(random)));
    random->spare = sin(angle) * radius;
    return cos(angle) * radius;
}

/* ---- where they end ---------------------------------------------------------------------------------------------- */

enum { RANKS = 8, SIDE = 20 };

/* Worker i's loss is the sum of curvature/2 (w - centre)^2. */
typedef struct losses {
    double curvature[RANKS][SIDE], centre[RANKS][SIDE], optimum[SIDE];
} losses;

static void draw_losses(losses *all)
{
    twister random;
    seed_with_one(&random);
    for (int rank = 0; rank < RANKS; rank++)
        for (int j = 0; j < SIDE; j++) all->curvature[rank][j] = 0.5 + 3.5 * draw_uniform(&random);
    for (int rank = 0; rank < RANKS; rank++)
        for (int j = 0; j < SIDE; j++) all->centre[rank][j] = 3 * draw_normal(&random);
    for (int j = 0; j < SIDE; j++) {
        double weighed = 0, total = 0;
        for (int rank = 0; rank < RANKS; rank++) {
            weighed += all->curvature[rank][j] * all->centre[rank][j];
            total += all->curvature[rank][j];
        }
        all->optimum[j] = weighed / total;
    }
}

static void assert_near(const char *spec, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * want)) fail_msg("%s: %g, not %g", spec, got, want);
}

typedef struct search {
    losses on;
    double rate;
    int steps;
} search;

static tw_status seek(scene *all, int rank, tw_gossip *gossip)
{
    const search *way = all->context;
    tw_status status = scene_read(all, rank, gossip);
    for (int k = 0; status == TW_OK && k < way->steps; k++) {
        float step[SIDE];
        for (int j = 0; j < SIDE; j++)
            step[j] = (float)(-way->rate * way->on.curvature[rank][j] * (all->at[rank][j] - way->on.centre[rank][j]));
        status = scene_add(gossip, step);
        if (status == TW_OK) status = scene_read(all, rank, gossip);
    }
    tw_world_compute(1); /* nobody leaves while others still ask */
    return status;
}

/* The root mean square distance from the optimum of all; INFINITY: the run ended, or is on its way there. */
static double distance_after(const char *spec, double rate, int steps)
{
    search way = {.rate = rate, .steps = steps};
    scene *all = calloc(1, sizeof *all);
    *all = (scene){.spec = spec, .workers = RANKS, .width = SIDE, .play = seek, .context = &way};
    draw_losses(&way.on);
    scene_run_freely(all);
    double sum = 0;
    for (int rank = 0; rank < RANKS; rank++)
        for (int j = 0; j < SIDE; j++) {
            double error = all->status[rank] == TW_OK ? all->at[rank][j] - way.on.optimum[j] : INFINITY;
            sum += error * error;
        }
    free(all);
    return sqrt(sum / RANKS);
}

/* A run in single precision ends near the optimum, where the simulation in double precision has 1e-7 and less, and for
 * small gammas is still on its way. */
enum { GAMMAS = 4, FAR = 500 };
#define NEAR 3e-3

static const double gammas[GAMMAS] = {1, 0.4, 0.1, 0.03};
static const int steps[GAMMAS] = {800, 600, 1000, 1500};

static void check_row(const char *compression, double rate, const char *converges)
{
    for (int g = 0; g < GAMMAS; g++) {
        char spec[96];
        snprintf(spec, sizeof spec, "cold:%s,gamma=%g,dual=1", compression, gammas[g]);
        if (converges[g] == '?') continue;
        double distance = distance_after(spec, rate, steps[g]);
        if (converges[g] == '+' ? !(distance < NEAR) : !(distance > FAR))
            fail_msg("%s at rate %g: %g from the optimum", spec, rate, distance);
    }
}

/* NIDS as it is: linear convergence where it is stable; gamma has to fall with what is sent, and a smaller rate can be
 * too small. */
static void test_cold_converges_where_the_simulation_does(void **state)
{
    (void)state;
    check_row("density=1", 0.2, "++++");
    check_row("density=1", 0.05, "++++");
    check_row("density=0.2", 0.2, "-+++");
    check_row("density=0.2", 0.05, "-+++");
    check_row("density=0.05", 0.2, "--++");
    check_row("density=0.05", 0.05, "---+");
    check_row("density=1,values=sign", 0.2, "--?+");
    check_row("density=1,values=sign", 0.05, "----");
}

/* The question mark above: neither here nor there after 4000 steps. The simulation, in double but for the magnitude,
 * which it rounds to bf16 as it travels, ends at 115.01 and swings between 2.4 and 254. */
static void test_one_bit_with_too_large_a_gamma_wanders(void **state)
{
    (void)state;
    const char *spec = "cold:density=1,values=sign,gamma=0.1,dual=1";
    assert_near(spec, distance_after(spec, 0.2, 4000), 115.01, 0.02);
}

/* On the way, where single precision does not show yet; the figures are the simulation's. */
static void test_cold_walks_as_the_simulation_does(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        double rate;
        int steps;
        double distance;
    } walks[] = {
        {"cold:density=1", 0.05, 60, 0.012505},
        {"cold:density=1", 0.2, 20, 0.822625},
        {"cold:density=1,gamma=0.4,dual=0.3", 0.2, 60, 1.434133},
        {"cold:density=0.2", 0.2, 200, 1.200461},
        {"cold:density=0.2", 0.05, 100, 0.334255},
        {"cold:density=0.05", 0.2, 400, 6.264798},
        {"cold:density=0.05", 0.05, 400, 2.827991},
    };
    for (size_t i = 0; i < sizeof walks / sizeof *walks; i++)
        assert_near(walks[i].spec, distance_after(walks[i].spec, walks[i].rate, walks[i].steps), walks[i].distance,
                    1e-4);
}

/* Whatever is sent and at any rate; in how many steps the simulation says. */
static void test_cold_converges_at_its_defaults(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        double rate;
        int steps;
    } searches[] = {
        {"cold:density=1", 0.2, 200},    {"cold:density=1", 0.05, 200},     {"cold:density=0.2", 0.2, 1500},
        {"cold:density=0.2", 0.05, 500}, {"cold:density=0.05", 0.05, 5500},
    };
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++) {
        double distance = distance_after(searches[i].spec, searches[i].rate, searches[i].steps);
        if (!(distance < NEAR))
            fail_msg("%s at rate %g: %g from the optimum", searches[i].spec, searches[i].rate, distance);
    }
}

/* The rate and gamma leave choco a distance of its own, which the simulation (mixing beside the gradient) gives. */
static void test_choco_stays_at_its_distance(void **state)
{
    (void)state;
    static const double distances[] = {2.668597, 5.199585, 9.217567};
    static const char *const specs[] = {"choco:density=1,gamma=1", "choco:density=1,gamma=0.3",
                                        "choco:density=1,gamma=0.05"};
    for (int i = 0; i < 3; i++) assert_near(specs[i], distance_after(specs[i], 0.05, 600), distances[i], 1e-4);
    assert_true(distance_after("choco:density=0.05,gamma=1", 0.05, 1000) > FAR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stability_ends_where_theory_says),
        cmocka_unit_test(test_compressed_schemes_agree_where_nothing_is_curved),
        cmocka_unit_test(test_duals_that_learn_too_fast_swing),
        cmocka_unit_test(test_cold_walks_as_the_simulation_does),
        cmocka_unit_test(test_cold_converges_at_its_defaults),
        cmocka_unit_test(test_cold_converges_where_the_simulation_does),
        cmocka_unit_test(test_one_bit_with_too_large_a_gamma_wanders),
        cmocka_unit_test(test_choco_stays_at_its_distance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
