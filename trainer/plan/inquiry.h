/* inquiry.h - what a run asks thinwire_plan.h: which way of exchanging suits its network, its optimiser and its line.
 */
#ifndef TRAINER_INQUIRY_H
#define TRAINER_INQUIRY_H

#include "layout.h"
#include "worker.h"
#include <thinwire/thinwire_plan.h>

enum { PLAN_SPEC = 128, PLAN_RANKS = 64 /* between which lines can be measured */ };

/* The question, and what it borrows. */
typedef struct plan_inquiry {
    tw_plan_question question;
    layout tensors;
} plan_inquiry;

/* Asks for a network of a task, of which a run has so many workers: its tensors, its optimiser, its length. What else
 * the question says stays. */
tw_status plan_ask(const train_settings *settings, const task *work, int workers, plan_inquiry *inquiry);
/* And for one that is nothing but the table that `tensors` has. */
void plan_ask_of_table(const train_settings *settings, int workers, plan_inquiry *inquiry);
void plan_forget(plan_inquiry *inquiry);
/* And for a run under way, with the passes that this worker has measured so far. The tensors stay the worker's:
 * plan_forget is not for them. What a run cannot go on with is left out. */
void plan_ask_of_run(const worker *w, plan_inquiry *inquiry);

/* Measures the pass of a step and what there is beside it. All ranks of `comm` measure at once, as they will
 * compute, and the slowest counts; NULL: this process alone. A collective. */
tw_status plan_find_pass(const train_settings *settings, const task *work, tw_comm *comm, plan_inquiry *inquiry);

/* Answers, over that line, with passes that are as slow as the settings' --slow says. */
tw_status plan_answer(const train_settings *settings, const tw_world_options *line, plan_inquiry *inquiry,
                      tw_plan **plan);
/* The row that was chosen. */
tw_plan_row plan_chosen(const tw_plan *plan);

#endif
