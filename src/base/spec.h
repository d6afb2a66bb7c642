/* spec.h - "name:key=value,key=value": one grammar and one parser for every scheme's options. */
#ifndef TW_BASE_SPEC_H
#define TW_BASE_SPEC_H

#include <stddef.h>
#include <stdint.h>
#include <thinwire/thinwire.h>

/* One option: where it lands in the scheme's options struct, what it may be, and its line of help. There it is
 *     REAL     a double
 *     INTEGER  an int64_t; of at most 2^53, up to which a double holds every whole number
 *     SWITCH   an int
 *     CHOICE   an int, the position of the word in `choices`
 *     TEXT     a char *, the spec's own copy: tw_spec_release frees it */
typedef struct tw_option {
    const char *key;
    tw_option_kind kind;
    size_t offset;
    const char *fallback; /* the default, as a user would write it */
    double least, most;   /* REAL and INTEGER: the range, both ends allowed */
    const char *choices;  /* CHOICE: "fp32|fp16|bf16" */
    const char *help;
} tw_option;
/* One in a macro, where braces are hard to read. */
#define TW_OPTION(...)                                                                                                 \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* A table's options, and how many there are. */
#define TW_OPTIONS(list) .options = (list), .option_count = sizeof(list) / sizeof *(list)

/* A default of another kind: what `key` is where nobody says. Lists of them end in {NULL}. */
typedef struct tw_preset {
    const char *key, *value;
} tw_preset;

/* Some options and the struct they fill: a spec may be spread over several (a scheme's own, and everybody's). */
typedef struct tw_option_set {
    const tw_option *options;
    size_t count;
    void *target;
    const tw_preset *preset; /* defaults that go before the options' own; NULL: none */
} tw_option_set;

/* strtod, and a number of so many digits, as %g has it, with a decimal point: also in a program that has chosen a
 * language with a decimal comma. */
double tw_decimal_read(const char *text, char **end);
size_t tw_decimal_text(double number, int digits, char *text, size_t capacity);

/* Copies the scheme's name (up to ':') into name. TW_ERROR_SPEC when it is empty or longer than capacity - 1;
 * TW_ERROR_ARGUMENT for a spec that is NULL. */
tw_status tw_spec_name(const char *spec, char *name, size_t capacity);

/* 1 if the spec sets this option, to whatever. */
int tw_spec_says(const char *spec, const char *key);

/* Fills every set: first the defaults, then the spec's words. An unknown or repeated key, a word that is not a number,
 * a value out of range: TW_ERROR_SPEC, the text names the key, the value and what would be right; nothing is left
 * allocated. Targets must be zeroed before. */
tw_status tw_spec_parse(const char *spec, const tw_option_set *sets, size_t count);

/* TW_ERROR_ARGUMENT if two options of the sets have one key. */
tw_status tw_options_unique(const tw_option_set *sets, size_t count);

/* Frees the texts in the sets. */
void tw_spec_release(const tw_option_set *sets, size_t count);

/* A list of what specs may name: schemes, gossip schemes, methods. Where it ends, an entry is all NULL. */
typedef struct tw_named {
    const char *name, *summary;
    const void *ops;
    int settled; /* what a spec of it may say stays what it is: otherwise it is experimental */
} tw_named;
enum { TW_OPTION_SETS = 5 };
typedef struct tw_list {
    const char *one, *many; /* what an entry is, for errors */
    tw_named (*at)(size_t index);
    /* All that a spec of an entry may say, its own options first, and where it goes; returns how many sets. */
    size_t (*options)(const void *ops, void *target, tw_option_set sets[TW_OPTION_SETS]);
    const char *others; /* where the names of the other lists belong, for errors */
} tw_list;

/* The entry of that name, and the one that a spec names: TW_ERROR_SPEC, with the names there are, if that is none. */
tw_named tw_list_by_name(const tw_list *list, const char *name);
tw_status tw_list_find(const tw_list *list, const char *spec, tw_named *found);

/* tw_spec_parse of an entry's options, whose errors begin with its name, and tw_spec_release of them. */
tw_status tw_list_parse(const tw_list *list, const void *ops, const char *name, const char *spec, void *target);
void tw_list_release(const tw_list *list, const void *ops, void *target);

/* The public view: how many entries, which one a spec names (0: none, or NULL), how many options one has (0 past the
 * end), option `number` of them, and the page of help, a head and a line for each option, which returns what snprintf
 * would. */
size_t tw_list_count(const tw_list *list);
int tw_list_index(const tw_list *list, const char *spec, size_t *index);
size_t tw_list_option_count(const tw_list *list, size_t index);
tw_status tw_list_option(const tw_list *list, size_t index, size_t number, tw_option_info *option);
size_t tw_list_help(const tw_list *list, size_t index, char *text, size_t capacity);

/* The same as public functions: those of tw_schemes are tw_schemes_count, tw_schemes_name and so on. */
#define TW_PUBLIC_LIST(prefix, list)                                                                                   \
    size_t prefix##_count(void)                                                                                        \
    {                                                                                                                  \
        return tw_list_count(&(list));                                                                                 \
    }                                                                                                                  \
    int prefix##_find(const char *spec, size_t *index)                                                                 \
    {                                                                                                                  \
        return tw_list_index(&(list), spec, index);                                                                    \
    }                                                                                                                  \
    const char *prefix##_name(size_t index)                                                                            \
    {                                                                                                                  \
        return (list).at(index).name;                                                                                  \
    }                                                                                                                  \
    const char *prefix##_summary(size_t index)                                                                         \
    {                                                                                                                  \
        return (list).at(index).summary;                                                                               \
    }                                                                                                                  \
    size_t prefix##_option_count(size_t index)                                                                         \
    {                                                                                                                  \
        return tw_list_option_count(&(list), index);                                                                   \
    }                                                                                                                  \
    tw_status prefix##_option(size_t index, size_t number, tw_option_info *option)                                     \
    {                                                                                                                  \
        return tw_list_option(&(list), index, number, option);                                                         \
    }                                                                                                                  \
    size_t prefix##_help(size_t index, char *text, size_t capacity)                                                    \
    {                                                                                                                  \
        return tw_list_help(&(list), index, text, capacity);                                                           \
    }

#endif
