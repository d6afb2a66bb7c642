/* toy.h - a task whose every gradient, loss and score a test writes down itself, so that what the trainer makes of them
 * can be worked out by hand. It also writes down what the trainer asked of it. */
#ifndef TEST_TRAIN_TOY_H
#define TEST_TRAIN_TOY_H

#include "crew.h"

enum {
    TOY_MATRIX = 12, /* elements of the first tensor; the second has one dimension and is not decayed */
    TOY_VECTOR = 4,
    TOY_PARAMETERS = TOY_MATRIX + TOY_VECTOR,
    TOY_EPOCH = 4,  /* steps */
    TOY_ITEMS = 10, /* of either split; item i is part of the loss with i + 1 */
    TOY_RANKS = 4,
    TOY_MOST = 1024 /* steps and evaluations */
};

static const tw_tensor toy_tensors[] = {{"matrix", 2, {3, 4}}, {"vector", 1, {TOY_VECTOR}}};
static const tw_tensor toy_statistics[] = {{"statistic", 1, {1}}};

typedef struct toy_learner {
    learner base;
    float parameters[TOY_PARAMETERS], gradients[TOY_PARAMETERS];
    float statistic; /* 10 * rank + the last step's number */
    float memory;    /* what it carries from step to step: how many steps there were */
} toy_learner;

/* One evaluation, as a learner was asked for it. */
typedef struct toy_look {
    task_split split;
    size_t part, parts;
    uint64_t steps; /* taken before it */
    float statistic, weight;
} toy_look;

/* What one worker met. */
typedef struct toy_log {
    uint64_t steps[TOY_MOST];
    float weights[TOY_MOST]; /* the first one, at the beginning of each step */
    float statistics[TOY_MOST];
    size_t step_count;
    toy_look looks[TOY_MOST];
    size_t look_count;
    float final[TOY_PARAMETERS];
} toy_log;

typedef struct toy toy;
struct toy {
    task base;
    float (*gradient)(const toy_learner *l, uint64_t step, size_t element);
    tw_status (*before)(toy *t, toy_learner *l, uint64_t step); /* (optional) as a step begins */
    float loss[TOY_MOST];                                       /* of a step, on rank 0; each rank has 1 more */
    bool validated, untested;                                   /* it has a validation set; it has no test set */
    unsigned epoch;                                             /* steps; 0: TOY_EPOCH */
    uint64_t unread;                                            /* after so many steps its data are gone; 0: never */
    float apart;           /* what an item of the validation set has more loss than one of the test set */
    float extra[TOY_MOST]; /* in an evaluation's mean loss after so many steps */
    toy_log log[TOY_RANKS];
    void *context;
};

static inline toy *toy_of(const learner *base)
{
    return (toy *)base->task;
}

/* A multiple of 1/64 between -1 and 1: sums of a few have no rounding. */
static inline float toy_draw(const toy_learner *l, uint64_t step, size_t element)
{
    uint32_t words[4];
    tw_random(7 + (uint64_t)l->base.place.rank, step, element, words);
    return ((float)(words[0] % 129) - 64) / 64;
}

static inline float toy_start(size_t element)
{
    return (float)element / 4 - 1;
}

static inline tw_status toy_open(learner *base)
{
    toy_learner *l = (toy_learner *)base;
    base->model = "toy";
    base->tensors = toy_tensors;
    base->tensor_count = 2;
    base->parameters = l->parameters;
    base->gradients = l->gradients;
    base->parameter_count = TOY_PARAMETERS;
    base->buffer_tensors = toy_statistics;
    base->buffer_tensor_count = 1;
    base->buffers = &l->statistic;
    base->buffer_count = 1;
    base->steps_per_epoch = toy_of(base)->epoch ? toy_of(base)->epoch : TOY_EPOCH;
    for (size_t i = 0; i < TOY_PARAMETERS; i++) l->parameters[i] = toy_start(i);
    return TW_OK;
}

static inline void toy_close(learner *base)
{
    memcpy(toy_of(base)->log[base->place.rank].final, base->parameters, TOY_PARAMETERS * sizeof(float));
}

static inline void toy_note_step(toy_log *log, const toy_learner *l, uint64_t step)
{
    log->steps[log->step_count] = step;
    log->weights[log->step_count] = l->parameters[0];
    log->statistics[log->step_count++] = l->statistic;
}

static inline tw_status toy_step(learner *base, uint64_t step, learner_gradient_ready ready, void *context,
                                 task_score *score)
{
    toy *t = toy_of(base);
    toy_learner *l = (toy_learner *)base;
    tw_status status = t->before ? t->before(t, l, step) : TW_OK;
    if (status != TW_OK) return status;
    toy_note_step(&t->log[base->place.rank], l, step);
    for (size_t i = 0; i < TOY_PARAMETERS; i++) l->gradients[i] = t->gradient(l, step, i);
    l->statistic = (float)(10 * (unsigned)base->place.rank + step);
    l->memory += 1;
    *score = (task_score){.loss = 2 * ((double)t->loss[step] + base->place.rank), .count = 2};
    status = ready(context, 1, l->gradients + TOY_MATRIX);
    return status == TW_OK ? ready(context, 0, l->gradients) : status;
}

static inline tw_status toy_evaluate(learner *base, task_split split, size_t part, size_t parts, task_score *score)
{
    toy *t = toy_of(base);
    toy_learner *l = (toy_learner *)base;
    toy_log *log = &t->log[base->place.rank];
    uint64_t steps = log->step_count ? log->steps[log->step_count - 1] + 1 : 0;
    log->looks[log->look_count++] = (toy_look){split, part, parts, steps, l->statistic, l->parameters[0]};
    if (t->unread > 0 && steps == t->unread) return TW_OK;
    for (size_t item = TOY_ITEMS * part / parts; item < TOY_ITEMS * (part + 1) / parts && !learner_stops(base);
         item++) {
        score->loss += (double)(item + 1) + (double)t->extra[steps] + (split == TASK_VALIDATION ? (double)t->apart : 0);
        score->count += 1;
        score->parts[0] += (double)item;
    }
    return TW_OK;
}

static inline tw_status toy_save(const learner *base, const char *prefix, tw_state *state)
{
    char name[64];
    snprintf(name, sizeof name, "%smemory", prefix);
    return tw_state_put(state, name, TW_F32, 0, NULL, &((const toy_learner *)base)->memory);
}

static inline tw_status toy_restore(learner *base, const char *prefix, const tw_state *state)
{
    char name[64];
    snprintf(name, sizeof name, "%smemory", prefix);
    return tw_state_get(state, name, TW_F32, 1, &((toy_learner *)base)->memory);
}

/* The settings that a task has of its own are, here, the test's toy. */
static inline tw_status toy_load(const void *settings, task **out)
{
    toy *given;
    memcpy(&given, settings, sizeof given);
    *out = &given->base;
    return TW_OK;
}

static inline void toy_release(task *t)
{
    (void)t;
}

static inline tw_status toy_fits(const task *t, const learner_place *place)
{
    (void)t, (void)place;
    return TW_OK;
}

#define TOY_TASK                                                                                                       \
    .name = "toy", .summary = "what a test writes down", .load = toy_load, .release = toy_release, .fits = toy_fits,   \
    .learner_bytes = sizeof(toy_learner), .open = toy_open, .close = toy_close, .step = toy_step,                      \
    .evaluate = toy_evaluate, .save = toy_save, .restore = toy_restore
static const task_ops toy_task = {TOY_TASK};

static inline double toy_share(const task_score *score)
{
    return score->parts[0] / score->count;
}

static const task_metric toy_metrics[] = {{"share", toy_share, false}, {0}};

/* A run of it, as a command line begins one. */
typedef struct toy_run {
    toy toy;
    train_page page;
    options set;
    train_settings settings;
    crew_member crew[CREW_MOST]; /* of the last toy_play */
} toy_run;

/* `words` are separated by blanks; out may be NULL. Begin with a toy of zeros but for what the test wants of it. */
static inline void toy_begin(toy_run *r, const task_ops *ops, const char *out, const char *words)
{
    char line[512], *argv[48] = {"toy"}, *rest = NULL;
    int argc = 1;
    int length =
        snprintf(line, sizeof line, "--quiet --batch 1 --lr 1 --momentum 0 --schedule constant --warmup 0 %s %s %s",
                 strstr(words, "--epochs") ? "" : "--steps 8", words, out ? "--out" : "");
    assert_in_range(length, 1, sizeof line - 1);
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) argv[argc++] = word;
    if (out) argv[argc++] = (char *)out;
    r->toy.base = (task){.ops = ops, .metrics = toy_metrics, .items = "items", .batch_of = "items", .identity = "toy"};
    r->toy.base.has_validation = r->toy.validated;
    r->toy.base.has_test = !r->toy.untested;
    r->settings.task = ops;
    settings_page(ops, &r->page);
    assert_ok(options_parse(&r->page.page, argc, argv, &r->settings, &r->set));
    r->settings.set = &r->set;
    r->settings.momentum_given = strstr(words, "--momentum") != NULL;
    memcpy(r->settings.own, &(toy *){&r->toy}, sizeof(toy *));
    if (!r->toy.gradient) r->toy.gradient = toy_draw;
}

static inline void toy_end(toy_run *r)
{
    options_release(&r->set);
}

/* A part of a run, played by `workers`. */
static inline void toy_play(toy_run *r, int workers, tw_status (*part)(crew_member *self), void *context,
                            const char *out, const char *words)
{
    toy_begin(r, &toy_task, out, words);
    crew_run(r->crew, workers,
             (crew_member){.play = part, .settings = &r->settings, .work = &r->toy.base, .context = context});
    toy_end(r);
}

#endif
