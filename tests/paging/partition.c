/* Groups against every way to cut, tried one by one with a cost that is added up anew. */
#include "partition.h"
#include "support/cmocka.h"

#include <math.h>

enum { UNITS = 9 };

static double cost_of(const partition_problem *p, unsigned cuts, int *fits)
{
    double bytes[UNITS + 2] = {0}, forward[UNITS + 2] = {0}, backward[UNITS + 2] = {0}, seconds = 0;
    size_t groups = 1;
    for (size_t u = 0; u < p->count; u++) {
        if (u && cuts >> (u - 1) & 1) groups++;
        bytes[groups] += (double)p->units[u].bytes;
        forward[groups] += p->units[u].forward;
        backward[groups] += p->units[u].backward;
    }
    *fits = 1;
    for (size_t g = 1; g <= groups; g++) {
        const double both = bytes[g] + bytes[g + 1];
        if (both + fmax(bytes[g], bytes[g + 1]) > (double)p->room) *fits = 0;
        if (g == 1) seconds += p->load * bytes[1];
        seconds += fmax(forward[g], p->load * bytes[g + 1]);
        seconds += fmax(backward[g], p->load_back * bytes[g - 1] + p->store * bytes[g + 1]);
    }
    return seconds;
}

static unsigned draw(unsigned *seed, unsigned below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static void draw_problem(unsigned *seed, partition_unit *units, partition_problem *p)
{
    p->units = units;
    p->count = 1 + draw(seed, UNITS);
    for (size_t u = 0; u < p->count; u++)
        units[u] = (partition_unit){1 + draw(seed, 40), draw(seed, 50), draw(seed, 90)};
    p->room = draw(seed, 400);
    p->load = draw(seed, 20) / 8.0;
    p->load_back = draw(seed, 20) / 8.0;
    p->store = draw(seed, 20) / 8.0;
}

TEST(groups_are_the_best_of_all)
{
    unsigned seed = 1, found = 0;
    for (int t = 0; t < 400; t++) {
        partition_unit units[UNITS];
        partition_problem p;
        size_t ends[UNITS];
        double best = INFINITY;
        draw_problem(&seed, units, &p);
        for (unsigned cuts = 0; cuts < 1u << (p.count - 1); cuts++) {
            int fits;
            const double cost = cost_of(&p, cuts, &fits);
            if (fits && cost < best) best = cost;
        }
        const size_t groups = partition_find(&p, ends);
        assert_int_equal(groups > 0, isfinite(best) != 0);
        assert_int_equal(partition_least(&p) <= p.room, groups > 0);
        if (!groups) continue;
        unsigned cuts = 0;
        int fits;
        for (size_t g = 0; g + 1 < groups; g++) cuts |= 1u << (ends[g] - 1);
        found++;
        assert_int_equal(ends[groups - 1], p.count);
        assert_true(fabs(cost_of(&p, cuts, &fits) - best) < 1e-9);
        assert_true(fits);
        assert_true(fabs(partition_seconds(&p, ends, groups) - best) < 1e-9);
    }
    assert_true(found > 100 && found < 400);
}

TEST(the_smallest_neighbours_are_joined)
{
    partition_unit units[] = {{5, 1, 10}, {1, 2, 20}, {2, 4, 40}, {9, 8, 80}, {3, 16, 160}};
    size_t counts[] = {1, 1, 1, 1, 1};
    assert_int_equal(partition_join(units, counts, 5, 3), 3);
    assert_int_equal(units[0].bytes, 8); /* 1 and 2, then 5 and these */
    assert_true(units[0].forward == 7 && units[0].backward == 70);
    assert_int_equal(counts[0], 3);
    assert_int_equal(units[1].bytes, 9);
    assert_int_equal(units[2].bytes, 3);
    assert_int_equal(partition_join(units, counts, 3, 3), 3);
    assert_int_equal(partition_join(units, counts, 3, 1), 1);
    assert_int_equal(units[0].bytes, 20);
    assert_int_equal(counts[0], 5);
}

RUN_TESTS(NULL, NULL)
