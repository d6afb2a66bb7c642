/* agree.h - small decisions every rank takes together. Each function is called by all ranks. */
#ifndef TRAINER_AGREE_H
#define TRAINER_AGREE_H

#include "worker.h"

/* Every rank brings how it fared; if any failed, all return the lowest failing rank's status and text, and set *agreed:
 * rank 0 alone need tell it. Where ranks are processes, the text of another one begins with "rank 1: ". */
tw_status agree_ranks(tw_comm *comm, tw_status own, int *agreed);
/* The same, noted in w->agreed. Where workers come and go each has its own failures, and no other hears of them. */
tw_status agree_status(worker *w, tw_status own);
/* Rank 0's text on all ranks; it ends within its room, whatever comes. */
tw_status agree_text(tw_comm *comm, char *text, size_t room);

/* What a worker has read, in two lines: to train on, and to validate with. */
enum { AGREE_DATA_TEXT = 512 };
const char *agree_data_text(const task *work, char text[AGREE_DATA_TEXT]);
const char *agree_held_out_text(const task *work, char text[AGREE_DATA_TEXT]);
/* TW_ERROR_ARGUMENT, on the rank that has read other data than rank 0, says what both have. */
tw_status agree_data(tw_comm *comm, const task *work);

/* Compares the weights' checksums over the ranks; TW_ERROR_STATE, and w->diverged, when a replica differs. */
tw_status agree_replicas(worker *w, uint32_t own);

/* *any becomes 1 on all ranks if it is on one. */
tw_status agree_any(tw_comm *comm, int *any);

/* Whether any rank was asked to stop, wants to, or is lost. To be asked before every step; the ranks really talk only
 * every so many steps, at most half a second's worth, and all find the same answer at the same step. Begin with {0}. */
typedef struct stop_vote {
    uint64_t next_step;
    double last_time;
    uint64_t last_step;
} stop_vote;
tw_status agree_to_stop(worker *w, stop_vote *vote, int *stop);

#endif
