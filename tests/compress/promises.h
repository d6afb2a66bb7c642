/* promises.h - what each scheme promises the tests that walk the list. One without a row is held to the defaults. */
#ifndef PROMISES_H
#define PROMISES_H

#include "conformance.h"
#include "half.h"

typedef struct promise {
    const char *name;
    const char *options; /* for the two tests on what arrives in the long run */
    double distance;     /* how far from the mean is the average of what arrived: of the mean's norm */
    double imbalance;    /* by how much an element of what arrived and of the residuals may miss what was given */
    const char *drops;   /* a spec with these words drops something on purpose */
    int overflows;       /* huge gradients may skip the step */
    int directs;         /* what comes out is no mean, not even of what is not compressed */
} promise;

static const promise defaults = {.options = "", .distance = 0.15, .imbalance = 1e-4};

/* Where sums travel in half precision they are rounded once more, behind the back of any residual. */
static const promise promises[] = {
    {.name = "allreduce", .options = "", .distance = 1e-6},
    {.name = "fp16", .options = "feedback=on", .distance = 1e-3, .imbalance = 5e-3, .overflows = 1},
    {.name = "bf16", .options = "feedback=on", .distance = 5e-3, .imbalance = 5e-2},
    {.name = "chunktopk",
     .options = "decay=1,chunk=64,k=6",
     .distance = 0.15,
     .imbalance = 1e-4,
     .drops = "agg=senders"}, /* what arrives is then no mean */
    {.name = "demo",
     .options = "map=none,momentum=1,agg=mean,chunk=64,k=6",
     .distance = 0.15,
     .imbalance = 1e-4,
     .directs = 1}, /* what is kept is in other units: test_demo.c asks whether anything is lost */
    {.name = "randomk", .options = "", .distance = 0.15, .imbalance = 5e-2},
    {.name = "threshold", .options = "tau=4,most_density=1", .distance = 0.01, .imbalance = 1e-4},
    {.name = "e3m0", .options = "feedback=on", .distance = 0.15, .imbalance = 1e-4},
    {.name = "scalecom", .options = "beta=1,rate=10", .distance = 0.15, .imbalance = 5e-2},
    {.name = "dgc-adam", .options = "", .distance = 0.15, .imbalance = 1e-4, .directs = 1},
    {.name = "onebit-adam", .options = "", .distance = 0.15, .imbalance = 1e-4, .directs = 1},
    {.name = "sdagc", .options = "", .distance = 0.15, .imbalance = 1e-4, .drops = "revision=age revision=density"},
    {.name = "sdagc-bold",
     .options = "",
     .distance = 0.15,
     .imbalance = 1e-4,
     .drops = "revision=age revision=density"},
};

/* Without warm-up and moments, and with a density that comes round to every element soon. */
#define LONG_RUN "warmup_steps=0,momentum=0,beta2=0,density=0.1"

static inline promise promise_of(const tw_scheme_ops *ops)
{
    for (size_t i = 0; i < sizeof promises / sizeof *promises; i++)
        if (strcmp(promises[i].name, ops->name) == 0) return promises[i];
    return defaults;
}

/* 1 if the spec ends in one of the words. */
static inline int ends_in(const char *spec, const char *words)
{
    while (words && *words) {
        size_t length = strcspn(words, " "), spec_length = strlen(spec);
        if (length <= spec_length && strncmp(spec + spec_length - length, words, length) == 0) return 1;
        words += length + (words[length] == ' ');
    }
    return 0;
}

/* What rounding at random may add up to in an element of these tests, of size about 1: some twenty times 2^-8. */
static inline double rounding_of(const char *spec)
{
    return ends_in(spec, "state=bf16") ? 0.1 : 0;
}

/* Of an entry in fp32 or bf16. */
static inline double entry_value(const tw_remembered *entry, size_t i)
{
    return entry->dtype == TW_BF16 ? tw_from_bf16(((const uint16_t *)entry->data)[i]) : ((const float *)entry->data)[i];
}

static inline void long_run_spec(char spec[SPEC_LENGTH], const tw_scheme_ops *ops)
{
    make_spec(spec, ops, promise_of(ops).options);
    add_options(spec, ops, LONG_RUN);
}

#endif
