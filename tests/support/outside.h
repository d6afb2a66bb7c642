/* outside.h - a scheme from outside that sends the larger half of its values, and remembers what a test wants. */
#ifndef TEST_SUPPORT_OUTSIDE_H
#define TEST_SUPPORT_OUTSIDE_H

#include <thinwire/thinwire_scheme.h>

static inline double outside_half(const void *self)
{
    (void)self;
    return 0.5;
}

static inline size_t outside_largest(void *self, tw_scheme *scheme, size_t tensor, const float *values, size_t most,
                                     uint32_t *index, float *value)
{
    (void)self;
    return tw_scheme_choose_largest(scheme, tensor, values, most, 0, index, value);
}

static inline tw_status register_outside(const char *name,
                                         tw_status (*walk)(void *self, tw_scheme *scheme, tw_walk *walk))
{
    const tw_scheme_definition definition = {.struct_size = sizeof definition,
                                             .name = name,
                                             .summary = "the larger half, and what a test wants it to remember",
                                             .density = outside_half,
                                             .choose = outside_largest,
                                             .walk = walk};
    return tw_scheme_register(&definition);
}

#endif
