/* thinwire predict: what a network that was trained says of files. Where a task has a word of its own for it, generate
 * or transcribe, that is predict with this task's options alone. */
#include "code_point.h"
#include "commands.h"
#include "error.h"
#include "exit.h"
#include "folder.h"
#include "launcher.h"
#include "regular_file.h"
#include "trained.h"
#include <cJSON.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct predict_settings {
    const task_ops *only; /* NULL: any task */
    bool json;
    char *checkpoint;
    max_align_t use[TASKS_MOST][TASK_USE_MOST / sizeof(max_align_t)]; /* each task's */
} predict_settings;

#define AT(field) offsetof(predict_settings, field)

static const option_row shared_rows[] = {
    {"json", NULL, OPTION_FLAG, AT(json), .help = "Print a line of JSON for each file and its answer"},
    TRAINED_ROW(AT(checkpoint)),
};

/* ---- the page ---- */

typedef struct predict_page {
    option_row rows[OPTIONS_MOST];
    char titles[TASKS_MOST][64], usage[96], description[1536], examples[1024];
    option_page page;
} predict_page;

static bool is_meant(const task_ops *only, size_t index)
{
    return !only || only == task_at(index);
}

static void predict_append(char *text, size_t room, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, room - used, "%s", more);
}

static tw_status add_task(predict_page *p, size_t index)
{
    const task_ops *ops = task_at(index);
    option_row title = {.help = p->titles[index]};
    snprintf(p->titles[index], sizeof p->titles[index], "For networks of thinwire train %s", ops->name);
    if (ops->use_row_count > 0) TW_TRY(options_add_row(p->rows, &p->page.count, &title));
    for (size_t i = 0; i < ops->use_row_count; i++) {
        option_row row = ops->use_rows[i];
        row.offset += AT(use) + index * sizeof(((predict_settings *)0)->use[0]);
        TW_TRY(options_add_row(p->rows, &p->page.count, &row));
    }
    if (ops->use_summary) {
        predict_append(p->description, sizeof p->description, " ");
        predict_append(p->description, sizeof p->description, ops->use_summary);
    }
    if (ops->use_examples) predict_append(p->examples, sizeof p->examples, ops->use_examples);
    return TW_OK;
}

static tw_status make_page(const task_ops *only, predict_page *p)
{
    bool needs_file = only && !only->answers_without_file;
    *p = (predict_page){.page = {.least_arguments = needs_file ? 2 : 1, .most_arguments = 1000000}};
    snprintf(p->usage, sizeof p->usage, "thinwire %s CHECKPOINT %s [options]", only ? only->used_by : "predict",
             only && only->answers_without_file ? "[FILE...]" : "FILE...");
    predict_append(
        p->description, sizeof p->description,
        "Has a network that was trained answer for files. CHECKPOINT is the folder of a run of thinwire train, one of "
        "its checkpoints, or a model.safetensors. A file that cannot be used is named on standard error and left "
        "out; the exit code is then 2.");
    for (size_t i = 0; i < sizeof shared_rows / sizeof *shared_rows; i++)
        TW_TRY(options_add_row(p->rows, &p->page.count, &shared_rows[i]));
    for (size_t i = 0; task_at(i); i++)
        if (is_meant(only, i)) TW_TRY(add_task(p, i));
    p->page.usage = p->usage;
    p->page.description = p->description;
    p->page.examples = p->examples;
    p->page.rows = p->rows;
    return TW_OK;
}

/* ---- answering ---- */

/* A name that is not UTF-8 would make the line no JSON: then it is the one `shown` to people. */
static tw_status answer_json(const trained *t, const void *use, const char *path, const char *shown)
{
    cJSON *line = cJSON_CreateObject();
    task_answer answer = {.json = line};
    if (path) cJSON_AddStringToObject(line, "file", code_point_valid(path, strlen(path)) ? path : shown);
    tw_status status = t->ops->predict(t->predictor, use, path, &answer);
    char *text = status == TW_OK ? cJSON_PrintUnformatted(line) : NULL;
    if (text) puts(text);
    if (status == TW_OK && !text) status = tw_fail(TW_ERROR_MEMORY, "no memory for a line of JSON");
    free(text);
    cJSON_Delete(line);
    return status;
}

/* An option of another task would be silently off. */
static tw_status check_options(const trained *t, const options *set)
{
    for (size_t i = 0; task_at(i); i++) {
        const task_ops *ops = task_at(i);
        for (size_t k = 0; ops != t->ops && k < ops->use_row_count; k++)
            if (options_given(set, ops->use_rows[k].name))
                return tw_fail(TW_ERROR_ARGUMENT,
                               "--%s is for networks of thinwire train %s; %s is of thinwire train %s",
                               ops->use_rows[k].name, ops->name, set->arguments[0], t->ops->name);
    }
    return TW_OK;
}

static tw_status check_task(const trained *t, const predict_settings *s, const options *set)
{
    if (s->only && s->only != t->ops)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "%s is of thinwire train %s; thinwire %s is for networks of thinwire train %s, thinwire predict "
                       "for all",
                       set->arguments[0], t->ops->name, s->only->used_by, s->only->name);
    if (set->argument_count == 1 && !t->ops->answers_without_file)
        return tw_fail(TW_ERROR_ARGUMENT, "FILE is missing; usage: thinwire predict CHECKPOINT FILE... [options]");
    return s->only ? TW_OK : check_options(t, set);
}

static const void *use_of(const predict_settings *s, const task_ops *ops)
{
    size_t index = 0;
    while (task_at(index) != ops) index++;
    return s->use[index];
}

static tw_status refuse_folder(const predict_settings *s, const options *set, const char *path)
{
    if (!path_is_folder(path)) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s is a folder; name the files in it: thinwire %s %s %s/*", path,
                   s->only ? s->only->used_by : "predict", set->arguments[0], path);
}

static tw_status answer_file(const trained *t, const predict_settings *s, const char *path, bool is_among)
{
    const void *use = use_of(s, t->ops);
    char shown[4 * PATH_MAX]; /* whoever named it may have meant the terminal */
    if (path) code_point_show(path, strlen(path), shown, sizeof shown);
    if (s->json) return answer_json(t, use, path, shown);
    task_answer answer = {.text = stdout, .name = path ? shown : NULL, .is_among = is_among};
    return t->ops->predict(t->predictor, use, path, &answer);
}

/* A file that cannot be used does not keep the others from their answers. */
static int answer_all(const trained *t, const predict_settings *s, const options *set)
{
    int code = EXIT_DONE;
    size_t files = set->argument_count - 1;
    if (files == 0) return answer_file(t, s, NULL, false) == TW_OK ? code : launcher_refuse();
    for (size_t i = 1; i <= files; i++)
        if (refuse_folder(s, set, set->arguments[i]) != TW_OK ||
            answer_file(t, s, set->arguments[i], files > 1) != TW_OK)
            code = launcher_refuse();
    return code;
}

static int is_run(const char *path)
{
    return path_is_folder(path) && (folder_names_checkpoint(path) || folder_has_checkpoint(path));
}

/* What was trained may have been named behind the files. */
static int refuse_unopened(const predict_settings *s, const options *set)
{
    const char *first = set->arguments[0], *last = set->arguments[set->argument_count - 1];
    if (!is_run(first) && is_run(last))
        tw_fail(TW_ERROR_ARGUMENT, "%s is no checkpoint, but %s is: it comes first, as in thinwire %s %s %s", first,
                last, s->only ? s->only->used_by : "predict", last, first);
    return launcher_refuse();
}

static int predict_run(void *settings_of_it, options *set)
{
    const predict_settings *s = settings_of_it;
    trained t;
    if (trained_open(set->arguments[0], s->checkpoint, &t) != TW_OK) return refuse_unopened(s, set);
    int code = check_task(&t, s, set) == TW_OK ? answer_all(&t, s, set) : launcher_refuse();
    trained_close(&t);
    return code;
}

static int run_for(const task_ops *only, int argc, char **argv)
{
    predict_settings settings = {.only = only};
    predict_page page;
    if (make_page(only, &page) != TW_OK) return launcher_refuse();
    return command_run(&page.page, argc, argv, &settings, predict_run);
}

int command_predict(int argc, char **argv)
{
    return run_for(NULL, argc, argv);
}

static const task_ops *find_word(const char *word)
{
    size_t i = 0;
    while (task_at(i) && (!task_at(i)->used_by || strcmp(task_at(i)->used_by, word) != 0)) i++;
    return task_at(i);
}

int command_generate(int argc, char **argv)
{
    return run_for(find_word("generate"), argc, argv);
}

int command_transcribe(int argc, char **argv)
{
    return run_for(find_word("transcribe"), argc, argv);
}
