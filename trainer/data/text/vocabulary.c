/* The tokens stand in one array of bytes, found by a hash table with open addressing. */
#include "vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "room.h"

struct vocabulary {
    text_unit unit;
    piece_set *model; /* of pieces */
    char *bytes;      /* every token with a zero byte behind it */
    size_t byte_count, byte_capacity;
    size_t *offsets; /* of the tokens in `bytes` */
    size_t count, capacity;
    uint32_t *slots; /* ids, or VOCABULARY_NONE where free; a power of two, at most half of them taken */
    size_t slot_count;
    uint64_t key; /* of their hash */
};

static tw_status no_memory(void)
{
    return tw_fail(TW_ERROR_MEMORY, "no memory for the vocabulary");
}

/* ---- the hash ---------------------------------------------------------------------------------------------------- */

enum { PART = 7 }; /* bytes, which are less than the prime */

static const uint64_t prime = ((uint64_t)1 << 61) - 1;

__extension__ typedef unsigned __int128 product;

/* Modulo the prime, though not always below it. */
static uint64_t times(uint64_t a, uint64_t b)
{
    const product whole = (product)a * b;
    const uint64_t sum = ((uint64_t)whole & prime) + (uint64_t)(whole >> 61);
    return (sum & prime) + (sum >> 61);
}

/* A polynomial of the token, at a place that nobody knows (Carter and Wegman, JCSS 1979): who writes a text cannot
 * choose words that share their slot. */
static uint64_t vocabulary_hash(const vocabulary *v, const char *token, size_t length)
{
    uint64_t sum = times(length, v->key);
    for (size_t at = 0; at < length; at += PART) {
        uint64_t part = 0;
        memcpy(&part, token + at, length - at < PART ? length - at : PART);
        sum = times(sum + part, v->key);
    }
    return sum;
}

static void draw_key(vocabulary *v)
{
    if (getentropy(&v->key, sizeof v->key) != 0) v->key = (uint64_t)(1e9 * tw_clock());
    v->key = v->key % (prime - 1) + 1;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static tw_status allocate_slots(vocabulary *v, size_t count)
{
    uint32_t *slots = malloc(count * sizeof *slots);
    if (!slots) return no_memory();
    memset(slots, 0xff, count * sizeof *slots);
    free(v->slots);
    v->slots = slots;
    v->slot_count = count;
    return TW_OK;
}

tw_status vocabulary_create(text_unit unit, vocabulary **out)
{
    vocabulary *v = calloc(1, sizeof *v);
    if (!v) return no_memory();
    v->unit = unit;
    draw_key(v);
    tw_status status = allocate_slots(v, 1024);
    if (status == TW_OK)
        *out = v;
    else
        vocabulary_destroy(v);
    return status;
}

void vocabulary_destroy(vocabulary *v)
{
    if (!v) return;
    pieces_destroy(v->model);
    free(v->bytes);
    free(v->offsets);
    free(v->slots);
    free(v);
}

text_unit vocabulary_unit(const vocabulary *v)
{
    return v->unit;
}

size_t vocabulary_count(const vocabulary *v)
{
    return v->count;
}

const char *vocabulary_token(const vocabulary *v, uint32_t id)
{
    return v->bytes + v->offsets[id];
}

static bool is_token(const vocabulary *v, uint32_t id, const char *token, size_t length)
{
    size_t end = id + 1 < v->count ? v->offsets[id + 1] : v->byte_count;
    return end - v->offsets[id] == length + 1 && memcmp(vocabulary_token(v, id), token, length) == 0;
}

/* The slot of the token, or the free one where it belongs. */
static uint32_t *find_slot(const vocabulary *v, const char *token, size_t length)
{
    size_t at = (size_t)vocabulary_hash(v, token, length) & (v->slot_count - 1);
    while (v->slots[at] != VOCABULARY_NONE && !is_token(v, v->slots[at], token, length))
        at = (at + 1) & (v->slot_count - 1);
    return &v->slots[at];
}

static tw_status grow_slots(vocabulary *v)
{
    TW_TRY(allocate_slots(v, 2 * v->slot_count));
    for (uint32_t id = 0; id < v->count; id++) {
        const char *token = vocabulary_token(v, id);
        *find_slot(v, token, strlen(token)) = id;
    }
    return TW_OK;
}

static tw_status vocabulary_append(vocabulary *v, const char *token, size_t length)
{
    if (v->count == INT32_MAX) return tw_fail(TW_ERROR_ARGUMENT, "more different tokens than there are ids");
    if (!room_make(&v->bytes, &v->byte_capacity, v->byte_count + length + 1, 1) ||
        !room_make(&v->offsets, &v->capacity, v->count + 1, sizeof *v->offsets))
        return no_memory();
    memcpy(v->bytes + v->byte_count, token, length);
    v->bytes[v->byte_count + length] = 0;
    v->offsets[v->count++] = v->byte_count;
    v->byte_count += length + 1;
    return TW_OK;
}

tw_status vocabulary_add(vocabulary *v, const char *token, size_t length, uint32_t *id)
{
    uint32_t *slot = find_slot(v, token, length);
    *id = *slot;
    if (*slot != VOCABULARY_NONE) return TW_OK;
    if (2 * (v->count + 1) > v->slot_count) {
        TW_TRY(grow_slots(v));
        slot = find_slot(v, token, length);
    }
    TW_TRY(vocabulary_append(v, token, length));
    *slot = *id = (uint32_t)(v->count - 1);
    return TW_OK;
}

uint32_t vocabulary_find(const vocabulary *v, const char *token, size_t length)
{
    return *find_slot(v, token, length);
}

uint32_t vocabulary_find_or_unknown(const vocabulary *v, const char *token, size_t length)
{
    uint32_t id = vocabulary_find(v, token, length);
    return id != VOCABULARY_NONE ? id : vocabulary_find(v, TOKEN_UNKNOWN, strlen(TOKEN_UNKNOWN));
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static tw_status add_ids(size_t count, vocabulary *v)
{
    for (size_t i = 0; i < count; i++) {
        char text[24];
        uint32_t id;
        TW_TRY(vocabulary_add(v, text, (size_t)snprintf(text, sizeof text, "%zu", i), &id));
    }
    return TW_OK;
}

tw_status vocabulary_of_ids(size_t count, vocabulary **out)
{
    vocabulary *v;
    if (count < 2 || count > VOCABULARY_IDS_MOST)
        return tw_fail(TW_ERROR_ARGUMENT, "a vocabulary of %zu ids; there may be 2 to %d", count, VOCABULARY_IDS_MOST);
    TW_TRY(vocabulary_create(TEXT_IDS, &v));
    tw_status status = add_ids(count, v);
    if (status == TW_OK)
        *out = v;
    else
        vocabulary_destroy(v);
    return status;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static tw_status add_pieces(const piece_table *table, vocabulary *v)
{
    for (size_t i = 0; i < table->count; i++) {
        uint32_t id;
        TW_TRY(vocabulary_add(v, table->pieces[i].text, strlen(table->pieces[i].text), &id));
        if (id != i) return tw_fail(TW_ERROR_FORMAT, "its pieces %u and %zu are the same", id, i);
    }
    return TW_OK;
}

tw_status vocabulary_of_pieces(piece_set *model, vocabulary **out)
{
    vocabulary *v;
    tw_status status = vocabulary_create(TEXT_PIECES, &v);
    if (status != TW_OK) {
        pieces_destroy(model);
        return status;
    }
    v->model = model;
    status = add_pieces(pieces_table(model), v);
    if (status == TW_OK)
        *out = v;
    else
        vocabulary_destroy(v);
    return status;
}

const piece_set *vocabulary_pieces(const vocabulary *v)
{
    return v->model;
}

uint32_t vocabulary_begin(const vocabulary *v)
{
    if (v->model) return pieces_begin(v->model);
    const char *end = v->unit == TEXT_WORDS ? TOKEN_END_OF_LINE : "\n";
    return vocabulary_find(v, end, strlen(end));
}
