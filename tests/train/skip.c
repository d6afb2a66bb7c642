/* Steps whose gradient is NaN somewhere: nobody takes them, they are counted, and ten in a row end a run. */
#include "toy.h"

#include <math.h>

/* Which steps' gradients are not finite, on worker 1 alone. */
static int is_spoilt(const toy_learner *l, uint64_t step)
{
    const uint64_t *spoilt = ((const toy *)l->base.task)->context;
    return l->base.place.rank == 1 && *spoilt >> step & 1;
}

static float draw_or_spoil(const toy_learner *l, uint64_t step, size_t element)
{
    return is_spoilt(l, step) && element == 5 ? NAN : toy_draw(l, step, element);
}

static void run(toy_run *r, uint64_t spoilt, const char *words)
{
    *r = (toy_run){.toy = {.gradient = draw_or_spoil, .context = &spoilt}};
    toy_play(r, 2, crew_take_all_steps, NULL, NULL, words);
}

/* ---- skipped ----------------------------------------------------------------------------------------------------- */

static double gradient_of(int rank, uint64_t step, size_t element)
{
    toy_learner l = {.base.place.rank = rank};
    return (double)toy_draw(&l, step, element);
}

/* Where momentum and steps of the sum of `ranks` lead that know nothing of the spoilt steps. */
static double walk(int first, int last, uint64_t spoilt, size_t element)
{
    double buffer = 0, way = 0;
    for (uint64_t step = 0; step < 8; step++) {
        double force = 0;
        if (spoilt >> step & 1) continue;
        for (int rank = first; rank <= last; rank++) force += gradient_of(rank, step, element);
        buffer = 0.5 * buffer + force;
        way -= (step < 4 ? (double)(step + 1) / 4 : 1) * buffer;
    }
    return way;
}

TEST(nobody_takes_a_step_with_a_nan)
{
    static const uint64_t spoilt = 1 << 1 | 1 << 2 | 1 << 5;
    toy_run r;
    run(&r, spoilt, "--sync allreduce --momentum 0.5 --warmup 4");
    crew_must_succeed(r.crew, 2);
    for (int rank = 0; rank < 2; rank++)
        for (size_t i = 0; i < TOY_PARAMETERS; i++)
            assert_near((double)r.toy.log[rank].final[i], (double)toy_start(i) + walk(0, 1, spoilt, i) / 2, 1e-5);
}

/* With a gossip the others take their step; the spoilt worker's counts as zero, and its momentum feels nothing. */
TEST(with_gossip_it_is_the_spoilt_workers_step_alone)
{
    static const uint64_t spoilt = 1 << 1 | 1 << 2 | 1 << 5;
    static const char *const specs[] = {"dpsgd", "adpsgd-random"};
    for (size_t s = 0; s < 2; s++) {
        toy_run r;
        char words[64];
        snprintf(words, sizeof words, "--sync %s --momentum 0.5 --warmup 4", specs[s]);
        run(&r, spoilt, words);
        crew_must_succeed(r.crew, 2);
        for (size_t i = 0; i < TOY_PARAMETERS; i++)
            assert_near((double)r.toy.log[0].final[i],
                        (double)toy_start(i) + (walk(0, 0, 0, i) + walk(1, 1, spoilt, i)) / 2, 1e-5);
    }
}

/* ---- counted ----------------------------------------------------------------------------------------------------- */

static tw_status count(crew_member *self)
{
    TW_TRY(crew_take_all_steps(self));
    return worker_totals(&self->worker, &((totals *)self->context)[self->rank]);
}

TEST(skipped_steps_are_counted)
{
    static const struct {
        const char *words;
        double skipped[2];
    } runs[] = {{"--sync allreduce", {3, 3}}, {"--sync topk:min_elements=1", {3, 3}}, {"--sync dpsgd", {0, 3}}};
    for (size_t k = 0; k < 3; k++) {
        uint64_t spoilt = 1 << 1 | 1 << 2 | 1 << 5;
        totals sums[2];
        toy_run r = {.toy = {.gradient = draw_or_spoil, .context = &spoilt}};
        toy_play(&r, 2, count, sums, NULL, runs[k].words);
        crew_must_succeed(r.crew, 2);
        for (int rank = 0; rank < 2; rank++) {
            assert_true(sums[rank].values[TOTAL_STEPS_SKIPPED] == runs[k].skipped[rank]);
            assert_true(sums[rank].values[TOTAL_ITEMS] == 16);
            assert_int_equal(r.toy.log[rank].step_count, 8);
        }
    }
}

/* ---- ten in a row ------------------------------------------------------------------------------------------------ */

#define STRETCH(first, count) ((((uint64_t)1 << (count)) - 1) << (first))

TEST(ten_in_a_row_end_the_run)
{
    static const char *const specs[] = {"allreduce", "dgc:min_elements=1,momentum=0.5"};
    for (size_t s = 0; s < 2; s++) {
        toy_run r;
        char words[128];
        snprintf(words, sizeof words, "--steps 30 --sync %s", specs[s]);
        run(&r, STRETCH(2, 20), words);
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(r.crew[rank].status, TW_ERROR_NONFINITE);
            assert_non_null(strstr(r.crew[rank].text, "10 steps in a row"));
            assert_int_equal(r.toy.log[rank].step_count, 2 + 10);
        }
    }
}

TEST(nine_in_a_row_do_not_even_twice)
{
    toy_run r;
    run(&r, STRETCH(0, 9) | STRETCH(10, 9), "--steps 20 --sync allreduce");
    crew_must_succeed(r.crew, 2);
    assert_int_equal(r.toy.log[0].step_count, 20);
}

/* By itself a worker that gossips cannot end the run in good order: it says that it is lost. */
TEST(with_gossip_a_worker_says_that_it_is_lost)
{
    toy_run r;
    run(&r, STRETCH(2, 20), "--steps 30 --sync adpsgd-random:survive=off");
    crew_must_succeed(r.crew, 2);
    assert_int_equal(r.toy.log[1].step_count, 2 + 10);
    assert_int_equal(r.toy.log[0].step_count, 30);
    assert_int_equal(r.crew[1].worker.spoilt, 1);
    assert_int_equal(r.crew[0].worker.spoilt, 0);
}

RUN_TESTS(NULL, NULL)
