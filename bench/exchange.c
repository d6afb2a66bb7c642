/* What the collectives cost on this machine: median seconds of an all-reduce, of an all-gather of packets, and of
 * copying and checking the same bytes.
 *
 *     mpirun -n 4 bench_exchange mpi          bench_exchange threads 4
 *
 * With specs behind it: what a reducer's exchange of ResNet-50's gradients costs, from the first submit to the end of
 * wait, a line of JSON a spec. The slowest rank's time counts, in each of STEPS steps (an environment variable);
 * bench/exchange.py runs this over shaped links.
 *
 *     mpirun -n 4 bench_exchange mpi allreduce dgc:warmup_steps=0          bench_exchange threads 4 allreduce */
#include "codec_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>
#include <thinwire/thinwire_plugin.h>

enum { FLOATS = 25600000, PACKET = 1 << 20, LARGE_PACKET = 16 << 20, REPEATS = 11, MOST = 64, UNMEASURED = 2 };

static char **specs; /* ends with NULL; none: the collectives */

typedef struct bench {
    tw_comm *comm;
    float *values;
    char *packet, *gathered;
} bench;

static void must(tw_status status)
{
    if (status == TW_OK) return;
    fprintf(stderr, "%s\n", tw_last_error());
    exit(1);
}

static void reduce(bench *me)
{
    must(tw_comm_allreduce(me->comm, me->values, FLOATS));
}

static void gather(bench *me)
{
    must(tw_comm_allgather(me->comm, me->packet, PACKET, me->gathered));
}

static void gather_large(bench *me)
{
    must(tw_comm_allgather(me->comm, me->packet, LARGE_PACKET, me->gathered));
}

static void gather_words(bench *me)
{
    must(tw_comm_allgather(me->comm, me->packet, 4, me->gathered));
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(bench *me, const char *what, void (*act)(bench *))
{
    double seconds[REPEATS];
    act(me);
    for (int i = 0; i < REPEATS; i++) {
        must(tw_comm_barrier(me->comm));
        double start = tw_clock();
        act(me);
        must(tw_comm_barrier(me->comm));
        seconds[i] = tw_clock() - start;
    }
    qsort(seconds, REPEATS, sizeof *seconds, ascending);
    if (tw_comm_rank(me->comm) == 0)
        printf("%-28s %10.3f ms (%.3f to %.3f)\n", what, 1e3 * seconds[REPEATS / 2], 1e3 * seconds[0],
               1e3 * seconds[REPEATS - 1]);
}

static void copy(bench *me)
{
    memcpy(me->gathered, me->values, LARGE_PACKET);
}

static void check(bench *me)
{
    volatile uint32_t crc = tw_crc32c(0, me->values, LARGE_PACKET);
    (void)crc;
}

static void measure_collectives(tw_comm *comm)
{
    bench me = {.comm = comm};
    size_t ranks = (size_t)tw_comm_size(comm);
    me.values = calloc(FLOATS, sizeof *me.values);
    me.packet = calloc(LARGE_PACKET, 1);
    me.gathered = malloc(ranks * LARGE_PACKET);
    if (!me.values || !me.packet || !me.gathered) exit(1);
    memset(me.values, 0, FLOATS * sizeof *me.values);
    memset(me.gathered, 0, ranks * LARGE_PACKET);
    measure(&me, "all-reduce, 25.6 M floats", reduce);
    measure(&me, "all-gather, 1 MiB a rank", gather);
    measure(&me, "all-gather, 16 MiB a rank", gather_large);
    measure(&me, "all-gather, 4 bytes a rank", gather_words);
    measure(&me, "copy, 16 MiB", copy);
    measure(&me, "checksum, 16 MiB", check);
}

/* ---- a reducer's exchange --------------------------------------------------------------------------------------- */

typedef struct model {
    tw_comm *comm;
    codec_source source;
    float **gradients;
    double *seconds; /* of this rank, one a step; then of the slowest */
    size_t steps, taken;
} model;

static void create_model(model *m, tw_comm *comm)
{
    const char *steps = getenv("STEPS");
    *m = (model){.comm = comm, .steps = steps ? strtoul(steps, NULL, 10) : REPEATS};
    must(codec_source_resnet50(&m->source));
    m->seconds = calloc(m->steps + 1, sizeof *m->seconds);
    m->gradients = calloc(m->source.count, sizeof *m->gradients);
    float *values = malloc(m->source.elements * sizeof *values);
    if (!m->seconds || !m->gradients || !values) exit(1);
    for (size_t i = 0; i < m->source.count; i++) m->gradients[i] = values + m->source.offset[i];
}

static void destroy_model(model *m)
{
    free(m->gradients[0]);
    free(m->gradients);
    free(m->seconds);
    codec_source_release(&m->source);
}

/* Every rank has gradients of its own, and new ones in each step. */
static void make_gradients(model *m)
{
    size_t draw = m->taken++ * (size_t)tw_comm_size(m->comm) + (size_t)tw_comm_rank(m->comm);
    for (size_t i = 0; i < m->source.count; i++) codec_source_copy(&m->source, i, draw, m->gradients[i]);
}

static double take_step(model *m, tw_reducer *reducer)
{
    make_gradients(m);
    must(tw_comm_barrier(m->comm));
    double start = tw_clock();
    for (size_t i = m->source.count; i-- > 0;) must(tw_reducer_submit(reducer, i, m->gradients[i]));
    must(tw_reducer_wait(reducer));
    return tw_clock() - start;
}

/* values[i] becomes the largest of any rank. */
static void largest(tw_comm *comm, double *values, size_t count)
{
    size_t ranks = (size_t)tw_comm_size(comm);
    double *all = calloc(ranks * count + 1, sizeof *all);
    if (!all) exit(1);
    must(tw_comm_allgather(comm, values, count * sizeof *values, all));
    for (size_t i = 0; i < ranks * count; i++)
        if (all[i] > values[i % count]) values[i % count] = all[i];
    free(all);
}

static tw_reducer_counts stats_of(const tw_reducer *reducer)
{
    tw_reducer_counts stats = {.struct_size = sizeof stats};
    must(tw_reducer_stats(reducer, &stats));
    return stats;
}

static void print(const model *m, const char *spec, const double *sums)
{
    double steps = (double)m->steps;
    printf("{\"spec\": \"%s\", \"ranks\": %d, \"elements\": %zu, \"bytes_sent\": %.0f, \"bytes_received\": %.0f, ",
           spec, tw_comm_size(m->comm), m->source.elements, sums[0] / steps, sums[1] / steps);
    printf("\"codec_ms\": %.3f, \"exchange_ms\": %.3f, \"step_ms\": [", 1e3 * sums[2] / steps, 1e3 * sums[3] / steps);
    for (size_t i = 0; i < m->steps; i++) printf("%s%.3f", i ? ", " : "", 1e3 * m->seconds[i]);
    printf("]}\n");
    fflush(stdout);
}

static void measure_spec(model *m, const char *spec)
{
    tw_reducer *reducer;
    must(tw_reducer_create(m->comm, spec, m->source.tensors, m->source.count, &reducer));
    for (int i = 0; i < UNMEASURED; i++) take_step(m, reducer);
    tw_reducer_counts before = stats_of(reducer);
    for (size_t i = 0; i < m->steps; i++) m->seconds[i] = take_step(m, reducer);
    tw_reducer_counts after = stats_of(reducer);
    double sums[] = {(double)(after.bytes_sent - before.bytes_sent),
                     (double)(after.bytes_received - before.bytes_received), after.seconds_codec - before.seconds_codec,
                     after.seconds_exchange - before.seconds_exchange};
    largest(m->comm, m->seconds, m->steps);
    largest(m->comm, sums, sizeof sums / sizeof *sums);
    if (tw_comm_rank(m->comm) == 0) print(m, spec, sums);
    tw_reducer_destroy(reducer);
}

static void measure_specs(tw_comm *comm)
{
    model m;
    create_model(&m, comm);
    for (char **spec = specs; *spec; spec++) measure_spec(&m, *spec);
    destroy_model(&m);
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static void *run(void *comm)
{
    if (*specs)
        measure_specs(comm);
    else
        measure_collectives(comm);
    tw_comm_destroy(comm);
    return NULL;
}

static void run_threads(int ranks)
{
    pthread_t threads[MOST];
    tw_comm *comms[MOST];
    must(tw_comm_create_threads(ranks, comms));
    for (int r = 0; r < ranks; r++) pthread_create(&threads[r], NULL, run, comms[r]);
    for (int r = 0; r < ranks; r++) pthread_join(threads[r], NULL);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    int ranks = threads && argc > 2 ? atoi(argv[2]) : 4;
    if (argc < 2 || ranks < 1 || ranks > MOST) return 2;
    specs = argv + (threads && argc > 2 ? 3 : 2);
    if (threads) {
        run_threads(ranks);
        return 0;
    }
    tw_comm *comm;
    must(tw_comm_open(argv[1], &comm));
    run(comm);
    return 0;
}
