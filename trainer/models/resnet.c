/* resnet.c - the CIFAR ResNets of He et al. (Deep Residual Learning for Image Recognition, 2015, section 4.2): depth
 * 6n + 2, three stages of n blocks with 16, 32 and 64 filters, shortcuts without parameters (option A). Tensors are
 * named as PyTorch names them. */
#include "definition.h"

#include <stdio.h>

static tw_status convolution_and_norm(nn_net *net, const char *prefix, int index, size_t filters, size_t stride,
                                      int relu)
{
    char name[48];
    nn_convolution_options options = {.filters = filters, .kernel = 3, .stride = stride, .padding = 1};
    snprintf(name, sizeof name, "%sconv%d", prefix, index);
    TW_TRY(nn_convolution(net, name, &options));
    snprintf(name, sizeof name, "%sbn%d", prefix, index);
    return nn_batch_norm(net, name, relu);
}

static tw_status resnet_block(nn_net *net, size_t stage, size_t index)
{
    char prefix[32];
    size_t filters = (size_t)16 << stage;
    size_t stride = stage > 0 && index == 0 ? 2 : 1;
    snprintf(prefix, sizeof prefix, "layer%zu.%zu.", stage + 1, index);
    TW_TRY(nn_fork(net));
    TW_TRY(convolution_and_norm(net, prefix, 1, filters, stride, 1));
    TW_TRY(convolution_and_norm(net, prefix, 2, filters, 1, 0));
    return nn_join(net);
}

static tw_status resnet_build(nn_net *net, size_t depth, size_t classes)
{
    size_t blocks = (depth - 2) / 6;
    TW_TRY(convolution_and_norm(net, "", 1, 16, 1, 1));
    for (size_t stage = 0; stage < 3; stage++)
        for (size_t i = 0; i < blocks; i++) TW_TRY(resnet_block(net, stage, i));
    TW_TRY(nn_global_average_pool(net));
    return nn_linear(net, "fc", classes, NN_INITIAL_HE);
}

/* He et al. 2015, section 4.2: a tenth after 32,000 and after 48,000 steps of 128 images. */
#define HE "step:82,123"

const model_definition resnet20_model = {"resnet20", "CIFAR ResNet of 20 layers (270 thousand parameters)",
                                         resnet_build, 20, HE};
const model_definition resnet32_model = {"resnet32", "CIFAR ResNet of 32 layers (464 thousand parameters)",
                                         resnet_build, 32, HE};
const model_definition resnet56_model = {"resnet56", "CIFAR ResNet of 56 layers (853 thousand parameters)",
                                         resnet_build, 56, HE};
const model_definition resnet110_model = {"resnet110", "CIFAR ResNet of 110 layers (1.7 million parameters)",
                                          resnet_build, 110, HE};
