/* lm_sizes.c - a language model that begins with the weights of another has its sizes and its tokens. */
#include "error.h"
#include "lm_network.h"
#include "rope_text.h"
#include "tokenizer_json.h"
#include "transformer_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const option_row *find_row(const options *set, const char *name)
{
    const option_row *row = set->page->rows;
    while (!row->name || strcmp(row->name, name) != 0) row++;
    return row;
}

/* What a person has said has to be what the network has; NULL: nothing. */
static tw_status take_value(options *set, const char *name, const char *value)
{
    char space[OPTION_TEXT_MOST];
    const option_row *row = find_row(set, name);
    if (!options_given(set, name)) return value ? options_default(set, name, value) : TW_OK;
    const char *wanted = options_value(row, set->target, space);
    if (options_same(row, wanted, value)) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "--%s %s, but the network to begin with has %s; leave the option out", name,
                   wanted, value ? value : "none");
}

static tw_status take_number(options *set, const char *name, size_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", number);
    return take_value(set, name, text);
}

static tw_status take_real(options *set, const char *name, const char *form, double number)
{
    char text[32];
    snprintf(text, sizeof text, form, number);
    return take_value(set, name, text);
}

static tw_status take_transformer(options *set, const tw_state *state, size_t *types)
{
    language_model_config c;
    size_t context;
    char scaling[ROPE_TEXT];
    TW_TRY(transformer_read(state, &c, types, &context));
    TW_TRY(take_value(set, "model", "transformer"));
    TW_TRY(take_number(set, "layers", c.layers));
    TW_TRY(take_number(set, "hidden", c.hidden));
    TW_TRY(take_number(set, "heads", c.heads));
    TW_TRY(take_number(set, "kv-heads", c.kv_heads));
    TW_TRY(take_number(set, "head-width", c.head));
    TW_TRY(take_number(set, "inner", c.inner));
    TW_TRY(take_value(set, "family", transformer_families[c.family]));
    TW_TRY(take_value(set, "rope-scaling", rope_text(&c.scaling, scaling)));
    TW_TRY(take_real(set, "rope-theta", "%.17g", c.theta));
    TW_TRY(take_real(set, "norm-epsilon", "%.7g", (double)c.epsilon));
    TW_TRY(take_value(set, "tied", c.tied ? "true" : "false"));
    return options_given(set, "bptt") ? TW_OK : take_number(set, "bptt", context); /* positions may stay unused */
}

/* A person may name them where nobody knows them, or the same. */
static tw_status take_named(const char *file, const char *own, vocabulary **v)
{
    char *text;
    TW_TRY(tokenizer_file_read(file, v));
    tw_status status = own ? vocabulary_write(*v, &text) : TW_OK;
    if (own && status == TW_OK) {
        if (strcmp(text, own) != 0)
            status = tw_fail(TW_ERROR_ARGUMENT,
                             "--tokenizer %s has other tokens, or in another order, than the network to begin with, "
                             "which knows its own; leave the option out",
                             file);
        free(text);
    }
    if (status != TW_OK) vocabulary_destroy(*v);
    return status;
}

static bool is_said(const options *set, const char *name, const char *value)
{
    char space[OPTION_TEXT_MOST];
    return options_given(set, name) && strcmp(options_value(find_row(set, name), set->target, space), value) == 0;
}

/* Of `types` tokens, 0 where only the vocabulary knows. Ids are those of the weights, whatever these know of them. */
static tw_status take_tokens(options *set, const tw_state *state, size_t types, vocabulary **v)
{
    char space[OPTION_TEXT_MOST];
    const char *text = tw_state_text(state, "vocabulary.txt");
    if (types > 0 && is_said(set, "unit", lm_unit_name(TEXT_IDS)) && !options_given(set, "tokenizer")) {
        TW_TRY(take_number(set, "vocabulary", types));
        return vocabulary_of_ids(types, v);
    }
    if (options_given(set, "tokenizer"))
        return take_named(options_value(find_row(set, "tokenizer"), set->target, space), text, v);
    if (!text)
        return tw_fail(
            TW_ERROR_UNSUPPORTED,
            "its tokens are not known, for it has neither a tokenizer.model nor a tokenizer.json of whole words "
            "or characters; number the text with its own tokenizer and write --unit id, or name with --tokenizer FILE "
            "one that has a token for each row of its embedding");
    TW_TRY(options_default(set, "tokenizer", tw_state_text(state, TASK_FILE)));
    return vocabulary_read(text, v);
}

static tw_status check_tokens(const vocabulary *v, size_t types)
{
    if (vocabulary_count(v) == types) return TW_OK;
    return tw_fail(TW_ERROR_STATE, "its embedding has %zu tokens, and --tokenizer %zu; they have to be as many", types,
                   vocabulary_count(v));
}

tw_status lm_take_sizes(options *set, const void *settings, const tw_state *state)
{
    vocabulary *v;
    size_t types = 0;
    (void)settings;
    const bool transformer = tw_state_text(state, TASK_NETWORK) != NULL;
    if (transformer) TW_TRY(take_transformer(set, state, &types));
    TW_TRY(take_tokens(set, state, types, &v));
    tw_status status = transformer ? check_tokens(v, types) : TW_OK;
    if (status == TW_OK) status = take_value(set, "unit", lm_unit_name(vocabulary_unit(v)));
    vocabulary_destroy(v);
    return status;
}
