/* cut.c - a net as stages: where it can be cut, and what goes in and out there, as plain arrays.
 *
 * A cut is between two layers, outside a residual branch. Layers without parameters go with those before them. */
#include "cut.h"

#include <stdlib.h>

/* ---- units ---- */

/* The end of the layers that begin at `first` and cannot be cut. */
static size_t group_end(const nn_net *net, size_t first)
{
    size_t end = first + 1;
    while (end < net->layer_count && net->layers[end]->inside) end++;
    return end;
}

static size_t parameters_before(const nn_net *net, size_t layer)
{
    return layer ? net->layers[layer - 1]->parameters.end : 0;
}

static size_t offset_of(const nn_table *table, size_t tensor)
{
    return tensor < table->count ? table->offsets[tensor] : table->elements;
}

/* What is behind the net's last unit so far ends it. */
static void end_unit(nn_net *net, size_t layer)
{
    nn_cut *c = &net->cut;
    c->ends[c->count] = layer;
    c->units[c->count++] = (nn_unit){offset_of(&net->parameters, parameters_before(net, layer)),
                                     offset_of(&net->buffers, net->layers[layer - 1]->buffers)};
}

tw_status nn_cut_list(nn_net *net)
{
    nn_cut *c = &net->cut;
    c->units = calloc(net->layer_count + 1, sizeof *c->units);
    c->ends = calloc(net->layer_count + 1, sizeof *c->ends);
    if (!c->units || !c->ends) return tw_fail(TW_ERROR_MEMORY, "no memory for a list of %zu layers", net->layer_count);
    for (size_t i = 0, end; i < net->layer_count; i = end) {
        end = group_end(net, i);
        if (parameters_before(net, end) > parameters_before(net, i) && parameters_before(net, i) > 0) end_unit(net, i);
    }
    if (net->layer_count) end_unit(net, net->layer_count);
    c->end = net->layer_count;
    return TW_OK;
}

void nn_cut_free(nn_net *net)
{
    free(net->cut.units);
    free(net->cut.ends);
}

const nn_unit *nn_net_units(const nn_net *net, size_t *count)
{
    *count = net->cut.count;
    return net->cut.units;
}

/* ---- a stage ---- */

/* An array beside a tensor, ops that fill it from `from`, and `to` from it. */
static tw_status make_edge(const nn_net *net, const nn_tensor *t, nn_memory *from, nn_memory *to, nn_edge *edge)
{
    const size_t shape[] = {net->images, t->channels, t->height, t->width};
    TW_TRY(nn_memory_plain(net->engine, 4, shape, &edge->plain));
    nn_memory_append(edge->plain, NN_ACTIVATIONS);
    edge->count = shape[0] * shape[1] * shape[2] * shape[3];
    TW_TRY(nn_op_reorder(from, edge->plain, &edge->out));
    return nn_op_reorder(edge->plain, to, &edge->in);
}

tw_status nn_net_hold(nn_net *net, const nn_stage *stage)
{
    nn_cut *c = &net->cut;
    if (!stage) return TW_OK;
    const nn_layer *last = net->layers[c->ends[stage->end - 1] - 1];
    c->stage = stage;
    c->first = stage->first ? c->ends[stage->first - 1] : 0;
    c->end = c->ends[stage->end - 1];
    net->parameters.held = (nn_range){parameters_before(net, c->first), parameters_before(net, c->end)};
    if (c->first > 0) {
        const nn_tensor *src = net->layers[c->first]->src;
        TW_TRY(make_edge(net, src, src->diff, src->data, &c->entrance));
    }
    return stage->end < c->count ? make_edge(net, last->dst, last->dst->data, last->dst->diff, &c->exit) : TW_OK;
}

tw_status nn_cut_receive(nn_net *net)
{
    const nn_edge *e = &net->cut.entrance;
    const nn_stage *stage = net->cut.stage;
    if (e->count == 0) return TW_OK;
    TW_TRY(stage->receive(stage->context, nn_memory_data(e->plain), e->count));
    return nn_op_run(e->in);
}

tw_status nn_cut_send_back(nn_net *net)
{
    const nn_edge *e = &net->cut.entrance;
    const nn_stage *stage = net->cut.stage;
    if (e->count == 0) return TW_OK;
    TW_TRY(nn_op_run(e->out));
    return stage->send_back(stage->context, nn_memory_data(e->plain), e->count);
}

int nn_net_goes_on(const nn_net *net)
{
    return net->cut.exit.count > 0;
}

tw_status nn_net_send(nn_net *net, int training, int *back)
{
    const nn_edge *e = &net->cut.exit;
    const nn_stage *stage = net->cut.stage;
    TW_TRY(nn_op_run(e->out));
    float *y = nn_memory_data(e->plain);
    TW_TRY(stage->send(stage->context, y, e->count, training ? y : NULL, training ? back : NULL));
    return training && *back ? nn_op_run(e->in) : TW_OK;
}
