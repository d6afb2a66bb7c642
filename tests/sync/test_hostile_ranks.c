/* A rank that tells the others numbers that cannot be: each is checked before it is used, and the one that sent it is
 * named. What the hostile rank says goes over the very channels of the library, as its own code would send it. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "channel.h"
#include "gossip_host.h"
#include "members.h"
#include "outer.h"
#include "support/ranks.h"

static const tw_tensor table[] = {{"w", 1, {4}}};

/* ---- a host's first rank ----------------------------------------------------------------------------------------- */

enum { WORKERS = 4, PER_HOST = 2, HOSTS = WORKERS / PER_HOST };

/* As gossip_host.c has it. */
typedef struct verdict {
    uint32_t status, refused, lost, lowest;
    char text[TW_REASON_BYTES];
} verdict;

/* What rank 2, the first of its host, says; rank 3 listens. */
typedef struct speech {
    const char *what;
    verdict verdict;
    int count, sent; /* hosts it says there are, numbers it sends */
    int list[64];
} speech;

typedef struct worker {
    const speech *speech;
    tw_status status;
    char text[512];
} worker;

static tw_status say(const tw_gossip *gossip, const void *data, size_t size)
{
    return tw_channel_broadcast_into(gossip->host.members->channel, 0, (void *)(uintptr_t)data, size);
}

static void speak(const tw_gossip *gossip, const speech *all)
{
    (void)say(gossip, &all->verdict, sizeof all->verdict);
    if (all->count) (void)say(gossip, &all->count, sizeof all->count);
    if (all->count) (void)say(gossip, all->list, (size_t)all->sent * sizeof *all->list);
}

static void work(void *workers, int rank, tw_comm *comm)
{
    worker *self = (worker *)workers + rank;
    const float start[4] = {0};
    const float *weights[] = {start};
    float got[4], *into[] = {got};
    tw_gossip *gossip = NULL;
    tw_comm *survivors = NULL;
    self->status = tw_gossip_create(comm, "adpsgd-fixed:per_host=2", table, 1, weights, &gossip);
    if (self->status == TW_OK) self->status = tw_gossip_finish(gossip, into);
    if (self->status == TW_OK && rank == 2) speak(gossip, self->speech);
    if (self->status == TW_OK && rank == 3) self->status = tw_gossip_survivors(gossip, &survivors);
    snprintf(self->text, sizeof self->text, "%s", tw_last_error());
    tw_comm_destroy(survivors);
    tw_gossip_destroy(gossip);
}

static void check_speech(const speech *all)
{
    worker workers[WORKERS];
    for (int r = 0; r < WORKERS; r++) workers[r] = (worker){.speech = all};
    run_on_threads(WORKERS, work, workers);
    if (workers[3].status != TW_ERROR_PACKET || !strstr(workers[3].text, "rank 2"))
        fail_msg("%s: %s: %s", all->what, tw_status_name(workers[3].status), workers[3].text);
}

TEST(test_a_first_rank_that_lies_is_named)
{
    static const speech speeches[] = {
        {.what = "fewer than none", .count = -1, .sent = 1},
        {.what = "far fewer", .count = INT_MIN, .sent = 0},
        {.what = "one host more than there are", .count = HOSTS + 1, .sent = HOSTS + 1, .list = {0, 1, 2}},
        {.what = "more than any list holds", .count = 64, .sent = 64},
        {.what = "a host that is not", .count = 2, .sent = 2, .list = {1, 2}},
        {.what = "a host below 0", .count = 2, .sent = 2, .list = {-1, 1}},
        {.what = "a host twice", .count = 2, .sent = 2, .list = {1, 1}},
        {.what = "hosts out of order", .count = 2, .sent = 2, .list = {1, 0}},
        {.what = "without its own host", .count = 1, .sent = 1, .list = {0}},
        {.what = "a status that is not", .verdict = {.status = 77}},
        {.what = "a status below 0", .verdict = {.status = UINT32_MAX}},
        {.what = "all hosts lost", .verdict = {.lost = HOSTS}},
        {.what = "a lowest host that is not", .verdict = {.lowest = UINT32_MAX}},
    };
    for (size_t i = 0; i < sizeof speeches / sizeof *speeches; i++) check_speech(&speeches[i]);
}

/* ---- an introduction --------------------------------------------------------------------------------------------- */

enum { WORDS = 12 };

typedef struct introduction {
    tw_channel *(*open)(tw_comm *comm); /* where rank 1 says it; rank 0 makes a reducer */
    uint32_t words[WORDS + 1]; /* who failed and how, who is the lowest, who differs, and what each of these made */
    size_t size;
    tw_status got;
    char text[256];
} introduction;

static tw_channel *open_next(tw_comm *comm)
{
    tw_channel *channel = NULL;
    (void)tw_channel_create_again(comm, 0, &channel);
    return channel;
}

static tw_channel *open_first(tw_comm *comm)
{
    tw_channel *channel = NULL;
    (void)tw_channel_create_behind(comm->channel, 1, &channel);
    return channel;
}

static void introduce(void *context, int rank, tw_comm *comm)
{
    introduction *self = context;
    tw_reducer *reducer = NULL;
    uint32_t words[WORDS];
    if (rank == 0) {
        self->got = tw_reducer_create(comm, "allreduce", table, 1, &reducer);
        snprintf(self->text, sizeof self->text, "%s", tw_last_error());
        return;
    }
    tw_channel *channel = self->open(comm);
    if (!channel) return;
    if (self->open == open_next) tw_channel_start_receive(channel, 0, words, sizeof words, NULL);
    tw_channel_start_send(channel, 0, self->words, self->size);
    (void)tw_channel_finish(channel);
    tw_channel_destroy(channel);
}

static void check_words(tw_channel *(*open)(tw_comm *comm), introduction other)
{
    other.open = open;
    run_on_threads(2, introduce, &other);
    if (other.got != TW_ERROR_PACKET || !strstr(other.text, "rank 1"))
        fail_msg("%u %u %u in %zu bytes: %s: %s", other.words[0], other.words[1], other.words[2], other.size,
                 tw_status_name(other.got), other.text);
}

TEST(test_an_introduction_that_cannot_be_is_refused)
{
    enum { SIZE = WORDS * 4 };
    const uint32_t nobody = UINT32_MAX;
    check_words(open_next, (introduction){.words = {1, 77, nobody, nobody}, .size = SIZE});
    check_words(open_next, (introduction){.words = {1, UINT32_MAX, nobody, nobody}, .size = SIZE});
    check_words(open_next, (introduction){.words = {1, TW_OK, nobody, nobody}, .size = SIZE});
    check_words(open_next, (introduction){.words = {nobody, TW_ERROR_SPEC, 1, nobody}, .size = SIZE});
    check_words(open_next, (introduction){.words = {2, TW_ERROR_SPEC, nobody, nobody}, .size = SIZE});
    check_words(open_next, (introduction){.words = {nobody, TW_OK, 2, nobody}, .size = SIZE});
    check_words(open_next, (introduction){.words = {nobody, TW_OK, 1, 2}, .size = SIZE});
    introduction sound = {.words = {nobody, TW_OK, 1, nobody}, .size = SIZE};
    const size_t sizes[] = {0, SIZE - 4, SIZE + 4};
    for (int i = 0; i < 3; i++) {
        sound.size = sizes[i];
        check_words(open_next, sound);
    }
    sound.size = SIZE;
    sound.open = open_next;
    run_on_threads(2, introduce, &sound);
    assert_int_equal(sound.got, TW_ERROR_ARGUMENT); /* it was read, and has made something else */
}

/* ---- numbers of channels ------------------------------------------------------------------------------------- */

TEST(test_numbers_that_cannot_be_are_refused)
{
    enum { SIZE = 24 };
    check_words(open_first, (introduction){.words = {3, 2, 1, 1}, .size = SIZE});
    check_words(open_first, (introduction){.words = {2, UINT32_MAX, 1, 1}, .size = SIZE});
    check_words(open_first, (introduction){.words = {2, 2, 0, 1}, .size = SIZE});
    check_words(open_first, (introduction){.words = {2, 2, 2, 1}, .size = SIZE});
    check_words(open_first, (introduction){.words = {2, 2, 1, UINT32_MAX}, .size = SIZE});
    const size_t sizes[] = {0, SIZE - 4, SIZE + 4};
    for (int i = 0; i < 3; i++) check_words(open_first, (introduction){.words = {2, 2, 26, 26}, .size = sizes[i]});
}

/* ---- news of who is there ---------------------------------------------------------------------------------------- */

enum { NEWS = 32, MESSAGE = NEWS + 1 };

static void write_news(unsigned char message[MESSAGE], uint32_t sender, uint64_t round, uint64_t committed,
                       unsigned char mask)
{
    const uint32_t version = 1;
    memcpy(message, "TWMB", 4);
    memcpy(message + 8, &version, 4);
    memcpy(message + 12, &sender, 4);
    memcpy(message + 16, &round, 8);
    memcpy(message + 24, &committed, 8);
    message[NEWS] = mask;
    uint32_t crc = tw_crc32c(0, message + 8, MESSAGE - 8);
    memcpy(message + 4, &crc, 4);
}

/* What rank 0 makes of a message of rank 1. */
static tw_status hear(const unsigned char *message, size_t size)
{
    tw_comm *comms[2];
    tw_channel *channel;
    tw_members members;
    void *request;
    size_t sent;
    uint32_t check;
    assert_int_equal(tw_comm_create_threads(2, comms), TW_OK);
    assert_int_equal(tw_channel_create_wide(comms[0], 1, &channel), TW_OK);
    assert_int_equal(tw_members_create(channel, &members), TW_OK);
    assert_int_equal(tw_members_tend(&members), TW_OK);
    assert_int_equal(comms[1]->ops.start_send(comms[1]->self, 0, channel->number + 1, message, size, 0, &request),
                     TW_OK);
    tw_status status = tw_members_tend(&members);
    (void)comms[1]->ops.wait(comms[1]->self, request, 0, &sent, &check);
    tw_members_release(&members);
    tw_channel_destroy(channel);
    tw_comm_destroy(comms[0]);
    tw_comm_destroy(comms[1]);
    return status;
}

TEST(test_news_that_cannot_be_are_refused)
{
    unsigned char message[MESSAGE] = {0};
    static const uint64_t rounds[] = {UINT64_MAX, (uint64_t)1 << 63, ((uint64_t)1 << 62) + 1};
    write_news(message, 1, (uint64_t)1 << 62, 0, 0);
    assert_int_equal(hear(message, MESSAGE), TW_OK);
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        write_news(message, 1, rounds[i], 0, 0);
        assert_int_equal(hear(message, MESSAGE), TW_ERROR_PACKET);
        assert_non_null(strstr(tw_last_error(), "rank 1"));
    }
    write_news(message, 0, 1, 0, 0);
    assert_int_equal(hear(message, MESSAGE), TW_ERROR_PACKET);
    write_news(message, 1, 1, 2, 0);
    assert_int_equal(hear(message, MESSAGE), TW_ERROR_PACKET);
    write_news(message, 1, 1, 0, 4);
    assert_int_equal(hear(message, MESSAGE), TW_ERROR_PACKET);
    write_news(message, 1, 1, 0, 0);
    assert_int_equal(hear(message, MESSAGE - 1), TW_ERROR_PACKET);
}

/* ---- a round's word ---------------------------------------------------------------------------------------------- */

typedef struct given {
    const char *spec;
    double weight; /* of rank 1; rank 0 gives nothing */
    tw_status got;
    float theta;
    char text[256];
} given;

static void give_weight(void *context, int rank, tw_comm *comm)
{
    given *self = context;
    float values[4] = {1, 1, 1, 1}, *weights[] = {values};
    tw_outer *outer = NULL;
    tw_outer_event event;
    tw_status status = tw_outer_create(comm, self->spec, table, 1, &outer);
    if (status == TW_OK) status = tw_outer_begin(outer, weights);
    if (status == TW_OK) outer->weight = rank ? self->weight : 0; /* past tw_outer_set_weight, which would refuse it */
    for (int step = 0; step < 4 && status == TW_OK; step++) {
        values[0] += 1;
        status = tw_outer_step(outer, weights, &event);
    }
    if (rank == 0) {
        snprintf(self->text, sizeof self->text, "%s", status == TW_OK ? "" : tw_last_error());
        if (status == TW_OK) status = tw_outer_read(outer, weights);
        self->got = status;
        self->theta = values[0];
    }
    tw_outer_destroy(outer);
}

TEST(test_a_weight_that_nobody_may_have_is_refused)
{
    static const char *const early[] = {"streaming:every=2,fragments=1,delay=1", "diloco:every=2,eager=on"};
    static const double none[] = {1e-320, 1e-10, 2e9, -1, (double)NAN, (double)INFINITY};
    for (int s = 0; s < 3; s++) {
        for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
            given one = {.spec = s < 2 ? early[s] : "diloco:every=2", .weight = none[i]};
            run_on_threads(2, give_weight, &one);
            if (!tw_status_is_error(one.got) ||
                !strstr(one.text, "rank 1")) /* which checks itself, and may leave first */
                fail_msg("%s, a weight of %g: %s: %s, with %g", one.spec, none[i], tw_status_name(one.got), one.text,
                         (double)one.theta);
        }
        given half = {.spec = s < 2 ? early[s] : "diloco:every=2", .weight = 0.5};
        run_on_threads(2, give_weight, &half);
        assert_int_equal(tw_status_is_error(half.got), s < 2);
    }
}

/* ---- twice the survivors ----------------------------------------------------------------------------------------- */

TEST(test_the_survivors_get_one_comm)
{
    tw_comm *comm, *survivors = NULL, *again = NULL;
    tw_gossip *gossip;
    const float start[4] = {0};
    const float *weights[] = {start};
    float got[4], *into[] = {got};
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    assert_int_equal(tw_gossip_create(comm, "adpsgd-fixed", table, 1, weights, &gossip), TW_OK);
    assert_int_equal(tw_gossip_survivors(gossip, &survivors), TW_ERROR_ORDER);
    assert_int_equal(tw_gossip_finish(gossip, into), TW_OK);
    assert_int_equal(tw_gossip_survivors(gossip, &survivors), TW_OK);
    assert_int_equal(tw_gossip_survivors(gossip, &again), TW_ERROR_ORDER);
    assert_null(again);
    tw_comm_destroy(survivors);
    tw_gossip_destroy(gossip);
    tw_comm_destroy(comm);
}

RUN_TESTS(NULL, NULL)
