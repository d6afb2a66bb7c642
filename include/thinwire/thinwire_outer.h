/* thinwire_outer.h - many local steps, then one meeting.
 *
 * EXPERIMENTAL: it works and is tested as the rest is, and may still change with a release (docs/abi.md). */
#ifndef THINWIRE_OUTER_H
#define THINWIRE_OUTER_H

#include <thinwire/thinwire.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a reducer makes the workers agree in every step, an outer loop lets each take `every` steps of its own, with
 * any optimiser, and only then do they exchange what these steps came to: theta - weights, the pseudo-gradient, which
 * points uphill as a gradient does. The mean of it is the gradient of an outer optimiser on the shared weights, theta.
 * (DiLoCo; Douillard et al. 2023, arXiv 2311.08105.)
 *
 *     tw_outer_create(comm, "diloco:every=50", table, count, &outer);
 *     tw_outer_begin(outer, weights);                // rank 0's weights, on every rank
 *     for (;;) {
 *         ... gradient of this worker's own batch; its optimiser changes `weights` in place
 *         tw_outer_step(outer, weights, &event);     // once in `every` steps they become the shared ones
 *     }
 *     tw_outer_finish(outer, weights);               // the shared weights, on every rank
 *
 * theta and its momentum have the same bits on all ranks after every round: each rank makes them from the same mean,
 * and a digest of them goes with the next round. The optimiser's own state, the data and the random numbers are a
 * worker's own; but for moments that it is shown, the outer loop does not touch them. What is evaluated and kept is
 * theta: tw_outer_read.
 *
 * Rounds are counted by all ranks together. A rank that has taken its steps waits for the others', so ranks may skip
 * steps, or have fewer of them: one that is at its end calls finish, and takes part in the others' rounds with nothing
 * of its own until all have. A round to which nobody gives anything is none. */
typedef struct tw_outer tw_outer;

/* A collective, with the same promises as tw_reducer_create. The spec is "method:option=value,..."; tw_outers_count()
 * and its kin list the methods. `exchange` is the scheme that carries the pseudo-gradients, any that tw_reducer_create
 * takes and that applies no momentum of its own; its options may stand beside the method's:
 * "diloco:every=50,exchange=topk,density=0.01". per_host=G is such an option: the mean inside a host is exact, that of
 * what the steps came to, and, with tw_outer_average, that of each step's gradients. */
TW_API tw_status tw_outer_create(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count,
                                 tw_outer **outer);
/* Frees. Before finish the others get TW_ERROR_PEER when this rank destroys its comm, or at their deadline. */
TW_API void tw_outer_destroy(tw_outer *outer);

/* A collective. theta, and `weights` on every rank, become rank 0's weights. After a load on all ranks (TW_ERROR_STATE
 * unless on all or none, or if the states are of different moments) theta is what was loaded, and `weights` stay: they
 * are this worker's, as it had them when it saved. After finish it may begin again; the momentum goes on. */
TW_API tw_status tw_outer_begin(tw_outer *outer, float *const *weights);

typedef enum tw_outer_event {
    TW_OUTER_NOTHING = 0, /* the weights are as they were */
    TW_OUTER_STARTED = 1, /* likewise; a round is under way, and is applied `delay` steps later */
    TW_OUTER_APPLIED = 2 /* the weights have changed, of one fragment or all; with eager=on a round is under way, too */
} tw_outer_event;
/* After each step of this worker's optimiser, with weights[i] where tensor i stands. When a round is due it is taken
 * part in, and others may be waited for. NaN or infinity in what this rank would give stays here: the round is the
 * others', and this rank's weights, of all fragments, become theta. TW_ERROR_STATE, naming the tensor, when theta
 * differs between ranks. TW_ERROR_PEER and TW_ERROR_PACKET as everywhere. After an error it is finished, and so is the
 * comm. */
TW_API tw_status tw_outer_step(tw_outer *outer, float *const *weights, tw_outer_event *event);

/* With per_host=G: gradients[i], of tensor i, becomes the mean of those of this rank's host, before the optimiser's
 * step. The ranks of a host then have the same weights in every step, and hosts are what a rank is without the option:
 * H hosts of G ranks do what H ranks do with batches G times as large. A collective of the host, which all its ranks
 * call in each step or in none. NaN and infinity come to all of them alike. Without per_host nothing happens.
 * TW_ERROR_PEER and TW_ERROR_PACKET as everywhere. */
TW_API tw_status tw_outer_average(tw_outer *outer, float *const *gradients);

/* 1 when the next tw_outer_step reads `weights` or changes them: in all others it counts, and they may lie where the
 * library does not reach, or have another type. 0 before begin. */
TW_API int tw_outer_is_due(const tw_outer *outer);

/* 1 when all ranks have met since the last tw_outer_step began, none of them in tw_outer_finish: each then stands
 * behind the same round, and in calls of their own they may agree on something, such as to finish here and go on by
 * another spec. The same on all ranks that step; where one is in tw_outer_finish it is 0 on the others. */
TW_API int tw_outer_has_met(const tw_outer *outer);

/* How much this rank's part counts in the rounds to come, beside the others': the tokens it has worked through, say. 1
 * to begin with; 0: it gives nothing. It is no part of a saved state. TW_ERROR_ARGUMENT unless it is 0 or from 1e-9 to
 * 1e9; with a delay or eager=on TW_ERROR_UNSUPPORTED unless 0 or 1, as parts are sent before weights are known. */
TW_API tw_status tw_outer_set_weight(tw_outer *outer, double weight);

/* Where the inner optimiser's moments are, one array a tensor: for specs with first_moment=N or second_moment=N,
 * whose rounds make them the ranks' mean. NULL where the optimiser has none. Before begin (else TW_ERROR_ORDER),
 * which fails if the spec asks for what was not shown; the arrays stay there until finish. They are the caller's to
 * save. */
TW_API tw_status tw_outer_show_moments(tw_outer *outer, float *const *first, float *const *second);

/* Copies theta out: the same bits on every rank. At any time after begin or a load (else TW_ERROR_ORDER), by one rank
 * alone, too, and where the others are lost: it is that of the last round. */
TW_API tw_status tw_outer_read(tw_outer *outer, float *const *shared);
/* Ends the loop, as a collective: what was done since the last round is given, the others' rounds are taken part in
 * until all ranks have called it, and `weights` become theta. TW_SKIPPED: it is over, but the last steps are lost,
 * since some rank's part or the sum was too large for the exchange. */
TW_API tw_status tw_outer_finish(tw_outer *outer, float *const *weights);

/* What carries tensor `index`: as tw_reducer_plan. */
TW_API const char *tw_outer_plan(const tw_outer *outer, size_t index);

/* Counts since create, of this rank. Set struct_size = sizeof(tw_outer_counts) before the call. */
typedef struct tw_outer_counts {
    size_t struct_size;
    uint64_t steps;          /* of this rank's optimiser */
    uint64_t rounds;         /* ended, of any fragment; those of a state that was loaded come first */
    uint64_t rounds_empty;   /* of them, that changed nothing: nobody gave anything, or their sum was not finite */
    uint64_t offers_dropped; /* that this rank did not give, for NaN or infinity */
    uint64_t bytes_sent;     /* in rounds and by tw_outer_average, counted in the transport */
    uint64_t bytes_received; /* likewise */
    uint64_t bytes_between;  /* of bytes_sent, to other hosts: see per_host */
    uint64_t bytes_dense;    /* what an fp32 ring all-reduce of gradients would have sent in as many steps */
    uint64_t elements_sent;  /* these six as a reducer's, of whom a round is a step */
    uint64_t elements_total;
    uint64_t compressed_fp32;
    uint64_t compressed_packet;
    uint64_t message_fp32;
    uint64_t message_packet;
    double seconds_codec, seconds_exchange; /* as a reducer's */
    double seconds_wait;                    /* that step and finish blocked their caller in rounds, and average */
    double cosine; /* of the last mean with the one before it, of the same tensors; 0: there is none. Negative in many
                    * rounds: the outer step is too long. Of large models it is that of a sample */
    /* What the momentum made of the last mean, D, whose outer step was outer_lr * S: S . D / |D|^2 and |S|^2 / |D|^2.
     * Both are 1 without momentum, and 0 where D is 0 or its square is beyond fp32. Where the cosine of means k rounds
     * apart is c^k and rounds are many, with momentum m in Nesterov's form, they are
     *     gain   = 1 + m / (1 - m c)
     *     energy = 1 + 2 m / (1 - m c) + m^2 (1 + m c) / ((1 - m^2) (1 - m c)) */
    double gain, energy;
    uint64_t rounds_unstable; /* that were the third in a row with a cosine below -1/2, and told as a warning: of
                               * methods that have outer_lr */
} tw_outer_counts;
TW_API tw_status tw_outer_stats(const tw_outer *outer, tw_outer_counts *stats);

/* The methods of this library, as tw_schemes_count and its kin. */
TW_API size_t tw_outers_count(void);
TW_API const char *tw_outers_name(size_t index);
TW_API int tw_outers_find(const char *spec, size_t *index);
TW_API const char *tw_outers_summary(size_t index);
TW_API size_t tw_outers_option_count(size_t index);
TW_API tw_status tw_outers_option(size_t index, size_t number, tw_option_info *option);
TW_API size_t tw_outers_help(size_t index, char *text, size_t capacity);

/* Copies all that the outer loop remembers on this rank but its weights, which are the caller's to save: theta, its
 * momentum, the count of rounds, what the exchange holds back. A round that is under way is waited for (a collective
 * then), and kept for its step: so a run that loads goes on with the bits of one that did not stop. That is so where
 * ranks have skipped unlike numbers of steps, too, unless one of them saves before a round and another behind it: then
 * begin refuses their states (TW_ERROR_STATE), and the log is told so in the next round of the run that saves. States
 * that are saved when `rounds` has changed are of one moment. There is nothing to save before begin or a load
 * (TW_ERROR_ORDER). load comes before begin (else TW_ERROR_ORDER), and changes nothing when it fails. */
TW_API tw_status tw_outer_save_state(tw_outer *outer, const char *prefix, tw_state *state);
TW_API tw_status tw_outer_load_state(tw_outer *outer, const char *prefix, const tw_state *state);
/* As save_state, where the number of ranks changes and each keeps its own (thinwire_members.h): what is saved has a
 * place among any number of them. What the exchange keeps of the sums of this rank's pieces of tensors becomes part of
 * what this rank holds back, in the loop as well. A quantised exchange with feedback sends tensors of a few elements a
 * rank as they are; where the number of ranks decides that, a load among another number may fail with TW_ERROR_STATE,
 * which names the tensor. With the default min_elements groups of up to 18 are free of that. */
TW_API tw_status tw_outer_save_apart(tw_outer *outer, const char *prefix, tw_state *state);
/* As tw_reducer_regroup_state. What is shared is anybody's; a rank of the new group begins with its weights at theta,
 * which the caller sees to. */
TW_API tw_status tw_outer_regroup_state(const char *spec, const tw_tensor *tensors, size_t count, int old_size,
                                        tw_state_source source, void *context, int rank, int size, const char *prefix,
                                        tw_state *state);
/* For a rank that a group went on without, and that is let in again (`late` in thinwire_members.h). `left` is what it
 * saved last, `entered` what it takes from another: what its exchange held back is put in there. `weights`, which its
 * steps have taken some way from the theta in `left`, are taken as far from the one in `entered`: so the next round is
 * given what these steps did. It takes delay=0 and eager=off, where no mean is under way between two rounds, and no
 * per_host, since a host's rank does not come back without its host (else TW_ERROR_UNSUPPORTED). TW_ERROR_STATE changes
 * nothing. */
TW_API tw_status tw_outer_rebase(const char *spec, const tw_tensor *tensors, size_t count, const char *prefix,
                                 const tw_state *left, tw_state *entered, float *const *weights);

/* As tw_comm_broadcast, of `count` numbers of `width` bytes (1 to 8), bit for bit: what one rank hands to another
 * whole, such as a state. They travel packed without loss (docs/wire-format.md): weights in fp32 in five sixths of
 * their bytes, zeros in next to none. Packing them takes a core about as long as a line of 2 Gbit/s takes to carry
 * them, so tw_comm_broadcast is for faster ones. TW_ERROR_PACKET: what the root has sent cannot be, or is of another
 * count. */
TW_API tw_status tw_comm_broadcast_packed(tw_comm *comm, int root, void *data, size_t count, size_t width);

#ifdef __cplusplus
}
#endif
#endif
