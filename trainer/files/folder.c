#include "folder.h"
#include "error.h"
#include "folders.h"
#include "regular_file.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPLACED ".replaced"
#define REMOVED ".removed"

tw_status folder_make(const char *path)
{
    char part[FOLDERS_PATH];
    if (strlen(path) >= FOLDER_PATH)
        return tw_fail(TW_ERROR_ARGUMENT, "the folder name %.40s... is longer than %d bytes", path, FOLDER_PATH - 1);
    int error = folders_make(path, part);
    if (error == ENOTDIR) return tw_fail(TW_ERROR_IO, "\"%s\" is a file; name a folder, or one that can be made", part);
    return error ? tw_fail(TW_ERROR_IO, "the folder \"%s\" could not be made: %s", part, strerror(error)) : TW_OK;
}

#define RUNS "runs"

tw_status folder_check_chosen(const char *name, const char *out)
{
    const size_t length = strlen(name);
    if (strncmp(out, RUNS "/", sizeof RUNS) == 0 && strncmp(out + sizeof RUNS, name, length) == 0 &&
        out[sizeof RUNS + length] == '-' && !strchr(out + sizeof RUNS, '/'))
        return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "rank 0 has chosen the folder \"%.80s\", which no run chooses", out);
}

tw_status folder_choose(const char *name, char *out, size_t room)
{
    if (folder_make(RUNS) != TW_OK)
        return tw_fail(TW_ERROR_IO, "%s; --out DIR chooses another, --out none keeps nothing", tw_last_error());
    for (unsigned i = 1;; i++) {
        snprintf(out, room, RUNS "/%s-%u", name, i);
        if (mkdir(out, 0777) == 0) return TW_OK;
        if (errno != EEXIST)
            return tw_fail(TW_ERROR_IO, "the folder \"%s\" could not be made: %s; --out DIR chooses another", out,
                           strerror(errno));
    }
}

static tw_status step_path(const char *out, uint64_t step, const char *suffix, char path[FOLDER_PATH])
{
    int length = snprintf(path, FOLDER_PATH, "%s/checkpoints/step-%08llu%s", out, (unsigned long long)step, suffix);
    if (length < FOLDER_PATH - NAME_MAX) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "the folder name %.40s... is too long", out);
}

tw_status folder_open(const char *out)
{
    char longest[FOLDER_PATH];
    TW_TRY(step_path(out, UINT64_MAX, REPLACED, longest));
    return folder_make(out);
}

/* "step-" and digits: their value; -1 for any other name. `*rest` is what follows the digits, or the name. */
static long long parse_step(const char *name, const char **rest)
{
    *rest = name;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
    char *end;
    long long step = strtoll(name + 5, &end, 10);
    *rest = end;
    return step;
}

static int has_suffix(const struct dirent *entry, const char *suffix)
{
    const char *rest;
    return parse_step(entry->d_name, &rest) >= 0 && strcmp(rest, suffix) == 0;
}

static int is_plain(const struct dirent *entry)
{
    return has_suffix(entry, "");
}

static int is_replaced(const struct dirent *entry)
{
    return has_suffix(entry, REPLACED);
}

/* One that stepped aside for another of its step counts where a killed run did not finish that: there is none better.
 */
static int is_checkpoint(const struct dirent *entry)
{
    return is_plain(entry) || is_replaced(entry);
}

static int is_partial(const struct dirent *entry)
{
    return has_suffix(entry, FOLDER_PARTIAL);
}

/* Also step-N.removed-1, where step-N.removed could not be emptied; not what a person may have called so. */
static int is_removed(const struct dirent *entry)
{
    const char *rest;
    if (parse_step(entry->d_name, &rest) < 0 || strncmp(rest, REMOVED, sizeof REMOVED - 1) != 0) return 0;
    rest += sizeof REMOVED - 1;
    return *rest == '\0' || (*rest == '-' && rest[1] && rest[1 + strspn(rest + 1, "0123456789")] == '\0');
}

static uint64_t step_of(const struct dirent *entry)
{
    const char *rest;
    return (uint64_t)parse_step(entry->d_name, &rest);
}

/* Of the same step, the one without a suffix is the newest. */
static int by_step(const struct dirent **a, const struct dirent **b)
{
    uint64_t left = step_of(*a), right = step_of(*b);
    return left != right ? (left > right) - (left < right) : strcmp((*b)->d_name, (*a)->d_name);
}

/* The folders of <out>/checkpoints/ that the filter lets through, oldest first; none when there is no such folder. */
typedef struct listing {
    char root[FOLDER_PATH];
    struct dirent **entries;
    int count;
} listing;

/* Room for a name behind a folder's. */
enum { ENTRY_PATH = FOLDER_PATH + NAME_MAX + 16 };

static int is_folder(const char *root, const struct dirent *entry)
{
    char path[ENTRY_PATH];
    snprintf(path, sizeof path, "%s/%s", root, entry->d_name);
    return path_is_folder(path);
}

/* A file of such a name is none of ours. */
static void drop_files(listing *l)
{
    int kept = 0;
    for (int i = 0; i < l->count; i++)
        if (is_folder(l->root, l->entries[i]))
            l->entries[kept++] = l->entries[i];
        else
            free(l->entries[i]);
    l->count = kept;
}

static void list(const char *out, int (*filter)(const struct dirent *), listing *l)
{
    snprintf(l->root, sizeof l->root, "%s/checkpoints", out);
    l->entries = NULL;
    l->count = scandir(l->root, &l->entries, filter, by_step);
    if (l->count < 0) l->count = 0;
    drop_files(l);
}

static void folder_release(listing *l)
{
    for (int i = 0; i < l->count; i++) free(l->entries[i]);
    free(l->entries);
}

static const char *entry_path(const listing *l, int index, char path[ENTRY_PATH])
{
    snprintf(path, ENTRY_PATH, "%s/%s", l->root, l->entries[index]->d_name);
    return path;
}

/* A checkpoint holds files only; whatever else a person put there stays, and the folder with it. */
static void empty_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
}

static void delete_all(const char *out, int (*filter)(const struct dirent *))
{
    listing l;
    char path[ENTRY_PATH];
    list(out, filter, &l);
    for (int i = 0; i < l.count; i++) {
        empty_folder(entry_path(&l, i, path));
        rmdir(path);
    }
    folder_release(&l);
}

/* Takes a checkpoint its name, in one act, so that half of it is never taken for the whole. Another rank may have done
 * it before. */
static tw_status rename_away(const listing *l, int index)
{
    enum { NAMES = 100 };
    char path[ENTRY_PATH], away[ENTRY_PATH + 8];
    entry_path(l, index, path);
    int length =
        snprintf(away, sizeof away, "%s/step-%08llu" REMOVED, l->root, (unsigned long long)step_of(l->entries[index]));
    for (int i = 1; rename(path, away) != 0 && errno != ENOENT; i++) {
        if (i == NAMES || (errno != ENOTEMPTY && errno != EEXIST))
            return tw_fail(TW_ERROR_IO, "%s could not be renamed to %s: %s", path, away, strerror(errno));
        snprintf(away + length, sizeof away - (size_t)length, "-%d", i);
    }
    return TW_OK;
}

/* What stepped aside and was not replaced gets its name back; what was replaced goes. */
static tw_status settle_replaced(const char *out)
{
    listing l;
    tw_status status = TW_OK;
    char aside[ENTRY_PATH], plain[ENTRY_PATH];
    list(out, is_replaced, &l);
    for (int i = 0; i < l.count && status == TW_OK; i++) {
        snprintf(plain, sizeof plain, "%s", entry_path(&l, i, aside));
        plain[strlen(plain) - (sizeof REPLACED - 1)] = '\0';
        if (path_exists(plain))
            status = rename_away(&l, i);
        else if (rename(aside, plain) != 0 && errno != ENOENT)
            status = tw_fail(TW_ERROR_IO, "%s could not be renamed to %s: %s", aside, plain, strerror(errno));
    }
    folder_release(&l);
    return status;
}

tw_status folder_begin(const char *out, uint64_t step, char partial[FOLDER_PATH])
{
    TW_TRY(step_path(out, step, FOLDER_PARTIAL, partial));
    TW_TRY(settle_replaced(out));
    delete_all(out, is_removed);
    empty_folder(partial);
    return folder_make(partial);
}

/* The last of the names to go decides where --resume continues: until then the newest is still there. */
static tw_status folder_give_up(const char *out, uint64_t step)
{
    listing l;
    tw_status status = TW_OK;
    list(out, is_plain, &l);
    int first = 0;
    while (first < l.count && step_of(l.entries[first]) < step) first++;
    int later = l.count > 0 && step_of(l.entries[l.count - 1]) > step;
    for (int i = first; later && i < l.count && status == TW_OK; i++) status = rename_away(&l, i);
    folder_release(&l);
    return status;
}

tw_status folder_rename(const char *out, uint64_t from, uint64_t to)
{
    listing l;
    tw_status status = TW_OK;
    char old[FOLDER_PATH], new[FOLDER_PATH];
    TW_TRY(step_path(out, from, "", old));
    TW_TRY(step_path(out, to, "", new));
    if (!path_exists(old)) return TW_OK;
    list(out, is_plain, &l);
    for (int i = 0; i < l.count && status == TW_OK; i++)
        if (step_of(l.entries[i]) == to) status = rename_away(&l, i);
    folder_release(&l);
    TW_TRY(status);
    if (rename(old, new) != 0)
        return tw_fail(TW_ERROR_IO, "%s could not be renamed to %s: %s", old, new, strerror(errno));
    folders_sync_parent(new);
    return TW_OK;
}

tw_status folder_give_way(const char *out, uint64_t step)
{
    char final[FOLDER_PATH], replaced[FOLDER_PATH];
    TW_TRY(step_path(out, step, "", final));
    TW_TRY(step_path(out, step, REPLACED, replaced));
    TW_TRY(folder_give_up(out, step));
    if (rename(final, replaced) != 0 && errno != ENOENT)
        return tw_fail(TW_ERROR_IO, "%s could not be renamed to %s: %s", final, replaced, strerror(errno));
    folders_sync_parent(final);
    return TW_OK;
}

static void rename_older_away(const char *out, uint64_t kept, uint64_t best)
{
    listing l;
    list(out, is_plain, &l);
    for (int i = 0; i < l.count && step_of(l.entries[i]) < kept; i++)
        if (step_of(l.entries[i]) != best) rename_away(&l, i);
    folder_release(&l);
}

tw_status folder_publish(const char *out, uint64_t step, uint64_t kept, uint64_t best)
{
    char partial[FOLDER_PATH], final[FOLDER_PATH];
    TW_TRY(step_path(out, step, FOLDER_PARTIAL, partial));
    TW_TRY(step_path(out, step, "", final));
    if (rename(partial, final) != 0 && (errno != ENOENT || !path_exists(final)))
        return tw_fail(TW_ERROR_IO, "%s could not be renamed to %s: %s", partial, final, strerror(errno));
    folders_sync_parent(final);
    rename_older_away(out, kept, best);
    settle_replaced(out);
    folders_sync_parent(final); /* no file goes before its folder's name has */
    delete_all(out, is_removed);
    delete_all(out, is_partial);
    return TW_OK;
}

void folder_abandon(const char *out, uint64_t step)
{
    char partial[FOLDER_PATH];
    if (step_path(out, step, FOLDER_PARTIAL, partial) != TW_OK) return;
    empty_folder(partial);
    rmdir(partial);
    settle_replaced(out);
}

const char *folder_model(const char *folder, char path[CHECKPOINT_PATH])
{
    snprintf(path, CHECKPOINT_PATH, "%s/model.safetensors", folder);
    return path;
}

const char *folder_worker(const char *folder, int rank, char path[CHECKPOINT_PATH])
{
    snprintf(path, CHECKPOINT_PATH, "%s/worker-%d.safetensors", folder, rank);
    return path;
}

/* As far as rank 0 can see, whose two files these are. */
static int folder_is_whole(const char *folder)
{
    char path[CHECKPOINT_PATH];
    return path_exists(folder_model(folder, path)) && path_exists(folder_worker(folder, 0, path));
}

/* The newest that is whole and of a step below `limit`: its index, or -1. */
static int newest_whole(const listing *l, uint64_t limit)
{
    char path[ENTRY_PATH];
    int index = l->count - 1;
    while (index >= 0 && (step_of(l->entries[index]) >= limit || !folder_is_whole(entry_path(l, index, path)))) index--;
    return index;
}

uint64_t folder_kept(const char *out, uint64_t step)
{
    listing l;
    list(out, is_checkpoint, &l);
    int index = newest_whole(&l, step);
    uint64_t kept = index >= 0 ? step_of(l.entries[index]) : step;
    folder_release(&l);
    return kept;
}

int folder_holds(const char *out, uint64_t step, char checkpoint[FOLDER_PATH])
{
    listing l;
    char path[ENTRY_PATH], model[CHECKPOINT_PATH];
    int held = 0;
    list(out, is_checkpoint, &l);
    for (int i = 0; i < l.count && !held; i++)
        held = step_of(l.entries[i]) == step &&
               snprintf(checkpoint, FOLDER_PATH, "%s", entry_path(&l, i, path)) < FOLDER_PATH &&
               path_exists(folder_model(checkpoint, model));
    folder_release(&l);
    return held;
}

int folder_has_checkpoint(const char *out)
{
    listing l;
    list(out, is_checkpoint, &l);
    int any = l.count > 0;
    folder_release(&l);
    return any;
}

/* The last part of a path. */
static const char *last_name(const char *path)
{
    const char *name = path;
    for (const char *at = path; *at; at++)
        if (*at == '/' && at[1] && at[1] != '/') name = at + 1;
    return name;
}

int folder_names_checkpoint(const char *path)
{
    const char *rest;
    return parse_step(last_name(path), &rest) >= 0 && rest[strspn(rest, "/")] == '\0';
}

uint64_t folder_step(const char *checkpoint)
{
    const char *rest;
    long long step = parse_step(last_name(checkpoint), &rest);
    return step >= 0 ? (uint64_t)step : 0;
}

static tw_status copy_path(const char *path, char copy[FOLDER_PATH])
{
    if (snprintf(copy, FOLDER_PATH, "%s", path) < FOLDER_PATH) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "the folder name %.40s... is too long", path);
}

tw_status folder_same(const char *path, uint64_t step, char checkpoint[FOLDER_PATH])
{
    listing l;
    char there[ENTRY_PATH] = "";
    if (folder_names_checkpoint(path)) return copy_path(path, checkpoint);
    list(path, is_checkpoint, &l);
    for (int i = 0; i < l.count; i++)
        if (step_of(l.entries[i]) == step) entry_path(&l, i, there);
    folder_release(&l);
    return *there ? copy_path(there, checkpoint) : step_path(path, step, "", checkpoint);
}

static tw_status find_in_run(const char *out, size_t newer, char checkpoint[FOLDER_PATH])
{
    listing l;
    char path[ENTRY_PATH];
    list(out, is_checkpoint, &l);
    int there = (size_t)l.count > newer;
    int fits =
        there && snprintf(checkpoint, FOLDER_PATH, "%s", entry_path(&l, l.count - 1 - (int)newer, path)) < FOLDER_PATH;
    folder_release(&l);
    if (fits) return TW_OK;
    if (there) return tw_fail(TW_ERROR_ARGUMENT, "the folder name %.40s... is too long", out);
    return tw_fail(TW_ERROR_IO,
                   "%s/checkpoints holds no%s checkpoint; name the folder of a run that saved one, or the checkpoint",
                   out, newer > 0 ? " older" : "");
}

tw_status folder_find(const char *path, size_t newer, char checkpoint[FOLDER_PATH])
{
    if (!folder_names_checkpoint(path)) return find_in_run(path, newer, checkpoint);
    if (newer > 0) return tw_fail(TW_ERROR_IO, "%s is one checkpoint, which has no older one", path);
    return copy_path(path, checkpoint);
}

int folder_owns(const char *out, const char *checkpoint)
{
    char own[FOLDER_PATH + NAME_MAX], parent[FOLDER_PATH + NAME_MAX];
    struct stat own_info, parent_info;
    snprintf(own, sizeof own, "%s/checkpoints", out);
    snprintf(parent, sizeof parent, "%s/..", checkpoint);
    return stat(own, &own_info) == 0 && stat(parent, &parent_info) == 0 && own_info.st_dev == parent_info.st_dev &&
           own_info.st_ino == parent_info.st_ino;
}
