/* Reads any bytes as what describes a corpus of speech: the first byte chooses the format, zero bytes part its files.
 * Whatever is accepted must hold texts in UTF-8 that can be learned, and pieces of sound that begin and end somewhere;
 * an alignment must give each frame of a window one class. No sound of a corpus is opened: its path is the input's. */
#include "alphabet.h"
#include "code_point.h"
#include "folder.h"
#include "frame_data.h"
#include "memory_file.h"
#include "speech_corpus.h"
#include "speech_data.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 4000, WINDOW = 5 };

/* ---- files ---- */

static const char *empty_folder(void)
{
    remove_folder();
    if (*fuzz_folder) must(mkdir(fuzz_folder, 0700) == 0);
    make_folder();
    return fuzz_folder;
}

/* Cuts the next part off the input: what stands before a zero byte, or all of it. */
static size_t next_part(const uint8_t **data, size_t *size, const uint8_t **part)
{
    const uint8_t *zero = *size ? memchr(*data, 0, *size) : NULL;
    size_t length = zero ? (size_t)(zero - *data) : *size, taken = length + (zero != NULL);
    *part = *data;
    *data += taken;
    *size -= taken;
    return length;
}

/* ---- a corpus ---- */

static void check_text(const char *text)
{
    uint32_t point;
    for (size_t left = strlen(text), length; left > 0; text += length, left -= length) {
        length = code_point_read(text, left, &point);
        must(length > 0);
    }
}

static void check_list(const speech_list *list)
{
    alphabet letters = {0};
    must(list->count > 0);
    for (size_t i = 0; i < list->count; i++) {
        const speech_utterance *one = &list->items[i];
        check_text(one->id);
        check_text(one->speaker);
        if (one->text) check_text(one->text);
        must((one->path == NULL) == (one->fault != NULL));
        must(one->offset >= 0 && isfinite(one->offset) && one->duration >= 0 && isfinite(one->duration));
    }
    must(speech_alphabet(list, &letters) == TW_OK);
    alphabet_release(&letters);
}

static void load_corpus(const char *train, const char *test)
{
    speech_corpus corpus;
    tw_status status = speech_corpus_load(train, test, &corpus);
    must(status == TW_OK || status == TW_ERROR_IO || status == TW_ERROR_FORMAT);
    if (status == TW_OK) {
        check_list(&corpus.train);
        check_list(&corpus.test);
    }
    speech_corpus_release(&corpus);
}

static void read_manifest(const uint8_t *data, size_t size)
{
    const char *path = file_of(data, size);
    load_corpus(path, path);
    load_corpus(path, NULL);
}

static void read_kaldi(const uint8_t *data, size_t size)
{
    static const char *const tables[] = {"text", "wav.scp", "segments", "utt2spk"};
    const char *folder = empty_folder();
    for (size_t i = 0; i < sizeof tables / sizeof *tables && size > 0; i++) {
        const uint8_t *part;
        size_t length = next_part(&data, &size, &part);
        must(write_file(tables[i], part, length));
    }
    load_corpus(folder, folder);
}

static void read_librispeech(const uint8_t *data, size_t size)
{
    const char *folder = empty_folder();
    must(write_file("1-1.trans.txt", data, size));
    load_corpus(folder, NULL);
}

/* The parts are names of files. */
static void read_words(const uint8_t *data, size_t size)
{
    const char *folder = empty_folder();
    while (size > 0) {
        const uint8_t *part;
        char name[256];
        size_t length = next_part(&data, &size, &part);
        if (length == 0 || length >= sizeof name || memchr(part, '/', length)) continue;
        memcpy(name, part, length);
        name[length] = 0;
        write_file(name, NULL, 0);
    }
    load_corpus(folder, folder);
}

/* ---- an alignment ---- */

/* The ids are u0 and u1, of one sound of zeros. */
static void make_list(speech_utterance items[2])
{
    static const uint8_t header[44] = "RIFF\x64\x1f\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data"
                                      "\x40\x1f\0";
    static uint8_t sound[sizeof header + 2 * SAMPLES];
    static char path[FUZZ_PATH];
    memcpy(sound, header, sizeof header);
    must(write_file("sound.wav", sound, sizeof sound));
    snprintf(path, sizeof path, "%s", in_folder("sound.wav"));
    items[0] = (speech_utterance){.id = (char *)"u0", .path = path, .speaker = (char *)""};
    items[1] = (speech_utterance){.id = (char *)"u1", .path = path, .speaker = (char *)"", .duration = 0.2};
}

static void check_windows(const frame_set *set)
{
    size_t width = set->speech.width;
    for (uint32_t i = 0; i < set->count; i++) {
        float features[WINDOW * 4];
        int32_t targets[WINDOW];
        must(width == 4 && set->windows[i].item < set->speech.count);
        frame_fill(set, &i, 1, features, targets);
        for (int t = 0; t < WINDOW; t++) {
            must(targets[t] == FRAME_NONE || (targets[t] >= 0 && (size_t)targets[t] < set->classes));
            must(isfinite(features[4 * t]));
        }
    }
}

static void read_alignment(const uint8_t *data, size_t size)
{
    speech_utterance items[2];
    speech_list list = {.items = items, .count = 2, .capacity = 2};
    speech_request request = {.channel = -1, .most_seconds = 1, .most_bytes = 1 << 20, .most_bytes_option = "none"};
    frame_set set;
    empty_folder();
    make_list(items);
    must(feature_settings_parse("rate=8000,bins=4", &request.features) == TW_OK);
    tw_status status = frame_load(&list, file_of(data, size), &request, WINDOW, 0, &set);
    must(status == TW_OK || status == TW_ERROR_FORMAT);
    if (status != TW_OK) return;
    must(set.count > 0 && set.speech.count + skips_total(&set.speech.skipped) == 2);
    check_windows(&set);
    frame_release(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const uint8_t *data, size_t size) = {read_manifest, read_kaldi, read_librispeech,
                                                                        read_words, read_alignment};
    if (size > 0) readers[data[0] % (sizeof readers / sizeof *readers)](data + 1, size - 1);
    return 0;
}
