/* w2v_bert_sizes.c - the sizes that have a name, and which sizes can be. */
#include "w2v_bert.h"

#include <string.h>

/* tiny: for one computer. xl and xxl: of the paper, with 256 channels and a codebook of 1024. */
static const w2v_bert_size sizes[] = {
    {"tiny", 32, 128, 4, 15, 4, 4, 1, 128, 128, 64},
    {"xl", 256, 1024, 8, 5, 12, 12, 1, 1024, 1024, 768},
    {"xxl", 256, 1024, 8, 5, 12, 30, 1, 1024, 1024, 768},
};

const w2v_bert_size *w2v_bert_find_size(const char *name)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(sizes[i].name, name) == 0) return &sizes[i];
    return NULL;
}

void w2v_bert_take_size(const w2v_bert_size *size, w2v_bert_config *config)
{
    config->encoder.channels = size->channels;
    config->encoder.width = size->width;
    config->encoder.heads = size->heads;
    config->encoder.kernel = size->kernel;
    config->contrastive_blocks = size->contrastive_blocks;
    config->masked_blocks = size->masked_blocks;
    config->groups = size->groups;
    config->codes = size->codes;
    config->code_width = size->code_width;
    config->compared_width = size->compared_width;
}

static tw_status check_codes(const w2v_bert_config *c)
{
    if (c->groups == 0 || c->codes < 2 || c->compared_width == 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "w2v-BERT needs a group, 2 codes and a width to compare or more, not %zu, %zu "
                       "and %zu",
                       c->groups, c->codes, c->compared_width);
    if (c->code_width == 0 || c->code_width % c->groups)
        return tw_fail(TW_ERROR_ARGUMENT, "%zu groups do not divide a code width of %zu", c->groups, c->code_width);
    if (c->groups > 64 || c->codes > 65536 || c->code_width > 65536 || c->compared_width > 65536)
        return tw_fail(TW_ERROR_ARGUMENT, "at most 64 groups of 65536 codes can be, and widths of 65536");
    if (!(c->code_scale > 0.0f && c->code_scale <= 1e6f))
        return tw_fail(TW_ERROR_ARGUMENT, "the codes' scale must be above 0, not %g", (double)c->code_scale);
    return TW_OK;
}

static tw_status check_hiding(const w2v_bert_config *c)
{
    if (!(c->mask_probability > 0.0 && c->mask_probability < 1.0))
        return tw_fail(TW_ERROR_ARGUMENT, "the mask's probability must be above 0 and below 1, not %g",
                       c->mask_probability);
    if (c->mask_span == 0) return tw_fail(TW_ERROR_ARGUMENT, "a mask's span must be 1 row or more, not 0");
    return TW_OK;
}

static tw_status check_losses(const w2v_bert_config *c)
{
    if (c->contrastive_blocks > 1000 || c->masked_blocks > 1000)
        return tw_fail(TW_ERROR_ARGUMENT, "at most 1000 contrastive and 1000 masked blocks can be");
    if (c->contrastive_blocks + c->masked_blocks == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "w2v-BERT needs a contrastive or a masked block, not 0 and 0");
    if (c->targets == W2V_BERT_RANDOM && c->contrastive_blocks)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "random targets are predicted, not compared: they need 0 contrastive blocks, "
                       "not %zu",
                       c->contrastive_blocks);
    if (c->contrastive_blocks && c->distractors == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "the contrastive loss needs 1 distractor or more, not 0");
    if (!(c->similarity > 0.0f))
        return tw_fail(TW_ERROR_ARGUMENT, "what cosines are divided by must be above 0, not %g", (double)c->similarity);
    if (!(c->diversity_weight >= 0.0f && c->diversity_weight <= 1e6f))
        return tw_fail(TW_ERROR_ARGUMENT, "the weight of diversity must be 0 or more, not %g",
                       (double)c->diversity_weight);
    return TW_OK;
}

tw_status w2v_bert_check(const w2v_bert_config *config)
{
    TW_TRY(check_losses(config));
    TW_TRY(check_codes(config));
    TW_TRY(check_hiding(config));
    speech_encoder_config encoder = config->encoder;
    encoder.blocks = config->contrastive_blocks + config->masked_blocks;
    return speech_encoder_check(&encoder);
}
