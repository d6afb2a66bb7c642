/* Finding the format of a corpus, and what is the same for all of them. */
#include "speech_corpus.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>
#include <unistd.h>

#include "corpus_format.h"
#include "error.h"

/* A new format is one line here. The last one searches a whole tree for its mark. */
static const corpus_format *const formats[] = {&manifest_format, &kaldi_format, &words_format, &librispeech_format};
enum { FORMATS = sizeof formats / sizeof formats[0] };

/* The names under which one folder may hold both parts. */
static const char *const halves[][2] = {
    {"train", "test"}, {"train.json", "test.json"}, {"train_manifest.json", "test_manifest.json"}};

enum { TEST_SHARE = 10 }; /* one of so many is for testing, where nothing else says which */

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

static char *copy(const char *text, bool *failed)
{
    char *copied = text ? strdup(text) : NULL;
    *failed = *failed || (text && !copied);
    return copied;
}

static void release_utterance(speech_utterance *one)
{
    free(one->id);
    free(one->path);
    free(one->text);
    free(one->speaker);
}

static tw_status make_room(speech_list *list)
{
    if (list->count < list->capacity) return TW_OK;
    size_t capacity = 2 * list->capacity + 256;
    speech_utterance *grown = realloc(list->items, capacity * sizeof *grown);
    if (!grown) return tw_fail(TW_ERROR_MEMORY, "no memory for a list of %zu utterances", capacity);
    list->items = grown;
    list->capacity = capacity;
    return TW_OK;
}

tw_status speech_list_add(speech_list *list, const speech_utterance *one)
{
    TW_TRY(make_room(list));
    bool failed = false;
    speech_utterance copied = *one;
    copied.id = copy(one->id, &failed);
    copied.path = copy(one->path, &failed);
    copied.text = copy(one->text, &failed);
    copied.speaker = copy(one->speaker ? one->speaker : "", &failed);
    if (failed) {
        release_utterance(&copied);
        return tw_fail(TW_ERROR_MEMORY, "no memory for utterance %zu", list->count);
    }
    list->items[list->count++] = copied;
    return TW_OK;
}

static tw_status refuse(const char *path)
{
    char files[256] = "";
    if (access(path, R_OK) != 0)
        return tw_fail(TW_ERROR_IO, "the speech corpus \"%s\" cannot be read: %s", path, strerror(errno));
    for (size_t i = 0; i < FORMATS; i++) {
        size_t length = strlen(files);
        snprintf(files + length, sizeof files - length, "%s%s", i ? ", " : "", formats[i]->files);
    }
    return tw_fail(TW_ERROR_IO, "%s: no speech corpus here; looked for %s", path, files);
}

static tw_status read_part(const char *path, speech_list *list, const corpus_format **format)
{
    for (size_t i = 0; i < FORMATS; i++) {
        if (!formats[i]->found(path)) continue;
        TW_TRY(formats[i]->read(path, list));
        *format = formats[i];
        return list->count ? TW_OK : tw_fail(TW_ERROR_FORMAT, "%s: no utterance in it", path);
    }
    return refuse(path);
}

static bool by_hash(const speech_utterance *one)
{
    return tw_crc32c(0, one->id, strlen(one->id)) % TEST_SHARE == 0;
}

/* Moves what is for testing, keeping the order of both parts. */
static tw_status split(const char *path, bool (*is_test)(const speech_utterance *one), speech_corpus *corpus)
{
    size_t kept = 0, all = corpus->train.count;
    speech_list *train = &corpus->train, *test = &corpus->test;
    test->items = malloc(all * sizeof *test->items);
    if (!test->items) return tw_fail(TW_ERROR_MEMORY, "%s: no memory to split %zu utterances", path, all);
    test->capacity = all;
    for (size_t i = 0; i < all; i++) {
        speech_utterance one = train->items[i];
        if (is_test(&one))
            test->items[test->count++] = one;
        else
            train->items[kept++] = one;
    }
    train->count = kept;
    if (train->count && test->count) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s: of its %zu utterances, %zu would be for testing; name a test set of its own",
                   path, all, test->count);
}

static const char *const *find_halves(const char *path)
{
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++)
        if (corpus_holds(path, halves[i][0]) && corpus_holds(path, halves[i][1])) return halves[i];
    return NULL;
}

static tw_status load_two(const char *train, const char *test, speech_corpus *corpus)
{
    const corpus_format *format, *other;
    TW_TRY(read_part(train, &corpus->train, &format));
    TW_TRY(read_part(test, &corpus->test, &other));
    corpus->format = format->name;
    return TW_OK;
}

static tw_status load_one(const char *path, speech_corpus *corpus)
{
    const corpus_format *format;
    const char *const *names = find_halves(path);
    if (names) {
        char train[CORPUS_PATH], test[CORPUS_PATH];
        TW_TRY(corpus_path(train, path, names[0], ""));
        TW_TRY(corpus_path(test, path, names[1], ""));
        return load_two(train, test, corpus);
    }
    TW_TRY(read_part(path, &corpus->train, &format));
    corpus->format = format->name;
    return split(path, format->is_test ? format->is_test : by_hash, corpus);
}

tw_status speech_corpus_load(const char *train, const char *test, speech_corpus *corpus)
{
    *corpus = (speech_corpus){0};
    tw_status status = test ? load_two(train, test, corpus) : load_one(train, corpus);
    if (status != TW_OK) speech_corpus_release(corpus);
    return status;
}

static void release_list(speech_list *list)
{
    for (size_t i = 0; i < list->count; i++) release_utterance(&list->items[i]);
    free(list->items);
    *list = (speech_list){0};
}

void speech_corpus_release(speech_corpus *corpus)
{
    release_list(&corpus->train);
    release_list(&corpus->test);
}
