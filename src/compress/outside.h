/* outside.h - schemes from outside (thinwire_scheme.h). A definition becomes one more tw_scheme_ops, of the form's own
 * functions, which call the definition's: whoever drives schemes cannot tell the two kinds apart. */
#ifndef TW_OUTSIDE_H
#define TW_OUTSIDE_H

#include "scheme.h"

#include <thinwire/thinwire_scheme.h>

struct tw_outside {
    tw_scheme_ops ops; /* with the options in one array: the definition's, then the form's */
    tw_scheme_definition definition;
    size_t self_offset; /* of the definition's struct behind the form's */
};

/* The forms. Their struct_size is that of their own struct, behind which the definition's lies. */
extern const tw_scheme_ops tw_outside_chosen, tw_outside_coded, tw_outside_rounds;

/* What the functions of a form call. */
static inline const tw_scheme_definition *tw_outside_definition(const tw_scheme *scheme)
{
    return &scheme->ops->outside->definition;
}

static inline void *tw_outside_self(const tw_scheme *scheme)
{
    return (char *)(uintptr_t)scheme + scheme->ops->outside->self_offset;
}

/* For a form's create, when all else is made, and for its destroy. */
tw_status tw_outside_create(tw_scheme *scheme);
void tw_outside_destroy(const tw_scheme *scheme);
/* What the definition remembers beside the form: behind what the form does. */
void tw_outside_revert(tw_scheme *scheme);
tw_status tw_outside_walk(tw_scheme *scheme, tw_walk *walk);

/* A definition as the library has it, checked but for its options, and for its name, which others may have. */
tw_status tw_outside_make(const tw_scheme_definition *definition, tw_outside **made);
void tw_outside_release(tw_outside *made);

/* What ranks must have alike beside the spec: version, options and defaults of a definition; 0 of the library's own
 * schemes and of NULL. */
uint32_t tw_outside_digest(const tw_scheme_ops *ops);

/* Makes definitions known: all, or none. */
tw_status tw_outside_register(const tw_scheme_definition *const *definitions, size_t count);

/* In the order in which they were registered; NULL past the end. From any thread. */
const tw_scheme_ops *tw_outside_at(size_t index);
/* For tw_outside_register alone: how many there are, and more of them. */
enum { TW_MOST_OUTSIDE = 256 };
size_t tw_outside_count(void);
void tw_outside_add(tw_outside *const *made, size_t count);

#endif
