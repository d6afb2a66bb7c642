/* recurrent_learner.h - what the learners with a recurrent model share. Inside tasks/ only. */
#ifndef TRAINER_TASKS_RECURRENT_LEARNER_H
#define TRAINER_TASKS_RECURRENT_LEARNER_H

#include "dropout.h"
#include "parameters.h"
#include "task.h"

/* The model's name and parameters become the learner's; there are no buffers. */
static inline void show_parameters(learner *base, const char *model, const parameter_set *parameters)
{
    base->model = model;
    base->tensors = parameters->table->tensors;
    base->tensor_count = parameters->table->count;
    base->parameter_count = parameters->table->elements;
    base->parameters = parameters->values;
    base->gradients = parameters->gradients;
}

/* What is kept and never changes. */
static inline void show_buffers(learner *base, const parameter_set *buffers)
{
    base->buffer_tensors = buffers->table->tensors;
    base->buffer_tensor_count = buffers->table->count;
    base->buffer_count = buffers->table->elements;
    base->buffers = buffers->values;
    base->buffers_stand = true;
}

/* Every worker drops other values: its rank stands above the bits of any seed. */
static inline nn_noise noise_of(const learner_place *place, uint64_t step)
{
    return (nn_noise){place->seed ^ (uint64_t)place->rank << 50, step};
}

#endif
