#include "session.h"

#include "bytes.h"
#include "check.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANDOM = crypto_scalarmult_BYTES, SIGNATURE = 32, PROOF = 32, REASON = 512, CHANNEL = 0 };

/* What a rank says first. Numbers are written with their low byte first. */
enum { MAGIC_AT = 0, FROM_AT = 8, TO_AT = 12, SIZE_AT = 16, RANDOM_AT = 20, SIGNATURE_AT = 52, HELLO = 84 };
_Static_assert(RANDOM_AT + RANDOM == SIGNATURE_AT && SIGNATURE_AT + SIGNATURE == HELLO, "a hello has no gaps");
static const unsigned char magic[FROM_AT] = "twseal2";

/* What comes straight from the key. */
typedef struct secrets {
    unsigned char hello[TW_SEAL_KEY];   /* signs hellos */
    unsigned char session[TW_SEAL_KEY]; /* goes into the session's key */
} secrets;

/* Everything of an opening, and all ranks' messages of a round, rank by rank. */
typedef struct opening {
    const tw_beneath *beneath;
    secrets secret;
    unsigned char own[crypto_scalarmult_SCALARBYTES]; /* what nobody is told */
    unsigned char random[RANDOM], session[TW_SEAL_KEY];
    unsigned char *out, *in, *randoms;
    unsigned char (*pairs)[TW_SEAL_KEY]; /* with each rank */
    void **requests;                     /* a receive and a send for each rank; NULL: none */
    double deadline;
} opening;

/* ---- everybody's message to everybody ---- */

/* Where a start fails there is no request, whatever stands in its place. */
static tw_status session_note(void **request, tw_status status)
{
    if (status != TW_OK) *request = NULL;
    return status;
}

static tw_status start_round(opening *all, size_t bytes)
{
    const tw_beneath *b = all->beneath;
    for (int rank = 0; rank < b->size; rank++) {
        void **request = &all->requests[2 * (size_t)rank];
        unsigned char *in = all->in + (size_t)rank * HELLO;
        if (rank != b->rank) TRY(session_note(request, b->ops.start_recv(b->self, rank, CHANNEL, in, bytes, request)));
    }
    for (int rank = 0; rank < b->size; rank++) {
        void **request = &all->requests[2 * rank + 1];
        const unsigned char *out = all->out + (size_t)rank * HELLO;
        if (rank != b->rank)
            TRY(session_note(request, b->ops.start_send(b->self, rank, CHANNEL, out, bytes, 0, request)));
    }
    return TW_OK;
}

static tw_status refuse_foreign(int rank)
{
    return tw_fail(TW_ERROR_PACKET,
                   "what rank %d sent is no beginning of a sealed session: does every rank seal, with "
                   "the same version of thinwire?",
                   rank);
}

static tw_status session_finish(opening *all, int index, size_t bytes)
{
    const tw_beneath *b = all->beneath;
    void *request = all->requests[index];
    size_t size = bytes; /* a transport may leave a send's as it is */
    uint32_t check;
    double left = all->deadline - tw_clock();
    int over = b->ops.poll(b->self, request, left > 0 ? left : 0), rank = index / 2;
    all->requests[index] = NULL;
    tw_status status = b->ops.wait(b->self, request, 0, &size, &check);
    if (status == TW_ERROR_PACKET || (status == TW_OK && size != bytes)) return refuse_foreign(rank);
    if (status != TW_ERROR_PEER || over) return status;
    return tw_fail(TW_ERROR_PEER,
                   "rank %d did not begin a sealed session with rank %d within %g seconds: does it seal?", rank,
                   b->rank, b->timeout);
}

static tw_status finish_round(opening *all, size_t bytes)
{
    for (int i = 0; i < 2 * all->beneath->size; i++)
        if (all->requests[i]) TRY(session_finish(all, i, bytes));
    return TW_OK;
}

static void session_take_back(opening *all)
{
    const tw_beneath *b = all->beneath;
    size_t size;
    uint32_t check;
    for (int i = 0; i < 2 * b->size; i++)
        if (all->requests[i]) b->ops.wait(b->self, all->requests[i], 0, &size, &check);
}

static tw_status run_round(opening *all, size_t bytes)
{
    char reason[REASON];
    tw_status status = start_round(all, bytes);
    if (status == TW_OK) status = finish_round(all, bytes);
    if (status == TW_OK) return TW_OK;
    snprintf(reason, sizeof reason, "%s", tw_last_error());
    session_take_back(all);
    return tw_fail(status, "%s", reason);
}

/* ---- hellos ---- */

static void write_hello(const opening *all, int from, int to, const unsigned char *random, unsigned char *hello)
{
    memcpy(hello + MAGIC_AT, magic, sizeof magic);
    tw_put(hello + FROM_AT, (uint32_t)from, 4);
    tw_put(hello + TO_AT, (uint32_t)to, 4);
    tw_put(hello + SIZE_AT, (uint32_t)all->beneath->size, 4);
    memcpy(hello + RANDOM_AT, random, RANDOM);
    crypto_generichash(hello + SIGNATURE_AT, SIGNATURE, hello, SIGNATURE_AT, all->secret.hello, TW_SEAL_KEY);
}

/* 1 if it is what a rank that knows the key would say to this one. */
static int is_right(const opening *all, int from, const unsigned char *hello)
{
    unsigned char right[HELLO];
    write_hello(all, from, all->beneath->rank, hello + RANDOM_AT, right);
    return sodium_memcmp(hello, right, HELLO) == 0;
}

/* All hellos have come, so that each rank can tell whose key is another: that of the few. One of another version may
 * know the key. Bytes that were changed on their way look like those of another key. */
static tw_status session_judge(const opening *all)
{
    int size = all->beneath->size, rank = all->beneath->rank, wrong = 0, first = -1;
    for (int from = 0; from < size; from++) {
        const unsigned char *hello = all->in + (size_t)from * HELLO;
        if (from == rank || is_right(all, from, hello)) continue;
        if (memcmp(hello + MAGIC_AT, magic, sizeof magic) != 0) return refuse_foreign(from);
        if (wrong++ == 0) first = from;
    }
    if (wrong == 0) return TW_OK;
    if (size == 2)
        return tw_fail(
            TW_ERROR_PACKET,
            "rank %d and rank %d do not know the same key, or the line between them changes bytes: give both "
            "the same key",
            rank, first);
    if (wrong == size - 1)
        return tw_fail(
            TW_ERROR_PACKET,
            "rank %d, this one, does not know the key of the others, or its line changes bytes: give all the "
            "same key",
            rank);
    return tw_fail(
        TW_ERROR_PACKET,
        "rank %d does not know the key of the others, or the line from it changes bytes: give all the same key", first);
}

static tw_status say_hello(opening *all)
{
    int size = all->beneath->size, rank = all->beneath->rank;
    randombytes_buf(all->own, sizeof all->own);
    crypto_scalarmult_base(all->random, all->own);
    for (int to = 0; to < size; to++) write_hello(all, rank, to, all->random, all->out + (size_t)to * HELLO);
    TRY(run_round(all, HELLO));
    return session_judge(all);
}

/* ---- the session ---- */

static void derive(unsigned char out[TW_SEAL_KEY], const opening *all, const char context[8], int from, int to)
{
    uint64_t pair = (uint64_t)from * (uint64_t)all->beneath->size + (uint64_t)to;
    crypto_kdf_derive_from_key(out, TW_SEAL_KEY, pair, context, all->pairs[from == all->beneath->rank ? to : from]);
}

static void make_session_key(opening *all)
{
    int size = all->beneath->size, rank = all->beneath->rank;
    for (int r = 0; r < size; r++)
        memcpy(all->randoms + (size_t)r * RANDOM, r == rank ? all->random : all->in + (size_t)r * HELLO + RANDOM_AT,
               RANDOM);
    crypto_generichash(all->session, sizeof all->session, all->randoms, (size_t)size * RANDOM, all->secret.session,
                       TW_SEAL_KEY);
}

/* Of numbers that are none a pair would get what everybody knows. */
static tw_status make_pairs(opening *all)
{
    unsigned char shared[crypto_scalarmult_BYTES];
    int size = all->beneath->size, rank = all->beneath->rank;
    for (int other = 0; other < size; other++) {
        if (other == rank) continue;
        if (crypto_scalarmult(shared, all->own, all->randoms + (size_t)other * RANDOM) != 0)
            return refuse_foreign(other);
        crypto_generichash(all->pairs[other], TW_SEAL_KEY, shared, sizeof shared, all->session, TW_SEAL_KEY);
    }
    sodium_memzero(shared, sizeof shared);
    return TW_OK;
}

/* What the two ends say differs, so that neither can be given its own words back. */
static tw_status session_prove(opening *all)
{
    int size = all->beneath->size, rank = all->beneath->rank;
    unsigned char right[PROOF];
    for (int to = 0; to < size; to++) derive(all->out + (size_t)to * HELLO, all, "tw-proof", rank, to);
    TRY(run_round(all, PROOF));
    for (int from = 0; from < size; from++) {
        derive(right, all, "tw-proof", from, rank);
        if (from != rank && sodium_memcmp(right, all->in + (size_t)from * HELLO, PROOF) != 0)
            return tw_fail(TW_ERROR_PACKET,
                           "rank %d is not in the session of rank %d: what came from one of the ranks at "
                           "first was said in an earlier session, or changed on its way",
                           from, rank);
    }
    return TW_OK;
}

static void make_keys(const opening *all, tw_session *session)
{
    for (int other = 0; other < session->size; other++) {
        derive(session->to[other], all, "tw-pairs", all->beneath->rank, other);
        derive(session->from[other], all, "tw-pairs", other, all->beneath->rank);
    }
}

/* ---- the whole ---- */

static void make_secrets(const void *key, size_t key_bytes, secrets *made)
{
    unsigned char master[crypto_kdf_KEYBYTES];
    crypto_generichash(master, sizeof master, key, key_bytes, (const unsigned char *)"thinwire seal, 1", 16);
    crypto_kdf_derive_from_key(made->hello, sizeof made->hello, 1, "tw-hello", master);
    crypto_kdf_derive_from_key(made->session, sizeof made->session, 2, "tw-sessn", master);
    sodium_memzero(master, sizeof master);
}

static tw_status session_agree(opening *all, tw_session *session)
{
    TRY(say_hello(all));
    make_session_key(all);
    TRY(make_pairs(all));
    TRY(session_prove(all));
    make_keys(all, session);
    return TW_OK;
}

/* A key of each rank and direction, and room for each rank's messages. */
static tw_status session_make_room(opening *all, tw_session *session)
{
    size_t size = (size_t)session->size;
    session->to = calloc(size, sizeof *session->to);
    session->from = calloc(size, sizeof *session->from);
    all->out = calloc(size, HELLO);
    all->in = calloc(size, HELLO);
    all->randoms = calloc(size, RANDOM);
    all->pairs = calloc(size, sizeof *all->pairs);
    all->requests = calloc(2 * size, sizeof *all->requests);
    if (session->to && session->from && all->out && all->in && all->randoms && all->pairs && all->requests)
        return TW_OK;
    return tw_fail(TW_ERROR_MEMORY, "no memory for the keys of %d ranks", session->size);
}

static void session_release(opening *all)
{
    free(all->out);
    free(all->in);
    free(all->randoms);
    if (all->pairs) sodium_memzero(all->pairs, (size_t)all->beneath->size * sizeof *all->pairs);
    free(all->pairs);
    free(all->requests);
    sodium_memzero(all, sizeof *all);
}

tw_status tw_session_open(const tw_beneath *beneath, const void *key, size_t key_bytes, tw_session *session)
{
    opening all = {.beneath = beneath, .deadline = tw_clock() + beneath->timeout};
    *session = (tw_session){.size = beneath->size};
    make_secrets(key, key_bytes, &all.secret);
    tw_status status = session_make_room(&all, session);
    if (status == TW_OK) status = session_agree(&all, session);
    session_release(&all);
    return status;
}

void tw_session_close(tw_session *session)
{
    size_t bytes = (size_t)session->size * TW_SEAL_KEY;
    if (session->to) sodium_memzero(session->to, bytes);
    if (session->from) sodium_memzero(session->from, bytes);
    free(session->to);
    free(session->from);
    *session = (tw_session){0};
}
