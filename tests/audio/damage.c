/* Sounds that cannot be used: each is told so in a sentence, and none does harm. */
#include "sound.h"
#include "support.h"

#include <math.h>

enum { RATE = 8000, COUNT = 2000 };

static const sound_request whole = {.rate = RATE, .channel = SOUND_MONO, .most_seconds = 1};
static float noise[2 * RATE];

static int set_up(void **state)
{
    fill_noise(7, noise, 2 * RATE);
    return make_folder(state);
}

static void refused(const char *name, const sound_request *request, tw_status expected, const char *words)
{
    float *samples = NULL;
    size_t count = 0;
    assert_int_equal(sound_read(in_folder(name), request, &samples, &count), expected);
    assert_null(samples);
    assert_said(in_folder(name), words);
}

TEST_BETWEEN(refuses_what_is_not_a_sound, set_up, remove_folder)
{
    refused("missing.wav", &whole, TW_ERROR_IO, "cannot open it");
    write_text("empty.wav", "");
    refused("empty.wav", &whole, TW_ERROR_FORMAT, "empty");
    write_text("text.wav", "this is not a sound, whatever its name says");
    refused("text.wav", &whole, TW_ERROR_FORMAT, "not a sound file");
    int rate;
    assert_int_equal(sound_rate(in_folder("text.wav"), &rate), TW_ERROR_FORMAT);
    assert_int_equal(mkdir(in_folder("folder.wav"), 0700), 0);
    refused("folder.wav", &whole, TW_ERROR_IO, "not a regular file");
    assert_int_equal(mkfifo(in_folder("pipe.wav"), 0600), 0);
    refused("pipe.wav", &whole, TW_ERROR_IO, "not a regular file");
}

TEST_BETWEEN(refuses_no_samples, set_up, remove_folder)
{
    write_sound("none.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, RATE, noise, 0);
    refused("none.wav", &whole, TW_ERROR_FORMAT, "zero length");
}

TEST_BETWEEN(refuses_stereo, set_up, remove_folder)
{
    sound_request third = whole;
    write_sound("stereo.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 2, RATE, noise, 500);
    refused("stereo.wav", &whole, TW_ERROR_FORMAT, "2 channels");
    third.channel = 2;
    refused("stereo.wav", &third, TW_ERROR_FORMAT, "no channel 2");
}

TEST_BETWEEN(refuses_what_is_too_long, set_up, remove_folder)
{
    write_sound("long.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, RATE, noise, RATE + 1);
    refused("long.wav", &whole, TW_ERROR_FORMAT, "longer than 1 s");
    write_sound("long.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, RATE, noise, RATE);
    float *samples;
    size_t count;
    assert_int_equal(sound_read(in_folder("long.wav"), &whole, &samples, &count), TW_OK);
    free(samples);
}

TEST_BETWEEN(refuses_numbers_that_are_none, set_up, remove_folder)
{
    noise[77] = NAN;
    write_sound("nan.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 1, RATE, noise, COUNT);
    refused("nan.wav", &whole, TW_ERROR_FORMAT, "sample 77 is nan");
    noise[77] = -INFINITY;
    write_sound("nan.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 1, RATE, noise, COUNT);
    refused("nan.wav", &whole, TW_ERROR_FORMAT, "sample 77 is -inf");
    noise[77] = 1.1e10f;
    write_sound("loud.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 1, RATE, noise, COUNT);
    refused("loud.wav", &whole, TW_ERROR_FORMAT, "sample 77 is 1.1e+10");
    noise[77] = 0;
}

TEST_BETWEEN(refuses_rates_that_are_none, set_up, remove_folder)
{
    write_sound("slow.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, 1, noise, COUNT);
    refused("slow.wav", &whole, TW_ERROR_FORMAT, "1 samples a second");
}

TEST_BETWEEN(refuses_pieces_that_are_not_there, set_up, remove_folder)
{
    sound_request piece = whole;
    write_sound("short.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, RATE, noise, COUNT); /* 0.25 s */
    piece.offset = 0.25;
    refused("short.wav", &piece, TW_ERROR_FORMAT, "begins at 0.25 s");
    piece.offset = -1;
    refused("short.wav", &piece, TW_ERROR_FORMAT, "not a piece");
    piece.offset = 1e300;
    refused("short.wav", &piece, TW_ERROR_FORMAT, "not a piece");
    piece.offset = 0.2;
    piece.duration = 0.6;
    refused("short.wav", &piece, TW_ERROR_FORMAT, "ends after 0.05 s");
}

/* Either it is read, as finite numbers within the limit, or a sentence names it. */
static void survive(const uint8_t *bytes, size_t size)
{
    float *samples = NULL;
    size_t count = 0;
    write_bytes("damaged", bytes, size);
    tw_status status = sound_read(in_folder("damaged"), &whole, &samples, &count);
    if (status == TW_OK) {
        assert_true(count > 0 && count <= RATE);
        for (size_t i = 0; i < count; i++) assert_true(isfinite(samples[i]));
    } else {
        assert_fails(status, TW_ERROR_FORMAT, in_folder("damaged"));
    }
    free(samples);
}

static const int formats[] = {SF_FORMAT_WAV | SF_FORMAT_PCM_16, SF_FORMAT_WAV | SF_FORMAT_FLOAT,
                              SF_FORMAT_FLAC | SF_FORMAT_PCM_16};

TEST_BETWEEN(survives_every_damaged_byte_of_a_header, set_up, remove_folder)
{
    static const uint8_t values[] = {0x00, 0x7f, 0xff};
    for (int f = 0; f < 3; f++) {
        write_sound("whole", formats[f], 1, RATE, noise, COUNT);
        size_t size;
        uint8_t *bytes = read_whole("whole", &size);
        for (size_t at = 0; at < 64; at++) {
            uint8_t kept = bytes[at];
            for (size_t v = 0; v < sizeof values; v++) {
                bytes[at] = values[v];
                survive(bytes, size);
            }
            bytes[at] = kept;
        }
        free(bytes);
    }
}

TEST_BETWEEN(survives_every_truncation, set_up, remove_folder)
{
    for (int f = 0; f < 3; f++) {
        write_sound("whole", formats[f], 1, RATE, noise, COUNT);
        size_t size;
        uint8_t *bytes = read_whole("whole", &size);
        for (size_t cut = 1; cut < size; cut += cut < 100 ? 1 : 97) survive(bytes, cut);
        free(bytes);
    }
}

TEST_BETWEEN(notices_that_a_flac_is_cut_off, set_up, remove_folder)
{
    write_sound("whole", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 1, RATE, noise, COUNT);
    size_t size;
    uint8_t *bytes = read_whole("whole", &size);
    write_bytes("cut.flac", bytes, size / 2);
    free(bytes);
    refused("cut.flac", &whole, TW_ERROR_FORMAT, "");
}

/* Of a WAV libsndfile tells as many samples as are there, so its header is asked what there should be. */
TEST_BETWEEN(notices_that_a_wav_is_cut_off, set_up, remove_folder)
{
    static const int wavs[] = {SF_FORMAT_WAV | SF_FORMAT_PCM_16, SF_FORMAT_WAV | SF_FORMAT_FLOAT,
                               SF_FORMAT_WAV | SF_FORMAT_ULAW, SF_FORMAT_WAVEX | SF_FORMAT_PCM_16};
    sound_request piece = whole;
    piece.duration = 0.05;
    for (size_t f = 0; f < sizeof wavs / sizeof *wavs; f++) {
        size_t size, count;
        float *samples;
        write_sound("whole", wavs[f], 1, RATE, noise, COUNT);
        uint8_t *bytes = read_whole("whole", &size);
        write_bytes("cut.wav", bytes, size / 2);
        refused("cut.wav", &whole, TW_ERROR_FORMAT, "not for 0.25 s");
        write_bytes("cut.wav", bytes, size - 4);
        refused("cut.wav", &whole, TW_ERROR_FORMAT, "damaged or cut off");
        write_bytes("cut.wav", bytes, size / 2);
        free(bytes);
        assert_int_equal(sound_read(in_folder("cut.wav"), &piece, &samples, &count), TW_OK); /* which is all there */
        free(samples);
    }
}

RUN_TESTS(NULL, NULL)
