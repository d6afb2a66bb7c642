#include "long_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "regular_file.h"

enum { STRIDE = 4096, CHUNK = 1 << 15, WINDOW_MOST = 1 << 20 };

/* ---- bytes ---- */

/* Other bytes than those that were checked and numbered would be another run. */
static tw_status check_unchanged(const long_text *t)
{
    struct stat about;
    if (fstat(t->descriptor, &about) != 0) return tw_fail(TW_ERROR_IO, "%s: %s", t->path, strerror(errno));
    if (about.st_mtim.tv_sec == t->changed.tv_sec && about.st_mtim.tv_nsec == t->changed.tv_nsec) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s: has changed while it was read", t->path);
}

static tw_status read_at(const long_text *t, uint64_t offset, char *bytes, size_t wanted, size_t *got)
{
    for (*got = 0; *got < wanted;) {
        ssize_t read = pread(t->descriptor, bytes + *got, wanted - *got, (off_t)(offset + *got));
        if (read < 0 && errno == EINTR) continue;
        if (read < 0) return tw_fail(TW_ERROR_IO, "%s: cannot read it: %s", t->path, strerror(errno));
        if (read == 0) return tw_fail(TW_ERROR_IO, "%s: has become shorter while it was read", t->path);
        *got += (size_t)read;
    }
    return check_unchanged(t);
}

tw_status long_text_open(const char *path, uint64_t begin, uint64_t end, long_text **out)
{
    long_text *t = calloc(1, sizeof *t);
    if (!t) return tw_fail(TW_ERROR_MEMORY, "%s: no memory for a text", path);
    t->descriptor = -1;
    t->begin = begin;
    t->end = end;
    snprintf(t->path, sizeof t->path, "%s", path);
    struct stat about = {0};
    tw_status status = regular_file_open(path, O_RDONLY, &t->descriptor);
    if (status == TW_OK && fstat(t->descriptor, &about) == 0) t->changed = about.st_mtim;
    if (status == TW_OK)
        *out = t;
    else
        long_text_close(t);
    return status;
}

void long_text_close(long_text *t)
{
    if (!t) return;
    if (t->descriptor >= 0) close(t->descriptor);
    free(t->offsets);
    free(t);
}

/* ---- bounds ---- */

static tw_status find_bounds(const long_text *t, uint64_t *begin, uint64_t *end)
{
    static const char mark[] = "\xEF\xBB\xBF";
    char first[3];
    size_t got;
    struct stat about;
    if (fstat(t->descriptor, &about) != 0) return tw_fail(TW_ERROR_IO, "%s: %s", t->path, strerror(errno));
    *begin = 0;
    *end = (uint64_t)about.st_size;
    if (*end < sizeof first) return TW_OK;
    TW_TRY(read_at(t, 0, first, sizeof first, &got));
    if (memcmp(first, mark, sizeof first) == 0) *begin = sizeof first;
    return TW_OK;
}

tw_status long_text_bounds(const char *path, uint64_t *begin, uint64_t *end)
{
    long_text *t;
    TW_TRY(long_text_open(path, 0, 0, &t));
    tw_status status = find_bounds(t, begin, end);
    long_text_close(t);
    return status;
}

/* The first such byte in [from, to), or `to`. */
static tw_status find_byte(const long_text *t, char byte, uint64_t from, uint64_t to, uint64_t *at)
{
    static const size_t chunk = CHUNK;
    char *bytes = malloc(chunk);
    tw_status status = bytes ? TW_OK : tw_fail(TW_ERROR_MEMORY, "%s: no memory to read it", t->path);
    for (*at = to; status == TW_OK && from < to; from += chunk) {
        size_t got = 0, wanted = to - from < chunk ? (size_t)(to - from) : chunk;
        status = read_at(t, from, bytes, wanted, &got);
        const char *found = status == TW_OK ? memchr(bytes, byte, got) : NULL;
        if (!found) continue;
        *at = from + (uint64_t)(found - bytes);
        break;
    }
    free(bytes);
    return status;
}

/* Out of the middle of a character, which has four bytes at most. */
static tw_status leave_character(const long_text *t, uint64_t *at, uint64_t end)
{
    char bytes[4];
    size_t got, wanted = end - *at < sizeof bytes ? (size_t)(end - *at) : sizeof bytes;
    TW_TRY(read_at(t, *at, bytes, wanted, &got));
    for (size_t i = 0; i < got && ((unsigned char)bytes[i] & 0xC0) == 0x80; i++) ++*at;
    return TW_OK;
}

/* Out of the midst of a word. */
static tw_status leave_word(const long_text *t, uint64_t *at)
{
    char bytes[TOKEN_WORD];
    size_t got, wanted = t->end - *at < sizeof bytes ? (size_t)(t->end - *at) : sizeof bytes;
    if (*at == t->begin) return TW_OK;
    TW_TRY(read_at(t, *at - 1, bytes, wanted, &got));
    *at += token_word_rest(bytes, got);
    return TW_OK;
}

static tw_status cut_at(const long_text *t, uint64_t mark, uint64_t near, text_unit unit, uint64_t *at)
{
    static const char ends[] = {'\n', ' '};
    for (size_t i = 0; i < sizeof ends; i++) {
        TW_TRY(find_byte(t, ends[i], mark, mark + near, at));
        if (*at == mark + near) continue;
        ++*at;
        return TW_OK;
    }
    *at = mark;
    TW_TRY(leave_character(t, at, t->end));
    return unit == TEXT_WORDS ? leave_word(t, at) : TW_OK;
}

tw_status long_text_cut(const char *path, uint64_t begin, uint64_t end, double share, text_unit unit, uint64_t *at)
{
    long_text *t;
    uint64_t size = end - begin;
    TW_TRY(long_text_open(path, begin, end, &t));
    tw_status status = cut_at(t, begin + (uint64_t)((double)size * share), size / 40, unit, at);
    long_text_close(t);
    return status;
}

/* ---- a window ---- */

void text_window_release(text_window *w)
{
    free(w->bytes);
    *w = (text_window){0};
}

static void seek(text_window *w, const long_text *t, uint64_t offset, uint64_t token)
{
    w->text = t;
    w->offset = offset;
    w->token = token;
    w->used = w->at = w->checked = 0;
}

/* For what is said of a fault: the file is read once more. */
static uint64_t long_text_line_of(const long_text *t, uint64_t offset)
{
    char bytes[4096];
    uint64_t lines = 1;
    size_t got = 0;
    for (uint64_t from = 0; from < offset; from += got) {
        size_t wanted = offset - from < sizeof bytes ? (size_t)(offset - from) : sizeof bytes;
        if (read_at(t, from, bytes, wanted, &got) != TW_OK) break;
        for (size_t i = 0; i < got; i++) lines += bytes[i] == '\n';
    }
    return lines;
}

static uint64_t line_before(const text_window *w)
{
    return long_text_line_of(w->text, w->offset + w->at - 1);
}

static bool at_end(const text_window *w)
{
    return w->offset + w->used == w->text->end;
}

static tw_status long_text_make_room(text_window *w)
{
    w->offset += w->at;
    w->used -= w->at;
    w->checked -= w->at;
    if (w->at > 0) memmove(w->bytes, w->bytes + w->at, w->used);
    w->at = 0;
    if (w->used + CHUNK <= w->capacity) return TW_OK;
    if (w->used >= WINDOW_MOST)
        return tw_fail(TW_ERROR_FORMAT, "%s: line %llu: more than a MiB without a space; is it a text?", w->text->path,
                       (unsigned long long)long_text_line_of(w->text, w->offset));
    size_t capacity = w->used + (size_t)2 * CHUNK;
    char *bytes = realloc(w->bytes, capacity);
    if (!bytes) return tw_fail(TW_ERROR_MEMORY, "%s: no memory to read it", w->text->path);
    w->bytes = bytes;
    w->capacity = capacity;
    return TW_OK;
}

/* A character may end with bytes that have not been read yet. */
static tw_status check_bytes(text_window *w)
{
    w->checked += utf8_prefix(w->bytes + w->checked, w->used - w->checked);
    size_t rest = w->used - w->checked;
    unsigned char byte = rest ? (unsigned char)w->bytes[w->checked] : 0;
    if (rest == 0 || (rest < 4 && byte >= 0xC2 && !at_end(w))) return TW_OK;
    uint64_t at = w->offset + w->checked;
    return token_refuse_byte(w->text->path, long_text_line_of(w->text, at), at, byte);
}

static tw_status long_text_fill(text_window *w)
{
    size_t got = 0;
    TW_TRY(long_text_make_room(w));
    uint64_t left = w->text->end - w->offset - w->used;
    TW_TRY(read_at(w->text, w->offset + w->used, w->bytes + w->used, left < CHUNK ? (size_t)left : CHUNK, &got));
    w->used += got;
    return check_bytes(w);
}

/* The next token; *length 0 at the text's end. One that touches the end of what was read may go on behind it. */
static tw_status next_token(text_window *w, const char **token, size_t *length)
{
    text_unit unit = vocabulary_unit(w->text->known);
    for (;;) {
        token_reader reader = {NULL, NULL, unit};
        if (w->checked > w->at) reader = (token_reader){w->bytes + w->at, w->bytes + w->checked, unit};
        bool found = w->checked > w->at && token_next(&reader, token, length);
        bool whole = found && (unit == TEXT_CHARACTERS || reader.at < reader.end || at_end(w));
        if (whole) w->at = (size_t)(reader.at - w->bytes);
        if (whole) w->token++;
        if (whole) return TW_OK;
        *length = 0;
        if (at_end(w)) return TW_OK;
        TW_TRY(long_text_fill(w));
    }
}

/* ---- passes ---- */

static tw_status note_offset(long_text *t, uint64_t offset)
{
    size_t index = t->count / STRIDE;
    if (t->count % STRIDE != 0) return TW_OK;
    if ((index & (index - 1)) == 0) { /* room for twice as many */
        uint64_t *offsets = realloc(t->offsets, (2 * index + 1) * sizeof *offsets);
        if (!offsets) return tw_fail(TW_ERROR_MEMORY, "%s: no memory for the places of its tokens", t->path);
        t->offsets = offsets;
    }
    t->offsets[index] = offset;
    return TW_OK;
}

typedef tw_status (*token_visitor)(void *context, const text_window *w, const char *token, size_t length);

/* Every token once, from the first to the last. */
static tw_status visit(long_text *t, text_window *w, token_visitor visitor, void *context)
{
    seek(w, t, t->begin, 0);
    for (t->count = 0;; t->count++) {
        const char *token;
        size_t length;
        TW_TRY(note_offset(t, w->offset + w->at));
        TW_TRY(next_token(w, &token, &length));
        if (length == 0) break;
        TW_TRY(visitor(context, w, token, length));
    }
    if (t->count > 0) return TW_OK;
    uint64_t begin, end;
    TW_TRY(find_bounds(t, &begin, &end));
    if (end == 0) return tw_fail(TW_ERROR_FORMAT, "%s: empty", t->path);
    return tw_fail(TW_ERROR_FORMAT, "%s: line %llu, byte offset %llu: no text from there on", t->path,
                   (unsigned long long)long_text_line_of(t, t->begin), (unsigned long long)t->begin);
}

static tw_status visit_all(long_text *t, token_visitor visitor, void *context)
{
    text_window w = {0};
    tw_status status = visit(t, &w, visitor, context);
    text_window_release(&w);
    return status;
}

typedef struct meeting {
    vocabulary *met;
    uint64_t *often;
    size_t room, limit;
} meeting;

static tw_status meet(void *context, const text_window *w, const char *token, size_t length)
{
    meeting *m = context;
    uint32_t id;
    TW_TRY(vocabulary_add(m->met, token, length, &id));
    if (id >= m->limit)
        return tw_fail(TW_ERROR_FORMAT, "%s: line %llu: more than %zu different %s up to there; is it a text?",
                       w->text->path, (unsigned long long)line_before(w), m->limit,
                       text_unit_name(vocabulary_unit(w->text->known)));
    if (id >= m->room) {
        uint64_t *often = realloc(m->often, (2 * (size_t)id + 64) * sizeof *often);
        if (!often) return tw_fail(TW_ERROR_MEMORY, "no memory to count %u different tokens", id);
        memset(often + m->room, 0, (2 * (size_t)id + 64 - m->room) * sizeof *often);
        m->often = often;
        m->room = 2 * (size_t)id + 64;
    }
    m->often[id]++;
    return TW_OK;
}

tw_status long_text_meet(long_text *t, size_t limit, vocabulary *met, uint64_t **often)
{
    meeting m = {.met = met, .limit = limit};
    t->known = met;
    tw_status status = visit_all(t, meet, &m);
    *often = m.often;
    return status;
}

typedef struct numbering {
    const vocabulary *known;
    long_text *text;
    uint32_t sum;
} numbering;

static tw_status number(void *context, const text_window *w, const char *token, size_t length)
{
    numbering *n = context;
    uint32_t id = vocabulary_find(n->known, token, length);
    if (id == VOCABULARY_NONE) {
        id = vocabulary_find_or_unknown(n->known, token, length);
        n->text->unknown++;
    }
    n->sum = tw_crc32c(n->sum, &id, sizeof id);
    if (id != VOCABULARY_NONE) return TW_OK;
    return token_refuse_unknown(w->text->path, line_before(w), token, length, vocabulary_unit(n->known));
}

tw_status long_text_number(long_text *t, const vocabulary *known, uint32_t *sum)
{
    numbering n = {.known = known, .text = t};
    t->known = known;
    t->unknown = 0;
    tw_status status = visit_all(t, number, &n);
    *sum = n.sum;
    return status;
}

/* ---- reading ---- */

static tw_status skip_to(const long_text *t, text_window *w, size_t first)
{
    const char *token;
    size_t length;
    if (w->text != t || w->token > first || first - w->token > STRIDE)
        seek(w, t, t->offsets[first / STRIDE], first / STRIDE * STRIDE);
    while (w->token < first) {
        TW_TRY(next_token(w, &token, &length));
        if (length == 0) return tw_fail(TW_ERROR_IO, "%s: has changed while it was read", t->path);
    }
    return TW_OK;
}

tw_status long_text_read(const long_text *t, text_window *w, size_t first, size_t count, uint32_t *ids)
{
    const char *token;
    size_t length;
    TW_TRY(skip_to(t, w, first));
    for (size_t i = 0; i < count; i++) {
        TW_TRY(next_token(w, &token, &length));
        ids[i] = length ? vocabulary_find_or_unknown(t->known, token, length) : VOCABULARY_NONE;
        if (ids[i] == VOCABULARY_NONE) return tw_fail(TW_ERROR_IO, "%s: has changed while it was read", t->path);
    }
    return TW_OK;
}
