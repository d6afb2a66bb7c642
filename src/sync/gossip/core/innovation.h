/* innovation.h - how choco and cold talk: each worker keeps an estimate of its own weights and of its ring neighbours',
 * sends the compressed difference between its weights and its estimate (the innovation), and all who hold that estimate
 * add the same numbers to it. What compression leaves out stays in the difference and is sent later.
 *
 * Both ends of an edge must hold the same bits for ever. Each packet has its step's number and a checksum, so that none
 * is lost, doubled or damaged unnoticed, and every so many steps the senders' checksum of the estimate itself is
 * compared. */
#ifndef TW_SYNC_INNOVATION_H
#define TW_SYNC_INNOVATION_H

#include "gossip.h"
#include "packet.h"
#include "select.h"

enum { TW_RING_PARTNERS = 2 };

/* The head of such a scheme's struct. */
typedef struct tw_innovation {
    tw_gossip gossip;            /* first, as in every scheme's struct */
    double density, gamma, link; /* options, */
    int values, indices;
    int64_t check; /* and these */
    int partners;
    int ranks[TW_RING_PARTNERS];
    float *own, *theirs[TW_RING_PARTNERS]; /* the estimates; these and pull are memories of the gossip */
    float *pull;                           /* of the last exchange: gamma * (mean of the estimates - own estimate) */
    uint32_t step;
    tw_selector selector;
    uint32_t *index;
    float *value;
    size_t capacity; /* bytes a packet can have */
    unsigned char *outgoing, *incoming[TW_RING_PARTNERS];
    size_t received[TW_RING_PARTNERS];
} tw_innovation;

#define TW_INNOVATION_OPTIONS                                                                                          \
    TW_OPTION("density", TW_OPTION_REAL, offsetof(tw_innovation, density), "0.1", 1e-7, 1, NULL,                       \
              "fraction of each tensor's innovation that is sent, the largest"),                                       \
        TW_OPTION("gamma", TW_OPTION_REAL, offsetof(tw_innovation, gamma), "0", 0, 1, NULL,                            \
                  "how far the weights follow the neighbours'; 0: as far as the density bears"),                       \
        TW_OPTION("values", TW_OPTION_CHOICE, offsetof(tw_innovation, values), "fp32", 0, 0, TW_VALUE_CHOICES,         \
                  "how values travel"),                                                                                \
        TW_OPTION("indices", TW_OPTION_CHOICE, offsetof(tw_innovation, indices), "auto", 0, 0, TW_INDEX_CHOICES,       \
                  "how their places travel"),                                                                          \
        TW_OPTION("link", TW_OPTION_REAL, offsetof(tw_innovation, link), "1000", 0, 1e6, NULL,                         \
                  "what the line carries, in Mbit/s, for indices=auto"),                                               \
        TW_OPTION("check", TW_OPTION_INTEGER, offsetof(tw_innovation, check), "64", 1, 1e9, NULL,                      \
                  "compare the estimates' checksums every so many steps")

/* The scheme's ops->create, destroy, start and exchange. A gamma of 0 becomes the density. All ranks
 * have the same weights at the start: every estimate begins with them. An exchange sends and receives one innovation,
 * and fills pull. */
tw_status tw_innovation_create(tw_gossip *gossip);
void tw_innovation_destroy(tw_gossip *gossip);
void tw_innovation_start(tw_gossip *gossip);
tw_status tw_innovation_exchange(tw_gossip *gossip);

#endif
