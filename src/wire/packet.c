#include "packet.h"

#include "bits.h"
#include "error.h"
#include "index_code.h"
#include "values.h"

/* The header as it travels: every field on its natural alignment, so the struct has no holes. */
typedef struct header {
    unsigned char magic[2];
    uint8_t version;
    uint8_t flags;
    uint32_t sections;
    uint64_t body; /* bytes behind the header */
    uint32_t step;
    uint32_t crc; /* CRC-32C of the 20 bytes before it and of the body */
} header;

enum { HEADER = 24, CHECKED = 20, VERSION = 1, FLAG_NONFINITE = 1, MOST_VARINT = 5 };
_Static_assert(sizeof(header) == HEADER && offsetof(header, crc) == CHECKED, "the header is what wire-format.md says");

static uint32_t checksum(const unsigned char *packet, size_t body)
{
    return tw_crc32c(tw_crc32c(0, packet, CHECKED), packet + HEADER, body);
}

/* Writing ------------------------------------------------------------------------------------------------------- */

size_t tw_packet_bound_header(void)
{
    return HEADER;
}

size_t tw_packet_bound_sparse(size_t n, size_t k, tw_value_code code)
{
    if (k > n) k = n;
    if (k == 0) return 1;
    return MOST_VARINT + 1 + MOST_VARINT + tw_index_bound(n, k) + k * tw_value_bytes(code);
}

void tw_packet_begin(tw_packet_writer *writer, void *dst, size_t capacity, uint32_t step, int nonfinite)
{
    unsigned char *start = dst;
    size_t skip = capacity < HEADER ? capacity : HEADER;
    *writer = (tw_packet_writer){start, start + skip, start + capacity, {step, nonfinite != 0, 0}, 0};
}

static size_t varint_bytes(size_t x)
{
    size_t bytes = 1;
    while (x >>= 7) bytes++;
    return bytes;
}

static unsigned char *write_varint(unsigned char *dst, size_t x)
{
    for (; x >= 128; x >>= 7) *dst++ = (unsigned char)(x | 128);
    *dst++ = (unsigned char)x;
    return dst;
}

static int strictly_ascending(size_t n, size_t k, const uint32_t *index)
{
    int bad = k > n || (k && index[k - 1] >= n);
    for (size_t i = 1; i < k; i++) bad |= index[i] <= index[i - 1];
    return !bad;
}

static tw_status check_room(const tw_packet_writer *writer, size_t bytes)
{
    size_t room = (size_t)(writer->end - writer->at);
    if (bytes <= room) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "section %u takes %zu bytes and the packet has room for %zu: give it the sum of "
                   "the bounds",
                   writer->info.sections, bytes, room);
}

static tw_status put_empty(tw_packet_writer *writer)
{
    TW_TRY(check_room(writer, 1));
    *writer->at++ = 0;
    writer->info.sections++;
    return TW_OK;
}

tw_status tw_packet_put_sparse(tw_packet_writer *writer, size_t n, size_t k, const uint32_t *index, const float *value,
                               tw_value_code code)
{
    if (k == 0) return put_empty(writer);
    if (writer->info.nonfinite)
        return tw_fail(TW_ERROR_ARGUMENT, "a packet that reports a gradient that is not finite carries no values");
    if (!strictly_ascending(n, k, index) || !tw_values_finite(value, k))
        return tw_fail(TW_ERROR_ARGUMENT, "section %u: indices must ascend below %zu and values be finite",
                       writer->info.sections, n);
    tw_index_plan plan = tw_index_choose(n, k, index);
    size_t index_bytes = (plan.bits + 7) / 8, value_bytes = k * tw_value_bytes(code);
    TW_TRY(check_room(writer, varint_bytes(k) + 1 + varint_bytes(index_bytes) + index_bytes + value_bytes));
    unsigned char *at = write_varint(writer->at, k);
    *at++ = (unsigned char)(plan.code << 4 | code);
    at = write_varint(at, index_bytes);
    tw_index_codes[plan.code]->write(at, index_bytes, k, index, plan.parameter);
    tw_values_write(at + index_bytes, value, k, code);
    writer->at = at + index_bytes + value_bytes;
    writer->index_bytes += index_bytes;
    writer->info.sections++;
    return TW_OK;
}

size_t tw_packet_end(tw_packet_writer *writer)
{
    size_t size = (size_t)(writer->at - writer->start);
    if (size < HEADER) return 0;
    header head = {
        {'T', 'W'},        VERSION, writer->info.nonfinite ? FLAG_NONFINITE : 0, writer->info.sections, size - HEADER,
        writer->info.step, 0};
    memcpy(writer->start, &head, HEADER);
    head.crc = checksum(writer->start, size - HEADER);
    memcpy(writer->start + CHECKED, &head.crc, sizeof head.crc);
    return size;
}

/* Reading ------------------------------------------------------------------------------------------------------- */

tw_status tw_packet_open(tw_packet_reader *reader, const void *src, size_t size)
{
    const unsigned char *start = src;
    header head;
    if (size < HEADER)
        return tw_fail(TW_ERROR_PACKET, "a packet of %zu bytes is shorter than its header of %d", size, HEADER);
    memcpy(&head, start, HEADER);
    if (memcmp(head.magic, "TW", 2) != 0)
        return tw_fail(TW_ERROR_PACKET, "a packet does not begin with TW: the peer speaks another protocol");
    if (head.version != VERSION)
        return tw_fail(TW_ERROR_PACKET,
                       "a packet has format version %d and this library reads %d: run the same release "
                       "of thinwire everywhere",
                       head.version, VERSION);
    if (head.body != size - HEADER)
        return tw_fail(TW_ERROR_PACKET, "a packet claims %llu bytes of body and brought %zu",
                       (unsigned long long)head.body, size - HEADER);
    if (head.crc != checksum(start, size - HEADER))
        return tw_fail(TW_ERROR_PACKET, "a packet of %zu bytes fails its checksum: it was damaged on the way", size);
    if (head.flags & ~FLAG_NONFINITE)
        return tw_fail(TW_ERROR_PACKET, "a packet has unknown flags (0x%02x)", head.flags);
    *reader = (tw_packet_reader){start + HEADER, start + size, {head.step, head.flags, head.sections}, 0};
    return TW_OK;
}

/* A cursor over the body; what it takes is checked against the end first. */
typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

/* The shortest form only, at most 32 bits. NULL, or what is wrong. */
static const char *read_varint(cursor *from, size_t *x)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 7 * MOST_VARINT; shift += 7) {
        if (from->at == from->end) return "the packet ends inside it";
        unsigned byte = *from->at++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte & 128) continue;
        if (shift && byte == 0) return "it writes a count longer than need be";
        *x = (size_t)value;
        return value > UINT32_MAX ? "it has a count above 32 bits" : NULL;
    }
    return "it has a count that does not end";
}

static const char *read_values(cursor *from, float *value, size_t k, tw_value_code code)
{
    size_t bytes = k * tw_value_bytes(code);
    if ((size_t)(from->end - from->at) < bytes) return "the packet ends inside its values";
    tw_values_read(from->at, value, k, code);
    from->at += bytes;
    return tw_values_finite(value, k) ? NULL : "a value is NaN or infinite";
}

/* What follows the count of a section that is not empty. */
static const char *read_elements(cursor *from, size_t n, size_t k, uint32_t *index, float *value)
{
    if (from->at == from->end) return "the packet ends inside it";
    unsigned code = *from->at++, index_code = code >> 4, value_code = code & 15;
    if (index_code >= TW_INDEX_CODES) return "it has an unknown index code";
    if (value_code >= TW_VALUE_CODES) return "it has an unknown value code";
    size_t bytes;
    const char *wrong = read_varint(from, &bytes);
    if (wrong) return wrong;
    if ((size_t)(from->end - from->at) < bytes) return "the packet ends inside its indices";
    wrong = tw_index_codes[index_code]->read(from->at, bytes, n, k, index);
    if (wrong) return wrong;
    from->at += bytes;
    return read_values(from, value, k, (tw_value_code)value_code);
}

tw_status tw_packet_get_sparse(tw_packet_reader *reader, size_t n, size_t most, uint32_t *index, float *value,
                               size_t *k)
{
    unsigned section = reader->sections_read;
    if (section == reader->info.sections)
        return tw_fail(TW_ERROR_PACKET, "a packet has %u sections, one fewer than wanted", section);
    cursor from = {reader->at, reader->end};
    size_t count;
    const char *wrong = read_varint(&from, &count);
    if (!wrong && (count > n || count > most))
        return tw_fail(TW_ERROR_PACKET, "section %u of a packet has %zu elements; at most %zu of %zu may come", section,
                       count, most, n);
    if (!wrong && count && reader->info.nonfinite) wrong = "its sender reported a gradient that is not finite";
    if (!wrong && count) wrong = read_elements(&from, n, count, index, value);
    if (wrong) return tw_fail(TW_ERROR_PACKET, "section %u of a packet is damaged: %s", section, wrong);
    reader->at = from.at;
    reader->sections_read++;
    *k = count;
    return TW_OK;
}

tw_status tw_packet_close(tw_packet_reader *reader)
{
    if (reader->sections_read != reader->info.sections)
        return tw_fail(TW_ERROR_PACKET, "a packet has %u sections and %u were expected", reader->info.sections,
                       reader->sections_read);
    if (reader->at != reader->end)
        return tw_fail(TW_ERROR_PACKET, "a packet has %zu bytes behind its last section",
                       (size_t)(reader->end - reader->at));
    return TW_OK;
}
