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

/* The public view of the sets: how many options are in them; option `number` of them, of which the first set's are a
 * scheme's own; and the page of help, a head and a line for each, which returns what snprintf would. */
size_t tw_options_count(const tw_option_set *sets, size_t count);
tw_status tw_options_tell(const tw_option_set *sets, size_t count, size_t number, tw_option_info *option);
size_t tw_options_describe(const char *name, const char *summary, const tw_option_set *sets, size_t count, char *text,
                           size_t capacity);

#endif
