/* sample.h - a page with every kind of option, and what a test does with it. */
#ifndef TESTS_OPTIONS_SAMPLE_H
#define TESTS_OPTIONS_SAMPLE_H

#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "support/assert.h"

typedef struct settings {
    long epochs, seed;
    double lr, decay;
    bool flip;
    int model;
    char *sync, *out, *config, *json;
} settings;

#define AT(field) offsetof(settings, field)
static const option_row rows[] = {
    {.help = "Training"},
    {"epochs", "N", OPTION_INTEGER, AT(epochs), "5", 1, 1000, .help = "passes over the images"},
    {"seed", "N", OPTION_INTEGER, AT(seed), NULL, 0, INFINITY, .help = "of every random number",
     .beside = "flip,model=cnn,out"},
    {"lr", "RATE", OPTION_REAL, AT(lr), "0.05", 0, 10, .help = "learning rate"},
    {"decay", "RATE", OPTION_REAL, AT(decay), "-0.5", -INFINITY, INFINITY, .help = "any number at all"},
    {"flip", NULL, OPTION_FLAG, AT(flip), .help = "mirror images"},
    {"model", NULL, OPTION_CHOICE, AT(model), "resnet20", .choices = "cnn|resnet20|resnet", .help = "the network"},
    {.help = "Exchange"},
    {"sync", "SPEC", OPTION_TEXT, AT(sync), "allreduce", .help = "how gradients are agreed upon"},
    {"out", "DIR", OPTION_TEXT, AT(out), .help = "where the run is kept"},
    {"config", "FILE", OPTION_TEXT, AT(config), .help = "options in a file", .line_only = true},
    {"json", "FILE", OPTION_TEXT, AT(json), .alone = "-", .help = "where figures go", .line_only = true},
};
#undef AT

static const option_page page = {
    .usage = "thinwire train TASK [options]",
    .description = "Trains a network.",
    .examples = "  thinwire train image\n",
    .rows = rows,
    .count = sizeof rows / sizeof rows[0],
    .least_arguments = 0,
    .most_arguments = 2,
};

/* Parses a line of words between single spaces; `words` keeps the copy the arguments point into. */
typedef struct line {
    char text[512];
    char *words[32];
    settings values;
    options set;
} line;

static tw_status parse(line *l, const char *text)
{
    int count = 0;
    memset(l, 0, sizeof *l);
    strcpy(l->text, text);
    for (char *word = strtok(l->text, " "); word; word = strtok(NULL, " ")) l->words[count++] = word;
    return options_parse(&page, count, l->words, &l->values, &l->set);
}

static void assert_parses(line *l, const char *text)
{
    if (parse(l, text) != TW_OK) fail_msg("%s: %s", text, tw_last_error());
}

#endif
