/* Log-mel features against the formulas, written down a second time without a fast transform, in double. */
#include "log_mel.h"
#include "support.h"

#include <complex.h>
#include <math.h>

enum { RATE = 8000, SAMPLES = 2000, MOST = 64 * 1024 };

static float sound[SAMPLES], rows[MOST];

static int make_noise(void **state)
{
    fill_noise(99, sound, SAMPLES);
    return 0;
}

static feature_settings extract(const char *text, size_t samples, size_t *frames)
{
    log_mel *extractor;
    feature_settings settings;
    if (feature_settings_parse(text, &settings) != TW_OK) fail_msg("%s", tw_last_error());
    assert_int_equal(log_mel_create(&settings, &extractor), TW_OK);
    *frames = feature_frames(&settings, samples);
    assert_true(*frames * feature_width(&settings) <= MOST);
    assert_int_equal(log_mel_extract(extractor, sound, samples, rows), TW_OK);
    log_mel_destroy(extractor);
    return settings;
}

static double window_at(const char *window, int i, int length)
{
    double turn = 2 * M_PI * i / (length - 1);
    if (strcmp(window, "hamming") == 0) return 0.54 - 0.46 * cos(turn);
    double sine = sin(turn / 2);
    return pow(sine * sine, strcmp(window, "povey") == 0 ? 0.85 : 1.0);
}

/* |sum x[n] w[n] exp(-2 pi i k n / points)|^2 at frequency number k. */
static double power_at(const float *frame, int length, int points, const char *window, double emphasis, int k)
{
    double complex sum = 0;
    for (int n = 0; n < length; n++) {
        double x = frame[n] - emphasis * frame[n > 0 ? n - 1 : 0];
        sum += x * window_at(window, n, length) * cexp(-2 * M_PI * I * k * n / points);
    }
    return creal(sum) * creal(sum) + cimag(sum) * cimag(sum);
}

static double mel_of(double frequency)
{
    return 1127 * log1p(frequency / 700); /* HTK's mel, by its other formula */
}

/* Bin b of a frame, from the triangle's three corners. */
static double bin_at(const float *frame, const char *window, double emphasis, int bins, double low, double high, int b)
{
    double step = (mel_of(high) - mel_of(low)) / (bins + 1), sum = 0;
    double left = mel_of(low) + b * step, centre = left + step, right = centre + step;
    for (int k = 0; k <= 128; k++) {
        double at = mel_of(k * RATE / 256.0);
        double weight = at <= centre ? (at - left) / step : (right - at) / step;
        if (weight > 0) sum += weight * power_at(frame, 200, 256, window, emphasis, k);
    }
    return log(sum > 1e-10 ? sum : 1e-10);
}

TEST_BETWEEN(agrees_with_the_formula, make_noise, NULL)
{
    static const char *const windows[] = {"hamming", "hann", "povey"};
    static const double emphasis[] = {0.97, 0, 0.5};
    for (int w = 0; w < 3; w++) {
        char text[128];
        size_t frames;
        snprintf(text, sizeof text, "rate=8000,bins=20,low=60,high=3800,window=%s,preemphasis=%g,normalise=none",
                 windows[w], emphasis[w]);
        extract(text, 600, &frames);
        assert_int_equal(frames, 6);
        for (size_t t = 0; t < frames; t++)
            for (int b = 0; b < 20; b++)
                assert_float_equal(rows[t * 20 + (size_t)b],
                                   bin_at(sound + 80 * t, windows[w], emphasis[w], 20, 60, 3800, b), 1e-4);
    }
}

/* Inside of the outer centres the triangles add up to 1 everywhere, so the bins' powers to the spectrum's there; and
 * what a frame holds is, by Parseval, its windowed samples' sum of squares. */
TEST_BETWEEN(keeps_the_energy, make_noise, NULL)
{
    feature_settings settings;
    size_t frames;
    double bins = 0, samples = 0;
    for (int i = 0; i < SAMPLES; i++) sound[i] = (float)(0.4 * sin(2 * M_PI * 1000.0 * i / RATE));
    settings = extract("rate=8000,bins=12,low=0,preemphasis=0,window=hann,normalise=none", 200, &frames);
    assert_int_equal(frames, 1);
    for (int b = 0; b < settings.bins; b++) bins += exp(rows[b]);
    for (int n = 0; n < 200; n++) samples += pow(sound[n] * window_at("hann", n, 200), 2);
    assert_float_equal(bins / (samples * 256 / 2), 1, 1e-3); /* half of the spectrum: the other half mirrors it */
}

TEST_BETWEEN(hears_a_tone_in_its_bin, make_noise, NULL)
{
    static const double tones[] = {300, 700, 1500, 3100};
    for (int tone = 0; tone < 4; tone++) {
        size_t frames;
        int loudest = 0, expected = 0;
        for (int i = 0; i < SAMPLES; i++) sound[i] = (float)(0.4 * sin(2 * M_PI * tones[tone] * i / RATE));
        feature_settings settings = extract("rate=8000,bins=24,low=60,high=3800,normalise=none", 400, &frames);
        for (int b = 0; b < 24; b++) {
            if (rows[b] > rows[loudest]) loudest = b;
            if (mel_weight(&settings, b, tones[tone]) > mel_weight(&settings, expected, tones[tone])) expected = b;
        }
        assert_int_equal(loudest, expected);
    }
}

TEST_BETWEEN(silence_is_the_floor, make_noise, NULL)
{
    size_t frames;
    memset(sound, 0, sizeof sound);
    extract("rate=8000,normalise=none,floor=1e-6,deltas=1", SAMPLES, &frames);
    for (size_t t = 0; t < frames; t++)
        for (size_t i = 0; i < 80; i++) assert_float_equal(rows[t * 80 + i], i < 40 ? log(1e-6) : 0, 1e-5);
    extract("rate=8000", SAMPLES, &frames);
    for (size_t i = 0; i < frames * 40; i++) assert_true(rows[i] == 0); /* centred, not divided by nothing */
}

/* Noise that grows by a factor from frame to frame has log powers on a line: its slope is the delta, and the slope's
 * own slope 0; at the ends, where a neighbour is missing, the formula's other values. */
TEST_BETWEEN(deltas_of_a_ramp, make_noise, NULL)
{
    static const double end[] = {0.5, 0.8, 1, 1};
    size_t frames;
    for (int i = 0; i < SAMPLES; i++) sound[i] = (i % 80 ? 0 : 1) * (float)exp(0.05 * (i / 80));
    /* A hop of one period and a window of one pulse, so each frame is the one before times e^0.05. */
    extract("rate=8000,window_ms=10,bins=8,low=100,preemphasis=0,normalise=none,deltas=2,window=hamming", SAMPLES,
            &frames);
    for (size_t t = 0; t < frames; t++) {
        size_t edge = t < frames - 1 - t ? t : frames - 1 - t;
        for (size_t b = 0; b < 8; b++) {
            const float *row = rows + t * 24;
            assert_float_equal(row[8 + b], 0.1 * end[edge < 3 ? edge : 3], 1e-5);
            if (edge >= 4) assert_float_equal(row[16 + b], 0, 1e-5);
        }
    }
}

TEST_BETWEEN(normalises_every_column, make_noise, NULL)
{
    size_t frames;
    extract("rate=8000,deltas=2", SAMPLES, &frames);
    for (size_t c = 0; c < 120; c++) {
        double sum = 0, squares = 0;
        for (size_t t = 0; t < frames; t++) sum += rows[t * 120 + c];
        for (size_t t = 0; t < frames; t++) squares += pow(rows[t * 120 + c] - sum / (double)frames, 2);
        assert_float_equal(sum / (double)frames, 0, 1e-6);
        assert_float_equal(squares / (double)frames, 1, 1e-5);
    }
}

TEST_BETWEEN(stacks_frames, make_noise, NULL)
{
    static float single[MOST];
    size_t frames, stacked;
    extract("rate=8000,bins=10", SAMPLES, &frames);
    memcpy(single, rows, frames * 10 * sizeof *rows);
    extract("rate=8000,bins=10,stack=3,stride=2", SAMPLES, &stacked);
    assert_int_equal(frames % 2, 1); /* so the last row has to repeat its frame */
    assert_int_equal(stacked, (frames + 1) / 2);
    for (size_t i = 0; i < stacked; i++)
        for (size_t k = 0; k < 3; k++) {
            size_t t = 2 * i + k < frames ? 2 * i + k : frames - 1;
            assert_memory_equal(rows + i * 30 + k * 10, single + t * 10, 10 * sizeof *rows);
        }
}

TEST_BETWEEN(refuses_bins_that_hear_nothing, make_noise, NULL)
{
    feature_settings settings;
    log_mel *extractor = NULL;
    assert_int_equal(feature_settings_parse("rate=8000,bins=120", &settings), TW_OK);
    assert_int_equal(log_mel_create(&settings, &extractor), TW_ERROR_ARGUMENT);
    assert_null(extractor);
    assert_said("bins=120", "256-point");
}

RUN_TESTS(NULL, NULL)
