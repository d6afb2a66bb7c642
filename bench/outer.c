/* What a round of local updates costs a rank beside the line: medians of the processor time of a tw_outer_step that
 * ends one, of a single rank, of streaming the bytes that none can avoid, and of the one over the other, pair by pair.
 * An element's are 36: theta and the weights are read and their difference is written; then the mean, momentum and
 * theta are read, and momentum, theta and the weights are written.
 *
 *     bench_outer                bench_outer 100000000 diloco:every=2 pulseloco:every=2 */
#include "bench.h"
#include "median.h"

#include <stdio.h>
#include <stdlib.h>
#include <thinwire/thinwire_outer.h>
#include <thinwire/thinwire_plugin.h>
#include <time.h>

enum { REPEATS = 11, TENSORS = 16, BYTES = 36, STREAMED = 20 /* by the pass that is timed */ };

/* Of all threads; others on the machine cost it little. */
static double busy(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void must(tw_status status)
{
    if (status == TW_OK) return;
    fprintf(stderr, "%s\n", tw_last_error());
    exit(1);
}

static float *floats(size_t count)
{
    float *made = bench_floats(count);
    if (made) return made;
    fprintf(stderr, "no memory for %zu floats\n", count);
    exit(1);
}

/* A step of a worker's own, far enough that each element moves. */
static void move(float *weights, size_t count, int step)
{
    for (size_t i = 0; i < count; i++) weights[i] += 1e-3f * (float)((i + (size_t)step) % 7);
}

static double end_round(tw_outer *outer, float *weights, float *const *parts, size_t count, int step)
{
    tw_outer_event event = TW_OUTER_NOTHING;
    double begun = 0;
    while (event == TW_OUTER_NOTHING) {
        move(weights, count, step);
        begun = busy();
        must(tw_outer_step(outer, parts, &event));
    }
    return busy() - begun;
}

static double stream(const float *a, float *b, float *c, size_t count)
{
    double begun = busy();
    bench_stream(STREAMED, a, b, c, count);
    return (busy() - begun) * BYTES / STREAMED;
}

static void measure(tw_comm *comm, const char *spec, size_t count)
{
    tw_tensor table[TENSORS];
    float *weights = floats(count), *a = floats(count), *b = floats(count), *c = floats(count), *parts[TENSORS];
    double round[REPEATS], floor[REPEATS], ratio[REPEATS];
    const char *names[TENSORS] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"};
    tw_outer *outer;
    for (int t = 0; t < TENSORS; t++) {
        table[t] = (tw_tensor){.name = names[t], .dims = 2, .shape = {count / TENSORS / 1000, 1000}};
        parts[t] = weights + (size_t)t * table[t].shape[0] * 1000;
    }
    must(tw_outer_create(comm, spec, table, TENSORS, &outer));
    must(tw_outer_begin(outer, parts));
    end_round(outer, weights, parts, count, 0); /* pages are there then */
    for (int i = 0; i < REPEATS; i++) {
        round[i] = end_round(outer, weights, parts, count, i);
        floor[i] = stream(a, b, c, count);
        ratio[i] = round[i] / floor[i];
    }
    printf("%-28s %9.1f ms, streaming %9.1f ms, ratio %.2f\n", spec, 1e3 * median_of(round, REPEATS),
           1e3 * median_of(floor, REPEATS), median_of(ratio, REPEATS));
    must(tw_outer_finish(outer, parts));
    tw_outer_destroy(outer);
    float *made[] = {weights, a, b, c};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) free(made[i]);
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000000;
    tw_comm *comm;
    if (count < TENSORS * 1000) {
        fprintf(stderr, "bench_outer: want at least %d weights, not %s\n", TENSORS * 1000, argv[1]);
        return 2;
    }
    count -= count % (TENSORS * 1000);
    must(tw_comm_create_threads(1, &comm));
    if (argc < 3) measure(comm, "diloco:every=2", count);
    for (int i = 2; i < argc; i++) measure(comm, argv[i], count);
    tw_comm_destroy(comm);
    return 0;
}
