#include "piece_table.h"

#include "code_point.h"
#include "error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- protobuf ---------------------------------------------------------------------------------------------------- */

typedef struct message {
    const uint8_t *at, *end;
} message;

typedef struct field {
    uint64_t number, value; /* the value of one that is a number; of 4 bytes, their bits */
    message inside;         /* of one that has a length */
} field;

static bool read_number(message *m, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        *value |= (uint64_t)(*m->at & 127) << shift;
        if (*m->at++ < 128) return true;
    }
    return false;
}

static bool skip(message *m, uint64_t bytes)
{
    if (bytes > (uint64_t)(m->end - m->at)) return false;
    m->at += bytes;
    return true;
}

/* Groups, which nobody writes any more, are refused. */
static bool read_value(message *m, unsigned form, field *f)
{
    const uint8_t *start = m->at;
    if (form == 0) return read_number(m, &f->value);
    if (form == 1) return skip(m, 8);
    if (form == 2) {
        if (!read_number(m, &f->value)) return false;
        start = m->at;
        if (!skip(m, f->value)) return false;
        f->inside = (message){start, m->at};
        return true;
    }
    if (form != 5 || !skip(m, 4)) return false;
    for (int i = 3; i >= 0; i--) f->value = f->value << 8 | start[i];
    return true;
}

/* The next field of a message that has one; false where it is damaged. */
static bool read_field(message *m, field *f)
{
    uint64_t tag;
    *f = (field){0};
    if (!read_number(m, &tag)) return false;
    f->number = tag >> 3;
    return read_value(m, tag & 7, f);
}

static tw_status refuse_message(void)
{
    return tw_fail(TW_ERROR_FORMAT, "it is no SentencePiece model, or one that is damaged or cut off");
}

/* ---- normalisation ----------------------------------------------------------------------------------------------- */

static uint32_t read_unit(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

enum { UNIT = 4, LEAF = 1 << 8 };

/* A unit of a double-array trie, in Darts-clone's layout, leads to a block of 256, and one with a leaf to a text. */
static bool leads_inside(const uint8_t *units, uint32_t count, uint32_t index, size_t texts)
{
    const uint32_t unit = read_unit(units + (size_t)UNIT * index);
    if (unit >> 31 && index > 0) return true; /* a leaf, from where nothing leads on */
    const uint32_t next = index ^ (unit >> 10) << ((unit & 1 << 9) >> 6);
    if ((next | 255) >= count) return false;
    return !(unit & LEAF) || (read_unit(units + (size_t)UNIT * next) & INT32_MAX) < texts;
}

/* Bytes of a trie, the trie, and the texts that it leads to, each with a zero byte behind it. */
static bool is_sound(message rules)
{
    const size_t size = (size_t)(rules.end - rules.at);
    if (size == 0) return true;
    if (size < UNIT) return false;
    const uint32_t trie = read_unit(rules.at), count = trie / UNIT;
    if (trie % UNIT != 0 || count == 0 || trie >= size - UNIT || rules.end[-1] != 0) return false;
    for (uint32_t i = 0; i < count; i++)
        if (!leads_inside(rules.at + UNIT, count, i, size - UNIT - trie)) return false;
    return true;
}

/* `spec`: that of reading, NULL: that of writing. */
static tw_status read_rules(message m, piece_table *spec)
{
    field f;
    while (m.at < m.end) {
        if (!read_field(&m, &f)) return refuse_message();
        if (f.number == 2 && !is_sound(f.inside))
            return tw_fail(TW_ERROR_FORMAT, "its table of characters to normalise is damaged");
        if (!spec) continue;
        if (f.number == 2) spec->normalises = f.inside.at < f.inside.end;
        if (f.number == 3) spec->prefix = f.value != 0;
        if (f.number == 4) spec->trims = f.value != 0;
        if (f.number == 5) spec->escapes = f.value != 0;
    }
    return TW_OK;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static bool is_byte(const char *text)
{
    char name[8];
    for (unsigned byte = 0; byte < 256; byte++) {
        snprintf(name, sizeof name, "<0x%02X>", byte);
        if (strcmp(name, text) == 0) return true;
    }
    return false;
}

static tw_status check_piece(const word_piece *p, size_t number, size_t size)
{
    char shown[64];
    if (size == 0 || strlen(p->text) != size || !code_point_valid(p->text, size))
        return tw_fail(TW_ERROR_FORMAT, "its piece %zu is \"%s\", which is empty or not text in UTF-8", number,
                       code_point_show(p->text, size, shown, sizeof shown));
    if (p->kind < PIECE_NORMAL || p->kind > PIECE_BYTE || !isfinite(p->score))
        return tw_fail(TW_ERROR_FORMAT, "its piece %zu has a kind or a score that there is not", number);
    if (p->kind == PIECE_BYTE && !is_byte(p->text))
        return tw_fail(TW_ERROR_FORMAT, "its piece %zu is \"%s\", and said to be a byte such as \"<0x0A>\"", number,
                       code_point_show(p->text, size, shown, sizeof shown));
    return TW_OK;
}

/* *text: where the next piece's begins. */
static tw_status read_piece(message m, size_t number, word_piece *p, char **text)
{
    field f;
    message own = {0};
    uint32_t bits = 0;
    *p = (word_piece){*text, 0, PIECE_NORMAL};
    while (m.at < m.end) {
        if (!read_field(&m, &f)) return refuse_message();
        if (f.number == 1) own = f.inside;
        if (f.number == 2) bits = (uint32_t)f.value;
        if (f.number == 3) p->kind = f.value <= PIECE_BYTE ? (piece_kind)f.value : 0;
    }
    const size_t size = own.at ? (size_t)(own.end - own.at) : 0;
    memcpy(&p->score, &bits, sizeof bits);
    if (size > 0) memcpy(*text, own.at, size);
    (*text)[size] = 0;
    *text += size + 1;
    return check_piece(p, number, size);
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

typedef struct reader {
    piece_table *table;
    char *text;         /* where the next piece's begins */
    message begin, end; /* what <s> and </s> are called */
} reader;

static tw_status read_training(message m, reader *r)
{
    field f;
    while (m.at < m.end) {
        if (!read_field(&m, &f)) return refuse_message();
        if (f.number == 3) r->table->way = f.value;
        if (f.number == 24) r->table->suffix = f.value != 0;
        if (f.number == 35) r->table->bytes = f.value != 0;
        if (f.number == 46) r->begin = f.inside;
        if (f.number == 47) r->end = f.inside;
    }
    return TW_OK;
}

static tw_status read_part(const field *f, reader *r)
{
    piece_table *t = r->table;
    if (f->number == 1) return read_piece(f->inside, t->count, &t->pieces[t->count], &r->text);
    if (f->number == 2) return read_training(f->inside, r);
    if (f->number == 3) return read_rules(f->inside, t);
    return f->number == 5 ? read_rules(f->inside, NULL) : TW_OK;
}

static bool is_called(const word_piece *p, message name, const char *usual)
{
    const size_t size = name.at ? (size_t)(name.end - name.at) : strlen(usual);
    return strlen(p->text) == size && memcmp(p->text, name.at ? (const char *)name.at : usual, size) == 0;
}

static void find_special(reader *r)
{
    piece_table *t = r->table;
    t->begin = t->end = t->unknown = PIECE_NONE;
    for (uint32_t i = 0; i < t->count; i++) {
        const word_piece *p = &t->pieces[i];
        if (p->kind == PIECE_UNKNOWN) t->unknown = i;
        if (p->kind != PIECE_CONTROL) continue;
        if (is_called(p, r->begin, "<s>")) t->begin = i;
        if (is_called(p, r->end, "</s>")) t->end = i;
    }
}

static tw_status count_pieces(message m, size_t *count)
{
    field f;
    for (*count = 0; m.at < m.end; *count += f.number == 1)
        if (!read_field(&m, &f)) return refuse_message();
    if (*count >= 2 && *count <= 1 << 22) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "it has %zu pieces; a SentencePiece model has 2 to 4,194,304", *count);
}

static tw_status read_parts(message m, reader *r)
{
    field f;
    while (m.at < m.end) {
        if (!read_field(&m, &f)) return refuse_message();
        TW_TRY(read_part(&f, r));
        r->table->count += f.number == 1;
    }
    find_special(r);
    return TW_OK;
}

tw_status piece_table_read(const uint8_t *bytes, size_t size, piece_table *out)
{
    const message all = {bytes, bytes + size};
    reader r = {.table = out};
    size_t count;
    *out = (piece_table){.way = PIECES_UNIGRAM, .prefix = true, .trims = true, .escapes = true};
    TW_TRY(count_pieces(all, &count));
    out->pieces = calloc(count, sizeof *out->pieces);
    r.text = out->texts = malloc(size + count); /* a zero byte behind each */
    tw_status status =
        out->pieces && out->texts ? read_parts(all, &r) : tw_fail(TW_ERROR_MEMORY, "no memory for %zu pieces", count);
    if (status != TW_OK) piece_table_release(out);
    return status;
}

void piece_table_release(piece_table *t)
{
    free(t->pieces);
    free(t->texts);
    *t = (piece_table){0};
}
