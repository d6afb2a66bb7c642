/* asr_frames.c - a class for every frame, from an alignment: the acoustic models of hybrid recognisers, in windows. */
#include "asr.h"
#include "error.h"
#include "frame_data.h"
#include "shuffle.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct frame_sets {
    frame_set train;
    frame_set held[TASK_SPLITS]; /* without windows where the task has no validation set */
} frame_sets;

enum { CORRECT };

static double asr_frames_accuracy(const task_score *score)
{
    return score->parts[CORRECT] / score->count;
}

static const task_metric metrics[] = {{"frame_accuracy", asr_frames_accuracy, true}, {0}};

static void asr_frames_take_result(task_score *score, const acoustic_model_result *result)
{
    score->loss += result->loss;
    score->count += (double)result->frames;
    score->parts[CORRECT] += (double)result->correct;
}

/* ---- data ---- */

static void describe_sets(asr_data *d, const frame_sets *s, asr_parts *parts)
{
    task *t = &d->base;
    uint32_t sum = 0;
    for (size_t i = 0; i < s->train.speech.count; i++) {
        const speech_item *item = &s->train.speech.items[i];
        sum = tw_crc32c(sum, item->targets, item->target_count * sizeof(uint32_t));
    }
    const frame_set *valid = &s->held[TASK_VALIDATION], *test = &s->held[TASK_TEST];
    *parts = (asr_parts){.counts = {s->train.count, valid->count, test->count},
                         .sets = {&s->train.speech, &valid->speech, &test->speech}};
    snprintf(parts->what, sizeof parts->what, "windows of %zu frames of %zu classes", s->train.length,
             s->train.classes);
    snprintf(t->identity, sizeof t->identity, "of %zu windows (classes %08x)", s->train.count, sum);
}

static tw_status asr_frames_load(asr_data *d, asr_parts *parts)
{
    const asr_settings *settings = asr_settings_of(&d->base);
    const char *test = settings->test_alignment ? settings->test_alignment : settings->alignment;
    size_t length = (size_t)settings->window;
    if (!settings->alignment)
        return tw_fail(TW_ERROR_ARGUMENT, "--alignment is missing: --model frames learns the class of every frame");
    frame_sets *s = d->sets = calloc(1, sizeof *s);
    if (!s) return tw_fail(TW_ERROR_MEMORY, "no memory for a corpus");
    TW_TRY(frame_load(&d->corpus.train, settings->alignment, &d->request, length, 0, &s->train));
    size_t classes = s->train.classes;
    if (d->base.has_validation)
        TW_TRY(
            frame_load(&d->corpus.valid, settings->alignment, &d->request, length, classes, &s->held[TASK_VALIDATION]));
    TW_TRY(frame_load(&d->corpus.test, test, &d->request, length, classes, &s->held[TASK_TEST]));
    d->labels = s->train.classes;
    describe_sets(d, s, parts);
    return TW_OK;
}

static void asr_frames_release(asr_data *d)
{
    frame_sets *s = d->sets;
    frame_release(&s->train);
    for (int i = 0; i < TASK_SPLITS; i++) frame_release(&s->held[i]);
    free(s);
}

/* ---- a worker ---- */

typedef struct frame_worker {
    float *features;  /* (window, batch, width) */
    int32_t *targets; /* (window, batch) */
    uint32_t *own;    /* indices of a batch */
} frame_worker;

static const frame_sets *sets_of(const asr_learner *l)
{
    return asr_data_of(l)->sets;
}

static size_t asr_frames_count(const asr_data *d)
{
    return ((const frame_sets *)d->sets)->train.count;
}

static tw_status asr_frames_prepare(asr_learner *l)
{
    const frame_set *train = &sets_of(l)->train;
    size_t batch = l->base.place.batch, frames = train->length * batch;
    l->base.steps_per_epoch = train->count / (batch * (size_t)l->base.place.size);
    frame_worker *w = l->own = calloc(1, sizeof *w);
    if (!w) return tw_fail(TW_ERROR_MEMORY, "no memory for a worker");
    l->order = malloc(train->count * sizeof *l->order);
    w->features = malloc(frames * train->speech.width * sizeof *w->features);
    w->targets = malloc(frames * sizeof *w->targets);
    w->own = malloc(batch * sizeof *w->own);
    if (!l->order || !w->features || !w->targets || !w->own)
        return tw_fail(TW_ERROR_MEMORY, "no memory for batches of %zu windows", batch);
    return TW_OK;
}

static void asr_frames_clear(asr_learner *l)
{
    frame_worker *w = l->own;
    free(w->features);
    free(w->targets);
    free(w->own);
    free(w);
}

static acoustic_model_batch take_windows(const frame_worker *w, const frame_set *set, const uint32_t *order,
                                         size_t count)
{
    frame_fill(set, order, count, w->features, w->targets);
    return (acoustic_model_batch){.steps = set->length, .batch = count, .frames = w->features};
}

static tw_status asr_frames_step(asr_learner *l, uint64_t number, learner_gradient_ready ready, void *context,
                                 task_score *score)
{
    const frame_worker *w = l->own;
    const frame_set *train = &sets_of(l)->train;
    const learner_place *p = &l->base.place;
    uint64_t epoch = number / l->base.steps_per_epoch;
    if (epoch != l->order_epoch) data_shuffle(l->order, train->count, p->seed, epoch);
    l->order_epoch = epoch;
    const uint32_t *own = l->order + task_slice(&l->base, number);
    acoustic_model_batch batch = take_windows(w, train, own, p->batch);
    acoustic_model_result result = {0};
    nn_noise noise = noise_of(&l->base.place, number);
    TW_TRY(acoustic_model_step_frames(l->net, &batch, w->targets, &noise, ready, context, &result));
    asr_frames_take_result(score, &result);
    return TW_OK;
}

static tw_status asr_frames_evaluate(asr_learner *l, task_split split, size_t part, size_t parts, task_score *score)
{
    const frame_worker *w = l->own;
    const frame_set *held = &sets_of(l)->held[split];
    size_t last = held->count * (part + 1) / parts;
    for (size_t at = held->count * part / parts, count; at < last && !learner_stops(&l->base); at += count) {
        acoustic_model_result result = {0};
        count = last - at < l->base.place.batch ? last - at : l->base.place.batch;
        for (size_t i = 0; i < count; i++) w->own[i] = (uint32_t)(at + i);
        acoustic_model_batch batch = take_windows(w, held, w->own, count);
        TW_TRY(acoustic_model_evaluate_frames(l->net, &batch, w->targets, &result));
        asr_frames_take_result(score, &result);
    }
    return TW_OK;
}

const asr_kind asr_frames = {
    .name = "frames",
    .items = "frames",
    .batch_of = "windows",
    .metrics = metrics,
    .load = asr_frames_load,
    .release = asr_frames_release,
    .count = asr_frames_count,
    .prepare = asr_frames_prepare,
    .clear = asr_frames_clear,
    .step = asr_frames_step,
    .evaluate = asr_frames_evaluate,
};
