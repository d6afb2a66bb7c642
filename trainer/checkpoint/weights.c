#include "weights.h"
#include "checksum.h"
#include "error.h"
#include "optimiser.h"
#include "task.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LORA_A "lora_A.weight"
#define LORA_B "lora_B.weight"
#define WEIGHT "weight"

bool weights_include(const tw_state_entry *entry)
{
    return entry->dtype == TW_F32 && strncmp(entry->name, OPTIMISER_PREFIX, strlen(OPTIMISER_PREFIX)) != 0;
}

bool weights_find(const tw_state *state, const char *name, tw_state_entry *entry)
{
    return tw_state_at(state, tw_state_index(state, name), entry) == TW_OK;
}

tw_status weights_elements(const tw_state *state, size_t *elements)
{
    *elements = 0;
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        TW_TRY(tw_state_at(state, i, &entry));
        *elements += entry.dtype == TW_F32 ? entry.bytes / sizeof(float) : 0;
    }
    return TW_OK;
}

/* ---- which they are ---------------------------------------------------------------------------------------------- */

static tw_status sum_weights(const tw_state *state, uint32_t *sum)
{
    *sum = 0;
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        TW_TRY(tw_state_at(state, i, &entry));
        if (weights_include(&entry)) *sum += checksum_tensor(entry.name, entry.data, entry.bytes);
    }
    return TW_OK;
}

tw_status weights_check_sum(uint32_t sum, const char *wanted)
{
    char text[16];
    snprintf(text, sizeof text, "%08x", sum);
    if (wanted && strcmp(text, wanted) == 0) return TW_OK;
    return tw_fail(TW_ERROR_STATE, "its weights have checksum %s, and the adapters were trained beside %s", text,
                   wanted ? wanted : "(they do not say)");
}

tw_status weights_check_network(const tw_state *state, const char *wanted)
{
    const char *network = tw_state_text(state, TASK_NETWORK);
    if (!wanted || !*wanted || (network && strcmp(network, wanted) == 0)) return TW_OK;
    return tw_fail(TW_ERROR_STATE, "its network is %s, and the adapters were trained beside %s",
                   network ? network : "?", wanted);
}

/* ---- merging ----------------------------------------------------------------------------------------------------- */

/* "x.weight": the tensor "x.<part>". */
static bool find_beside(const tw_state *state, const char *name, const char *part, tw_state_entry *entry)
{
    char other[512];
    const size_t length = strlen(name), stem = length - strlen(WEIGHT);
    if (length < strlen(WEIGHT) || strcmp(name + stem, WEIGHT) != 0) return false;
    if (length >= sizeof other || stem + strlen(part) >= sizeof other) return false;
    memcpy(other, name, length + 1);
    strcpy(other + stem, part);
    return weights_find(state, other, entry);
}

/* What has no rank may have any number of rows, which nobody goes through. */
static bool fit(const tw_state_entry *w, const tw_state_entry *a, const tw_state_entry *b)
{
    return a->bytes > 0 && b->bytes > 0 && w->dims == 2 && a->dims == 2 && b->dims == 2 && a->dtype == TW_F32 &&
           b->dtype == TW_F32 && a->shape[1] == w->shape[1] && b->shape[0] == w->shape[0] && a->shape[0] == b->shape[1];
}

static void add_product(const tw_state_entry *a, const tw_state_entry *b, float scale, float *values)
{
    const float *values_a = a->data, *values_b = b->data;
    const size_t rank = a->shape[0], inputs = a->shape[1], outputs = b->shape[0];
    for (size_t o = 0; o < outputs; o++)
        for (size_t r = 0; r < rank; r++) {
            const float factor = scale * values_b[o * rank + r];
            for (size_t i = 0; i < inputs; i++) values[o * inputs + i] += factor * values_a[r * inputs + i];
        }
}

typedef struct merging {
    const tw_state *adapters;
    tw_state *merged;
    float scale;
    size_t used; /* tensors of adapters */
} merging;

static tw_status put_sum(merging *m, const tw_state_entry *w, const tw_state_entry *a, const tw_state_entry *b)
{
    if (!fit(w, a, b)) return tw_fail(TW_ERROR_FORMAT, "its %s does not fit %s", a->name, w->name);
    float *values = malloc(w->bytes);
    if (!values) return tw_fail(TW_ERROR_MEMORY, "no memory for %s", w->name);
    memcpy(values, w->data, w->bytes);
    add_product(a, b, m->scale, values);
    m->used += 2;
    tw_status status = tw_state_put(m->merged, w->name, TW_F32, w->dims, w->shape, values);
    free(values);
    return status;
}

static tw_status merge_weight(merging *m, const tw_state_entry *w)
{
    tw_state_entry a, b;
    const bool adapted = find_beside(m->adapters, w->name, LORA_A, &a) && find_beside(m->adapters, w->name, LORA_B, &b);
    return adapted ? put_sum(m, w, &a, &b) : tw_state_put(m->merged, w->name, TW_F32, w->dims, w->shape, w->data);
}

static tw_status merge_weights(merging *m, const tw_state *weights)
{
    tw_state_entry entry;
    for (size_t i = 0; i < tw_state_count(weights); i++) {
        TW_TRY(tw_state_at(weights, i, &entry));
        if (weights_include(&entry)) TW_TRY(merge_weight(m, &entry));
    }
    size_t count = 0;
    for (size_t i = 0; i < tw_state_count(m->adapters); i++)
        count += tw_state_at(m->adapters, i, &entry) == TW_OK && weights_include(&entry);
    if (count == m->used) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%zu of its %zu tensors are adapters of no weight", count - m->used, count);
}

/* All but where the weights are, which are at hand. */
static tw_status merge_texts(const merging *m)
{
    const char *key, *value;
    for (size_t i = 0; (key = tw_state_text_at(m->adapters, i, &value)); i++)
        if (strcmp(key, BASE) != 0) TW_TRY(tw_state_put_text(m->merged, key, value));
    return TW_OK;
}

static tw_status merge(merging *m, const tw_state *weights)
{
    uint32_t sum;
    double scale;
    TW_TRY(sum_weights(weights, &sum));
    TW_TRY(weights_check_sum(sum, tw_state_text(m->adapters, BASE_SUM)));
    TW_TRY(weights_check_network(weights, tw_state_text(m->adapters, BASE_NETWORK)));
    TW_TRY(tw_state_get(m->adapters, TASK_ADAPTER_SCALE, TW_F64, 1, &scale));
    if (!isfinite(scale)) return tw_fail(TW_ERROR_FORMAT, "its " TASK_ADAPTER_SCALE " is not a finite number");
    m->scale = (float)scale;
    TW_TRY(merge_weights(m, weights));
    return merge_texts(m);
}

tw_status weights_merge(const tw_state *adapters, const tw_state *weights, tw_state **merged)
{
    merging m = {.adapters = adapters};
    TW_TRY(tw_state_create(&m.merged));
    tw_status status = merge(&m, weights);
    if (status == TW_OK)
        *merged = m.merged;
    else
        tw_state_destroy(m.merged);
    return status;
}
