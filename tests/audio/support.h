/* support.h - sounds to write into a folder of the test's own. */
#ifndef TESTS_AUDIO_SUPPORT_H
#define TESTS_AUDIO_SUPPORT_H

#include <sndfile.h>

#include "speech_corpus.h"
#include "support/assert.h"
#include "support/folder.h"

static inline void write_sound(const char *name, int format, int channels, int rate, const float *samples, size_t count)
{
    SF_INFO info = {.samplerate = rate, .channels = channels, .format = format};
    SNDFILE *file = sf_open(make_parent(name), SFM_WRITE, &info);
    assert_non_null(file);
    sf_command(file, SFC_SET_CLIPPING, NULL, SF_TRUE);
    assert_int_equal(sf_writef_float(file, samples, (sf_count_t)count), count);
    assert_int_equal(sf_close(file), 0);
}

/* The same for the same seed. */
static inline void fill_noise(unsigned seed, float *samples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        samples[i] = (float)(seed >> 8) / 16777216.0f - 0.5f;
    }
}

/* A WAV of that many samples, at 8 kHz. */
static inline void write_noise(const char *name, unsigned seed, size_t count)
{
    float *samples = malloc((count + 1) * sizeof *samples);
    assert_non_null(samples);
    fill_noise(seed, samples, count);
    write_sound(name, SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, 8000, samples, count);
    free(samples);
}

/* `text` NULL: it has none. */
static inline void assert_utterance(const speech_utterance *one, const char *id, const char *path, const char *text,
                                    const char *speaker)
{
    assert_string_equal(one->id, id);
    assert_string_equal(one->path, path);
    assert_string_equal(one->speaker, speaker);
    if (text)
        assert_string_equal(one->text, text);
    else
        assert_null(one->text);
}

#endif
