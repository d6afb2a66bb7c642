/* sealed - a transport upon another comm's.
 *
 * A message becomes a block: its check word, its bytes, and 16 bytes that prove both. The key is of this sender, this
 * receiver and this session alone; the nonce is the channel and the number of the message on it, so that no pair of key
 * and nonce is used twice, and a message fits one place only. The number is not sent: the receiver knows which one it
 * waits for.
 *
 * Under one number no second plaintext is ever sealed. Nobody says whether a send that failed or was taken back has
 * gone. So its number is used up, and its flow ends: what followed would come under a number that is not waited for. */
#include "blocks.h"
#include "bytes.h"
#include "check.h"
#include "key_file.h"
#include "session.h"

#include <thinwire/thinwire_sealed.h>

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASON = 512, NONCE = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES };
enum { PROOF = crypto_aead_xchacha20poly1305_ietf_ABYTES, WORD = sizeof(uint32_t), OVERHEAD = WORD + PROOF };

enum { LISTS = 256 };

/* The messages of one channel between this rank and another, one way: both ends count them, and the count is part of
 * the seal. It comes to be with its first message, and stays for good. */
typedef struct flow {
    struct flow *next;
    int peer, outgoing;
    unsigned channel;
    _Atomic uint64_t started; /* messages so far; one thread at a time uses a channel */
    _Atomic int ended;        /* the two ends may count differently: nothing more is sent */
} flow;

typedef struct transport {
    tw_comm *inner;
    tw_beneath beneath;
    tw_session session;
    tw_blocks blocks;
    pthread_mutex_t lock; /* of the lists */
    flow *flows[LISTS];
} transport;

typedef struct request {
    void *inner;
    flow *flow;
    uint64_t number; /* of the message on its flow */
    tw_block *block;
    void *dst;   /* a receive's */
    size_t size; /* bytes to send, or room to receive */
} request;

static tw_status fail_memory(size_t size)
{
    return tw_fail(TW_ERROR_MEMORY, "no memory to seal a message of %zu bytes", size);
}

/* ---- flows ---- */

static flow *flows_add(flow **list, flow what)
{
    flow *made = malloc(sizeof *made);
    if (!made) return NULL;
    *made = what;
    made->next = *list;
    *list = made;
    return made;
}

/* NULL: no memory. */
static flow *find_flow(transport *me, int outgoing, int peer, unsigned channel)
{
    unsigned number = ((unsigned)peer * 31 + channel) * 2 + (unsigned)outgoing;
    flow **list = &me->flows[number % LISTS];
    pthread_mutex_lock(&me->lock);
    flow *one = *list;
    while (one && (one->peer != peer || one->channel != channel || one->outgoing != outgoing)) one = one->next;
    if (!one) one = flows_add(list, (flow){.peer = peer, .outgoing = outgoing, .channel = channel});
    pthread_mutex_unlock(&me->lock);
    return one;
}

static void free_flows(transport *me)
{
    for (int i = 0; i < LISTS; i++)
        for (flow *one = me->flows[i], *next; one; one = next) {
            next = one->next;
            free(one);
        }
}

/* ---- requests ---- */

static void give_request(transport *me, request *one)
{
    if (one->block) tw_blocks_give(&me->blocks, one->block);
    free(one);
}

static tw_status check_flow(const flow *one)
{
    if (!one->ended) return TW_OK;
    return tw_fail(TW_ERROR_PEER,
                   "a message to rank %d on channel %u failed or was taken back, and may have gone all the same: under "
                   "a seal no other can follow it on this channel, because both ends count them",
                   one->peer, one->channel);
}

/* A request with a flow, a number on it, and a block for a message of `size` bytes. */
static tw_status sealed_prepare(transport *me, int outgoing, int peer, unsigned channel, size_t size, request **made)
{
    if (size > SIZE_MAX / 8) return fail_memory(size);
    request *one = malloc(sizeof *one);
    if (!one) return fail_memory(size);
    *one = (request){.flow = find_flow(me, outgoing, peer, channel), .size = size};
    one->block = tw_blocks_take(&me->blocks, size + PROOF);
    if (!one->flow || !one->block) {
        give_request(me, one);
        return fail_memory(size);
    }
    tw_status status = check_flow(one->flow);
    if (status != TW_OK) {
        give_request(me, one);
        return status;
    }
    one->number = one->flow->started++;
    *made = one;
    return TW_OK;
}

/* ---- the seal ---- */

static void write_nonce(const request *one, unsigned char nonce[NONCE])
{
    memset(nonce, 0, NONCE);
    tw_put(nonce, one->flow->channel, 4);
    tw_put(nonce + 4, one->number, 8);
}

/* What the block holds: the word right before its bytes, and they. */
static unsigned char *message_of(const request *one)
{
    return (unsigned char *)one->block + offsetof(tw_block, check);
}

static void sealed_seal(const transport *me, const request *one, const void *src, uint32_t check)
{
    unsigned char nonce[NONCE], *message = message_of(one);
    write_nonce(one, nonce);
    memcpy(message, &check, WORD);
    if (one->size) memcpy(message + WORD, src, one->size);
    crypto_aead_xchacha20poly1305_ietf_encrypt(message, NULL, message, WORD + one->size, NULL, 0, NULL, nonce,
                                               me->session.to[one->flow->peer]);
}

static tw_status sealed_refuse(const request *one)
{
    return tw_fail(
        TW_ERROR_PACKET,
        "message %llu from rank %d on channel %u is not sealed for this place: it is damaged, forged, or not "
        "the one whose turn it is",
        (unsigned long long)one->number, one->flow->peer, one->flow->channel);
}

/* The caller's memory is written to once the seal is found right. */
static tw_status unseal(const transport *me, const request *one, size_t sealed, size_t *size, uint32_t *check)
{
    unsigned char nonce[NONCE], *message = message_of(one);
    if (sealed < OVERHEAD) return sealed_refuse(one);
    write_nonce(one, nonce);
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(message, NULL, NULL, message, sealed, NULL, 0, nonce,
                                                   me->session.from[one->flow->peer]) != 0)
        return sealed_refuse(one);
    *size = sealed - OVERHEAD;
    memcpy(check, message, WORD);
    if (*size) memcpy(one->dst, message + WORD, *size);
    return TW_OK;
}

/* ---- the transport ---- */

/* The last receive of a channel leaves its message to the next one, and a send is the last of its channel. */
static void note_taken_back(const request *one)
{
    if (one->flow->outgoing)
        one->flow->ended = 1;
    else if (one->number + 1 == one->flow->started)
        one->flow->started--;
}

/* What is beneath has begun with a request, or has failed to. */
static tw_status sealed_begun(transport *me, request *one, tw_status status, void **handle)
{
    if (status == TW_OK) {
        *handle = one;
        return TW_OK;
    }
    note_taken_back(one);
    give_request(me, one);
    return status;
}

static tw_status sealed_start_send(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                                   void **handle)
{
    transport *me = self;
    request *one;
    TRY(sealed_prepare(me, 1, peer, channel, size, &one));
    sealed_seal(me, one, src, check);
    tw_status status =
        me->beneath.ops.start_send(me->beneath.self, peer, channel, message_of(one), size + OVERHEAD, 0, &one->inner);
    return sealed_begun(me, one, status, handle);
}

static tw_status sealed_start_recv(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **handle)
{
    transport *me = self;
    request *one;
    TRY(sealed_prepare(me, 0, peer, channel, capacity, &one));
    one->dst = dst;
    tw_status status =
        me->beneath.ops.start_recv(me->beneath.self, peer, channel, message_of(one), capacity + OVERHEAD, &one->inner);
    return sealed_begun(me, one, status, handle);
}

static tw_status sealed_wait_request(void *self, void *handle, double timeout, size_t *size, uint32_t *check)
{
    transport *me = self;
    request *one = handle;
    size_t sealed = 0;
    uint32_t unused;
    tw_status status = me->beneath.ops.wait(me->beneath.self, one->inner, timeout, &sealed, &unused);
    if (status == TW_ERROR_PEER) note_taken_back(one);
    if (status == TW_OK && one->flow->outgoing) *size = one->size;
    if (status == TW_OK && !one->flow->outgoing) status = unseal(me, one, sealed, size, check);
    give_request(me, one);
    return status;
}

static int sealed_poll_request(void *self, void *handle, double timeout)
{
    const transport *me = self;
    const request *one = handle;
    return me->beneath.ops.poll(me->beneath.self, one->inner, timeout);
}

static uint64_t count_signs(void *self, int peer, int ask)
{
    const transport *me = self;
    return me->beneath.ops.signs(me->beneath.self, peer, ask);
}

static int is_busy(void *self, int peer, const char **where)
{
    const transport *me = self;
    return me->beneath.ops.is_busy(me->beneath.self, peer, where);
}

static void sealed_leave(void *self)
{
    const transport *me = self;
    if (me->beneath.ops.leave) me->beneath.ops.leave(me->beneath.self);
}

static void sealed_leave_because_of(void *self, int peer)
{
    const transport *me = self;
    me->beneath.ops.leave_because_of(me->beneath.self, peer);
}

static void sealed_destroy(void *self)
{
    transport *me = self;
    tw_comm_destroy(me->inner);
    tw_session_close(&me->session);
    free_flows(me);
    pthread_mutex_destroy(&me->lock);
    tw_blocks_destroy(&me->blocks);
    free(me);
}

/* ---- the whole ---- */

static tw_status check_key(const void *key, size_t key_bytes, tw_comm **comm)
{
    TRY(tw_given(key, "key"));
    TRY(tw_given(comm, "comm"));
    if (key_bytes < TW_SEAL_KEY_BYTES_LEAST || key_bytes > TW_SEAL_KEY_BYTES_MOST)
        return tw_fail(TW_ERROR_ARGUMENT, "a key of %zu bytes: want %d to %d", key_bytes, TW_SEAL_KEY_BYTES_LEAST,
                       TW_SEAL_KEY_BYTES_MOST);
    if (sodium_init() < 0) return tw_fail(TW_ERROR_SYSTEM, "libsodium finds no random numbers on this machine");
    return TW_OK;
}

static tw_status borrow(tw_comm *inner, tw_beneath *beneath)
{
    beneath->ops.struct_size = sizeof beneath->ops;
    beneath->rank = tw_comm_rank(inner);
    beneath->size = tw_comm_size(inner);
    beneath->timeout = tw_comm_timeout(inner);
    return tw_comm_lend(inner, &beneath->ops, &beneath->self);
}

static tw_status sealed_create(tw_comm *inner, const void *key, size_t key_bytes, transport **made)
{
    tw_beneath beneath;
    tw_session session;
    TRY(borrow(inner, &beneath));
    tw_status status = tw_session_open(&beneath, key, key_bytes, &session);
    *made = status == TW_OK ? malloc(sizeof **made) : NULL;
    if (!*made) {
        tw_session_close(&session);
        return status == TW_OK ? fail_memory(0) : status;
    }
    **made = (transport){.inner = inner, .beneath = beneath, .session = session};
    pthread_mutex_init(&(*made)->lock, NULL); /* does not fail with default attributes */
    tw_blocks_create(&(*made)->blocks);
    return TW_OK;
}

/* The comm beneath goes, and what was wrong stays. */
static tw_status sealed_give_up(tw_comm *inner, tw_status status)
{
    char reason[REASON];
    snprintf(reason, sizeof reason, "%s", tw_last_error());
    tw_comm_destroy(inner);
    return tw_fail(status, "%s", reason);
}

tw_status tw_comm_create_sealed(tw_comm *inner, const void *key, size_t key_bytes, tw_comm **comm)
{
    transport *made;
    TRY(tw_given(inner, "inner"));
    tw_status status = check_key(key, key_bytes, comm);
    if (status == TW_OK) status = sealed_create(inner, key, key_bytes, &made);
    if (status != TW_OK) return sealed_give_up(inner, status);
    const tw_transport_ops ops = {.struct_size = sizeof ops,
                                  .version = TW_TRANSPORT_VERSION,
                                  .name = tw_comm_transport(inner),
                                  .start_send = sealed_start_send,
                                  .start_recv = sealed_start_recv,
                                  .wait = sealed_wait_request,
                                  .poll = sealed_poll_request,
                                  .leave = sealed_leave,
                                  .destroy = sealed_destroy,
                                  .signs = made->beneath.ops.signs ? count_signs : NULL,
                                  .leave_because_of =
                                      made->beneath.ops.leave_because_of ? sealed_leave_because_of : NULL,
                                  .is_busy = made->beneath.ops.is_busy ? is_busy : NULL,
                                  .is_told_of = made->beneath.ops.is_told_of};
    double timeout = made->beneath.timeout, patience = tw_comm_patience(inner);
    TRY(tw_comm_create_custom(&ops, made, made->beneath.rank, made->beneath.size, comm)); /* or it destroys `made` */
    TRY(tw_comm_set_timeout(*comm, timeout));
    return tw_comm_set_patience(*comm, patience);
}

tw_status tw_seal_read_key(const char *path, unsigned char key[TW_SEAL_KEY_BYTES], int *exposed)
{
    return tw_key_file_read(path, key, exposed);
}
