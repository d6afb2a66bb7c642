/* folder.h - a folder of a test's own, with sounds and texts in it. */
#ifndef TESTS_AUDIO_FOLDER_H
#define TESTS_AUDIO_FOLDER_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sndfile.h>
#include <thinwire/thinwire.h>

static char folder[256];

static inline int folder_make(void **state)
{
    const char *root = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%s/thinwire-audio-XXXXXX", root ? root : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int folder_remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about, (void)kind, (void)place;
    return remove(path);
}

static inline int folder_remove(void **state)
{
    (void)state;
    return nftw(folder, folder_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The path of a name in the folder; the last four stay good. */
static inline const char *in_folder(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* With the folders before its last slash, of which those above must be there. */
static inline const char *make_parent(const char *name)
{
    char parent[512];
    const char *path = in_folder(name);
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(path, '/') - path), path);
    mkdir(parent, 0700);
    return path;
}

static inline void write_bytes(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(make_parent(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

static inline void write_sound(const char *name, int format, int channels, int rate, const float *samples, size_t count)
{
    SF_INFO info = {.samplerate = rate, .channels = channels, .format = format};
    SNDFILE *file = sf_open(make_parent(name), SFM_WRITE, &info);
    assert_non_null(file);
    sf_command(file, SFC_SET_CLIPPING, NULL, SF_TRUE);
    assert_int_equal(sf_writef_float(file, samples, (sf_count_t)count), count);
    assert_int_equal(sf_close(file), 0);
}

/* A WAV of that many samples, at 8 kHz: noise, the same for the same seed. */
static inline void write_noise(const char *name, unsigned seed, size_t count)
{
    float *samples = malloc((count + 1) * sizeof *samples);
    assert_non_null(samples);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        samples[i] = (float)(seed >> 8) / 16777216.0f - 0.5f;
    }
    write_sound(name, SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, 8000, samples, count);
    free(samples);
}

/* The last failure is one line that says all these words. */
#define assert_said(...) assert_words((const char *const[]){__VA_ARGS__, NULL})

static inline void assert_words(const char *const words[])
{
    assert_null(strchr(tw_last_error(), '\n'));
    for (; *words; words++)
        if (!strstr(tw_last_error(), *words)) fail_msg("\"%s\" should say \"%s\"", tw_last_error(), *words);
}

#endif
