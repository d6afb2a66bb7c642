/* matching.h - sends and receives that wait for their partner: found by who sends to whom on which channel, oldest
 * first, whatever their number. */
#ifndef TW_COMM_MATCHING_H
#define TW_COMM_MATCHING_H

#include <thinwire/thinwire.h>

/* The first member of what is matched. */
typedef struct tw_entry {
    struct tw_entry *next;
    int sender, receiver;
    unsigned channel;
    int is_send;
} tw_entry;

typedef struct tw_matching {
    tw_entry **buckets;
    size_t count, capacity; /* entries; buckets, a power of two */
} tw_matching;

/* Takes out the oldest partner of `entry`; where there is none (*partner = NULL), entry is put in. */
tw_status tw_matching_pair(tw_matching *all, tw_entry *entry, tw_entry **partner);
/* Takes an entry back. */
void tw_matching_remove(tw_matching *all, tw_entry *entry);
void tw_matching_free(tw_matching *all);

#endif
