/* thinwire_sim.h - a world of many workers in one process, under a clock of its own.
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

/* The machines and the network between them. Each worker has a full-duplex link to a switch: a message takes its place
 * in the sender's outgoing line, crosses with the latency, and takes its place in the receiver's incoming line. */
typedef struct tw_world_options {
    size_t struct_size;   /* sizeof(tw_world_options) */
    int workers;          /* 1 .. 4096 */
    int workers_per_host; /* that share one link; between themselves they talk at no cost. 0 is taken for 1 */
    double bandwidth;     /* of a link, bytes a second, each way; 0: infinitely fast */
    double latency;       /* of a message, seconds */
    double overhead;      /* seconds that starting a message occupies its sender's line */
    double time_limit;    /* virtual seconds after which the world ends with TW_ERROR_PEER everywhere; 0: none */
} tw_world_options;

TW_API tw_status tw_world_create(const tw_world_options *options, tw_world **world);
TW_API void tw_world_destroy(tw_world *world);

/* Runs worker(context, rank, comm) as every rank, each on a thread of the world; the comm is destroyed after it
 * returns. Ends when all have returned: TW_OK; or TW_ERROR_ORDER when all wait for something that will never come (a
 * deadlock): who waits for what is in tw_last_error(). Once a world. */
typedef void (*tw_world_worker)(void *context, int rank, tw_comm *comm);
TW_API tw_status tw_world_run(tw_world *world, tw_world_worker worker, void *context);

/* What a worker that computes for so long does: lets `seconds` pass. On a thread outside any world it does nothing. */
TW_API void tw_world_compute(double seconds);
/* The calling worker stops existing, as if its machine had lost power: the others see what transports see. Does not
 * return to the worker. */
TW_API void tw_world_kill(void);
/* Virtual seconds since the start; tw_clock() gives the same inside. */
TW_API double tw_world_seconds(const tw_world *world);
/* Bytes that crossed a host's link (not those between workers of one host) so far: sent by worker `rank`. */
TW_API uint64_t tw_world_bytes(const tw_world *world, int rank);

#ifdef __cplusplus
}
#endif
#endif
