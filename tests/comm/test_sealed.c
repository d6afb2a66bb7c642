/* A sealed comm over a line that somebody else holds: whatever he does to a message is noticed, and nothing that he
 * sees says anything twice. */
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/assert.h"

#include <thinwire/thinwire_plugin.h>
#include <thinwire/thinwire_sealed.h>

enum {
    RANKS = 3,
    CHANNEL = 4,
    BYTES = 50,
    SEALED = BYTES + 20,
    HELLO = 84, /* bytes, of which the first 8 say which version */
    MAGIC = 8,
    PROOF = 32,
    MOST = 256,
    RECORDED = 64,
    PATIENCE = 900
};

static const unsigned char key[32] = {1, 2, 3};
static const unsigned char other_key[32] = {1, 2, 4};

/* ---- somebody on the line ------------------------------------------------------------------------------------ */

/* One message on its way. */
typedef struct letter {
    int from, to;
    unsigned channel;
    size_t size;
    unsigned char bytes[MOST];
} letter;

/* What was seen of a session, in the order in which messages left. */
typedef struct tape {
    int count;
    letter seen[RECORDED];
} tape;

static tape now, earlier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the tape */

/* What is done to a message before it goes on; 0: it does not. */
static int (*meddle)(letter *one); /* NULL: nothing */
static int place;                  /* where, of a byte or of a bit */
static int breaks_down;            /* beneath no send can be started, though its message is seen */

typedef struct tapped {
    tw_transport_ops ops;
    void *self;
    tw_comm *inner;
    int rank;
} tapped;

/* What a sender waits for: nothing beneath where his message was swallowed. */
typedef struct parcel {
    void *inner;
    int sends;
    letter message;
} parcel;

static int record_and_meddle(letter *one)
{
    pthread_mutex_lock(&lock);
    assert_true(now.count < RECORDED);
    now.seen[now.count++] = *one;
    int passes = !meddle || meddle(one);
    pthread_mutex_unlock(&lock);
    return passes;
}

static tw_status tapped_send(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                             void **request)
{
    tapped *me = self;
    parcel *made = calloc(1, sizeof *made);
    made->sends = 1;
    made->message = (letter){.from = me->rank, .to = peer, .channel = channel, .size = size};
    assert_true(size <= MOST);
    memcpy(made->message.bytes, src, size);
    letter *out = &made->message;
    tw_status status = TW_OK;
    if (record_and_meddle(out))
        status = me->ops.start_send(me->self, out->to, out->channel, out->bytes, out->size, check ^ 0xffffffff,
                                    &made->inner);
    if (breaks_down) {
        me->ops.wait(me->self, made->inner, 0, &size, &check);
        status = tw_fail(TW_ERROR_IO, "the line broke down");
    }
    *request = made;
    if (status != TW_OK) free(made);
    return status;
}

static tw_status tapped_recv(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **request)
{
    tapped *me = self;
    parcel *made = calloc(1, sizeof *made);
    tw_status status = me->ops.start_recv(me->self, peer, channel, dst, capacity, &made->inner);
    *request = made;
    if (status != TW_OK) free(made);
    return status;
}

static tw_status tapped_wait(void *self, void *request, double timeout, size_t *size, uint32_t *check)
{
    tapped *me = self;
    parcel *one = request;
    tw_status status = one->inner ? me->ops.wait(me->self, one->inner, timeout, size, check) : TW_OK;
    free(one);
    return status;
}

static int tapped_poll(void *self, void *request, double timeout)
{
    const tapped *me = self;
    const parcel *one = request;
    return !one->inner || me->ops.poll(me->self, one->inner, timeout);
}

static void tapped_leave(void *self)
{
    const tapped *me = self;
    me->ops.leave(me->self);
}

static int blamed; /* because of which peer a member left last */

static void tapped_leave_because_of(void *self, int peer)
{
    blamed = peer;
    tapped_leave(self);
}

static void tapped_destroy(void *self)
{
    tapped *me = self;
    tw_comm_destroy(me->inner);
    free(me);
}

/* Which peer it was asked about, and how. */
static uint64_t tapped_signs(void *self, int peer, int ask)
{
    (void)self;
    return (uint64_t)(10 * peer + ask);
}

static tw_comm *tap(tw_comm *inner)
{
    static const tw_transport_ops ops = {.struct_size = sizeof ops,
                                         .version = TW_TRANSPORT_VERSION,
                                         .name = "tapped",
                                         .start_send = tapped_send,
                                         .start_recv = tapped_recv,
                                         .wait = tapped_wait,
                                         .poll = tapped_poll,
                                         .leave = tapped_leave,
                                         .destroy = tapped_destroy,
                                         .signs = tapped_signs,
                                         .leave_because_of = tapped_leave_because_of};
    tw_comm *made = NULL;
    tapped *me = calloc(1, sizeof *me);
    *me = (tapped){.ops = {.struct_size = sizeof me->ops}, .inner = inner, .rank = tw_comm_rank(inner)};
    assert_int_equal(tw_comm_lend(inner, &me->ops, &me->self), TW_OK);
    assert_int_equal(tw_comm_create_custom(&ops, me, me->rank, tw_comm_size(inner), &made), TW_OK);
    return made;
}

/* ---- groups -------------------------------------------------------------------------------------------------- */

typedef struct member {
    pthread_t thread;
    tw_comm *tapped, *comm; /* comm: NULL where it was not made */
    const unsigned char *key;
    tw_status status;
    char reason[512];
    tw_transport_ops ops;
    void *self;
} member;

static void *join(void *argument)
{
    member *me = argument;
    me->status = tw_comm_create_sealed(me->tapped, me->key, sizeof key, &me->comm);
    if (me->status != TW_OK) snprintf(me->reason, sizeof me->reason, "%s", tw_last_error());
    return NULL;
}

static int member_count;
static member members[RANKS];

static int close_group(void **state)
{
    for (int r = 0; r < member_count; r++) tw_comm_destroy(members[r].comm);
    member_count = 0;
    meddle = NULL;
    return 0;
}

/* In place of the one before. What was meddled with from its beginning on is said again for each. */
static void open_group(int size, int (*meddles)(letter *one), const unsigned char *last_key, double timeout)
{
    tw_comm *comms[RANKS];
    close_group(NULL);
    now.count = 0;
    meddle = meddles;
    assert_int_equal(tw_comm_create_threads(size, comms), TW_OK);
    for (int r = 0; r < size; r++) {
        members[r] = (member){.tapped = tap(comms[r]), .key = r == size - 1 ? last_key : key};
        assert_int_equal(tw_comm_set_timeout(members[r].tapped, timeout), TW_OK);
        assert_int_equal(tw_comm_set_patience(members[r].tapped, PATIENCE), TW_OK);
    }
    for (int r = 0; r < size; r++) assert_int_equal(pthread_create(&members[r].thread, NULL, join, &members[r]), 0);
    for (int r = 0; r < size; r++) pthread_join(members[r].thread, NULL);
    member_count = size;
}

/* A group whose session stands, and whose members' transports the test plays with on its own thread. */
static void open_sound_group(int size)
{
    open_group(size, NULL, key, 60);
    for (int r = 0; r < size; r++) {
        if (members[r].status != TW_OK) fail_msg("rank %d: %s", r, members[r].reason);
        members[r].ops.struct_size = sizeof members[r].ops;
        assert_int_equal(tw_comm_lend(members[r].comm, &members[r].ops, &members[r].self), TW_OK);
    }
}

/* ---- messages ------------------------------------------------------------------------------------------------ */

static void fill(unsigned char bytes[BYTES], int number)
{
    for (int i = 0; i < BYTES; i++) bytes[i] = (unsigned char)(i + 17 * number);
}

static void *start_sending(member *from, int to, unsigned channel, unsigned char bytes[BYTES])
{
    void *request;
    assert_int_equal(from->ops.start_send(from->self, to, channel, bytes, BYTES, 0xabcd, &request), TW_OK);
    return request;
}

/* Returns what the receiver makes of it; what it holds afterwards is right, or is as it was. */
static tw_status pass(int from, int to, unsigned channel, int number)
{
    unsigned char sent[BYTES], received[BYTES + 100], before[BYTES + 100];
    void *receiving;
    size_t size = 0;
    uint32_t check = 0;
    fill(sent, number);
    memset(received, 0x55, sizeof received);
    memset(before, 0x55, sizeof before);
    member *end = &members[to];
    assert_int_equal(end->ops.start_recv(end->self, from, channel, received, sizeof received, &receiving), TW_OK);
    void *sending = start_sending(&members[from], to, channel, sent);
    tw_status status = end->ops.wait(end->self, receiving, 0, &size, &check);
    if (status == TW_OK) {
        assert_true(size == BYTES && check == 0xabcd);
        assert_memory_equal(received, sent, BYTES);
        memset(received, 0x55, BYTES);
    }
    assert_memory_equal(received, before, sizeof received);
    char reason[512];
    snprintf(reason, sizeof reason, "%s", tw_last_error());
    members[from].ops.wait(members[from].self, sending, 0, &size, &check);
    tw_fail(status, "%s", reason);
    return status;
}

/* Messages 0 and 1 from rank 0 to rank 1 pass, the next one is meddled with: refused, and its sender named. */
static void check_refused(int (*meddles)(letter *one), int where)
{
    open_sound_group(RANKS);
    for (int number = 0; number < 3; number++) { /* the last one of each has the number that is meddled with */
        assert_int_equal(pass(1, 0, CHANNEL, number), TW_OK);
        if (number < 2) assert_int_equal(pass(0, 1, CHANNEL, number), TW_OK);
        assert_int_equal(pass(0, 1, CHANNEL + 1, number), TW_OK);
        assert_int_equal(pass(0, 2, CHANNEL, number), TW_OK);
    }
    meddle = meddles;
    place = where;
    assert_fails(pass(0, 1, CHANNEL, 2), TW_ERROR_PACKET, "rank 0");
    assert_said("channel 4");
    meddle = NULL;
    assert_int_equal(pass(2, 1, CHANNEL, 0), TW_OK); /* other ranks' messages go on */
}

/* The last message of these that was seen. */
static const letter *find(const tape *all, int from, int to, unsigned channel, int from_the_end)
{
    for (int i = all->count; i-- > 0;) {
        const letter *one = &all->seen[i];
        if (one->from == from && one->to == to && one->channel == channel && one->size == SEALED && from_the_end-- == 0)
            return one;
    }
    fail_msg("no such message was seen");
    return NULL;
}

static int replace(letter *one, const letter *by)
{
    memcpy(one->bytes, by->bytes, by->size);
    one->size = by->size;
    return 1;
}

static int flip(letter *one)
{
    one->bytes[place / 8] ^= (unsigned char)(1 << place % 8);
    return 1;
}

static int cut(letter *one)
{
    one->size = (size_t)place;
    return 1;
}

static int lengthen(letter *one)
{
    one->size += (size_t)place;
    return 1;
}

static int replay(letter *one)
{
    return replace(one, find(&now, 0, 1, CHANNEL, place)); /* 0 is the message itself */
}

static int take_from_another_channel(letter *one)
{
    return replace(one, find(&now, 0, 1, CHANNEL + 1, 0));
}

static int take_from_another_receiver(letter *one)
{
    return replace(one, find(&now, 0, 2, CHANNEL, 0));
}

static int reflect(letter *one)
{
    return replace(one, find(&now, 1, 0, CHANNEL, 0)); /* message 2 of the other direction */
}

static int take_from_another_session(letter *one)
{
    return replace(one, find(&earlier, 0, 1, CHANNEL, 0)); /* message 2 there, too */
}

static int make_up(letter *one)
{
    memset(one->bytes, 0, one->size);
    return 1;
}

TEST(test_any_changed_bit_is_noticed)
{
    for (int bit = 0; bit < 8 * SEALED; bit += bit % 8 == 0 ? 7 : 1) check_refused(flip, bit);
}

TEST(test_a_message_of_another_length_is_refused)
{
    for (int size = 0; size < SEALED; size++) check_refused(cut, size);
    check_refused(lengthen, 1);
    check_refused(lengthen, 16);
}

TEST(test_what_was_sent_before_is_refused)
{
    check_refused(replay, 1);
    check_refused(replay, 2);
}

TEST(test_what_was_sent_elsewhere_is_refused)
{
    check_refused(take_from_another_channel, 0);
    check_refused(take_from_another_receiver, 0);
    check_refused(reflect, 0);
    check_refused(make_up, 0);
}

/* ---- order --------------------------------------------------------------------------------------------------- */

static int swallow_one(letter *one)
{
    (void)one;
    return place-- != 0;
}

TEST(test_a_swallowed_message_is_missed)
{
    unsigned char bytes[BYTES];
    size_t size;
    uint32_t check;
    open_sound_group(2);
    meddle = swallow_one;
    fill(bytes, 0);
    void *lost = start_sending(&members[0], 1, CHANNEL, bytes);
    /* in the place of the first */
    assert_fails(pass(0, 1, CHANNEL, 1), TW_ERROR_PACKET, "message 0 from rank 0");
    assert_int_equal(members[0].ops.wait(members[0].self, lost, 0, &size, &check), TW_OK);
}

/* Holds the first message back, and lets it go after the second. */
static int swap(letter *one)
{
    if (place++ == 0) return replace(one, &now.seen[RECORDED - 1]);
    return replace(one, &now.seen[now.count - 2]);
}

TEST(test_swapped_messages_are_refused)
{
    open_sound_group(2);
    for (int number = 0; number < 2; number++) assert_int_equal(pass(0, 1, CHANNEL, number), TW_OK);
    /* What message 3 will be, the line learns from a twin of message 2's place: any other bytes do as well. */
    now.seen[RECORDED - 1] = *find(&now, 0, 1, CHANNEL, 0);
    meddle = swap;
    assert_int_equal(pass(0, 1, CHANNEL, 2), TW_ERROR_PACKET);
    assert_int_equal(pass(0, 1, CHANNEL, 3), TW_ERROR_PACKET); /* gets message 2 */
}

TEST(test_a_receive_that_is_taken_back_leaves_its_message_to_the_next)
{
    unsigned char bytes[BYTES];
    void *receiving;
    size_t size;
    uint32_t check;
    open_sound_group(2);
    assert_int_equal(members[1].ops.start_recv(members[1].self, 0, CHANNEL, bytes, BYTES, &receiving), TW_OK);
    assert_int_equal(members[1].ops.wait(members[1].self, receiving, 0, &size, &check), TW_ERROR_PEER);
    for (int number = 0; number < 3; number++) assert_int_equal(pass(0, 1, CHANNEL, number), TW_OK);
}

static tw_status send_and_take_back(int from, int to)
{
    unsigned char bytes[BYTES];
    void *sending;
    size_t size;
    uint32_t check;
    member *me = &members[from];
    fill(bytes, 1);
    tw_status status = me->ops.start_send(me->self, to, CHANNEL, bytes, BYTES, 0xabcd, &sending);
    return status != TW_OK ? status : me->ops.wait(me->self, sending, 0, &size, &check);
}

/* Nobody knows whether it has gone. So no other bytes may have its number, and none can have the next. */
TEST(test_a_send_that_is_taken_back_or_fails_is_the_last_of_its_channel)
{
    for (int fails = 0; fails < 2; fails++) {
        open_sound_group(RANKS);
        assert_int_equal(pass(0, 1, CHANNEL, 0), TW_OK);
        breaks_down = fails;
        assert_int_equal(send_and_take_back(0, 1), fails ? TW_ERROR_IO : TW_ERROR_PEER);
        breaks_down = 0;
        int seen = now.count;
        for (int again = 0; again < 2; again++)
            assert_fails(send_and_take_back(0, 1), TW_ERROR_PEER, "to rank 1 on channel 4 failed or was taken back");
        assert_int_equal(now.count, seen);
        for (int number = 0; number < 3; number++) {
            assert_int_equal(pass(0, 1, CHANNEL + 1, number), TW_OK);
            assert_int_equal(pass(0, 2, CHANNEL, number), TW_OK);
            assert_int_equal(pass(1, 0, CHANNEL, number), TW_OK);
        }
    }
}

/* ---- what the line sees -------------------------------------------------------------------------------------- */

static int contains(const letter *one, const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i + size <= one->size; i++)
        if (memcmp(one->bytes + i, bytes, size) == 0) return 1;
    return 0;
}

static void assert_nothing_twice(const tape *one, const tape *other)
{
    unsigned char plain[BYTES];
    fill(plain, 0);
    for (int i = 0; i < one->count; i++) {
        const letter *message = &one->seen[i];
        assert_false(contains(message, plain, 4));
        for (int k = 0; k < other->count; k++) {
            const letter *second = &other->seen[k];
            if (message == second || message->size != second->size) continue;
            if (message->size == HELLO && message->from == second->from && one == other)
                continue; /* one number for all */
            for (size_t at = 0; at + 16 <= message->size;
                 at++) { /* from 52 on in a hello it is its number, or signature */
                if (message->size == HELLO && at < 20) continue;
                assert_false(memcmp(message->bytes + at, second->bytes + at, 16) == 0);
            }
        }
    }
}

/* Of two sessions with one key, and in each the same message three times on two channels and to two ranks. */
TEST(test_the_same_message_never_looks_the_same)
{
    for (int s = 0; s < 2; s++) {
        earlier = now;
        open_sound_group(RANKS);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(pass(0, 1, CHANNEL, 0), TW_OK);
            assert_int_equal(pass(0, 1, CHANNEL + 1, 0), TW_OK);
            assert_int_equal(pass(0, 2, CHANNEL, 0), TW_OK);
            assert_int_equal(pass(1, 0, CHANNEL, 0), TW_OK);
        }
        assert_nothing_twice(&now, &now);
    }
    assert_nothing_twice(&earlier, &now);
}

TEST(test_what_was_sent_in_another_session_is_refused)
{
    open_sound_group(RANKS);
    for (int number = 0; number < 3; number++) assert_int_equal(pass(0, 1, CHANNEL, number), TW_OK);
    earlier = now;
    check_refused(take_from_another_session, 0);
}

/* What the key and all that was ever on the line give, but for what the pair alone knows: the key that would open the
 * first message from rank 0 to rank 1 if there were no such thing. Written beside the library's, not after it. */
static void key_from_what_was_said(unsigned char opens[32])
{
    unsigned char master[32], secret[32], session[32], said[RANKS * 32];
    for (int rank = 0; rank < RANKS; rank++)
        for (int i = now.count; i-- > 0;)
            if (now.seen[i].from == rank && now.seen[i].size == HELLO)
                memcpy(said + rank * 32, now.seen[i].bytes + 20, 32);
    crypto_generichash(master, 32, key, sizeof key, (const unsigned char *)"thinwire seal, 1", 16);
    crypto_kdf_derive_from_key(secret, 32, 2, "tw-sessn", master);
    crypto_generichash(session, 32, said, sizeof said, secret, 32);
    crypto_kdf_derive_from_key(opens, 32, 0 * RANKS + 1, "tw-pairs", session);
}

/* Neither a member that carries messages for others nor one who records them, and has the key, can read them. */
TEST(test_the_key_alone_opens_nothing_that_was_recorded)
{
    unsigned char opens[32], nonce[24] = {CHANNEL}, plain[SEALED];
    open_sound_group(RANKS);
    assert_int_equal(pass(0, 1, CHANNEL, 0), TW_OK);
    key_from_what_was_said(opens);
    const letter *first = find(&now, 0, 1, CHANNEL, 0);
    assert_int_not_equal(
        crypto_aead_xchacha20poly1305_ietf_decrypt(plain, NULL, NULL, first->bytes, SEALED, NULL, 0, nonce, opens), 0);
}

/* ---- beginning a session ------------------------------------------------------------------------------------- */

/* Nobody has a comm, and what each rank says holds the rank and what is wrong with it, or may be: of changed bytes
 * nobody can tell that they are not those of another key. */
TEST(test_a_rank_with_another_key_is_named_by_all)
{
    for (int size = 2; size <= RANKS; size++) {
        open_group(size, NULL, other_key, 60);
        for (int r = 0; r < size; r++) {
            const char *reason = members[r].reason;
            assert_null(members[r].comm);
            assert_int_equal(members[r].status, TW_ERROR_PACKET);
            if (!strstr(reason, size == 2 ? "rank 1" : "rank 2") || !strstr(reason, "know the") ||
                !strstr(reason, "changes bytes"))
                fail_msg("rank %d says '%s'", r, reason);
        }
    }
}

/* Changes what rank 1 says to rank 0 first, or second. */
static int flip_beginning(letter *one)
{
    size_t at = (size_t)place;
    if (one->from != 1 || one->to != 0) return 1;
    if (one->size == HELLO && at < HELLO) one->bytes[at] ^= 1;
    if (one->size == PROOF && at >= HELLO) one->bytes[at - HELLO] ^= 1;
    return 1;
}

TEST(test_a_changed_beginning_is_refused)
{
    for (int at = 0; at < HELLO + PROOF; at++) {
        place = at;
        for (int size = 2; size <= RANKS; size++) {
            open_group(size, flip_beginning, key, 60);
            assert_int_equal(members[0].status, TW_ERROR_PACKET);
            assert_non_null(strstr(members[0].reason, "rank 1"));
            assert_non_null(strstr(members[0].reason, at < MAGIC   ? "with the same version of thinwire?"
                                                      : at < HELLO ? "changes bytes"
                                                                   : "changed on its way"));
        }
    }
}

/* Rank 1 seems to say what it said in an earlier session, all of it. */
static int repeat_session(letter *one)
{
    if (one->from != 1) return 1;
    for (int i = 0; i < earlier.count; i++) {
        const letter *old = &earlier.seen[i];
        if (old->from == 1 && old->to == one->to && old->size == one->size) return replace(one, old);
    }
    return 1;
}

TEST(test_an_earlier_session_cannot_be_played_again)
{
    open_sound_group(RANKS);
    earlier = now;
    open_group(RANKS, repeat_session, key, 60);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(members[r].status, TW_ERROR_PACKET);
        assert_non_null(
            strstr(members[r].reason, r == 1 ? "rank 0 is not in the session of rank 1" : "is not in the session"));
    }
}

static int swallow_rank_1(letter *one)
{
    return one->from != 1;
}

TEST(test_a_rank_that_says_nothing_is_named_within_the_deadline)
{
    open_group(RANKS, swallow_rank_1, key, 0.2);
    assert_int_equal(members[0].status, TW_ERROR_PEER);
    assert_non_null(strstr(members[0].reason, "rank 1"));
}

/* ---- what everybody can rely on ------------------------------------------------------------------------------- */

TEST(test_bytes_are_counted_as_ever)
{
    tw_traffic traffic = {.struct_size = sizeof traffic};
    open_sound_group(2);
    assert_string_equal(tw_comm_transport(members[0].comm), "tapped");
    assert_true(tw_comm_rank(members[1].comm) == 1 && tw_comm_size(members[1].comm) == 2);
    assert_true(tw_comm_timeout(members[1].comm) == 60);
    assert_int_equal(tw_comm_traffic(members[0].comm, &traffic), TW_OK);
    assert_int_equal(traffic.bytes_sent, 0); /* of the beginning of a session nothing is payload */
}

/* What is beneath answers whether a peer lives, where it can, and is told of one that does not. */
TEST(test_whether_a_peer_lives_is_asked_beneath)
{
    open_sound_group(2);
    assert_true(tw_comm_patience(members[1].comm) == PATIENCE);
    assert_int_equal(members[0].ops.signs(members[0].self, 1, 0), 10);
    assert_int_equal(members[0].ops.signs(members[0].self, 1, 1), 11);
    members[0].ops.leave_because_of(members[0].self, 1);
    assert_int_equal(blamed, 1);
    tw_comm *deaf, *made;
    tw_transport_ops ops = {.struct_size = sizeof ops};
    void *self;
    assert_int_equal(tw_comm_create_threads(1, &deaf), TW_OK);
    assert_int_equal(tw_comm_create_sealed(deaf, key, sizeof key, &made), TW_OK);
    assert_int_equal(tw_comm_lend(made, &ops, &self), TW_OK);
    assert_true(!ops.signs && ops.leave_because_of);
    tw_comm_destroy(made);
}

TEST(test_a_key_has_a_length)
{
    static const size_t wrong[] = {0, 15, 4097};
    static const unsigned char long_key[4097];
    for (size_t i = 0; i < 5; i++) {
        tw_comm *inner, *made = NULL;
        size_t bytes = i < 3 ? wrong[i] : i == 3 ? 16 : 4096;
        assert_int_equal(tw_comm_create_threads(1, &inner), TW_OK);
        assert_int_equal(tw_comm_create_sealed(inner, long_key, bytes, &made), i < 3 ? TW_ERROR_ARGUMENT : TW_OK);
        tw_comm_destroy(made);
    }
}

RUN_TESTS(NULL, close_group)
