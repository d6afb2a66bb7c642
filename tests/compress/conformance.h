/* conformance.h - what the conformance tests share: the specs they try of every scheme in the list, and the gradients
 * of a group. A new scheme is tested by being listed. */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include "loopback.h"
#include "registry.h"
#include "scheme.h"
#include "support/parts.h"

#include <stdio.h>
#include <thinwire/thinwire_plugin.h>
#include <thinwire/thinwire_scheme.h>

enum { MOST_RANKS = 8, MOST_TENSORS = 8, SPEC_LENGTH = 512 };

/* ---- which schemes ---------------------------------------------------------------------------------------------- */

/* Number of the first that is tried. */
static size_t first_tried;

/* With plug-ins on the command line, theirs alone. */
static inline void load_tried(int argc, char **argv)
{
    if (argc > 1) first_tried = tw_schemes_count();
    for (int i = 1; i < argc; i++) {
        if (tw_plugin_load(argv[i]) == TW_OK) continue;
        fprintf(stderr, "%s\n", tw_last_error());
        exit(2);
    }
}

/* ---- specs ------------------------------------------------------------------------------------------------------ */

/* 1 if the scheme takes the option: its page of help has a line for it. */
static inline int takes_option(const tw_scheme_ops *ops, const char *key)
{
    char page[8192], line[80];
    size_t index = 0;
    while (tw_scheme_at(index) != ops) index++;
    tw_schemes_help(index, page, sizeof page);
    snprintf(line, sizeof line, "\n  %s ", key);
    return strstr(page, line) != NULL;
}

/* 1 if the spec says something of the option. */
static inline int sets_option(const char *spec, const char *key)
{
    char first[80], later[80];
    snprintf(first, sizeof first, ":%s=", key);
    snprintf(later, sizeof later, ",%s=", key);
    return strstr(spec, first) || strstr(spec, later);
}

/* Appends those of "key=value,key=value" that the scheme takes, and of which the spec says nothing yet. */
static inline void add_options(char spec[SPEC_LENGTH], const tw_scheme_ops *ops, const char *options)
{
    while (*options) {
        char key[64];
        size_t length = strcspn(options, ","), used = strlen(spec);
        snprintf(key, sizeof key, "%.*s", (int)strcspn(options, "="), options);
        if (takes_option(ops, key) && !sets_option(spec, key))
            snprintf(spec + used, SPEC_LENGTH - used, "%c%.*s", strchr(spec, ':') ? ',' : ':', (int)length, options);
        options += length + (options[length] == ',');
    }
}

/* The scheme with those of the options that it takes. */
static inline void make_spec(char spec[SPEC_LENGTH], const tw_scheme_ops *ops, const char *options)
{
    snprintf(spec, SPEC_LENGTH, "%s", ops->name);
    add_options(spec, ops, options);
}

typedef void (*spec_check)(const tw_scheme_ops *ops, const char *spec);

/* All variants are tried, or every third one, and by the next check others: so each word has its turn. */
static inline void try_variant(const tw_scheme_ops *ops, const char *spec, spec_check check)
{
    static spec_check last;
    static int checks, number;
    if (check != last) number = checks++;
    last = check;
    if (number++ % in_part(3, 1) == 0) check(ops, spec);
}

static inline void try_words(const tw_scheme_ops *ops, const char *base, const tw_option *option, spec_check check)
{
    const char *words = option->kind == TW_OPTION_SWITCH ? "off|on" : option->choices;
    while (*words) {
        char spec[2 * SPEC_LENGTH];
        size_t length = strcspn(words, "|");
        snprintf(spec, sizeof spec, "%s%c%s=%.*s", base, strchr(base, ':') ? ',' : ':', option->key, (int)length,
                 words);
        try_variant(ops, spec, check);
        words += length + (words[length] == '|');
    }
}

/* Calls check for what differs from the scheme's defaults in one word: each switch, each choice, and what may be
 * compressed: everything, what is large, nothing. `options` come first, and are not varied. */
static inline void for_each_variant(const tw_scheme_ops *ops, const char *options, spec_check check)
{
    char base[SPEC_LENGTH], spec[SPEC_LENGTH];
    make_spec(base, ops, options);
    for (size_t i = 0; i < ops->option_count; i++)
        if ((ops->options[i].kind == TW_OPTION_SWITCH || ops->options[i].kind == TW_OPTION_CHOICE) &&
            !sets_option(base, ops->options[i].key))
            try_words(ops, base, &ops->options[i], check);
    if (!takes_option(ops, "leftovers")) return;
    static const char *const common[] = {"min_dims=0,min_elements=1", "min_dims=2,min_elements=128",
                                         "min_elements=1000000", "min_dims=2,leftovers=fp16",
                                         "min_dims=2,leftovers=fp32"};
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        snprintf(spec, sizeof spec, "%s", base);
        add_options(spec, ops, common[i]);
        try_variant(ops, spec, check);
    }
}

/* ---- gradients -------------------------------------------------------------------------------------------------- */

/* The gradients of one step on all ranks; after it the means. */
typedef struct batch {
    const tw_tensor *table;
    size_t tensor_count, elements;
    float *values[MOST_RANKS]; /* one tensor after the other */
    float *tensors[MOST_RANKS][MOST_TENSORS], **ranks[MOST_RANKS];
} batch;

static inline batch *batch_create(const tw_tensor *table, size_t tensor_count)
{
    batch *b = calloc(1, sizeof *b);
    b->table = table;
    b->tensor_count = tensor_count;
    for (size_t t = 0; t < tensor_count; t++) b->elements += tw_tensor_count(&table[t]);
    for (int r = 0; r < MOST_RANKS; r++) {
        float *at = b->values[r] = calloc(b->elements, sizeof *at);
        for (size_t t = 0; t < tensor_count; at += tw_tensor_count(&table[t++])) b->tensors[r][t] = at;
        b->ranks[r] = b->tensors[r];
    }
    return b;
}

static inline void batch_destroy(batch *b)
{
    for (int r = 0; r < MOST_RANKS; r++) free(b->values[r]);
    free(b);
}

typedef float (*filling)(int step, int rank, size_t i);

static inline void batch_fill(batch *b, int size, filling f, int step)
{
    for (int r = 0; r < size; r++)
        for (size_t i = 0; i < b->elements; i++) b->values[r][i] = f(step, r, i);
}

static inline float normal_draw(int step, int rank, size_t i)
{
    uint32_t words[4];
    tw_random(9, (uint64_t)(step * LOOPBACK_RANKS + rank), i, words);
    double sum = 0;
    for (int w = 0; w < 4; w++) sum += words[w] / 4294967296.0 - 0.5;
    return (float)(1.7320508 * sum);
}

/* About normal, of variance 1. Every variant of every scheme gets those of the first steps, which are drawn once. Not
 * for several threads. */
static inline float normal(int step, int rank, size_t i)
{
    enum { KEPT = 16 };
    static struct drawn {
        size_t count;
        float *values;
    } kept[KEPT][LOOPBACK_RANKS];
    if (step >= KEPT || rank >= LOOPBACK_RANKS) return normal_draw(step, rank, i);
    struct drawn *drawn = &kept[step][rank];
    if (i >= drawn->count) {
        size_t count = 2 * i + 1000;
        drawn->values = realloc(drawn->values, count * sizeof *drawn->values);
        for (; drawn->count < count; drawn->count++)
            drawn->values[drawn->count] = normal_draw(step, rank, drawn->count);
    }
    return drawn->values[i];
}

#endif
