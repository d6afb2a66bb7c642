#include "lora_text.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANK_MOST = 4096, TEXT = 128 };

static tw_status parse_number(const char *key, const char *value, double least, double most, double *number)
{
    char *end;
    *number = strtod(value, &end);
    if (*value && !*end && *number >= least && *number <= most) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "--lora %s=%s: it is a number from %g to %g", key, value, least, most);
}

static tw_status parse_target(const char *name, nn_lora_options *o)
{
    for (unsigned i = 0; i < NN_LORA_TARGETS; i++) {
        if (strcmp(name, nn_lora_targets[i]) != 0) continue;
        if (o->targets >> i & 1) return tw_fail(TW_ERROR_ARGUMENT, "--lora targets: %s is given twice", name);
        o->targets |= 1u << i;
        return TW_OK;
    }
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--lora targets=%s: targets are q, k, v, o, gate, up and down, with + between them", name);
}

static tw_status parse_targets(char *names, nn_lora_options *o)
{
    char *rest = NULL;
    o->targets = 0;
    for (char *name = strtok_r(names, "+", &rest); name; name = strtok_r(NULL, "+", &rest))
        TW_TRY(parse_target(name, o));
    return o->targets ? TW_OK : parse_target(names, o);
}

static const char *const keys[] = {"rank", "alpha", "dropout", "targets"};
enum { RANK, ALPHA, DROPOUT, TARGETS, KEYS };

static tw_status parse_value(int key, char *value, nn_lora_options *o)
{
    double number = 0.0;
    switch (key) {
    case RANK:
        TW_TRY(parse_number(keys[key], value, 1, RANK_MOST, &number));
        o->rank = (size_t)number;
        return (double)o->rank == number ? TW_OK
                                         : tw_fail(TW_ERROR_ARGUMENT, "--lora rank=%s: it is a whole number", value);
    case ALPHA:
        TW_TRY(parse_number(keys[key], value, 1e-6, 1e6, &number));
        o->alpha = (float)number;
        return TW_OK;
    case DROPOUT:
        TW_TRY(parse_number(keys[key], value, 0, 0.99, &number));
        o->keep = (float)(1 - number);
        return TW_OK;
    default:
        return parse_targets(value, o);
    }
}

/* given: a bit for each key that has been. */
static tw_status parse_member(char *member, nn_lora_options *o, unsigned *given)
{
    char *value = strchr(member, '=');
    int key = 0;
    if (value) *value++ = '\0';
    while (key < KEYS && strcmp(member, keys[key]) != 0) key++;
    if (!value || key == KEYS)
        return tw_fail(TW_ERROR_ARGUMENT, "--lora %s: it takes rank=R, alpha=A, dropout=P and targets=q+v", member);
    if (*given >> key & 1) return tw_fail(TW_ERROR_ARGUMENT, "--lora: %s is given twice", member);
    *given |= 1u << key;
    return parse_value(key, value, o);
}

static tw_status parse_members(char *members, nn_lora_options *o)
{
    char *rest = NULL;
    unsigned given = 0;
    for (char *member = strtok_r(members, ",", &rest); member; member = strtok_r(NULL, ",", &rest))
        TW_TRY(parse_member(member, o, &given));
    return o->rank > 0 ? TW_OK : tw_fail(TW_ERROR_ARGUMENT, "--lora has no rank; it may be --lora rank=8");
}

tw_status lora_parse(const char *text, nn_lora_options *options)
{
    *options = (nn_lora_options){.alpha = 16.0f, .keep = 1.0f, .targets = (1u << NN_LORA_TARGETS) - 1};
    if (!text) return TW_OK;
    char *members = strdup(text);
    if (!members) return tw_fail(TW_ERROR_MEMORY, "no memory for --lora");
    tw_status status = parse_members(members, options);
    free(members);
    return status;
}

char *lora_in_full(const char *text)
{
    nn_lora_options o;
    char names[TEXT] = "", *full = NULL;
    if (lora_parse(text, &o) != TW_OK) return NULL;
    for (unsigned i = 0; i < NN_LORA_TARGETS; i++)
        if (o.targets >> i & 1) {
            if (*names) strcat(names, "+");
            strcat(names, nn_lora_targets[i]);
        }
    if (asprintf(&full, "rank=%zu,alpha=%.9g,dropout=%.9g,targets=%s", o.rank, (double)o.alpha, 1 - (double)o.keep,
                 names) < 0)
        return NULL;
    return full;
}
