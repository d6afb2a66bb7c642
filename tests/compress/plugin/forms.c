/* A scheme of each form but the plain first, which examples/scheme has: for the suites that take plug-ins. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>
#include <thinwire/thinwire_scheme.h>

#include "heavy.h"

/* ---- a byte an element: steps of the section's largest magnitude over 127, to the nearest or by chance ----------- */

typedef struct bytes {
    int random;
    int64_t seed;
} bytes;

static const tw_scheme_option byte_options[] = {
    {"random", TW_OPTION_SWITCH, offsetof(bytes, random), "on", 0, 0, NULL, "rounds by chance, right on average"},
    {"seed", TW_OPTION_INTEGER, offsetof(bytes, seed), "1", 0, 2147483647, NULL, "of chance"},
};

static size_t section_bytes(const void *self, size_t n)
{
    (void)self;
    return sizeof(float) + n;
}

static void encode(void *self, const float *values, size_t n, uint64_t noise, unsigned char *section)
{
    const bytes *b = self;
    float unit = 0;
    uint32_t words[4];
    for (size_t i = 0; i < n; i++) unit = fabsf(values[i]) > unit ? fabsf(values[i]) : unit;
    unit /= 127;
    memcpy(section, &unit, sizeof unit);
    for (size_t i = 0; i < n; i++) {
        double steps = unit > 0 ? (double)values[i] / (double)unit : 0, up = 0.5;
        if (b->random && i % 4 == 0) tw_random((uint64_t)b->seed, noise, i / 4, words);
        if (b->random) up = words[i % 4] / 4294967296.0;
        double rounded = floor(steps + up);
        section[sizeof unit + i] = (unsigned char)(signed char)fmin(fmax(rounded, -127), 127);
    }
}

static void decode(const void *self, const unsigned char *section, size_t n, size_t first, size_t count, float *values)
{
    float unit;
    (void)self;
    (void)n;
    memcpy(&unit, section, sizeof unit);
    for (size_t i = 0; i < count; i++) values[i] = unit * (float)(signed char)section[sizeof unit + first + i];
}

static const char *inspect(const void *self, const unsigned char *section, size_t n)
{
    (void)self;
    for (size_t i = 0; i < n; i++)
        if (section[sizeof(float) + i] == 128) return "a step of -128";
    return NULL;
}

static const tw_scheme_definition bytes_definition = {
    .struct_size = sizeof bytes_definition,
    .name = "bytes",
    .summary = "a byte an element",
    .floor_bytes = 12,
    .self_size = sizeof(bytes),
    .option_size = sizeof *byte_options,
    .option_count = sizeof byte_options / sizeof *byte_options,
    .options = byte_options,
    .section_bytes = section_bytes,
    .encode = encode,
    .decode = decode,
    .inspect = inspect,
};

/* ---- the same slice on every rank, the next one in the next step, with a residual of its own --------------------- */

typedef struct slices {
    double density;
    size_t tensors, count;
    float **residual, *values, *taken;
    size_t *most;
    uint64_t turn;
} slices;

static const tw_scheme_option slice_options[] = {
    {"density", TW_OPTION_REAL, offsetof(slices, density), "0.25", 1e-7, 1, NULL, "fraction of each tensor"},
};

static size_t share_of(const slices *s, size_t n)
{
    return (size_t)ceil((double)n * s->density);
}

static size_t place_of(const slices *s, size_t n, size_t j)
{
    return (size_t)(s->turn % n * share_of(s, n) + j) % n;
}

static tw_status create(void *self, tw_scheme *scheme)
{
    slices *s = self;
    s->tensors = tw_scheme_tensors(scheme);
    s->residual = calloc(s->tensors, sizeof *s->residual);
    for (size_t t = 0; t < s->tensors; t++) {
        size_t n = tw_scheme_elements(scheme, t);
        if (!tw_scheme_is_compressed(scheme, t)) continue;
        s->residual[t] = calloc(n, sizeof **s->residual);
        s->count += share_of(s, n);
    }
    s->values = calloc(s->count + 1, sizeof *s->values);
    s->taken = calloc(s->count + 1, sizeof *s->taken);
    return TW_OK;
}

static void destroy(void *self)
{
    slices *s = self;
    for (size_t t = 0; t < s->tensors; t++) free(s->residual[t]);
    free(s->residual);
    free(s->values);
    free(s->taken);
}

/* Calls `each` for every element of this turn's slices: where it travels, and where it stands. */
static void visit(slices *s, tw_scheme *scheme,
                  void (*each)(slices *s, tw_scheme *scheme, size_t at, size_t t, size_t i))
{
    size_t at = 0;
    for (size_t t = 0; t < s->tensors; t++) {
        size_t n = tw_scheme_elements(scheme, t);
        for (size_t j = 0; s->residual[t] && j < share_of(s, n); j++) each(s, scheme, at++, t, place_of(s, n, j));
    }
}

/* Of a tensor without a gradient on this rank nothing is sent, and what waits goes on waiting. */
static void take(slices *s, tw_scheme *scheme, size_t at, size_t t, size_t i)
{
    s->values[at] = s->taken[at] = 0;
    if (tw_scheme_is_absent(scheme, t)) return;
    s->values[at] = s->taken[at] = s->residual[t][i];
    s->residual[t][i] = 0;
}

static void give(slices *s, tw_scheme *scheme, size_t at, size_t t, size_t i)
{
    tw_scheme_gradient(scheme, t)[i] = s->values[at];
}

static void put_back(slices *s, tw_scheme *scheme, size_t at, size_t t, size_t i)
{
    (void)scheme;
    s->residual[t][i] += s->taken[at];
}

static void start(slices *s, tw_scheme *scheme)
{
    s->turn = tw_scheme_step(scheme);
    for (size_t t = 0; t < s->tensors; t++) {
        const float *gradient = tw_scheme_gradient(scheme, t);
        for (size_t i = 0; s->residual[t] && tw_scheme_is_finite(scheme) && i < tw_scheme_elements(scheme, t); i++)
            s->residual[t][i] += tw_scheme_scale(scheme) * gradient[i];
    }
    if (tw_scheme_is_finite(scheme)) visit(s, scheme, take);
    if (!tw_scheme_is_finite(scheme)) s->values[0] = NAN;
}

static tw_status next(void *self, tw_scheme *scheme, int phase, tw_round *round)
{
    slices *s = self;
    if (phase == 0) {
        start(s, scheme);
        round->kind = TW_ROUND_ALLREDUCE;
        round->values = s->values;
        round->count = s->count;
        round->dtype = TW_F32;
        return TW_OK;
    }
    for (size_t t = 0; t < s->tensors; t++)
        if (s->residual[t]) memset(tw_scheme_gradient(scheme, t), 0, tw_scheme_elements(scheme, t) * sizeof(float));
    visit(s, scheme, give);
    round->kind = TW_ROUND_DONE;
    return TW_OK;
}

static void revert(void *self, tw_scheme *scheme)
{
    if (tw_scheme_is_finite(scheme)) visit(self, scheme, put_back);
}

static tw_status walk(void *self, tw_scheme *scheme, tw_walk *walk)
{
    slices *s = self;
    tw_status status = TW_OK;
    for (size_t t = 0; t < s->tensors && status == TW_OK; t++)
        if (s->residual[t])
            status = tw_walk_visit(walk, "memory", tw_scheme_tensor_name(scheme, t), TW_STATE_ADDS, TW_F32,
                                   tw_scheme_elements(scheme, t), s->residual[t]);
    return status;
}

static const tw_scheme_definition slices_definition = {
    .struct_size = sizeof slices_definition,
    .name = "slices",
    .summary = "one slice after the other",
    .floor_bytes = 12,
    .self_size = sizeof(slices),
    .option_size = sizeof *slice_options,
    .option_count = sizeof slice_options / sizeof *slice_options,
    .options = slice_options,
    .create = create,
    .destroy = destroy,
    .next = next,
    .revert = revert,
    .walk = walk,
};

TW_PLUGIN(&bytes_definition, &slices_definition, &heavy_definition)
