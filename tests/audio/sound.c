/* Sounds are read as they were written, in every encoding, piece and rate. */
#include "sound.h"
#include "support.h"

#include <math.h>

enum { RATE = 8000, COUNT = 4000, PIPE_COUNT = 1000 };

static const sound_request whole = {.rate = RATE, .channel = SOUND_MONO, .most_seconds = 10};
static float wave[COUNT];

static int set_up(void **state)
{
    for (int i = 0; i < COUNT; i++) wave[i] = 0.8f * sinf(0.05f * (float)i) * cosf(0.0013f * (float)i);
    return make_folder(state);
}

static float *read_good(const char *path, const sound_request *request, size_t expected)
{
    float *samples = NULL;
    size_t count = 0;
    if (sound_read(path, request, &samples, &count) != TW_OK) fail_msg("%s", tw_last_error());
    assert_int_equal(count, expected);
    return samples;
}

TEST_BETWEEN(reads_every_encoding, set_up, remove_folder)
{
    static const struct {
        int format;
        double error; /* the largest: one step of the encoding; half of mu-law's widest; what Vorbis allows itself */
    } cases[] = {
        {SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1.0 / 32000}, {SF_FORMAT_WAV | SF_FORMAT_PCM_24, 1.0 / 8e6},
        {SF_FORMAT_WAV | SF_FORMAT_PCM_32, 1e-7},        {SF_FORMAT_WAV | SF_FORMAT_FLOAT, 0},
        {SF_FORMAT_WAV | SF_FORMAT_DOUBLE, 0},           {SF_FORMAT_WAV | SF_FORMAT_ULAW, 0.02},
        {SF_FORMAT_WAV | SF_FORMAT_ALAW, 0.02},          {SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 1.0 / 32000},
        {SF_FORMAT_OGG | SF_FORMAT_VORBIS, 0.1},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        write_sound("sound", cases[c].format, 1, RATE, wave, COUNT);
        float *samples = read_good(in_folder("sound"), &whole, COUNT);
        for (int i = 0; i < COUNT; i++) assert_true(fabs(samples[i] - wave[i]) <= cases[c].error);
        free(samples);
    }
}

/* It has no header: what says so is the name, and how its frames begin. The codec keeps the shape of a wave, not its
 * values. */
TEST_BETWEEN(reads_gsm_by_its_name, set_up, remove_folder)
{
    double product = 0, own = 0, heard = 0;
    write_sound("sound.gsm", SF_FORMAT_RAW | SF_FORMAT_GSM610, 1, RATE, wave, COUNT);
    float *samples = read_good(in_folder("sound.gsm"), &whole, COUNT);
    for (int i = 0; i < COUNT; i++) {
        product += (double)samples[i] * wave[i];
        own += (double)wave[i] * wave[i];
        heard += (double)samples[i] * samples[i];
    }
    free(samples);
    assert_true(product / sqrt(own * heard) > 0.95);
    write_sound("wave.gsm", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 1, RATE, wave, COUNT);
    samples = read_good(in_folder("wave.gsm"), &whole, COUNT);
    assert_memory_equal(samples, wave, sizeof wave);
    free(samples);
}

TEST_BETWEEN(takes_the_channel_that_is_named, set_up, remove_folder)
{
    static float three[3 * COUNT];
    for (int i = 0; i < COUNT; i++)
        for (int c = 0; c < 3; c++) three[3 * i + c] = wave[i] / (float)(c + 1);
    write_sound("three.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 3, RATE, three, COUNT);
    for (int c = 0; c < 3; c++) {
        sound_request one = whole;
        one.channel = c;
        float *samples = read_good(in_folder("three.wav"), &one, COUNT);
        for (int i = 0; i < COUNT; i++) assert_true(samples[i] == wave[i] / (float)(c + 1));
        free(samples);
    }
}

TEST_BETWEEN(takes_the_piece_that_is_named, set_up, remove_folder)
{
    static const int formats[] = {SF_FORMAT_WAV | SF_FORMAT_PCM_16, SF_FORMAT_FLAC | SF_FORMAT_PCM_16};
    sound_request piece = whole;
    piece.offset = 0.125;
    piece.duration = 0.25;
    for (int f = 0; f < 2; f++) {
        write_sound("sound", formats[f], 1, RATE, wave, COUNT);
        float *samples = read_good(in_folder("sound"), &piece, RATE / 4);
        for (int i = 0; i < RATE / 4; i++) assert_float_equal(samples[i], wave[RATE / 8 + i], 1.0 / 32000);
        free(samples);
    }
    piece.duration = 0;
    free(read_good(in_folder("sound"), &piece, COUNT - RATE / 8));
    piece.duration = 0.375 + 0.4; /* of which 0.4 s are missing */
    free(read_good(in_folder("sound"), &piece, COUNT - RATE / 8));
}

/* A tone is the same tone at another rate: compared with the formula, away from the ends. */
TEST_BETWEEN(resamples, set_up, remove_folder)
{
    static const int rates[] = {16000, 11025, 44100, 4000};
    static float tone[50000];
    for (int r = 0; r < 4; r++) {
        int rate = rates[r], count = rate / 2, half = RATE / 2;
        for (int i = 0; i < count; i++) tone[i] = 0.5f * (float)sin(2 * M_PI * 440 * i / rate);
        write_sound("tone.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 1, rate, tone, (size_t)count);
        float *samples = NULL;
        size_t got = 0;
        assert_int_equal(sound_read(in_folder("tone.wav"), &whole, &samples, &got), TW_OK);
        int own = 0;
        assert_int_equal(sound_rate(in_folder("tone.wav"), &own), TW_OK);
        assert_int_equal(own, rate);
        assert_in_range(got, half - 2, half + 2);
        for (int i = 200; i < half - 200; i++)
            assert_float_equal(samples[i], 0.5 * sin(2 * M_PI * 440 * i / RATE), 1e-3);
        free(samples);
    }
}

/* Who writes to a pipe does not know the lengths in a WAV's header, and leaves about the most that is possible. */
TEST_BETWEEN(reads_what_was_written_to_a_pipe, set_up, remove_folder)
{
    static const uint32_t lengths[] = {0xffffffff, 0x7fffffff, 0x7ffff000, 0x80000000, 0xffffffdb};
    size_t size;
    write_sound("piped.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, RATE, wave, PIPE_COUNT);
    uint8_t *bytes = read_whole("piped.wav", &size);
    assert_int_equal(size, 44 + 2 * PIPE_COUNT);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int at = 0; at < 4; at++) bytes[4 + at] = bytes[40 + at] = (uint8_t)(lengths[i] >> 8 * at);
        write_bytes("piped.wav", bytes, size);
        free(read_good(in_folder("piped.wav"), &whole, PIPE_COUNT));
    }
    free(bytes);
}

/* Chunks before the samples and behind them; one of odd length has a byte more. */
TEST_BETWEEN(reads_a_wav_with_other_chunks, set_up, remove_folder)
{
    static const uint8_t odd[] = {'n', 'o', 't', 'e', 3, 0, 0, 0, 'a', 'b', 'c', 0};
    enum { FORMAT_END = 36 };
    size_t size;
    write_sound("plain.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, RATE, wave, PIPE_COUNT);
    uint8_t *bytes = read_whole("plain.wav", &size), *more = malloc(size + 2 * sizeof odd);
    assert_non_null(more);
    memcpy(more, bytes, FORMAT_END);
    memcpy(more + FORMAT_END, odd, sizeof odd);
    memcpy(more + FORMAT_END + sizeof odd, bytes + FORMAT_END, size - FORMAT_END);
    memcpy(more + size + sizeof odd, odd, sizeof odd);
    write_bytes("more.wav", more, size + 2 * sizeof odd);
    free(read_good(in_folder("more.wav"), &whole, PIPE_COUNT));
    write_bytes("cut.wav", more, size); /* without the second, and as many bytes of the samples */
    float *samples;
    size_t count;
    assert_int_equal(sound_read(in_folder("cut.wav"), &whole, &samples, &count), TW_ERROR_FORMAT);
    free(bytes);
    free(more);
}

RUN_TESTS(NULL, NULL)
