/* What all commands begin with: which one it is, its options, and what can be printed about them. */
#include "commands.h"
#include "error.h"
#include "exit.h"
#include "launcher.h"
#include "page_text.h"
#include <stdlib.h>
#include <string.h>

/* What --help prints: help, unless the words came by `thinwire manual` or `thinwire complete`. */
static struct {
    page_form form;
    const char *summary;        /* of the command that was chosen last */
    const char *before, *begun; /* PAGE_CANDIDATES: the word to complete, and the one before it */
    char name[64];              /* PAGE_MANUAL: thinwire-train */
    bool by_name;               /* the words are names, of which a command takes no more than behind it */
} asked;

static void print_help(const command_list *list, FILE *stream)
{
    page_text text = page_text_begin(stream);
    page_text_paragraph(&text, list->description);
    fprintf(stream, "\nUsage: %s [options]\n", list->usage);
    page_text_title(&text, "Commands");
    for (size_t i = 0; i < list->count; i++)
        page_text_entry(&text, list->commands[i].name, "", list->commands[i].summary);
    fprintf(stream, "\n%s --help prints the options of a command.\n", list->usage);
}

static void print_manual(const command_list *list, FILE *stream)
{
    options_manual_begin(stream, asked.name, asked.summary ? asked.summary : "train networks over thin wires",
                         list->usage);
    fprintf(stream, ".SH DESCRIPTION\n%s\n.SH COMMANDS\n", list->description);
    for (size_t i = 0; i < list->count; i++)
        options_manual_entry(stream, list->commands[i].name, "", list->commands[i].summary);
    options_manual_end(stream);
}

static void print_list(const command_list *list, FILE *stream)
{
    if (asked.form == PAGE_HELP) print_help(list, stream);
    if (asked.form == PAGE_MANUAL) print_manual(list, stream);
    if (asked.form == PAGE_CANDIDATES)
        for (size_t i = 0; i < list->count; i++)
            options_candidate(stream, asked.begun, list->commands[i].name, list->commands[i].summary);
}

static void print_page(const option_page *page)
{
    if (asked.form == PAGE_HELP) options_help(page, stdout);
    if (asked.form == PAGE_MANUAL) options_manual(page, asked.name, asked.summary, stdout);
    if (asked.form == PAGE_CANDIDATES) options_candidates(page, asked.before, asked.begun, stdout);
}

static int asks_for_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* words_refuse takes a list that needs no context. */
static const command_list *listed;

static const char *listed_name(size_t index)
{
    return index < listed->count ? listed->commands[index].name : NULL;
}

static int is_task(const char *word)
{
    size_t i = 0;
    while (task_name(i) && strcmp(task_name(i), word) != 0) i++;
    return task_name(i) != NULL;
}

static int command_refuse_unknown(const command_list *list, const char *word)
{
    listed = list;
    if (is_task(word))
        tw_fail(TW_ERROR_ARGUMENT, "%s is a task, not a command; thinwire train %s trains on it", word, word);
    else if (strcmp(word, "launch") == 0)
        tw_fail(
            TW_ERROR_ARGUMENT,
            "launch is a command of the Python package: type python -m thinwire launch, and the same words behind it");
    else
        words_refuse("command", word, strlen(word), listed_name);
    return launcher_refuse();
}

int command_choose(const command_list *list, int argc, char **argv)
{
    if (argc < 1) {
        print_list(list, stderr);
        return EXIT_INPUT;
    }
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(argv[0], list->commands[i].name) == 0) {
            asked.summary = list->commands[i].summary;
            return list->commands[i].run(argc - 1, argv + 1);
        }
    if (!asks_for_help(argv[0])) return command_refuse_unknown(list, argv[0]);
    print_list(list, stdout);
    return EXIT_DONE;
}

static int is_word(const char *text)
{
    return *text && *text != '-';
}

static int refuse_rest(const char *word)
{
    tw_fail(TW_ERROR_ARGUMENT, "thinwire help: %s is one word too many: want those of a command, such as train lm",
            word);
    return launcher_refuse();
}

/* The page of the command that the words name: what --help behind them prints. */
static int explain(const command_list *list, page_form form, int count, char **names)
{
    enum { WORDS_MOST = 3 }; /* thinwire bench codec */
    char *words[WORDS_MOST + 1], help[] = "--help";
    int used = 0;
    asked.form = form;
    while (used < count && used < WORDS_MOST && is_word(names[used])) {
        words[used] = names[used];
        used++;
    }
    asked.by_name = form != PAGE_CANDIDATES;
    if (asked.by_name && used < count && !asks_for_help(names[used])) return refuse_rest(names[used]);
    words[used++] = help;
    return command_choose(list, used, words);
}

int command_help(const command_list *list, int argc, char **argv)
{
    return explain(list, PAGE_HELP, argc, argv);
}

int command_manual(const command_list *list, int argc, char **argv)
{
    size_t used = (size_t)snprintf(asked.name, sizeof asked.name, "thinwire");
    for (int i = 0; i < argc && used < sizeof asked.name; i++)
        used += (size_t)snprintf(asked.name + used, sizeof asked.name - used, "-%s", argv[i]);
    return explain(list, PAGE_MANUAL, argc, argv);
}

/* Shells may pass "--sync=dg" as three words. */
int command_complete(const command_list *list, int argc, char **argv)
{
    int last = argc - 1, whole = 0;
    asked.begun = last >= 0 ? argv[last] : "";
    if (strcmp(asked.begun, "=") == 0)
        asked.begun = "";
    else
        last--;
    if (last >= 0 && strcmp(argv[last], "=") == 0) last--;
    asked.before = last >= 0 ? argv[last] : "";
    while (whole < argc - 1 && is_word(argv[whole])) whole++;
    return explain(list, PAGE_CANDIDATES, whole, argv);
}

int command_run(const option_page *page, int argc, char **argv, void *settings,
                int (*run)(void *settings, options *set))
{
    options set;
    int code = EXIT_DONE;
    if (asked.by_name && (size_t)argc - 1 > page->most_arguments)
        return refuse_rest(argv[page->most_arguments]); /* the last word is --help */
    if (options_parse(page, argc, argv, settings, &set) != TW_OK) return launcher_refuse();
    if (set.help)
        print_page(page);
    else
        code = run(settings, &set);
    options_release(&set);
    return code;
}

tw_status command_task_or_none(int argc, char **argv, const task_ops **ops)
{
    *ops = task_at(0);
    int named = argc > 0 && argv[0][0] != '-' && strcmp(argv[0], "none") != 0;
    if (!named || task_find(argv[0], ops) == TW_OK) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "%s, none", tw_last_error());
}

int command_end(int code)
{
    if ((fflush(stdout) == 0 && !ferror(stdout)) || code != EXIT_DONE) return code;
    tw_fail(TW_ERROR_IO, "what was printed could not be written to standard output; is its disk full?");
    return launcher_refuse();
}
