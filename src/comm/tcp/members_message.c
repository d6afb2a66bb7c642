#include "members_message.h"

#include "address.h"
#include "bytes.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)TCP_ADDRESS <= (int)COUNCIL_NAME, "a name holds any address");

#define LONGEST_PATIENCE 1000000000000 /* milliseconds */
enum { NUMBERS = 6 * 8, HEAD = 4, LENGTH = 2, LONGEST_SEAT = 2 * (LENGTH + COUNCIL_NAME) + 8 };

/* --- writing ------------------------------------------------------------------------------------------------- */

static unsigned char *put_text(unsigned char *at, const char *text)
{
    size_t length = strlen(text);
    tw_put(at, length, LENGTH);
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): its length goes before it */
    memcpy(at + LENGTH, text, length);
    return at + LENGTH + length;
}

static unsigned char *put_seat(unsigned char *at, const council_seat *seat)
{
    at = put_text(put_text(at, seat->name), seat->door);
    tw_put(at, seat->rounds, 8);
    return at + 8;
}

unsigned char *tcp_word_write(const council_message *message, const char *text, size_t *size)
{
    size_t length = strlen(text);
    const uint64_t numbers[] = {message->generation, message->ballot,          message->accepted,
                                message->list.group, message->list.generation, message->list.patience};
    unsigned char *bytes = malloc(HEAD + NUMBERS + 8 * COUNCIL_KNOWN + COUNCIL_TOPIC + LENGTH + COUNCIL_NAME + length +
                                  (size_t)(message->list.count + 1) * LONGEST_SEAT);
    unsigned char *at = bytes;
    if (!bytes) return NULL;
    *at++ = (unsigned char)message->kind;
    *at++ = (unsigned char)message->state;
    *at++ = (unsigned char)(message->asks | message->awaits << 1);
    *at++ = (unsigned char)message->list.count;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++, at += 8) tw_put(at, numbers[i], 8);
    for (int i = 0; i < COUNCIL_KNOWN; i++, at += 8) tw_put(at, message->list.begun[i], 8);
    memcpy(at, message->topic, COUNCIL_TOPIC);
    at = put_text(at + COUNCIL_TOPIC, message->to);
    at = put_seat(at, &message->seat);
    for (int i = 0; i < message->list.count; i++) at = put_seat(at, &message->list.seats[i]);
    memcpy(at, text, length);
    *size = (size_t)(at - bytes) + length;
    return bytes;
}

/* --- reading ------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const unsigned char *at;
    size_t left; /* 0 bytes after what could not be read */
    int bad;
} reader;

static const unsigned char *take(reader *from, size_t bytes)
{
    const unsigned char *at = from->at;
    if (from->bad || bytes > from->left) {
        from->bad = 1;
        return NULL;
    }
    from->at += bytes;
    from->left -= bytes;
    return at;
}

static uint64_t take_number(reader *from, size_t bytes)
{
    const unsigned char *at = take(from, bytes);
    return at ? tw_get(at, bytes) : 0;
}

/* An address, or nothing where that may be. */
static void take_address(reader *from, int may_lack, char text[COUNCIL_NAME])
{
    tcp_address address;
    size_t length = (size_t)take_number(from, LENGTH);
    const unsigned char *at = length < TCP_ADDRESS ? take(from, length) : NULL;
    text[0] = 0;
    if (!at || memchr(at, 0, length)) {
        from->bad = 1;
        return;
    }
    memcpy(text, at, length);
    text[length] = 0;
    if (!(may_lack && !length) && tcp_address_read(text, "an address", &address) != TW_OK) from->bad = 1;
}

/* At its door the others are to call it, once it is ready. */
static void take_seat(reader *from, int is_ready, council_seat *seat)
{
    take_address(from, 0, seat->name);
    take_address(from, !is_ready, seat->door);
    seat->rounds = take_number(from, 8);
}

static void take_head(reader *from, council_message *message)
{
    message->kind = (council_kind)take_number(from, 1);
    message->state = (council_state)take_number(from, 1);
    const int flags = (int)take_number(from, 1);
    message->asks = flags & 1;
    message->awaits = flags >> 1 & 1;
    message->list.count = (int)take_number(from, 1);
    message->generation = take_number(from, 8);
    message->ballot = take_number(from, 8);
    message->accepted = take_number(from, 8);
    message->list.group = take_number(from, 8);
    message->list.generation = take_number(from, 8);
    message->list.patience = take_number(from, 8);
    for (int i = 0; i < COUNCIL_KNOWN; i++) message->list.begun[i] = take_number(from, 8);
    if (message->kind < COUNCIL_JOIN || message->kind >= COUNCIL_KINDS || message->state >= COUNCIL_STATES ||
        message->list.count > COUNCIL_MOST || message->generation > UINT64_MAX / 2 ||
        message->list.generation > UINT64_MAX / 2 || message->list.patience > LONGEST_PATIENCE)
        from->bad = 1;
}

int tcp_word_read(const unsigned char *bytes, size_t size, council_message *message, const char **text)
{
    reader from = {bytes, size, 0};
    take_head(&from, message);
    const unsigned char *topic = take(&from, COUNCIL_TOPIC);
    if (topic) memcpy(message->topic, topic, COUNCIL_TOPIC);
    take_address(&from, 1, message->to);
    take_seat(&from, message->state == COUNCIL_READY, &message->seat);
    for (int i = 0; i < message->list.count && !from.bad; i++) take_seat(&from, 1, &message->list.seats[i]);
    *text = (const char *)from.at;
    return !from.bad;
}
