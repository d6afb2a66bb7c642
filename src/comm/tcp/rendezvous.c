/* What both sides of a meeting have: who of them is the server, and what follows when all have met. */
#include "rendezvous.h"

#include "children.h"
#include "peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

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
