/* thinwire doctor HOST:PORT: the way there, and the line if the other end measures with us. */
#include "doctor_line.h"
#include "doctor_peers.h"
#include "doctor_report.h"
#include "error.h"
#include "exit.h"
#include "join.h"
#include "json_file.h"
#include "launcher.h"
#include "layout.h"
#include "route.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONNECT_SECONDS 5.0   /* for one connection, and for each word of the other end */
#define LISTEN_SECONDS 3600.0 /* in which a person has walked to the other machine */

enum { CLOCK_TRIES = 5 };

/* ---- the two ends ---- */

typedef enum end { LISTENER, ASKER } end;

typedef struct line_clock {
    double ahead, within; /* seconds that the other end's clock is ahead, and by which that may be wrong */
} line_clock;

static double wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The other end looks at its clock after this one has come to the barrier, and before what it saw arrives. */
static tw_status compare_clocks(tw_comm *comm, end rank, line_clock *clock)
{
    clock->within = (double)INFINITY;
    for (int i = 0; i < CLOCK_TRIES; i++) {
        double both[2], begin = wall_clock();
        TW_TRY(tw_comm_barrier(comm));
        double mine = wall_clock();
        TW_TRY(tw_comm_allgather(comm, &mine, sizeof mine, both));
        double half = (wall_clock() - begin) / 2;
        if (half < clock->within) *clock = (line_clock){both[!rank] - (begin + half), half};
    }
    return TW_OK;
}

/* Both have greeted, so that nobody else takes part. */
static tw_status measure(const char *meeting, end rank, double timeout, peers_report *found, line_clock *clock)
{
    tw_comm *comm;
    const train_settings how = {.transport = TRANSPORT_TCP,
                                .workers = 2,
                                .rank = rank,
                                .join = (char *)(uintptr_t)meeting,
                                .timeout = 2 * CONNECT_SECONDS};
    TW_TRY(join_group(&how, &comm));
    tw_status status = doctor_measure(comm, timeout, found);
    if (status == TW_OK) status = compare_clocks(comm, rank, clock);
    tw_comm_destroy(comm);
    return status;
}

int doctor_listen(int port, double timeout)
{
    peers_report found;
    line_clock clock;
    char meeting[ROUTE_MEETING];
    int listener;
    if (route_listen(port, &listener) != TW_OK) return launcher_refuse();
    fprintf(stderr, "thinwire: waits for thinwire doctor HOST:%d of another machine\n", port);
    if (route_await(listener, port, LISTEN_SECONDS, meeting) != TW_OK ||
        measure(meeting, LISTENER, timeout, &found, &clock) != TW_OK)
        return launcher_refuse();
    printf("The line to %s is measured; the results are there.\n", found.hosts[ASKER]);
    return EXIT_DONE;
}

/* ---- what was found ---- */

typedef struct line {
    const char *target;
    route way;
    bool is_measured;
    char why_not[REPORT_SENTENCE];
    peers_report lines;
    line_clock clock;
    size_t parameters;
    double seconds; /* of a round of them, in fp32 */
} line;

static void print_row(const char *what, const char *value)
{
    printf("%-24s %s\n", what, value);
}

static void print_way(const route *way)
{
    char text[256];
    if (*way->from)
        snprintf(text, sizeof text, "%s -> %s, %s", way->from, way->to,
                 way->is_direct ? "in one network" : "through a router or a tunnel");
    else
        snprintf(text, sizeof text, "none to %s", way->to);
    print_row("way", text);
    if (*way->interface) {
        snprintf(text, sizeof text, "%s, packets of %d bytes", way->interface, way->mtu);
        print_row("interface", text);
    }
    if (way->answer != ROUTE_ACCEPTED) return;
    snprintf(text, sizeof text, "%.3f ms, the slowest of %d: %.3f ms", 1e3 * way->median, ROUTE_TRIES,
             1e3 * way->worst);
    print_row("a connection takes", text);
}

static void print_direction(const char *what, const link_figures *link)
{
    char text[256];
    snprintf(text, sizeof text, "%.1f Mbit/s, and %.1f while both directions are at work; a message takes %.3f ms",
             link->rate / MBIT, link->rate_both / MBIT, 1e3 * link->median);
    print_row(what, text);
}

static void print_clock(const line_clock *clock)
{
    char text[256], ahead[REPORT_DURATION], within[REPORT_DURATION];
    snprintf(text, sizeof text, "the other one is %s %s, give or take %s", report_duration(fabs(clock->ahead), ahead),
             clock->ahead < 0 ? "behind" : "ahead", report_duration(clock->within, within));
    print_row("clock", text);
}

static void print_round(const line *found)
{
    char dense[REPORT_DURATION], half[REPORT_DURATION];
    printf(
        "A round of %zu parameters between these two takes %s in fp32, and with exchange=bf16 half of its bytes, %s.\n",
        found->parameters, report_duration(found->seconds, dense), report_duration(found->seconds / 2, half));
}

static void print_line(const line *found)
{
    print_way(&found->way);
    if (found->is_measured) {
        print_direction("up", &found->lines.links[ASKER][LISTENER]);
        print_direction("down", &found->lines.links[LISTENER][ASKER]);
        print_clock(&found->clock);
    }
    printf("\n%s\n", found->way.sentence);
    if (found->is_measured)
        print_round(found);
    else if (*found->why_not)
        printf("%s\n", found->why_not);
}

static void add_direction(cJSON *object, const char *name, const link_figures *link)
{
    cJSON *way = cJSON_AddObjectToObject(object, name);
    cJSON_AddNumberToObject(way, "mbit_per_second", link->rate / MBIT);
    cJSON_AddNumberToObject(way, "mbit_per_second_both_ways", link->rate_both / MBIT);
    cJSON_AddNumberToObject(way, "latency_ms_median", 1e3 * link->median);
    cJSON_AddNumberToObject(way, "latency_ms_worst", 1e3 * link->worst);
}

static cJSON *json_of(const line *found)
{
    cJSON *object = cJSON_CreateObject();
    const route *way = &found->way;
    cJSON_AddStringToObject(object, "target", found->target);
    cJSON_AddStringToObject(object, "answer", route_answer_name(way->answer));
    cJSON_AddStringToObject(object, "summary", way->sentence);
    cJSON_AddStringToObject(object, "from", way->from);
    cJSON_AddStringToObject(object, "to", way->to);
    cJSON_AddStringToObject(object, "interface", way->interface);
    cJSON_AddNumberToObject(object, "mtu", way->mtu);
    cJSON_AddBoolToObject(object, "direct", way->is_direct);
    if (way->answer == ROUTE_ACCEPTED) {
        cJSON_AddNumberToObject(object, "connect_ms_median", 1e3 * way->median);
        cJSON_AddNumberToObject(object, "connect_ms_worst", 1e3 * way->worst);
    }
    if (*found->why_not) cJSON_AddStringToObject(object, "not_measured", found->why_not);
    if (!found->is_measured) return object;
    add_direction(object, "up", &found->lines.links[ASKER][LISTENER]);
    add_direction(object, "down", &found->lines.links[LISTENER][ASKER]);
    cJSON_AddNumberToObject(object, "clock_ms_ahead", 1e3 * found->clock.ahead);
    cJSON_AddNumberToObject(object, "clock_ms_within", 1e3 * found->clock.within);
    cJSON_AddNumberToObject(object, "parameters", (double)found->parameters);
    cJSON_AddNumberToObject(object, "round_ms", 1e3 * found->seconds);
    return object;
}

/* ---- the whole ---- */

/* The port beside the one that is taken. */
static void advise_other_port(line *found)
{
    const char *colon = strrchr(found->target, ':');
    int port = atoi(colon + 1), other = port < 65535 ? port + 1 : port - 1;
    snprintf(found->why_not, sizeof found->why_not,
             "The line is not measured: %s. Start thinwire doctor --listen %d there, and then here thinwire doctor "
             "%.*s:%d.",
             tw_last_error(), other, (int)(colon - found->target), found->target, other);
}

static void measure_line(double timeout, line *found)
{
    if (route_greet(&found->way, CONNECT_SECONDS) != TW_OK) {
        advise_other_port(found);
        return;
    }
    found->is_measured = measure(found->target, ASKER, timeout, &found->lines, &found->clock) == TW_OK;
    if (found->is_measured)
        found->seconds = report_dense_step(&found->lines, (double)found->parameters);
    else
        snprintf(found->why_not, sizeof found->why_not, "The line is not measured: %s.", tw_last_error());
}

static tw_status doctor_line_tell(const doctor_line_settings *settings, const line *found)
{
    if (!settings->json || strcmp(settings->json, "-") != 0) print_line(found);
    if (!settings->json) return TW_OK;
    cJSON *object = json_of(found);
    tw_status status = json_write(settings->json, object);
    cJSON_Delete(object);
    return status;
}

static tw_status examine(const doctor_line_settings *settings, line *found)
{
    layout network;
    if (settings->json) TW_TRY(json_check(settings->json));
    TW_TRY(layout_create(settings->parameters, &network));
    found->parameters = network.elements;
    layout_release(&network);
    TW_TRY(route_find(settings->target, CONNECT_SECONDS, &found->way));
    if (found->way.answer == ROUTE_ACCEPTED) measure_line(settings->timeout, found);
    return doctor_line_tell(settings, found);
}

int doctor_line(const doctor_line_settings *settings)
{
    line found = {.target = settings->target};
    if (examine(settings, &found) != TW_OK) return launcher_refuse();
    return found.way.answer == ROUTE_ACCEPTED ? EXIT_DONE : EXIT_PEER_LOST;
}
