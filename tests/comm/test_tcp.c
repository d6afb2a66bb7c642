/* The transport over sockets: who is let in, what a message does when its other half is late, does not come or is taken
 * back, and what a peer is told that breaks the rules. */
#include <dlfcn.h>
#include <errno.h>
#include <group.h> /* the transport's, not the one beside this file */
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "receive_fails.h"
#include "tcp_players.h"

#include "support/sanitizers.h"

#include "channel.h"
#include "dial.h"
#include "lobby.h"
#include "peer.h"
#include "rendezvous_message.h"

enum { PATIENCE = 60, RANKS = 3, STRANGERS = 1000, LARGE = 3 << 20, SMALL = 100 };

/* --- groups ---------------------------------------------------------------------------------------------------- */

static void listen_all(tcp_player *players, int size)
{
    const tw_tcp_options options = loopback_options(key);
    for (int r = 0; r < size; r++) listen_with(&players[r], r, size, &options);
}

static void connect_all(tcp_player *players, int size)
{
    begin_all(players, size, connect_player);
    join_all(players, size);
}

static void destroy_all(tcp_player *players, int size)
{
    for (int r = 0; r < size; r++) tw_tcp_destroy(players[r].tcp);
    for (int r = 0; r < size; r++)
        if (players[r].comm) tw_comm_leave(players[r].comm);
    for (int r = 0; r < size; r++) tw_comm_destroy(players[r].comm);
}

/* --- strangers ------------------------------------------------------------------------------------------------- */

/* Says what one who knows the group's key said on another connection. */
static void replay(int fd, const unsigned char secret[TCP_SECRET])
{
    unsigned char challenge[TCP_CHALLENGE], hello[TCP_HELLO];
    tcp_challenge_make(challenge);
    tcp_hello_make(secret, challenge, (tcp_place){1, 0, 0}, hello);
    (void)!send(fd, hello, sizeof hello, MSG_NOSIGNAL);
}

/* Silent, with half a word, with a web browser's, with noise of a hello's length, and with another's word. */
static void say_something(int fd, int i, const unsigned char secret[TCP_SECRET])
{
    static const char web[] =
        "GET / HTTP/1.1\r\nHost: here\r\nUser-Agent: a browser\r\nAccept: */*\r\nConnection: close\r\n\r\n";
    unsigned char noise[TCP_HELLO];
    memset(noise, i, sizeof noise);
    if (i % 5 == 1) (void)!send(fd, "twtcp 8\n", 8, MSG_NOSIGNAL);
    if (i % 5 == 2) (void)!send(fd, web, sizeof web, MSG_NOSIGNAL);
    if (i % 5 == 3) (void)!send(fd, noise, sizeof noise, MSG_NOSIGNAL);
    if (i % 5 == 4) replay(fd, secret);
}

/* They are there before the group is. */
TEST(a_thousand_strangers_keep_nobody_out)
{
    tcp_player players[RANKS];
    int fds[STRANGERS];
    unsigned char secret[TCP_SECRET];
    const char *last;
    listen_all(players, RANKS);
    tcp_secret_make(key, strlen(key), "a group's connections", addresses, RANKS, secret);
    for (int i = 0; i < STRANGERS; i++) say_something(fds[i] = call(players[0].tcp->acceptor.port), i, secret);
    connect_all(players, RANKS);
    for (int r = 0; r < RANKS; r++)
        if (players[r].status != TW_OK) fail_msg("rank %d: %s", r, players[r].text);
    assert_true(tw_tcp_refused(players[0].tcp, &last) > 0 && strstr(last, "127.0.0.1"));
    for (int i = 0; i < STRANGERS; i++) close(fds[i]);
    destroy_all(players, RANKS);
}

/* One who comes alone, and whom the group waits for in vain. */
static void refuse(void (*say)(int fd, const unsigned char *secret), const char *reason)
{
    tcp_player players[2];
    unsigned char secret[TCP_SECRET];
    const char *last;
    listen_all(players, 2);
    players[0].seconds = 1.5;
    tcp_secret_make(key, strlen(key), "a group's connections", addresses, 2, secret);
    int fd = call(players[0].tcp->acceptor.port);
    say(fd, secret);
    connect_player(&players[0]);
    assert_int_equal(players[0].status, TW_ERROR_PEER);
    assert_non_null(strstr(players[0].text, "rank 1"));
    assert_int_equal(tw_tcp_refused(players[0].tcp, &last), 1);
    if (!strstr(last, reason)) fail_msg("\"%s\" lacks \"%s\"", last, reason);
    assert_non_null(strstr(players[0].text, reason));
    close(fd);
    destroy_all(players, 2);
}

static void say_noise(int fd, const unsigned char *secret)
{
    say_something(fd, 3, secret);
}

/* A word of the right length that begins as that of another version does. */
static void say_version(int fd, const unsigned char *secret)
{
    unsigned char hello[TCP_HELLO] = "twtcp 9\n";
    (void)secret;
    (void)!send(fd, hello, sizeof hello, MSG_NOSIGNAL);
}

static void hang_up(int fd, const unsigned char *secret)
{
    (void)secret;
    shutdown(fd, SHUT_RDWR);
}

TEST(strangers_are_named)
{
    refuse(say_noise, "does not speak");
    refuse(say_version, "another version");
    refuse(hang_up, "hung up");
    refuse(replay, "did not prove");
}

typedef struct wrong_keys {
    _Atomic int over; /* the other has given up */
    int proofs;       /* that were none */
} wrong_keys;

static int has_given_up(void *context)
{
    return ((wrong_keys *)context)->over;
}

static void count_proofs(void *context, const char *text)
{
    ((wrong_keys *)context)->proofs += strstr(text, "did not prove") != NULL;
}

/* The first is there until the second has given up. */
TEST(another_key_is_refused)
{
    static wrong_keys all;
    tcp_player players[2];
    tw_tcp_options options[] = {loopback_options(key), loopback_options(other_key)};
    options[0].context = &all;
    options[0].stopped = has_given_up;
    options[0].refused = count_proofs;
    for (int r = 0; r < 2; r++) listen_with(&players[r], r, 2, &options[r]);
    players[1].seconds = 3;
    begin_all(players, 2, connect_player);
    pthread_join(players[1].thread, NULL);
    all.over = 1;
    pthread_join(players[0].thread, NULL);
    for (int r = 0; r < 2; r++) assert_int_equal(players[r].status, TW_ERROR_PEER);
    assert_true(all.proofs > 0);
    assert_non_null(strstr(players[1].text, "another key"));
    destroy_all(players, 2);
}

TEST(addresses_are_checked)
{
    static const char *const wrong[] = {"",
                                        "host",
                                        "10.0.0.1:0#00112233445566778899aabbccddeeff/1",
                                        "1.2.3.4:5",
                                        "1.2.3.4:5#short/1",
                                        "a:1#00112233445566778899aabbccddeeff/99",
                                        "a:1#00112233445566778899aabbccddeeff/ 1",
                                        "a:1#00112233445566778899aabbccddeeff/+1",
                                        "::1:5#00112233445566778899aabbccddeeff/1"};
    tcp_player one;
    tw_comm *comm = NULL;
    const tw_tcp_options options = loopback_options(NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        listen_with(&one, 0, 2, &options);
        addresses[1] = wrong[i];
        assert_fails(tw_tcp_connect(one.tcp, 0, 2, addresses, 1, &comm), TW_ERROR_ARGUMENT, "addresses[1]");
        assert_int_equal(tw_tcp_connect(one.tcp, 0, 2, addresses, 1, &comm), TW_ERROR_ORDER);
        tw_tcp_destroy(one.tcp);
    }
    listen_with(&one, 0, 1, &options);
    addresses[0] = "1.2.3.4:5#00112233445566778899aabbccddeeff/1";
    assert_int_equal(tw_tcp_connect(one.tcp, 0, 1, addresses, 1, &comm), TW_ERROR_ARGUMENT);
    tw_tcp_destroy(one.tcp);
}

/* --- a meeting point ------------------------------------------------------------------------------------------- */

enum { HEARD = 8 };

static char meeting[64];

typedef struct joiner {
    pthread_t thread;
    char at[sizeof meeting]; /* a test may go on to another one meanwhile */
    const char *secret;
    int rank, size, sealed;
    double seconds;
    tw_comm *comm;
    int own; /* its rank in the end */
    tw_status status;
    char text[1024];
    pthread_mutex_t lock; /* guards the next two */
    char heard[HEARD][TCP_REASON];
    int count;
    _Atomic int tired; /* it wants no more */
} joiner;

static void hear_of_it(void *context, const char *text)
{
    joiner *me = context;
    pthread_mutex_lock(&me->lock);
    if (me->count < HEARD) snprintf(me->heard[me->count++], TCP_REASON, "%s", text);
    pthread_mutex_unlock(&me->lock);
}

static int is_tired(void *context)
{
    const joiner *me = context;
    return me->tired;
}

static void *play_joiner(void *argument)
{
    joiner *me = argument;
    const tw_tcp_options options = {.struct_size = sizeof options,
                                    .key = me->secret,
                                    .key_size = me->secret ? strlen(me->secret) : 0,
                                    .refused = hear_of_it,
                                    .stopped = is_tired,
                                    .context = me,
                                    .sealed = me->sealed};
    me->status = tw_tcp_join(me->at, me->rank, me->size, &options, me->seconds, &me->comm);
    if (me->status != TW_OK) snprintf(me->text, sizeof me->text, "%s", tw_last_error());
    return NULL;
}

static void begin_joiner(joiner *me, joiner what)
{
    *me = what;
    memcpy(me->at, meeting, sizeof meeting);
    me->secret = what.secret ? what.secret : key;
    me->size = what.size ? what.size : 2;
    me->seconds = what.seconds > 0 ? what.seconds : 60;
    pthread_mutex_init(&me->lock, NULL);
    assert_int_equal(pthread_create(&me->thread, NULL, play_joiner, me), 0);
}

static void end_joiner(joiner *me, tw_status status)
{
    pthread_join(me->thread, NULL);
    pthread_mutex_destroy(&me->lock);
    if (me->status != status) fail_msg("status %d: %s", me->status, me->text);
    me->own = tw_comm_rank(me->comm);
}

/* They have become a group, which parts. */
static void end_group(int size, joiner *all[])
{
    for (int i = 0; i < size; i++) end_joiner(all[i], TW_OK);
    for (int i = 0; i < size; i++) tw_comm_leave(all[i]->comm);
    for (int i = 0; i < size; i++) tw_comm_destroy(all[i]->comm);
}

static int has_heard(joiner *me, const char *what)
{
    int found = 0;
    pthread_mutex_lock(&me->lock);
    for (int i = 0; i < me->count; i++) found |= strstr(me->heard[i], what) != NULL;
    pthread_mutex_unlock(&me->lock);
    return found;
}

static void wait_until_it_hears(joiner *me, const char *what)
{
    for (double deadline = tw_clock() + 60; !has_heard(me, what);) {
        assert_true(tw_clock() < deadline);
        usleep(1000);
    }
}

static int choose_meeting(void **state)
{
    snprintf(meeting, sizeof meeting, "127.0.0.1:%d", find_port());
    return 0;
}

static int meeting_port(void)
{
    return atoi(strchr(meeting, ':') + 1);
}

static void make_meeting_secret(unsigned char secret[TCP_SECRET])
{
    tcp_secret_make(key, strlen(key), "a meeting point", NULL, 0, secret);
}

static int is_listening(void)
{
    int fd = call(meeting_port());
    close(fd);
    return fd >= 0;
}

static int is_port_free(void)
{
    tcp_acceptor acceptor;
    int why, port = meeting_port(), is_free = tcp_acceptor_open(&acceptor, "127.0.0.1", port, port, &why) == TW_OK;
    tcp_acceptor_close(&acceptor);
    return is_free;
}

static void begin_server(joiner *me, joiner what)
{
    begin_joiner(me, what);
    for (double deadline = tw_clock() + 60; !is_listening();) {
        assert_true(tw_clock() < deadline);
        usleep(1000);
    }
}

/* Who cannot join is told why, and so is the server, while it waits; and the group comes together without him. */
TEST(who_may_not_join_is_told_to_both)
{
    const struct {
        int sealed;
        joiner client;
        const char *reason;
    } cases[] = {
        {0, {.rank = -1, .sealed = 1}, "does not seal its messages, and the process that came does"},
        {0, {.rank = -1, .size = 3}, "has 2 ranks, not 3"},
        {0, {.rank = 0}, "rank 0 is taken"},
        {1, {.rank = -1}, "seals its messages, and the process that came does not: seal on all ranks or on none"}};
    for (int sealed = 0; sealed < 2; sealed++) {
        joiner server, wrong, right;
        choose_meeting(state);
        begin_server(&server, (joiner){.rank = 0, .sealed = sealed});
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            if (cases[i].sealed != sealed) continue;
            begin_joiner(&wrong, cases[i].client);
            end_joiner(&wrong, TW_ERROR_PEER);
            assert_non_null(strstr(wrong.text, cases[i].reason));
            wait_until_it_hears(&server, cases[i].reason);
        }
        begin_joiner(&right, (joiner){.rank = -1, .sealed = sealed});
        end_group(2, (joiner *[]){&server, &right});
    }
}

/* The server hears of it at the first trial, not when all of them are over. */
TEST_BETWEEN(another_key_is_told_to_the_host_at_once, choose_meeting, NULL)
{
    joiner server, stranger;
    begin_server(&server, (joiner){.rank = 0});
    begin_joiner(&stranger, (joiner){.rank = -1, .secret = other_key});
    wait_until_it_hears(&server, "did not prove that it knows this group and its key");
    stranger.tired = server.tired = 1;
    end_joiner(&stranger, TW_ERROR_PEER);
    end_joiner(&server, TW_ERROR_PEER);
}

/* Once, in time: the wrong port looks as if the other process had not been started yet. */
TEST_BETWEEN(nobody_answers_and_that_is_told, choose_meeting, NULL)
{
    int fd = take_port(meeting_port());
    joiner one;
    begin_joiner(&one, (joiner){.rank = 1, .seconds = 2});
    end_joiner(&one, TW_ERROR_PEER);
    assert_int_equal(one.count, 1);
    assert_non_null(strstr(one.heard[0], "this process waits: nobody has answered at 127.0.0.1:"));
    assert_non_null(strstr(one.heard[0], " for 1 seconds (Connection refused): what is to listen there"));
    close(fd);
}

/* The first of them may serve, which the other program prevents. */
TEST(another_program_at_the_port_is_told_of)
{
    joiner both[FOREIGNERS][2];
    char expected[TCP_REASON];
    begin_foreigners();
    for (int i = 0; i < FOREIGNERS; i++) {
        snprintf(meeting, sizeof meeting, "127.0.0.1:%d", foreigners[i].port);
        for (int rank = 0; rank < 2; rank++) begin_joiner(&both[i][rank], (joiner){.rank = rank, .seconds = 6});
    }
    for (int i = 0; i < FOREIGNERS; i++) {
        snprintf(expected, sizeof expected,
                 "this process waits: no group of thinwire has answered at 127.0.0.1:%d for 3 seconds %s",
                 foreigners[i].port, foreigners[i].told);
        for (int rank = 0; rank < 2; rank++) {
            end_joiner(&both[i][rank], TW_ERROR_PEER);
            assert_int_equal(both[i][rank].count, 1);
            assert_string_equal(both[i][rank].heard[0], expected);
        }
        assert_non_null(strstr(both[i][0].text, "another program has that port; choose another port, on all sides"));
    }
    end_foreigners();
}

static void expect_told(const tcp_dial *dial, double now, const char *expected)
{
    char text[TCP_NOBODY_TEXT];
    assert_true(tcp_dial_tell(dial, now, "there", 1, text));
    assert_non_null(strstr(text, expected));
}

/* The machine has two addresses: the first refuses, and at the second one another program is silent. */
TEST(what_lasts_is_told_rather_than_what_was)
{
    const unsigned char secret[TCP_SECRET] = {0};
    char text[TCP_NOBODY_TEXT];
    double now = 0;
    tcp_dial dial;
    begin_foreigners();
    struct sockaddr_in free_one = loopback_at(find_port()), silent = loopback_at(foreigners[0].port);
    struct addrinfo second = {.ai_family = AF_INET, .ai_addr = (void *)&silent, .ai_addrlen = sizeof silent},
                    first = {.ai_family = AF_INET,
                             .ai_addr = (void *)&free_one,
                             .ai_addrlen = sizeof free_one,
                             .ai_next = &second};
    tcp_dial_create(&dial, (tcp_place){0}, &first);
    for (; dial.state != TCP_LISTENING; now += 0.1) {
        if (!tcp_dial_begin(&dial, now)) continue;
        struct pollfd one = tcp_dial_poll(&dial);
        tcp_dial_serve(&dial, poll(&one, 1, 1000 * PATIENCE) > 0, now, secret);
    }
    expect_told(&dial, now, "nobody has answered at there for 1 seconds (Connection refused): what is to listen");
    expect_told(&dial, now + 1, "no group of thinwire has answered at there for 1 seconds (what listens there says");
    tcp_dial_destroy(&dial);
    tcp_dial_create(&dial, (tcp_place){0}, &second);
    assert_true(tcp_dial_begin(&dial, now));
    assert_false(tcp_dial_tell(&dial, now, "there", 1, text));
    expect_told(&dial, now + 1, "nobody has answered at there for 1 seconds (Connection timed out): look whether");
    tcp_dial_destroy(&dial);
    end_foreigners();
}

/* Two addresses of one machine. */
typedef struct two_places {
    struct sockaddr_in at[2];
    struct addrinfo list[2];
} two_places;

static void begin_at(tcp_dial *dial, two_places *there, int first, int second)
{
    there->at[0] = loopback_at(first);
    there->at[1] = loopback_at(second);
    for (int i = 0; i < 2; i++)
        there->list[i] = (struct addrinfo){
            .ai_family = AF_INET, .ai_addr = (void *)&there->at[i], .ai_addrlen = sizeof there->at[i]};
    there->list[0].ai_next = &there->list[1];
    tcp_dial_create(dial, (tcp_place){0}, there->list);
}

/* One trial, which ends. Returns when the next may begin. */
static double try_once(tcp_dial *dial, double now)
{
    const unsigned char secret[TCP_SECRET] = {0};
    if (tcp_dial_begin(dial, now))
        while (dial->state != TCP_IDLE) {
            struct pollfd one = tcp_dial_poll(dial);
            assert_int_equal(poll(&one, 1, 1000 * PATIENCE), 1);
            tcp_dial_serve(dial, 1, now, secret);
        }
    return dial->when;
}

/* At the other one it may be there, as is another program here, which hangs up. */
TEST(who_refuses_at_one_of_its_addresses_is_not_gone)
{
    two_places there;
    tcp_dial dial;
    double now = 0;
    begin_foreigners();
    const int nobody = find_port(), hangs_up = foreigners[1].port;
    begin_at(&dial, &there, nobody, hangs_up);
    for (int i = 0; i < 4; i++) {
        now = try_once(&dial, now);
        assert_false(dial.refused);
    }
    begin_at(&dial, &there, hangs_up, nobody);
    for (int i = 0; i < 4; i++) {
        now = try_once(&dial, now);
        assert_false(dial.refused);
    }
    begin_at(&dial, &there, nobody, nobody);
    for (int i = 0; i < 4; i++) {
        now = try_once(&dial, now);
        assert_int_equal(dial.refused, i % 2);
    }
    there.list[1].ai_family = AF_UNSPEC; /* to which no machine has a way */
    for (int i = 0; i < 4; i++) {
        now = try_once(&dial, now);
        assert_int_equal(dial.refused, i % 2);
    }
    end_foreigners();
}

/* Nothing has come of it by then. */
static void wait_until_later(tcp_dial *dial, double now, tcp_dial_state expected)
{
    const unsigned char secret[TCP_SECRET] = {0};
    tcp_dial_serve(dial, 0, now, secret);
    assert_int_equal(dial->state, expected);
}

/* What is sent to the first of two is lost, as nobody says; the second has the time that one may need that is busy, and
 * so has the first where it is there. */
TEST(an_address_that_swallows_what_comes_leaves_time_for_the_next)
{
    const unsigned char secret[TCP_SECRET] = {0};
    two_places there;
    tcp_dial dial;
    begin_foreigners();
    begin_at(&dial, &there, foreigners[0].port, foreigners[0].port);
    assert_true(tcp_dial_begin(&dial, 0));
    wait_until_later(&dial, 1.9, TCP_CONNECTING);
    wait_until_later(&dial, 2.1, TCP_IDLE);
    assert_ptr_equal(dial.next, &there.list[1]);
    assert_true(tcp_dial_begin(&dial, 10));
    wait_until_later(&dial, 19.9, TCP_CONNECTING);
    wait_until_later(&dial, 20.1, TCP_IDLE);
    assert_true(tcp_dial_begin(&dial, 30));
    struct pollfd one = tcp_dial_poll(&dial);
    assert_int_equal(poll(&one, 1, 1000 * PATIENCE), 1);
    tcp_dial_serve(&dial, 1, 31, secret);
    wait_until_later(&dial, 39.9, TCP_LISTENING);
    wait_until_later(&dial, 40.1, TCP_IDLE);
    end_foreigners();
}

TEST_BETWEEN(one_without_a_number_of_workers_is_told_apart, choose_meeting, NULL)
{
    unsigned char secret[TCP_SECRET];
    joiner server;
    begin_server(&server, (joiner){.rank = 0});
    tcp_secret_make(key, strlen(key), "members of a group", NULL, 0, secret);
    assert_int_equal(knock(meeting_port(), NULL, secret, (tcp_place){0}, NULL), -1);
    wait_until_it_hears(&server, "it gives no number of workers, and this process does");
    server.tired = 1;
    end_joiner(&server, TW_ERROR_PEER);
}

TEST_BETWEEN(one_too_many_is_told_so_at_once, choose_meeting, NULL)
{
    joiner group[2], late;
    begin_server(&group[0], (joiner){.rank = 0});
    begin_joiner(&group[1], (joiner){.rank = 1});
    for (int i = 0; i < 2; i++) end_joiner(&group[i], TW_OK);
    for (int rank = -1; rank < 2; rank++) {
        begin_joiner(&late, (joiner){.rank = rank, .seconds = 1e9});
        end_joiner(&late, TW_ERROR_PEER);
        assert_non_null(strstr(late.text, "the group is complete, with all of its 2 ranks"));
    }
    tw_comm_destroy(group[1].comm);
    tw_comm_destroy(group[0].comm);
    assert_false(is_listening());
}

/* --- one that came while the last of the others did --- */

enum { LONGEST_REPLY = 1024 };

/* Nobody answers at the address that it gives. What it hears ends with a 0, as its signature is left out. */
static void *ask_for_a_place(void *argument)
{
    char *heard = argument;
    unsigned char secret[TCP_SECRET], session[TCP_SECRET], request[TCP_REQUEST];
    tcp_wish wish = {.size = 2, .rank = -1};
    snprintf(wish.address, sizeof wish.address, "127.0.0.1:%d#00112233445566778899aabbccddeeff/1", foreigners[0].port);
    make_meeting_secret(secret);
    memset(heard, 0, LONGEST_REPLY);
    int fd = knock(meeting_port(), NULL, secret, (tcp_place){0}, session);
    tcp_request_write(&wish, session, request);
    (void)!send(fd, request, sizeof request, MSG_NOSIGNAL);
    ssize_t bytes = recv(fd, heard, LONGEST_REPLY, MSG_WAITALL); /* until the other hangs up */
    if (bytes > TCP_PROOF) heard[bytes - TCP_PROOF] = 0;
    close(fd);
    return NULL;
}

static tcp_reply_kind welcome_all(void *context, const tcp_wish *wish, char text[TCP_REASON])
{
    (void)context, (void)wish, (void)text;
    return TCP_GROUP;
}

static int is_always_whole(void *context)
{
    return context == NULL;
}

static tcp_lobby *open_lobby(void)
{
    int why, port = meeting_port();
    tcp_acceptor *acceptor = malloc(sizeof *acceptor);
    assert_int_equal(tcp_acceptor_open(acceptor, "127.0.0.1", port, port, &why), TW_OK);
    make_meeting_secret(acceptor->secret);
    tcp_lobby *lobby = tcp_lobby_create(acceptor, 4);
    assert_non_null(lobby);
    lobby->wanted = 1;
    lobby->judge = welcome_all;
    return lobby;
}

static int looks_whether_it_is_there(int fd)
{
    int on = 0;
    socklen_t size = sizeof on;
    return getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &size) == 0 && on;
}

/* Another has the place that it asked for. It is told so, and the next who comes as well. */
TEST_BETWEEN(one_too_many_of_those_that_came_together_is_told_so, choose_meeting, NULL)
{
    pthread_t thread;
    char heard[2][LONGEST_REPLY];
    begin_foreigners();
    tcp_lobby *lobby = open_lobby();
    assert_int_equal(pthread_create(&thread, NULL, ask_for_a_place, heard[0]), 0);
    while (!lobby->count || !lobby->clients[0].has_asked) tcp_lobby_go_round(lobby, 1);
    assert_true(looks_whether_it_is_there(lobby->clients[0].fd));
    tcp_latecomers *latecomers = tcp_latecomers_create(lobby, 2);
    assert_non_null(latecomers);
    tcp_latecomers_begin(latecomers, is_always_whole, NULL);
    pthread_join(thread, NULL);
    ask_for_a_place(heard[1]);
    for (int i = 0; i < 2; i++)
        assert_non_null(strstr(heard[i] + TCP_REPLY_HEAD, "the group is complete, with all of its 2 ranks"));
    tcp_latecomers_destroy(latecomers);
    end_foreigners();
}

/* The next group at the same port may begin to come while the one before has not ended everywhere. */
TEST_BETWEEN(the_next_group_waits_for_the_one_before, choose_meeting, NULL)
{
    joiner first[2], next[2];
    begin_server(&first[0], (joiner){.rank = 0});
    begin_joiner(&first[1], (joiner){.rank = 1});
    for (int i = 0; i < 2; i++) end_joiner(&first[i], TW_OK);
    tw_comm_destroy(first[1].comm);
    for (int i = 0; i < 2; i++) begin_joiner(&next[i], (joiner){.rank = -1});
    for (int i = 0; i < 2; i++) wait_until_it_hears(&next[i], "is ending");
    tw_comm_destroy(first[0].comm);
    end_group(2, (joiner *[]){&next[0], &next[1]});
    assert_int_equal(next[0].own + next[1].own, 1);
}

/* Proves that it knows the key, and says nothing more. */
static int visit_meeting(void)
{
    unsigned char secret[TCP_SECRET];
    make_meeting_secret(secret);
    int fd = knock(meeting_port(), NULL, secret, (tcp_place){0}, NULL);
    assert_true(fd >= 0);
    return fd;
}

/* A comm that is given up needs no latecomers, and nobody waits for an answer from it. */
TEST_BETWEEN(who_leaves_closes_the_port, choose_meeting, NULL)
{
    joiner group[2];
    char more;
    begin_server(&group[0], (joiner){.rank = 0});
    begin_joiner(&group[1], (joiner){.rank = 1});
    for (int i = 0; i < 2; i++) end_joiner(&group[i], TW_OK);
    int client = visit_meeting();
    tw_comm_leave(group[0].comm);
    for (double deadline = tw_clock() + 60; is_listening();) assert_true(tw_clock() < deadline);
    assert_int_equal(recv(client, &more, 1, 0), 0);
    close(client);
    for (int i = 0; i < 2; i++) tw_comm_destroy(group[i].comm);
}

/* Rank 0 of two. It says which child it has. */
static void be_a_parent(int out)
{
    const tw_tcp_options options = {.struct_size = sizeof options, .key = key, .key_size = strlen(key)};
    tw_comm *comm;
    alarm(PATIENCE);
    if (tw_tcp_join(meeting, 0, 2, &options, PATIENCE, &comm) != TW_OK) _exit(1);
    pid_t child = fork();
    alarm(4 * PATIENCE); /* longer than anybody waits for its end */
    if (child) (void)!write(out, &child, sizeof child);
    for (;;) pause();
}

TEST_BETWEEN(who_is_killed_is_gone_though_a_child_lives, choose_meeting, NULL)
{
#ifdef TSAN
    skip(); /* it does not allow threads in the child of a process that has had some */
#else
    int ends[2], status;
    joiner peer;
    assert_int_equal(pipe(ends), 0);
    pid_t child, parent = fork();
    if (parent == 0) be_a_parent(ends[1]);
    begin_joiner(&peer, (joiner){.rank = 1});
    end_joiner(&peer, TW_OK);
    assert_int_equal(read(ends[0], &child, sizeof child), sizeof child);
    assert_int_equal(tw_comm_set_timeout(peer.comm, PATIENCE), TW_OK);
    kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_int_equal(tw_comm_barrier(peer.comm), TW_ERROR_PEER);
    assert_null(strstr(tw_last_error(), "did not answer"));
    for (double deadline = tw_clock() + PATIENCE; !is_port_free();) assert_true(tw_clock() < deadline);
    kill(child, SIGKILL);
    tw_comm_destroy(peer.comm);
    close(ends[0]);
    close(ends[1]);
#endif
}

/* The place of one that has gone before the group was complete. Rank 1 never takes it, so the client does. */
TEST_BETWEEN(a_client_takes_the_place_of_a_server_that_goes, choose_meeting, NULL)
{
    joiner server, client, other;
    begin_server(&server, (joiner){.rank = -1, .size = 3});
    begin_joiner(&client, (joiner){.rank = -1, .size = 3});
    begin_joiner(&other, (joiner){.rank = -1, .size = 2}); /* when it is refused, so much has been heard */
    end_joiner(&other, TW_ERROR_PEER);
    server.tired = 1;
    end_joiner(&server, TW_ERROR_PEER);
    begin_joiner(&server, (joiner){.rank = 1, .size = 3});
    begin_joiner(&other, (joiner){.rank = 2, .size = 3});
    end_group(3, (joiner *[]){&client, &server, &other});
    assert_int_equal(client.own, 0);
}

/* A port of another program's, which is not at it. */
TEST_BETWEEN(a_port_where_nobody_listens_is_told_of, choose_meeting, NULL)
{
    int fd = take_port(meeting_port());
    joiner alone;
    begin_joiner(&alone, (joiner){.rank = 0, .seconds = 1.5});
    end_joiner(&alone, TW_ERROR_PEER);
    assert_non_null(strstr(alone.text, "the port is taken, and nobody listens there"));
    assert_non_null(strstr(alone.text, "another program has that port; choose another port, on all sides"));
    close(fd);
}

/* --- a meeting point that the test plays --- */

/* Hears a proof, and hangs up where it is not to be believed; else gives what both sign with. */
static int receive_client(int acceptor, int believed, unsigned char server_key[TCP_SECRET])
{
    unsigned char secret[TCP_SECRET], challenge[TCP_CHALLENGE], hello[TCP_HELLO], answer[TCP_PROOF],
        client_key[TCP_SECRET];
    int fd = accept(acceptor, NULL, NULL);
    make_meeting_secret(secret);
    tcp_challenge_make(challenge);
    assert_int_equal(send(fd, challenge, sizeof challenge, MSG_NOSIGNAL), sizeof challenge);
    assert_int_equal(recv(fd, hello, sizeof hello, MSG_WAITALL), sizeof hello);
    if (believed) {
        tcp_answer_make(secret, challenge, hello, answer);
        assert_int_equal(send(fd, answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
        tcp_session_make(secret, challenge, hello, client_key, server_key);
        return fd;
    }
    close(fd);
    return -1;
}

/* This process's own end of a connection within it. */
static int other_end_of(int fd)
{
    struct sockaddr_in there, own;
    socklen_t size = sizeof there, own_size = sizeof own;
    assert_int_equal(getpeername(fd, (void *)&there, &size), 0);
    for (int other = 0; other < 1024; other++, own_size = sizeof own)
        if (getsockname(other, (void *)&own, &own_size) == 0 && own_size == size && own.sin_family == AF_INET &&
            own.sin_port == there.sin_port)
            return other;
    fail();
    return -1;
}

static int listen_at_meeting(void)
{
    const struct sockaddr_in here = loopback_at(meeting_port());
    const struct timeval longest = {.tv_sec = 60};
    int acceptor = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(acceptor, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
    setsockopt(acceptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    assert_int_equal(bind(acceptor, (const void *)&here, sizeof here), 0);
    assert_int_equal(listen(acceptor, 8), 0);
    return acceptor;
}

TEST_BETWEEN(a_client_finds_out_that_its_server_has_gone_without_a_word, choose_meeting, NULL)
{
    unsigned char server_key[TCP_SECRET], request[TCP_REQUEST];
    const int acceptor = listen_at_meeting();
    joiner client;
    begin_joiner(&client, (joiner){.rank = 1});
    const int fd = receive_client(acceptor, 1, server_key);
    assert_int_equal(recv(fd, request, sizeof request, MSG_WAITALL), sizeof request);
    assert_true(looks_whether_it_is_there(other_end_of(fd)));
    client.tired = 1;
    end_joiner(&client, TW_ERROR_PEER);
    close(fd);
    close(acceptor);
}

/* A host under siege draws by lot who makes room. Only who is never believed may have another key. */
TEST_BETWEEN(trials_are_counted_from_the_last_proof_on, choose_meeting, NULL)
{
    enum { LOST = 6 }; /* twice as many are too many */
    static const char no[] = "this group has other plans";
    unsigned char server_key[TCP_SECRET];
    const int acceptor = listen_at_meeting();
    size_t size;
    joiner client;
    begin_joiner(&client, (joiner){.rank = 1});
    for (int i = 0; i < LOST; i++) receive_client(acceptor, 0, server_key);
    close(receive_client(acceptor, 1, server_key));
    for (int i = 0; i < LOST; i++) receive_client(acceptor, 0, server_key);
    int fd = receive_client(acceptor, 1, server_key);
    unsigned char *reply = tcp_reply_write(TCP_REFUSED, 0, no, server_key, &size);
    assert_int_equal(send(fd, reply, size, MSG_NOSIGNAL), size);
    end_joiner(&client, TW_ERROR_PEER);
    assert_non_null(strstr(client.text, no));
    free(reply);
    close(fd);
    close(acceptor);
}

/* As getaddrinfo of the C library, but "both.test" is the loopback of IPv6 and of IPv4. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *wanted, struct addrinfo **list)
{
    typedef int function(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    function *real = (function *)dlsym(RTLD_NEXT, "getaddrinfo");
    if (!host || strcmp(host, "both.test") != 0) return real(host, service, wanted, list);
    int error = real("::1", service, wanted, list);
    struct addrinfo *last = error ? NULL : *list; /* an address has an entry for each kind of socket */
    while (last && last->ai_next) last = last->ai_next;
    return error ? error : real("127.0.0.1", service, wanted, &last->ai_next);
}

/* Not one an address each, where neither would find the other. */
TEST(a_name_of_two_addresses_has_one_host)
{
    tcp_acceptor one, other;
    int why = 0, port = find_port();
    assert_int_equal(tcp_acceptor_open(&one, "both.test", port, port, &why), TW_OK);
    assert_int_equal(tcp_acceptor_open(&other, "both.test", port, port, &why), TW_ERROR_SYSTEM);
    assert_int_equal(why, EADDRINUSE);
    tcp_acceptor_close(&one);
}

/* Somebody else has its port at the first of them, and is not at it. */
TEST_BETWEEN(a_host_is_found_at_the_second_address, choose_meeting, NULL)
{
    const int port = meeting_port();
    const struct sockaddr_in6 first = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    joiner server, client;
    if (fd < 0 || bind(fd, (const void *)&first, sizeof first) != 0) skip(); /* this machine has no IPv6 */
    begin_server(&server, (joiner){.rank = 0});
    snprintf(meeting, sizeof meeting, "both.test:%d", port);
    begin_joiner(&client, (joiner){.rank = -1});
    end_group(2, (joiner *[]){&client, &server});
    close(fd);
}

/* --- proofs ---------------------------------------------------------------------------------------------------- */

TEST(a_proof_is_for_one_connection_and_place)
{
    unsigned char secret[TCP_SECRET], other[TCP_SECRET], a[TCP_CHALLENGE], b[TCP_CHALLENGE], hello[TCP_HELLO],
        proof[TCP_PROOF];
    const char *texts[] = {"one", "two"}, *joined[] = {"onet", "wo"};
    tcp_place place;
    tcp_secret_make(key, strlen(key), "p", texts, 2, secret);
    tcp_secret_make(key, strlen(key), "p", joined, 2, other);
    assert_memory_not_equal(secret, other, TCP_SECRET);
    tcp_challenge_make(a);
    tcp_challenge_make(b);
    tcp_hello_make(secret, a, (tcp_place){5, 3, 1}, hello);
    assert_int_equal(tcp_hello_judge(secret, a, hello, &place), TCP_WELCOME);
    assert_true(place.from == 5 && place.to == 3 && place.stream == 1);
    assert_int_equal(tcp_hello_judge(secret, b, hello, &place), TCP_WRONG_KEY);
    assert_int_equal(tcp_hello_judge(other, a, hello, &place), TCP_WRONG_KEY);
    tcp_answer_make(secret, a, hello, proof);
    assert_true(tcp_answer_is_right(secret, a, hello, proof));
    assert_false(tcp_answer_is_right(secret, b, hello, proof));
    assert_false(tcp_answer_is_right(secret, a, hello, hello + TCP_HELLO - TCP_PROOF)); /* sent back */
    for (int i = TCP_MAGIC; i < TCP_HELLO; i++) {
        hello[i] ^= 1;
        assert_int_equal(tcp_hello_judge(secret, a, hello, &place), TCP_WRONG_KEY);
        hello[i] ^= 1;
    }
}

/* --- messages -------------------------------------------------------------------------------------------------- */

static tcp_player pair[2];
static unsigned char sent[LARGE], received[LARGE];

static int pair_up(void **state)
{
    listen_all(pair, 2);
    connect_all(pair, 2);
    for (size_t i = 0; i < LARGE; i++) sent[i] = (unsigned char)(i * 7 + i / 251);
    memset(received, 0, LARGE);
    return pair[0].status != TW_OK || pair[1].status != TW_OK;
}

static int part(void **state)
{
    destroy_all(pair, 2);
    return 0;
}

static void *start_send(unsigned channel, size_t at, size_t size)
{
    void *request = NULL;
    tw_comm *comm = pair[0].comm;
    assert_int_equal(comm->ops.start_send(comm->self, 1, channel, sent + at, size, (uint32_t)at, &request), TW_OK);
    return request;
}

static void *start_receive(unsigned channel, size_t at, size_t capacity)
{
    void *request = NULL;
    tw_comm *comm = pair[1].comm;
    assert_int_equal(comm->ops.start_recv(comm->self, 0, channel, received + at, capacity, &request), TW_OK);
    return request;
}

static tw_status end_within(int rank, void *request, double seconds, size_t *size)
{
    uint32_t check;
    return pair[rank].comm->ops.wait(pair[rank].comm->self, request, seconds, size, &check);
}

static void end(int rank, void *request, size_t size)
{
    size_t got = 0;
    assert_int_equal(end_within(rank, request, 60, &got), TW_OK);
    assert_int_equal(got, size);
}

static int is_over(int rank, void *request)
{
    return pair[rank].comm->ops.poll(pair[rank].comm->self, request, 0);
}

/* What nobody receives holds up its own channel, and no other. */
TEST_BETWEEN(a_channel_that_stands_holds_up_no_other, pair_up, part)
{
    enum { MANY = TCP_FAR_WINDOW / (SMALL + TCP_MESSAGE_COST) + 1 }; /* more than are sent ahead on a busy machine */
    void *large = start_send(1, 0, LARGE), *many[MANY];
    for (int i = 0; i < MANY; i++) many[i] = start_send(2, (size_t)i, SMALL);
    assert_false(is_over(0, many[MANY - 1])); /* its credit is at an end */
    for (int i = 0; i < 3; i++) {
        void *receive = start_receive(3, 0, LARGE);
        end(0, start_send(3, 0, LARGE), LARGE);
        end(1, receive, LARGE);
    }
    assert_false(is_over(0, large));
    for (int i = 0; i < MANY; i++) end(1, start_receive(2, (size_t)i, SMALL), SMALL);
    for (int i = 0; i < MANY; i++) end(0, many[i], SMALL);
    memset(received, 0, LARGE);
    end(1, start_receive(1, 0, LARGE), LARGE);
    end(0, large, LARGE);
    assert_memory_equal(sent, received, LARGE);
}

/* The next receive gets it. */
TEST_BETWEEN(a_receive_that_was_taken_back_takes_nothing, pair_up, part)
{
    for (size_t size = SMALL; size <= LARGE; size = size == SMALL ? LARGE : LARGE + 1) {
        size_t got = 0;
        void *first = start_receive(1, 0, size), *second = start_receive(1, size / 2, size / 2);
        assert_int_equal(end_within(1, first, 0, &got), TW_ERROR_PEER);
        memset(received, 3, LARGE);
        void *send = start_send(1, 0, size / 2);
        end(1, second, size / 2);
        end(0, send, size / 2);
        assert_memory_equal(received + size / 2, sent, size / 2);
        for (size_t i = 0; i < size / 2; i++) assert_int_equal(received[i], 3);
    }
}

TEST_BETWEEN(a_send_that_was_taken_back_is_not_sent, pair_up, part)
{
    size_t got = 0;
    void *large = start_send(1, 0, LARGE), *behind = start_send(1, 5, SMALL);
    assert_int_equal(end_within(0, large, 0.02, &got), TW_ERROR_PEER); /* it has been offered by now, or has not */
    end(1, start_receive(1, 0, LARGE), SMALL);
    end(0, behind, SMALL);
    assert_memory_equal(received, sent + 5, SMALL);
}

/* In the middle of a message, its memory comes back on either side, and is not touched any more. */
TEST_BETWEEN(memory_comes_back_in_the_middle, pair_up, part)
{
    for (int i = 0; i < 20; i++) {
        size_t got = 0;
        void *receive = start_receive(1, 0, LARGE), *send = start_send(1, 0, LARGE);
        tw_status sender = end_within(0, send, i * 1e-4, &got);
        memset(sent, 9, LARGE);
        tw_status receiver = end_within(1, receive, i * 1e-4, &got);
        memset(received, 5, LARGE);
        end(0, start_send(2, 0, 1), 1);
        end(1, start_receive(2, 0, 1), 1);
        assert_true(sender == TW_OK || sender == TW_ERROR_PEER);
        if (receiver == TW_OK) assert_true(got == LARGE);
        for (size_t j = 1; j < LARGE; j++)
            if (received[j] != 5) fail_msg("trial %d: byte %zu was written", i, j);
        if (receiver == TW_OK) continue;
        tw_comm_leave(pair[0].comm); /* what is under way on channel 1 has no meaning any more */
        part(NULL);
        assert_int_equal(pair_up(NULL), 0);
    }
}

TEST_BETWEEN(too_long_at_every_moment, pair_up, part)
{
    const size_t rooms[] = {SMALL, 100 * 1000}, sizes[] = {SMALL + 1, LARGE};
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < 2; s++)
            for (int first = 0; first < 2; first++) {
                size_t got = 0;
                if (sizes[s] <= rooms[r]) continue;
                void *receive = first ? start_receive(4, 0, rooms[r]) : NULL;
                void *send = start_send(4, 0, sizes[s]);
                if (!receive) receive = start_receive(4, 0, rooms[r]);
                assert_int_equal(end_within(1, receive, 60, &got), TW_ERROR_PACKET);
                end(0, send, sizes[s]);
                end(0, start_send(4, 1, SMALL), SMALL); /* and the next is as good as ever */
                end(1, start_receive(4, 0, SMALL), SMALL);
            }
}

/* What came before its sender left is still to be had. */
TEST_BETWEEN(what_came_in_time_is_there, pair_up, part)
{
    size_t got;
    void *missing = start_receive(2, 0, SMALL);
    end(0, start_send(1, 0, SMALL), SMALL);
    tw_comm_destroy(pair[0].comm);
    pair[0].comm = NULL;
    assert_fails(end_within(1, missing, 60, &got), TW_ERROR_PEER, "rank 0 has left");
    end(1, start_receive(1, 0, SMALL), SMALL);
}

static uint64_t signs_of_rank_1(int ask)
{
    return pair[0].comm->ops.signs(pair[0].comm->self, 1, ask);
}

static void wait_until_answered(tcp_peer *peer)
{
    for (double deadline = tw_clock() + PATIENCE; tw_clock() < deadline; usleep(1000)) {
        tcp_peer_lock(peer);
        int waits = peer->asked;
        tcp_peer_unlock(peer);
        if (!waits) return;
    }
    fail();
}

/* Its program calls nothing, and messages that it does not receive stand before the question: one that waits for its
 * receive, and more small ones than are sent ahead where a round trip is long, as one is on a busy machine. */
TEST_BETWEEN(a_rank_whose_program_is_busy_answers, pair_up, part)
{
    enum { MANY = TCP_FAR_WINDOW / (SMALL + TCP_MESSAGE_COST) + 1 };
    void *large = start_send(1, 0, LARGE), *many[MANY];
    for (int i = 0; i < MANY; i++) many[i] = start_send(2, (size_t)i, SMALL);
    for (int i = 0; i < 3; i++) {
        (void)signs_of_rank_1(1);
        wait_until_answered(&((tcp_group *)pair[0].comm->self)->peers[1]);
    }
    assert_true(signs_of_rank_1(0) >= 3);
    assert_false(is_over(0, large) || is_over(0, many[MANY - 1]));
    assert_int_equal(end_within(0, large, 0, &(size_t){0}), TW_ERROR_PEER);
    for (int i = 0; i < MANY; i++) (void)end_within(0, many[i], 0, &(size_t){0});
}

typedef struct heard {
    char wanted[2 * TCP_ADDRESS];
    _Atomic int waits, named, ends;
} heard;

static void hear_of_waits(void *context, tw_log_level level, const char *text)
{
    heard *all = context;
    (void)level;
    all->named += strstr(text, all->wanted) != NULL;
    all->waits += strstr(text, "programs are busy") != NULL;
    all->ends += strstr(text, "seconds the group goes on") != NULL;
}

typedef struct waiter {
    pthread_t thread;
    tw_channel *channel;
    int from;
    tw_status status;
} waiter;

static void *receive_a_byte(void *argument)
{
    waiter *me = argument;
    char got = 0;
    tw_channel_start_receive(me->channel, me->from, &got, 1, NULL);
    me->status = tw_channel_finish(me->channel);
    return NULL;
}

static void begin_waiter(waiter *me, tw_channel *channel, int from)
{
    *me = (waiter){.channel = channel, .from = from};
    assert_int_equal(pthread_create(&me->thread, NULL, receive_a_byte, me), 0);
}

static void send_a_byte(tw_channel *channel, int to)
{
    tw_channel_start_send(channel, to, "x", 1);
    assert_ok(tw_channel_finish(channel));
}

static void wait_for_count(const _Atomic int *count, int wanted)
{
    for (double deadline = tw_clock() + PATIENCE; *count < wanted; usleep(1000)) assert_true(tw_clock() < deadline);
}

static uint64_t signs_of(const tcp_player *player, int rank)
{
    return player->comm->ops.signs(player->comm->self, rank, 0);
}

/* Rank 2 waits for rank 1, whose program waits itself. A second thread of that asks for longer than the first did. */
TEST(a_rank_that_keeps_all_waiting_is_named_by_each_once)
{
    static heard all;
    tcp_player players[RANKS];
    tw_channel *more[RANKS];
    waiter waits[3];
    listen_all(players, RANKS);
    connect_all(players, RANKS);
    snprintf(all.wanted, sizeof all.wanted, "whose programs are busy: rank 0 at %.*s; for up to ",
             (int)strcspn(addresses[0], "#"), addresses[0]);
    for (int r = 0; r < RANKS; r++) {
        assert_ok(tw_comm_set_timeout(players[r].comm, 2));
        assert_ok(tw_comm_set_patience(players[r].comm, PATIENCE));
        assert_ok(tw_channel_create(players[r].comm, &more[r]));
    }
    tw_set_log(hear_of_waits, &all);
    begin_waiter(&waits[2], players[2].comm->channel, 1);
    begin_waiter(&waits[0], players[1].comm->channel, 0);
    wait_for_count(&all.waits, 2);
    begin_waiter(&waits[1], more[1], 0);
    const uint64_t signs = signs_of(&players[1], 0);
    for (double deadline = tw_clock() + PATIENCE; signs_of(&players[1], 0) < signs + 20; usleep(1000))
        assert_true(tw_clock() < deadline);
    assert_int_equal(all.ends, 0);
    send_a_byte(players[0].comm->channel, 1);
    send_a_byte(more[0], 1);
    for (int i = 0; i < 2; i++) pthread_join(waits[i].thread, NULL);
    send_a_byte(players[1].comm->channel, 2);
    pthread_join(waits[2].thread, NULL);
    tw_set_log(NULL, NULL);
    for (int i = 0; i < 3; i++) assert_int_equal(waits[i].status, TW_OK);
    assert_int_equal(all.waits, 2);
    assert_int_equal(all.named, 2);
    assert_int_equal(all.ends, 2);
    for (int r = 0; r < RANKS; r++) tw_channel_destroy(more[r]);
    destroy_all(players, RANKS);
}

/* Rank 1 waits for rank 0 while other messages go between them. Rank 2's program, which waits for nobody, does not keep
 * them from it. Then nothing moves any more. */
TEST(while_messages_move_nobodys_program_is_busy)
{
    static heard all;
    tcp_player players[RANKS];
    tw_channel *more[RANKS];
    waiter waits;
    listen_all(players, RANKS);
    connect_all(players, RANKS);
    for (int r = 0; r < RANKS; r++) {
        assert_ok(tw_comm_set_timeout(players[r].comm, 2));
        assert_ok(tw_comm_set_patience(players[r].comm, PATIENCE));
        assert_ok(tw_channel_create(players[r].comm, &more[r]));
    }
    tw_set_log(hear_of_waits, &all);
    begin_waiter(&waits, players[1].comm->channel, 0);
    for (double end = tw_clock() + 3; tw_clock() < end; usleep(1000)) {
        char got;
        send_a_byte(more[0], 1);
        tw_channel_start_receive(more[1], 0, &got, 1, NULL);
        assert_ok(tw_channel_finish(more[1]));
    }
    assert_int_equal(all.waits, 0);
    wait_for_count(&all.waits, 1);
    send_a_byte(players[0].comm->channel, 1);
    pthread_join(waits.thread, NULL);
    tw_set_log(NULL, NULL);
    assert_int_equal(waits.status, TW_OK);
    for (int r = 0; r < RANKS; r++) tw_channel_destroy(more[r]);
    destroy_all(players, RANKS);
}

/* The text tells it from a process that has died. */
TEST_BETWEEN(who_leaves_says_so, pair_up, part)
{
    size_t got;
    void *missing = start_receive(2, 0, SMALL);
    tw_comm_leave(pair[0].comm);
    assert_fails(end_within(1, missing, 60, &got), TW_ERROR_PEER, "rank 0 has left");
}

/* Rank 0 loses patience with rank 2, which is the second of a part. Of the others each waits for one that gave up. */
TEST(who_failed_is_named_by_all)
{
    static const int ranks[] = {0, 2};
    tcp_player players[MOST_PLAYERS];
    tw_comm *part;
    listen_all(players, MOST_PLAYERS);
    connect_all(players, MOST_PLAYERS);
    assert_ok(tw_comm_set_timeout(players[0].comm, 0.05));
    assert_ok(tw_comm_set_patience(players[0].comm, 0.05));
    assert_ok(tw_comm_create_part(players[0].comm, ranks, 2, &part));
    receive_fails(part, 1, "rank 1 ");
    receive_fails(players[1].comm, 0, "rank 2 failed: rank 0 gave up the group because of it");
    receive_fails(players[3].comm, 1, "rank 2 failed: rank 1 gave up the group because of it");
    tw_comm_destroy(part);
    destroy_all(players, MOST_PLAYERS);
}

/* It had sent a message before, which comes, and its program is busy: nobody but rank 0 has lost patience. */
TEST(who_was_given_up_by_one_is_waited_for_by_none)
{
    tcp_player players[RANKS];
    char word = 'x', got = 0;
    listen_all(players, RANKS);
    connect_all(players, RANKS);
    assert_ok(tw_comm_set_timeout(players[0].comm, 0.05));
    assert_ok(tw_comm_set_patience(players[0].comm, 0.05));
    for (int r = 1; r < RANKS; r++) {
        assert_ok(tw_comm_set_timeout(players[r].comm, 30));
        assert_ok(tw_comm_set_patience(players[r].comm, 30));
    }
    tw_channel_start_send(players[1].comm->channel, 2, &word, 1);
    assert_ok(tw_channel_finish(players[1].comm->channel));
    receive_fails(players[0].comm, 1, "rank 1 ");
    tw_channel_start_receive(players[2].comm->channel, 1, &got, 1, NULL);
    assert_ok(tw_channel_finish(players[2].comm->channel));
    assert_int_equal(got, word);
    receive_fails(players[2].comm, 1, "rank 1 failed: rank 0 gave up the group because of it");
    receive_fails(players[1].comm, 2, "rank 1 failed: rank 2 gave up the group because of it");
    destroy_all(players, RANKS);
}

static tcp_peer *peer_of(const tcp_player *player, int rank)
{
    return &((tcp_group *)player->comm->self)->peers[rank];
}

static void leave_one(tcp_peer *peer, int because_of, int waited)
{
    tcp_peer_lock(peer);
    tcp_peer_leave(peer, because_of, waited, "it alone is told");
    tcp_peer_unlock(peer);
}

static void wait_until_gone(tcp_peer *peer)
{
    for (double deadline = tw_clock() + PATIENCE; tw_clock() < deadline; usleep(1000)) {
        tcp_peer_lock(peer);
        int gone = peer->gone;
        tcp_peer_unlock(peer);
        if (gone) return;
    }
    fail_msg("rank %d has not gone", peer->rank);
}

static void wait_until_there(const tcp_peer *peer, size_t bytes)
{
    int there = 0;
    for (double deadline = tw_clock() + PATIENCE; tw_clock() < deadline; usleep(1000))
        if (ioctl(peer->stream[0].fd, FIONREAD, &there) == 0 && (size_t)there >= bytes) return;
    fail_msg("of %zu bytes from rank %d %d have come", bytes, peer->rank, there);
}

/* The thread of rank 2 is told of the two in the order in which they came, and cannot read the first before the second
 * is there, too. */
TEST(what_came_before_one_was_given_up_is_read)
{
    enum { MANY = 3 * TCP_STAGE };
    tcp_player players[RANKS];
    unsigned char *all = calloc(2, MANY), *got = all + MANY;
    listen_all(players, RANKS);
    connect_all(players, RANKS);
    memset(all, 'x', MANY);
    tcp_peer *teller = peer_of(&players[2], 0);
    tcp_peer_lock(teller);
    leave_one(peer_of(&players[0], 2), 1 + 1, 1);
    wait_until_there(teller, TCP_FRAME_BYTES);
    tw_channel_start_send(players[1].comm->channel, 2, all, MANY);
    assert_ok(tw_channel_finish(players[1].comm->channel));
    wait_until_there(peer_of(&players[2], 1), MANY);
    tcp_peer_unlock(teller);
    wait_until_gone(peer_of(&players[2], 1));
    tw_channel_start_receive(players[2].comm->channel, 1, got, MANY, NULL);
    assert_ok(tw_channel_finish(players[2].comm->channel));
    assert_memory_equal(got, all, MANY);
    receive_fails(players[2].comm, 1, "rank 1 failed: rank 0 gave up the group because of it");
    destroy_all(players, RANKS);
    free(all);
}

/* Rank 1 sees sooner than rank 2 that rank 0 goes: what that has sent to rank 2 is still on its way. */
TEST(who_goes_is_given_up_by_each_when_it_has_gone)
{
    tcp_player players[RANKS];
    char word = 'x', got = 0;
    listen_all(players, RANKS);
    connect_all(players, RANKS);
    leave_one(peer_of(&players[0], 1), 0, 0);
    receive_fails(players[1].comm, 0, "rank 0 has left");
    wait_until_gone(peer_of(&players[2], 1));
    tw_channel_start_send(players[0].comm->channel, 2, &word, 1);
    assert_ok(tw_channel_finish(players[0].comm->channel));
    tw_channel_start_receive(players[2].comm->channel, 0, &got, 1, NULL);
    assert_ok(tw_channel_finish(players[2].comm->channel));
    assert_int_equal(got, word);
    destroy_all(players, RANKS);
}

/* Only rank 1 hears that rank 0 has waited for rank 2 in vain, and hands it on. */
TEST(who_was_given_up_is_waited_for_by_none_who_hears_it_from_another)
{
    tcp_player players[MOST_PLAYERS];
    listen_all(players, MOST_PLAYERS);
    connect_all(players, MOST_PLAYERS);
    leave_one(peer_of(&players[0], 1), 1 + 2, 1);
    wait_until_gone(peer_of(&players[1], 0));
    receive_fails(players[1].comm, 0, "rank 2 failed: rank 0 gave up the group because of it");
    wait_until_gone(peer_of(&players[3], 2));
    receive_fails(players[3].comm, 2, "rank 2 failed: rank 1 gave up the group because of it");
    destroy_all(players, MOST_PLAYERS);
}

/* It goes because it was given up itself. */
TEST(who_was_given_up_names_nobody_else)
{
    tcp_player players[RANKS];
    listen_all(players, RANKS);
    connect_all(players, RANKS);
    leave_one(peer_of(&players[0], 1), 1 + 1, 0);
    receive_fails(players[1].comm, 0, "rank 1 failed: rank 0 gave up the group because of it");
    receive_fails(players[2].comm, 1, "rank 1 has left");
    destroy_all(players, RANKS);
}

static void keep_text(void *context, tw_log_level level, const char *text)
{
    snprintf(context, TCP_REASON, "%d %s", (int)level, text);
}

static void wait_until_begun(tcp_peer *peer, const tcp_request *send)
{
    for (double deadline = tw_clock() + PATIENCE; tw_clock() < deadline; usleep(1000)) {
        tcp_peer_lock(peer);
        int begun = send->begun;
        tcp_peer_unlock(peer);
        if (begun) return;
    }
    fail_msg("the message has not begun");
}

/* The other end is there, and reads nothing. */
TEST_BETWEEN(what_destroy_loses_is_told, pair_up, part)
{
    char told[TCP_REASON] = "";
    size_t got;
    tcp_group *one = pair[0].comm->self, *other = pair[1].comm->self;
    void *receive = start_receive(1, 0, LARGE);
    tcp_peer_lock(&other->peers[0]);
    void *send = start_send(1, 0, LARGE);
    wait_until_begun(&one->peers[1], send);
    (void)end_within(0, send, 0, &got);
    one->parting = 0.1;
    tw_set_log(keep_text, told);
    tw_comm_destroy(pair[0].comm);
    tw_set_log(NULL, NULL);
    pair[0].comm = NULL;
    tcp_peer_unlock(&other->peers[0]);
    assert_int_equal(end_within(1, receive, PATIENCE, &got), TW_ERROR_PEER);
    assert_string_equal(told, "1 rank 0: when its comm ended, rank 1 had not received all that was sent to it");
}

/* --- numbers of channels --------------------------------------------------------------------------------------- */

enum { MOST_VALUES = 40000 };

typedef struct maker {
    pthread_t thread;
    tw_comm *comm;
    int reducers; /* to make and destroy, with a step of each */
    int wrong;    /* means, and calls that failed */
} maker;

/* Rank 1 has one more than rank 0 in each place. */
static int take_step(tw_reducer *reducer, float *values, int count, float value, float mean)
{
    int wrong = 0;
    for (int i = 0; i < count; i++) values[i] = value;
    wrong += tw_reducer_submit(reducer, 0, values) != TW_OK || tw_reducer_wait(reducer) != TW_OK;
    for (int i = 0; i < count; i++) wrong += values[i] != mean;
    return wrong;
}

static void *make_reducers(void *argument)
{
    maker *me = argument;
    static float values[2][MOST_VALUES];
    int rank = me->comm->rank;
    for (int i = 0; i < me->reducers && !me->wrong; i++) {
        int count = i % 7 == 0 ? MOST_VALUES : 100;
        tw_tensor tensor = {"a", 1, {(size_t)count}};
        tw_reducer *reducer = NULL;
        me->wrong = tw_reducer_create(me->comm, "allreduce:overlap=off", &tensor, 1, &reducer) != TW_OK;
        if (!me->wrong) me->wrong = take_step(reducer, values[rank], count, (float)(i + rank), (float)i + 0.5F);
        tw_reducer_destroy(reducer);
    }
    return NULL;
}

static void make_everywhere(int reducers)
{
    maker makers[2];
    for (int r = 0; r < 2; r++) {
        makers[r] = (maker){.comm = pair[r].comm, .reducers = reducers};
        assert_int_equal(pthread_create(&makers[r].thread, NULL, make_reducers, &makers[r]), 0);
    }
    for (int r = 0; r < 2; r++) pthread_join(makers[r].thread, NULL);
    for (int r = 0; r < 2; r++) assert_int_equal(makers[r].wrong, 0);
}

static size_t flows_after(int reducers)
{
    make_everywhere(reducers);
    return ((tcp_group *)pair[0].comm->self)->peers[1].flow_count;
}

/* What is looked through for each frame that goes. */
TEST_BETWEEN(reducers_that_are_gone_leave_no_flows, pair_up, part)
{
    size_t one = flows_after(1);
    assert_int_equal(flows_after(2000), one);
}

/* It has left its sender in good order, and lies with the other rank. */
TEST_BETWEEN(what_was_never_received_meets_no_later_channel, pair_up, part)
{
    tw_channel *channels[2];
    for (int r = 0; r < 2; r++) assert_int_equal(tw_channel_create(pair[r].comm, &channels[r]), TW_OK);
    unsigned number = channels[0]->number;
    tw_channel_start_send(channels[0], 1, sent, SMALL);
    assert_int_equal(tw_channel_finish(channels[0]), TW_OK);
    for (int r = 0; r < 2; r++) tw_channel_destroy(channels[r]);
    make_everywhere(3);
    end(1, start_receive(number, 0, SMALL), SMALL);
}

TEST(what_a_letter_says_is_printable)
{
    unsigned char secret[TCP_SECRET] = {0}, bytes[TCP_REQUEST];
    tcp_wish wish = {.size = 2, .rank = -1, .address = "\x1b[2Jhost:1\n#"}, got;
    tcp_reply_kind kind;
    size_t size;
    int rank;
    char *text;
    tcp_request_write(&wish, secret, bytes);
    assert_true(tcp_request_read(bytes, secret, &got));
    assert_string_equal(got.address, "?[2Jhost:1?#");
    unsigned char *reply = tcp_reply_write(TCP_REFUSED, 0, "one\ntwo\x1b\x7f\r", secret, &size);
    assert_non_null(reply);
    assert_true(tcp_reply_read(reply, size, secret, &kind, &rank, &text));
    assert_string_equal(text, "one\ntwo???");
    free(reply);
}

/* --- one end alone ----------------------------------------------------------------------------------------------- */

static tcp_flow *begin_alone(tcp_peer *peer)
{
    tcp_peer_create(peer, 7, 8);
    tcp_flow *flow;
    assert_int_equal(tcp_flow_of(peer, 0, &flow), TW_OK);
    return flow;
}

static tcp_request *post_alone(tcp_peer *peer, tcp_flow *flow, size_t size)
{
    tcp_request *send = malloc(sizeof *send);
    *send = (tcp_request){.peer = peer, .is_send = 1, .src = sent, .size = size};
    tcp_outbox_post(flow, send);
    return send;
}

/* Whether a message of the flow goes now, which it then does. */
static int goes(tcp_peer *peer)
{
    tcp_outgoing frame;
    if (!tcp_outbox_next(peer, 0, &frame)) return 0;
    tcp_outbox_written(frame.message);
    return 1;
}

/* To the byte, before and after some of it has come back. */
TEST(a_sender_keeps_to_its_credit)
{
    enum { COST = SMALL + TCP_MESSAGE_COST, FIT = TCP_WINDOW / COST, MANY = 2 * FIT };
    tcp_peer peer;
    tcp_flow *flow = begin_alone(&peer);
    tcp_request *sends[MANY];
    int gone = 0;
    for (int i = 0; i < MANY; i++) sends[i] = post_alone(&peer, flow, SMALL);
    while (goes(&peer)) gone++;
    assert_int_equal(gone, FIT);
    assert_true(tcp_outbox_take(&peer, &(tcp_frame){.kind = TCP_CREDIT, .size = 10 * COST}, flow));
    while (goes(&peer)) gone++;
    assert_int_equal(gone, FIT + 10);
    for (int i = 0; i < MANY; i++) assert_int_equal(sends[i]->outcome, i < gone ? TCP_DONE : TCP_PENDING);
    tcp_peer_fail(&peer, TW_ERROR_PEER, "it is over");
    for (int i = 0; i < MANY; i++) free(sends[i]);
    tcp_peer_destroy(&peer);
}

/* A receiver with much room says READY before it knows that the message is small. So it may for ever. */
TEST(what_goes_on_credit_uses_its_permit_up)
{
    tcp_peer peer;
    tcp_flow *flow = begin_alone(&peer);
    for (uint64_t seq = 0; seq < 2 * TCP_MOST_FLOWS; seq++) {
        assert_true(tcp_outbox_take(&peer, &(tcp_frame){.kind = TCP_READY, .seq = seq, .size = LARGE}, flow));
        tcp_request *send = post_alone(&peer, flow, SMALL);
        assert_true(goes(&peer));
        flow->owed = 0;
        assert_int_equal(send->outcome, TCP_DONE);
        assert_true(peer.permits <= 1);
        free(send);
    }
    tcp_peer_destroy(&peer);
}

/* The next frame of the sender's, as its receiver gets it; 0: there is none. */
static int hand_on(tcp_peer *sender, int stream, tcp_peer *receiver, tcp_flow *flow)
{
    tcp_outgoing out;
    tcp_frame frame;
    tcp_slot *slot;
    if (!tcp_outbox_next(sender, stream, &out)) return 0;
    assert_true(tcp_frame_read(out.header, &frame));
    assert_true(tcp_inbox_take(receiver, &frame, flow, &slot));
    if (!out.message) return 1;
    memcpy(tcp_inbox_target(slot, out.offset), tcp_outbox_bytes(out.message, out.offset), out.length);
    tcp_inbox_arrived(flow, slot, out.length);
    tcp_outbox_written(out.message);
    return 1;
}

/* The receiver has heard of a large message that was taken back, and of the small one in its place before it begins,
 * by whichever connection: a receive with room for the small one alone gets it. */
TEST(a_small_message_follows_an_offer_that_was_taken_back)
{
    tcp_peer sender, receiver;
    tcp_flow *out = begin_alone(&sender), *in = begin_alone(&receiver);
    tcp_request *large = post_alone(&sender, out, LARGE);
    assert_true(hand_on(&sender, 0, &receiver, in));
    tcp_outbox_withdraw(large);
    tcp_outbox_withdraw(post_alone(&sender, out, LARGE)); /* it takes the place, and is not told of */
    tcp_request *small = post_alone(&sender, out, SMALL);
    while (hand_on(&sender, 1, &receiver, in)) continue;
    assert_true(hand_on(&sender, 0, &receiver, in));
    tcp_request receive = {.peer = &receiver, .dst = received, .size = SMALL};
    assert_int_equal(tcp_inbox_post(in, &receive), TW_OK);
    while (hand_on(&sender, 1, &receiver, in)) continue;
    assert_int_equal(receive.outcome, TCP_DONE);
    assert_int_equal(small->outcome, TCP_DONE);
    assert_memory_equal(received, sent, SMALL);
    assert_true(tcp_outbox_is_empty(&sender));
    free(small);
    tcp_peer_destroy(&sender);
    tcp_peer_destroy(&receiver);
}

/* It goes with the connection while frames of it are under way. Those of other channels are looked for after it. */
TEST(what_was_taken_back_ends_with_its_connection)
{
    tcp_peer peer;
    tcp_flow *older = begin_alone(&peer), *newer;
    assert_int_equal(tcp_flow_of(&peer, 1, &newer), TW_OK);
    tcp_stream *stream = peer.stream = calloc(1, sizeof *stream);
    *stream = (tcp_stream){.peer = &peer, .fd = -1, .out_count = 2};
    peer.streams = 1;
    tcp_request *back = post_alone(&peer, newer, SMALL), *waits = post_alone(&peer, older, SMALL);
    for (int i = 0; i < stream->out_count; i++) assert_true(tcp_outbox_next(&peer, 0, &stream->out[i]));
    tcp_outbox_withdraw(back);
    tcp_peer_fail(&peer, TW_ERROR_PEER, "it is over");
    assert_int_equal(waits->outcome, TCP_FAILED);
    for (int i = 0; i < 2; i++) assert_null(stream->out[i].message);
    free(waits);
    tcp_peer_destroy(&peer);
}

TEST(too_many_channels_are_told_so)
{
    tcp_peer peer;
    tcp_flow *flow = begin_alone(&peer);
    peer.flow_count = TCP_MOST_FLOWS;
    assert_int_equal(tcp_flow_of(&peer, 0, &flow), TW_OK); /* it is there */
    assert_int_equal(tcp_flow_of(&peer, 1, &flow), TW_ERROR_UNSUPPORTED);
    assert_string_equal(tw_last_error(),
                        "rank 7 has 65536 channels already, the most there can be over sockets: destroy reducers and "
                        "gossips that are no longer needed before others are made");
    tcp_peer_destroy(&peer);
}

/* A header of 48 bytes names a message far ahead, and so has places made for those before it. */
TEST(what_a_peer_sends_makes_so_many_places)
{
    tcp_peer peer;
    tcp_slot *slot;
    tcp_flow *flow = begin_alone(&peer);
    peer.slots = TCP_MOST_SLOTS - 5;
    assert_int_equal(tcp_inbox_take(&peer, &(tcp_frame){.kind = TCP_OFFER, .seq = 4, .size = 9}, flow, &slot), 1);
    assert_int_equal(peer.slots, TCP_MOST_SLOTS);
    assert_int_equal(tcp_inbox_take(&peer, &(tcp_frame){.kind = TCP_OFFER, .seq = 5, .size = 9}, flow, &slot), 0);
    assert_int_equal(peer.why, TW_ERROR_PACKET);
    tcp_peer_destroy(&peer);
}

/* What it sent before it closed is there, though the first that is noticed is that it takes nothing more. */
TEST(what_came_before_a_broken_pipe_is_read)
{
    int fds[2];
    tcp_peer peer;
    unsigned char bytes[TCP_FRAME_BYTES], word[SMALL];
    tcp_flow *flow = begin_alone(&peer);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    peer.stream = calloc(1, sizeof *peer.stream);
    peer.stream[0] = (tcp_stream){.peer = &peer, .fd = fds[0]};
    peer.streams = peer.open_streams = 1;
    tcp_request receive = {.peer = &peer, .dst = word, .size = sizeof word};
    assert_int_equal(tcp_inbox_post(flow, &receive), TW_OK);
    tcp_frame_write(&(tcp_frame){.kind = TCP_DATA, .length = SMALL, .size = SMALL}, bytes);
    assert_int_equal(write(fds[1], bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(write(fds[1], sent, SMALL), SMALL);
    close(fds[1]);
    tcp_request *send = post_alone(&peer, flow, SMALL);
    tcp_stream_push(&peer);
    assert_int_equal(receive.outcome, TCP_DONE);
    assert_int_equal(send->outcome, TCP_FAILED);
    assert_true(peer.gone);
    assert_memory_equal(word, sent, SMALL);
    free(send);
    close(fds[0]);
    tcp_peer_destroy(&peer);
}

enum { HERES = 2 * TCP_STAGE / TCP_FRAME_BYTES };

/* In one piece, since a socket has room for few small ones. */
static void send_heres(int fd, size_t count)
{
    static unsigned char bytes[HERES * TCP_FRAME_BYTES];
    for (size_t i = 0; i < count; i++) tcp_frame_write(&(tcp_frame){.kind = TCP_HERE}, bytes + i * TCP_FRAME_BYTES);
    assert_int_equal(send(fd, bytes, count * TCP_FRAME_BYTES, MSG_DONTWAIT), count * TCP_FRAME_BYTES);
}

static int streaming = -1;
static size_t streamed;

/* As readv of the C library, but as much as was read has come again when it returns. */
ssize_t readv(int fd, const struct iovec *pieces, int count)
{
    typedef ssize_t function(int, const struct iovec *, int);
    function *real = (function *)dlsym(RTLD_NEXT, "readv");
    ssize_t bytes = real(fd, pieces, count);
    if (streaming < 0 || bytes <= 0) return bytes;
    streamed += (size_t)bytes;
    send_heres(streaming, (size_t)bytes / TCP_FRAME_BYTES);
    return bytes;
}

/* What was there when it looked is read, and less than a read of what came behind it. */
TEST(a_peer_that_goes_on_sending_keeps_nobody)
{
    int fds[2];
    tcp_peer peer;
    begin_alone(&peer);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    peer.stream = calloc(1, sizeof *peer.stream);
    peer.stream[0] = (tcp_stream){.peer = &peer, .fd = fds[0]};
    peer.streams = peer.open_streams = 1;
    send_heres(fds[1], HERES);
    streaming = fds[1];
    streamed = 0;
    tcp_peer_catch_up(&peer);
    streaming = -1;
    assert_in_range(streamed, HERES * TCP_FRAME_BYTES, HERES * TCP_FRAME_BYTES + TCP_STAGE);
    close(fds[0]);
    close(fds[1]);
    tcp_peer_destroy(&peer);
}

/* One of two connections ends, and the poller says so once: whoever waits for the other sleeps. */
TEST(an_end_is_told_once)
{
    int fds[2], others[2];
    tcp_peer peer;
    struct epoll_event event = {.events = EPOLLIN};
    begin_alone(&peer);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, others), 0);
    peer.poller = epoll_create1(0);
    peer.stream = calloc(2, sizeof *peer.stream);
    peer.stream[0] = (tcp_stream){.peer = &peer, .fd = fds[0]};
    peer.stream[1] = (tcp_stream){.peer = &peer, .fd = others[0], .index = 1};
    peer.streams = peer.open_streams = 2;
    assert_int_equal(epoll_ctl(peer.poller, EPOLL_CTL_ADD, fds[0], &event), 0);
    close(fds[1]);
    tcp_stream_pull(&peer.stream[0]);
    assert_false(peer.gone);
    (void)epoll_wait(peer.poller, &event, 1, 0);
    assert_int_equal(epoll_wait(peer.poller, &event, 1, 0), 0);
    close(fds[0]);
    close(others[0]);
    close(others[1]);
    close(peer.poller);
    tcp_peer_destroy(&peer);
}

/* --- a peer that breaks the rules -------------------------------------------------------------------------------- */

typedef struct wild {
    const char *rule; /* in the text; NULL: it is none */
    tcp_frame frames[2];
} wild;

/* By one of so many connections. */
static tw_status hear(const wild *what, int streams, char text[256])
{
    int fds[2];
    tcp_peer peer;
    unsigned char bytes[TCP_FRAME_BYTES], zeros[TCP_SEGMENT] = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    tcp_peer_create(&peer, 7, 8);
    peer.stream = calloc((size_t)streams, sizeof *peer.stream);
    peer.streams = streams;
    peer.open_streams = 1;
    peer.stream[0] = (tcp_stream){.peer = &peer, .fd = fds[0]};
    for (int i = 0; i < 2 && what->frames[i].kind; i++) {
        tcp_frame_write(&what->frames[i], bytes);
        assert_int_equal(write(fds[1], bytes, sizeof bytes), sizeof bytes);
        if (what->frames[i].length && what->frames[i].length <= TCP_SEGMENT)
            assert_int_equal(write(fds[1], zeros, what->frames[i].length), what->frames[i].length);
    }
    shutdown(fds[1], SHUT_WR);
    while (!peer.gone) tcp_stream_pull(&peer.stream[0]);
    tw_status why = peer.why;
    snprintf(text, 256, "%s", peer.text);
    close(fds[0]);
    close(fds[1]);
    tcp_peer_destroy(&peer);
    return why;
}

TEST(a_peer_that_breaks_the_rules_is_named)
{
    const tcp_frame good = {.kind = TCP_DATA, .length = 10, .size = 30};
    tcp_frame second = good, other = good, end_of_it = good;
    second.offset = 10;
    other.check = 1, other.offset = 10;
    end_of_it.length = 30;
    const wild cases[] = {
        {NULL, {good, second}},
        {NULL, {{.kind = TCP_OFFER, .size = 1 << 30}}},
        {NULL, {{.kind = TCP_READY, .size = 5}}},
        {"header", {{.kind = TCP_KINDS}}},
        {"header", {{.kind = TCP_DATA, .length = TCP_SEGMENT + 1, .size = 1 << 30}}},
        {"header", {{.kind = TCP_DATA, .length = 10, .size = 9}}},
        {"header", {{.kind = TCP_DATA, .length = 10, .size = 30, .offset = 21}}},
        {"header", {{.kind = TCP_DATA, .length = 10, .size = 30, .offset = UINT64_MAX - 4}}},
        {"header", {{.kind = TCP_DATA, .length = 0, .size = 30}}},
        {"header", {{.kind = TCP_BYE, .length = 1}}},
        {NULL, {{.kind = TCP_BYE, .size = 8}}},
        {"a rank that is none", {{.kind = TCP_BYE, .size = 9}}},
        {"a rank that is none", {{.kind = TCP_BYE, .size = (uint64_t)INT_MAX + 1}}},
        {"out of turn", {{.kind = TCP_DATA, .seq = TCP_MOST_AHEAD, .length = 1, .size = 1}}},
        {"out of turn", {{.kind = TCP_OFFER, .seq = UINT64_MAX, .size = 1}}},
        {"credit", {{.kind = TCP_DATA, .length = 1, .size = TCP_FAR_EAGER + 1}}},
        {"ready for", {{.kind = TCP_GRANTED, .length = 1, .size = 1 << 20}}},
        {"more pieces", {end_of_it, good}},
        {"fit together", {good, other}},
        {"has begun", {good, {.kind = TCP_OFFER, .size = 9}}},
        {"never got", {{.kind = TCP_CREDIT, .size = 1}}},
        {"far ahead", {{.kind = TCP_READY, .seq = TCP_MOST_AHEAD, .size = 1}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        tw_status why = hear(&cases[i], 1, text);
        if (why != (cases[i].rule ? TW_ERROR_PACKET : TW_ERROR_PEER) || !strstr(text, "rank 7") ||
            (cases[i].rule && !strstr(text, cases[i].rule)))
            fail_msg("case %zu: \"%s\"", i, text);
    }
}

/* It goes by the first connection, and the message may be faster by another. Nothing else may come out of turn. */
TEST(an_offer_may_come_after_its_message)
{
    char text[256];
    const tcp_frame whole = {.kind = TCP_DATA, .length = 10, .size = 10},
                    begun = {.kind = TCP_DATA, .length = 5, .size = 9};
    const tcp_frame offer = {.kind = TCP_OFFER, .size = 9};
    assert_int_equal(hear(&(wild){.frames = {begun, offer}}, 2, text), TW_ERROR_PEER);
    assert_int_equal(hear(&(wild){.frames = {whole, offer}}, 2, text), TW_ERROR_PEER);
    assert_int_equal(hear(&(wild){.frames = {whole, whole}}, 2, text), TW_ERROR_PACKET);
    assert_int_equal(hear(&(wild){.frames = {begun, offer}}, 1, text), TW_ERROR_PACKET);
    assert_int_equal(hear(&(wild){.frames = {{.kind = TCP_OFFER, .seq = UINT64_MAX, .size = 1}}}, 2, text),
                     TW_ERROR_PACKET);
}

/* The same when the message has been received, and its place is gone. */
TEST(an_offer_may_come_after_its_message_is_over)
{
    tcp_peer peer;
    tcp_slot *slot;
    unsigned char word[4];
    const tcp_frame message = {.kind = TCP_DATA, .size = 0}, offer = {.kind = TCP_OFFER, .size = 9};
    tcp_peer_create(&peer, 7, 8);
    peer.stream = calloc(2, sizeof *peer.stream);
    tcp_flow *flow;
    assert_int_equal(tcp_flow_of(&peer, 0, &flow), TW_OK);
    for (peer.streams = 2; peer.streams >= 1; peer.streams--) {
        tcp_request receive = {.peer = &peer, .dst = word, .size = sizeof word};
        tcp_frame next = message, late = offer;
        next.seq = late.seq = flow->base;
        assert_int_equal(tcp_inbox_post(flow, &receive), TW_OK);
        assert_int_equal(tcp_inbox_take(&peer, &next, flow, &slot), 1);
        assert_int_equal(receive.outcome, TCP_DONE);
        assert_int_equal(tcp_inbox_take(&peer, &late, flow, &slot), peer.streams == 2);
    }
    tcp_peer_destroy(&peer);
}

TEST(a_changed_bit_of_a_header_is_noticed)
{
    unsigned char bytes[TCP_FRAME_BYTES];
    tcp_frame frame = {.kind = TCP_DATA, .channel = 3, .check = 9, .length = 10, .seq = 4, .size = 30, .offset = 20},
              read;
    tcp_frame_write(&frame, bytes);
    assert_true(tcp_frame_read(bytes, &read));
    assert_memory_equal(&frame, &read, sizeof frame);
    for (int bit = 0; bit < 8 * TCP_FRAME_BYTES; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_false(tcp_frame_read(bytes, &read));
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

RUN_TESTS(NULL, NULL)
