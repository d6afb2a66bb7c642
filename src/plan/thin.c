#include "error.h"
#include "memory.h"
#include "plan.h"

#include <math.h>
#include <string.h>

static int is_alike(const tw_tensor *a, const tw_tensor *b)
{
    return a->dims == b->dims && memcmp(a->shape, b->shape, a->dims * sizeof *a->shape) == 0;
}

/* How many tensors of the table are like number `index`, and how many of them stand before it. */
static size_t count_alike(const tw_tensor *tensors, size_t count, size_t index, size_t *before)
{
    size_t alike = 0;
    *before = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_alike(&tensors[i], &tensors[index])) continue;
        alike++;
        if (i < index) ++*before;
    }
    return alike;
}

/* Along the longer side of the matrix that schemes see in it, which changes least of what they send. */
static void shorten(tw_tensor *tensor, double part)
{
    if (tensor->dims == 0) return;
    size_t rest = tw_tensor_count(tensor) / tensor->shape[0];
    size_t *side = &tensor->shape[tensor->dims > 1 && rest > tensor->shape[0]];
    *side = (size_t)fmax(1, round((double)*side * part));
}

/* Of n that are alike n / times stay, evenly spread over the table; or a part of one. */
static void keep_some(const tw_tensor *tensors, size_t count, double times, tw_thin *thin)
{
    for (size_t i = 0; i < count; i++) {
        size_t before, alike = count_alike(tensors, count, i, &before);
        double kept = (double)alike / times;
        size_t whole = (size_t)fmax(1, round(kept));
        if (before * whole / alike == (before + 1) * whole / alike) continue;
        tw_tensor *tensor = &thin->tensors[thin->count++];
        *tensor = tensors[i];
        if (kept < 1) shorten(tensor, kept);
        thin->elements += tw_tensor_count(tensor);
    }
}

tw_status tw_thin_create(const tw_tensor *tensors, size_t count, size_t elements, tw_thin *thin)
{
    size_t whole = 0;
    *thin = (tw_thin){0};
    for (size_t i = 0; i < count; i++) whole += tw_tensor_count(&tensors[i]);
    TW_TRY(tw_allocate(count, sizeof *thin->tensors, &thin->tensors));
    keep_some(tensors, count, fmax(1, (double)whole / (double)elements), thin);
    thin->times = (double)whole / (double)thin->elements;
    return TW_OK;
}

void tw_thin_release(tw_thin *thin)
{
    tw_free(thin->tensors);
    *thin = (tw_thin){0};
}
