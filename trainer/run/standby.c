/* A pipeline whose lost workers are replaced: --pipeline stages=P,standby=S. Its workers are a group (see group.h).
 * Each generation is a run of its own by P of them, on from the newest checkpoint, while the others wait. Where one
 * is lost, the generation is over for all of them: they tell each other how they fared, and each works out by
 * itself, from the same words, who is which stage now. That the run is over, well or not, is told in the same way. */
#include "error.h"
#include "exit.h"
#include "folder.h"
#include "interrupt.h"
#include "launcher.h"
#include "pipeline_plan.h"
#include "run_lock.h"
#include "run_state.h"
#include "words.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SILENCE 60.0 /* seconds, where nobody has told --timeout */
#define FOREVER 1e9  /* of one who stands by: nobody is late for it */

enum {
    ADDRESS = 320,
    REASON = 512,
    NAP = 100,    /* milliseconds between two looks for workers that are still to come */
    FRUITLESS = 3 /* generations with the same workers and no checkpoint between them, after which the run ends */
};

/* What a worker tells the others when a generation begins. */
typedef struct word {
    int32_t stage;   /* its own in the generation before; -1: none */
    int32_t started; /* it knows that the run has */
    int32_t ended;   /* the run is over, as these say: */
    int32_t status, interrupted, diverged;
    int32_t continues; /* it was told to go on with the run in its folder */
    int32_t begun;     /* as in run_trace; */
    int64_t saved;
    int64_t newest; /* and the checkpoint in this worker's own folder */
    char address[ADDRESS], reason[REASON], pipeline[sizeof((run_trace *)0)->pipeline];
} word;

typedef struct lineup {
    const train_settings *settings;
    const task *work;
    group *group;
    run_trace trace;
    size_t stages;
    word own, words[TW_MEMBERS_MOST]; /* of all in the generation; */
    int count;
    uint64_t rounds;                        /* as group_next has it: generations */
    int seats[PIPELINE_STAGES];             /* the rank of each stage */
    char holders[PIPELINE_STAGES][ADDRESS]; /* and its worker's address */
    int before;                             /* how many there were in the last generation with this one */
    int64_t from;                           /* the checkpoint that it went on from */
    int fruitless;
    int over; /* as all know */
} lineup;

/* ---- words ------------------------------------------------------------------------------------------------------- */

static int64_t newest_checkpoint(const char *out)
{
    char checkpoint[FOLDER_PATH];
    return folder_find(out, 0, checkpoint) == TW_OK ? (int64_t)folder_step(checkpoint) : -1;
}

/* Whoever was taken for lost meanwhile comes back without its stage. */
static void prepare_word(lineup *l)
{
    word *own = &l->own;
    if (!l->group->place.kept) {
        own->stage = -1;
        l->before = 0;
    }
    own->begun = l->trace.begun;
    own->saved = l->trace.saved;
    own->newest = newest_checkpoint(l->settings->out);
    own->continues = journal_continues(l->settings);
    snprintf(own->address, sizeof own->address, "%s", group_address(l->group));
    snprintf(own->pipeline, sizeof own->pipeline, "%s", l->trace.pipeline);
}

/* What one of them knows, all do. It is another's word. */
static tw_status learn(lineup *l, word *told)
{
    told->address[ADDRESS - 1] = told->reason[REASON - 1] = told->pipeline[sizeof told->pipeline - 1] = 0;
    l->own.started |= told->started != 0;
    l->trace.begun |= told->begun != 0;
    if (told->saved > l->trace.saved) l->trace.saved = told->saved;
    if (!*l->trace.pipeline) memcpy(l->trace.pipeline, told->pipeline, sizeof told->pipeline);
    return words_check_printed(TW_ERROR_PACKET, "the address that a worker tells of itself", told->address);
}

static tw_status hear_words(lineup *l)
{
    tw_comm *whole = l->trace.whole;
    l->count = tw_comm_size(whole);
    prepare_word(l);
    TW_TRY(tw_comm_allgather(whole, &l->own, sizeof l->own, l->words));
    l->group->has_weights = 1; /* as one who can go on */
    l->rounds = l->group->place.number;
    for (int r = 0; r < l->count; r++) TW_TRY(learn(l, &l->words[r]));
    return TW_OK;
}

/* The run is over for this worker, and will be for all: the others hear of it in the next generation. */
static void end_with(lineup *l, tw_status status, const run_result *result)
{
    l->own.ended = 1;
    l->own.status = status;
    l->own.interrupted = result->interrupted;
    l->own.diverged = result->diverged;
    snprintf(l->own.reason, sizeof l->own.reason, "%s", status == TW_OK ? "" : tw_last_error());
}

/* This worker need not tell the others, who come to this end by themselves or hear that it is gone. */
static void end_alone(lineup *l, tw_status status)
{
    end_with(l, status, &(run_result){0});
    l->over = 1;
}

static int find_ended(lineup *l)
{
    int r = 0;
    while (r < l->count && !l->words[r].ended) r++;
    if (r == l->count) return 0;
    if (!l->own.ended) l->own = l->words[r];
    l->over = 1;
    return 1;
}

static tw_status take_end(const lineup *l, run_result *result)
{
    const word *own = &l->own;
    result->interrupted = own->interrupted;
    result->diverged = own->diverged;
    return own->status == TW_OK ? TW_OK : tw_fail((tw_status)own->status, "%s", own->reason);
}

/* ---- before the start -------------------------------------------------------------------------------------------- */

/* Returns its seconds as they were asked for. Where it took longer, this process was stopped or its machine asleep,
 * which says nothing of the others. */
static double nap(void)
{
    struct timespec left = {.tv_nsec = NAP * 1000000L};
    (void)nanosleep(&left, NULL);
    return NAP * 1e-3;
}

/* The first of them counts for all. Each that comes begins another generation. */
static tw_status await_others(lineup *l)
{
    const train_settings *s = l->settings;
    const int first = tw_comm_rank(l->trace.whole) == 0;
    double waited = 0, most = s->timeout;
    TW_TRY(launcher_read_seconds(&most));
    interrupt_ends_with(EXIT_INTERRUPTED);
    for (;;) {
        TW_TRY(group_stay(l->group, l->trace.whole));
        if (first && waited >= most) break;
        waited += nap();
    }
    const tw_status late = tw_fail(TW_ERROR_PEER,
                                   "%d of --workers %ld have come, and nobody else within %g seconds; the run needs "
                                   "all to begin",
                                   l->count, s->workers, most);
    end_with(l, late, &(run_result){0});
    return TW_OK;
}

/* ---- who is which stage ------------------------------------------------------------------------------------------ */

/* Who has a stage keeps it; the others get what is vacant, in the order of their ranks. Returns whether there are
 * enough of them; fresh[s]: stage s has another worker than before. */
static int take_seats(lineup *l, int fresh[PIPELINE_STAGES])
{
    int seated[TW_MEMBERS_MOST] = {0}, next = 0;
    for (size_t s = 0; s < l->stages; s++) fresh[s] = 1;
    for (int r = 0; r < l->count; r++) {
        const int32_t stage = l->words[r].stage;
        if (stage < 0 || (size_t)stage >= l->stages || !fresh[stage]) continue;
        l->seats[stage] = r;
        fresh[stage] = 0;
        seated[r] = 1;
    }
    for (size_t s = 0; s < l->stages; s++) {
        if (!fresh[s]) continue;
        while (next < l->count && seated[next]) next++;
        if (next == l->count) return 0;
        l->seats[s] = next++;
    }
    return 1;
}

static void find_own_stage(lineup *l)
{
    l->own.stage = -1;
    for (size_t s = 0; s < l->stages; s++)
        if (l->seats[s] == tw_comm_rank(l->trace.whole)) l->own.stage = (int32_t)s;
}

static tw_status refuse_too_few(const lineup *l, const int fresh[PIPELINE_STAGES])
{
    size_t lost = 0;
    while (!fresh[lost]) lost++;
    return tw_fail(
        TW_ERROR_PEER,
        "the worker of stage %zu is lost, and nobody stands by: %d workers are left for %zu stages; thinwire "
        "train --resume %s goes on from the last checkpoint",
        lost, l->count, l->stages, l->settings->out);
}

/* What the generation goes on from: "" is the newest checkpoint in the run's folder. Before there is one, the run
 * begins once more as it was told to. One that nobody knows of may have been written just before its writer was
 * lost, or be of the course that a run in its own folder leaves. */
static const char *choose_start(const lineup *l)
{
    const word *first = &l->words[l->seats[0]];
    const int has_one = l->trace.begun && first->newest >= 0 && !first->continues;
    return l->trace.saved >= 0 || has_one ? "" : l->settings->resume;
}

/* Worker 0 alone reads and writes the network's file. */
static tw_status check_folder(const lineup *l)
{
    const word *first = &l->words[l->seats[0]];
    if (first->newest >= l->trace.saved) return TW_OK;
    return tw_fail(
        TW_ERROR_IO,
        "the worker at %s takes the place of worker 0, and its --out has no checkpoint of step %lld: give all "
        "workers one folder that they share",
        first->address, (long long)l->trace.saved);
}

/* The same workers that lose each other at the same place would do so for ever. */
static tw_status check_progress(lineup *l, int is_fresh)
{
    const int same = !is_fresh && l->count == l->before && l->trace.saved == l->from;
    l->fruitless = same ? l->fruitless + 1 : 0;
    l->from = l->trace.saved;
    if (l->fruitless < FRUITLESS) return TW_OK;
    return tw_fail(TW_ERROR_PEER, "%d times in a row no worker was lost, and the run came to no checkpoint: %s",
                   FRUITLESS, l->own.reason);
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static void tell_own_place(const lineup *l)
{
    if (l->own.stage < 0)
        fprintf(stderr, "thinwire: this worker stands by for %zu stage%s\n", l->stages, l->stages == 1 ? "" : "s");
    else
        fprintf(stderr, "thinwire: this worker is stage %d of %zu; standing by: %d\n", (int)l->own.stage, l->stages,
                l->count - (int)l->stages);
}

static void describe_change(const lineup *l, const int fresh[PIPELINE_STAGES], FILE *line)
{
    int lost = 0;
    for (size_t s = 0; s < l->stages; s++)
        if (fresh[s])
            fprintf(line, "%sthe worker of stage %zu, at %s, is lost, and the one at %s takes its place",
                    lost++ ? "; " : "", s, l->holders[s], l->words[l->seats[s]].address);
    if (lost == 0)
        fprintf(line, "%s",
                l->count < l->before   ? "a worker that stood by is lost"
                : l->count > l->before ? "a worker has come to stand by"
                                       : "the workers had lost each other");
}

static void tell_change(const lineup *l, const int fresh[PIPELINE_STAGES])
{
    char *text;
    size_t size;
    FILE *line = open_memstream(&text, &size);
    if (!line) return;
    const char *start = choose_start(l);
    describe_change(l, fresh, line);
    if (start && !*start) fprintf(line, "; the run goes on from step %lld", (long long)l->words[l->seats[0]].newest);
    if (!start || *start) fprintf(line, "; the run begins again");
    if (fclose(line) == 0) fprintf(stderr, "thinwire: %s\n", text);
    free(text);
}

static void tell(const lineup *l, const int fresh[PIPELINE_STAGES])
{
    if (l->settings->quiet) return;
    if (l->before > 0)
        tell_change(l, fresh);
    else
        tell_own_place(l);
}

/* ---- a generation ------------------------------------------------------------------------------------------------ */

/* The folder's lock goes with a worker that is lost: at once on its machine, after a while where its machine is gone. A
 * silent one keeps it, and the run will be refused. */
static void await_folder(const lineup *l)
{
    run_lock *lock = NULL;
    double waited = 0;
    while (run_lock_take(l->settings->out, &lock) == TW_ERROR_ARGUMENT && waited < tw_comm_timeout(l->trace.whole))
        waited += nap();
    run_lock_release(lock);
}

/* What a lost worker alone had in the checkpoint is nothing that the network needs. */
static tw_status run_own_stage(lineup *l, run_result *result)
{
    tw_comm *stages;
    train_settings settings = *l->settings;
    const char *start = choose_start(l);
    settings.changing = false;
    settings.resume = (char *)(uintptr_t)start;
    settings.forget_lost |= start && !*start;
    if (*l->trace.pipeline) settings.pipeline = l->trace.pipeline;
    if (l->own.stage == 0 && l->trace.begun) await_folder(l);
    TW_TRY(tw_comm_create_part(l->trace.whole, l->seats, (int)l->stages, &stages));
    const tw_status status = run_stage(&settings, l->work, stages, &l->trace, result);
    snprintf(l->own.reason, sizeof l->own.reason, "%s", tw_last_error());
    tw_comm_destroy(stages);
    return status == TW_OK ? TW_OK : tw_fail(status, "%s", l->own.reason);
}

static tw_status train(lineup *l)
{
    run_result result = {0};
    const tw_status status = run_own_stage(l, &result);
    if (status == TW_ERROR_PEER) return status;
    end_with(l, status, &result);
    return TW_OK;
}

/* It has nothing to keep. The stages meet it after each checkpoint. */
static tw_status stand_by(const lineup *l)
{
    tw_status status;
    interrupt_ends_with(EXIT_INTERRUPTED);
    TW_TRY(tw_comm_set_patience(l->trace.whole, FOREVER));
    l->group->stands_by = 1;
    while ((status = group_stay(l->group, l->trace.whole)) == TW_OK) continue;
    l->group->stands_by = 0;
    return status;
}

/* Of the workers that are there, those that the run goes on with. */
static tw_status line_up(lineup *l)
{
    int fresh[PIPELINE_STAGES], is_fresh = 0;
    if (!take_seats(l, fresh)) return refuse_too_few(l, fresh);
    for (size_t s = 0; s < l->stages; s++) is_fresh |= fresh[s];
    find_own_stage(l);
    TW_TRY(check_folder(l));
    TW_TRY(check_progress(l, is_fresh));
    tell(l, fresh);
    for (size_t s = 0; s < l->stages; s++) memcpy(l->holders[s], l->words[l->seats[s]].address, ADDRESS);
    l->before = l->count;
    l->own.started = 1;
    return TW_OK;
}

/* A group's own limit follows the time between its meetings, which says nothing of a pipeline. */
static tw_status set_limit(const lineup *l)
{
    const train_settings *s = l->settings;
    const int told = options_source(s->set, "timeout") > OPTION_FROM_RUN;
    return tw_comm_set_timeout(l->trace.whole, told ? s->timeout : SILENCE);
}

static tw_status live(lineup *l)
{
    TW_TRY(set_limit(l));
    TW_TRY(hear_words(l));
    if (find_ended(l)) { /* as all have heard: newcomers hear it, too */
        group_finish(l->group, l->trace.whole);
        return TW_OK;
    }
    if (!l->own.started && l->count < l->settings->workers) return await_others(l);
    const tw_status status = line_up(l);
    if (status != TW_OK) end_alone(l, status);
    if (l->over) return TW_OK;
    return l->own.stage < 0 ? stand_by(l) : train(l);
}

/* What fails here by itself, others notice. */
static void live_in(lineup *l)
{
    const tw_status status = live(l);
    if (status == TW_ERROR_PEER) snprintf(l->own.reason, sizeof l->own.reason, "%s", tw_last_error());
    if (status != TW_OK && status != TW_ERROR_PEER) end_alone(l, status);
    if (status != TW_OK) tw_comm_leave(l->trace.whole);
    tw_comm_destroy(l->trace.whole);
}

static tw_status live_on(lineup *l, run_result *result)
{
    while (!l->over) {
        interrupt_ends_with(0); /* who gets a stage ends the run with all, and who stands by again hears it then */
        const tw_status status = group_next(l->group, l->rounds, 0, &l->trace.whole);
        if (status != TW_OK && l->own.ended) break;
        result->interrupted = status != TW_OK && interrupt_asked() && !l->group->was_in;
        if (status != TW_OK) return result->interrupted ? TW_OK : status;
        live_in(l);
    }
    return take_end(l, result);
}

tw_status run_lineup(const train_settings *settings, const task *work, group *g, run_result *result)
{
    pipeline_plan plan = {0};
    *result = (run_result){0};
    TW_TRY(pipeline_plan_parse(settings->pipeline, &plan));
    lineup *l = calloc(1, sizeof *l);
    if (!l) return tw_fail(TW_ERROR_MEMORY, "no memory for a pipeline's workers");
    l->settings = settings;
    l->work = work;
    l->group = g;
    l->stages = plan.stages;
    l->trace.group = g;
    l->trace.saved = l->from = l->own.stage = -1;
    const tw_status status = live_on(l, result);
    free(l);
    return status;
}
