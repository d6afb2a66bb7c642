/* resnet_large.c - the ImageNet ResNets of He et al. (Deep Residual Learning for Image Recognition, 2015, table 1), for
 * pictures of about 224 x 224: a stem that takes a sixteenth of the pixels, four stages of blocks, shortcuts with a
 * convolution where the shape changes (option B). A bottleneck's stride is that of its 3 x 3 convolution, and tensors
 * have the names and the order of PyTorch's torchvision. */
#include "definition.h"

#include <stdio.h>

enum { STAGES = 4, WIDENS = 4 }; /* a bottleneck ends in four times its filters */

typedef struct family {
    size_t depth, blocks[STAGES];
    int bottlenecks;
} family;

static const family families[] = {{18, {2, 2, 2, 2}, 0}, {34, {3, 4, 6, 3}, 0}, {50, {3, 4, 6, 3}, 1}};

static tw_status convolution_and_norm(nn_net *net, const char *convolution, const char *norm,
                                      const nn_convolution_options *options, int relu)
{
    TW_TRY(nn_convolution(net, convolution, options));
    return nn_batch_norm(net, norm, relu);
}

/* Number `index` of a block: a convolution and its norm. */
static tw_status resnet_large_step(nn_net *net, const char *prefix, int index, size_t filters, size_t kernel,
                                   size_t stride, int relu)
{
    char convolution[48], norm[48];
    snprintf(convolution, sizeof convolution, "%sconv%d", prefix, index);
    snprintf(norm, sizeof norm, "%sbn%d", prefix, index);
    nn_convolution_options options = {.filters = filters, .kernel = kernel, .stride = stride, .padding = kernel / 2};
    return convolution_and_norm(net, convolution, norm, &options, relu);
}

static tw_status resnet_large_project(nn_net *net, const char *prefix, size_t filters, size_t stride)
{
    char convolution[48], norm[48];
    snprintf(convolution, sizeof convolution, "%sdownsample.0", prefix);
    snprintf(norm, sizeof norm, "%sdownsample.1", prefix);
    nn_convolution_options options = {.filters = filters, .kernel = 1, .stride = stride};
    TW_TRY(nn_shortcut(net));
    return convolution_and_norm(net, convolution, norm, &options, 0);
}

static tw_status basic(nn_net *net, const char *prefix, size_t filters, size_t stride)
{
    TW_TRY(resnet_large_step(net, prefix, 1, filters, 3, stride, 1));
    return resnet_large_step(net, prefix, 2, filters, 3, 1, 0);
}

static tw_status bottleneck(nn_net *net, const char *prefix, size_t filters, size_t stride)
{
    TW_TRY(resnet_large_step(net, prefix, 1, filters, 1, 1, 1));
    TW_TRY(resnet_large_step(net, prefix, 2, filters, 3, stride, 1));
    return resnet_large_step(net, prefix, 3, WIDENS * filters, 1, 1, 0);
}

static tw_status resnet_large_block(nn_net *net, const family *f, size_t stage, size_t index)
{
    char prefix[32];
    size_t filters = (size_t)64 << stage, stride = stage > 0 && index == 0 ? 2 : 1;
    int projects = index == 0 && (stage > 0 || f->bottlenecks);
    snprintf(prefix, sizeof prefix, "layer%zu.%zu.", stage + 1, index);
    TW_TRY(nn_fork(net));
    TW_TRY(f->bottlenecks ? bottleneck(net, prefix, filters, stride) : basic(net, prefix, filters, stride));
    if (projects) TW_TRY(resnet_large_project(net, prefix, f->bottlenecks ? WIDENS * filters : filters, stride));
    return nn_join(net);
}

static tw_status resnet_large_build(nn_net *net, size_t depth, size_t classes)
{
    const family *f = families;
    while (f->depth != depth) f++;
    TW_TRY(resnet_large_step(net, "", 1, 64, 7, 2, 1));
    TW_TRY(nn_max_pool(net, &(nn_window){.size = 3, .stride = 2, .padding = 1}));
    for (size_t stage = 0; stage < STAGES; stage++)
        for (size_t i = 0; i < f->blocks[stage]; i++) TW_TRY(resnet_large_block(net, f, stage, i));
    TW_TRY(nn_global_average_pool(net));
    return nn_linear(net, "fc", classes, NN_INITIAL_HE);
}

/* A tenth every 30 epochs: Goyal et al., Accurate, Large Minibatch SGD, 2017. */
#define GOYAL "step:30,60,80"

const model_definition resnet18_model = {"resnet18", "ImageNet ResNet of 18 layers (11.7 million parameters)",
                                         resnet_large_build, 18, GOYAL};
const model_definition resnet34_model = {"resnet34", "ImageNet ResNet of 34 layers (21.8 million parameters)",
                                         resnet_large_build, 34, GOYAL};
const model_definition resnet50_model = {"resnet50", "ImageNet ResNet of 50 layers (25.6 million parameters)",
                                         resnet_large_build, 50, GOYAL};
