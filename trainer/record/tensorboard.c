/* A record is its length, the length's masked CRC-32C, the data, the data's masked CRC-32C, all little-endian. The data
 * is a protocol buffer `Event`: field 1 wall_time (double), 2 step (varint), 3 file_version (string), 5 summary { 1
 * value { 1 tag (string), 2 simple_value (float) } }. A field is its key (number << 3 | wire type) and its value. */
#include "tensorboard.h"
#include "error.h"
#include "regular_file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

typedef struct buffer {
    uint8_t *bytes;
    size_t size;
} buffer;

static void put_little_endian(buffer *b, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) b->bytes[b->size++] = (uint8_t)(value >> (8 * i));
}

static void put_varint(buffer *b, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) b->bytes[b->size++] = (uint8_t)(value | 0x80);
    b->bytes[b->size++] = (uint8_t)value;
}

static void put_key(buffer *b, unsigned field, unsigned wire_type)
{
    put_varint(b, field << 3 | wire_type);
}

static void put_double(buffer *b, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, FIXED64);
    put_little_endian(b, bits, 8);
}

static void put_float(buffer *b, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, FIXED32);
    put_little_endian(b, bits, 4);
}

static void put_bytes(buffer *b, unsigned field, const void *bytes, size_t size)
{
    put_key(b, field, BYTES);
    put_varint(b, size);
    memcpy(b->bytes + b->size, bytes, size);
    b->size += size;
}

static uint32_t masked_crc(const void *data, size_t size)
{
    uint32_t crc = tw_crc32c(0, data, size);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

/* Frames the event that `event` holds. */
static size_t frame(const buffer *event, uint8_t *dst)
{
    buffer record = {.bytes = dst};
    put_little_endian(&record, event->size, 8);
    put_little_endian(&record, masked_crc(dst, 8), 4);
    memcpy(dst + record.size, event->bytes, event->size);
    record.size += event->size;
    put_little_endian(&record, masked_crc(event->bytes, event->size), 4);
    return record.size;
}

size_t tensorboard_version_record(double wall_time, uint8_t dst[TENSORBOARD_RECORD_MAX])
{
    static const char version[] = "brain.Event:2";
    uint8_t bytes[TENSORBOARD_RECORD_MAX];
    buffer event = {.bytes = bytes};
    put_double(&event, 1, wall_time);
    put_bytes(&event, 3, version, sizeof version - 1);
    return frame(&event, dst);
}

size_t tensorboard_scalar_record(double wall_time, uint64_t step, const char *tag, float value,
                                 uint8_t dst[TENSORBOARD_RECORD_MAX])
{
    uint8_t value_bytes[TENSORBOARD_RECORD_MAX], summary_bytes[TENSORBOARD_RECORD_MAX], bytes[TENSORBOARD_RECORD_MAX];
    buffer scalar = {.bytes = value_bytes}, summary = {.bytes = summary_bytes}, event = {.bytes = bytes};
    put_bytes(&scalar, 1, tag, strnlen(tag, 100));
    put_float(&scalar, 2, value);
    put_bytes(&summary, 1, scalar.bytes, scalar.size);
    put_double(&event, 1, wall_time);
    put_key(&event, 2, VARINT);
    put_varint(&event, step);
    put_bytes(&event, 5, summary.bytes, summary.size);
    return frame(&event, dst);
}

struct tensorboard {
    FILE *file;
    char path[4096];
};

static double wall_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static tw_status tensorboard_append(tensorboard *board, const uint8_t *record, size_t size)
{
    if (fwrite(record, 1, size, board->file) == size && fflush(board->file) == 0) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s could not be written: %s", board->path, strerror(errno));
}

tw_status tensorboard_open(const char *folder, tensorboard **out)
{
    tensorboard *board = calloc(1, sizeof *board);
    if (!board) return tw_fail(TW_ERROR_MEMORY, "no memory for the event file");
    char host[64] = "localhost";
    gethostname(host, sizeof host - 1);
    snprintf(board->path, sizeof board->path, "%s/events.out.tfevents.%lld.%s.%d", folder, (long long)time(NULL), host,
             (int)getpid());
    uint8_t record[TENSORBOARD_RECORD_MAX];
    size_t size = tensorboard_version_record(wall_time(), record);
    tw_status status = regular_file_stream(board->path, "a", &board->file);
    if (status == TW_OK) status = tensorboard_append(board, record, size);
    if (status == TW_OK)
        *out = board;
    else
        tensorboard_close(board);
    return status;
}

void tensorboard_close(tensorboard *board)
{
    if (!board) return;
    if (board->file) fclose(board->file);
    free(board);
}

tw_status tensorboard_scalar(tensorboard *board, const char *tag, uint64_t step, float value)
{
    uint8_t record[TENSORBOARD_RECORD_MAX];
    size_t size = tensorboard_scalar_record(wall_time(), step, tag, value, record);
    return tensorboard_append(board, record, size);
}
