/* rows_descent.h - the rows of descent.h for a vector level; see rows.h, which includes it. */

enum { GROUPS = WIDTH / 4 /* of a digest, in a vector */, TALLIES = 16 / WIDTH /* vectors of sums over i mod 16 */ };

/* A digest's sums, lane by lane of a vector. */
typedef struct lane_digest {
    word_vector first, second;
} lane_digest;

TW_INLINE void take_in(lane_digest *of, vector x)
{
    word_vector bits = (word_vector)x;
    of->first += bits ^ bits >> 16;
    of->second += of->first;
}

/* Adds so many vectors to a digest. There a group counts in the second sum as often as there are groups from it on:
 * GROUPS times for each vector from its own on, but for the j groups before it in that. */
TW_INLINE void add_lanes(tw_digest *of, const lane_digest *lanes, size_t vectors)
{
    for (uint32_t lane = 0; lane < 4; lane++) {
        of->second[lane] += (uint32_t)(vectors * GROUPS) * of->first[lane];
        for (uint32_t j = 0; j < GROUPS; j++) {
            uint32_t first = lanes->first[4 * j + lane];
            of->first[lane] += first;
            of->second[lane] += GROUPS * lanes->second[4 * j + lane] - j * first;
        }
    }
}

static void digest(tw_digest *of, const float *x, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    lane_digest lanes = {{0}, {0}};
    for (size_t i = 0; i < whole; i += WIDTH) take_in(&lanes, load(x + i));
    add_lanes(of, &lanes, whole / WIDTH);
    tw_descent_scalar.digest(of, x + whole, n - whole);
}

/* The sums of a descent, and its digests. */
typedef struct tally {
    vector mean[TALLIES], before[TALLIES], both[TALLIES];
    lane_digest theta, v;
} tally;

TW_INLINE tally tally_load(const tw_descent *descent)
{
    tally of = {0};
    memcpy(of.mean, descent->mean, sizeof of.mean);
    memcpy(of.before, descent->before, sizeof of.before);
    memcpy(of.both, descent->both, sizeof of.both);
    return of;
}

TW_INLINE void tally_store(tw_descent *descent, const tally *of, size_t vectors)
{
    memcpy(descent->mean, of->mean, sizeof of->mean);
    memcpy(descent->before, of->before, sizeof of->before);
    memcpy(descent->both, of->both, sizeof of->both);
    add_lanes(&descent->theta, &of->theta, vectors);
    add_lanes(&descent->v, &of->v, vectors);
}

/* n is a multiple of 16; `nesterov`, whether there are weights and `past_cache` are known when this is compiled. */
TW_INLINE void descend_whole(tw_descent *descent, int nesterov, const float *d, float *v, float *theta, float *weights,
                             size_t n, int past_cache)
{
    const float rate = descent->rate, momentum = descent->momentum;
    tally of = tally_load(descent);
    for (size_t i = 0; i < n; i += 16) {
        fetch_soon(d + i);
        fetch_soon(v + i);
        fetch_soon(theta + i);
        for (size_t k = 0; k < TALLIES; k++) {
            size_t at = i + k * WIDTH;
            vector mean = load(d + at), before = load(v + at), now = momentum * before + mean;
            vector there = load(theta + at) - rate * (nesterov ? mean + momentum * now : now);
            of.mean[k] += mean * mean;
            of.before[k] += before * before;
            of.both[k] += mean * before;
            take_in(&of.theta, there);
            take_in(&of.v, now);
            store(v + at, now);
            store(theta + at, there);
            if (weights) write_vector(weights + at, there, past_cache);
        }
    }
    tally_store(descent, &of, n / WIDTH);
}

TW_INLINE void descend_with(tw_descent *descent, int nesterov, const float *d, float *v, float *theta, float *weights,
                            size_t n)
{
    if (!weights)
        descend_whole(descent, nesterov, d, v, theta, NULL, n, 0);
    else if (descent->past_cache && (uintptr_t)weights % sizeof(vector) == 0)
        descend_whole(descent, nesterov, d, v, theta, weights, n, 1);
    else
        descend_whole(descent, nesterov, d, v, theta, weights, n, 0);
}

static void descend(tw_descent *descent, const float *d, float *v, float *theta, float *weights, size_t n)
{
    size_t whole = n / 16 * 16;
    if (descent->nesterov)
        descend_with(descent, 1, d, v, theta, weights, whole);
    else
        descend_with(descent, 0, d, v, theta, weights, whole);
    tw_descent_scalar.descend(descent, d + whole, v + whole, theta + whole, weights ? weights + whole : NULL,
                              n - whole);
}

static const tw_descent_rows descent_rows = {.descend = descend, .digest = digest};
