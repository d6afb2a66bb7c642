/* group.h - workers that come and go: --join without --workers, and a pipeline with workers that stand by. A run
 * then is a sequence of generations, each a comm of those that are there from one change to the next: see
 * thinwire_members.h. */
#ifndef TRAINER_GROUP_H
#define TRAINER_GROUP_H

#include "settings.h"
#include <thinwire/thinwire_members.h>
#include <thinwire/thinwire_sealed.h>

enum { GROUP_REFUSED = 20 /* strangers that a person is told of */ };

typedef struct group {
    tw_members *members;
    tw_generation place; /* in the generation under way */
    const char *meeting;
    int least, most; /* members that a generation had */
    int has_weights; /* this worker has the run's, and can give them to others */
    int was_in, quiet, refused, leaves;
    uint32_t told[GROUP_REFUSED]; /* marks of the refusals that a person was told of */
    double patience;              /* of this worker, until it is in a group */
    int has_line, stands_by;      /* a pipeline's line; and it is one of those that have no stage, and tell nothing */
    double asked;                 /* when it was to end, and waited for others; 0: it was not yet */
    int seals;
    unsigned char key[TW_SEAL_KEY_BYTES];
} group;

int group_is_wished(const train_settings *s);

/* TW_ERROR_ARGUMENT says what does not go with workers that come and go. The schemes of plug-ins are known by then. */
tw_status group_check(const train_settings *s);

/* Opens the group, or comes to it; returns at once. All have to be told the same options, and to have read the same
 * data. */
tw_status group_open(const train_settings *s, const task *work, group *g);
void group_close(group *g);

/* The next generation, after so many rounds; its comm, or NULL, when the others go on and this worker leaves, as it may
 * while it waits. TW_ERROR_PEER: there is none with it, as too few answer, or the group turns it away. */
tw_status group_next(group *g, uint64_t rounds, int leaves, tw_comm **comm);
/* Where others reach this worker. */
const char *group_address(const group *g);
/* A collective between two rounds. *changes: the generation is over, since somebody comes or leaves. */
tw_status group_look(group *g, tw_comm *comm, int leaves, int *changes);
/* Where this worker stays, whoever comes or leaves. TW_ERROR_PEER: the generation is over. */
tw_status group_stay(group *g, tw_comm *comm);
/* A collective at the end of the run: newcomers that still wait are told of it by group_close. */
void group_finish(group *g, tw_comm *comm);

#endif
