/* Decodes any bytes as a packet. The first byte of the input chooses the tensors' size, the second whether and of what
 * length blocks are expected; the checksum and the length are made right, since a fuzzer would hardly get past them.
 * Whatever is accepted must be what a writer may put, and must come back in every code as it was rounded. */
#include "fuzz.h"
#include "packet.h"

#include <string.h>
#include <thinwire/thinwire_plugin.h>

enum { CHOICES = 2, HEADER = 24, BODY_AT = 8, CRC_AT = 20, MOST = 256, MOST_SECTIONS = 64, MOST_BOUND = 1 << 16 };

/* Ascending below n and finite: all that tw_packet_put_sparse takes. Encodes and decodes it again; what the reader sees
 * is what rounding promised. ref2 puts as it is what has four values, rounded or not, and so is given them rounded. */
static void check_elements(size_t n, size_t k, const uint32_t *index, const float *value, tw_coding coding)
{
    static unsigned char packet[MOST_BOUND];
    uint32_t index_again[MOST];
    float value_again[MOST], rounded[MOST];
    tw_packet_writer writer;
    tw_packet_reader reader;
    size_t k_again = 0, capacity = HEADER + tw_packet_bound_sparse(n, k, coding);
    must(k <= MOST);
    if (capacity > sizeof packet) return;
    memcpy(rounded, value, k * sizeof *value);
    tw_values_round(rounded, k, coding.values);
    tw_packet_begin(&writer, packet, capacity, 0, 0, 0);
    must(tw_packet_put_sparse(&writer, n, k, index, coding.values == TW_VALUES_REF2 ? rounded : value, coding) ==
         TW_OK);
    must(tw_packet_open(&reader, packet, tw_packet_end(&writer), 1) == TW_OK);
    must(tw_packet_get_sparse(&reader, n, k, index_again, value_again, &k_again) == TW_OK);
    must(tw_packet_close(&reader) == TW_OK && k_again == k);
    must(memcmp(index_again, index, k * sizeof *index) == 0 && memcmp(value_again, rounded, k * sizeof *value) == 0);
}

static void check_every_code(size_t n, size_t k, const uint32_t *index, const float *value)
{
    for (tw_value_code values = 0; values < TW_VALUE_CODES; values++)
        check_elements(n, k, index, value, (tw_coding){values, TW_INDICES_AUTO});
    for (tw_index_choice indices = 1; indices < TW_INDEX_CHOICES_COUNT; indices++)
        check_elements(n, k, index, value, (tw_coding){TW_VALUES_FP32, indices});
}

static tw_status read_sparse(tw_packet_reader *reader, size_t n)
{
    uint32_t index[MOST];
    float value[MOST];
    size_t k;
    tw_status status = tw_packet_get_sparse(reader, n, MOST, index, value, &k);
    if (status == TW_OK) check_every_code(n, k, index, value);
    return status;
}

static tw_status read_block(tw_packet_reader *reader, size_t bytes)
{
    const unsigned char *block, *end = reader->end;
    tw_status status = tw_packet_get_block(reader, bytes, &block);
    must(status != TW_OK || (bytes <= (size_t)(end - block) && reader->at == block + bytes));
    return status;
}

/* Bit 7 of `blocks`: sections alternate between sparse ones and blocks, the first of which is as long as the low bits
 * say, each one byte longer than the one before. */
static void read_packet(const unsigned char *packet, size_t size, size_t n, unsigned blocks)
{
    tw_packet_reader reader;
    if (tw_packet_open(&reader, packet, size, 1) != TW_OK) return;
    for (unsigned i = 0; i < MOST_SECTIONS; i++) {
        int wants_block = blocks & 0x80 && i % 2;
        if ((wants_block ? read_block(&reader, (blocks & 0x7F) + i / 2) : read_sparse(&reader, n)) != TW_OK) return;
    }
    tw_packet_close(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < CHOICES + HEADER) return 0;
    size_t n = (size_t)1 << data[0] % 32, packet_size = size - CHOICES;
    if (data[0] & 0x80) n = n / 3 + 1;
    read_packet(data + CHOICES, packet_size, n, data[1]);
    unsigned char *forged = malloc(packet_size);
    must(forged != NULL);
    memcpy(forged, data + CHOICES, packet_size);
    uint64_t body = packet_size - HEADER;
    memcpy(forged + BODY_AT, &body, sizeof body);
    uint32_t crc = tw_crc32c(tw_crc32c(0, forged, CRC_AT), forged + HEADER, packet_size - HEADER);
    memcpy(forged + CRC_AT, &crc, sizeof crc);
    read_packet(forged, packet_size, n, data[1]);
    free(forged);
    return 0;
}
