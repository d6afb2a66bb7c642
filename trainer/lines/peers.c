#include "peers.h"
#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- who meets whom ---- */

int peers_rounds(int size)
{
    return size % 2 ? size : size - 1;
}

/* A round robin: all but the last player stand in a circle, and those whose places sum to twice the round meet; the one
 * who would meet himself meets the last, or rests where there is none. */
int peers_partner(int rank, int size, int round)
{
    int circle = peers_rounds(size), last = circle;
    if (rank == last) return round;
    int partner = (2 * round - rank % circle + circle) % circle;
    if (partner == rank) partner = last;
    return partner < size ? partner : -1;
}

/* ---- the rounds ---- */

static tw_status measure_all(link_end *end, int size, link_figures *mine)
{
    for (int round = 0; round < peers_rounds(size); round++) {
        end->peer = peers_partner(end->rank, size, round);
        if (end->peer >= 0) TW_TRY(link_measure(end, &mine[end->peer]));
    }
    return TW_OK;
}

/* Bytes that no line could send in fewer. */
static void peers_fill(unsigned char *bytes)
{
    for (size_t i = 0; i < LINK_BYTES; i += 16) {
        uint32_t words[4];
        tw_random(1, 0, i, words);
        memcpy(bytes + i, words, sizeof words);
    }
}

static tw_status run_rounds(tw_comm *comm, const peers_settings *settings, link_figures *mine)
{
    link_end end = {.ops = {.struct_size = sizeof end.ops},
                    .rank = tw_comm_rank(comm),
                    .timeout = settings->timeout,
                    .seconds = settings->seconds,
                    .counters = settings->counters};
    TW_TRY(tw_comm_lend(comm, &end.ops, &end.self));
    end.out = malloc(2 * LINK_BYTES);
    if (!end.out) return tw_fail(TW_ERROR_MEMORY, "no memory to measure lines with");
    end.in = end.out + LINK_BYTES;
    peers_fill(end.out);
    tw_status status = measure_all(&end, tw_comm_size(comm), mine);
    free(end.out);
    return status;
}

/* Another machine's word, which a person reads. */
static void make_printable(char *name, size_t room)
{
    name[room - 1] = 0;
    for (; *name; name++)
        if ((unsigned char)*name <= ' ' || (unsigned char)*name >= 127) *name = '?';
}

static void make_names_printable(peers_report *report)
{
    for (int from = 0; from < report->size; from++) {
        make_printable(report->hosts[from], PEERS_HOST_BYTES);
        for (int to = 0; to < report->size; to++) make_printable(report->links[from][to].interface, INTERFACE_BYTES);
    }
}

static tw_status measure(tw_comm *comm, const peers_settings *settings, peers_report *report)
{
    char host[PEERS_HOST_BYTES] = "";
    link_figures mine[PEERS_MOST] = {0};
    size_t row = (size_t)report->size * sizeof *mine;
    link_figures *rows = report->links[0];
    gethostname(host, sizeof host - 1);
    TW_TRY(tw_comm_allgather(comm, host, sizeof host, report->hosts));
    TW_TRY(run_rounds(comm, settings, mine));
    TW_TRY(tw_comm_allgather(comm, mine, row, rows));
    for (int from = report->size; from-- > 1;) /* each where its row is */
        memmove(report->links[from], rows + (size_t)from * (size_t)report->size, row);
    make_names_printable(report);
    return TW_OK;
}

tw_status peers_measure(tw_comm *comm, const peers_settings *settings, peers_report *report)
{
    int size = tw_comm_size(comm);
    if (size < 2 || size > PEERS_MOST)
        return tw_fail(TW_ERROR_ARGUMENT, "lines are measured between 2 to %d ranks, and here are %d", PEERS_MOST,
                       size);
    memset(report, 0, sizeof *report);
    report->size = size;
    snprintf(report->transport, sizeof report->transport, "%s", tw_comm_transport(comm));
    return measure(comm, settings, report);
}
