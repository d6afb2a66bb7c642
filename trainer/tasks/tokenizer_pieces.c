/* tokenizer_pieces.c - a SentencePiece model as tokenizer.json has it: pieces, and the pairs that they are merged from.
 *
 * SentencePiece merges any two pieces that are a piece together, that of the highest score first. tokenizers has a list
 * of pairs, in the order in which they are merged: all pairs of each piece, in the order of the pieces' scores. */
#include "code_point.h"
#include "error.h"
#include "tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

#define SPACE "\xE2\x96\x81"

typedef struct pair {
    uint32_t whole, left, right;
    float score;
} pair;

/* ---- whether it can be one --------------------------------------------------------------------------------------- */

static const char *find_other_kind(const piece_table *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->pieces[i].kind == PIECE_USER || t->pieces[i].kind == PIECE_UNUSED)
            return "pieces of a kind that Llama has not (user-defined, or unused)";
    return NULL;
}

/* Whether the tokens of such a model are those that LlamaTokenizer makes. What a text would lose or come by on its way
 * to pieces is another tokenizer's. */
static tw_status tokenizer_pieces_check(const vocabulary *v)
{
    const piece_table *t = pieces_table(vocabulary_pieces(v));
    const char *other = t->way != PIECES_MERGED ? "another way to cut a text than merged pairs (model_type bpe)"
                        : t->normalises         ? "a normalisation"
                        : t->trims              ? "remove_extra_whitespaces"
                        : !t->escapes           ? "no escape_whitespaces"
                        : t->suffix             ? "treat_whitespace_as_suffix"
                        : !t->bytes             ? "no byte_fallback"
                                                : find_other_kind(t);
    if (!other) return TW_OK;
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "its SentencePiece model has %s, and transformers' LlamaTokenizer has not; leave out --transformers",
                   other);
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static uint32_t find_normal(const vocabulary *v, const char *text, size_t length)
{
    const uint32_t id = vocabulary_find(v, text, length);
    if (id == VOCABULARY_NONE) return id;
    return pieces_table(vocabulary_pieces(v))->pieces[id].kind == PIECE_NORMAL ? id : VOCABULARY_NONE;
}

/* `into`: NULL where they are only counted. */
static size_t split(const vocabulary *v, uint32_t whole, pair *into)
{
    const word_piece *p = &pieces_table(vocabulary_pieces(v))->pieces[whole];
    const size_t length = strlen(p->text);
    size_t count = 0;
    for (size_t at = utf8_length(p->text, length); at < length; at += utf8_length(p->text + at, length - at)) {
        const uint32_t left = find_normal(v, p->text, at), right = find_normal(v, p->text + at, length - at);
        if (left == VOCABULARY_NONE || right == VOCABULARY_NONE) continue;
        if (into) into[count] = (pair){whole, left, right, p->score};
        count++;
    }
    return count;
}

static size_t split_all(const vocabulary *v, pair *into)
{
    const piece_table *t = pieces_table(vocabulary_pieces(v));
    size_t count = 0;
    for (uint32_t i = 0; i < t->count; i++)
        if (t->pieces[i].kind == PIECE_NORMAL) count += split(v, i, into ? into + count : NULL);
    return count;
}

static int by_score(const void *one, const void *other)
{
    const pair *a = one, *b = other;
    if (a->score != b->score) return a->score < b->score ? 1 : -1;
    if (a->whole != b->whole) return a->whole < b->whole ? -1 : 1;
    if (a->left != b->left) return a->left < b->left ? -1 : 1;
    return a->right < b->right ? -1 : a->right > b->right;
}

static tw_status add_merges(const vocabulary *v, cJSON *model)
{
    const size_t count = split_all(v, NULL);
    cJSON *merges = cJSON_AddArrayToObject(model, "merges");
    pair *pairs = malloc((count + 1) * sizeof *pairs);
    if (!pairs) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu pairs of pieces", count);
    split_all(v, pairs);
    qsort(pairs, count, sizeof *pairs, by_score);
    for (size_t i = 0; i < count; i++) {
        const char *const parts[] = {vocabulary_token(v, pairs[i].left), vocabulary_token(v, pairs[i].right)};
        cJSON_AddItemToArray(merges, cJSON_CreateStringArray(parts, 2));
    }
    free(pairs);
    return TW_OK;
}

/* ---- tokenizer.json ---------------------------------------------------------------------------------------------- */

static cJSON *add_step(cJSON *steps, const char *type)
{
    cJSON *step = cJSON_CreateObject();
    cJSON_AddStringToObject(step, "type", type);
    cJSON_AddItemToArray(steps, step);
    return step;
}

static void add_replace(cJSON *steps, const char *from, const char *to)
{
    cJSON *step = add_step(steps, "Replace");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(step, "pattern"), "String", from);
    cJSON_AddStringToObject(step, "content", to);
}

static void add_normalizer(const piece_table *t, cJSON *tokenizer)
{
    cJSON *normalizer = cJSON_AddObjectToObject(tokenizer, "normalizer");
    cJSON_AddStringToObject(normalizer, "type", "Sequence");
    cJSON *steps = cJSON_AddArrayToObject(normalizer, "normalizers");
    if (t->prefix) cJSON_AddStringToObject(add_step(steps, "Prepend"), "prepend", SPACE);
    add_replace(steps, " ", SPACE);
}

static void add_decoder(const piece_table *t, cJSON *tokenizer)
{
    cJSON *decoder = cJSON_AddObjectToObject(tokenizer, "decoder");
    cJSON_AddStringToObject(decoder, "type", "Sequence");
    cJSON *steps = cJSON_AddArrayToObject(decoder, "decoders");
    add_replace(steps, SPACE, " ");
    add_step(steps, "ByteFallback");
    add_step(steps, "Fuse");
    if (!t->prefix) return;
    cJSON *strip = add_step(steps, "Strip");
    cJSON_AddStringToObject(strip, "content", " ");
    cJSON_AddNumberToObject(strip, "start", 1);
    cJSON_AddNumberToObject(strip, "stop", 0);
}

/* Of control tokens, and of the unknown one. */
static void add_special(const piece_table *t, cJSON *tokenizer)
{
    cJSON *all = cJSON_AddArrayToObject(tokenizer, "added_tokens");
    for (size_t i = 0; i < t->count; i++) {
        if (t->pieces[i].kind != PIECE_CONTROL && t->pieces[i].kind != PIECE_UNKNOWN) continue;
        cJSON *token = cJSON_CreateObject();
        cJSON_AddNumberToObject(token, "id", (double)i);
        cJSON_AddStringToObject(token, "content", t->pieces[i].text);
        static const char *const no[] = {"single_word", "lstrip", "rstrip", "normalized"};
        for (size_t k = 0; k < sizeof no / sizeof *no; k++) cJSON_AddBoolToObject(token, no[k], 0);
        cJSON_AddBoolToObject(token, "special", 1);
        cJSON_AddItemToArray(all, token);
    }
}

static tw_status add_model(const vocabulary *v, const piece_table *t, cJSON *tokenizer)
{
    cJSON *model = cJSON_AddObjectToObject(tokenizer, "model");
    cJSON_AddStringToObject(model, "type", "BPE");
    if (t->unknown != PIECE_NONE) cJSON_AddStringToObject(model, "unk_token", t->pieces[t->unknown].text);
    cJSON_AddBoolToObject(model, "fuse_unk", 1);
    cJSON_AddBoolToObject(model, "byte_fallback", 1);
    cJSON *all = cJSON_AddObjectToObject(model, "vocab");
    for (size_t i = 0; i < t->count; i++) cJSON_AddItemToObject(all, t->pieces[i].text, cJSON_CreateNumber((double)i));
    return add_merges(v, model);
}

tw_status tokenizer_pieces_describe(const vocabulary *v, cJSON *tokenizer)
{
    const piece_table *t = pieces_table(vocabulary_pieces(v));
    TW_TRY(tokenizer_pieces_check(v));
    cJSON_AddStringToObject(tokenizer, "version", "1.0");
    add_special(t, tokenizer);
    add_normalizer(t, tokenizer);
    add_decoder(t, tokenizer);
    return add_model(v, t, tokenizer);
}

static void add_name(const piece_table *t, uint32_t id, const char *key, cJSON *config)
{
    if (id != PIECE_NONE) cJSON_AddStringToObject(config, key, t->pieces[id].text);
}

void tokenizer_pieces_describe_use(const vocabulary *v, cJSON *config)
{
    const piece_table *t = pieces_table(vocabulary_pieces(v));
    add_name(t, t->unknown, "unk_token", config);
    add_name(t, t->begin, "bos_token", config);
    add_name(t, t->end, "eos_token", config);
}
