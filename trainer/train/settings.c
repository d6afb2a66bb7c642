#include "settings.h"
#include "error.h"
#include "optimiser.h"
#include "regular_file.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(train_settings, field)

static const option_row rows[] = {
    {.help = "Workers and what they send"},
    {"workers", "N", OPTION_INTEGER, AT(workers), "0", 0, 4096,
     .help = "workers, as threads of this process; 0: one, or as many as mpirun started"},
    {"sync", "SPEC", OPTION_TEXT, AT(sync), "allreduce",
     .help = "what workers exchange: scheme or scheme:option=value,..., such as dgc:density=0.001 for gradients or "
             "adpsgd-random for weights; thinwire schemes lists them",
     .binding = true},
    {"transport", NULL, OPTION_CHOICE, AT(transport), "auto", .choices = "auto|threads|mpi",
     .help = "auto takes mpi under an MPI launcher"},
    {"timeout", "SECONDS", OPTION_REAL, AT(timeout), "600", 0.001, 1e9,
     .help = "silence after which a worker counts as lost; also, from 20 on, how long MPI may take to start"},
    {"check-every", "STEPS", OPTION_INTEGER, AT(check_every), "100", 0, INFINITY,
     .help = "compare the weights of all workers every so many steps; 0: never; by gossip they differ until the end"},
    {"slow", "LIST", OPTION_TEXT, AT(slow),
     .help = "to see what a slow worker does: RANK:FACTOR,...; its computation takes FACTOR times as long"},
    {"pause", "LIST", OPTION_TEXT, AT(pause),
     .help = "the same for one that stands still: RANK:AT:SECONDS,...; after computing step AT it pauses so long"},

    {.help = "Optimisation"},
    {"epochs", "N", OPTION_INTEGER, AT(epochs), "5", 1, 1e9, .help = "passes over the training data"},
    {"steps", "N", OPTION_INTEGER, AT(steps), "0", 0, 1e15, .help = "steps to take instead; 0: --epochs decides"},
    {"batch", "N", OPTION_INTEGER, AT(batch), "16", 1, 65536,
     .help = "images, or what the task has in their place, each worker takes a step", .binding = true},
    {"lr", "RATE", OPTION_REAL, AT(lr), "0.03", 0, 1e6, .help = "learning rate"},
    {"schedule", "NAME", OPTION_TEXT, AT(schedule),
     .help =
         "constant, cosine, step, step:A,B (a tenth at A and at B: fractions of the run below 1, else epochs), "
         "decay:F,E (times F at the end of epoch E and of each later one) or plateau:F (times F after an epoch that "
         "did not lower the validation loss); without it the model's own"},
    {"warmup", "STEPS", OPTION_INTEGER, AT(warmup), "400", 0, 1e15,
     .help = "steps in which the learning rate rises to --lr"},
    {"optimizer", NULL, OPTION_CHOICE, AT(optimizer), "sgd", .choices = "sgd|adam|adamw", .binding = true,
     .help =
         "sgd goes with every scheme; adam and adamw (then --lr is 0.001 and --momentum 0.9 by default) not with "
         "one that applies momentum itself, and nobody has shown that they thrive on what sparse schemes send late"},
    {"momentum", "M", OPTION_REAL, AT(momentum), "0.9", 0, 0.9999,
     .help = "of sgd, where the scheme of --sync does not apply its own; beta1 of adam", .binding = true},
    {"beta2", "B", OPTION_REAL, AT(beta2), "0.999", 0, 0.999999, .help = "of adam: how long it remembers squares",
     .binding = true},
    {"nesterov", NULL, OPTION_FLAG, AT(nesterov), .help = "Nesterov's form of momentum", .binding = true},
    {"weight-decay", "L", OPTION_REAL, AT(weight_decay), "0", 0, 1, .help = "not applied to biases and norms"},
    {"clip", "NORM", OPTION_REAL, AT(clip), "0", 0, 1e9,
     .help = "scale the mean gradient down to this norm where it is longer; where workers have to clip their own, by "
             "gossip and where --sync compresses, that to NORM times the root of their number; 0: never"},
    {"compute", NULL, OPTION_CHOICE, AT(compute), "fp32", .choices = "fp32|bf16", .binding = true,
     .help = "bf16: matrix products and convolutions round what they read to bfloat16 and add up in fp32; all else, "
             "the weights above all, stays fp32. Needs AVX512_BF16 or AMX; thinwire doctor knows"},
    {"seed", "N", OPTION_INTEGER, AT(seed), "1", 0, 1e15, .help = "of weights, order and augmentation",
     .binding = true},

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

#define COUNT (sizeof rows / sizeof *rows)

static void describe_tasks(const task_ops *ops, char *text, size_t room)
{
    int used = snprintf(text, room,
                        "Trains a network on several workers that exchange compressed gradients, or weights. Under "
                        "mpirun each rank is a worker; otherwise the workers are threads of this process. These are "
                        "the options of task %s (%s).",
                        ops->name, ops->summary);
    for (size_t i = 0; task_at(i) && (size_t)used < room; i++)
        if (task_at(i) != ops)
            used += snprintf(text + used, room - (size_t)used, " %s: %s.", task_at(i)->name, task_at(i)->summary);
}

/* The task's own, then those of every run. */
static tw_status gather_rows(const task_ops *ops, option_row all[OPTIONS_MOST], size_t *count)
{
    for (size_t i = 0; i < ops->row_count; i++) {
        option_row row = ops->rows[i];
        row.offset += AT(own);
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
    };
    return TW_OK;
}

/* The tasks' own rates and momenta are those of SGD; Adam's steps have another scale. */
static const char *suits_optimiser(const train_settings *s, const char *option)
{
    if (s->optimizer == OPTIMISER_SGD) return NULL;
    if (strcmp(option, "lr") == 0) return "0.001";
    return strcmp(option, "momentum") == 0 ? "0.9" : NULL;
}

static const char *suitable(const task_ops *ops, const train_settings *s, const char *option)
{
    const char *suits = suits_optimiser(s, option);
    return suits || !ops->fallback ? suits : ops->fallback(s->own, option);
}

tw_status settings_complete(const task_ops *ops, options *set)
{
    const train_settings *s = set->target;
    for (size_t i = 0; i < COUNT; i++) {
        const char *name = rows[i].name;
        const char *suits = name && !options_given(set, name) ? suitable(ops, s, name) : NULL;
        if (suits) TW_TRY(options_default(set, name, suits));
    }
    return TW_OK;
}

size_t settings_identity(const train_settings *s, int workers, setting_text identity[SETTINGS_IDENTITY])
{
    const option_page *page = s->set->page;
    size_t count = 2;
    identity[0] = (setting_text){.key = "task", .value = s->task->name};
    identity[1] = (setting_text){.key = "workers", .value = identity[1].space};
    snprintf(identity[1].space, sizeof identity[1].space, "%d", workers);
    for (size_t i = 0; i < page->count; i++) {
        const option_row *row = &page->rows[i];
        setting_text *entry = &identity[count];
        entry->key = row->name;
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
    cJSON_AddStringToObject(object, "task", settings->task->name);
    for (size_t i = 0; i < page->count; i++) {
        const option_row *row = &page->rows[i];
        if (row->name && !row->line_only)
            cJSON_AddItemToObject(object, row->name, row_json(row, (const char *)settings + row->offset));
    }
    return object;
}

static tw_status write_beside(const train_settings *settings, const char *path, const char *partial)
{
    train_settings resolved = *settings;
    options set = *settings->set;
    set.target = &resolved;
    FILE *file;
    TW_TRY(regular_file_stream(partial, "w", &file));
    tw_status status = options_write(&set, path, file);
    if (fclose(file) != 0 && status == TW_OK)
        status = tw_fail(TW_ERROR_IO, "%s could not be written: %s", path, strerror(errno));
    return status;
}

/* The old file stays until the new one is whole: half of it would be read as fewer options. */
tw_status settings_write(const train_settings *settings, const char *path)
{
    char *partial;
    if (asprintf(&partial, "%s.partial", path) < 0) return tw_fail(TW_ERROR_MEMORY, "no memory to write %s", path);
    tw_status status = write_beside(settings, path, partial);
    if (status == TW_OK && rename(partial, path) != 0)
        status = tw_fail(TW_ERROR_IO, "%s could not be replaced: %s", path, strerror(errno));
    if (status != TW_OK) remove(partial);
    free(partial);
    return status;
}
