/* Kaldi's data directories: tables from utterance to text, sound, piece of a sound, and speaker. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "corpus_format.h"
#include "error.h"
#include "kaldi_table.h"

typedef struct kaldi_folder {
    const char *path;
    kaldi_table texts, sounds, segments, speakers; /* one whose file is not there is empty */
} kaldi_folder;

/* Sounds beside a text file that has no wav.scp. */
typedef struct plain_sounds {
    const char *folder, *ending;
} plain_sounds;

static const plain_sounds plain[] = {{"flac", ".flac"}, {"wav", ".wav"}};

static const plain_sounds *find_plain(const char *path)
{
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (corpus_holds(path, plain[i].folder)) return &plain[i];
    return NULL;
}

static tw_status corpus_kaldi_read_table(const char *folder, const char *name, bool needed, kaldi_table *table)
{
    char path[CORPUS_PATH];
    if (!needed && !corpus_holds(folder, name)) return TW_OK;
    TW_TRY(corpus_path(path, folder, name, ""));
    return kaldi_table_read(path, table);
}

/* A relative name starts from this folder, or the corpus's above it, or, as Kaldi has it, from where one stands. */
static tw_status find_sound(const char *folder, const char *name, char path[CORPUS_PATH])
{
    char above[CORPUS_PATH];
    const char *const starts[] = {folder, above, "."};
    TW_TRY(corpus_path(above, folder, "..", ""));
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        TW_TRY(corpus_path(path, starts[i], name, ""));
        if (access(path, F_OK) == 0) return TW_OK;
    }
    return corpus_path(path, folder, name, ""); /* where it should be */
}

static tw_status corpus_kaldi_locate(const kaldi_folder *k, const char *recording, char path[CORPUS_PATH])
{
    const kaldi_entry *sound = kaldi_table_find(&k->sounds, recording);
    if (!sound) return tw_fail(TW_ERROR_FORMAT, "%s/segments: \"%s\" is not in wav.scp", k->path, recording);
    size_t length = strlen(sound->value);
    if (length == 0)
        return tw_fail(TW_ERROR_FORMAT, "%s/wav.scp: line %zu: no file for \"%s\"", k->path, sound->line, recording);
    if (sound->value[length - 1] == '|')
        return tw_fail(TW_ERROR_FORMAT,
                       "%s/wav.scp: line %zu: \"%s\" comes from a command, which is not run (%.60s); write its sound "
                       "to a file",
                       k->path, sound->line, recording, sound->value);
    return find_sound(k->path, sound->value, path);
}

static tw_status corpus_kaldi_add(const kaldi_folder *k, speech_utterance *one, speech_list *list)
{
    const kaldi_entry *text = kaldi_table_find(&k->texts, one->id);
    const kaldi_entry *speaker = kaldi_table_find(&k->speakers, one->id);
    one->text = text ? text->value : NULL;
    one->speaker = speaker ? speaker->value : NULL;
    return speech_list_add(list, one);
}

static bool corpus_kaldi_read_seconds(char **rest, double *seconds)
{
    char *word = text_word(rest), *end;
    *seconds = strtod(word, &end);
    return end > word && !*end && isfinite(*seconds);
}

/* "recording begin end" */
static tw_status add_segment(const kaldi_folder *k, const kaldi_entry *segment, speech_list *list)
{
    double end = 0;
    char path[CORPUS_PATH], *rest = segment->value, *recording = text_word(&rest);
    speech_utterance one = {.id = (char *)segment->key, .path = path};
    if (!corpus_kaldi_read_seconds(&rest, &one.offset) || !corpus_kaldi_read_seconds(&rest, &end) || one.offset < 0 ||
        end <= one.offset)
        return tw_fail(TW_ERROR_FORMAT, "%s/segments: line %zu: not utterance, recording, begin and end in seconds",
                       k->path, segment->line);
    one.duration = end - one.offset;
    TW_TRY(corpus_kaldi_locate(k, recording, path));
    return corpus_kaldi_add(k, &one, list);
}

static tw_status add_sound(const kaldi_folder *k, const kaldi_entry *sound, speech_list *list)
{
    char path[CORPUS_PATH];
    speech_utterance one = {.id = (char *)sound->key, .path = path};
    TW_TRY(corpus_kaldi_locate(k, sound->key, path));
    return corpus_kaldi_add(k, &one, list);
}

static tw_status add_plain(const kaldi_folder *k, const plain_sounds *sounds, const char *id, speech_list *list)
{
    char folder[CORPUS_PATH], path[CORPUS_PATH];
    speech_utterance one = {.id = (char *)id, .path = path};
    TW_TRY(corpus_path(folder, k->path, sounds->folder, ""));
    TW_TRY(corpus_path(path, folder, id, sounds->ending));
    return corpus_kaldi_add(k, &one, list);
}

/* Lists the texts that are not in the table of sounds, so that they are counted. */
static tw_status add_soundless(const kaldi_folder *k, const kaldi_table *sounds, const char *fault, speech_list *list)
{
    for (size_t i = 0; i < k->texts.count; i++) {
        speech_utterance one = {.id = (char *)k->texts.entries[i].key, .fault = fault};
        if (!kaldi_table_find(sounds, one.id)) TW_TRY(corpus_kaldi_add(k, &one, list));
    }
    return TW_OK;
}

static tw_status add_all(const kaldi_folder *k, speech_list *list)
{
    const plain_sounds *sounds = find_plain(k->path);
    if (k->segments.count) {
        for (size_t i = 0; i < k->segments.count; i++) TW_TRY(add_segment(k, &k->segments.entries[i], list));
        return add_soundless(k, &k->segments, "in text, but not in segments", list);
    }
    if (k->sounds.count || !sounds) {
        for (size_t i = 0; i < k->sounds.count; i++) TW_TRY(add_sound(k, &k->sounds.entries[i], list));
        return add_soundless(k, &k->sounds, "in text, but not in wav.scp", list);
    }
    for (size_t i = 0; i < k->texts.count; i++) TW_TRY(add_plain(k, sounds, k->texts.entries[i].key, list));
    return TW_OK;
}

static tw_status read_tables(bool has_text, kaldi_folder *k)
{
    TW_TRY(corpus_kaldi_read_table(k->path, "text", has_text, &k->texts));
    TW_TRY(corpus_kaldi_read_table(k->path, "wav.scp", false, &k->sounds));
    TW_TRY(corpus_kaldi_read_table(k->path, "segments", false, &k->segments));
    return corpus_kaldi_read_table(k->path, "utt2spk", false, &k->speakers);
}

static tw_status read_folder(const char *path, bool has_text, speech_list *list)
{
    kaldi_folder k = {.path = path};
    tw_status status = read_tables(has_text, &k);
    if (status == TW_OK) status = add_all(&k, list);
    kaldi_table_release(&k.texts);
    kaldi_table_release(&k.sounds);
    kaldi_table_release(&k.segments);
    kaldi_table_release(&k.speakers);
    return status;
}

static tw_status read_kaldi(const char *path, speech_list *list)
{
    return read_folder(path, true, list);
}

/* The text, if there is one, may list the sounds. */
static tw_status read_kaldi_sounds(const char *path, speech_list *list)
{
    return read_folder(path, !corpus_holds(path, "wav.scp"), list);
}

static bool found_kaldi(const char *path)
{
    return corpus_holds(path, "wav.scp") || (corpus_holds(path, "text") && find_plain(path));
}

const corpus_format kaldi_format = {"kaldi", "wav.scp, or text with flac/ or wav/ (Kaldi)", found_kaldi, read_kaldi,
                                    NULL};
const corpus_format kaldi_sounds_format = {"kaldi", "wav.scp (Kaldi)", found_kaldi, read_kaldi_sounds, NULL};
