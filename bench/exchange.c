/* What the collectives cost on this machine: median seconds of an all-reduce, of an all-gather of packets, and of
 * copying and checking the same bytes.
 *
 *     mpirun -n 4 bench_exchange mpi          bench_exchange threads 4 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>
#include <thinwire/thinwire_plugin.h>

enum { FLOATS = 25600000, PACKET = 1 << 20, LARGE_PACKET = 16 << 20, REPEATS = 11, MOST = 64 };

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

static void *run(void *comm)
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
    tw_comm *comm;
    int ranks = argc > 2 ? atoi(argv[2]) : 4;
    if (argc < 2 || ranks < 1 || ranks > MOST) return 2;
    if (strcmp(argv[1], "threads") == 0) {
        run_threads(ranks);
        return 0;
    }
    must(tw_comm_open(argv[1], &comm));
    run(comm);
    return 0;
}
