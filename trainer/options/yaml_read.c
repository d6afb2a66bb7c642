/* Options from a YAML file: one flat mapping. libyaml does the grammar; libcyaml, which checks against a schema,
 * reports to a log where we want one sentence with the line and the key, and our rows are a schema already. */
#include <string.h>
#include <yaml.h>

#include "error.h"
#include "options.h"
#include "regular_file.h"
#include "value.h"

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the last one parsed */
    const char *name;   /* of the file */
    options *set;
    bool seen[OPTIONS_MOST];
    bool begins, ends;  /* as options_write has a file begin, and end */
    const char *wanted; /* where one value alone is read: its key, and where it goes */
    char **value;
} reader;

static tw_status refuse_yaml(const reader *r)
{
    const yaml_parser_t *parser = &r->parser;
    if (parser->error == YAML_MEMORY_ERROR) return tw_fail(TW_ERROR_MEMORY, "%s: no memory to read it", r->name);
    if (parser->error == YAML_READER_ERROR)
        return tw_fail(TW_ERROR_FORMAT, "%s: not a text in UTF-8: %s at byte %zu", r->name, parser->problem,
                       parser->problem_offset);
    if (r->ends)
        return tw_fail(TW_ERROR_FORMAT, "%s:%zu: a line behind \"...\", where the file ends: put it above that",
                       r->name, parser->problem_mark.line + 1);
    return tw_fail(TW_ERROR_FORMAT, "%s:%zu: not YAML: %s", r->name, parser->problem_mark.line + 1, parser->problem);
}

static tw_status yaml_read_advance(reader *r)
{
    yaml_event_delete(&r->event);
    return yaml_parser_parse(&r->parser, &r->event) ? TW_OK : refuse_yaml(r);
}

static size_t line(const reader *r)
{
    return r->event.start_mark.line + 1;
}

/* The text of a word or a string; NULL where anything else stands, or when it has a zero byte in it. */
static const char *scalar_text(const yaml_event_t *event)
{
    if (event->type != YAML_SCALAR_EVENT) return NULL;
    const char *text = (const char *)event->data.scalar.value;
    return strlen(text) == event->data.scalar.length ? text : NULL;
}

static bool is_null(const yaml_event_t *event)
{
    const char *text = scalar_text(event);
    if (!text || event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    return *text == 0 || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

static tw_status yaml_read_refuse_unknown(const reader *r, const char *key)
{
    const char *nearest = option_nearest(r->set->page, key, strlen(key));
    if (nearest)
        return tw_fail(TW_ERROR_FORMAT, "%s:%zu: unknown option %s; did you mean %s?", r->name, line(r), key, nearest);
    return tw_fail(TW_ERROR_FORMAT, "%s:%zu: unknown option %s; --help lists the options", r->name, line(r), key);
}

static tw_status read_key(reader *r, size_t *index)
{
    const option_page *page = r->set->page;
    const char *key = scalar_text(&r->event);
    if (!key) return tw_fail(TW_ERROR_FORMAT, "%s:%zu: a key must be the name of an option", r->name, line(r));
    *index = option_find(page, key, strlen(key));
    if (*index == page->count) return yaml_read_refuse_unknown(r, key);
    if (page->rows[*index].line_only)
        return tw_fail(TW_ERROR_FORMAT, "%s:%zu: %s belongs on the command line", r->name, line(r), key);
    if (r->seen[*index]) return tw_fail(TW_ERROR_FORMAT, "%s:%zu: %s is there twice", r->name, line(r), key);
    r->seen[*index] = true;
    return TW_OK;
}

static tw_status yaml_read_read_value(reader *r, size_t index)
{
    const option_row *row = &r->set->page->rows[index];
    const char *text = scalar_text(&r->event);
    char label[512];
    snprintf(label, sizeof label, "%s:%zu: %s", r->name, line(r), row->name);
    if (!text || is_null(&r->event)) {
        char right[512];
        option_describe(row, right, sizeof right);
        return tw_fail(TW_ERROR_FORMAT, "%s: the value must be %s", label, right);
    }
    return option_set(r->set, index, text, &(option_origin){OPTION_FROM_FILE, label, TW_ERROR_FORMAT});
}

static tw_status read_mapping(reader *r)
{
    for (;;) {
        size_t index = 0;
        TW_TRY(yaml_read_advance(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) return TW_OK;
        TW_TRY(read_key(r, &index));
        TW_TRY(yaml_read_advance(r));
        TW_TRY(yaml_read_read_value(r, index));
    }
}

static tw_status read_stream(reader *r)
{
    TW_TRY(yaml_read_advance(r)); /* the stream starts */
    TW_TRY(yaml_read_advance(r)); /* the document starts, or the stream ends: a file of comments is fine */
    if (r->event.type == YAML_STREAM_END_EVENT) return TW_OK;
    r->begins = !r->event.data.document_start.implicit;
    TW_TRY(yaml_read_advance(r));
    if (r->event.type == YAML_MAPPING_START_EVENT)
        TW_TRY(read_mapping(r));
    else if (!is_null(&r->event))
        return tw_fail(TW_ERROR_FORMAT, "%s:%zu: not a list of options, one \"name: value\" a line", r->name, line(r));
    TW_TRY(yaml_read_advance(r)); /* the document ends */
    r->ends = !r->event.data.document_end.implicit;
    TW_TRY(yaml_read_advance(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s:%zu: a second document begins; one is enough", r->name, line(r));
}

/* ---- one value alone --------------------------------------------------------------------------------------------- */

/* libyaml takes time for each word as the nesting is deep. */
enum { DEEPEST = 64 };

/* Moves over what the last event began: a list or a mapping in a file that is not one of ours. */
static tw_status pass_over(reader *r)
{
    size_t depth = 0;
    do {
        yaml_event_type_t type = r->event.type;
        depth += type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT;
        depth -= type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT;
        if (depth > DEEPEST)
            return tw_fail(TW_ERROR_FORMAT, "%s:%zu: lists within lists, deeper than %d", r->name, line(r), DEEPEST);
        if (depth > 0) TW_TRY(yaml_read_advance(r));
    } while (depth > 0);
    return TW_OK;
}

/* The last event was a key's. */
static tw_status take_if_named(reader *r)
{
    const char *key = scalar_text(&r->event);
    bool found = key && strcmp(key, r->wanted) == 0;
    TW_TRY(pass_over(r));
    TW_TRY(yaml_read_advance(r));
    const char *text = found ? scalar_text(&r->event) : NULL;
    if (text && !(*r->value = strdup(text))) return tw_fail(TW_ERROR_MEMORY, "%s: no memory to read it", r->name);
    return pass_over(r);
}

static tw_status look_for(reader *r)
{
    TW_TRY(yaml_read_advance(r)); /* the stream starts */
    TW_TRY(yaml_read_advance(r)); /* the document starts, or the stream ends */
    if (r->event.type != YAML_STREAM_END_EVENT) TW_TRY(yaml_read_advance(r));
    if (r->event.type != YAML_MAPPING_START_EVENT) return TW_OK;
    while (!*r->value) {
        TW_TRY(yaml_read_advance(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) return TW_OK;
        TW_TRY(take_if_named(r));
    }
    return TW_OK;
}

/* ---- files and texts --------------------------------------------------------------------------------------------- */

/* From `file`, or where that is NULL from text[0 .. size). */
static tw_status read_source(reader *r, FILE *file, const char *text, size_t size, tw_status (*read)(reader *r))
{
    if (!yaml_parser_initialize(&r->parser)) return tw_fail(TW_ERROR_MEMORY, "%s: no memory to read it", r->name);
    if (file)
        yaml_parser_set_input_file(&r->parser, file);
    else
        yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, size);
    tw_status status = read(r);
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
    return status;
}

static tw_status read_file(reader *r, tw_status (*read)(reader *r))
{
    FILE *file;
    TW_TRY(regular_file_stream(r->name, "r", &file));
    tw_status status = read_source(r, file, NULL, 0, read);
    if (ferror(file)) status = tw_fail(TW_ERROR_IO, "%s: cannot read it", r->name);
    fclose(file);
    return status;
}

tw_status options_find_in_file(const char *path, const char *name, char **value)
{
    *value = NULL;
    return read_file(&(reader){.name = path, .wanted = name, .value = value}, look_for);
}

tw_status options_read_text(options *set, const char *name, const char *text, size_t size)
{
    return read_source(&(reader){.name = name, .set = set}, NULL, text, size, read_stream);
}

/* What options_write writes behind the last option that is there. */
static tw_status refuse_cut(const reader *r)
{
    const option_page *page = r->set->page;
    const char *last = "its first line";
    char lost[512] = "";
    for (size_t i = 0; i < page->count; i++) {
        size_t used = strlen(lost);
        if (r->seen[i]) {
            last = page->rows[i].name;
            *lost = 0;
        } else if (option_is_in_files(&page->rows[i])) {
            snprintf(lost + used, sizeof lost - used, "%s%s", used ? ", " : "", page->rows[i].name);
        }
    }
    return tw_fail(
        TW_ERROR_FORMAT,
        "%s: its end is lost, as it has no last line \"...\": behind %s there may have been %s; take a whole "
        "copy, or write these options and that line again",
        r->name, last, *lost ? lost : "nothing more");
}

tw_status options_read_whole_file(options *set, const char *path)
{
    reader r = {.name = path, .set = set};
    TW_TRY(read_file(&r, read_stream));
    return r.begins && !r.ends ? refuse_cut(&r) : TW_OK;
}

tw_status options_read_file(options *set, const char *path)
{
    return read_file(&(reader){.name = path, .set = set}, read_stream);
}
