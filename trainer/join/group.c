#include "group.h"
#include "agree.h"
#include "error.h"
#include "exchange.h"
#include "interrupt.h"
#include "join.h"
#include "pipeline_plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#define PATIENCE 1800.0 /* seconds, where none is told: as of tw_members_options */
#define WAITS 10.0      /* seconds that a worker which is to end waits for the next round */

/* A run that goes on may have been one worker's: then it opens a group. */
int group_is_wished(const train_settings *s)
{
    int told = options_source(s->set, "workers") > OPTION_FROM_RUN;
    if (pipeline_standby(s->pipeline) > 0) return 1;
    return s->join && (s->workers == 0 || (s->workers == 1 && !told));
}

/* ---- what goes with it ------------------------------------------------------------------------------------------- */

/* Each worker has to have steps of its own between two meetings. A spec that is none is refused elsewhere. */
static tw_status check_sync(const train_settings *s)
{
    size_t scheme;
    const exchange *way = exchange_find(s->sync, &scheme);
    int fits = !way || way->side_by_side || !exchange_is_synchronous(way, scheme);
    if (strcmp(s->sync, SYNC_AUTO) != 0 && fits) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--join without --workers is a group whose workers come and go: it takes local updates, such as "
                   "--sync diloco:every=30, or asynchronous gossip, such as --sync adpsgd-random; or give --workers N, "
                   "who stay, for --sync %s",
                   s->sync);
}

/* A pipeline whose lost workers are replaced: by processes, which are not lost together. */
static tw_status check_standby(const train_settings *s)
{
    pipeline_plan plan = {0};
    TW_TRY(pipeline_plan_parse(s->pipeline, &plan));
    const size_t workers = plan.stages + plan.standby;
    if (!s->join)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--pipeline %s: workers that stand by are processes, started one by one with --join HOST:PORT; "
                       "threads, and ranks of mpirun, end together",
                       s->pipeline);
    if (workers > TW_MEMBERS_MOST)
        return tw_fail(TW_ERROR_ARGUMENT, "--pipeline %s: that is %zu workers, and a group has %d at most", s->pipeline,
                       workers, TW_MEMBERS_MOST);
    if ((size_t)s->workers != workers)
        return tw_fail(TW_ERROR_ARGUMENT, "--pipeline %s goes with --workers %zu, those that stand by included",
                       s->pipeline, workers);
    if (s->out && *s->out) return TW_OK;
    return tw_fail(
        TW_ERROR_ARGUMENT,
        "--pipeline %s needs --out DIR, a folder that all workers share: who takes a lost worker's place goes "
        "on from the checkpoint in it",
        s->pipeline);
}

/* Each worker has the whole model. */
static tw_status check_replicas(const train_settings *s)
{
    if (s->pipeline || s->slow || s->pause || s->memory_budget || s->dump_gradients)
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "--pipeline, --slow, --pause, --memory-budget and --dump-gradients need --workers N: they do not "
            "go with workers that come and go");
    return check_sync(s);
}

tw_status group_check(const train_settings *s)
{
    TW_TRY(pipeline_standby(s->pipeline) > 0 ? check_standby(s) : check_replicas(s));
    if (s->transport == TRANSPORT_THREADS || s->transport == TRANSPORT_MPI)
        return tw_fail(TW_ERROR_ARGUMENT, "--join goes with --transport tcp, which it implies; leave --transport out");
    if (s->rank >= 0)
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "--rank %ld: where workers come and go, their ranks follow from the order in which they come; leave "
            "it out",
            s->rank);
    return s->seal && !s->key_file
               ? tw_fail(TW_ERROR_ARGUMENT, "--seal needs --key-file FILE, the same on all machines")
               : TW_OK;
}

#ifdef TRAINER_HAS_GROUPS

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Who is turned away tries again and again, and is told of once. "refused besides: 7; the last: " and who that was. */
static void tell_refused(void *context, const char *text)
{
    static const char last[] = "; the last: ";
    group *g = context;
    const char *at = strstr(text, last);
    if (at) text = at + strlen(last);
    const uint32_t mark = tw_crc32c(0, text, strlen(text));
    for (int i = 0; i < g->refused; i++)
        if (g->told[i] == mark) return;
    if (g->quiet || g->refused == GROUP_REFUSED) return;
    g->told[g->refused++] = mark;
    fprintf(stderr, "thinwire: %s\n", text);
}

/* One that waits to be let in has nothing to end well. A member does what it was asked to between two rounds, unless it
 * waits for long to come to one. A pipeline's does it once there is a line again. */
static int is_stopped(void *context)
{
    group *g = context;
    if (g->leaves || !interrupt_asked() || (g->was_in && g->has_line)) return 0;
    if (g->asked <= 0) g->asked = tw_clock();
    return !g->was_in || tw_clock() - g->asked > WAITS;
}

static tw_status join_members(const train_settings *s, const char *subject, group *g)
{
    int told = options_source(s->set, "timeout") > OPTION_FROM_RUN; /* else the group's own, which is shorter */
    tw_members_options limits = {.struct_size = sizeof limits, .grace = told ? s->timeout : 0, .patience = s->patience};
    tw_tcp_options tcp = {
        .struct_size = sizeof tcp, .refused = tell_refused, .stopped = is_stopped, .context = g, .sealed = s->seal};
    const char *key_file = s->key_file ? s->key_file : getenv("THINWIRE_KEY_FILE");
    TW_TRY(tw_members_environment(&tcp));
    if (key_file) {
        TW_TRY(tw_seal_read_key(key_file, g->key, NULL));
        tcp.key = g->key;
        tcp.key_size = sizeof g->key;
    }
    return tw_members_join(s->join, subject, &limits, &tcp, &g->members);
}

/* A line for each thing that all have to have alike. */
static char *describe(const train_settings *s, const task *work)
{
    char data[AGREE_DATA_TEXT], held_out[AGREE_DATA_TEXT], *text = NULL, *list = join_list_options(s);
    agree_data_text(work, data);
    agree_held_out_text(work, held_out);
    if (list && asprintf(&text, "%s%s\n%s\n", list, data, held_out) < 0) text = NULL;
    free(list);
    return text;
}

tw_status group_open(const train_settings *s, const task *work, group *g)
{
    *g = (group){.patience = s->patience > 0 ? s->patience : PATIENCE,
                 .quiet = s->quiet,
                 .meeting = s->join,
                 .seals = s->seal,
                 .place = {.struct_size = sizeof g->place}};
    g->has_line = pipeline_standby(s->pipeline) > 0;
    char *subject = describe(s, work);
    if (!subject) return tw_fail(TW_ERROR_MEMORY, "no memory to describe the run");
    tw_status status = join_members(s, subject, g);
    free(subject);
    g->has_weights = tw_members_opened(g->members);
    return status;
}

void group_close(group *g)
{
    tw_members_destroy(g->members);
    explicit_bzero(g->key, sizeof g->key);
}

/* ---- generations ------------------------------------------------------------------------------------------------- */

/* Each has a terminal of its own. Rank 0 tells of the generations. */
static void tell_coming(const group *g)
{
    if (g->quiet || g->was_in) return;
    if (g->has_weights)
        fprintf(stderr, "thinwire: this worker opens a group at %s; others come with the same command\n", g->meeting);
    else
        fprintf(stderr,
                "thinwire: coming to the group at %s, which lets newcomers in when its workers meet; this worker tries "
                "for up to %g seconds\n",
                g->meeting, g->patience);
}

/* Why it waits. What the library tells between two waits is in the run's results. */
static void tell_waiting(void *context, tw_log_level level, const char *text)
{
    const group *g = context;
    if (!g->quiet && level == TW_LOG_WARNING) fprintf(stderr, "thinwire: %s\n", text);
}

static void note_generation(group *g)
{
    int size = g->place.size;
    g->least = g->was_in && g->least < size ? g->least : size;
    g->most = g->most > size ? g->most : size;
    if (!g->quiet && !g->was_in && g->place.rank > 0)
        fprintf(stderr, "thinwire: in the group as rank %d of %d; others may come to %s\n", g->place.rank, size,
                tw_members_address(g->members));
    g->was_in = 1;
}

/* One that has stopped waiting leaves, so that the others need not wait for it. */
static tw_status wait_for_next(group *g, int64_t rounds, int leaves, tw_comm **comm)
{
    g->leaves = leaves;
    tw_status status = tw_members_next(g->members, rounds, leaves, &g->place, comm);
    if (status != TW_ERROR_PEER || !g->was_in || !is_stopped(g)) return status;
    g->leaves = 1;
    return tw_members_next(g->members, rounds, 1, &g->place, comm);
}

tw_status group_next(group *g, uint64_t rounds, int leaves, tw_comm **comm)
{
    tw_status status;
    tell_coming(g);
    do {
        tw_comm *plain;
        tw_set_log(tell_waiting, g);
        status = wait_for_next(g, g->has_weights ? (int64_t)rounds : -1, leaves, &plain);
        tw_set_log(NULL, NULL);
        TW_TRY(status);
        g->has_weights = g->has_weights && g->place.kept;
        *comm = plain;
        status = plain && g->seals ? tw_comm_create_sealed(plain, g->key, sizeof g->key, comm) : TW_OK;
    } while (status == TW_ERROR_PEER);
    if (status == TW_OK && *comm) note_generation(g);
    return status;
}

const char *group_address(const group *g)
{
    return tw_members_address(g->members);
}

static tw_status meet(group *g, tw_comm *comm, tw_members_wish wish, tw_members_outcome *due)
{
    if (!g->stands_by) tw_set_log(tell_waiting, g);
    const tw_status status = tw_members_due(g->members, comm, wish, due);
    tw_set_log(NULL, NULL);
    return status;
}

tw_status group_look(group *g, tw_comm *comm, int leaves, int *changes)
{
    tw_members_outcome due;
    TW_TRY(meet(g, comm, leaves ? TW_MEMBERS_LEAVE : TW_MEMBERS_STAY, &due));
    *changes = due != TW_MEMBERS_SAME;
    return TW_OK;
}

/* The run is over, and lacks nothing, also where one of the others is lost by now. */
void group_finish(group *g, tw_comm *comm)
{
    tw_members_outcome due;
    (void)meet(g, comm, TW_MEMBERS_FINISH, &due);
}

#else

tw_status group_open(const train_settings *s, const task *work, group *g)
{
    (void)s, (void)work, (void)g;
    return tw_fail(TW_ERROR_UNSUPPORTED, "this thinwire was built without sockets: workers cannot come and go");
}

void group_close(group *g)
{
    (void)g;
}

tw_status group_next(group *g, uint64_t rounds, int leaves, tw_comm **comm)
{
    (void)g, (void)rounds, (void)leaves, (void)comm;
    return tw_fail(TW_ERROR_UNSUPPORTED, "no sockets");
}

const char *group_address(const group *g)
{
    (void)g;
    return "";
}

tw_status group_look(group *g, tw_comm *comm, int leaves, int *changes)
{
    (void)g, (void)comm, (void)leaves, (void)changes;
    return tw_fail(TW_ERROR_UNSUPPORTED, "no sockets");
}

void group_finish(group *g, tw_comm *comm)
{
    (void)g, (void)comm;
}

#endif

tw_status group_stay(group *g, tw_comm *comm)
{
    int changes = 0;
    TW_TRY(group_look(g, comm, 0, &changes));
    return changes ? tw_fail(TW_ERROR_PEER, "somebody comes to the group, or leaves it") : TW_OK;
}
