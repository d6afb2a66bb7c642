/* A plan: a table for a person, JSON for a program. */
#include "error.h"
#include "json_file.h"
#include "network.h"
#include "plan_command.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the command to run ------------------------------------------------------------------------------------------ */

static void write_word(FILE *stream, const char *word)
{
    int plain = *word != 0;
    for (const char *at = word; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("%+,-./:=@_", *at)) plain = 0;
    if (plain) {
        fputs(word, stream);
        return;
    }
    fputc('\'', stream);
    for (const char *at = word; *at; at++)
        if (*at == '\'')
            fputs("'\\''", stream);
        else
            fputc(*at, stream);
    fputc('\'', stream);
}

/* What says how to plan, and not how to train. */
static int is_of_plan(const char *name)
{
    static const char *const own[] = {"link",       "step-time",  "codec-rate", "slow",
                                      "parameters", "unmeasured", "json",       "quiet"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0) return 1;
    return 0;
}

static void write_option(FILE *stream, const option_row *row, const void *target)
{
    char space[OPTION_TEXT_MOST];
    const char *value = options_value(row, target, space);
    fprintf(stream, row->kind == OPTION_FLAG ? " --%s=" : " --%s ", row->name);
    write_word(stream, value ? value : "");
}

static void write_training(FILE *stream, const planning *p)
{
    const options *set = p->set;
    fprintf(stream, "thinwire train %s", p->settings->train.task->name);
    for (size_t i = 0; i < set->page->count; i++) {
        const option_row *row = &set->page->rows[i];
        if (row->name && set->sources[i] == OPTION_FROM_LINE && !is_of_plan(row->name))
            write_option(stream, row, set->target);
    }
    fprintf(stream, " --sync ");
    write_word(stream, plan_chosen(p->answer).spec);
}

/* malloc'd; NULL where there is no memory. */
static char *make_command(const planning *p)
{
    char *text = NULL;
    size_t size;
    const tw_plan_row chosen = plan_chosen(p->answer);
    FILE *stream = open_memstream(&text, &size);
    if (!stream) return NULL;
    if (p->has_task)
        write_training(stream, p);
    else if (chosen.kind == TW_PLAN_WEIGHTS)
        fprintf(stream, "thinwire.torch.GossipDataParallel(model, \"%s\", optimizer=optimizer)", chosen.spec);
    else if (chosen.kind == TW_PLAN_UPDATES)
        fprintf(stream, "thinwire.torch.OuterLoop(model, optimizer, \"%s\")", chosen.spec);
    else
        fprintf(stream, "thinwire.torch.attach(ddp, \"%s\", optimizer=optimizer)", chosen.spec);
    fclose(stream);
    return text;
}

void plan_print(FILE *stream, const planning *p)
{
    char *command = make_command(p);
    size_t size = tw_plan_text(p->answer, NULL, 0) + 1;
    char *table = malloc(size);
    if (table) tw_plan_text(p->answer, table, size);
    fprintf(stream, "%s%s\n", table ? table : "", command ? command : "");
    free(table);
    free(command);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static cJSON *plan_row_json(const tw_plan_row *row)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "sync", row->spec);
    if (row->left_out) {
        cJSON_AddStringToObject(object, "left_out", row->left_out);
        return object;
    }
    cJSON_AddNumberToObject(object, "step_seconds", row->step_seconds);
    cJSON_AddNumberToObject(object, "utilisation", row->utilisation);
    cJSON_AddNumberToObject(object, "bytes_per_worker_step", row->bytes_per_step);
    cJSON_AddNumberToObject(object, "memory_bytes", row->memory_bytes);
    cJSON_AddNumberToObject(object, "end_seconds", row->end_seconds);
    cJSON_AddNumberToObject(object, "codec_seconds", row->codec_seconds);
    cJSON_AddNumberToObject(object, "extra_steps", row->seen ? row->extra : (double)NAN);
    cJSON_AddStringToObject(object, "seen", row->seen ? row->seen : "not measured");
    if (row->seen) cJSON_AddStringToObject(object, "page", row->page);
    return object;
}

tw_status plan_write_json(const planning *p, const char *path)
{
    char link[NETWORK_TEXT];
    const tw_plan_question *q = &p->inquiry.question;
    char *command = make_command(p);
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "workers", q->workers);
    cJSON_AddNumberToObject(root, "parameters", (double)p->inquiry.tensors.elements);
    cJSON_AddNumberToObject(root, "steps", (double)q->steps);
    cJSON_AddNumberToObject(root, "pass_seconds", q->pass_seconds);
    cJSON_AddNumberToObject(root, "other_seconds", q->other_seconds);
    cJSON_AddStringToObject(root, "link", network_link_text(&p->line, link));
    cJSON *rows = cJSON_AddArrayToObject(root, "candidates");
    for (size_t i = 0; i < tw_plan_count(p->answer); i++) {
        tw_plan_row row = {.struct_size = sizeof row};
        if (tw_plan_row_at(p->answer, i, &row) == TW_OK) cJSON_AddItemToArray(rows, plan_row_json(&row));
    }
    cJSON_AddStringToObject(root, "choice", plan_chosen(p->answer).spec);
    cJSON_AddStringToObject(root, "why", tw_plan_why(p->answer));
    cJSON_AddStringToObject(root, "command", command ? command : "");
    tw_status status = json_write(path, root);
    cJSON_Delete(root);
    free(command);
    return status;
}
