/* What sealing costs: messages through a sealed comm of two ranks, beside copying them, beside what libsodium does
 * alone, and beside the same comm without a seal. One thread plays both ranks, so a message is sealed and opened in
 * turn.
 *
 *     build/bench_seal [BYTES [SECONDS]] */
#include <thinwire/thinwire_plugin.h>
#include <thinwire/thinwire_sealed.h>

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 7, TAG = crypto_aead_xchacha20poly1305_ietf_ABYTES };

static unsigned char *from, *to, key[32], nonce[24];
static size_t bytes = 512 * 1024;
static double seconds = 0.2;

typedef struct rank {
    tw_comm *comm;
    tw_transport_ops ops;
    void *self;
} rank;

static rank plain[2], sealed[2];

static void copy(void)
{
    memcpy(to, from, bytes);
    from[0] = to[bytes - 1];
}

static void encrypt(void)
{
    crypto_aead_xchacha20poly1305_ietf_encrypt(to, NULL, to, bytes, NULL, 0, NULL, nonce, key);
}

static void decrypt(void)
{
    static unsigned char *whole;
    if (!whole) {
        whole = malloc(bytes + TAG);
        crypto_aead_xchacha20poly1305_ietf_encrypt(whole, NULL, from, bytes, NULL, 0, NULL, nonce, key);
    }
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(to, NULL, NULL, whole, bytes + TAG, NULL, 0, nonce, key) != 0)
        abort();
}

static void pass(rank *ranks)
{
    void *sending, *receiving;
    size_t size;
    uint32_t check;
    if (ranks[1].ops.start_recv(ranks[1].self, 0, 1, to, bytes, &receiving) != TW_OK ||
        ranks[0].ops.start_send(ranks[0].self, 1, 1, from, bytes, 0, &sending) != TW_OK ||
        ranks[1].ops.wait(ranks[1].self, receiving, 10, &size, &check) != TW_OK ||
        ranks[0].ops.wait(ranks[0].self, sending, 10, &size, &check) != TW_OK) {
        fprintf(stderr, "%s\n", tw_last_error());
        exit(1);
    }
}

static void pass_plain(void)
{
    pass(plain);
}

static void pass_sealed(void)
{
    pass(sealed);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds that this process had a processor: others on the machine count less so. */
static double busy(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double rate(void (*run)(void))
{
    double began = busy(), taken;
    long count = 0;
    do {
        run();
        count++;
    } while ((taken = busy() - began) < seconds);
    return (double)count * (double)bytes / taken / 1e9;
}

static void *join(void *argument)
{
    rank *me = argument;
    tw_comm *inner = me->comm;
    if (tw_comm_create_sealed(inner, key, sizeof key, &me->comm) != TW_OK) exit(1);
    return NULL;
}

static void make(rank *ranks, int seals)
{
    tw_comm *comms[2];
    pthread_t threads[2];
    if (tw_comm_create_threads(2, comms) != TW_OK) exit(1);
    for (int r = 0; r < 2; r++) ranks[r].comm = comms[r];
    for (int r = 0; seals && r < 2; r++) pthread_create(&threads[r], NULL, join, &ranks[r]);
    for (int r = 0; seals && r < 2; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++) {
        ranks[r].ops.struct_size = sizeof ranks[r].ops;
        tw_comm_lend(ranks[r].comm, &ranks[r].ops, &ranks[r].self);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } rows[] = {{"memcpy", copy},
                {"libsodium, encrypt in place", encrypt},
                {"libsodium, decrypt", decrypt},
                {"threads, there", pass_plain},
                {"threads, sealed, there", pass_sealed}};
    enum { ROWS = sizeof rows / sizeof *rows };
    double rates[ROWS][ROUNDS];
    if (argc > 1) bytes = strtoull(argv[1], NULL, 10);
    if (argc > 2) seconds = strtod(argv[2], NULL);
    from = calloc(1, bytes + TAG);
    to = calloc(1, bytes + TAG);
    make(plain, 0);
    make(sealed, 1);
    for (int round = 0; round < ROUNDS; round++) /* in turn, so that a busy machine is busy for all */
        for (int i = 0; i < ROWS; i++) rates[i][round] = rate(rows[i].run);
    for (int i = 0; i < ROWS; i++) {
        qsort(rates[i], ROUNDS, sizeof **rates, compare);
        printf("%-30s %7.2f GB/s\n", rows[i].name, rates[i][ROUNDS / 2]);
    }
    return 0;
}
