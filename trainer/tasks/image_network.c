#include "image_network.h"

#include "code_point.h"
#include "error.h"
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char architecture_key[] = "network", input_key[] = "network input", mean_key[] = "network mean",
                  deviation_key[] = "network deviation", classes_key[] = IMAGE_NETWORK_CLASSES;

enum { SIDE_MOST = 2048, CLASSES_MOST = 65536 };

/* ---- writing ---- */

/* A line for each class. */
static tw_status write_classes(const image_network *n, tw_state *state)
{
    size_t room = 1, used = 0;
    for (size_t i = 0; i < n->classes; i++) room += n->class_names ? strlen(n->class_names[i]) + 1 : 24;
    char *text = malloc(room);
    if (!text) return tw_fail(TW_ERROR_MEMORY, "no memory for the names of %zu classes", n->classes);
    for (size_t i = 0; i < n->classes; i++)
        used += n->class_names ? (size_t)snprintf(text + used, room - used, "%s\n", n->class_names[i])
                               : (size_t)snprintf(text + used, room - used, "%zu\n", i);
    tw_status status = tw_state_put_text(state, classes_key, text);
    free(text);
    return status;
}

/* Nine digits are a float's. */
static tw_status write_values(tw_state *state, const char *key, const float *values, size_t count)
{
    char text[128];
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.9g", i ? " " : "", (double)values[i]);
    return tw_state_put_text(state, key, text);
}

tw_status image_network_write(const image_network *n, tw_state *state)
{
    char input[96];
    snprintf(input, sizeof input, "%zu %zu %zu", n->form.channels, n->form.height, n->form.width);
    TW_TRY(tw_state_put_text(state, architecture_key, n->architecture));
    TW_TRY(tw_state_put_text(state, input_key, input));
    TW_TRY(write_values(state, mean_key, n->form.mean, n->form.channels));
    TW_TRY(write_values(state, deviation_key, n->form.deviation, n->form.channels));
    return write_classes(n, state);
}

/* ---- reading ---- */

typedef struct image_predictor {
    task_predictor base;
    char *architecture;
    image_form form;
    char *classes; /* the names, each ends with a zero */
    char **class_names;
    size_t class_count;
    model *net;
    image_reader *reader;
    float *image;
    double *probabilities;
} image_predictor;

static tw_status find_text(const tw_state *state, const char *key, const char **text)
{
    *text = tw_state_text(state, key);
    if (*text) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT,
                   "it does not say its %s: an earlier version wrote it; a checkpoint of a run that goes on from it "
                   "(--resume) does",
                   key);
}

/* `count` numbers between `least` and `most`, and nothing else. */
static tw_status read_values(const tw_state *state, const char *key, double least, double most, size_t count,
                             double *values)
{
    const char *text;
    TW_TRY(find_text(state, key, &text));
    const char *at = text;
    for (size_t i = 0; i < count; i++) {
        char *end;
        values[i] = strtod(at, &end);
        if (end == at || !(values[i] >= least && values[i] <= most))
            return tw_fail(TW_ERROR_FORMAT, "its %s, \"%.64s\", cannot be", key, text);
        at = end;
    }
    return *at ? tw_fail(TW_ERROR_FORMAT, "its %s, \"%.64s\", cannot be", key, text) : TW_OK;
}

static tw_status read_form(const tw_state *state, image_form *form)
{
    double sizes[3], mean[3], deviation[3];
    TW_TRY(read_values(state, input_key, 1, SIDE_MOST, 3, sizes));
    if (sizes[0] != 1 && sizes[0] != 3)
        return tw_fail(TW_ERROR_FORMAT, "its %s has %g channels; pictures have 1 or 3", input_key, sizes[0]);
    *form = (image_form){.channels = (size_t)sizes[0], .height = (size_t)sizes[1], .width = (size_t)sizes[2]};
    TW_TRY(read_values(state, mean_key, -1e6, 1e6, form->channels, mean));
    TW_TRY(read_values(state, deviation_key, 1e-6, 1e6, form->channels, deviation));
    for (size_t c = 0; c < form->channels; c++) {
        form->mean[c] = (float)mean[c];
        form->deviation[c] = (float)deviation[c];
    }
    return TW_OK;
}

static size_t count_lines(const char *text)
{
    size_t count = 0;
    for (; *text; text++) count += *text == '\n';
    return count;
}

static tw_status read_classes(const tw_state *state, image_predictor *p)
{
    const char *text;
    TW_TRY(find_text(state, classes_key, &text));
    p->class_count = count_lines(text);
    if (p->class_count < 2 || p->class_count > CLASSES_MOST)
        return tw_fail(TW_ERROR_FORMAT, "its %s are %zu", classes_key, p->class_count);
    p->classes = strdup(text);
    p->class_names = calloc(p->class_count, sizeof *p->class_names);
    if (!p->classes || !p->class_names) return tw_fail(TW_ERROR_MEMORY, "no memory for the names of the classes");
    char *at = p->classes;
    for (size_t i = 0; i < p->class_count; i++) {
        p->class_names[i] = at;
        at = strchr(at, '\n');
        *at++ = '\0';
    }
    return TW_OK;
}

static void show_arrays(image_predictor *p)
{
    task_predictor *base = &p->base;
    base->tensors = model_tensors(p->net, &base->tensor_count);
    base->parameters = model_parameters(p->net);
    base->buffer_tensors = model_buffer_tensors(p->net, &base->buffer_tensor_count);
    base->buffers = model_buffers(p->net);
}

static tw_status image_network_fill_predictor(const tw_state *state, size_t elements, image_predictor *p)
{
    const char *architecture;
    const image_form *form = &p->form;
    TW_TRY(find_text(state, architecture_key, &architecture));
    TW_TRY(read_form(state, &p->form));
    TW_TRY(read_classes(state, p));
    const model_shape shape = {
        form->channels, form->height, form->width, p->class_count, 1, .most_parameters = elements ? elements : 1};
    TW_TRY(model_create(architecture, &shape, &p->net));
    TW_TRY(image_reader_create(form, &p->reader));
    p->architecture = strdup(architecture);
    if (!p->architecture) return tw_fail(TW_ERROR_MEMORY, "no memory for the name of a network");
    p->image = malloc(form->channels * form->height * form->width * sizeof *p->image);
    p->probabilities = malloc(p->class_count * sizeof *p->probabilities);
    if (!p->image || !p->probabilities) return tw_fail(TW_ERROR_MEMORY, "no memory for a picture");
    show_arrays(p);
    return TW_OK;
}

tw_status image_predictor_open(const tw_state *state, size_t elements, task_predictor **out)
{
    image_predictor *p = calloc(1, sizeof *p);
    if (!p) return tw_fail(TW_ERROR_MEMORY, "no memory for a network");
    tw_status status = image_network_fill_predictor(state, elements, p);
    if (status == TW_OK)
        *out = &p->base;
    else
        image_predictor_close(&p->base);
    return status;
}

void image_predictor_close(task_predictor *base)
{
    image_predictor *p = (image_predictor *)base;
    if (!p) return;
    model_destroy(p->net);
    image_reader_destroy(p->reader);
    free(p->architecture);
    free(p->classes);
    free(p->class_names);
    free(p->image);
    free(p->probabilities);
    free(p);
}

/* ---- using ---- */

/* Takes the likeliest of those that are left; what is no number is never likely. */
static size_t take_likeliest(double *probabilities, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (!(probabilities[best] >= probabilities[i])) best = i;
    return best;
}

tw_status image_classify(task_predictor *base, const char *path, image_class *classes, size_t most, size_t *count)
{
    image_predictor *p = (image_predictor *)base;
    TW_TRY(image_reader_read(p->reader, path, p->image));
    TW_TRY(model_predict(p->net, p->image, 1, p->probabilities));
    *count = most < p->class_count ? most : p->class_count;
    for (size_t i = 0; i < *count; i++) {
        size_t best = take_likeliest(p->probabilities, p->class_count);
        classes[i] = (image_class){p->class_names[best], p->probabilities[best]};
        p->probabilities[best] = -1;
    }
    return isfinite(classes[0].probability)
               ? TW_OK
               : tw_fail(TW_ERROR_FORMAT, "%s: the network's answer is no number: its weights are not finite", path);
}

static void put_classes(cJSON *json, const image_class *classes, size_t count)
{
    cJSON *all = cJSON_AddArrayToObject(json, "classes");
    for (size_t i = 0; i < count; i++) {
        cJSON *entry = cJSON_CreateObject();
        cJSON_AddStringToObject(entry, "class", classes[i].label);
        cJSON_AddNumberToObject(entry, "probability", classes[i].probability);
        cJSON_AddItemToArray(all, entry);
    }
}

tw_status image_predict(task_predictor *base, const void *use, const char *path, const task_answer *answer)
{
    static image_class classes[IMAGE_TOP_MOST];
    size_t count;
    TW_TRY(image_classify(base, path, classes, (size_t)((const image_use *)use)->top, &count));
    if (answer->json) {
        put_classes(answer->json, classes, count);
        return TW_OK;
    }
    char shown[512]; /* a made-up file may say anything to a terminal */
    fprintf(answer->text, "%s\t", answer->name);
    for (size_t i = 0; i < count; i++)
        fprintf(answer->text, "%s%s %.2f %%", i ? ", " : "",
                code_point_show(classes[i].label, strlen(classes[i].label), shown, sizeof shown),
                100 * classes[i].probability);
    fputc('\n', answer->text);
    return TW_OK;
}

/* ---- describing ---- */

static void put_values(cJSON *network, const char *name, const float *values, size_t count)
{
    cJSON *all = cJSON_AddArrayToObject(network, name);
    for (size_t i = 0; i < count; i++) cJSON_AddItemToArray(all, cJSON_CreateNumber((double)values[i]));
}

tw_status image_describe_network(const task_predictor *base, cJSON *network, tw_state *tensors)
{
    const image_predictor *p = (const image_predictor *)base;
    const float sizes[] = {(float)p->form.channels, (float)p->form.height, (float)p->form.width};
    (void)tensors;
    cJSON_AddStringToObject(network, "architecture", p->architecture);
    put_values(network, "input", sizes, 3);
    put_values(network, "mean", p->form.mean, p->form.channels);
    put_values(network, "deviation", p->form.deviation, p->form.channels);
    cJSON *classes = cJSON_AddArrayToObject(network, "classes");
    for (size_t i = 0; i < p->class_count; i++) cJSON_AddItemToArray(classes, cJSON_CreateString(p->class_names[i]));
    return TW_OK;
}
