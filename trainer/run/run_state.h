/* run_state.h - what a run keeps between its steps, for the files of this folder: run.c takes any run through them,
 * member.c a group whose workers come and go from one generation to the next, and standby.c a pipeline whose lost
 * workers are replaced. */
#ifndef TRAINER_RUN_STATE_H
#define TRAINER_RUN_STATE_H

#include "agree.h"
#include "carry.h"
#include "group.h"
#include "journal.h"
#include "replan.h"
#include "run.h"

/* Of a stage that others stand by for: where it looks for them, and what it leaves to whoever goes on. */
typedef struct run_trace {
    group *group;
    tw_comm *whole;      /* the stages and those who stand by */
    int begun;           /* the run's checkpoints are in its folder */
    int64_t saved;       /* the step of the newest; -1: there is none yet */
    char pipeline[1024]; /* --pipeline with its cut, once that is agreed on; else "" */
} run_trace;

/* Beside the worker. */
typedef struct run {
    worker worker;
    journal journal;
    stop_vote vote;
    replan replan;
    uint64_t saved_step; /* of the newest checkpoint */
    evaluation looks[TASK_SPLITS];
    uint64_t looked[TASK_SPLITS]; /* the steps that they speak of */
    tw_status unwritten;          /* what became of rank 0's journal, and how that was told */
    char unwritten_text[512];
    /* Where workers come and go: */
    group *group;            /* NULL: they stay */
    tw_comm *alone;          /* of this worker alone */
    train_settings settings; /* in the next generation; its folder may be this run's choice */
    char *chosen_out;
    carry carry;
    int tells;  /* it has been rank 0, and the journal is open */
    int begun;  /* what the worker has is worth carrying on */
    int given;  /* what the worker has is of the group: it opened it, or was given the weights of the others */
    int cut;    /* what stands to be done after a step is not done yet */
    int leaves; /* asked to stop, and has kept what there is */

    run_trace *trace; /* NULL: nobody stands by */
} run;

#define NEVER UINT64_MAX

/* ---- keep.c ------------------------------------------------------------------------------------------------------ */

/* A journal that could not be written has ended the run: how, and where it is kept. */
tw_status keep_tell_unwritten(const run *r);
/* A run that was given no folder takes a new one. Where machines have disks of their own, the folder must not be
 * another run's on any of them. */
tw_status keep_choose_folder(worker *w);
/* What a group would do together, this worker does as one that has nobody beside it. */
tw_status keep_by_itself(run *r, tw_status (*act)(worker *w));
/* The folder of this worker's own, where it has something to keep; and a checkpoint of what it has. */
tw_status keep_folder(run *r);
tw_status keep_alone(run *r);
/* Between two rounds. Whoever was asked to stop keeps what there is, and leaves; TW_ERROR_PEER: there is a change. */
tw_status keep_look(run *r);

/* ---- run.c ------------------------------------------------------------------------------------------------------- */

/* What the first step is taken from: a checkpoint, another run's weights, or initial ones. */
tw_status run_take_start(run *r, int resumes);
/* From the worker's step to the end, or until it is interrupted. */
tw_status run_on(run *r, int *interrupted);

/* run_worker, of a stage that others stand by for. */
tw_status run_stage(const train_settings *settings, const task *work, tw_comm *comm, run_trace *trace,
                    run_result *result);

#endif
