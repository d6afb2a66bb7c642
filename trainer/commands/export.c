/* thinwire export: a network that was trained, for other programs: a safetensors file with PyTorch's names and layout,
 * and a loader in Python that rebuilds the network from it. */
#include "commands.h"
#include "error.h"
#include "exit.h"
#include "export_folder.h"
#include "export_peft.h"
#include "launcher.h"
#include "regular_file.h"
#include "trained.h"
#include "whole_file.h"
#include <cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct export_settings {
    char *loader, *checkpoint;
    bool transformers, peft;
} export_settings;

static const option_row rows[] = {
    {"loader", "FILE", OPTION_TEXT, offsetof(export_settings, loader),
     .help = "Write a loader for PyTorch to FILE, too: a Python program that rebuilds any exported network"},
    {"transformers", NULL, OPTION_FLAG, offsetof(export_settings, transformers),
     .help = "Make FILE a folder that transformers loads: a transformer of thinwire train lm as the LlamaForCausalLM, "
             "Qwen2ForCausalLM or Qwen3ForCausalLM that it is, with its tokenizer"},
    {"peft", NULL, OPTION_FLAG, offsetof(export_settings, peft),
     .help = "Make FILE a folder that peft loads: the adapters of thinwire train lm --lora alone"},
    TRAINED_ROW(offsetof(export_settings, checkpoint)),
};

static const option_page page = {
    .usage = "thinwire export CHECKPOINT FILE [options]",
    .description =
        "Writes a network that was trained into FILE, a safetensors file, under PyTorch's names and in its layout. "
        "CHECKPOINT is the folder of a run of thinwire train, one of its checkpoints, or a model.safetensors. The "
        "file's "
        "metadata describe the network in JSON under the key \"network\": its architecture, what it takes, how that is "
        "normalised, and what its outputs are called.",
    .examples = "  thinwire export runs/photos photos.safetensors --loader load_network.py\n"
                "  python3 -c 'import load_network; print(load_network.load(\"photos.safetensors\"))'\n"
                "  thinwire export runs/llama llama --transformers\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
    .least_arguments = 2,
    .most_arguments = 2,
};

/* trainer/commands/load_network.py, which the build turns into bytes. */
static const char loader[] = {
#include <load_network.inc>
};
static const char loader_begins[] = "\"\"\"Rebuilds in PyTorch what";

static tw_status put_network(const trained *t, tw_state *state)
{
    cJSON *network = cJSON_CreateObject();
    cJSON_AddStringToObject(network, "task", t->ops->name);
    tw_status status = t->ops->describe_network(t->predictor, network, state);
    char *text = cJSON_PrintUnformatted(network);
    if (status == TW_OK) status = text ? tw_state_put_text(state, "network", text) : TW_ERROR_MEMORY;
    if (!text) tw_fail(TW_ERROR_MEMORY, "no memory for the description of a network");
    free(text);
    cJSON_Delete(network);
    return status;
}

static tw_status export_fill(const trained *t, tw_state *state)
{
    TW_TRY(export_tensors(t, state));
    return put_network(t, state);
}

static tw_status export_save(const trained *t, const char *path)
{
    tw_state *state;
    TW_TRY(tw_state_create(&state));
    tw_status status = export_fill(t, state);
    if (status == TW_OK) status = tw_state_save(state, path);
    tw_state_destroy(state);
    return status;
}

static tw_status write_loader(void *path, FILE *file)
{
    if (fwrite(loader, 1, sizeof loader, file) == sizeof loader) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s: cannot write it: %s", (const char *)path, strerror(errno));
}

/* Readers go by the ending, and those of these would find something else there. */
static tw_status check_ending(const char *path)
{
    static const char *const others[] = {".pt", ".pth", ".bin", ".onnx", ".npz", ".h5"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof others / sizeof *others; i++)
        if (strcmp(dot, others[i]) == 0)
            return tw_fail(
                TW_ERROR_ARGUMENT,
                "%s: what is written is a safetensors file; name it %.*s.safetensors, and let --loader write "
                "the program that opens it in PyTorch",
                path, (int)(dot - path), path);
    return TW_OK;
}

/* A network takes the place of a network that was exported, and of nothing else: not of a checkpoint, by which its run
 * goes on. */
static tw_status check_target(const char *path, const char *other)
{
    tw_state *state = NULL;
    if (other && strcmp(path, other) == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "%s is to be the network and its loader: name two files", path);
    if (!path_exists(path)) return TW_OK;
    const char *format = tw_state_load(path, &state) == TW_OK ? tw_state_text(state, "format") : NULL;
    const int exported = format && strcmp(format, EXPORTED) == 0;
    tw_state_destroy(state);
    if (exported) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "%s is no network that was exported, and would be lost; name another file", path);
}

static tw_status check_loader(const char *path)
{
    return whole_file_may_replace(path, loader_begins, "loader of thinwire export");
}

static tw_status export(const trained *t, const export_settings *s, const char *path)
{
    if (s->transformers) return export_folder(t, s->loader, path);
    TW_TRY(check_ending(path));
    TW_TRY(check_target(path, s->loader));
    if (s->loader) TW_TRY(check_loader(s->loader));
    TW_TRY(export_save(t, path));
    if (s->loader) TW_TRY(check_loader(s->loader)); /* it may be another spelling of the network's name */
    return s->loader ? whole_file_write(s->loader, write_loader, s->loader) : TW_OK;
}

static tw_status export_adapters(const export_settings *s, char **arguments)
{
    if (s->loader || s->transformers)
        return tw_fail(TW_ERROR_ARGUMENT, "--peft writes adapters alone; leave out --%s",
                       s->loader ? "loader" : "transformers");
    return export_peft(arguments[0], s->checkpoint, arguments[1]);
}

static int export_run(void *settings, options *set)
{
    trained t;
    const export_settings *s = settings;
    if (s->peft) return export_adapters(s, set->arguments) == TW_OK ? EXIT_DONE : launcher_refuse();
    if (trained_open(set->arguments[0], s->checkpoint, &t) != TW_OK) return launcher_refuse();
    tw_status status = export(&t, s, set->arguments[1]);
    trained_close(&t);
    return status == TW_OK ? EXIT_DONE : launcher_refuse();
}

int command_export(int argc, char **argv)
{
    export_settings settings = {0};
    return command_run(&page, argc, argv, &settings, export_run);
}
