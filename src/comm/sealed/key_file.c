#include "key_file.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

static tw_status make_key(const char *path, const unsigned char *bytes, size_t count,
                          unsigned char key[TW_SEAL_KEY_BYTES])
{
    if (count == TW_SEAL_KEY_BYTES && !(is_text(bytes, count) && is_ascii(bytes, count))) {
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

static tw_status read_file(const char *path, unsigned char *bytes, size_t *count, int *exposed)
{
    struct stat about;
    FILE *file = fopen(path, "rb");
    if (!file) return fail_file(path);
    setbuf(file, NULL); /* no copy of a key is left behind */
    errno = 0;
    *count = fread(bytes, 1, ROOM, file);
    int failed = ferror(file) || fstat(fileno(file), &about) != 0;
    tw_status status = failed ? fail_file(path) : TW_OK;
    fclose(file);
    if (!failed && exposed) *exposed = (about.st_mode & (S_IRGRP | S_IROTH)) != 0;
    return status;
}

tw_status tw_key_file_read(const char *path, unsigned char key[TW_SEAL_KEY_BYTES], int *exposed)
{
    unsigned char bytes[ROOM];
    size_t count = 0;
    if (!path) return tw_fail(TW_ERROR_ARGUMENT, "path is NULL");
    if (!key) return tw_fail(TW_ERROR_ARGUMENT, "key is NULL");
    if (sodium_init() < 0) return tw_fail(TW_ERROR_SYSTEM, "libsodium finds no random numbers on this machine");
    tw_status status = read_file(path, bytes, &count, exposed);
    if (status == TW_OK) status = make_key(path, bytes, count, key);
    sodium_memzero(bytes, sizeof bytes);
    return status;
}
