#include "hello.h"

#include "bytes.h"

#include <sodium.h>
#include <string.h>

static const unsigned char magic[TCP_MAGIC] = "twtcp 8\n";

/* Where what lies in a hello. */
enum {
    VERSION = 6 /* in the magic */,
    FROM = TCP_MAGIC,
    TO = FROM + 4,
    STREAM = TO + 4,
    NONCE = STREAM + 4,
    PROOF = NONCE + TCP_NONCE
};

typedef crypto_generichash_state hash;

int tcp_hello_begin(void)
{
    return sodium_init() >= 0;
}

static void add_text(hash *state, const void *text, size_t size)
{
    unsigned char length[8];
    tw_put(length, size, sizeof length);
    crypto_generichash_update(state, length, sizeof length);
    crypto_generichash_update(state, text, size);
}

void tcp_secret_make(const void *key, size_t key_size, const char *purpose, const char *const *texts, size_t count,
                     unsigned char secret[TCP_SECRET])
{
    hash state;
    crypto_generichash_init(&state, NULL, 0, TCP_SECRET);
    add_text(&state, purpose, strlen(purpose));
    add_text(&state, key_size ? key : "", key_size);
    for (size_t i = 0; i < count; i++) add_text(&state, texts[i], strlen(texts[i]));
    crypto_generichash_final(&state, secret, TCP_SECRET);
    sodium_memzero(&state, sizeof state);
}

void tcp_challenge_make(unsigned char challenge[TCP_CHALLENGE])
{
    memcpy(challenge, magic, TCP_MAGIC);
    randombytes_buf(challenge + TCP_MAGIC, TCP_NONCE);
}

/* The version is the last word. */
tcp_verdict tcp_language_judge(const unsigned char word[TCP_MAGIC])
{
    if (memcmp(word, magic, TCP_MAGIC) == 0) return TCP_WELCOME;
    return memcmp(word, magic, VERSION) == 0 ? TCP_OTHER_VERSION : TCP_STRANGER;
}

/* Over the challenge and the hello up to its proof: who connects cannot have signed more. */
static void hello_prove(const unsigned char secret[TCP_SECRET], const char *word,
                        const unsigned char challenge[TCP_CHALLENGE], const unsigned char hello[TCP_HELLO],
                        unsigned char proof[TCP_PROOF])
{
    hash state;
    crypto_generichash_init(&state, secret, TCP_SECRET, TCP_PROOF);
    add_text(&state, word, strlen(word));
    crypto_generichash_update(&state, challenge, TCP_CHALLENGE);
    crypto_generichash_update(&state, hello, PROOF);
    crypto_generichash_final(&state, proof, TCP_PROOF);
}

void tcp_hello_make(const unsigned char secret[TCP_SECRET], const unsigned char challenge[TCP_CHALLENGE],
                    tcp_place place, unsigned char hello[TCP_HELLO])
{
    memcpy(hello, magic, TCP_MAGIC);
    tw_put(hello + FROM, place.from, 4);
    tw_put(hello + TO, place.to, 4);
    tw_put(hello + STREAM, place.stream, 4);
    randombytes_buf(hello + NONCE, TCP_NONCE);
    hello_prove(secret, "connecter", challenge, hello, hello + PROOF);
}

tcp_verdict tcp_hello_judge(const unsigned char secret[TCP_SECRET], const unsigned char challenge[TCP_CHALLENGE],
                            const unsigned char hello[TCP_HELLO], tcp_place *place)
{
    unsigned char proof[TCP_PROOF];
    *place = (tcp_place){(uint32_t)tw_get(hello + FROM, 4), (uint32_t)tw_get(hello + TO, 4),
                         (uint32_t)tw_get(hello + STREAM, 4)};
    tcp_verdict language = tcp_language_judge(hello);
    if (language != TCP_WELCOME) return language;
    hello_prove(secret, "connecter", challenge, hello, proof);
    return sodium_memcmp(proof, hello + PROOF, TCP_PROOF) == 0 ? TCP_WELCOME : TCP_WRONG_KEY;
}

void tcp_answer_make(const unsigned char secret[TCP_SECRET], const unsigned char challenge[TCP_CHALLENGE],
                     const unsigned char hello[TCP_HELLO], unsigned char answer[TCP_PROOF])
{
    hello_prove(secret, "accepter", challenge, hello, answer);
}

int tcp_answer_is_right(const unsigned char secret[TCP_SECRET], const unsigned char challenge[TCP_CHALLENGE],
                        const unsigned char hello[TCP_HELLO], const unsigned char answer[TCP_PROOF])
{
    unsigned char proof[TCP_PROOF];
    tcp_answer_make(secret, challenge, hello, proof);
    return sodium_memcmp(proof, answer, TCP_PROOF) == 0;
}

void tcp_session_make(const unsigned char secret[TCP_SECRET], const unsigned char challenge[TCP_CHALLENGE],
                      const unsigned char hello[TCP_HELLO], unsigned char connecter[TCP_SECRET],
                      unsigned char accepter[TCP_SECRET])
{
    hello_prove(secret, "from connecter", challenge, hello, connecter);
    hello_prove(secret, "from accepter", challenge, hello, accepter);
}

void tcp_sign(const unsigned char key[TCP_SECRET], uint64_t number, const void *message, size_t size,
              unsigned char signature[TCP_PROOF])
{
    unsigned char count[8];
    hash state;
    tw_put(count, number, sizeof count);
    crypto_generichash_init(&state, key, TCP_SECRET, TCP_PROOF);
    crypto_generichash_update(&state, count, sizeof count);
    add_text(&state, message, size);
    crypto_generichash_final(&state, signature, TCP_PROOF);
}

int tcp_is_signed(const unsigned char key[TCP_SECRET], uint64_t number, const void *message, size_t size,
                  const unsigned char signature[TCP_PROOF])
{
    unsigned char own[TCP_PROOF];
    tcp_sign(key, number, message, size, own);
    return sodium_memcmp(own, signature, TCP_PROOF) == 0;
}
