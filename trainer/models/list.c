/* list.c - the models there are. */
#include "definition.h"

const model_definition model_definitions[] = {
    {"cnn", "a few convolutions and two linear layers, without batch norm", cnn_build, 0},
    {"resnet20", "CIFAR ResNet of 20 layers (270 thousand parameters)", resnet_build, 20},
    {"resnet32", "CIFAR ResNet of 32 layers (464 thousand parameters)", resnet_build, 32},
    {"resnet56", "CIFAR ResNet of 56 layers (853 thousand parameters)", resnet_build, 56},
    {"resnet110", "CIFAR ResNet of 110 layers (1.7 million parameters)", resnet_build, 110},
    {0},
};
