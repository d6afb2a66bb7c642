#include "formation.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

enum { LACKING_WEIGHS = 100 };

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t formation_weigh(const machine *machines, size_t count, int64_t model, formation *way)
{
    int64_t memory[FORMATION_CLUSTERS] = {0}, time[FORMATION_CLUSTERS] = {0}, longest = 0, shortest = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        memory[way->of[i]] += machines[i].memory;
        time[way->of[i]] += machines[i].memory / machines[i].rate;
    }
    way->lacking = 0;
    for (int c = 0; c < way->clusters; c++) {
        way->lacking += larger(0, model - memory[c]);
        longest = larger(longest, time[c]);
        shortest = time[c] < shortest ? time[c] : shortest;
    }
    way->apart = longest - shortest;
    return LACKING_WEIGHS * way->lacking + way->apart;
}

/* ---- every way --------------------------------------------------------------------------------------------------- */

typedef struct search {
    const machine *machines;
    size_t count;
    int64_t model, badness;
    formation *best, way;
} search;

/* Machine i goes into each cluster that there is, or into the next one: so no two ways differ in numbers alone. */
static void try_ways(search *s, size_t i, int used)
{
    int wanted = s->way.clusters;
    if ((size_t)(wanted - used) > s->count - i) return; /* too few are left */
    if (i == s->count) {
        int64_t badness = formation_weigh(s->machines, s->count, s->model, &s->way);
        if (badness >= s->badness) return;
        s->badness = badness;
        *s->best = s->way;
        return;
    }
    for (int c = 0; c <= used && c < wanted; c++) {
        s->way.of[i] = c;
        try_ways(s, i + 1, used + (c == used));
    }
}

void formation_exact(const machine *machines, size_t count, int64_t model, int clusters, formation *best)
{
    search s = {.machines = machines,
                .count = count,
                .model = model,
                .badness = INT64_MAX,
                .best = best,
                .way = {.clusters = clusters}};
    try_ways(&s, 0, 0);
}

/* ---- the genetic search ------------------------------------------------------------------------------------------ */

enum { POPULATION = 200, GENERATIONS = 500, TOURNAMENT = 5, ONE_MUTATES_IN = 100 };

typedef struct breeding {
    search base;
    formation *ways, *children;
    int64_t badness[POPULATION];
    uint64_t seed, drawn; /* numbers so far */
    uint32_t words[4];
} breeding;

static uint32_t draw(breeding *b, uint32_t below)
{
    if (b->drawn % 4 == 0) tw_random(b->seed, 0, b->drawn / 4, b->words);
    return b->words[b->drawn++ % 4] % below;
}

static void weigh_all(breeding *b)
{
    for (int i = 0; i < POPULATION; i++) {
        b->badness[i] = formation_weigh(b->base.machines, b->base.count, b->base.model, &b->ways[i]);
        if (b->badness[i] >= b->base.badness) continue;
        b->base.badness = b->badness[i];
        *b->base.best = b->ways[i];
    }
}

static const formation *win_tournament(breeding *b)
{
    uint32_t best = draw(b, POPULATION);
    for (int i = 1; i < TOURNAMENT; i++) {
        uint32_t other = draw(b, POPULATION);
        if (b->badness[other] < b->badness[best]) best = other;
    }
    return &b->ways[best];
}

static void mutate(breeding *b, formation *way)
{
    for (size_t i = 0; i < b->base.count; i++)
        if (draw(b, ONE_MUTATES_IN) == 0) way->of[i] = (int)draw(b, (uint32_t)way->clusters);
}

static void breed(breeding *b)
{
    size_t count = b->base.count;
    for (int i = 0; i < POPULATION; i += 2) {
        const formation *one = win_tournament(b), *other = win_tournament(b);
        size_t head = count > 1 ? 1 + draw(b, (uint32_t)count - 1) : 1, tail = (count - head) * sizeof *one->of;
        b->children[i] = *one;
        b->children[i + 1] = *other;
        memcpy(b->children[i].of + head, other->of + head, tail);
        memcpy(b->children[i + 1].of + head, one->of + head, tail);
        mutate(b, &b->children[i]);
        mutate(b, &b->children[i + 1]);
    }
    formation *old = b->ways;
    b->ways = b->children;
    b->children = old;
}

/* Clusters get their numbers in the order of their first machines. */
static void number_clusters(formation *way, size_t count)
{
    int next = 0, number[FORMATION_CLUSTERS];
    for (int c = 0; c < FORMATION_CLUSTERS; c++) number[c] = -1;
    for (size_t i = 0; i < count; i++) {
        int *mine = &number[way->of[i]];
        if (*mine < 0) *mine = next++;
        way->of[i] = *mine;
    }
}

tw_status formation_genetic(const machine *machines, size_t count, int64_t model, int clusters, uint64_t seed,
                            formation *best)
{
    breeding b = {.base = {machines, count, model, INT64_MAX, best, {0}}, .seed = seed};
    formation *both = calloc((size_t)2 * POPULATION, sizeof *both);
    if (!both) return tw_fail(TW_ERROR_MEMORY, "no memory for %d ways to form clusters", 2 * POPULATION);
    b.ways = both;
    b.children = both + POPULATION;
    for (int i = 0; i < POPULATION; i++) {
        b.ways[i].clusters = clusters;
        for (size_t m = 0; m < count; m++) b.ways[i].of[m] = (int)draw(&b, (uint32_t)clusters);
    }
    weigh_all(&b);
    for (int generation = 0; generation < GENERATIONS && b.base.badness > 0; generation++) {
        breed(&b);
        weigh_all(&b);
    }
    free(both);
    number_clusters(best, count);
    return TW_OK;
}

/* ---- shares ------------------------------------------------------------------------------------------------------ */

/* A machine's share ends where the memory of its cluster up to and with this machine does, rounded down. */
void formation_share(const machine *machines, size_t count, int64_t model, const formation *way, int64_t *shares)
{
    int64_t memory[FORMATION_CLUSTERS] = {0}, so_far[FORMATION_CLUSTERS] = {0}, end[FORMATION_CLUSTERS] = {0};
    for (size_t i = 0; i < count; i++) memory[way->of[i]] += machines[i].memory;
    for (size_t i = 0; i < count; i++) {
        int c = way->of[i];
        so_far[c] += machines[i].memory;
        int64_t next = model * so_far[c] / memory[c];
        shares[i] = next - end[c];
        end[c] = next;
    }
}
