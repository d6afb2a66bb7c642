/* batch_norm.c - batch normalisation (Ioffe and Szegedy, 2015), with a ReLU after it where asked. */
#include "layer.h"

static const float epsilon = 1e-5f;
static const float momentum = 0.1f;

typedef struct batch_norm {
    nn_layer layer;
    nn_op *forward, *evaluate, *backward;
    nn_memory *mean, *variance; /* the batch's, kept for backward */
    nn_memory *running_mean, *running_variance;
    size_t samples; /* values each mean is taken over */
} batch_norm;

static void track(nn_memory *running, const nn_memory *batch, size_t channels, float correction)
{
    float *average = nn_memory_data(running);
    const float *value = nn_memory_data(batch);
    for (size_t i = 0; i < channels; i++) average[i] += momentum * (correction * value[i] - average[i]);
}

static tw_status batch_norm_forward(nn_layer *layer, int training)
{
    batch_norm *b = (batch_norm *)layer;
    if (!training) return nn_op_run(b->evaluate);
    TW_TRY(nn_op_run(b->forward));
    float unbiased = b->samples > 1 ? (float)b->samples / (float)(b->samples - 1) : 1.0f;
    track(b->running_mean, b->mean, layer->dst->channels, 1.0f);
    track(b->running_variance, b->variance, layer->dst->channels, unbiased);
    return TW_OK;
}

static tw_status batch_norm_backward(nn_layer *layer)
{
    return nn_op_run(((batch_norm *)layer)->backward);
}

static const nn_layer_ops ops = {"batch norm", batch_norm_forward, batch_norm_backward};

typedef struct batch_norm_parameters {
    nn_memory *scale, *scale_gradient, *shift, *shift_gradient, *mean, *variance;
} batch_norm_parameters;

static tw_status batch_norm_declare(nn_net *net, const char *name, size_t channels, batch_norm_parameters *p)
{
    nn_declaration scale = {name, "weight", 1, {channels}, NN_INITIAL_ONE};
    nn_declaration shift = {name, "bias", 1, {channels}, NN_INITIAL_ZERO};
    nn_declaration mean = {name, "running_mean", 1, {channels}, NN_INITIAL_ZERO};
    nn_declaration variance = {name, "running_var", 1, {channels}, NN_INITIAL_ONE};
    TW_TRY(nn_net_declare_parameter(net, &scale, &p->scale, &p->scale_gradient));
    TW_TRY(nn_net_declare_parameter(net, &shift, &p->shift, &p->shift_gradient));
    TW_TRY(nn_net_declare_buffer(net, &mean, &p->mean));
    return nn_net_declare_buffer(net, &variance, &p->variance);
}

static tw_status batch_norm_keep(nn_op *op, nn_argument argument, nn_memory **memory)
{
    TW_TRY(nn_memory_for(op, argument, memory));
    if (*memory) nn_memory_append(*memory, NN_ACTIVATIONS);
    nn_op_set(op, argument, *memory);
    return TW_OK;
}

static void batch_norm_connect(nn_op *op, const nn_layer *layer, const batch_norm_parameters *p)
{
    nn_op_set(op, NN_SRC, layer->src->data);
    nn_op_set(op, NN_SCALE, p->scale);
    nn_op_set(op, NN_SHIFT, p->shift);
}

static tw_status build_forward(batch_norm *b, const nn_batch_norm_shape *shape, const batch_norm_parameters *p,
                               nn_memory **workspace)
{
    nn_memory *data = b->layer.src->data;
    TW_TRY(nn_op_batch_norm_forward(shape, NN_STATISTICS_OF_BATCH, data, &b->forward));
    batch_norm_connect(b->forward, &b->layer, p);
    nn_op_set(b->forward, NN_DST, b->layer.dst->data);
    TW_TRY(batch_norm_keep(b->forward, NN_MEAN, &b->mean));
    TW_TRY(batch_norm_keep(b->forward, NN_VARIANCE, &b->variance));
    TW_TRY(batch_norm_keep(b->forward, NN_WORKSPACE, workspace));
    TW_TRY(nn_op_batch_norm_forward(shape, NN_STATISTICS_GIVEN, data, &b->evaluate));
    batch_norm_connect(b->evaluate, &b->layer, p);
    nn_op_set(b->evaluate, NN_DST, b->layer.dst->data);
    nn_op_set(b->evaluate, NN_MEAN, b->running_mean = p->mean);
    nn_op_set(b->evaluate, NN_VARIANCE, b->running_variance = p->variance);
    return TW_OK;
}

/* src->diff exists: there is always a layer before a batch norm (nn_batch_norm sees to it). */
static tw_status build_backward(batch_norm *b, const nn_batch_norm_shape *shape, const batch_norm_parameters *p,
                                const nn_memory *workspace)
{
    TW_TRY(nn_op_batch_norm_backward(shape, b->forward, b->layer.src->data, &b->backward));
    batch_norm_connect(b->backward, &b->layer, p);
    nn_op_set(b->backward, NN_MEAN, b->mean);
    nn_op_set(b->backward, NN_VARIANCE, b->variance);
    nn_op_set(b->backward, NN_WORKSPACE, workspace);
    nn_op_set(b->backward, NN_DIFF_DST, b->layer.dst->diff);
    nn_op_set(b->backward, NN_DIFF_SRC, b->layer.src->diff);
    nn_op_set(b->backward, NN_DIFF_SCALE, p->scale_gradient);
    nn_op_set(b->backward, NN_DIFF_SHIFT, p->shift_gradient);
    return TW_OK;
}

tw_status nn_batch_norm(nn_net *net, const char *name, int relu)
{
    const nn_tensor *src = net->current;
    nn_batch_norm_shape shape = {.epsilon = epsilon, .relu = relu};
    batch_norm_parameters parameters;
    nn_memory *data, *workspace;
    nn_tensor *dst;
    nn_layer *layer;
    if (!src->diff) return tw_fail(TW_ERROR_ORDER, "%s: a batch norm cannot be the first layer", name);
    TW_TRY(nn_memory_like(src->data, &data));
    TW_TRY(nn_net_tensor(net, data, (size_t[]){src->channels, src->height, src->width}, &dst));
    TW_TRY(batch_norm_declare(net, name, src->channels, &parameters));
    TW_TRY(nn_net_append(net, sizeof(batch_norm), &ops, dst, &layer));
    batch_norm *b = (batch_norm *)layer;
    b->samples = net->images * src->height * src->width;
    TW_TRY(build_forward(b, &shape, &parameters, &workspace));
    return build_backward(b, &shape, &parameters, workspace);
}
