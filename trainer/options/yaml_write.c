/* Options to a YAML file: what yaml_read.c reads back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "error.h"
#include "options.h"
#include "value.h"

/* Hands an event that was made to the emitter, which frees it. */
static bool yaml_write_emit(yaml_emitter_t *emitter, yaml_event_t *event, int made)
{
    return made && yaml_emitter_emit(emitter, event);
}

static bool emit_scalar(yaml_emitter_t *emitter, const char *text, yaml_scalar_style_t style)
{
    yaml_event_t event;
    int made =
        yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text, (int)strlen(text), 1, 1, style);
    return yaml_write_emit(emitter, &event, made);
}

/* A path that means the same from any folder, malloc'd; NULL where `value` does, or nobody knows where this is. */
static char *from_root(const char *value)
{
    char *here = *value && *value != '/' ? getcwd(NULL, 0) : NULL, *path = NULL;
    if (here && asprintf(&path, "%s/%s", here, value) < 0) path = NULL;
    free(here);
    return path;
}

/* Texts are quoted, so that "on" or "5" stays a text for whoever else reads the file. */
static tw_status emit_value(yaml_emitter_t *emitter, const option_row *row, const char *value)
{
    bool quoted = row->kind == OPTION_TEXT;
    if (emit_scalar(emitter, row->name, YAML_PLAIN_SCALAR_STYLE) &&
        emit_scalar(emitter, value, quoted ? YAML_DOUBLE_QUOTED_SCALAR_STYLE : YAML_PLAIN_SCALAR_STYLE))
        return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "--%s: \"%s\" cannot be written to a YAML file: it is not UTF-8", row->name,
                   value);
}

static tw_status emit_option(yaml_emitter_t *emitter, const option_row *row, const void *target)
{
    char space[OPTION_TEXT_MOST];
    if (!option_is_in_files(row)) return TW_OK;
    const char *value = options_value(row, target, space);
    if (!value) return TW_OK;
    char *path = row->path ? from_root(value) : NULL;
    tw_status status = emit_value(emitter, row, path ? path : value);
    free(path);
    return status;
}

/* A file that has its first line and not its last one has lost its end: see options_read_whole_file. */
static bool emit_start(yaml_emitter_t *emitter)
{
    yaml_event_t event;
    return yaml_write_emit(emitter, &event, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING)) &&
           yaml_write_emit(emitter, &event, yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 0)) &&
           yaml_write_emit(emitter, &event,
                           yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE));
}

static bool emit_end(yaml_emitter_t *emitter)
{
    yaml_event_t event;
    return yaml_write_emit(emitter, &event, yaml_mapping_end_event_initialize(&event)) &&
           yaml_write_emit(emitter, &event, yaml_document_end_event_initialize(&event, 0)) &&
           yaml_write_emit(emitter, &event, yaml_stream_end_event_initialize(&event));
}

static tw_status write_events(yaml_emitter_t *emitter, const options *set, const char *name)
{
    bool fine = emit_start(emitter);
    for (size_t i = 0; fine && i < set->page->count; i++)
        TW_TRY(emit_option(emitter, &set->page->rows[i], set->target));
    fine = fine && emit_end(emitter);
    return fine ? TW_OK : tw_fail(TW_ERROR_IO, "%s: cannot be written as YAML: %s", name, emitter->problem);
}

tw_status options_write(const options *set, const char *name, FILE *file)
{
    yaml_emitter_t emitter;
    if (!yaml_emitter_initialize(&emitter)) return tw_fail(TW_ERROR_MEMORY, "%s: no memory to write it", name);
    yaml_emitter_set_output_file(&emitter, file);
    yaml_emitter_set_unicode(&emitter, 1);
    yaml_emitter_set_width(&emitter, -1); /* one option, one line */
    tw_status status = write_events(&emitter, set, name);
    yaml_emitter_delete(&emitter);
    if (status == TW_OK && (fflush(file) || ferror(file)))
        return tw_fail(TW_ERROR_IO, "%s: cannot be written: %s", name, strerror(errno));
    return status;
}
