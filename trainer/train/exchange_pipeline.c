#include "exchange_pipeline.h"
#include "clip.h"
#include "error.h"
#include "interrupt.h"
#include "pages.h"
#include "pairs.h"
#include "pipeline_cut.h"
#include "stage_line.h"
#include "words.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A gradient above is no gradient: see tw_reducer_wait. */
#define LARGEST_NORM 1e33

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
    size_t stages;
    stage_values values;
    size_t ends[PIPELINE_STAGES]; /* units; 0: not known yet */
    size_t units, cut;            /* of the network, and of the ends, as `cut` has them */
    pipeline_machine *machine;    /* as it was measured */
    size_t *elements;
    char *text; /* --pipeline with all that was chosen */

    stage_wire wire;
    stage_line forth_in, forth_out, back_in, back_out;

    range parameters, buffers;  /* that are this stage's */
    size_t depth;               /* micro-batches between forward and back */
    float *stash, *now;         /* weights: of each of them, and the current ones while others are in their place */
    float *inputs, *statistics; /* of each of them; and the running statistics while it is computed again */
    const float *gradient;      /* of the input, after a call that went back */
    size_t input_count;
    uint64_t forwarded; /* the next micro-batch to go forward */
    int ended;          /* none more of this stretch does */
    uint64_t stops;     /* a stage behind wants the run to stop */
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

/* ---- the option ---- */

static tw_status refuse(const char *text, const char *why)
{
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--pipeline %s: %s; it is stages=P, and may have values=fp32 or values=fp16, and cut=A+B+..., how "
                   "many layers each stage has",
                   text, why);
}

static tw_status parse_cut(const char *text, const char *value, const char *end, pipeline_way *way)
{
    while (value < end) {
        char *behind;
        const unsigned long count = strtoul(value, &behind, 10);
        if (behind == value || count == 0 || count > PIPELINE_UNITS || way->cut == PIPELINE_STAGES || *value == '-')
            return refuse(text, "a stage has one layer or more");
        const size_t before = way->cut ? way->ends[way->cut - 1] : 0;
        way->ends[way->cut++] = before + count;
        value = behind + (behind < end && *behind == '+');
        if (behind < end && *behind != '+') return refuse(text, "there is + between the stages of a cut");
    }
    return TW_OK;
}

static int is_value(const pair *p, const char *value)
{
    return p->value && p->value_length == strlen(value) && memcmp(p->value, value, p->value_length) == 0;
}

static tw_status parse_pair(const char *text, const pair *p, pipeline_way *way)
{
    char *end = NULL;
    if (pair_has_key(p, "stages") && p->value) {
        way->stages = strtoul(p->value, &end, 10);
        const int whole = end == p->value + p->value_length && *p->value != '-';
        if (whole && way->stages >= 1 && way->stages <= PIPELINE_STAGES) return TW_OK;
        return refuse(text, "there are 1 to 64 stages");
    }
    if (pair_has_key(p, "cut") && p->value) return parse_cut(text, p->value, p->value + p->value_length, way);
    if (!pair_has_key(p, "values")) return refuse(text, "there is no such key");
    way->values = is_value(p, "fp16") ? STAGE_FP16 : STAGE_FP32;
    return is_value(p, "fp16") || is_value(p, "fp32") ? TW_OK : refuse(text, "values are fp32 or fp16");
}

static tw_status parse(const char *text, pipeline_way *way)
{
    pair p;
    TW_TRY(words_check_printed(TW_ERROR_ARGUMENT, "--pipeline", text));
    for (const char *left = text; pair_next(&left, &p);) TW_TRY(parse_pair(text, &p, way));
    if (way->stages == 0) return refuse(text, "it does not say how many stages");
    if (way->cut > 0 && way->cut != way->stages) return refuse(text, "cut has another number of stages");
    return TW_OK;
}

static tw_status check_company(const worker *w, size_t stages)
{
    const train_settings *s = &w->settings;
    if ((size_t)w->size != stages)
        return tw_fail(TW_ERROR_ARGUMENT, "--pipeline has %zu stages and goes with as many workers, and these are %d",
                       stages, w->size);
    if (strcmp(s->sync, "allreduce") != 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--pipeline goes with --sync allreduce, without options, and not with %s: there is one network, "
                       "and nobody to agree with",
                       s->sync);
    if (s->memory_budget || s->dump_gradients)
        return tw_fail(TW_ERROR_ARGUMENT, "--pipeline does not go with --%s: leave out one of them",
                       s->memory_budget ? "memory-budget" : "dump-gradients");
    return TW_OK;
}

/* ---- measuring ---- */

static tw_status receive_any(void *context, float *x, size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++) x[i] = 0.25f * (float)(i % 7) - 0.75f;
    return TW_OK;
}

static tw_status send_nowhere(void *context, const float *y, size_t count, float *dy, int *back)
{
    (void)context;
    for (size_t i = 0; i < count; i++) dy[i] = 1e-3f * y[i];
    *back = 1;
    return TW_OK;
}

static tw_status send_back_nowhere(void *context, const float *dx, size_t count)
{
    (void)context, (void)dx, (void)count;
    return TW_OK;
}

/* The faster of two steps: the first of all is like no other. */
static tw_status time_steps(learner *l, double *seconds)
{
    task_score score;
    *seconds = INFINITY;
    for (uint64_t step = 0; step < 3; step++) {
        const double begun = tw_clock();
        TW_TRY(l->task->ops->step(l, step % l->steps_per_epoch, NULL, NULL, &score));
        if (step > 0) *seconds = fmin(*seconds, tw_clock() - begun);
    }
    return TW_OK;
}

static tw_status learn_units(const worker *w, const learner *l, pipeline_way *way)
{
    if (l->unit_count == 0)
        return tw_fail(TW_ERROR_UNSUPPORTED, "--pipeline: task %s has a network that cannot be cut into stages",
                       w->task->ops->name);
    if (l->unit_count > PIPELINE_UNITS)
        return tw_fail(TW_ERROR_UNSUPPORTED, "--pipeline: a network of %zu layers is cut into stages; this one has %zu",
                       (size_t)PIPELINE_UNITS, l->unit_count);
    if (l->unit_count < way->stages)
        return tw_fail(TW_ERROR_ARGUMENT, "--pipeline: this network has %zu layers, too few for %zu stages",
                       l->unit_count, way->stages);
    way->units = l->unit_count;
    if (way->cut > 0 && way->ends[way->cut - 1] != way->units)
        return tw_fail(TW_ERROR_ARGUMENT, "--pipeline: the cut is of %zu layers, and this network has %zu",
                       way->ends[way->cut - 1], way->units);
    return TW_OK;
}

static void count_elements(const learner *l, pipeline_way *way)
{
    for (size_t u = 0; u < l->unit_count; u++)
        way->elements[u] = l->units[u].parameters - (u ? l->units[u - 1].parameters : 0);
}

/* A learner of one unit alone. */
static tw_status measure_unit(const worker *w, size_t unit, pipeline_way *way)
{
    const nn_stage alone = {unit, unit + 1, NULL, receive_any, send_nowhere, send_back_nowhere};
    const train_settings *s = &w->settings;
    learner_place place = {.size = 1,
                           .batch = (size_t)s->batch,
                           .seed = (uint64_t)s->seed,
                           .precision = (nn_precision)s->compute,
                           .stage = &alone};
    learner *l = NULL;
    TW_TRY(task_learner_create(w->task, &place, &l));
    tw_status status = learn_units(w, l, way);
    if (status == TW_OK) count_elements(l, way);
    if (status == TW_OK && way->cut == 0) status = time_steps(l, &way->machine->seconds[unit]);
    task_learner_destroy(l);
    return status;
}

static tw_status measure(const worker *w, pipeline_way *way)
{
    const int shared = strcmp(tw_comm_transport(w->comm), "threads") == 0;
    way->machine->room = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (shared ? w->size : 1);
    TW_TRY(measure_unit(w, 0, way));
    for (size_t u = 1; way->cut == 0 && u < way->units; u++) TW_TRY(measure_unit(w, u, way));
    return TW_OK;
}

tw_status pipeline_open(worker *w)
{
    const train_settings *s = &w->settings;
    pipeline_way *way = calloc(1, sizeof *way);
    if (!s->pipeline || !way) {
        free(way);
        return s->pipeline ? tw_fail(TW_ERROR_MEMORY, "no memory for a worker") : TW_OK;
    }
    free(w->way);
    w->exchange = &pipeline_exchange;
    w->way = way;
    TW_TRY(parse(s->pipeline, way));
    TW_TRY(check_company(w, way->stages));
    way->machine = calloc(1, sizeof *way->machine);
    way->elements = calloc(PIPELINE_UNITS, sizeof *way->elements);
    if (!way->machine || !way->elements) return tw_fail(TW_ERROR_MEMORY, "no memory for a list of layers");
    return measure(w, way);
}

/* ---- cutting ---- */

static tw_status choose_cut(const worker *w, pipeline_way *way, const pipeline_machine *machines)
{
    const size_t states = w->settings.optimizer == OPTIMISER_SGD ? 1 : 2;
    const pipeline_problem problem = {way->units, way->stages, machines, way->elements, states};
    if (isfinite(pipeline_cut(&problem, way->ends))) return TW_OK;
    return tw_fail(TW_ERROR_MEMORY, "--pipeline: the stages fit the memory of their machines in no cut of %zu layers",
                   way->units);
}

/* Rank 0's answer counts: machines may add up in another way. */
static tw_status agree_cut(worker *w, pipeline_way *way)
{
    pipeline_machine *machines = calloc((size_t)w->size, sizeof *machines);
    if (!machines) return tw_fail(TW_ERROR_MEMORY, "no memory to hear %d workers", w->size);
    tw_status status = tw_comm_allgather(w->comm, way->machine, sizeof *machines, machines);
    if (status == TW_OK) status = choose_cut(w, way, machines);
    free(machines);
    TW_TRY(status);
    return tw_comm_broadcast(w->comm, 0, way->ends, sizeof way->ends);
}

/* What was chosen is what a resumed run has, and what --pipeline may be told. */
static tw_status write_out(worker *w, pipeline_way *way)
{
    size_t size;
    FILE *stream = open_memstream(&way->text, &size);
    if (!stream) return tw_fail(TW_ERROR_MEMORY, "no memory for the text of --pipeline");
    fprintf(stream, "stages=%zu,values=%s,cut=", way->stages, way->values == STAGE_FP16 ? "fp16" : "fp32");
    for (size_t s = 0; s < way->stages; s++)
        fprintf(stream, "%s%zu", s ? "+" : "", way->ends[s] - (s ? way->ends[s - 1] : 0));
    if (fclose(stream) != 0) return tw_fail(TW_ERROR_MEMORY, "no memory for the text of --pipeline");
    w->settings.pipeline = way->text;
    return TW_OK;
}

static tw_status on_receive(void *context, float *x, size_t count);
static tw_status on_send(void *context, const float *y, size_t count, float *dy, int *back);
static tw_status on_send_back(void *context, const float *dx, size_t count);

tw_status pipeline_agree(worker *w)
{
    pipeline_way *way = way_of(w);
    if (way->cut == 0) TW_TRY(agree_cut(w, way));
    const size_t first = w->rank ? way->ends[w->rank - 1] : 0;
    way->stage = (nn_stage){first, way->ends[w->rank], w, on_receive, on_send, on_send_back};
    return write_out(w, way);
}

void pipeline_place(const worker *w, learner_place *place)
{
    if (!is_piped(w)) return;
    place->rank = 0;
    place->size = 1;
    place->stage = &way_of(w)->stage;
}

/* ---- making ---- */

static stage_line line_to(pipeline_way *way, int peer, unsigned channel)
{
    return (stage_line){.wire = &way->wire, .peer = peer, .channel = channel};
}

static range parameters_of(const worker *w, int stage)
{
    const size_t *ends = way_of(w)->ends;
    const nn_unit *units = w->learner->units;
    return (range){stage ? units[ends[stage - 1] - 1].parameters : 0, units[ends[stage] - 1].parameters};
}

static range buffers_of(const worker *w, int stage)
{
    const size_t *ends = way_of(w)->ends;
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
    return way->stash && way->now && way->statistics
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
    w->learner->stops = NULL; /* the stages look at all of a split together */
    return make_stash(way);
}

static void pipeline_destroy(worker *w)
{
    pipeline_way *way = way_of(w);
    stage_line *lines[] = {&way->forth_in, &way->forth_out, &way->back_in, &way->back_out};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) stage_line_close(lines[i]);
    free(way->machine);
    free(way->elements);
    free(way->text);
    free(way->stash);
    free(way->now);
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

/* The figures of an evaluation are those of the whole network: nothing is rounded. */
static tw_status on_receive(void *context, float *x, size_t count)
{
    pipeline_way *way = way_of(context);
    stage_note note = {.ends = 0};
    if (way->turn == LOOK) return stage_line_receive(&way->forth_in, STAGE_FP32, x, count, NULL);
    if (way->turn == AGAIN) {
        memcpy(x, slot_of(way, way->inputs, count), count * sizeof *x);
        return TW_OK;
    }
    TW_TRY(stage_line_receive(&way->forth_in, way->values, x, count, &note));
    way->ended = note.ends != 0;
    if (!way->ended) TW_TRY(stage_line_ask(&way->forth_in, way->values, count));
    return way->turn == FORWARD ? keep_input(way, x, count) : TW_OK;
}

static tw_status on_send(void *context, const float *y, size_t count, float *dy, int *back)
{
    pipeline_way *way = way_of(context);
    if (way->turn == LOOK) {
        TW_TRY(stage_line_send(&way->forth_out, STAGE_FP32, y, count, NULL));
        return stage_line_flush(&way->forth_out);
    }
    *back = way->turn == AGAIN;
    if (!*back)
        return stage_line_send(&way->forth_out, way->values, y, count, &(stage_note){.ends = (uint64_t)way->ended});
    TW_TRY(stage_line_receive(&way->back_in, way->values, dy, count, &way->back));
    return way->batch + 1 < way->forwarded ? stage_line_ask(&way->back_in, way->values, count) : TW_OK;
}

static int wants_stop(const worker *w)
{
    return interrupt_asked() || w->stops || way_of(w)->stops;
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
    return stage_line_send(&way->back_out, way->values, way->gradient, way->input_count, &way->back);
}

/* ---- a step ---- */

static tw_status call(worker *w, pipeline_turn turn, uint64_t batch, task_score *score)
{
    pipeline_way *way = way_of(w);
    const double begun = way->wire.seconds;
    way->turn = turn;
    way->batch = batch;
    const tw_status status = w->task->ops->step(w->learner, batch, NULL, NULL, score);
    way->turn = LOOK;
    way->seconds_wait += way->wire.seconds - begun;
    return status;
}

/* With the weights as they are. Rank 0 says which micro-batch is the last of a stretch. */
static tw_status go_forward(worker *w)
{
    pipeline_way *way = way_of(w);
    task_score score;
    const uint64_t batch = way->forwarded++;
    const float *weights = w->learner->parameters + way->parameters.begin;
    if (w->rank == 0) way->ended = batch + 1 >= w->rest || wants_stop(w);
    memcpy(way->stash + batch % way->depth * length_of(way->parameters), weights,
           length_of(way->parameters) * sizeof *weights);
    return call(w, FORWARD, batch, &score);
}

/* With the weights that the micro-batch went forward with. Running statistics have seen it. */
static tw_status go_back(worker *w)
{
    pipeline_way *way = way_of(w);
    const size_t weight_bytes = length_of(way->parameters) * sizeof(float);
    const size_t buffer_bytes = length_of(way->buffers) * sizeof(float);
    float *weights = w->learner->parameters + way->parameters.begin;
    float *buffers = w->learner->buffers + way->buffers.begin;
    memcpy(way->now, weights, weight_bytes);
    memcpy(weights, way->stash + w->step % way->depth * length_of(way->parameters), weight_bytes);
    if (buffer_bytes) memcpy(way->statistics, buffers, buffer_bytes);
    task_score score;
    TW_TRY(call(w, AGAIN, w->step, &score));
    memcpy(weights, way->now, weight_bytes);
    if (buffer_bytes) memcpy(buffers, way->statistics, buffer_bytes);
    return TW_OK;
}

/* The last stage has nothing under way. */
static tw_status go_through(worker *w)
{
    pipeline_way *way = way_of(w);
    way->forwarded = w->step + 1;
    way->back = (stage_note){.ends = 0};
    return call(w, THROUGH, w->step, &way->back.score);
}

static tw_status go_forth_and_back(worker *w)
{
    pipeline_way *way = way_of(w);
    if (way->forwarded == w->step) way->ended = 0; /* a new stretch */
    while (!way->ended && way->forwarded < w->step + way->depth) TW_TRY(go_forward(w));
    return go_back(w);
}

/* What is told of a run is rank 0's. */
static tw_status pipeline_pass(worker *w, task_score *score)
{
    pipeline_way *way = way_of(w);
    TW_TRY(is_last_stage(w) ? go_through(w) : go_forth_and_back(w));
    TW_TRY(send_back(w));
    if (w->rank == 0) *score = way->back.score;
    if (!way->ended || way->forwarded > w->step + 1) return TW_OK;
    TW_TRY(stage_line_flush(&way->forth_out)); /* collectives may follow */
    return stage_line_flush(&way->back_out);
}

static int pipeline_meets(const worker *w)
{
    return way_of(w)->ended && way_of(w)->forwarded == w->step;
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
    optimiser_step_range(w->optimiser, own.begin, own.end, l->gradients, l->parameters);
    return TW_OK;
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

/* Rank 0 has all of it, from a checkpoint: each stage gets its part. */
static tw_status pipeline_share(worker *w)
{
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    const size_t states = optimiser_buffers(w->optimiser, buffers);
    TW_TRY(move_all(w, 1));
    for (size_t i = 0; i < states; i++)
        if (buffers[i].tensors != w->learner->tensors)
            TW_TRY(tw_comm_broadcast(w->comm, 0, buffers[i].values, buffers[i].count * sizeof(float)));
    return forget_others(w);
}

static void pipeline_statistics(const worker *w, size_t *begin, size_t *end)
{
    *begin = way_of(w)->buffers.begin;
    *end = way_of(w)->buffers.end;
}

/* Each stage has drawn its own first weights. */
static tw_status pipeline_begin(worker *w)
{
    way_of(w)->forwarded = w->step;
    way_of(w)->ended = 1;
    return w->settings.resume || w->settings.init_from ? pipeline_share(w) : TW_OK;
}

static const char *pipeline_plan(const worker *w, size_t index)
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
    v[TOTAL_SECONDS_COMPUTE] -= way->seconds_wait;
    v[TOTAL_SECONDS_PASS] -= way->seconds_wait;
    return TW_OK;
}

/* Nothing is kept between stretches but what the model's file holds. */
static tw_status pipeline_regroup(worker *w, int workers, const char *prefix, tw_state_source source, void *context,
                                  tw_state *state)
{
    (void)w, (void)workers, (void)prefix, (void)source, (void)context, (void)state;
    return TW_OK;
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
    .meets = pipeline_meets,
    .pass = pipeline_pass,
    .apply = pipeline_apply,
    .plan = pipeline_plan,
    .add_totals = pipeline_add_totals,
    .regroup = pipeline_regroup,
};
