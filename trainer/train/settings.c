#include "settings.h"
#include "error.h"
#include "optimiser.h"
#include "plugins.h"
#include "scheme.h"
#include "scheme_words.h"
#include "whole_file.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(train_settings, field)
#define ADAPTIVE "optimizer=adam,optimizer=adamw,optimizer=muon"

static const char *sync_word(size_t index)
{
    return index == 0 ? SYNC_AUTO : scheme_word(index - 1);
}

static const char *sync_word_meaning(size_t index)
{
    return index == 0 ? "what thinwire plan finds best" : scheme_word_meaning(index - 1);
}

static const option_row rows[] = {
    {.help = "Workers and what they send"},
    {"workers", "N", OPTION_INTEGER, AT(workers), "0", 0, WORKERS_MOST,
     .help = "Train with N workers. They are threads of this process, or, with --join, processes",
     .stands_for = "1, or as many as mpirun started"},
    {"sync", "SPEC", OPTION_TEXT, AT(sync), "allreduce",
     .help = "What workers exchange: SCHEME or SCHEME:OPTION=VALUE,..., such as dgc:momentum=0.8 for gradients or "
             "adpsgd-random for weights. thinwire schemes lists them. auto takes what thinwire plan finds best for the "
             "line",
     .binding = true, .in_full = scheme_in_full, .word = sync_word, .word_meaning = sync_word_meaning},
    {"sync-in-full", NULL, OPTION_TEXT, AT(sync_in_full), .file_only = true},
    {"sync-as-run", NULL, OPTION_TEXT, AT(sync_as_run), .file_only = true},
    {"link", "RATE,LATENCY", OPTION_TEXT, AT(link), .stands_for = "what is measured between the workers",
     .help = "The line between the workers, for --sync auto: 100Mbit,1ms, or UP/DOWN,LATENCY, such as "
             "10Mbit/100Mbit,80ms. Units are kbit, Mbit, Gbit; us, ms, s",
     .line_only = true},
    {"planned-link", NULL, OPTION_TEXT, AT(planned_link), .file_only = true, .alike = true},
    {"planned-changes", NULL, OPTION_TEXT, AT(planned_changes), .file_only = true, .alike = true},
    PLUGINS_ROW(AT(plugin)),
    {"transport", NULL, OPTION_CHOICE, AT(transport), "auto", .choices = "auto|threads|mpi|tcp",
     .help = "How workers reach each other. auto takes tcp with --join, mpi under mpirun, and else threads",
     .of_start = true},
    {"join", "HOST:PORT", OPTION_TEXT, AT(join),
     .help = "Be one of --workers processes that meet at HOST:PORT. Start the same command on every machine. The "
             "process on the machine HOST brings them together. Without --workers the processes come and go while the "
             "others train, and HOST:PORT may be any member's, or a list of them with commas: for local updates and "
             "asynchronous gossip",
     .line_only = true},
    {"rank", "R", OPTION_INTEGER, AT(rank), "-1", -1, WORKERS_MOST - 1, .stands_for = "the order of addresses",
     .help = "With --join, be worker number R, counted from 0. Worker 0 waits at PORT, wherever it runs",
     .line_only = true, .beside = "join,transport=tcp"},
    {"seal", NULL, OPTION_FLAG, AT(seal), .help = "Encrypt and sign what workers send, with the key of --key-file",
     .of_start = true},
    {"key-file", "FILE", OPTION_TEXT, AT(key_file),
     .help = "A file with a secret, the same on all machines: 32 random bytes, or a line of at least 20 characters. "
             "With --join every connection must prove that it knows the secret. Without a key, anybody who reaches the "
             "port can take part",
     .line_only = true, .beside = "join,transport=tcp,seal"},
    {"timeout", "SECONDS", OPTION_REAL, AT(timeout), "600", 0.001, 1e9,
     .stands_for = "600, and 60 where workers come and go",
     .help = "Count a worker as lost when nothing has been heard of it for so long. --join waits as long for the "
             "others, and mpirun may take as long to start, and 20 seconds at least"},
    {"patience", "SECONDS", OPTION_REAL, AT(patience), "0", 0, 1e9, .stands_for = "1800 with --join, else --timeout",
     .help =
         "Wait so long for a worker that is there, but busy with something else. Only with --join can the two be told "
         "apart. Elsewhere the longer of --timeout and --patience counts"},
    {"check-every", "STEPS", OPTION_INTEGER, AT(check_every), "100", 0, INFINITY,
     .help = "Compare the weights of all workers after every STEPS steps. 0 means never. With gossip schemes weights "
             "differ until the end and are not compared, and a --pipeline has no two alike"},
    {"slow", "LIST", OPTION_TEXT, AT(slow), .alike = true, .of_start = true,
     .help = "Try what a slow worker does: RANK:FACTOR,... makes the computation of RANK take FACTOR times as long"},
    {"pause", "LIST", OPTION_TEXT, AT(pause), .alike = true, .of_start = true,
     .help = "Try what a pause does: RANK:STEP:SECONDS,... lets RANK stand still for SECONDS after it has computed "
             "STEP"},

    {.help = "Optimisation"},
    {"epochs", "N", OPTION_INTEGER, AT(epochs), "5", 1, 1e9, .simulated = true,
     .help = "Pass over the training data N times"},
    {"steps", "N", OPTION_INTEGER, AT(steps), "0", 0, 1e15, .simulated = true,
     .help = "Take N steps, whatever --epochs says", .stands_for = "as many as --epochs takes"},
    {"batch", "N", OPTION_INTEGER, AT(batch), "16", 1, 65536, .simulated = true,
     .help = "Each worker takes N images, or utterances, or sequences, in each step", .binding = true},
    {"lr", "RATE", OPTION_REAL, AT(lr), "0.03", 0, 1e6, .simulated = true, .help = "The learning rate"},
    {"schedule", "NAME", OPTION_TEXT, AT(schedule), .simulated = true, .alike = true,
     .help =
         "How the learning rate changes: constant; cosine; step:A,B (a tenth at A and at B, which are fractions of the "
         "run below 1, else epochs); decay:F,E (times F after epoch E and after each later one); plateau:F (times F "
         "after an epoch that did not lower the validation loss); isqrt (as 1 / sqrt(step) after --warmup); or isqrt:S "
         "(the same, with the first share S of the run as its warm-up)",
     .stands_for = "the model's own"},
    {"warmup", "STEPS", OPTION_INTEGER, AT(warmup), "400", 0, 1e15, .simulated = true,
     .help = "Let the learning rate rise to --lr over so many steps"},
    {"optimizer", NULL, OPTION_CHOICE, AT(optimizer), "sgd", .choices = "sgd|adam|adamw|muon", .binding = true,
     .simulated = true,
     .help =
         "The optimiser. sgd goes with every scheme but dgc-adam and onebit-adam, which are for adamw. adam, adamw and "
         "muon do not go with another that applies momentum itself, but demo, which goes with sgd and adamw; with them "
         "--lr is 0.001 and --momentum 0.9 by default, with muon 0.95. muon takes the matrices between layers, and "
         "adamw the rest"},
    {"momentum", "M", OPTION_REAL, AT(momentum), "0.9", 0, 0.9999, .simulated = true,
     .help = "The momentum of sgd, unless the scheme applies its own; beta1 of adam", .binding = true},
    {"beta2", "B", OPTION_REAL, AT(beta2), "0.999", 0, 0.999999, .simulated = true,
     .help = "beta2 of adam, which decides how long it remembers squares", .binding = true, .beside = ADAPTIVE},
    {"epsilon", "E", OPTION_REAL, AT(epsilon), "1e-08", 1e-30, 1, .simulated = true,
     .help = "The epsilon of adam, which is added to the root of the squares", .binding = true, .older = "1e-08",
     .beside = ADAPTIVE},
    {"nesterov", NULL, OPTION_FLAG, AT(nesterov), .simulated = true, .help = "Use Nesterov's form of momentum",
     .binding = true},
    {"weight-decay", "L", OPTION_REAL, AT(weight_decay), "0", 0, 1, .simulated = true,
     .help = "Weight decay. It is not applied to biases and norms"},
    {"clip", "NORM", OPTION_REAL, AT(clip), "0", 0, 1e9, .simulated = true, .stands_for = "never",
     .help = "Scale the mean gradient down to NORM where it is longer. Where workers clip their own gradients (with "
             "gossip schemes, and where --sync compresses), they clip to NORM times the square root of their number, "
             "and to NORM itself in the warm-up of the scheme"},
    {"compute", NULL, OPTION_CHOICE, AT(compute), "fp32", .choices = "fp32|bf16", .binding = true, .simulated = true,
     .help = "The precision of matrix products and convolutions. With bf16 they round what they read to bfloat16 and "
             "add up in fp32; all else stays fp32. bf16 needs AVX512_BF16 or AMX; thinwire doctor tells"},
    {"memory-budget", "BYTES", OPTION_TEXT, AT(memory_budget), .alike = true, .stands_for = "all of it in memory",
     .help =
         "Hold no more than BYTES, such as 200MB or 2GiB, of weights, gradients and the optimiser's state in memory. "
         "The rest is in a file on the disk of --out. Layers come in while others compute. The result is the same to "
         "the last bit. Several workers exchange by --sync local or diloco"},
    {"pipeline", "SPEC", OPTION_TEXT, AT(pipeline), .alike = true, .stands_for = "each worker has the whole network",
     .help =
         "Hold one network together, and train it as an asynchronous pipeline: stages=P, for P workers. With "
         "values=fp16 or values=fp8 two bytes or one travel for each value. The layers are measured, and cut so that "
         "the slowest stage is fast; cut=A+B+... says how many each stage gets. --batch is a micro-batch, and each is "
         "a "
         "step; with accumulate=K a step takes K of them, and gradients are at most a step late where K is P - 1 or "
         "more. With standby=S, --join and --workers P+S, S workers wait and take the place of one that is lost"},
    {"seed", "N", OPTION_INTEGER, AT(seed), "1", 0, 1e15, .simulated = true,
     .help = "The seed of initial weights, order and augmentation", .binding = true},

    {.help = "What is kept"},
    {"out", "DIR", OPTION_TEXT, AT(out), .stands_for = "the first free of runs/TASK-1, runs/TASK-2, ...",
     .help = "Keep the run in folder DIR: config.yaml, metrics.jsonl, TensorBoard events, checkpoints, summary.json. "
             "none keeps nothing",
     .of_start = true},
    {"evaluate-every", "EPOCHS", OPTION_INTEGER, AT(evaluate_every), "1", 1, 1e9,
     .help =
         "Look at the validation or test set after so many epochs, and after the last. Where an epoch is short, that "
         "takes longer than training"},
    {"checkpoint-every", "STEPS", OPTION_INTEGER, AT(checkpoint_every), "0", 0, INFINITY,
     .stands_for = "after each epoch that --evaluate-every looks at, or with gossip schemes at the end",
     .help =
         "Write a checkpoint after every STEPS steps, and where the figures of a validation set are better than ever. "
         "The last two are kept, and the best by validation"},
    {"resume", "DIR", OPTION_TEXT, AT(resume), .alone = "", .line_only = true,
     .help =
         "Go on with the run in folder DIR, as its config.yaml says, or from one of its checkpoints. Other options on "
         "the line win where a run may change them. Without DIR, go on with the run in --out"},
    {"forget-lost", NULL, OPTION_FLAG, AT(forget_lost),
     .help =
         "With --resume, go on although workers' files are lost with the disk they were on. What those workers held "
         "back is dropped",
     .line_only = true, .beside = "resume"},
    {"init-from", "RUN", OPTION_TEXT, AT(init_from),
     .help =
         "Begin a new run with the weights of RUN, which is a run folder, whose best checkpoint counts, or one of its "
         "checkpoints. A language model may also begin with a Llama, Qwen2 or Qwen3 in a folder of transformers. A "
         "last layer of another shape is new. --init is the same",
     .of_start = true, .path = true, .also = "init"},
    {"expect-ratio", "R", OPTION_REAL, AT(expect_ratio), "0", 0, 1e9, .stands_for = "expect nothing",
     .help = "Fail at the end, with exit code 2, unless messages were R times smaller than fp32 gradients once the "
             "scheme had warmed up"},
    {"dump-gradients", "DIR", OPTION_TEXT, AT(dump_gradients), .line_only = true,
     .help = "Write gradients of worker 0 to DIR/step-000123.safetensors, for thinwire bench codec"},
    {"dump-steps", "LIST", OPTION_TEXT, AT(dump_steps), .line_only = true,
     .help = "The steps of which --dump-gradients writes, such as 100-107,500",
     .stands_for = "eight in a row after the middle of the run", .beside = "dump-gradients"},
    {"json", "FILE", OPTION_TEXT, AT(json), .alone = "-", .line_only = true,
     .help = "Write the summary to FILE, too. Without FILE, or with -, write it to standard output"},
    {"config", "FILE", OPTION_TEXT, AT(config), .help = "Read options from a YAML file. The command line wins over it",
     .line_only = true},
    {"quiet", NULL, OPTION_FLAG, AT(quiet), .help = "Print errors only", .line_only = true},
};

#define COUNT (sizeof rows / sizeof *rows)

static void describe_tasks(const task_ops *ops, char *text, size_t room)
{
    int used = snprintf(text, room,
                        "This is the page of task %s: %s. thinwire train "
                        "trains a network on several workers, which exchange compressed gradients, or weights. Under "
                        "mpirun each rank is a worker. With --join each process is a worker. Otherwise the workers are "
                        "threads of this process. Other tasks have pages of their own: thinwire help train",
                        ops->name, ops->summary);
    for (size_t i = 0, others = 0; task_at(i) && (size_t)used < room; i++)
        if (task_at(i) != ops)
            used += snprintf(text + used, room - (size_t)used, "%s %s", others++ ? "," : "", task_at(i)->name);
    if ((size_t)used < room) snprintf(text + used, room - (size_t)used, ".");
}

/* The task's own, then those of every run. */
static tw_status gather_rows(const task_ops *ops, option_row all[OPTIONS_MOST], size_t *count)
{
    const option_row told = {"task", NULL, OPTION_TEXT, AT(task_name), ops->name, .file_only = true};
    TW_TRY(options_add_row(all, count, &told));
    for (size_t i = 0; i < ops->row_count; i++) {
        option_row row = ops->rows[i];
        row.offset += AT(own);
        row.simulated = true;
        TW_TRY(options_add_row(all, count, &row));
    }
    for (size_t i = 0; i < COUNT; i++) {
        option_row row = rows[i];
        const char *suits = ops->fallback && row.name ? ops->fallback(NULL, row.name) : NULL;
        if (suits) row.fallback = suits;
        TW_TRY(options_add_row(all, count, &row));
    }
    return TW_OK;
}

tw_status settings_page(const task_ops *ops, train_page *p)
{
    size_t count = 0;
    TW_TRY(gather_rows(ops, p->rows, &count));
    describe_tasks(ops, p->description, sizeof p->description);
    p->page = (option_page){
        .usage = "thinwire train TASK [options]",
        .description = p->description,
        .examples = ops->examples,
        .rows = p->rows,
        .count = count,
        .least_arguments = 1,
        .most_arguments = 1,
        .word = task_name,
    };
    return TW_OK;
}

tw_status settings_lend_rows(const task_ops *ops, bool (*wants)(const option_row *row), train_page *own)
{
    train_page all;
    TW_TRY(settings_page(ops, &all));
    snprintf(own->lender, sizeof own->lender, "thinwire help train %s", ops->name);
    own->page.own = own->page.count;
    own->page.lender = own->lender;
    for (size_t i = 0; i < all.page.count; i++) {
        const option_row *row = &all.rows[i];
        if (row->name && wants(row)) TW_TRY(options_add_row(own->rows, &own->page.count, row));
    }
    return TW_OK;
}

/* A task's own rate and momentum are those of the optimiser that it trains with where nobody asks for another. */
static bool suits_adam(const task_ops *ops, const train_settings *s)
{
    const char *own = ops->fallback ? ops->fallback(s->own, "optimizer") : NULL;
    return own && strcmp(own, "sgd") != 0;
}

/* Those of SGD are of another scale than Adam's steps. */
static const char *suits_optimiser(const task_ops *ops, const train_settings *s, const char *option)
{
    if (s->optimizer == OPTIMISER_MUON && strcmp(option, "momentum") == 0) return "0.95";
    if (s->optimizer == OPTIMISER_SGD || suits_adam(ops, s)) return NULL;
    if (strcmp(option, "lr") == 0) return "0.001";
    return strcmp(option, "momentum") == 0 ? "0.9" : NULL;
}

static const char *suitable(const task_ops *ops, const train_settings *s, const char *option)
{
    const char *suits = suits_optimiser(ops, s, option);
    return suits || !ops->fallback ? suits : ops->fallback(s->own, option);
}

tw_status settings_complete(const task_ops *ops, options *set)
{
    train_settings *s = set->target;
    /* Both run lengths are one wish: whoever gives one has not asked for the other. */
    if (options_source(set, "epochs") > options_source(set, "steps")) s->steps = 0;
    for (size_t i = 0; i < COUNT; i++) {
        const char *name = rows[i].name;
        const char *suits = name && !options_given(set, name) ? suitable(ops, s, name) : NULL;
        if (suits) TW_TRY(options_default(set, name, suits));
    }
    s->momentum_given = options_given(set, "momentum");
    s->nesterov_given = options_given(set, "nesterov");
    return options_check_beside(set);
}

size_t settings_identity(const train_settings *s, int workers, setting_text identity[SETTINGS_IDENTITY])
{
    static_assert(SETTINGS_IDENTITY >= OPTIONS_MOST + 2, "a page's every option may bind a run");
    const option_page *page = s->set->page;
    size_t count = 2;
    identity[0] = (setting_text){.key = "task", .value = s->task->name};
    identity[1] = (setting_text){.key = "workers", .value = identity[1].space};
    snprintf(identity[1].space, sizeof identity[1].space, "%d", workers);
    for (size_t i = 0; i < page->count; i++) {
        const option_row *row = &page->rows[i];
        setting_text *entry = &identity[count];
        *entry = (setting_text){.key = row->name, .row = row};
        entry->value = row->binding ? options_value(row, s, entry->space) : NULL;
        count += entry->value != NULL;
    }
    return count;
}

static cJSON *row_json(const option_row *row, const void *value)
{
    char word[64];
    switch (row->kind) {
    case OPTION_FLAG:
        return cJSON_CreateBool(*(const bool *)value);
    case OPTION_TEXT:
        return *(char *const *)value ? cJSON_CreateString(*(char *const *)value) : cJSON_CreateNull();
    case OPTION_INTEGER:
        return cJSON_CreateNumber((double)*(const long *)value);
    case OPTION_REAL:
        return cJSON_CreateNumber(*(const double *)value);
    case OPTION_CHOICE:
        options_choice_word(row->choices, *(const int *)value, word, sizeof word);
        return cJSON_CreateString(word);
    }
    return NULL;
}

cJSON *settings_json(const train_settings *settings)
{
    cJSON *object = cJSON_CreateObject();
    const option_page *page = settings->set->page;
    for (size_t i = 0; i < page->count; i++) {
        const option_row *row = &page->rows[i];
        if (row->name && !row->line_only)
            cJSON_AddItemToObject(object, row->name, row_json(row, (const char *)settings + row->offset));
    }
    return object;
}

/* Settings on their way to a file. */
typedef struct written_settings {
    const train_settings *settings;
    const char *path;
} written_settings;

static tw_status write_rows(void *context, FILE *file)
{
    const written_settings *w = context;
    train_settings resolved = *w->settings;
    options set = *w->settings->set;
    set.target = &resolved;
    return options_write(&set, w->path, file);
}

tw_status settings_write(const train_settings *settings, const char *path)
{
    written_settings written = {settings, path};
    return whole_file_write(path, write_rows, &written);
}
