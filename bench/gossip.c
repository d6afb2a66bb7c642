/* What a round of gossip costs the processor: two workers in one process that meet without a pause, first left alone,
 * then with a worker each that reads and adds all the time. One line of JSON, beside a copy of the same bytes.
 *
 *     bench_gossip [floats [spec]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pthread.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_plugin.h>

enum { RANKS = 2, FLOATS = 16 << 20, ROUNDS = 12, WARM = 2, STEPS = 12, COPIES = 11 };

typedef struct worker {
    tw_comm *comm;
    const char *spec;
    size_t count;
    pthread_barrier_t *all;
    double *cpu_per_round, slowest_read, slowest_add, rounds_per_step;
} worker;

static void must(tw_status status)
{
    if (status == TW_OK) return;
    fprintf(stderr, "%s\n", tw_last_error());
    exit(1);
}

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double rounds_of(const tw_gossip *gossip)
{
    tw_gossip_counts stats = {.struct_size = sizeof stats};
    must(tw_gossip_stats(gossip, &stats));
    return (double)stats.rounds;
}

static void wait_for_rounds(const tw_gossip *gossip, double rounds)
{
    double end = rounds_of(gossip) + rounds;
    while (rounds_of(gossip) < end) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Processor time of the process over the rounds of both ranks. */
static void measure_rounds(worker *me, const tw_gossip *gossip)
{
    wait_for_rounds(gossip, WARM);
    pthread_barrier_wait(me->all);
    double start = processor_seconds(), before = rounds_of(gossip);
    wait_for_rounds(gossip, ROUNDS);
    *me->cpu_per_round = (processor_seconds() - start) / (RANKS * (rounds_of(gossip) - before));
    pthread_barrier_wait(me->all);
}

static double timed(double start, double *slowest)
{
    double now = tw_clock();
    if (now - start > *slowest) *slowest = now - start;
    return now;
}

static void measure_calls(worker *me, tw_gossip *gossip, float *weights, const float *step)
{
    double before = rounds_of(gossip);
    for (int i = 0; i < STEPS; i++) {
        double start = tw_clock();
        must(tw_gossip_read(gossip, &weights));
        start = timed(start, &me->slowest_read);
        must(tw_gossip_add(gossip, &step));
        timed(start, &me->slowest_add);
    }
    me->rounds_per_step = (rounds_of(gossip) - before) / STEPS;
}

static void *run(void *argument)
{
    worker *me = argument;
    tw_gossip *gossip;
    tw_tensor table = {.name = "weights", .dims = 1, .shape = {me->count}};
    float *weights = malloc(me->count * sizeof *weights), *step = malloc(me->count * sizeof *step);
    if (!weights || !step) exit(1);
    for (size_t i = 0; i < me->count; i++) weights[i] = (float)(i % 1000) * 1e-3f, step[i] = 1e-6f;
    must(tw_gossip_create(me->comm, me->spec, &table, 1, (const float *const *)&weights, &gossip));
    must(tw_gossip_read(gossip, &weights));
    measure_rounds(me, gossip);
    measure_calls(me, gossip, weights, step);
    must(tw_gossip_finish(gossip, &weights));
    tw_gossip_destroy(gossip);
    tw_comm_destroy(me->comm);
    free(weights);
    free(step);
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double copy_seconds(size_t count)
{
    double seconds[COPIES];
    float *from = calloc(count, sizeof *from), *to = calloc(count, sizeof *to);
    if (!from || !to) exit(1);
    memset(from, 1, count * sizeof *from);
    memset(to, 1, count * sizeof *to);
    for (int i = 0; i < COPIES; i++) {
        double start = processor_seconds();
        memcpy(to, from, count * sizeof *to);
        seconds[i] = processor_seconds() - start;
    }
    qsort(seconds, COPIES, sizeof *seconds, ascending);
    free(from);
    free(to);
    return seconds[COPIES / 2];
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : FLOATS;
    const char *spec = argc > 2 ? argv[2] : "adpsgd-fixed:pace=free";
    double cpu[RANKS], copy = copy_seconds(count);
    tw_comm *comms[RANKS];
    worker workers[RANKS];
    pthread_t threads[RANKS];
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, RANKS);
    must(tw_comm_create_threads(RANKS, comms));
    for (int r = 0; r < RANKS; r++) {
        workers[r] = (worker){comms[r], spec, count, &all, &cpu[r], 0, 0, 0};
        pthread_create(&threads[r], NULL, run, &workers[r]);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&all);
    printf("{\"spec\":\"%s\",\"floats\":%zu,\"copy_ms\":%.2f,\"round_cpu_ms\":%.2f,\"slowest_read_ms\":%.2f,"
           "\"slowest_add_ms\":%.2f,\"rounds_per_step\":%.2f}\n",
           spec, count, 1e3 * copy, 1e3 * (cpu[0] + cpu[1]) / RANKS, 1e3 * workers[0].slowest_read,
           1e3 * workers[0].slowest_add, workers[0].rounds_per_step);
    return 0;
}
