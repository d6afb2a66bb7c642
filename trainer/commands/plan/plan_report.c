/* A plan: a table for a person, JSON for a program. */
#include "error.h"
#include "exchange.h"
#include "json_file.h"
#include "network.h"
#include "optimiser.h"
#include "plan_command.h"
#include "progress.h"

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
    write_word(stream, p->answer.chosen->spec);
}

/* malloc'd; NULL where there is no memory. */
static char *make_command(const planning *p)
{
    char *text = NULL;
    size_t size;
    size_t scheme;
    const char *spec = p->answer.chosen->spec;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) return NULL;
    if (p->has_task)
        write_training(stream, p);
    else if (exchange_find(spec, &scheme)->side_by_side)
        fprintf(stream, "thinwire.torch.OuterLoop(model, optimizer, \"%s\")", spec);
    else
        fprintf(stream, "thinwire.torch.attach(ddp, \"%s\", optimizer=optimizer)", spec);
    fclose(stream);
    return text;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const char *seconds_text(double seconds, char text[32])
{
    int small = seconds < 0.9995;
    snprintf(text, 32, small ? "%.3g ms" : "%.4g s", small ? 1e3 * seconds : seconds);
    return text;
}

static void print_row(FILE *stream, const plan_row *row)
{
    char step[32], bytes[BYTES_TEXT], memory[BYTES_TEXT] = "-";
    if (isfinite(row->memory_bytes)) bytes_text(row->memory_bytes, memory);
    fprintf(stream, "%-38s %10s %8.1f%% %10s %10s   ", row->spec, seconds_text(row->step_seconds, step),
            100 * row->utilisation, bytes_text(row->bytes_per_step, bytes), memory);
    if (row->cost)
        fprintf(stream, "%s (%s)\n", row->cost->seen, row->cost->page);
    else
        fprintf(stream, "not measured\n");
}

void plan_print(FILE *stream, const planning *p)
{
    char link[NETWORK_TEXT], pass[32];
    const plan *answer = &p->answer;
    char *command = make_command(p);
    fprintf(stream, "%d workers, %zu parameters, %llu steps, a pass of %s, the line %s\n\n", p->question.workers,
            p->layout.elements, (unsigned long long)p->question.steps,
            seconds_text(p->question.pace.step_seconds, pass), network_link_text(&p->question.world, link));
    fprintf(stream, "%-38s %10s %9s %10s %10s   %s\n", "candidate", "a step", "computes", "sent", "memory",
            "to the same loss");
    for (size_t i = 0; i < answer->count; i++)
        if (!*answer->rows[i].left_out) print_row(stream, &answer->rows[i]);
    for (size_t i = 0; i < answer->count; i++)
        if (*answer->rows[i].left_out)
            fprintf(stream, "%s is left out: %s\n", answer->rows[i].spec, answer->rows[i].left_out);
    fprintf(stream, "\n%s is chosen. %s\n%s\n", answer->chosen->spec, answer->why, command ? command : "");
    free(command);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static cJSON *plan_row_json(const plan_row *row)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "sync", row->spec);
    if (*row->left_out) {
        cJSON_AddStringToObject(object, "left_out", row->left_out);
        return object;
    }
    cJSON_AddNumberToObject(object, "step_seconds", row->step_seconds);
    cJSON_AddNumberToObject(object, "utilisation", row->utilisation);
    cJSON_AddNumberToObject(object, "bytes_per_worker_step", row->bytes_per_step);
    cJSON_AddNumberToObject(object, "memory_bytes", row->memory_bytes);
    cJSON_AddNumberToObject(object, "codec_seconds", row->codec_seconds);
    cJSON_AddNumberToObject(object, "extra_steps", row->cost ? row->cost->extra : (double)NAN);
    cJSON_AddStringToObject(object, "seen", row->cost ? row->cost->seen : "not measured");
    if (row->cost) cJSON_AddStringToObject(object, "page", row->cost->page);
    return object;
}

tw_status plan_write_json(const planning *p, const char *path)
{
    char link[NETWORK_TEXT];
    const plan *answer = &p->answer;
    char *command = make_command(p);
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "workers", p->question.workers);
    cJSON_AddNumberToObject(root, "parameters", (double)p->layout.elements);
    cJSON_AddNumberToObject(root, "steps", (double)p->question.steps);
    cJSON_AddNumberToObject(root, "pass_seconds", p->question.pace.step_seconds);
    cJSON_AddNumberToObject(root, "other_seconds", p->question.pace.other_seconds);
    cJSON_AddStringToObject(root, "link", network_link_text(&p->question.world, link));
    cJSON *rows = cJSON_AddArrayToObject(root, "candidates");
    for (size_t i = 0; i < answer->count; i++) cJSON_AddItemToArray(rows, plan_row_json(&answer->rows[i]));
    cJSON_AddStringToObject(root, "choice", answer->chosen->spec);
    cJSON_AddStringToObject(root, "why", answer->why);
    cJSON_AddStringToObject(root, "command", command ? command : "");
    tw_status status = json_write(path, root);
    cJSON_Delete(root);
    free(command);
    return status;
}
