#include "text_folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "error.h"

static const char *const splits[3] = {"train", "valid", "test"};

static bool ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name), tail = strlen(ending);
    return length > tail && strcmp(name + length - tail, ending) == 0;
}

/* True if a part of the name begins with the word: "ptb.test.txt" is a test, "contest.txt" is none. */
static bool has_part(const char *name, const char *word)
{
    for (const char *at = name; (at = strstr(at, word)); at++)
        if (at == name || !isalnum((unsigned char)at[-1])) return true;
    return false;
}

/* 0, 1, 2, or -1 for a file that is none of the three. */
static int split_of(const char *name, text_unit unit)
{
    if (unit == TEXT_IDS ? !ends_with(name, ".npy") : !ends_with(name, ".txt") && !ends_with(name, ".tokens"))
        return -1;
    for (int i = 0; i < 3; i++)
        if (has_part(name, splits[i])) return i;
    return -1;
}

static tw_status text_folder_take(const char *folder, const char *name, text_unit unit, char paths[3][TEXT_PATH])
{
    int split = split_of(name, unit);
    if (split < 0) return TW_OK;
    if (*paths[split])
        return tw_fail(TW_ERROR_FORMAT, "%s and %s: both are named as the %s text; leave one in the folder",
                       paths[split], name, splits[split]);
    if (snprintf(paths[split], TEXT_PATH, "%s/%s", folder, name) < TEXT_PATH) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "%.100s...: too long for the path of a folder", folder);
}

static tw_status check_all(const char *folder, text_unit unit, char paths[3][TEXT_PATH])
{
    for (int i = 0; i < 3; i++)
        if (!*paths[i])
            return tw_fail(TW_ERROR_IO,
                           "%s: no %s text; a folder holds three, named like %s; of a single file, name the file",
                           folder, splits[i],
                           unit == TEXT_IDS ? "train.npy, valid.npy and test.npy"
                                            : "ptb.train.txt, ptb.valid.txt and ptb.test.txt (or .tokens)");
    return TW_OK;
}

tw_status text_folder_find(const char *folder, text_unit unit, char paths[3][TEXT_PATH])
{
    DIR *listing = opendir(folder);
    if (!listing) return tw_fail(TW_ERROR_IO, "%s: cannot read the folder: %s", folder, strerror(errno));
    for (int i = 0; i < 3; i++) paths[i][0] = 0;
    tw_status status = TW_OK;
    for (struct dirent *entry; status == TW_OK && (entry = readdir(listing));)
        status = text_folder_take(folder, entry->d_name, unit, paths);
    closedir(listing);
    return status == TW_OK ? check_all(folder, unit, paths) : status;
}
