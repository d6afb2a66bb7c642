/* A definition from outside: checked, and made into what the library has of its own schemes. */
#include "outside.h"

#include "error.h"
#include "memory.h"
#include "sized.h"

#include <string.h>

enum { MOST_NAME = 31, MOST_OPTIONS = 64, ALIGNMENT = 64 };

#define LETTERS "abcdefghijklmnopqrstuvwxyz"

/* Lower-case letters, digits and _, a letter first. */
static int is_word(const char *text, size_t most)
{
    size_t length = text ? strlen(text) : 0;
    return length > 0 && length <= most && strchr(LETTERS, text[0]) && strspn(text, LETTERS "0123456789_") == length;
}

static tw_status outside_refuse(const tw_scheme_definition *definition, const char *why)
{
    return tw_fail(TW_ERROR_ARGUMENT, "scheme %s: %s", definition->name, why);
}

/* The one form whose functions are all there, and none of another; else NULL. */
static const tw_scheme_ops *form_of(const tw_scheme_definition *d)
{
    int chosen = (d->density != NULL) + (d->choose != NULL);
    int coded = (d->section_bytes != NULL) + (d->encode != NULL) + (d->decode != NULL);
    int rounds = d->next != NULL;
    if (chosen != 2 && (d->accumulate || d->momentum)) return NULL;
    if (chosen == 2 && !coded && !rounds && !d->inspect) return &tw_outside_chosen;
    if (coded == 3 && !chosen && !rounds) return &tw_outside_coded;
    return rounds && !chosen && !coded && !d->inspect ? &tw_outside_rounds : NULL;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static size_t width_of(int kind)
{
    static const size_t widths[] = {[TW_OPTION_REAL] = sizeof(double),
                                    [TW_OPTION_INTEGER] = sizeof(int64_t),
                                    [TW_OPTION_SWITCH] = sizeof(int),
                                    [TW_OPTION_CHOICE] = sizeof(int),
                                    [TW_OPTION_TEXT] = sizeof(char *)};
    return kind >= 0 && kind <= TW_OPTION_TEXT ? widths[kind] : 0;
}

static tw_status check_option(const tw_scheme_definition *definition, const tw_scheme_option *row)
{
    size_t width = width_of((int)row->kind), size = definition->self_size;
    if (!is_word(row->key, MOST_NAME))
        return outside_refuse(definition, "an option's key must be a word of lower-case letters");
    if (width == 0 || width > size || row->offset > size - width || row->offset % width != 0)
        return tw_fail(TW_ERROR_ARGUMENT, "scheme %s: option %s does not lie in its struct of %zu bytes",
                       definition->name, row->key, size);
    if (!row->fallback || !row->help || (row->kind == TW_OPTION_CHOICE && !row->choices))
        return tw_fail(TW_ERROR_ARGUMENT, "scheme %s: option %s lacks its default, its help or its choices",
                       definition->name, row->key);
    return TW_OK;
}

/* Two values in one place would each be the other's. */
static tw_status check_apart(const tw_scheme_definition *definition, const tw_option *options, size_t count)
{
    const tw_option *last = &options[count - 1];
    for (const tw_option *other = options; other < last; other++)
        if (other->offset < last->offset + width_of((int)last->kind) &&
            last->offset < other->offset + width_of((int)other->kind))
            return tw_fail(TW_ERROR_ARGUMENT, "scheme %s: options %s and %s lie in one place", definition->name,
                           other->key, last->key);
    return TW_OK;
}

/* The definition's rows, as large as its header had them. */
static tw_status copy_options(const tw_scheme_definition *definition, tw_outside *made, tw_option *options)
{
    for (size_t i = 0; i < definition->option_count; i++) {
        const char *from = (const char *)definition->options + i * definition->option_size;
        tw_scheme_option row;
        TW_TRY(tw_read_known(&row, sizeof row, from, definition->option_size, "tw_scheme_option"));
        TW_TRY(check_option(definition, &row));
        options[i] = (tw_option){.key = row.key,
                                 .kind = row.kind,
                                 .offset = made->self_offset + row.offset,
                                 .fallback = row.fallback,
                                 .least = row.least,
                                 .most = row.most,
                                 .choices = row.choices,
                                 .help = row.help};
        TW_TRY(check_apart(definition, options, i + 1));
    }
    return TW_OK;
}

static tw_status make_options(tw_outside *made, const tw_scheme_ops *form)
{
    const tw_scheme_definition *definition = &made->definition;
    tw_option *options;
    if (definition->option_count > MOST_OPTIONS) return outside_refuse(definition, "a scheme has at most 64 options");
    if (definition->option_count) TW_TRY(tw_need(definition->options, "options"));
    TW_TRY(tw_allocate(definition->option_count + form->option_count, sizeof *options, &options));
    made->ops.options = options;
    made->ops.option_count = definition->option_count + form->option_count;
    if (form->option_count)
        memcpy(options + definition->option_count, form->options, form->option_count * sizeof *options);
    return copy_options(definition, made, options);
}

/* ---- the definition ---------------------------------------------------------------------------------------------- */

static tw_status outside_check(const tw_scheme_definition *definition)
{
    if (!is_word(definition->name, MOST_NAME))
        return tw_fail(TW_ERROR_ARGUMENT,
                       "a scheme's name has lower-case letters, digits and _, a letter first, and at most %d of them",
                       MOST_NAME);
    if (!definition->summary) return outside_refuse(definition, "it lacks its summary");
    if (!form_of(definition))
        return outside_refuse(definition, "it must have the functions of one form, all of them, and none of another");
    return TW_OK;
}

static void outside_plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    tw_outside_definition(scheme)->plan(tw_outside_self(scheme), scheme, tensor, text, capacity);
}

static void outside_settle(tw_scheme *scheme)
{
    tw_outside_definition(scheme)->settle(tw_outside_self(scheme), scheme);
}

static float momentum(const tw_scheme *scheme, int *nesterov)
{
    return tw_outside_definition(scheme)->momentum(tw_outside_self(scheme), nesterov);
}

static double clip(const tw_scheme *scheme)
{
    return tw_outside_definition(scheme)->clip(tw_outside_self(scheme));
}

static tw_status outside_fill(tw_outside *made, const tw_scheme_definition *given)
{
    tw_scheme_definition *definition = &made->definition;
    TW_TRY(tw_read_known(definition, sizeof *definition, given, given->struct_size, "tw_scheme_definition"));
    TW_TRY(outside_check(definition));
    const tw_scheme_ops *form = form_of(definition);
    made->self_offset = (form->struct_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    made->ops = *form;
    made->ops.options = NULL;
    made->ops.name = definition->name;
    made->ops.summary = definition->summary;
    made->ops.every_tensor = definition->every_tensor;
    made->ops.floor_bytes = definition->floor_bytes;
    made->ops.struct_size = made->self_offset + definition->self_size;
    made->ops.outside = made;
    if (definition->accumulate) made->ops.one_pass = 0; /* it looks at nothing on its way */
    if (definition->momentum) made->ops.momentum = momentum;
    if (definition->plan) made->ops.plan = outside_plan;
    if (definition->settle) made->ops.settle = outside_settle;
    if (definition->clip) made->ops.clip = clip;
    return make_options(made, form);
}

tw_status tw_outside_make(const tw_scheme_definition *definition, tw_outside **out)
{
    tw_outside *made;
    TW_TRY(tw_need(definition, "definition"));
    TW_TRY(tw_allocate(1, sizeof *made, &made));
    tw_status status = outside_fill(made, definition);
    if (status == TW_OK)
        *out = made;
    else
        tw_outside_release(made);
    return status;
}

void tw_outside_release(tw_outside *made)
{
    if (made) tw_free((void *)(uintptr_t)made->ops.options);
    tw_free(made);
}

static uint32_t add_text(uint32_t crc, const char *text)
{
    return tw_crc32c(crc, text, strlen(text) + 1);
}

uint32_t tw_outside_digest(const tw_scheme_ops *ops)
{
    if (!ops || !ops->outside) return 0;
    const tw_scheme_definition *definition = &ops->outside->definition;
    uint32_t crc = add_text(0, definition->version ? definition->version : "");
    for (size_t i = 0; i < definition->option_count; i++)
        crc = add_text(add_text(crc, ops->options[i].key), ops->options[i].fallback);
    return crc;
}
