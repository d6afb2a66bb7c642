/* Reads any text as the settings of features, as an alphabet and as a transcript: the first byte chooses. Settings that
 * are accepted must come back from their own text and make finite features; letters must be found again. */
#include "alphabet.h"
#include "fuzz.h"
#include "log_mel.h"

#include <math.h>
#include <string.h>

enum { MOST_WINDOW = 1024, MOST_WIDTH = 256, FRAMES = 3 }; /* beyond that an input takes too long */

/* A square wave as loud as sound_read lets it be, then silence. */
static void extract(const feature_settings *settings, log_mel *extractor)
{
    size_t window = feature_window_samples(settings), hop = feature_hop_samples(settings);
    size_t count = window + (FRAMES - 1) * hop, frames = feature_frames(settings, count);
    size_t values = frames * feature_width(settings);
    float *samples = calloc(count, sizeof *samples), *rows = malloc(values * sizeof *rows);
    must(samples && rows && frames > 0 && frames <= FRAMES);
    for (size_t i = 0; i < window; i++) samples[i] = i / 8 % 2 ? 1e10f : -1e10f;
    must(log_mel_extract(extractor, samples, count, rows) == TW_OK);
    for (size_t i = 0; i < values; i++) must(isfinite(rows[i]));
    free(samples);
    free(rows);
}

static void read_settings(const char *text)
{
    feature_settings settings, again;
    char first[FEATURE_SETTINGS_TEXT], second[FEATURE_SETTINGS_TEXT];
    log_mel *extractor;
    tw_status status = feature_settings_parse(text, &settings);
    must(status == TW_OK || status == TW_ERROR_ARGUMENT);
    if (status != TW_OK) return;
    feature_settings_text(&settings, first);
    must(feature_settings_parse(first, &again) == TW_OK);
    must(strcmp(feature_settings_text(&again, second), first) == 0);
    must(feature_window_samples(&settings) > 0 && feature_hop_samples(&settings) > 0);
    if (feature_window_samples(&settings) > MOST_WINDOW || feature_width(&settings) > MOST_WIDTH) return;
    status = log_mel_create(&settings, &extractor);
    must(status == TW_OK || status == TW_ERROR_ARGUMENT);
    if (status != TW_OK) return;
    extract(&settings, extractor);
    log_mel_destroy(extractor);
}

/* `said` in letters of the alphabet becomes numbers and comes back. */
static void check_letters(const alphabet *letters, const char *said)
{
    size_t room = strlen(said) + 1, count = 0;
    uint32_t *numbers = malloc(room * sizeof *numbers);
    char *heard = malloc(4 * room + 1);
    must(numbers && heard);
    must(alphabet_encode(letters, said, numbers, &count) == TW_OK && count < room);
    alphabet_decode(letters, numbers, count, heard);
    must(strcmp(heard, said) == 0);
    free(numbers);
    free(heard);
}

static void read_alphabet(const char *text)
{
    alphabet letters = {0};
    char *all = NULL;
    tw_status status = alphabet_parse(text, &letters);
    must(status == TW_OK || status == TW_ERROR_FORMAT);
    if (status != TW_OK) return;
    must(letters.count > 0 && alphabet_text(&letters, &all) == TW_OK);
    must(strlen(all) == strlen(text));
    check_letters(&letters, all);
    check_letters(&letters, text);
    free(all);
    alphabet_release(&letters);
}

static void read_transcript(const char *text)
{
    alphabet letters = {0};
    char *said = malloc(transcript_capacity(text));
    must(said != NULL);
    tw_status status = transcript_normalise(text, said);
    must(status == TW_OK || status == TW_ERROR_FORMAT);
    if (status == TW_OK) {
        char *again = malloc(transcript_capacity(said));
        must(again && transcript_normalise(said, again) == TW_OK && strcmp(again, said) == 0);
        must(alphabet_add(&letters, said) == TW_OK);
        check_letters(&letters, said);
        alphabet_release(&letters);
        free(again);
    }
    free(said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const char *text) = {read_settings, read_alphabet, read_transcript};
    if (size < 1) return 0;
    char *text = malloc(size);
    must(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    readers[data[0] % (sizeof readers / sizeof *readers)](text);
    free(text);
    return 0;
}
