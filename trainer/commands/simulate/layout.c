#include "layout.h"
#include "error.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 1024, LEAST = 16, MOST = 1 << 30 };

static tw_status layout_reserve(layout *t, size_t count)
{
    *t = (layout){.tensors = calloc(count, sizeof *t->tensors), .names = calloc(count, sizeof *t->names)};
    if (t->tensors && t->names) return TW_OK;
    layout_release(t);
    return tw_fail(TW_ERROR_MEMORY, "no memory for a table of %zu tensors", count);
}

void layout_release(layout *t)
{
    free(t->tensors);
    free(t->names);
    *t = (layout){0};
}

/* Named by their place. */
static void layout_add(layout *t, const char *kind, size_t dims, const size_t *shape)
{
    tw_tensor *tensor = &t->tensors[t->count];
    snprintf(t->names[t->count], LAYOUT_NAME, "%s%zu", kind, t->count);
    tensor->name = t->names[t->count++];
    tensor->dims = dims;
    memcpy(tensor->shape, shape, dims * sizeof *shape);
    t->elements += tw_tensor_count(tensor);
}

static void add_vector(layout *t, const char *kind, size_t count)
{
    layout_add(t, kind, 1, &count);
}

/* --- of a number of parameters -------------------------------------------------------------------------------- */

/* A layer of n x n weights and n biases, the largest that fits; what is left over is a vector. */
static tw_status create_plain(size_t elements, layout *t)
{
    TW_TRY(layout_reserve(t, 2 * (elements / ((size_t)SIDE * SIDE) + 32)));
    for (size_t left = elements; left;) {
        size_t side = (size_t)((sqrt(1 + 4.0 * (double)left) - 1) / 2);
        if (side > SIDE) side = SIDE;
        if (side < LEAST) {
            add_vector(t, "rest", left);
            break;
        }
        layout_add(t, "weight", 2, (size_t[]){side, side});
        add_vector(t, "bias", side);
        left -= side * (side + 1);
    }
    return TW_OK;
}

static int read_count(const char *text, size_t *count)
{
    char *end;
    double value = strtod(text, &end);
    value *= *end == 'k' ? 1e3 : *end == 'M' ? 1e6 : 1;
    if (*end == 'k' || *end == 'M') end++;
    if (end == text || *end || !(value >= 1 && value <= MOST)) return 0;
    *count = (size_t)llround(value);
    return 1;
}

/* --- ResNet-50 (He et al. 2015) --------------------------------------------------------------------------------- */

static void add_convolution(layout *t, size_t filters, size_t channels, size_t kernel)
{
    layout_add(t, "conv", 4, (size_t[]){filters, channels, kernel, kernel});
    add_vector(t, "scale", filters);
    add_vector(t, "shift", filters);
}

static void add_bottleneck(layout *t, size_t channels, size_t planes, int first)
{
    add_convolution(t, planes, channels, 1);
    add_convolution(t, planes, planes, 3);
    add_convolution(t, 4 * planes, planes, 1);
    if (first) add_convolution(t, 4 * planes, channels, 1);
}

static tw_status create_resnet50(layout *t)
{
    static const size_t blocks[] = {3, 4, 6, 3};
    TW_TRY(layout_reserve(t, 161));
    add_convolution(t, 64, 3, 7);
    size_t channels = 64, planes = 64;
    for (size_t stage = 0; stage < 4; stage++, planes *= 2)
        for (size_t b = 0; b < blocks[stage]; b++, channels = 4 * planes) add_bottleneck(t, channels, planes, b == 0);
    layout_add(t, "fc", 2, (size_t[]){1000, channels});
    add_vector(t, "fc", 1000);
    return TW_OK;
}

tw_status layout_create(const char *text, layout *t)
{
    size_t elements;
    if (strcmp(text, "resnet50") == 0) return create_resnet50(t);
    if (read_count(text, &elements)) return create_plain(elements, t);
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--parameters %s: want a number from 1 to 1073M, such as 250k or 25.6M, or resnet50", text);
}
