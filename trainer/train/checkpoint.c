#include "checkpoint.h"
#include "agree.h"
#include "error.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FORMAT "thinwire checkpoint 1"
#define SCHEME "scheme."
#define TASK "task."
#define TENSOR_SUM "checksum"
#define TEXT_SUM "checksum of texts"

static void model_path(const char *folder, char path[CHECKPOINT_PATH])
{
    snprintf(path, CHECKPOINT_PATH, "%s/model.safetensors", folder);
}

static void worker_path(const char *folder, int rank, char path[CHECKPOINT_PATH])
{
    snprintf(path, CHECKPOINT_PATH, "%s/worker-%d.safetensors", folder, rank);
}

/* Puts the file's name before the last error's text, which knows only the tensor. */
static tw_status in_file(const char *path, tw_status status)
{
    if (status == TW_OK) return TW_OK;
    char text[1024];
    snprintf(text, sizeof text, "%s", tw_last_error());
    return tw_fail(status, "%s: %s", path, text);
}

/* Safetensors has no checksum of its own. These sums do not depend on the order in the file. */
enum { SUM_TEXT = 16 };

static tw_status sum_tensors(const tw_state *state, char text[SUM_TEXT])
{
    uint32_t sum = 0;
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        TW_TRY(tw_state_at(state, i, &entry));
        sum += tw_crc32c(tw_crc32c(0, entry.name, strlen(entry.name)), entry.data, entry.bytes);
    }
    snprintf(text, SUM_TEXT, "%08x", sum);
    return TW_OK;
}

/* Of all texts but the sum itself. */
static void sum_texts(const tw_state *state, char text[SUM_TEXT])
{
    uint32_t sum = 0;
    const char *key, *value;
    for (size_t i = 0; (key = tw_state_text_at(state, i, &value)); i++)
        if (strcmp(key, TEXT_SUM) != 0) sum += tw_crc32c(tw_crc32c(0, key, strlen(key) + 1), value, strlen(value));
    snprintf(text, SUM_TEXT, "%08x", sum);
}

static tw_status seal_and_save(tw_state *state, const char *path)
{
    char sum[SUM_TEXT];
    TW_TRY(sum_tensors(state, sum));
    TW_TRY(tw_state_put_text(state, "format", FORMAT));
    TW_TRY(tw_state_put_text(state, "thinwire", tw_version()));
    TW_TRY(tw_state_put_text(state, TENSOR_SUM, sum));
    sum_texts(state, sum);
    TW_TRY(tw_state_put_text(state, TEXT_SUM, sum));
    return tw_state_save(state, path);
}

static tw_status compare_sums(const char *path, const char *what, const char *sum, const char *stored)
{
    if (strcmp(sum, stored) == 0) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s is damaged: its %s have checksum %s, it was written with %s", path, what, sum,
                   stored);
}

/* The first checkpoints had no sum of their texts. */
static tw_status verify(const tw_state *state, const char *path)
{
    const char *format = tw_state_text(state, "format"), *stored = tw_state_text(state, TENSOR_SUM);
    const char *stored_texts = tw_state_text(state, TEXT_SUM);
    if (!format || !stored || strcmp(format, FORMAT) != 0)
        return tw_fail(TW_ERROR_FORMAT, "%s is not a '" FORMAT "' file", path);
    char sum[SUM_TEXT];
    TW_TRY(sum_tensors(state, sum));
    TW_TRY(compare_sums(path, "tensors", sum, stored));
    sum_texts(state, sum);
    return stored_texts ? compare_sums(path, "texts", sum, stored_texts) : TW_OK;
}

static tw_status load_and_verify(const char *path, tw_state **out)
{
    tw_state *state;
    TW_TRY(tw_state_load(path, &state));
    tw_status status = verify(state, path);
    if (status == TW_OK)
        *out = state;
    else
        tw_state_destroy(state);
    return status;
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
    TW_TRY(tw_state_get(state, "totals", TW_F64, TOTAL_COUNT, w->before.values));
    TW_TRY(tw_state_get(state, "epoch", TW_F64, EPOCH_COUNT, epoch));
    TW_TRY(get_table(state, "", l->buffer_tensors, l->buffer_tensor_count, l->buffers));
    if (w->task->ops->restore) TW_TRY(w->task->ops->restore(l, TASK, state));
    *e = (task_score){.loss = epoch[EPOCH_LOSS], .count = epoch[EPOCH_ITEMS]};
    memcpy(e->parts, &epoch[EPOCH_PARTS], sizeof e->parts);
    w->skipped_in_a_row = epoch[EPOCH_SKIPPED] > 0 ? (int)fmin(epoch[EPOCH_SKIPPED], INT_MAX) : 0;
    return unpack_scheme(w, state);
}

static tw_status save_packed(worker *w, tw_status (*pack)(worker *, tw_state *), const char *path)
{
    tw_state *state;
    TW_TRY(tw_state_create(&state));
    tw_status status = pack(w, state);
    if (status == TW_OK) status = seal_and_save(state, path);
    tw_state_destroy(state);
    return status;
}

static tw_status write_files(worker *w, const char *folder)
{
    char path[CHECKPOINT_PATH];
    worker_path(folder, w->rank, path);
    TW_TRY(save_packed(w, pack_worker, path));
    if (w->rank != 0) return TW_OK;
    model_path(folder, path);
    return save_packed(w, pack_model, path);
}

tw_status checkpoint_write(worker *w)
{
    const char *out = w->settings.out;
    if (!out) return TW_OK;
    char partial[FOLDER_PATH];
    uint64_t step = w->step;
    TW_TRY(tw_comm_broadcast(w->comm, 0, &step, sizeof step));
    TW_TRY(worker_average_buffers(w));
    tw_status status = agree_status(w, folder_begin(out, step, partial));
    if (status == TW_OK) status = agree_status(w, write_files(w, partial));
    if (status == TW_OK) status = agree_status(w, folder_publish(out, step));
    if (status != TW_OK) folder_abandon(out, step);
    return status;
}

static tw_status load_model(worker *w, const char *folder, int *workers)
{
    char path[CHECKPOINT_PATH];
    tw_state *state;
    model_path(folder, path);
    TW_TRY(load_and_verify(path, &state));
    tw_status status = check_identity(w, state, path);
    if (status == TW_OK) status = in_file(path, unpack_model(w, state));
    const char *written = tw_state_text(state, "workers");
    *workers = written ? atoi(written) : w->size;
    tw_state_destroy(state);
    TW_TRY(status);
    if (w->step <= w->steps) return TW_OK;
    return tw_fail(TW_ERROR_STATE, "%s has %llu steps behind it, but this run ends after %llu", path,
                   (unsigned long long)w->step, (unsigned long long)w->steps);
}

static tw_status load_worker(worker *w, const char *folder)
{
    char path[CHECKPOINT_PATH];
    tw_state *state;
    worker_path(folder, w->rank, path);
    TW_TRY(load_and_verify(path, &state));
    tw_status status = in_file(path, unpack_worker(w, state));
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
    model_path(folder, path);
    TW_TRY(load_and_verify(path, &state));
    tw_status status =
        in_file(path, get_table(state, "", l->buffer_tensors, l->buffer_tensor_count, w->learner->buffers));
    tw_state_destroy(state);
    return status;
}

typedef struct place {
    uint64_t step;
    int workers; /* that wrote it */
    schedule schedule;
    char folder[FOLDER_PATH];
} place;

/* Rank 0 alone chooses and reads what all replicas share. */
static tw_status find_and_load(worker *w, place *found)
{
    const train_settings *s = &w->settings;
    TW_TRY(folder_find(*s->resume ? s->resume : s->out, found->folder));
    TW_TRY(load_model(w, found->folder, &found->workers));
    found->step = w->step;
    found->schedule = w->schedule;
    return TW_OK;
}

tw_status checkpoint_resume(worker *w)
{
    place found = {0};
    TW_TRY(agree_status(w, w->rank == 0 ? find_and_load(w, &found) : TW_OK));
    TW_TRY(tw_comm_broadcast(w->comm, 0, &found, sizeof found));
    w->step = found.step;
    w->schedule = found.schedule;
    if (w->rank == 0 && w->size != found.workers)
        fprintf(stderr, "thinwire: %s is of %d workers, this run has %d: %s\n", found.folder, found.workers, w->size,
                w->size < found.workers ? "what the others remembered is left there"
                                        : "those without a file begin with its weights and no momentum");
    return agree_status(w, w->rank < found.workers ? load_worker(w, found.folder) : join_late(w, found.folder));
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
        TW_TRY(folder_find(path, folder));
        model_path(folder, file);
    }
    return TW_OK;
}

tw_status checkpoint_read(const char *path, tw_status (*read)(void *reader, const tw_state *state), void *reader)
{
    char file[CHECKPOINT_PATH];
    tw_state *state;
    TW_TRY(find_model(path, file));
    TW_TRY(load_and_verify(file, &state));
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
