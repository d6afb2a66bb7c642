/* list.c - the models there are. */
#include "definition.h"

/* He et al. 2015, section 4.2: a tenth after 32,000 and after 48,000 steps of 128 images. */
#define HE "step:82,123"

const model_definition model_definitions[] = {
    {"cnn", "a few convolutions and two linear layers, without batch norm", cnn_build, 0, "step:3"},
    {"resnet20", "CIFAR ResNet of 20 layers (270 thousand parameters)", resnet_build, 20, HE},
    {"resnet32", "CIFAR ResNet of 32 layers (464 thousand parameters)", resnet_build, 32, HE},
    {"resnet56", "CIFAR ResNet of 56 layers (853 thousand parameters)", resnet_build, 56, HE},
    {"resnet110", "CIFAR ResNet of 110 layers (1.7 million parameters)", resnet_build, 110, HE},
    {0},
};
