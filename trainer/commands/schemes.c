/* thinwire schemes: what --sync may say. */
#include "commands.h"
#include "error.h"
#include "exchange.h"
#include "exit.h"
#include "launcher.h"
#include "plugins.h"
#include "scheme.h"
#include "scheme_words.h"
#include <stdlib.h>

typedef struct schemes_settings {
    char *plugin;
} schemes_settings;

static const option_row rows[] = {PLUGINS_ROW(offsetof(schemes_settings, plugin))};

static const option_page page = {
    .usage = "thinwire schemes [NAME] [options]",
    .description =
        "Lists the schemes that --sync takes: what workers exchange, and how. With a name, prints that scheme's "
        "options, their ranges and defaults.",
    .examples = "  thinwire schemes dgc\n"
                "  thinwire schemes --plugin ./libmine.so\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
    .most_arguments = 1,
    .word = scheme_word,
    .word_meaning = scheme_word_meaning,
};

/* Those of one kind, under a heading where there are any. */
static void print_part(const exchange *way, int experimental)
{
    const scheme_list *list = &way->schemes;
    size_t shown = 0;
    for (size_t i = 0; i < list->count(); i++) {
        if ((!list->is_experimental || list->is_experimental(i)) != experimental) continue;
        if (shown++ == 0)
            printf("Workers exchange %s%s%s:\n", list->what, way->replicas || way->side_by_side ? "" : " (gossip)",
                   experimental ? ", experimental" : "");
        printf("  %-14s %s\n", list->name(i), list->summary(i));
    }
    if (shown) printf("\n");
}

static void print_list(void)
{
    for (size_t i = 0; exchange_at(i); i++) {
        print_part(exchange_at(i), 0);
        print_part(exchange_at(i), 1);
    }
    printf("What an experimental one is set by may change with a release. thinwire schemes NAME prints the options.\n");
}

static tw_status print_page(size_t (*help)(size_t, char *, size_t), size_t index)
{
    size_t size = help(index, NULL, 0) + 1;
    char *text = malloc(size);
    if (!text) return tw_fail(TW_ERROR_MEMORY, "no memory for a page of %zu bytes", size);
    help(index, text, size);
    fputs(text, stdout);
    free(text);
    return TW_OK;
}

static tw_status print_help(const char *name)
{
    TW_TRY(scheme_check(name));
    size_t scheme;
    const exchange *way = exchange_find(name, &scheme);
    if (way->schemes.help) return print_page(way->schemes.help, scheme);
    printf("%s - %s\n", way->schemes.name(scheme), way->schemes.summary(scheme));
    return TW_OK;
}

static int schemes_run(void *command_settings, options *set)
{
    const schemes_settings *settings = command_settings;
    if (plugins_load(settings->plugin) != TW_OK) return launcher_refuse();
    if (set->argument_count == 0) {
        print_list();
        return EXIT_DONE;
    }
    return print_help(set->arguments[0]) == TW_OK ? EXIT_DONE : launcher_refuse();
}

int command_schemes(int argc, char **argv)
{
    schemes_settings settings = {0};
    return command_run(&page, argc, argv, &settings, schemes_run);
}
