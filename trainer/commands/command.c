/* What all commands begin with: which one it is, and its options. */
#include "commands.h"
#include "error.h"
#include "launch.h"
#include <string.h>

static void print_list(const command_list *list, FILE *stream)
{
    fprintf(stream, "%s\n\nusage: %s [options]     %s --help for its options\n\n", list->description, list->usage,
            list->usage);
    for (size_t i = 0; i < list->count; i++)
        fprintf(stream, "  %-10s %s\n", list->commands[i].name, list->commands[i].summary);
}

static int asks_for_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static tw_status refuse_unknown(const command_list *list, const char *word)
{
    char names[256] = "";
    for (size_t i = 0; i < list->count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", list->commands[i].name);
    }
    return tw_fail(TW_ERROR_ARGUMENT, "unknown command '%s'; there are: %s", word, names);
}

int command_choose(const command_list *list, int argc, char **argv)
{
    if (argc < 1) {
        print_list(list, stderr);
        return EXIT_INPUT;
    }
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(argv[0], list->commands[i].name) == 0) return list->commands[i].run(argc - 1, argv + 1);
    if (asks_for_help(argv[0])) {
        print_list(list, stdout);
        return EXIT_DONE;
    }
    refuse_unknown(list, argv[0]);
    return launch_refuse();
}

int command_run(const option_page *page, int argc, char **argv, void *settings,
                int (*run)(void *settings, options *set))
{
    options set;
    int code = EXIT_DONE;
    if (options_parse(page, argc, argv, settings, &set) != TW_OK) return launch_refuse();
    if (set.help)
        options_help(page, stdout);
    else
        code = run(settings, &set);
    options_release(&set);
    return code;
}

int command_end(int code)
{
    if ((fflush(stdout) == 0 && !ferror(stdout)) || code != EXIT_DONE) return code;
    tw_fail(TW_ERROR_IO, "what was printed could not be written to standard output; is its disk full?");
    return launch_refuse();
}
