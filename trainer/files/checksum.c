#include "checksum.h"
#include "error.h"
#include <stdio.h>
#include <string.h>

#define FORMAT "thinwire checkpoint 1"
#define TENSOR_SUM "checksum"
#define TEXT_SUM "checksum of texts"

uint32_t checksum_tensor(const char *name, const void *values, size_t bytes)
{
    return tw_crc32c(tw_crc32c(0, name, strlen(name)), values, bytes);
}

/* Safetensors has no checksum of its own. */
static tw_status sum_tensors(const tw_state *state, char text[CHECKSUM_TEXT])
{
    uint32_t sum = 0;
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        TW_TRY(tw_state_at(state, i, &entry));
        sum += checksum_tensor(entry.name, entry.data, entry.bytes);
    }
    snprintf(text, CHECKSUM_TEXT, "%08x", sum);
    return TW_OK;
}

/* Of all texts but the sum itself. */
static void sum_texts(const tw_state *state, char text[CHECKSUM_TEXT])
{
    uint32_t sum = 0;
    const char *key, *value;
    for (size_t i = 0; (key = tw_state_text_at(state, i, &value)); i++)
        if (strcmp(key, TEXT_SUM) != 0) sum += tw_crc32c(tw_crc32c(0, key, strlen(key) + 1), value, strlen(value));
    snprintf(text, CHECKSUM_TEXT, "%08x", sum);
}

tw_status checksum_put(tw_state *state)
{
    char sum[CHECKSUM_TEXT];
    TW_TRY(sum_tensors(state, sum));
    TW_TRY(tw_state_put_text(state, "format", FORMAT));
    TW_TRY(tw_state_put_text(state, "thinwire", tw_version()));
    TW_TRY(tw_state_put_text(state, TENSOR_SUM, sum));
    sum_texts(state, sum);
    return tw_state_put_text(state, TEXT_SUM, sum);
}

static tw_status compare_sums(const char *path, const char *what, const char *sum, const char *stored)
{
    if (strcmp(sum, stored) == 0) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s is damaged: its %s have checksum %s, it was written with %s", path, what, sum,
                   stored);
}

/* The first checkpoints had no sum of their texts. */
static tw_status verify(const tw_state *state, const char *path)
{
    const char *format = tw_state_text(state, "format"), *stored = tw_state_text(state, TENSOR_SUM);
    const char *stored_texts = tw_state_text(state, TEXT_SUM);
    if (!format || !stored || strcmp(format, FORMAT) != 0)
        return tw_fail(TW_ERROR_FORMAT,
                       "%s is not a '" FORMAT "' file, which thinwire train writes into its run's folder", path);
    char sum[CHECKSUM_TEXT];
    TW_TRY(sum_tensors(state, sum));
    TW_TRY(compare_sums(path, "tensors", sum, stored));
    sum_texts(state, sum);
    return stored_texts ? compare_sums(path, "texts", sum, stored_texts) : TW_OK;
}

const char *checksum_sum(const tw_state *state)
{
    return tw_state_text(state, TEXT_SUM);
}

tw_status checksum_load(const char *path, tw_state **out)
{
    tw_state *state;
    TW_TRY(tw_state_load(path, &state));
    tw_status status = verify(state, path);
    if (status == TW_OK)
        *out = state;
    else
        tw_state_destroy(state);
    return status;
}
