/* Schemes from outside: what a definition must be, and that one which does what topk does is topk, bit for bit. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_scheme.h>

#include "conformance.h"
#include "outside.h"
#include "plugin/heavy.h"
#include "support/assert.h"
#include "support/cmocka.h"

static const tw_tensor table[] = {{"w", 2, {40, 50}}, {"b", 1, {40}}, {"x", 2, {15, 10}}};
enum { TENSORS = sizeof table / sizeof *table, RANKS = 3 };

typedef struct twin {
    double density;
    int64_t fault;
    char *word;
    float *room;
} twin;

static const tw_scheme_option rows[] = {
    {"density", TW_OPTION_REAL, offsetof(twin, density), "0.05", 1e-7, 1, NULL, "fraction"},
    {"fault", TW_OPTION_INTEGER, offsetof(twin, fault), "0", 0, 9, NULL, "what it does wrong"},
    {"word", TW_OPTION_TEXT, offsetof(twin, word), "", 0, 0, NULL, "a text"},
};

static int alive; /* made and not destroyed */

static tw_status twin_create(void *self, tw_scheme *scheme)
{
    alive++;
    ((twin *)self)->room = calloc(tw_scheme_elements(scheme, 0), sizeof(float));
    return strcmp(((twin *)self)->word, "refuse") == 0 ? tw_fail(TW_ERROR_UNSUPPORTED, "not today") : TW_OK;
}

static void twin_destroy(void *self)
{
    alive -= ((twin *)self)->room != NULL;
    free(((twin *)self)->room);
}

static double twin_density(const void *self)
{
    return ((const twin *)self)->fault == 7 ? 0 : ((const twin *)self)->density;
}

enum { NO_FAULT, TOO_MANY, DESCENDS, TWICE, BEYOND, NOT_FINITE, FIRST_BEYOND, NO_DENSITY };

static size_t twin_choose(void *self, tw_scheme *scheme, size_t tensor, const float *values, size_t most,
                          uint32_t *index, float *value)
{
    size_t n = tw_scheme_elements(scheme, tensor);
    size_t count = tw_scheme_choose_largest(scheme, tensor, values, most, 0, index, value);
    uint32_t first = index[0];
    switch (((const twin *)self)->fault) {
    case TOO_MANY:
        return most + 1;
    case DESCENDS:
        index[0] = index[1];
        index[1] = first;
        break;
    case TWICE:
        index[1] = first;
        break;
    case BEYOND:
        index[count - 1] = (uint32_t)n;
        break;
    case NOT_FINITE:
        value[count - 1] = INFINITY;
        break;
    case FIRST_BEYOND:
        index[0] = (uint32_t)n;
        return 1;
    }
    return count;
}

static const tw_scheme_definition model = {
    .struct_size = sizeof model,
    .name = "twin",
    .summary = "topk again",
    .floor_bytes = 12,
    .self_size = sizeof(twin),
    .option_size = sizeof *rows,
    .option_count = sizeof rows / sizeof *rows,
    .options = rows,
    .create = twin_create,
    .destroy = twin_destroy,
    .density = twin_density,
    .choose = twin_choose,
};

/* ---- forms whose result is an all-reduce's ----------------------------------------------------------------------- */

static size_t exact_bytes(const void *self, size_t n)
{
    (void)self;
    return n * sizeof(float);
}

enum { MOST_NOISES = 256 };
static uint64_t noises[MOST_NOISES]; /* that parts were coded with, so far */
static size_t noise_count;
static float sent_instead; /* of each part's first value, unless it is 0 */

static void exact_encode(void *self, const float *values, size_t n, uint64_t noise, unsigned char *section)
{
    (void)self;
    noises[noise_count++ % MOST_NOISES] = noise;
    memcpy(section, values, n * sizeof *values);
    if (sent_instead != 0) memcpy(section, &sent_instead, sizeof sent_instead);
}

static void exact_decode(const void *self, const unsigned char *section, size_t n, size_t first, size_t count,
                         float *values)
{
    (void)self;
    assert_true(first % TW_SCHEME_BLOCK == 0 && count <= TW_SCHEME_BLOCK && first + count <= n);
    memcpy(values, section + first * sizeof *values, count * sizeof *values);
}

static const tw_scheme_definition exact = {
    .struct_size = sizeof exact,
    .name = "exact",
    .summary = "every element as it is",
    .section_bytes = exact_bytes,
    .encode = exact_encode,
    .decode = exact_decode,
};

/* One all-reduce a tensor, where it lies. `fault` of self: what it asks for instead. */
typedef struct plain {
    int64_t fault;
    uint64_t before; /* steps that it saw, and has not taken back */
    size_t tensor;
} plain;

static const tw_scheme_option plain_options[] = {
    {"fault", TW_OPTION_INTEGER, offsetof(plain, fault), "0", 0, 9, NULL, "what it does wrong"},
};

enum { SPOILS = 7 }; /* the sum */

static void ask_wrongly(int64_t fault, tw_round *round)
{
    static const tw_round wrong[] = {{.kind = (tw_round_kind)9},
                                     {.kind = TW_ROUND_ALLREDUCE, .count = 1},
                                     {.kind = TW_ROUND_ALLREDUCE, .count = 1, .values = &alive, .dtype = TW_F64},
                                     {.kind = TW_ROUND_ALLGATHER, .data = "x", .size = 1},
                                     {.kind = TW_ROUND_BROADCAST, .root = RANKS},
                                     {.kind = TW_ROUND_ALLTOALL}};
    *round = wrong[fault - 1];
}

static tw_status plain_next(void *self, tw_scheme *scheme, int phase, tw_round *round)
{
    plain *p = self;
    if (phase == 0) p->tensor = 0;
    p->before += phase == 0;
    while (p->tensor < tw_scheme_tensors(scheme) && !tw_scheme_is_compressed(scheme, p->tensor)) p->tensor++;
    round->kind = TW_ROUND_DONE;
    if (p->fault == SPOILS) tw_scheme_gradient(scheme, 0)[7] = NAN;
    if (p->fault && p->fault < SPOILS) ask_wrongly(p->fault, round);
    if (p->fault || p->tensor == tw_scheme_tensors(scheme)) return TW_OK;
    float *gradient = tw_scheme_gradient(scheme, p->tensor);
    size_t n = tw_scheme_elements(scheme, p->tensor++);
    for (size_t i = 0; i < n; i++) gradient[i] *= tw_scheme_scale(scheme);
    round->kind = TW_ROUND_ALLREDUCE;
    round->values = gradient;
    round->count = n;
    round->dtype = TW_F32;
    return TW_OK;
}

static void plain_revert(void *self, tw_scheme *scheme)
{
    (void)scheme;
    ((plain *)self)->before--;
}

static tw_status plain_walk(void *self, tw_scheme *scheme, tw_walk *walk)
{
    (void)scheme;
    return tw_walk_visit(walk, "seen", "all", TW_STATE_SAME, TW_U64, 1, &((plain *)self)->before);
}

static double plain_clip(const void *self)
{
    return ((const plain *)self)->fault ? 1 : 0;
}

static void plain_plan(const void *self, const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    (void)self;
    snprintf(text, capacity, "as it is: %s", tw_scheme_tensor_name(scheme, tensor));
}

static const tw_scheme_definition plain_definition = {
    .struct_size = sizeof plain_definition,
    .name = "plain",
    .summary = "a round a tensor",
    .self_size = sizeof(plain),
    .option_size = sizeof *plain_options,
    .option_count = 1,
    .options = plain_options,
    .next = plain_next,
    .revert = plain_revert,
    .walk = plain_walk,
    .clip = plain_clip,
    .plan = plain_plan,
};

/* Schemes of the other forms that count the steps that they are asked in, of one tensor. */
typedef struct counter {
    uint64_t seen, before; /* and what that was before the last of them */
} counter;

static void count_step(void *self)
{
    counter *c = self;
    c->before = c->seen++;
}

static void counter_revert(void *self, tw_scheme *scheme)
{
    (void)scheme;
    ((counter *)self)->seen = ((counter *)self)->before;
}

static tw_status counter_walk(void *self, tw_scheme *scheme, tw_walk *walk)
{
    (void)scheme;
    return tw_walk_visit(walk, "seen", "all", TW_STATE_SAME, TW_U64, 1, &((counter *)self)->seen);
}

static double counter_density(const void *self)
{
    (void)self;
    return 1;
}

static size_t counter_choose(void *self, tw_scheme *scheme, size_t tensor, const float *values, size_t most,
                             uint32_t *index, float *value)
{
    count_step(self);
    return tw_scheme_choose_largest(scheme, tensor, values, most, 0, index, value);
}

static void counter_encode(void *self, const float *values, size_t n, uint64_t noise, unsigned char *section)
{
    (void)noise;
    count_step(self);
    memcpy(section, values, n * sizeof *values);
}

#define COUNTS                                                                                                         \
    .struct_size = sizeof(tw_scheme_definition), .summary = "counts", .self_size = sizeof(counter),                    \
    .revert = counter_revert, .walk = counter_walk
static const tw_scheme_definition counts_choices = {COUNTS, .name = "counts_choices", .density = counter_density,
                                                    .choose = counter_choose};
static const tw_scheme_definition counts_codes = {COUNTS, .name = "counts_codes", .section_bytes = exact_bytes,
                                                  .encode = counter_encode, .decode = exact_decode};

static int register_all(void **state)
{
    return tw_scheme_register(&model) != TW_OK || tw_scheme_register(&exact) != TW_OK ||
           tw_scheme_register(&plain_definition) != TW_OK || tw_scheme_register(&counts_choices) != TW_OK ||
           tw_scheme_register(&counts_codes) != TW_OK;
}

/* Two groups that take the same steps. */
typedef struct pair {
    const char *spec[2];
    int size, steps;
    int sick;    /* the step in which one rank has a NaN; -1: none */
    int back;    /* the step that is taken back; -1: none */
    int is_late; /* the step after the sick one brings what healthy ranks had in it */
    int is_twin; /* either goes on from what the other saved, and their packets are as long */
} pair;

/* The same bits come out. */
static void check_same(const pair *p)
{
    loopback group[2];
    batch *b[2] = {batch_create(table, TENSORS), batch_create(table, TENSORS)};
    for (int i = 0; i < 2; i++) assert_ok(loopback_create(&group[i], p->spec[i], table, TENSORS, p->size));
    for (int step = 0; step < p->steps; step++) {
        for (int i = 0; i < 2; i++) {
            int skipped;
            batch_fill(b[i], p->size, normal, step);
            if (step == p->sick) b[i]->values[1][100] = NAN;
            assert_ok(loopback_step(&group[i], b[i]->ranks, -1, NULL, &skipped));
            assert_int_equal(skipped, step == p->sick);
            for (int r = 0; step == p->back && r < p->size; r++) assert_ok(tw_scheme_revert(group[i].scheme[r]));
        }
        int differs = step == p->sick || (p->is_late && step == p->sick + 1);
        if (!differs && memcmp(b[0]->values[0], b[1]->values[0], b[0]->elements * sizeof(float)) != 0)
            fail_msg("%s on %d ranks: other bits in step %d", p->spec[1], p->size, step);
        if (!p->is_twin) continue;
        assert_int_equal(group[0].packet_bytes, group[1].packet_bytes);
        if (step == p->steps / 2) assert_ok(loopback_move(&group[0], &group[1]));
    }
    for (int i = 0; i < 2; i++) {
        loopback_destroy(&group[i]);
        batch_destroy(b[i]);
    }
}

static void check_all_reduce(const char *spec, int size, int is_late)
{
    check_same(&(pair){{"allreduce", spec}, size, .steps = 4, .sick = 2, .back = -1, .is_late = is_late});
}

TEST(test_forms_that_lose_nothing_are_an_all_reduce)
{
    check_all_reduce("exact:leftovers=fp32", 2, 1);
    check_all_reduce("exact:leftovers=fp32,feedback=off", 2, 0);
    check_all_reduce("exact:leftovers=fp32,exchange=scatter", 3, 1);
    check_all_reduce("exact:leftovers=fp32,exchange=scatter,feedback=off", 6, 0);
    for (int size = 2; size <= 5; size += 3) {
        check_all_reduce("plain:leftovers=fp32", size, 0);
        check_all_reduce("plain:min_dims=0,min_elements=1", size, 0);
        check_all_reduce("plain:min_elements=1000000,leftovers=fp32", size, 0); /* nothing is left for it */
    }
}

/* Its own state goes with the rest: it counts the steps, but not those taken back. */
TEST(test_what_it_remembers_is_saved_loaded_and_taken_back)
{
    loopback group;
    batch *b = batch_create(table, TENSORS);
    assert_ok(loopback_create(&group, "plain", table, TENSORS, RANKS));
    for (int step = 0; step < 5; step++) {
        int skipped;
        uint64_t seen;
        batch_fill(b, RANKS, normal, step);
        if (step == 2) b->values[1][100] = NAN;
        assert_ok(loopback_step(&group, b->ranks, -1, NULL, &skipped));
        for (int r = 0; step == 3 && r < RANKS; r++) assert_ok(tw_scheme_revert(group.scheme[r]));
        tw_state *saved = loopback_save(group.scheme[1], "p/");
        assert_ok(tw_state_get(saved, "p/seen/all", TW_U64, 1, &seen));
        assert_int_equal(seen, step < 2 ? step + 1 : step < 4 ? 2 : 3);
        tw_state_destroy(saved);
        if (step == 1) assert_ok(loopback_restart(&group, "plain", table, TENSORS));
    }
    loopback_destroy(&group);
    batch_destroy(b);
}

/* ---- the same as one of the library's own ------------------------------------------------------------------------ */

/* Bit for bit in what comes out, through a step with NaN, and in what is remembered. */
TEST(test_a_twin_of_topk_is_topk)
{
    static const char *const options[] = {"density=0.05", "density=0.05,feedback=off,values=fp32",
                                          "density=1,min_elements=1,min_dims=0",
                                          "density=0.2,indices=bitmap,leftovers=fp32"};
    for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
        char spec[2][SPEC_LENGTH];
        snprintf(spec[0], SPEC_LENGTH, "topk:min_sent=1,%s", options[o]);
        snprintf(spec[1], SPEC_LENGTH, "twin:%s", options[o]);
        check_same(&(pair){{spec[0], spec[1]}, RANKS, .steps = 6, .sick = 3, .back = -1, .is_twin = 1});
    }
    assert_int_equal(alive, 0);
}

/* What it writes out is dgc's momentum correction: the same bits, of the leftovers too, through a step taken back and a
 * restart from what the other saved. */
TEST(test_a_momentum_of_its_own_is_dgcs)
{
    const pair both = {{"dgc:density=0.05,momentum=0.5,masking=off,min_sent=1,warmup_steps=0,clip=0,min_dims=2,"
                        "min_elements=128,values=log8",
                        "heavy:density=0.05,momentum=0.5,values=log8"},
                       RANKS,
                       .steps = 8,
                       .sick = -1,
                       .back = 3,
                       .is_twin = 1};
    tw_scheme *scheme;
    int nesterov;
    assert_ok(tw_scheme_register(&heavy_definition));
    assert_ok(tw_scheme_create(both.spec[1], table, TENSORS, 0, 1, &scheme));
    assert_true(tw_scheme_momentum(scheme, &nesterov) == 0.5F);
    tw_scheme_destroy(scheme);
    check_same(&both);
}

/* ---- what its functions do wrong --------------------------------------------------------------------------------- */

static tw_status step_with(const char *spec)
{
    loopback group;
    int skipped;
    batch *b = batch_create(table, TENSORS);
    batch_fill(b, RANKS, normal, 0);
    tw_status status = loopback_create(&group, spec, table, TENSORS, RANKS);
    if (status == TW_OK) status = loopback_step(&group, b->ranks, -1, NULL, &skipped);
    loopback_destroy(&group);
    batch_destroy(b);
    assert_int_equal(alive, 0);
    return status;
}

TEST(test_what_choose_does_wrong_is_told)
{
    for (int fault = TOO_MANY; fault <= FIRST_BEYOND; fault++) {
        char spec[SPEC_LENGTH];
        snprintf(spec, sizeof spec, "twin:fault=%d", fault);
        if (step_with(spec) != TW_ERROR_ARGUMENT) fail_msg("fault %d went through", fault);
        assert_non_null(strstr(tw_last_error(), "scheme twin: choose"));
        assert_non_null(strstr(tw_last_error(), " of w;"));
    }
    assert_int_equal(step_with("twin:fault=0"), TW_OK);
}

/* Of a message that has none of its rounds it knows no step that could be taken back. */
TEST(test_only_what_has_begun_is_taken_back)
{
    loopback group;
    int skipped;
    uint64_t seen;
    batch *b = batch_create(table, TENSORS);
    assert_ok(loopback_create(&group, "plain:min_elements=1000000", table, TENSORS, 1));
    batch_fill(b, 1, normal, 0);
    assert_ok(loopback_step(&group, b->ranks, -1, NULL, &skipped));
    assert_ok(tw_scheme_revert(group.scheme[0]));
    tw_state *saved = loopback_save(group.scheme[0], "");
    assert_ok(tw_state_get(saved, "seen/all", TW_U64, 1, &seen));
    assert_int_equal(seen, 0);
    tw_state_destroy(saved);
    loopback_destroy(&group);
    batch_destroy(b);
}

/* Nor does it of one in which this rank has no gradient for any of its tensors. */
static void check_who_was_not_asked(const char *spec, int by_itself)
{
    static const unsigned char nothing[] = {1};
    loopback group;
    int skipped;
    uint64_t seen;
    batch *b = batch_create(table, 1);
    assert_ok(loopback_create(&group, spec, table, 1, 2));
    for (int step = 0; step < 2; step++) {
        batch_fill(b, 2, normal, step);
        group.absent[1] = step ? nothing : NULL;
        if (step && by_itself) b->values[0][0] = NAN;
        assert_ok(loopback_step(&group, b->ranks, -1, NULL, &skipped));
        assert_int_equal(skipped, step && by_itself);
        for (int r = 0; step && !by_itself && r < 2; r++) assert_ok(tw_scheme_revert(group.scheme[r]));
    }
    for (int r = 0; r < 2; r++) {
        tw_state *saved = loopback_save(group.scheme[r], "");
        assert_ok(tw_state_get(saved, "seen/all", TW_U64, 1, &seen));
        assert_int_equal(seen, 1);
        tw_state_destroy(saved);
    }
    loopback_destroy(&group);
    batch_destroy(b);
}

TEST(test_who_was_not_asked_takes_nothing_back)
{
    for (int by_itself = 0; by_itself < 2; by_itself++) {
        check_who_was_not_asked("counts_choices", by_itself);
        check_who_was_not_asked("counts_codes:exchange=gather", by_itself);
    }
}

TEST(test_a_sum_that_is_not_finite_skips_the_step)
{
    loopback group;
    int skipped;
    batch *b = batch_create(table, TENSORS);
    assert_ok(loopback_create(&group, "plain:fault=7", table, TENSORS, RANKS));
    batch_fill(b, RANKS, normal, 0);
    assert_ok(loopback_step(&group, b->ranks, -1, NULL, &skipped));
    assert_int_equal(skipped, 1);
    loopback_destroy(&group);
    batch_destroy(b);
}

TEST(test_a_section_that_is_not_finite_is_refused)
{
    static const float ills[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof ills / sizeof *ills; i++) {
        sent_instead = ills[i];
        assert_fails(step_with("exact:exchange=scatter"), TW_ERROR_PACKET, "rank 0's section of w is damaged");
    }
    sent_instead = 0;
}

/* Parts, ranks and steps draw differently: whole tensors, pieces, and the sums of pieces. */
TEST(test_no_two_parts_have_the_same_noise)
{
    static const char *const specs[] = {"exact:exchange=gather", "exact:exchange=scatter"};
    for (size_t s = 0; s < 2; s++) {
        loopback group;
        batch *b = batch_create(table, TENSORS);
        noise_count = 0;
        assert_ok(loopback_create(&group, specs[s], table, TENSORS, 2));
        for (int step = 0; step < 4; step++) {
            int skipped;
            batch_fill(b, 2, normal, step);
            assert_ok(loopback_step(&group, b->ranks, -1, NULL, &skipped));
        }
        assert_true(noise_count >= 16 && noise_count <= MOST_NOISES);
        for (size_t i = 0; i < noise_count; i++)
            for (size_t j = 0; j < i; j++) assert_true(noises[i] != noises[j]);
        loopback_destroy(&group);
        batch_destroy(b);
    }
}

/* What stands for a tensor that is absent is a section of zeros. */
static size_t two_bytes(const void *self, size_t n)
{
    (void)self;
    (void)n;
    return 2;
}

static void all_ones(const void *self, const unsigned char *section, size_t n, size_t first, size_t count,
                     float *values)
{
    (void)self;
    (void)n;
    (void)first;
    for (size_t i = 0; i < count; i++) values[i] = section[0] ? 0 : 1;
}

TEST(test_a_section_of_zeros_has_to_say_zeros)
{
    tw_scheme_definition d = exact;
    d.name = "ones";
    d.section_bytes = two_bytes;
    d.decode = all_ones;
    assert_ok(tw_scheme_register(&d));
    assert_fails(step_with("ones"), TW_ERROR_ARGUMENT, "scheme ones: a section of zero bytes");
}

TEST(test_a_round_that_cannot_be_is_told)
{
    for (int fault = 1; fault <= 6; fault++) {
        char spec[SPEC_LENGTH];
        snprintf(spec, sizeof spec, "plain:fault=%d", fault);
        assert_fails(step_with(spec), TW_ERROR_ARGUMENT, "scheme plain: round 0");
    }
}

TEST(test_clipping_and_plan_are_its_own)
{
    tw_scheme *scheme;
    assert_ok(tw_scheme_create("plain:fault=1", table, TENSORS, 0, 1, &scheme));
    assert_true(tw_scheme_clip(scheme) == 1);
    assert_string_equal(scheme->tensors[0].plan, "as it is: w");
    assert_string_equal(scheme->tensors[1].plan, "dense bf16: 1 dimension");
    tw_scheme_destroy(scheme);
    assert_ok(tw_scheme_create("twin", table, TENSORS, 0, 1, &scheme)); /* of which choose may send fewer */
    assert_int_equal(strncmp(scheme->tensors[0].plan, "twin: at most ", 14), 0);
    tw_scheme_destroy(scheme);
}

TEST(test_what_create_refuses_is_passed_on)
{
    assert_int_equal(step_with("twin:word=refuse"), TW_ERROR_UNSUPPORTED);
    assert_string_equal(tw_last_error(), "not today");
    assert_int_equal(step_with("twin:fault=7"), TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "density is 0"));
    assert_int_equal(step_with("twin:fault=10"), TW_ERROR_SPEC);
    assert_non_null(strstr(tw_last_error(), "twin: fault=10"));
}

/* ---- definitions ------------------------------------------------------------------------------------------------- */

static void assert_not_taken(const tw_scheme_definition *definition, tw_status expected, const char *why)
{
    size_t before = tw_schemes_count();
    tw_status status = tw_scheme_register(definition);
    if (status != expected || !strstr(tw_last_error(), why))
        fail_msg("%s: \"%s\", not \"%s\"", tw_status_name(status), tw_last_error(), why);
    assert_int_equal(tw_schemes_count(), before);
}

TEST(test_a_definition_that_cannot_be_is_refused)
{
    static const char *const names[] = {
        NULL, "", "Twin", "1st", "_a", "a-b", "a b", "a:b", "a=b", "a,b", "abcdefghijklmnopqrstuvwxyzabcdef"};
    tw_scheme_definition d = model;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        d.name = names[i];
        assert_not_taken(&d, TW_ERROR_ARGUMENT, "lower-case");
    }
    d.name = "twin";
    assert_not_taken(&d, TW_ERROR_ARGUMENT, "there is a scheme twin already");
    d.name = "dgc";
    assert_not_taken(&d, TW_ERROR_ARGUMENT, "there is a scheme dgc already");
    d.name = "choco";
    assert_not_taken(&d, TW_ERROR_ARGUMENT, "for weights");
    d.name = "other";
    d.summary = NULL;
    assert_not_taken(&d, TW_ERROR_ARGUMENT, "summary");
    d.summary = "";
    d.choose = NULL;
    assert_not_taken(&d, TW_ERROR_ARGUMENT, "form");
    d.choose = twin_choose;
    d.density = NULL;
    assert_not_taken(&d, TW_ERROR_ARGUMENT, "form");
    d.density = twin_density;
    d.next = plain_next;
    assert_not_taken(&d, TW_ERROR_ARGUMENT, "form");
    d.next = NULL;
    d.decode = exact_decode;
    assert_not_taken(&d, TW_ERROR_ARGUMENT, "form");
    d = exact;
    d.name = "other";
    d.momentum = heavy_momentum;
    assert_not_taken(&d, TW_ERROR_ARGUMENT, "form");
}

/* Registers one option beside those of the form. */
static void assert_option_not_taken(tw_scheme_option row, tw_status expected, const char *why)
{
    tw_scheme_definition d = model;
    d.name = "other";
    d.options = &row;
    d.option_count = 1;
    assert_not_taken(&d, expected, why);
}

TEST(test_an_option_that_cannot_be_is_refused)
{
    const tw_scheme_option good = rows[0];
    tw_scheme_option row = good;
    row.key = "a=b";
    assert_option_not_taken(row, TW_ERROR_ARGUMENT, "key");
    row.key = "values";
    assert_option_not_taken(row, TW_ERROR_ARGUMENT, "two options values");
    row.key = "per_host";
    assert_option_not_taken(row, TW_ERROR_ARGUMENT, "two options per_host");
    row = good;
    row.kind = (tw_option_kind)5;
    assert_option_not_taken(row, TW_ERROR_ARGUMENT, "density");
    row.kind = TW_OPTION_CHOICE;
    assert_option_not_taken(row, TW_ERROR_ARGUMENT, "choices");
    row = good;
    row.offset = sizeof(twin) - 1;
    assert_option_not_taken(row, TW_ERROR_ARGUMENT, "does not lie");
    row.offset = SIZE_MAX - 7;
    assert_option_not_taken(row, TW_ERROR_ARGUMENT, "does not lie");
    row = good;
    row.fallback = "2";
    assert_option_not_taken(row, TW_ERROR_SPEC, "density=2");
    row.fallback = NULL;
    assert_option_not_taken(row, TW_ERROR_ARGUMENT, "default");
    row = good;
    row.help = NULL;
    assert_option_not_taken(row, TW_ERROR_ARGUMENT, "help");
}

TEST(test_options_do_not_overlap)
{
    typedef struct two {
        int first, second;
        double both;
    } two;
    tw_scheme_option three[] = {
        {"first", TW_OPTION_SWITCH, offsetof(two, first), "off", .help = "h"},
        {"second", TW_OPTION_SWITCH, offsetof(two, second), "off", .help = "h"},
        {"both", TW_OPTION_REAL, offsetof(two, first), "0", .help = "h"},
    };
    tw_scheme_definition d = model;
    d.name = "overlaps";
    d.self_size = sizeof(two);
    d.options = three;
    d.option_count = 3;
    assert_not_taken(&d, TW_ERROR_ARGUMENT, "options first and both lie in one place");
    three[2].offset = offsetof(two, both);
    three[0].offset = offsetof(two, second);
    assert_not_taken(&d, TW_ERROR_ARGUMENT, "options first and second lie in one place");
}

/* A walk that shows what a state would cut, or what no step could begin with. */
static struct {
    const char *what, *tensor;
    tw_dtype dtype;
    uint16_t half;
} shown;

static tw_status show_it(void *self, tw_scheme *scheme, tw_walk *walk)
{
    (void)self;
    (void)scheme;
    return tw_walk_visit(walk, shown.what, shown.tensor, TW_STATE_OWN, shown.dtype, 1, &shown.half);
}

TEST(test_what_a_walk_shows_is_looked_at)
{
    char longest[257];
    tw_scheme *scheme;
    tw_scheme_definition d = exact;
    d.name = "shows";
    d.walk = show_it;
    assert_ok(tw_scheme_register(&d));
    assert_ok(tw_scheme_create("shows", table, TENSORS, 0, 1, &scheme));
    memset(longest, 'x', 256);
    longest[256] = 0;
    for (int which = 0; which < 4; which++) {
        tw_state *saved;
        assert_ok(tw_state_create(&saved));
        shown.what = which == 0 ? longest : which == 1 ? "" : "mine";
        shown.tensor = which == 2 ? longest : which == 3 ? "" : "w";
        assert_fails(tw_scheme_save_state(scheme, "", saved), TW_ERROR_ARGUMENT, "of what a scheme remembers has");
        tw_state_destroy(saved);
    }
    shown.what = longest + 1;
    shown.tensor = longest + 1;
    tw_state_destroy(loopback_save(scheme, ""));
    shown.what = "mine";
    shown.tensor = "w";
    static const struct {
        tw_dtype dtype;
        uint16_t half;
        tw_status status;
    } halves[] = {{TW_F16, 0x7c00, TW_ERROR_STATE},  {TW_F16, 0xfe00, TW_ERROR_STATE},
                  {TW_F16, 0x7bff, TW_OK},           {TW_BF16, 0x7f80, TW_ERROR_STATE},
                  {TW_BF16, 0x7fc0, TW_ERROR_STATE}, {TW_BF16, 0xff00, TW_ERROR_STATE},
                  {TW_BF16, 0x4000, TW_OK}};
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        shown.dtype = halves[i].dtype;
        shown.half = halves[i].half;
        tw_state *saved = loopback_save(scheme, "");
        assert_int_equal(tw_scheme_load_state(scheme, "", saved), halves[i].status);
        tw_state_destroy(saved);
    }
    tw_scheme_destroy(scheme);
}

/* Those of a plug-in come together, or not at all. */
TEST(test_all_of_a_plugin_or_nothing)
{
    tw_scheme_definition first = model, second = model;
    const tw_scheme_definition *const both[] = {&first, &second}, *const hole[] = {&first, NULL};
    size_t before = tw_schemes_count();
    first.name = "first";
    second.name = "first";
    assert_fails(tw_outside_register(both, 2), TW_ERROR_ARGUMENT, "first already");
    second.name = "topk";
    assert_fails(tw_outside_register(both, 2), TW_ERROR_ARGUMENT, "topk already");
    assert_fails(tw_outside_register(hole, 2), TW_ERROR_ARGUMENT, "definition");
    assert_int_equal(tw_schemes_count(), before);
    assert_null(tw_schemes_name(before));
    second.name = "second";
    assert_ok(tw_outside_register(both, 2));
    assert_int_equal(tw_schemes_count(), before + 2);
    assert_string_equal(tw_schemes_name(before), "first");
    assert_string_equal(tw_schemes_name(before + 1), "second");
}

/* One compiled against an older header, without the last fields, and one against a newer, which leaves them alone. */
TEST(test_definitions_of_any_size)
{
    struct {
        tw_scheme_definition known;
        void *unknown;
    } newer = {model, NULL};
    tw_scheme_definition d = model;
    d.struct_size = offsetof(tw_scheme_definition, density) + sizeof d.density;
    d.name = "older";
    assert_not_taken(&d, TW_ERROR_ARGUMENT, "form"); /* choose lies behind it */
    d.struct_size = offsetof(tw_scheme_definition, choose) + sizeof d.choose;
    assert_int_equal(tw_scheme_register(&d), TW_OK);
    newer.known.name = "newer";
    newer.known.struct_size = sizeof newer;
    newer.unknown = &newer;
    assert_not_taken(&newer.known, TW_ERROR_UNSUPPORTED, "newer");
    newer.unknown = NULL;
    assert_int_equal(tw_scheme_register(&newer.known), TW_OK);
    assert_int_equal(step_with("older"), TW_OK);
    assert_int_equal(step_with("newer:density=0.5"), TW_OK);
    for (size_t size = 0; size < sizeof(size_t); size++) {
        d.struct_size = size;
        assert_not_taken(&d, TW_ERROR_ARGUMENT, "sizeof(tw_scheme_definition)");
    }
}

/* The rows may be larger than those known here, too. */
TEST(test_options_of_any_size)
{
    struct {
        tw_scheme_option known;
        void *unknown;
    } newer[] = {{rows[0], NULL}, {rows[1], NULL}, {rows[2], NULL}};
    tw_scheme_definition d = model;
    d.name = "wide";
    d.options = &newer[0].known;
    d.option_size = sizeof newer[0];
    newer[1].unknown = newer;
    assert_not_taken(&d, TW_ERROR_UNSUPPORTED, "newer");
    newer[1].unknown = NULL;
    assert_int_equal(tw_scheme_register(&d), TW_OK);
    assert_int_equal(step_with("wide:density=0.5,word=x"), TW_OK);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, EACH = 8 };

static void *register_some(void *argument)
{
    static char names[THREADS][EACH][32];
    int thread = *(const int *)argument;
    for (int i = 0; i < EACH; i++) {
        tw_scheme_definition d = model;
        snprintf(names[thread][i], sizeof names[thread][i], "t%d_%d", thread, i);
        d.name = names[thread][i];
        if (tw_scheme_register(&d) != TW_OK) return argument;
        tw_scheme *made = NULL;
        if (tw_scheme_create("topk", table, TENSORS, 0, 1, &made) != TW_OK) return argument;
        tw_scheme_destroy(made);
        if (tw_scheme_register(&d) != TW_ERROR_ARGUMENT) return argument;
    }
    return NULL;
}

TEST(test_threads_may_register_at_once)
{
    pthread_t thread[THREADS];
    int number[THREADS];
    size_t before = tw_schemes_count();
    for (int i = 0; i < THREADS; i++) {
        number[i] = i;
        assert_int_equal(pthread_create(&thread[i], NULL, register_some, &number[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(tw_schemes_count(), before + THREADS * EACH);
    assert_int_equal(step_with("t3_7:density=0.1"), TW_OK);
}

/* The list has an end. */
TEST(test_the_list_may_be_full)
{
    static char names[300][32];
    tw_status status = TW_OK;
    int i = 0;
    for (; status == TW_OK && i < 300; i++) {
        tw_scheme_definition d = model;
        snprintf(names[i], sizeof names[i], "full%d", i);
        d.name = names[i];
        status = tw_scheme_register(&d);
    }
    assert_int_equal(status, TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "256"));
    assert_int_equal(step_with("full0"), TW_OK);
}

RUN_TESTS(register_all, NULL)
