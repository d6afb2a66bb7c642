/* Folders of single words, LABEL_SPEAKER_INDEX.wav: the Free Spoken Digit Dataset, whose repository keeps them in
 * recordings/. Its owners test on the recordings 0 to 4 of every digit and speaker. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code_point.h"
#include "corpus_format.h"
#include "error.h"

static const char ending[] = ".wav";
enum { TEST_RECORDINGS = 5, STEM = 256, SHOWN = 4 * STEM }; /* SHOWN: when every byte becomes \xNN */

/* What a file's name says; the parts lie in `stem`, one behind the other. */
typedef struct word_name {
    char stem[STEM];
    const char *label, *speaker, *index;
} word_name;

static bool is_sound(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && length < STEM && strcmp(name + length - 4, ending) == 0;
}

static bool is_number(const char *text)
{
    return *text && text[strspn(text, "0123456789")] == 0;
}

/* Of "7_george_3", with or without an ending. A speaker's name may hold more underscores. */
static bool parse_name(const char *name, word_name *parsed)
{
    snprintf(parsed->stem, sizeof parsed->stem, "%s", name);
    if (is_sound(name)) parsed->stem[strlen(name) - 4] = 0;
    char *first = strchr(parsed->stem, '_'), *last = strrchr(parsed->stem, '_');
    if (!first || first == last || first == parsed->stem) return false;
    *first = *last = 0;
    parsed->label = parsed->stem;
    parsed->speaker = first + 1;
    parsed->index = last + 1;
    return is_number(parsed->index);
}

static const char *spoken(const char *label)
{
    static const char *const digits[] = {"zero", "one", "two",   "three", "four",
                                         "five", "six", "seven", "eight", "nine"};
    return isdigit((unsigned char)label[0]) && !label[1] ? digits[label[0] - '0'] : label;
}

static const char *sounds_folder(const char *path, char folder[CORPUS_PATH])
{
    if (!corpus_holds(path, "recordings") || corpus_path(folder, path, "recordings", "") != TW_OK) return path;
    return folder;
}

/* One whose name says nothing has no transcript. A name may hold any bytes, but the corpus hands out UTF-8. */
static tw_status add_file(const char *folder, const char *name, speech_list *list)
{
    word_name parsed = {0};
    char path[CORPUS_PATH], stem[STEM], id[SHOWN];
    speech_utterance one = {.id = id, .path = path};
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(name) - 4), name);
    if (strcmp(code_point_show(stem, strlen(stem), id, sizeof id), stem) != 0) {
        one = (speech_utterance){.id = id, .fault = "the name of its file is not printable UTF-8"};
        return speech_list_add(list, &one);
    }
    TW_TRY(corpus_path(path, folder, name, ""));
    if (parse_name(name, &parsed)) {
        one.text = (char *)spoken(parsed.label);
        one.speaker = (char *)parsed.speaker;
    }
    return speech_list_add(list, &one);
}

static int only_sounds(const struct dirent *entry)
{
    return is_sound(entry->d_name);
}

static int corpus_words_by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* alphasort would ask the locale */
}

static tw_status read_words(const char *path, speech_list *list)
{
    char place[CORPUS_PATH];
    const char *folder = sounds_folder(path, place);
    struct dirent **entries;
    tw_status status = TW_OK;
    int count = scandir(folder, &entries, only_sounds, corpus_words_by_name);
    if (count < 0) return tw_fail(TW_ERROR_IO, "%s: cannot list its files", folder);
    for (int i = 0; i < count; i++) {
        if (status == TW_OK) status = add_file(folder, entries[i]->d_name, list);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static bool found_words(const char *path)
{
    char place[CORPUS_PATH];
    word_name parsed = {0};
    bool found = false;
    DIR *folder = opendir(sounds_folder(path, place));
    if (!folder) return false;
    for (struct dirent *entry; !found && (entry = readdir(folder));)
        found = is_sound(entry->d_name) && parse_name(entry->d_name, &parsed);
    closedir(folder);
    return found;
}

static bool is_test(const speech_utterance *one)
{
    word_name parsed = {0};
    return parse_name(one->id, &parsed) && strtoul(parsed.index, NULL, 10) < TEST_RECORDINGS;
}

const corpus_format words_format = {"words", "LABEL_SPEAKER_INDEX.wav (spoken words)", found_words, read_words,
                                    is_test};
