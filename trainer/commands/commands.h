/* commands.h - the subcommands: a file or a folder each, one row each in main.c or, for benchmarks, in bench.c. */
#ifndef TRAINER_COMMANDS_H
#define TRAINER_COMMANDS_H

#include "options.h"
#include "task.h"

typedef struct command {
    const char *name, *summary;
    /* Gets the words after its own name and returns the program's exit code. */
    int (*run)(int argc, char **argv);
} command;

/* A list of commands, and how a person asks for one: "thinwire COMMAND". */
typedef struct command_list {
    const char *usage, *description;
    const command *commands;
    size_t count;
} command_list;

/* What --help prints, and thinwire manual and thinwire complete in its place. */
typedef enum page_form { PAGE_HELP, PAGE_MANUAL, PAGE_CANDIDATES } page_form;

int command_train(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_check_scheme(int argc, char **argv);
int command_demo(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_transcribe(int argc, char **argv);
int command_export(int argc, char **argv);
int command_predict(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_report(int argc, char **argv);
int command_schemes(int argc, char **argv);
int command_tasks(int argc, char **argv);
int command_models(int argc, char **argv);
int command_completion(int argc, char **argv);
int command_simulate(int argc, char **argv);

/* Runs the command that the first word names; explains the list where it is "help", missing or unknown. */
int command_choose(const command_list *list, int argc, char **argv);

/* The page of a command, for people ("thinwire help train lm"), as a page of man, and as words for a shell: the last
 * word of `argv` is the one to complete. */
int command_help(const command_list *list, int argc, char **argv);
int command_manual(const command_list *list, int argc, char **argv);
int command_complete(const command_list *list, int argc, char **argv);

/* The task that the first word names, whose options some of the others are; "none" and a lack have the first task's. */
tw_status command_task_or_none(int argc, char **argv, const task_ops **ops);

/* The program's last act. What was printed may stand in no file: on a full disk, a success is none. */
int command_end(int code);

/* Reads the words by a page into `settings` (zeroed) and runs the command; for --help, prints the page instead. */
int command_run(const option_page *page, int argc, char **argv, void *settings,
                int (*run)(void *settings, options *set));

#endif
