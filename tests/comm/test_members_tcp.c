/* Groups whose members come and go, over sockets: who is let in and who is not, what is made of damaged words, and one
 * generation after the other. The council itself is tried in virtual time, by council. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "members_at.h"

#include "support/parts.h"
#include "support/random.h"

#include "rendezvous.h"

#include <thinwire/thinwire_plugin.h>

enum { MEMBERS = 3, FILES = 50 };

/* How many strangers. */
static int of_each_kind(void)
{
    return in_part(200, 2000);
}

/* In place of the library's: one of several releases. */
static const char *release = "1.2.3";
const char *tw_version(void)
{
    return release;
}

/* --- members ----------------------------------------------------------------------------------------------------- */

TEST(test_one_generation_after_the_other)
{
    char meeting[TCP_ADDRESS];
    player players[MEMBERS];
    find_meeting(meeting);
    come(&players[0], meeting);
    players[0].rounds = 0;
    assert_true(tw_members_opened(players[0].members));
    assert_string_equal(tw_members_address(players[0].members), meeting);
    begin(players, 1, 1);
    end(players, 1);
    for (int n = 1; n < MEMBERS; n++) { /* each comes to the one that came last */
        come(&players[n], tw_members_address(players[n - 1].members));
        assert_false(tw_members_opened(players[n].members));
        begin(players, n + 1, n + 1);
        end(players, n + 1);
        for (int i = 0; i <= n; i++) {
            assert_int_equal(players[i].generation.rank, i);
            assert_int_equal(tw_comm_rank(players[i].comm), i);
            assert_int_equal(players[i].generation.donor, 0);
            assert_int_equal(players[i].generation.behind, i == n);
            assert_int_equal(players[i].generation.kept, i < n);
        }
    }
    go(&players[0]); /* as if it had crashed */
    begin(players + 1, 2, 2);
    end(players + 1, 2);
    players[1].leaves = 1;
    begin(players + 1, 2, 1);
    pthread_join(players[1].thread, NULL);
    assert_int_equal(players[1].status, TW_OK);
    assert_null(players[1].comm);
    end(players + 2, 1);
    assert_int_equal(players[2].generation.size, 1);
    go(&players[1]);
    go(&players[2]);
}

/* What a program opens afterwards may have the numbers of sockets that the group had. */
static int files_that_a_child_lacks(const int *files, int count)
{
    int lacks = 0, status;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < count; i++) lacks += fcntl(files[i], F_GETFD) < 0;
        _exit(lacks);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(test_a_child_has_what_is_opened_after_a_group)
{
    char meeting[TCP_ADDRESS];
    player players[2];
    int files[FILES];
    find_meeting(meeting);
    come(&players[0], meeting);
    players[0].rounds = 0;
    begin(players, 1, 1);
    end(players, 1);
    come(&players[1], meeting);
    begin(players, 2, 2);
    end(players, 2);
    for (int i = 0; i < 2; i++) go(&players[i]);
    for (int i = 0; i < FILES; i++) assert_true((files[i] = dup(STDERR_FILENO)) >= 0);
    assert_int_equal(files_that_a_child_lacks(files, FILES), 0);
    for (int i = 0; i < FILES; i++) close(files[i]);
}

/* --- what a person is told --------------------------------------------------------------------------------------- */

typedef struct lines {
    char text[TCP_ADDRESS + 64], busy[2 * TCP_ADDRESS];
    _Atomic int count, wait, named, seconds, end, after, others, broke;
} lines;

static void count_lines(void *context, tw_log_level level, const char *text)
{
    lines *all = context;
    all->count += level == TW_LOG_WARNING && strcmp(text, all->text) == 0;
    all->broke += strstr(text, "broke") != NULL;
    all->others += strstr(text, "the group goes on without") && strcmp(text, all->text) != 0;
    const char *busy = strstr(text, "busy: "), *until = strstr(text, "; for up to ");
    if (busy && until) {
        all->wait += level == TW_LOG_WARNING;
        all->named += strlen(all->busy) == (size_t)(until - busy) && strncmp(busy, all->busy, strlen(all->busy)) == 0;
        all->seconds = atoi(until + strlen("; for up to "));
    }
    if (!strstr(text, "seconds the group goes on")) return;
    all->after = atoi(strstr(text, "after ") + strlen("after "));
    all->end += level == TW_LOG_WARNING;
}

static void gather(player *players, int count, const char *meeting)
{
    for (int n = 0; n < count; n++) {
        come(&players[n], meeting);
        if (n == 0) players[n].rounds = 0;
        begin(players, n + 1, n + 1);
        end(players, n + 1);
    }
}

static void come_to_the_door(player *me)
{
    tw_comm_destroy(me->comm);
    me->comm = NULL;
}

/* Nobody knows which machine has which rank. Of one that leaves there is nothing to say. */
TEST(test_who_is_lost_is_told_by_its_address)
{
    static lines all;
    char meeting[TCP_ADDRESS];
    player players[MEMBERS + 1];
    find_meeting(meeting);
    gather(players, MEMBERS + 1, meeting);
    snprintf(all.text, sizeof all.text, "the group goes on without rank 1 at %s and has 2 members now",
             tw_members_address(players[2].members));
    tw_set_log(count_lines, &all);
    come_to_the_door(&players[1]); /* and says only there that it leaves */
    players[1].leaves = 1;
    begin(players, MEMBERS + 1, MEMBERS);
    pthread_join(players[1].thread, NULL);
    end(players, 1);
    end(players + 2, 2);
    assert_int_equal(all.count + all.others, 0);
    assert_int_equal(players[0].generation.lost, 0);
    go(&players[1]);
    go(&players[2]); /* of the same rank in the generation after */
    players[1] = players[3];
    begin(players, 2, 2);
    end(players, 2);
    assert_int_equal(all.count, 2);
    assert_int_equal(all.broke, 0);
    for (int n = 0; n < 2; n++) assert_int_equal(players[n].generation.lost, 1);
    players[1].leaves = 1;
    begin(players, 2, 1);
    pthread_join(players[1].thread, NULL);
    end(players, 1);
    assert_int_equal(all.count + all.others, 2);
    tw_set_log(NULL, NULL);
    for (int n = 0; n < 2; n++) go(&players[n]);
}

static void write_busy(lines *all, const player *players, int from, int to)
{
    int used = snprintf(all->busy, sizeof all->busy, "busy: ");
    for (int n = from; n < to; n++)
        used += snprintf(all->busy + used, sizeof all->busy - (size_t)used, "%srank %d at %s", n > from ? ", " : "", n,
                         tw_members_address(players[n].members));
}

static void wait_until(const _Atomic int *count, int reached)
{
    while (*count < reached) usleep(2000);
}

static void begin_round(player *players, int count)
{
    for (int n = 0; n < count; n++)
        assert_int_equal(pthread_create(&players[n].thread, NULL, take_part, &players[n]), 0);
}

/* The first is at the beginning of a round, and what it is told does not wait for the others. Then it waits at its
 * door, and then for one that is lost, without which nothing goes on that it waited for. */
TEST(test_who_is_waited_for_is_told_once)
{
    static lines all;
    char meeting[TCP_ADDRESS];
    unsigned char secret[TCP_SECRET];
    player players[MEMBERS];
    find_meeting(meeting);
    tcp_secret_make(key, strlen(key), "members of a group", NULL, 0, secret);
    options.grace = 3;
    gather(players, MEMBERS, meeting);
    options.grace = 10;
    write_busy(&all, players, 1, MEMBERS);
    tw_set_log(count_lines, &all);
    begin_round(players, 1);
    wait_until(&all.wait, 1);
    for (int i = 0; i < 3; i++) /* for each of whom its thread looks around */
        close(knock(atoi(strrchr(meeting, ':') + 1), NULL, secret, (tcp_place){0}, NULL));
    assert_int_equal(all.end, 0);
    begin_round(players + 1, MEMBERS - 1);
    for (int n = 0; n < MEMBERS; n++) pthread_join(players[n].thread, NULL);
    for (int n = 0; n < MEMBERS; n++) assert_int_equal(players[n].status, TW_OK);
    take_part_in_a_round(players, MEMBERS, TW_MEMBERS_STAY);
    assert_int_equal(all.wait, 1);
    assert_int_equal(all.end, 1);
    come_to_the_door(&players[0]);
    begin(players, 1, MEMBERS);
    wait_until(&all.wait, 2);
    for (int n = 1; n < MEMBERS; n++) come_to_the_door(&players[n]);
    begin(players + 1, MEMBERS - 1, MEMBERS);
    end(players, MEMBERS);
    assert_int_equal(all.wait, 2);
    assert_int_equal(all.end, 2);
    assert_in_range(all.after, 6, INT_MAX); /* as long as the round before, and two graces */
    begin_round(players, 1);
    wait_until(&all.wait, 3);
    for (int n = 1; n < MEMBERS; n++) come_to_the_door(&players[n]);
    pthread_join(players[0].thread, NULL);
    assert_int_equal(players[0].status, TW_ERROR_PEER);
    come_to_the_door(&players[0]);
    begin(players, MEMBERS, MEMBERS);
    end(players, MEMBERS);
    assert_int_equal(all.wait, 3);
    assert_in_range(all.named, 1, 3); /* one that has not answered yet is not named */
    assert_int_equal(all.end, 2);
    tw_set_log(NULL, NULL);
    for (int n = 0; n < MEMBERS; n++) go(&players[n]);
}

/* Another one of the group that says of itself to be where the second is, which still answers there. */
TEST(test_nobody_takes_the_place_of_one_that_answers)
{
    static lines all;
    char meeting[TCP_ADDRESS], *text;
    const char *topic[1];
    unsigned char secret[TCP_SECRET], session[TCP_SECRET];
    council_message other = foreign_join();
    player players[2];
    find_meeting(meeting);
    tcp_secret_make(key, strlen(key), "members of a group", NULL, 0, secret);
    assert_true(asprintf(&text, "the release %s of thinwire\nquorum=0\n%s", release, subject) > 0);
    topic[0] = text;
    tcp_secret_make(NULL, 0, "what a group trains", topic, 1, other.topic);
    free(text);
    options.grace = 3;
    gather(players, 2, meeting);
    options.grace = 10;
    other.kind = COUNCIL_STATUS;
    snprintf(other.seat.name, sizeof other.seat.name, "%s#00112233445566778899aabbccddeeff/1",
             tw_members_address(players[1].members));
    const uint64_t before = players[0].generation.number;
    tw_set_log(count_lines, &all);
    come_to_the_door(&players[0]);
    begin(players, 1, 2);
    wait_until(&all.wait, 1);
    for (int i = 0; i < 3; i++) /* after the first its thread looks around again */
        say(knock(atoi(strrchr(meeting, ':') + 1), NULL, secret, (tcp_place){0}, session), session, &other, WHOLE);
    come_to_the_door(&players[1]);
    begin(players + 1, 1, 2);
    end(players, 2);
    assert_true(players[0].generation.number > before);
    assert_int_equal(players[1].generation.kept, 1); /* it is no newcomer */
    tw_set_log(NULL, NULL);
    for (int n = 0; n < 2; n++) go(&players[n]);
}

/* Neither one whose program has no steps to come nor one whose patience has no end. The third has that of its comm. */
TEST(test_who_only_follows_is_told_of_no_wait)
{
    enum { ALL = MEMBERS + 1 };
    static lines all;
    char meeting[TCP_ADDRESS];
    player players[ALL];
    find_meeting(meeting);
    options.grace = 3;
    gather(players, ALL, meeting);
    options.grace = 10;
    write_busy(&all, players, MEMBERS, ALL);
    tw_set_log(count_lines, &all);
    players[0].wish = TW_MEMBERS_FINISH;
    assert_ok(tw_comm_set_patience(players[1].comm, 1e9));
    assert_ok(tw_comm_set_patience(players[2].comm, 5000));
    begin_round(players, MEMBERS);
    wait_until(&all.wait, 1);
    begin_round(players + MEMBERS, 1);
    for (int n = 0; n < ALL; n++) pthread_join(players[n].thread, NULL);
    for (int n = 0; n < ALL; n++) assert_int_equal(players[n].status, TW_OK);
    assert_int_equal(all.wait, 1);
    assert_int_equal(all.end, 1);
    assert_int_equal(all.named, 1);
    assert_in_range(all.seconds, 61, 5000); /* the group's is 60 */
    tw_set_log(NULL, NULL);
    for (int n = 0; n < ALL; n++) go(&players[n]);
}

/* --- members that cannot be called ------------------------------------------------------------------------------- */

typedef struct notes {
    _Atomic int behind, carriers;
    tw_members *latest;
} notes;

static void *ask_address(void *members)
{
    (void)tw_members_address(members);
    return NULL;
}

static void count_notes(void *context, tw_log_level level, const char *text)
{
    notes *all = context;
    pthread_t other;
    (void)level;
    if (strstr(text, "cannot be called at 192.0.2.1:")) { /* a slow listener holds up no other thread's call */
        assert_int_equal(pthread_create(&other, NULL, ask_address, all->latest), 0);
        pthread_join(other, NULL);
    }
    all->behind += strstr(text, "this process cannot be called at 192.0.2.1:") != NULL;
    all->carriers += strstr(text, "carries what ranks say to each other that cannot be called") != NULL;
}

/* The second and the last say that they are where nobody is. Of the other two the founder is lost, by whom all came in,
 * and which carried what the two say: the sum of their ranks is even. */
TEST(test_those_behind_routers_outlive_their_founder)
{
    enum { ALL = 4, BEHIND = 2 };
    static notes told;
    char meeting[TCP_ADDRESS];
    player players[ALL];
    find_meeting(meeting);
    tw_set_log(count_notes, &told);
    for (int n = 0; n < ALL; n++) {
        players[n] = (player){.rounds = n ? -1 : 0};
        players[n].members = told.latest = join_at(meeting, subject, key, NULL, n % 2 ? "192.0.2.1" : NULL);
        begin(players, n + 1, n + 1);
        end(players, n + 1);
    }
    assert_int_equal(told.behind, BEHIND);
    assert_int_equal(told.carriers, 1); /* of the last generation: the two have one between them */
    for (int n = 1; n < ALL; n += 2) assert_string_equal(tw_members_address(players[n].members), meeting);
    tw_comm_leave(players[0].comm); /* it parts in no order */
    go(&players[0]);
    begin(players + 1, ALL - 1, ALL - 1);
    end(players + 1, ALL - 1);
    assert_int_equal(told.carriers, 2);
    for (int n = 1; n < ALL; n++) assert_int_equal(players[n].generation.kept, 1);
    tw_set_log(NULL, NULL);
    for (int n = 1; n < ALL; n++) go(&players[n]);
}

/* Where it lay the first member's group goes on, and has no place for this one. */
static void expect_no_second_group(const char *meeting, const char *what, const char *secret, tw_status status,
                                   const char *reason)
{
    tw_members *members;
    assert_fails(try_to_join(meeting, what, secret, NULL, NULL, &members), status, reason);
}

static void find_two_meetings(char first[TCP_ADDRESS], char second[TCP_ADDRESS], char both[2 * TCP_ADDRESS])
{
    find_meeting(first);
    do find_meeting(second);
    while (strcmp(first, second) == 0);
    snprintf(both, 2 * TCP_ADDRESS, "%s,%s", first, second);
}

/* All are started with the same two addresses, of which the first member has the one and the second the other. */
TEST(test_the_first_comes_again_by_the_same_words)
{
    char first[TCP_ADDRESS], second[TCP_ADDRESS], both[2 * TCP_ADDRESS];
    player players[MEMBERS];
    find_two_meetings(first, second, both);
    for (int n = 0; n < MEMBERS; n++) {
        come(&players[n], both);
        assert_int_equal(tw_members_opened(players[n].members), n == 0);
        if (n < 2) assert_string_equal(tw_members_address(players[n].members), n ? second : first);
        if (n == 0) players[n].rounds = 0;
        begin(players, n + 1, n + 1);
        end(players, n + 1);
    }
    go(&players[0]);
    begin(players + 1, 2, 2);
    end(players + 1, 2);
    uint64_t before = players[1].generation.number;
    expect_no_second_group(both, "the spec local:every=9\n", key, TW_ERROR_ARGUMENT,
                           "this process has the spec local:every=9 where");
    expect_no_second_group(
        both, subject, other_key, TW_ERROR_PEER,
        "turns this process away: it may have another key, or none, or only one of the two gives a number");
    come(&players[0], both);
    assert_false(tw_members_opened(players[0].members));
    assert_string_equal(tw_members_address(players[0].members), first);
    begin(players, 3, 3);
    end(players, 3);
    assert_true(players[0].generation.number > before);
    assert_int_equal(players[0].generation.behind, 1);
    for (int n = 0; n < MEMBERS; n++) go(&players[n]);
}

/* Somebody listens where the first did, so that it may only be cut off. But it has begun again, which is its end. */
TEST(test_nobody_waits_for_a_first_that_has_begun_again)
{
    char first[TCP_ADDRESS], second[TCP_ADDRESS], both[2 * TCP_ADDRESS];
    player players[2];
    find_two_meetings(first, second, both);
    options.patience = 1e6;
    options.grace = 2;
    for (int n = 0; n < 2; n++) {
        come(&players[n], both);
        if (n == 0) players[n].rounds = 0;
        begin(players, n + 1, n + 1);
        end(players, n + 1);
    }
    go(&players[0]);
    options.patience = 60;
    come(&players[0], both);
    options.grace = 10;
    assert_false(tw_members_opened(players[0].members));
    begin(players, 2, 3);
    for (int n = 1; n >= 0; n--) {
        pthread_join(players[n].thread, NULL);
        assert_int_equal(players[n].status, TW_ERROR_PEER);
        if (n) assert_non_null(strstr(players[n].text, "too few of the 2 members of generation"));
        go(&players[n]);
    }
}

/* One that waits to be let in is no group, so that another opens it. */
TEST(test_who_waits_is_no_group)
{
    char first[TCP_ADDRESS], second[TCP_ADDRESS], nowhere[2 * TCP_ADDRESS], both[2 * TCP_ADDRESS];
    player players[2];
    find_two_meetings(first, second, both);
    snprintf(nowhere, sizeof nowhere, "192.0.2.1:7000,%s", second); /* no machine has the first */
    come(&players[1], nowhere);
    come(&players[0], both);
    assert_string_equal(tw_members_address(players[1].members), second);
    assert_false(tw_members_opened(players[1].members));
    assert_true(tw_members_opened(players[0].members));
    go(&players[0]);
    go(&players[1]);
}

TEST(test_a_name_that_is_not_known_keeps_nobody_away)
{
    char meeting[TCP_ADDRESS], places[2 * TCP_ADDRESS];
    player players[2];
    tw_members *members;
    find_meeting(meeting);
    snprintf(places, sizeof places, "nosuch..invalid:7000,%s", meeting);
    come(&players[0], meeting);
    players[0].rounds = 0;
    come(&players[1], places);
    begin(players, 2, 2);
    end(players, 2);
    assert_int_equal(tw_members_join("nosuch..invalid:7000,no..name:7", subject, NULL, NULL, &members),
                     TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "cannot be resolved"));
    go(&players[0]);
    go(&players[1]);
}

TEST(test_places_that_are_none)
{
    char many[17 * sizeof "127.0.0.1:7000"] = "";
    tw_members *members;
    for (int i = 0; i < 17; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "%s127.0.0.1:7000", i ? "," : "");
    const char *const none[] = {"", ",", "127.0.0.1:7000,", ",127.0.0.1:7000", "127.0.0.1:7000,127.0.0.1", many};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_fails(tw_members_join(none[i], subject, NULL, NULL, &members), TW_ERROR_ARGUMENT,
                     "is no meeting point: want HOST:PORT");
    }
}

TEST(test_a_key_beside_what_cannot_be_stays_the_callers)
{
    char secret[] = "neither wiped nor freed";
    const tw_tcp_options none[] = {
        {.struct_size = sizeof *none, .key = secret, .key_size = 3},
        {.struct_size = sizeof *none, .key = secret, .key_size = sizeof secret, .streams = 1000}};
    tw_members *members;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(tw_members_join("127.0.0.1:7000", subject, NULL, &none[i], &members), TW_ERROR_ARGUMENT);
    assert_string_equal(secret, "neither wiped nor freed");
}

/* --- those who are not let in ------------------------------------------------------------------------------------ */

TEST(test_another_key_and_another_subject)
{
    char meeting[TCP_ADDRESS];
    player players[2];
    tw_generation generation = {.struct_size = sizeof generation};
    tw_comm *comm;
    find_meeting(meeting);
    come(&players[0], meeting);
    players[0].rounds = 0;
    begin(players, 1, 1);
    end(players, 1);
    tw_members *stranger = join(meeting, subject, other_key, NULL);
    assert_fails(tw_members_next(stranger, -1, 0, &generation, &comm), TW_ERROR_PEER,
                 "turns this process away: it may have another key, or none, or only one of the two gives a number");
    tw_members_destroy(stranger);
    tw_members *other = join(meeting, "the spec local:every=8\nthe parameter v of (3,)\n", key, NULL);
    assert_fails(tw_members_next(other, -1, 0, &generation, &comm), TW_ERROR_ARGUMENT,
                 "this process has the parameter v of (3,) where the group at ");
    assert_non_null(strstr(tw_last_error(), "has the parameter w of (3,)"));
    tw_members_destroy(other);
    options.quorum = 1;
    other = join(meeting, subject, key, NULL);
    options.quorum = 0;
    assert_fails(tw_members_next(other, -1, 0, &generation, &comm), TW_ERROR_ARGUMENT,
                 "this process has quorum=1 where the group at ");
    assert_non_null(strstr(tw_last_error(), "has quorum=0"));
    tw_members_destroy(other);
    release = "1.2.4";
    other = join(meeting, subject, key, NULL);
    release = "1.2.3";
    assert_fails(tw_members_next(other, -1, 0, &generation, &comm), TW_ERROR_ARGUMENT,
                 "this process has the release 1.2.4 of thinwire where the group at ");
    assert_non_null(strstr(tw_last_error(), "has the release 1.2.3 of thinwire"));
    tw_members_destroy(other);
    go(&players[0]);
}

static void wait_for_a_visitor(player *players, int count)
{
    players[0].due = TW_MEMBERS_SAME;
    while (players[0].due == TW_MEMBERS_SAME) {
        usleep(2000); /* the step of a program */
        take_part_in_a_round(players, count, TW_MEMBERS_STAY);
    }
}

/* It is told, and does not wait for as long as a member may be silent; whether the founder was the last, or all have
 * finished. */
TEST(test_who_comes_to_a_group_that_ends_is_told)
{
    char meeting[TCP_ADDRESS];
    player players[2];
    find_meeting(meeting);
    options.grace = 1e6;
    come(&players[0], meeting);
    players[0].rounds = 0;
    begin(players, 1, 1);
    end(players, 1);
    come(&players[1], meeting);
    options.grace = 10;
    begin(players + 1, 1, 2);
    wait_for_a_visitor(players, 1);
    go(&players[0]);
    pthread_join(players[1].thread, NULL);
    assert_int_equal(players[1].status, TW_ERROR_PEER);
    assert_non_null(strstr(players[1].text, "has ended before it let this process in: its run is over"));
    go(&players[1]);
}

TEST(test_who_comes_when_all_have_finished_is_told)
{
    char meeting[TCP_ADDRESS];
    player players[MEMBERS];
    find_meeting(meeting);
    for (int n = 0; n < 2; n++) {
        come(&players[n], meeting);
        if (n == 0) players[n].rounds = 0;
        begin(players, n + 1, n + 1);
        end(players, n + 1);
    }
    come(&players[2], meeting);
    begin(players + 2, 1, 3);
    wait_for_a_visitor(players, 2);
    take_part_in_a_round(players, 2, TW_MEMBERS_FINISH);
    for (int n = 0; n < 2; n++) assert_int_equal(players[n].due, TW_MEMBERS_FINISHED);
    for (int n = 0; n < 2; n++) go(&players[n]);
    pthread_join(players[2].thread, NULL);
    assert_int_equal(players[2].status, TW_ERROR_PEER);
    assert_non_null(strstr(players[2].text, "has ended before it let this process in: its run is over"));
    go(&players[2]);
}

/* Before it has been turned away as often as it takes. */
TEST(test_who_has_another_key_learns_of_the_end)
{
    static refusals all;
    char meeting[TCP_ADDRESS];
    player players[2];
    find_meeting(meeting);
    players[0] = (player){.members = join(meeting, subject, key, &all)};
    begin(players, 1, 1);
    end(players, 1);
    options.grace = 2;
    players[1] = (player){.members = join(meeting, subject, other_key, NULL), .rounds = -1};
    options.grace = 10;
    begin(players + 1, 1, 2);
    while (!all.counts[1]) take_part_in_a_round(players, 1, TW_MEMBERS_STAY);
    go(&players[0]);
    pthread_join(players[1].thread, NULL);
    assert_int_equal(players[1].status, TW_ERROR_PEER);
    assert_non_null(strstr(players[1].text, "answers any more: its run has ended, or all of them are lost"));
    go(&players[1]);
}

static void keep_all(void *context, const char *text)
{
    char *told = context;
    size_t used = strlen(told);
    snprintf(told + used, TCP_NOBODY_TEXT - used, "%s\n", text);
}

/* Once, in time: the wrong port looks as if the other process had not been started yet. This one has been taken by a
 * socket that does not listen. */
TEST(test_nobody_answers_and_that_is_told)
{
    static char told[TCP_NOBODY_TEXT], expected[TCP_NOBODY_TEXT];
    const tw_tcp_options tcp = {.struct_size = sizeof tcp, .refused = keep_all, .context = told};
    const int port = find_port(), taken = take_port(port);
    char meeting[TCP_ADDRESS];
    tw_generation generation = {.struct_size = sizeof generation};
    tw_members *members;
    tw_comm *comm;
    snprintf(meeting, sizeof meeting, "127.0.0.1:%d", port);
    options.patience = 2;
    assert_ok(tw_members_join(meeting, subject, &options, &tcp, &members));
    options.patience = 60;
    assert_fails(tw_members_next(members, -1, 0, &generation, &comm), TW_ERROR_PEER, "let this process in");
    tw_members_destroy(members);
    close(taken);
    snprintf(
        expected, sizeof expected,
        "this process waits: nobody has answered at %s for 1 seconds (Connection refused): what is to listen there "
        "has not been started yet, or has another port\n",
        meeting);
    assert_string_equal(told, expected);
}

/* Also where the other program could be reached, which is no reason to be silent. */
TEST(test_another_program_at_the_port_is_told_of)
{
    static char told[FOREIGNERS][TCP_NOBODY_TEXT], expected[TCP_NOBODY_TEXT];
    player players[FOREIGNERS];
    char meeting[TCP_ADDRESS];
    begin_foreigners();
    options.patience = 6;
    for (int i = 0; i < FOREIGNERS; i++) {
        const tw_tcp_options tcp = {.struct_size = sizeof tcp, .refused = keep_all, .context = told[i]};
        snprintf(meeting, sizeof meeting, "127.0.0.1:%d", foreigners[i].port);
        players[i] = (player){.rounds = -1};
        assert_ok(tw_members_join(meeting, subject, &options, &tcp, &players[i].members));
    }
    options.patience = 60;
    begin(players, FOREIGNERS, 2);
    for (int i = 0; i < FOREIGNERS; i++) {
        pthread_join(players[i].thread, NULL);
        assert_int_equal(players[i].status, TW_ERROR_PEER);
        snprintf(expected, sizeof expected,
                 "this process waits: no group of thinwire has answered at 127.0.0.1:%d for 3 seconds %s\n",
                 foreigners[i].port, foreigners[i].told);
        assert_string_equal(told[i], expected);
        tw_members_destroy(players[i].members);
    }
    end_foreigners();
}

/* Half of a grace, after which it is asked. The one that is new has measured none; where the program of one has set
 * another limit, that stays. */
TEST(test_all_have_the_grace_of_the_rounds_that_were_measured)
{
    char meeting[TCP_ADDRESS];
    player players[MEMBERS];
    options.grace = 1000;
    find_meeting(meeting);
    for (int n = 0; n < MEMBERS; n++) {
        come(&players[n], meeting);
        if (n == 0) players[n].rounds = 0;
        begin(players, n + 1, n + 1);
        end(players, n + 1);
        if (n == 0) assert_true(tw_comm_timeout(players[0].comm) == 500);
        if (n == 0) take_part_in_a_round(players, 1, TW_MEMBERS_STAY);
        if (n == 0) assert_true(tw_comm_timeout(players[0].comm) == 500); /* it has only begun */
        if (n == 0) take_part_in_a_round(players, 1, TW_MEMBERS_STAY);
        if (n == 0) assert_in_range(tw_comm_timeout(players[0].comm), 5, 9);
    }
    options.grace = 10;
    assert_true(tw_comm_timeout(players[2].comm) == 500);
    assert_ok(tw_comm_set_timeout(players[1].comm, 40));
    take_part_in_a_round(players, MEMBERS, TW_MEMBERS_STAY);
    assert_in_range(tw_comm_timeout(players[0].comm), 5, 9);
    assert_true(tw_comm_timeout(players[1].comm) == 40);
    assert_true(tw_comm_timeout(players[2].comm) == tw_comm_timeout(players[0].comm));
    for (int n = 0; n < MEMBERS; n++) go(&players[n]);
}

static tw_comm *next_of(tw_members *members)
{
    tw_generation generation = {.struct_size = sizeof generation};
    tw_comm *comm;
    assert_ok(tw_members_next(members, 0, 0, &generation, &comm));
    return comm;
}

static void count_workers(void *context, const char *text)
{
    *(int *)context += strstr(text, "it gives a number of workers, and here they come and go") != NULL;
}

/* It has the key, and its proof is one for another door. The program is told when it calls, by no other thread. */
TEST(test_one_with_a_number_of_workers_is_told_apart)
{
    static int counts[2];
    const char *const keys[] = {key, other_key};
    const int port = find_port();
    char meeting[TCP_ADDRESS];
    snprintf(meeting, sizeof meeting, "127.0.0.1:%d", port);
    for (int i = 0; i < 2; i++) {
        unsigned char secret[TCP_SECRET];
        tw_members *members;
        const tw_tcp_options tcp = {.struct_size = sizeof tcp,
                                    .key = key,
                                    .key_size = strlen(key),
                                    .refused = count_workers,
                                    .context = &counts[i]};
        assert_ok(tw_members_join(meeting, subject, &options, &tcp, &members));
        tcp_secret_make(keys[i], strlen(keys[i]), "a meeting point", NULL, 0, secret);
        assert_int_equal(knock(port, NULL, secret, (tcp_place){0}, NULL), -1);
        assert_int_equal(counts[i], 0);
        tw_comm_destroy(next_of(members));
        assert_int_equal(counts[i], i == 0);
        tw_members_destroy(members);
    }
}

TEST(test_all_have_the_patience_of_the_one_that_opened)
{
    char meeting[TCP_ADDRESS];
    player players[2];
    find_meeting(meeting);
    come(&players[0], meeting);
    players[0].rounds = 0;
    options.patience = 45.5;
    come(&players[1], meeting);
    options.patience = 60;
    begin(players, 2, 2);
    end(players, 2);
    for (int n = 0; n < 2; n++) assert_true(tw_comm_patience(players[n].comm) == 60);
    for (int n = 0; n < 2; n++) go(&players[n]);
}

static void *send_strangers(void *argument)
{
    int port = *(const int *)argument;
    unsigned char garbage[TCP_HELLO], secret[TCP_SECRET], other[TCP_SECRET], replayed[TCP_HELLO],
        challenge[TCP_CHALLENGE], session[TCP_SECRET];
    const tcp_place nobody = {0};
    const council_message join_of_another = foreign_join();
    memset(garbage, 'x', sizeof garbage);
    tcp_secret_make(key, strlen(key), "members of a group", NULL, 0, secret);
    tcp_secret_make(other_key, strlen(other_key), "members of a group", NULL, 0, other);
    tcp_challenge_make(challenge);
    tcp_hello_make(secret, challenge, nobody, replayed); /* it was right at another time */
    for (int i = 0; i < of_each_kind(); i++) {
        assert_int_equal(knock(port, garbage, secret, nobody, NULL), -1);
        assert_int_equal(knock(port, i % 2 ? replayed : NULL, other, nobody, NULL), -1);
        for (damage how = WHOLE; how <= NO_WORD; how++)
            say(knock(port, NULL, secret, nobody, session), session, &join_of_another, how);
    }
    return NULL;
}

/* Two members take part in rounds meanwhile, and one that they want comes in. */
TEST(test_strangers)
{
    static refusals all;
    char meeting[TCP_ADDRESS];
    player players[MEMBERS];
    pthread_t strangers;
    int port = find_port();
    snprintf(meeting, sizeof meeting, "127.0.0.1:%d", port);
    players[0] = (player){.members = join(meeting, subject, key, &all)};
    for (int n = 0; n < 2; n++) {
        if (n) come(&players[n], meeting);
        begin(players, n + 1, n + 1);
        end(players, n + 1);
    }
    uint64_t before = players[0].generation.number;
    assert_int_equal(pthread_create(&strangers, NULL, send_strangers, &port), 0);
    come(&players[2], meeting);
    begin(players, 3, 3);
    end(players, 3);
    assert_true(players[0].generation.number > before);
    pthread_join(strangers, NULL);
    take_part_in_a_round(players, MEMBERS, TW_MEMBERS_STAY);
    for (int i = 0; i < REASONS; i++) {
        print_message("%d were told of, refused since each %s\n", all.counts[i], reasons[i]);
        assert_true(all.counts[i] > 0);
    }
    assert_in_range(all.all, REASONS * of_each_kind() - 1, REASONS * of_each_kind()); /* the last may be on its way */
    for (int i = 0; i < MEMBERS; i++) go(&players[i]);
}

/* --- words ------------------------------------------------------------------------------------------------------- */

/* Alone in memory, so that a byte too far is seen. */
static int can_read(const unsigned char *word, size_t size)
{
    static council_message read;
    const char *text;
    unsigned char *alone = calloc(size + 1, 1);
    memcpy(alone, word, size);
    int can = tcp_word_read(alone, size, &read, &text);
    free(alone);
    return can;
}

TEST(test_words_with_too_little_and_with_too_many)
{
    static council_message message;
    size_t size, less;
    message = foreign_join();
    message.list.count = COUNCIL_MOST - 1;
    for (int i = 0; i < COUNCIL_MOST; i++) message.list.seats[i] = message.seat;
    free(tcp_word_write(&message, "", &less));
    message.list.count++;
    unsigned char *word = tcp_word_write(&message, "", &size), *longer = malloc(2 * size - less);
    assert_true(can_read(word, size));
    for (size_t part = 0; part < size; part++) assert_false(can_read(word, part));
    memcpy(longer, word, size);
    memcpy(longer + size, word + less, size - less); /* its last seat once more */
    longer[3] = COUNCIL_MOST + 1;
    assert_false(can_read(longer, 2 * size - less));
    free(longer);
    free(word);
}

static int can_read_back(const council_message *message)
{
    size_t size;
    unsigned char *word = tcp_word_write(message, "", &size);
    const int can = can_read(word, size);
    free(word);
    return can;
}

/* One that is busy has none yet. In every list are those that were ready. */
TEST(test_who_is_ready_has_a_door)
{
    static council_message message;
    for (council_kind kind = COUNCIL_JOIN; kind < COUNCIL_KINDS; kind++) {
        message = foreign_join();
        message.kind = kind;
        message.list.count = 2;
        for (int i = 0; i < 2; i++) message.list.seats[i] = message.seat;
        assert_true(can_read_back(&message));
        message.seat.door[0] = 0;
        assert_false(can_read_back(&message));
        message.state = COUNCIL_BUSY;
        assert_true(can_read_back(&message));
        message.list.seats[1].door[0] = 0;
        assert_false(can_read_back(&message));
    }
}

TEST(test_damaged_words)
{
    static council_message message, read;
    const char *text;
    size_t size;
    message = foreign_join();
    message.kind = COUNCIL_DECIDED;
    message.list.count = 3;
    message.list.generation = 7;
    message.list.patience = 60000;
    for (int i = 0; i < 3; i++) {
        message.list.seats[i] = message.seat;
        message.list.seats[i].rounds = (uint64_t)i;
    }
    unsigned char *word = tcp_word_write(&message, "a text", &size), *damaged = malloc(size + 1);
    memcpy(damaged, word, size);
    damaged[size] = 0;
    assert_true(tcp_word_read(damaged, size, &read, &text));
    assert_string_equal(text, "a text");
    assert_int_equal(read.list.count, 3);
    assert_int_equal(read.list.patience, 60000);
    assert_string_equal(read.list.seats[2].door, message.seat.door);
    assert_int_equal(read.list.seats[2].rounds, 2);
    for (uint32_t i = 0; i < (uint32_t)in_part(2000, 20000); i++) {
        size_t length = i % 2 ? size : draw(1, i, (uint32_t)size);
        memcpy(damaged, word, size);
        for (uint32_t hits = 1 + draw(2, i, 4); hits > 0; hits--)
            damaged[draw(3, 8 * i + hits, (uint32_t)size)] = (unsigned char)draw(4, 8 * i + hits, 256);
        unsigned char *alone = malloc(length + 1); /* so that a byte too far is seen */
        memcpy(alone, damaged, length);
        alone[length] = 0;
        if (tcp_word_read(alone, length, &read, &text)) {
            assert_in_range(read.kind, COUNCIL_JOIN, COUNCIL_KINDS - 1);
            assert_in_range(read.list.count, 0, COUNCIL_MOST);
            assert_true(strlen(text) <= length);
        }
        free(alone);
    }
    free(damaged);
    free(word);
}

int main(void)
{
    return tcp_hello_begin() ? cmocka_run_group_tests(all_tests, NULL, NULL) : 1;
}
