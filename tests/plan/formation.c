/* Clusters of unlike machines: the best way beside every way there is, and the search beside the best way. */
#include "formation.h"
#include "support/assert.h"
#include "support/random.h"

static void draw_machines(uint64_t stream, machine *machines, size_t count)
{
    for (size_t i = 0; i < count; i++)
        machines[i] = (machine){100 + draw(stream, 2 * i, 4000), 10 + draw(stream, 2 * i + 1, 100)};
}

/* The words of the header, written another way: cluster by cluster. -1: a cluster has no machine. */
static int64_t badness_of(const machine *machines, size_t count, int64_t model, int clusters, const int *of)
{
    int64_t least = INT64_MAX, most = INT64_MIN, lacking = 0;
    for (int c = 0; c < clusters; c++) {
        int64_t memory = 0, time = 0, members = 0;
        for (size_t i = 0; i < count; i++) {
            if (of[i] != c) continue;
            memory += machines[i].memory;
            time += (machines[i].memory - machines[i].memory % machines[i].rate) / machines[i].rate;
            members++;
        }
        if (members == 0) return -1;
        if (memory < model) lacking += model - memory;
        if (time < least) least = time;
        if (time > most) most = time;
    }
    return 100 * lacking + most - least;
}

/* Of all numbers of clusters that the machines could have, counted through as one number of `count` digits. */
static int64_t best_of_all(const machine *machines, size_t count, int64_t model, int clusters)
{
    int of[FORMATION_EXACT] = {0};
    int64_t best = INT64_MAX;
    for (;;) {
        int64_t badness = badness_of(machines, count, model, clusters, of);
        if (badness >= 0 && badness < best) best = badness;
        size_t digit = 0;
        while (digit < count && ++of[digit] == clusters) of[digit++] = 0;
        if (digit == count) return best;
    }
}

static void check_way(const machine *machines, size_t count, int64_t model, const formation *way, int64_t badness)
{
    int next = 0;
    for (size_t i = 0; i < count; i++) { /* numbered as they come */
        assert_in_range(way->of[i], 0, next);
        if (way->of[i] == next) next++;
    }
    assert_int_equal(next, way->clusters);
    assert_int_equal(100 * way->lacking + way->apart, badness);
    assert_int_equal(badness_of(machines, count, model, way->clusters, way->of), badness);
}

/* By hand: 3000 MB at 100 Mbit/s is 30, 500 at 60 is 8 and 700 at 70 is 10. The second cluster lacks 800 of 2000. */
TEST(test_the_words_of_the_paper)
{
    const machine machines[] = {{3000, 100}, {500, 60}, {700, 70}};
    formation way = {.clusters = 2, .of = {0, 1, 1}};
    assert_int_equal(formation_weigh(machines, 3, 2000, &way), 100 * 800 + 12);
    assert_int_equal(way.lacking, 800);
    assert_int_equal(way.apart, 12);
    way.clusters = 3; /* and the third all of it */
    assert_int_equal(formation_weigh(machines, 3, 2000, &way), 100 * 2800 + 30);
    way = (formation){.clusters = 1};
    assert_int_equal(formation_weigh(machines, 3, 2000, &way), 0); /* why numbers are answered one by one */
}

TEST(test_exact_is_the_best_of_all)
{
    machine machines[FORMATION_EXACT];
    for (uint64_t stream = 0; stream < 60; stream++) {
        size_t count = stream < 57 ? 1 + stream % 7 : FORMATION_EXACT;
        draw_machines(stream, machines, count);
        int64_t model = 500 + draw(stream, 1000, 6000);
        for (int clusters = 1; clusters <= FORMATION_CLUSTERS && (size_t)clusters <= count; clusters++) {
            if (count == FORMATION_EXACT && clusters == FORMATION_CLUSTERS) continue; /* ten million */
            formation best;
            formation_exact(machines, count, model, clusters, &best);
            check_way(machines, count, model, &best, best_of_all(machines, count, model, clusters));
        }
    }
}

/* An empty cluster is never better, but here as good: every way lacks the same, and no time is above 0. */
TEST(test_no_cluster_is_empty)
{
    const machine machines[] = {{10, 100}, {20, 100}, {30, 100}};
    for (int clusters = 1; clusters <= 3; clusters++) {
        formation best;
        formation_exact(machines, 3, 1000, clusters, &best);
        check_way(machines, 3, 1000, &best, 100 * (1000 * clusters - 60));
    }
}

/* It may miss the best way, but never beats it, and where clusters can hold the model, they do. */
TEST(test_the_search_beside_the_best)
{
    int found = 0;
    machine machines[FORMATION_EXACT];
    for (uint64_t stream = 0; stream < 10; stream++) {
        draw_machines(100 + stream, machines, FORMATION_EXACT);
        int64_t model = 500 + draw(stream, 1000, 4000);
        for (int clusters = 1; clusters <= FORMATION_CLUSTERS; clusters++) {
            formation best, way;
            formation_exact(machines, FORMATION_EXACT, model, clusters, &best);
            assert_ok(formation_genetic(machines, FORMATION_EXACT, model, clusters, stream, &way));
            int64_t least = 100 * best.lacking + best.apart, badness = 100 * way.lacking + way.apart;
            check_way(machines, FORMATION_EXACT, model, &way, badness);
            assert_true(badness >= least);
            assert_true(best.lacking > 0 || way.lacking == 0);
            found += badness == least;
        }
    }
    assert_int_equal(found, 37); /* docs/clusters.md says so */
}

/* Thirty machines that were ten of each of three clusters alike: a way with no badness at all is known. */
TEST(test_the_search_among_many)
{
    machine machines[30];
    formation way, again, other;
    draw_machines(7, machines, 10);
    int64_t model = 0;
    for (size_t i = 0; i < 10; i++) {
        machines[i + 10] = machines[i + 20] = machines[i];
        model += machines[i].memory;
    }
    model = 9 * model / 10;
    assert_ok(formation_genetic(machines, 30, model, 3, 1, &way));
    assert_int_equal(way.lacking, 0);
    assert_in_range(way.apart, 0, 2);
    assert_ok(formation_genetic(machines, 30, model, 3, 1, &again));
    assert_memory_equal(way.of, again.of, 30 * sizeof *way.of);
    assert_ok(formation_genetic(machines, 30, model, 3, 2, &other));
    assert_memory_not_equal(way.of, other.of, 30 * sizeof *way.of);
}

TEST(test_shares_are_the_model)
{
    machine machines[FORMATION_MACHINES];
    int64_t shares[FORMATION_MACHINES];
    for (uint64_t stream = 0; stream < 100; stream++) {
        size_t count = 5 + draw(stream, 5000, FORMATION_MACHINES - 5);
        formation way = {.clusters = FORMATION_CLUSTERS};
        int64_t memory[FORMATION_CLUSTERS] = {0}, sum[FORMATION_CLUSTERS] = {0}, least = INT64_MAX;
        draw_machines(stream, machines, count);
        if (stream == 0) machines[0].memory = FORMATION_LARGEST;
        for (size_t i = 0; i < count; i++) memory[way.of[i] = (int)(i % FORMATION_CLUSTERS)] += machines[i].memory;
        for (int c = 0; c < FORMATION_CLUSTERS; c++) least = memory[c] < least ? memory[c] : least;
        formation_share(machines, count, least, &way, shares);
        for (size_t i = 0; i < count; i++) {
            double part = (double)least * (double)machines[i].memory / (double)memory[way.of[i]];
            assert_in_range(shares[i], 0, machines[i].memory);
            assert_near((double)shares[i], part, 1);
            sum[way.of[i]] += shares[i];
        }
        for (int c = 0; c < FORMATION_CLUSTERS; c++) assert_int_equal(sum[c], least);
    }
}

RUN_TESTS(NULL, NULL)
