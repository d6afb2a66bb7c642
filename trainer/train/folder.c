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

tw_status folder_make(const char *path)
{
    char part[FOLDER_PATH];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return tw_fail(TW_ERROR_ARGUMENT, "the folder name %.40s... is longer than %d bytes", path, FOLDER_PATH - 1);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(part, 0777); /* what matters is whether the last one succeeds */
        *slash = '/';
    }
    struct stat info;
    if (mkdir(part, 0777) == 0 || (errno == EEXIST && stat(part, &info) == 0 && S_ISDIR(info.st_mode))) return TW_OK;
    return tw_fail(TW_ERROR_IO, "folder %s could not be made: %s", path, strerror(errno));
}

static tw_status step_path(const char *out, uint64_t step, const char *suffix, char path[FOLDER_PATH])
{
    int length = snprintf(path, FOLDER_PATH, "%s/checkpoints/step-%08llu%s", out, (unsigned long long)step, suffix);
    if (length < FOLDER_PATH - NAME_MAX) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "the folder name %.40s... is too long", out);
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
    TW_TRY(step_path(out, step, ".partial", partial));
    TW_TRY(step_path(out, step, "", final));
    TW_TRY(step_path(out, step, ".replaced", replaced));
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

/* "step-" and digits: their value; -1 for any other name. `*rest` is what follows the digits. */
static long long parse_step(const char *name, const char **rest)
{
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

static int is_leftover(const struct dirent *entry)
{
    const char *rest;
    return parse_step(entry->d_name, &rest) >= 0 && (strcmp(rest, ".partial") == 0 || strcmp(rest, ".replaced") == 0);
}

static int by_step(const struct dirent **a, const struct dirent **b)
{
    const char *rest;
    long long left = parse_step((*a)->d_name, &rest), right = parse_step((*b)->d_name, &rest);
    return (left > right) - (left < right);
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

static void remove_all_but(const char *out, int (*filter)(const struct dirent *), int kept)
{
    struct dirent **entries;
    int count = list(out, filter, &entries);
    for (int i = 0; i < count - kept; i++) {
        char path[FOLDER_PATH];
        if (snprintf(path, sizeof path, "%s/checkpoints/%s", out, entries[i]->d_name) < (int)sizeof path)
            remove_folder(path);
    }
    release(entries, count);
}

tw_status folder_publish(const char *out, uint64_t step)
{
    char partial[FOLDER_PATH], final[FOLDER_PATH], root[FOLDER_PATH];
    TW_TRY(step_path(out, step, ".partial", partial));
    TW_TRY(step_path(out, step, "", final));
    int renamed = rename(partial, final) == 0 || (errno == ENOENT && access(final, F_OK) == 0);
    if (!renamed) return tw_fail(TW_ERROR_IO, "%s could not be renamed to %s: %s", partial, final, strerror(errno));
    snprintf(root, sizeof root, "%.*s", (int)(strrchr(final, '/') - final), final);
    sync_folder(root);
    remove_all_but(out, is_checkpoint, KEPT);
    remove_all_but(out, is_leftover, 0);
    return TW_OK;
}

void folder_abandon(const char *out, uint64_t step)
{
    char partial[FOLDER_PATH], final[FOLDER_PATH], replaced[FOLDER_PATH];
    if (step_path(out, step, ".partial", partial) != TW_OK || step_path(out, step, "", final) != TW_OK ||
        step_path(out, step, ".replaced", replaced) != TW_OK)
        return;
    remove_folder(partial);
    rename(replaced, final);
}

tw_status folder_latest(const char *out, char path[FOLDER_PATH])
{
    struct dirent **entries;
    int count = list(out, is_checkpoint, &entries);
    if (count > 0) snprintf(path, FOLDER_PATH, "%s/checkpoints/%s", out, entries[count - 1]->d_name);
    release(entries, count);
    if (count > 0) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s/checkpoints holds no checkpoint to resume from", out);
}

int folder_has_checkpoint(const char *out)
{
    struct dirent **entries;
    int count = list(out, is_checkpoint, &entries);
    release(entries, count);
    return count > 0;
}
