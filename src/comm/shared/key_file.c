#include "key_file.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHORTEST_TEXT = 20, LONGEST_TEXT = 4096, ROOM = LONGEST_TEXT + 3 };

/* All ranks have to come to the same key with nothing but the text, so there is no salt of its own for each. */
static const unsigned char salt[] = "thinwire-key-txt";
_Static_assert(sizeof salt - 1 == crypto_pwhash_SALTBYTES, "the salt is as long as it has to be");

static int is_text(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] < 0x20 || bytes[i] == 0x7f) return 0;
    return 1;
}

static int is_ascii(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] >= 0x80) return 0;
    return 1;
}

static size_t without_line_end(const unsigned char *bytes, size_t count)
{
    if (count && bytes[count - 1] == '\n') count--;
    if (count && bytes[count - 1] == '\r') count--;
    return count;
}

static tw_status hash_text(const unsigned char *text, size_t length, unsigned char key[TW_SEAL_KEY_BYTES])
{
    if (crypto_pwhash(key, TW_SEAL_KEY_BYTES, (const char *)text, length, salt, crypto_pwhash_OPSLIMIT_INTERACTIVE,
                      crypto_pwhash_MEMLIMIT_INTERACTIVE, crypto_pwhash_ALG_ARGON2ID13) == 0)
        return TW_OK;
    return tw_fail(TW_ERROR_MEMORY, "no memory to hash a key with: it takes 64 MiB");
}

/* As a file has them that was made and never filled. */
static int are_all_alike(const unsigned char *bytes, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (bytes[i] != bytes[0]) return 0;
    return 1;
}

static tw_status make_key(const char *path, const unsigned char *bytes, size_t count,
                          unsigned char key[TW_SEAL_KEY_BYTES])
{
    if (count == TW_SEAL_KEY_BYTES && !(is_text(bytes, count) && is_ascii(bytes, count))) {
        if (are_all_alike(bytes, count))
            return tw_fail(TW_ERROR_FORMAT,
                           "%s is no key: all its 32 bytes are %d; head -c 32 /dev/urandom gives random ones", path,
                           bytes[0]);
        memcpy(key, bytes, count);
        return TW_OK;
    }
    size_t length = without_line_end(bytes, count);
    if (length >= SHORTEST_TEXT && length <= LONGEST_TEXT && is_text(bytes, length))
        return hash_text(bytes, length, key);
    return tw_fail(TW_ERROR_FORMAT,
                   "%s is no key: want 32 random bytes (head -c 32 /dev/urandom), or one line of %d to "
                   "%d characters",
                   path, SHORTEST_TEXT, LONGEST_TEXT);
}

static tw_status fail_file(const char *path)
{
    return tw_fail(TW_ERROR_IO, "%s cannot be read: %s", path, strerror(errno));
}

/* Of a pipe the first read does not wait: where there is no writer it is at its end, and else there is time. */
static int read_all(int file, unsigned char *bytes, size_t *count)
{
    while (*count < ROOM) {
        ssize_t got = read(file, bytes + *count, ROOM - *count);
        if (got == 0) return 0;
        if (got > 0) *count += (size_t)got;
        if (got < 0 && errno == EAGAIN && fcntl(file, F_SETFL, 0) == 0) continue;
        if (got < 0 && errno != EINTR) return -1;
    }
    return 0;
}

static tw_status read_open(const char *path, int file, unsigned char *bytes, size_t *count, int *exposed)
{
    struct stat about;
    if (read_all(file, bytes, count) != 0 || fstat(file, &about) != 0) return fail_file(path);
    if (S_ISFIFO(about.st_mode) && *count == 0)
        return tw_fail(TW_ERROR_IO, "%s is a pipe that nobody writes a key to: want a file, or a pipe with a writer",
                       path);
    if (exposed) *exposed = (about.st_mode & (S_IRGRP | S_IROTH)) != 0;
    return TW_OK;
}

static tw_status read_file(const char *path, unsigned char *bytes, size_t *count, int *exposed)
{
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return fail_file(path);
    tw_status status = read_open(path, file, bytes, count, exposed);
    close(file);
    return status;
}

tw_status tw_key_file_read(const char *path, unsigned char key[TW_SEAL_KEY_BYTES], int *exposed)
{
    unsigned char bytes[ROOM];
    size_t count = 0;
    TRY(tw_given(path, "path"));
    TRY(tw_given(key, "key"));
    if (sodium_init() < 0) return tw_fail(TW_ERROR_SYSTEM, "libsodium finds no random numbers on this machine");
    tw_status status = read_file(path, bytes, &count, exposed);
    if (status == TW_OK) status = make_key(path, bytes, count, key);
    sodium_memzero(bytes, sizeof bytes);
    return status;
}
