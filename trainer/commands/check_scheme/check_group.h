/* check_group.h - the sides of a scheme on several ranks, in one thread: thinwire check-scheme runs its steps here,
 * where it may look at what each rank remembers and harm what they send. */
#ifndef TRAINER_CHECK_GROUP_H
#define TRAINER_CHECK_GROUP_H

#include <thinwire/thinwire_by_hand.h>

enum { CHECK_RANKS = 4, CHECK_TENSORS = 3, CHECK_ELEMENTS = 12 * 12 + 5 + 37 * 41 };
extern const tw_tensor check_table[CHECK_TENSORS];

/* What is done to one packet of a step on its way to all ranks. */
typedef enum harm_kind { HARM_NONE, HARM_FLIP, HARM_CUT, HARM_EXTEND } harm_kind;
typedef struct harm {
    harm_kind kind;
    int round; /* counted among those that carry packets */
    size_t byte;
    int bit;
} harm;

typedef struct check_group {
    int size;
    tw_scheme *scheme[CHECK_RANKS];
    float values[CHECK_RANKS][CHECK_ELEMENTS]; /* gradients, then means */
    int absent;                                /* 1: the last rank has no gradient for the first tensor */
    harm harm;
    int packet_rounds;      /* of the last step */
    size_t packet_bytes[8]; /* of the last rank's packet in each of them */
    int skipped;
} check_group;

/* A failed one is for check_group_destroy, too. */
tw_status check_group_create(check_group *group, const char *spec, int size);
void check_group_destroy(check_group *group);
/* One step of all ranks: the means of `values` are in them, but where it was skipped. */
tw_status check_group_step(check_group *group);

#endif
