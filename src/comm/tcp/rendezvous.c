/* Who brings a group together, and what follows when it has. */
#include "rendezvous.h"

#include "children.h"
#include "peer.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 16384 };

#define FIRST_PAUSE 0.02  /* seconds, before a port is tried again that is taken, and nobody listens */
#define LONGEST_PAUSE 0.2 /* how soon a caller that wants no more is heard */

/* --- after the meeting --------------------------------------------------------------------------------------- */

tw_status tcp_rendezvous_listen(const tcp_rendezvous *rendezvous, const char *bind, const char *host, tw_tcp **tcp)
{
    tw_tcp_options options = rendezvous->options;
    if (!options.bind && !options.advertise) options.bind = bind;
    if (!options.advertise) options.advertise = host;
    return tw_tcp_listen(&options, tcp);
}

/* Cuts the text into its lines. */
static int list_lines(char *text, const char **lines, int size)
{
    int count = 0;
    for (char *end; (end = strchr(text, '\n')); text = end + 1) {
        if (count == size) return 0;
        *end = 0;
        lines[count++] = text;
    }
    return count == size && !*text;
}

/* What tw_tcp_connect takes for its caller's mistake was said by the server. */
static tw_status check_group(const tcp_rendezvous *rendezvous, tw_tcp *tcp, int rank, const char *const *addresses)
{
    tcp_address address;
    int bad = rank >= rendezvous->size || !tcp_listener_is_at(tcp, addresses[rank]);
    for (int r = 0; r < rendezvous->size && !bad; r++) bad = tcp_address_read(addresses[r], "", &address) != TW_OK;
    if (!bad) return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "what brings the group together at %s sent a list of addresses that cannot be",
                   rendezvous->meeting);
}

tw_status tcp_rendezvous_connect(const tcp_rendezvous *rendezvous, tw_tcp *tcp, int rank, char *text, tw_comm **comm)
{
    double left = rendezvous->deadline - tw_clock();
    const char **addresses = calloc((size_t)rendezvous->size, sizeof *addresses);
    tw_status status;
    if (!addresses)
        status = tw_fail(TW_ERROR_MEMORY, "no memory for the addresses of %d ranks", rendezvous->size);
    else if (!list_lines(text, addresses, rendezvous->size))
        status = tw_fail(TW_ERROR_PACKET, "what brings the group together at %s sent no list of %d ranks",
                         rendezvous->meeting, rendezvous->size);
    else if ((status = check_group(rendezvous, tcp, rank, addresses)) == TW_OK)
        status = tw_tcp_connect(tcp, rank, rendezvous->size, addresses, left > 1 ? left : 1, comm);
    free((void *)addresses);
    tw_tcp_destroy(tcp);
    return status;
}

/* --- who is server ------------------------------------------------------------------------------------------- */

static int is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
}

static int is_among(const char *name, const char *const *names)
{
    while (*names && strcmp(name, *names) != 0) names++;
    return *names != NULL;
}

/* Many a machine finds its own name at the loopback, where nobody else would reach it. */
static int is_name_of_this_machine(const char *host, const struct addrinfo *list)
{
    static const char *const loopback[] = {"localhost",     "localhost.localdomain", "localhost4", "localhost6",
                                           "ip6-localhost", "ip6-loopback",          NULL};
    struct addrinfo wanted = {.ai_flags = AI_NUMERICHOST}, *number;
    if (!is_loopback(list->ai_addr) || is_among(host, loopback)) return 0;
    int is_number = getaddrinfo(host, NULL, &wanted, &number) == 0;
    if (is_number) freeaddrinfo(number);
    return !is_number;
}

static tw_status open_acceptor(const tcp_rendezvous *rendezvous, tcp_acceptor *acceptor, int *why)
{
    const tcp_address *at = &rendezvous->at;
    struct addrinfo *list;
    TRY(tcp_resolve(at->host, at->port, 0, &list));
    const char *where = is_name_of_this_machine(at->host, list) ? NULL : at->host;
    freeaddrinfo(list);
    tw_status status = tcp_acceptor_open(acceptor, where, at->port, at->port, why);
    if (status != TW_OK && rendezvous->rank == 0 && *why == EADDRNOTAVAIL)
        status = tcp_acceptor_open(acceptor, NULL, at->port, at->port, why);
    return status;
}

tw_status tcp_rendezvous_try_to_listen(const tcp_rendezvous *rendezvous, tcp_acceptor **open, int *is_taken)
{
    int why = 0;
    *open = NULL;
    *is_taken = 0;
    if (rendezvous->rank > 0) return TW_OK;
    tcp_acceptor *acceptor = malloc(sizeof *acceptor);
    if (!acceptor) return tw_fail(TW_ERROR_MEMORY, "no memory to join a group");
    tw_status status = open_acceptor(rendezvous, acceptor, &why);
    if (status == TW_OK)
        tcp_keep_from_children((*open = acceptor)->fd);
    else
        free(acceptor);
    *is_taken = why == EADDRINUSE;
    return why == EADDRINUSE || why == EADDRNOTAVAIL ? TW_OK : status;
}

/* A client on the server's machine takes its place when it goes before the group is complete. */
static tw_status rendezvous_meet(tcp_rendezvous *rendezvous, tw_comm **comm)
{
    for (double pause = FIRST_PAUSE;; pause = fmin(pause * 1.5, LONGEST_PAUSE)) {
        tcp_acceptor *acceptor;
        int is_taken, is_free;
        TRY(tcp_rendezvous_try_to_listen(rendezvous, &acceptor, &is_taken));
        if (acceptor) return tcp_rendezvous_serve(rendezvous, acceptor, comm);
        TRY(tcp_rendezvous_ask(rendezvous, is_taken, &is_free, comm));
        if (!is_free) return TW_OK;
        rendezvous->why = "the port is taken, and nobody listens there";
        poll(NULL, 0, (int)(pause * 1e3));
    }
}

static tw_status rendezvous_check(const char *meeting, int rank, int size, double seconds, tw_comm **comm)
{
    TRY(tw_given(meeting, "meeting"));
    TRY(tw_given(comm, "comm"));
    if (size < 1 || size > MOST_RANKS || rank < -1 || rank >= size)
        return tw_fail(TW_ERROR_ARGUMENT, "rank %d of %d: want 1 to %d ranks, counted from 0, or rank -1 for any", rank,
                       size, MOST_RANKS);
    if (!(seconds > 0 && seconds <= 1e9))
        return tw_fail(TW_ERROR_ARGUMENT, "a deadline of %g seconds: want more than 0, at most 1e9", seconds);
    return TW_OK;
}

tw_status tw_tcp_join(const char *meeting, int rank, int size, const tw_tcp_options *options, double seconds,
                      tw_comm **comm)
{
    tcp_rendezvous rendezvous = {.meeting = meeting, .rank = rank, .size = size, .seconds = seconds};
    TRY(rendezvous_check(meeting, rank, size, seconds, comm));
    TRY(tcp_options_read(options, &rendezvous.options));
    TRY(tcp_meeting_read(meeting, &rendezvous.at));
    if (!tcp_hello_begin()) return tw_fail(TW_ERROR_SYSTEM, "this system has no random numbers");
    rendezvous.deadline = tw_clock() + seconds;
    tcp_secret_make(rendezvous.options.key, rendezvous.options.key_size, "a meeting point", NULL, 0, rendezvous.secret);
    return rendezvous_meet(&rendezvous, comm);
}
