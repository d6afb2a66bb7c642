/* Walking through folders; and a tree of folders with sounds in them and nothing else: what there mostly is of speech
 * that nobody has written down. The sounds of one folder count as one speaker's. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "corpus_format.h"
#include "error.h"

static int corpus_tree_by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static FTS *open_tree(const char *path)
{
    char *const roots[] = {(char *)path, NULL};
    return fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, corpus_tree_by_name);
}

/* The root itself may have any name. */
static bool is_hidden(const FTSENT *entry)
{
    return entry->fts_level > 0 && entry->fts_name[0] == '.';
}

static const FTSENT *next_file(FTS *tree, const corpus_files *files)
{
    for (FTSENT *entry; (entry = fts_read(tree));) {
        const bool hidden = is_hidden(entry);
        if (entry->fts_info == FTS_D && (hidden || entry->fts_level >= files->deepest)) fts_set(tree, entry, FTS_SKIP);
        if (hidden) continue;
        if (entry->fts_info == FTS_F && files->wanted(entry)) return entry;
    }
    return NULL;
}

tw_status corpus_take_files(const char *root, const corpus_files *files, speech_list *list)
{
    tw_status status = TW_OK;
    FTS *tree = open_tree(root);
    if (!tree) return tw_fail(TW_ERROR_IO, "%s: cannot walk through its folders", root);
    for (const FTSENT *file; status == TW_OK && (file = next_file(tree, files));)
        status = files->take(root, file, list);
    fts_close(tree);
    return status;
}

bool corpus_has_files(const char *root, const corpus_files *files)
{
    FTS *tree = open_tree(root);
    if (!tree) return false;
    bool found = next_file(tree, files) != NULL;
    fts_close(tree);
    return found;
}

/* ---- sounds alone ---- */

static const char *const endings[] = {".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".gsm", ".au", ".aiff"};

static bool is_sound(const FTSENT *entry)
{
    const char *ending = strrchr(entry->fts_name, '.');
    for (size_t i = 0; ending && i < sizeof endings / sizeof endings[0]; i++)
        if (strcasecmp(ending, endings[i]) == 0) return true;
    return false;
}

/* The id is the path from the tree's root on. */
static tw_status add_sound(const char *root, const FTSENT *entry, speech_list *list)
{
    char path[CORPUS_PATH], speaker[CORPUS_PATH], *id;
    if (snprintf(path, sizeof path, "%s", entry->fts_path) >= CORPUS_PATH)
        return tw_fail(TW_ERROR_FORMAT, "%.100s...: the path is too long", path);
    id = path + strlen(root);
    while (*id == '/') id++;
    corpus_parent(speaker, id);
    speech_utterance one = {.id = id, .path = path, .speaker = strcmp(speaker, ".") == 0 ? "" : speaker};
    return speech_list_add(list, &one);
}

static const corpus_files sounds = {INT_MAX, is_sound, add_sound};

static tw_status read_tree(const char *path, speech_list *list)
{
    return corpus_take_files(path, &sounds, list);
}

static bool found_tree(const char *path)
{
    return corpus_has_files(path, &sounds);
}

const corpus_format tree_format = {"tree", "folders with sound files", found_tree, read_tree, NULL};
