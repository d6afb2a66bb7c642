/* How the program ends: the exit code, and one voice that tells the cause. */
#include "launch.h"
#include "exit.h"
#include "folder.h"
#include "interrupt.h"
#include "support.h"
#include "support/listen.h"
#include "toy.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* What worker 1 does as the third step begins. */
static tw_status meet_fate(toy *t, toy_learner *l, uint64_t step)
{
    tw_status fate = *(const tw_status *)t->context;
    if (step != 2 || l->base.place.rank != 1 || fate == TW_OK) return TW_OK;
    return tw_fail(fate, "worker 1 met its fate");
}

static tw_status disturb(toy *t, toy_learner *l, uint64_t step)
{
    (void)t;
    if (step == 2 && l->base.place.rank == 1) l->parameters[3] += 1;
    return TW_OK;
}

/* Workers talk about stopping before the first step and the second; then they know how long steps take, and talk less.
 * The signal is handled in a thread of its own. */
static tw_status interrupt(toy *t, toy_learner *l, uint64_t step)
{
    (void)t;
    if (step != 0 || l->base.place.rank != 1) return TW_OK;
    kill(getpid(), SIGINT);
    while (!interrupt_asked()) sched_yield();
    return TW_OK;
}

/* Worker 1 gets a signal in the evaluation after the fourth step. The others may have looked by then. */
static tw_status look_and_hear(learner *base, task_split split, size_t part, size_t parts, task_score *score)
{
    toy *t = toy_of(base);
    const toy_log *log = &t->log[base->place.rank];
    if (part == 1 && log->step_count == 4) {
        kill(getpid(), SIGTERM);
        while (!interrupt_asked()) sched_yield();
    }
    return toy_evaluate(base, split, part, parts, score);
}

static tw_status hear_while_loading(const void *settings, task **out)
{
    (void)settings, (void)out;
    kill(getpid(), SIGTERM);
    while (!interrupt_asked()) sched_yield();
    _exit(99); /* the data are there, and nobody had to wait for them */
}

static float spoil(const toy_learner *l, uint64_t step, size_t element)
{
    (void)l, (void)step, (void)element;
    return NAN;
}

/* Launches, and listens: how many lines of ours are said, and whether one has `word`. */
static int launch_and_listen(toy_run *r, int *lines, const char *word)
{
    char line[1024];
    int heard = 0;
    listening l = listen_begin();
    int code = launch(&r->settings);
    FILE *told = listen_end(l);
    for (*lines = 0; fgets(line, sizeof line, told); ++*lines) heard |= strstr(line, word) != NULL;
    fclose(told);
    if (!heard && *word) fail_msg("nobody said '%s'", word);
    return code;
}

static void check_with(toy_run *r, void **state, const char *out, const char *words, int code, const char *word)
{
    int lines;
    char line[400];
    snprintf(line, sizeof line, "--workers 2 --transport threads %s", words);
    toy_begin(r, &toy_task, out, line);
    assert_int_equal(launch_and_listen(r, &lines, word), code);
    assert_int_equal(lines, code != EXIT_DONE && code != EXIT_INTERRUPTED);
    toy_end(r);
}

/* A launch in a process of its own, since one that was interrupted once stays so; its exit code. */
static int launch_apart(const task_ops *ops, const char *out, const char *words)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        toy_run r = {.toy = {.validated = true, .extra = {[8] = 5}}};
        alarm(600);
        toy_begin(&r, ops, out, words);
        _exit(launch(&r.settings));
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended));
    return WEXITSTATUS(ended);
}

/* Of the lines of a run's file those that have `word`, or of all of them what comes behind the word. */
static int count_lines(const char *out, const char *file, const char *word, char rest[64])
{
    char path[FILENAME_MAX + 32], line[8192];
    int count = 0;
    snprintf(path, sizeof path, "%s/%s", out, file);
    FILE *told = fopen(path, "r");
    assert_non_null(told);
    while (fgets(line, sizeof line, told)) {
        const char *found = strstr(line, word);
        count += found != NULL;
        if (found) snprintf(rest, 64, "%.24s", found + strlen(word));
    }
    fclose(told);
    return count;
}

static void check(toy_run *r, void **state, const char *words, int code, const char *word)
{
    check_with(r, state, NULL, words, code, word);
}

/* First: a child of a process that has listened for signals does not hear any. */
TEST(a_signal_while_data_are_read_ends_it_at_once)
{
    task_ops ops = toy_task;
    ops.load = hear_while_loading;
    assert_int_equal(launch_apart(&ops, NULL, "--workers 2 --transport threads"), EXIT_INTERRUPTED);
}

/* The loss is 5 more after epoch 2, and else the same, so the rate falls three times. Were epoch 1 not looked at in the
 * resumed run, it would fall once; were it looked at twice, four times. */
TEST_IN_FOLDER(a_signal_in_an_evaluation_cuts_it_short)
{
    static const char words[] = "--workers 2 --transport threads --steps 16 --schedule plateau:0.5";
    task_ops ops = toy_task;
    ops.evaluate = look_and_hear;
    char whole[FILENAME_MAX], cut[FILENAME_MAX], checkpoint[FOLDER_PATH], expected[64], found[64];
    snprintf(whole, sizeof whole, "%s/whole", (char *)*state);
    snprintf(cut, sizeof cut, "%s/cut", (char *)*state);
    assert_int_equal(launch_apart(&toy_task, whole, words), EXIT_DONE);
    assert_int_equal(launch_apart(&ops, cut, words), EXIT_INTERRUPTED);
    assert_ok(folder_find(cut, 0, checkpoint));
    assert_non_null(strstr(checkpoint, "step-00000004"));
    assert_int_equal(count_lines(cut, "metrics.jsonl", "\"validation_loss\":", found), 0);
    char again[sizeof words + 16];
    snprintf(again, sizeof again, "%s --resume", words);
    assert_int_equal(launch_apart(&toy_task, cut, again), EXIT_DONE);
    int looks = count_lines(whole, "metrics.jsonl", "\"validation_loss\":", expected);
    assert_int_equal(looks, 4);
    assert_int_equal(count_lines(cut, "metrics.jsonl", "\"validation_loss\":", found), looks);
    assert_string_equal(found, expected);
    assert_int_equal(count_lines(whole, "summary.json", "\"weights_crc32c\":", expected), 1);
    assert_int_equal(count_lines(cut, "summary.json", "\"weights_crc32c\":", found), 1);
    assert_string_equal(found, expected);
}

/* The loss is 5 more after epoch 2. Of the epochs that the resumed run looks at that is the first, and the rate would
 * not fall if it did not know the loss of epoch 1. */
TEST_IN_FOLDER(what_was_cut_short_counts_for_the_rate_where_other_epochs_are_looked_at)
{
    static const char words[] = "--workers 2 --transport threads --steps 16 --lr 0.5 --schedule plateau:0.5";
    task_ops ops = toy_task;
    ops.evaluate = look_and_hear;
    char cut[FILENAME_MAX], found[64], again[sizeof words + 32];
    snprintf(cut, sizeof cut, "%s/cut", (char *)*state);
    assert_int_equal(launch_apart(&ops, cut, words), EXIT_INTERRUPTED);
    snprintf(again, sizeof again, "%s --resume --evaluate-every 2", words);
    assert_int_equal(launch_apart(&toy_task, cut, again), EXIT_DONE);
    assert_int_equal(count_lines(cut, "metrics.jsonl", "\"validation_loss\":", found), 3);
    count_lines(cut, "metrics.jsonl", "\"lr\":", found);
    assert_string_equal(found, "0.25}\n");
}

#define GOSSIP "--workers 2 --transport threads --sync dpsgd --checkpoint-every 4 "

/* What is looked at where workers with weights of their own meet. */
TEST_IN_FOLDER(a_signal_in_an_evaluation_of_gossip_cuts_it_short)
{
    task_ops ops = toy_task;
    ops.evaluate = look_and_hear;
    char whole[FILENAME_MAX], cut[FILENAME_MAX], expected[64], found[64];
    snprintf(whole, sizeof whole, "%s/whole", (char *)*state);
    snprintf(cut, sizeof cut, "%s/cut", (char *)*state);
    assert_int_equal(launch_apart(&toy_task, whole, GOSSIP "--steps 16"), EXIT_DONE);
    assert_int_equal(launch_apart(&ops, cut, GOSSIP "--steps 16"), EXIT_INTERRUPTED);
    assert_int_equal(count_lines(cut, "metrics.jsonl", "\"weights\":\"all\"", found), 0);
    assert_int_equal(launch_apart(&toy_task, cut, GOSSIP "--steps 16 --resume"), EXIT_DONE);
    const int looks = count_lines(whole, "metrics.jsonl", "\"weights\":\"all\"", expected);
    assert_true(looks >= 4);
    assert_int_equal(count_lines(cut, "metrics.jsonl", "\"weights\":\"all\"", found), looks);
}

static tw_status load_without_validation(const void *settings, task **out)
{
    TW_TRY(toy_load(settings, out));
    (*out)->has_validation = false;
    return TW_OK;
}

/* It looks at the test set at its end, which is another when it goes on. */
TEST_IN_FOLDER(a_signal_at_the_end_of_gossip_does_not_stop_what_goes_on)
{
    task_ops ops = toy_task, hears = toy_task;
    ops.load = hears.load = load_without_validation;
    hears.evaluate = look_and_hear;
    char out[FILENAME_MAX];
    snprintf(out, sizeof out, "%s/run", (char *)*state);
    assert_int_equal(launch_apart(&hears, out, GOSSIP "--steps 4"), EXIT_INTERRUPTED);
    assert_int_equal(launch_apart(&ops, out, GOSSIP "--steps 12 --resume"), EXIT_DONE);
}

TEST_IN_FOLDER(a_run_that_is_done)
{
    toy_run r = {0};
    check(&r, state, "", EXIT_DONE, "");
    assert_int_equal(r.toy.log[1].step_count, 8);
}

TEST_IN_FOLDER(what_happens_to_one_is_told_as_it_was)
{
    static const struct {
        tw_status fate;
        int code;
    } ends[] = {{TW_ERROR_IO, EXIT_INPUT},
                {TW_ERROR_MEMORY, EXIT_INPUT},
                {TW_ERROR_PEER, EXIT_PEER_LOST},
                {TW_ERROR_PACKET, EXIT_PEER_LOST}};
    static const char *const specs[] = {"", "--sync dpsgd", "--sync adpsgd-random"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        for (size_t s = 0; s < 3; s++) {
            tw_status fate = ends[i].fate;
            toy_run r = {.toy = {.before = meet_fate, .context = &fate}};
            check(&r, state, specs[s], ends[i].code, fate == TW_ERROR_PEER ? "" : "worker 1 met its fate");
        }
    }
}

TEST_IN_FOLDER(a_worker_that_is_silent_for_too_long)
{
    toy_run r = {0};
    check(&r, state, "--timeout 0.2 --pause 1:3:1", EXIT_PEER_LOST, "rank");
}

/* Over threads nobody can tell, so it is the patience that counts. */
TEST_IN_FOLDER(a_worker_that_is_busy_for_longer_is_waited_for)
{
    toy_run r = {0};
    check(&r, state, "--timeout 0.2 --patience 600 --pause 1:3:1", EXIT_DONE, "");
}

TEST_IN_FOLDER(divergence)
{
    static const char *const specs[] = {"allreduce", "dpsgd", "adpsgd-random"};
    for (size_t i = 0; i < 3; i++) {
        toy_run r = {.toy = {.gradient = spoil}};
        char words[64];
        snprintf(words, sizeof words, "--steps 20 --sync %s", specs[i]);
        check(&r, state, words, EXIT_DIVERGED, "diverged");
    }
}

TEST_IN_FOLDER(replicas_that_differ)
{
    toy_run r = {.toy = {.before = disturb}};
    check(&r, state, "--check-every 1", EXIT_DIVERGED, "the replicas differ after step 3");
}

TEST_IN_FOLDER(a_ratio_that_was_not_reached)
{
    toy_run r = {0};
    check(&r, state, "--sync topk:min_elements=1 --expect-ratio 1000", EXIT_INPUT, "--expect-ratio");
}

/* Last: a process that was interrupted once stays so. */
TEST_IN_FOLDER(an_interruption)
{
    toy_run r = {.toy = {.before = interrupt}};
    char out[FILENAME_MAX], checkpoint[FOLDER_PATH];
    snprintf(out, sizeof out, "%s/run", (char *)*state);
    check_with(&r, state, out, "--steps 50", EXIT_INTERRUPTED, "");
    assert_ok(folder_find(out, 0, checkpoint));
    assert_non_null(strstr(checkpoint, "step-00000001"));
    for (int rank = 0; rank < 2; rank++) assert_int_equal(r.toy.log[rank].step_count, 1);
}

RUN_TESTS(NULL, NULL)
