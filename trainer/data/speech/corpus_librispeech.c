/* LibriSpeech: SPEAKER/CHAPTER/ID.flac, and beside them SPEAKER-CHAPTER.trans.txt, a line an utterance. Any part of the
 * tree may be named: the whole of it, a subset, a speaker. */
#include <string.h>

#include "corpus_format.h"
#include "error.h"
#include "text_lines.h"

static const char mark[] = ".trans.txt";
enum { DEEPEST = 4 }; /* LibriSpeech/subset/speaker/chapter/file */

static bool has_transcripts(const FTSENT *file)
{
    size_t length = file->fts_namelen, ending = sizeof mark - 1;
    return length > ending && strcmp(file->fts_name + length - ending, mark) == 0;
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

static tw_status read_transcripts(const char *root, const FTSENT *file, speech_list *list)
{
    (void)root;
    text_lines lines;
    char folder[CORPUS_PATH];
    tw_status status = TW_OK;
    TW_TRY(text_lines_open(file->fts_path, &lines));
    corpus_parent(folder, file->fts_path);
    for (char *line; status == TW_OK && (line = text_lines_next(&lines));)
        status = corpus_librispeech_add_line(folder, line, list);
    text_lines_close(&lines);
    return status;
}

static const corpus_files transcripts = {DEEPEST, has_transcripts, read_transcripts};

static tw_status read_librispeech(const char *path, speech_list *list)
{
    return corpus_take_files(path, &transcripts, list);
}

static bool found_librispeech(const char *path)
{
    return corpus_has_files(path, &transcripts);
}

const corpus_format librispeech_format = {"librispeech", "folders with ID.trans.txt (LibriSpeech)", found_librispeech,
                                          read_librispeech, NULL};
