/* image.c - classifying images. */
#include "dataset.h"
#include "error.h"
#include "model.h"
#include "task.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct image_settings {
    char *data; /* folder; NULL looks where Debian's package puts Fashion-MNIST */
    char *model;
    long crop, limit_train;
    bool flip;
} image_settings;

#define AT(field) offsetof(image_settings, field)

static const option_row rows[] = {
    {.help = "What to train"},
    {"data", "DIR", OPTION_TEXT, AT(data),
     .help = "folder of an IDX (MNIST) or CIFAR data set; without it, Debian's dataset-fashion-mnist"},
    {"model", "NAME", OPTION_TEXT, AT(model), "cnn", .help = "cnn, resnet20, resnet32, resnet56 or resnet110",
     .binding = true},
    {"crop", "N", OPTION_INTEGER, AT(crop), "0", 0, 64, .help = "random crops out of N pixels of padding",
     .binding = true},
    {"flip", NULL, OPTION_FLAG, AT(flip), .help = "mirror training images at random", .binding = true},
    {"limit-train", "N", OPTION_INTEGER, AT(limit_train), "0", 0, INFINITY,
     .help = "use the first N training images only; 0: all"},
};

static const char *fallback(const void *settings, const char *option)
{
    const image_settings *s = settings;
    return s && strcmp(option, "schedule") == 0 ? model_schedule(s->model) : NULL;
}

/* ---- metrics ---- */

enum { CORRECT };

static double accuracy(const task_score *score)
{
    return score->parts[CORRECT] / score->count;
}

static const task_metric metrics[] = {{"accuracy", accuracy, true}, {0}};

static void take_result(task_score *score, const model_result *result)
{
    score->loss += result->loss;
    score->count += (double)result->images;
    score->parts[CORRECT] += (double)result->correct;
}

/* ---- data ---- */

typedef struct image_task_data {
    task base;
    dataset data;
    image_set train; /* data.train, cut to --limit-train; the pixels are the data set's */
} image_task_data;

static tw_status load(const void *settings, task **out)
{
    const image_settings *s = settings;
    image_task_data *t = calloc(1, sizeof *t);
    if (!t) return tw_fail(TW_ERROR_MEMORY, "no memory for a data set");
    tw_status status = dataset_load(s->data, &t->data);
    if (status != TW_OK) {
        free(t);
        return status;
    }
    task *base = &t->base;
    t->train = t->data.train;
    if (s->limit_train > 0 && (size_t)s->limit_train < t->train.count) t->train.count = (size_t)s->limit_train;
    *base =
        (task){.ops = &image_task, .settings = settings, .metrics = metrics, .items = "images", .batch_of = "images"};
    snprintf(base->path, sizeof base->path, "%s", t->data.path);
    snprintf(base->description, sizeof base->description, "%zu training and %zu test images", t->train.count,
             t->data.test.count);
    snprintf(base->identity, sizeof base->identity, "of %zu images (labels %08x)", t->train.count,
             tw_crc32c(0, t->train.labels, t->train.count));
    *out = base;
    return TW_OK;
}

static void release(task *t)
{
    if (!t) return;
    dataset_release(&((image_task_data *)t)->data);
    free(t);
}

static tw_status fits(const task *t, const learner_place *place)
{
    return task_check_batch(t, place, ((const image_task_data *)t)->train.count);
}

/* ---- a worker ---- */

typedef struct image_learner {
    learner base;
    model *net;
    uint32_t *order; /* of epoch `order_epoch` */
    uint64_t order_epoch;
    float *images; /* one batch */
    uint8_t *labels;
    uint32_t *indices;
} image_learner;

static const image_task_data *data_of(const image_learner *l)
{
    return (const image_task_data *)l->base.task;
}

static const image_settings *settings_of(const image_learner *l)
{
    return l->base.task->settings;
}

static void show_arrays(image_learner *l)
{
    learner *base = &l->base;
    base->model = settings_of(l)->model;
    base->tensors = model_tensors(l->net, &base->tensor_count);
    base->parameters = model_parameters(l->net);
    base->gradients = model_gradients(l->net);
    base->parameter_count = model_parameter_count(l->net);
    base->buffer_tensors = model_buffer_tensors(l->net, &base->buffer_tensor_count);
    base->buffers = model_buffers(l->net);
    base->buffer_count = model_buffer_count(l->net);
}

static tw_status create_model(image_learner *l)
{
    const image_set *set = &data_of(l)->train;
    model_shape shape = {set->channels, set->height,         set->width,
                         set->classes,  l->base.place.batch, l->base.place.precision};
    TW_TRY(model_create(settings_of(l)->model, &shape, &l->net));
    model_initialise(l->net, l->base.place.seed);
    show_arrays(l);
    size_t pixels = shape.batch * shape.channels * shape.height * shape.width;
    l->order = malloc(set->count * sizeof *l->order);
    l->images = malloc(pixels * sizeof *l->images);
    l->labels = malloc(shape.batch);
    l->indices = malloc(shape.batch * sizeof *l->indices);
    if (!l->order || !l->images || !l->labels || !l->indices)
        return tw_fail(TW_ERROR_MEMORY, "no memory for batches of %zu images", shape.batch);
    l->order_epoch = UINT64_MAX;
    return TW_OK;
}

static tw_status open(learner *base)
{
    image_learner *l = (image_learner *)base;
    size_t count = data_of(l)->train.count;
    base->steps_per_epoch = count / (base->place.batch * (size_t)base->place.size);
    return create_model(l);
}

static void close(learner *base)
{
    image_learner *l = (image_learner *)base;
    model_destroy(l->net);
    free(l->order);
    free(l->images);
    free(l->labels);
    free(l->indices);
}

/* What does not fill a global batch at the epoch's end is left out. */
static void load_batch(image_learner *l, uint64_t step)
{
    const image_settings *s = settings_of(l);
    const image_task_data *t = data_of(l);
    const learner_place *p = &l->base.place;
    uint64_t epoch = step / l->base.steps_per_epoch;
    if (epoch != l->order_epoch) {
        dataset_shuffle(l->order, t->train.count, p->seed, epoch);
        l->order_epoch = epoch;
    }
    augmentation augment = {(int)s->crop, s->flip};
    const uint32_t *slice = l->order + task_slice(&l->base, step);
    dataset_batch(&t->data, &t->train, slice, p->batch, &augment, p->seed, epoch, l->images, l->labels);
}

static tw_status step(learner *base, uint64_t number, learner_gradient_ready ready, void *context, task_score *score)
{
    image_learner *l = (image_learner *)base;
    model_result result = {0};
    load_batch(l, number);
    TW_TRY(model_step(l->net, l->images, l->labels, l->base.place.batch, ready, context, &result));
    *score = (task_score){0};
    take_result(score, &result);
    return TW_OK;
}

static tw_status evaluate(learner *base, task_split split, size_t part, size_t parts, task_score *score)
{
    (void)split; /* there is no validation set */
    image_learner *l = (image_learner *)base;
    const image_task_data *t = data_of(l);
    const image_set *test = &t->data.test;
    size_t first = test->count * part / parts, last = test->count * (part + 1) / parts, batch = l->base.place.batch;
    for (size_t at = first; at < last; at += batch) {
        size_t count = last - at < batch ? last - at : batch;
        model_result result = {0};
        for (size_t i = 0; i < count; i++) l->indices[i] = (uint32_t)(at + i);
        dataset_batch(&t->data, test, l->indices, count, NULL, 0, 0, l->images, l->labels);
        TW_TRY(model_evaluate(l->net, l->images, l->labels, count, &result));
        take_result(score, &result);
    }
    return TW_OK;
}

const task_ops image_task = {
    .name = "image",
    .summary = "classify images: IDX (MNIST) or CIFAR files",
    .examples = "  thinwire train image --workers 4 --sync dgc:density=0.001 --out runs/dgc\n"
                "  thinwire train image --resume runs/dgc --workers 4 --sync dgc:density=0.001 --epochs 10\n"
                "  mpirun -n 8 thinwire train image --model resnet20 --data cifar-10-batches-bin --crop 4 --flip \\\n"
                "      --lr 0.1 --weight-decay 1e-4 --epochs 164 --sync dgc --out runs/resnet20\n",
    .rows = rows,
    .row_count = sizeof rows / sizeof *rows,
    .settings_bytes = sizeof(image_settings),
    .fallback = fallback,
    .load = load,
    .release = release,
    .fits = fits,
    .learner_bytes = sizeof(image_learner),
    .open = open,
    .close = close,
    .step = step,
    .evaluate = evaluate,
};
