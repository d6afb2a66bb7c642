#include "exchange_pipeline.h"
#include "clip.h"
#include "error.h"
#include "interrupt.h"
#include "pages.h"
#include "pipeline_plan.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A gradient above is no gradient: see tw_reducer_wait. */
#define LARGEST_NORM 1e33

#define FORWARD_PART (1.0 / 3) /* of a pass, as tw_phantom_pass has it */

enum { FORTH = 1, BACK, GATHER }; /* channels */

/* What a call of the learner is for. */
typedef enum pipeline_turn {
    LOOK,    /* an evaluation */
    FORWARD, /* a micro-batch goes through, and its input is kept */
    AGAIN,   /* the same from what was kept, and back */
    THROUGH  /* the last stage: forward and back at once */
} pipeline_turn;

typedef struct range {
    size_t begin, end;
} range;

typedef struct pipeline_way {
    nn_stage stage;
    pipeline_plan plan;

    stage_wire wire;
    stage_line forth_in, forth_out, back_in, back_out;

    range parameters, buffers;  /* that are this stage's */
    size_t depth;               /* micro-batches between forward and back */
    float *stash, *now;         /* weights: of each of them, and the current ones while others are in their place */
    float *inputs, *statistics; /* of each of them; and the running statistics while it is computed again */
    const float *gradient;      /* of the input, after a call that went back */
    size_t input_count;
    uint64_t forwarded; /* the next micro-batch to go forward */
    uint64_t returned;  /* and the next to come back */
    float *sum;         /* of the gradients of a step; NULL: it has one */
    int knows_steps;    /* the optimiser's count of them is this stage's own, as a checkpoint had it */
    int ended;          /* none more of this stretch does */
    uint64_t stops;     /* a stage behind wants the run to stop */
    uint64_t looks;     /* batches of an evaluation that went to it */
    pipeline_turn turn;
    uint64_t batch;  /* that the call is of */
    stage_note back; /* of the last gradient that came, or of this stage's own */
    double skipped, seconds_wait;
} pipeline_way;

static pipeline_way *way_of(const worker *w)
{
    return w->way;
}

static int is_piped(const worker *w)
{
    return w->exchange == &pipeline_exchange;
}

/* ---- making ---- */

static tw_status on_receive(void *context, float *x, size_t count);
static tw_status on_send(void *context, const float *y, size_t count, float *dy, int *back);
static tw_status on_send_back(void *context, const float *dx, size_t count);

tw_status pipeline_open(worker *w)
{
    pipeline_way *way = w->settings.pipeline ? calloc(1, sizeof *way) : NULL;
    if (!w->settings.pipeline) return TW_OK;
    if (!way) return tw_fail(TW_ERROR_MEMORY, "no memory for a worker");
    free(w->way);
    w->exchange = &pipeline_exchange;
    w->way = way;
    return pipeline_plan_open(w, &way->plan);
}

tw_status pipeline_agree(worker *w)
{
    pipeline_way *way = way_of(w);
    const size_t *ends = way->plan.ends;
    TW_TRY(pipeline_plan_agree(w, &way->plan));
    way->stage = (nn_stage){w->rank ? ends[w->rank - 1] : 0, ends[w->rank], w, on_receive, on_send, on_send_back};
    return TW_OK;
}

/* What does not fill a step at the end of an epoch is left out. */
tw_status pipeline_count_steps(worker *w)
{
    learner *l = w->learner;
    const size_t each = is_piped(w) ? way_of(w)->plan.accumulate : 1;
    w->steps_per_epoch = l->steps_per_epoch / each;
    if (w->steps_per_epoch == 0)
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "--pipeline %s: a step takes %zu micro-batches, and an epoch has %llu; it may be accumulate=%llu",
            w->settings.pipeline, each, (unsigned long long)l->steps_per_epoch, (unsigned long long)l->steps_per_epoch);
    l->steps_per_epoch = w->steps_per_epoch * each;
    return TW_OK;
}

void pipeline_place(const worker *w, learner_place *place)
{
    if (!is_piped(w)) return;
    place->rank = 0;
    place->size = 1;
    place->stage = &way_of(w)->stage;
}

static stage_line line_to(pipeline_way *way, int peer, unsigned channel)
{
    return (stage_line){.wire = &way->wire, .peer = peer, .channel = channel};
}

static range parameters_of(const worker *w, int stage)
{
    const size_t *ends = way_of(w)->plan.ends;
    const nn_unit *units = w->learner->units;
    return (range){stage ? units[ends[stage - 1] - 1].parameters : 0, units[ends[stage] - 1].parameters};
}

static range buffers_of(const worker *w, int stage)
{
    const size_t *ends = way_of(w)->plan.ends;
    const nn_unit *units = w->learner->units;
    return (range){stage ? units[ends[stage - 1] - 1].buffers : 0, units[ends[stage] - 1].buffers};
}

static size_t length_of(range r)
{
    return r.end - r.begin;
}

static int is_last_stage(const worker *w)
{
    return w->rank == w->size - 1;
}

static tw_status make_stash(pipeline_way *way)
{
    const size_t weights = length_of(way->parameters);
    way->stash = malloc((way->depth * weights + 1) * sizeof *way->stash);
    way->now = malloc((weights + 1) * sizeof *way->now);
    way->statistics = malloc((length_of(way->buffers) + 1) * sizeof *way->statistics);
    if (way->plan.accumulate > 1) way->sum = malloc((weights + 1) * sizeof *way->sum);
    return way->stash && way->now && way->statistics && (way->sum || way->plan.accumulate == 1)
               ? TW_OK
               : tw_fail(TW_ERROR_MEMORY, "no memory for %zu versions of %zu weights", way->depth, weights);
}

static tw_status pipeline_create(worker *w)
{
    pipeline_way *way = way_of(w);
    TW_TRY(stage_wire_open(w->comm, &way->wire));
    way->parameters = parameters_of(w, w->rank);
    way->buffers = buffers_of(w, w->rank);
    way->depth = is_last_stage(w) ? 0 : (size_t)(w->size - w->rank);
    way->forth_in = line_to(way, w->rank - 1, FORTH);
    way->forth_out = line_to(way, w->rank + 1, FORTH);
    way->back_in = line_to(way, w->rank + 1, BACK);
    way->back_out = line_to(way, w->rank - 1, BACK);
    if (w->size > 1) w->learner->stops = NULL; /* the first stage asks, and they leave an evaluation together */
    return make_stash(way);
}

static void pipeline_destroy(worker *w)
{
    pipeline_way *way = way_of(w);
    stage_line *lines[] = {&way->forth_in, &way->forth_out, &way->back_in, &way->back_out};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) stage_line_close(lines[i]);
    pipeline_plan_close(&way->plan);
    free(way->stash);
    free(way->now);
    free(way->sum);
    free(way->inputs);
    free(way->statistics);
}

/* ---- what a call meets ---- */

static float *slot_of(const pipeline_way *way, float *array, size_t count)
{
    return array + way->batch % way->depth * count;
}

/* All batches of a training run are as long. */
static tw_status keep_input(pipeline_way *way, const float *x, size_t count)
{
    if (!way->inputs) way->inputs = malloc(way->depth * count * sizeof *x);
    if (!way->inputs) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu inputs of a stage", way->depth);
    memcpy(slot_of(way, way->inputs, count), x, count * sizeof *x);
    return TW_OK;
}

static int wants_stop(const worker *w)
{
    return interrupt_asked() || w->stops || way_of(w)->stops;
}

/* The figures of an evaluation are those of the whole network: nothing is rounded. The note says whether all leave it
 * with this batch. What goes back is whether a stage wants that. */
static tw_status receive_look(worker *w, float *x, size_t count)
{
    pipeline_way *way = way_of(w);
    stage_note note;
    TW_TRY(stage_line_receive(&way->forth_in, STAGE_FP32, x, count, &note));
    w->learner->left = note.ends != 0;
    return stage_line_send(&way->back_out, STAGE_FP32, x, 0, &(stage_note){.ends = (uint64_t)wants_stop(w)});
}

static tw_status hear_behind(pipeline_way *way)
{
    float nothing;
    stage_note note;
    TW_TRY(stage_line_receive(&way->back_in, STAGE_FP32, &nothing, 0, &note));
    way->stops |= note.ends;
    return TW_OK;
}

/* The word about the batch before is heard first. It has the time of a batch for its way there and back. */
static tw_status send_look(worker *w, const float *y, size_t count)
{
    pipeline_way *way = way_of(w);
    if (way->looks++ > 0) TW_TRY(hear_behind(way));
    if (w->rank == 0) w->learner->left = wants_stop(w);
    TW_TRY(stage_line_send(&way->forth_out, STAGE_FP32, y, count, &(stage_note){.ends = w->learner->left}));
    return stage_line_flush(&way->forth_out);
}

/* The word about the last batch; collectives may follow. */
static tw_status pipeline_looked(worker *w)
{
    pipeline_way *way = way_of(w);
    if (way->looks > 0) TW_TRY(hear_behind(way));
    way->looks = 0;
    return stage_line_flush(&way->back_out);
}

static tw_status on_receive(void *context, float *x, size_t count)
{
    pipeline_way *way = way_of(context);
    stage_note note = {.ends = 0};
    if (way->turn == LOOK) return receive_look(context, x, count);
    if (way->turn == AGAIN) {
        memcpy(x, slot_of(way, way->inputs, count), count * sizeof *x);
        return TW_OK;
    }
    TW_TRY(stage_line_receive(&way->forth_in, way->plan.values, x, count, &note));
    way->ended = note.ends != 0;
    if (!way->ended) TW_TRY(stage_line_ask(&way->forth_in, way->plan.values, count));
    return way->turn == FORWARD ? keep_input(way, x, count) : TW_OK;
}

static void pass_part(const worker *w, double part)
{
    if (w->part_passed) w->part_passed(w->pace, way_of(w)->batch, part);
}

static tw_status on_send(void *context, const float *y, size_t count, float *dy, int *back)
{
    pipeline_way *way = way_of(context);
    if (way->turn == LOOK) return send_look(context, y, count);
    pass_part(context, FORWARD_PART);
    *back = way->turn == AGAIN;
    if (!*back)
        return stage_line_send(&way->forth_out, way->plan.values, y, count,
                               &(stage_note){.ends = (uint64_t)way->ended});
    TW_TRY(stage_line_receive(&way->back_in, way->plan.values, dy, count, &way->back));
    return way->batch + 1 < way->forwarded ? stage_line_ask(&way->back_in, way->plan.values, count) : TW_OK;
}

/* The last stage's score is not known before the call ends; the gradient stays where it is until the next. */
static tw_status on_send_back(void *context, const float *dx, size_t count)
{
    pipeline_way *way = way_of(context);
    way->gradient = dx;
    way->input_count = count;
    return TW_OK;
}

/* The note goes back to rank 0: what the last stage has seen, and whether anybody wants to stop. */
static tw_status send_back(worker *w)
{
    pipeline_way *way = way_of(w);
    way->back.ends |= (uint64_t)wants_stop(w);
    way->stops |= way->back.ends;
    if (w->rank == 0) return TW_OK;
    return stage_line_send(&way->back_out, way->plan.values, way->gradient, way->input_count, &way->back);
}

/* ---- a step ---- */

static tw_status call(worker *w, pipeline_turn turn, uint64_t batch, task_score *score)
{
    pipeline_way *way = way_of(w);
    way->turn = turn;
    way->batch = batch;
    const tw_status status = w->task->ops->step(w->learner, batch, NULL, NULL, score);
    if (turn != FORWARD) pass_part(w, turn == AGAIN ? 1 - FORWARD_PART : 1);
    way->turn = LOOK;
    return status;
}

static float *version_of(const pipeline_way *way, uint64_t batch)
{
    return way->stash + batch % way->depth * length_of(way->parameters);
}

/* A call with the version of the weights that the micro-batch has. */
static tw_status call_with_version(worker *w, pipeline_turn turn, uint64_t batch, task_score *score)
{
    pipeline_way *way = way_of(w);
    const size_t bytes = length_of(way->parameters) * sizeof(float);
    float *weights = w->learner->parameters + way->parameters.begin;
    memcpy(way->now, weights, bytes);
    memcpy(weights, version_of(way, batch), bytes);
    const tw_status status = call(w, turn, batch, score);
    memcpy(weights, way->now, bytes);
    return status;
}

/* With the weights that are foreseen for the step of the micro-batch: steps of others that are under way come before it
 * (SpecTrain: Chen, Yang and Cheng, 2018). Rank 0 says which micro-batch is the last of a stretch, and of its step. */
static tw_status go_forward(worker *w)
{
    pipeline_way *way = way_of(w);
    task_score score;
    const uint64_t batch = way->forwarded++, step = batch / way->plan.accumulate;
    if (w->rank == 0 && way->forwarded % way->plan.accumulate == 0) way->ended = step + 1 >= w->rest || wants_stop(w);
    optimiser_foresee(w->optimiser, (float)schedule_rate(&w->schedule, w->step), step - w->step, way->parameters.begin,
                      way->parameters.end, w->learner->parameters, version_of(way, batch));
    return call_with_version(w, FORWARD, batch, &score);
}

/* With the weights that the micro-batch went forward with. Running statistics have seen it. */
static tw_status go_back(worker *w)
{
    pipeline_way *way = way_of(w);
    const size_t buffer_bytes = length_of(way->buffers) * sizeof(float);
    task_score score;
    if (buffer_bytes) memcpy(way->statistics, w->learner->buffers + way->buffers.begin, buffer_bytes);
    TW_TRY(call_with_version(w, AGAIN, way->returned, &score));
    if (buffer_bytes) memcpy(w->learner->buffers + way->buffers.begin, way->statistics, buffer_bytes);
    return TW_OK;
}

/* The last stage has nothing under way. */
static tw_status go_through(worker *w)
{
    pipeline_way *way = way_of(w);
    way->forwarded = way->returned + 1;
    way->back = (stage_note){.ends = 0};
    return call(w, THROUGH, way->returned, &way->back.score);
}

static tw_status go_forth_and_back(worker *w)
{
    pipeline_way *way = way_of(w);
    if (way->forwarded == way->returned) way->ended = 0; /* a new stretch */
    while (!way->ended && way->forwarded < way->returned + way->depth) TW_TRY(go_forward(w));
    return go_back(w);
}

/* Of the step's micro-batches, this one's is in the learner's array; after the last their mean is. */
static void add_gradient(const worker *w)
{
    const pipeline_way *way = way_of(w);
    const size_t count = length_of(way->parameters), place = way->returned % way->plan.accumulate;
    float *gradient = w->learner->gradients + way->parameters.begin;
    if (!way->sum) return;
    for (size_t i = 0; i < count; i++) way->sum[i] = place ? way->sum[i] + gradient[i] : gradient[i];
    if (place + 1 < way->plan.accumulate) return;
    for (size_t i = 0; i < count; i++) gradient[i] = way->sum[i] / (float)way->plan.accumulate;
}

static tw_status pass_one(worker *w, task_score *score)
{
    pipeline_way *way = way_of(w);
    TW_TRY(is_last_stage(w) ? go_through(w) : go_forth_and_back(w));
    TW_TRY(send_back(w));
    add_gradient(w);
    way->returned++;
    if (w->rank == 0) task_score_add(score, &way->back.score);
    return TW_OK;
}

/* A stretch is at its end, and nothing is under way. */
static int is_drained(const pipeline_way *way)
{
    return way->ended && way->forwarded == way->returned;
}

/* What is told of a run is rank 0's. */
static tw_status pass_all(worker *w, task_score *score)
{
    pipeline_way *way = way_of(w);
    for (size_t i = 0; i < way->plan.accumulate; i++) TW_TRY(pass_one(w, score));
    if (!is_drained(way)) return TW_OK;
    TW_TRY(stage_line_flush(&way->forth_out)); /* collectives may follow */
    return stage_line_flush(&way->back_out);
}

static tw_status pipeline_pass(worker *w, task_score *score, double *waited)
{
    pipeline_way *way = way_of(w);
    const double before = way->wire.seconds;
    const tw_status status = pass_all(w, score);
    *waited = way->wire.seconds - before;
    way->seconds_wait += *waited;
    return status;
}

static int pipeline_meets(const worker *w)
{
    return is_drained(way_of(w));
}

static size_t first_tensor(const learner *l, size_t element)
{
    size_t tensor = 0;
    for (size_t at = 0; at < element; tensor++) at += tw_tensor_count(&l->tensors[tensor]);
    return tensor;
}

/* Each stage clips, skips and steps for itself. */
static tw_status pipeline_apply(worker *w, float rate)
{
    pipeline_way *way = way_of(w);
    const learner *l = w->learner;
    const range own = way->parameters;
    const size_t first = first_tensor(l, own.begin), end = first_tensor(l, own.end);
    if (!(sqrt(clip_squares(l->gradients + own.begin, length_of(own))) <= LARGEST_NORM)) {
        way->skipped++;
        return tw_fail(TW_SKIPPED, "a gradient held NaN or infinity, or was above %g", LARGEST_NORM);
    }
    if (w->settings.clip > 0) clip_norm(l->tensors + first, end - first, l->gradients + own.begin, w->settings.clip);
    optimiser_begin(w->optimiser, rate);
    return optimiser_step_range(w->optimiser, own.begin, own.end, l->gradients, l->parameters);
}

/* ---- the network as a whole ---- */

enum { ARRAYS = 1 + OPTIMISER_BUFFERS + 1 };

/* A stage's part of an array. */
typedef struct part {
    float *values;
    range own;
    size_t count; /* of the whole array */
} part;

/* Those that are as long as the parameters, then the running statistics. */
static size_t list_parts(const worker *w, int stage, part parts[ARRAYS])
{
    const learner *l = w->learner;
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    const size_t states = optimiser_buffers(w->optimiser, buffers);
    size_t count = 0;
    parts[count++] = (part){l->parameters, parameters_of(w, stage), l->parameter_count};
    for (size_t i = 0; i < states; i++)
        if (buffers[i].tensors == l->tensors)
            parts[count++] = (part){buffers[i].values, parameters_of(w, stage), l->parameter_count};
    parts[count++] = (part){l->buffers, buffers_of(w, stage), l->buffer_count};
    return count;
}

static tw_status move_part(stage_line *line, int outgoing, const part *p)
{
    enum { PIECE = 1 << 20 };
    for (size_t at = p->own.begin, count; at < p->own.end; at += count) {
        count = p->own.end - at < PIECE ? p->own.end - at : PIECE;
        TW_TRY(outgoing ? stage_line_send(line, STAGE_FP32, p->values + at, count, NULL)
                        : stage_line_receive(line, STAGE_FP32, p->values + at, count, NULL));
    }
    return outgoing ? stage_line_flush(line) : TW_OK;
}

/* Between rank 0 and the stage. */
static tw_status move_stage(worker *w, int stage, int outgoing)
{
    part parts[ARRAYS];
    pipeline_way *way = way_of(w);
    stage_line line = line_to(way, w->rank == 0 ? stage : 0, GATHER);
    const size_t count = list_parts(w, stage, parts);
    tw_status status = TW_OK;
    for (size_t i = 0; i < count && status == TW_OK; i++) status = move_part(&line, outgoing, &parts[i]);
    stage_line_close(&line);
    return status;
}

static tw_status move_all(worker *w, int from_first)
{
    const int outgoing = from_first == (w->rank == 0);
    for (int stage = 1; stage < w->size; stage++)
        if (w->rank == 0 || w->rank == stage) TW_TRY(move_stage(w, stage, outgoing));
    return TW_OK;
}

/* Rank 0 has all of it, for a checkpoint. */
static tw_status pipeline_settle(worker *w)
{
    return move_all(w, 0);
}

/* What is other stages' takes no memory any more. */
static tw_status forget_others(worker *w)
{
    part parts[ARRAYS];
    const size_t count = list_parts(w, w->rank, parts) - 1; /* running statistics are few */
    for (size_t i = 0; i < count; i++) {
        pages_forget(parts[i].values, 0, parts[i].own.begin);
        pages_forget(parts[i].values, parts[i].own.end, parts[i].count);
    }
    return TW_OK;
}

/* Adam's count, which is each stage's own, as it skips steps by itself; NULL: SGD has none. */
static float *steps_of(const worker *w)
{
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    const optimiser_buffer *last = &buffers[optimiser_buffers(w->optimiser, buffers) - 1];
    return last->tensors != w->learner->tensors ? last->values : NULL;
}

/* Rank 0 has all of it, from a checkpoint: each stage gets its part, and rank 0's count of steps where it has none. */
static tw_status pipeline_share(worker *w)
{
    float *steps = steps_of(w), first = steps ? *steps : 0;
    TW_TRY(move_all(w, 1));
    TW_TRY(tw_comm_broadcast(w->comm, 0, &first, sizeof first));
    if (steps && !way_of(w)->knows_steps) *steps = first;
    return forget_others(w);
}

static const char *name_of_steps(const char *prefix, char name[64])
{
    snprintf(name, 64, "%ssteps", prefix);
    return name;
}

static tw_status pipeline_save(worker *w, const char *prefix, tw_state *state)
{
    char name[64];
    const float *steps = steps_of(w);
    return steps ? tw_state_put(state, name_of_steps(prefix, name), TW_F32, 0, NULL, steps) : TW_OK;
}

/* An older checkpoint does not say it. */
static tw_status pipeline_load(worker *w, const char *prefix, const tw_state *state)
{
    char name[64];
    float *steps = steps_of(w);
    way_of(w)->knows_steps = steps && tw_state_get(state, name_of_steps(prefix, name), TW_F32, 1, steps) == TW_OK;
    return TW_OK;
}

static void pipeline_statistics(const worker *w, size_t *begin, size_t *end)
{
    *begin = way_of(w)->buffers.begin;
    *end = way_of(w)->buffers.end;
}

/* Each stage has drawn its own first weights. */
static tw_status pipeline_begin(worker *w)
{
    way_of(w)->forwarded = way_of(w)->returned = w->step * way_of(w)->plan.accumulate;
    way_of(w)->ended = 1;
    return w->settings.resume || w->settings.init_from ? pipeline_share(w) : TW_OK;
}

static const char *plan_of(const worker *w, size_t index)
{
    (void)w, (void)index;
    return "stays in its stage";
}

/* Dense is what the same messages would weigh in fp32. */
static tw_status pipeline_add_totals(const worker *w, totals *sums)
{
    const pipeline_way *way = way_of(w);
    double *v = sums->values;
    v[TOTAL_BYTES_DENSE] += way->wire.sent_as_fp32;
    v[TOTAL_BYTES_SENT] += way->wire.sent;
    v[TOTAL_BYTES_RECEIVED] += way->wire.received;
    v[TOTAL_STEPS_SKIPPED] += way->skipped;
    v[TOTAL_SECONDS_WAIT] += way->seconds_wait;
    return TW_OK;
}

/* Among as many stages as there were each whose file is not lost has kept its count of steps. The rest is in the
 * model's file. */
static tw_status pipeline_regroup(worker *w, int workers, const char *prefix, tw_state_source source, void *context,
                                  tw_state *state)
{
    const tw_state *own = NULL;
    (void)state;
    if (workers == w->size) TW_TRY(source(context, w->rank, &own));
    return own ? pipeline_load(w, prefix, own) : TW_OK;
}

const exchange pipeline_exchange = {
    .replicas = 1,
    .staged = 1,
    .bytes = sizeof(pipeline_way),
    .create = pipeline_create,
    .destroy = pipeline_destroy,
    .begin = pipeline_begin,
    .show_own = forget_others,
    .settle = pipeline_settle,
    .share = pipeline_share,
    .statistics = pipeline_statistics,
    .looked = pipeline_looked,
    .meets = pipeline_meets,
    .pass = pipeline_pass,
    .apply = pipeline_apply,
    .plan = plan_of,
    .add_totals = pipeline_add_totals,
    .save = pipeline_save,
    .load = pipeline_load,
    .regroup = pipeline_regroup,
};
