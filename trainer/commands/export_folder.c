#include "export_folder.h"

#include "error.h"
#include "folders.h"
#include "json_file.h"
#include "regular_file.h"
#include "tensor_table.h"
#include "whole_file.h"

tw_status export_tensors(const trained *t, tw_state *state)
{
    const task_predictor *p = t->predictor;
    TW_TRY(tw_state_put_text(state, "format", EXPORTED));
    TW_TRY(tw_state_put_text(state, "thinwire", tw_version()));
    TW_TRY(tensor_table_put(state, "", p->tensors, p->tensor_count, p->parameters));
    return tensor_table_put(state, "", p->buffer_tensors, p->buffer_tensor_count, p->buffers);
}

static tw_status export_folder_describe(const trained *t, task_folder *folder)
{
    if (!t->ops->describe_folder)
        return tw_fail(TW_ERROR_UNSUPPORTED,
                       "transformers has no network like those of thinwire train %s; leave out --transformers",
                       t->ops->name);
    TW_TRY(t->ops->describe_folder(t->predictor, folder));
    cJSON_AddStringToObject(folder->config, "thinwire", tw_version());
    return TW_OK;
}

tw_status export_make_folder(const char *path, const char *whose)
{
    char part[FOLDERS_PATH];
    if (path_exists(path))
        return tw_fail(TW_ERROR_ARGUMENT, "%s is there already; name a folder that is not, for --%s", path, whose);
    const int error = folders_make(path, part);
    return error ? tw_fail(TW_ERROR_IO, "%s: cannot make the folder: %s", part, strerror(error)) : TW_OK;
}

static tw_status write_json(const char *folder, const char *name, const cJSON *object)
{
    char path[FOLDERS_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return json_write(path, object);
}

static tw_status write_tensors(const trained *t, const char *folder)
{
    char path[FOLDERS_PATH];
    tw_state *state;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    TW_TRY(tw_state_create(&state));
    tw_status status = export_tensors(t, state);
    if (status == TW_OK) status = tw_state_save(state, path);
    tw_state_destroy(state);
    return status;
}

static tw_status write_bytes(void *context, FILE *file)
{
    const task_folder *folder = context;
    if (fwrite(folder->pieces, 1, folder->pieces_size, file) == folder->pieces_size) return TW_OK;
    return tw_fail(TW_ERROR_IO, "tokenizer.model: cannot write it: %s", strerror(errno));
}

static tw_status write_pieces(task_folder *folder, const char *name)
{
    char path[FOLDERS_PATH];
    if (!folder->pieces) return TW_OK;
    snprintf(path, sizeof path, "%s/tokenizer.model", name);
    return whole_file_write(path, write_bytes, folder);
}

/* Where the network knows its tokens. */
static tw_status write_tokenizer(task_folder *folder, const char *path)
{
    if (cJSON_GetArraySize(folder->tokenizer) == 0) return TW_OK;
    TW_TRY(write_json(path, "tokenizer.json", folder->tokenizer));
    TW_TRY(write_json(path, "tokenizer_config.json", folder->tokenizer_config));
    return write_pieces(folder, path);
}

static tw_status write_folder(const trained *t, task_folder *folder, const char *path)
{
    TW_TRY(export_folder_describe(t, folder));
    TW_TRY(export_make_folder(path, "transformers"));
    TW_TRY(write_tokenizer(folder, path));
    TW_TRY(write_tensors(t, path));
    return write_json(path, "config.json", folder->config);
}

tw_status export_folder(const trained *t, const char *loader, const char *path)
{
    if (loader)
        return tw_fail(TW_ERROR_ARGUMENT, "--loader %s: transformers has a loader of its own; leave out --loader",
                       loader);
    task_folder folder = {cJSON_CreateObject(), cJSON_CreateObject(), cJSON_CreateObject()};
    tw_status status = folder.config && folder.tokenizer && folder.tokenizer_config
                           ? write_folder(t, &folder, path)
                           : tw_fail(TW_ERROR_MEMORY, "no memory for the description of a network");
    cJSON_Delete(folder.config);
    cJSON_Delete(folder.tokenizer);
    cJSON_Delete(folder.tokenizer_config);
    return status;
}
