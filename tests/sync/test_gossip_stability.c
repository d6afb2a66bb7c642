/* Which steps are stable, and where compressed schemes end: whole gossips in a world on quadratics, against theory and
 * against the equations of docs/gossip.md in double precision. */
#include "gossip_world.h"

#include "half.h"
#include "support/parts.h"

#include <thinwire/thinwire_gossip.h>

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
    free(scene_run((scene){.spec = spec, .workers = WORKERS, .width = 4, .play = descend, .context = &way}));
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
TEST(test_stability_ends_where_theory_says)
{
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
    free(scene_run((scene){.spec = spec, .workers = workers, .play = rest, .context = &way}));
    return way.at_end < 1e-9 ? 0 : way.at_end / way.middle;
}

static void check_agreement(const char *spec, int workers, int steps)
{
    double left = left_of_spread(spec, workers, steps);
    if (!(left < 0.5)) fail_msg("%s, %d workers: %g of their spread is left", spec, workers, left);
}

/* Nothing damps there but the pull: what compression holds back must not make the duals swing. */
TEST(test_compressed_schemes_agree_where_nothing_is_curved)
{
    static const int workers[] = {3, 4, 2, 8};
    static const char *const specs[] = {"choco", "cold", "cold:density=0.5", "cold:density=1"};
    for (int w = 0; w < in_part(2, 4); w++)
        for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) check_agreement(specs[i], workers[w], 1000);
    check_agreement("choco:density=0.02", 4, 2000);
    if (!in_part(0, 1)) return;
    check_agreement("cold", 16, 4000); /* the longer a ring, the slower its waves */
    check_agreement("cold:density=0.02", 4, 4000);
}

/* With a share w of a difference sent in a step the limit is w / (1 - w): a dual of 1 needs more than half of it. */
TEST(test_duals_that_learn_too_fast_swing)
{
    assert_true(left_of_spread("cold:density=0.1,dual=1,gamma=0.1", 8, 400) > 2);
    if (in_part(0, 1)) assert_true(left_of_spread("cold:density=0.1,dual=1,gamma=0.01", 8, 1500) > 2);
    check_agreement("cold:density=0.6,dual=1,gamma=0.1", 8, 1000);
}

/* ---- the equations in double precision -------------------------------------------------------------------------- */

enum { RANKS = 8, SIDE = 20 };

/* Worker i's loss is the sum of curvature/2 (w - centre)^2. */
static double curvature_of(int rank, int j)
{
    return 2.25 + 3.5 * (double)scene_draw(4, rank, j);
}

static double centre_of(int rank, int j)
{
    return 10 * (double)scene_draw(5, rank, j);
}

static double optimum_of(int j)
{
    double weighed = 0, total = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        weighed += curvature_of(rank, j) * centre_of(rank, j);
        total += curvature_of(rank, j);
    }
    return weighed / total;
}

static double step_of(double rate, int rank, int j, double w)
{
    return -rate * curvature_of(rank, j) * (w - centre_of(rank, j));
}

/* A scheme and its options; 0 is the default of gamma and dual. */
typedef struct method {
    const char *scheme;
    double density;
    int signs;
    double gamma, dual;
} method;

static method with_defaults(method of)
{
    int is_cold = strcmp(of.scheme, "cold") == 0;
    if (of.gamma == 0) of.gamma = is_cold ? fmin(1, 2 * of.density) : of.density;
    if (of.dual == 0) of.dual = of.density / 2;
    return of;
}

static const char *spec_of(const method *of, char spec[128])
{
    int length = snprintf(spec, 128, "%s:density=%g,gamma=%g%s", of->scheme, of->density, of->gamma,
                          of->signs ? ",values=sign" : "");
    if (strcmp(of->scheme, "cold") == 0) snprintf(spec + length, (size_t)(128 - length), ",dual=%g", of->dual);
    return spec;
}

static int by_magnitude(const void *a, const void *b)
{
    double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return (x < y) - (x > y);
}

/* What of a difference arrives: the largest, or their signs with their mean magnitude, in bf16. */
static void compress(const method *of, double difference[SIDE])
{
    double sorted[SIDE], mean = 0;
    int kept = (int)lround(of->density * SIDE);
    memcpy(sorted, difference, sizeof sorted);
    qsort(sorted, SIDE, sizeof *sorted, by_magnitude);
    for (int j = 0; j < kept; j++) mean += fabs(sorted[j]) / kept;
    double magnitude = (double)tw_from_bf16(tw_to_bf16((float)mean));
    for (int j = 0; j < SIDE; j++)
        if (fabs(difference[j]) < fabs(sorted[kept - 1]))
            difference[j] = 0;
        else if (of->signs)
            difference[j] = copysign(magnitude, difference[j]);
}

typedef struct walk {
    double at[RANKS][SIDE], estimate[RANKS][SIDE], dual[RANKS][SIDE];
} walk;

/* cold sends where it stands after its step and with its dual, choco where it stood before. */
static void walk_on(walk *all, const method *of, double rate)
{
    int is_cold = strcmp(of->scheme, "cold") == 0;
    double moved[RANKS][SIDE];
    for (int rank = 0; rank < RANKS; rank++) {
        double difference[SIDE];
        for (int j = 0; j < SIDE; j++) {
            double at = all->at[rank][j];
            moved[rank][j] = at + step_of(rate, rank, j, at) + all->dual[rank][j];
            difference[j] = (is_cold ? moved[rank][j] : at) - all->estimate[rank][j];
        }
        compress(of, difference);
        for (int j = 0; j < SIDE; j++) all->estimate[rank][j] += difference[j];
    }
    for (int rank = 0; rank < RANKS; rank++) {
        const double *left = all->estimate[(rank + RANKS - 1) % RANKS], *own = all->estimate[rank],
                     *right = all->estimate[(rank + 1) % RANKS];
        for (int j = 0; j < SIDE; j++) {
            double pull = of->gamma / (is_cold ? 2 : 1) * ((left[j] + own[j] + right[j]) / 3 - own[j]);
            all->at[rank][j] = moved[rank][j] + pull;
            if (is_cold) all->dual[rank][j] += of->dual * pull;
        }
    }
}

/* The root mean square distance from the optimum of all. */
static double distance_of(const walk *all)
{
    double sum = 0;
    for (int rank = 0; rank < RANKS; rank++)
        for (int j = 0; j < SIDE; j++) sum += pow(all->at[rank][j] - optimum_of(j), 2);
    return sqrt(sum / RANKS);
}

static double equations(const method *of, double rate, int steps)
{
    const method whole = with_defaults(*of);
    walk all = {0};
    for (int k = 0; k < steps; k++) walk_on(&all, &whole, rate);
    return distance_of(&all);
}

/* Until it is within a thousandth of the optimum; `most` at most. */
static int steps_needed(const method *of, double rate, int most)
{
    const method whole = with_defaults(*of);
    walk all = {0};
    int k = 0;
    for (; k < most && distance_of(&all) > 1e-3; k++) walk_on(&all, &whole, rate);
    return k;
}

/* ---- the gossips ------------------------------------------------------------------------------------------------- */

typedef struct search {
    double rate;
    int steps;
} search;

static tw_status seek(scene *all, int rank, tw_gossip *gossip)
{
    const search *way = all->context;
    tw_status status = scene_read(all, rank, gossip);
    for (int k = 0; status == TW_OK && k < way->steps; k++) {
        float step[SIDE];
        for (int j = 0; j < SIDE; j++) step[j] = (float)step_of(way->rate, rank, j, all->at[rank][j]);
        status = scene_add(gossip, step);
        if (status == TW_OK) status = scene_read(all, rank, gossip);
    }
    tw_world_compute(1); /* nobody leaves while others still ask */
    return status;
}

static double gossips(const method *of, double rate, int steps)
{
    char spec[128];
    search way = {.rate = rate, .steps = steps};
    walk end;
    scene *all =
        scene_run((scene){.spec = spec_of(of, spec), .workers = RANKS, .width = SIDE, .play = seek, .context = &way});
    for (int rank = 0; rank < RANKS; rank++)
        for (int j = 0; j < SIDE; j++) end.at[rank][j] = all->at[rank][j];
    free(all);
    return distance_of(&end);
}

static void assert_near(const method *of, double rate, double got, double want)
{
    char spec[128];
    if (!(fabs(got - want) <= 1e-4 * want))
        fail_msg("%s at rate %g: %.7g, not %.7g", spec_of(of, spec), rate, got, want);
}

/* For as long as single precision does not show. */
static void check_walk(method of, double rate, int steps)
{
    assert_near(&of, rate, gossips(&of, rate, steps), equations(&of, rate, steps));
}

static const double rates[] = {0.2, 0.05};

TEST(test_gossips_walk_as_the_equations_do)
{
    for (int r = 0; r < 2; r++) {
        check_walk((method){"cold", 1, 0, 0, 0}, rates[r], 20);
        check_walk((method){"cold", 1, 0, 0.4, 0.3}, rates[r], 60);
        check_walk((method){"cold", 0.2, 0, 0, 0}, rates[r], 100);
        check_walk((method){"cold", 0.05, 0, 0, 0}, rates[r], 200);
        check_walk((method){"cold", 0.05, 0, 0.4, 1}, rates[r], 60);
        check_walk((method){"cold", 1, 1, 0.1, 1}, rates[r], 30);
        check_walk((method){"choco", 1, 0, 0.3, 0}, rates[r], 60);
        check_walk((method){"choco", 0.05, 0, 0, 0}, rates[r], 200);
        check_walk((method){"choco", 0.2, 1, 0, 0}, rates[r], 30);
    }
}

/* ---- where they end ---------------------------------------------------------------------------------------------- */

/* In single precision, which ends near the optimum, where double precision has 1e-7 and less. */
TEST(test_cold_converges_at_its_defaults)
{
    static const struct {
        method of;
        double rate;
        int steps;
    } searches[] = {
        {{"cold", 1, 0, 0, 0}, 0.2, 200}, {{"cold", 1, 0, 0, 0}, 0.05, 200}, {{"cold", 0.2, 0, 0, 0}, 0.05, 500}};
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++)
        assert_true(gossips(&searches[i].of, searches[i].rate, searches[i].steps) < 3e-3);
}

/* In 2,000 steps: + is within a thousandth of the optimum, - beyond 500; ~ does neither in twice as many. */
static void check_row(method of, double rate, const char *ends)
{
    static const double gammas[] = {1, 0.4, 0.1, 0.03};
    char spec[128];
    for (int g = 0; ends[g]; g++) {
        of.gamma = gammas[g];
        double distance = equations(&of, rate, ends[g] == '~' ? 4000 : 2000);
        char end = distance < 1e-3 ? '+' : distance < 500 ? '~' : '-';
        if (end != ends[g]) fail_msg("%s at rate %g: %g from the optimum", spec_of(&of, spec), rate, distance);
    }
}

/* NIDS as it is: linear convergence where it is stable; gamma has to fall with what is sent, and a smaller rate can be
 * too small. */
TEST(test_where_cold_converges)
{
    check_row((method){"cold", 1, 0, 0, 1}, 0.2, "++++");
    check_row((method){"cold", 1, 0, 0, 1}, 0.05, "++++");
    check_row((method){"cold", 0.2, 0, 0, 1}, 0.2, "-+++");
    check_row((method){"cold", 0.2, 0, 0, 1}, 0.05, "-+++");
    check_row((method){"cold", 0.05, 0, 0, 1}, 0.2, "--++");
    check_row((method){"cold", 0.05, 0, 0, 1}, 0.05, "---+");
    check_row((method){"cold", 1, 1, 0, 1}, 0.2, "--~+");
    check_row((method){"cold", 1, 1, 0, 1}, 0.05, "----");
}

/* The table of docs/gossip.md. A sum that is rounded elsewhere may need a step more. */
TEST(test_how_long_cold_takes_at_its_defaults)
{
    static const double densities[] = {1, 0.2, 0.05};
    static const int needed[][2] = {{104, 86}, {1333, 355}, {8000, 5479}};
    for (int i = 0; i < in_part(2, 3); i++)
        for (int r = 0; r < 2; r++) {
            const method of = {"cold", densities[i], 0, 0, 0};
            int steps = steps_needed(&of, rates[r], 8000);
            if (abs(steps - needed[i][r]) > needed[i][r] / 100)
                fail_msg("density %g, rate %g: %d steps, not %d", densities[i], rates[r], steps, needed[i][r]);
        }
}

/* The rate and gamma leave choco a distance of its own. */
TEST(test_choco_stays_at_its_distance)
{
    static const double gammas[] = {1, 0.3, 0.05}, distances[] = {2.6779, 5.2128, 9.3910};
    for (int i = 0; i < 3; i++) {
        const method of = {"choco", 1, 0, gammas[i], 0};
        assert_near(&of, 0.05, equations(&of, 0.05, 600), distances[i]);
    }
    assert_true(equations(&(method){"choco", 0.05, 0, 1, 0}, 0.05, 1000) > 500);
}

RUN_TESTS(NULL, NULL)
