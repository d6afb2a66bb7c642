/* thinwire schemes: what --sync may say. */
#include "commands.h"
#include "error.h"
#include "launch.h"
#include "scheme.h"
#include <stdlib.h>

static const option_page page = {
    .usage = "thinwire schemes [NAME]",
    .description =
        "Lists the schemes that --sync takes: what workers exchange, and how. With a name, prints that scheme's "
        "options, their ranges and defaults.",
    .examples = "  thinwire schemes dgc\n",
    .most_arguments = 1,
};

static void print_group(const char *title, size_t count, const char *(*name)(size_t), const char *(*summary)(size_t))
{
    printf("%s:\n", title);
    for (size_t i = 0; i < count; i++) printf("  %-14s %s\n", name(i), summary(i));
}

static void print_list(void)
{
    print_group("Workers exchange gradients", tw_scheme_count(), tw_scheme_name, tw_scheme_summary);
    printf("\n");
    print_group("Workers exchange weights (gossip)", tw_gossip_scheme_count(), tw_gossip_name, tw_gossip_summary);
    printf("\nthinwire schemes NAME prints a scheme's options.\n");
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
    size_t index = scheme_find(name);
    if (index < tw_scheme_count()) return print_page(tw_scheme_help, index);
    return print_page(tw_gossip_help, scheme_find_gossip(name));
}

static int run(void *settings, options *set)
{
    (void)settings;
    if (set->argument_count == 0) {
        print_list();
        return EXIT_DONE;
    }
    return print_help(set->arguments[0]) == TW_OK ? EXIT_DONE : launch_refuse();
}

int command_schemes(int argc, char **argv)
{
    return command_run(&page, argc, argv, NULL, run);
}
