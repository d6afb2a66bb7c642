#include "export_peft.h"

#include "error.h"
#include "export_folder.h"
#include "folders.h"
#include "json_file.h"
#include "model_file.h"
#include "tensor_table.h"
#include "weights.h"

#include <cJSON.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BESIDE ".lora_A.weight"

typedef struct peft_folder {
    const char *path;
    cJSON *config, *targets;
    tw_state *tensors;
    size_t rank, firsts, seconds; /* of all; how many tensors A, and B */
} peft_folder;

/* "q_proj" of "model.layers.0.self_attn.q_proj.lora_A.weight". */
static void add_target(peft_folder *f, const char *name)
{
    char text[512];
    const cJSON *other;
    snprintf(text, sizeof text, "%.*s", (int)(strstr(name, BESIDE) - name), name);
    const char *dot = strrchr(text, '.'), *target = dot ? dot + 1 : text;
    cJSON_ArrayForEach(other, f->targets) if (strcmp(other->valuestring, target) == 0) return;
    cJSON_AddItemToArray(f->targets, cJSON_CreateString(target));
}

static tw_status put_tensor(peft_folder *f, const tw_state_entry *entry)
{
    char name[512];
    if (!weights_include(entry) || !strstr(entry->name, ".lora_") || entry->dims != 2) return TW_OK;
    if (!tensor_table_is_finite(entry->data, entry->bytes / sizeof(float)))
        return tw_fail(TW_ERROR_FORMAT, "its %s has values that are NaN or infinite, so its run had diverged",
                       entry->name);
    const bool first = strstr(entry->name, BESIDE) != NULL;
    const size_t rank = entry->shape[first ? 0 : 1];
    if (f->firsts + f->seconds == 0) f->rank = rank;
    if (rank == 0 || rank != f->rank)
        return tw_fail(TW_ERROR_FORMAT, "its %s has rank %zu, where another has %zu: all want one above 0", entry->name,
                       rank, f->rank);
    if (snprintf(name, sizeof name, "base_model.model.%s", entry->name) >= (int)sizeof name)
        return tw_fail(TW_ERROR_FORMAT, "a name of %zu bytes is too long for an adapter", strlen(entry->name));
    if (first) add_target(f, entry->name);
    *(first ? &f->firsts : &f->seconds) += 1;
    return tw_state_put(f->tensors, name, TW_F32, entry->dims, entry->shape, entry->data);
}

static tw_status describe(peft_folder *f, const tw_state *state)
{
    double scale = 0.0;
    TW_TRY(tw_state_get(state, TASK_ADAPTER_SCALE, TW_F64, 1, &scale));
    if (!(fabs(scale) <= FLT_MAX)) return tw_fail(TW_ERROR_FORMAT, "its " TASK_ADAPTER_SCALE " is no finite float");
    if (f->firsts == 0 || f->firsts != f->seconds)
        return tw_fail(TW_ERROR_FORMAT, "it has %zu tensors lora_A and %zu lora_B; they go in pairs", f->firsts,
                       f->seconds);
    cJSON_AddStringToObject(f->config, "peft_type", "LORA");
    cJSON_AddStringToObject(f->config, "task_type", "CAUSAL_LM");
    cJSON_AddStringToObject(f->config, "base_model_name_or_path", tw_state_text(state, BASE));
    cJSON_AddNumberToObject(f->config, "r", (double)f->rank);
    cJSON_AddNumberToObject(f->config, "lora_alpha", scale * (double)f->rank);
    cJSON_AddNumberToObject(f->config, "lora_dropout", 0);
    cJSON_AddStringToObject(f->config, "bias", "none");
    cJSON_AddBoolToObject(f->config, "fan_in_fan_out", 0);
    cJSON_AddBoolToObject(f->config, "inference_mode", 1);
    return TW_OK;
}

static tw_status write_files(const peft_folder *f)
{
    char path[FOLDERS_PATH];
    TW_TRY(export_make_folder(f->path, "peft"));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", f->path);
    TW_TRY(tw_state_save(f->tensors, path));
    snprintf(path, sizeof path, "%s/adapter_config.json", f->path);
    return json_write(path, f->config);
}

static tw_status write_adapters(void *context, const tw_state *state)
{
    peft_folder *f = context;
    if (!tw_state_text(state, BASE))
        return tw_fail(TW_ERROR_UNSUPPORTED, "it has no adapters, for it was trained without --lora; leave out --peft");
    TW_TRY(tw_state_put_text(f->tensors, "format", "pt"));
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        TW_TRY(tw_state_at(state, i, &entry));
        TW_TRY(put_tensor(f, &entry));
    }
    TW_TRY(describe(f, state));
    return write_files(f);
}

tw_status export_peft(const char *from, const char *which, const char *path)
{
    peft_folder f = {.path = path, .config = cJSON_CreateObject()};
    f.targets = cJSON_AddArrayToObject(f.config, "target_modules");
    tw_status status = tw_state_create(&f.tensors);
    if (status == TW_OK) status = model_file_read_own(from, &(model_choice){.which = which}, write_adapters, &f);
    tw_state_destroy(f.tensors);
    cJSON_Delete(f.config);
    return status;
}
