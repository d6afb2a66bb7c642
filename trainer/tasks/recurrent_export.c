#include "recurrent_export.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char input_bias[] = "rnn.bias_ih_", hidden_bias[] = "rnn.bias_hh_";

static tw_status put_zeros(const tw_tensor *like, tw_state *tensors)
{
    char name[128];
    float *zeros = calloc(tw_tensor_count(like), sizeof *zeros);
    if (!zeros) return tw_fail(TW_ERROR_MEMORY, "no memory for a bias");
    snprintf(name, sizeof name, "%s%s", hidden_bias, like->name + strlen(input_bias));
    tw_status status = tw_state_put(tensors, name, TW_F32, like->dims, like->shape, zeros);
    free(zeros);
    return status;
}

tw_status recurrent_export_biases(const task_predictor *p, tw_state *tensors)
{
    for (size_t i = 0; i < p->tensor_count; i++)
        if (strncmp(p->tensors[i].name, input_bias, strlen(input_bias)) == 0)
            TW_TRY(put_zeros(&p->tensors[i], tensors));
    return TW_OK;
}
