/* What strangers cost a group whose members come and go, and what they learn of it. Nothing is timed: what the members'
 * threads do is counted, and the rounds are compared with those to which no stranger comes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <semaphore.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "members_at.h"
#include "members_lines.h"

#include <thinwire/thinwire_outer.h>

enum {
    MEMBERS = 3,
    BATCHES = 10, /* of strangers, each beside so many rounds */
    ROUNDS = 4,
    ELEMENTS = 512,
    OF_EACH_KIND = 112,              /* of strangers, in a batch */
    SILENT = 16,                     /* at a time: fewer than there are places */
    MOST_BYTES = 64 * 1024,          /* allocated more than before: six for each stranger */
    LINES = MEMBERS * (MEMBERS - 1), /* that members may still make, to have said what they decided */
    OF_A_LINE = 16,                  /* hashes for that */
    MOST_STAY = 6 * TCP_HANDSHAKES   /* more than there are */
};

/* --- what is counted --------------------------------------------------------------------------------------------- */

/* Of the threads that wait in poll, which are the members' that speak and listen. */
static struct {
    _Atomic int on;
    _Atomic long wakes, accepted, inheritable, connects, lookups, hashes, bytes;
} counted;

static _Thread_local int serves, is_program, is_walled_in, fails_to_find, is_hurried;

static int counts(void)
{
    return serves && counted.on;
}

int __real_poll(struct pollfd *polls, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *polls, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *polls, nfds_t count, int timeout)
{
    int woken = __real_poll(polls, count, timeout);
    serves = 1;
    if (counts() && woken > 0) counted.wakes++;
    return woken;
}

/* A program that wants a member's mutex while that one's thread has it, and how often the thread takes it before. */
static struct {
    enum { NOBODY, AWAITED, ACCEPTS, WAITS } _Atomic stage;
    pthread_barrier_t both; /* the thread is among strangers, and the program comes; it waits, and the thread goes on */
    pthread_mutex_t *mutex;
    int turns;
} turn;

int __real_accept4(int fd, struct sockaddr *from, socklen_t *size, int flags);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *size, int flags);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *size, int flags)
{
    int accepted = __real_accept4(fd, from, size, flags);
    if (counts() && accepted >= 0) counted.accepted++;
    if (counts() && accepted >= 0 && !(fcntl(accepted, F_GETFD) & FD_CLOEXEC)) counted.inheritable++;
    if (serves && turn.stage == AWAITED) {
        turn.stage = ACCEPTS;
        for (int i = 0; i < 2; i++) pthread_barrier_wait(&turn.both);
    }
    return accepted;
}

int __real_connect(int fd, const struct sockaddr *to, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size)
{
    if (counts()) counted.connects++;
    if (is_walled_in) {
        errno = ECONNREFUSED;
        return -1;
    }
    return __real_connect(fd, to, size);
}

/* A name server that lets whoever asks for "slow.test" wait, and knows of no other names that end so. */
static struct {
    _Atomic int asked, held_up; /* held_up: whoever asks is a thread that others wait for */
    sem_t answer;
} names;

static int ask_names(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list);

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list)
{
    if (counts()) counted.lookups++;
    if (fails_to_find && hints && !hints->ai_flags) {
        fails_to_find = 0;
        return EAI_AGAIN;
    }
    const size_t length = host ? strlen(host) : 0;
    if (length > 5 && strcmp(host + length - 5, ".test") == 0 && !(hints->ai_flags & AI_NUMERICHOST))
        return ask_names(host, port, hints, list);
    return __real_getaddrinfo(host, port, hints, list);
}

static int ask_names(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list)
{
    names.asked++;
    names.held_up += is_program;
    if (strcmp(host, "slow.test") != 0 || is_program) return EAI_NONAME;
    while (sem_wait(&names.answer) != 0) continue;
    return __real_getaddrinfo("127.0.0.1", port, hints, list);
}

ssize_t __real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
    ssize_t sent = __real_send(fd, bytes, size, flags);
    if (counts() && sent > 0) counted.bytes += sent;
    return sent;
}

int __real_crypto_generichash_init(crypto_generichash_state *state, const unsigned char *with, size_t key_size,
                                   size_t size);
int __wrap_crypto_generichash_init(crypto_generichash_state *state, const unsigned char *with, size_t key_size,
                                   size_t size);
int __wrap_crypto_generichash_init(crypto_generichash_state *state, const unsigned char *with, size_t key_size,
                                   size_t size)
{
    if (counts()) counted.hashes++;
    return __real_crypto_generichash_init(state, with, key_size, size);
}

static int lock_in_turn(pthread_mutex_t *mutex)
{
    if (pthread_mutex_trylock(mutex) == 0) return 0;
    turn.mutex = mutex;
    turn.stage = WAITS;
    pthread_barrier_wait(&turn.both);
    return 1;
}

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    const int waits = is_program && turn.stage == ACCEPTS;
    if (waits && !lock_in_turn(mutex)) return 0;
    int status = __real_pthread_mutex_lock(mutex);
    if (serves && turn.stage == WAITS && mutex == turn.mutex) turn.turns++;
    if (waits) turn.stage = NOBODY;
    return status;
}

/* For a thread that is hurried a second passes with each look at the clock, as long as it is on. */
static struct {
    _Atomic int on, seconds, over; /* over: the thread is */
} hurry;

double __real_tw_clock(void);
double __wrap_tw_clock(void);
double __wrap_tw_clock(void)
{
    if (is_hurried && hurry.on) hurry.seconds++;
    return __real_tw_clock() + (is_hurried ? hurry.seconds : 0);
}

/* --- rounds ------------------------------------------------------------------------------------------------------ */

typedef struct attendant {
    player player;
    pthread_barrier_t *batches;
    const char *spoilt;
    float theta[BATCHES * ROUNDS][ELEMENTS];
} attendant;

static void spoil(attendant *me, const char *promise)
{
    if (!me->spoilt) me->spoilt = promise;
}

static void make_round(attendant *me, tw_outer *outer, float *weights, float *theta)
{
    tw_members_outcome due = TW_MEMBERS_FINISHED;
    tw_outer_event event = TW_OUTER_NOTHING;
    for (int i = 0; i < ELEMENTS; i++) weights[i] += (float)((i * 7 + me->player.generation.rank) % 11) - 5.0F;
    if (tw_members_due(me->player.members, me->player.comm, TW_MEMBERS_STAY, &due) != TW_OK)
        spoil(me, "nobody is lost");
    if (due != TW_MEMBERS_SAME) spoil(me, "nobody comes");
    if (tw_outer_step(outer, &weights, &event) != TW_OK || event != TW_OUTER_APPLIED) spoil(me, "each round is made");
    if (tw_outer_read(outer, &theta) != TW_OK) spoil(me, "theta is there");
}

static void *attend(void *argument)
{
    attendant *me = argument;
    static const tw_tensor table = {.name = "w", .dims = 1, .shape = {ELEMENTS}};
    float weights[ELEMENTS] = {0}, *places = weights;
    tw_outer *outer = NULL;
    if (tw_outer_create(me->player.comm, "local:every=1,overlap=off", &table, 1, &outer) != TW_OK ||
        tw_outer_begin(outer, &places) != TW_OK)
        spoil(me, tw_last_error());
    for (int batch = 0; batch < BATCHES; batch++) {
        pthread_barrier_wait(me->batches);
        for (int i = 0; i < ROUNDS && !me->spoilt; i++) make_round(me, outer, weights, me->theta[batch * ROUNDS + i]);
    }
    pthread_barrier_wait(me->batches);
    tw_outer_destroy(outer);
    return NULL;
}

/* --- strangers --------------------------------------------------------------------------------------------------- */

typedef struct crowd {
    pthread_t thread;
    pthread_barrier_t *batches;
    int ports[MEMBERS], of_each_kind;
    int stay;    /* silent ones that are there all the time */
    long called; /* connections that were begun */
    unsigned char secret[TCP_SECRET], others_secret[TCP_SECRET], no_secret[TCP_SECRET], replayed[TCP_HELLO];
} crowd;

static void turned_away(crowd *all, int port, const unsigned char *hello, const unsigned char *secret)
{
    all->called++;
    assert_int_equal(knock(port, hello, secret, (tcp_place){0}, NULL), -1);
}

static void admitted(crowd *all, int port, damage how)
{
    unsigned char session[TCP_SECRET];
    const council_message join_of_another = foreign_join();
    all->called++;
    say(knock(port, NULL, all->secret, (tcp_place){0}, session), session, &join_of_another, how);
}

/* Every other one has said half of a hello. */
static void fall_silent(crowd *all, int *silent, int count)
{
    silent[count] = call(all->ports[count % MEMBERS]);
    all->called++;
    if (count % 2) assert_int_equal(send(silent[count], all->replayed, TCP_HELLO / 2, MSG_NOSIGNAL), TCP_HELLO / 2);
}

static void hang_up(int *silent, int *count)
{
    while (*count > 0) close(silent[--*count]);
}

static void send_batch(crowd *all)
{
    unsigned char garbage[TCP_HELLO];
    int silent[SILENT], count = 0;
    memset(garbage, 'x', sizeof garbage);
    for (int i = 0; i < all->of_each_kind; i++) {
        const int port = all->ports[i % MEMBERS];
        turned_away(all, port, garbage, all->secret);
        turned_away(all, port, all->replayed, all->secret);
        turned_away(all, port, NULL, all->others_secret);
        turned_away(all, port, NULL, all->no_secret);
        for (damage how = WHOLE; how <= NO_WORD; how++) admitted(all, port, how);
        for (int n = 0; n < 2; n++) fall_silent(all, silent, count++);
        if (count == SILENT) hang_up(silent, &count);
    }
    hang_up(silent, &count);
}

static void *send_all(void *argument)
{
    crowd *all = argument;
    int silent[MOST_STAY], count = 0;
    while (count < all->stay) fall_silent(all, silent, count++);
    for (int batch = 0; batch < BATCHES; batch++) {
        pthread_barrier_wait(all->batches);
        send_batch(all);
    }
    pthread_barrier_wait(all->batches);
    hang_up(silent, &count);
    return NULL;
}

static int port_of(const tw_members *members)
{
    return atoi(strrchr(tw_members_address(members), ':') + 1);
}

static void prepare(crowd *all, const attendant *members)
{
    unsigned char challenge[TCP_CHALLENGE];
    for (int n = 0; n < MEMBERS; n++) all->ports[n] = port_of(members[n].player.members);
    tcp_secret_make(key, strlen(key), "members of a group", NULL, 0, all->secret);
    tcp_secret_make(other_key, strlen(other_key), "members of a group", NULL, 0, all->others_secret);
    tcp_secret_make(NULL, 0, "members of a group", NULL, 0, all->no_secret);
    tcp_challenge_make(challenge);
    tcp_hello_make(all->secret, challenge, (tcp_place){0}, all->replayed); /* it was right at another time */
}

/* --- both -------------------------------------------------------------------------------------------------------- */

static int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static void gather(player *players, int count, const char *what, const char *secret, refusals *told)
{
    char meeting[TCP_ADDRESS];
    find_meeting(meeting);
    for (int n = 0; n < count; n++) {
        players[n] = (player){.members = join(meeting, what, secret, told), .rounds = n ? -1 : 0};
        begin(players, n + 1, n + 1);
        end(players, n + 1);
    }
}

static void attend_all(attendant *members, crowd *all)
{
    static pthread_barrier_t batches;
    pthread_barrier_init(&batches, NULL, MEMBERS + 1);
    all->batches = &batches;
    for (int n = 0; n < MEMBERS; n++) {
        members[n].batches = &batches;
        assert_int_equal(pthread_create(&members[n].player.thread, NULL, attend, &members[n]), 0);
    }
    assert_int_equal(pthread_create(&all->thread, NULL, send_all, all), 0);
    pthread_join(all->thread, NULL);
    for (int n = 0; n < MEMBERS; n++) {
        pthread_join(members[n].player.thread, NULL);
        if (members[n].spoilt) fail_msg("member %d: %s", n, members[n].spoilt);
    }
    pthread_barrier_destroy(&batches);
}

/* Rounds beside a crowd, until all of it has been seen off. */
static void live(attendant *members, crowd *all, refusals *told)
{
    player players[MEMBERS];
    gather(players, MEMBERS, subject, key, told);
    for (int n = 0; n < MEMBERS; n++) members[n].player = players[n];
    prepare(all, members);
    int files = open_files();
    size_t bytes = mallinfo2().uordblks;
    counted.wakes = counted.accepted = counted.inheritable = counted.connects = counted.lookups = counted.hashes =
        counted.bytes = 0;
    counted.on = 1;
    attend_all(members, all);
    while (open_files() > files || counted.accepted < all->called) usleep(2000);
    counted.on = 0;
    assert_in_range(mallinfo2().uordblks, 0, bytes + MOST_BYTES);
    for (int n = 0; n < MEMBERS; n++) players[n] = members[n].player;
    take_part_in_a_round(players, MEMBERS, TW_MEMBERS_STAY); /* in which they are told of the last */
    for (int n = 0; n < MEMBERS; n++) go(&players[n]);
}

static void expect_same_rounds(const attendant *calm, const attendant *beset)
{
    for (int n = 0; n < MEMBERS; n++) assert_memory_equal(beset[n].theta, calm[0].theta, sizeof calm[0].theta);
    assert_int_equal(counted.inheritable, 0); /* not even until the thread's next step */
    assert_in_range(counted.connects, 0, LINES);
    assert_in_range(counted.lookups, 0, LINES);
}

/* Of nine strangers, three prove what they have not, and three have the key. A proof is one hash to look at, and
 * another to see whether it is for the other kind of group. One with the key costs two more for what the line is
 * signed with, one for the answer, and one for its word; where it trains something else one for being told. */
enum {
    KINDS = 9,
    HASHES = 3 * 2 + 3 * 5 + 1,
    CHALLENGED = KINDS * TCP_CHALLENGE + 3 * TCP_PROOF,
    LONGEST_REFUSAL = 1024
};

TEST(test_ten_thousand_strangers_slow_nobody)
{
    static attendant calm[MEMBERS], beset[MEMBERS];
    static crowd nobody, many;
    static refusals told;
    const int all = BATCHES * OF_EACH_KIND;
    many.of_each_kind = OF_EACH_KIND;
    live(calm, &nobody, NULL);
    live(beset, &many, &told);
    expect_same_rounds(calm, beset);
    print_message("%ld strangers woke the members %ld times\n", many.called, counted.wakes);
    assert_int_equal(many.called, KINDS * all);
    assert_in_range(counted.accepted, KINDS * all, KINDS * all + LINES);
    assert_in_range(counted.hashes, HASHES * all, HASHES * all + OF_A_LINE * LINES);
    assert_in_range(counted.bytes, CHALLENGED * all, (CHALLENGED + LONGEST_REFUSAL) * all);
    assert_in_range(counted.wakes, 0, 4 * KINDS * all); /* it comes, says who it is, says something, and goes */
    for (int i = 0; i < REASONS; i++) assert_true(told.counts[i] > 0);
    assert_int_equal(told.all, (KINDS - 1) * all); /* nobody refuses those that say nothing */
}

/* They take all the places there are for strangers. */
TEST(test_strangers_that_stay_hold_nobody_up)
{
    static attendant calm[MEMBERS], beset[MEMBERS];
    static crowd nobody, many = {.stay = MOST_STAY};
    live(calm, &nobody, NULL);
    live(beset, &many, NULL);
    expect_same_rounds(calm, beset);
    assert_in_range(counted.accepted, MOST_STAY, MOST_STAY + LINES);
    assert_in_range(counted.hashes, 0, OF_A_LINE * LINES);
}

static void *ask_once(void *argument)
{
    player *me = argument;
    is_program = 1;
    pthread_barrier_wait(&turn.both);
    me->status = tw_members_due(me->members, me->comm, TW_MEMBERS_STAY, &me->due);
    return NULL;
}

/* Though so many have come that the thread never waits for one. */
TEST(test_a_program_is_next_whoever_comes)
{
    player one;
    int silent[MOST_STAY], count = 0;
    gather(&one, 1, subject, key, NULL);
    assert_int_equal(pthread_barrier_init(&turn.both, NULL, 2), 0);
    const int port = port_of(one.members);
    turn.stage = AWAITED;
    while (count < MOST_STAY) silent[count++] = call(port);
    assert_int_equal(pthread_create(&one.thread, NULL, ask_once, &one), 0);
    pthread_join(one.thread, NULL);
    assert_int_equal(one.status, TW_OK);
    assert_int_equal(turn.stage, NOBODY);
    assert_int_equal(turn.turns, 0);
    hang_up(silent, &count);
    go(&one);
    pthread_barrier_destroy(&turn.both);
}

/* It says so when it turns one away that trains something else. */
static void ask_name(int port, const unsigned char secret[TCP_SECRET], char name[COUNCIL_NAME])
{
    static council_message message;
    unsigned char session[TCP_SECRET], length[4];
    const char *text;
    const int fd = knock(port, NULL, secret, (tcp_place){0}, session);
    message = foreign_join();
    send_word(fd, session, &message, WHOLE);
    assert_int_equal(recv(fd, length, sizeof length, MSG_WAITALL), sizeof length);
    const size_t size = (size_t)tw_get(length, sizeof length);
    unsigned char *word = calloc(size + 1, 1);
    assert_int_equal(recv(fd, word, size, MSG_WAITALL), size);
    assert_true(tcp_word_read(word, size, &message, &text));
    strcpy(name, message.seat.name);
    free(word);
    close(fd);
}

static int come_and_stay(int port, const unsigned char secret[TCP_SECRET], const council_message *message)
{
    unsigned char session[TCP_SECRET];
    const int fd = knock(port, NULL, secret, (tcp_place){0}, session);
    assert_true(fd >= 0);
    send_word(fd, session, message, WHOLE);
    return fd;
}

/* They speak later than it does. The other lines of its name are theirs, too. */
TEST(test_strangers_with_the_key_leave_a_member_its_line)
{
    static council_message stranger, status = {.kind = COUNCIL_STATUS};
    player players[2];
    unsigned char secret[TCP_SECRET];
    int others[TCP_LINES];
    char byte;
    gather(players, 2, subject, key, NULL);
    const int port = port_of(players[0].members);
    tcp_secret_make(key, strlen(key), "members of a group", NULL, 0, secret);
    ask_name(port_of(players[1].members), secret, status.seat.name);
    stranger = foreign_join();
    const int older = come_and_stay(port, secret, &status), latest = come_and_stay(port, secret, &status);
    for (int i = 0; i < TCP_LINES; i++) others[i] = come_and_stay(port, secret, &stranger);
    assert_int_equal(recv(older, &byte, 1, 0), 0);
    assert_int_equal(recv(latest, &byte, 1, MSG_DONTWAIT), -1);
    close(older);
    close(latest);
    for (int i = 0; i < TCP_LINES; i++) close(others[i]);
    for (int n = 0; n < 2; n++) go(&players[n]);
}

static size_t bytes_allocated(void)
{
    const struct mallinfo2 all = mallinfo2();
    return all.uordblks + all.hblkhd;
}

/* With the key, and something else to train. None of them reads, and one that does is answered all the same. */
TEST(test_those_that_do_not_read_fill_no_memory)
{
    enum { SUBJECT = 1 << 20, DEAF = 64, WORDS = 6, QUESTIONS = 8 };
    static char large[SUBJECT];
    static council_message stranger;
    player founder;
    unsigned char secret[TCP_SECRET], session[TCP_SECRET];
    int deaf[DEAF];
    size_t most = 0;
    memset(large, 'x', SUBJECT - 1);
    gather(&founder, 1, large, key, NULL);
    const int port = port_of(founder.members);
    tcp_secret_make(key, strlen(key), "members of a group", NULL, 0, secret);
    stranger = foreign_join();
    const size_t before = bytes_allocated();
    for (int i = 0; i < DEAF; i++) {
        deaf[i] = knock(port, NULL, secret, (tcp_place){0}, session);
        for (uint64_t n = 0; n < WORDS; n++) send_next_word(deaf[i], session, &stranger, WHOLE, n);
    }
    for (int n = 0; n < QUESTIONS; n++) {
        tw_generation generation = {.struct_size = sizeof generation};
        tw_comm *comm;
        tw_members *other = join(tw_members_address(founder.members), subject, key, NULL);
        assert_fails(tw_members_next(other, -1, 0, &generation, &comm), TW_ERROR_ARGUMENT,
                     "this process has the spec ");
        tw_members_destroy(other);
        const size_t now = bytes_allocated();
        if (now > before + most) most = now - before;
    }
    print_message("%zu bytes are held for those that do not read\n", most);
    assert_in_range(most, 0, TCP_HELD + 4 * SUBJECT);
    for (int i = 0; i < DEAF; i++) close(deaf[i]);
    go(&founder);
}

/* --- a newcomer that a firewall keeps from the members' doors ----------------------------------------------------- */

static struct {
    _Atomic int of_founder, of_newcomer; /* lines */
} told_of_walls;

static void note_walls(void *context, tw_log_level level, const char *text)
{
    (void)context;
    if (level != TW_LOG_WARNING || !strstr(text, "did not begin") || !strstr(text, "THINWIRE_PORT")) return;
    if (strstr(text, "rank 1 at 127.0.0.1:") && strstr(text, "it did not come")) told_of_walls.of_founder++;
    if (strstr(text, "rank 0 at 127.0.0.1:") && strstr(text, "Connection refused")) told_of_walls.of_newcomer++;
}

static void *come_walled_in(void *argument)
{
    player *me = argument;
    is_walled_in = 1;
    me->generation.struct_size = sizeof me->generation;
    me->status = tw_members_next(me->members, -1, 0, &me->generation, &me->comm);
    return NULL;
}

/* Its words come through, and its program's connections do not. */
TEST(test_a_newcomer_that_cannot_be_connected_is_told_of_on_both_sides)
{
    player founder, newcomer;
    tw_members_outcome due = TW_MEMBERS_SAME;
    options.grace = 5;
    gather(&founder, 1, subject, key, NULL);
    come(&newcomer, tw_members_address(founder.members));
    options.grace = 10;
    tw_set_log(note_walls, NULL);
    assert_int_equal(pthread_create(&newcomer.thread, NULL, come_walled_in, &newcomer), 0);
    while (due == TW_MEMBERS_SAME) {
        usleep(2000); /* the step of a program */
        assert_ok(tw_members_due(founder.members, founder.comm, TW_MEMBERS_STAY, &due));
    }
    assert_int_equal(due, TW_MEMBERS_CHANGE);
    tw_comm_destroy(founder.comm);
    assert_ok(tw_members_next(founder.members, 5, 0, &founder.generation, &founder.comm));
    assert_int_equal(founder.generation.size, 1);
    while (!told_of_walls.of_newcomer) usleep(2000);
    go(&founder);
    pthread_join(newcomer.thread, NULL);
    assert_int_equal(newcomer.status, TW_ERROR_PEER);
    tw_members_destroy(newcomer.members);
    tw_set_log(NULL, NULL);
    assert_int_equal(told_of_walls.of_founder, 1);
    assert_int_equal(told_of_walls.of_newcomer, 1);
}

/* --- a name server that is away for a moment ---------------------------------------------------------------------- */

static void *meet_again(void *argument)
{
    player *me = argument;
    tw_comm_destroy(me->comm);
    me->comm = NULL;
    fails_to_find = 1;
    me->status = tw_members_next(me->members, 6, 0, &me->generation, &me->comm);
    if (me->status == TW_OK) return NULL;
    snprintf(me->text, sizeof me->text, "%s", tw_last_error());
    tw_members_destroy(me->members);
    me->members = NULL;
    return NULL;
}

/* Both have been members, and the second looks for the first. */
TEST(test_a_door_that_is_not_found_costs_a_generation_and_no_member)
{
    player players[2];
    gather(players, 2, subject, key, NULL);
    const uint64_t before = players[0].generation.number;
    for (int n = 0; n < 2; n++) assert_int_equal(pthread_create(&players[n].thread, NULL, meet_again, &players[n]), 0);
    end(players, 2);
    assert_int_equal(players[0].generation.size, 2);
    assert_true(players[0].generation.number >= before + 2);
    for (int n = 0; n < 2; n++) go(&players[n]);
}

/* --- one that leaves while another cannot hear it ----------------------------------------------------------------- */

/* To whom nobody can say that it leaves; "": all hear so. */
static char deaf[COUNCIL_NAME];

void __real_tcp_lines_say(tcp_lines *me, const council_message *message, const char *text);
void __wrap_tcp_lines_say(tcp_lines *me, const council_message *message, const char *text);
void __wrap_tcp_lines_say(tcp_lines *me, const council_message *message, const char *text)
{
    if (message->state != COUNCIL_LEAVES || !*deaf || strncmp(message->to, deaf, strlen(deaf)) != 0)
        __real_tcp_lines_say(me, message, text);
}

/* It hears so from those that have decided without that one. */
TEST(test_who_leaves_is_lost_to_nobody)
{
    player players[3];
    gather(players, 3, subject, key, NULL);
    snprintf(deaf, sizeof deaf, "%s#", tw_members_address(players[2].members));
    tw_comm_destroy(players[1].comm);
    players[1].comm = NULL;
    players[1].leaves = 1;
    begin(players, 3, 2);
    pthread_join(players[1].thread, NULL);
    end(players, 1);
    end(players + 2, 1);
    for (int n = 0; n < 3; n += 2) {
        assert_int_equal(players[n].generation.size, 2);
        assert_int_equal(players[n].generation.lost, 0);
    }
    for (int n = 0; n < 3; n++) go(&players[n]);
    *deaf = 0;
}

/* --- a name that is looked up slowly ------------------------------------------------------------------------------ */

static void hear_word(void *context, const council_message *message, const char *text)
{
    (void)message, (void)text;
    ++*(int *)context;
}

static void lose_nobody(void *context, const char *name)
{
    (void)context, (void)name;
}

static int have_all(void *context, const char *name)
{
    return context && *name;
}

/* Both ends are served by this thread, which counts what comes. */
static tcp_lines *open_lines(int *heard)
{
    int why;
    tcp_lines *lines = calloc(1, sizeof *lines);
    assert_int_equal(tcp_acceptor_open(&lines->acceptor, "127.0.0.1", 0, 0, &why), TW_OK);
    tcp_secret_make(key, strlen(key), "members of a group", NULL, 0, lines->acceptor.secret);
    lines->hear = hear_word;
    lines->lose = lose_nobody;
    lines->is_member = have_all;
    lines->context = heard;
    return lines;
}

static void serve_lines(tcp_lines *lines)
{
    const int count = tcp_lines_list(lines, -1);
    (void)poll(lines->polls, (nfds_t)count, 1);
    tcp_lines_serve(lines);
}

static void say_to(tcp_lines *lines, const char *host, int port)
{
    static council_message message;
    message = foreign_join();
    snprintf(message.to, sizeof message.to, "%s:%d#00112233445566778899aabbccddeeff/1", host, port);
    tcp_lines_say(lines, &message, "");
}

/* Of those to whom a member speaks one has a name, and it goes on speaking to the others. */
TEST(test_a_name_that_is_looked_up_slowly_keeps_no_word_from_others)
{
    int heard[2] = {0};
    tcp_lines *here = open_lines(&heard[0]), *there = open_lines(&heard[1]);
    is_program = 1;
    say_to(here, "slow.test", there->acceptor.port);
    while (names.asked < 1) serve_lines(here);
    say_to(here, "127.0.0.1", there->acceptor.port);
    for (; heard[1] < 1; serve_lines(there)) serve_lines(here);
    assert_true(tcp_lines_look_up(here));
    sem_post(&names.answer);
    for (; heard[1] < 2; serve_lines(there)) serve_lines(here);
    assert_false(tcp_lines_look_up(here));
    assert_int_equal(names.held_up, 0);
    is_program = 0;
    tcp_lines_close(here);
    tcp_lines_close(there);
    free(here);
    free(there);
}

/* What is said to it is lost, and does not have it looked up again. */
TEST(test_a_name_that_is_not_found_is_let_alone_for_a_while)
{
    int heard = 0;
    tcp_lines *here = open_lines(&heard);
    const int before = names.asked;
    for (int i = 0; i < 3; i++) {
        say_to(here, "nobody.test", 7);
        do serve_lines(here);
        while (names.asked == before || tcp_lines_look_up(here));
        serve_lines(here); /* which sees what was found */
        assert_int_equal(names.asked, before + 1);
    }
    assert_int_equal(here->there_count, 1);
    assert_int_equal(here->there[0]->mouth.letter_count, 0);
    tcp_lines_close(here);
    free(here);
}

static void *come_hurried(void *argument)
{
    player *me = argument;
    is_hurried = 1;
    me->status = try_to_join(me->text, subject, key, NULL, NULL, &me->members);
    hurry.over = 1;
    return NULL;
}

/* It may be where the group is, and then nobody opens a second one at the first address, which is free. */
TEST(test_no_group_is_opened_while_a_name_is_looked_up)
{
    static player late;
    player founder;
    const int before = names.asked;
    gather(&founder, 1, subject, key, NULL);
    snprintf(late.text, sizeof late.text, "127.0.0.1:%d,slow.test:%d", find_port(), port_of(founder.members));
    hurry.on = 1;
    assert_int_equal(pthread_create(&late.thread, NULL, come_hurried, &late), 0);
    for (double deadline = tw_clock() + 60; (names.asked == before || hurry.seconds < 100) && !hurry.over; usleep(1000))
        assert_true(tw_clock() < deadline);
    hurry.on = 0;
    sem_post(&names.answer);
    pthread_join(late.thread, NULL);
    assert_int_equal(late.status, TW_OK);
    assert_false(tw_members_opened(late.members));
    tw_members_destroy(late.members);
    go(&founder);
}

typedef struct visitor {
    char at[64];
    const char *advertise;
    int rank, is_server;
    pthread_t thread;
    tw_status status;
    tw_comm *comm;
} visitor;

static void *meet_at_a_point(void *argument)
{
    visitor *me = argument;
    const tw_tcp_options tcp = {.struct_size = sizeof tcp, .bind = "127.0.0.1", .advertise = me->advertise};
    is_program = me->is_server;
    me->status = tw_tcp_join(me->at, me->rank, 3, &tcp, 60, &me->comm);
    return NULL;
}

/* One of three can be called by a name of which the meeting point hears nothing: then it calls the others. */
TEST(test_a_name_that_is_looked_up_slowly_holds_up_no_meeting)
{
    static visitor visitors[3];
    const int before = names.asked, port = find_port();
    for (int n = 0; n < 3; n++) {
        visitor *one = &visitors[n];
        *one = (visitor){.advertise = n == 1 ? "slow.test" : NULL, .rank = n, .is_server = n == 0};
        snprintf(one->at, sizeof one->at, "127.0.0.1:%d", port);
        assert_int_equal(pthread_create(&one->thread, NULL, meet_at_a_point, one), 0);
    }
    for (int n = 0; n < 3; n++) {
        pthread_join(visitors[n].thread, NULL);
        assert_int_equal(visitors[n].status, TW_OK);
    }
    assert_int_equal(names.asked, before + 1);
    assert_int_equal(names.held_up, 0);
    sem_post(&names.answer);
    for (int n = 0; n < 3; n++) tw_comm_destroy(visitors[n].comm);
}

/* --- what they learn --------------------------------------------------------------------------------------------- */

enum { MOST_HEARD = 4096 };

typedef struct heard {
    unsigned char bytes[MOST_HEARD];
    size_t size;
} heard;

/* Until the other hangs up. */
static void hear_rest(int fd, heard *all)
{
    ssize_t bytes;
    while ((bytes = recv(fd, all->bytes + all->size, MOST_HEARD - all->size, 0)) > 0) all->size += (size_t)bytes;
    assert_int_equal(bytes, 0);
    close(fd);
}

typedef enum guise { OTHER_KEY, NO_KEY, REPLAYS, TALKS, SAYS_NOTHING, GUISES } guise;

/* All that a member says to one that comes and has no right to. */
static void come_as(guise who, int port, const unsigned char secret[TCP_SECRET], heard *all)
{
    unsigned char others[TCP_SECRET], hello[TCP_HELLO], earlier[TCP_CHALLENGE];
    int fd = call(port);
    all->size = (size_t)recv(fd, all->bytes, TCP_CHALLENGE, MSG_WAITALL);
    assert_int_equal(all->size, TCP_CHALLENGE);
    tcp_challenge_make(earlier);
    tcp_secret_make(who == OTHER_KEY ? other_key : "", who == OTHER_KEY ? strlen(other_key) : 0, "members of a group",
                    NULL, 0, others);
    tcp_hello_make(who == REPLAYS ? secret : others, who == REPLAYS ? earlier : all->bytes, (tcp_place){0}, hello);
    if (who == TALKS) memset(hello, 'x', sizeof hello);
    if (who != SAYS_NOTHING) assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    shutdown(fd, SHUT_WR);
    hear_rest(fd, all);
}

/* All that a newcomer says where it looks for its group, and another listens that answers what is no proof. It gives up
 * once nobody listens there any more. */
static void be_called(const char *what, const char *secret, heard *all)
{
    unsigned char challenge[TCP_CHALLENGE], no_proof[TCP_PROOF] = {0};
    char place[TCP_ADDRESS];
    player caller = {.rounds = -1};
    tcp_acceptor acceptor;
    int why;
    assert_int_equal(tcp_acceptor_open(&acceptor, "127.0.0.1", 0, 0, &why), TW_OK);
    assert_int_equal(fcntl(acceptor.fd, F_SETFL, 0), 0);
    snprintf(place, sizeof place, "127.0.0.1:%d", acceptor.port);
    options.grace = 0.5;
    caller.members = join(place, what, secret, NULL);
    options.grace = 10;
    begin(&caller, 1, 1);
    int fd = accept(acceptor.fd, NULL, NULL);
    tcp_acceptor_close(&acceptor);
    tcp_challenge_make(challenge);
    assert_int_equal(send(fd, challenge, sizeof challenge, MSG_NOSIGNAL), sizeof challenge);
    all->size = (size_t)recv(fd, all->bytes, TCP_HELLO, MSG_WAITALL);
    assert_int_equal(send(fd, no_proof, sizeof no_proof, MSG_NOSIGNAL), sizeof no_proof);
    hear_rest(fd, all);
    pthread_join(caller.thread, NULL);
    assert_int_equal(caller.status, TW_ERROR_PEER);
    tw_members_destroy(caller.members);
}

/* Word for word the same, but for the random numbers, of which no two are alike. */
static void expect_nothing_learnt(const heard *all, int count, size_t size, size_t said)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(all[i].size, size);
        assert_memory_equal(all[i].bytes, all[0].bytes, said);
        for (int other = 0; other < i; other++)
            for (size_t at = said; at < size; at += TCP_NONCE)
                assert_memory_not_equal(all[i].bytes + at, all[other].bytes + at, TCP_NONCE);
    }
}

/* Of two groups with other keys, of another size, in another generation, that train something else. */
TEST(test_who_has_another_key_learns_nothing)
{
    static heard heard_there[2 * GUISES], heard_here[4];
    static const char *const keys[] = {key, "what the members of the second group know"},
                             *const trained[] = {subject,
                                                 "the spec diloco:every=64\nthe parameter u of (70, 7)\nand v\n"};
    for (int i = 0; i < 2; i++) {
        player players[MEMBERS];
        unsigned char secret[TCP_SECRET];
        const int size = i ? MEMBERS : 1;
        tcp_secret_make(keys[i], strlen(keys[i]), "members of a group", NULL, 0, secret);
        gather(players, size, trained[i], keys[i], NULL);
        for (guise who = 0; who < GUISES; who++)
            come_as(who, port_of(players[size - 1].members), secret, &heard_there[GUISES * i + (int)who]);
        for (int n = 0; n < size; n++) go(&players[n]);
        for (int n = 0; n < 2; n++) be_called(trained[i], keys[i], &heard_here[2 * i + n]);
    }
    expect_nothing_learnt(heard_there, 2 * GUISES, TCP_CHALLENGE, TCP_MAGIC);
    expect_nothing_learnt(heard_here, 4, TCP_HELLO, TCP_HELLO - TCP_NONCE - TCP_PROOF);
}

int main(void)
{
    sem_init(&names.answer, 0, 0);
    return tcp_hello_begin() ? cmocka_run_group_tests(all_tests, NULL, NULL) : 1;
}
