#include "partition.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The units from `first` to before `end`. */
typedef struct part {
    double bytes, forward, backward;
} part;

typedef struct search {
    const partition_problem *problem;
    part sums[PARTITION_MOST + 1]; /* of the units before each */
    double *costs;                 /* see best */
    unsigned char *nexts;
} search;

static part part_of(const search *s, size_t first, size_t end)
{
    const part *a = &s->sums[first], *b = &s->sums[end];
    return (part){b->bytes - a->bytes, b->forward - a->forward, b->backward - a->backward};
}

/* A group's time, between those before and after it; the neighbour that is not there has no bytes. The first is there,
 * and takes its step when its turn comes. */
static double seconds_of(const partition_problem *p, const part *before, const part *own, const part *after)
{
    return (before->bytes > 0 ? 0 : p->load * own->bytes) + fmax(own->forward, p->load * after->bytes) +
           fmax(own->backward, p->store * after->bytes + p->load_back * before->bytes);
}

static double need_of(const part *a, const part *b)
{
    return a->bytes + b->bytes + fmax(a->bytes, b->bytes);
}

static void add_up(const partition_problem *problem, search *s)
{
    *s = (search){.problem = problem};
    for (size_t i = 0; i < problem->count; i++) {
        const partition_unit *u = &problem->units[i];
        const part *before = &s->sums[i];
        s->sums[i + 1] =
            (part){before->bytes + (double)u->bytes, before->forward + u->forward, before->backward + u->backward};
    }
}

static size_t place_of(size_t h, size_t i, size_t j)
{
    enum { SIDE = PARTITION_MOST + 1 };
    return (h * SIDE + i) * SIDE + j;
}

/* The least cost of a group (i, j] after a group (h, i], and of all behind it. */
static void best(search *s, size_t h, size_t i, size_t j)
{
    const size_t count = s->problem->count, place = place_of(h, i, j);
    const part before = part_of(s, h, i), own = part_of(s, i, j), none = {0};
    s->costs[place] = INFINITY;
    if (j == count && need_of(&own, &none) <= (double)s->problem->room)
        s->costs[place] = seconds_of(s->problem, &before, &own, &none);
    for (size_t k = j + 1; k <= count; k++) {
        const part after = part_of(s, j, k);
        const double cost = seconds_of(s->problem, &before, &own, &after) + s->costs[place_of(i, j, k)];
        if (need_of(&own, &after) > (double)s->problem->room || !(cost < s->costs[place])) continue;
        s->costs[place] = cost;
        s->nexts[place] = (unsigned char)k;
    }
}

/* Of equal costs the first, whose groups are small, wins: it moves in small pieces. */
static size_t search_groups(search *s, size_t *ends)
{
    const size_t count = s->problem->count;
    size_t first = 0, groups = 0;
    for (size_t j = count; j > 0; j--)
        for (size_t i = 0; i < j; i++)
            for (size_t h = 0; h < (i ? i : 1); h++) best(s, h, i, j);
    for (size_t j = 1; j <= count; j++)
        if (s->costs[place_of(0, 0, j)] < (first ? s->costs[place_of(0, 0, first)] : INFINITY)) first = j;
    for (size_t h = 0, i = 0, j = first; first && j > i;) {
        size_t next = j < count ? s->nexts[place_of(h, i, j)] : j;
        ends[groups++] = j;
        h = i;
        i = j;
        j = next;
    }
    return groups;
}

size_t partition_find(const partition_problem *problem, size_t *ends)
{
    const size_t places = place_of(PARTITION_MOST, PARTITION_MOST, PARTITION_MOST) + 1;
    search s;
    add_up(problem, &s);
    s.costs = malloc(places * sizeof *s.costs);
    s.nexts = malloc(places);
    size_t groups = s.costs && s.nexts ? search_groups(&s, ends) : 0;
    free(s.costs);
    free(s.nexts);
    return groups;
}

double partition_seconds(const partition_problem *problem, const size_t *ends, size_t groups)
{
    search s;
    double seconds = 0;
    add_up(problem, &s);
    for (size_t g = 0; g < groups; g++) {
        const size_t begin = g ? ends[g - 1] : 0;
        const part before = part_of(&s, g > 1 ? ends[g - 2] : 0, begin), own = part_of(&s, begin, ends[g]);
        const part after = part_of(&s, ends[g], g + 1 < groups ? ends[g + 1] : ends[g]);
        seconds += seconds_of(problem, &before, &own, &after);
    }
    return seconds;
}

size_t partition_least(const partition_problem *problem)
{
    search s;
    double least = 0;
    add_up(problem, &s);
    for (size_t i = 0; i < problem->count; i++) {
        const part own = part_of(&s, i, i + 1);
        const part after = part_of(&s, i + 1, i + 2 <= problem->count ? i + 2 : i + 1);
        least = fmax(least, need_of(&own, &after));
    }
    return (size_t)least;
}

static size_t find_smallest(const partition_unit *units, size_t count)
{
    size_t smallest = 0;
    for (size_t i = 1; i + 1 < count; i++)
        if (units[i].bytes + units[i + 1].bytes < units[smallest].bytes + units[smallest + 1].bytes) smallest = i;
    return smallest;
}

size_t partition_join(partition_unit *units, size_t *counts, size_t count, size_t most)
{
    while (count > most) {
        const size_t at = find_smallest(units, count--);
        const partition_unit *after = &units[at + 1];
        units[at] = (partition_unit){units[at].bytes + after->bytes, units[at].forward + after->forward,
                                     units[at].backward + after->backward};
        counts[at] += counts[at + 1];
        memmove(&units[at + 1], &units[at + 2], (count - at - 1) * sizeof *units);
        memmove(&counts[at + 1], &counts[at + 2], (count - at - 1) * sizeof *counts);
    }
    return count;
}
