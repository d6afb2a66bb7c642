/* asr.c - recognising speech: settings, data and network; what is learned of them is asr_ctc.c's and asr_frames.c's. */
#include "asr.h"
#include "error.h"
#include "sound.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(asr_settings, field)

static const option_row rows[] = {
    {.help = "What to train"},
    {"data", "PATH", OPTION_TEXT, AT(data),
     .help = "training speech: a NeMo manifest, a Kaldi directory, a LibriSpeech tree, a folder of WAVs named "
             "LABEL_SPEAKER_INDEX.wav, or a folder of two of these called train and test"},
    {"test", "PATH", OPTION_TEXT, AT(test),
     .help = "speech to test with; without it, --data's own test part, or every tenth utterance"},
    {"model", NULL, OPTION_CHOICE, AT(model), "ctc", .choices = "ctc|frames",
     .help = "ctc learns letters from transcripts, frames classes of sound from an alignment, in windows",
     .binding = true},
    {"alignment", "FILE", OPTION_TEXT, AT(alignment),
     .help = "for frames: lines of an utterance's id and the class of each of its frames"},
    {"test-alignment", "FILE", OPTION_TEXT, AT(test_alignment),
     .help = "the same for the test part; without it, --alignment"},
    {"features", "LIST", OPTION_TEXT, AT(features), "bins=40",
     .help = "how sound becomes features: rate=16000,window_ms=25,hop_ms=10,bins=40,deltas=0,stack=1,stride=1,...",
     .binding = true},
    {"layers", "N", OPTION_INTEGER, AT(layers), "2", 1, 64, .help = "bidirectional LSTM layers", .binding = true},
    {"hidden", "N", OPTION_INTEGER, AT(hidden), "128", 1, 16384, .help = "cells of a layer in each direction",
     .binding = true},
    {"bottleneck", "N", OPTION_INTEGER, AT(bottleneck), "0", 0, 65536,
     .help = "outputs of a linear layer before the last one; 0: none", .binding = true},
    {"window", "N", OPTION_INTEGER, AT(window), "21", 1, 10000, .help = "for frames: how many a window has",
     .binding = true},
    {"dropout", "P", OPTION_REAL, AT(dropout), "0", 0, 0.99, .help = "share of each layer's outputs dropped",
     .binding = true},
    {"tempo", "SHARE", OPTION_REAL, AT(tempo), "0", 0, 0.5,
     .help = "each training utterance is stretched or squeezed in time by up to this share", .binding = true},
    {"time-masks", "N", OPTION_INTEGER, AT(time_masks), "0", 0, 100,
     .help = "SpecAugment: spans of frames masked in each training utterance", .binding = true},
    {"time-mask", "N", OPTION_INTEGER, AT(time_mask), "10", 1, 10000,
     .help = "the longest such span, in frames as the network sees them; never above a fifth of an utterance",
     .binding = true},
    {"frequency-masks", "N", OPTION_INTEGER, AT(frequency_masks), "0", 0, 100,
     .help = "SpecAugment: bands of frequency masked likewise", .binding = true},
    {"frequency-mask", "N", OPTION_INTEGER, AT(frequency_mask), "8", 1, 1024, .help = "the widest such band, in bins",
     .binding = true},
    {"max-seconds", "SECONDS", OPTION_REAL, AT(most_seconds), "20", 0.1, 3600,
     .help = "longer utterances are left out"},
    {"channel", "N", OPTION_INTEGER, AT(channel), "-1", -1, 63,
     .help = "of files with several channels, take this one; -1: such files are left out"},
    {"memory", "MB", OPTION_INTEGER, AT(memory_mb), "4096", 1, 1e7,
     .help = "the most that the features of the training part may take, and of the test part"},
};

static const char *fallback(const void *settings, const char *option)
{
    static const struct {
        const char *option, *value;
    } suits[] = {{"epochs", "30"},       {"batch", "4"},    {"lr", "0.05"},
                 {"schedule", "cosine"}, {"warmup", "100"}, {"clip", "1"}};
    (void)settings;
    for (size_t i = 0; i < sizeof suits / sizeof *suits; i++)
        if (strcmp(suits[i].option, option) == 0) return suits[i].value;
    return NULL;
}

/* ---- data ---- */

static void add_note(asr_data *d, const char *about, const char *text)
{
    char *note = d->base.note;
    size_t used = strlen(note), room = sizeof d->base.note - used;
    snprintf(note + used, room, "%s%s: %s", used ? "\n" : "", about, text);
}

void asr_note_skips(asr_data *d, const skips *train, const skips *test)
{
    char text[SKIPS_TEXT];
    if (skips_total(train) > 0) add_note(d, "training", skips_text(train, text));
    if (skips_total(test) > 0) add_note(d, "test", skips_text(test, text));
}

static const char *first_path(const speech_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].path) return list->items[i].path;
    return NULL;
}

/* Sounds of a lower rate are used, but the upper filters then hear nothing. */
static void note_rate(asr_data *d)
{
    int rate, wanted = d->request.features.rate;
    char text[128];
    const char *path = first_path(&d->corpus.train);
    if (!path || sound_rate(path, &rate) != TW_OK || rate >= wanted) return;
    snprintf(text, sizeof text, "%d samples a second, so the upper bands of --features rate=%d are empty; rate=%d fits",
             rate, wanted, rate);
    add_note(d, path, text);
}

/* What the other model alone understands would be silently off. */
static tw_status check_model(const asr_settings *s)
{
    if (s->model == ASR_CTC && (s->alignment || s->test_alignment))
        return tw_fail(TW_ERROR_ARGUMENT, "%s: --model ctc learns from transcripts; alignments are for --model frames",
                       s->alignment ? "--alignment" : "--test-alignment");
    if (s->model == ASR_FRAMES && (s->tempo > 0 || s->time_masks || s->frequency_masks))
        return tw_fail(TW_ERROR_ARGUMENT, "%s: --model frames takes its windows as they are; it is for --model ctc",
                       s->tempo > 0    ? "--tempo"
                       : s->time_masks ? "--time-masks"
                                       : "--frequency-masks");
    return TW_OK;
}

static tw_status read_request(const asr_settings *s, speech_request *request)
{
    *request = (speech_request){.channel = s->channel < 0 ? SOUND_MONO : (int)s->channel,
                                .most_seconds = s->most_seconds,
                                .most_bytes = (size_t)s->memory_mb << 20,
                                .most_bytes_option = "--memory"};
    return feature_settings_parse(s->features, &request->features);
}

static tw_status fill(const asr_settings *s, asr_data *d)
{
    if (!s->data)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--data is missing: a manifest, or a folder of speech; --help lists the kinds");
    TW_TRY(check_model(s));
    TW_TRY(read_request(s, &d->request));
    TW_TRY(speech_corpus_load(s->data, s->test, &d->corpus));
    snprintf(d->base.path, sizeof d->base.path, "%s", s->data);
    note_rate(d);
    return d->kind->load(d);
}

static void release(task *t)
{
    asr_data *d = (asr_data *)t;
    if (!d) return;
    if (d->sets) d->kind->release(d);
    speech_corpus_release(&d->corpus);
    free(d);
}

static tw_status load(const void *settings, task **out)
{
    const asr_settings *s = settings;
    asr_data *d = calloc(1, sizeof *d);
    if (!d) return tw_fail(TW_ERROR_MEMORY, "no memory for a corpus");
    d->kind = s->model == ASR_CTC ? &asr_ctc : &asr_frames;
    d->base = (task){.ops = &asr_task,
                     .settings = settings,
                     .metrics = d->kind->metrics,
                     .items = d->kind->items,
                     .batch_of = d->kind->batch_of};
    tw_status status = fill(s, d);
    if (status == TW_OK)
        *out = &d->base;
    else
        release(&d->base);
    return status;
}

static tw_status fits(const task *t, const learner_place *place)
{
    const asr_data *d = (const asr_data *)t;
    return task_check_batch(t, place, d->kind->count(d));
}

/* ---- a worker ---- */

static tw_status create_network(asr_learner *l)
{
    const asr_data *d = asr_data_of(l);
    const asr_settings *s = asr_settings_of(&d->base);
    acoustic_model_config config = {.features = feature_width(&d->request.features),
                                    .layers = (size_t)s->layers,
                                    .hidden = (size_t)s->hidden,
                                    .bottleneck = (size_t)s->bottleneck,
                                    .labels = d->labels,
                                    .keep = (float)(1 - s->dropout),
                                    .precision = l->base.place.precision};
    TW_TRY(acoustic_model_create(&config, &l->net));
    acoustic_model_initialise(l->net, l->base.place.seed);
    show_parameters(&l->base, d->kind->name, acoustic_model_parameters(l->net));
    return TW_OK;
}

static tw_status open(learner *base)
{
    asr_learner *l = (asr_learner *)base;
    l->order_epoch = UINT64_MAX;
    TW_TRY(asr_data_of(l)->kind->prepare(l));
    return create_network(l);
}

static void close(learner *base)
{
    asr_learner *l = (asr_learner *)base;
    if (l->own) asr_data_of(l)->kind->clear(l);
    acoustic_model_destroy(l->net);
    free(l->order);
}

static tw_status step(learner *base, uint64_t number, learner_gradient_ready ready, void *context, task_score *score)
{
    asr_learner *l = (asr_learner *)base;
    *score = (task_score){0};
    return asr_data_of(l)->kind->step(l, number, ready, context, score);
}

static tw_status evaluate(learner *base, task_split split, size_t part, size_t parts, task_score *score)
{
    (void)split; /* there is no validation set */
    asr_learner *l = (asr_learner *)base;
    return asr_data_of(l)->kind->evaluate(l, part, parts, score);
}

static tw_status describe(const learner *base, tw_state *state)
{
    const asr_data *d = asr_data_of((const asr_learner *)base);
    char text[FEATURE_SETTINGS_TEXT];
    TW_TRY(tw_state_put_text(state, "feature settings", feature_settings_text(&d->request.features, text)));
    return d->kind->describe ? d->kind->describe(d, state) : TW_OK;
}

const task_ops asr_task = {
    .name = "asr",
    .summary = "recognise speech: letters by CTC, or classes of frames",
    .examples =
        "  thinwire train asr --data fsdd/recordings --features rate=8000 --workers 4 --sync dgc --out runs/digits\n"
        "  thinwire train asr --data train.json --test test.json --layers 3 --hidden 256\n"
        "  thinwire train asr --model frames --data kaldi/train --alignment kaldi/train/ali.txt --bottleneck 64\n"
        "  thinwire transcribe runs/digits recording.wav\n",
    .rows = rows,
    .row_count = sizeof rows / sizeof *rows,
    .settings_bytes = sizeof(asr_settings),
    .fallback = fallback,
    .load = load,
    .release = release,
    .fits = fits,
    .learner_bytes = sizeof(asr_learner),
    .open = open,
    .close = close,
    .step = step,
    .evaluate = evaluate,
    .describe = describe,
};
