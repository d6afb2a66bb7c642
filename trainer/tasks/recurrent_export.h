/* recurrent_export.h - what PyTorch's nn.LSTM has and a network here has not. Inside tasks/ only. */
#ifndef TRAINER_TASKS_RECURRENT_EXPORT_H
#define TRAINER_TASKS_RECURRENT_EXPORT_H

#include "task.h"

/* Puts a zero rnn.bias_hh_* into the state for each rnn.bias_ih_* of the table: PyTorch adds two biases, of which one
 * is enough. */
tw_status recurrent_export_biases(const task_predictor *p, tw_state *tensors);

#endif
