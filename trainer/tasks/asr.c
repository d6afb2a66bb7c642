/* asr.c - recognising speech: settings, data and network; what is learned of them is asr_ctc.c's and asr_frames.c's. */
#include "asr.h"
#include "asr_network.h"
#include "encoder_text.h"
#include "error.h"
#include "front_end.h"
#include "share.h"
#include "sound.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(asr_settings, field)
#define OF_CHECKPOINT(usual) .stands_for = "what the checkpoint has, or " usual

static const option_row rows[] = {
    {.help = "What to train"},
    {"data", "PATH", OPTION_TEXT, AT(data),
     .help = "The training speech: a NeMo manifest, a Kaldi directory, a LibriSpeech tree, a folder of WAVs named "
             "LABEL_SPEAKER_INDEX.wav, or a folder of two of these called train and test",
     .path = true},
    {"test", "PATH", OPTION_TEXT, AT(test), .help = "The speech to test with",
     .stands_for = "the test part of --data, or every tenth utterance", .path = true},
    {"validation", "SHARE", OPTION_REAL, AT(validation), "0", 0, 0.9,
     .help = "Hold this share of the training utterances out, to look at after each epoch and to choose models by",
     .stands_for = "look at the test part"},
    {"validation-data", "PATH", OPTION_TEXT, AT(validation_data),
     .help = "Look at this speech instead, such as a corpus's own development part", .path = true},
    {"model", NULL, OPTION_CHOICE, AT(model), "ctc", .choices = "ctc|frames",
     .help = "The network. ctc learns letters from transcripts. frames learns classes of sound from an alignment, in "
             "windows",
     .binding = true},
    {"alignment", "FILE", OPTION_TEXT, AT(alignment),
     .help = "For --model frames: a file with a line for each utterance, its id and the class of each of its frames",
     .path = true},
    {"test-alignment", "FILE", OPTION_TEXT, AT(test_alignment), .help = "The same for the test part",
     .stands_for = "--alignment", .path = true},
    {"features", "LIST", OPTION_TEXT, AT(features), "bins=40",
     .help = "How sound becomes features: rate=16000,window_ms=25,hop_ms=10,bins=40,deltas=0,stack=1,stride=1,...",
     .binding = true},
    {"labels-from", "PATH", OPTION_TEXT, AT(labels_from),
     .help = "Take the letters from the transcripts of this speech, which may be more than is trained with. Where few "
             "are transcribed, letters would be missing otherwise",
     .stands_for = "--data", .path = true},
    {"encoder", NULL, OPTION_CHOICE, AT(encoder), "lstm", .choices = "lstm|conformer",
     .help = "What listens: LSTM layers in both directions, or conformer blocks, which thinwire train w2v-bert "
             "pre-trains and --init-from takes over with their sizes and --features",
     .binding = true, .older = "lstm"},
    {"layers", "N", OPTION_INTEGER, AT(layers), "2", 1, 64, .help = "Bidirectional LSTM layers", .binding = true,
     .beside = "encoder=lstm"},
    {"hidden", "N", OPTION_INTEGER, AT(hidden), "128", 1, 16384, .help = "Cells of a layer in each direction",
     .binding = true, .beside = "encoder=lstm"},
    {"bottleneck", "N", OPTION_INTEGER, AT(bottleneck), "0", 0, 65536,
     .help = "Outputs of a linear layer before the last one", .stands_for = "no such layer", .binding = true},
    {"blocks", "N", OPTION_INTEGER, AT(blocks), "-1", -1, 1000, .help = "Conformer blocks", OF_CHECKPOINT("8"),
     .binding = true, .older = "-1"},
    {"width", "N", OPTION_INTEGER, AT(width), "-1", -1, 65536, .help = "Values of a conformer's row",
     OF_CHECKPOINT("128"), .binding = true, .older = "-1"},
    {"heads", "N", OPTION_INTEGER, AT(heads), "-1", -1, 1024, .help = "Its heads of attention", OF_CHECKPOINT("4"),
     .binding = true, .older = "-1"},
    {"kernel", "N", OPTION_INTEGER, AT(kernel), "-1", -1, 1023,
     .help = "The length of its depthwise convolutions, in rows of four frames. It is odd", OF_CHECKPOINT("15"),
     .binding = true, .older = "-1"},
    {"channels", "N", OPTION_INTEGER, AT(channels), "-1", -1, 65536,
     .help =
         "Channels of the two convolutions before the conformers, which make a row of four frames. LSTM layers have "
         "them before them, too, if this is given, and then take a quarter of the steps",
     OF_CHECKPOINT("32; none before LSTM layers"), .binding = true, .older = "-1"},
    {"positions", NULL, OPTION_CHOICE, AT(positions), "none", .choices = "none|relative",
     .help = "What attention knows of positions", .stands_for = "what the checkpoint has, or none", .binding = true,
     .older = "none"},
    {"freeze", NULL, OPTION_CHOICE, AT(freeze), "none", .choices = "none|features|encoder",
     .help = "The part of the conformers' encoder that never learns: its convolutions, or all of it, so that the last "
             "layer alone does",
     .binding = true, .older = "none"},
    {"freeze-steps", "N", OPTION_INTEGER, AT(freeze_steps), "0", 0, 1e15,
     .help = "Let the last layer alone learn before step N. With an encoder that was only pre-trained it is 500 unless "
             "you say so",
     .binding = true, .older = "0"},
    {"window", "N", OPTION_INTEGER, AT(window), "21", 1, 10000,
     .help = "For --model frames: how many frames a window has", .binding = true, .beside = "model=frames"},
    {"dropout", "P", OPTION_REAL, AT(dropout), "0", 0, 0.99,
     .help = "The share of each layer's outputs that are dropped", .binding = true},
    {"tempo", "SHARE", OPTION_REAL, AT(tempo), "0", 0, 0.5,
     .help = "Stretch or squeeze each training utterance in time by up to this share", .binding = true},
    {"time-masks", "N", OPTION_INTEGER, AT(time_masks), "0", 0, 100,
     .help = "SpecAugment: mask so many spans of frames in each training utterance", .binding = true},
    {"time-mask", "N", OPTION_INTEGER, AT(time_mask), "10", 1, 10000,
     .help = "The longest such span, in frames as the network sees them. It is never above a fifth of an utterance",
     .binding = true, .beside = "time-masks"},
    {"frequency-masks", "N", OPTION_INTEGER, AT(frequency_masks), "0", 0, 100,
     .help = "SpecAugment: mask so many bands of frequency", .binding = true},
    {"frequency-mask", "N", OPTION_INTEGER, AT(frequency_mask), "8", 1, 1024, .help = "The widest such band, in bins",
     .binding = true, .beside = "frequency-masks"},
    {"max-seconds", "SECONDS", OPTION_REAL, AT(most_seconds), "20", 0.1, 3600, .help = "Leave longer utterances out"},
    {"channel", "N", OPTION_INTEGER, AT(channel), "-1", -1, 63, .help = "Take this channel of files with several",
     .stands_for = "such files are left out"},
    {"feature-cache", "DIR", OPTION_TEXT, AT(feature_cache),
     .help = "Keep features in this folder, in a file for each part of the speech. They are computed once for later "
             "runs, and for all ranks of a machine",
     .path = true},
    {"memory", "MB", OPTION_INTEGER, AT(memory_mb), "4096", 1, 1e7,
     .help = "Keep so much of each part's features in memory. The rest is in a temporary file, in TMPDIR or /tmp. "
             "Ranks that mpirun starts on one machine divide it",
     .may_differ = true},
};

#define USE(field) offsetof(asr_use, field)

static const option_row use_rows[] = {
    {"beam", "WIDTH", OPTION_INTEGER, USE(beam), "0", 0, 100000, .help = "Search with a beam of so many prefixes",
     .stands_for = "take the likeliest letter of each frame"},
    {"bonus", "NATS", OPTION_REAL, USE(bonus), "0", -100, 100, .help = "What a beam search adds for each letter"},
    {"channel", "N", OPTION_INTEGER, USE(channel), "-1", -1, 63, .help = "Take this channel of files with several",
     .stands_for = "such files are refused"},
    {"max-seconds", "SECONDS", OPTION_REAL, USE(most_seconds), "120", 0.1, 3600, .help = "Refuse longer files"},
};

static const char *asr_fallback(const void *settings, const char *option)
{
    static const task_suit both[] = {{"epochs", "30"}, {"batch", "4"}, {"schedule", "cosine"}, {"warmup", "100"}, {0}};
    static const task_suit lstm[] = {{"lr", "0.05"}, {"clip", "1"}, {0}};
    static const task_suit conformer[] = {{"lr", "0.001"},          {"optimizer", "adamw"}, {"beta2", "0.98"},
                                          {"weight-decay", "0.01"}, {"clip", "5"},          {0}};
    const asr_settings *s = settings;
    const char *value = task_suit_of(s && s->encoder == ASR_CONFORMER ? conformer : lstm, option);
    return value ? value : task_suit_of(both, option);
}

/* ---- data ---- */

static void add_note(asr_data *d, const char *about, const char *text)
{
    char *note = d->base.note;
    size_t used = strlen(note), room = sizeof d->base.note - used;
    snprintf(note + used, room, "%s%s: %s", used ? "\n" : "", about, text);
}

static void note_skips(asr_data *d, const char *about, const skips *skipped)
{
    char text[SKIPS_TEXT];
    if (skips_total(skipped) > 0) add_note(d, about, skips_text(skipped, text));
}

/* Of the sounds and what is said in them. */
static uint32_t sum_held_out(const speech_list *list)
{
    uint32_t sum = speech_list_sum_files(list);
    for (size_t i = 0; i < list->count; i++) {
        const char *text = list->items[i].text;
        if (text) sum = tw_crc32c(sum, text, strlen(text) + 1);
    }
    return sum;
}

/* "2430 training, 270 validation and 300 test WHAT, 18.2, 2.0 and 2.2 minutes", and in the note what was left out. */
static void describe_parts(asr_data *d, const asr_parts *parts)
{
    static const char *const names[] = {"training", "validation", "test"};
    const speech_set *const *sets = parts->sets;
    const double train = sets[0]->seconds / 60, valid = sets[1]->seconds / 60, test = sets[2]->seconds / 60;
    char all[TASK_COUNTS_TEXT], minutes[64];
    task_counts_text(parts->counts[0], parts->counts + 1, all);
    if (d->base.has_validation)
        snprintf(minutes, sizeof minutes, "%.1f, %.1f and %.1f", train, valid, test);
    else
        snprintf(minutes, sizeof minutes, "%.1f and %.1f", train, test);
    snprintf(d->base.description, sizeof d->base.description, "%s %s, %s minutes", all, parts->what, minutes);
    snprintf(d->base.content, sizeof d->base.content, "sounds %08x", speech_list_sum_files(&d->corpus.train));
    d->base.held_out = sum_held_out(&d->corpus.valid);
    for (int i = 0; i < 3; i++) note_skips(d, names[i], &sets[i]->skipped);
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

static void note_held(asr_data *d)
{
    const asr_settings *s = asr_settings_of(&d->base);
    char option[64];
    if (s->freeze_steps <= 0 || s->freeze == SPEECH_ENCODER_FREEZE_ALL) return;
    snprintf(option, sizeof option, "--freeze-steps %ld", s->freeze_steps);
    add_note(d, option, "before that the last layer alone learns");
    d->base.held_steps = (uint64_t)s->freeze_steps;
}

/* Channels of the convolutions before LSTM layers; a speech encoder has its own. */
static size_t front_channels(const asr_settings *s)
{
    return s->encoder == ASR_LSTM && s->channels > 0 ? (size_t)s->channels : 0;
}

static size_t frames_a_row(const asr_settings *s)
{
    return s->encoder == ASR_CONFORMER || front_channels(s) > 0 ? FRONT_END_STRIDE : 1;
}

/* What the other encoder alone understands would be silently off. */
static const char *foreign_to_lstm(const asr_settings *s)
{
    const struct {
        const char *option;
        bool given;
    } rows_of_conformers[] = {
        {"--blocks", s->blocks >= 0},           {"--width", s->width >= 0},    {"--heads", s->heads >= 0},
        {"--kernel", s->kernel >= 0},           {"--positions", s->positions}, {"--freeze", s->freeze},
        {"--freeze-steps", s->freeze_steps > 0}};
    for (size_t i = 0; i < sizeof rows_of_conformers / sizeof *rows_of_conformers; i++)
        if (rows_of_conformers[i].given) return rows_of_conformers[i].option;
    return NULL;
}

static tw_status check_encoder(const asr_settings *s)
{
    const char *foreign = s->encoder == ASR_LSTM ? foreign_to_lstm(s) : NULL;
    if (foreign)
        return tw_fail(TW_ERROR_ARGUMENT, "%s is for --encoder conformer; this one is --encoder lstm", foreign);
    if (s->encoder == ASR_CONFORMER && s->bottleneck > 0)
        return tw_fail(TW_ERROR_ARGUMENT, "--bottleneck %ld is for --encoder lstm; this one is --encoder conformer",
                       s->bottleneck);
    if (s->model == ASR_FRAMES && frames_a_row(s) > 1)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--model frames names a class for each frame, and %s makes a row of four of them; take "
                       "--model ctc",
                       s->encoder == ASR_CONFORMER ? "--encoder conformer" : "--channels");
    return TW_OK;
}

/* What the other model alone understands would be silently off. */
static tw_status check_model(const asr_settings *s)
{
    if (s->model == ASR_FRAMES && s->labels_from)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--labels-from %s: --model frames has classes, and no letters; it is for "
                       "--model ctc",
                       s->labels_from);
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
                                .most_bytes = share_of_memory(s->memory_mb),
                                .most_bytes_option = "--memory",
                                .cache = s->feature_cache,
                                .cache_option = "--feature-cache",
                                .frames_a_row = frames_a_row(s)};
    return feature_settings_parse(s->features, &request->features);
}

static tw_status load_corpus(const asr_settings *s, speech_corpus *corpus)
{
    if (s->validation > 0 && s->validation_data)
        return tw_fail(TW_ERROR_ARGUMENT, "--validation %g and --validation-data: give one of them", s->validation);
    TW_TRY(speech_corpus_load(s->data, s->test, corpus));
    if (s->validation_data) return speech_corpus_add_validation(s->validation_data, corpus);
    return s->validation > 0 ? speech_corpus_hold_out(s->validation, corpus) : TW_OK;
}

static tw_status asr_fill(const asr_settings *s, asr_data *d)
{
    if (!s->data)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--data is missing: a manifest, or a folder of speech; --help lists the kinds");
    TW_TRY(check_model(s));
    TW_TRY(check_encoder(s));
    TW_TRY(read_request(s, &d->request));
    TW_TRY(asr_encoder_sizes(s, feature_width(&d->request.features), &d->encoder));
    TW_TRY(load_corpus(s, &d->corpus));
    d->base.has_validation = d->corpus.valid.count > 0;
    snprintf(d->base.path, sizeof d->base.path, "%s", s->data);
    note_rate(d);
    note_held(d);
    asr_parts parts;
    TW_TRY(d->kind->load(d, &parts));
    describe_parts(d, &parts);
    return TW_OK;
}

static void asr_release(task *t)
{
    asr_data *d = (asr_data *)t;
    if (!d) return;
    if (d->sets) d->kind->release(d);
    speech_corpus_release(&d->corpus);
    free(d);
}

static tw_status asr_load(const void *settings, task **out)
{
    const asr_settings *s = settings;
    asr_data *d = calloc(1, sizeof *d);
    if (!d) return tw_fail(TW_ERROR_MEMORY, "no memory for a corpus");
    d->kind = s->model == ASR_CTC ? &asr_ctc : &asr_frames;
    d->base = (task){.ops = &asr_task,
                     .settings = settings,
                     .metrics = d->kind->metrics,
                     .items = d->kind->items,
                     .has_test = true,
                     .batch_of = d->kind->batch_of};
    tw_status status = asr_fill(s, d);
    if (status == TW_OK)
        *out = &d->base;
    else
        asr_release(&d->base);
    return status;
}

static tw_status asr_fits(const task *t, const learner_place *place)
{
    const asr_data *d = (const asr_data *)t;
    return task_check_batch(t, place, d->kind->count(d));
}

/* ---- a worker ---- */

/* What is frozen becomes buffers: nobody exchanges, decays or averages them. */
static void show_network(asr_learner *l)
{
    learner *base = &l->base;
    const parameter_set *all = acoustic_model_parameters(l->net);
    const size_t frozen = acoustic_model_frozen(l->net), values = frozen ? all->table->offsets[frozen] : 0;
    show_parameters(base, asr_data_of(l)->kind->name, all);
    base->tensors += frozen;
    base->tensor_count -= frozen;
    base->parameters += values;
    base->gradients += values;
    base->parameter_count -= values;
    base->buffer_tensors = all->table->tensors;
    base->buffer_tensor_count = frozen;
    base->buffers = all->values;
    base->buffer_count = values;
    base->buffers_stand = true;
}

static tw_status create_network(asr_learner *l)
{
    const asr_data *d = asr_data_of(l);
    const asr_settings *s = asr_settings_of(&d->base);
    acoustic_model_config config = {.features = feature_width(&d->request.features),
                                    .layers = s->encoder == ASR_LSTM ? (size_t)s->layers : 0,
                                    .encoder = d->encoder,
                                    .freeze = (speech_encoder_freeze)s->freeze,
                                    .hidden = (size_t)s->hidden,
                                    .channels = front_channels(s),
                                    .bottleneck = (size_t)s->bottleneck,
                                    .labels = d->labels,
                                    .keep = (float)(1 - s->dropout),
                                    .precision = l->base.place.precision};
    TW_TRY(acoustic_model_create(&config, &l->net));
    if (l->base.place.pager) TW_TRY(acoustic_model_page(l->net, l->base.place.pager));
    TW_TRY(acoustic_model_initialise(l->net, l->base.place.seed));
    show_network(l);
    return TW_OK;
}

static tw_status asr_open(learner *base)
{
    asr_learner *l = (asr_learner *)base;
    l->order_epoch = UINT64_MAX;
    TW_TRY(asr_data_of(l)->kind->prepare(l));
    return create_network(l);
}

static void asr_close(learner *base)
{
    asr_learner *l = (asr_learner *)base;
    if (l->own) asr_data_of(l)->kind->clear(l);
    acoustic_model_destroy(l->net);
    free(l->order);
}

/* output.weight and output.bias. */
enum { OUTPUT_TENSORS = 2 };

static tw_status asr_step(learner *base, uint64_t number, learner_gradient_ready ready, void *context,
                          task_score *score)
{
    asr_learner *l = (asr_learner *)base;
    const size_t held = number < (uint64_t)asr_settings_of(base->task)->freeze_steps;
    *score = (task_score){0};
    acoustic_model_hold(l->net, held);
    base->held_tensors = held ? base->tensor_count - OUTPUT_TENSORS : 0;
    return asr_data_of(l)->kind->step(l, number, ready, context, score);
}

static tw_status asr_evaluate(learner *base, task_split split, size_t part, size_t parts, task_score *score)
{
    asr_learner *l = (asr_learner *)base;
    return asr_data_of(l)->kind->evaluate(l, split, part, parts, score);
}

static tw_status describe(const learner *base, tw_state *state)
{
    const asr_data *d = asr_data_of((const asr_learner *)base);
    char text[FEATURE_SETTINGS_TEXT];
    char encoder[ENCODER_TEXT];
    TW_TRY(tw_state_put_text(state, "feature settings", feature_settings_text(&d->request.features, text)));
    if (asr_settings_of(&d->base)->encoder == ASR_CONFORMER)
        TW_TRY(tw_state_put_text(state, "speech encoder", encoder_text(&d->encoder, encoder)));
    return d->kind->describe ? d->kind->describe(d, state) : TW_OK;
}

const task_ops asr_task = {
    .name = "asr",
    .summary = "recognise speech: letters by CTC, or classes of frames",
    .examples =
        "  thinwire train asr --data fsdd/recordings --features rate=8000 --workers 4 --sync dgc --out runs/digits\n"
        "  thinwire train asr --data train.json --test test.json --layers 3 --hidden 256\n"
        "  thinwire train asr --data train.json --test test.json --encoder conformer --init-from runs/w2v\n"
        "  thinwire train asr --model frames --data kaldi/train --alignment kaldi/train/ali.txt --bottleneck 64\n"
        "  thinwire transcribe runs/digits recording.wav\n",
    .rows = rows,
    .row_count = sizeof rows / sizeof *rows,
    .fallback = asr_fallback,
    .begins_with = "w2v-bert",
    .take_sizes = asr_take_sizes,
    .load = asr_load,
    .release = asr_release,
    .fits = asr_fits,
    .learner_bytes = sizeof(asr_learner),
    .open = asr_open,
    .close = asr_close,
    .step = asr_step,
    .evaluate = asr_evaluate,
    .describe = describe,
    .labels = ASR_ALPHABET,
    .predictor_open = asr_predictor_open,
    .predictor_close = asr_predictor_close,
    .predict = asr_predict,
    .describe_network = asr_describe_network,
    .use_rows = use_rows,
    .use_row_count = sizeof use_rows / sizeof *use_rows,
    .used_by = "transcribe",
    .use_summary = "Of a recogniser of speech, FILE is a sound file, and the answer what is said in it.",
    .use_examples = "  thinwire transcribe runs/digits recordings/*.wav\n"
                    "  thinwire transcribe runs/digits question.flac --beam 50 --json\n",
};
