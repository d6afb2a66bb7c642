/* What members of a group can say to one of them, and strangers where there is no key: any messages in any order, and
 * time that passes between them. Eight bytes are one of these. Whatever was said, little is answered, and every wait of
 * a member ends, though all others go on to say that they are there. */
#include "council.h"
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

enum { NAMES = 4, RECORD = 8, PASSES = COUNCIL_KINDS, MEETS, OPERATIONS, ANSWERS = 4 * COUNCIL_MOST };
#define GRACE 5.0
#define PATIENCE 12.0
#define LONGEST (3 * (PATIENCE + GRACE))

static const char *const names[NAMES] = {"a", "b", "c", "d"};
static int said; /* since the last one was heard */

static void say(void *context, const council_message *message)
{
    const council *me = context;
    said++;
    must(strcmp(message->to, me->own.name) != 0 && message->list.count <= COUNCIL_MOST);
}

static council_seat seat_of(unsigned number, uint64_t rounds)
{
    council_seat seat = {.door = "door", .rounds = rounds};
    snprintf(seat.name, sizeof seat.name, "%s", names[number % NAMES]);
    return seat;
}

/* Small ones, and those beside powers of two. */
static uint64_t wide(uint8_t byte)
{
    return byte < 128 ? byte : ((uint64_t)1 << (byte & 63)) - (byte >> 6 & 1);
}

/* No generation is higher: see tcp_word_read. */
static uint64_t generation_of(uint8_t byte)
{
    uint64_t number = wide(byte);
    return number <= UINT64_MAX / 2 ? number : UINT64_MAX / 2;
}

/* The seats whose bits are set; of more bits than names the same ones come twice. */
static council_list list_of(uint8_t mask, uint8_t generation)
{
    council_list list = {.generation = generation_of(generation)};
    for (unsigned i = 0; i < 8; i++)
        if (mask >> i & 1) list.seats[list.count++] = seat_of(i, i);
    return list;
}

static void hear(council *me, const uint8_t data[RECORD], double now)
{
    static council_message message;
    message = (council_message){.kind = (council_kind)(data[0] % OPERATIONS),
                                .state = (council_state)(data[1] / NAMES % COUNCIL_STATES),
                                .asks = data[1] >> 6 & 1,
                                .seat = seat_of(data[1], data[2]),
                                .generation = generation_of(data[3]),
                                .ballot = wide(data[4]),
                                .accepted = wide(data[5]),
                                .list = list_of(data[6], data[7])};
    if (data[1] < 128) snprintf(message.to, sizeof message.to, "%s", me->own.name);
    said = 0;
    council_hear(me, &message, now);
    must(said <= ANSWERS);
}

static void do_one(council *me, const uint8_t data[RECORD], double *now)
{
    const unsigned which = data[0] % OPERATIONS;
    if (which == 0) council_lose(me, names[data[1] % NAMES], *now);
    if (which == PASSES) council_tick(me, *now += data[1] / 64.0);
    if (which == MEETS) council_meet(me, "door", data[2], data[1] & 1, *now);
    if (which > 0 && which < COUNCIL_KINDS) hear(me, data, *now);
    must(me->place < me->list.count && me->list.count <= COUNCIL_MOST && me->visitor_count <= COUNCIL_MOST);
    must(me->place < 0 || strcmp(me->list.seats[me->place].name, me->own.name) == 0);
    (void)council_has_visitors(me, *now);
}

static void wait_for_end(council *me, double now)
{
    const council_message told = {.kind = COUNCIL_STATUS, .state = COUNCIL_READY};
    static council_message message;
    council_meet(me, "door", 1, 0, now);
    for (double end = now + LONGEST; now < end; now += COUNCIL_BEAT) {
        for (unsigned i = 0; i < NAMES; i++) {
            message = told;
            message.seat = seat_of(i, 1);
            message.generation = me->list.generation + 1;
            snprintf(message.to, sizeof message.to, "%s", me->own.name);
            if (strcmp(message.seat.name, me->own.name) != 0) council_hear(me, &message, now);
        }
        council_tick(me, now);
    }
    must(me->verdict != COUNCIL_PENDING || (me->place < 0 && me->list.generation == 0)); /* whose caller has patience */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static council me;
    double now = 0;
    council_settings settings = {.grace = GRACE, .patience = PATIENCE, .send = say, .context = &me};
    if (size < 1) return 0;
    settings.quorum = data[0] / NAMES % 3;
    council_begin(&me, &settings, names[data[0] % NAMES], now);
    for (size_t at = 1; size - at >= RECORD; at += RECORD) do_one(&me, data + at, &now);
    wait_for_end(&me, now);
    return 0;
}
