#include "transformer_text.h"

#include "error.h"
#include "rope_text.h"
#include "state_matrix.h"

#include <stdio.h>
#include <string.h>

#define FORM "heads=%zu,kv_heads=%zu,context=%zu"
#define MORE ",theta=%.17g,epsilon=%.9g"
#define MORE_READ ",theta=%lf,epsilon=%f"
#define SCALING ",rope="

const char *const transformer_families[DECODER_FAMILIES] = {"llama", "qwen2", "qwen3"};

const char *transformer_text(const language_model_config *c, size_t context, char text[TASK_NETWORK_TEXT])
{
    char scaling[ROPE_TEXT];
    const bool unusual = c->theta != NN_ROTARY_BASE || c->epsilon != NN_RMS_EPSILON;
    int used = snprintf(text, TASK_NETWORK_TEXT, FORM, c->heads, c->kv_heads, context);
    if (unusual) used += snprintf(text + used, TASK_NETWORK_TEXT - (size_t)used, MORE, c->theta, (double)c->epsilon);
    if (rope_text(&c->scaling, scaling)) snprintf(text + used, TASK_NETWORK_TEXT - (size_t)used, SCALING "%s", scaling);
    return text;
}

/* As large as the options allow. */
static int is_moderate(const language_model_config *c, size_t context)
{
    return c->heads >= 1 && c->heads <= 1024 && c->kv_heads >= 1 && c->kv_heads <= 1024 && context >= 1 &&
           context <= TRANSFORMER_CONTEXT_MOST;
}

static tw_status transformer_text_parse(const char *text, language_model_config *c, size_t *context)
{
    int used = 0, more = 0;
    c->theta = NN_ROTARY_BASE;
    c->epsilon = NN_RMS_EPSILON;
    if (text && sscanf(text, FORM "%n", &c->heads, &c->kv_heads, context, &used) == 3 && is_moderate(c, *context)) {
        sscanf(text + used, MORE_READ "%n", &c->theta, &c->epsilon, &more);
        const char *rest = text + used + more;
        const size_t name = strlen(SCALING);
        if (!*rest) return TW_OK;
        if (strncmp(rest, SCALING, name) == 0 && rope_parse(rest + name, &c->scaling) == TW_OK) return TW_OK;
    }
    return tw_fail(TW_ERROR_FORMAT, "its transformer cannot be: %.160s", text ? text : "its heads are not told");
}

static bool holds(const tw_state *state, const char *name)
{
    return tw_state_index(state, name) < tw_state_count(state);
}

/* By what the first block has. */
static tw_status read_heads(const tw_state *state, language_model_config *c)
{
    static const char queries[] = "model.layers.0.self_attn.q_proj.weight";
    size_t shape[2];
    if (!find_matrix(state, queries, shape)) return tw_fail(TW_ERROR_FORMAT, "not a transformer: it lacks %s", queries);
    c->head = shape[0] / c->heads;
    if (holds(state, "model.layers.0.self_attn.q_proj.bias")) c->family = DECODER_QWEN2;
    if (holds(state, "model.layers.0.self_attn.q_norm.weight")) c->family = DECODER_QWEN3;
    if (c->head > 0 && shape[0] % c->heads == 0) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "its %s has %zu rows, which %zu heads do not divide", queries, shape[0], c->heads);
}

static tw_status read_layers(const tw_state *state, language_model_config *c)
{
    size_t shape[2];
    char name[96];
    for (;; c->layers++) {
        snprintf(name, sizeof name, "model.layers.%zu.mlp.gate_proj.weight", c->layers);
        if (!find_matrix(state, name, shape)) break;
        c->inner = shape[0];
    }
    return c->layers > 0 ? TW_OK : tw_fail(TW_ERROR_FORMAT, "not a transformer: it lacks %s", name);
}

tw_status transformer_read(const tw_state *state, language_model_config *config, size_t *types, size_t *context)
{
    size_t encoder[2] = {0}, decoder[2];
    *config = (language_model_config){.keep = 1};
    TW_TRY(transformer_text_parse(tw_state_text(state, TASK_NETWORK), config, context));
    if (!find_matrix(state, "model.embed_tokens.weight", encoder))
        return tw_fail(TW_ERROR_FORMAT, "not a transformer: it lacks model.embed_tokens.weight");
    config->hidden = config->embedding = encoder[1];
    config->tied = !find_matrix(state, "lm_head.weight", decoder);
    *types = encoder[0];
    TW_TRY(read_heads(state, config));
    return read_layers(state, config);
}

double transformer_weights(const language_model_config *c, size_t types)
{
    double hidden = (double)c->hidden, head = (double)language_model_head(c);
    double layer = 2 * hidden * head * (double)(c->heads + c->kv_heads) + 3 * hidden * (double)c->inner;
    return (double)c->layers * layer + (double)types * hidden * (c->tied ? 1 : 2);
}
