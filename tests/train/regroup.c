/* A run taken over by fewer and by more workers: what was held back, counted and summed is all there, and it goes on at
 * the same place of the same epoch. */
#include "regroup.h"

#include "agree.h"
#include "checkpoint.h"
#include "crew.h"
#include "error.h"
#include "exchange_gradients.h"
#include "folder.h"
#include "replan.h"
#include "small_run.h"
#include "support/parts.h"

#include <math.h>

enum { MOST_THINGS = 256 };

/* One thing that is remembered, weighed so that another order or place shows; `same`: on all ranks. */
typedef struct thing {
    char name[128];
    double sum, size;
    int same;
} thing;

typedef struct things {
    size_t count;
    thing of[MOST_THINGS];
} things;

static tw_status weigh(void *context, const tw_remembered *entry)
{
    things *all = context;
    if (all->count == MOST_THINGS) return TW_ERROR_UNSUPPORTED;
    thing *t = &all->of[all->count++];
    snprintf(t->name, sizeof t->name, "%s/%s", entry->is_piece ? entry->joins : entry->what, entry->tensor);
    t->same = entry->kind == TW_STATE_SAME;
    for (size_t i = 0; i < entry->count && entry->dtype == TW_F32; i++) {
        double value = (double)((entry->first + i) % 97 + 1) * (double)((const float *)entry->data)[i];
        t->sum += value;
        t->size += fabs(value);
    }
    if (entry->dtype == TW_U64) t->sum = (double)*(const uint64_t *)entry->data;
    return TW_OK;
}

/* What all workers of a group had, when it began and when it saved. */
typedef struct record {
    things begun[CREW_MOST], saved[CREW_MOST];
    double items[CREW_MOST], sent[CREW_MOST], epoch_items[CREW_MOST], saved_items[CREW_MOST], saved_sent[CREW_MOST];
    double saved_epoch_items[CREW_MOST];
    float statistics[CREW_MOST], saved_mean[CREW_MOST];
    uint64_t from, steps;
} record;

static tw_status look(worker *w, things *all, double *items, double *sent, double *epoch_items)
{
    totals sums;
    TW_TRY(worker_totals(w, &sums));
    *items = sums.values[TOTAL_ITEMS];
    *sent = sums.values[TOTAL_BYTES_SENT];
    *epoch_items = w->epoch_score.count;
    return tw_reducer_visit_state(reducer_of(w), weigh, all);
}

static tw_status play(crew_member *self)
{
    record *r = self->context;
    int rank = self->rank;
    worker *w = &self->worker;
    double loss;
    TW_TRY(crew_create_worker(self));
    if (self->settings->resume) TW_TRY(checkpoint_resume(w));
    TW_TRY(worker_begin(w));
    r->from = w->step;
    if (w->learner->buffer_count) r->statistics[rank] = w->learner->buffers[0];
    TW_TRY(look(w, &r->begun[rank], &r->items[rank], &r->sent[rank], &r->epoch_items[rank]));
    for (uint64_t i = 0; i < r->steps; i++) TW_TRY(worker_step(w, &loss));
    TW_TRY(look(w, &r->saved[rank], &r->saved_items[rank], &r->saved_sent[rank], &r->saved_epoch_items[rank]));
    TW_TRY(checkpoint_write(w));
    if (w->learner->buffer_count) r->saved_mean[rank] = w->mean_buffers[0];
    return worker_check_replicas(w);
}

static record *go_on(small_run *run, int size, char *resume, uint64_t steps)
{
    crew_member crew[CREW_MOST];
    record *r = calloc(1, sizeof *r);
    r->steps = steps;
    run->settings.resume = resume;
    crew_run(crew, size, (crew_member){.play = play, .settings = &run->settings, .work = run->work, .context = r});
    crew_must_succeed(crew, size);
    run->settings.resume = NULL;
    return r;
}

/* The sum over the ranks, or what all have. */
static thing sum_of(const things *each, int size, const char *name)
{
    thing all = {0};
    for (int rank = 0; rank < size; rank++)
        for (size_t i = 0; i < each[rank].count; i++) {
            const thing *t = &each[rank].of[i];
            if (strcmp(t->name, name) != 0 || (t->same && rank > 0)) continue;
            all.sum += t->sum;
            all.size += t->size;
        }
    return all;
}

static double add(const double *each, int size)
{
    double sum = 0;
    for (int rank = 0; rank < size; rank++) sum += each[rank];
    return sum;
}

static void compare_states(const record *before, int old_size, const record *after, int size)
{
    for (size_t i = 0; i < before->saved[0].count; i++) {
        const char *name = before->saved[0].of[i].name;
        thing was = sum_of(before->saved, old_size, name), is = sum_of(after->begun, size, name);
        if (!(fabs(was.sum - is.sum) <= 1e-6 * was.size))
            fail_msg("%s: %.9g of %d workers, %.9g of %d", name, was.sum, old_size, is.sum, size);
    }
}

static void compare(const record *before, int old_size, const record *after, int size)
{
    compare_states(before, old_size, after, size);
    assert_near(add(after->items, size), add(before->saved_items, old_size), 1e-9);
    assert_near(add(after->epoch_items, size), add(before->saved_epoch_items, old_size), 1e-9);
    double agreement = 48 * log2(size), numbers = 48.0 * (size - 1) / size; /* bytes that a create has sent by now */
    assert_near(add(after->sent, size) / size, add(before->saved_sent, old_size) / old_size + agreement + numbers,
                1e-6);
    for (int rank = 0; rank < size; rank++) assert_true(after->statistics[rank] == before->saved_mean[0]);
}

/* 4 workers have 4 steps an epoch, 2 have 8 and 8 have 2: what is in the middle of one stays there, and two of eight
 * steps are less than one of two. */
static void take_over(char *out, const char *model, const char *sync)
{
    small_run own;
    small_run_begin(&own, out, model);
    small_run run = own;
    run.settings.batch = 2;
    run.settings.sync = (char *)(uintptr_t)sync;
    record *four = go_on(&run, 4, NULL, 6), *two = go_on(&run, 2, (char *)"", 2),
           *eight = go_on(&run, 8, (char *)"", 1);
    assert_int_equal(two->from, 12);
    assert_int_equal(eight->from, 3);
    assert_true(four->saved[0].count > 1);
    compare(four, 4, two, 2);
    compare(two, 2, eight, 8);
    free(four);
    free(two);
    free(eight);
    small_run_end(&own);
}

TEST_IN_FOLDER(what_schemes_remember_is_taken_over)
{
    static const char *const runs[][2] = {
        {"cnn", "dgc:density=0.05,momentum=0.5"},
        {"resnet20", "powersgd:warmup_steps=0"}, /* running statistics are, too */
        {"cnn", "sign:exchange=scatter"},        /* pieces of sums */
        {"cnn", "sdagc"},                        /* has momentum, and the trainer gives it none of its own */
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i += (size_t)in_part(2, 1)) {
        take_over(*state, runs[i][0], runs[i][1]);
        remove_folder(state);
        make_folder(state);
    }
}

/* A length in steps counts steps. */
TEST_IN_FOLDER(steps_stay_steps)
{
    small_run run;
    small_run_begin(&run, *state, "cnn");
    run.settings.batch = 2;
    run.settings.steps = 10;
    record *four = go_on(&run, 4, NULL, 6), *two = go_on(&run, 2, (char *)"", 1);
    assert_int_equal(two->from, 6);
    compare(four, 4, two, 2);
    free(four);
    free(two);
    small_run_end(&run);
}

/* ---- a run that changed its spec --------------------------------------------------------------------------------- */

typedef struct spec_record {
    uint64_t steps;
    char at_first[CHANGES_SPEC], at_last[CHANGES_SPEC], changes[256]; /* rank 0's */
} spec_record;

static tw_status play_changes(crew_member *self)
{
    spec_record *r = self->context;
    worker *w = &self->worker;
    replan planned;
    double loss;
    TW_TRY(crew_create_worker(self));
    if (self->settings->resume) TW_TRY(checkpoint_resume(w));
    TW_TRY(worker_begin(w));
    TW_TRY(replan_begin(&planned, w));
    if (self->rank == 0) snprintf(r->at_first, sizeof r->at_first, "%s", w->sync);
    for (uint64_t i = 0; i < r->steps; i++) {
        TW_TRY(replan_before_step(&planned, w));
        TW_TRY(worker_step(w, &loss));
    }
    if (self->rank == 0) snprintf(r->at_last, sizeof r->at_last, "%s", w->sync);
    const char *text = w->settings.planned_changes;
    if (self->rank == 0) snprintf(r->changes, sizeof r->changes, "%s", text ? text : "");
    return checkpoint_write(w);
}

/* A resumed run has the spec at first, and at last; `planned` is what its config.yaml says. */
static void go_on_by(small_run *run, int size, const char *planned, uint64_t steps, const char *specs)
{
    crew_member crew[CREW_MOST];
    spec_record r = {.steps = steps};
    char found[1024];
    run->settings.planned_changes = (char *)(uintptr_t)planned;
    crew_run(crew, size,
             (crew_member){.play = play_changes, .settings = &run->settings, .work = run->work, .context = &r});
    crew_must_succeed(crew, size);
    snprintf(found, sizeof found, "%s to %s: %s", r.at_first, r.at_last, r.changes);
    assert_string_equal(found, specs);
    run->settings.resume = (char *)"";
    run->settings.planned_changes = NULL;
}

/* 4 workers have 4 steps an epoch, 8 have 2: step 6 is step 3, and what was changed before it stays changed. What was
 * to come counts other steps. A checkpoint knows all that without its run's config.yaml. */
TEST_IN_FOLDER(the_spec_in_force_is)
{
    small_run own;
    small_run_begin(&own, *state, "cnn");
    small_run run = own;
    run.settings.batch = 2;
    run.settings.sync = (char *)"bf16";
    go_on_by(&run, 4, "2 qsgd; 5 allreduce; 9 qsgd", 6, "bf16 to allreduce: 2 qsgd; 5 allreduce; 9 qsgd");
    go_on_by(&run, 8, "2 qsgd; 5 allreduce; 9 qsgd", 1, "allreduce to allreduce: 1 qsgd; 2 allreduce");
    go_on_by(&run, 8, "1 qsgd; 2 allreduce; 4 bf16", 2, "allreduce to bf16: 1 qsgd; 2 allreduce; 4 bf16");
    go_on_by(&run, 8, NULL, 1, "bf16 to bf16: 1 qsgd; 2 allreduce; 4 bf16");
    small_run_end(&own);
}

static void refuse(small_run *run, tw_status status, const char *word)
{
    crew_member crew[CREW_MOST];
    record *r = calloc(1, sizeof *r);
    run->settings.resume = (char *)"";
    crew_run(crew, 2, (crew_member){.play = play, .settings = &run->settings, .work = run->work, .context = r});
    run->settings.resume = NULL;
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(crew[rank].status, status);
        if (!strstr(crew[rank].text, word)) fail_msg("\"%s\" should say \"%s\"", crew[rank].text, word);
    }
    free(r);
}

/* Files of workers that are no more are looked at as well as the others'. */
TEST_IN_FOLDER(files_that_do_not_belong_are_refused)
{
    small_run run;
    char first[CHECKPOINT_PATH], last[CHECKPOINT_PATH], folder[FOLDER_PATH];
    tw_state *other;
    small_run_begin(&run, *state, "cnn");
    run.settings.batch = 2;
    free(go_on(&run, 4, NULL, 6));
    snprintf(folder, sizeof folder, "%s/checkpoints/step-00000006", run.settings.out);
    assert_ok(tw_state_load(folder_worker(folder, 3, last), &other));
    assert_int_equal(unlink(last), 0);
    refuse(&run, TW_ERROR_IO, "worker-3.safetensors is missing");
    assert_int_equal(link(folder_worker(folder, 2, first), last), 0);
    refuse(&run, TW_ERROR_STATE, "does not belong to the model.safetensors beside it: its rank is 2, it should be 3");
    assert_int_equal(unlink(last), 0);
    assert_ok(tw_state_put(other, "step", TW_U64, 1, (size_t[]){1}, &(uint64_t){5}));
    assert_ok(checksum_put(other));
    assert_ok(tw_state_save(other, last));
    refuse(&run, TW_ERROR_STATE, "worker-3.safetensors is of step 5, the model beside it of step 6");
    tw_state_destroy(other);
    small_run_end(&run);
}

/* What is dropped is what the lost workers held, and the rest is all there; they count as having done as much as the
 * others. */
static void go_on_without(const char *sync, int size)
{
    enum { LOST = 2, LEFT = 3 };
    void *out;
    char path[CHECKPOINT_PATH], folder[FOLDER_PATH];
    small_run own;
    assert_int_equal(make_folder(&out), 0);
    small_run_begin(&own, out, "cnn");
    small_run run = own;
    run.settings.batch = 2;
    run.settings.sync = (char *)(uintptr_t)sync;
    record *four = go_on(&run, 4, NULL, 6);
    snprintf(folder, sizeof folder, "%s/checkpoints/step-00000006", run.settings.out);
    assert_int_equal(unlink(folder_worker(folder, LOST, path)), 0);
    refuse(&run, TW_ERROR_IO, "worker-2.safetensors is missing: the checkpoint is incomplete; where its disk is gone");
    run.settings.forget_lost = true;
    record *rest = go_on(&run, size, (char *)"", 1);
    for (size_t i = 0; i < four->saved[LOST].count; i++)
        if (!four->saved[LOST].of[i].same) four->saved[LOST].of[i].sum = 0;
    compare_states(four, 4, rest, size);
    assert_near(add(rest->items, size), add(four->saved_items, 4), 1e-9);
    assert_near(add(rest->epoch_items, size) * 4, add(four->saved_epoch_items, 4) * LEFT, 1e-9);
    free(four);
    free(rest);
    small_run_end(&own);
    assert_int_equal(remove_folder(&out), 0);
}

TEST(of_lost_workers_only_theirs_is_dropped)
{
    static const char *const syncs[] = {"dgc:density=0.05,momentum=0.5", "sdagc", "sign:exchange=scatter"};
    for (size_t i = 0; i < sizeof syncs / sizeof *syncs; i += (size_t)in_part(2, 1))
        for (int size = 1; size <= in_part(2, 4); size *= 2) go_on_without(syncs[i], size);
}

/* Copies what is in a file but those of a later version. */
static void age(const char *path, const char *const *later, int is_workers)
{
    tw_state *young, *old;
    tw_state_entry entry;
    const char *key, *value;
    assert_ok(tw_state_load(path, &young));
    assert_ok(tw_state_create(&old));
    for (size_t i = 0; i < tw_state_count(young); i++) {
        assert_ok(tw_state_at(young, i, &entry));
        if (strcmp(entry.name, "steps_per_epoch") != 0)
            assert_ok(tw_state_put(old, entry.name, entry.dtype, entry.dims, entry.shape, entry.data));
    }
    for (size_t i = 0; (key = tw_state_text_at(young, i, &value)); i++) {
        int known = !is_workers || strcmp(key, "workers") != 0;
        for (const char *const *l = later; *l; l++) known &= strcmp(key, *l) != 0;
        if (known) assert_ok(tw_state_put_text(old, key, value));
    }
    assert_ok(checksum_put(old));
    assert_ok(tw_state_save(old, path));
    tw_state_destroy(young);
    tw_state_destroy(old);
}

/* They do not say how long an epoch is; that follows from the number of workers. */
TEST_IN_FOLDER(a_checkpoint_of_version_0_1_is_taken_over)
{
    static const char *const later[] = {
        "run", "rank", "model checksum", "checksum of texts", "what is in the training data", NULL};
    small_run run;
    char path[CHECKPOINT_PATH], folder[FOLDER_PATH];
    small_run_begin(&run, *state, "cnn");
    run.settings.batch = 2;
    record *four = go_on(&run, 4, NULL, 6);
    snprintf(folder, sizeof folder, "%s/checkpoints/step-00000006", run.settings.out);
    age(folder_model(folder, path), later, 0);
    for (int rank = 0; rank < 4; rank++) age(folder_worker(folder, rank, path), later, 1);
    record *two = go_on(&run, 2, (char *)"", 1);
    assert_int_equal(two->from, 12);
    compare(four, 4, two, 2);
    free(four);
    free(two);
    small_run_end(&run);
}

RUN_TESTS(NULL, NULL)
