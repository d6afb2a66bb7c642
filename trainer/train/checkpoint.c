#include "checkpoint.h"
#include "agree.h"
#include "error.h"
#include "stamp.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCHEME "scheme."
#define TASK "task."

/* Puts the file's name before the last error's text, which knows only the tensor. */
static tw_status in_file(const char *path, tw_status status)
{
    if (status == TW_OK) return TW_OK;
    char text[1024];
    snprintf(text, sizeof text, "%s", tw_last_error());
    return tw_fail(status, "%s: %s", path, text);
}

/* The tensors of a table, which stand one after the other in `values`. */
static tw_status put_table(tw_state *state, const char *prefix, const tw_tensor *tensors, size_t count,
                           const float *values)
{
    for (size_t i = 0; i < count; i++) {
        char name[512];
        snprintf(name, sizeof name, "%s%s", prefix, tensors[i].name);
        TW_TRY(tw_state_put(state, name, TW_F32, tensors[i].dims, tensors[i].shape, values));
        values += tw_tensor_count(&tensors[i]);
    }
    return TW_OK;
}

static tw_status get_table(const tw_state *state, const char *prefix, const tw_tensor *tensors, size_t count,
                           float *values)
{
    for (size_t i = 0; i < count; i++) {
        char name[512];
        size_t elements = tw_tensor_count(&tensors[i]);
        snprintf(name, sizeof name, "%s%s", prefix, tensors[i].name);
        TW_TRY(tw_state_get(state, name, TW_F32, elements, values));
        values += elements;
    }
    return TW_OK;
}

static tw_status put_optimiser(const worker *w, tw_state *state)
{
    char prefix[64];
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    size_t count = optimiser_buffers(w->optimiser, buffers);
    for (const optimiser_buffer *b = buffers; b < buffers + count; b++) {
        snprintf(prefix, sizeof prefix, "optimiser.%s", b->prefix);
        TW_TRY(put_table(state, prefix, b->tensors, b->tensor_count, b->values));
    }
    return TW_OK;
}

static tw_status get_optimiser(const worker *w, const tw_state *state)
{
    char prefix[64];
    optimiser_buffer buffers[OPTIMISER_BUFFERS];
    size_t count = optimiser_buffers(w->optimiser, buffers);
    for (const optimiser_buffer *b = buffers; b < buffers + count; b++) {
        snprintf(prefix, sizeof prefix, "optimiser.%s", b->prefix);
        TW_TRY(get_table(state, prefix, b->tensors, b->tensor_count, b->values));
    }
    return TW_OK;
}

static tw_status put_step(tw_state *state, uint64_t step)
{
    return tw_state_put(state, "step", TW_U64, 0, NULL, &step);
}

/* What a checkpoint and the run that resumes it must agree on: settings, and the data. */
enum { IDENTITY = SETTINGS_IDENTITY + 1 };

static size_t identify(const worker *w, setting_text identity[IDENTITY])
{
    size_t count = settings_identity(&w->settings, w->size, identity);
    identity[count] = (setting_text){.key = "training data", .value = w->task->identity};
    return count + 1;
}

static tw_status pack_model(worker *w, tw_state *state)
{
    const learner *l = w->learner;
    setting_text identity[IDENTITY];
    size_t count = identify(w, identity);
    for (size_t i = 0; i < count; i++) TW_TRY(tw_state_put_text(state, identity[i].key, identity[i].value));
    if (w->task->ops->describe) TW_TRY(w->task->ops->describe(l, state));
    double plateau[] = {w->schedule.best_loss, w->schedule.falls};
    TW_TRY(put_step(state, w->step));
    TW_TRY(tw_state_put(state, "plateau", TW_F64, 1, (size_t[]){2}, plateau));
    TW_TRY(put_table(state, "", l->tensors, l->tensor_count, l->parameters));
    if (!w->gossips) TW_TRY(put_optimiser(w, state));
    return put_table(state, "", l->buffer_tensors, l->buffer_tensor_count, w->mean_buffers);
}

/* By gossip as many may go on as there are: see join_late. */
static tw_status check_identity(const worker *w, const tw_state *state, const char *path)
{
    setting_text identity[IDENTITY];
    size_t count = identify(w, identity);
    for (size_t i = 0; i < count; i++) {
        if (w->gossips && strcmp(identity[i].key, "workers") == 0) continue;
        const char *key = identity[i].key, *wanted = identity[i].value, *stored = tw_state_text(state, key);
        if (!stored) return tw_fail(TW_ERROR_STATE, "%s does not say its %s", path, key);
        if (strcmp(stored, wanted) != 0)
            return tw_fail(TW_ERROR_STATE, "%s was written with %s %s, but this run has %s %s", path, key, stored, key,
                           wanted);
    }
    return TW_OK;
}

static tw_status unpack_model(worker *w, const tw_state *state)
{
    learner *l = w->learner;
    double plateau[2];
    TW_TRY(tw_state_get(state, "step", TW_U64, 1, &w->step));
    TW_TRY(tw_state_get(state, "plateau", TW_F64, 2, plateau));
    w->schedule.best_loss = plateau[0];
    w->schedule.falls = plateau[1];
    TW_TRY(get_table(state, "", l->tensors, l->tensor_count, l->parameters));
    return w->gossips ? TW_OK : get_optimiser(w, state);
}

/* The running sums of the epoch, so that a resumed epoch's figures are the uninterrupted one's. */
enum { EPOCH_LOSS, EPOCH_ITEMS, EPOCH_PARTS, EPOCH_SKIPPED = EPOCH_PARTS + TASK_PARTS, EPOCH_COUNT };

static tw_status pack_scheme(worker *w, tw_state *state)
{
    return w->gossips ? put_optimiser(w, state) : tw_reducer_save_state(w->reducer, SCHEME, state);
}

static tw_status unpack_scheme(worker *w, const tw_state *state)
{
    return w->gossips ? get_optimiser(w, state) : tw_reducer_load_state(w->reducer, SCHEME, state);
}

static tw_status pack_worker(worker *w, tw_state *state)
{
    const learner *l = w->learner;
    const task_score *e = &w->epoch_score;
    double epoch[EPOCH_COUNT] = {e->loss, e->count};
    memcpy(&epoch[EPOCH_PARTS], e->parts, sizeof e->parts);
    epoch[EPOCH_SKIPPED] = w->skipped_in_a_row;
    totals sums;
    TW_TRY(worker_totals(w, &sums));
    TW_TRY(put_step(state, w->step));
    TW_TRY(tw_state_put(state, "totals", TW_F64, 1, (size_t[]){TOTAL_COUNT}, sums.values));
    TW_TRY(tw_state_put(state, "epoch", TW_F64, 1, (size_t[]){EPOCH_COUNT}, epoch));
    TW_TRY(put_table(state, "", l->buffer_tensors, l->buffer_tensor_count, l->buffers));
    if (w->task->ops->save) TW_TRY(w->task->ops->save(l, TASK, state));
    return pack_scheme(w, state);
}

/* An older file does not tell what was sent between hosts. There were none: it is all that was sent. */
static tw_status get_totals(const tw_state *state, double *values)
{
    if (tw_state_get(state, "totals", TW_F64, TOTAL_BYTES_BETWEEN, values) != TW_OK)
        return tw_state_get(state, "totals", TW_F64, TOTAL_COUNT, values);
    values[TOTAL_BYTES_BETWEEN] = values[TOTAL_BYTES_SENT];
    return TW_OK;
}

static tw_status unpack_worker(worker *w, const tw_state *state)
{
    uint64_t step;
    double epoch[EPOCH_COUNT];
    learner *l = w->learner;
    task_score *e = &w->epoch_score;
    TW_TRY(tw_state_get(state, "step", TW_U64, 1, &step));
    if (w->gossips)
        w->step = step;
    else if (step != w->step)
        return tw_fail(TW_ERROR_STATE, "it is of step %llu, the model beside it of step %llu", (unsigned long long)step,
                       (unsigned long long)w->step);
    TW_TRY(get_totals(state, w->before.values));
    TW_TRY(tw_state_get(state, "epoch", TW_F64, EPOCH_COUNT, epoch));
    TW_TRY(get_table(state, "", l->buffer_tensors, l->buffer_tensor_count, l->buffers));
    if (w->task->ops->restore) TW_TRY(w->task->ops->restore(l, TASK, state));
    *e = (task_score){.loss = epoch[EPOCH_LOSS], .count = epoch[EPOCH_ITEMS]};
    memcpy(e->parts, &epoch[EPOCH_PARTS], sizeof e->parts);
    w->skipped_in_a_row = epoch[EPOCH_SKIPPED] > 0 ? (int)fmin(epoch[EPOCH_SKIPPED], INT_MAX) : 0;
    return unpack_scheme(w, state);
}

/* --- writing -------------------------------------------------------------------------------------------------- */

/* For rank 0: all of the model file but its place on the disk. */
static tw_status seal_model(worker *w, tw_state **out, stamp *s)
{
    if (!*w->run) stamp_name_run(w->run);
    TW_TRY(tw_state_create(out));
    TW_TRY(pack_model(w, *out));
    TW_TRY(stamp_put_run(w->run, *out));
    TW_TRY(seal_put(*out));
    stamp_read(*out, w->size, s);
    return TW_OK;
}

static tw_status pack_and_save_worker(worker *w, const stamp *s, tw_state *state, const char *path)
{
    TW_TRY(pack_worker(w, state));
    TW_TRY(stamp_put(s, w->rank, state));
    TW_TRY(seal_put(state));
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

/* `model`: rank 0's, else NULL. */
static tw_status save_files(worker *w, tw_state *model, const stamp *s, const char *folder)
{
    char path[CHECKPOINT_PATH];
    TW_TRY(save_worker(w, s, folder));
    return model ? tw_state_save(model, folder_model(folder, path)) : TW_OK;
}

static tw_status write_files(worker *w, const char *folder)
{
    tw_state *model = NULL;
    stamp s = {0};
    tw_status status = agree_status(w, w->rank == 0 ? seal_model(w, &model, &s) : TW_OK);
    if (status == TW_OK) status = tw_comm_broadcast(w->comm, 0, &s, sizeof s);
    if (status == TW_OK) memcpy(w->run, s.run, sizeof w->run);
    if (status == TW_OK) status = agree_status(w, save_files(w, model, &s, folder));
    tw_state_destroy(model);
    return status;
}

/* Which step, and which one stays beside it: the same on every rank, whatever each finds on its own disk. */
typedef struct plan {
    uint64_t step, kept;
} plan;

static tw_status make_plan(worker *w, plan *p)
{
    *p = (plan){.step = w->step};
    if (w->rank == 0) p->kept = folder_kept(w->settings.out, p->step);
    return tw_comm_broadcast(w->comm, 0, p, sizeof *p);
}

static tw_status write_folder(worker *w, const plan *p, char partial[FOLDER_PATH])
{
    const char *out = w->settings.out;
    TW_TRY(agree_status(w, folder_begin(out, p->step, partial)));
    TW_TRY(write_files(w, partial));
    TW_TRY(agree_status(w, folder_give_way(out, p->step)));
    return agree_status(w, folder_publish(out, p->step, p->kept));
}

/* Whether it failed because the run folder was moved or removed while it wrote. *vanished: the same on all ranks. */
static tw_status find_vanished(worker *w, tw_status status, const char *partial, int *vanished)
{
    *vanished = 0;
    if (status != TW_ERROR_IO || !w->agreed) return TW_OK;
    *vanished = access(partial, F_OK) != 0;
    return agree_any(w->comm, vanished);
}

/* A folder that has vanished is made again. */
tw_status checkpoint_write(worker *w)
{
    if (!w->settings.out) return TW_OK;
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
    if (status != TW_OK) folder_abandon(w->settings.out, p.step);
    return status;
}

/* --- reading -------------------------------------------------------------------------------------------------- */

/* A checkpoint, and what all ranks learn of its model file. */
typedef struct place {
    char folder[FOLDER_PATH];
    int has_model, has_older; /* the model file is there; so is an older checkpoint */
    uint64_t step;
    schedule schedule;
    stamp stamp;
} place;

static tw_status load_model(worker *w, place *found)
{
    char path[CHECKPOINT_PATH];
    tw_state *state;
    TW_TRY(seal_load(folder_model(found->folder, path), &state));
    tw_status status = check_identity(w, state, path);
    if (status == TW_OK) status = in_file(path, unpack_model(w, state));
    stamp_read(state, w->size, &found->stamp);
    tw_state_destroy(state);
    TW_TRY(status);
    found->step = w->step;
    found->schedule = w->schedule;
    if (w->step <= w->steps) return TW_OK;
    return tw_fail(TW_ERROR_STATE, "%s has %llu steps behind it, but this run ends after %llu", path,
                   (unsigned long long)w->step, (unsigned long long)w->steps);
}

static tw_status load_worker(worker *w, const place *found)
{
    char path[CHECKPOINT_PATH];
    tw_state *state;
    TW_TRY(seal_load(folder_worker(found->folder, w->rank, path), &state));
    tw_status status = stamp_check(&found->stamp, w->rank, state, path);
    if (status == TW_OK) status = in_file(path, unpack_worker(w, state));
    tw_state_destroy(state);
    return status;
}

/* A worker that had no part in the run yet begins with its weights, which come by gossip, and its running statistics.
 */
static tw_status join_late(worker *w, const char *folder)
{
    char path[CHECKPOINT_PATH];
    tw_state *state;
    const learner *l = w->learner;
    TW_TRY(seal_load(folder_model(folder, path), &state));
    tw_status status =
        in_file(path, get_table(state, "", l->buffer_tensors, l->buffer_tensor_count, w->learner->buffers));
    tw_state_destroy(state);
    return status;
}

static int is_there(const char *path)
{
    return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* Rank 0 alone chooses, and reads what all replicas share. */
static tw_status find_and_load(worker *w, size_t newer, place *found)
{
    const train_settings *s = &w->settings;
    const char *from = *s->resume ? s->resume : s->out;
    char path[CHECKPOINT_PATH];
    found->has_older = folder_find(from, newer + 1, found->folder) == TW_OK;
    TW_TRY(folder_find(from, newer, found->folder));
    found->has_model = is_there(folder_model(found->folder, path));
    return found->has_model ? load_model(w, found) : TW_OK;
}

static tw_status find_own_files(const worker *w, const place *found)
{
    char path[CHECKPOINT_PATH];
    if (!found->has_model)
        return tw_fail(TW_ERROR_IO, "%s is missing: the checkpoint is incomplete", folder_model(found->folder, path));
    if (w->rank >= found->stamp.workers || is_there(folder_worker(found->folder, w->rank, path))) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s is missing: the checkpoint is incomplete", path);
}

/* The newest checkpoint of which every rank has its files. An incomplete one, which a kill of an earlier version or a
 * person left behind, must not hide the whole ones beside it. */
static tw_status choose(worker *w, place *found)
{
    for (size_t newer = 0;; newer++) {
        *found = (place){0};
        TW_TRY(agree_status(w, w->rank == 0 ? find_and_load(w, newer, found) : TW_OK));
        TW_TRY(tw_comm_broadcast(w->comm, 0, found, sizeof *found));
        tw_status status = agree_status(w, find_own_files(w, found));
        if (status == TW_OK || !w->agreed || !found->has_older) return status;
        if (w->rank == 0) fprintf(stderr, "thinwire: %s; the one before it is taken\n", tw_last_error());
        w->agreed = 0;
    }
}

tw_status checkpoint_resume(worker *w)
{
    place found;
    TW_TRY(choose(w, &found));
    w->step = found.step;
    w->schedule = found.schedule;
    memcpy(w->run, found.stamp.run, sizeof w->run);
    int workers = found.stamp.workers;
    if (w->rank == 0 && w->size != workers)
        fprintf(stderr, "thinwire: %s is of %d workers, this run has %d: %s\n", found.folder, workers, w->size,
                w->size < workers ? "what the others remembered is left there"
                                  : "those without a file begin with its weights and no momentum");
    return agree_status(w, w->rank < workers ? load_worker(w, &found) : join_late(w, found.folder));
}

/* The newest with a model file; where none has one, the newest. */
static tw_status find_complete(const char *path, char folder[FOLDER_PATH])
{
    char file[CHECKPOINT_PATH];
    for (size_t newer = 0; folder_find(path, newer, folder) == TW_OK; newer++)
        if (is_there(folder_model(folder, file))) return TW_OK;
    return folder_find(path, 0, folder);
}

/* The model's file in a checkpoint, in the newest of a run's folder, or at that path itself. */
static tw_status find_model(const char *path, char file[CHECKPOINT_PATH])
{
    char folder[FOLDER_PATH];
    struct stat about;
    if (stat(path, &about) != 0) return tw_fail(TW_ERROR_IO, "%s: cannot open it: %s", path, strerror(errno));
    if (S_ISREG(about.st_mode)) {
        snprintf(file, CHECKPOINT_PATH, "%s", path);
    } else {
        TW_TRY(find_complete(path, folder));
        folder_model(folder, file);
    }
    return TW_OK;
}

tw_status checkpoint_read(const char *path, tw_status (*read)(void *reader, const tw_state *state), void *reader)
{
    char file[CHECKPOINT_PATH];
    tw_state *state;
    TW_TRY(find_model(path, file));
    TW_TRY(seal_load(file, &state));
    tw_status status = in_file(file, read(reader, state));
    tw_state_destroy(state);
    return status;
}

tw_status checkpoint_holds(const tw_state *state, double elements)
{
    double held = 0;
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        TW_TRY(tw_state_at(state, i, &entry));
        held += entry.dtype == TW_F32 ? (double)entry.bytes / sizeof(float) : 0;
    }
    if (held >= elements) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "it is of a network with %.0f weights, but holds %.0f", elements, held);
}

tw_status checkpoint_weights(const tw_state *state, const tw_tensor *tensors, size_t count, float *values)
{
    return get_table(state, "", tensors, count, values);
}
