/* thinwire doctor --peers: the lines between the ranks of a launcher, or between threads. */
#include "doctor_peers.h"
#include "doctor_report.h"
#include "error.h"
#include "exit.h"
#include "join.h"
#include "json_file.h"
#include "launcher.h"
#include "seal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_SECONDS 0.3

/* One rank, of this process or alone in it. */
typedef struct member {
    pthread_t thread;
    tw_comm *comm;
    int rank;
    double timeout;
    peers_report report;
    tw_status status;
    char reason[512];
} member;

tw_status doctor_measure(tw_comm *comm, double timeout, peers_report *found)
{
    const peers_settings how = {timeout, STREAM_SECONDS, INTERFACE_COUNTERS};
    TW_TRY(tw_comm_set_timeout(comm, timeout));
    TW_TRY(tw_comm_set_patience(comm, timeout)); /* nobody may be busy */
    return peers_measure(comm, &how, found);
}

/* Who fails leaves the group, so that nobody waits for it. */
static void *doctor_peers_measure(void *argument)
{
    member *me = argument;
    me->rank = tw_comm_rank(me->comm);
    me->status = doctor_measure(me->comm, me->timeout, &me->report);
    if (me->status != TW_OK) snprintf(me->reason, sizeof me->reason, "%s", tw_last_error());
    tw_comm_destroy(me->comm);
    return NULL;
}

static tw_status doctor_peers_report(const doctor_peers_settings *settings, const peers_report *found)
{
    report_verdict verdict;
    TW_TRY(report_judge(found, &verdict));
    if (!settings->json || strcmp(settings->json, "-") != 0) report_print(stdout, found, &verdict);
    if (!settings->json) return TW_OK;
    cJSON *object = report_json(found, &verdict);
    tw_status status = json_write(settings->json, object);
    cJSON_Delete(object);
    return status;
}

/* Each rank knows best what it has met itself. */
static int tell_failure(const member *me)
{
    fprintf(stderr, "thinwire: rank %d: %s\n", me->rank, me->reason);
    return me->status == TW_ERROR_PEER || me->status == TW_ERROR_PACKET ? EXIT_PEER_LOST : EXIT_INPUT;
}

static int doctor_peers_conclude(const doctor_peers_settings *settings, const member *me)
{
    if (me->status != TW_OK) return tell_failure(me);
    if (me->rank > 0 || doctor_peers_report(settings, &me->report) == TW_OK) return EXIT_DONE;
    return launcher_refuse();
}

/* ---- one rank a process ---- */

static train_settings as_of_a_run(const doctor_peers_settings *settings)
{
    return (train_settings){.transport = settings->transport,
                            .workers = settings->workers,
                            .rank = -1,
                            .join = settings->join,
                            .key_file = settings->key_file,
                            .seal = settings->seal,
                            .timeout = settings->timeout};
}

static int measure_as_rank(const doctor_peers_settings *settings, member *me)
{
    const train_settings how = as_of_a_run(settings);
    if (join_group(&how, &me->comm) != TW_OK) return launcher_refuse();
    doctor_peers_measure(me);
    return doctor_peers_conclude(settings, me);
}

/* ---- threads ---- */

static int measure_as_threads(const doctor_peers_settings *settings, member *members, int count)
{
    tw_comm *comms[PEERS_MOST];
    int started = 0, code;
    if (tw_comm_create_threads(count, comms) != TW_OK) return launcher_refuse();
    for (int rank = 0; rank < count; rank++) members[rank].comm = comms[rank];
    while (started < count &&
           pthread_create(&members[started].thread, NULL, doctor_peers_measure, &members[started]) == 0)
        started++;
    for (int rank = started; rank < count; rank++) tw_comm_destroy(comms[rank]);
    for (int rank = 0; rank < started; rank++) pthread_join(members[rank].thread, NULL);
    if (started < count) {
        tw_fail(TW_ERROR_SYSTEM, "the system has no thread left for rank %d of %d", started, count);
        return launcher_refuse();
    }
    code = doctor_peers_conclude(settings, &members[0]);
    for (int rank = 1; code == EXIT_DONE && rank < count; rank++)
        code = doctor_peers_conclude(settings, &members[rank]);
    return code;
}

static int refuse_one(void)
{
    tw_fail(TW_ERROR_ARGUMENT, "a line has two ends: start --peers with mpirun or --join on the machines to "
                               "measure, or give --workers N for threads of this process");
    return launcher_refuse();
}

int doctor_peers(const doctor_peers_settings *settings)
{
    const train_settings how = as_of_a_run(settings);
    int alone = !join_is_wished(&how) && !launcher_has_ranks(settings->transport),
        count = alone ? (int)settings->workers : 1;
    if (alone && count < 2) return refuse_one();
    if (alone && seal_refuse_threads(&how) != TW_OK) return launcher_refuse();
    if (settings->json && json_check(settings->json) != TW_OK) return launcher_refuse();
    member *members = calloc((size_t)count, sizeof *members);
    if (!members) {
        tw_fail(TW_ERROR_MEMORY, "no memory for %d ranks", count);
        return launcher_refuse();
    }
    for (int rank = 0; rank < count; rank++) members[rank].timeout = settings->timeout;
    int code = alone ? measure_as_threads(settings, members, count) : measure_as_rank(settings, members);
    free(members);
    return code;
}
