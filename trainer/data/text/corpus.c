#include "corpus.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "error.h"
#include "file.h"
#include "regular_file.h"
#include "text_folder.h"
#include "token_ids.h"

enum { LIMIT = 1 << 22 };

/* A file's bytes, or a part of them: [at, end). Lines and offsets in messages count from `start`. */
typedef struct piece {
    const char *path, *start, *at, *end;
} piece;

static size_t line_at(const piece *p, const char *at)
{
    size_t line = 1;
    for (const char *c = p->start; c < at; c++) line += *c == '\n';
    return line;
}

/* ---- bytes ---- */

static tw_status check_text(const piece *p)
{
    const char *at = p->at + utf8_prefix(p->at, (size_t)(p->end - p->at));
    if (at == p->end) return TW_OK;
    return token_refuse_byte(p->path, line_at(p, at), (size_t)(at - p->start), (unsigned char)*at);
}

/* Some editors mark UTF-8 by a code point that is not of the text. */
static void skip_mark(piece *p)
{
    static const char mark[] = "\xEF\xBB\xBF";
    if (p->end - p->at >= 3 && memcmp(p->at, mark, 3) == 0) p->at += 3;
}

/* The bytes are *space's, for free(). */
static tw_status corpus_read_text(const char *path, piece *p, char **space)
{
    uint8_t *bytes;
    size_t size;
    TW_TRY(file_read(path, &bytes, &size));
    *space = (char *)bytes;
    *p = (piece){path, *space, *space, *space + size};
    TW_TRY(check_text(p));
    skip_mark(p);
    return TW_OK;
}

/* ---- tokens ---- */

static tw_status refuse_empty(const piece *p)
{
    return tw_fail(TW_ERROR_FORMAT, "%s: line %zu, byte offset %zu: no text from there on", p->path, line_at(p, p->at),
                   (size_t)(p->at - p->start));
}

static tw_status allocate_tokens(const piece *p, text_unit unit, token_stream *stream)
{
    token_reader reader = {p->at, p->end, unit};
    const char *token;
    size_t length, count = 0;
    while (token_next(&reader, &token, &length)) count++;
    if (count == 0) return refuse_empty(p);
    stream->tokens = malloc(count * sizeof *stream->tokens);
    if (!stream->tokens) return tw_fail(TW_ERROR_MEMORY, "%s: no memory for its %zu tokens", p->path, count);
    return TW_OK;
}

/* Numbers the tokens in the order in which they are met. */
static tw_status meet_tokens(const piece *p, size_t limit, vocabulary *met, token_stream *stream)
{
    text_unit unit = vocabulary_unit(met);
    token_reader reader = {p->at, p->end, unit};
    const char *token;
    size_t length;
    TW_TRY(allocate_tokens(p, unit, stream));
    while (token_next(&reader, &token, &length)) {
        TW_TRY(vocabulary_add(met, token, length, &stream->tokens[stream->count++]));
        if (vocabulary_count(met) > limit)
            return tw_fail(TW_ERROR_FORMAT, "%s: line %zu: more than %zu different %s up to there; is it a text?",
                           p->path, line_at(p, reader.at - 1), limit, text_unit_name(unit));
    }
    return TW_OK;
}

/* Ranks what was met, and gives the stream the new numbers. */
static tw_status rank_tokens(const vocabulary *met, size_t most, token_stream *stream, vocabulary **out)
{
    size_t count = vocabulary_count(met);
    uint64_t *numbers = calloc(count, sizeof *numbers); /* how often each was there, and then its new number */
    if (!numbers) return tw_fail(TW_ERROR_MEMORY, "no memory to count %zu different tokens", count);
    for (size_t i = 0; i < stream->count; i++) numbers[stream->tokens[i]]++;
    tw_status status = vocabulary_rank(met, numbers, most, out);
    for (uint32_t id = 0; status == TW_OK && id < count; id++) {
        const char *token = vocabulary_token(met, id);
        numbers[id] = vocabulary_find_or_unknown(*out, token, strlen(token));
    }
    for (size_t i = 0; status == TW_OK && i < stream->count; i++)
        stream->tokens[i] = (uint32_t)numbers[stream->tokens[i]];
    free(numbers);
    return status;
}

static tw_status encode_in_pieces(const piece *p, const piece_set *model, token_stream *stream)
{
    piece_ids ids = {0};
    tw_status status = pieces_encode(model, p->at, (size_t)(p->end - p->at), &ids);
    stream->tokens = ids.ids;
    stream->count = ids.count;
    if (status == TW_OK && ids.count == 0) return refuse_empty(p);
    for (size_t i = 0; status == TW_OK && i < ids.count; i++)
        stream->unknown += ids.ids[i] == pieces_table(model)->unknown;
    return status;
}

/* Numbers the tokens by a vocabulary. */
static tw_status corpus_encode(const piece *p, const vocabulary *v, token_stream *stream)
{
    token_reader reader = {p->at, p->end, vocabulary_unit(v)};
    const char *token;
    size_t length;
    if (vocabulary_pieces(v)) return encode_in_pieces(p, vocabulary_pieces(v), stream);
    TW_TRY(allocate_tokens(p, reader.unit, stream));
    while (token_next(&reader, &token, &length)) {
        uint32_t id = vocabulary_find(v, token, length);
        if (id == VOCABULARY_NONE) {
            id = vocabulary_find_or_unknown(v, token, length);
            stream->unknown++;
        }
        if (id == VOCABULARY_NONE) /* the reader stands behind the token */
            return token_refuse_unknown(p->path, line_at(p, reader.at - 1), token, length, reader.unit);
        stream->tokens[stream->count++] = id;
    }
    return TW_OK;
}

static tw_status learn_pieces(const piece *p, size_t count, vocabulary **out)
{
    piece_set *model;
    TW_TRY(pieces_train(p->at, (size_t)(p->end - p->at), count, &model));
    return vocabulary_of_pieces(model, out);
}

static tw_status encode_training(const piece *p, const corpus_options *options, corpus *c)
{
    vocabulary *met;
    if (!c->vocabulary && options->unit == TEXT_PIECES) TW_TRY(learn_pieces(p, options->most, &c->vocabulary));
    if (c->vocabulary) return corpus_encode(p, c->vocabulary, &c->train);
    TW_TRY(vocabulary_create(options->unit, &met));
    tw_status status = meet_tokens(p, options->limit ? options->limit : LIMIT, met, &c->train);
    if (status == TW_OK) status = rank_tokens(met, options->most, &c->train, &c->vocabulary);
    vocabulary_destroy(met);
    return status;
}

/* ---- files ---- */

/* Where a part of a file ends that should be about `share` of it: behind a line, or else behind a word, where one ends
 * soon; between two characters, but in the midst of no word where tokens are words. */
static const char *cut(const piece *p, double share, text_unit unit)
{
    size_t size = (size_t)(p->end - p->at), near = size / 40;
    const char *mark = p->at + (size_t)((double)size * share);
    const char *behind = memchr(mark, '\n', near);
    if (!behind) behind = memchr(mark, ' ', near);
    if (behind) return behind + 1;
    while (mark < p->end && ((unsigned char)*mark & 0xC0) == 0x80) mark++;
    const size_t rest = (size_t)(p->end - mark);
    if (unit != TEXT_WORDS || mark == p->at) return mark;
    return mark + token_word_rest(mark - 1, rest < TOKEN_WORD ? rest : TOKEN_WORD);
}

static void sum_up(corpus *c)
{
    c->train_sum = tw_crc32c(0, c->train.tokens, c->train.count * sizeof *c->train.tokens);
    c->valid_sum = tw_crc32c(0, c->valid.tokens, c->valid.count * sizeof *c->valid.tokens);
}

static tw_status encode_pieces(const piece pieces[3], const corpus_options *options, corpus *c)
{
    TW_TRY(encode_training(&pieces[0], options, c));
    TW_TRY(corpus_encode(&pieces[1], c->vocabulary, &c->valid));
    sum_up(c);
    return corpus_encode(&pieces[2], c->vocabulary, &c->test);
}

/* ---- texts that stay in their files ---- */

typedef struct part {
    const char *path;
    uint64_t begin, end;
} part;

static tw_status open_stream(const part *p, token_stream *stream)
{
    return long_text_open(p->path, p->begin, p->end, &stream->text);
}

static tw_status number_stream(const vocabulary *v, token_stream *stream, uint32_t *sum)
{
    TW_TRY(long_text_number(stream->text, v, sum));
    stream->count = stream->text->count;
    stream->unknown = stream->text->unknown;
    return TW_OK;
}

static tw_status rank_met(const corpus_options *options, vocabulary *met, corpus *c)
{
    uint64_t *often = NULL;
    tw_status status = long_text_meet(c->train.text, options->limit ? options->limit : LIMIT, met, &often);
    if (status == TW_OK) status = vocabulary_rank(met, often, options->most, &c->vocabulary);
    free(often);
    return status;
}

static tw_status rank_long(const corpus_options *options, corpus *c)
{
    vocabulary *met;
    TW_TRY(vocabulary_create(options->unit, &met));
    tw_status status = rank_met(options, met, c);
    vocabulary_destroy(met);
    return status;
}

static tw_status number_long(const part parts[3], const corpus_options *options, corpus *c)
{
    uint32_t test_sum;
    const bool given = c->vocabulary != NULL;
    TW_TRY(open_stream(&parts[0], &c->train));
    TW_TRY(open_stream(&parts[1], &c->valid));
    TW_TRY(open_stream(&parts[2], &c->test));
    if (!given) TW_TRY(rank_long(options, c));
    TW_TRY(number_stream(c->vocabulary, &c->train, &c->train_sum));
    if (!given) c->train.unknown = 0; /* those that gave way to <unk> are not missed */
    TW_TRY(number_stream(c->vocabulary, &c->valid, &c->valid_sum));
    return number_stream(c->vocabulary, &c->test, &test_sum);
}

/* A file that is cut in three: [begin, valid), [valid, test), [test, end). */
static tw_status check_parts(const char *path, uint64_t begin, uint64_t valid, uint64_t test, uint64_t end)
{
    if (begin < valid && valid < test && test < end) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT,
                   "%s has %llu bytes, too few to train, validate and test with: its first 90 %% are the training "
                   "text, and each of the others is 5 %%, to the end of a line where one is near",
                   path, (unsigned long long)(end - begin));
}

static tw_status load_long_file(const char *path, const corpus_options *options, corpus *c)
{
    uint64_t begin, valid, test, end;
    TW_TRY(long_text_bounds(path, &begin, &end));
    TW_TRY(long_text_cut(path, begin, end, 0.9, options->unit, &valid));
    TW_TRY(long_text_cut(path, begin, end, 0.95, options->unit, &test));
    TW_TRY(check_parts(path, begin, valid, test, end));
    const part parts[3] = {{path, begin, valid}, {path, valid, test}, {path, test, end}};
    return number_long(parts, options, c);
}

static tw_status load_long_folder(const char *folder, const corpus_options *options, corpus *c)
{
    char paths[3][TEXT_PATH];
    part parts[3];
    TW_TRY(text_folder_find(folder, options->unit, paths));
    for (int i = 0; i < 3; i++) {
        parts[i].path = paths[i];
        TW_TRY(long_text_bounds(paths[i], &parts[i].begin, &parts[i].end));
    }
    return number_long(parts, options, c);
}

/* A text in memory takes its bytes and, while it is cut into tokens, four bytes for each of these. */
static bool is_long(const char *path, bool folder, const corpus_options *options)
{
    enum { EACH = 5 };
    char paths[3][TEXT_PATH];
    uint64_t bytes = 0;
    struct stat about;
    if (options->most_bytes == 0 || (folder && text_folder_find(path, options->unit, paths) != TW_OK)) return false;
    for (int i = 0; i < (folder ? 3 : 1); i++)
        if (stat(folder ? paths[i] : path, &about) == 0) bytes += (uint64_t)about.st_size;
    return bytes > options->most_bytes / EACH;
}

static tw_status load_file(const char *path, const corpus_options *options, corpus *c)
{
    piece whole;
    char *space = NULL;
    tw_status status = corpus_read_text(path, &whole, &space);
    if (status == TW_OK) {
        const char *valid = cut(&whole, 0.9, options->unit), *test = cut(&whole, 0.95, options->unit);
        piece pieces[3] = {whole, whole, whole};
        pieces[0].end = pieces[1].at = valid;
        pieces[1].end = pieces[2].at = test;
        status = check_parts(path, 0, (uint64_t)(valid - whole.at), (uint64_t)(test - whole.at),
                             (uint64_t)(whole.end - whole.at));
        if (status == TW_OK) status = encode_pieces(pieces, options, c);
    }
    free(space);
    return status;
}

static tw_status load_folder(const char *path, const corpus_options *options, corpus *c)
{
    char paths[3][TEXT_PATH];
    piece pieces[3];
    char *spaces[3] = {NULL};
    TW_TRY(text_folder_find(path, options->unit, paths));
    tw_status status = TW_OK;
    for (int i = 0; i < 3 && status == TW_OK; i++) status = corpus_read_text(paths[i], &pieces[i], &spaces[i]);
    if (status == TW_OK) status = encode_pieces(pieces, options, c);
    for (int i = 0; i < 3; i++) free(spaces[i]);
    return status;
}

/* ---- texts that are numbers already ---- */

static tw_status copy_ids(const token_stream *all, size_t begin, size_t end, token_stream *stream)
{
    const size_t bytes = (end - begin) * sizeof *stream->tokens;
    stream->tokens = malloc(bytes);
    if (!stream->tokens) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu tokens", end - begin);
    memcpy(stream->tokens, all->tokens + begin, bytes);
    stream->count = end - begin;
    return TW_OK;
}

static tw_status load_id_file(const char *path, size_t types, corpus *c)
{
    token_stream *const all = &c->train;
    TW_TRY(token_ids_read(path, types, &all->tokens, &all->count));
    const size_t valid = (size_t)((double)all->count * 0.9), test = (size_t)((double)all->count * 0.95);
    if (valid == 0 || valid == test)
        return tw_fail(TW_ERROR_FORMAT, "%s has %zu tokens, too few to train, validate and test with", path,
                       all->count);
    TW_TRY(copy_ids(all, valid, test, &c->valid));
    TW_TRY(copy_ids(all, test, all->count, &c->test));
    all->count = valid;
    return TW_OK;
}

static tw_status load_id_folder(const char *path, size_t types, corpus *c)
{
    char paths[3][TEXT_PATH];
    token_stream *const streams[] = {&c->train, &c->valid, &c->test};
    TW_TRY(text_folder_find(path, TEXT_IDS, paths));
    for (int i = 0; i < 3; i++) TW_TRY(token_ids_read(paths[i], types, &streams[i]->tokens, &streams[i]->count));
    return TW_OK;
}

static tw_status load_ids(const char *path, bool folder, const corpus_options *options, corpus *c)
{
    if (!c->vocabulary) TW_TRY(vocabulary_of_ids(options->most, &c->vocabulary));
    TW_TRY((folder ? load_id_folder : load_id_file)(path, vocabulary_count(c->vocabulary), c));
    sum_up(c);
    return TW_OK;
}

static tw_status refuse_long(const char *path, text_unit unit)
{
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "%s: a text in %s is held in memory, and this one is too large for --memory; five times its "
                   "size would do",
                   path, text_unit_name(unit));
}

static tw_status load_text(const char *path, bool folder, bool stays, const corpus_options *options, corpus *c)
{
    if (stays && options->unit >= TEXT_PIECES) return refuse_long(path, options->unit);
    if (options->unit == TEXT_IDS) return load_ids(path, folder, options, c);
    if (stays) return folder ? load_long_folder(path, options, c) : load_long_file(path, options, c);
    return folder ? load_folder(path, options, c) : load_file(path, options, c);
}

tw_status corpus_load(const char *path, const corpus_options *options, corpus *out)
{
    bool folder = path_is_folder(path);
    bool stays = is_long(path, folder, options);
    *out = (corpus){.vocabulary = options->vocabulary};
    tw_status status = load_text(path, folder, stays, options, out);
    if (status != TW_OK) corpus_release(out);
    return status;
}

void corpus_release(corpus *c)
{
    vocabulary_destroy(c->vocabulary);
    token_stream *const streams[] = {&c->train, &c->valid, &c->test};
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        free(streams[i]->tokens);
        long_text_close(streams[i]->text);
    }
    *c = (corpus){0};
}
