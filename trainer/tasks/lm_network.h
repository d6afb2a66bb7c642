/* lm_network.h - a language model that is used: it goes on with a text. */
#ifndef TRAINER_LM_NETWORK_H
#define TRAINER_LM_NETWORK_H

#include "language_model.h"
#include "task.h"
#include "vocabulary.h"

typedef struct lm_predictor {
    task_predictor base;
    vocabulary *vocabulary;
    language_model_config config;
    size_t context; /* of a transformer: the most tokens that it looks at */
    language_model *model;
} lm_predictor;

/* The options of using a network. */
typedef struct lm_use {
    char *prompt;
    long tokens, top_k, seed;
    double temperature;
} lm_use;

/* As --unit has it. */
const char *lm_unit_name(text_unit unit);

/* The task's slots. */
tw_status lm_predictor_open(const tw_state *state, size_t elements, task_predictor **out);
void lm_predictor_close(task_predictor *p);
tw_status lm_predict(task_predictor *p, const void *use, const char *path, const task_answer *answer);
tw_status lm_describe_network(const task_predictor *p, cJSON *network, tw_state *tensors);
/* In lm_sizes.c. */
tw_status lm_take_sizes(options *set, const void *settings, const tw_state *state);

#endif
