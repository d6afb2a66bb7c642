/* residual.c - fork and join. Forward, join adds the fork's images to the branch's, in place. Backward, join hands its
 * gradient to the branch and keeps it; fork, when the branch is done, adds it to what the branch has brought.
 *
 * A shortcut with layers begins with a tensor that has the fork's images and a gradient of its own. Forward, join adds
 * the branch's images to the shortcut's. Backward, both get join's gradient, which lies where their own do: the
 * shortcut first, which leaves it as it is, and then the branch. Fork adds up what the two have brought. */
#include "elementwise.h"
#include "layer.h"

/* Every step-th pixel of an image array (n, c/block, h, w, block); the others are distances in floats. */
typedef struct grid {
    size_t block, image, plane, row, pixel;
} grid;

typedef struct shortcut {
    int identity;
    size_t images, channels, height, width; /* of what is carried over */
    grid from, to;
} shortcut;

typedef struct fork {
    nn_layer layer;
    shortcut shortcut;
    const nn_tensor *joined;
    nn_tensor *branch; /* the end of the branch, and */
    nn_tensor *start;  /* the beginning of the shortcut, where that has layers; else NULL */
} fork;

typedef struct join {
    nn_layer layer;
    const fork *fork;
} join;

/* ---- the shortcut ---- */

static void add_plane(const shortcut *s, const grid *dst_grid, float *dst, const grid *src_grid, const float *src,
                      size_t channels)
{
    for (size_t y = 0; y < s->height; y++) {
        for (size_t x = 0; x < s->width; x++) {
            float *sum = dst + y * dst_grid->row + x * dst_grid->pixel;
            add(sum, src + y * src_grid->row + x * src_grid->pixel, channels);
        }
    }
}

static size_t start_of(const grid *g, size_t image, size_t channel)
{
    return image * g->image + channel / g->block * g->plane + channel % g->block;
}

/* dst += src on the pixels and channels the two grids share. */
static void add_grid(const shortcut *s, const grid *dst_grid, float *dst, const grid *src_grid, const float *src)
{
    size_t run = dst_grid->block == src_grid->block ? dst_grid->block : 1;
    for (size_t n = 0; n < s->images; n++) {
        for (size_t c = 0; c < s->channels; c += run) {
            size_t channels = run < s->channels - c ? run : s->channels - c;
            add_plane(s, dst_grid, dst + start_of(dst_grid, n, c), src_grid, src + start_of(src_grid, n, c), channels);
        }
    }
}

static tw_status describe_grid(const nn_tensor *t, size_t step, grid *g)
{
    size_t block = nn_memory_channel_block(t->data);
    if (!block) return tw_fail(TW_ERROR_UNSUPPORTED, "the primitives chose a layout the shortcut does not know");
    size_t blocks = (t->channels + block - 1) / block, plane = t->height * t->width * block;
    *g = (grid){
        .block = block, .image = blocks * plane, .plane = plane, .row = step * t->width * block, .pixel = step * block};
    return TW_OK;
}

static tw_status describe_shortcut(const nn_net *net, const nn_tensor *from, const nn_tensor *to, shortcut *s)
{
    size_t step = to->height == from->height && to->width == from->width ? 1 : 2;
    int fits = to->channels >= from->channels && to->height == (from->height + step - 1) / step &&
               to->width == (from->width + step - 1) / step;
    if (!fits)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "a residual branch keeps the plane or halves it, and drops no channel: %zu x %zu x %zu came to "
                       "fork, and %zu x %zu x %zu came to join",
                       from->channels, from->height, from->width, to->channels, to->height, to->width);
    *s = (shortcut){.identity = nn_memory_same_layout(from->data, to->data),
                    .images = net->images,
                    .channels = from->channels,
                    .height = to->height,
                    .width = to->width};
    TW_TRY(describe_grid(from, step, &s->from));
    return describe_grid(to, 1, &s->to);
}

/* ---- join ---- */

static tw_status join_forward(nn_layer *layer, int training)
{
    const fork *f = ((join *)layer)->fork;
    float *sum = nn_memory_data(layer->dst->data);
    const float *carried = nn_memory_data(f->branch ? f->branch->data : f->layer.src->data);
    size_t count = nn_memory_floats(layer->dst->data);
    (void)training;
    if (f->shortcut.identity) {
        add_relu(sum, carried, count);
    } else {
        add_grid(&f->shortcut, &f->shortcut.to, sum, &f->shortcut.from, carried);
        relu(sum, count);
    }
    return TW_OK;
}

static tw_status join_backward(nn_layer *layer)
{
    const nn_tensor *t = layer->dst;
    relu_gradient(nn_memory_data(t->diff), nn_memory_data(t->data), nn_memory_floats(t->data));
    return TW_OK;
}

static const nn_layer_ops join_ops = {"join", join_forward, join_backward};

static int same_shape(const nn_tensor *a, const nn_tensor *b)
{
    return a->channels == b->channels && a->height == b->height && a->width == b->width;
}

/* The shortcut's images come to lie as the branch's do, so that one gradient serves both. */
static tw_status end_shortcut(nn_net *net, fork *f)
{
    nn_memory *like;
    if (net->current == f->start) return tw_fail(TW_ERROR_ORDER, "a shortcut needs a layer");
    if (!same_shape(net->current, f->branch))
        return tw_fail(TW_ERROR_ARGUMENT, "a shortcut must end in the shape of its branch");
    TW_TRY(nn_memory_like(f->branch->data, &like));
    TW_TRY(nn_change_layout(net, like));
    f->shortcut.identity = 1;
    return TW_OK;
}

static tw_status check_branch(const nn_net *net, const fork *f)
{
    if (!f) return tw_fail(TW_ERROR_ORDER, "a residual branch was joined and not forked");
    return net->current == f->layer.src ? tw_fail(TW_ERROR_ORDER, "a residual branch needs a layer") : TW_OK;
}

tw_status nn_join(nn_net *net)
{
    fork *f = (fork *)net->fork;
    nn_layer *layer;
    TW_TRY(check_branch(net, f));
    TW_TRY(f->branch ? end_shortcut(net, f) : describe_shortcut(net, f->layer.src, net->current, &f->shortcut));
    nn_tensor *joined = net->current;
    TW_TRY(nn_net_append(net, sizeof(join), &join_ops, joined, &layer));
    ((join *)layer)->fork = f;
    f->joined = joined;
    joined->slot = net->join_slot; /* no layer of the branch writes there: it is whole when fork reads it */
    net->join_slot = NN_REGIONS;
    net->fork = NULL;
    return TW_OK;
}

/* ---- fork ---- */

static tw_status fork_backward(nn_layer *layer)
{
    const fork *f = (fork *)layer;
    if (!layer->src->diff) return TW_OK;
    float *sum = nn_memory_data(layer->src->diff);
    const nn_memory *other = f->start ? f->start->diff : f->joined->diff;
    const float *carried = nn_memory_data(other);
    if (f->shortcut.identity)
        add(sum, carried, nn_memory_floats(other));
    else
        add_grid(&f->shortcut, &f->shortcut.from, sum, &f->shortcut.to, carried);
    return TW_OK;
}

static const nn_layer_ops fork_ops = {"fork", NULL, fork_backward};

tw_status nn_fork(nn_net *net)
{
    if (net->fork) return tw_fail(TW_ERROR_ORDER, "a residual branch was forked inside another");
    TW_TRY(nn_net_append(net, sizeof(fork), &fork_ops, net->current, &net->fork));
    net->join_slot = nn_net_free_slot(net);
    return TW_OK;
}

/* The branch's gradient lies where join's does. */
tw_status nn_shortcut(nn_net *net)
{
    fork *f = (fork *)net->fork;
    TW_TRY(check_branch(net, f));
    if (f->branch) return tw_fail(TW_ERROR_ORDER, "a residual branch has one shortcut");
    f->branch = net->current;
    f->branch->slot = net->join_slot;
    TW_TRY(nn_net_alias(net, f->layer.src, NN_DIFF3));
    f->start = net->current;
    return TW_OK;
}
