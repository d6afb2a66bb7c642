#include "pieces.h"

#include "error.h"
#include "room.h"
#include "sentencepiece.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct piece_set {
    piece_table table;
    piece_model *model;
    uint8_t *bytes;
    size_t size;
    uint32_t line; /* what ends a line */
    bool keeps;    /* it does so in the model's own reading; else lines are read one by one */
    size_t prefix; /* pieces that stand before a line that is read by itself, and not before one inside a text */
};

/* ---- ends of lines ----------------------------------------------------------------------------------------------- */

static bool is_end(const word_piece *p)
{
    return strcmp(p->text, "\n") == 0 || (p->kind == PIECE_BYTE && strcmp(p->text, "<0x0A>") == 0);
}

/* Lines would not be independent of each other. */
static tw_status check_joins(const piece_table *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (strchr(t->pieces[i].text, '\n') && strlen(t->pieces[i].text) > 1)
            return tw_fail(TW_ERROR_UNSUPPORTED,
                           "its piece %zu goes over the end of a line; models with such pieces are not read", i);
    return TW_OK;
}

/* What the model makes of the end of a line says how it reads lines. */
static tw_status find_lines(piece_set *p)
{
    uint32_t *ids;
    size_t count;
    TW_TRY(piece_model_encode(p->model, "\n", 1, &ids, &count));
    p->keeps = count > 0 && ids[count - 1] < p->table.count && is_end(&p->table.pieces[ids[count - 1]]);
    if (p->keeps) p->prefix = count - 1;
    p->line = p->keeps ? ids[count - 1] : p->table.end;
    free(ids);
    if (p->keeps) return check_joins(&p->table);
    if (p->line != PIECE_NONE) return TW_OK;
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "it has nothing to end a line with: neither bytes that stand for what has no piece "
                   "(byte_fallback) nor a </s>");
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static tw_status open_model(const uint8_t *bytes, size_t size, piece_set *p)
{
    TW_TRY(piece_table_read(bytes, size, &p->table));
    p->bytes = malloc(size);
    if (!p->bytes) return tw_fail(TW_ERROR_MEMORY, "no memory for a SentencePiece model of %zu bytes", size);
    memcpy(p->bytes, bytes, size);
    p->size = size;
    TW_TRY(piece_model_open(bytes, size, &p->model));
    return find_lines(p);
}

tw_status pieces_read(const uint8_t *bytes, size_t size, piece_set **out)
{
    piece_set *p = calloc(1, sizeof *p);
    if (!p) return tw_fail(TW_ERROR_MEMORY, "no memory for a SentencePiece model");
    tw_status status = open_model(bytes, size, p);
    if (status == TW_OK)
        *out = p;
    else
        pieces_destroy(p);
    return status;
}

void pieces_destroy(piece_set *p)
{
    if (!p) return;
    piece_model_close(p->model);
    piece_table_release(&p->table);
    free(p->bytes);
    free(p);
}

const piece_table *pieces_table(const piece_set *p)
{
    return &p->table;
}

const uint8_t *pieces_bytes(const piece_set *p, size_t *size)
{
    *size = p->size;
    return p->bytes;
}

uint32_t pieces_begin(const piece_set *p)
{
    return p->table.begin != PIECE_NONE ? p->table.begin : p->line;
}

/* ---- learning ---------------------------------------------------------------------------------------------------- */

enum { LEARNT = 1 << 26, LINE_MOST = 4096 /* of which one is not read as a whole: what SentencePiece takes at once */ };

/* Lines of a text, each `step`-th of them. */
typedef struct lines {
    const char *at, *end;
    size_t step;
} lines;

static const char *end_of_line(const char *at, const char *end)
{
    const char *found = memchr(at, '\n', (size_t)(end - at));
    return found ? found : end;
}

/* A long line in parts, which end between characters. */
static const char *next_line(void *context, size_t *size)
{
    lines *l = context;
    const char *line = l->at;
    if (line == l->end) return NULL;
    const char *end = end_of_line(line, l->end), *stop = end;
    if (end - line > LINE_MOST)
        for (stop = line + LINE_MOST; ((unsigned char)*stop & 0xC0) == 0x80; stop--) continue;
    *size = (size_t)(stop - line);
    l->at = stop;
    for (size_t i = 0; stop == end && i < l->step && l->at < l->end; i++) {
        const char *behind = end_of_line(l->at, l->end);
        l->at = behind < l->end ? behind + 1 : behind;
    }
    return line;
}

tw_status pieces_train(const char *text, size_t size, size_t count, piece_set **out)
{
    lines all = {text, text + size, size / LEARNT + 1};
    uint8_t *bytes;
    size_t model_size;
    TW_TRY(piece_model_train(next_line, &all, count ? count : PIECES_USUAL, count > 0, &bytes, &model_size));
    tw_status status = pieces_read(bytes, model_size, out);
    free(bytes);
    return status;
}

/* ---- reading and writing ----------------------------------------------------------------------------------------- */

tw_status piece_ids_add(piece_ids *to, const uint32_t *ids, size_t count)
{
    if (!room_make(&to->ids, &to->capacity, to->count + count, sizeof *to->ids))
        return tw_fail(TW_ERROR_MEMORY, "no memory for %zu tokens", to->count + count);
    if (count > 0) memcpy(to->ids + to->count, ids, count * sizeof *ids);
    to->count += count;
    return TW_OK;
}

/* Without the first `left_out` pieces. */
static tw_status encode_part(const piece_set *p, const char *text, size_t size, size_t left_out, piece_ids *to)
{
    uint32_t *ids;
    size_t count;
    TW_TRY(piece_model_encode(p->model, text, size, &ids, &count));
    tw_status status = count > left_out ? piece_ids_add(to, ids + left_out, count - left_out) : TW_OK;
    free(ids);
    return status;
}

/* Each line with the end of the one before it, so that it does not begin a text. */
static tw_status encode_whole(const piece_set *p, const char *text, const char *end, piece_ids *to)
{
    for (const char *at = text; at < end;) {
        const char *stop = end_of_line(at + 1, end);
        TW_TRY(encode_part(p, at, (size_t)(stop - at), at == text ? 0 : p->prefix, to));
        at = stop;
    }
    return TW_OK;
}

static tw_status encode_lines(const piece_set *p, const char *text, const char *end, piece_ids *to)
{
    for (const char *at = text; at < end;) {
        const char *stop = end_of_line(at, end);
        TW_TRY(encode_part(p, at, (size_t)(stop - at), 0, to));
        if (stop < end) TW_TRY(piece_ids_add(to, &p->line, 1));
        at = stop < end ? stop + 1 : end;
    }
    return TW_OK;
}

tw_status pieces_encode(const piece_set *p, const char *text, size_t size, piece_ids *ids)
{
    return p->keeps ? encode_whole(p, text, text + size, ids) : encode_lines(p, text, text + size, ids);
}

/* As the model does it, but that what ends its lines is the end of a line. */
tw_status pieces_decode(const piece_set *p, const uint32_t *ids, size_t count, char **text, size_t *size)
{
    char *whole = NULL;
    FILE *out = open_memstream(&whole, size);
    tw_status status = out ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for a text");
    for (size_t from = 0, to; status == TW_OK && from < count; from = to + 1) {
        char *part;
        size_t part_size;
        for (to = from; to < count && (p->keeps || ids[to] != p->line);) to++;
        status = piece_model_decode(p->model, ids + from, to - from, &part, &part_size);
        if (status != TW_OK) break;
        fwrite(part, 1, part_size, out);
        if (to < count) fputc('\n', out);
        free(part);
    }
    if (out && fclose(out) != 0 && status == TW_OK) status = tw_fail(TW_ERROR_MEMORY, "no memory for a text");
    if (status == TW_OK)
        *text = whole;
    else
        free(whole);
    return status;
}
