/* asr_encoder.c - the sizes of a recogniser's speech encoder: those a person wants, or those of the checkpoint whose
 * weights it begins with. */
#include "asr.h"
#include "encoder_text.h"
#include "error.h"
#include <stdio.h>
#include <string.h>

static size_t or_usual(long wanted, size_t usual)
{
    return wanted >= 0 ? (size_t)wanted : usual;
}

tw_status asr_encoder_sizes(const asr_settings *s, size_t features, speech_encoder_config *sizes)
{
    *sizes = (speech_encoder_config){0};
    if (s->encoder == ASR_LSTM) return TW_OK;
    *sizes = (speech_encoder_config){.features = features,
                                     .channels = or_usual(s->channels, 32),
                                     .width = or_usual(s->width, 128),
                                     .heads = or_usual(s->heads, 4),
                                     .kernel = or_usual(s->kernel, 15),
                                     .blocks = or_usual(s->blocks, 8),
                                     .relative = s->positions,
                                     .keep = (float)(1 - s->dropout)};
    return speech_encoder_check(sizes);
}

/* What a person has said stays; where it does not fit, the weights tell when they are taken. */
static tw_status take_size(options *set, const char *option, size_t size)
{
    char text[32];
    if (options_given(set, option)) return TW_OK;
    snprintf(text, sizeof text, "%zu", size);
    return options_default(set, option, text);
}

static tw_status take_encoder(options *set, const char *text)
{
    speech_encoder_config sizes;
    TW_TRY(encoder_parse(text, &sizes));
    TW_TRY(take_size(set, "blocks", sizes.blocks));
    TW_TRY(take_size(set, "width", sizes.width));
    TW_TRY(take_size(set, "heads", sizes.heads));
    TW_TRY(take_size(set, "kernel", sizes.kernel));
    TW_TRY(take_size(set, "channels", sizes.channels));
    return options_given(set, "positions") ? TW_OK
                                           : options_default(set, "positions", sizes.relative ? "relative" : "none");
}

/* A new layer's first gradients say little to an encoder that is good already, and spoil it. How wav2vec 2.0 was
 * fine-tuned (Baevski et al. 2020), for fewer steps. */
static tw_status hold_encoder(options *set, const tw_state *state)
{
    const char *past = tw_state_text(state, "task");
    int is_recogniser = past && strcmp(past, "asr") == 0;
    return is_recogniser ? TW_OK : take_size(set, "freeze-steps", ASR_HELD_STEPS);
}

/* Others of the same width would fit, and mean something else. */
static tw_status take_features(options *set, const char *wanted, const char *text)
{
    char full[FEATURE_SETTINGS_TEXT];
    feature_settings features;
    if (!text) return tw_fail(TW_ERROR_STATE, "it does not say its features, so it is not of a network for speech");
    if (!options_given(set, "features")) return options_default(set, "features", text);
    TW_TRY(feature_settings_parse(wanted, &features));
    if (strcmp(feature_settings_text(&features, full), text) == 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "--features %s: its network hears others, %s; leave the option out", wanted,
                   text);
}

tw_status asr_take_sizes(options *set, const void *settings, const tw_state *state)
{
    const asr_settings *s = settings;
    const char *encoder = tw_state_text(state, "speech encoder");
    if (!encoder && s->encoder == ASR_LSTM) return TW_OK;
    if (!encoder)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--encoder conformer: its network has LSTM layers; --encoder lstm goes with it");
    if (s->encoder == ASR_LSTM && options_given(set, "encoder"))
        return tw_fail(TW_ERROR_ARGUMENT, "--encoder lstm: its network has a speech encoder of conformers; --encoder "
                                          "conformer goes with it");
    if (!options_given(set, "encoder")) TW_TRY(options_default(set, "encoder", "conformer"));
    TW_TRY(take_features(set, s->features, tw_state_text(state, "feature settings")));
    TW_TRY(take_encoder(set, encoder));
    return hold_encoder(set, state);
}
