#include "resume.h"
#include "error.h"
#include "folder.h"
#include "launcher.h"
#include "model_file.h"
#include "moments.h"
#include "regular_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The folder of the run, when a checkpoint of it was named. */
static void run_folder(const char *path, char folder[FOLDER_PATH])
{
    snprintf(folder, FOLDER_PATH, "%s%s", path, folder_names_checkpoint(path) ? "/../.." : "");
}

static const char *configuration(const char *path, char file[CHECKPOINT_PATH])
{
    char folder[FOLDER_PATH];
    run_folder(path, folder);
    snprintf(file, CHECKPOINT_PATH, "%s/config.yaml", folder);
    return file;
}

/* ---- the task ---------------------------------------------------------------------------------------------------- */

static tw_status read_task(void *reader, const tw_state *state)
{
    const char *name = tw_state_text(state, "task");
    if (!name) return tw_fail(TW_ERROR_FORMAT, "it does not say its task");
    return task_find(name, reader);
}

tw_status resume_task(const char *path, const task_ops **ops)
{
    char file[CHECKPOINT_PATH], *name = NULL;
    if (path_exists(configuration(path, file))) TW_TRY(options_find_in_file(file, "task", &name));
    if (!name) return model_file_read(path, NULL, read_task, ops);
    tw_status status = task_find(name, ops);
    free(name);
    return status;
}

/* ---- the options ------------------------------------------------------------------------------------------------- */

/* mpirun, or the group, says how many there are. */
static bool is_overruled(const option_row *row, const train_settings *s)
{
    if (row->offset != offsetof(train_settings, workers)) return false;
    return !s->join && (launcher_has_ranks(s->transport) || s->transport == TRANSPORT_TCP);
}

enum { PAST_TEXT = 512 };

static const char *or_nothing(const char *value)
{
    return value ? value : "(nothing)";
}

/* What the run has, without numbers that stand for something. */
static void describe_past(const option_row *row, const char *value, char text[PAST_TEXT])
{
    if (row->stands_for && value && row->fallback && options_same(row, value, row->fallback))
        snprintf(text, PAST_TEXT, "the default of --%s (%s)", row->name, row->stands_for);
    else
        snprintf(text, PAST_TEXT, "--%s %s", row->name, or_nothing(value));
}

/* A scheme of a plug-in that is not loaded yet can be compared by the checkpoint only. */
static bool is_understood(const option_row *row, const char *value)
{
    char *full = row->in_full && value ? row->in_full(value) : NULL;
    bool understood = full || !row->in_full;
    free(full);
    return understood;
}

/* The run's spec, or, where it would mean something else today, what it meant then. */
static const char *text_today(const option_row *row, const char *value, const train_settings *past)
{
    const char *then = row->offset == offsetof(train_settings, sync) ? past->sync_in_full : NULL;
    return then && is_understood(row, value) && !options_same(row, value, then) ? then : value;
}

/* --sync auto: what was chosen when the run began. */
static bool is_left_to_run(const option_row *row, const train_settings *s)
{
    return row->offset == offsetof(train_settings, sync) && strcmp(s->sync, SYNC_AUTO) == 0;
}

static bool may_move(const option_row *row, const train_settings *past, const char *value, const char *own)
{
    return row->offset == offsetof(train_settings, sync) && value && moments_may_move(past->optimizer, value, own);
}

/* What else the run may go on with; NULL: nothing. */
static const char *moves_to(const option_row *row, const train_settings *past, const char *value)
{
    return row->offset == offsetof(train_settings, sync) && value ? moments_may_move_to(past->optimizer, value) : NULL;
}

/* Where a run's file is gone, its checkpoint may have what stood there. */
static const char *at_hand(const option_row *row, const char *value, const char *run, char model[CHECKPOINT_PATH])
{
    char checkpoint[FOLDER_PATH];
    if (!row->kept || !value || path_exists(value) || folder_find(run, 0, checkpoint) != TW_OK) return value;
    return folder_model(checkpoint, model);
}

/* One row of the run's, which it was told. */
static tw_status inherit(const options *past, size_t index, options *set, const char *path)
{
    char space[OPTION_TEXT_MOST], own_space[OPTION_TEXT_MOST], text[PAST_TEXT], model[CHECKPOINT_PATH];
    const option_row *row = &set->page->rows[index];
    if (is_left_to_run(row, set->target)) set->sources[index] = OPTION_FROM_RUN;
    const char *value = text_today(row, options_value(row, past->target, space), past->target);
    if (set->sources[index] <= OPTION_FROM_RUN)
        return value && !is_overruled(row, set->target) ? options_inherit(set, index, at_hand(row, value, path, model))
                                                        : TW_OK;
    const char *own = options_value(row, set->target, own_space);
    if (!row->binding || options_same(row, value, own) || !is_understood(row, value)) return TW_OK;
    if (may_move(row, past->target, value, own)) return TW_OK;
    describe_past(row, value, text);
    const char *others = moves_to(row, past->target, value);
    if (others)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--sync %s: the run in %s has %s, whose moments go on with %s, and with nothing else; leave the "
                       "option out, or begin another run",
                       or_nothing(own), path, text, others);
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--%s %s: the run in %s has %s, which stays as it is when a run goes on; leave the option out, or "
                   "begin another run",
                   row->name, or_nothing(own), path, text);
}

/* What each run finds out by itself. */
static bool is_written_anew(const option_row *row)
{
    return row->file_only && row->offset != offsetof(train_settings, planned_link) &&
           row->offset != offsetof(train_settings, planned_changes);
}

static bool has_option(const options *past)
{
    for (size_t i = 0; i < past->page->count; i++)
        if (past->sources[i] == OPTION_FROM_FILE) return true;
    return false;
}

static tw_status read_past(options *past, const char *file)
{
    TW_TRY(options_read_whole_file(past, file));
    if (has_option(past)) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s: it has no option: take a whole copy, or remove it and give all options again",
                   file);
}

static tw_status inherit_all(const options *past, options *set, const char *path)
{
    for (size_t i = 0; i < set->page->count; i++) {
        const option_row *row = &set->page->rows[i];
        if (!row->name || row->line_only || is_written_anew(row) || row->of_start) continue;
        if (past->sources[i] == OPTION_FROM_FILE) TW_TRY(inherit(past, i, set, path));
    }
    return TW_OK;
}

tw_status resume_check_task(const char *file, const task_ops *ops)
{
    char *past;
    TW_TRY(options_find_in_file(file, "task", &past));
    tw_status status = TW_OK;
    if (past && strcmp(past, ops->name) != 0)
        status = tw_fail(TW_ERROR_ARGUMENT, "%s is of task %s, not %s", file, past, ops->name);
    free(past);
    return status;
}

tw_status resume_inherit(const char *path, options *set, train_settings *settings)
{
    char file[CHECKPOINT_PATH];
    train_settings past = {.task = settings->task};
    options told;
    if (!path_exists(configuration(path, file))) return TW_OK;
    TW_TRY(resume_check_task(file, settings->task));
    char *words[] = {(char *)(uintptr_t)settings->task->name};
    TW_TRY(options_parse(set->page, 1, words, &past, &told));
    tw_status status = read_past(&told, file);
    if (status == TW_OK) status = inherit_all(&told, set, path);
    options_release(&told);
    return status;
}
