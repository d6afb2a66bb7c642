/* members.h - who of a group is still there, as those who are agree.
 *
 * A rank is lost when the transport says so, or when this one has waited for it and the wait is over (patience.h):
 * whoever waits long says every so often that it is there, so a living rank is never silent for the timeout. What a
 * rank knows only grows. When it grows, the rank leaves its work and tells all others what it knows, and where it was;
 * all are agreed when each has heard from every other that is left that it knows the same. That takes one message from
 * each to each, and starts again with what was learned meanwhile. Of two ranks that agree each has heard the other, so
 * there are never two different agreements of as many lost ranks.
 *
 * Two halves of a broken network must not both go on: those that are left have to be more than half of the group as it
 * was agreed on last, or half of it with its lowest rank among them. Whoever others have given up learns of it when it
 * comes back and finds itself alone.
 *
 * Nothing is sent, and next to nothing allocated, while nobody waits long. Ranks are the whole comm's. */
#ifndef TW_SYNC_MEMBERS_H
#define TW_SYNC_MEMBERS_H

#include "channel.h"
#include "patience.h"

/* What this rank knows of another, and the messages between them. */
typedef struct tw_peer {
    void *receive, *send; /* under way; NULL: none */
    unsigned char *inbox, *outbox;
    uint64_t sent, delivered; /* the news in the outbox, the last news that have left it */
    tw_wait wait;             /* what is left of it; it begins anew when the rank says anything */
    double told;              /* when it was last told anything */
    uint64_t round;           /* what it said: where it was, */
    int lost;                 /* how many it knows to be lost, */
    int committed;            /* and whether it has committed */
} tw_peer;

typedef struct tw_members {
    tw_channel *channel; /* messages are counted there; the number behind its own is theirs */
    int rank, size;
    double deadline;     /* seconds of silence */
    unsigned char *dead; /* bit r: rank r is lost */
    int lost;            /* how many */
    int agreed;          /* how many were when all agreed last */
    int lowest;          /* the lowest rank that was left then */
    uint64_t now;        /* where this rank is; its user writes it */
    uint64_t round;      /* where it was when it learned of the last loss */
    uint64_t news;       /* counts what there was to tell */
    int refused;         /* the others have given this rank up */
    int committed;       /* see tw_members_commit */
    double tended;
    tw_peer *peers; /* NULL before the first long wait */
} tw_members;

tw_status tw_members_create(tw_channel *channel, tw_members *members);
void tw_members_release(tw_members *members);

int tw_members_has(const tw_members *members, int rank);
/* The rank is lost, or as good as lost. */
void tw_members_lose(tw_members *members, int rank);
/* Listens to the others and tells them that this rank is there, with whatever there is to tell: to be called now and
 * then by whoever waits. Waits for nobody. */
tw_status tw_members_tend(tw_members *members);
/* From now on this rank waits for `rank`. */
void tw_members_await(tw_members *members, int rank);
/* Whether that has been for as long as it may. */
int tw_members_silent(const tw_members *members, int rank);
/* Of a rank that is: it is lost, and a sentence says whether the timeout or the patience was over. TW_ERROR_PEER. */
tw_status tw_members_give_up(tw_members *members, int rank);

/* After a loss: waits until all that are left agree on who is. *round receives the first round that none of them has
 * begun. TW_ERROR_PEER when this rank is not among them. Returns early when another rank turns out to have committed,
 * then members->committed is set: what all had before the loss stands, and nobody is taken out for it. */
tw_status tw_members_agree(tw_members *members, uint64_t *round);

/* This rank knows that all have what they were to agree on in the end; from now on it says so, and agrees on no further
 * losses. */
void tw_members_commit(tw_members *members);
/* Sees to it that all know, for half the deadline at most. TW_ERROR_PEER when this rank is cut off itself. */
tw_status tw_members_spread(tw_members *members);
/* This rank leaves; tells those it can tell at once. */
void tw_members_resign(tw_members *members);

#endif
