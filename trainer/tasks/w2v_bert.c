/* w2v_bert.c - learning from speech that nobody has written down: settings, data, sizes. pretraining_learner.c trains.
 */
#include "encoder_text.h"
#include "error.h"
#include "front_end.h"
#include "pretraining.h"
#include "share.h"
#include "sound.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(pretraining_settings, field)
#define OF_SIZE .stands_for = "what --size has"

static const option_row rows[] = {
    {.help = "What to train"},
    {"data", "PATH", OPTION_TEXT, AT(data),
     .help =
         "The training speech, with or without transcripts: a NeMo manifest, a Kaldi directory, a LibriSpeech tree, "
         "any tree of sound files (a folder is a speaker), or a folder of two of these called train and test",
     .path = true},
    {"test", "PATH", OPTION_TEXT, AT(test), .help = "The speech to test with",
     .stands_for = "the test part of --data, or every tenth speaker", .path = true},
    {"features", "LIST", OPTION_TEXT, AT(features), "rate=8000,bins=40,low=60,high=3800,floor=0.01",
     .help = "How sound becomes features. Whoever trains further takes the same", .binding = true},
    {"size", NULL, OPTION_CHOICE, AT(size), "tiny", .choices = "tiny|xl|xxl",
     .help = "The size of the network. xl and xxl are the paper's, of 0.6 and 1 billion parameters", .binding = true},
    {"contrastive-blocks", "N", OPTION_INTEGER, AT(contrastive_blocks), "-1", -1, 1000,
     .help = "Conformer blocks that learn to tell codes apart. Without any, masked prediction learns alone", OF_SIZE,
     .binding = true},
    {"masked-blocks", "M", OPTION_INTEGER, AT(masked_blocks), "-1", -1, 1000,
     .help = "Blocks above them that learn to name codes. Without any, contrastive learning is alone", OF_SIZE,
     .binding = true},
    {"width", "N", OPTION_INTEGER, AT(width), "-1", -1, 65536, .help = "Values of a row", OF_SIZE, .binding = true},
    {"heads", "N", OPTION_INTEGER, AT(heads), "-1", -1, 1024, .help = "Heads of attention", OF_SIZE, .binding = true},
    {"kernel", "N", OPTION_INTEGER, AT(kernel), "-1", -1, 1023,
     .help = "The length of the depthwise convolutions, in rows of four frames. It is odd", OF_SIZE, .binding = true},
    {"positions", NULL, OPTION_CHOICE, AT(positions), "none", .choices = "none|relative",
     .help = "What attention knows of positions. The convolutions tell them, too", .binding = true},
    {"groups", "N", OPTION_INTEGER, AT(groups), "-1", -1, 64, .help = "Codebooks", OF_SIZE, .binding = true},
    {"codes", "N", OPTION_INTEGER, AT(codes), "-1", -1, 65536, .help = "Codes of each codebook", OF_SIZE,
     .binding = true},
    {"dropout", "P", OPTION_REAL, AT(dropout), "0", 0, 0.99, .help = "The share of values that are dropped",
     .binding = true},
    {"targets", NULL, OPTION_CHOICE, AT(targets), "gumbel", .choices = "gumbel|random",
     .help =
         "The codes to predict. With gumbel they are learned. With random they come from a frozen random projection "
         "and codebook (BEST-RQ), for masked prediction alone",
     .binding = true},
    {"crop", "SECONDS", OPTION_REAL, AT(crop), "4", 0.01, 3600,
     .help = "Join each speaker's sounds, in another order each epoch, and cut them into pieces of this length",
     .binding = true},
    {"mask-probability", "P", OPTION_REAL, AT(mask_probability), "0.12", 0, 1,
     .help = "The probability that a hidden span begins at a row", .binding = true},
    {"mask-span", "N", OPTION_INTEGER, AT(mask_span), "5", 1, 10000, .help = "Rows of a hidden span", .binding = true},
    {"mask-fill", NULL, OPTION_CHOICE, AT(fill), "random", .choices = "random|learned",
     .help = "What stands where rows are hidden: random vectors, or one that is learned", .binding = true},
    {"distractors", "N", OPTION_INTEGER, AT(distractors), "100", 0, 65536,
     .help = "Compare each hidden row with N others of its crop, or with all where these are fewer", .binding = true,
     .beside = "targets=gumbel"},
    {"temperature", "FROM,TO,SHARE", OPTION_TEXT, AT(temperature), "1,0.5,0.7",
     .help = "The temperature of the Gumbel softmax, which falls from FROM to TO over SHARE of the run", .alike = true,
     .beside = "targets=gumbel"},
    {"diversity", "W", OPTION_REAL, AT(diversity), "1", 0, 1e6, .help = "The weight of the diversity loss",
     .binding = true, .beside = "targets=gumbel"},
    {"code-scale", "S", OPTION_REAL, AT(code_scale), "1", 1e-6, 1e6,
     .help = "The deviation of the first logits over the codes. Large ones fix the codes before anything is learned",
     .binding = true, .beside = "targets=gumbel"},
    {"on-collapse", NULL, OPTION_CHOICE, AT(on_collapse), "stop", .choices = "stop|go",
     .help = "What to do when hardly a code is in use any more", .beside = "targets=gumbel"},
    {"max-seconds", "SECONDS", OPTION_REAL, AT(most_seconds), "600", 0.1, 86400, .help = "Leave longer sounds out"},
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
    {"describe", NULL, OPTION_FLAG, AT(describe),
     .help = "Print the network's tensors and how many values they have, and end. This takes no data and hardly memory",
     .line_only = true},
};

static const char *w2v_bert_fallback(const void *settings, const char *option)
{
    static const task_suit suits[] = {{"epochs", "100"},      {"batch", "8"},
                                      {"lr", "0.002"},        {"schedule", "isqrt:0.08"},
                                      {"optimizer", "adamw"}, {"beta2", "0.98"},
                                      {"epsilon", "1e-06"},   {"weight-decay", "0.01"},
                                      {"clip", "5"},          {0}};
    (void)settings;
    return task_suit_of(suits, option);
}

/* ---- what is asked for ---- */

static tw_status temperature_parse(const char *text, falling_temperature *t)
{
    char end;
    if (sscanf(text, "%lf,%lf,%lf%c", &t->from, &t->to, &t->share, &end) == 3 && t->to >= 1e-3 && t->from >= t->to &&
        t->from <= 1e6 && t->share > 0 && t->share <= 1)
        return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--temperature %s: it falls to one of 0.001 or more, from one that is not lower and 1e6 at most, "
                   "over a share of the run above 0 and up to 1, as in 1,0.5,0.7",
                   text);
}

static void w2v_bert_take(long given, size_t *value)
{
    if (given >= 0) *value = (size_t)given;
}

/* Random targets are predicted by all blocks, where nobody says how many there are of each. */
static void take_blocks(const pretraining_settings *s, w2v_bert_config *c)
{
    if (s->targets == W2V_BERT_RANDOM && s->contrastive_blocks < 0) {
        c->masked_blocks += c->contrastive_blocks;
        c->contrastive_blocks = 0;
    }
    w2v_bert_take(s->contrastive_blocks, &c->contrastive_blocks);
    w2v_bert_take(s->masked_blocks, &c->masked_blocks);
}

static tw_status take_sizes(const pretraining_settings *s, w2v_bert_config *c)
{
    static const char *const names[] = {"tiny", "xl", "xxl"};
    w2v_bert_take_size(w2v_bert_find_size(names[s->size]), c);
    take_blocks(s, c);
    w2v_bert_take(s->width, &c->encoder.width);
    w2v_bert_take(s->heads, &c->encoder.heads);
    w2v_bert_take(s->kernel, &c->encoder.kernel);
    w2v_bert_take(s->groups, &c->groups);
    w2v_bert_take(s->codes, &c->codes);
    return w2v_bert_check(c);
}

/* What the settings ask for, checked; each worker says in which precision. */
static tw_status pretraining_config(const pretraining_settings *s, w2v_bert_config *config)
{
    feature_settings features;
    TW_TRY(feature_settings_parse(s->features, &features));
    *config = (w2v_bert_config){
        .encoder = {.features = feature_width(&features), .relative = s->positions, .keep = (float)(1 - s->dropout)},
        .code_scale = (float)s->code_scale,
        .targets = (w2v_bert_targets)s->targets,
        .mask_probability = s->mask_probability,
        .mask_span = (size_t)s->mask_span,
        .fill = (w2v_bert_fill)s->fill,
        .distractors = (size_t)s->distractors,
        .diversity_weight = (float)s->diversity,
        .similarity = 0.1f};
    return take_sizes(s, config);
}

/* ---- what --describe shows ---- */

static void print_tensor(const tw_tensor *t)
{
    char shape[64] = "";
    for (size_t i = 0, used = 0; i < t->dims; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%zu", i ? " x " : "", t->shape[i]);
    printf("%-56s %-24s %12zu\n", t->name, shape, tw_tensor_count(t));
}

static tw_status w2v_bert_show(const void *settings, bool *shown)
{
    const pretraining_settings *s = settings;
    w2v_bert_config config;
    nn_table table = {0};
    *shown = s->describe;
    if (!s->describe) return TW_OK;
    TW_TRY(pretraining_config(s, &config));
    tw_status status = w2v_bert_describe(&config, &table);
    for (size_t i = 0; status == TW_OK && i < table.count; i++) print_tensor(&table.tensors[i]);
    if (status == TW_OK)
        printf("%zu tensors, %zu parameters; training takes %.1f GiB for them, and more for what it computes\n",
               table.count, table.elements, (double)table.elements * 20 / 0x1p30);
    nn_table_free(&table);
    return status;
}

/* ---- data ---- */

static void note_skips(task *t, const char *part, const skips *s)
{
    char text[SKIPS_TEXT];
    size_t used = strlen(t->note);
    if (skips_total(s) > 0)
        snprintf(t->note + used, sizeof t->note - used, "%s%s: %s", used ? "\n" : "", part, skips_text(s, text));
}

static void note_short(task *t, const char *part, const speech_crops *crops)
{
    size_t used = strlen(t->note);
    if (crops->short_speakers > 0)
        snprintf(t->note + used, sizeof t->note - used, "%s%s: %zu of %zu speakers have no whole crop and are left out",
                 used ? "\n" : "", part, crops->short_speakers, crops->speakers);
}

/* Which sounds there are, and how much of each. */
static uint32_t sum_sounds(const pretraining_data *d)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < d->train.count; i++) {
        const speech_item *one = &d->train.items[i];
        const char *id = d->corpus.train.items[one->source].id;
        uint64_t frames = one->frames;
        sum = tw_crc32c(sum, id, strlen(id));
        sum = tw_crc32c(sum, &frames, sizeof frames);
    }
    return sum;
}

static void describe_data(pretraining_data *d)
{
    task *t = &d->base;
    snprintf(t->description, sizeof t->description,
             "%zu training and %zu test crops of %zu and %zu speakers, out of %.1f and %.1f minutes",
             d->train_crops.count, d->test_crops.count, d->train_crops.speakers, d->test_crops.speakers,
             d->train.seconds / 60, d->test.seconds / 60);
    snprintf(t->identity, sizeof t->identity, "of %zu crops (sounds %08x)", d->train_crops.count, sum_sounds(d));
    snprintf(t->content, sizeof t->content, "sounds %08x", speech_list_sum_files(&d->corpus.train));
    note_skips(t, "training", &d->train.skipped);
    note_skips(t, "test", &d->test.skipped);
    note_short(t, "training", &d->train_crops);
    note_short(t, "test", &d->test_crops);
}

static tw_status count_frames(const pretraining_settings *s, const feature_settings *features, size_t *frames)
{
    *frames = (size_t)llround(s->crop * 1000 / (features->hop_ms * features->stride));
    size_t rows_of_crop = front_end_rows(*frames), span = (size_t)s->mask_span;
    if (rows_of_crop >= 2 * span) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--crop %g is %zu rows, less than two spans of --mask-span %zu: nothing would be left to see",
                   s->crop, rows_of_crop, span);
}

/* A block keeps for each row 35 times its width: twice four widened ones before and after swish, and 19 others; and the
 * weights of its attention. */
static double w2v_bert_activations(const w2v_bert_config *config, double batch, double rows_of_crop)
{
    const speech_encoder_config *e = &config->encoder;
    const double blocks = (double)(config->contrastive_blocks + config->masked_blocks);
    return batch * rows_of_crop * blocks * (35 * (double)e->width + (double)e->heads * rows_of_crop);
}

static tw_status w2v_bert_sizes(const void *settings, size_t batch, task_sizes *sizes)
{
    const pretraining_settings *s = settings;
    feature_settings features;
    w2v_bert_config config;
    nn_table table = {0};
    size_t frames;
    TW_TRY(feature_settings_parse(s->features, &features));
    TW_TRY(count_frames(s, &features, &frames));
    TW_TRY(pretraining_config(s, &config));
    tw_status status = w2v_bert_describe(&config, &table);
    *sizes =
        (task_sizes){(double)table.elements,
                     w2v_bert_activations(&config, (double)batch, (double)front_end_rows(frames)), "--size or --width"};
    nn_table_free(&table);
    return status;
}

static tw_status load_sounds(const pretraining_settings *s, pretraining_data *d)
{
    speech_request request = {.channel = s->channel < 0 ? SOUND_MONO : (int)s->channel,
                              .most_seconds = s->most_seconds,
                              .most_bytes = share_of_memory(s->memory_mb),
                              .most_bytes_option = "--memory",
                              .cache = s->feature_cache,
                              .cache_option = "--feature-cache"};
    size_t frames;
    TW_TRY(feature_settings_parse(s->features, &request.features));
    TW_TRY(count_frames(s, &request.features, &frames));
    TW_TRY(speech_corpus_load_sounds(s->data, s->test, &d->corpus));
    TW_TRY(speech_load(&d->corpus.train, NULL, &request, &d->train));
    TW_TRY(speech_load(&d->corpus.test, NULL, &request, &d->test));
    TW_TRY(speech_crops_find(&d->train, &d->corpus.train, frames, "--crop", &d->train_crops));
    return speech_crops_find(&d->test, &d->corpus.test, frames, "--crop", &d->test_crops);
}

static tw_status fill(const pretraining_settings *s, pretraining_data *d)
{
    if (!s->data)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--data is missing: a folder of speech, or a manifest; --help lists the kinds");
    TW_TRY(temperature_parse(s->temperature, &d->temperature));
    TW_TRY(pretraining_config(s, &d->config));
    TW_TRY(load_sounds(s, d));
    snprintf(d->base.path, sizeof d->base.path, "%s", s->data);
    describe_data(d);
    return TW_OK;
}

static void w2v_bert_release(task *t)
{
    pretraining_data *d = (pretraining_data *)t;
    if (!d) return;
    speech_crops_release(&d->train_crops);
    speech_crops_release(&d->test_crops);
    speech_release(&d->train);
    speech_release(&d->test);
    speech_corpus_release(&d->corpus);
    free(d);
}

static tw_status w2v_bert_load(const void *settings, task **out)
{
    pretraining_data *d = calloc(1, sizeof *d);
    if (!d) return tw_fail(TW_ERROR_MEMORY, "no memory for a corpus");
    d->base = (task){.ops = &w2v_bert_task,
                     .settings = settings,
                     .metrics = pretraining_metrics,
                     .tell = pretraining_tell,
                     .measures_steps = true,
                     .items = "crops",
                     .has_test = true,
                     .batch_of = "crops"};
    tw_status status = fill(settings, d);
    if (status == TW_OK)
        *out = &d->base;
    else
        w2v_bert_release(&d->base);
    return status;
}

static tw_status w2v_bert_fits(const task *t, const learner_place *place)
{
    const pretraining_data *d = (const pretraining_data *)t;
    return task_check_batch(t, place, d->train_crops.count);
}

/* ---- what is left for those who train further ---- */

static tw_status describe(const learner *base, tw_state *state)
{
    const pretraining_data *d = (const pretraining_data *)base->task;
    char text[FEATURE_SETTINGS_TEXT], encoder[ENCODER_TEXT];
    speech_encoder_config sizes = d->config.encoder;
    sizes.blocks = d->config.contrastive_blocks + d->config.masked_blocks;
    TW_TRY(tw_state_put_text(state, "feature settings", feature_settings_text(&d->train.features, text)));
    return tw_state_put_text(state, "speech encoder", encoder_text(&sizes, encoder));
}

static tw_status predictor_open(const tw_state *state, size_t elements, task_predictor **out)
{
    (void)state, (void)elements, (void)out;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "it is pre-trained: it has heard speech, but knows no letters. thinwire train asr --data SPEECH "
                   "--encoder conformer --init-from RUN teaches it some, with transcripts, and is what transcribes");
}

const task_ops w2v_bert_task = {
    .name = "w2v-bert",
    .summary = "pre-train a speech encoder on sounds that nobody has written down",
    .examples = "  thinwire train w2v-bert --data recordings --out runs/w2v\n"
                "  thinwire train w2v-bert --data speech.json --workers 4 --batch 4 --sync dgc-adam\n"
                "  thinwire train w2v-bert --size xl --describe\n",
    .rows = rows,
    .row_count = sizeof rows / sizeof *rows,
    .fallback = w2v_bert_fallback,
    .show = w2v_bert_show,
    .sizes = w2v_bert_sizes,
    .load = w2v_bert_load,
    .release = w2v_bert_release,
    .fits = w2v_bert_fits,
    .learner_bytes = sizeof(pretraining_learner),
    .open = pretraining_open,
    .close = pretraining_close,
    .step = pretraining_step,
    .evaluate = pretraining_evaluate,
    .save = pretraining_save,
    .restore = pretraining_restore,
    .describe = describe,
    .predictor_open = predictor_open,
    .use_summary = "A pre-trained speech encoder has no answers; thinwire train asr --init-from RUN makes a recogniser "
                   "of it.",
    .use_examples = "",
};
