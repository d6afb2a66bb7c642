/* tcp_players.h - groups over sockets whose ranks a test leads one by one, and whoever else comes to their ports. */
#ifndef TEST_TCP_PLAYERS_H
#define TEST_TCP_PLAYERS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/assert.h"

#include "listener.h"

static const char key[] = "what all ranks know, 32 letters!", other_key[] = "what only one of the ranks knows";

/* --- ports ----------------------------------------------------------------------------------------------------- */

enum { HELD = 65536 };

/* Of each port that was found, its socket and 1. */
static int held[HELD];

/* One that is free, and that no program gets which asks for any: a socket has it that does not listen, beside which one
 * may that allows it, as an acceptor does. */
static inline int find_port(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET};
    socklen_t size = sizeof here;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    assert_int_equal(bind(fd, (const void *)&here, sizeof here), 0);
    assert_int_equal(getsockname(fd, (void *)&here, &size), 0);
    held[ntohs(here.sin_port)] = fd + 1;
    return ntohs(here.sin_port);
}

static inline struct sockaddr_in loopback_at(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* A socket that has a port that was found, for itself. */
static inline int take_port(int port)
{
    const struct sockaddr_in here = loopback_at(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (held[port]) close(held[port] - 1);
    held[port] = 0;
    assert_int_equal(bind(fd, (const void *)&here, sizeof here), 0);
    return fd;
}

/* -1: nobody listens there. */
static inline int call(int port)
{
    const struct sockaddr_in there = loopback_at(port);
    const struct timeval patience = {.tv_sec = 60};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (const void *)&there, sizeof there) == 0) return fd;
    close(fd);
    return -1;
}

/* Calls, hears the challenge and says a hello: `hello`, or NULL: one that the secret gives. -1: it is turned away, and
 * learns nothing. `session` receives what is then signed with; it may be NULL. */
static inline int knock(int port, const unsigned char *hello, const unsigned char secret[TCP_SECRET], tcp_place place,
                        unsigned char *session)
{
    unsigned char challenge[TCP_CHALLENGE], own[TCP_HELLO], answer[TCP_PROOF], accepter[TCP_SECRET];
    int fd = call(port);
    if (fd >= 0 && recv(fd, challenge, sizeof challenge, MSG_WAITALL) == (ssize_t)sizeof challenge) {
        tcp_hello_make(secret, challenge, place, own);
        if (hello) memcpy(own, hello, sizeof own);
        (void)!send(fd, own, sizeof own, MSG_NOSIGNAL);
        if (recv(fd, answer, sizeof answer, MSG_WAITALL) == (ssize_t)sizeof answer) {
            assert_true(tcp_answer_is_right(secret, challenge, own, answer));
            if (session) tcp_session_make(secret, challenge, own, session, accepter);
            return fd;
        }
    }
    close(fd);
    return -1;
}

/* --- other programs -------------------------------------------------------------------------------------------- */

/* Each has a port, and what its visitors are to be told of it. */
typedef struct foreigner {
    const char *word; /* what it says to who comes, and then it hangs up; "": nothing; NULL: nothing, nor does that */
    const char *told;
    pthread_t thread;
    int fd, port;
} foreigner;

#define ANOTHER_PROGRAM                                                                                                \
    "another program has that port, or passes it on to where nobody listens; choose another port, on all sides"

static foreigner foreigners[] = {
    {NULL,
     "(what listens there says nothing): the program there is stopped or has too much to do, or it is another one: "
     "then choose another port, on all sides"},
    {"", "(it hung up): " ANOTHER_PROGRAM},
    {"220 ready\r\n", /* which is shorter than a greeting of thinwire's */
     "(what listens there does not speak thinwire's language): " ANOTHER_PROGRAM},
    {"twtcp 9\n of which the rest is random bytes",
     "(what listens there is another version of thinwire): install the same version on all machines"}};
enum { FOREIGNERS = sizeof foreigners / sizeof *foreigners };

static inline void *play_foreigner(void *argument)
{
    const foreigner *me = argument;
    for (int fd; (fd = accept(me->fd, NULL, NULL)) >= 0; close(fd))
        (void)!send(fd, me->word, strlen(me->word), MSG_NOSIGNAL);
    return NULL;
}

static inline void begin_foreigners(void)
{
    for (foreigner *one = foreigners; one < foreigners + FOREIGNERS; one++) {
        one->port = find_port();
        one->fd = take_port(one->port);
        assert_int_equal(listen(one->fd, 16), 0);
        if (one->word) assert_int_equal(pthread_create(&one->thread, NULL, play_foreigner, one), 0);
    }
}

static inline void end_foreigners(void)
{
    for (foreigner *one = foreigners; one < foreigners + FOREIGNERS; one++) {
        shutdown(one->fd, SHUT_RDWR);
        if (one->word) pthread_join(one->thread, NULL);
        close(one->fd);
    }
}

/* --- ranks ----------------------------------------------------------------------------------------------------- */

enum { MOST_PLAYERS = 4 };

typedef struct tcp_player {
    pthread_t thread;
    tw_tcp *tcp;
    int rank, size;
    double seconds;
    tw_comm *comm;
    tw_status status;
    char text[1024];
} tcp_player;

static const char *addresses[MOST_PLAYERS];

static inline void *connect_player(void *argument)
{
    tcp_player *me = argument;
    me->status = tw_tcp_connect(me->tcp, me->rank, me->size, addresses, me->seconds, &me->comm);
    if (me->status != TW_OK) snprintf(me->text, sizeof me->text, "%s", tw_last_error());
    return NULL;
}

static inline tw_tcp_options loopback_options(const char *secret)
{
    return (tw_tcp_options){.struct_size = sizeof(tw_tcp_options),
                            .bind = "127.0.0.1",
                            .key = secret,
                            .key_size = secret ? strlen(secret) : 0};
}

static inline void listen_with(tcp_player *me, int rank, int size, const tw_tcp_options *options)
{
    *me = (tcp_player){.rank = rank, .size = size, .seconds = 60};
    assert_ok(tw_tcp_listen(options, &me->tcp));
    addresses[rank] = tw_tcp_address(me->tcp);
}

static inline void begin_all(tcp_player *players, int size, void *play(void *player))
{
    for (int r = 0; r < size; r++) assert_int_equal(pthread_create(&players[r].thread, NULL, play, &players[r]), 0);
}

static inline void join_all(tcp_player *players, int size)
{
    for (int r = 0; r < size; r++) pthread_join(players[r].thread, NULL);
}

#endif
