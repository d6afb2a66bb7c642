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
#include "file.h"

/* A new format is one line here. The last one searches a whole tree for its mark. */
static const corpus_format *const formats[] = {&manifest_format, &kaldi_format, &words_format, &librispeech_format,
                                               NULL};
/* Where transcripts do not matter. */
static const corpus_format *const sound_formats[] = {&manifest_format,    &kaldi_sounds_format, &words_format,
                                                     &librispeech_format, &tree_format,         NULL};

/* The names under which one folder may hold both parts. */
static const char *const halves[][2] = {
    {"train", "test"}, {"train.json", "test.json"}, {"train_manifest.json", "test_manifest.json"}};

enum { TEST_SHARE = 10 }; /* one of so many is for testing, where nothing else says which */

static tw_status speech_corpus_refuse(const corpus_format *const *known, const char *path)
{
    char files[256] = "";
    if (access(path, R_OK) != 0)
        return tw_fail(TW_ERROR_IO, "the speech corpus \"%s\" cannot be read: %s", path, strerror(errno));
    for (size_t i = 0; known[i]; i++) {
        size_t length = strlen(files);
        snprintf(files + length, sizeof files - length, "%s%s", i ? ", " : "", known[i]->files);
    }
    return tw_fail(TW_ERROR_IO, "%s: no speech corpus here; looked for %s", path, files);
}

static tw_status read_known(const corpus_format *const *known, const char *path, speech_list *list,
                            const corpus_format **format)
{
    for (size_t i = 0; (*format = known[i]); i++) {
        if (!known[i]->found(path)) continue;
        TW_TRY(known[i]->read(path, list));
        return list->count ? TW_OK : tw_fail(TW_ERROR_FORMAT, "%s: no utterance in it", path);
    }
    return speech_corpus_refuse(known, path);
}

/* Whose an utterance is, in an order that has nothing to do with names. */
typedef struct owner {
    uint32_t hash;
    const char *name;
} owner;

static owner find_owner(const speech_utterance *one, bool by_speaker)
{
    const char *name = by_speaker ? one->speaker : one->id;
    return (owner){tw_crc32c(0, name, strlen(name)), name};
}

static int by_owner(const void *a, const void *b)
{
    const owner *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* What is moved from one part of a corpus to another. */
typedef struct choice {
    bool (*owners)(const speech_utterance *one); /* the split of the corpus's owners; NULL: by what follows */
    const owner *end;                            /* what belongs to those before this one; NULL: by id, */
    bool by_speaker;
    double share; /* by a generator at its place; 0: every tenth, by its hash */
} choice;

static bool is_drawn(const speech_utterance *one, double share)
{
    static const uint64_t split_seed = 0x73706c6974; /* the same in every run */
    uint32_t words[4];
    tw_random(split_seed, 0, tw_crc32c(0, one->id, strlen(one->id)), words);
    return (double)words[0] < share * 0x1p32;
}

static bool is_chosen(const choice *c, const speech_utterance *one)
{
    if (c->owners) return c->owners(one);
    if (c->end) {
        owner of = find_owner(one, c->by_speaker);
        return by_owner(&of, c->end) < 0;
    }
    if (c->share > 0) return is_drawn(one, c->share);
    return tw_crc32c(0, one->id, strlen(one->id)) % TEST_SHARE == 0;
}

/* Moves what is chosen, keeping the order of both parts. */
static tw_status speech_corpus_split(speech_list *from, const choice *c, speech_list *to)
{
    size_t kept = 0, all = from->count;
    to->items = malloc(all * sizeof *to->items);
    if (!to->items) return tw_fail(TW_ERROR_MEMORY, "no memory to split %zu utterances", all);
    to->capacity = all;
    for (size_t i = 0; i < all; i++) {
        speech_utterance one = from->items[i];
        if (is_chosen(c, &one))
            to->items[to->count++] = one;
        else
            from->items[kept++] = one;
    }
    from->count = kept;
    return TW_OK;
}

uint32_t speech_list_sum_files(const speech_list *list)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < list->count; i++) sum = file_sum(sum, list->items[i].path, file_is_sampled(i, list->count));
    return sum;
}

const char *speech_list_hint(const speech_list *list, char text[SPEECH_LIST_HINT])
{
    *text = '\0';
    if (list->drawn)
        snprintf(text, SPEECH_LIST_HINT, "; they were drawn out of the training part, and %s names others",
                 list->drawn);
    return text;
}

tw_status speech_corpus_hold_out(double share, speech_corpus *corpus)
{
    size_t all = corpus->train.count;
    TW_TRY(speech_corpus_split(&corpus->train, &(choice){.share = share}, &corpus->valid));
    corpus->valid.drawn = "--validation-data";
    if (corpus->train.count && corpus->valid.count) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--validation %g: of the %zu training utterances, %zu would be held out; name a validation set",
                   share, all, corpus->valid.count);
}

static const char *const *find_halves(const char *path)
{
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++)
        if (corpus_holds(path, halves[i][0]) && corpus_holds(path, halves[i][1])) return halves[i];
    return NULL;
}

static tw_status split_test(const char *path, const corpus_format *format, speech_corpus *corpus)
{
    size_t all = corpus->train.count;
    TW_TRY(speech_corpus_split(&corpus->train, &(choice){.owners = format->is_test}, &corpus->test));
    if (corpus->train.count && corpus->test.count) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s: of its %zu utterances, %zu would be for testing; name a test set of its own",
                   path, all, corpus->test.count);
}

/* How many there are, who then stand at the beginning, each once. */
static size_t list_owners(const speech_list *list, bool by_speaker, owner *owners)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) owners[i] = find_owner(&list->items[i], by_speaker);
    qsort(owners, list->count, sizeof *owners, by_owner);
    for (size_t i = 0; i < list->count; i++)
        if (i == 0 || by_owner(&owners[i], &owners[count - 1]) != 0) owners[count++] = owners[i];
    return count;
}

static tw_status hold_out_speakers(const char *path, speech_corpus *corpus)
{
    size_t all = corpus->train.count;
    owner *owners = calloc(all, sizeof *owners);
    if (!owners) return tw_fail(TW_ERROR_MEMORY, "%s: no memory to split %zu sounds", path, all);
    bool by_speaker = true;
    size_t count = list_owners(&corpus->train, by_speaker, owners);
    if (count < 2) count = list_owners(&corpus->train, by_speaker = false, owners);
    size_t held = count / TEST_SHARE > 0 ? count / TEST_SHARE : 1;
    const choice before = {.end = &owners[held], .by_speaker = by_speaker};
    tw_status status = count > 1 ? speech_corpus_split(&corpus->train, &before, &corpus->test) : TW_OK;
    free(owners);
    if (count > 1) return status;
    return tw_fail(TW_ERROR_FORMAT, "%s: with one sound there is none left to test with; name a test set of its own",
                   path);
}

/* ---- loading ---- */

static tw_status load_parts(const corpus_format *const *known, const char *train, const char *test,
                            speech_corpus *corpus)
{
    const corpus_format *format, *other;
    const char *const *names = test ? NULL : find_halves(train);
    char first[CORPUS_PATH], second[CORPUS_PATH];
    if (names) {
        TW_TRY(corpus_path(first, train, names[0], ""));
        TW_TRY(corpus_path(second, train, names[1], ""));
        train = first;
        test = second;
    }
    TW_TRY(read_known(known, train, &corpus->train, &format));
    corpus->format = format->name;
    if (test) return read_known(known, test, &corpus->test, &other);
    corpus->test.drawn = "--test";
    return known == sound_formats ? hold_out_speakers(train, corpus) : split_test(train, format, corpus);
}

static tw_status load_known(const corpus_format *const *known, const char *train, const char *test,
                            speech_corpus *corpus)
{
    *corpus = (speech_corpus){.train.part = "training", .valid.part = "validation", .test.part = "test"};
    tw_status status = load_parts(known, train, test, corpus);
    if (status != TW_OK) speech_corpus_release(corpus);
    return status;
}

tw_status speech_corpus_load(const char *train, const char *test, speech_corpus *corpus)
{
    return load_known(formats, train, test, corpus);
}

tw_status speech_corpus_load_sounds(const char *train, const char *test, speech_corpus *corpus)
{
    return load_known(sound_formats, train, test, corpus);
}

tw_status speech_corpus_add_validation(const char *path, speech_corpus *corpus)
{
    const corpus_format *format;
    return read_known(formats, path, &corpus->valid, &format);
}

tw_status speech_corpus_load_unsplit(const char *path, speech_corpus *corpus)
{
    if (find_halves(path)) return speech_corpus_load(path, NULL, corpus);
    *corpus = (speech_corpus){0};
    tw_status status = speech_corpus_add_validation(path, corpus);
    if (status != TW_OK) speech_corpus_release(corpus);
    return status;
}

static void release_list(speech_list *list)
{
    for (size_t i = 0; i < list->count; i++) speech_utterance_release(&list->items[i]);
    free(list->items);
    *list = (speech_list){0};
}

void speech_corpus_release(speech_corpus *corpus)
{
    release_list(&corpus->train);
    release_list(&corpus->valid);
    release_list(&corpus->test);
}
