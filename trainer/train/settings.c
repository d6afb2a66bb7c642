#include "settings.h"
#include "error.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(train_settings, field)

static const option_row rows[] = {
    {.help = "What to train"},
    {"data", "DIR", OPTION_TEXT, AT(data),
     .help = "folder of an IDX (MNIST) or CIFAR data set; without it, Debian's dataset-fashion-mnist"},
    {"model", "NAME", OPTION_TEXT, AT(model), "cnn", .help = "cnn, resnet20, resnet32, resnet56 or resnet110"},
    {"crop", "N", OPTION_INTEGER, AT(crop), "0", 0, 64, .help = "random crops out of N pixels of padding"},
    {"flip", NULL, OPTION_FLAG, AT(flip), .help = "mirror training images at random"},
    {"limit-train", "N", OPTION_INTEGER, AT(limit_train), "0", 0, INFINITY,
     .help = "use the first N training images only; 0: all"},

    {.help = "Workers and what they send"},
    {"workers", "N", OPTION_INTEGER, AT(workers), "0", 0, 4096,
     .help = "workers, as threads of this process; 0: one, or as many as mpirun started"},
    {"sync", "SPEC", OPTION_TEXT, AT(sync), "allreduce",
     .help = "what workers exchange: scheme or scheme:option=value,..., such as dgc:density=0.001 for gradients or "
             "adpsgd-random for weights; thinwire schemes lists them"},
    {"transport", NULL, OPTION_CHOICE, AT(transport), "auto", .choices = "auto|threads|mpi",
     .help = "auto takes mpi under an MPI launcher"},
    {"timeout", "SECONDS", OPTION_REAL, AT(timeout), "600", 0.001, 1e9,
     .help = "silence after which a worker counts as lost"},
    {"check-every", "STEPS", OPTION_INTEGER, AT(check_every), "100", 0, INFINITY,
     .help = "compare the weights of all workers every so many steps; 0: never; by gossip they differ until the end"},
    {"slow", "LIST", OPTION_TEXT, AT(slow),
     .help = "to see what a slow worker does: RANK:FACTOR,...; its computation takes FACTOR times as long"},
    {"pause", "LIST", OPTION_TEXT, AT(pause),
     .help = "the same for one that stands still: RANK:AT:SECONDS,...; after computing step AT it pauses so long"},

    {.help = "Optimisation"},
    {"epochs", "N", OPTION_INTEGER, AT(epochs), "5", 1, 1e9, .help = "passes over the training images"},
    {"steps", "N", OPTION_INTEGER, AT(steps), "0", 0, 1e15, .help = "steps to take instead; 0: --epochs decides"},
    {"batch", "N", OPTION_INTEGER, AT(batch), "16", 1, 65536, .help = "images each worker takes a step"},
    {"lr", "RATE", OPTION_REAL, AT(lr), "0.03", 0, 1e6, .help = "learning rate"},
    {"schedule", "NAME", OPTION_TEXT, AT(schedule),
     .help = "constant, cosine, step, or step:A,B (a tenth at A and at B: fractions of the run below 1, else epochs); "
             "without it the model's own, step:3 for cnn, step:82,123 for the resnets"},
    {"warmup", "STEPS", OPTION_INTEGER, AT(warmup), "400", 0, 1e15,
     .help = "steps in which the learning rate rises to --lr"},
    {"momentum", "M", OPTION_REAL, AT(momentum), "0.9", 0, 0.9999,
     .help = "where the scheme of --sync does not apply its own"},
    {"nesterov", NULL, OPTION_FLAG, AT(nesterov), .help = "Nesterov's form of momentum"},
    {"weight-decay", "L", OPTION_REAL, AT(weight_decay), "0", 0, 1, .help = "not applied to biases and norms"},
    {"seed", "N", OPTION_INTEGER, AT(seed), "1", 0, 1e15, .help = "of weights, order and augmentation"},

    {.help = "What is kept"},
    {"out", "DIR", OPTION_TEXT, AT(out),
     .help = "run folder: config.yaml, metrics.jsonl, TensorBoard events, checkpoints, summary.json"},
    {"checkpoint-every", "STEPS", OPTION_INTEGER, AT(checkpoint_every), "0", 0, INFINITY,
     .help = "0: at the end of each epoch, by gossip of the run; the last two are kept"},
    {"resume", "DIR", OPTION_TEXT, AT(resume), .alone = "", .line_only = true,
     .help = "continue from DIR, a run folder (then --out's default) or one of its checkpoints; alone: from --out"},
    {"expect-ratio", "R", OPTION_REAL, AT(expect_ratio), "0", 0, 1e9,
     .help = "fail at the end, with exit code 2, unless fp32 bytes / message bytes reached R after the scheme's "
             "warm-up; 0: expect nothing"},
    {"dump-gradients", "DIR", OPTION_TEXT, AT(dump_gradients), .line_only = true,
     .help = "write the gradients rank 0 hands to --sync, DIR/step-000123.safetensors, for thinwire bench codec"},
    {"dump-steps", "LIST", OPTION_TEXT, AT(dump_steps), .line_only = true,
     .help = "the steps to write, such as 100-107,500; without it, eight in a row after the middle of the run"},
    {"json", "FILE", OPTION_TEXT, AT(json), .alone = "-", .line_only = true,
     .help = "write the summary there too; alone or -: to standard output"},
    {"config", "FILE", OPTION_TEXT, AT(config), .help = "YAML file of options; the command line wins over it",
     .line_only = true},
    {"quiet", NULL, OPTION_FLAG, AT(quiet), .help = "print errors only", .line_only = true},
};

const option_page train_page = {
    .usage = "thinwire train TASK [options]",
    .description =
        "Trains a network on several workers that exchange compressed gradients. TASK is image. Under mpirun "
        "each rank is a worker; otherwise the workers are threads of this process. The defaults suit the cnn on "
        "Fashion-MNIST; the last example is the recipe of a ResNet on CIFAR-10.",
    .examples = "  thinwire train image --workers 4 --sync dgc:density=0.001 --out runs/dgc\n"
                "  thinwire train image --resume runs/dgc --workers 4 --sync dgc:density=0.001 --epochs 10\n"
                "  mpirun -n 8 thinwire train image --model resnet20 --data cifar-10-batches-bin --crop 4 --flip \\\n"
                "      --lr 0.1 --weight-decay 1e-4 --epochs 164 --sync dgc --out runs/resnet20\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
    .least_arguments = 1,
    .most_arguments = 1,
};

static void put(setting_text *entry, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void put(setting_text *entry, const char *key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    entry->key = key;
    vsnprintf(entry->value, sizeof entry->value, format, args);
    va_end(args);
}

void settings_identity(const train_settings *s, int workers, setting_text identity[SETTINGS_IDENTITY])
{
    setting_text *entry = identity;
    put(entry++, "task", "%s", s->task);
    put(entry++, "model", "%s", s->model);
    put(entry++, "workers", "%d", workers);
    put(entry++, "sync", "%s", s->sync);
    put(entry++, "seed", "%ld", s->seed);
    put(entry++, "batch", "%ld", s->batch);
    put(entry++, "momentum", "%.17g", s->momentum);
    put(entry++, "nesterov", "%s", s->nesterov ? "on" : "off");
    put(entry++, "crop", "%ld", s->crop);
    put(entry++, "flip", "%s", s->flip ? "on" : "off");
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
    cJSON_AddStringToObject(object, "task", settings->task);
    for (size_t i = 0; i < train_page.count; i++)
        if (rows[i].name && !rows[i].line_only)
            cJSON_AddItemToObject(object, rows[i].name, row_json(&rows[i], (const char *)settings + rows[i].offset));
    return object;
}

tw_status settings_write(const train_settings *settings, const char *path)
{
    train_settings resolved = *settings;
    options set = *settings->set;
    set.target = &resolved;
    FILE *file = fopen(path, "w");
    if (!file) return tw_fail(TW_ERROR_IO, "%s could not be created: %s", path, strerror(errno));
    tw_status status = options_write(&set, path, file);
    if (fclose(file) != 0 && status == TW_OK)
        status = tw_fail(TW_ERROR_IO, "%s could not be written: %s", path, strerror(errno));
    return status;
}
