/* CRC-32C: reflected polynomial 0x82F63B78, initial value and final xor of all ones. */
#include "cpu.h"

#include <pthread.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

enum { STREAM = 4096, TOGETHER = 3 * STREAM, LINE = 64 };

static uint32_t table[8][256];
static uint32_t behind[4][256]; /* what each byte of a register has become STREAM zero bytes later */
static int use_instruction;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t crc_bytes(uint32_t crc, const unsigned char *data, size_t size)
{
    for (; size; size--) crc = crc >> 8 ^ table[0][(crc ^ *data++) & 255];
    return crc;
}

/* Slicing by eight: one table look-up a byte, but eight of them independent. */
static uint32_t crc_slices(uint32_t crc, const unsigned char *data, size_t size)
{
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word = 0;
        for (int i = 0; i < 8; i++) word |= (uint64_t)data[i] << 8 * i;
        word ^= crc;
        crc = 0;
        for (int i = 0; i < 8; i++) crc ^= table[7 - i][word >> 8 * i & 255];
    }
    return crc_bytes(crc, data, size);
}

static void fill_slices(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82F63B78u & -(crc & 1));
        table[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int byte = 0; byte < 256; byte++)
            table[slice][byte] = table[slice - 1][byte] >> 8 ^ table[0][table[slice - 1][byte] & 255];
}

/* The register is linear in its bits, so those of one are enough to know all. */
static void fill_behind(void)
{
    static const unsigned char zeros[STREAM];
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t bit = 1; bit < 256; bit <<= 1) {
            uint32_t later = crc_slices(bit << 8 * byte, zeros, STREAM);
            for (uint32_t below = 0; below < bit; below++) behind[byte][bit | below] = behind[byte][below] ^ later;
        }
}

static void fill_tables(void)
{
    fill_slices();
    fill_behind();
    use_instruction = tw_cpu_has_crc32();
}

/* The instruction, for a byte and for eight from the lowest on; where there is none, the table does. */
#if defined(__x86_64__)
#define INSTRUCTION __attribute__((target("sse4.2")))
#define crc_byte __builtin_ia32_crc32qi
#define crc_word __builtin_ia32_crc32di
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && defined(__clang__)
#define INSTRUCTION __attribute__((target("crc")))
#define crc_byte __builtin_arm_crc32cb
#define crc_word __builtin_arm_crc32cd
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define INSTRUCTION __attribute__((target("+crc")))
#define crc_byte __builtin_aarch64_crc32cb
#define crc_word __builtin_aarch64_crc32cx
#endif

#if defined(INSTRUCTION)
static uint32_t skip_stream(uint32_t crc)
{
    return behind[0][crc & 255] ^ behind[1][crc >> 8 & 255] ^ behind[2][crc >> 16 & 255] ^ behind[3][crc >> 24];
}

/* Three neighbouring streams at once: the instruction takes two or three cycles but one can begin in each. A processor
 * fetches ahead only within a page, which is as long as a stream; what comes next is therefore asked for. */
INSTRUCTION static uint32_t crc_three_streams(uint32_t crc, const unsigned char *data)
{
    uint64_t a = crc, b = 0, c = 0;
    uintptr_t next = (uintptr_t)data + TOGETHER; /* a number: it may lie behind the array */
    for (size_t at = 0; at < STREAM; at += 8) {
        uint64_t word[3];
        for (size_t i = 0; i < 3; i++) memcpy(&word[i], data + i * STREAM + at, 8);
        if (at % LINE == 0)
            for (size_t i = 0; i < 3; i++) __builtin_prefetch((const void *)(next + i * STREAM + at));
        a = crc_word(a, word[0]);
        b = crc_word(b, word[1]);
        c = crc_word(c, word[2]);
    }
    return skip_stream(skip_stream((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
}

INSTRUCTION static uint32_t crc_instruction(uint32_t crc, const unsigned char *data, size_t size)
{
    for (; size >= TOGETHER; size -= TOGETHER, data += TOGETHER) crc = crc_three_streams(crc, data);
    uint64_t wide = crc;
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = crc_word(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size; size--) crc = crc_byte(crc, *data++);
    return crc;
}
#else
#define crc_instruction crc_slices
#endif

uint32_t tw_crc32c(uint32_t crc, const void *data, size_t size)
{
    if (!data) return size ? 0 : crc;
    pthread_once(&once, fill_tables);
    crc = ~crc;
    crc = use_instruction ? crc_instruction(crc, data, size) : crc_slices(crc, data, size);
    return ~crc;
}
