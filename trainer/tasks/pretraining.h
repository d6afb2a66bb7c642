/* pretraining.h - what the parts of task w2v-bert share: settings, data, a worker. Inside tasks/ only. */
#ifndef TRAINER_TASKS_PRETRAINING_H
#define TRAINER_TASKS_PRETRAINING_H

#include "collapse_guard.h"
#include "speech_crops.h"
#include "task.h"
#include "w2v_bert.h"

typedef struct pretraining_settings {
    char *data, *test;   /* see speech_corpus_load_sounds */
    char *features;      /* see feature_settings_parse */
    char *feature_cache; /* see speech_request */
    int size;
    char *temperature;
    long contrastive_blocks, masked_blocks, width, heads, kernel, groups, codes; /* -1: as `size` has it */
    int positions;                                                               /* 1: relative */
    int targets, fill, on_collapse;
    long mask_span, distractors, channel, memory_mb;
    double crop, mask_probability, diversity, code_scale, dropout, most_seconds;
    bool describe;
} pretraining_settings;

/* The Gumbel softmax's temperature falls from one to the other, evenly by factors, over a share of the run. */
typedef struct falling_temperature {
    double from, to, share;
} falling_temperature;

typedef struct pretraining_data {
    task base;
    speech_corpus corpus;
    speech_set train, test;
    speech_crops train_crops, test_crops;
    w2v_bert_config config; /* but for the precision */
    falling_temperature temperature;
} pretraining_data;

typedef struct pretraining_learner {
    learner base;
    w2v_bert *net;
    crop_order order, test_order;
    uint64_t order_epoch;
    float *frames;   /* (batch, crop, features) */
    size_t *first;   /* (batch + 1) */
    uint64_t *place; /* (batch) */
    collapse_guard guard;
    double *seen; /* (2, groups, codes), in an evaluation: sums of probabilities, and targets */
    float *shared;
} pretraining_learner;

/* A worker's part of the task's slots. */
tw_status pretraining_open(learner *l);
void pretraining_close(learner *l);
tw_status pretraining_step(learner *l, uint64_t step, learner_gradient_ready ready, void *context, task_score *score);
tw_status pretraining_evaluate(learner *l, task_split split, size_t part, size_t parts, task_score *score);
tw_status pretraining_save(const learner *l, const char *prefix, tw_state *state);
tw_status pretraining_restore(learner *l, const char *prefix, const tw_state *state);

extern const task_metric pretraining_metrics[];
void pretraining_tell(const task_score *score, char *text, size_t room);

#endif
