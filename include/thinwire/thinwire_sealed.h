/* thinwire_sealed.h - messages that only those who know a key can read or write. Link with -lthinwire_sealed
 * -lthinwire.
 *
 * A sealed comm lies upon any other comm and does all that it does. What leaves this rank is encrypted and signed, what
 * arrives is checked before anybody looks at it: XChaCha20-Poly1305 of libsodium, with a key of its own for each
 * sender, receiver and session. Both ends count the messages of a channel, and the count is part of the seal. So a
 * message that was changed, cut off, made up, sent before, sent to somebody else, or that comes out of turn, is
 * TW_ERROR_PACKET, and the text names the sender.
 *
 * Not hidden: who sends how many bytes to whom, and when. Not prevented: that somebody cuts the line. Not protected
 * against: a member that poses as another, since all members know the key. Whoever records today and gets the key later
 * reads nothing: each pair of ranks draws keys of its own (X25519), and forgets them with the session. */
#ifndef THINWIRE_SEALED_H
#define THINWIRE_SEALED_H

#include <thinwire/thinwire.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_SEAL_KEY_BYTES 32       /* of what tw_seal_read_key gives */
#define TW_SEAL_KEY_BYTES_LEAST 16 /* that a key may have */
#define TW_SEAL_KEY_BYTES_MOST 4096

/* A program that opens its transport by name needs no more than tw_comm_open("sealed", &comm): the environment then
 * says which transport to open and seal (THINWIRE_SEAL_OVER=mpi), and where the key is (THINWIRE_KEY_FILE, as for
 * tw_seal_read_key). THINWIRE_SEAL_SECONDS, where it is set, becomes the timeout. To open the transport that
 * THINWIRE_SEAL_OVER names by itself is TW_ERROR_ARGUMENT, because nothing would be sealed then. */

/* Makes a comm of the ranks of `inner`, and seals what goes between them. A collective: every rank calls it, before
 * anything else is done with inner. `key` is the same on all ranks, key_bytes of it (16 to 4096), random, and a secret;
 * it is not kept. The new comm has inner's rank, size, timeout, patience and transport's name.
 *
 * inner is the sealed comm's from here on, and is destroyed with it, or in this call when it fails (except where inner
 * is NULL): TW_ERROR_PACKET when another rank does not know the key, or somebody stands in between: every rank gets it,
 * and the text says whose key is wrong, or whose line changes bytes; TW_ERROR_PEER when a rank does not answer within
 * inner's timeout, because it is gone or does not seal; TW_ERROR_ARGUMENT, TW_ERROR_MEMORY, TW_ERROR_SYSTEM. What ranks
 * tell each other first are public keys, fresh for each session, from which, with the key, all other keys come: nothing
 * of another session fits.
 *
 * A message of n bytes becomes one of n + 20: its checksum travels inside the seal, and the seal has 16.
 * tw_comm_traffic counts n, as ever.
 *
 * A send that is taken back, which takes tw_comm_lend, is the last of its channel to that peer: a later one is
 * TW_ERROR_PEER. Nobody knows whether the message has gone, and its number is given to no other one. If it has not, the
 * peer refuses what was started behind it already. Other channels and other peers go on. */
TW_API tw_status tw_comm_create_sealed(tw_comm *inner, const void *key, size_t key_bytes, tw_comm **comm);

/* Reads a key from a file: 32 bytes as they are (head -c 32 /dev/urandom), unless all of them are printable, or alike;
 * or a line of text of 20 to 4096 characters, which is hashed slowly (Argon2id), so that guessing texts is slow.
 * *exposed (may be NULL) becomes 1 if others than its owner may read the file. TW_ERROR_IO if it cannot be read, as a
 * pipe that nobody writes to, TW_ERROR_FORMAT if it is neither, TW_ERROR_MEMORY: hashing takes 64 MiB. */
TW_API tw_status tw_seal_read_key(const char *path, unsigned char key[TW_SEAL_KEY_BYTES], int *exposed);

#ifdef __cplusplus
}
#endif
#endif
