#include "acceptor.h"

#include "children.h"
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BACKLOG = 4096, ACCEPTS = 16 /* at a time, so that those inside are heard in between */ };

int tcp_make_ready(int fd)
{
    return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

static void set(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof value); /* where it cannot be had, it goes without */
}

void tcp_tune(int fd)
{
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 256 * 1024);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, 6);
}

int tcp_say(int fd, const void *bytes, size_t size)
{
    return send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

/* --- opening ------------------------------------------------------------------------------------------------- */

static void set_port(struct sockaddr *address, int port)
{
    if (address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)(void *)address)->sin_port = htons((uint16_t)port);
}

static int listen_at(int fd, struct sockaddr *address, socklen_t size, int port)
{
    int yes = 1, no = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); /* also while connections of a run before it linger */
    if (address->sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    set_port(address, port);
    return tcp_make_ready(fd) && bind(fd, address, size) == 0 && listen(fd, BACKLOG) == 0;
}

static int note_port(tcp_acceptor *acceptor)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    if (getsockname(acceptor->fd, (struct sockaddr *)&own, &size) != 0) return 0;
    acceptor->port = tcp_port_of((const struct sockaddr *)&own);
    return 1;
}

static int open_at(tcp_acceptor *acceptor, struct sockaddr *address, socklen_t size, int port)
{
    acceptor->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (acceptor->fd < 0) return 0;
    if (listen_at(acceptor->fd, address, size, port) && note_port(acceptor)) return 1;
    int error = errno;
    close(acceptor->fd);
    acceptor->fd = -1;
    errno = error;
    return 0;
}

/* IPv6 first: where nobody asked for an address, it serves IPv4 as well. A port that is taken at one address is not
 * tried at the next: of two processes with the same host name one is to get it, not each an address. */
static int open_any(tcp_acceptor *acceptor, const struct addrinfo *list, int port)
{
    const int families[] = {AF_INET6, AF_INET};
    for (int f = 0; f < 2; f++)
        for (const struct addrinfo *one = list; one; one = one->ai_next) {
            if (one->ai_family != families[f]) continue;
            if (open_at(acceptor, one->ai_addr, one->ai_addrlen, port)) return 1;
            if (errno == EADDRINUSE) return 0;
        }
    return 0;
}

tw_status tcp_acceptor_open(tcp_acceptor *acceptor, const char *where, int first_port, int last_port, int *why)
{
    struct addrinfo *list;
    char host[TCP_HOST];
    *acceptor = (tcp_acceptor){.fd = -1};
    if (where && tcp_interface_address(where, host)) where = host;
    TRY(tcp_resolve(where, 0, AI_PASSIVE, &list));
    int port = first_port, opened = 0;
    do opened = open_any(acceptor, list, port);
    while (!opened && port++ < last_port);
    *why = errno;
    freeaddrinfo(list);
    if (opened) return TW_OK;
    if (first_port == last_port || !last_port)
        return tw_fail(TW_ERROR_SYSTEM, "cannot listen on %s, port %d: %s", where ? where : "any address", first_port,
                       strerror(*why));
    return tw_fail(TW_ERROR_SYSTEM, "cannot listen on %s, ports %d to %d: %s", where ? where : "any address",
                   first_port, last_port, strerror(*why));
}

void tcp_acceptor_close(tcp_acceptor *acceptor)
{
    if (acceptor->fd >= 0) tcp_close(acceptor->fd);
    acceptor->fd = -1;
    while (acceptor->count) close(acceptor->handshakes[--acceptor->count].fd);
}

/* --- turning away -------------------------------------------------------------------------------------------- */

static void acceptor_note(tcp_acceptor *acceptor, const char *name, const char *reason)
{
    acceptor->refused++;
    snprintf(acceptor->last, sizeof acceptor->last, "a connection from %s was refused: %s", name, reason);
}

void tcp_acceptor_refuse(tcp_acceptor *acceptor, const char *name, const char *reason)
{
    acceptor_note(acceptor, name, reason);
    if (acceptor->tell) acceptor->tell(acceptor->context, acceptor->last);
}

void tcp_acceptor_tell(const tcp_acceptor *acceptor, char text[TCP_TOLD])
{
    *text = 0;
    if (acceptor->refused)
        snprintf(text, TCP_TOLD,
                 acceptor->refused == 1
                     ? "; %llu attempt to connect was refused: %s"
                     : "; %llu attempts to connect were refused, of processes that may try again; the last: %s",
                 (unsigned long long)acceptor->refused, acceptor->last);
}

static void remove_handshake(tcp_acceptor *acceptor, int i)
{
    acceptor->handshakes[i] = acceptor->handshakes[--acceptor->count];
}

/* Who has said nothing was hardly one of the group; whoever looks for open ports does the same. */
static void turn_away(tcp_acceptor *acceptor, int i, const char *reason)
{
    char name[TCP_NAME];
    size_t said = acceptor->handshakes[i].said;
    tcp_host_name((const struct sockaddr *)&acceptor->handshakes[i].from, name);
    close(acceptor->handshakes[i].fd);
    remove_handshake(acceptor, i);
    if (said)
        tcp_acceptor_refuse(acceptor, name, reason);
    else
        acceptor_note(acceptor, name, reason);
}

/* --- coming in ----------------------------------------------------------------------------------------------- */

static void acceptor_make_room(tcp_acceptor *acceptor)
{
    if (acceptor->count)
        turn_away(acceptor, (int)randombytes_uniform((uint32_t)acceptor->count),
                  "it had said nothing yet, and many came");
}

/* 0: nobody is left to come. */
static int accept_one(tcp_acceptor *acceptor)
{
    tcp_handshake handshake = {.since = tw_clock()};
    socklen_t size = sizeof handshake.from;
    handshake.fd = accept4(acceptor->fd, (struct sockaddr *)&handshake.from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (handshake.fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        acceptor->full = acceptor->count == 0;
        acceptor_make_room(acceptor);
    }
    if (handshake.fd < 0) return 0;
    if (acceptor->count == TCP_HANDSHAKES) acceptor_make_room(acceptor);
    tcp_challenge_make(handshake.challenge);
    acceptor->handshakes[acceptor->count++] = handshake;
    if (!tcp_say(handshake.fd, handshake.challenge, TCP_CHALLENGE))
        turn_away(acceptor, acceptor->count - 1, "it hung up");
    return 1;
}

int tcp_acceptor_answer(const tcp_acceptor *acceptor, const tcp_handshake *handshake)
{
    unsigned char answer[TCP_PROOF];
    tcp_answer_make(acceptor->secret, handshake->challenge, handshake->hello, answer);
    return tcp_say(handshake->fd, answer, sizeof answer);
}

/* It is not let in for that. */
static const char *name_stranger(const tcp_acceptor *acceptor, const tcp_handshake *handshake)
{
    tcp_place place;
    if (acceptor->stray &&
        tcp_hello_judge(acceptor->stray_secret, handshake->challenge, handshake->hello, &place) == TCP_WELCOME)
        return acceptor->stray;
    return "it did not prove that it knows this group and its key";
}

static void acceptor_judge(tcp_acceptor *acceptor, int i, tcp_admit admit, void *context)
{
    tcp_place place;
    tcp_handshake *handshake = &acceptor->handshakes[i];
    tcp_verdict verdict = tcp_hello_judge(acceptor->secret, handshake->challenge, handshake->hello, &place);
    static const char *const reasons[] = {[TCP_STRANGER] = "it does not speak thinwire's language",
                                          [TCP_OTHER_VERSION] = "it is another version of thinwire"};
    const char *reason = verdict == TCP_WELCOME     ? admit(context, handshake, place)
                         : verdict == TCP_WRONG_KEY ? name_stranger(acceptor, handshake)
                                                    : reasons[verdict];
    if (reason)
        turn_away(acceptor, i, reason);
    else
        remove_handshake(acceptor, i);
}

static void acceptor_hear(tcp_acceptor *acceptor, int i, tcp_admit admit, void *context)
{
    tcp_handshake *handshake = &acceptor->handshakes[i];
    ssize_t bytes = recv(handshake->fd, handshake->hello + handshake->said, TCP_HELLO - handshake->said, MSG_DONTWAIT);
    if (bytes > 0) handshake->said += (size_t)bytes;
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR))
        turn_away(acceptor, i, "it hung up");
    else if (handshake->said == TCP_HELLO)
        acceptor_judge(acceptor, i, admit, context);
}

int tcp_acceptor_list(tcp_acceptor *acceptor, struct pollfd *polls)
{
    polls[0] = (struct pollfd){.fd = acceptor->fd, .events = acceptor->full ? 0 : POLLIN};
    acceptor->full = 0;
    for (int i = 0; i < acceptor->count; i++)
        polls[1 + i] = (struct pollfd){.fd = acceptor->handshakes[i].fd, .events = POLLIN};
    acceptor->polled = acceptor->count;
    return 1 + acceptor->count;
}

/* From the last on, because who goes is replaced by the last. */
void tcp_acceptor_serve(tcp_acceptor *acceptor, const struct pollfd *polls, tcp_admit admit, void *context)
{
    double now = tw_clock();
    for (int i = acceptor->polled - 1; i >= 0; i--) {
        if (polls[1 + i].revents)
            acceptor_hear(acceptor, i, admit, context);
        else if (now > acceptor->handshakes[i].since + TCP_HELLO_SECONDS)
            turn_away(acceptor, i, "it said nothing in time");
    }
    for (int i = 0; polls[0].revents && i < ACCEPTS && accept_one(acceptor); i++) {
    }
}
