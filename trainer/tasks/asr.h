/* asr.h - what the two ways to train a speech recogniser share. Inside tasks/ only.
 *
 * asr_ctc.c learns whole utterances from their transcripts, asr_frames.c windows of frames from an alignment. */
#ifndef TRAINER_TASKS_ASR_H
#define TRAINER_TASKS_ASR_H

#include "acoustic_model.h"
#include "recurrent_learner.h"
#include "spec_augment.h"
#include "speech_data.h"
#include "task.h"

typedef enum asr_model { ASR_CTC, ASR_FRAMES } asr_model;
typedef enum asr_encoder { ASR_LSTM, ASR_CONFORMER } asr_encoder;

/* That the encoder of a checkpoint stays as it is, if it was pre-trained and nobody says how many. */
enum { ASR_HELD_STEPS = 500 };

typedef struct asr_settings {
    char *data, *test;                /* see speech_corpus_load */
    char *alignment, *test_alignment; /* ASR_FRAMES */
    char *features;                   /* see feature_settings_parse */
    char *feature_cache;              /* see speech_request */
    char *labels_from;                /* whose transcripts have the letters; NULL: those to train with */
    int model;                        /* asr_model */
    int encoder;                      /* asr_encoder */
    long layers, hidden, bottleneck;
    long blocks, width, heads, kernel, channels; /* ASR_CONFORMER; -1: as usual */
    int positions;                               /* 1: relative */
    int freeze;                                  /* speech_encoder_freeze */
    long freeze_steps;                           /* before these only the last layer moves */
    long window;                                 /* ASR_FRAMES: frames */
    long channel, memory_mb;
    long time_masks, time_mask, frequency_masks, frequency_mask;
    double dropout, tempo, most_seconds;
    double validation;     /* the share of training utterances that is held out */
    char *validation_data; /* see speech_corpus_add_validation */
} asr_settings;

#define ASR_ALPHABET "alphabet" /* the key of a recogniser's letters in a checkpoint */

typedef struct asr_kind asr_kind;

/* The data, whichever way it is learned. */
typedef struct asr_data {
    task base;
    const asr_kind *kind;
    speech_corpus corpus;
    speech_request request;
    size_t labels; /* that the network tells apart */
    speech_encoder_config encoder;
    void *sets; /* the kind's own */
} asr_data;

typedef struct asr_learner {
    learner base;
    acoustic_model *net;
    uint32_t *order; /* of epoch `order_epoch` */
    uint64_t order_epoch;
    void *own; /* the kind's */
} asr_learner;

/* What there is to train with, to validate and to test: so many of what. */
typedef struct asr_parts {
    char what[64];
    size_t counts[3];
    const speech_set *sets[3];
} asr_parts;

struct asr_kind {
    const char *name;
    const char *items, *batch_of; /* as in task */
    const task_metric *metrics;
    /* Fills d->sets, d->labels and d->base.identity, and says what there is. */
    tw_status (*load)(asr_data *d, asr_parts *parts);
    void (*release)(asr_data *d);
    /* How many there are to train on of what `batch_of` names. */
    size_t (*count)(const asr_data *d);
    /* Fills l->own, l->order and steps_per_epoch; the network is made afterwards. */
    tw_status (*prepare)(asr_learner *l);
    void (*clear)(asr_learner *l);
    tw_status (*step)(asr_learner *l, uint64_t step, learner_gradient_ready ready, void *context, task_score *score);
    tw_status (*evaluate)(asr_learner *l, task_split split, size_t part, size_t parts, task_score *score);
    /* May be NULL. */
    tw_status (*describe)(const asr_data *d, tw_state *state);
};

extern const asr_kind asr_ctc, asr_frames;

static inline const asr_data *asr_data_of(const asr_learner *l)
{
    return (const asr_data *)l->base.task;
}

static inline const asr_settings *asr_settings_of(const task *t)
{
    return (const asr_settings *)t->settings;
}

/* The sizes of the speech encoder that is asked for, checked; zeros where it is none. */
tw_status asr_encoder_sizes(const asr_settings *s, size_t features, speech_encoder_config *sizes);
/* The task's slot. */
tw_status asr_take_sizes(options *set, const void *settings, const tw_state *state);

#endif
