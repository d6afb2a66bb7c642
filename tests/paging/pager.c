/* A network of nothing but numbers, paged, beside a twin in memory that does the same by a loop: values, state and
 * counts must be its own, whatever the budget. */
#include "pager.h"
#include "pages.h"
#include "support/assert.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { UNITS = 12, SIZE = 12000, STATES = 2, SHARED = 1, ALL = UNITS * SIZE };

/* The first and the last unit stay where `stays`. The last of the states is a meeting's. */
typedef struct net {
    pager *pager;
    float *values, *gradients, *states[STATES + SHARED];
    float twin_values[ALL], twin_states[STATES + SHARED][ALL];
    float scale;
    int count, stays;
} net;

/* Any rule that tells whether each element met its own gradient and state, once. */
static void advance(float *value, float *first, float *second, float gradient)
{
    *first = 0.5f * *first + gradient;
    *second = 0.25f * *second + gradient * gradient;
    *value -= 0.125f * *first + 0.0625f * *second;
}

/* And one that tells whether each met once, and after its step. */
static void meet(float *value, float *shared)
{
    *shared = 0.75f * *shared + 0.5f * *value;
    *value = *shared;
}

static tw_status update(void *context, size_t begin, size_t end, int todo)
{
    net *n = context;
    for (size_t i = begin; i < end && todo & PAGER_TAKE; i++)
        advance(&n->values[i], &n->states[0][i], &n->states[1][i], n->gradients[i] * n->scale);
    for (size_t i = begin; i < end && todo & PAGER_MEET; i++) {
        n->gradients[i] = n->values[i];
        meet(&n->gradients[i], &n->states[STATES][i]);
        n->values[i] = n->gradients[i];
    }
    return TW_OK;
}

static float gradient_of(float value, size_t i, int step)
{
    return 0.25f * value + (float)((i * 7 + (size_t)step * 31) % 17) / 16.0f - 0.5f;
}

static tw_status lay(net *n, size_t budget, const char *folder)
{
    const pager_options options = {.budget = budget, .states = STATES, .shared = SHARED, .folder = folder};
    pager_unit units[UNITS];
    for (int u = 0; u < n->count; u++)
        units[u] = (pager_unit){(size_t)(u + 1) * SIZE - (u + 1 < n->count ? 100 : 0),
                                n->stays && (u == 0 || u + 1 == n->count)};
    assert_int_equal(pager_create(&options, &n->pager), TW_OK);
    n->values = pages_take((size_t)n->count * SIZE);
    n->gradients = pages_take((size_t)n->count * SIZE);
    for (int s = 0; s < STATES + SHARED; s++) n->states[s] = pages_take((size_t)n->count * SIZE);
    return pager_lay(n->pager, units, (size_t)n->count, n->values, n->gradients);
}

static void give_up(net *n)
{
    const size_t all = (size_t)n->count * SIZE;
    pager_destroy(n->pager);
    pages_give(n->values, all);
    pages_give(n->gradients, all);
    for (int s = 0; s < STATES + SHARED; s++) pages_give(n->states[s], all);
    free(n);
}

static size_t begin_of(const net *n, int unit)
{
    return unit == 0 ? 0 : unit == n->count ? (size_t)n->count * SIZE : (size_t)unit * SIZE - 100;
}

static void use(net *n, int unit, pager_pass pass)
{
    assert_int_equal(pager_use(n->pager, begin_of(n, unit), begin_of(n, unit + 1), pass), TW_OK);
}

static net *make(int count, int stays, size_t budget)
{
    net *n = calloc(1, sizeof *n);
    assert_non_null(n);
    n->count = count;
    n->stays = stays;
    assert_int_equal(lay(n, budget, "."), TW_OK);
    assert_true(pager_is_needed(n->pager));
    for (int u = 0; u < count; u++) {
        use(n, u, PAGER_CHANGE);
        for (size_t i = begin_of(n, u); i < begin_of(n, u + 1); i++) n->values[i] = n->twin_values[i] = (float)(i % 97);
    }
    assert_int_equal(pager_attach(n->pager, n->states, update, n), TW_OK);
    return n;
}

/* Each unit must have what `expected` has in its place. */
static void forward(net *n, const float *expected)
{
    for (int u = 0; u < n->count; u++) {
        use(n, u, PAGER_FORWARD);
        const size_t begin = begin_of(n, u), bytes = (begin_of(n, u + 1) - begin) * sizeof(float);
        assert_memory_equal(n->values + begin, expected + begin, bytes);
    }
}

static void meet_twin(net *n)
{
    for (size_t i = 0; i < (size_t)n->count * SIZE; i++) meet(&n->twin_values[i], &n->twin_states[STATES][i]);
}

static void step(net *n, int number, float scale, int todo)
{
    forward(n, n->twin_values);
    for (int u = n->count; u-- > 0;) {
        use(n, u, PAGER_BACKWARD);
        for (size_t i = begin_of(n, u); i < begin_of(n, u + 1); i++)
            n->gradients[i] = gradient_of(n->values[i], i, number);
    }
    n->scale = scale;
    assert_int_equal(pager_step(n->pager, todo), TW_OK);
    for (size_t i = 0; todo & PAGER_TAKE && i < (size_t)n->count * SIZE; i++)
        advance(&n->twin_values[i], &n->twin_states[0][i], &n->twin_states[1][i],
                gradient_of(n->twin_values[i], i, number) * scale);
    if (todo & PAGER_MEET) meet_twin(n);
}

static pager_counts counts_of(const net *n)
{
    pager_counts counts;
    pager_count(n->pager, &counts);
    return counts;
}

static void assert_twin(net *n)
{
    const size_t bytes = (size_t)n->count * SIZE * sizeof(float);
    assert_int_equal(pager_flush(n->pager), TW_OK);
    assert_memory_equal(pager_values(n->pager), n->twin_values, bytes);
    for (size_t s = 0; s < STATES; s++) assert_memory_equal(pager_state(n->pager, s), n->twin_states[s], bytes);
    assert_memory_equal(pager_shared(n->pager, 0), n->twin_states[STATES], bytes);
}

/* The fourth step's groups are those that time has chosen. */
TEST(steps_are_those_of_a_twin)
{
    static const size_t shares[] = {2, 3, 4, 5};
    for (size_t s = 0; s < sizeof shares / sizeof *shares; s++)
        for (int stays = 0; stays < 2; stays++) {
            const size_t total = (2 + STATES + SHARED) * ALL * sizeof(float), budget = total / shares[s];
            if (stays && shares[s] > 4) continue; /* two units of twelve are in memory always */
            net *n = make(UNITS, stays, budget);
            static const int todo[] = {PAGER_TAKE, PAGER_TAKE | PAGER_MEET, 0, PAGER_MEET, PAGER_TAKE, PAGER_TAKE};
            for (int i = 0; i < 6; i++) step(n, i, i % 2 ? 0.5f : 1, todo[i]);
            assert_twin(n);
            assert_int_equal(counts_of(n).total, total);
            assert_true(counts_of(n).most_resident <= budget);
            assert_true(counts_of(n).most_resident > budget / 4);
            give_up(n);
        }
}

/* A group meets others' when it comes in for its step: a round brings in no more. */
static void count_loads(size_t budget)
{
    net *n = make(UNITS, 0, budget);
    uint64_t before = counts_of(n).loads;
    for (int i = 0; i < 6; i++) {
        const size_t groups = counts_of(n).groups;
        if (i > 2 && groups == 1) { /* by the times that were measured; nothing comes in then */
            give_up(n);
            return;
        }
        assert_true(groups > 1);
        step(n, i, 1, PAGER_TAKE | (i % 2 ? PAGER_MEET : 0));
        if (i == 2) assert_int_equal(pager_reload(n->pager), TW_OK); /* the groups are new */
        if (i == 2) before = counts_of(n).loads;
        if (i == 2) continue;
        assert_int_equal(counts_of(n).loads - before, 2 * groups - (i == 0 || i == 3 ? 1 : 2));
        before = counts_of(n).loads;
    }
    const size_t groups = counts_of(n).groups;
    forward(n, n->twin_values); /* an evaluation */
    assert_int_equal(counts_of(n).loads - before, groups - 1);
    give_up(n);
}

TEST(loads_are_counted)
{
    for (size_t share = 2; share <= 5; share++) count_loads((2 + STATES + SHARED) * ALL * sizeof(float) / share);
}

TEST(what_is_away_cannot_be_touched)
{
    net *n = make(UNITS, 0, ALL * sizeof(float));
    forward(n, n->twin_values);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        n->values[SIZE / 2] = 1; /* of the first, which has been here */
        _exit(0);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGSEGV);
    assert_int_equal(pager_use(n->pager, SIZE / 2, 3 * SIZE, PAGER_FORWARD), TW_ERROR_STATE);
    give_up(n);
}

TEST(what_was_written_is_taken)
{
    net *n = make(UNITS, 1, 2 * ALL * sizeof(float));
    step(n, 0, 1, PAGER_TAKE);
    assert_twin(n);
    for (size_t i = 0; i < ALL; i++) {
        pager_values(n->pager)[i] = n->twin_values[i] = (float)(i % 13);
        pager_state(n->pager, 1)[i] = n->twin_states[1][i] = (float)(i % 11);
    }
    assert_int_equal(pager_reload(n->pager), TW_OK);
    step(n, 1, 1, PAGER_TAKE);
    assert_twin(n);
    give_up(n);
}

/* An evaluation of what is shared, and back; and a last meeting beside the step that waits. */
TEST(values_and_what_is_shared_change_places)
{
    net *n = make(UNITS, 1, 2 * ALL * sizeof(float));
    step(n, 0, 1, PAGER_TAKE | PAGER_MEET);
    step(n, 1, 1, PAGER_TAKE);
    assert_int_equal(pager_swap(n->pager, 0), TW_OK);
    assert_memory_equal(pager_values(n->pager), n->twin_states[STATES], sizeof n->twin_values);
    forward(n, n->twin_states[STATES]);
    assert_int_equal(pager_swap(n->pager, 0), TW_OK);
    for (int i = 2; i < 4; i++) step(n, i, 1, PAGER_TAKE); /* the third is taken at once: groups are chosen */
    pager_meet(n->pager);
    meet_twin(n);
    assert_twin(n);
    give_up(n);
}

/* What the sentence says is enough is, and a tenth of a megabyte less is not. */
TEST(a_small_budget_is_refused)
{
    double enough = 0;
    for (int attempt = 0; attempt < 3; attempt++) {
        net *n = calloc(1, sizeof *n);
        assert_non_null(n);
        n->count = UNITS;
        const double budget = attempt == 0 ? 1000 : attempt == 1 ? enough : enough - 0.15e6;
        tw_status status = lay(n, (size_t)budget, ".");
        assert_int_equal(status, attempt == 1 ? TW_OK : TW_ERROR_ARGUMENT);
        const char *at = strstr(tw_last_error(), "write --memory-budget ");
        if (attempt == 0) {
            assert_non_null(at);
            enough = 1e6 * strtod(at + strlen("write --memory-budget "), NULL);
        }
        give_up(n);
    }
    assert_true(enough > 3e3 * SIZE / 1e3 * sizeof(float) && enough < ALL * sizeof(float));
}

TEST(what_fits_is_left_alone)
{
    net *n = calloc(1, sizeof *n);
    assert_non_null(n);
    n->count = UNITS;
    assert_int_equal(lay(n, 6 * ALL * sizeof(float), "."), TW_OK);
    assert_false(pager_is_needed(n->pager));
    give_up(n);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST(a_full_disk_is_told_before_the_run)
{
    net *n = calloc(1, sizeof *n);
    assert_non_null(n);
    n->count = UNITS;
    limit_files(100000);
    tw_status status = lay(n, ALL * sizeof(float), "not/yet/there");
    limit_files(RLIM_INFINITY);
    assert_int_equal(status, TW_ERROR_IO);
    assert_non_null(strstr(tw_last_error(), "has no room for the 2.9MB of the model and its state"));
    give_up(n);
}

TEST(a_file_that_fails_ends_the_step)
{
    net *n = make(UNITS, 0, ALL * sizeof(float));
    limit_files(100000);
    tw_status status = TW_OK;
    for (int i = 0; status == TW_OK && i < 2 * UNITS; i++) {
        const int unit = i < UNITS ? i : 2 * UNITS - 1 - i;
        status =
            pager_use(n->pager, begin_of(n, unit), begin_of(n, unit + 1), i < UNITS ? PAGER_FORWARD : PAGER_BACKWARD);
    }
    limit_files(RLIM_INFINITY);
    assert_int_equal(status, TW_ERROR_IO);
    assert_non_null(strstr(tw_last_error(), "cannot be written"));
    give_up(n);
}

RUN_TESTS(NULL, NULL)
