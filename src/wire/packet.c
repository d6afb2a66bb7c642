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
    uint32_t crc; /* CRC-32C of the 20 bytes before it and of the body; 0 of one that is carried */
} header;

enum { HEADER = 24, CHECKED = 20, VERSION = 3, FLAG_NONFINITE = 1, FLAG_CARRIED = 2, MOST_VARINT = 5 };
_Static_assert(sizeof(header) == HEADER && offsetof(header, crc) == CHECKED, "the header is what wire-format.md says");

/* A section begins with a byte that says what it is: nothing, a block, or else a value code's number in its low half
 * and in its high half an index code's, or that it is one element alone. */
enum { SECTION_ONE = 0xD0, SECTION_EMPTY = 0xE0, SECTION_BLOCK = 0xF0 };
_Static_assert((int)TW_INDEX_CODES <= SECTION_ONE >> 4 && (int)TW_VALUE_CODES <= 16, "codes and forms differ");

/* A packet may come by a program's own collectives. One that a channel carries is summed there. */
static uint32_t packet_checksum(const header *head, const unsigned char *body)
{
    if (head->flags & FLAG_CARRIED) return 0;
    return tw_crc32c(tw_crc32c(0, head, CHECKED), body, head->body);
}

/* Writing ------------------------------------------------------------------------------------------------------- */

size_t tw_packet_bound_header(void)
{
    return HEADER;
}

size_t tw_packet_bound_sparse(size_t n, size_t k, tw_coding coding)
{
    if (k > n) k = n;
    if (k == 0) return 1;
    return 1 + 2 * MOST_VARINT + tw_index_bound(n, k, coding.indices) + tw_values_bytes(k, coding.values);
}

size_t tw_packet_bound_block(size_t bytes)
{
    return 1 + MOST_VARINT + bytes;
}

void tw_packet_begin(tw_packet_writer *writer, void *dst, size_t capacity, uint32_t step, int nonfinite, int carried)
{
    unsigned char *start = dst;
    size_t skip = capacity < HEADER ? capacity : HEADER;
    *writer = (tw_packet_writer){start, start + skip, start + capacity, {step, nonfinite != 0, carried != 0, 0}, 0};
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
    *writer->at++ = SECTION_EMPTY;
    writer->info.sections++;
    return TW_OK;
}

static tw_status check_finite(const tw_packet_writer *writer)
{
    if (!writer->info.nonfinite) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "a packet that reports a gradient that is not finite carries no values");
}

/* One element alone needs neither a count nor a code for its index: no other form is shorter. */
static int is_one(size_t k, tw_coding coding)
{
    return k == 1 && coding.indices == TW_INDICES_AUTO;
}

size_t tw_index_bits(size_t n, size_t k, const uint32_t *index, tw_coding coding)
{
    if (k == 0) return 0;
    return is_one(k, coding) ? 8 * varint_bytes(*index) : tw_index_choose(n, k, index, coding).bits;
}

/* The end of every sparse section: its indices lie before `at`. */
static void put_values(tw_packet_writer *writer, unsigned char *at, size_t index_bytes, size_t k, const float *value,
                       tw_value_code code)
{
    tw_values_write(at, value, k, code);
    writer->at = at + tw_values_bytes(k, code);
    writer->index_bytes += index_bytes;
    writer->info.sections++;
}

static tw_status put_one(tw_packet_writer *writer, uint32_t index, float value, tw_value_code code)
{
    size_t index_bytes = varint_bytes(index);
    TW_TRY(check_room(writer, 1 + index_bytes + tw_values_bytes(1, code)));
    unsigned char *at = writer->at;
    *at++ = (unsigned char)(SECTION_ONE | code);
    put_values(writer, write_varint(at, index), index_bytes, 1, &value, code);
    return TW_OK;
}

tw_status tw_packet_put_sparse(tw_packet_writer *writer, size_t n, size_t k, const uint32_t *index, const float *value,
                               tw_coding coding)
{
    if (k == 0) return put_empty(writer);
    TW_TRY(check_finite(writer));
    if (!strictly_ascending(n, k, index) || !tw_values_finite(value, k))
        return tw_fail(TW_ERROR_ARGUMENT, "section %u: indices must ascend below %zu and values be finite",
                       writer->info.sections, n);
    if (is_one(k, coding)) return put_one(writer, *index, *value, coding.values);
    tw_index_plan plan = tw_index_choose(n, k, index, coding);
    size_t index_bytes = (plan.bits + 7) / 8, value_bytes = tw_values_bytes(k, coding.values);
    TW_TRY(check_room(writer, 1 + varint_bytes(k) + varint_bytes(index_bytes) + index_bytes + value_bytes));
    unsigned char *at = writer->at;
    *at++ = (unsigned char)(plan.code << 4 | coding.values);
    at = write_varint(at, k);
    at = write_varint(at, index_bytes);
    tw_index_codes[plan.code]->write(at, index_bytes, n, k, index, plan.parameter);
    put_values(writer, at + index_bytes, index_bytes, k, value, coding.values);
    return TW_OK;
}

tw_status tw_packet_put_block(tw_packet_writer *writer, size_t bytes, unsigned char **block)
{
    TW_TRY(check_finite(writer));
    if (varint_bytes(bytes) > MOST_VARINT)
        return tw_fail(TW_ERROR_ARGUMENT, "section %u: a block has less than 2^35 bytes, not %zu",
                       writer->info.sections, bytes);
    TW_TRY(check_room(writer, 1 + varint_bytes(bytes) + bytes));
    *writer->at++ = SECTION_BLOCK;
    *block = write_varint(writer->at, bytes);
    writer->at = *block + bytes;
    writer->info.sections++;
    return TW_OK;
}

size_t tw_packet_end(tw_packet_writer *writer)
{
    size_t size = (size_t)(writer->at - writer->start);
    if (size < HEADER) return 0;
    unsigned flags = (writer->info.nonfinite ? FLAG_NONFINITE : 0) | (writer->info.carried ? FLAG_CARRIED : 0);
    header head = {{'T', 'W'}, VERSION, (uint8_t)flags, writer->info.sections, size - HEADER, writer->info.step, 0};
    head.crc = packet_checksum(&head, writer->start + HEADER);
    memcpy(writer->start, &head, HEADER);
    return size;
}

/* Reading ------------------------------------------------------------------------------------------------------- */

tw_status tw_packet_open(tw_packet_reader *reader, const void *src, size_t size, int carried)
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
    if (head.crc != packet_checksum(&head, start + HEADER))
        return tw_fail(TW_ERROR_PACKET, "a packet of %zu bytes fails its checksum: it was damaged on the way", size);
    if (head.flags & ~(FLAG_NONFINITE | FLAG_CARRIED))
        return tw_fail(TW_ERROR_PACKET, "a packet has unknown flags (0x%02x)", head.flags);
    if (head.flags & FLAG_CARRIED && !carried)
        return tw_fail(TW_ERROR_PACKET, "a packet has no checksum, and what brought it does not check its bytes");
    tw_packet_info info = {head.step, head.flags & FLAG_NONFINITE, (head.flags & FLAG_CARRIED) != 0, head.sections};
    *reader = (tw_packet_reader){start + HEADER, start + size, info, 0};
    return TW_OK;
}

/* A cursor over the body; what it takes is checked against the end first. */
typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

static const char TOO_MANY[] = "it has more elements than may come";

/* The shortest form only, at most 35 bits. NULL, or what is wrong. */
static const char *read_varint(cursor *from, size_t *x)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 7 * MOST_VARINT; shift += 7) {
        if (from->at == from->end) return "the packet ends inside a count";
        unsigned char byte = *from->at++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte & 128) continue;
        if (shift && byte == 0) return "a count is not in its shortest form";
        *x = (size_t)value;
        return value > SIZE_MAX ? "a count is larger than memory" : NULL;
    }
    return "a count does not end";
}

static const char *read_values(cursor *from, float *value, size_t k, tw_value_code code)
{
    size_t bytes = tw_values_bytes(k, code);
    if ((size_t)(from->end - from->at) < bytes) return "the packet ends inside its values";
    from->at += bytes;
    return tw_values_read(from->at - bytes, value, k, code);
}

static const char *read_block_of_indices(cursor *from, size_t n, size_t k, uint32_t *index, unsigned code)
{
    size_t bytes;
    const char *wrong = read_varint(from, &bytes);
    if (wrong) return wrong;
    if ((size_t)(from->end - from->at) < bytes) return "the packet ends inside its indices";
    from->at += bytes;
    return tw_index_codes[code]->read(from->at - bytes, bytes, n, k, index);
}

/* The index of one element alone. */
static const char *read_one(cursor *from, size_t n, size_t most, uint32_t *index)
{
    size_t at;
    const char *wrong = read_varint(from, &at);
    if (wrong) return wrong;
    if (most == 0) return TOO_MANY;
    if (at >= n) return "its index lies beyond the tensor";
    *index = (uint32_t)at;
    return NULL;
}

static const char *read_indices(cursor *from, unsigned form, size_t n, size_t most, uint32_t *index, size_t *k)
{
    *k = 1;
    if (form == SECTION_ONE >> 4) return read_one(from, n, most, index);
    if (form >= TW_INDEX_CODES)
        return "its index code is none that this release reads: run the same release everywhere";
    const char *wrong = read_varint(from, k);
    if (wrong) return wrong;
    if (*k == 0) return "it claims elements and has none";
    if (*k > n || *k > most) return TOO_MANY;
    return read_block_of_indices(from, n, *k, index, form);
}

/* What kind of section comes next. */
static const char *read_kind(cursor *from, const tw_packet_reader *reader, unsigned *kind)
{
    if (reader->sections_read == reader->info.sections) return "it is one more than the packet has";
    if (from->at == from->end) return "the packet ends before it";
    *kind = *from->at++;
    if (*kind != SECTION_EMPTY && reader->info.nonfinite) return "its sender reported a gradient that is not finite";
    return NULL;
}

static const char *read_sparse(cursor *from, unsigned kind, size_t n, size_t most, uint32_t *index, float *value,
                               size_t *k)
{
    unsigned value_code = kind & 15;
    *k = 0;
    if (kind == SECTION_EMPTY) return NULL;
    if (kind == SECTION_BLOCK) return "it is a block where indices and values were expected";
    const char *wrong = read_indices(from, kind >> 4, n, most, index, k);
    if (wrong) return wrong;
    if (value_code >= TW_VALUE_CODES) return "it has an unknown value code";
    return read_values(from, value, *k, (tw_value_code)value_code);
}

static tw_status packet_refuse(const tw_packet_reader *reader, const char *wrong)
{
    return tw_fail(TW_ERROR_PACKET, "section %u of a packet is wrong: %s", reader->sections_read, wrong);
}

static void advance(tw_packet_reader *reader, cursor to)
{
    reader->at = to.at;
    reader->sections_read++;
}

tw_status tw_packet_get_sparse(tw_packet_reader *reader, size_t n, size_t most, uint32_t *index, float *value,
                               size_t *k)
{
    cursor from = {reader->at, reader->end};
    unsigned kind;
    size_t count;
    const char *wrong = read_kind(&from, reader, &kind);
    if (!wrong) wrong = read_sparse(&from, kind, n, most, index, value, &count);
    if (wrong) return packet_refuse(reader, wrong);
    advance(reader, from);
    *k = count;
    return TW_OK;
}

tw_status tw_packet_get_block(tw_packet_reader *reader, size_t bytes, const unsigned char **block)
{
    cursor from = {reader->at, reader->end};
    unsigned kind;
    size_t there = 0;
    const char *wrong = read_kind(&from, reader, &kind);
    if (!wrong && kind != SECTION_BLOCK) wrong = "it is not the block that was expected";
    if (!wrong) wrong = read_varint(&from, &there);
    if (!wrong && there != bytes) wrong = "it is a block of another length";
    if (!wrong && (size_t)(from.end - from.at) < bytes) wrong = "the packet ends inside it";
    if (wrong) return packet_refuse(reader, wrong);
    *block = from.at;
    from.at += bytes;
    advance(reader, from);
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
