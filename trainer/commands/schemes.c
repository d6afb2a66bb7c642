/* thinwire schemes: what --sync may say. */
#include "schemes.h"
#include "commands.h"
#include "error.h"
#include "launch.h"
#include <stdlib.h>
#include <string.h>

static const option_page page = {
    .usage = "thinwire schemes [NAME]",
    .description =
        "Lists the schemes that --sync takes: how workers exchange their gradients. With a name, prints that "
        "scheme's options, their ranges and defaults.",
    .examples = "  thinwire schemes dgc\n",
    .most_arguments = 1,
};

size_t scheme_find(const char *spec)
{
    size_t length = strcspn(spec, ":"), index = 0;
    for (; index < tw_scheme_count(); index++)
        if (strlen(tw_scheme_name(index)) == length && memcmp(tw_scheme_name(index), spec, length) == 0) break;
    return index;
}

static tw_status refuse_unknown(const char *name)
{
    char names[512] = "";
    for (size_t i = 0; i < tw_scheme_count(); i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", tw_scheme_name(i));
    }
    return tw_fail(TW_ERROR_ARGUMENT, "no scheme \"%s\"; there are: %s", name, names);
}

static void print_list(void)
{
    for (size_t i = 0; i < tw_scheme_count(); i++) printf("  %-12s %s\n", tw_scheme_name(i), tw_scheme_summary(i));
    printf("\nthinwire schemes NAME prints a scheme's options.\n");
}

static tw_status print_help(const char *name)
{
    size_t index = scheme_find(name);
    if (index == tw_scheme_count()) return refuse_unknown(name);
    size_t size = tw_scheme_help(index, NULL, 0) + 1;
    char *text = malloc(size);
    if (!text) return tw_fail(TW_ERROR_MEMORY, "no memory for the help of %s", name);
    tw_scheme_help(index, text, size);
    fputs(text, stdout);
    free(text);
    return TW_OK;
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
