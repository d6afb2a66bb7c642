/* plan_command.h - what the files behind `thinwire plan` share. */
#ifndef TRAINER_PLAN_COMMAND_H
#define TRAINER_PLAN_COMMAND_H

#include "inquiry.h"
#include <stdbool.h>

typedef struct plan_settings {
    train_settings train; /* the first member: plan takes many options of train's */
    char *parameters, *clusters;
    double step_time, codec_rate;
    bool unmeasured;
} plan_settings;

/* All that was asked, and the answer. */
typedef struct planning {
    const plan_settings *settings;
    const options *set;
    int has_task;  /* else the tensors are those of --parameters */
    tw_comm *comm; /* of ranks that have measured their line; NULL: it was told */
    int rank;      /* 0 alone plans; the others measure with it */
    int workers;
    tw_world_options line;
    plan_inquiry inquiry;
    tw_plan *answer;
} planning;

/* plan_line.c: the line and the number of workers are what the options say; else those of the ranks that mpirun
 * started or that join, each of which calls it, and `comm` is theirs. TW_ERROR_PEER as everywhere. */
tw_status plan_find_line(planning *p);

/* plan_clusters.c: the command with --clusters, which has a page of its own. */
int plan_clusters(int argc, char **argv);

/* plan_report.c */
void plan_print(FILE *stream, const planning *p);
tw_status plan_write_json(const planning *p, const char *path);

#endif
