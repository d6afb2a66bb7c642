/* thinwire_sim.h - a world: many workers in one process, under a clock of its own. Link -lthinwire_sim -lthinwire.
 *
 * EXPERIMENTAL: it works and is tested as the rest is, and may still change with a release (docs/abi.md).
 *
 * The very code that trains for real (reducers, gossips, collectives) runs in it; only threads, waits, the clock and
 * the wires are the world's. One thread runs at a time and time passes only when all of them wait, so a run with the
 * same inputs has the same bits and the same times, always, on any machine.
 *
 *     tw_world *world;
 *     tw_world_create(&(tw_world_options){.struct_size = sizeof(tw_world_options), .workers = 64,
 *                                         .bandwidth = 125e6, .latency = 1e-4}, &world);
 *     tw_world_run(world, worker, context);          // worker(context, rank, comm) on every rank; ends when all return
 *     seconds = tw_world_seconds(world);
 */
#ifndef THINWIRE_SIM_H
#define THINWIRE_SIM_H

#include <thinwire/thinwire.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tw_world tw_world;

/* The machines and the network between them. Each host has a full-duplex line of its own to a switch that never blocks.
 * A message waits for its turn on the sender's outgoing line, holds it for overhead + size / bandwidth, crosses with
 * the latency, and waits for its turn on the receiver's incoming line, which it holds for size / bandwidth_down. Its
 * bits follow one another (cut-through): on an idle path it takes overhead + latency + size / the smaller of the two
 * rates. Its sender is done when the last bit has left, whether or not the receiver asks for it. */
typedef struct tw_world_options {
    size_t struct_size;   /* sizeof(tw_world_options) */
    int workers;          /* 1 .. 16384 */
    int workers_per_host; /* that share one line; between themselves they talk at no cost. 0 is taken for 1 */
    double bandwidth;     /* of an outgoing line, bytes a second; 0: infinitely fast */
    double latency;       /* of a message, seconds */
    double overhead;      /* seconds that starting a message occupies its sender's line */
    double time_limit;    /* virtual seconds after which the world ends with TW_ERROR_PEER everywhere; 0: none */
    size_t stack_bytes;   /* of each thread; 0 is taken for 1 MiB, of which only what is used takes memory */
    /* What a reducer's scheme, or averaging by gossip, takes in the exchange, which this clock cannot see. */
    double element_seconds; /* for each element of its message */
    double byte_seconds;    /* for each byte that came from the others, or was summed */
    double bandwidth_down;  /* of an incoming line, bytes a second; 0 is taken for `bandwidth` */
} tw_world_options;

TW_API tw_status tw_world_create(const tw_world_options *options, tw_world **world);
TW_API void tw_world_destroy(tw_world *world);

/* Runs worker(context, rank, comm) as every rank, each on a thread of the world; the comm is destroyed after it
 * returns, and the context may be NULL. Ends when all have returned: TW_OK; or TW_ERROR_ORDER when all wait for
 * something that will never come (a deadlock): who waits for what is in tw_last_error(), and the threads end where they
 * stand, keeping what they had allocated. (Waiting for a message is no deadlock: the comm's timeout ends it, in no time
 * at all.) Once a world. Inside, workers wait for one another through thinwire only: a lock or a wait of their own
 * would stop the world. */
typedef void (*tw_world_worker)(void *context, int rank, tw_comm *comm);
TW_API tw_status tw_world_run(tw_world *world, tw_world_worker worker, void *context);
/* Makes a world, runs it and destroys it. */
TW_API tw_status tw_world_play(const tw_world_options *options, tw_world_worker worker, void *context);

/* What a worker that computes for so long does: lets `seconds` pass. On a thread outside any world it does nothing. */
TW_API void tw_world_compute(double seconds);
/* The calling worker is cut off, as if its machine had lost power: what has not left its line is lost, and the others
 * see what they see of a rank that is gone. It returns, so that the worker can free what it holds and return: its own
 * calls on the comm, also those of its other threads, fail with TW_ERROR_PEER from here on. */
TW_API void tw_world_kill(void);
/* Virtual seconds since the start; tw_clock() gives the same inside. */
TW_API double tw_world_seconds(const tw_world *world);
/* Bytes that worker `rank` sent across its host's line so far (not those between workers of one host). */
TW_API uint64_t tw_world_bytes(const tw_world *world, int rank);

#ifdef __cplusplus
}
#endif
#endif
