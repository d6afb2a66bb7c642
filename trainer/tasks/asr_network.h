/* asr_network.h - a recogniser that is used: it writes down what is said. */
#ifndef TRAINER_ASR_NETWORK_H
#define TRAINER_ASR_NETWORK_H

#include "acoustic_model.h"
#include "alphabet.h"
#include "feature_settings.h"
#include "log_mel.h"
#include "task.h"

typedef struct asr_predictor {
    task_predictor base;
    feature_settings features;
    alphabet letters; /* none: the network tells classes of frames apart, which have no names */
    acoustic_model_config config;
    acoustic_model *model;
    log_mel *extractor;
} asr_predictor;

/* The options of using a network. */
typedef struct asr_use {
    long beam, channel;
    double bonus, most_seconds;
} asr_use;

/* The task's slots. */
tw_status asr_predictor_open(const tw_state *state, size_t elements, task_predictor **out);
void asr_predictor_close(task_predictor *p);
tw_status asr_predict(task_predictor *p, const void *use, const char *path, const task_answer *answer);
tw_status asr_describe_network(const task_predictor *p, cJSON *network, tw_state *tensors);

#endif
