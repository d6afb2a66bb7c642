#include "checkpoint.h"
#include "agree.h"
#include "base.h"
#include "best.h"
#include "checkpoint_files.h"
#include "error.h"
#include "exchange.h"
#include "model_file.h"
#include "moments.h"
#include "regroup.h"
#include "regular_file.h"
#include "tensor_table.h"
#include "worker_file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TASK "task."
#define CHANGES "planned changes" /* those before its step: see changes.h */
#define PENDING "pending"
#define HELD_OUT "checksum of the validation data"
#define UNSEEN "unseen" /* there where the evaluation after this step was cut short: see worker.h */

static tw_status put_step(tw_state *state, uint64_t step)
{
    return tw_state_put(state, "step", TW_U64, 0, NULL, &step);
}

/* What a checkpoint and the run that resumes it must agree on: settings, and the data. */
enum { IDENTITY = SETTINGS_IDENTITY + 2 };
#define CONTENT "what is in the training data" /* which earlier versions do not say */

static size_t checkpoint_identify(const worker *w, setting_text identity[IDENTITY])
{
    size_t count = settings_identity(&w->settings, w->size, identity);
    identity[count++] = (setting_text){.key = "training data", .value = w->task->identity};
    if (*w->task->content) identity[count++] = (setting_text){.key = CONTENT, .value = w->task->content};
    return count;
}

/* Beside a setting stands what it meant then, where it leaves things out: a later version may have other defaults. */
static const char *key_in_full(const setting_text *setting, char key[64])
{
    snprintf(key, 64, "%s in full", setting->key);
    return key;
}

static tw_status put_setting(const setting_text *setting, tw_state *state)
{
    char key[64], *full;
    TW_TRY(tw_state_put_text(state, setting->key, setting->value));
    if (!setting->row || !setting->row->in_full) return TW_OK;
    full = setting->row->in_full(setting->value);
    tw_status status = full ? tw_state_put_text(state, key_in_full(setting, key), full) : TW_OK;
    free(full);
    return status;
}

static tw_status put_unseen(const worker *w, tw_state *state)
{
    return w->unseen ? tw_state_put(state, UNSEEN, TW_U64, 0, NULL, &(uint64_t){1}) : TW_OK;
}

static tw_status put_held_out(const worker *w, tw_state *state)
{
    const uint64_t sum = w->task->held_out;
    return tw_state_put(state, HELD_OUT, TW_U64, 0, NULL, &sum);
}

/* Figures of other validation data say nothing beside those to come. Earlier versions do not say of which theirs are.
 */
static void check_held_out(worker *w, const tw_state *state, const char *path)
{
    uint64_t then;
    if (tw_state_get(state, HELD_OUT, TW_U64, 1, &then) != TW_OK || then == w->task->held_out) return;
    if (w->best.step > 0)
        fprintf(
            stderr,
            "thinwire: %s was written with other validation data, by which step %llu was the best; the best is chosen "
            "anew\n",
            path, (unsigned long long)w->best.step);
    w->best = (best_checkpoint){0};
    w->schedule.best_loss = INFINITY;
}

/* A run that goes on knows its spec by these, whatever its config.yaml says, or whether there is one. */
static tw_status put_changes(const worker *w, uint64_t step, tw_state *state)
{
    run_changes made = w->changes;
    while (made.count > 0 && made.all[made.count - 1].step >= step) made.count--;
    if (made.count == 0) return TW_OK;
    char *text = changes_text(&made);
    tw_status status = text ? tw_state_put_text(state, CHANGES, text) : tw_fail(TW_ERROR_MEMORY, "no memory");
    free(text);
    return status;
}

/* Of the learner's buffers, those that a checkpoint holds. */
static size_t kept_buffers(const learner *l)
{
    return l->based ? 0 : l->buffer_tensor_count;
}

/* `step`: the checkpoint's, where by gossip each worker has one of its own. */
static tw_status pack_model(worker *w, uint64_t step, tw_state *state)
{
    const learner *l = w->learner;
    setting_text identity[IDENTITY];
    size_t count = checkpoint_identify(w, identity);
    for (size_t i = 0; i < count; i++) TW_TRY(put_setting(&identity[i], state));
    if (w->task->ops->describe) TW_TRY(w->task->ops->describe(l, state));
    double plateau[] = {w->schedule.best_loss, w->schedule.falls};
    TW_TRY(put_step(state, step));
    TW_TRY(tw_state_put(state, "steps_per_epoch", TW_U64, 0, NULL, &w->steps_per_epoch));
    TW_TRY(tw_state_put(state, "plateau", TW_F64, 1, (size_t[]){2}, plateau));
    TW_TRY(best_put(&w->best, state));
    TW_TRY(put_held_out(w, state));
    TW_TRY(put_changes(w, step, state));
    TW_TRY(put_unseen(w, state));
    TW_TRY(base_put(w, state));
    TW_TRY(tensor_table_put(state, "", l->tensors, l->tensor_count, l->parameters));
    if (w->exchange->replicas) TW_TRY(optimiser_save(w->optimiser, state));
    return tensor_table_put(state, "", l->buffer_tensors, kept_buffers(l), w->mean_buffers);
}

/* A checkpoint, and what all ranks learn of its model file. */
typedef struct place {
    char folder[FOLDER_PATH]; /* on this rank's disk */
    size_t newer;             /* checkpoints of the run */
    uint64_t number;          /* in the folder's name */
    int has_model, has_older; /* the model file is there; so is an older checkpoint */
    int forgets;              /* what is lost does not keep the run from going on */
    uint64_t step;            /* to go on from; */
    uint64_t written;         /* the file's own: as many epochs, of so many steps each, may be other steps here */
    uint64_t steps_per_epoch;
    char moves[SYNC_MOST]; /* the --sync that kept Adam's moments elsewhere: see moments.h; "": they stay */
    int unseen;
    run_changes changes;     /* made by the step that it says */
    double best_loss, falls; /* of the schedule */
    best_checkpoint best;
    stamp stamp;
} place;

/* Where the file does not say what its text meant, it means what it does today. */
static tw_status check_setting(const setting_text *wanted, const tw_state *state, const char *path)
{
    char key[64];
    const char *stored = tw_state_text(state, wanted->key);
    const char *full = tw_state_text(state, key_in_full(wanted, key));
    const option_row none = {0}, *row = wanted->row ? wanted->row : &none;
    if (!stored) stored = row->older;
    if (!stored) return tw_fail(TW_ERROR_STATE, "%s does not say its %s", path, wanted->key);
    if (options_same(row, row->in_full && full ? full : stored, wanted->value)) return TW_OK;
    if (strcmp(stored, wanted->value) == 0) /* the defaults have changed since */
        return tw_fail(TW_ERROR_STATE, "%s was written when %s %s meant %s; write that out to go on with it", path,
                       wanted->key, stored, full);
    return tw_fail(TW_ERROR_STATE, "%s was written with %s %s, but this run has %s %s%s", path, wanted->key, stored,
                   wanted->key, wanted->value,
                   wanted->row ? "" : "; the data, or an option that shapes them, must be as they were");
}

/* As many may go on as there are: see regroup.h, and by gossip join_late. */
static bool may_differ(const setting_text *setting, const tw_state *state)
{
    if (strcmp(setting->key, CONTENT) == 0) return !tw_state_text(state, CONTENT);
    return strcmp(setting->key, "workers") == 0;
}

static int moves(const worker *w, const setting_text *wanted, const tw_state *state, place *found)
{
    const char *before = tw_state_text(state, wanted->key);
    int is_sync = before && wanted->row && wanted->row->offset == offsetof(train_settings, sync);
    if (!is_sync || strlen(before) >= SYNC_MOST) return 0;
    if (!moments_may_move(w->settings.optimizer, before, wanted->value)) return 0;
    snprintf(found->moves, sizeof found->moves, "%s", before);
    return 1;
}

static tw_status check_identity(const worker *w, const tw_state *state, const char *path, place *found)
{
    setting_text identity[IDENTITY];
    size_t count = checkpoint_identify(w, identity);
    for (size_t i = 0; i < count; i++) {
        if (may_differ(&identity[i], state)) continue;
        tw_status status = check_setting(&identity[i], state, path);
        if (status != TW_OK && !moves(w, &identity[i], state, found)) return status;
    }
    return TW_OK;
}

static tw_status get_changes(const worker *w, const tw_state *state, run_changes *changes)
{
    TW_TRY(worker_read_changes(w, tw_state_text(state, CHANGES), changes));
    if (changes->count == 0 || changes->all[changes->count - 1].step < w->step) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "it is of step %llu, and says that its run has changed to %s at a later one",
                   (unsigned long long)w->step, changes->all[changes->count - 1].spec);
}

static tw_status unpack_model(worker *w, const tw_state *state, place *found)
{
    learner *l = w->learner;
    double plateau[2];
    TW_TRY(tw_state_get(state, "step", TW_U64, 1, &w->step));
    TW_TRY(tw_state_get(state, "plateau", TW_F64, 2, plateau));
    w->schedule.best_loss = plateau[0];
    w->schedule.falls = plateau[1];
    TW_TRY(best_get(state, w->step, &w->best));
    TW_TRY(base_get(w, state));
    w->unseen = tw_state_get(state, UNSEEN, TW_U64, 1, &(uint64_t){0}) == TW_OK;
    TW_TRY(tensor_table_get(state, "", l->tensors, l->tensor_count, l->parameters));
    TW_TRY(get_changes(w, state, &found->changes));
    const int has_moments = worker_way_before(w, &found->changes, w->step)->replicas && !*found->moves;
    return has_moments ? optimiser_load(w->optimiser, state) : TW_OK;
}

static tw_status pack_own(worker *w, tw_state *state)
{
    if (!w->exchange->replicas) TW_TRY(optimiser_save(w->optimiser, state));
    return w->exchange->save ? w->exchange->save(w, WORKER_FILE_SCHEME, state) : TW_OK;
}

static tw_status unpack_own(worker *w, const tw_state *state, const place *found)
{
    if (*found->moves) return TW_OK;
    if (!w->exchange->replicas) TW_TRY(optimiser_load(w->optimiser, state));
    return w->exchange->load ? w->exchange->load(w, WORKER_FILE_SCHEME, state) : TW_OK;
}

/* There is any where a step was skipped right after a change of --sync. */
static tw_status pack_pending(const worker *w, tw_state *state)
{
    const learner *l = w->learner;
    TW_TRY(tw_state_put(state, PENDING, TW_U64, 1, (size_t[]){1}, &(uint64_t){1}));
    return tensor_table_put(state, PENDING ".", l->tensors, l->tensor_count, w->pending);
}

tw_status checkpoint_pack_worker(worker *w, tw_state *state)
{
    const learner *l = w->learner;
    const task_score *e = &w->epoch_score;
    double epoch[EPOCH_COUNT] = {e->loss, e->count};
    memcpy(&epoch[EPOCH_PARTS], e->parts, sizeof e->parts);
    epoch[EPOCH_SKIPPED] = w->skipped_in_a_row;
    totals sums;
    TW_TRY(worker_totals(w, &sums));
    TW_TRY(put_step(state, w->step));
    TW_TRY(worker_file_put_sums(state, &sums, epoch));
    TW_TRY(tensor_table_put(state, "", l->buffer_tensors, kept_buffers(l), l->buffers));
    if (w->task->ops->save) TW_TRY(w->task->ops->save(l, TASK, state));
    if (w->pending) TW_TRY(pack_pending(w, state));
    return pack_own(w, state);
}

uint64_t checkpoint_find_step(const worker *w, uint64_t written, uint64_t steps_per_epoch)
{
    uint64_t rest = written % steps_per_epoch;
    if (w->settings.steps > 0 || steps_per_epoch == w->steps_per_epoch) return written;
    return written / steps_per_epoch * w->steps_per_epoch + rest * w->steps_per_epoch / steps_per_epoch;
}

static tw_status unpack_pending(worker *w, const tw_state *state)
{
    const learner *l = w->learner;
    if (tw_state_get(state, PENDING, TW_U64, 1, &(uint64_t){0}) != TW_OK) return TW_OK;
    free(w->pending);
    w->pending = calloc(l->parameter_count, sizeof *w->pending);
    if (!w->pending) return tw_fail(TW_ERROR_MEMORY, "no memory for what --sync had held back");
    return tensor_table_get(state, PENDING ".", l->tensors, l->tensor_count, w->pending);
}

tw_status checkpoint_unpack_worker(worker *w, const tw_state *state)
{
    double epoch[EPOCH_COUNT];
    learner *l = w->learner;
    TW_TRY(worker_file_get_sums(state, &w->before, epoch));
    TW_TRY(tensor_table_get(state, "", l->buffer_tensors, kept_buffers(l), l->buffers));
    if (w->task->ops->restore) TW_TRY(w->task->ops->restore(l, TASK, state));
    TW_TRY(unpack_pending(w, state));
    worker_file_resume_epoch(w, epoch);
    return TW_OK;
}

static tw_status unpack_worker(worker *w, const tw_state *state, const place *found)
{
    uint64_t step;
    TW_TRY(tw_state_get(state, "step", TW_U64, 1, &step));
    if (!w->exchange->replicas)
        w->step = checkpoint_find_step(w, step, found->steps_per_epoch);
    else if (step != found->written)
        return tw_fail(TW_ERROR_STATE, "it is of step %llu, the model beside it of step %llu", (unsigned long long)step,
                       (unsigned long long)found->written);
    TW_TRY(checkpoint_unpack_worker(w, state));
    return unpack_own(w, state, found);
}

/* --- writing -------------------------------------------------------------------------------------------------- */

/* All of the model file but its place on the disk. */
static tw_status complete_model(worker *w, uint64_t step, tw_state **out, stamp *s)
{
    TW_TRY(tw_state_create(out));
    TW_TRY(pack_model(w, step, *out));
    TW_TRY(stamp_put_run(w->run, *out));
    TW_TRY(checksum_put(*out));
    stamp_read(*out, w->size, s);
    return TW_OK;
}

static tw_status pack_and_save_worker(worker *w, const stamp *s, tw_state *state, const char *path)
{
    TW_TRY(checkpoint_pack_worker(w, state));
    TW_TRY(stamp_put(s, w->rank, state));
    TW_TRY(checksum_put(state));
    return tw_state_save(state, path);
}

static tw_status save_worker(worker *w, const stamp *s, const char *folder)
{
    char path[CHECKPOINT_PATH];
    tw_state *state;
    TW_TRY(tw_state_create(&state));
    tw_status status = pack_and_save_worker(w, s, state, folder_worker(folder, w->rank, path));
    tw_state_destroy(state);
    return status;
}

/* A machine may be gone for good: so each disk has the model. All ranks have it, and the first on each disk writes it.
 */
static tw_status copy_model(worker *w, const stamp *s, uint64_t step, const char *path)
{
    stamp own = {0};
    tw_state *model = NULL;
    tw_status status = complete_model(w, step, &model, &own);
    if (status == TW_OK && strcmp(own.model, s->model) != 0)
        status = tw_fail(TW_ERROR_STATE, "rank %d has another model than rank 0: %s would have checksum %s, not %s",
                         w->rank, path, own.model, s->model);
    if (status == TW_OK) status = tw_state_save(model, path);
    tw_state_destroy(model);
    return status;
}

/* `model`: rank 0's, else NULL. */
static tw_status save_files(worker *w, tw_state *model, const stamp *s, uint64_t step, const char *folder)
{
    char path[CHECKPOINT_PATH];
    TW_TRY(save_worker(w, s, folder));
    folder_model(folder, path);
    if (model) return tw_state_save(model, path);
    return w->first_on_disk && !w->exchange->staged ? copy_model(w, s, step, path) : TW_OK;
}

static tw_status write_files(worker *w, uint64_t step, const char *folder)
{
    tw_state *model = NULL;
    stamp s = {0};
    if (w->rank == 0 && !*w->run) stamp_name_run(w->run);
    tw_status status = agree_status(w, w->rank == 0 ? complete_model(w, step, &model, &s) : TW_OK);
    if (status == TW_OK) status = tw_comm_broadcast(w->comm, 0, &s, sizeof s);
    if (status == TW_OK) status = stamp_hear(&s);
    if (status == TW_OK) memcpy(w->run, s.run, sizeof w->run);
    if (status == TW_OK) status = agree_status(w, save_files(w, model, &s, step, folder));
    tw_state_destroy(model);
    return status;
}

/* Which step, and which one stays beside it: the same on every rank, whatever each finds on its own disk. */
typedef struct plan {
    uint64_t step, kept, best;
} plan;

static tw_status make_plan(worker *w, plan *p)
{
    *p = (plan){.step = w->step, .best = w->best.step};
    if (w->rank == 0) p->kept = folder_kept(w->settings.out, p->step);
    return tw_comm_broadcast(w->comm, 0, p, sizeof *p);
}

static tw_status write_folder(worker *w, const plan *p, char partial[FOLDER_PATH])
{
    const char *out = w->settings.out;
    TW_TRY(agree_status(w, folder_begin(out, p->step, partial)));
    TW_TRY(write_files(w, p->step, partial));
    TW_TRY(agree_status(w, best_rename(w)));
    w->best.folder = w->best.step;
    TW_TRY(agree_status(w, folder_give_way(out, p->step)));
    return agree_status(w, folder_publish(out, p->step, p->kept, p->best));
}

/* Whether it failed because the run folder was moved or removed while it wrote. *vanished: the same on all ranks. */
static tw_status find_vanished(worker *w, tw_status status, const char *partial, int *vanished)
{
    *vanished = 0;
    if (status != TW_ERROR_IO || !w->agreed) return TW_OK;
    *vanished = !path_exists(partial);
    return agree_any(w->comm, vanished);
}

/* A person looks for the file where it was to be, not in the folder where it grows. */
static tw_status name_finished(tw_status status, const char *partial)
{
    char text[1024], *at;
    snprintf(text, sizeof text, "%s", tw_last_error());
    at = *partial ? strstr(text, partial) : NULL;
    char *behind = at ? at + strlen(partial) : text;
    if (at && *behind == '/') memmove(behind - strlen(FOLDER_PARTIAL), behind, strlen(behind) + 1);
    return tw_fail(status, "%s", text);
}

/* A folder that has vanished is made again. */
tw_status checkpoint_write(worker *w)
{
    if (!w->settings.out) return TW_OK;
    TW_TRY(agree_status(w, worker_settle(w)));
    char partial[FOLDER_PATH] = "";
    int vanished;
    plan p;
    TW_TRY(make_plan(w, &p));
    TW_TRY(worker_average_buffers(w));
    tw_status status = write_folder(w, &p, partial);
    TW_TRY(find_vanished(w, status, partial, &vanished));
    if (vanished) {
        w->agreed = 0;
        status = write_folder(w, &p, partial);
    }
    if (status == TW_OK) return TW_OK;
    status = name_finished(status, partial);
    folder_abandon(w->settings.out, p.step);
    return status;
}

/* --- reading -------------------------------------------------------------------------------------------------- */

/* An older file does not say how many steps its epochs had: about as many fewer as there were more workers. */
static uint64_t read_epoch(const worker *w, const tw_state *state, int workers)
{
    uint64_t steps;
    if (tw_state_get(state, "steps_per_epoch", TW_U64, 1, &steps) != TW_OK || steps == 0 || steps > UINT32_MAX)
        steps = w->steps_per_epoch * (uint64_t)w->size / (uint64_t)workers;
    return steps ? steps : 1;
}

static tw_status check_workers(const stamp *s, const char *path)
{
    if (s->workers >= 1 && s->workers <= WORKERS_MOST) return TW_OK;
    return tw_fail(TW_ERROR_STATE, "%s says that it is of %d workers; there are 1 to %d", path, s->workers,
                   WORKERS_MOST);
}

static tw_status load_model(worker *w, place *found)
{
    char path[CHECKPOINT_PATH];
    tw_state *state;
    TW_TRY(checksum_load(folder_model(found->folder, path), &state));
    tw_status status = check_identity(w, state, path, found);
    if (status == TW_OK) status = model_file_named(path, unpack_model(w, state, found));
    stamp_read(state, w->size, &found->stamp);
    if (status == TW_OK) status = check_workers(&found->stamp, path);
    if (status == TW_OK) found->steps_per_epoch = read_epoch(w, state, found->stamp.workers);
    if (status == TW_OK) check_held_out(w, state, path);
    tw_state_destroy(state);
    TW_TRY(status);
    found->written = w->step;
    found->step = w->step = checkpoint_find_step(w, found->written, found->steps_per_epoch);
    found->best_loss = w->schedule.best_loss;
    found->falls = w->schedule.falls;
    best_convert(w, checkpoint_find_step(w, w->best.step, found->steps_per_epoch));
    best_check(w);
    found->best = w->best;
    found->unseen = w->unseen;
    if (w->step <= w->steps) return TW_OK;
    return tw_fail(TW_ERROR_STATE, "%s has %llu steps behind it, but this run ends after %llu", path,
                   (unsigned long long)w->step, (unsigned long long)w->steps);
}

/* The file of the worker that it was, or whose place it takes. */
static tw_status load_worker(worker *w, const place *found, int old)
{
    char path[CHECKPOINT_PATH];
    tw_state *state;
    TW_TRY(checksum_load(folder_worker(found->folder, old, path), &state));
    tw_status status = stamp_check(&found->stamp, old, state, path);
    if (status == TW_OK) status = model_file_named(path, unpack_worker(w, state, found));
    tw_state_destroy(state);
    return status;
}

/* A worker that had no part in the run yet begins with its weights, which come by gossip, and its running statistics.
 * Stages get both from rank 0. */
static tw_status join_late(worker *w, const char *folder)
{
    if (w->exchange->staged && w->rank > 0) return TW_OK;
    char path[CHECKPOINT_PATH];
    tw_state *state;
    const learner *l = w->learner;
    TW_TRY(checksum_load(folder_model(folder, path), &state));
    tw_status status =
        model_file_named(path, tensor_table_get(state, "", l->buffer_tensors, kept_buffers(l), w->learner->buffers));
    tw_state_destroy(state);
    return status;
}

static const char *resumes_from(const worker *w)
{
    const train_settings *s = &w->settings;
    return *s->resume ? s->resume : s->out;
}

/* Rank 0 alone chooses, and reads what all replicas share. */
static tw_status find_and_load(worker *w, size_t newer, place *found)
{
    const char *from = resumes_from(w);
    char path[CHECKPOINT_PATH];
    found->forgets = w->settings.forget_lost;
    found->has_older = folder_find(from, newer + 1, found->folder) == TW_OK;
    TW_TRY(folder_find(from, newer, found->folder));
    found->number = folder_step(found->folder);
    found->has_model = path_exists(folder_model(found->folder, path));
    return found->has_model ? load_model(w, found) : TW_OK;
}

/* The same checkpoint has another path on another disk. */
static tw_status find_same(const worker *w, place *found)
{
    return w->rank == 0 ? TW_OK : folder_same(resumes_from(w), found->number, found->folder);
}

/* Each worker has its own file, or one takes over something of all of them. */
static int takes_over(const worker *w, const place *found, const checkpoint_files *files)
{
    return w->exchange->regroup && (files->lost > 0 || w->size != found->stamp.workers);
}

/* Whose file a rank reads where nothing is taken over; -1: it begins with the model's. */
static int file_of(const worker *w, const place *found, const checkpoint_files *files)
{
    if (found->forgets) return checkpoint_files_of(files, w->rank);
    return w->rank < found->stamp.workers ? w->rank : -1;
}

/* The first lost file that this run cannot do without; -1: there is none. */
static int find_missed(const worker *w, const place *found, const checkpoint_files *files)
{
    if (files->lost == 0 || (!w->exchange->regroup && files->first_lost >= w->size)) return -1;
    return found->forgets && files->lost < files->workers ? -1 : files->first_lost;
}

static tw_status check_lost(const worker *w, const place *found, const checkpoint_files *files)
{
    char path[CHECKPOINT_PATH];
    int missed = find_missed(w, found, files);
    if (missed < 0) return TW_OK;
    folder_worker(found->folder, missed, path);
    if (found->forgets)
        return tw_fail(TW_ERROR_IO, "%s is missing, as are all other workers' files: there is nothing to go on with",
                       path);
    return tw_fail(TW_ERROR_IO,
                   "%s is missing: the checkpoint is incomplete; where its disk is gone for good, --forget-lost goes "
                   "on without what that worker remembered",
                   path);
}

/* Every rank has at hand what it is going to read. */
static tw_status gather_files(worker *w, const place *found, const checkpoint_files *files)
{
    char path[CHECKPOINT_PATH];
    int own = file_of(w, found, files), lacks = files->is_scattered;
    if (!takes_over(w, found, files) && !*found->moves && own >= 0)
        lacks = !path_exists(folder_worker(found->folder, own, path));
    TW_TRY(agree_any(w->comm, &lacks));
    return lacks ? checkpoint_files_share(w, files) : TW_OK;
}

/* Of what rank 0 has chosen. */
static tw_status look_for_files(worker *w, place *found, checkpoint_files *files)
{
    char path[CHECKPOINT_PATH];
    checkpoint_files_release(files);
    TW_TRY(agree_status(w, find_same(w, found)));
    if (!found->has_model)
        return agree_status(
            w, tw_fail(TW_ERROR_IO, "%s is missing: the checkpoint is incomplete", folder_model(found->folder, path)));
    TW_TRY(checkpoint_files_look(w, found->folder, found->stamp.workers, files));
    return agree_status(w, check_lost(w, found, files));
}

/* It is another's word. Where there is no model file, nothing of it counts. */
static tw_status check_place(const worker *w, place *found)
{
    run_changes *changes = &found->changes;
    found->moves[sizeof found->moves - 1] = 0;
    for (size_t i = 0; i < CHANGES_MOST; i++) changes->all[i].spec[CHANGES_SPEC - 1] = 0;
    if (!found->has_model) return TW_OK;
    TW_TRY(stamp_hear(&found->stamp));
    if (found->steps_per_epoch > 0 && found->step <= w->steps && changes->count <= CHANGES_MOST) return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "rank 0 tells of a checkpoint that cannot be");
}

/* What rank 0 found, and not where on its disk. */
static tw_status checkpoint_hear(worker *w, place *found)
{
    char folder[FOLDER_PATH];
    memcpy(folder, found->folder, sizeof folder);
    TW_TRY(tw_comm_broadcast(w->comm, 0, found, sizeof *found));
    memcpy(found->folder, folder, sizeof folder);
    return check_place(w, found);
}

/* The newest checkpoint of which every file is there. An incomplete one, which a kill of an earlier version or a person
 * left behind, must not hide the whole ones beside it. */
static tw_status checkpoint_choose(worker *w, place *found, checkpoint_files *files)
{
    for (size_t newer = 0;; newer++) {
        *found = (place){.newer = newer};
        TW_TRY(agree_status(w, w->rank == 0 ? find_and_load(w, newer, found) : TW_OK));
        TW_TRY(checkpoint_hear(w, found));
        tw_status status = look_for_files(w, found, files);
        if (status == TW_OK || !w->agreed || !found->has_older) return status;
        if (w->rank == 0) fprintf(stderr, "thinwire: %s; the one before it is taken\n", tw_last_error());
        w->agreed = 0;
    }
}

/* What becomes of what the old workers remembered. */
static const char *heritage_of(const worker *w, const place *found)
{
    if (w->exchange->staged) return "the network is cut anew";
    if (*found->moves) return "what they remembered is taken over";
    if (w->exchange->regroup) return "what they held back is shared out";
    return w->size < found->stamp.workers ? "what the others remembered is left there"
                                          : "those without a file begin with its weights and no momentum";
}

/* The same without the files of some. */
static const char *heritage_of_rest(const worker *w, const place *found, const checkpoint_files *files)
{
    if (w->exchange->staged)
        return w->size == found->stamp.workers ? "remembered of the run's figures is dropped"
                                               : "remembered is dropped, and the network is cut anew";
    if (*found->moves) return "remembered is dropped, and what the others remembered is taken over";
    if (w->exchange->regroup) return "held back is dropped, and what the others held back is shared out";
    return w->size < files->workers - files->lost
               ? "remembered is dropped, and what the others remembered is kept as far as there are workers"
               : "remembered is dropped, and what the others remembered is kept";
}

static void tell_heritage(const worker *w, const place *found, const checkpoint_files *files, char *text, size_t room)
{
    char lost[256];
    if (find_missed(w, &(place){.forgets = 0}, files) < 0) {
        snprintf(text, room, "%s", heritage_of(w, found));
        return;
    }
    checkpoint_files_name_lost(files, lost, sizeof lost);
    snprintf(text, room, "the files of %s are lost, so what %s %s", lost, files->lost == 1 ? "it" : "they",
             heritage_of_rest(w, found, files));
}

static void tell_regrouping(const worker *w, const place *found, const checkpoint_files *files)
{
    char heritage[512];
    tell_heritage(w, found, files, heritage, sizeof heritage);
    fprintf(stderr, "thinwire: %s is of %d workers, this run has %d: %s, and it goes on at step %llu, epoch %.4g\n",
            found->folder, found->stamp.workers, w->size, heritage, (unsigned long long)found->step,
            (double)found->step / (double)w->steps_per_epoch);
}

static tw_status take_files(worker *w, const place *found, const checkpoint_files *files, const regrouping *from)
{
    int own = file_of(w, found, files);
    if (!takes_over(w, found, files)) {
        TW_TRY(agree_status(w, own >= 0 ? load_worker(w, found, own) : join_late(w, found->folder)));
        /* With another cut a stage has read others' statistics. */
        return w->exchange->staged ? agree_status(w, join_late(w, found->folder)) : TW_OK;
    }
    TW_TRY(agree_status(w, join_late(w, found->folder)));
    return regroup_run(w, from);
}

static tw_status load_files(worker *w, const place *found, const checkpoint_files *files)
{
    const regrouping from = {found->folder, &found->stamp, found->written, files, *found->moves != 0};
    if (w->rank == 0 && (files->lost > 0 || w->size != found->stamp.workers)) tell_regrouping(w, found, files);
    TW_TRY(take_files(w, found, files, &from));
    if (!*found->moves) return TW_OK;
    if (w->rank == 0)
        fprintf(stderr, "thinwire: %s is of a run with --sync %s: the moments of AdamW go on with --sync %s\n",
                found->folder, found->moves, w->settings.sync);
    return moments_move(w, found->moves, &from);
}

/* As this run counts steps: before the first that it takes, and of those on the same one the last. */
static void convert_changes(const worker *w, const place *found, run_changes *changes)
{
    *changes = (run_changes){.count = 0};
    for (size_t i = 0; i < found->changes.count; i++) {
        const run_change *made = &found->changes.all[i];
        uint64_t step = checkpoint_find_step(w, made->step, found->steps_per_epoch);
        if (step >= found->step) step = found->step > 0 ? found->step - 1 : 0;
        if (changes->count > 0 && changes->all[changes->count - 1].step >= step) changes->count--;
        changes_add(changes, step, made->spec);
    }
}

/* What the run is to change later its configuration says, but it counts the steps of as many workers as before. */
static tw_status take_changes(worker *w, const place *found)
{
    const run_changes planned = w->changes;
    const bool counts_alike = w->settings.steps > 0 || found->steps_per_epoch == w->steps_per_epoch;
    convert_changes(w, found, &w->changes);
    const size_t made = w->changes.count;
    for (size_t i = 0; counts_alike && i < planned.count; i++)
        if (planned.all[i].step >= found->written) changes_add(&w->changes, planned.all[i].step, planned.all[i].spec);
    TW_TRY(agree_status(w, worker_keep_changes(w)));
    return worker_take_spec(w, made > 0 ? w->changes.all[made - 1].spec : w->settings.sync);
}

static tw_status resume(worker *w, place *found, checkpoint_files *files)
{
    TW_TRY(checkpoint_choose(w, found, files));
    w->step = found->step;
    w->schedule.best_loss = found->best_loss;
    w->schedule.falls = found->falls;
    w->best = found->best;
    w->unseen = found->unseen;
    memcpy(w->run, found->stamp.run, sizeof w->run);
    TW_TRY(take_changes(w, found));
    TW_TRY(gather_files(w, found, files));
    return load_files(w, found, files);
}

/* A person may go on from the checkpoint before one that is damaged; the choice is not made for him. */
static tw_status name_older(const worker *w, const place *damaged, tw_status status)
{
    char text[1024], older[FOLDER_PATH];
    snprintf(text, sizeof text, "%s", tw_last_error());
    if (folder_find(resumes_from(w), damaged->newer + 1, older) != TW_OK) return tw_fail(status, "%s", text);
    return tw_fail(status, "%s; the checkpoint before it is %s", text, older);
}

tw_status checkpoint_resume(worker *w)
{
    place found = {0};
    checkpoint_files files = {0};
    tw_status status = resume(w, &found, &files);
    if (status == TW_OK) status = base_load(w);
    checkpoint_files_release(&files);
    return status == TW_ERROR_FORMAT && w->rank == 0 ? name_older(w, &found, status) : status;
}
