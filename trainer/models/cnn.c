/* cnn.c - a small convolutional classifier without batch norm: its gradient is a plain mean over images, so workers
 * with small batches compute what one worker with a large batch would. */
#include "definition.h"

#include <stdio.h>

typedef struct stage {
    size_t filters, kernel, pool;
} stage;

static const stage stages[] = {{16, 3, 2}, {32, 3, 2}, {64, 3, 1}};
static const size_t hidden = 128;

static tw_status cnn_build(nn_net *net, size_t depth, size_t classes)
{
    (void)depth;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        char name[16];
        nn_convolution_options options = {.filters = stages[i].filters,
                                          .kernel = stages[i].kernel,
                                          .stride = 1,
                                          .padding = stages[i].kernel / 2,
                                          .bias = 1,
                                          .relu = stages[i].pool == 1};
        snprintf(name, sizeof name, "conv%zu", i + 1);
        TW_TRY(nn_convolution(net, name, &options));
        if (stages[i].pool == 1) continue;
        TW_TRY(nn_max_pool(net, &(nn_window){stages[i].pool, stages[i].pool, 0}));
        TW_TRY(nn_relu(net)); /* after the pooling: the same values, on a quarter of the pixels */
    }
    TW_TRY(nn_linear(net, "fc1", hidden, NN_INITIAL_HE));
    TW_TRY(nn_relu(net));
    return nn_linear(net, "fc2", classes, NN_INITIAL_SMALL);
}

const model_definition cnn_model = {"cnn", "a few convolutions and two linear layers, without batch norm", cnn_build, 0,
                                    "step:3"};
