/* What a scheme from outside may ask of the library. */
#include "outside.h"

#include "error.h"
#include "state.h"

#include <string.h>

enum { MOST_WORD = 255 };

/* Tensor `index`; NULL beyond the last. */
static const tw_scheme_tensor *tensor_of(const tw_scheme *scheme, size_t index)
{
    return scheme && index < scheme->count ? &scheme->tensors[index] : NULL;
}

int tw_scheme_rank(const tw_scheme *scheme)
{
    return scheme ? scheme->rank : 0;
}

int tw_scheme_size(const tw_scheme *scheme)
{
    return scheme ? scheme->size : 0;
}

size_t tw_scheme_tensors(const tw_scheme *scheme)
{
    return scheme ? scheme->count : 0;
}

const char *tw_scheme_tensor_name(const tw_scheme *scheme, size_t tensor)
{
    const tw_scheme_tensor *found = tensor_of(scheme, tensor);
    return found ? found->name : "";
}

size_t tw_scheme_elements(const tw_scheme *scheme, size_t tensor)
{
    const tw_scheme_tensor *found = tensor_of(scheme, tensor);
    return found ? found->count : 0;
}

size_t tw_scheme_shape(const tw_scheme *scheme, size_t tensor, size_t *shape)
{
    const tw_scheme_tensor *found = tensor_of(scheme, tensor);
    if (!found) return 0;
    for (size_t i = 0; shape && i < TW_MAX_DIMS; i++) shape[i] = i < found->dims ? found->shape[i] : 0;
    return found->dims;
}

int tw_scheme_is_compressed(const tw_scheme *scheme, size_t tensor)
{
    const tw_scheme_tensor *found = tensor_of(scheme, tensor);
    return found && found->compressed;
}

float *tw_scheme_gradient(const tw_scheme *scheme, size_t tensor)
{
    return tensor_of(scheme, tensor) && scheme->open ? scheme->gradients[tensor] : NULL;
}

int tw_scheme_is_absent(const tw_scheme *scheme, size_t tensor)
{
    return tensor_of(scheme, tensor) && scheme->absent[tensor];
}

float tw_scheme_scale(const tw_scheme *scheme)
{
    return scheme ? scheme->scale : 0;
}

int tw_scheme_is_finite(const tw_scheme *scheme)
{
    return scheme && scheme->finite;
}

void tw_scheme_skip(tw_scheme *scheme)
{
    if (scheme && scheme->open) scheme->skipped = 1;
}

/* Two things of one name would be one in a state. */
static tw_status check_free(const char *what)
{
    static const char *const taken[] = {"residual", "rounding", "section", "scheme", "told"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(taken[i], what) == 0)
            return tw_fail(TW_ERROR_ARGUMENT, "what a scheme from outside remembers may not be called %s", what);
    return TW_OK;
}

/* Beyond that two keys of a state could be cut to the same. */
static tw_status check_length(const char *word, const char *text)
{
    size_t length = strlen(text);
    if (length > 0 && length <= MOST_WORD) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "%s of what a scheme remembers has %zu bytes, not 1 to %d", word, length,
                   MOST_WORD);
}

tw_status tw_walk_visit(tw_walk *walk, const char *what, const char *tensor, tw_state_kind kind, tw_dtype dtype,
                        size_t count, void *data)
{
    TW_TRY(tw_need(walk, "walk"));
    TW_TRY(tw_need(what, "what"));
    TW_TRY(tw_need(tensor, "tensor"));
    TW_TRY(check_free(what));
    TW_TRY(check_length("what", what));
    TW_TRY(check_length("tensor", tensor));
    if ((int)dtype < 0 || (int)dtype >= TW_DTYPES)
        return tw_fail(TW_ERROR_ARGUMENT, "%s/%s: %d is no tw_dtype", what, tensor, (int)dtype);
    if (count) TW_TRY(tw_need(data, "data"));
    const tw_remembered entry = {
        .what = what, .tensor = tensor, .kind = kind, .dtype = dtype, .count = count, .data = data};
    return walk->visit(walk, &entry);
}

uint64_t tw_scheme_step(const tw_scheme *scheme)
{
    return scheme ? scheme->step : 0;
}
