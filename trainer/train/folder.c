#include "folder.h"
#include "error.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEPT 2
#define PARTIAL ".partial"
#define REPLACED ".replaced"

static tw_status make_one(const char *path)
{
    struct stat info;
    if (mkdir(path, 0777) == 0) return TW_OK;
    int error = errno;
    int there = stat(path, &info) == 0;
    if (there && S_ISDIR(info.st_mode)) return TW_OK;
    if (there) return tw_fail(TW_ERROR_IO, "\"%s\" is a file; name a folder, or one that can be made", path);
    return tw_fail(TW_ERROR_IO, "the folder \"%s\" could not be made: %s", path, strerror(error));
}

tw_status folder_make(const char *path)
{
    char part[FOLDER_PATH];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return tw_fail(TW_ERROR_ARGUMENT, "the folder name %.40s... is longer than %d bytes", path, FOLDER_PATH - 1);
    for (char *slash = *part ? strchr(part + 1, '/') : NULL; slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        TW_TRY(make_one(part));
        *slash = '/';
    }
    return make_one(part);
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

/* A checkpoint holds files only; whatever else a person put there stays, and the folder with it. */
static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(path);
}

tw_status folder_begin(const char *out, uint64_t step, char partial[FOLDER_PATH])
{
    char final[FOLDER_PATH], replaced[FOLDER_PATH];
    TW_TRY(step_path(out, step, PARTIAL, partial));
    TW_TRY(step_path(out, step, "", final));
    TW_TRY(step_path(out, step, REPLACED, replaced));
    rename(final, replaced);
    return folder_make(partial);
}

static void sync_folder(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    fsync(descriptor);
    close(descriptor);
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

static int is_checkpoint(const struct dirent *entry)
{
    const char *rest;
    return parse_step(entry->d_name, &rest) >= 0 && *rest == '\0';
}

/* Or one that stepped aside for another of its step, which a killed run did not finish: there is none better. */
static int is_whole(const struct dirent *entry)
{
    const char *rest;
    return parse_step(entry->d_name, &rest) >= 0 && (*rest == '\0' || strcmp(rest, REPLACED) == 0);
}

static int is_leftover(const struct dirent *entry)
{
    const char *rest;
    return parse_step(entry->d_name, &rest) >= 0 && (strcmp(rest, PARTIAL) == 0 || strcmp(rest, REPLACED) == 0);
}

/* Of the same step, the one without a suffix is the newest. */
static int by_step(const struct dirent **a, const struct dirent **b)
{
    const char *left_rest, *right_rest;
    long long left = parse_step((*a)->d_name, &left_rest), right = parse_step((*b)->d_name, &right_rest);
    return left != right ? (left > right) - (left < right) : strcmp(right_rest, left_rest);
}

/* Names in <out>/checkpoints/, oldest first; none when there is no such folder. */
static int list(const char *out, int (*filter)(const struct dirent *), struct dirent ***entries)
{
    char root[FOLDER_PATH];
    snprintf(root, sizeof root, "%s/checkpoints", out);
    *entries = NULL;
    int count = scandir(root, entries, filter, by_step);
    return count < 0 ? 0 : count;
}

static void release(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++) free(entries[i]);
    free(entries);
}

/* Entries [first, last). */
static void remove_entries(const char *out, struct dirent **entries, int first, int last)
{
    for (int i = first; i < last; i++) {
        char path[FOLDER_PATH];
        if (snprintf(path, sizeof path, "%s/checkpoints/%s", out, entries[i]->d_name) < (int)sizeof path)
            remove_folder(path);
    }
}

static void remove_superseded(const char *out, uint64_t step)
{
    struct dirent **entries;
    const char *rest;
    int count = list(out, is_checkpoint, &entries), end = 0;
    while (end < count && (uint64_t)parse_step(entries[end]->d_name, &rest) <= step) end++;
    remove_entries(out, entries, 0, end - KEPT);
    remove_entries(out, entries, end, count);
    release(entries, count);
}

static void remove_leftovers(const char *out)
{
    struct dirent **entries;
    int count = list(out, is_leftover, &entries);
    remove_entries(out, entries, 0, count);
    release(entries, count);
}

tw_status folder_publish(const char *out, uint64_t step)
{
    char partial[FOLDER_PATH], final[FOLDER_PATH], root[FOLDER_PATH];
    TW_TRY(step_path(out, step, PARTIAL, partial));
    TW_TRY(step_path(out, step, "", final));
    int renamed = rename(partial, final) == 0 || (errno == ENOENT && access(final, F_OK) == 0);
    if (!renamed) return tw_fail(TW_ERROR_IO, "%s could not be renamed to %s: %s", partial, final, strerror(errno));
    snprintf(root, sizeof root, "%.*s", (int)(strrchr(final, '/') - final), final);
    sync_folder(root);
    remove_superseded(out, step);
    remove_leftovers(out);
    return TW_OK;
}

void folder_abandon(const char *out, uint64_t step)
{
    char partial[FOLDER_PATH], final[FOLDER_PATH], replaced[FOLDER_PATH];
    if (step_path(out, step, PARTIAL, partial) != TW_OK || step_path(out, step, "", final) != TW_OK ||
        step_path(out, step, REPLACED, replaced) != TW_OK)
        return;
    remove_folder(partial);
    rename(replaced, final);
}

int folder_names_checkpoint(const char *path)
{
    const char *name = path, *rest;
    for (const char *at = path; *at; at++)
        if (*at == '/' && at[1] && at[1] != '/') name = at + 1;
    return parse_step(name, &rest) >= 0 && rest[strspn(rest, "/")] == '\0';
}

static tw_status find_latest(const char *out, char checkpoint[FOLDER_PATH])
{
    struct dirent **entries;
    int count = list(out, is_whole, &entries);
    if (count > 0) snprintf(checkpoint, FOLDER_PATH, "%s/checkpoints/%s", out, entries[count - 1]->d_name);
    release(entries, count);
    if (count > 0) return TW_OK;
    return tw_fail(TW_ERROR_IO,
                   "%s/checkpoints holds no checkpoint; name the folder of a run that saved one, or the checkpoint",
                   out);
}

tw_status folder_find(const char *path, char checkpoint[FOLDER_PATH])
{
    if (!folder_names_checkpoint(path)) return find_latest(path, checkpoint);
    if (snprintf(checkpoint, FOLDER_PATH, "%s", path) < FOLDER_PATH) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "the folder name %.40s... is too long", path);
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

int folder_has_checkpoint(const char *out)
{
    struct dirent **entries;
    int count = list(out, is_whole, &entries);
    release(entries, count);
    return count > 0;
}
