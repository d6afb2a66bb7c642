/* Whole runs in which rank 0 lies in one of its messages, whichever it is: what its word leads to, on the others, is an
 * error or a run, and never memory that is not theirs. */
#include "liar.h"
#include "show.h"

typedef struct scene {
    run_result results[RANKS];
    lie lie;
} scene;

static tw_status run_beside_a_liar(crew_member *self)
{
    scene *all = self->context;
    TW_TRY(liar_take_place(self, &all->lie));
    return run_worker(self->settings, self->work, self->comm, &all->results[self->rank]);
}

static void play_beside_a_liar(void **state, const char *before, const char *words, scene *all)
{
    show s = {.run.toy.validated = true};
    begin_anew(state);
    if (before) play_well(&s, RANKS, *state, before);
    memset(s.run.toy.log, 0, sizeof s.run.toy.log);
    toy_play(&s.run, RANKS, run_beside_a_liar, all, *state, words);
    if (all->lie.at == LIE_NEVER) crew_must_succeed(s.run.crew, RANKS);
}

/* Each message of a run that way, one run for each. `before`: of the run that it goes on; NULL: it is a new one. */
static void lie_in_each(void **state, const char *before, const char *words, int fill, int least)
{
    scene all = {.lie.at = LIE_NEVER};
    play_beside_a_liar(state, before, words, &all);
    const int messages = atomic_load(&all.lie.messages);
    assert_in_range(messages, least, 1000);
    for (int at = 1; at <= messages; at++) {
        all.lie = (lie){.at = at, .fill = fill, .timeout = 0.25};
        play_beside_a_liar(state, before, words, &all);
    }
}

static const int fills[] = {0xff, 'A'};

TEST_IN_FOLDER(no_lie_in_a_run_does_harm)
{
    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++)
        lie_in_each(state, NULL, "--steps 4 --checkpoint-every 2", fills[i], 20);
}

TEST_IN_FOLDER(no_lie_about_a_checkpoint_does_harm)
{
    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++)
        lie_in_each(state, "--steps 2", "--steps 3 --resume", fills[i], 20);
}

RUN_TESTS(NULL, NULL)
