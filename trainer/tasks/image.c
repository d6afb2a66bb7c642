/* image.c - classifying images. */
#include "dataset.h"
#include "error.h"
#include "image_loader.h"
#include "image_network.h"
#include "model.h"
#include "shuffle.h"
#include "task.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct image_settings {
    char *data; /* folder; NULL looks where Debian's package puts Fashion-MNIST */
    char *model;
    long crop, limit_train, image_size, decoders;
    double validation;
    bool flip, resized_crop;
} image_settings;

#define AT(field) offsetof(image_settings, field)

static const option_row rows[] = {
    {.help = "What to train"},
    {"data", "DIR", OPTION_TEXT, AT(data), .help = dataset_help, .path = true},
    {"validation", "SHARE", OPTION_REAL, AT(validation), "0", 0, 0.9,
     .help = "Hold this share of each class's training images out, to look at after each epoch and to choose models by",
     .stands_for = "look at a folder val, or else at the test images"},
    {"image-size", "N", OPTION_INTEGER, AT(image_size), "0", 0, 1024, .help = "Bring pictures to N x N pixels",
     .stands_for = "64"},
    {"resized-crop", NULL, OPTION_FLAG, AT(resized_crop),
     .help = "Train on random parts of the pictures, of 8 to 100 % of each"},
    {"decoders", "N", OPTION_INTEGER, AT(decoders), "2", 1, 64,
     .help = "Threads that read pictures while the network computes", .may_differ = true},
    {"model", "NAME", OPTION_TEXT, AT(model), "cnn", .help = model_help, .binding = true, .word = model_name,
     .word_meaning = model_summary},
    {"crop", "N", OPTION_INTEGER, AT(crop), "0", 0, 64,
     .help = "Pad training images by N pixels on each side, and crop them at random", .stands_for = "none",
     .binding = true},
    {"flip", NULL, OPTION_FLAG, AT(flip), .help = "Mirror training images at random", .binding = true},
    {"limit-train", "N", OPTION_INTEGER, AT(limit_train), "0", 0, INFINITY,
     .help = "Use the first N training images only", .stands_for = "all"},
};

static const option_row use_rows[] = {
    {"top", "N", OPTION_INTEGER, offsetof(image_use, top), "5", 1, IMAGE_TOP_MOST,
     .help = "Print the N likeliest classes of each file"},
};

static const char *image_fallback(const void *settings, const char *option)
{
    const image_settings *s = settings;
    return s && strcmp(option, "schedule") == 0 ? model_schedule(s->model) : NULL;
}

/* ---- metrics ---- */

enum { CORRECT };

static double image_accuracy(const task_score *score)
{
    return score->parts[CORRECT] / score->count;
}

static const task_metric metrics[] = {{"accuracy", image_accuracy, true}, {0}};

static void image_take_result(task_score *score, const model_result *result)
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

/* Of labels below 256 as if they were bytes, which they were when the first checkpoints were written. */
static uint32_t sum_labels(const image_set *set)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < set->count; i++) {
        uint8_t bytes[2] = {(uint8_t)set->labels[i], (uint8_t)(set->labels[i] >> 8)};
        sum = tw_crc32c(sum, bytes, set->classes > 256 ? 2 : 1);
    }
    return sum;
}

/* Of pictures in files, the files of a sample. */
static uint32_t sum_images(const dataset *data, const image_set *set)
{
    if (set->files) return dataset_sum_files(data, set);
    return tw_crc32c(0, set->pixels, set->count * set->channels * set->height * set->width);
}

static void sum_content(image_task_data *t)
{
    const image_set *held_out = &t->data.valid;
    snprintf(t->base.content, sizeof t->base.content, "%s %08x", t->train.files ? "files" : "pixels",
             sum_images(&t->data, &t->train));
    if (held_out->count > 0) t->base.held_out = sum_images(&t->data, held_out) ^ sum_labels(held_out);
}

/* What decides the bits of a run and is no option that older checkpoints know stands here. */
static void image_identify(const image_settings *s, image_task_data *t)
{
    const image_set *set = &t->train;
    char *text = t->base.identity;
    size_t room = sizeof t->base.identity;
    if (set->files)
        snprintf(text, room, "of %zu pictures at %zu x %zu%s (labels %08x, names %08x)", set->count, set->width,
                 set->height, s->resized_crop ? " of random parts" : "", sum_labels(set), dataset_sum_names(set));
    else
        snprintf(text, room, "of %zu images (labels %08x)", set->count, sum_labels(set));
}

static void describe_data(image_task_data *t)
{
    snprintf(t->base.path, sizeof t->base.path, "%s", t->data.path);
    snprintf(t->base.note, sizeof t->base.note, "%s", t->data.note);
    char counts[TASK_COUNTS_TEXT];
    const size_t held[TASK_SPLITS] = {t->data.valid.count, t->data.test.count};
    task_counts_text(t->train.count, held, counts);
    if (t->train.files)
        snprintf(t->base.description, sizeof t->base.description, "%s pictures of %zu classes", counts,
                 t->train.classes);
    else
        snprintf(t->base.description, sizeof t->base.description, "%s images", counts);
}

static tw_status open_data(const image_settings *s, dataset *data)
{
    dataset_options wanted = {(size_t)s->image_size, s->validation, (size_t)s->decoders};
    TW_TRY(dataset_open(s->data, &wanted, data));
    if (data->train.files || !s->resized_crop) return TW_OK;
    dataset_release(data);
    return tw_fail(TW_ERROR_ARGUMENT, "--resized-crop is for folders of pictures; the data are %s files", data->format);
}

static tw_status image_load(const void *settings, task **out)
{
    const image_settings *s = settings;
    image_task_data *t = calloc(1, sizeof *t);
    if (!t) return tw_fail(TW_ERROR_MEMORY, "no memory for a data set");
    tw_status status = open_data(s, &t->data);
    if (status != TW_OK) {
        free(t);
        return status;
    }
    t->base =
        (task){.ops = &image_task, .settings = settings, .metrics = metrics, .items = "images", .batch_of = "images"};
    t->train = t->data.train;
    t->base.has_validation = t->data.valid.count > 0;
    t->base.has_test = t->data.test.count > 0;
    if (s->limit_train > 0 && (size_t)s->limit_train < t->train.count) t->train.count = (size_t)s->limit_train;
    describe_data(t);
    image_identify(s, t);
    sum_content(t);
    *out = &t->base;
    return TW_OK;
}

static void image_release(task *t)
{
    if (!t) return;
    dataset_release(&((image_task_data *)t)->data);
    free(t);
}

static tw_status image_fits(const task *t, const learner_place *place)
{
    return task_check_batch(t, place, ((const image_task_data *)t)->train.count);
}

/* ---- a worker ---- */

/* Batches that are made ready beside the one that is computed on. */
enum { AHEAD = 2, BATCHES = AHEAD + 1 };
static const uint64_t no_step = UINT64_MAX;

typedef struct image_learner {
    learner base;
    model *net;
    uint32_t *order; /* of epoch `order_epoch` */
    uint64_t order_epoch;
    image_batch *batches[BATCHES]; /* step s takes number s modulo BATCHES */
    uint64_t steps[BATCHES];       /* that they were started for */
    uint32_t *indices;
} image_learner;

static const image_task_data *image_data_of(const image_learner *l)
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
    base->units = model_units(l->net, &base->unit_count);
}

static void forget_batches(image_learner *l)
{
    for (size_t i = 0; i < BATCHES; i++) l->steps[i] = no_step;
}

static tw_status create_batches(image_learner *l, const image_set *set)
{
    size_t batch = l->base.place.batch;
    l->order = malloc(set->count * sizeof *l->order);
    l->indices = malloc(batch * sizeof *l->indices);
    if (!l->order || !l->indices) return tw_fail(TW_ERROR_MEMORY, "no memory for the order of %zu images", set->count);
    l->order_epoch = UINT64_MAX;
    forget_batches(l);
    for (size_t i = 0; i < BATCHES; i++)
        TW_TRY(image_batch_create(&image_data_of(l)->data, set, batch, &l->batches[i]));
    return TW_OK;
}

static tw_status create_model(image_learner *l)
{
    const image_set *set = &image_data_of(l)->train;
    const learner_place *place = &l->base.place;
    const model_shape shape = {.channels = set->channels,
                               .height = set->height,
                               .width = set->width,
                               .classes = set->classes,
                               .batch = place->batch,
                               .precision = place->precision,
                               .stage = place->stage};
    TW_TRY(model_create(settings_of(l)->model, &shape, &l->net));
    if (l->base.place.pager) TW_TRY(model_page(l->net, l->base.place.pager));
    TW_TRY(model_initialise(l->net, l->base.place.seed));
    show_arrays(l);
    return create_batches(l, set);
}

static tw_status image_open(learner *base)
{
    image_learner *l = (image_learner *)base;
    size_t count = image_data_of(l)->train.count;
    base->steps_per_epoch = count / (base->place.batch * (size_t)base->place.size);
    return create_model(l);
}

static void image_close(learner *base)
{
    image_learner *l = (image_learner *)base;
    for (size_t i = 0; i < BATCHES; i++) image_batch_destroy(l->batches[i]);
    model_destroy(l->net);
    free(l->order);
    free(l->indices);
}

/* What does not fill a global batch at the epoch's end is left out. */
static void start_step(image_learner *l, uint64_t step)
{
    const image_settings *s = settings_of(l);
    const image_task_data *t = image_data_of(l);
    const learner_place *p = &l->base.place;
    uint64_t epoch = step / l->base.steps_per_epoch;
    if (epoch != l->order_epoch) {
        data_shuffle(l->order, t->train.count, p->seed, epoch);
        l->order_epoch = epoch;
    }
    augmentation augment = {(int)s->crop, s->flip, s->resized_crop};
    const uint32_t *slice = l->order + task_slice(&l->base, step);
    image_order wanted = {&t->data, &t->train, slice, p->batch, &augment, p->seed, epoch, .whole = true};
    image_batch_start(l->batches[step % BATCHES], &wanted);
    l->steps[step % BATCHES] = step;
}

/* Where images are in memory there is nobody to make batches ready. */
static size_t ahead(const image_learner *l)
{
    return image_data_of(l)->train.files ? AHEAD : 0;
}

static tw_status load_step(image_learner *l, uint64_t step, image_batch **batch)
{
    for (uint64_t s = step; s <= step + ahead(l); s++)
        if (l->steps[s % BATCHES] != s) start_step(l, s);
    *batch = l->batches[step % BATCHES];
    l->steps[step % BATCHES] = no_step; /* what was read is used up: the same step again is read again */
    double begin = tw_clock();
    tw_status status = image_batch_wait(*batch);
    l->base.seconds_waited += tw_clock() - begin;
    return status;
}

static tw_status image_step(learner *base, uint64_t number, learner_gradient_ready ready, void *context,
                            task_score *score)
{
    image_learner *l = (image_learner *)base;
    model_result result = {0};
    image_batch *b;
    TW_TRY(load_step(l, number, &b));
    TW_TRY(model_step(l->net, image_batch_images(b), image_batch_labels(b), image_batch_count(b), ready, context,
                      &result));
    *score = (task_score){0};
    image_take_result(score, &result);
    return TW_OK;
}

/* A part of a split that was held out, in batches. */
typedef struct held_part {
    const image_set *set;
    size_t first, last, batch;
} held_part;

static void start_held(image_learner *l, const held_part *part, size_t number)
{
    const image_task_data *t = image_data_of(l);
    size_t at = part->first + number * part->batch;
    if (at >= part->last) return;
    size_t count = part->last - at < part->batch ? part->last - at : part->batch;
    for (size_t i = 0; i < count; i++) l->indices[i] = (uint32_t)(at + i);
    image_order wanted = {.data = &t->data, .set = part->set, .images = l->indices, .count = count};
    image_batch_start(l->batches[number % BATCHES], &wanted);
}

static tw_status image_evaluate_batch(image_learner *l, const image_batch *b, task_score *score)
{
    model_result result = {0};
    if (image_batch_count(b) == 0) return TW_OK; /* none of its pictures can be read */
    TW_TRY(model_evaluate(l->net, image_batch_images(b), image_batch_labels(b), image_batch_count(b), &result));
    image_take_result(score, &result);
    return TW_OK;
}

static tw_status image_evaluate(learner *base, task_split split, size_t part, size_t parts, task_score *score)
{
    image_learner *l = (image_learner *)base;
    const dataset *data = &image_data_of(l)->data;
    const image_set *set = split == TASK_VALIDATION ? &data->valid : &data->test;
    size_t batch = base->place.batch;
    held_part p = {set, set->count * part / parts, set->count * (part + 1) / parts, batch};
    forget_batches(l);
    for (size_t i = 0; i < ahead(l); i++) start_held(l, &p, i);
    for (size_t i = 0; p.first + i * batch < p.last && !learner_stops(base); i++) {
        start_held(l, &p, i + ahead(l));
        TW_TRY(image_batch_wait(l->batches[i % BATCHES]));
        TW_TRY(image_evaluate_batch(l, l->batches[i % BATCHES], score));
    }
    return TW_OK;
}

static tw_status image_describe(const learner *base, tw_state *state)
{
    const image_task_data *t = image_data_of((const image_learner *)base);
    image_network n = {.architecture = base->model, .classes = t->train.classes, .class_names = t->data.class_names};
    n.form = (image_form){.channels = t->train.channels, .height = t->train.height, .width = t->train.width};
    memcpy(n.form.mean, t->data.mean, sizeof n.form.mean);
    memcpy(n.form.deviation, t->data.deviation, sizeof n.form.deviation);
    return image_network_write(&n, state);
}

const task_ops image_task = {
    .name = "image",
    .summary = "classify images: folders of pictures, IDX (MNIST) or CIFAR files",
    .examples = "  thinwire train image --data photos --validation 0.1 --image-size 64 --flip --out runs/photos\n"
                "  thinwire train image --workers 4 --sync dgc --out runs/dgc\n"
                "  thinwire train image --resume runs/dgc --workers 4 --sync dgc --epochs 10\n"
                "  mpirun -n 8 thinwire train image --model resnet20 --data cifar-10-batches-bin --crop 4 --flip \\\n"
                "      --lr 0.1 --weight-decay 1e-4 --epochs 164 --sync dgc --out runs/resnet20\n",
    .rows = rows,
    .row_count = sizeof rows / sizeof *rows,
    .fallback = image_fallback,
    .load = image_load,
    .release = image_release,
    .fits = image_fits,
    .learner_bytes = sizeof(image_learner),
    .open = image_open,
    .close = image_close,
    .step = image_step,
    .evaluate = image_evaluate,
    .describe = image_describe,
    .labels = IMAGE_NETWORK_CLASSES,
    .predictor_open = image_predictor_open,
    .predictor_close = image_predictor_close,
    .predict = image_predict,
    .describe_network = image_describe_network,
    .use_rows = use_rows,
    .use_row_count = sizeof use_rows / sizeof *use_rows,
    .use_summary =
        "Of a classifier of images, FILE is a JPEG or a PNG of any size, and the answer its likeliest classes "
        "with their probabilities.",
    .use_examples = "  thinwire predict runs/photos holiday/*.jpg\n"
                    "  thinwire predict runs/photos cat.png --top 1 --json\n",
};
