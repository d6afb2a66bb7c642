#include "codec_source.h"
#include "error.h"
#include "regular_file.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- made up ---- */

enum { SHIFT = 16, SHIFTS = 64 }; /* how far windows on the values are apart, and how many there are */

/* Laplace: heavier tails than normal, as gradients have. */
static void codec_source_draw(float *values, size_t count)
{
    for (size_t i = 0; i < count; i += 4) {
        uint32_t words[4];
        tw_random(1, 0, i, words);
        for (size_t j = 0; j < 4 && i + j < count; j++) {
            double uniform = (words[j] + 0.5) / 4294967296.0;
            values[i + j] = (float)(uniform < 0.5 ? log(2 * uniform) : -log(2 - 2 * uniform));
        }
    }
}

/* Of a table that is laid out. */
static tw_status codec_source_fill(codec_source *source)
{
    source->tensors = source->table.tensors;
    source->count = source->table.count;
    source->offset = calloc(source->count, sizeof *source->offset);
    if (!source->offset) return tw_fail(TW_ERROR_MEMORY, "no memory for a table of %zu tensors", source->count);
    for (size_t i = 0; i < source->count; i++) {
        source->offset[i] = source->elements;
        source->elements += tw_tensor_count(&source->tensors[i]);
    }
    size_t drawn = source->elements + (size_t)SHIFT * SHIFTS;
    source->values = malloc(drawn * sizeof *source->values);
    if (!source->values)
        return tw_fail(TW_ERROR_MEMORY, "no memory for %zu elements; take fewer with --count", source->elements);
    codec_source_draw(source->values, drawn);
    return TW_OK;
}

enum { MOST_UNLIKE_SIDES = 64 }; /* longer to shorter */

static void add_matrix(layout *table, size_t count)
{
    size_t shorter = (size_t)sqrt((double)count), longer;
    while (count % shorter) shorter--;
    longer = count / shorter;
    size_t shape[2] = {longer, shorter};
    if (longer / shorter > MOST_UNLIKE_SIDES) {
        shape[0] = 1;
        shape[1] = count;
    }
    layout_add(table, "piece", 2, shape);
}

tw_status codec_source_flat(size_t count, size_t pieces, codec_source *source)
{
    TW_TRY(layout_reserve(pieces, &source->table));
    for (size_t i = 0; i < pieces; i++) add_matrix(&source->table, count / pieces + (i < count % pieces));
    return codec_source_fill(source);
}

tw_status codec_source_resnet50(codec_source *source)
{
    TW_TRY(layout_create("resnet50", &source->table));
    return codec_source_fill(source);
}

/* ---- kept by a training run ---- */

static int is_tensor_file(const struct dirent *entry)
{
    static const char suffix[] = ".safetensors";
    size_t length = strlen(entry->d_name), tail = sizeof suffix - 1;
    return length > tail && strcmp(entry->d_name + length - tail, suffix) == 0;
}

static int all_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i])) return 0;
    return 1;
}

/* One tensor of a file. Schemes are told that gradients are finite, so they must be. */
static tw_status read_tensor(const tw_state *state, size_t index, const char *path, tw_tensor *tensor)
{
    tw_state_entry entry;
    TW_TRY(tw_state_at(state, index, &entry));
    if (entry.dtype != TW_F32) return tw_fail(TW_ERROR_FORMAT, "%s: tensor %s is not F32", path, entry.name);
    if (!all_finite(entry.data, entry.bytes / sizeof(float)))
        return tw_fail(TW_ERROR_FORMAT, "%s: tensor %s holds NaN or infinity; take a step that was not skipped", path,
                       entry.name);
    *tensor = (tw_tensor){.name = entry.name, .dims = entry.dims};
    memcpy(tensor->shape, entry.shape, entry.dims * sizeof *entry.shape);
    return TW_OK;
}

static tw_status codec_source_read_table(codec_source *source, const tw_state *state, const char *path)
{
    source->count = tw_state_count(state);
    if (source->count == 0) return tw_fail(TW_ERROR_FORMAT, "%s holds no tensor", path);
    source->tensors = calloc(source->count, sizeof *source->tensors);
    if (!source->tensors) return tw_fail(TW_ERROR_MEMORY, "no memory for a table of %zu tensors", source->count);
    for (size_t i = 0; i < source->count; i++) {
        TW_TRY(read_tensor(state, i, path, &source->tensors[i]));
        source->elements += tw_tensor_count(&source->tensors[i]);
    }
    return TW_OK;
}

static int is_alike(const tw_tensor *a, const tw_tensor *b)
{
    return strcmp(a->name, b->name) == 0 && a->dims == b->dims &&
           memcmp(a->shape, b->shape, a->dims * sizeof *a->shape) == 0;
}

static tw_status compare_table(const codec_source *source, const tw_state *state, const char *path)
{
    for (size_t i = 0; i < source->count; i++) {
        tw_tensor tensor = {.name = ""};
        if (i < tw_state_count(state)) TW_TRY(read_tensor(state, i, path, &tensor));
        if (tw_state_count(state) != source->count || !is_alike(&tensor, &source->tensors[i]))
            return tw_fail(TW_ERROR_FORMAT,
                           "%s does not hold the tensors of the file before it; give --gradients the files of one run",
                           path);
    }
    return TW_OK;
}

static tw_status load_step(codec_source *source, const char *path)
{
    tw_state *state;
    TW_TRY(tw_state_load(path, &state));
    source->captured[source->steps++] = state;
    return source->steps == 1 ? codec_source_read_table(source, state, path) : compare_table(source, state, path);
}

static tw_status load_steps(codec_source *source, const char *folder, struct dirent **entries, int count)
{
    source->captured = calloc((size_t)count + 1, sizeof(tw_state *));
    if (!source->captured) return tw_fail(TW_ERROR_MEMORY, "no memory for %d steps", count);
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        TW_TRY(load_step(source, path));
    }
    return TW_OK;
}

static tw_status load_folder(codec_source *source, const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, is_tensor_file, versionsort);
    if (count < 0) return tw_fail(TW_ERROR_IO, "%s could not be read: %s", folder, strerror(errno));
    tw_status status =
        count > 0 ? load_steps(source, folder, entries, count)
                  : tw_fail(TW_ERROR_IO, "%s holds no .safetensors file; train --dump-gradients makes them", folder);
    for (int i = 0; i < count; i++) free(entries[i]);
    free(entries);
    return status;
}

tw_status codec_source_load(const char *path, codec_source *source)
{
    if (path_is_folder(path)) return load_folder(source, path);
    source->captured = calloc(1, sizeof(tw_state *));
    if (!source->captured) return tw_fail(TW_ERROR_MEMORY, "no memory for a step");
    return load_step(source, path);
}

/* ---- both ---- */

void codec_source_release(codec_source *source)
{
    for (size_t i = 0; source->captured && i < source->steps; i++) tw_state_destroy(source->captured[i]);
    if (source->captured) free(source->tensors);
    free(source->captured);
    layout_release(&source->table);
    free(source->values);
    free(source->offset);
}

size_t codec_source_room(const tw_tensor *tensor)
{
    enum { LINE = 16 }; /* floats of a cache line */
    return (tw_tensor_count(tensor) + LINE - 1) / LINE * LINE;
}

void codec_source_copy(const codec_source *source, size_t tensor, size_t step, float *dst)
{
    const float *src;
    if (source->captured) {
        tw_state_entry entry = {0};
        tw_state_at(source->captured[step % source->steps], tensor, &entry); /* read_tensor saw that it is there */
        src = entry.data;
    } else {
        src = source->values + source->offset[tensor] + SHIFT * (step * 37 % SHIFTS);
    }
    memcpy(dst, src, tw_tensor_count(&source->tensors[tensor]) * sizeof *dst);
}
