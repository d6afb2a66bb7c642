#include "launch.h"
#include "agree.h"
#include "automatic.h"
#include "cores.h"
#include "error.h"
#include "exit.h"
#include "group.h"
#include "interrupt.h"
#include "join.h"
#include "launcher.h"
#include "memory_check.h"
#include "mpi_start.h"
#include "pipeline_plan.h"
#include "plugins.h"
#include "run.h"
#include "scheme.h"
#include "seal.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void launch_tell(const char *text)
{
    fprintf(stderr, "thinwire: %s\n", text);
}

static int exit_code(tw_status status, const run_result *result)
{
    if (status == TW_OK) return result->interrupted ? EXIT_INTERRUPTED : EXIT_DONE;
    if (status == TW_ERROR_PEER || status == TW_ERROR_PACKET) return EXIT_PEER_LOST;
    return status == TW_ERROR_NONFINITE || result->diverged ? EXIT_DIVERGED : EXIT_INPUT;
}

/* ------------------------------------------------------------------------------------------------- threads ----- */

/* One worker's thread. */
typedef struct seat {
    const train_settings *settings;
    const task *task;
    tw_comm *comm;
    pthread_t thread;
    run_result result;
    tw_status status;
    char text[1024]; /* of the failure: tw_last_error() is the thread's own */
} seat;

/* Whoever fails leaves the group by destroying its comm, so the others end too instead of waiting. */
static void *take_seat(void *argument)
{
    seat *s = argument;
    s->status = run_worker(s->settings, s->task, s->comm, &s->result);
    if (s->status != TW_OK) snprintf(s->text, sizeof s->text, "%s", tw_last_error());
    tw_comm_destroy(s->comm);
    return NULL;
}

/* The seat that knows best what happened: a loss of peers is what others' failures look like. */
static const seat *first_cause(const seat *seats, int count)
{
    const seat *cause = &seats[0];
    for (int r = 0; r < count; r++) {
        if (seats[r].status == TW_OK) continue;
        if (seats[r].status != TW_ERROR_PEER) return &seats[r];
        if (cause->status == TW_OK) cause = &seats[r];
    }
    return cause;
}

static int run_seats(seat *seats, int count)
{
    int started = 0;
    while (started < count && pthread_create(&seats[started].thread, NULL, take_seat, &seats[started]) == 0) started++;
    for (int r = started; r < count; r++) {
        seats[r].status = TW_ERROR_SYSTEM;
        snprintf(seats[r].text, sizeof seats[r].text, "the system has no thread left for worker %d of %d", r, count);
        tw_comm_destroy(seats[r].comm);
    }
    for (int r = 0; r < started; r++) pthread_join(seats[r].thread, NULL);
    const seat *cause = first_cause(seats, count);
    if (cause->status != TW_OK) launch_tell(cause->text);
    return exit_code(cause->status, &cause->result);
}

static tw_status set_limits(const train_settings *settings, tw_comm *comm)
{
    TW_TRY(tw_comm_set_timeout(comm, settings->timeout));
    return tw_comm_set_patience(comm, settings->patience);
}

static tw_status make_seats(const train_settings *settings, const task *work, int count, seat *seats)
{
    tw_comm **comms = calloc((size_t)count, sizeof *comms);
    if (!comms) return tw_fail(TW_ERROR_MEMORY, "no memory for %d workers", count);
    tw_status status = tw_comm_create_threads(count, comms);
    for (int r = 0; r < count && status == TW_OK; r++) {
        seats[r] = (seat){.settings = settings, .task = work, .comm = comms[r]};
        status = set_limits(settings, comms[r]);
    }
    free(comms);
    return status;
}

/* So many hardly come to a step, and nobody is heard before it is over. */
static void tell_crowd(const train_settings *settings, int count)
{
    enum { CROWD = 64 };
    const int cores = core_count();
    if (settings->quiet || count / cores < CROWD) return;
    fprintf(stderr,
            "thinwire: %d workers are threads of this program and share %d core%s; a step takes as long as all of "
            "their batches one after the other, or longer, and a run that is asked to stop ends after a step\n",
            count, cores, cores == 1 ? "" : "s");
}

static int seat_all(const train_settings *settings, const task *work, int count)
{
    learner_place place = {.size = settings->pipeline ? 1 : count, .batch = (size_t)settings->batch};
    if (work->ops->fits(work, &place) != TW_OK) return launcher_refuse();
    tell_crowd(settings, count);
    seat *seats = calloc((size_t)count, sizeof *seats);
    tw_status status = seats ? make_seats(settings, work, count, seats) : tw_fail(TW_ERROR_MEMORY, "no memory");
    int code = status == TW_OK ? run_seats(seats, count) : launcher_refuse();
    free(seats);
    return code;
}

/* That may take minutes, and there is nothing to save meanwhile. */
static tw_status launch_load(const train_settings *settings, int workers, task **work)
{
    TW_TRY(memory_check(settings, workers));
    interrupt_ends_with(EXIT_INTERRUPTED);
    tw_status status = settings->task->load(settings->own, work);
    interrupt_ends_with(0);
    return status;
}

static int launch_threads(const train_settings *settings)
{
    task *work = NULL;
    automatic chosen;
    train_settings settled = *settings;
    const int workers = settings->workers > 0 ? (int)settings->workers : 1;
    if (seal_refuse_threads(settings) != TW_OK || plugins_load(settings->plugin) != TW_OK) return launcher_refuse();
    if (launch_load(settings, workers, &work) != TW_OK) return launcher_refuse();
    int code = automatic_settle(&settled, work, NULL, &chosen) == TW_OK ? seat_all(&settled, work, workers)
                                                                        : launcher_refuse();
    settings->task->release(work);
    return code;
}

/* --------------------------------------------------------------------------------------- one rank a process ----- */

static tw_status launch_check_size(const train_settings *settings, tw_comm *comm)
{
    int size = tw_comm_size(comm);
    if (settings->workers == 0 || settings->workers == size) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "--workers %ld: the launcher started %d ranks; leave --workers out",
                   settings->workers, size);
}

/* Nothing but the sockets holds the ranks together: each was started by itself, and has a terminal of its own. */
static int is_joined(const tw_comm *comm)
{
    return strcmp(tw_comm_transport(comm), "tcp") == 0;
}

static tw_status run_rank(const train_settings *settings, tw_comm *comm, run_result *result)
{
    task *work = NULL;
    automatic chosen;
    train_settings settled = *settings;
    TW_TRY(set_limits(settings, comm));
    tw_status status = launch_check_size(settings, comm);
    /* Each rank has read the options by itself, out of its own run folder when the run goes on. */
    if (is_joined(comm) || settings->resume) TW_TRY(agree_ranks(comm, join_compare(settings, comm), &result->agreed));
    if (status == TW_OK) status = plugins_load(settings->plugin);
    if (status == TW_OK) status = launch_load(settings, 1, &work);
    status = agree_ranks(comm, status, &result->agreed);
    if (status == TW_OK) status = agree_ranks(comm, agree_data(comm, work), &result->agreed);
    if (status == TW_OK) status = automatic_settle(&settled, work, comm, &chosen);
    if (status == TW_OK) status = run_worker(&settled, work, comm, result);
    settings->task->release(work);
    return status;
}

/* Rank 0 tells what all ranks know or suffer alike; another rank tells only what happened to it alone, and that rank 0
 * itself, which has not said that it leaves, is lost. */
static int is_mine_to_tell(const tw_comm *comm, tw_status status, const run_result *result)
{
    if (tw_comm_rank(comm) == 0 || is_joined(comm)) return 1;
    if (result->agreed) return 0;
    if (status == TW_ERROR_PEER && strncmp(tw_last_error(), "rank 0 did not answer", 21) == 0) return 1;
    return status == TW_ERROR_MEMORY || status == TW_ERROR_SYSTEM || status == TW_ERROR_IO;
}

static void warn_of_exposed_key(const train_settings *settings)
{
    if (seal_key_is_exposed(settings))
        fprintf(stderr, "thinwire: warning: others may read %s; chmod 600 keeps them out\n", settings->key_file);
}

static tw_status open_mpi(const train_settings *settings, tw_comm **comm)
{
    const char *name;
    TW_TRY(seal_choose(settings, "mpi", &name));
    if (launcher_rank() == 0) warn_of_exposed_key(settings);
    return mpi_start_within(name, settings->timeout, comm);
}

/* Of what one rank may know alone, such as a key that is missing on its machine; and the launcher ends the others when
 * the first one ends. */
static int refuse_on_each(void)
{
    fprintf(stderr, "thinwire: rank %d: %s\n", launcher_rank(), tw_last_error());
    return EXIT_INPUT;
}

static int run_alone(const train_settings *settings, tw_comm *comm)
{
    run_result result = {0};
    tw_status status = run_rank(settings, comm, &result);
    if (status != TW_OK && is_mine_to_tell(comm, status, &result)) launch_tell(tw_last_error());
    int code = exit_code(status, &result);
    tw_comm_destroy(comm);
    return code;
}

/* Without it each task would train by itself, into the same folder. The first task tells it. */
static int refuse_separate_tasks(void)
{
    const char *number = getenv("SLURM_PROCID");
    tw_fail(TW_ERROR_ARGUMENT,
            "srun started %d tasks that do not know each other, and each would be a run of its own; start them with "
            "srun --mpi=pmix, or let them meet with --join HOST:PORT --workers %d; --transport threads trains in each "
            "of them",
            launcher_tasks(), launcher_tasks());
    if (!number || atoi(number) == 0) launch_tell(tw_last_error());
    return EXIT_INPUT;
}

static int launch_mpi(const train_settings *settings)
{
    tw_comm *comm;
    if (open_mpi(settings, &comm) != TW_OK) return seal_is_wished(settings) ? refuse_on_each() : launcher_refuse();
    if (tw_comm_size(comm) > 1 || launcher_tasks() <= 1) return run_alone(settings, comm);
    tw_comm_destroy(comm); /* this MPI does not speak the srun's PMI */
    return refuse_separate_tasks();
}

static int run_joined(const train_settings *settings, tw_comm *comm)
{
    int rank = tw_comm_rank(comm);
    join_tell_joined(settings, comm);
    int code = run_alone(settings, comm);
    if (code == EXIT_DONE || code == EXIT_INTERRUPTED) join_tell_end(settings, rank, code == EXIT_INTERRUPTED);
    return code;
}

static tw_status run_changing(const train_settings *s, task **work, run_result *result)
{
    group g;
    TW_TRY(plugins_load(s->plugin));
    TW_TRY(group_check(s));
    TW_TRY(launch_load(s, 1, work));
    tw_status status = group_open(s, *work, &g);
    if (status == TW_OK) status = (s->pipeline ? run_lineup : run_member)(s, *work, &g, result);
    group_close(&g);
    return status;
}

static int launch_changing(const train_settings *settings)
{
    task *work = NULL;
    run_result result = {0};
    train_settings s = *settings;
    s.changing = true;
    if (!s.pipeline) s.workers = 0;
    warn_of_exposed_key(&s);
    interrupt_listen();
    tw_status status = run_changing(&s, &work, &result);
    if (status != TW_OK) launch_tell(tw_last_error());
    s.task->release(work);
    return exit_code(status, &result);
}

static tw_status meet(const train_settings *settings, tw_comm **comm)
{
    join_tell_begin(settings);
    warn_of_exposed_key(settings);
    return join_open(settings, comm);
}

static int launch_joined(const train_settings *settings)
{
    tw_comm *comm;
    tw_status status = meet(settings, &comm);
    interrupt_listen(); /* until then there is nothing to save, and a signal ends the process */
    if (status == TW_OK) return run_joined(settings, comm);
    launch_tell(tw_last_error());
    return status == TW_ERROR_PEER ? EXIT_PEER_LOST : EXIT_INPUT;
}

/* Before the data are read, or others are waited for. The schemes of plug-ins are not known yet. */
static tw_status check_sync(const train_settings *settings)
{
    if (settings->plugin || strcmp(settings->sync, SYNC_AUTO) == 0) return TW_OK;
    return scheme_check(settings->sync);
}

int launch(const train_settings *settings)
{
    if (check_sync(settings) != TW_OK) return launcher_refuse();
    if (pipeline_plan_check(settings) != TW_OK) return launcher_refuse();
    if (group_is_wished(settings)) return launch_changing(settings);
    if (join_is_wished(settings)) return launch_joined(settings);
    interrupt_listen();
    if (launcher_has_ranks(settings->transport)) return launch_mpi(settings);
    return settings->transport == TRANSPORT_AUTO && launcher_tasks() > 1 ? refuse_separate_tasks()
                                                                         : launch_threads(settings);
}
