/* Ranks that cannot be called: how that is found out, what is carried for them, by whom, and for whom nothing is. */
#include <group.h> /* the transport's, not the one beside this file */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/time.h>

#include "tcp_players.h"

#include "channel.h"
#include "relay.h"

enum { RANKS = MOST_PLAYERS, LARGE = 3 << 20, STRANGERS = 10000, HEADERS = 64 * 1024 };

static unsigned char sent[LARGE], received[LARGE];

/* --- a relay alone --------------------------------------------------------------------------------------------- */

/* Two ends, each with the relay's side of it. */
typedef struct ends {
    tcp_relay *relay;
    int own[2];
} ends;

static void hand_over(tcp_relay *relay, tcp_place place, int *own)
{
    int both[2], *end = tcp_relay_end(relay, place);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both), 0);
    assert_non_null(end);
    assert_int_equal(*end, -1);
    *own = both[0];
    *end = both[1];
}

static ends begin_relay(void)
{
    ends made = {.relay = tcp_relay_create(1)};
    assert_non_null(made.relay);
    tcp_relay_expect(made.relay, 3, 5, 1);
    assert_true(tcp_relay_lacks(made.relay, 3));
    hand_over(made.relay, (tcp_place){3, 5, 1}, &made.own[0]);
    assert_false(tcp_relay_lacks(made.relay, 3));
    assert_true(tcp_relay_lacks(made.relay, 5));
    assert_false(tcp_relay_lacks(made.relay, 4));
    hand_over(made.relay, (tcp_place){5, 3, 1}, &made.own[1]);
    assert_true(tcp_relay_begin(made.relay));
    return made;
}

TEST(only_what_was_agreed_has_a_place)
{
    ends one = begin_relay();
    assert_non_null(tcp_relay_end(one.relay, (tcp_place){3, 5, 1}));
    assert_null(tcp_relay_end(one.relay, (tcp_place){3, 5, 0}));
    assert_null(tcp_relay_end(one.relay, (tcp_place){3, 4, 1}));
    assert_null(tcp_relay_end(one.relay, (tcp_place){4, 5, 1}));
    assert_null(tcp_relay_end(one.relay, (tcp_place){5, 5, 1}));
    assert_null(tcp_relay_end(NULL, (tcp_place){3, 5, 1}));
    assert_false(tcp_relay_lacks(one.relay, 3) || tcp_relay_lacks(one.relay, 5) || tcp_relay_lacks(NULL, 3));
    for (int i = 0; i < 2; i++) close(one.own[i]);
    tcp_relay_destroy(one.relay, 60);
}

static size_t send_until_it_stands(int fd)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    size_t done = 0;
    ssize_t bytes;
    while (done < LARGE && poll(&room, 1, 500) == 1)
        if ((bytes = send(fd, sent + done, LARGE - done, MSG_DONTWAIT)) > 0) done += (size_t)bytes;
    return done;
}

/* Whoever sends to one that does not read is stopped before long, and nothing of it is lost. */
TEST(it_keeps_no_more_than_it_has_room_for)
{
    ends one = begin_relay();
    for (size_t i = 0; i < LARGE; i++) sent[i] = (unsigned char)(i * 7 + i / 251);
    size_t taken = send_until_it_stands(one.own[0]);
    assert_in_range(taken, 1, LARGE - 1);
    assert_int_equal(recv(one.own[1], received, taken, MSG_WAITALL), taken);
    assert_memory_equal(sent, received, taken);
    for (int i = 0; i < 2; i++) close(one.own[i]);
    assert_int_equal(tcp_relay_destroy(one.relay, 60), taken);
}

/* One end has no more to say, and still hears. */
TEST(an_end_is_passed_on_behind_the_last_byte)
{
    ends one = begin_relay();
    char word[8];
    assert_int_equal(send(one.own[0], "the last", 8, 0), 8);
    assert_int_equal(shutdown(one.own[0], SHUT_WR), 0);
    assert_int_equal(recv(one.own[1], word, 8, MSG_WAITALL), 8);
    assert_int_equal(recv(one.own[1], word, 8, 0), 0);
    assert_int_equal(send(one.own[1], "answered", 8, 0), 8);
    assert_int_equal(recv(one.own[0], word, 8, MSG_WAITALL), 8);
    assert_memory_equal(word, "answered", 8);
    close(one.own[1]);
    assert_int_equal(recv(one.own[0], word, 8, 0), 0);
    close(one.own[0]);
    assert_int_equal(tcp_relay_destroy(one.relay, 60), 16);
}

/* What still comes for it is let by, so that the other end is not held up. */
TEST(an_end_that_is_gone_holds_up_nobody)
{
    ends one = begin_relay();
    close(one.own[1]);
    for (size_t done = 0; done < LARGE;) {
        ssize_t bytes = send(one.own[0], sent + done, LARGE - done, MSG_NOSIGNAL);
        assert_true(bytes > 0);
        done += (size_t)bytes;
    }
    close(one.own[0]);
    tcp_relay_destroy(one.relay, 60);
}

/* --- groups ---------------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the notes */
static char notes[16][320];
static int note_count;

static void keep_note(void *context, tw_log_level level, const char *text)
{
    (void)context, (void)level;
    pthread_mutex_lock(&lock);
    if (note_count < 16) snprintf(notes[note_count++], sizeof notes[0], "%s", text);
    pthread_mutex_unlock(&lock);
}

/* The note with these words; fails where there is none. */
static const char *find_note(const char *words)
{
    for (int i = 0; i < note_count; i++)
        if (strstr(notes[i], words)) return notes[i];
    fail_msg("none of %d notes has \"%s\"; the first is \"%s\"", note_count, words, notes[0]);
    return NULL;
}

/* At an address of nobody (RFC 5737), where it cannot be called. */
static tw_tcp_options options_of(int behind)
{
    tw_tcp_options options = loopback_options(key);
    options.advertise = behind ? "192.0.2.1" : NULL;
    return options;
}

/* Those whose bits are set in `behind` cannot be called. */
static void listen_all(tcp_player *players, int size, unsigned behind)
{
    note_count = 0;
    for (int r = 0; r < size; r++) {
        tw_tcp_options options = options_of(behind >> r & 1);
        options.behind = behind >> r & 1;
        listen_with(&players[r], r, size, &options);
    }
}

static void end_all(tcp_player *players, int size)
{
    join_all(players, size);
    for (int r = 0; r < size; r++)
        if (players[r].status != TW_OK) fail_msg("rank %d: %s", r, players[r].text);
}

static void *destroy_player(void *argument)
{
    tcp_player *me = argument;
    tw_tcp_destroy(me->tcp);
    tw_comm_destroy(me->comm);
    return NULL;
}

/* All at once: whoever carries something waits for those it is carried for. */
static void destroy_all(tcp_player *players, int size)
{
    begin_all(players, size, destroy_player);
    join_all(players, size);
}

static void send_one(tcp_player *players, int from, int to, size_t size)
{
    tw_transport_ops ops = {.struct_size = sizeof ops};
    void *ends_of[2], *in, *out;
    size_t got = 0;
    uint32_t check;
    assert_int_equal(tw_comm_lend(players[from].comm, &ops, &ends_of[0]), TW_OK);
    assert_int_equal(tw_comm_lend(players[to].comm, &ops, &ends_of[1]), TW_OK);
    assert_int_equal(ops.start_recv(ends_of[1], from, 1, received, size, &in), TW_OK);
    assert_int_equal(ops.start_send(ends_of[0], to, 1, sent, size, 7, &out), TW_OK);
    assert_int_equal(ops.wait(ends_of[1], in, 60, &got, &check), TW_OK);
    assert_int_equal(got, size);
    assert_memory_equal(sent, received, size);
    assert_int_equal(ops.wait(ends_of[0], out, 60, &got, &check), TW_OK);
}

/* Rank 0 carries what ranks 2 and 3 say, ranks 0 and 1 taking turns by the sum of the two; and it carries nothing else.
 */
TEST(bytes_go_through_the_one_that_can_be_called)
{
    tcp_player players[RANKS];
    unsigned long long carried = 0;
    for (int turn = 0; turn < 2; turn++) {
        int callable = turn + 1, carrier = (2 + 3) % callable;
        tw_set_log(keep_note, NULL);
        listen_all(players, RANKS, ~0U << callable);
        assert_non_null(strstr(addresses[3], "/1/behind"));
        begin_all(players, RANKS, connect_player);
        end_all(players, RANKS);
        send_one(players, 2, 3, LARGE);
        send_one(players, 3, 2, LARGE / 2);
        send_one(players, 0, 3, LARGE); /* straight: rank 3 has called rank 0 */
        send_one(players, 3, 0, LARGE);
        destroy_all(players, RANKS);
        tw_set_log(NULL, NULL);
        char words[32];
        snprintf(words, sizeof words, "rank %d has carried ", carrier);
        assert_int_equal(sscanf(strstr(find_note(words), "carried"), "carried %llu bytes", &carried), 1);
        assert_in_range(carried, LARGE + LARGE / 2, LARGE + LARGE / 2 + HEADERS);
        (void)find_note("rank 3 cannot be called at 192.0.2.1:");
        snprintf(words, sizeof words, "rank 2 through rank %d", carrier);
        (void)find_note(words);
    }
}

TEST(who_carries_is_missed_as_a_peer_is)
{
    tcp_player players[3];
    tw_transport_ops ops = {.struct_size = sizeof ops};
    void *self, *in;
    size_t got;
    uint32_t check;
    listen_all(players, 3, 6);
    begin_all(players, 3, connect_player);
    end_all(players, 3);
    assert_int_equal(tw_comm_lend(players[1].comm, &ops, &self), TW_OK);
    assert_int_equal(ops.start_recv(self, 2, 1, received, LARGE, &in), TW_OK);
    tcp_group *carrier = players[0].comm->self;
    carrier->parting = 0; /* as one that dies: it waits for nobody */
    destroy_player(&players[0]);
    players[0] = (tcp_player){.tcp = NULL};
    assert_fails(ops.wait(self, in, 60, &got, &check), TW_ERROR_PEER, "the connection to rank 2 is lost");
    destroy_all(players, 3);
}

/* It is the higher rank that calls, unless the lower one cannot be called. */
TEST(a_lower_rank_may_call)
{
    tcp_player players[2];
    listen_all(players, 2, 1);
    begin_all(players, 2, connect_player);
    end_all(players, 2);
    send_one(players, 1, 0, LARGE);
    destroy_all(players, 2);
}

TEST(one_of_them_has_to_be_callable)
{
    tcp_player players[2];
    listen_all(players, 2, 3);
    for (int r = 0; r < 2; r++) {
        connect_player(&players[r]);
        assert_int_equal(players[r].status, TW_ERROR_PEER);
        assert_non_null(strstr(players[r].text, "cannot be called: one that can has to take part"));
    }
    destroy_all(players, 2);
}

/* --- strangers ------------------------------------------------------------------------------------------------- */

typedef struct stranger {
    int port;
    unsigned char secret[TCP_SECRET], other[TCP_SECRET];
} stranger;

static int is_believed(const stranger *me, const unsigned char *secret, tcp_place place)
{
    int fd = knock(me->port, NULL, secret, place, NULL);
    close(fd);
    return fd >= 0;
}

/* With a wrong key for a place that there is; and with the right one for places that are none. */
static void *send_strangers(void *argument)
{
    const stranger *me = argument;
    const tcp_place right = {1, 2, 0}, wrong[] = {{1, 3, 0}, {1, 2, 1}, {1, 1, 0}, {9, 2, 0}, {0, 2, 0}};
    for (int i = 0; i < STRANGERS / 2; i++) {
        assert_false(is_believed(me, me->other, right));
        assert_false(is_believed(me, me->secret, wrong[i % 5]));
    }
    return NULL;
}

/* They come before the group does, and while it forms. */
TEST(strangers_are_carried_nowhere)
{
    tcp_player players[3];
    pthread_t strangers;
    const char *last;
    listen_all(players, 3, 6);
    stranger all = {.port = players[0].tcp->acceptor.port};
    tcp_secret_make(key, strlen(key), "a group's connections", addresses, 3, all.secret);
    tcp_secret_make(other_key, strlen(other_key), "a group's connections", addresses, 3, all.other);
    begin_all(players, 1, connect_player);
    assert_int_equal(pthread_create(&strangers, NULL, send_strangers, &all), 0);
    pthread_join(strangers, NULL);
    begin_all(players + 1, 2, connect_player);
    end_all(players, 3);
    assert_in_range(tw_tcp_refused(players[0].tcp, &last), STRANGERS - 1, STRANGERS);
    assert_non_null(strstr(last, "it takes this rank for another"));
    send_one(players, 1, 2, LARGE);
    destroy_all(players, 3);
}

/* --- a meeting point ------------------------------------------------------------------------------------------- */

static char meeting[64];

/* All but rank 0 say that they are where nobody is. */
static void *join_player(void *argument)
{
    tcp_player *me = argument;
    const tw_tcp_options options = options_of(me->rank > 0);
    me->status = tw_tcp_join(meeting, me->rank, me->size, &options, 60, &me->comm);
    if (me->status != TW_OK) snprintf(me->text, sizeof me->text, "%s", tw_last_error());
    return NULL;
}

TEST(who_cannot_be_called_finds_out)
{
    tcp_player players[3];
    snprintf(meeting, sizeof meeting, "127.0.0.1:%d", find_port());
    note_count = 0;
    tw_set_log(keep_note, NULL);
    for (int r = 0; r < 3; r++) players[r] = (tcp_player){.rank = r, .size = 3};
    begin_all(players, 3, join_player);
    end_all(players, 3);
    send_one(players, 1, 2, LARGE);
    send_one(players, 2, 0, LARGE);
    destroy_all(players, 3);
    tw_set_log(NULL, NULL);
    (void)find_note("rank 0 has carried ");
    (void)find_note("rank 1 cannot be called at 192.0.2.1:");
    (void)find_note("rank 2 cannot be called at 192.0.2.1:");
}

/* One that takes a call and says nothing, where rank 1 says that it is. */
static int listen_silently(int port)
{
    struct sockaddr_in there = loopback_at(port);
    close(take_port(port)); /* which is free now */
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    assert_int_equal(bind(fd, (const void *)&there, sizeof there), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

static int silent_port;

static void *join_beside_silence(void *argument)
{
    tcp_player *me = argument;
    tw_tcp_options options = loopback_options(key);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(me->rank ? SIG_BLOCK : SIG_UNBLOCK, &alarm, NULL);
    if (me->rank) options.first_port = silent_port;
    if (me->rank) options.advertise = "127.0.0.2";
    me->status = tw_tcp_join(meeting, me->rank, me->size, &options, 30, &me->comm);
    if (me->status != TW_OK) snprintf(me->text, sizeof me->text, "%s", tw_last_error());
    return NULL;
}

static void ignore(int number)
{
    (void)number;
}

/* Signals that come faster than anything else happens end every wait of rank 0's early. */
TEST(time_passes_under_a_storm_of_signals)
{
    const struct itimerval storm = {{0, 500}, {0, 500}}, calm = {{0, 0}, {0, 0}};
    struct sigaction act = {.sa_handler = ignore}, before;
    tcp_player players[2];
    sigset_t alarm;
    snprintf(meeting, sizeof meeting, "127.0.0.1:%d", find_port());
    int silent = listen_silently(silent_port = find_port());
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    sigaction(SIGALRM, &act, &before);
    setitimer(ITIMER_REAL, &storm, NULL);
    for (int r = 0; r < 2; r++) players[r] = (tcp_player){.rank = r, .size = 2};
    begin_all(players, 2, join_beside_silence);
    end_all(players, 2);
    setitimer(ITIMER_REAL, &calm, NULL);
    sigaction(SIGALRM, &before, NULL);
    send_one(players, 1, 0, LARGE);
    destroy_all(players, 2);
    close(silent);
}

RUN_TESTS(NULL, NULL)
