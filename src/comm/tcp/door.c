#include "door.h"

#include "children.h"
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BACKLOG = 4096, ACCEPTS = 16 /* at a time, so that those inside are heard in between */ };

int tcp_make_ready(int fd)
{
    return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
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

static int note_port(tcp_door *door)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    if (getsockname(door->fd, (struct sockaddr *)&own, &size) != 0) return 0;
    door->port = tcp_port_of((const struct sockaddr *)&own);
    return 1;
}

static int open_at(tcp_door *door, struct sockaddr *address, socklen_t size, int port)
{
    door->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (door->fd < 0) return 0;
    if (listen_at(door->fd, address, size, port) && note_port(door)) return 1;
    int error = errno;
    close(door->fd);
    door->fd = -1;
    errno = error;
    return 0;
}

/* IPv6 first: where nobody asked for an address, it serves IPv4 as well. A port that is taken at one address is not
 * tried at the next: of two processes with the same host name one is to get it, not each an address. */
static int open_any(tcp_door *door, const struct addrinfo *list, int port)
{
    const int families[] = {AF_INET6, AF_INET};
    for (int f = 0; f < 2; f++)
        for (const struct addrinfo *one = list; one; one = one->ai_next) {
            if (one->ai_family != families[f]) continue;
            if (open_at(door, one->ai_addr, one->ai_addrlen, port)) return 1;
            if (errno == EADDRINUSE) return 0;
        }
    return 0;
}

tw_status tcp_door_open(tcp_door *door, const char *where, int first_port, int last_port, int *why)
{
    struct addrinfo *list;
    char host[TCP_HOST];
    *door = (tcp_door){.fd = -1};
    if (where && tcp_interface_address(where, host)) where = host;
    TRY(tcp_resolve(where, 0, 1, &list));
    int port = first_port, opened = 0;
    do opened = open_any(door, list, port);
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

void tcp_door_close(tcp_door *door)
{
    if (door->fd >= 0) tcp_close(door->fd);
    door->fd = -1;
    while (door->count) close(door->knocks[--door->count].fd);
}

/* --- turning away -------------------------------------------------------------------------------------------- */

static void note(tcp_door *door, const char *name, const char *reason)
{
    door->refused++;
    snprintf(door->last, sizeof door->last, "a connection from %s was refused: %s", name, reason);
}

void tcp_door_refuse(tcp_door *door, const char *name, const char *reason)
{
    note(door, name, reason);
    if (door->tell) door->tell(door->context, door->last);
}

static void remove_knock(tcp_door *door, int i)
{
    door->knocks[i] = door->knocks[--door->count];
}

/* Who has said nothing was hardly one of the group; whoever looks for open ports does the same. */
static void turn_away(tcp_door *door, int i, const char *reason)
{
    char name[TCP_NAME];
    size_t said = door->knocks[i].said;
    tcp_host_name((const struct sockaddr *)&door->knocks[i].from, name);
    close(door->knocks[i].fd);
    remove_knock(door, i);
    if (said)
        tcp_door_refuse(door, name, reason);
    else
        note(door, name, reason);
}

/* --- coming in ----------------------------------------------------------------------------------------------- */

static void make_room(tcp_door *door)
{
    if (door->count)
        turn_away(door, (int)randombytes_uniform((uint32_t)door->count), "it had said nothing yet, and many came");
}

/* 0: nobody is left to come. */
static int accept_one(tcp_door *door)
{
    tcp_knock knock = {.since = tw_clock()};
    socklen_t size = sizeof knock.from;
    knock.fd = accept(door->fd, (struct sockaddr *)&knock.from, &size);
    if (knock.fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        door->full = door->count == 0;
        make_room(door);
    }
    if (knock.fd < 0) return 0;
    if (door->count == TCP_KNOCKS) make_room(door);
    tcp_challenge_make(knock.challenge);
    door->knocks[door->count++] = knock;
    if (!tcp_make_ready(knock.fd) || !tcp_say(knock.fd, knock.challenge, TCP_CHALLENGE))
        turn_away(door, door->count - 1, "it hung up");
    return 1;
}

int tcp_door_answer(const tcp_door *door, const tcp_knock *knock)
{
    unsigned char answer[TCP_PROOF];
    tcp_answer_make(door->secret, knock->challenge, knock->hello, answer);
    return tcp_say(knock->fd, answer, sizeof answer);
}

static void judge(tcp_door *door, int i, tcp_admit admit, void *context)
{
    tcp_place place;
    tcp_knock *knock = &door->knocks[i];
    tcp_verdict verdict = tcp_hello_judge(door->secret, knock->challenge, knock->hello, &place);
    static const char *const reasons[] = {[TCP_STRANGER] = "it does not speak thinwire's language",
                                          [TCP_OTHER_VERSION] = "it is another version of thinwire",
                                          [TCP_WRONG_KEY] = "it did not prove that it knows this group and its key"};
    const char *reason = verdict == TCP_WELCOME ? admit(context, knock, place) : reasons[verdict];
    if (reason)
        turn_away(door, i, reason);
    else
        remove_knock(door, i);
}

static void hear(tcp_door *door, int i, tcp_admit admit, void *context)
{
    tcp_knock *knock = &door->knocks[i];
    ssize_t bytes = recv(knock->fd, knock->hello + knock->said, TCP_HELLO - knock->said, MSG_DONTWAIT);
    if (bytes > 0) knock->said += (size_t)bytes;
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR))
        turn_away(door, i, "it hung up");
    else if (knock->said == TCP_HELLO)
        judge(door, i, admit, context);
}

int tcp_door_list(tcp_door *door, struct pollfd *polls)
{
    polls[0] = (struct pollfd){.fd = door->fd, .events = door->full ? 0 : POLLIN};
    door->full = 0;
    for (int i = 0; i < door->count; i++) polls[1 + i] = (struct pollfd){.fd = door->knocks[i].fd, .events = POLLIN};
    door->polled = door->count;
    return 1 + door->count;
}

/* From the last on, because who goes is replaced by the last. */
void tcp_door_serve(tcp_door *door, const struct pollfd *polls, tcp_admit admit, void *context)
{
    double now = tw_clock();
    for (int i = door->polled - 1; i >= 0; i--) {
        if (polls[1 + i].revents)
            hear(door, i, admit, context);
        else if (now > door->knocks[i].since + TCP_HELLO_SECONDS)
            turn_away(door, i, "it said nothing in time");
    }
    for (int i = 0; polls[0].revents && i < ACCEPTS && accept_one(door); i++) {
    }
}
