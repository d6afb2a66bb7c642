/* thinwire tasks and thinwire models: what the words of a command line may be. */
#include "commands.h"
#include "exit.h"
#include "launcher.h"
#include "page_text.h"
#include "task.h"
#include <string.h>

/* ---- tasks ---- */

static const option_page tasks_page = {
    .usage = "thinwire tasks",
    .description = "Lists the tasks of thinwire train: what networks can be trained on.",
};

static int print_tasks(void *settings, options *set)
{
    (void)settings, (void)set;
    page_text text = page_text_begin(stdout);
    for (size_t i = 0; task_at(i); i++) page_text_entry(&text, task_at(i)->name, "", task_at(i)->summary);
    printf("\nthinwire help train TASK prints the options of a task.\n");
    return EXIT_DONE;
}

int command_tasks(int argc, char **argv)
{
    return command_run(&tasks_page, argc, argv, NULL, print_tasks);
}

/* ---- models ---- */

static const option_page models_page = {
    .usage = "thinwire models [TASK|MODEL]",
    .description = "Lists the networks of each task: what --model of thinwire train takes. With the name of a network, "
                   "says what it is and which task trains it.",
    .most_arguments = 1,
    .word = task_name,
};

static const option_row *find_model_row(const task_ops *ops)
{
    for (size_t i = 0; i < ops->row_count; i++)
        if (ops->rows[i].name && strcmp(ops->rows[i].name, "model") == 0) return &ops->rows[i];
    return NULL;
}

static void print_models_of(const task_ops *ops)
{
    page_text text = page_text_begin(stdout);
    const option_row *row = find_model_row(ops);
    printf("thinwire train %s:\n", ops->name);
    for (size_t i = 0; row && row->word && row->word(i); i++)
        page_text_entry(&text, row->word(i), "", row->word_meaning ? row->word_meaning(i) : "");
    if (row && row->kind == OPTION_CHOICE) page_text_entry(&text, row->choices, "", row->help);
    if (!row) printf("  It has one network.\n");
}

/* false: no task has a network of that name. */
static bool print_model(const char *name)
{
    bool found = false;
    for (size_t i = 0; task_at(i); i++) {
        const option_row *row = find_model_row(task_at(i));
        for (size_t k = 0; row && row->word && row->word(k); k++) {
            if (strcmp(row->word(k), name) != 0) continue;
            page_text text = page_text_begin(stdout);
            page_text_entry(&text, name, "", row->word_meaning ? row->word_meaning(k) : "");
            printf("\nthinwire train %s --model %s trains it.\n", task_at(i)->name, name);
            found = true;
        }
    }
    return found;
}

static int print_models(void *settings, options *set)
{
    const task_ops *only = NULL;
    (void)settings;
    if (set->argument_count > 0 && print_model(set->arguments[0])) return EXIT_DONE;
    if (set->argument_count > 0 && task_find(set->arguments[0], &only) != TW_OK) return launcher_refuse();
    for (size_t i = 0; task_at(i); i++) {
        if (only && task_at(i) != only) continue;
        if (i && !only) printf("\n");
        print_models_of(task_at(i));
    }
    return EXIT_DONE;
}

int command_models(int argc, char **argv)
{
    return command_run(&models_page, argc, argv, NULL, print_models);
}
