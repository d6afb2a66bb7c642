/* kills_world SEED TRIALS: seeded trials of reducers and outer loops that lose a rank, in a world of virtual time.
 *
 * Each trial takes a scheme or a method of local updates from the lists, some ranks, and a moment. At that moment one
 * rank is cut off, falls silent for longer than the deadline, or pauses for less. What has to hold:
 * - the world ends: nobody waits for what will never come;
 * - every rank that was not cut off ends well, or with TW_ERROR_PEER;
 * - what a call has given back after a failure stays as its owner left it;
 * - the run that goes on from the last step that all ranks have kept ends with the bits of the run that lost nobody,
 *   and so does a run that saw only a pause.
 * A trial depends on SEED and its number alone, so that one that fails can be run again: kills_world SEED 1 NUMBER. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_outer.h>
#include <thinwire/thinwire_plugin.h>
#include <thinwire/thinwire_sim.h>

#include "thread.h"

enum { MOST_RANKS = 6, STEPS = 5, TENSORS = 3, SIDE = 24, COUNT = SIDE * SIDE, ALL = TENSORS * COUNT };
#define DEADLINE 1.0 /* virtual seconds */
#define GRADIENT 0.01

static const tw_tensor table[TENSORS] = {{"a", 2, {SIDE, SIDE}}, {"b", 2, {SIDE, SIDE}}, {"c", 2, {SIDE, SIDE}}};

typedef enum blow { NOTHING, CUT, SILENCE, PAUSE, BLOWS } blow;
static const char *const blow_names[BLOWS] = {"nothing", "a cut", "silence", "a pause"};

/* What a rank kept after a step: all that a checkpoint holds. */
typedef struct kept {
    tw_state *state;
    float weights[ALL];
} kept;

typedef struct player {
    kept after[STEPS + 1]; /* [0]: before the first step */
    int steps;             /* taken and kept */
    tw_status status;
    char text[256];
    int scribbled; /* bytes that changed after they were this rank's again */
} player;

typedef struct run {
    char spec[160];
    int is_method;    /* of local updates */
    int ranks, first; /* the step to begin with, from what players kept after as many */
    blow blow;
    int victim;
    double at; /* virtual seconds */
    double ended;
    player *players;
} run;

static uint32_t draw(uint64_t seed, uint64_t trial, uint64_t what)
{
    uint32_t words[4];
    tw_random(seed, trial, what, words);
    return words[0];
}

/* --- one rank ------------------------------------------------------------------------------------------------ */

static void fill(float *gradient, int rank, int step, int tensor)
{
    for (size_t i = 0; i < COUNT; i++)
        gradient[i] = (float)(int32_t)draw((uint64_t)step, (uint64_t)(rank * TENSORS + tensor), i) * 0x1p-31f;
}

static void stand_still(const run *all, int rank, double *stood)
{
    double pause = all->blow == SILENCE ? 3 * DEADLINE : DEADLINE / 2;
    if (all->blow == CUT || all->blow == NOTHING || rank != all->victim || *stood > 0 || tw_clock() < all->at) return;
    *stood = pause;
    tw_world_compute(pause);
}

static void compute(const run *all, int rank, int step, int tensor, float *gradient, double *stood)
{
    tw_world_compute(GRADIENT * (1 + (rank * 7 + tensor * 3 + step) % 5) / TENSORS);
    stand_still(all, rank, stood);
    fill(gradient, rank, step, tensor);
}

static tw_status take_step(const run *all, int rank, int step, tw_reducer *reducer, float *gradients, double *stood)
{
    for (int t = TENSORS; t-- > 0;) {
        compute(all, rank, step, t, gradients + t * COUNT, stood);
        tw_status status = tw_reducer_submit(reducer, (size_t)t, gradients + t * COUNT);
        if (status != TW_OK) return status;
    }
    return tw_reducer_wait(reducer);
}

static tw_status keep(player *me, tw_reducer *reducer, tw_outer *outer, const float *weights)
{
    kept *now = &me->after[me->steps];
    memcpy(now->weights, weights, sizeof now->weights);
    tw_status status = tw_state_create(&now->state);
    if (status != TW_OK) return status;
    return outer ? tw_outer_save_state(outer, "", now->state) : tw_reducer_save_state(reducer, "", now->state);
}

static tw_status train(const run *all, int rank, tw_reducer *reducer, float *gradients)
{
    player *me = &all->players[rank];
    const kept *start = &me->after[all->first];
    float weights[ALL];
    double stood = 0;
    memcpy(weights, start->weights, sizeof weights);
    tw_status status = start->state ? tw_reducer_load_state(reducer, "", start->state) : TW_OK;
    while (status == TW_OK && me->steps < STEPS) {
        status = take_step(all, rank, me->steps, reducer, gradients, &stood);
        if (status != TW_OK) return status;
        for (int i = 0; i < ALL; i++) weights[i] -= 0.1f * gradients[i];
        me->steps++;
        status = keep(me, reducer, NULL, weights);
    }
    return status;
}

/* Who has taken its steps waits until all have. */
static tw_status train_apart(const run *all, int rank, tw_outer *outer, float *weights)
{
    player *me = &all->players[rank];
    const kept *start = &me->after[all->first];
    float gradient[COUNT], *parts[TENSORS];
    double stood = 0;
    for (int t = 0; t < TENSORS; t++) parts[t] = weights + t * COUNT;
    memcpy(weights, start->weights, sizeof start->weights);
    tw_status status = start->state ? tw_outer_load_state(outer, "", start->state) : TW_OK;
    if (status == TW_OK) status = tw_outer_begin(outer, parts);
    while (status == TW_OK && me->steps < STEPS) {
        tw_outer_event event;
        for (int t = 0; t < TENSORS; t++) {
            compute(all, rank, me->steps, t, gradient, &stood);
            for (int i = 0; i < COUNT; i++) parts[t][i] -= 0.1f * gradient[i];
        }
        status = tw_outer_step(outer, parts, &event);
        if (status != TW_OK) return status;
        me->steps++;
        status = keep(me, NULL, outer, weights);
        if (status != TW_OK) me->steps--; /* to save waits for others, who may be lost */
    }
    return status == TW_OK ? tw_outer_finish(outer, parts) : status;
}

/* `values`: where the gradients stand, or the weights of local updates. */
static tw_status live(const run *all, int rank, tw_comm *comm, float *values)
{
    tw_reducer *reducer = NULL;
    tw_outer *outer = NULL;
    tw_status status = all->is_method ? tw_outer_create(comm, all->spec, table, TENSORS, &outer)
                                      : tw_reducer_create(comm, all->spec, table, TENSORS, &reducer);
    if (status == TW_OK) status = outer ? train_apart(all, rank, outer, values) : train(all, rank, reducer, values);
    if (status != TW_OK) snprintf(all->players[rank].text, sizeof all->players[rank].text, "%s", tw_last_error());
    tw_reducer_destroy(reducer);
    tw_outer_destroy(outer);
    return status;
}

static void *cut_in_time(void *argument)
{
    const run *all = argument;
    tw_pause(all->at);
    tw_world_kill();
    return NULL;
}

/* After a failure and the end of what exchanged them these are this rank's alone, for as long as anybody else runs. */
static int count_scribbles(float *values)
{
    unsigned char *bytes = (unsigned char *)values;
    int changed = 0;
    memset(bytes, 0xa5, ALL * sizeof *values);
    tw_world_compute(10 * DEADLINE);
    for (size_t i = 0; i < ALL * sizeof *values; i++) changed += bytes[i] != 0xa5;
    return changed;
}

static void play(void *context, int rank, tw_comm *comm)
{
    run *all = context;
    player *me = &all->players[rank];
    tw_thread killer;
    float *values = calloc(ALL, sizeof *values);
    int mortal = all->blow == CUT && rank == all->victim;
    if (!values || (mortal && tw_thread_start(&killer, cut_in_time, all) != TW_OK)) abort();
    tw_comm_set_timeout(comm, DEADLINE);
    me->status = live(all, rank, comm, values);
    if (tw_clock() > all->ended) all->ended = tw_clock();
    if (mortal) tw_thread_join(killer);
    if (me->status != TW_OK) me->scribbled = count_scribbles(values);
    free(values);
}

/* --- one run ------------------------------------------------------------------------------------------------- */

static run *create_run(const char *spec, int is_method, int ranks)
{
    run *made = calloc(1, sizeof *made);
    if (made) made->players = calloc((size_t)ranks, sizeof *made->players);
    if (!made || !made->players) abort();
    snprintf(made->spec, sizeof made->spec, "%s", spec);
    made->is_method = is_method;
    made->ranks = ranks;
    return made;
}

static void destroy_run(run *all)
{
    for (int r = 0; r < all->ranks; r++)
        for (int s = 0; s <= STEPS; s++) tw_state_destroy(all->players[r].after[s].state);
    free(all->players);
    free(all);
}

/* NULL, or what went wrong with the world itself. */
static const char *perform(run *all)
{
    tw_world *world;
    tw_world_options options = {
        .struct_size = sizeof options, .workers = all->ranks, .bandwidth = 1e6, .latency = 1e-4, .time_limit = 1000};
    if (tw_world_create(&options, &world) != TW_OK) return tw_last_error();
    tw_status status = tw_world_run(world, play, all);
    tw_world_destroy(world);
    return status == TW_OK ? NULL : tw_last_error();
}

/* The run that goes on after `lost`, from the last step that every rank has kept. */
static run *continue_run(const run *lost)
{
    run *next = create_run(lost->spec, lost->is_method, lost->ranks);
    next->first = STEPS;
    for (int r = 0; r < lost->ranks; r++)
        if (lost->players[r].steps < next->first) next->first = lost->players[r].steps;
    for (int r = 0; r < lost->ranks; r++) {
        kept *from = &lost->players[r].after[next->first], *to = &next->players[r].after[next->first];
        memcpy(to->weights, from->weights, sizeof to->weights);
        to->state = from->state;
        from->state = NULL;
        next->players[r].steps = next->first;
    }
    return next;
}

/* --- one trial ----------------------------------------------------------------------------------------------- */

static int complain(uint64_t seed, uint64_t trial, const run *all, const char *what, const char *text)
{
    fprintf(stderr, "kills_world %llu 1 %llu: %s, %d ranks, %s for rank %d at %.4f s: %s%s%s\n",
            (unsigned long long)seed, (unsigned long long)trial, all->spec, all->ranks, blow_names[all->blow],
            all->victim, all->at, what, *text ? ": " : "", text);
    return 1;
}

static int ends_alike(const run *one, const run *other)
{
    for (int r = 0; r < one->ranks; r++)
        if (memcmp(one->players[r].after[STEPS].weights, other->players[r].after[STEPS].weights,
                   sizeof one->players[r].after[STEPS].weights) != 0)
            return 0;
    return 1;
}

static int all_ended_well(const run *all)
{
    for (int r = 0; r < all->ranks; r++)
        if (all->players[r].status != TW_OK || all->players[r].steps != STEPS) return 0;
    return 1;
}

static int look_at(uint64_t seed, uint64_t trial, const run *all)
{
    for (int r = 0; r < all->ranks; r++) {
        const player *me = &all->players[r];
        if (me->scribbled) return complain(seed, trial, all, "memory that had been given back was written to", "");
        if (me->status != TW_OK && me->status != TW_ERROR_PEER)
            return complain(seed, trial, all, tw_status_name(me->status), me->text);
    }
    if (all->blow == PAUSE && !all_ended_well(all)) return complain(seed, trial, all, "a pause ended the run", "");
    return 0;
}

static int compare_continued(uint64_t seed, uint64_t trial, const run *lost, const run *whole, int *resumed)
{
    run *next = continue_run(lost);
    const char *fault = perform(next);
    int failed = 0;
    *resumed = next->first < STEPS;
    if (fault)
        failed = complain(seed, trial, lost, "the continued run", fault);
    else if (!all_ended_well(next) || !ends_alike(next, whole))
        failed = complain(seed, trial, lost, "the continued run has other bits", next->players[0].text);
    destroy_run(next);
    return failed;
}

static int takes(size_t (*help)(size_t, char *, size_t), size_t index, const char *option)
{
    char page[8192], name[32];
    help(index, page, sizeof page);
    snprintf(name, sizeof name, "\n  %s ", option);
    return strstr(page, name) != NULL;
}

/* Packets of few ranks go in pieces, too, where they can; by default only those of many do. */
static void choose_scheme(size_t scheme, int overlap, int per_host, char *spec, size_t room)
{
    snprintf(spec, room, "%s:message_kb=1,overlap=%s,per_host=%d%s", tw_schemes_name(scheme), overlap ? "on" : "off",
             per_host, takes(tw_schemes_help, scheme, "exchange") ? ",exchange=scatter" : "");
}

/* Rounds are under way while ranks go on, where they can be. */
static void choose_method(size_t method, int eager, int per_host, char *spec, size_t room)
{
    snprintf(spec, room, "%s:every=4,message_kb=1,per_host=%d%s%s", tw_outers_name(method), per_host,
             takes(tw_outers_help, method, "fragments") ? ",fragments=2,delay=1" : "",
             eager && takes(tw_outers_help, method, "eager") ? ",eager=on" : "");
}

static int try_once(uint64_t seed, uint64_t trial, int *resumed)
{
    char spec[160];
    size_t way = draw(seed, trial, 0) % (tw_schemes_count() + tw_outers_count());
    const int is_method = way >= tw_schemes_count(), drawn = draw(seed, trial, 2) % 2;
    int ranks = 2 + (int)(draw(seed, trial, 1) % (MOST_RANKS - 1));
    int per_host = ranks % 2 == 0 && draw(seed, trial, 6) % 2 ? 2 : 1;
    if (is_method)
        choose_method(way - tw_schemes_count(), drawn, per_host, spec, sizeof spec);
    else
        choose_scheme(way, drawn, per_host, spec, sizeof spec);
    run *whole = create_run(spec, is_method, ranks), *lost = create_run(spec, is_method, ranks);
    const char *fault = perform(whole);
    lost->blow = CUT + (blow)(draw(seed, trial, 3) % (BLOWS - CUT));
    lost->victim = (int)(draw(seed, trial, 4) % (unsigned)ranks);
    lost->at = whole->ended * draw(seed, trial, 5) / 4294967296.0;
    int failed = fault || !all_ended_well(whole);
    if (failed) complain(seed, trial, whole, "the run that loses nobody", fault ? fault : whole->players[0].text);
    fault = failed ? NULL : perform(lost);
    if (fault) failed = complain(seed, trial, lost, "the world did not end", fault);
    if (!failed) failed = look_at(seed, trial, lost);
    if (!failed) failed = compare_continued(seed, trial, lost, whole, resumed);
    destroy_run(lost);
    destroy_run(whole);
    return failed;
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t trials = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
    uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 10) : 0, failed = 0, continued = 0;
    for (uint64_t trial = first; trial < first + trials; trial++) {
        int resumed = 0;
        failed += (uint64_t)try_once(seed, trial, &resumed);
        continued += (uint64_t)resumed;
    }
    printf("%llu trials, %llu runs continued, %llu failed\n", (unsigned long long)trials, (unsigned long long)continued,
           (unsigned long long)failed);
    return failed != 0;
}
