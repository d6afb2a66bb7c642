/* A worker of a pre-training: its crops, its steps, what it sees of the speakers that are held out. */
#include "error.h"
#include "pretraining.h"
#include "recurrent_learner.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVALUATION_STEP ((UINT64_C(1) << 36) - 1) /* no run takes it: its masks are its own, always the same */
enum { PLACES = 1 << 20 };

static const pretraining_data *pretraining_learner_data_of(const pretraining_learner *l)
{
    return (const pretraining_data *)l->base.task;
}

static size_t codes_of(const pretraining_learner *l)
{
    return pretraining_learner_data_of(l)->config.groups * pretraining_learner_data_of(l)->config.codes;
}

/* ---- metrics ---- */

/* Sums of every worker, then what is of all of them together, which the first part of an evaluation alone tells. */
enum {
    HIDDEN,
    COMPARED,
    CONTRASTIVE,
    CONTRASTIVE_CHANCE,
    CORRECT,
    CORRECT_CHANCE,
    DISTRACTORS,
    SAME,
    MASKED,
    MASKED_CORRECT,
    SAMPLED_BEST,
    LONELY,
    GROUPS, /* from here on the first part's */
    MASKED_CHANCE,
    SOFT_PERPLEXITY,
    HARD_PERPLEXITY,
    LEAST_PERPLEXITY,
    INFORMATION,
    DIVERSITY,
    PARTS
};
_Static_assert((int)PARTS <= (int)TASK_PARTS, "a score has a part for each");

static double mean(const task_score *score, int part, int of)
{
    return score->parts[of] > 0 ? score->parts[part] / score->parts[of] : 0;
}

static double contrastive_loss(const task_score *score)
{
    return mean(score, CONTRASTIVE, COMPARED);
}

static double contrastive_chance(const task_score *score)
{
    return mean(score, CONTRASTIVE_CHANCE, COMPARED);
}

static double contrastive_gain(const task_score *score)
{
    return contrastive_chance(score) - contrastive_loss(score);
}

static double pretraining_learner_accuracy(const task_score *score)
{
    return mean(score, CORRECT, COMPARED);
}

static double accuracy_chance(const task_score *score)
{
    return mean(score, CORRECT_CHANCE, COMPARED);
}

static double masked_loss(const task_score *score)
{
    return mean(score, MASKED, HIDDEN);
}

/* 0 where nothing is predicted: a loss of exactly 0 does not happen otherwise. */
static double masked_gain(const task_score *score)
{
    return score->parts[MASKED] > 0 ? score->parts[MASKED_CHANCE] - masked_loss(score) : 0;
}

static double masked_accuracy(const task_score *score)
{
    double predicted = score->parts[HIDDEN] * score->parts[GROUPS];
    return predicted > 0 ? score->parts[MASKED_CORRECT] / predicted : 0;
}

static double gain(const task_score *score)
{
    return contrastive_gain(score) + masked_gain(score);
}

static double masked_negatives(const task_score *score)
{
    return mean(score, SAME, DISTRACTORS);
}

const task_metric pretraining_metrics[] = {{"gain", gain, false},
                                           {"contrastive_gain", contrastive_gain, false},
                                           {"contrastive_loss", contrastive_loss, false},
                                           {"contrastive_chance", contrastive_chance, false},
                                           {"accuracy", pretraining_learner_accuracy, true},
                                           {"accuracy_chance", accuracy_chance, true},
                                           {"masked_gain", masked_gain, false},
                                           {"masked_loss", masked_loss, false},
                                           {"masked_chance", .part = MASKED_CHANCE},
                                           {"masked_accuracy", masked_accuracy, true},
                                           {"soft_perplexity", .part = SOFT_PERPLEXITY},
                                           {"hard_perplexity", .part = HARD_PERPLEXITY},
                                           {"least_perplexity", .part = LEAST_PERPLEXITY},
                                           {"information", .part = INFORMATION},
                                           {"diversity", .part = DIVERSITY},
                                           {"masked_negatives", masked_negatives, true},
                                           {"lonely_crops", .part = LONELY},
                                           {0}};

void pretraining_tell(const task_score *score, char *text, size_t room)
{
    size_t used = 0;
    if (score->parts[COMPARED] > 0)
        used += (size_t)snprintf(text, room, "contrastive %.3f (chance %.3f)  accuracy %.3f (chance %.3f)  ",
                                 contrastive_loss(score), contrastive_chance(score),
                                 pretraining_learner_accuracy(score), accuracy_chance(score));
    if (score->parts[MASKED] > 0 && used < room)
        used += (size_t)snprintf(text + used, room - used, "masked %.3f (chance %.3f)  ", masked_loss(score),
                                 score->parts[MASKED_CHANCE]);
    if (used < room)
        snprintf(text + used, room - used, "perplexity soft %.1f hard %.1f  information %.2f  masked negatives %.1f %%",
                 score->parts[SOFT_PERPLEXITY], score->parts[HARD_PERPLEXITY], score->parts[INFORMATION],
                 100 * masked_negatives(score));
}

static void add_sums(const w2v_bert_sums *s, task_score *score)
{
    double *p = score->parts;
    p[HIDDEN] += s->hidden;
    p[COMPARED] += s->compared;
    p[CONTRASTIVE] += s->contrastive;
    p[CONTRASTIVE_CHANCE] += s->contrastive_chance;
    p[CORRECT] += s->contrastive_correct;
    p[CORRECT_CHANCE] += s->correct_chance;
    p[DISTRACTORS] += s->distractors;
    p[SAME] += s->same;
    p[MASKED] += s->masked;
    p[MASKED_CORRECT] += s->masked_correct;
    p[SAMPLED_BEST] += s->sampled_best;
    p[LONELY] += s->lonely_crops;
}

/* What is no sum: of a part of an evaluation that stands for all, or of a step. */
static void put_measures(size_t groups, const w2v_bert_metrics *m, task_score *score)
{
    score->parts[GROUPS] = (double)groups;
    score->parts[MASKED_CHANCE] = m->masked_chance;
    score->parts[SOFT_PERPLEXITY] = m->soft_perplexity;
    score->parts[HARD_PERPLEXITY] = m->hard_perplexity;
    score->parts[LEAST_PERPLEXITY] = m->least_perplexity;
    score->parts[INFORMATION] = m->information;
    score->parts[DIVERSITY] = m->diversity;
}

/* ---- a worker ---- */

static tw_status pretraining_learner_make_room(pretraining_learner *l)
{
    const pretraining_data *d = pretraining_learner_data_of(l);
    size_t batch = l->base.place.batch, frames = d->train_crops.frames;
    l->frames = malloc(batch * frames * d->train.width * sizeof *l->frames);
    l->first = malloc((batch + 1) * sizeof *l->first);
    l->place = malloc(batch * sizeof *l->place);
    l->seen = malloc((2 * codes_of(l) + 1) * sizeof *l->seen);
    l->shared = malloc((2 * codes_of(l) + 16) * sizeof *l->shared);
    if (!l->frames || !l->first || !l->place || !l->seen || !l->shared)
        return tw_fail(TW_ERROR_MEMORY, "no memory for a batch of %zu crops", batch);
    for (size_t i = 0; i <= batch; i++) l->first[i] = i * frames;
    TW_TRY(crop_order_create(&d->train_crops, &l->order));
    TW_TRY(crop_order_create(&d->test_crops, &l->test_order));
    crop_order_plain(&d->test_crops, &l->test_order);
    return collapse_guard_create(d->config.groups, d->config.codes, &l->guard);
}

static tw_status make_network(pretraining_learner *l)
{
    w2v_bert_config config = pretraining_learner_data_of(l)->config;
    config.precision = l->base.place.precision;
    TW_TRY(w2v_bert_create(&config, &l->net));
    if (l->base.place.pager) TW_TRY(w2v_bert_page(l->net, l->base.place.pager));
    TW_TRY(w2v_bert_initialise(l->net, l->base.place.seed));
    show_parameters(&l->base, "w2v-bert", w2v_bert_parameters(l->net));
    show_buffers(&l->base, w2v_bert_buffers(l->net));
    return TW_OK;
}

tw_status pretraining_open(learner *base)
{
    pretraining_learner *l = (pretraining_learner *)base;
    const learner_place *p = &base->place;
    l->order_epoch = UINT64_MAX;
    base->steps_per_epoch = pretraining_learner_data_of(l)->train_crops.count / ((size_t)p->size * p->batch);
    TW_TRY(pretraining_learner_make_room(l));
    return make_network(l);
}

void pretraining_close(learner *base)
{
    pretraining_learner *l = (pretraining_learner *)base;
    w2v_bert_destroy(l->net);
    crop_order_release(&l->order);
    crop_order_release(&l->test_order);
    collapse_guard_release(&l->guard);
    free(l->frames);
    free(l->first);
    free(l->place);
    free(l->seen);
    free(l->shared);
}

/* ---- a step ---- */

/* `first`: of the crops of the order; `place`: which of the step's that one is. */
static w2v_bert_batch take_crops(pretraining_learner *l, const speech_crops *crops, const crop_order *order,
                                 size_t first, size_t place, size_t count)
{
    size_t values = crops->frames * crops->set->width;
    for (size_t i = 0; i < count; i++) {
        speech_crops_copy(crops, order, first + i, l->frames + i * values);
        l->place[i] = (place + i) % PLACES;
    }
    return (w2v_bert_batch){.crops = {count, l->first}, .frames = l->frames, .place = l->place};
}

static tw_status sum_of_all(void *context, float *values, size_t count)
{
    learner *l = context;
    return l->sum(l->sum_context, values, count);
}

static tw_status tell_collapse(pretraining_learner *l, tw_status status)
{
    const pretraining_settings *s = l->base.task->settings;
    if (status != TW_ERROR_NONFINITE || s->on_collapse == 0) return status;
    if (!l->guard.told && l->base.place.rank == 0) fprintf(stderr, "thinwire: warning: %s\n", tw_last_error());
    l->guard.told = true;
    return TW_OK;
}

/* Random targets do not learn, so they cannot collapse. */
static tw_status look_for_collapse(pretraining_learner *l, uint64_t step)
{
    collapse_guard *g = &l->guard;
    size_t count = collapse_guard_count(g);
    tw_status status = TW_OK;
    if (pretraining_learner_data_of(l)->config.targets == W2V_BERT_GUMBEL &&
        collapse_guard_is_due(step, l->base.warmup)) {
        for (size_t i = 0; i < count; i++) l->shared[i] = (float)g->counts[i];
        if (l->base.sum) TW_TRY(sum_of_all(&l->base, l->shared, count));
        status = collapse_guard_judge(g, l->shared, step);
    }
    if (step % COLLAPSE_WINDOW == 0) collapse_guard_clear(g);
    return tell_collapse(l, status);
}

static double temperature_at(const falling_temperature *t, uint64_t step, uint64_t steps)
{
    double way = (double)step / (t->share * (double)steps);
    return t->from * pow(t->to / t->from, way < 1 ? way : 1);
}

/* Before the first step of a run: what its options cannot give. */
static void warn(const pretraining_learner *l, uint64_t step)
{
    const learner_place *p = &l->base.place;
    const w2v_bert_config *config = &pretraining_learner_data_of(l)->config;
    if (step != 0 || p->rank != 0) return;
    if (config->targets == W2V_BERT_GUMBEL && config->contrastive_blocks == 0)
        fputs("thinwire: with --contrastive-blocks 0 nothing teaches the quantiser, so its codes will tell nothing of "
              "the sound; --targets random predicts codes that need not be learned\n",
              stderr);
    if (p->size > 1 && !l->base.sum)
        fprintf(stderr,
                "thinwire: by such a --sync each worker has code statistics of its own, so %d workers are not one "
                "with as large a batch\n",
                p->size);
}

tw_status pretraining_step(learner *base, uint64_t step, learner_gradient_ready ready, void *context, task_score *score)
{
    pretraining_learner *l = (pretraining_learner *)base;
    const pretraining_data *d = pretraining_learner_data_of(l);
    const learner_place *p = &base->place;
    uint64_t epoch = step / base->steps_per_epoch;
    warn(l, step);
    TW_TRY(look_for_collapse(l, step));
    if (epoch != l->order_epoch) crop_order_shuffle(&d->train_crops, p->seed, epoch, &l->order);
    l->order_epoch = epoch;
    w2v_bert_batch batch =
        take_crops(l, &d->train_crops, &l->order, task_slice(base, step), (size_t)p->rank * p->batch, p->batch);
    w2v_bert_sum sum = {sum_of_all, base, (size_t)p->size};
    w2v_bert_step_options how = {.draws = {p->seed, step},
                                 .dropout = noise_of(p, step),
                                 .temperature = (float)temperature_at(&d->temperature, step, base->steps),
                                 .sum = base->sum ? &sum : NULL,
                                 .ready = ready,
                                 .context = context};
    w2v_bert_result result;
    TW_TRY(w2v_bert_step(l->net, &batch, &how, &result));
    collapse_guard_add(&l->guard, &result);
    *score = (task_score){.loss = result.loss * (double)p->batch, .count = (double)p->batch};
    add_sums(&result.sums, score);
    const w2v_bert_metrics seen =
        w2v_bert_measure(&result.sums, result.probabilities, result.chosen, d->config.groups, d->config.codes);
    put_measures(d->config.groups, &seen, score);
    return TW_OK;
}

/* ---- evaluation ---- */

static void add_codes(pretraining_learner *l, const w2v_bert_result *result)
{
    size_t all = codes_of(l);
    for (size_t v = 0; v < all; v++) {
        l->seen[v] += result->probabilities[v];
        l->seen[all + v] += result->chosen[v];
    }
}

/* This worker's sums become those of all workers. */
static tw_status share_codes(pretraining_learner *l, w2v_bert_sums *sums)
{
    size_t all = 2 * codes_of(l), count = all + 4;
    double *const more[] = {&sums->hidden, &sums->row_entropy, &sums->contrastive, &sums->masked};
    if (!l->base.sum) return TW_OK;
    for (size_t v = 0; v < all; v++) l->shared[v] = (float)l->seen[v];
    for (size_t i = 0; i < 4; i++) l->shared[all + i] = (float)*more[i];
    TW_TRY(sum_of_all(&l->base, l->shared, count));
    for (size_t v = 0; v < all; v++) l->seen[v] = (double)l->shared[v];
    for (size_t i = 0; i < 4; i++) *more[i] = (double)l->shared[all + i];
    return TW_OK;
}

/* `sums` are of all workers. */
static void pretraining_learner_conclude(const pretraining_learner *l, const w2v_bert_sums *sums, size_t part,
                                         task_score *score)
{
    const w2v_bert_config *c = &pretraining_learner_data_of(l)->config;
    w2v_bert_metrics m = w2v_bert_measure(sums, l->seen, l->seen + codes_of(l), c->groups, c->codes);
    double weight = c->targets == W2V_BERT_GUMBEL ? (double)c->diversity_weight : 0;
    double loss = sums->hidden > 0 ? (sums->contrastive + sums->masked) / sums->hidden + weight * m.diversity : 0;
    score->loss = loss * score->count;
    if (part == 0) put_measures(c->groups, &m, score);
}

static tw_status pretraining_learner_evaluate_batch(pretraining_learner *l, size_t at, size_t count,
                                                    w2v_bert_sums *sums, task_score *score)
{
    nn_noise draws = {l->base.place.seed, EVALUATION_STEP};
    w2v_bert_result result;
    w2v_bert_batch batch = take_crops(l, &pretraining_learner_data_of(l)->test_crops, &l->test_order, at, at, count);
    TW_TRY(w2v_bert_evaluate(l->net, &batch, &draws, &result));
    add_codes(l, &result);
    add_sums(&result.sums, score);
    sums->hidden += result.sums.hidden;
    sums->row_entropy += result.sums.row_entropy;
    sums->contrastive += result.sums.contrastive;
    sums->masked += result.sums.masked;
    score->count += (double)count;
    return TW_OK;
}

tw_status pretraining_evaluate(learner *base, task_split split, size_t part, size_t parts, task_score *score)
{
    (void)split; /* there is one */
    pretraining_learner *l = (pretraining_learner *)base;
    size_t all = pretraining_learner_data_of(l)->test_crops.count, last = all * (part + 1) / parts;
    w2v_bert_sums sums = {0};
    memset(l->seen, 0, 2 * codes_of(l) * sizeof *l->seen);
    for (size_t at = all * part / parts, count; at < last && !learner_stops(base); at += count) {
        count = last - at < base->place.batch ? last - at : base->place.batch;
        TW_TRY(pretraining_learner_evaluate_batch(l, at, count, &sums, score));
    }
    TW_TRY(share_codes(l, &sums));
    pretraining_learner_conclude(l, &sums, part, score);
    return TW_OK;
}

/* ---- checkpoints ---- */

static const char *guard_name(const char *prefix, char name[64])
{
    snprintf(name, 64, "%sguard", prefix);
    return name;
}

tw_status pretraining_save(const learner *base, const char *prefix, tw_state *state)
{
    char name[64];
    const collapse_guard *g = &((const pretraining_learner *)base)->guard;
    size_t count = collapse_guard_count(g);
    return tw_state_put(state, guard_name(prefix, name), TW_F64, 1, &count, g->counts);
}

tw_status pretraining_restore(learner *base, const char *prefix, const tw_state *state)
{
    char name[64];
    collapse_guard *g = &((pretraining_learner *)base)->guard;
    return tw_state_get(state, guard_name(prefix, name), TW_F64, collapse_guard_count(g), g->counts);
}
