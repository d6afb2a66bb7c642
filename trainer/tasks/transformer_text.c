#include "transformer_text.h"

#include "error.h"
#include "rms_norm.h"
#include "rotary.h"
#include "state_matrix.h"

#include <stdio.h>

#define FORM "heads=%zu,kv_heads=%zu,context=%zu"
#define MORE ",theta=%.17g,epsilon=%.9g"
#define MORE_READ ",theta=%lf,epsilon=%f"

const char *transformer_text(const language_model_config *c, size_t context, char text[TRANSFORMER_TEXT])
{
    int used = snprintf(text, TRANSFORMER_TEXT, FORM, c->heads, c->kv_heads, context);
    if (c->theta != NN_ROTARY_BASE || c->epsilon != NN_RMS_EPSILON)
        snprintf(text + used, TRANSFORMER_TEXT - (size_t)used, MORE, c->theta, (double)c->epsilon);
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
    char end;
    int found = text ? sscanf(text, FORM "%c", &c->heads, &c->kv_heads, context, &end) : 0;
    c->theta = NN_ROTARY_BASE;
    c->epsilon = NN_RMS_EPSILON;
    if (found == 4 &&
        sscanf(text, FORM MORE_READ "%c", &c->heads, &c->kv_heads, context, &c->theta, &c->epsilon, &end) == 5)
        found = 3;
    if (found == 3 && is_moderate(c, *context)) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "its transformer cannot be: %.80s", text ? text : "its heads are not told");
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
    return read_layers(state, config);
}

double transformer_weights(const language_model_config *c, size_t types)
{
    double hidden = (double)c->hidden, shared = hidden * (double)c->kv_heads / (double)c->heads;
    double layer = 2 * hidden * hidden + 2 * hidden * shared + 3 * hidden * (double)c->inner;
    return (double)c->layers * layer + (double)types * hidden * (c->tied ? 1 : 2);
}
