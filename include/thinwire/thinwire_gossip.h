/* thinwire_gossip.h - decentralised agreement on weights, in which nobody waits for a slower one.
 *
 * EXPERIMENTAL: it works and is tested as the rest is, and may still change with a release (docs/abi.md). */
#ifndef THINWIRE_GOSSIP_H
#define THINWIRE_GOSSIP_H

#include <thinwire/thinwire.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a reducer makes all workers take the same step, a gossip lets each worker walk by itself and draws the workers
 * together by averaging weights between a few of them at a time, on a communication thread of its own:
 *
 *     tw_gossip_create(comm, "adpsgd-random", table, count, weights, &gossip);
 *     for (;;) {
 *         tw_gossip_read(gossip, weights);           // the weights as they are now
 *         ... gradient at these weights; optimiser, with its momentum, gives a step: -learning_rate * direction
 *         tw_gossip_add(gossip, steps);              // weights += step; never lost, whatever is averaged meanwhile
 *     }
 *     tw_gossip_finish(gossip, weights);             // the consensus: the mean over all workers
 *
 * The asynchronous schemes (adpsgd-fixed, adpsgd-random, prague) never make read or add wait for another worker: the
 * communication threads meet about once in the time that the fastest worker needs for a gradient, whether the others
 * have one by then or not. The synchronous ones (dpsgd, adpsgd-d1, choco, cold) have one exchange per add, which
 * overlaps with the computation between read and add, and gasloc has one in every so many adds; in these every rank
 * must add as often as the others.
 *
 * Lost ranks. In a synchronous scheme, and with survive=off, a rank that is lost ends the gossip of the others:
 * TW_ERROR_PEER, as everywhere. The asynchronous schemes go on without it (survive=on, the default: where nobody waits
 * for a slow rank, nobody should fall with a lost one). A rank is lost when the transport says that it is gone, when it
 * leaves its gossip before finish, or when its communication thread, in whose way a computation never is, has been
 * silent for the comm's timeout (over sockets, where its process still answers, for the patience). The others agree on
 * who is lost, average among themselves from then on, and finish gives their mean. What is lost is the lost rank's
 * distance from them: of its weights nothing is kept but what averaging has taken. Those that go on are always more
 * than half of those that were there before, or half with the lowest rank among them, so that the two halves of a
 * broken network never both do: the others get TW_ERROR_PEER, and so does a rank that was given up and comes back. */
typedef struct tw_gossip tw_gossip;

/* A collective, with the same promises as tw_reducer_create. weights[i] is tensor i's start, copied; all ranks begin
 * with rank 0's. No weights are exchanged before the first read, add or finish. The spec is "scheme" or
 * "scheme:option=value,..."; tw_gossips_count() and its kin list them.
 *
 * Every scheme takes per_host=G: the ranks 0 .. G-1, G .. 2G-1, ... are hosts that act as one worker each. add is then
 * a collective of the host, which averages the steps of its members; all of them read the same bits, and one of them
 * talks to the other hosts. Members may call finish at different times. load_state is a collective of the host too. */
TW_API tw_status tw_gossip_create(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count,
                                  const float *const *weights, tw_gossip **gossip);
/* Frees. Before finish it leaves without an agreement: an exchange under way is waited for, at most until the deadline,
 * and the others go on without this rank, or get TW_ERROR_PEER when it destroys its comm, or at their deadline. */
TW_API void tw_gossip_destroy(tw_gossip *gossip);

/* These four return TW_ERROR_PEER or TW_ERROR_PACKET when the communication thread has met that, TW_ERROR_NONFINITE
 * when it found weights, its own or a partner's, that are not finite any more. The gossip is then finished, and so is
 * the comm, as with a reducer; destroy both. After finish they return TW_ERROR_ORDER. */

/* Copies the weights out, all of one moment. */
TW_API tw_status tw_gossip_read(tw_gossip *gossip, float *const *weights);
/* weights += steps. If a step holds NaN or infinity it is not added, since it would spread: TW_SKIPPED, and the gossip
 * goes on; for a synchronous scheme the step then counts as zero. */
TW_API tw_status tw_gossip_add(tw_gossip *gossip, const float *const *steps);
/* The two in one, for an optimiser that updates weights in place: `weights` hold what the last read or step gave, moved
 * by the caller's own step, and receive the weights as they are with that step in them. It is an add of the difference,
 * and a read; the library keeps what it gave last. A difference that is NaN or infinite is not added: TW_SKIPPED, and
 * `weights` receive the weights without it. TW_ERROR_ORDER before the first read, and where tw_gossip_add was called: a
 * gossip's steps come one way or the other, on this rank. */
TW_API tw_status tw_gossip_step(tw_gossip *gossip, float *const *weights);
/* Ends the gossip, as a collective: waits until every rank that is not lost has called it, answering the others
 * meanwhile, then gives the mean of all these ranks' weights, the same bits on every one. */
TW_API tw_status tw_gossip_finish(tw_gossip *gossip, float *const *weights);

/* After a finish with survive=on: makes a comm of those that finished, numbered anew in order of rank. It takes the
 * place of the comm the gossip was made on, whose collectives would wait for ranks that were lost, and whose messages
 * could meet its own: that one is of no more use, but must outlive this one. A collective: all that finished call it,
 * or none. (Whoever is lost after finish ends the new comm as it does any.) TW_ERROR_ORDER at any other time, and the
 * second time. */
TW_API tw_status tw_gossip_survivors(tw_gossip *gossip, tw_comm **survivors);

/* Counts since create. Set struct_size = sizeof(tw_gossip_counts) before the call. */
typedef struct tw_gossip_counts {
    size_t struct_size;
    uint64_t steps;         /* added */
    uint64_t steps_skipped; /* TW_SKIPPED */
    uint64_t rounds;        /* of averaging this rank took part in */
    uint64_t bytes_sent;    /* for this gossip, counted in the transport */
    uint64_t bytes_received;
    uint64_t bytes_dense;    /* what an fp32 ring all-reduce of gradients would have sent in as many steps */
    double seconds_exchange; /* on the wire and waiting for peers, on the communication thread */
    double seconds_wait;     /* that read, add and finish blocked their caller */
    double last_distance;    /* L2 distance to the partners' weights (their mean) in the last round: how far apart */
    uint64_t ranks_lost;     /* whom this rank and the others go on without: see survive=on */
    uint64_t lowest_rank;    /* of those that go on */
} tw_gossip_counts;
TW_API tw_status tw_gossip_stats(const tw_gossip *gossip, tw_gossip_counts *stats);

/* The gossip schemes of this library, as tw_schemes_count and its kin. */
TW_API size_t tw_gossips_count(void);
TW_API const char *tw_gossips_name(size_t index);
TW_API int tw_gossips_find(const char *spec, size_t *index);
TW_API const char *tw_gossips_summary(size_t index);
TW_API size_t tw_gossips_option_count(size_t index);
TW_API tw_status tw_gossips_option(size_t index, size_t number, tw_option_info *option);
TW_API size_t tw_gossips_help(size_t index, char *text, size_t capacity);
/* 1 for a scheme in which every rank must add as often as the others. */
TW_API int tw_gossips_is_synchronous(size_t index);

/* Copies what this rank's side of the gossip remembers into or out of a state: its own weights, which differ from the
 * others', and what a scheme holds back. load comes before the first read, add or finish (else TW_ERROR_ORDER).
 * A synchronous gossip whose ranks saved after the same step continues bit for bit. An asynchronous one continues from
 * weights of about one moment: what was on its way between two ranks may be in one file and not in the other, so their
 * mean is that of the run only to the size of one round's correction. Where it has to be exact: finish, save the
 * consensus, and create again from it. */
TW_API tw_status tw_gossip_save_state(tw_gossip *gossip, const char *prefix, tw_state *state);
TW_API tw_status tw_gossip_load_state(tw_gossip *gossip, const char *prefix, const tw_state *state);
/* Shows all that save would copy, where it lies. The communication thread works on it, too: it waits until the visit is
 * over, and the pointers are good for no longer. `visit` may not call the gossip, and as long as it runs the others
 * hear nothing of this rank: one that takes as long as the comm's timeout may have it lost. */
TW_API tw_status tw_gossip_visit_state(tw_gossip *gossip, tw_state_visit visit, void *context);
/* As tw_reducer_regroup_state: what a gossip's rank `rank` of `size` goes on with where `old_size` ranks have saved.
 * No state may be lost: give those that are left as fewer old ranks. Its weights are the mean of those old ranks' that
 * lie where it lies, each by what they have in common, so that the mean over the ranks stays, to the rounding of fp32;
 * so is what else is a rank's own. What it keeps of its neighbours' has the same bits as theirs. */
TW_API tw_status tw_gossip_regroup_state(const char *spec, const tw_tensor *tensors, size_t count, int old_size,
                                         tw_state_source source, void *context, int rank, int size, const char *prefix,
                                         tw_state *state);

#ifdef __cplusplus
}
#endif
#endif
