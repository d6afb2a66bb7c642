#include "stage_line.h"
#include "error.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tw_status stage_wire_open(tw_comm *comm, stage_wire *wire)
{
    *wire = (stage_wire){.comm = comm, .ops = {.struct_size = sizeof wire->ops}};
    return tw_comm_lend(comm, &wire->ops, &wire->self);
}

/* ---- values ---- */

#define HALF_LARGEST 0x477fe000u /* 65504 */
#define HALF_NORMAL 0x38800000u  /* 2^-14, below which steps are of 2^-24 */
#define SINGLE_INFINITY 0x7f800000u

uint16_t stage_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > SINGLE_INFINITY) return sign | 0x7e00;
    if (bits == SINGLE_INFINITY) return sign | 0x7c00;
    if (bits > HALF_LARGEST) return sign | 0x7bff;
    if (bits < HALF_NORMAL) return (uint16_t)(sign | lrintf(fabsf(value) * 0x1p24f));
    bits += 0xfff + (bits >> 13 & 1); /* ties to even */
    return (uint16_t)(sign | (bits - 0x38000000) >> 13);
}

float stage_single(uint16_t half)
{
    const uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
    float value;
    uint32_t bits = (exponent + 112) << 23 | fraction << 13;
    if (exponent == 31) bits = SINGLE_INFINITY | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    if (exponent == 0) value = (float)fraction * 0x1p-24f;
    return half & 0x8000 ? -value : value;
}

const char *const stage_values_names[STAGE_VALUES] = {"fp32", "fp16", "fp8"};

static size_t bytes_of(stage_values values, size_t count)
{
    if (values == STAGE_FP8) return tw_fp8_bytes(count);
    return count * (values == STAGE_FP16 ? sizeof(uint16_t) : sizeof(float));
}

static void encode(stage_values values, const float *x, size_t count, unsigned char *bytes)
{
    if (values == STAGE_FP32) memcpy(bytes, x, count * sizeof *x);
    if (values == STAGE_FP8) tw_fp8_encode(x, count, bytes);
    for (size_t i = 0; values == STAGE_FP16 && i < count; i++) {
        const uint16_t half = stage_half(x[i]);
        memcpy(bytes + i * sizeof half, &half, sizeof half);
    }
}

static void decode(stage_values values, const unsigned char *bytes, size_t count, float *x)
{
    if (values == STAGE_FP32) memcpy(x, bytes, count * sizeof *x);
    if (values == STAGE_FP8) tw_fp8_decode(bytes, count, x);
    for (size_t i = 0; values == STAGE_FP16 && i < count; i++) {
        uint16_t half;
        memcpy(&half, bytes + i * sizeof half, sizeof half);
        x[i] = stage_single(half);
    }
}

/* ---- waiting ---- */

enum { NAPS = 8 /* a wait of the whole timeout */ };
#define DEFAULT_PATIENCE 1800.0 /* of tw_comm_set_patience, where a peer's process answers */

/* The longest that a peer may be silent, and that it is waited for while it lives, as tw_comm_set_patience says. */
static tw_status await(const stage_line *line, void *request)
{
    const stage_wire *w = line->wire;
    const int hears = w->ops.signs != NULL;
    const double timeout = tw_comm_timeout(w->comm), set = tw_comm_patience(w->comm);
    const double patience = fmax(timeout, set > 0 ? set : hears ? DEFAULT_PATIENCE : timeout);
    double silence = 0, waited = 0;
    uint64_t heard = hears ? w->ops.signs(w->self, line->peer, 0) : 0;
    while (!w->ops.poll(w->self, request, timeout / NAPS)) {
        const uint64_t now = hears ? w->ops.signs(w->self, line->peer, 1) : 0;
        waited += timeout / NAPS;
        silence = now != heard ? 0 : silence + timeout / NAPS;
        heard = now;
        if (waited < patience && (!hears || silence < timeout)) continue;
        return tw_fail(TW_ERROR_PEER,
                       "stage %d of the pipeline did not answer stage %d within %g seconds: where it may be busy for "
                       "longer, set a longer --timeout or --patience",
                       line->peer, tw_comm_rank(w->comm), waited);
    }
    return TW_OK;
}

/* Whatever the outcome, nothing is under way in the slot. */
static tw_status take(stage_line *line, stage_slot *slot, size_t *size, uint32_t *check)
{
    char text[512];
    stage_wire *w = line->wire;
    const double begun = tw_clock();
    const tw_status waited = await(line, slot->request);
    w->seconds += tw_clock() - begun;
    if (waited != TW_OK) snprintf(text, sizeof text, "%s", tw_last_error());
    const tw_status taken = w->ops.wait(w->self, slot->request, 0, size, check);
    slot->request = NULL;
    return waited != TW_OK ? tw_fail(waited, "%s", text) : taken;
}

static tw_status reserve(stage_slot *slot, size_t size)
{
    if (size <= slot->room) return TW_OK;
    free(slot->bytes);
    slot->room = 0;
    slot->bytes = malloc(size);
    if (!slot->bytes) return tw_fail(TW_ERROR_MEMORY, "no memory for a message of %zu bytes", size);
    slot->room = size;
    return TW_OK;
}

/* ---- sending ---- */

static tw_status make_free(stage_line *line, stage_slot *slot)
{
    size_t size;
    uint32_t check;
    return slot->request ? take(line, slot, &size, &check) : TW_OK;
}

tw_status stage_line_send(stage_line *line, stage_values values, const float *x, size_t count, const stage_note *note)
{
    static const stage_note none;
    stage_wire *w = line->wire;
    stage_slot *slot = &line->slots[line->turn % STAGE_SLOTS];
    const size_t body = bytes_of(values, count), size = body + sizeof *note;
    TW_TRY(make_free(line, slot));
    TW_TRY(reserve(slot, size));
    encode(values, x, count, slot->bytes);
    memcpy(slot->bytes + body, note ? note : &none, sizeof *note);
    TW_TRY(w->ops.start_send(w->self, line->peer, line->channel, slot->bytes, size, tw_crc32c(0, slot->bytes, size),
                             &slot->request));
    line->turn++;
    w->sent += (double)size;
    w->sent_as_fp32 += (double)(count * sizeof *x + sizeof *note);
    return TW_OK;
}

tw_status stage_line_flush(stage_line *line)
{
    for (uint64_t i = 0; i < STAGE_SLOTS; i++)
        TW_TRY(make_free(line, &line->slots[(line->turn + i) % STAGE_SLOTS])); /* the oldest first */
    return TW_OK;
}

/* ---- receiving ---- */

tw_status stage_line_ask(stage_line *line, stage_values values, size_t count)
{
    stage_wire *w = line->wire;
    stage_slot *slot = &line->slots[line->turn % STAGE_SLOTS];
    const size_t size = bytes_of(values, count) + sizeof(stage_note);
    if (slot->request) return TW_OK;
    TW_TRY(reserve(slot, size));
    return w->ops.start_recv(w->self, line->peer, line->channel, slot->bytes, size, &slot->request);
}

tw_status stage_line_receive(stage_line *line, stage_values values, float *x, size_t count, stage_note *note)
{
    const size_t body = bytes_of(values, count), size = body + sizeof *note;
    stage_slot *slot = &line->slots[line->turn % STAGE_SLOTS];
    size_t got = size;
    uint32_t check;
    TW_TRY(stage_line_ask(line, values, count));
    TW_TRY(take(line, slot, &got, &check));
    line->turn++;
    line->wire->received += (double)got;
    if (got != size || tw_crc32c(0, slot->bytes, got) != check)
        return tw_fail(TW_ERROR_PACKET, "stage %d of the pipeline sent %zu bytes, and %zu came to stage %d%s",
                       line->peer, size, got, tw_comm_rank(line->wire->comm), got == size ? ", but not the same" : "");
    decode(values, slot->bytes, count, x);
    if (note) memcpy(note, slot->bytes + body, sizeof *note);
    return TW_OK;
}

/* Who closes it after a failure tells of that one. */
static void take_back(stage_line *line, stage_slot *slot)
{
    char told[512];
    size_t size;
    uint32_t check;
    snprintf(told, sizeof told, "%s", tw_last_error());
    tw_status status = line->wire->ops.wait(line->wire->self, slot->request, 0, &size, &check);
    if (status != TW_OK) (void)tw_fail(status, "%s", told);
}

void stage_line_close(stage_line *line)
{
    for (size_t i = 0; i < STAGE_SLOTS; i++) {
        stage_slot *slot = &line->slots[i];
        if (slot->request) take_back(line, slot);
        free(slot->bytes);
        *slot = (stage_slot){0};
    }
}
