/* hello.h - how two ends of a connection prove to each other that they know a secret, and for which place they come.
 *
 *     accepter -> connecter   "twtcp 8\n", 32 random bytes                          the challenge
 *     connecter -> accepter   "twtcp 8\n", from, to, stream, 32 random bytes, proof
 *     accepter -> connecter   proof
 *
 * A proof is a keyed BLAKE2b over a word for the direction and everything before it. Both numbers are fresh, so no
 * proof is of use in another connection, or sent back to where it came from. Who does not know the key is told nothing
 * but the challenge. */
#ifndef TW_COMM_TCP_HELLO_H
#define TW_COMM_TCP_HELLO_H

#include <stddef.h>
#include <stdint.h>

enum {
    TCP_MAGIC = 8,
    TCP_NONCE = 32,
    TCP_PROOF = 32,
    TCP_SECRET = 32,
    TCP_CHALLENGE = TCP_MAGIC + TCP_NONCE,
    TCP_HELLO = TCP_MAGIC + 12 + TCP_NONCE + TCP_PROOF
};

typedef struct tcp_place {
    uint32_t from, to, stream; /* ranks: the connecter's, the accepter's */
} tcp_place;

/* 0 where the system has no random numbers. */
int tcp_hello_begin(void);

/* A secret out of a key, which may be of any length or none, and what else it is to be bound to: texts, each with its
 * length, so that no two lists give the same bytes. */
void tcp_secret_make(const void *key, size_t key_size, const char *purpose, const char *const *texts, size_t count,
                     unsigned char secret[TCP_SECRET]);

typedef enum tcp_verdict { TCP_WELCOME = 0, TCP_STRANGER, TCP_OTHER_VERSION, TCP_WRONG_KEY } tcp_verdict;

/* The accepter's first word. */
void tcp_challenge_make(unsigned char challenge[TCP_CHALLENGE]);
/* Of how a challenge or a hello begins: TCP_WELCOME, TCP_STRANGER or TCP_OTHER_VERSION. */
tcp_verdict tcp_language_judge(const unsigned char word[TCP_MAGIC]);

/* The connecter's answer. */
void tcp_hello_make(const unsigned char secret[TCP_SECRET], const unsigned char challenge[TCP_CHALLENGE],
                    tcp_place place, unsigned char hello[TCP_HELLO]);

/* The accepter's judgement. *place is what the hello says, whatever the verdict. */
tcp_verdict tcp_hello_judge(const unsigned char secret[TCP_SECRET], const unsigned char challenge[TCP_CHALLENGE],
                            const unsigned char hello[TCP_HELLO], tcp_place *place);

/* The accepter's proof, and the connecter's look at it. */
void tcp_answer_make(const unsigned char secret[TCP_SECRET], const unsigned char challenge[TCP_CHALLENGE],
                     const unsigned char hello[TCP_HELLO], unsigned char answer[TCP_PROOF]);
int tcp_answer_is_right(const unsigned char secret[TCP_SECRET], const unsigned char challenge[TCP_CHALLENGE],
                        const unsigned char hello[TCP_HELLO], const unsigned char answer[TCP_PROOF]);

/* The keys of a connection that has proved itself, for what the connecter and what the accepter will sign there. */
void tcp_session_make(const unsigned char secret[TCP_SECRET], const unsigned char challenge[TCP_CHALLENGE],
                      const unsigned char hello[TCP_HELLO], unsigned char connecter[TCP_SECRET],
                      unsigned char accepter[TCP_SECRET]);
/* The signature of a message: its number keeps it from being sent twice. */
void tcp_sign(const unsigned char key[TCP_SECRET], uint64_t number, const void *message, size_t size,
              unsigned char signature[TCP_PROOF]);
int tcp_is_signed(const unsigned char key[TCP_SECRET], uint64_t number, const void *message, size_t size,
                  const unsigned char signature[TCP_PROOF]);

#endif
