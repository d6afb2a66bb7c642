/* automatic.h - --sync auto: a run takes what a plan chooses for its network, its optimiser and its line. */
#ifndef TRAINER_AUTOMATIC_H
#define TRAINER_AUTOMATIC_H

#include "inquiry.h"
#include "network.h"

/* The texts of what was chosen. */
typedef struct automatic {
    char sync[PLAN_SPEC], link[NETWORK_TEXT];
    char why[PLAN_SPEC + NETWORK_TEXT + 640];
} automatic;

/* Puts the choice in the place of auto, the same on every rank, and rank 0 says so in a line. A run that goes on keeps
 * what was chosen for it; where its line has changed by a factor of two, rank 0 says that. `comm`: NULL where the
 * workers are threads of this process. A collective. */
tw_status automatic_settle(train_settings *settings, const task *work, tw_comm *comm, automatic *chosen);

#endif
