/* What the formats of speech corpora share. */
#include "corpus_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "room.h"

tw_status corpus_path(char path[CORPUS_PATH], const char *folder, const char *name, const char *ending)
{
    int length = name[0] == '/' ? snprintf(path, CORPUS_PATH, "%s%s", name, ending)
                                : snprintf(path, CORPUS_PATH, "%s/%s%s", folder, name, ending);
    if (length < CORPUS_PATH) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%.100s...: a path of %d bytes is too long", path, length);
}

void corpus_parent(char folder[CORPUS_PATH], const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(folder, CORPUS_PATH, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    else
        strcpy(folder, ".");
}

bool corpus_holds(const char *folder, const char *name)
{
    char path[CORPUS_PATH];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length < CORPUS_PATH && access(path, F_OK) == 0;
}

static char *corpus_format_copy(const char *text, bool *failed)
{
    char *copied = text ? strdup(text) : NULL;
    *failed = *failed || (text && !copied);
    return copied;
}

void speech_utterance_release(speech_utterance *one)
{
    free(one->id);
    free(one->path);
    free(one->text);
    free(one->speaker);
}

tw_status speech_list_add(speech_list *list, const speech_utterance *one)
{
    if (!room_make(&list->items, &list->capacity, list->count + 1, sizeof *list->items))
        return tw_fail(TW_ERROR_MEMORY, "no memory for a list of %zu utterances", list->count + 1);
    bool failed = false;
    speech_utterance copied = *one;
    copied.id = corpus_format_copy(one->id, &failed);
    copied.path = corpus_format_copy(one->path, &failed);
    copied.text = corpus_format_copy(one->text, &failed);
    copied.speaker = corpus_format_copy(one->speaker ? one->speaker : "", &failed);
    if (failed) {
        speech_utterance_release(&copied);
        return tw_fail(TW_ERROR_MEMORY, "no memory for utterance %zu", list->count);
    }
    list->items[list->count++] = copied;
    return TW_OK;
}
