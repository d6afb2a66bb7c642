#include "tokenizer_json.h"

#include "code_point.h"
#include "error.h"
#include "file.h"
#include "regular_file.h"

#include <stdlib.h>
#include <string.h>

enum { JSON_MOST = 64 << 20 }; /* bytes, of which cJSON makes twenty times as much */

/* What a text is split at, which also tells the units apart. */
static const char *const splits[] = {[TEXT_WORDS] = "[ \\t\\r\\x0b\\x0c]+", [TEXT_CHARACTERS] = "[\\s\\S]"};

/* ---- writing ---- */

static void add_split(cJSON *parent, const char *expression, const char *behaviour)
{
    cJSON *split = cJSON_AddObjectToObject(parent, "pre_tokenizer");
    cJSON_AddStringToObject(split, "type", "Split");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(split, "pattern"), "Regex", expression);
    cJSON_AddStringToObject(split, "behavior", behaviour);
    cJSON_AddBoolToObject(split, "invert", 0);
}

/* An end of a line is a word. */
static void add_end_of_line(cJSON *tokenizer)
{
    cJSON *replace = cJSON_AddObjectToObject(tokenizer, "normalizer");
    cJSON_AddStringToObject(replace, "type", "Replace");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(replace, "pattern"), "String", "\n");
    cJSON_AddStringToObject(replace, "content", " " TOKEN_END_OF_LINE " ");
}

/* From a text to units. */
static void add_units(cJSON *tokenizer, text_unit unit)
{
    if (unit == TEXT_WORDS) add_end_of_line(tokenizer);
    add_split(tokenizer, splits[unit], unit == TEXT_WORDS ? "Removed" : "Isolated");
}

/* Words are joined by spaces where there is no decoder; characters are not. */
tw_status tokenizer_json_describe(const vocabulary *v, cJSON *tokenizer)
{
    if (vocabulary_pieces(v)) return tokenizer_pieces_describe(v, tokenizer);
    cJSON_AddStringToObject(tokenizer, "version", "1.0");
    cJSON_AddArrayToObject(tokenizer, "added_tokens");
    add_units(tokenizer, vocabulary_unit(v));
    if (vocabulary_unit(v) != TEXT_WORDS)
        cJSON_AddStringToObject(cJSON_AddObjectToObject(tokenizer, "decoder"), "type", "Fuse");
    cJSON *model = cJSON_AddObjectToObject(tokenizer, "model");
    cJSON_AddStringToObject(model, "type", "WordLevel");
    cJSON_AddStringToObject(model, "unk_token", TOKEN_UNKNOWN);
    cJSON *all = cJSON_AddObjectToObject(model, "vocab");
    for (uint32_t i = 0; i < vocabulary_count(v); i++)
        cJSON_AddItemToObject(all, vocabulary_token(v, i), cJSON_CreateNumber(i));
    return TW_OK;
}

/* ---- reading ---- */

/* "" where it is no text. */
static const char *text_of(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return text ? text : "";
}

static tw_status find_unit(const char *path, const cJSON *tokenizer, text_unit *unit)
{
    const cJSON *split = cJSON_GetObjectItemCaseSensitive(tokenizer, "pre_tokenizer");
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(tokenizer, "model");
    const char *expression = text_of(cJSON_GetObjectItemCaseSensitive(split, "pattern"), "Regex");
    for (*unit = TEXT_WORDS; *unit <= TEXT_CHARACTERS; (*unit)++)
        if (strcmp(expression, splits[*unit]) == 0 && strcmp(text_of(model, "type"), "WordLevel") == 0) return TW_OK;
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "%s: its model is of type \"%.40s\"; only whole words or characters are read, as thinwire export "
                   "--transformers writes them",
                   path, text_of(model, "type"));
}

static bool is_alike(const cJSON *one, const cJSON *other, const char *key)
{
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(one, key), *b = cJSON_GetObjectItemCaseSensitive(other, key);
    if (!a || cJSON_IsNull(a)) return !b;
    return cJSON_Compare(a, b, true);
}

/* As transformers writes it where nothing is to be added: the text and no more. */
static bool adds_nothing(const cJSON *processor)
{
    const cJSON *single = cJSON_GetObjectItemCaseSensitive(processor, "single");
    if (!processor || cJSON_IsNull(processor)) return true;
    return strcmp(text_of(processor, "type"), "TemplateProcessing") == 0 && cJSON_GetArraySize(single) == 1 &&
           cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(single, 0), "Sequence");
}

/* Another rule would make other tokens of the same text, in silence. */
static tw_status check_units(const char *path, const cJSON *tokenizer, text_unit unit)
{
    static const char *const keys[] = {"normalizer", "pre_tokenizer", "truncation"};
    cJSON *own = cJSON_CreateObject();
    const char *differs = NULL;
    add_units(own, unit);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!is_alike(tokenizer, own, keys[i])) differs = keys[i];
    if (!adds_nothing(cJSON_GetObjectItemCaseSensitive(tokenizer, "post_processor"))) differs = "post_processor";
    cJSON_Delete(own);
    if (!differs) return TW_OK;
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "%s: its %s is not that of whole %s as thinwire export --transformers writes them, which alone are "
                   "read",
                   path, differs, unit == TEXT_WORDS ? "words" : "characters");
}

/* The tokens in the order of their numbers, which have to be 0, 1, 2 and on. */
static tw_status sort_tokens(const char *path, const cJSON *all, const char **tokens, size_t count)
{
    const cJSON *entry;
    cJSON_ArrayForEach(entry, all)
    {
        const double id = cJSON_GetNumberValue(entry);
        if (!(id >= 0 && id < (double)count) || id != (double)(size_t)id || tokens[(size_t)id])
            return tw_fail(TW_ERROR_FORMAT, "%s: \"%.40s\" has not one of the numbers 0 to %zu for itself", path,
                           entry->string, count - 1);
        tokens[(size_t)id] = entry->string;
    }
    return TW_OK;
}

/* They are found anywhere in a text; but those of the model itself are its units all the same. */
static tw_status check_added(const char *path, const cJSON *tokenizer, const char **tokens, size_t count)
{
    const cJSON *token;
    cJSON_ArrayForEach(token, cJSON_GetObjectItemCaseSensitive(tokenizer, "added_tokens"))
    {
        const double id = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(token, "id"));
        const char *content = text_of(token, "content");
        if (!(id >= 0 && id < (double)count) || strcmp(tokens[(size_t)id], content) != 0)
            return tw_fail(TW_ERROR_UNSUPPORTED,
                           "%s: its vocab has no \"%.40s\", which it adds; added tokens are not read", path, content);
    }
    return TW_OK;
}

static tw_status add_tokens(const char *path, const char **tokens, size_t count, vocabulary *v)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t id;
        const size_t length = tokens[i] ? strlen(tokens[i]) : 0;
        if (length == 0 || !code_point_valid(tokens[i], length))
            return tw_fail(TW_ERROR_FORMAT, "%s: token %zu is empty, or not UTF-8", path, i);
        TW_TRY(vocabulary_add(v, tokens[i], length, &id));
        if (id != i) return tw_fail(TW_ERROR_FORMAT, "%s: \"%.40s\" comes twice", path, tokens[i]);
    }
    return TW_OK;
}

static tw_status take_tokens(const char *path, const cJSON *tokenizer, vocabulary *v)
{
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(tokenizer, "model");
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(model, "vocab");
    const int count = cJSON_IsObject(all) ? cJSON_GetArraySize(all) : 0;
    if (count < 2) return tw_fail(TW_ERROR_FORMAT, "%s: its vocab has fewer than two tokens", path);
    const char **tokens = calloc((size_t)count, sizeof *tokens);
    if (!tokens) return tw_fail(TW_ERROR_MEMORY, "no memory for %d tokens", count);
    tw_status status = sort_tokens(path, all, tokens, (size_t)count);
    if (status == TW_OK) status = check_added(path, tokenizer, tokens, (size_t)count);
    if (status == TW_OK) status = add_tokens(path, tokens, (size_t)count, v);
    free(tokens);
    return status;
}

static tw_status read_tokenizer(const char *path, const cJSON *tokenizer, vocabulary **out)
{
    text_unit unit;
    TW_TRY(find_unit(path, tokenizer, &unit));
    TW_TRY(check_units(path, tokenizer, unit));
    TW_TRY(vocabulary_create(unit, out));
    tw_status status = take_tokens(path, tokenizer, *out);
    if (status != TW_OK) vocabulary_destroy(*out);
    return status;
}

tw_status tokenizer_json_parse(const char *path, cJSON **json)
{
    uint8_t *bytes;
    size_t size;
    TW_TRY(file_read(path, &bytes, &size));
    *json = size <= JSON_MOST ? cJSON_ParseWithLength((const char *)bytes, size) : NULL;
    free(bytes);
    if (*json) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s is not JSON of at most %d MiB", path, JSON_MOST >> 20);
}

static tw_status read_json(const char *path, vocabulary **out)
{
    cJSON *tokenizer;
    TW_TRY(tokenizer_json_parse(path, &tokenizer));
    tw_status status = read_tokenizer(path, tokenizer, out);
    cJSON_Delete(tokenizer);
    return status;
}

static tw_status read_model(const char *path, vocabulary **out)
{
    tw_state *state;
    TW_TRY(tw_state_load(path, &state));
    const char *text = tw_state_text(state, "vocabulary.txt");
    tw_status status = text ? vocabulary_read(text, out)
                            : tw_fail(TW_ERROR_FORMAT,
                                      "%s has no tokens; a tokenizer is a tokenizer.json, or the model.safetensors "
                                      "of a language model that thinwire trained",
                                      path);
    tw_state_destroy(state);
    return status;
}

static tw_status read_pieces(const char *path, vocabulary **out)
{
    uint8_t *bytes;
    size_t size;
    piece_set *model = NULL;
    TW_TRY(file_read(path, &bytes, &size));
    tw_status status = pieces_read(bytes, size, &model);
    free(bytes);
    if (status == TW_OK) status = vocabulary_of_pieces(model, out);
    return status == TW_OK ? TW_OK : tw_fail(status, "%s: %s", path, tw_last_error());
}

/* Folders of a published Llama have both, of which tokenizer.json is then one that is not read. */
static tw_status read_folder(const char *path, vocabulary **out)
{
    char file[FILE_PATH_MOST];
    if (file_exists(path, TOKENIZER_MODEL)) return read_pieces(file_path(file, path, TOKENIZER_MODEL), out);
    return read_json(file_path(file, path, "tokenizer.json"), out);
}

tw_status tokenizer_file_read(const char *path, vocabulary **out)
{
    const char *ending = strrchr(path, '.');
    if (path_is_folder(path)) return read_folder(path, out);
    if (ending && strcmp(ending, ".model") == 0) return read_pieces(path, out);
    return ending && strcmp(ending, ".json") == 0 ? read_json(path, out) : read_model(path, out);
}
