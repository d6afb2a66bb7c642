/* CRC-32C: reflected polynomial 0x82F63B78, initial value and final xor of all ones. */
#include "cpu.h"

#include <pthread.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

static uint32_t table[8][256];
static int use_instruction;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82F63B78u & -(crc & 1));
        table[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int byte = 0; byte < 256; byte++)
            table[slice][byte] = table[slice - 1][byte] >> 8 ^ table[0][table[slice - 1][byte] & 255];
    use_instruction = tw_cpu_has_crc32();
}

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

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_instruction(uint32_t crc, const unsigned char *data, size_t size)
{
    uint64_t wide = crc;
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size; size--) crc = __builtin_ia32_crc32qi(crc, *data++);
    return crc;
}
#else
#define crc_instruction crc_slices
#endif

uint32_t tw_crc32c(uint32_t crc, const void *data, size_t size)
{
    pthread_once(&once, fill_table);
    crc = ~crc;
    crc = use_instruction ? crc_instruction(crc, data, size) : crc_slices(crc, data, size);
    return ~crc;
}
