/* lm.c - language models: the next word of a text, or the next character. */
#include "corpus.h"
#include "error.h"
#include "language_model.h"
#include "lm_network.h"
#include "lora_text.h"
#include "machine_memory.h"
#include "recurrent_learner.h"
#include "rope_text.h"
#include "share.h"
#include "strips.h"
#include "task.h"
#include "tokenizer_json.h"
#include "transformer_folder.h"
#include "transformer_text.h"
#include "words.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct lm_settings {
    char *data;      /* a folder, or a file */
    char *tokenizer; /* NULL: the training text's tokens; else a file of them */
    char *model;
    int unit; /* text_unit */
    long vocabulary, bptt, memory_mb;
    long layers, hidden; /* 0: the model's */
    long heads, kv_heads, head, inner;
    int family;            /* decoder_family */
    char *scaling;         /* see rope_text.h; NULL: none */
    char *lora;            /* see lora_text.h; NULL: no adapters */
    double dropout, range; /* below 0: the model's */
    double theta, epsilon;
    bool tied;
} lm_settings;

static const char *recipe_model(size_t index);
static const char *recipe_summary(size_t index);

#define AT(field) offsetof(lm_settings, field)

static const option_row rows[] = {
    {.help = "What to train"},
    {"data", "PATH", OPTION_TEXT, AT(data),
     .help =
         "A folder of texts with names like ptb.train.txt, ptb.valid.txt and ptb.test.txt, or one text file, of which "
         "90 % train, 5 % validate and 5 % test. With --unit id the names end in .npy",
     .path = true},
    {"unit", NULL, OPTION_CHOICE, AT(unit), "word", .choices = "word|char|piece|id",
     .help = "What the model predicts. Pieces of words are SentencePiece's, learnt from the training text. With id the "
             "data are the numbers of tokens, of any tokenizer, as numpy.save writes them",
     .binding = true},
    {"vocabulary", "N", OPTION_INTEGER, AT(vocabulary), "0", 0, 1e9,
     .help =
         "Keep the N most frequent words or characters, <unk> for the others among them. Of pieces, make N. Of ids, "
         "how many the tokenizer has",
     .stands_for = "all, 4,096 pieces, and as many ids as the network of --init-from has", .binding = true},
    {"tokenizer", "FILE", OPTION_TEXT, AT(tokenizer),
     .help =
         "Take the tokens of FILE, and not the training text's: a tokenizer.json as thinwire export --transformers "
         "writes it, the model.safetensors of a language model, or a SentencePiece model, whose name ends in .model",
     .stands_for = "those of --init-from, where it is given", .path = true, .kept = true},
    {"memory", "MB", OPTION_INTEGER, AT(memory_mb), "4096", 1, 1e7,
     .help = "Texts of more than a fifth of it stay in their files and are read a little at a time; the run's bits are "
             "the same. Ranks that mpirun starts on one machine divide it",
     .may_differ = true},
    {"model", "NAME", OPTION_TEXT, AT(model), "small",
     .help =
         "The network: small, medium and large are LSTMs of Zaremba et al. 2014, dgc is the LSTM of the Deep Gradient "
         "Compression paper, and transformer is a decoder in Llama's shape. The optimiser, the learning rate, its "
         "schedule, --clip and --epochs follow it",
     .binding = true, .word = recipe_model, .word_meaning = recipe_summary},
    {"layers", "N", OPTION_INTEGER, AT(layers), "0", 0, 64, .help = "LSTM layers, or blocks of the transformer",
     .stands_for = "the model's", .binding = true},
    {"hidden", "N", OPTION_INTEGER, AT(hidden), "0", 0, 65536, .help = "Cells of a layer, and features of a word",
     .stands_for = "the model's", .binding = true},
    {"family", NULL, OPTION_CHOICE, AT(family), "llama", .choices = "llama|qwen2|qwen3",
     .help = "Whose the transformer's blocks are. Those of qwen2 have biases of queries, keys and values, and those of "
             "qwen3 norms of each head's queries and keys",
     .stands_for = "llama, or that of --init-from", .binding = true, .older = "llama"},
    {"heads", "N", OPTION_INTEGER, AT(heads), "0", 0, 1024,
     .help = "Heads of the transformer's attention, which divide --hidden into even parts", .stands_for = "the model's",
     .binding = true, .older = "0"},
    {"kv-heads", "N", OPTION_INTEGER, AT(kv_heads), "0", 0, 1024,
     .help = "Heads that the transformer has keys and values for. They divide --heads, and so many query heads share "
             "each",
     .stands_for = "as many as --heads", .binding = true, .older = "0"},
    {"head-width", "N", OPTION_INTEGER, AT(head), "0", 0, 65536, .help = "Features of one of the transformer's heads",
     .stands_for = "--hidden divided by --heads", .binding = true, .older = "0"},
    {"inner", "N", OPTION_INTEGER, AT(inner), "0", 0, 262144, .help = "Width of the transformer's feed-forward part",
     .stands_for = "8/3 of --hidden, up to a multiple of 32", .binding = true, .older = "0"},
    {"rope-theta", "T", OPTION_REAL, AT(theta), "10000", 1, 1e12,
     .help = "The base of the transformer's rotary positions", .binding = true, .older = "10000",
     .beside = "model=transformer"},
    {"rope-scaling", "SPEC", OPTION_TEXT, AT(scaling),
     .help = "How much slower the positions of a transformer turn that went on to longer texts: linear:FACTOR, or "
             "Llama 3.1's llama3:FACTOR,LOW,HIGH,POSITIONS",
     .stands_for = "not at all, or as those of --init-from", .binding = true, .in_full = rope_in_full},
    {"norm-epsilon", "E", OPTION_REAL, AT(epsilon), "1e-05", 1e-12, 0.1,
     .help = "What the transformer's norms add to the mean square", .binding = true, .older = "1e-05",
     .beside = "model=transformer"},
    {"tied", NULL, OPTION_FLAG, AT(tied),
     .help = "Use one matrix for the words that come in and those that are predicted", .binding = true},
    {"lora", "SPEC", OPTION_TEXT, AT(lora),
     .help = "Train adapters of low rank beside the transformer of --init-from, and not its weights: rank=R, alpha=16, "
             "dropout=0, targets=q+k+v+o+gate+up+down, with commas between them. Only adapters travel and are saved",
     .stands_for = "train all weights", .binding = true, .in_full = lora_in_full},
    {"dropout", "P", OPTION_REAL, AT(dropout), "-1", -1, 0.99,
     .help = "The share of values that are dropped between layers", .stands_for = "the model's", .binding = true},
    {"init", "R", OPTION_REAL, AT(range), "-1", -1, 10, .help = "Draw the first weights uniformly between -R and R",
     .stands_for = "the model's"},
    {"bptt", "T", OPTION_INTEGER, AT(bptt), "0", 0, 65536,
     .help = "Cut back-propagation after T tokens. They are all that a "
             "transformer sees",
     .stands_for = "the model's", .binding = true},
};

#define USE(field) offsetof(lm_use, field)

static const option_row use_rows[] = {
    {"prompt", "TEXT", OPTION_TEXT, USE(prompt), .help = "What the text begins with", .stands_for = "a new line"},
    {"tokens", "N", OPTION_INTEGER, USE(tokens), "200", 0, 1e9,
     .help = "Add N words, characters, pieces or ids. Ends of lines count"},
    {"temperature", "T", OPTION_REAL, USE(temperature), "1", 0, 100,
     .help = "Below 1 the likely becomes likelier. 0 always takes the likeliest"},
    {"top-k", "K", OPTION_INTEGER, USE(top_k), "0", 0, 1e9, .help = "Draw from the K likeliest only",
     .stands_for = "from all"},
    {"seed", "N", OPTION_INTEGER, USE(seed), "1", 0, 1e15,
     .help = "The seed of what is drawn. Each gives another text"},
};

/* ---- recipes ---- */

/* A model and how it is trained. */
typedef struct recipe {
    const char *model, *network, *lr, *clip, *schedule, *epochs;
    bool decoder; /* whose optimiser and what goes with it are those of decoders */
} recipe;

/* Zaremba's loss is a sum over the --bptt steps, ours a mean: rates are times, and norms to clip at divided by, their
 * number. That of DGC's model is the one of PyTorch's example. */
static const recipe recipes[] = {
    {"small", "small", "20", "0.25", "decay:0.5,4", "13", false},
    {"medium", "medium", "35", "0.14285714285714285", "decay:0.8,6", "39", false},
    {"large", "large", "35", "0.2857142857142857", "decay:0.86956521739130432,14", "55", false},
    {"dgc", "tied", "20", "0.25", "plateau:0.25", "40", false},
    {"transformer", "transformer", "0.001", "1", "cosine", "10", true},
};
enum { RECIPES = sizeof recipes / sizeof *recipes };

static const recipe *find_recipe(const char *model)
{
    for (size_t i = 0; i < RECIPES; i++)
        if (strcmp(recipes[i].model, model) == 0) return &recipes[i];
    return NULL;
}

static const char *recipe_model(size_t index)
{
    return index < RECIPES ? recipes[index].model : NULL;
}

static const char *recipe_summary(size_t index)
{
    return index < RECIPES ? language_model_find(recipes[index].network)->summary : NULL;
}

static tw_status choose_recipe(const char *model, const recipe **chosen)
{
    *chosen = find_recipe(model);
    return *chosen ? TW_OK : words_refuse("language model", model, strlen(model), recipe_model);
}

/* What decoders are trained with since GPT-3 (Brown et al. 2020). */
static const task_suit of_decoders[] = {{"optimizer", "adamw"},  {"momentum", "0.9"}, {"beta2", "0.95"},
                                        {"weight-decay", "0.1"}, {"warmup", "100"},   {0}};

static const char *lm_fallback(const void *settings, const char *option)
{
    const recipe *r = settings ? find_recipe(((const lm_settings *)settings)->model) : &recipes[0];
    if (!r) return NULL; /* it is refused when the data are loaded */
    const task_suit suits[] = {{"lr", r->lr},   {"clip", r->clip}, {"schedule", r->schedule}, {"epochs", r->epochs},
                               {"batch", "20"}, {"momentum", "0"}, {"warmup", "0"},           {0}};
    const char *of_decoder = r->decoder ? task_suit_of(of_decoders, option) : NULL;
    return of_decoder ? of_decoder : task_suit_of(suits, option);
}

static void configure_decoder(const lm_settings *s, language_model_config *c)
{
    if (s->heads > 0) c->heads = (size_t)s->heads;
    c->kv_heads = s->kv_heads > 0 ? (size_t)s->kv_heads : c->heads;
    c->head = (size_t)s->head;
    c->inner = s->inner > 0 ? (size_t)s->inner : language_model_inner(c->hidden);
    c->family = (decoder_family)s->family;
    c->theta = s->theta;
    c->epsilon = (float)s->epsilon;
}

static language_model_config configure(const lm_settings *s, const language_model_definition *network)
{
    language_model_config c = network->config;
    if (s->layers > 0) c.layers = (size_t)s->layers;
    if (s->hidden > 0) c.hidden = c.embedding = (size_t)s->hidden;
    if (s->tied) c.tied = 1;
    if (s->dropout >= 0) c.keep = (float)(1 - s->dropout);
    if (s->range >= 0) c.range = (float)s->range;
    if (c.heads > 0) configure_decoder(s, &c);
    return c;
}

static tw_status check_heads(const lm_settings *s, const language_model_definition *network)
{
    const char *given = s->heads      ? "heads"
                        : s->kv_heads ? "kv-heads"
                        : s->head     ? "head-width"
                        : s->inner    ? "inner"
                        : s->family   ? "family"
                        : s->scaling  ? "rope-scaling"
                                      : NULL;
    if (network->config.heads > 0 || (!given && !s->lora)) return TW_OK;
    if (given)
        return tw_fail(TW_ERROR_ARGUMENT, "--%s is of a transformer; write --model transformer, or leave it out",
                       given);
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--lora trains adapters beside a transformer that is there, and %s is none; name one with "
                   "--init-from RUN",
                   s->model);
}

/* ---- metrics ---- */

static double lm_perplexity(const task_score *score)
{
    return exp(score->loss / score->count);
}

static double bits(const task_score *score)
{
    return score->loss / score->count / log(2);
}

static const task_metric metrics[] = {
    {"perplexity", lm_perplexity, .falls = true}, {"bits_per_token", bits, .falls = true}, {0}};

static void lm_take_result(task_score *score, const language_model_result *result)
{
    score->loss += result->loss;
    score->count += (double)result->tokens;
}

/* ---- data ---- */

typedef struct lm_data {
    task base;
    corpus corpus;
    const recipe *recipe;
    const language_model_definition *network;
    nn_lora_options lora;
    nn_rotary_scaling scaling;
} lm_data;

static void describe_text(const lm_settings *s, lm_data *d)
{
    task *t = &d->base;
    const corpus *c = &d->corpus;
    const char *unit = text_unit_name((text_unit)s->unit);
    size_t unknown = c->train.unknown + c->valid.unknown + c->test.unknown;
    int used =
        snprintf(t->description, sizeof t->description, "%zu, %zu and %zu %s to train, validate and test, %zu types",
                 c->train.count, c->valid.count, c->test.count, unit, vocabulary_count(c->vocabulary));
    if (unknown > 0) snprintf(t->description + used, sizeof t->description - (size_t)used, "; %zu unknown", unknown);
    snprintf(t->identity, sizeof t->identity, "of %zu %s (%08x)", c->train.count, unit, c->train_sum);
    t->held_out = c->valid_sum;
    snprintf(t->path, sizeof t->path, "%s", s->data);
}

/* Its tokens are of the unit that a person thinks they are. */
static tw_status read_tokenizer(const lm_settings *s, vocabulary **v)
{
    TW_TRY(tokenizer_file_read(s->tokenizer, v));
    if (vocabulary_unit(*v) == (text_unit)s->unit) return TW_OK;
    const text_unit unit = vocabulary_unit(*v);
    vocabulary_destroy(*v);
    return tw_fail(TW_ERROR_ARGUMENT, "--unit %s, but the tokens of %s are %s; write --unit %s",
                   lm_unit_name((text_unit)s->unit), s->tokenizer, text_unit_name(unit), lm_unit_name(unit));
}

static tw_status fill_data(const lm_settings *s, lm_data *d)
{
    corpus_options wanted = {
        .unit = (text_unit)s->unit, .most = (size_t)s->vocabulary, .most_bytes = share_of_memory(s->memory_mb)};
    if (!s->data) return tw_fail(TW_ERROR_ARGUMENT, "--data is missing: the folder of the texts, or a text file");
    if (s->tokenizer && s->vocabulary > 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--vocabulary %ld is of the training text's own tokens, and --tokenizer %s has others; leave "
                       "one of them out",
                       s->vocabulary, s->tokenizer);
    if (s->unit == TEXT_IDS && !s->tokenizer && s->vocabulary == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "--vocabulary N is missing: how many tokens there are, of --unit id");
    if (s->vocabulary == 1) return tw_fail(TW_ERROR_ARGUMENT, "--vocabulary 1: a model needs 2 tokens to choose from");
    TW_TRY(choose_recipe(s->model, &d->recipe));
    d->network = language_model_find(d->recipe->network);
    TW_TRY(check_heads(s, d->network));
    TW_TRY(lora_parse(s->lora, &d->lora));
    TW_TRY(rope_parse(s->scaling, &d->scaling));
    strips any;
    if (s->tokenizer) TW_TRY(read_tokenizer(s, &wanted.vocabulary));
    TW_TRY(corpus_load(s->data, &wanted, &d->corpus));
    TW_TRY(strips_cut(&d->corpus.valid, "validation", 1, 1, &any));
    TW_TRY(strips_cut(&d->corpus.test, "test", 1, 1, &any));
    describe_text(s, d);
    return TW_OK;
}

static void lm_release(task *t)
{
    if (!t) return;
    corpus_release(&((lm_data *)t)->corpus);
    free(t);
}

static tw_status lm_load(const void *settings, task **out)
{
    lm_data *d = calloc(1, sizeof *d);
    if (!d) return tw_fail(TW_ERROR_MEMORY, "no memory for a text");
    d->base.ops = &lm_task;
    d->base.settings = settings;
    d->base.metrics = metrics;
    d->base.items = "tokens";
    d->base.batch_of = "strips of the text";
    d->base.has_validation = d->base.has_test = true;
    tw_status status = fill_data(settings, d);
    if (status == TW_OK)
        *out = &d->base;
    else
        lm_release(&d->base);
    return status;
}

/* ---- a worker ---- */

/* A split to evaluate is cut into as many strips as a published model's validation text, for any number of workers. */
enum { EVALUATION_STRIPS = 20 };

typedef struct lm_learner {
    learner base;
    language_model *net;
    strips text; /* this worker's of the training text */
    size_t bptt;
    int32_t *tokens, *targets;  /* (bptt, strips of a call) */
    strip_place *read, *looked; /* where it stands in texts that are in files: training, and evaluation */
    size_t strips_most;
    uint32_t *room; /* for a strip of a call */
} lm_learner;

static const lm_data *lm_data_of(const lm_learner *l)
{
    return (const lm_data *)l->base.task;
}

static size_t bptt_of(const task *t)
{
    const lm_settings *s = t->settings;
    return s->bptt > 0 ? (size_t)s->bptt : ((const lm_data *)t)->network->steps;
}

/* For all workers. */
static tw_status cut_all(const task *t, const learner_place *p, strips *all)
{
    const token_stream *text = &((const lm_data *)t)->corpus.train;
    if (strips_cut(text, "training", p->batch * (size_t)p->size, bptt_of(t), all) == TW_OK) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "%s; write a smaller --bptt or --batch", tw_last_error());
}

static tw_status lm_fits(const task *t, const learner_place *place)
{
    strips all;
    return cut_all(t, place, &all);
}

static tw_status cut_text(lm_learner *l)
{
    const learner_place *p = &l->base.place;
    strips all;
    l->bptt = bptt_of(l->base.task);
    TW_TRY(cut_all(l->base.task, p, &all));
    l->text = strips_slice(&all, p->batch * (size_t)p->rank, p->batch);
    l->base.steps_per_epoch = l->text.length / l->bptt;
    return TW_OK;
}

/* Where there are adapters, they are what learns. */
static void show_network(lm_learner *l, const char *model)
{
    const parameter_set *weights = language_model_parameters(l->net), *adapters = language_model_adapters(l->net);
    show_parameters(&l->base, model, adapters ? adapters : weights);
    if (!adapters) return;
    show_buffers(&l->base, weights);
    l->base.based = true;
}

static language_model_config config_of(const lm_learner *l)
{
    const lm_data *d = lm_data_of(l);
    language_model_config config = configure(l->base.task->settings, d->network);
    config.scaling = d->scaling;
    config.lora = d->lora;
    return config;
}

/* Each head of each block weighs each two tokens of a text. What is more than the machine has is told before a network
 * is made: the context of a folder is longer than most machines train with. */
static tw_status check_attention(const lm_learner *l, const language_model_config *c)
{
    const learner_place *place = &l->base.place;
    const double blocks = place->stage ? 1.0 : (double)c->layers, steps = (double)l->bptt, room = machine_memory(),
                 bytes = blocks * (double)c->heads * (double)place->batch * steps * steps * sizeof(float);
    if (bytes <= room) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--bptt %zu: attention over so many tokens takes %.0f GB in a step with --batch %zu, and this "
                   "machine has %.0f GB; write a smaller one, such as --bptt 512",
                   l->bptt, bytes / 1e9, place->batch, room / 1e9);
}

static tw_status create_model(lm_learner *l)
{
    const lm_data *d = lm_data_of(l);
    const language_model_config config = config_of(l);
    const learner_place *place = &l->base.place;
    TW_TRY(check_attention(l, &config));
    language_model_shape shape = {vocabulary_count(d->corpus.vocabulary), l->bptt, place->batch, place->precision,
                                  place->stage};
    TW_TRY(language_model_create(&config, &shape, &l->net));
    if (l->base.place.pager) TW_TRY(language_model_page(l->net, l->base.place.pager));
    TW_TRY(language_model_initialise(l->net, l->base.place.seed));
    show_network(l, d->recipe->model);
    l->base.units = language_model_units(l->net, &l->base.unit_count);
    size_t most = l->base.place.batch > EVALUATION_STRIPS ? l->base.place.batch : EVALUATION_STRIPS;
    l->tokens = malloc(l->bptt * most * sizeof *l->tokens);
    l->targets = malloc(l->bptt * most * sizeof *l->targets);
    l->strips_most = most;
    l->room = malloc((l->bptt + 1) * sizeof *l->room);
    l->read = calloc(most, sizeof *l->read);
    l->looked = calloc(most, sizeof *l->looked);
    return l->tokens && l->targets && l->read && l->looked && l->room
               ? TW_OK
               : tw_fail(TW_ERROR_MEMORY, "no memory for batches of %zu strips", most);
}

static tw_status lm_open(learner *base)
{
    TW_TRY(cut_text((lm_learner *)base));
    return create_model((lm_learner *)base);
}

static void lm_close(learner *base)
{
    lm_learner *l = (lm_learner *)base;
    language_model_destroy(l->net);
    for (size_t i = 0; l->read && l->looked && i < l->strips_most; i++) {
        text_window_release(&l->read[i].window);
        text_window_release(&l->looked[i].window);
    }
    free(l->read);
    free(l->looked);
    free(l->room);
    free(l->tokens);
    free(l->targets);
}

static tw_status lm_read_text(lm_learner *l, const strips *s, strip_place *places, size_t from, size_t steps,
                              language_model_text *text)
{
    *text = (language_model_text){l->tokens, l->targets, steps};
    if (!s->tokens) return strips_read_file(s, places, l->room, from, steps, l->tokens, l->targets);
    strips_read(s, from, steps, l->tokens, l->targets);
    return TW_OK;
}

static tw_status lm_step(learner *base, uint64_t number, learner_gradient_ready ready, void *context, task_score *score)
{
    lm_learner *l = (lm_learner *)base;
    uint64_t in_epoch = number % base->steps_per_epoch;
    if (in_epoch == 0) language_model_reset(l->net);
    language_model_text text;
    TW_TRY(lm_read_text(l, &l->text, l->read, in_epoch * l->bptt, l->bptt, &text));
    nn_noise noise = noise_of(&l->base.place, number);
    language_model_result result = {0};
    TW_TRY(language_model_step(l->net, &text, &noise, ready, context, &result));
    *score = (task_score){0};
    lm_take_result(score, &result);
    return TW_OK;
}

static tw_status evaluate_strips(lm_learner *l, const strips *s, task_score *score)
{
    TW_TRY(language_model_start_evaluation(l->net, s->count));
    for (size_t at = 0; at < s->length && !learner_stops(&l->base); at += l->bptt) {
        size_t steps = s->length - at < l->bptt ? s->length - at : l->bptt;
        language_model_text text;
        TW_TRY(lm_read_text(l, s, l->looked, at, steps, &text));
        language_model_result result = {0};
        TW_TRY(language_model_evaluate(l->net, &text, &result));
        lm_take_result(score, &result);
    }
    return TW_OK;
}

/* Short texts are cut into fewer strips: the first tokens of each are predicted out of nothing. */
static tw_status lm_evaluate(learner *base, task_split split, size_t part, size_t parts, task_score *score)
{
    lm_learner *l = (lm_learner *)base;
    const corpus *c = &lm_data_of(l)->corpus;
    const token_stream *stream = split == TASK_VALIDATION ? &c->valid : &c->test;
    size_t count = stream->count / l->bptt;
    strips all;
    if (count > EVALUATION_STRIPS) count = EVALUATION_STRIPS;
    if (count == 0) count = 1;
    TW_TRY(strips_cut(stream, task_split_name(split), count, 1, &all));
    size_t first = count * part / parts, end = count * (part + 1) / parts;
    if (first == end) return TW_OK;
    strips own = strips_slice(&all, first, end - first);
    return evaluate_strips(l, &own, score);
}

/* ---- checkpoints ---- */

static const char *state_name(const char *prefix, char name[64])
{
    snprintf(name, 64, "%sstate", prefix);
    return name;
}

static tw_status lm_save(const learner *base, const char *prefix, tw_state *state)
{
    char name[64];
    size_t count;
    const float *values = language_model_state(((const lm_learner *)base)->net, &count);
    if (count == 0) return TW_OK;
    return tw_state_put(state, state_name(prefix, name), TW_F32, 1, &count, values);
}

static tw_status restore(learner *base, const char *prefix, const tw_state *state)
{
    char name[64];
    size_t count;
    float *values = language_model_state(((lm_learner *)base)->net, &count);
    if (count == 0) return TW_OK;
    return tw_state_get(state, state_name(prefix, name), TW_F32, count, values);
}

static tw_status put_scale(const nn_lora_options *o, tw_state *state)
{
    if (o->rank == 0) return TW_OK;
    const double scale = (double)o->alpha / (double)o->rank;
    return tw_state_put(state, TASK_ADAPTER_SCALE, TW_F64, 0, NULL, &scale);
}

static tw_status describe_transformer(const lm_learner *l, tw_state *state)
{
    char text[TASK_NETWORK_TEXT];
    const language_model_config config = config_of(l);
    if (config.heads == 0) return TW_OK;
    TW_TRY(put_scale(&lm_data_of(l)->lora, state));
    return tw_state_put_text(state, TASK_NETWORK, transformer_text(&config, l->bptt, text));
}

static tw_status lm_describe(const learner *base, tw_state *state)
{
    char *text;
    TW_TRY(describe_transformer((const lm_learner *)base, state));
    TW_TRY(vocabulary_write(lm_data_of((const lm_learner *)base)->corpus.vocabulary, &text));
    tw_status status = tw_state_put_text(state, "vocabulary.txt", text);
    free(text);
    return status;
}

const task_ops lm_task = {
    .name = "lm",
    .summary = "model language: the next word, character or piece of a word of a plain text",
    .examples = "  thinwire train lm --data ptb --out runs/ptb\n"
                "  thinwire train lm --data ptb --workers 4 --batch 5 --sync dgc\n"
                "  thinwire train lm --data shakespeare.txt --unit char --bptt 64 --out runs/shakespeare\n"
                "  thinwire train lm --model transformer --data shakespeare.txt --unit char --out runs/llama\n"
                "  thinwire train lm --model transformer --data shakespeare.txt --unit piece --vocabulary 2000\n"
                "  thinwire generate runs/shakespeare\n",
    .rows = rows,
    .row_count = sizeof rows / sizeof *rows,
    .fallback = lm_fallback,
    .take_sizes = lm_take_sizes,
    .load = lm_load,
    .release = lm_release,
    .fits = lm_fits,
    .learner_bytes = sizeof(lm_learner),
    .open = lm_open,
    .close = lm_close,
    .step = lm_step,
    .evaluate = lm_evaluate,
    .save = lm_save,
    .restore = restore,
    .describe = lm_describe,
    .predictor_open = lm_predictor_open,
    .predictor_close = lm_predictor_close,
    .predict = lm_predict,
    .describe_network = lm_describe_network,
    .describe_folder = lm_describe_folder,
    .read_folder = lm_read_folder,
    .use_rows = use_rows,
    .use_row_count = sizeof use_rows / sizeof *use_rows,
    .used_by = "generate",
    .use_summary = "Of a language model, FILE is a text, and the answer the text as the model goes on with it. Without "
                   "a FILE it goes on with --prompt.",
    .use_examples = "  thinwire generate runs/shakespeare --prompt 'ROMEO:' --tokens 500 --temperature 0.8\n",
    .answers_without_file = true,
};
