#include "layout.h"
#include "error.h"
#include "regular_file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 1024, LEAST = 16, MOST = 1 << 30 };

#define SPACES " \t\r\n"

tw_status layout_reserve(size_t count, layout *t)
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

static void layout_add_named(layout *t, const char *name, size_t dims, const size_t *shape)
{
    tw_tensor *tensor = &t->tensors[t->count];
    snprintf(t->names[t->count], LAYOUT_NAME, "%s", name);
    tensor->name = t->names[t->count++];
    tensor->dims = dims;
    memcpy(tensor->shape, shape, dims * sizeof *shape);
    t->elements += tw_tensor_count(tensor);
}

void layout_add(layout *t, const char *kind, size_t dims, const size_t *shape)
{
    char name[LAYOUT_NAME];
    snprintf(name, sizeof name, "%s%zu", kind, t->count);
    layout_add_named(t, name, dims, shape);
}

static void add_vector(layout *t, const char *kind, size_t count)
{
    layout_add(t, kind, 1, &count);
}

/* --- of a number of parameters -------------------------------------------------------------------------------- */

/* A layer of n x n weights and n biases, the largest that fits; what is left over is a vector. */
static tw_status create_plain(size_t elements, layout *t)
{
    TW_TRY(layout_reserve(2 * (elements / ((size_t)SIDE * SIDE) + 32), t));
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
    if (end == text || *end || !(value >= 1 && value <= MOST) || fabs(value - round(value)) > 1e-6) return 0;
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
    TW_TRY(layout_reserve(161, t));
    add_convolution(t, 64, 3, 7);
    size_t channels = 64, planes = 64;
    for (size_t stage = 0; stage < 4; stage++, planes *= 2)
        for (size_t b = 0; b < blocks[stage]; b++, channels = 4 * planes) add_bottleneck(t, channels, planes, b == 0);
    layout_add(t, "fc", 2, (size_t[]){1000, channels});
    add_vector(t, "fc", 1000);
    return TW_OK;
}

/* --- GPT-2, the smallest (Radford et al. 2019) ----------------------------------------------------------------- */

static void add_affine(layout *t, size_t from, size_t to)
{
    layout_add(t, "weight", 2, (size_t[]){from, to});
    add_vector(t, "bias", to);
}

static void add_norm(layout *t, size_t width)
{
    add_vector(t, "scale", width);
    add_vector(t, "shift", width);
}

static tw_status create_gpt2(layout *t)
{
    enum { LAYERS = 12, WORDS = 50257, PLACES = 1024 };
    const size_t width = 768;
    TW_TRY(layout_reserve(2 + 12 * LAYERS + 2, t));
    layout_add(t, "words", 2, (size_t[]){WORDS, width});
    layout_add(t, "places", 2, (size_t[]){PLACES, width});
    for (int layer = 0; layer < LAYERS; layer++) {
        add_norm(t, width);
        add_affine(t, width, 3 * width);
        add_affine(t, width, width);
        add_norm(t, width);
        add_affine(t, width, 4 * width);
        add_affine(t, 4 * width, width);
    }
    add_norm(t, width);
    return TW_OK;
}

/* --- a file ----------------------------------------------------------------------------------------------------- */

/* "fc.weight 1000 2048" */
static int add_line(char *line, layout *t)
{
    char *rest, *name = strtok_r(line, SPACES, &rest);
    size_t shape[TW_MAX_DIMS], dims = 0;
    double elements = 1;
    for (char *word; (word = strtok_r(NULL, SPACES, &rest)); dims++) {
        char *end;
        long long side = strtoll(word, &end, 10);
        if (*end || side < 1 || side > MOST || dims == TW_MAX_DIMS) return 0;
        shape[dims] = (size_t)side;
        elements *= (double)side;
    }
    if (strlen(name) >= LAYOUT_NAME || elements + (double)t->elements > MOST) return 0;
    layout_add_named(t, name, dims, shape);
    return 1;
}

static size_t count_lines(FILE *file)
{
    size_t count = 1;
    for (int c; (c = fgetc(file)) != EOF;) count += c == '\n';
    rewind(file);
    return count;
}

static tw_status read_lines(const char *path, FILE *file, layout *t)
{
    char line[1024];
    for (size_t number = 1; fgets(line, sizeof line, file); number++) {
        if (!strchr(line, '\n') && !feof(file)) /* its pieces would be more lines than there is room for */
            return tw_fail(TW_ERROR_FORMAT, "--parameters %s: line %zu has a byte of zero or %zu bytes or more", path,
                           number, sizeof line - 1);
        if (line[strspn(line, SPACES)] == 0) continue;
        if (!add_line(line, t))
            return tw_fail(TW_ERROR_FORMAT,
                           "--parameters %s: line %zu is no name of at most %d bytes with up to %d dimensions behind "
                           "it, such as fc.weight 1000 2048, of 1073M elements in all",
                           path, number, LAYOUT_NAME - 1, TW_MAX_DIMS);
    }
    return t->count ? TW_OK : tw_fail(TW_ERROR_FORMAT, "--parameters %s: it has no line with a tensor", path);
}

static tw_status read_file(const char *path, FILE *file, layout *t)
{
    tw_status status = layout_reserve(count_lines(file), t);
    if (status == TW_OK && (status = read_lines(path, file, t)) != TW_OK) layout_release(t);
    fclose(file);
    return status;
}

tw_status layout_copy(const tw_tensor *tensors, size_t count, layout *t)
{
    TW_TRY(layout_reserve(count, t));
    for (size_t i = 0; i < count; i++) layout_add_named(t, tensors[i].name, tensors[i].dims, tensors[i].shape);
    return TW_OK;
}

static tw_status refuse_parameters(const char *text)
{
    return tw_fail(
        TW_ERROR_ARGUMENT,
        "--parameters %s: want a whole number from 1 to 1073M, such as 250k or 25.6M, resnet50, gpt2, or a file "
        "whose lines are each a tensor's name and dimensions",
        text);
}

tw_status layout_create(const char *text, layout *t)
{
    size_t elements;
    FILE *file;
    if (strcmp(text, "resnet50") == 0) return create_resnet50(t);
    if (strcmp(text, "gpt2") == 0) return create_gpt2(t);
    if (read_count(text, &elements)) return create_plain(elements, t);
    if (!path_exists(text)) return refuse_parameters(text);
    TW_TRY(regular_file_stream(text, "r", &file));
    return read_file(text, file, t);
}
