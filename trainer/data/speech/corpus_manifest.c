/* NeMo's manifests: a JSON object a line, in UTF-8. Keys that are not known are ignored, as others' readers do. */
#include <cJSON.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "corpus_format.h"
#include "error.h"
#include "text_lines.h"

enum { MOST_CHANNELS = 64 };

/* Where a line stands, for the texts of failures, and what names in it are relative to. */
typedef struct place {
    const char *path;
    size_t line;
    char folder[CORPUS_PATH];
} place;

static tw_status corpus_manifest_read_seconds(const place *at, const cJSON *object, const char *key, double *seconds)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!value || cJSON_IsNull(value)) return TW_OK;
    *seconds = cJSON_GetNumberValue(value); /* not a number when it is none */
    if (*seconds >= 0 && isfinite(*seconds)) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s: line %zu: \"%s\" is not a number of seconds", at->path, at->line, key);
}

/* Counted from 0 in the file. */
static tw_status read_channel(const place *at, const cJSON *object, int *channel)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, "channel");
    if (!value || cJSON_IsNull(value)) return TW_OK;
    double number = cJSON_GetNumberValue(value);
    if (!(number >= 0 && number < MOST_CHANNELS && number == floor(number)))
        return tw_fail(TW_ERROR_FORMAT, "%s: line %zu: \"channel\" is not a whole number from 0 to %d", at->path,
                       at->line, MOST_CHANNELS - 1);
    *channel = 1 + (int)number;
    return TW_OK;
}

/* *text is NULL where the key is not there. */
static tw_status corpus_manifest_read_text(const place *at, const cJSON *object, const char *key, char **text)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    *text = cJSON_GetStringValue(value);
    if (*text || !value || cJSON_IsNull(value)) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s: line %zu: \"%s\" is not a string", at->path, at->line, key);
}

/* The id is the path as it is written; the pieces of one file differ in where they begin. */
static void write_id(char id[CORPUS_PATH], const char *name, double offset)
{
    int length = snprintf(id, CORPUS_PATH, "%s", name);
    if (offset > 0 && length < CORPUS_PATH) snprintf(id + length, (size_t)(CORPUS_PATH - length), "@%.17g", offset);
}

static tw_status add_object(const place *at, const cJSON *object, speech_list *list)
{
    speech_utterance one = {0};
    char path[CORPUS_PATH], id[CORPUS_PATH], *name;
    TW_TRY(corpus_manifest_read_text(at, object, "audio_filepath", &name));
    if (!name || !*name)
        return tw_fail(TW_ERROR_FORMAT, "%s: line %zu: no \"audio_filepath\" in it", at->path, at->line);
    TW_TRY(corpus_manifest_read_text(at, object, "text", &one.text));
    TW_TRY(corpus_manifest_read_text(at, object, "speaker", &one.speaker));
    TW_TRY(corpus_manifest_read_seconds(at, object, "offset", &one.offset));
    TW_TRY(corpus_manifest_read_seconds(at, object, "duration", &one.duration));
    TW_TRY(read_channel(at, object, &one.channel));
    TW_TRY(corpus_path(path, at->folder, name, ""));
    write_id(id, name, one.offset);
    one.path = path;
    one.id = id;
    return speech_list_add(list, &one);
}

static tw_status corpus_manifest_add_line(const place *at, const char *line, speech_list *list)
{
    cJSON *object = cJSON_ParseWithOpts(line, NULL, 1); /* 1: nothing may follow the value */
    tw_status status = cJSON_IsObject(object) ? add_object(at, object, list)
                                              : tw_fail(TW_ERROR_FORMAT, "%s: line %zu is not a JSON object: %.60s",
                                                        at->path, at->line, line);
    cJSON_Delete(object);
    return status;
}

static tw_status read_manifest(const char *path, speech_list *list)
{
    text_lines lines;
    place at = {.path = path};
    tw_status status = TW_OK;
    corpus_parent(at.folder, path);
    TW_TRY(text_lines_open(path, &lines));
    for (char *line; status == TW_OK && (line = text_lines_next(&lines));) {
        at.line = lines.number;
        status = corpus_manifest_add_line(&at, line, list);
    }
    text_lines_close(&lines);
    return status;
}

static bool found_manifest(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && !S_ISDIR(about.st_mode);
}

const corpus_format manifest_format = {"manifest", "a manifest (a file)", found_manifest, read_manifest, NULL};
