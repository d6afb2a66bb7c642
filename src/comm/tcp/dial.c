#include "dial.h"

#include "acceptor.h"
#include "children.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FIRST_PAUSE 0.02
#define LONGEST_PAUSE 1.0
#define TRIAL 10.0 /* seconds: the other may have many to hear; */
#define WAY 2.0    /* of them to get there, where there is another address to try: nobody may answer at this one */
#define QUIET 0.5  /* after so many, what a trial has come to so far is told */

void tcp_dial_create(tcp_dial *dial, tcp_place place, const struct addrinfo *list)
{
    *dial = (tcp_dial){.place = place, .list = list, .next = list, .fd = -1, .pause = FIRST_PAUSE};
}

void tcp_dial_destroy(tcp_dial *dial)
{
    if (dial->fd >= 0) tcp_close(dial->fd);
    dial->fd = -1;
}

static void try_later(tcp_dial *dial, double now, const char *why)
{
    tcp_dial_destroy(dial);
    dial->failed = dial->state;
    dial->state = TCP_IDLE;
    dial->why = why;
    dial->when = now + dial->pause;
    dial->pause = fmin(dial->pause * 1.5, LONGEST_PAUSE);
    dial->next = dial->next && dial->next->ai_next ? dial->next->ai_next : dial->list;
}

static int is_no_way(int error)
{
    return error == ENETUNREACH || error == EAFNOSUPPORT || error == EADDRNOTAVAIL;
}

/* An address to which this machine has no way, as may be one of IPv6, says nothing of the others. */
static void note_refusal(tcp_dial *dial, int error)
{
    if (dial->next == dial->list) dial->refuses = 0;
    if (error != ECONNREFUSED && !is_no_way(error)) dial->refuses = -1;
    if (error == ECONNREFUSED && !dial->refuses) dial->refuses = 1;
    dial->refused = dial->refuses > 0 && !dial->next->ai_next;
}

static void not_reached(tcp_dial *dial, double now, int error)
{
    dial->error = error;
    note_refusal(dial, error);
    try_later(dial, now, strerror(error));
}

/* 0: it is told already. */
static int open_socket(tcp_dial *dial, double now)
{
    dial->fd = socket(dial->next->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (dial->fd >= 0 && tcp_make_ready(dial->fd)) return 1;
    not_reached(dial, now, errno);
    return 0;
}

int tcp_dial_begin(tcp_dial *dial, double now)
{
    if (dial->state != TCP_IDLE) return dial->state != TCP_CONNECTED;
    if (now < dial->when || !open_socket(dial, now)) return 0;
    dial->heard = 0;
    dial->answered = 0;
    dial->begun = now;
    dial->when = now + (dial->next->ai_next ? WAY : TRIAL);
    dial->state = TCP_CONNECTING;
    if (connect(dial->fd, dial->next->ai_addr, dial->next->ai_addrlen) == 0 || errno == EINPROGRESS) return 1;
    not_reached(dial, now, errno);
    return 0;
}

struct pollfd tcp_dial_poll(const tcp_dial *dial)
{
    return (struct pollfd){.fd = dial->fd, .events = dial->state == TCP_CONNECTING ? POLLOUT : POLLIN};
}

/* A port that nobody listens at may be given to the very socket that tries it, which is then connected with itself. */
static int is_own_end(int fd)
{
    struct sockaddr_storage own = {0}, other = {0};
    socklen_t own_size = sizeof own, other_size = sizeof other;
    return getsockname(fd, (struct sockaddr *)&own, &own_size) == 0 &&
           getpeername(fd, (struct sockaddr *)&other, &other_size) == 0 && own_size == other_size &&
           memcmp(&own, &other, own_size) == 0;
}

static void see_connected(tcp_dial *dial, double now)
{
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error || is_own_end(dial->fd)) {
        not_reached(dial, now, error ? error : ECONNREFUSED);
        return;
    }
    dial->state = TCP_LISTENING;
    dial->when = dial->begun + TRIAL;
    dial->answered = 1;
    dial->refuses = -1;
}

/* 1 when all of it is there. The state is another when the other has hung up. */
static int dial_hear(tcp_dial *dial, unsigned char *into, size_t size, double now)
{
    ssize_t bytes = recv(dial->fd, into + dial->heard, size - dial->heard, MSG_DONTWAIT);
    if (bytes > 0) dial->heard += (size_t)bytes;
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) {
        try_later(dial, now,
                  dial->state == TCP_PROVING ? "it hung up: it may know another key or other addresses" : "it hung up");
        return 0;
    }
    return dial->heard == size;
}

static void hear_challenge(tcp_dial *dial, double now, const unsigned char *secret)
{
    const int is_whole = dial_hear(dial, dial->challenge, TCP_CHALLENGE, now);
    if (dial->state != TCP_LISTENING || dial->heard < TCP_MAGIC) return;
    dial->language = tcp_language_judge(dial->challenge);
    if (dial->language != TCP_WELCOME) {
        try_later(dial, now,
                  dial->language == TCP_STRANGER ? "what listens there does not speak thinwire's language"
                                                 : "what listens there is another version of thinwire");
        return;
    }
    if (!is_whole) return;
    dial->reached = 1;
    tcp_hello_make(secret, dial->challenge, dial->place, dial->hello);
    dial->heard = 0;
    dial->said_at = now;
    dial->state = TCP_PROVING;
    if (!tcp_say(dial->fd, dial->hello, TCP_HELLO)) try_later(dial, now, "it hung up");
}

static void hear_answer(tcp_dial *dial, double now, const unsigned char *secret)
{
    if (!dial_hear(dial, dial->answer, TCP_PROOF, now)) return;
    if (!tcp_answer_is_right(secret, dial->challenge, dial->hello, dial->answer)) {
        try_later(dial, now, "what listens there did not prove that it knows this group and its key");
        return;
    }
    dial->round_trip = now - dial->said_at;
    dial->state = TCP_CONNECTED;
}

static const char mute[] = "what listens there says nothing";

static void is_too_slow(tcp_dial *dial, double now)
{
    if (dial->state == TCP_CONNECTING)
        not_reached(dial, now, ETIMEDOUT);
    else
        try_later(dial, now, dial->state == TCP_LISTENING && !dial->heard ? mute : "it answered too slowly");
}

/* After dial->why. */
static const char *advice_of(const tcp_dial *dial)
{
    const int reached = dial->failed >= TCP_LISTENING;
    if (reached && dial->language == TCP_OTHER_VERSION) return "install the same version on all machines";
    if (dial->why == mute)
        return "the program there is stopped or has too much to do, or it is another one: then choose another port, on "
               "all sides";
    if (reached)
        return "another program has that port, or passes it on to where nobody listens; choose another port, on all "
               "sides";
    if (dial->error == ECONNREFUSED) return "what is to listen there has not been started yet, or has another port";
    return "look whether that machine is on, whether this one is in its network or VPN, and whether a firewall lets "
           "connections to that port through";
}

int tcp_dial_tell(const tcp_dial *dial, double now, const char *meeting, double seconds, char text[TCP_NOBODY_TEXT])
{
    tcp_dial seen = *dial;
    seen.fd = -1; /* which stays open */
    if (seen.state != TCP_IDLE && now > seen.begun + QUIET) is_too_slow(&seen, now);
    if (seen.reached || !seen.why) return 0;
    snprintf(text, TCP_NOBODY_TEXT, "this process waits: %s at %.1023s for %g seconds (%.100s): %s",
             seen.failed >= TCP_LISTENING ? "no group of thinwire has answered" : "nobody has answered", meeting,
             seconds, seen.why, advice_of(&seen));
    return 1;
}

void tcp_dial_serve(tcp_dial *dial, int happened, double now, const unsigned char secret[TCP_SECRET])
{
    if (!happened) {
        if (now > dial->when) is_too_slow(dial, now);
    } else if (dial->state == TCP_CONNECTING) {
        see_connected(dial, now);
    } else if (dial->state == TCP_LISTENING) {
        hear_challenge(dial, now, secret);
    } else {
        hear_answer(dial, now, secret);
    }
}
