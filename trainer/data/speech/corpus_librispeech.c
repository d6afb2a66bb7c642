/* LibriSpeech: SPEAKER/CHAPTER/ID.flac, and beside them SPEAKER-CHAPTER.trans.txt, a line an utterance. Any part of the
 * tree may be named: the whole of it, a subset, a speaker. */
#include <fts.h>
#include <string.h>

#include "corpus_format.h"
#include "error.h"
#include "text_lines.h"

static const char mark[] = ".trans.txt";
enum { DEEPEST = 4 }; /* LibriSpeech/subset/speaker/chapter/file */

static int corpus_librispeech_by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static FTS *open_tree(const char *path)
{
    char *const roots[] = {(char *)path, NULL};
    return fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, corpus_librispeech_by_name);
}

/* The path of the next file of transcripts; NULL after the last. */
static const char *next_transcripts(FTS *tree)
{
    for (FTSENT *entry; (entry = fts_read(tree));) {
        if (entry->fts_info == FTS_D && entry->fts_level >= DEEPEST) fts_set(tree, entry, FTS_SKIP);
        size_t length = entry->fts_namelen, ending = sizeof mark - 1;
        if (entry->fts_info == FTS_F && length > ending && strcmp(entry->fts_name + length - ending, mark) == 0)
            return entry->fts_path;
    }
    return NULL;
}

/* The speaker is what stands before the id's first dash. */
static tw_status corpus_librispeech_add_line(const char *folder, char *line, speech_list *list)
{
    char path[CORPUS_PATH], speaker[64] = "";
    speech_utterance one = {.id = text_word(&line), .path = path, .text = line, .speaker = speaker};
    size_t named = strcspn(one.id, "-");
    if (named < sizeof speaker && one.id[named]) memcpy(speaker, one.id, named);
    TW_TRY(corpus_path(path, folder, one.id, ".flac"));
    return speech_list_add(list, &one);
}

static tw_status read_transcripts(const char *path, speech_list *list)
{
    text_lines lines;
    char folder[CORPUS_PATH];
    tw_status status = TW_OK;
    TW_TRY(text_lines_open(path, &lines));
    corpus_parent(folder, path);
    for (char *line; status == TW_OK && (line = text_lines_next(&lines));)
        status = corpus_librispeech_add_line(folder, line, list);
    text_lines_close(&lines);
    return status;
}

static tw_status read_librispeech(const char *path, speech_list *list)
{
    tw_status status = TW_OK;
    FTS *tree = open_tree(path);
    if (!tree) return tw_fail(TW_ERROR_IO, "%s: cannot walk through its folders", path);
    for (const char *file; status == TW_OK && (file = next_transcripts(tree));) status = read_transcripts(file, list);
    fts_close(tree);
    return status;
}

static bool found_librispeech(const char *path)
{
    FTS *tree = open_tree(path);
    if (!tree) return false;
    bool found = next_transcripts(tree) != NULL;
    fts_close(tree);
    return found;
}

const corpus_format librispeech_format = {"librispeech", "folders with ID.trans.txt (LibriSpeech)", found_librispeech,
                                          read_librispeech, NULL};
