/* A program that knows less than the library it runs with: abi.py compiles it against headers whose structs are
 * shorter. It is told what it knows, and what stands behind its structs stays as it is. With EXPERIMENTAL it uses those
 * headers, too, that may change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire.h>
#ifdef EXPERIMENTAL
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_sim.h>
#endif

enum { COUNT = 6 };

static void need(int right, const char *what)
{
    if (right) return;
    fprintf(stderr, "%s: %s\n", what, tw_last_error());
    exit(1);
}

/* A struct, and what must not be written. */
#define GUARDED(type)                                                                                                  \
    struct {                                                                                                           \
        type told;                                                                                                     \
        unsigned char guard[64];                                                                                       \
    }

static int is_untouched(const unsigned char guard[64])
{
    for (int i = 0; i < 64; i++)
        if (guard[i] != 0xA5) return 0;
    return 1;
}

#define ASK(type, call)                                                                                                \
    do {                                                                                                               \
        GUARDED(type) answer;                                                                                          \
        memset(&answer, 0xA5, sizeof answer);                                                                          \
        answer.told.struct_size = sizeof answer.told;                                                                  \
        type *told = &answer.told;                                                                                     \
        need((call) == TW_OK, #call);                                                                                  \
        need(answer.told.struct_size == sizeof answer.told && is_untouched(answer.guard), #type);                      \
    } while (0)

static void exchange(tw_comm *comm, const tw_tensor *table)
{
    float gradient[COUNT] = {1, 2, 3, 4, 5, 6};
    tw_reducer *reducer;
    need(tw_reducer_create(comm, "allreduce", table, 1, &reducer) == TW_OK, "a reducer");
    need(tw_reducer_submit(reducer, 0, gradient) == TW_OK && tw_reducer_wait(reducer) == TW_OK, "a step");
    need(gradient[0] == 1 && gradient[COUNT - 1] == 6, "the mean of a lone rank");
    ASK(tw_reducer_counts, tw_reducer_stats(reducer, told));
    ASK(tw_traffic, tw_comm_traffic(comm, told));
    tw_reducer_destroy(reducer);
}

#ifdef EXPERIMENTAL
static void worker(void *context, int rank, tw_comm *comm)
{
    int *ran = context;
    *ran += tw_comm_rank(comm) == rank;
}

static void run_world(void)
{
    int ran = 0;
    tw_world *world;
    const tw_world_options options = {.struct_size = sizeof options, .workers = 3, .bandwidth = 1e9};
    need(tw_world_create(&options, &world) == TW_OK, "a world");
    need(tw_world_run(world, worker, &ran) == TW_OK && ran == 3, "its workers");
    tw_world_destroy(world);
}

static void gossip(tw_comm *comm, const tw_tensor *table)
{
    float weights[COUNT] = {1, 2, 3, 4, 5, 6};
    float *out[] = {weights};
    const float *start[] = {weights};
    tw_gossip *gossip;
    need(tw_gossip_create(comm, "dpsgd", table, 1, start, &gossip) == TW_OK, "a gossip");
    ASK(tw_gossip_counts, tw_gossip_stats(gossip, told));
    need(tw_gossip_finish(gossip, out) == TW_OK && weights[2] == 3, "its end");
    tw_gossip_destroy(gossip);
}

static void by_hand(const tw_tensor *table)
{
    float gradient[COUNT] = {1, 2, 3, 4, 5, 6}, *buffers[] = {gradient};
    tw_scheme *scheme;
    tw_round round = {0};
    need(tw_scheme_create("allreduce", table, 1, 0, 1, &scheme) == TW_OK, "a scheme");
    need(tw_scheme_begin(scheme, buffers, -1) == TW_OK, "a step by hand");
    while (tw_scheme_next(scheme, &round) == TW_OK && round.kind != TW_ROUND_DONE) continue;
    need(round.kind == TW_ROUND_DONE && !round.skipped, "its end");
    ASK(tw_cost, tw_scheme_cost(scheme, told));
    tw_scheme_destroy(scheme);
}

static void try_experimental(tw_comm *comm, const tw_tensor *table)
{
    gossip(comm, table);
    by_hand(table);
    run_world();
}
#else
static void try_experimental(tw_comm *comm, const tw_tensor *table)
{
    (void)comm, (void)table;
}
#endif

int main(void)
{
    const tw_tensor table[] = {{.name = "w", .dims = 1, .shape = {COUNT}}};
    tw_comm *comm;
    need(tw_comm_create_threads(1, &comm) == TW_OK, "a comm");
    exchange(comm, table);
    try_experimental(comm, table);
    ASK(tw_option_info, tw_schemes_option(0, 0, told));
    tw_comm_destroy(comm);
    puts("as promised");
    return 0;
}
