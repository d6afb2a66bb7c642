/* Decodes any bytes as a packet. The first byte of the input chooses the tensors' size; the checksum and the length are
 * made right, since a fuzzer would hardly get past them. Whatever is accepted must be what a writer may put, and must
 * come back the same. */
#include "fuzz.h"
#include "packet.h"

#include <string.h>
#include <thinwire/thinwire_plugin.h>

enum { HEADER = 24, BODY_AT = 8, CRC_AT = 20, MOST = 256, MOST_SECTIONS = 64 };

/* Ascending below n and finite: all that put_sparse takes. Encodes and decodes it again. */
static void check_elements(size_t n, size_t k, const uint32_t *index, const float *value)
{
    uint32_t index_again[MOST];
    float value_again[MOST];
    unsigned char packet[8 * MOST];
    tw_packet_writer writer;
    tw_packet_reader reader;
    size_t k_again = 0;
    must(k <= MOST && HEADER + tw_packet_bound_sparse(n, k, TW_VALUES_FP32) <= sizeof packet);
    tw_packet_begin(&writer, packet, HEADER + tw_packet_bound_sparse(n, k, TW_VALUES_FP32), 0, 0);
    must(tw_packet_put_sparse(&writer, n, k, index, value, TW_VALUES_FP32) == TW_OK);
    must(tw_packet_open(&reader, packet, tw_packet_end(&writer)) == TW_OK);
    must(tw_packet_get_sparse(&reader, n, k, index_again, value_again, &k_again) == TW_OK);
    must(tw_packet_close(&reader) == TW_OK && k_again == k);
    must(memcmp(index_again, index, k * sizeof *index) == 0 && memcmp(value_again, value, k * sizeof *value) == 0);
}

static void read_packet(const unsigned char *packet, size_t size, size_t n)
{
    tw_packet_reader reader;
    uint32_t index[MOST];
    float value[MOST];
    size_t k;
    if (tw_packet_open(&reader, packet, size) != TW_OK) return;
    for (unsigned i = 0; i < MOST_SECTIONS; i++) {
        if (tw_packet_get_sparse(&reader, n, MOST, index, value, &k) != TW_OK) return;
        check_elements(n, k, index, value);
    }
    tw_packet_close(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 + HEADER) return 0;
    size_t n = (size_t)1 << data[0] % 32, packet_size = size - 1;
    if (data[0] & 0x80) n = n / 3 + 1;
    read_packet(data + 1, packet_size, n);
    unsigned char *forged = malloc(packet_size);
    must(forged != NULL);
    memcpy(forged, data + 1, packet_size);
    uint64_t body = packet_size - HEADER;
    memcpy(forged + BODY_AT, &body, sizeof body);
    uint32_t crc = tw_crc32c(tw_crc32c(0, forged, CRC_AT), forged + HEADER, packet_size - HEADER);
    memcpy(forged + CRC_AT, &crc, sizeof crc);
    read_packet(forged, packet_size, n);
    free(forged);
    return 0;
}
