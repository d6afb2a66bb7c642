#include "model_file.h"
#include "checksum.h"
#include "error.h"
#include "folder.h"
#include "regular_file.h"
#include "task.h"
#include "weights.h"
#include <stdlib.h>
#include <string.h>

tw_status model_file_named(const char *path, tw_status status)
{
    return status == TW_OK ? TW_OK : tw_fail(status, "%s: %s", path, tw_last_error());
}

/* The newest with a model file. */
static tw_status find_complete(const char *path, char folder[FOLDER_PATH])
{
    char file[CHECKPOINT_PATH];
    for (size_t newer = 0; folder_find(path, newer, folder) == TW_OK; newer++)
        if (path_exists(folder_model(folder, file))) return TW_OK;
    TW_TRY(folder_find(path, 0, folder));
    return tw_fail(
        TW_ERROR_IO,
        "%s has no model.safetensors: rank 0 writes it, and where machines have disks of their own, its has the "
        "network",
        folder);
}

/* A step of 1 or more; 0: the word is none. */
static uint64_t parse_step(const char *word)
{
    char *end;
    errno = 0;
    unsigned long long step = strtoull(word, &end, 10);
    return *word >= '0' && *word <= '9' && *end == '\0' && errno == 0 && step < UINT64_MAX ? step : 0;
}

static tw_status find_step(const char *run, const char *word, char folder[FOLDER_PATH])
{
    uint64_t step = parse_step(word);
    if (step == 0) return tw_fail(TW_ERROR_ARGUMENT, "--checkpoint %s: it is best, last or the number of a step", word);
    if (folder_holds(run, step, folder)) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s/checkpoints holds no checkpoint of step %s", run, word);
}

uint64_t model_file_best_step(const tw_state *state)
{
    uint64_t step;
    return tw_state_get(state, MODEL_BEST_STEP, TW_U64, 1, &step) == TW_OK ? step : 0;
}

static void tell_best(const char *run, uint64_t best, const char *last, const char *found)
{
    if (found)
        fprintf(stderr, "thinwire: %s is taken, which did best on the validation set; the last is %s\n", found, last);
    else
        fprintf(stderr,
                "thinwire: %s has lost step %llu, which did best on the validation set; the last, %s, is taken\n", run,
                (unsigned long long)best, last);
}

/* A run's last checkpoint says which one is the best. */
static tw_status find_best(const char *run, const model_choice *meant, char file[CHECKPOINT_PATH])
{
    char folder[FOLDER_PATH], last[FOLDER_PATH];
    tw_state *state;
    TW_TRY(find_complete(run, last));
    TW_TRY(checksum_load(folder_model(last, file), &state));
    uint64_t best = model_file_best_step(state);
    tw_state_destroy(state);
    int there = best > 0 && folder_holds(run, best, folder);
    if (best == 0 || (there && strcmp(folder, last) == 0)) return TW_OK;
    if (there) folder_model(folder, file);
    if (!meant->quiet) tell_best(run, best, last, there ? folder : NULL);
    return TW_OK;
}

static tw_status find_in_run(const char *run, const model_choice *meant, char file[CHECKPOINT_PATH])
{
    char folder[FOLDER_PATH];
    if (meant && strcmp(meant->which, MODEL_BEST) == 0) return find_best(run, meant, file);
    if (meant && strcmp(meant->which, MODEL_LAST) != 0)
        TW_TRY(find_step(run, meant->which, folder));
    else
        TW_TRY(find_complete(run, folder));
    folder_model(folder, file);
    return TW_OK;
}

/* `path` leaves nothing to choose. */
static tw_status check_no_choice(const char *path, const model_choice *meant)
{
    if (!meant || strcmp(meant->which, MODEL_BEST) == 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "--checkpoint %s chooses among those of a run's folder, and %s is one of them",
                   meant->which, path);
}

/* A checkpoint's folder, also one that a person has copied under a name of his own. */
static bool is_checkpoint(const char *path)
{
    char file[CHECKPOINT_PATH];
    folder_model(path, file);
    return folder_names_checkpoint(path) || access(file, F_OK) == 0;
}

/* Of other programs, which has a config.json of their own. */
static bool is_foreign(const char *path)
{
    char file[CHECKPOINT_PATH];
    snprintf(file, sizeof file, "%s/config.json", path);
    return !folder_names_checkpoint(path) && access(file, F_OK) == 0;
}

static tw_status find_model(const char *path, const model_choice *meant, char file[CHECKPOINT_PATH])
{
    struct stat about;
    if (stat(path, &about) != 0) return tw_fail(TW_ERROR_IO, "%s: cannot open it: %s", path, strerror(errno));
    int is_file = S_ISREG(about.st_mode);
    int is_whole = is_file || is_foreign(path);
    if (!is_whole && !is_checkpoint(path)) return find_in_run(path, meant, file);
    TW_TRY(check_no_choice(path, meant));
    if (is_whole)
        snprintf(file, CHECKPOINT_PATH, "%s", path);
    else
        folder_model(path, file);
    return TW_OK;
}

static tw_status load_foreign(const char *folder, tw_state **state)
{
    for (size_t i = 0; task_at(i); i++)
        if (task_at(i)->read_folder) return model_file_named(folder, task_at(i)->read_folder(folder, state));
    return tw_fail(TW_ERROR_UNSUPPORTED, "%s: no task reads the folders of transformers", folder);
}

static tw_status load_unmerged(const char *file, tw_state **state)
{
    return path_is_folder(file) ? load_foreign(file, state) : checksum_load(file, state);
}

/* Adapters may be beside the merged weights of others, but not for ever. */
enum { BASES_MOST = 8 };

static tw_status load_whole(const char *file, int bases, tw_state **state);

static tw_status load_base(const char *file, const tw_state *adapters, int bases, tw_state **merged)
{
    tw_state *weights;
    if (bases == 0) return tw_fail(TW_ERROR_FORMAT, "%s: more than %d runs of adapters in a row", file, BASES_MOST);
    tw_status status = load_whole(tw_state_text(adapters, BASE), bases - 1, &weights);
    if (status != TW_OK && bases < BASES_MOST) return status; /* named already */
    if (status != TW_OK)
        return tw_fail(status, "%s: the weights that its adapters belong to: %s", file, tw_last_error());
    status = model_file_named(file, weights_merge(adapters, weights, merged));
    tw_state_destroy(weights);
    return status;
}

static tw_status load_whole(const char *file, int bases, tw_state **state)
{
    TW_TRY(load_unmerged(file, state));
    if (!tw_state_text(*state, BASE)) return TW_OK;
    tw_state *adapters = *state;
    tw_status status = load_base(file, adapters, bases, state);
    tw_state_destroy(adapters);
    return status;
}

/* Whole, or what the file itself holds. */
static tw_status read_model(const char *path, const model_choice *meant, bool whole,
                            tw_status (*read)(void *reader, const tw_state *state), void *reader)
{
    char file[CHECKPOINT_PATH];
    tw_state *state;
    TW_TRY(find_model(path, meant, file));
    TW_TRY(whole ? load_whole(file, BASES_MOST, &state) : load_unmerged(file, &state));
    tw_status status = tw_state_put_text(state, TASK_FILE, file);
    if (status == TW_OK) status = model_file_named(file, read(reader, state));
    tw_state_destroy(state);
    return status;
}

tw_status model_file_read(const char *path, const model_choice *meant,
                          tw_status (*read)(void *reader, const tw_state *state), void *reader)
{
    return read_model(path, meant, true, read, reader);
}

tw_status model_file_read_own(const char *path, const model_choice *meant,
                              tw_status (*read)(void *reader, const tw_state *state), void *reader)
{
    return read_model(path, meant, false, read, reader);
}
