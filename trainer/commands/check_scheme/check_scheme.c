/* thinwire check-scheme: what every scheme promises, tried on one from outside. */
#include "check_group.h"
#include "commands.h"
#include "error.h"
#include "exit.h"
#include "launcher.h"
#include "plugins.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_plugin.h>

typedef struct check_settings {
    char *sync;
} check_settings;

enum { STEPS = 8 };

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* The sum of four numbers by chance: about normal. */
static float by_chance(int step, int rank, size_t element)
{
    uint32_t words[4];
    tw_random((uint64_t)step, (uint64_t)rank, element, words);
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += (double)words[i] / 4294967296.0 - 0.5;
    return (float)(sum * 1.7);
}

static void check_scheme_fill(check_group *group, int step)
{
    for (int r = 0; r < group->size; r++)
        for (size_t i = 0; i < CHECK_ELEMENTS; i++) group->values[r][i] = by_chance(step, r, i);
}

static tw_status take_step(check_group *group, int step)
{
    check_scheme_fill(group, step);
    TW_TRY(check_group_step(group));
    return group->skipped ? tw_fail(TW_ERROR_ARGUMENT, "step %d was skipped, and every gradient was finite", step)
                          : TW_OK;
}

/* ---- promises ---------------------------------------------------------------------------------------------------- */

/* Zeros of different signs are different. */
static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static tw_status look_at_means(const check_group *group, int step)
{
    for (int r = 0; r < group->size; r++)
        for (size_t i = 0; i < CHECK_ELEMENTS; i++) {
            if (!isfinite(group->values[r][i]))
                return tw_fail(TW_ERROR_ARGUMENT, "element %zu of rank %d's mean of step %d is %g", i, r, step,
                               (double)group->values[r][i]);
            if (bits_of(group->values[r][i]) != bits_of(group->values[0][i]))
                return tw_fail(TW_ERROR_ARGUMENT, "of %d ranks, rank %d's mean of step %d is not rank 0's: element %zu",
                               group->size, r, step, i);
        }
    return TW_OK;
}

static tw_status come_to_one_mean(check_group *group, const char *spec, int size)
{
    TW_TRY(check_group_create(group, spec, size));
    for (int step = 0; step < STEPS; step++) {
        TW_TRY(take_step(group, step));
        TW_TRY(look_at_means(group, step));
    }
    memset(group->values, 0, sizeof group->values);
    TW_TRY(check_group_step(group));
    return look_at_means(group, STEPS);
}

static tw_status ranks_are_alike(check_group *group, const char *spec)
{
    for (int size = 1; size < CHECK_RANKS; size++) {
        TW_TRY(come_to_one_mean(group, spec, size));
        check_group_destroy(group);
    }
    return come_to_one_mean(group, spec, CHECK_RANKS);
}

static tw_status run_on(check_group *group, int first, int last, uint32_t *sum)
{
    for (int step = first; step < last; step++) {
        TW_TRY(take_step(group, step));
        for (size_t i = 0; i < CHECK_ELEMENTS; i++) {
            uint32_t bits;
            memcpy(&bits, &group->values[0][i], sizeof bits);
            *sum = (*sum ^ bits) * 16777619U; /* FNV-1a, a word at a time */
        }
    }
    return TW_OK;
}

static tw_status runs_are_alike(check_group *group, const char *spec)
{
    uint32_t sums[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        if (i) check_group_destroy(group);
        TW_TRY(check_group_create(group, spec, 3));
        TW_TRY(run_on(group, 0, STEPS, &sums[i]));
    }
    return sums[0] == sums[1] ? TW_OK : tw_fail(TW_ERROR_ARGUMENT, "the same gradients came out as other bits");
}

/* What a rank remembers of each element that has not arrived. */
typedef struct debts {
    double owed[CHECK_ELEMENTS];
    int keeps[CHECK_ELEMENTS];
} debts;

static tw_status add_debt(void *context, const tw_remembered *entry)
{
    static const char *const whats[] = {"residual", "rounding", "section"};
    debts *all = context;
    size_t first = entry->first;
    int is_debt = 0, t = 0;
    for (size_t i = 0; i < sizeof whats / sizeof *whats; i++) is_debt |= strcmp(entry->what, whats[i]) == 0;
    if (!is_debt || entry->dtype != TW_F32) return TW_OK;
    for (; strcmp(check_table[t].name, entry->tensor) != 0; t++) first += tw_tensor_count(&check_table[t]);
    for (size_t i = 0; i < entry->count; i++) {
        all->owed[first + i] += (double)((const float *)entry->data)[i];
        all->keeps[first + i] = 1;
    }
    return TW_OK;
}

static tw_status compare_debts(check_group *group, const double *given)
{
    debts all = {{0}, {0}};
    for (int r = 0; r < group->size; r++) TW_TRY(tw_scheme_visit_state(group->scheme[r], add_debt, &all));
    for (size_t i = 0; i < CHECK_ELEMENTS; i++)
        if (all.keeps[i] && !(fabs(all.owed[i] - given[i]) <= 1e-4))
            return tw_fail(TW_ERROR_ARGUMENT, "of element %zu %g went in that did not come out, and %g is kept", i,
                           given[i], all.owed[i]);
    return TW_OK;
}

/* What a momentum makes of a gradient is more than the gradient. */
static tw_status nothing_is_lost(check_group *group, const char *spec)
{
    double given[CHECK_ELEMENTS] = {0};
    int nesterov;
    TW_TRY(check_group_create(group, spec, 3));
    if (tw_scheme_momentum(group->scheme[0], &nesterov) != 0) return TW_OK;
    for (int step = 0; step < STEPS; step++) {
        check_scheme_fill(group, step);
        for (int r = 0; r < 3; r++)
            for (size_t i = 0; i < CHECK_ELEMENTS; i++) given[i] += (double)group->values[r][i] / 3;
        TW_TRY(check_group_step(group));
        int taken_back = step % 3 == 1;
        for (int r = 0; taken_back && r < 3; r++) TW_TRY(tw_scheme_revert(group->scheme[r]));
        for (size_t i = 0; i < CHECK_ELEMENTS && !taken_back; i++) given[i] -= (double)group->values[0][i];
    }
    return compare_debts(group, given);
}

static tw_status nan_skips_the_step(check_group *group, const char *spec)
{
    TW_TRY(check_group_create(group, spec, 3));
    for (int step = 0; step < STEPS; step++) {
        check_scheme_fill(group, step);
        if (step % 2) group->values[2][step] = step % 4 == 1 ? NAN : INFINITY;
        TW_TRY(check_group_step(group));
        if (group->skipped != step % 2)
            return tw_fail(TW_ERROR_ARGUMENT, "step %d was %sskipped, and one rank's gradient was %sfinite", step,
                           group->skipped ? "" : "not ", step % 2 ? "not " : "");
        if (!group->skipped) TW_TRY(look_at_means(group, step));
    }
    return TW_OK;
}

/* All that the last rank remembers of the first tensor; the caller destroys it. */
static tw_status save_last(const check_group *group, tw_state **state)
{
    TW_TRY(tw_state_create(state));
    return tw_scheme_save_state(group->scheme[group->size - 1], "", *state);
}

static tw_status compare_first(const tw_state *before, const tw_state *after)
{
    for (size_t i = 0; i < tw_state_count(after); i++) {
        tw_state_entry was, is;
        TW_TRY(tw_state_at(before, i, &was));
        TW_TRY(tw_state_at(after, i, &is));
        const char *slash = strrchr(is.name, '/');
        if (!slash || strcmp(slash + 1, check_table[0].name) != 0) continue;
        if (was.bytes != is.bytes || memcmp(was.data, is.data, is.bytes) != 0)
            return tw_fail(TW_ERROR_ARGUMENT, "%s of the rank that had no gradient has changed", is.name);
    }
    return TW_OK;
}

static tw_status step_without(check_group *group, int step, const tw_state *before)
{
    tw_state *after = NULL;
    group->absent = 1;
    tw_status status = take_step(group, step);
    if (status == TW_OK) status = look_at_means(group, step);
    if (status == TW_OK) status = save_last(group, &after);
    if (status == TW_OK) status = compare_first(before, after);
    tw_state_destroy(after);
    return status;
}

static tw_status absence_keeps_memory(check_group *group, const char *spec)
{
    tw_state *before = NULL;
    TW_TRY(check_group_create(group, spec, 3));
    for (int step = 0; step < 3; step++) TW_TRY(take_step(group, step));
    tw_status status = save_last(group, &before);
    if (status == TW_OK) status = step_without(group, 3, before);
    tw_state_destroy(before);
    return status;
}

static tw_status restart(check_group *group, const char *spec)
{
    tw_state *saved[3] = {NULL, NULL, NULL};
    tw_status status = TW_OK;
    for (int r = 0; r < 3 && status == TW_OK; r++) {
        status = tw_state_create(&saved[r]);
        if (status == TW_OK) status = tw_scheme_save_state(group->scheme[r], "", saved[r]);
    }
    check_group_destroy(group);
    *group = (check_group){.size = 0};
    if (status == TW_OK) status = check_group_create(group, spec, 3);
    for (int r = 0; r < 3 && status == TW_OK; r++) status = tw_scheme_load_state(group->scheme[r], "", saved[r]);
    for (int r = 0; r < 3; r++) tw_state_destroy(saved[r]);
    return status;
}

static tw_status restarts_change_nothing(check_group *group, const char *spec)
{
    uint32_t whole = 0, broken = 0;
    TW_TRY(check_group_create(group, spec, 3));
    TW_TRY(run_on(group, 0, STEPS, &whole));
    check_group_destroy(group);
    TW_TRY(check_group_create(group, spec, 3));
    for (int step = 0; step < STEPS; step++) {
        TW_TRY(run_on(group, step, step + 1, &broken));
        TW_TRY(restart(group, spec));
    }
    return whole == broken ? TW_OK
                           : tw_fail(TW_ERROR_ARGUMENT, "saved and loaded after every step, it came to other bits");
}

/* ---- damaged packets --------------------------------------------------------------------------------------------- */

static tw_status tell_of(const harm *h)
{
    if (h->kind == HARM_FLIP)
        return tw_fail(TW_ERROR_ARGUMENT, "a packet of round %d with bit %d of byte %zu flipped was taken in", h->round,
                       h->bit, h->byte);
    if (h->kind == HARM_CUT)
        return tw_fail(TW_ERROR_ARGUMENT, "a packet of round %d that ends after %zu bytes was taken in", h->round,
                       h->byte);
    return tw_fail(TW_ERROR_ARGUMENT, "a packet of round %d with a byte behind its end was taken in", h->round);
}

static tw_status expect_refusal(check_group *group, const char *spec, harm h)
{
    check_group_destroy(group);
    TW_TRY(check_group_create(group, spec, 2));
    group->harm = h;
    check_scheme_fill(group, 0);
    tw_status status = check_group_step(group);
    return status == TW_ERROR_PACKET ? TW_OK : tell_of(&h);
}

/* Of a long packet some bytes, among them the first and the last ones. */
static size_t stride_of(size_t bytes, size_t byte)
{
    size_t stride = bytes / 256 + 1;
    return byte < 64 || bytes - byte <= 64 ? 1 : stride;
}

static tw_status harm_round(check_group *group, const char *spec, int round, size_t bytes)
{
    TW_TRY(expect_refusal(group, spec, (harm){HARM_EXTEND, round, 0, 0}));
    for (size_t byte = 0; byte < bytes; byte += stride_of(bytes, byte)) {
        TW_TRY(expect_refusal(group, spec, (harm){HARM_CUT, round, byte, 0}));
        for (int bit = 0; bit < 8; bit++) TW_TRY(expect_refusal(group, spec, (harm){HARM_FLIP, round, byte, bit}));
    }
    return TW_OK;
}

static tw_status damage_is_refused(check_group *group, const char *spec)
{
    TW_TRY(check_group_create(group, spec, 2));
    TW_TRY(take_step(group, 0));
    int rounds = group->packet_rounds;
    size_t bytes[8];
    memcpy(bytes, group->packet_bytes, sizeof bytes);
    for (int round = 0; round < rounds && round < 8; round++) TW_TRY(harm_round(group, spec, round, bytes[round]));
    return TW_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static long asked, lent, refused; /* refused: the number of the request that gets nothing; 0 for none */

static void *check_scheme_take(void *context, size_t alignment, size_t bytes)
{
    (void)context;
    if (++asked == refused) return NULL;
    lent++;
    return aligned_alloc(alignment, bytes);
}

static void give(void *context, void *block)
{
    (void)context;
    lent--;
    free(block);
}

static tw_status create_without(const char *spec, long number)
{
    tw_scheme *scheme = NULL;
    long before = lent;
    asked = 0;
    refused = number;
    tw_status status = tw_scheme_create(spec, check_table, CHECK_TENSORS, 0, 2, &scheme);
    int is_over = asked < number;
    refused = 0;
    if (status == TW_OK) tw_scheme_destroy(scheme);
    if (status == TW_OK && !is_over)
        return tw_fail(TW_ERROR_ARGUMENT, "create hides that request %ld got none", number);
    if (status != TW_OK && status != TW_ERROR_MEMORY)
        return tw_fail(TW_ERROR_ARGUMENT, "create says %s where request %ld got none", tw_status_name(status), number);
    if (lent != before) return tw_fail(TW_ERROR_ARGUMENT, "create leaves memory where request %ld got none", number);
    return is_over ? TW_SKIPPED : TW_OK; /* there are no more requests */
}

static tw_status lack_of_memory_is_told(check_group *group, const char *spec)
{
    (void)group;
    tw_status status = TW_OK;
    for (long number = 1; status == TW_OK; number++) status = create_without(spec, number);
    return status == TW_SKIPPED ? TW_OK : status;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static const struct promise {
    const char *text;
    tw_status (*try)(check_group *group, const char *spec);
} promises[] = {
    {"all ranks come to the same finite mean, on 1 to 4 ranks", ranks_are_alike},
    {"the same gradients come to the same bits", runs_are_alike},
    {"what arrives and what is kept add up to what was given", nothing_is_lost},
    {"NaN or infinity on one rank skips the step on all", nan_skips_the_step},
    {"a rank without a gradient keeps what it remembers of that tensor", absence_keeps_memory},
    {"saved and loaded after every step, it goes on bit for bit", restarts_change_nothing},
    {"every packet that was cut, extended or has a flipped bit is refused", damage_is_refused},
    {"where memory runs out create says so, and keeps none", lack_of_memory_is_told},
};

static int keep_one(const struct promise *promise, const char *spec)
{
    static check_group group;
    group = (check_group){.size = 0};
    tw_status status = promise->try(&group, spec);
    check_group_destroy(&group);
    if (status == TW_OK)
        printf("  kept    %s\n", promise->text);
    else
        printf("  BROKEN  %s: %s\n", promise->text, tw_last_error());
    return status == TW_OK;
}

static int try_all(const char *spec)
{
    int broken = 0;
    printf("%s\n", spec);
    for (size_t i = 0; i < sizeof promises / sizeof *promises; i++) broken += !keep_one(&promises[i], spec);
    if (broken)
        tw_fail(TW_ERROR_ARGUMENT, "%s breaks %d of %zu promises", spec, broken, sizeof promises / sizeof *promises);
    return broken;
}

/* With biases as they are: what is rounded on its way would hide what the scheme itself loses. */
static int try_scheme(const char *spec)
{
    char whole[1024];
    int has_leftovers = strstr(spec, "leftovers=") != NULL;
    snprintf(whole, sizeof whole, "%s%s%s", spec,
             has_leftovers       ? ""
             : strchr(spec, ':') ? ","
                                 : ":",
             has_leftovers ? "" : "leftovers=fp32");
    tw_scheme *scheme;
    int takes_it = tw_scheme_create(whole, check_table, CHECK_TENSORS, 0, 1, &scheme) == TW_OK;
    if (!takes_it && tw_scheme_create(spec, check_table, CHECK_TENSORS, 0, 1, &scheme) != TW_OK) return 1;
    tw_scheme_destroy(scheme);
    return try_all(takes_it ? whole : spec);
}

static tw_status check_scheme_load(const char *file)
{
    static const tw_allocator ours = {.struct_size = sizeof ours, .allocate = check_scheme_take, .release = give};
    TW_TRY(tw_set_allocator(&ours));
    return plugins_load(file);
}

static int check_scheme_run(void *command_settings, options *set)
{
    const check_settings *settings = command_settings;
    int broken = 0;
    size_t first = tw_schemes_count(); /* those of others come behind the library's */
    if (check_scheme_load(set->arguments[0]) != TW_OK) return launcher_refuse();
    if (settings->sync) return try_scheme(settings->sync) ? launcher_refuse() : EXIT_DONE;
    for (size_t i = first; i < tw_schemes_count(); i++) broken += try_scheme(tw_schemes_name(i));
    return broken ? launcher_refuse() : EXIT_DONE;
}

static const option_row rows[] = {
    {"sync", "SPEC", OPTION_TEXT, offsetof(check_settings, sync),
     .help = "Try this spec alone. By default all schemes of the file are tried, at their defaults"},
};

static const option_page page = {
    .usage = "thinwire check-scheme FILE [options]",
    .description = "Loads schemes of others from a shared library and tries what every scheme promises: one line a "
                   "promise. Ends with code 2 where one is broken. See docs/how-to-add-a-scheme.md.",
    .examples = "  thinwire check-scheme ./libmine.so\n"
                "  thinwire check-scheme ./libmine.so --sync mine:density=0.5\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
    .least_arguments = 1,
    .most_arguments = 1,
};

int command_check_scheme(int argc, char **argv)
{
    check_settings settings = {0};
    return command_run(&page, argc, argv, &settings, check_scheme_run);
}
