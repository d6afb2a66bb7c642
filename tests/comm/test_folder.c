/* The folder as a transport: how a group forms, and what may lie in the folder. */
#include "meeting.h"
#include "store.h"

#include <dirent.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <thinwire/thinwire_folder.h>

#include "support/assert.h"
#include "support/folder.h"

enum { RANKS = 2, COUNT = 1000 };

typedef struct player {
    pthread_t thread;
    int rank, size;
    double seconds;
    tw_comm *comm;
    tw_status status;
    char text[512];
} player;

static void *join(void *argument)
{
    player *me = argument;
    me->status = tw_folder_join(test_folder, me->rank, me->size, me->seconds, NULL, NULL, &me->comm);
    if (me->status != TW_OK) snprintf(me->text, sizeof me->text, "%s", tw_last_error());
    return NULL;
}

static player players[RANKS];

static void join_group(player *group, int size)
{
    for (int r = 0; r < size; r++) {
        group[r] = (player){.rank = r, .size = size, .seconds = 60};
        assert_int_equal(pthread_create(&group[r].thread, NULL, join, &group[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(group[r].thread, NULL);
    for (int r = 0; r < size; r++) assert_int_equal(group[r].status, TW_OK);
}

static void join_all(void)
{
    join_group(players, RANKS);
}

static void leave_all(void)
{
    for (int r = 0; r < RANKS; r++) tw_comm_destroy(players[r].comm);
}

/* Files whose names begin like that. */
static int count_files(const char *prefix)
{
    DIR *all = opendir(test_folder);
    int count = 0;
    assert_non_null(all);
    for (const struct dirent *one; (one = readdir(all));) count += strncmp(one->d_name, prefix, strlen(prefix)) == 0;
    closedir(all);
    return count;
}

/* What rank 0 sends, and what comes of rank 1's receive within `timeout`. */
static struct {
    tw_transport_ops ops;
    void *ends[RANKS];
    unsigned char sent[COUNT], received[COUNT];
    size_t size;
    uint32_t check;
} wire;

static void begin_group(void)
{
    join_all();
    for (int i = 0; i < COUNT; i++) wire.sent[i] = (unsigned char)(i * 7);
    wire.ops.struct_size = sizeof wire.ops;
    for (int r = 0; r < RANKS; r++) assert_int_equal(tw_comm_lend(players[r].comm, &wire.ops, &wire.ends[r]), TW_OK);
}

static int begin_group_in_folder(void **state)
{
    if (make_folder(state) != 0) return -1;
    begin_group();
    return 0;
}

static int end_group_in_folder(void **state)
{
    leave_all();
    return remove_folder(state);
}

static void send_one(size_t size)
{
    void *request;
    size_t sent;
    uint32_t check;
    assert_int_equal(wire.ops.start_send(wire.ends[0], 1, 3, wire.sent, size, 0xfeed, &request), TW_OK);
    assert_int_equal(wire.ops.wait(wire.ends[0], request, 0, &sent, &check), TW_OK);
}

static tw_status receive_one(size_t room, double timeout)
{
    void *request;
    assert_int_equal(wire.ops.start_recv(wire.ends[1], 0, 3, wire.received, room, &request), TW_OK);
    return wire.ops.wait(wire.ends[1], request, timeout, &wire.size, &wire.check);
}

/* ---- groups ---- */

TEST_BETWEEN(messages_are_files_and_gone_when_they_are_read, begin_group_in_folder, end_group_in_folder)
{
    send_one(COUNT);
    send_one(0);
    assert_int_equal(count_files("m-0-1-3-"), 2);
    assert_int_equal(receive_one(COUNT, 60), TW_OK);
    assert_int_equal(wire.size, COUNT);
    assert_int_equal(wire.check, 0xfeed);
    assert_memory_equal(wire.sent, wire.received, COUNT);
    assert_int_equal(receive_one(0, 60), TW_OK);
    assert_int_equal(wire.size, 0);
    assert_int_equal(count_files("m-") + count_files(".m-"), 0);
}

/* A rank that died left a message, and the next group of the same ranks must not read it. */
TEST_BETWEEN(an_earlier_run_changes_nothing, begin_group_in_folder, end_group_in_folder)
{
    send_one(COUNT);
    assert_int_equal(rename(in_folder("m-0-1-3-0"), in_folder("kept")), 0);
    leave_all();
    begin_group();
    assert_int_equal(rename(in_folder("kept"), in_folder("m-0-1-3-0")), 0);
    assert_int_equal(receive_one(COUNT, 0.01), TW_ERROR_PEER);
    wire.sent[0] = 99;
    send_one(COUNT);
    assert_int_equal(receive_one(COUNT, 60), TW_OK);
    assert_int_equal(wire.received[0], 99);
}

TEST_IN_FOLDER(who_does_not_come_is_named)
{
    player alone = {.rank = 1, .size = 3, .seconds = 0.05};
    join(&alone);
    assert_int_equal(alone.status, TW_ERROR_PEER);
    assert_non_null(strstr(alone.text, "rank 0 of 3 did not come"));
}

/* A folder in which the other rank of two says something just before it is heard. */
static int put_in_folder(void *self, const char *name, const store_pieces *pieces, double seconds,
                         char reason[STORE_REASON])
{
    const store *at = self;
    return at->ops->put(at->self, name, pieces, seconds, reason);
}

static void tell_nothing(void *self, char reason[STORE_REASON])
{
    (void)self;
    *reason = 0;
}

static store_found say_and_get(const store *at, const char *name, store_pieces *pieces, const uint64_t said[2],
                               int rank)
{
    const store_header header = {.session = said[rank], .size = 2 * sizeof *said};
    if (name[strlen("hello-")] == '0' + rank) assert_int_equal(store_write(at, name, &header, said, 0), TW_OK);
    return at->ops->get(at->self, name, pieces, 0);
}

/* Another number of rank 0 each time. */
static store_found get_another(void *self, const char *name, store_pieces *pieces, double seconds)
{
    static uint64_t said[2];
    (void)seconds;
    said[0]++;
    return say_and_get(self, name, pieces, said, 0);
}

TEST_IN_FOLDER(who_never_says_the_same_twice_has_not_come)
{
    const store_ops ops = {.get = get_another, .put = put_in_folder, .tell = tell_nothing};
    uint64_t session;
    store real;
    assert_int_equal(store_open(test_folder, &real), TW_OK);
    store at = {&ops, &real, test_folder, real.shortest_nap, real.longest_nap};
    assert_fails(folder_meet(&at, 1, 2, &(folder_limits){.seconds = 0.05}, &session), TW_ERROR_PEER,
                 "rank 0 of 2 did not come");
    store_close(&real);
}

static void read_numbers(const store *at, const char *name, uint64_t numbers[2])
{
    store_header header;
    assert_int_equal(store_read(at, name, numbers, 2 * sizeof *numbers, 0, &header), STORE_WHOLE);
}

/* Rank 1 has seen rank 0's number when it is first heard of. */
static store_found get_answer(void *self, const char *name, store_pieces *pieces, double seconds)
{
    uint64_t said[2];
    (void)seconds;
    read_numbers(self, "hello-0", said);
    said[1] = 7;
    return say_and_get(self, name, pieces, said, 1);
}

TEST_IN_FOLDER(a_group_is_complete_when_this_rank_has_answered)
{
    const store_ops ops = {.get = get_answer, .put = put_in_folder};
    uint64_t session, told[2];
    store real;
    assert_int_equal(store_open(test_folder, &real), TW_OK);
    store at = {&ops, &real, test_folder, real.shortest_nap, real.longest_nap};
    assert_int_equal(folder_meet(&at, 0, 2, &(folder_limits){.seconds = 60}, &session), TW_OK);
    read_numbers(&real, "hello-0", told);
    assert_int_equal(told[0], session);
    assert_int_equal(told[1], 7);
    store_close(&real);
}

TEST_IN_FOLDER(two_processes_of_one_rank_are_told)
{
    player twins[2];
    for (int i = 0; i < 2; i++) {
        twins[i] = (player){.rank = 0, .size = 2, .seconds = 60};
        assert_int_equal(pthread_create(&twins[i].thread, NULL, join, &twins[i]), 0);
        while (i == 0 && count_files("hello-0") == 0) {
        }
    }
    pthread_join(twins[0].thread, NULL); /* the second has taken its file's place, and waits for rank 1 */
    assert_int_equal(twins[0].status, TW_ERROR_PEER);
    assert_non_null(strstr(twins[0].text, "another process takes part"));
    player other = {.rank = 1, .size = 2, .seconds = 60};
    join(&other);
    pthread_join(twins[1].thread, NULL);
    assert_int_equal(other.status, TW_OK);
    assert_int_equal(twins[1].status, TW_OK);
    tw_comm_destroy(other.comm);
    tw_comm_destroy(twins[1].comm);
}

/* What rank 0 has sent and nobody has read yet stays. */
TEST_BETWEEN(a_stray_of_its_rank_takes_nothing_from_a_group, begin_group_in_folder, end_group_in_folder)
{
    player stray = {.rank = 0, .size = RANKS, .seconds = 0.05};
    send_one(COUNT);
    join(&stray);
    assert_int_equal(stray.status, TW_ERROR_PEER);
    assert_int_equal(receive_one(COUNT, 60), TW_OK);
    assert_memory_equal(wire.sent, wire.received, COUNT);
}

/* Rank `rank` gives up because of `lost`, and `other`, which waits for it, says so. */
static void give_up(const player *group, int rank, int lost, int other, const char *text)
{
    tw_transport_ops ops = {.struct_size = sizeof ops};
    void *end, *others_end, *request;
    unsigned char word;
    size_t size;
    uint32_t check;
    assert_ok(tw_comm_lend(group[rank].comm, &ops, &end));
    assert_ok(tw_comm_lend(group[other].comm, &ops, &others_end));
    ops.leave_because_of(end, lost);
    assert_ok(ops.start_recv(others_end, rank, 3, &word, sizeof word, &request));
    assert_int_equal(ops.poll(others_end, request, 60), 1);
    assert_fails(ops.wait(others_end, request, 0, &size, &check), TW_ERROR_PEER, text);
}

TEST_IN_FOLDER(who_failed_is_named_by_all)
{
    enum { ALL = 4 };
    player group[ALL];
    (void)state;
    join_group(group, ALL);
    give_up(group, 0, 2, 1, "rank 2 failed: rank 0 gave up the group in");
    give_up(group, 1, 0, 3, "rank 2 failed: rank 1 gave up the group in");
    give_up(group, 2, 1, 3, "rank 2 has left the group in");
    for (int r = 0; r < ALL; r++) tw_comm_destroy(group[r].comm);
}

/* A message that an earlier run left goes with the next group of its rank. */
TEST_IN_FOLDER(what_was_left_is_removed)
{
    write_bytes("m-0-1-3-9", "left", 4);
    join_all();
    assert_int_equal(count_files("m-"), 0);
    leave_all();
}

TEST_IN_FOLDER(what_cannot_be_is_refused)
{
    tw_comm *comm = NULL;
    const int wrong[][2] = {{-1, 2}, {2, 2}, {0, 0}, {0, 65}};
    for (int i = 0; i < 4; i++)
        assert_int_equal(tw_folder_join(test_folder, wrong[i][0], wrong[i][1], 1, NULL, NULL, &comm),
                         TW_ERROR_ARGUMENT);
    assert_int_equal(tw_folder_join(test_folder, 0, 1, 0, NULL, NULL, &comm), TW_ERROR_ARGUMENT);
    assert_fails(tw_folder_join(in_folder("nothing"), 0, 1, 1, NULL, NULL, &comm), TW_ERROR_IO,
                 "want a folder that all machines share");
    assert_null(comm);
}

static int stops_at_third(void *count)
{
    return ++*(int *)count == 3;
}

/* It is not asked before there is somebody to wait for. */
TEST_IN_FOLDER(a_wait_for_the_others_may_be_stopped)
{
    tw_comm *comm = NULL;
    int asked = 0;
    assert_fails(tw_folder_join(in_folder("nothing"), 0, 2, 1, stops_at_third, &asked, &comm), TW_ERROR_IO,
                 "want a folder");
    assert_fails(tw_folder_join(test_folder, 2, 2, 1, stops_at_third, &asked, &comm), TW_ERROR_ARGUMENT, "rank 2 of 2");
    assert_int_equal(asked, 0);
    assert_fails(tw_folder_join(test_folder, 0, 2, 60, stops_at_third, &asked, &comm), TW_ERROR_PEER,
                 "stopped by this process's own program");
    assert_int_equal(asked, 3);
    assert_null(comm);
}

/* By then its URL has been copied: what stays behind, the sanitizers see. */
TEST(a_store_without_keys_is_refused)
{
    const char *const keys[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"};
    tw_comm *comm = NULL;
    for (int i = 0; i < 4; i++) unsetenv(keys[i]);
    for (int i = 0; i < 3; i++) {
        assert_true(tw_status_is_error(tw_folder_join("s3+https://127.0.0.1:1/x", 0, 2, 1, NULL, NULL, &comm)));
        setenv(keys[i], "x", 1);
    }
    assert_null(comm);
}

static int is_over(void *request, double timeout)
{
    return wire.ops.poll(wire.ends[1], request, timeout);
}

static void *begin_receive(void)
{
    void *request;
    assert_ok(wire.ops.start_recv(wire.ends[1], 0, 3, wire.received, COUNT, &request));
    return request;
}

/* What copies folders begins with the small ones. Of two that are waited for the second was never sent. */
TEST_BETWEEN(a_farewell_may_come_before_the_last_message, begin_group_in_folder, end_group_in_folder)
{
    send_one(COUNT);
    assert_int_equal(rename(in_folder("m-0-1-3-0"), in_folder("kept")), 0);
    wire.ops.leave(wire.ends[0]);
    assert_int_equal(count_files("gone-0"), 1);
    void *first = begin_receive(), *second = begin_receive();
    assert_int_equal(is_over(first, 0.1), 0);
    assert_int_equal(is_over(second, 60), 1);
    assert_int_equal(rename(in_folder("kept"), in_folder("m-0-1-3-0")), 0);
    assert_ok(wire.ops.wait(wire.ends[1], first, 60, &wire.size, &wire.check));
    assert_memory_equal(wire.sent, wire.received, COUNT);
    assert_fails(wire.ops.wait(wire.ends[1], second, 60, &wire.size, &wire.check), TW_ERROR_PEER, "rank 0 has left");
}

/* ---- files ---- */

/* Writes the file of a message as it would be with one byte changed, or cut off at `cut`. */
static void spoil(const unsigned char *whole, size_t size, size_t cut, size_t changed)
{
    unsigned char bytes[COUNT + 32];
    memcpy(bytes, whole, size);
    if (changed < size) bytes[changed] ^= 1;
    write_bytes("m-0-1-3-0", bytes, cut);
}

/* Cut off anywhere and with any bit changed it has not come. Then it comes. */
TEST_BETWEEN(a_file_that_is_not_whole_has_not_come, begin_group_in_folder, end_group_in_folder)
{
    enum { SMALL = 40, FILE_BYTES = SMALL + 32 };
    unsigned char whole[FILE_BYTES];
    send_one(SMALL);
    FILE *file = fopen(in_folder("m-0-1-3-0"), "rb");
    assert_non_null(file);
    assert_int_equal(fread(whole, 1, FILE_BYTES, file), FILE_BYTES);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
    for (size_t cut = 0; cut < FILE_BYTES; cut++) {
        spoil(whole, FILE_BYTES, cut, FILE_BYTES);
        assert_fails(receive_one(SMALL, 0), TW_ERROR_PEER, "is not whole");
    }
    for (size_t changed = 0; changed < FILE_BYTES; changed++) {
        if (changed >= 28 && changed < 32) continue; /* nothing is told there */
        spoil(whole, FILE_BYTES, FILE_BYTES, changed);
        assert_int_equal(receive_one(SMALL, 0), TW_ERROR_PEER);
    }
    remove(in_folder("m-0-1-3-0"));
    assert_int_equal(symlink("elsewhere", in_folder("m-0-1-3-0")), 0);
    assert_int_equal(receive_one(SMALL, 0), TW_ERROR_PEER);
    remove(in_folder("m-0-1-3-0"));
    assert_int_equal(mkfifo(in_folder("m-0-1-3-0"), 0600), 0);
    assert_int_equal(receive_one(SMALL, 0), TW_ERROR_PEER);
    remove(in_folder("m-0-1-3-0"));
    spoil(whole, FILE_BYTES, FILE_BYTES, FILE_BYTES);
    assert_int_equal(receive_one(SMALL, 0), TW_OK);
    assert_memory_equal(wire.sent, wire.received, SMALL);
}

/* Where the file of a message is to be made. */
TEST_BETWEEN(a_pipe_that_nobody_reads_stops_no_message, begin_group_in_folder, end_group_in_folder)
{
    void *request;
    assert_int_equal(mkfifo(in_folder(".m-0-1-3-0.part"), 0600), 0);
    assert_fails(wire.ops.start_send(wire.ends[0], 1, 3, wire.sent, COUNT, 0, &request), TW_ERROR_IO,
                 "m-0-1-3-0 cannot be written");
}

TEST_BETWEEN(a_folder_that_goes_is_told, begin_group_in_folder, end_group_in_folder)
{
    void *request;
    assert_int_equal(remove_folder(NULL), 0);
    assert_fails(wire.ops.start_send(wire.ends[0], 1, 3, wire.sent, COUNT, 0, &request), TW_ERROR_IO,
                 "m-0-1-3-0 cannot be written");
    assert_int_equal(mkdir(test_folder, 0700), 0);
}

/* ---- signals ---- */

static _Thread_local int breaks;
static int broken;
static volatile sig_atomic_t signals;

/* As send of the C library, but with the signal of a connection that is broken. libcurl calls it. */
__attribute__((visibility("default"))) ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    typedef ssize_t function(int, const void *, size_t, int);
    function *real = (function *)dlsym(RTLD_NEXT, "send");
    if (breaks) pthread_kill(pthread_self(), SIGPIPE);
    broken += breaks;
    return real(fd, bytes, size, flags);
}

static void count_signal(int number)
{
    signals += number == SIGPIPE;
}

/* A web server that takes whatever comes, twice. */
static void *take_files(void *argument)
{
    static const char taken[] = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    char bytes[1024];
    for (int i = 0; i < 2; i++) {
        int fd = accept(*(const int *)argument, NULL, NULL);
        (void)!recv(fd, bytes, sizeof bytes, 0);
        (void)!write(fd, taken, strlen(taken));
        shutdown(fd, SHUT_WR);
        while (recv(fd, bytes, sizeof bytes, 0) > 0) continue;
        close(fd);
    }
    return NULL;
}

static int listen_anywhere(char url[64])
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (const void *)&here, sizeof here), 0);
    assert_int_equal(listen(fd, 2), 0);
    assert_int_equal(getsockname(fd, (void *)&here, &size), 0);
    snprintf(url, 64, "http://127.0.0.1:%d/x", ntohs(here.sin_port));
    return fd;
}

static int is_pending(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE);
}

/* One that the program has blocked stays for it. */
TEST(a_broken_connection_is_no_signal_to_the_program)
{
    pthread_t server;
    char url[64];
    store at;
    sigset_t blocked;
    store_header header = {.size = 4};
    if (store_open("http://127.0.0.1:1/x", &at) == TW_ERROR_UNSUPPORTED) skip(); /* this machine has no libcurl */
    store_close(&at);
    int fd = listen_anywhere(url);
    assert_int_equal(pthread_create(&server, NULL, take_files, &fd), 0);
    void (*before)(int) = signal(SIGPIPE, count_signal);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGPIPE);
    assert_ok(store_open(url, &at));
    breaks = 1;
    assert_ok(store_write(&at, "one", &header, "word", 60));
    assert_true(broken > 0);
    assert_int_equal(signals, 0);
    assert_false(is_pending());
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    pthread_kill(pthread_self(), SIGPIPE);
    assert_ok(store_write(&at, "two", &header, "word", 60));
    breaks = 0;
    assert_true(is_pending());
    assert_int_equal(signals, 0);
    pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
    assert_int_equal(signals, 1);
    signal(SIGPIPE, before);
    store_close(&at);
    pthread_join(server, NULL);
    close(fd);
}

RUN_TESTS(NULL, NULL)
