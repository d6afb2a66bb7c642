/* thinwire_by_hand.h - a scheme by hand, for programs that have their own collectives.
 *
 * EXPERIMENTAL: it works and is tested as the rest is, and may still change with a release (docs/abi.md). */
#ifndef THINWIRE_BY_HAND_H
#define THINWIRE_BY_HAND_H

#include <thinwire/thinwire.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One message's worth of tensors, and the little protocol that agrees on them. A reducer does exactly this:
 *
 *     tw_scheme_begin(scheme, gradients, norm);
 *     tw_round round = {0};                                     // all of it is zero before the first next
 *     while (tw_scheme_next(scheme, &round) == TW_OK && round.kind != TW_ROUND_DONE)
 *         ... do what the round says, on every rank ...
 *
 * When tw_scheme_next fails otherwise than by an argument (TW_ERROR_PACKET: a packet is damaged), the ranks no longer
 * agree: destroy the scheme. */
typedef struct tw_scheme tw_scheme;

typedef enum tw_round_kind {
    TW_ROUND_DONE = 0,      /* the mean is in the gradient buffers; `skipped` tells whether it may be applied */
    TW_ROUND_ALLGATHER = 1, /* give every rank's packet to every rank */
    TW_ROUND_ALLREDUCE = 2, /* sum `values` over the ranks, in place: in fp32, in rank order, then rounded to dtype */
    TW_ROUND_BROADCAST = 3, /* give `root`'s packet to every rank */
    TW_ROUND_ALLTOALL = 4   /* give rank r the packet that is meant for it: each rank has one for every rank */
} tw_round_kind;

typedef struct tw_round {
    tw_round_kind kind;
    int skipped;      /* DONE: 1 when some rank's gradient, or the sum, was not finite: see tw_reducer_wait */
    int root;         /* BROADCAST */
    const void *data; /* ALLGATHER, and BROADCAST on the root: this rank's packet */
    size_t size;      /* its bytes */
    size_t capacity;  /* ALLGATHER, BROADCAST, ALLTOALL: no packet of this round is larger; the same on all ranks */
    void *values;     /* ALLREDUCE */
    size_t count;     /* ALLREDUCE: values */
    tw_dtype dtype;   /* ALLREDUCE: TW_F32, TW_F16 or TW_BF16 */
    /* Filled in by the caller before the following tw_scheme_next: ALLGATHER every rank's packet in rank order (its own
     * included), BROADCAST the root's packet as entry 0. They must stay until that call returns, and it sets both to
     * NULL. When they are NULL it is TW_ERROR_ARGUMENT, and the round can still be answered.
     * ALLTOALL goes both ways. The scheme has set packets[r] and sizes[r] to what goes to rank r; both arrays and the
     * packets are its own, and stay until the following tw_scheme_next. The caller answers with arrays of his own:
     * packets[r] and sizes[r] are what rank r had for this rank, and entry [rank], which need not be copied, is what
     * the scheme had there. When the scheme's own array of packets is still there, the round was not answered: that is
     * TW_ERROR_ARGUMENT, too. */
    const void *const *packets;
    const size_t *sizes;
    /* Where data, values and packets lie, and on what stream they become ready: host memory, and none. Another memory,
     * or a stream, is TW_ERROR_UNSUPPORTED. */
    tw_memory_kind memory;
    void *stream;
    void *reserved[2]; /* NULL */
} tw_round;

/* Makes rank `rank`'s side of a scheme for a group of `size`. */
TW_API tw_status tw_scheme_create(const char *spec, const tw_tensor *tensors, size_t count, int rank, int size,
                                  tw_scheme **scheme);
TW_API void tw_scheme_destroy(tw_scheme *scheme);
/* Tells the learning rate of the steps to come, as tw_reducer_set_rate does. */
TW_API tw_status tw_scheme_set_rate(tw_scheme *scheme, float rate);
/* A rate for each tensor, and what gradients are multiplied by, as the reducer's calls of these names tell them. */
TW_API tw_status tw_scheme_set_rates(tw_scheme *scheme, const float *rates);
TW_API tw_status tw_scheme_set_gradient_scale(tw_scheme *scheme, double scale);
/* Starts a step. gradients[i] is tensor i's local gradient, and receives the mean: the buffers are the scheme's until
 * DONE (the array of pointers is copied). `norm` is the L2 norm of this worker's whole gradient, over all messages, for
 * schemes that clip (tw_scheme_clip() > 0); a negative value has it computed over this message alone. One that is above
 * 1e33 or no number skips the step, and one that is not true may let NaN through. (topk, threshold, adacomp, scalecom,
 * and dgc and sdagc without clip, look at the gradients anyway, in their own pass: for them a negative value costs
 * least.) */
TW_API tw_status tw_scheme_begin(tw_scheme *scheme, float *const *gradients, double norm);
/* The same for a rank that has no gradient for some tensors: where absent[i] is not 0, what stands in gradients[i] is
 * not looked at, and it receives the mean all the same. See tw_gradient. `absent` may be NULL: none is. */
TW_API tw_status tw_scheme_begin_without(tw_scheme *scheme, float *const *gradients, const unsigned char *absent,
                                         double norm);
TW_API tw_status tw_scheme_next(tw_scheme *scheme, tw_round *round);
/* After DONE, before the next begin and before the state is saved (else TW_ERROR_ORDER): takes the step back because
 * another message of the same step was skipped. What was sent returns to the residual and is sent later; for tensors
 * that travel as fp32 the step is dropped. Does nothing when there is no step to take back (none yet, or it was skipped
 * or taken back already). */
TW_API tw_status tw_scheme_revert(tw_scheme *scheme);
/* Copies all that the scheme remembers on this rank into or out of a state, as tw_reducer_save_state does for a
 * reducer: the entries are called prefix, kind, "/" and the tensor's name. Between steps only. A step that was saved
 * can no longer be taken back; a load that is refused changes nothing, not even that. */
TW_API tw_status tw_scheme_save_state(tw_scheme *scheme, const char *prefix, tw_state *state);
TW_API tw_status tw_scheme_load_state(tw_scheme *scheme, const char *prefix, const tw_state *state);
/* Shows it, as tw_reducer_visit_state; the pointers stay until the next begin. As after a save, the last step can no
 * longer be taken back. */
TW_API tw_status tw_scheme_visit_state(tw_scheme *scheme, tw_state_visit visit, void *context);
/* Asks for it and loads it, as tw_reducer_fill_state. */
TW_API tw_status tw_scheme_fill_state(tw_scheme *scheme, tw_state_visit fill, void *context);
/* The global-norm threshold the scheme wants its workers' gradients clipped at; 0 for none. */
TW_API double tw_scheme_clip(const tw_scheme *scheme);
/* The momentum it applies itself, what happens to tensor `index`, and the bytes that it remembers on this rank: as
 * tw_reducer_momentum, tw_reducer_plan and tw_reducer_state_bytes. */
TW_API float tw_scheme_momentum(const tw_scheme *scheme, int *nesterov);
TW_API const char *tw_scheme_plan(const tw_scheme *scheme, size_t index);
TW_API uint64_t tw_scheme_state_bytes(const tw_scheme *scheme);

/* ---- Adam's moments ------------------------------------------------------------------------------------------------
 * A scheme that divides by Adam's moments before it sends (dgc-adam, onebit-adam) keeps what an AdamW without it keeps
 * of each parameter: m = beta1*m + (1 - beta1)*g and v = beta2*v + (1 - beta2)*g^2, of the mean gradient, and the count
 * of steps; torch.optim.AdamW calls them exp_avg, exp_avg_sq and step. first[i] and second[i] are tensor i's. Nobody
 * need be there: spec and table tell what is remembered. */

/* What rank `rank` of `size` of a reducer begins with that goes on where an AdamW stands after `steps` steps: puts into
 * `state`, under `prefix`, what tw_reducer_load_state takes. Nothing is held back. With per_host=G only the first rank
 * of a host has any moments, and for the others nothing is put. TW_ERROR_SPEC: the scheme has no such moments.
 * TW_ERROR_STATE: one of them is not finite or beyond 1e36, or a second one is below 0. */
TW_API tw_status tw_reducer_state_of_moments(const char *spec, const tw_tensor *tensors, size_t count, uint64_t steps,
                                             const float *const *first, const float *const *second, int rank, int size,
                                             const char *prefix, tw_state *state);
/* The other way: where an AdamW stands that goes on from what `old_size` ranks have saved, with `source` as
 * tw_reducer_regroup_state has it. The first moments are the sums of the ranks'. What the ranks held back is added to
 * them, in such a measure that AdamW's next steps apply it, all in all, as the scheme would have sooner or later. Where
 * each rank has squares of its own gradients (dgc-adam), the second moments are what the scheme takes for those of the
 * mean. What a leftover's rounding to 16 bits lost last is dropped. */
TW_API tw_status tw_reducer_moments_of_state(const char *spec, const tw_tensor *tensors, size_t count, int old_size,
                                             tw_state_source source, void *context, const char *prefix, uint64_t *steps,
                                             float *const *first, float *const *second);

/* What this rank's side of the last step weighed. Set struct_size = sizeof(tw_cost) before the call. */
typedef struct tw_cost {
    size_t struct_size;
    int warmup;             /* the step was part of the scheme's warm-up */
    uint64_t elements_sent; /* of compressed tensors */
    uint64_t packet_bytes;  /* that carried them, headers included */
    uint64_t index_bytes;   /* of these, that said which elements they were */
    uint64_t exact_bytes;   /* that carried the tensors that are not compressed */
} tw_cost;
TW_API tw_status tw_scheme_cost(const tw_scheme *scheme, tw_cost *cost);

/* Bytes of memory an element that a scheme cannot avoid touching when it compresses ("dgc": momentum and residual read
 * and written, gradient read: 20; "dgc:state=bf16": 12). Its speed limit is streaming as many. 0: the spec is none. */
TW_API unsigned tw_spec_floor_bytes(const char *spec);

#ifdef __cplusplus
}
#endif
#endif
