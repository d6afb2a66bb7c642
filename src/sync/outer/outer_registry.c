/* Which methods of local updates there are, and what a spec of each may say. */
#include "error.h"
#include "memory.h"
#include "outer.h"
#include "registry.h"

#include <stdio.h>
#include <string.h>

static const tw_option common_options[] = {
    {"every", TW_OPTION_INTEGER, offsetof(tw_outer_options, every), "30", 1, 1000000, NULL,
     "steps of its own that each worker takes from one meeting to the next"},
    {"exchange", TW_OPTION_TEXT, offsetof(tw_outer_options, exchange), "allreduce", 0, 0, NULL,
     "the scheme that carries what they did; its options and per_host may follow: "
     "exchange=topk,density=0.01,per_host=2"},
    {"merge", TW_OPTION_CHOICE, offsetof(tw_outer_options, merge), "mean", 0, 0, "mean|rda",
     "what becomes of the workers' parts: their mean; rda: directions and lengths are averaged apart (reconstructed)"},
    {"first_moment", TW_OPTION_INTEGER, offsetof(tw_outer_options, moments[0]), "0", 0, 1000000, NULL,
     "in every so many rounds the optimiser's first moments, or its momentum, become the workers' mean; 0: in none"},
    {"second_moment", TW_OPTION_INTEGER, offsetof(tw_outer_options, moments[1]), "0", 0, 1000000, NULL,
     "in every so many rounds Adam's second moments do"},
};

static const tw_option momentum_options[] = {
    {"outer_lr", TW_OPTION_REAL, offsetof(tw_outer_options, rate), "0.7", 1e-6, 10, NULL, "the outer optimiser's rate"},
    {"outer_momentum", TW_OPTION_REAL, offsetof(tw_outer_options, momentum), "0.5", 0, 0.999, NULL, "and its momentum"},
    {"nesterov", TW_OPTION_SWITCH, offsetof(tw_outer_options, nesterov), "on", 0, 0, NULL, "in Nesterov's form"},
};

static const tw_option fragment_options[] = {
    {"fragments", TW_OPTION_INTEGER, offsetof(tw_outer_options, fragments), "1", 1, TW_MOST_FRAGMENTS, NULL,
     "parts of the model that meet in turn; they have to divide `every`"},
    {"delay", TW_OPTION_INTEGER, offsetof(tw_outer_options, delay), "0", 0, 1000000, NULL,
     "steps that a worker goes on while a fragment travels; fewer than every / fragments"},
    {"mixing", TW_OPTION_REAL, offsetof(tw_outer_options, mixing), "0", 0, 1, NULL,
     "how much of its own weights a worker keeps when the shared ones come"},
};

static const tw_option eager_options[] = {
    {"eager", TW_OPTION_SWITCH, offsetof(tw_outer_options, eager), "off", 0, 0, NULL,
     "a worker goes on from its own part at once, and takes the others' parts when the next round begins"},
};

/* Options that a method does not take have their defaults, and no name. */
static size_t outer_option_sets(const void *listed, void *options, tw_option_set sets[TW_OPTION_SETS])
{
    const tw_outer_method *method = listed;
    size_t count = 0;
#define SET(of) (tw_option_set){of, sizeof(of) / sizeof *(of), options, method->presets}
    sets[count++] = SET(common_options);
    if (method->takes_momentum) sets[count++] = SET(momentum_options);
    sets[count++] = method->takes_fragments ? SET(fragment_options) : SET(eager_options);
#undef SET
    return count;
}

static tw_named outer_named(size_t index)
{
    const tw_outer_method *method = tw_outer_method_at(index);
    return method ? (tw_named){method->name, method->summary, method} : (tw_named){0};
}

static const tw_list outers = {"method of local updates", "methods of local updates", outer_named, outer_option_sets,
                               "schemes are for tw_reducer_create (in Python Reducer), and for exchange= of these; "
                               "gossip schemes are for tw_gossip_create (Gossip)"};

tw_status tw_outer_find(const char *spec, const tw_outer_method **method)
{
    tw_named found = {0};
    tw_status status = tw_list_find(&outers, spec, &found);
    *method = found.ops;
    return status;
}

/* ---- two specs in one --------------------------------------------------------------------------------------------
 * "diloco:every=50,exchange=topk,density=0.01" is the method's "diloco:every=50,exchange=topk" and the scheme's
 * "topk:density=0.01". */

static int method_takes(const tw_outer_method *method, const char *key)
{
    tw_option_set sets[TW_OPTION_SETS];
    size_t count = outer_option_sets(method, NULL, sets);
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < sets[s].count; i++)
            if (strcmp(sets[s].options[i].key, key) == 0) return 1;
    return 0;
}

static int scheme_takes(const char *scheme, const char *key)
{
    tw_option_info info = {.struct_size = sizeof info};
    size_t index = 0;
    while (index < tw_schemes_count() && strcmp(tw_schemes_name(index), scheme) != 0) index++;
    for (size_t i = 0; i < tw_schemes_option_count(index); i++)
        if (tw_schemes_option(index, i, &info) == TW_OK && strcmp(info.name, key) == 0) return 1;
    return 0;
}

/* A part of a spec, "key=value", up to its comma. */
typedef struct part {
    const char *at;
    size_t length;
    char key[64];
} part;

static int next_part(const char **rest, part *next)
{
    if (!*rest || !**rest) return 0;
    next->at = *rest;
    next->length = strcspn(*rest, ",");
    size_t key = strcspn(*rest, "=,");
    snprintf(next->key, sizeof next->key, "%.*s", (int)(key < sizeof next->key ? key : sizeof next->key - 1), *rest);
    *rest += next->length + ((*rest)[next->length] == ',');
    return 1;
}

static const char *options_of(const char *spec)
{
    const char *colon = strchr(spec, ':');
    return colon ? colon + 1 : "";
}

/* The value of `exchange` in a spec, or its default. */
static void read_exchange(const char *spec, const tw_outer_method *method, char *exchange, size_t room)
{
    const char *rest = options_of(spec), *fallback = common_options[1].fallback;
    size_t head = strlen("exchange=");
    for (const tw_preset *p = method->presets; p && p->key; p++)
        if (strcmp(p->key, "exchange") == 0) fallback = p->value;
    snprintf(exchange, room, "%s", fallback);
    for (part next; next_part(&rest, &next);)
        if (strcmp(next.key, "exchange") == 0 && next.length >= head)
            snprintf(exchange, room, "%.*s", (int)(next.length - head), next.at + head);
}

static void outer_registry_append(char *spec, size_t room, const part *option)
{
    size_t used = strlen(spec);
    const char *between = strchr(spec, ':') ? "," : ":";
    snprintf(spec + used, room - used, "%s%.*s", between, (int)option->length, option->at);
}

/* Options that neither knows stay the method's, whose parser says what is wrong with them. */
static void outer_registry_divide(const tw_outer_method *method, const char *spec, char *own, char *exchange,
                                  size_t room)
{
    const char *rest = options_of(spec);
    char scheme[64];
    read_exchange(spec, method, exchange, room);
    snprintf(scheme, sizeof scheme, "%.*s", (int)strcspn(exchange, ":"), exchange);
    snprintf(own, room, "%s", method->name);
    for (part next; next_part(&rest, &next);) {
        int is_own = method_takes(method, next.key) || !scheme_takes(scheme, next.key);
        outer_registry_append(is_own ? own : exchange, room, &next);
    }
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static tw_status outer_registry_check(const tw_outer_method *method, const tw_outer_options *o)
{
    int64_t fewer = o->fragments, rest = o->every % o->fragments;
    while (o->every % fewer != 0) fewer--;
    if (rest != 0)
        return tw_fail(TW_ERROR_SPEC,
                       "%s: fragments=%lld do not divide every=%lld, and each fragment meets as often as the others; "
                       "every=%lld or fragments=%lld would do",
                       method->name, (long long)o->fragments, (long long)o->every,
                       (long long)(o->every - rest + o->fragments), (long long)fewer);
    if (o->delay >= o->every / o->fragments && o->delay > 0 && !o->eager)
        return tw_fail(TW_ERROR_SPEC,
                       "%s: delay=%lld is not below every / fragments = %lld; one fragment is under way at a time",
                       method->name, (long long)o->delay, (long long)(o->every / o->fragments));
    if (o->delay > 0 && o->merge)
        return tw_fail(TW_ERROR_SPEC,
                       "%s: merge=rda where parts are sent before the others' lengths are known; it takes delay=0 and "
                       "eager=off",
                       method->name);
    if (o->mixing > 0 && o->merge)
        return tw_fail(TW_ERROR_SPEC,
                       "%s: with merge=rda the shared weights would move though nobody trains, where workers keep some "
                       "of their own; it takes mixing=0",
                       method->name);
    if (o->delay > 0 && (o->moments[0] > 0 || o->moments[1] > 0))
        return tw_fail(
            TW_ERROR_SPEC,
            "%s: first_moment and second_moment are averaged with the weights; they take delay=0 and eager=off",
            method->name);
    if (o->every == 1 && o->momentum > 0)
        return tw_fail(TW_ERROR_SPEC,
                       "%s: every=1 exchanges in every step, and an outer momentum of %g does harm there; write "
                       "every=10 or more, or outer_lr=1,outer_momentum=0",
                       method->name, o->momentum);
    return TW_OK;
}

/* What a method does not let a person choose, and what follows from merge=rda where nobody has chosen. An eager round
 * is under way until the next begins, and leaves the weights as they are: they go on from the worker's own part. */
static void fix(const tw_outer_method *method, const char *spec, tw_outer_options *o)
{
    if (o->merge && !tw_spec_says(spec, "mixing")) o->mixing = 0;
    if (!method->takes_momentum) {
        o->rate = 1;
        o->momentum = 0;
        o->nesterov = 0;
    }
    if (!method->takes_fragments) {
        o->fragments = 1;
        o->delay = o->eager ? o->every : 0;
        o->mixing = o->eager;
    }
}

/* The room is each text's. */
static tw_status parse(const tw_outer_method *method, const char *spec, char *own, char *exchange, size_t room,
                       tw_outer_options *options)
{
    outer_registry_divide(method, spec, own, exchange, room);
    TW_TRY(tw_list_parse(&outers, method, method->name, own, options));
    fix(method, own, options);
    tw_status status = outer_registry_check(method, options);
    tw_list_release(&outers, method, options); /* the exchange has been read */
    return status;
}

tw_status tw_outer_parse(const tw_outer_method *method, const char *spec, tw_outer_options *options, char **exchange)
{
    size_t room = strlen(spec) + 128; /* a default exchange comes in */
    char *texts;
    TW_TRY(tw_allocate(2, room, &texts));
    tw_status status = parse(method, spec, texts, texts + room, room, options);
    if (status == TW_OK) status = tw_copy_string(texts + room, exchange);
    tw_free(texts);
    return status;
}

/* ---- what suits a run -------------------------------------------------------------------------------------------- */

/* Of local updates the exchange's steps are rounds, and its options stand in the method's spec. */
static size_t write_for_rounds(const tw_outer_method *method, const char *spec, uint64_t steps, char *text,
                               size_t capacity)
{
    tw_outer_options options = {0};
    char *exchange;
    if (tw_outer_parse(method, spec, &options, &exchange) != TW_OK)
        return (size_t)snprintf(text, text ? capacity : 0, "%s", spec);
    size_t length = tw_scheme_spec_for_run(exchange, spec, steps / (uint64_t)options.every, text, capacity);
    tw_free(exchange);
    return length;
}

size_t tw_spec_for_run(const char *spec, uint64_t steps, char *text, size_t capacity)
{
    char name[64];
    if (!spec || tw_spec_name(spec, name, sizeof name) != TW_OK)
        return (size_t)snprintf(text, text ? capacity : 0, "%s", spec ? spec : "");
    const tw_outer_method *method = tw_list_by_name(&outers, name).ops;
    if (method) return write_for_rounds(method, spec, steps, text, capacity);
    return tw_scheme_spec_for_run(spec, spec, steps, text, capacity);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

TW_PUBLIC_LIST(tw_outers, outers)
