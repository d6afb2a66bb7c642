/* gather.h - the rounds of every scheme whose ranks hand each other one packet: the packets' all-gather, then the
 * all-reduce of the tensors that are not compressed; a message without the one or the other has no such round, and few
 * leftovers ride in the packets. Where N packets would outweigh a dense fp32 all-reduce of what they say, that
 * all-reduce is taken instead: the wide road, which gives the same sum. A scheme whose packets would always outweigh
 * it, or that is asked to, takes the two rounds of scatter.h in the place of the all-gather. */
#ifndef TW_GATHER_H
#define TW_GATHER_H

#include "leftovers.h"
#include "scatter.h"

/* What the scheme does for it. Tensors are compressed ones, in table order. */
typedef struct tw_gather_ops {
    /* Bits the step's section for a tensor will about weigh, and bytes it surely fits: from counts alone, since all
     * ranks must find the same. */
    double (*bits)(const tw_scheme *scheme, size_t tensor);
    size_t (*bound)(const tw_scheme *scheme, size_t tensor);
    /* (optional) Decides what is sent, before the packet is written. Neither it nor write is called on a rank whose
     * gradient is known not to be finite, which sends an empty packet, as one does that finds it out in them
     * (sound.h). */
    void (*take)(tw_scheme *scheme);
    /* Puts a tensor's section into the packet. */
    tw_status (*write)(tw_scheme *scheme, size_t tensor, tw_packet_writer *writer);
    /* Reads a section from each of `count` packets and writes their sum, added in that order, to `sum`, which is the
     * tensor's gradient as take left it. Sets the scheme's skipped if it overflows. */
    tw_status (*add)(tw_scheme *scheme, size_t tensor, tw_packet_reader *readers, int count, float *sum);
    /* (optional) After the last round, with the sums in all gradients. */
    void (*complete)(tw_scheme *scheme);
} tw_gather_ops;

typedef struct tw_gather {
    tw_scheme *scheme;
    const tw_gather_ops *ops;
    size_t count;             /* elements of compressed tensors */
    unsigned char *packet;    /* room for the largest */
    size_t packet_capacity;   /* in bytes */
    tw_packet_reader *reader; /* one a rank */
    tw_dense leftovers;       /* the tensors that are not compressed */
    tw_dense wide;            /* the compressed ones, for the wide road */
    int is_whole;             /* set by the scheme before a step's first round: nothing is compressed in it */
    int use_wide;             /* this step takes the wide road */
    int is_riding;            /* this step's leftovers are in the packets */
    tw_scatter scatter;       /* if use_scatter, in the place of packets and wide */
    int use_scatter;
} tw_gather;

/* `ops` must answer bits and bound with what the heaviest step will need; the room is made for that. */
tw_status tw_gather_create(tw_gather *gather, tw_scheme *scheme, const tw_gather_ops *ops);
/* The same for a scheme whose compressed tensors go by way of scatter.h in every step; of `ops`, take and complete
 * alone are called then. */
tw_status tw_gather_create_scattered(tw_gather *gather, tw_scheme *scheme, const tw_gather_ops *ops,
                                     const tw_scatter_ops *pieces);
/* After either: for a scheme that sets is_whole in some steps, whose gradients take the wide road as they are. */
tw_status tw_gather_create_whole(tw_gather *gather);
void tw_gather_destroy(tw_gather *gather);

/* The scheme's ops->next calls it. */
tw_status tw_gather_next(tw_gather *gather, tw_round *round);

/* For a plan: what it adds if a step such as ops->bits describes takes the wide road; else nothing. */
const char *tw_gather_road(const tw_gather *gather);

/* The leftovers' part of revert and of walk. */
void tw_gather_revert(tw_gather *gather);
tw_status tw_gather_walk(tw_gather *gather, tw_walk *walk);

#endif
