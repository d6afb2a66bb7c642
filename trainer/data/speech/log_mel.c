#include "log_mel.h"

#include <kiss_fftr.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

/* One triangle: its weights for the frequencies first .. first + count - 1 of the spectrum. */
typedef struct mel_filter {
    size_t first, count;
    float *weights;
} mel_filter;

struct log_mel {
    feature_settings settings;
    size_t window, hop, points; /* points: the window's length, rounded up to a power of two */
    float *shape;               /* of the window */
    float *frame;               /* points; zero behind the window */
    kiss_fft_cpx *spectrum;     /* points / 2 + 1 */
    float *power;               /* the same */
    kiss_fftr_cfg transform;
    mel_filter *filters;
};

static double mel(double frequency)
{
    return 2595 * log10(1 + frequency / 700);
}

/* The triangles' corners are evenly spaced: bin b rises from corner b to b + 1 and falls to b + 2. */
double mel_weight(const feature_settings *settings, int bin, double frequency)
{
    double low = mel(settings->low), high = mel(settings->high > 0 ? settings->high : settings->rate / 2.0);
    double position = (mel(frequency) - low) / (high - low) * (settings->bins + 1) - bin;
    return fmax(0, fmin(position, 2 - position));
}

static double window_value(int shape, double turn)
{
    double hann = 0.5 - 0.5 * cos(turn);
    if (shape == WINDOW_HAMMING) return 0.54 - 0.46 * cos(turn);
    return shape == WINDOW_HANN ? hann : pow(hann, 0.85);
}

static void fill_window(log_mel *f)
{
    double turn = f->window > 1 ? 2 * M_PI / (double)(f->window - 1) : 0;
    for (size_t i = 0; i < f->window; i++) f->shape[i] = (float)window_value(f->settings.window, turn * (double)i);
}

static tw_status make_filter(log_mel *f, int bin, mel_filter *filter)
{
    double spacing = (double)f->settings.rate / (double)f->points;
    size_t end = f->points / 2 + 1;
    while (filter->first < end && mel_weight(&f->settings, bin, (double)filter->first * spacing) <= 0) filter->first++;
    while (filter->first + filter->count < end &&
           mel_weight(&f->settings, bin, (double)(filter->first + filter->count) * spacing) > 0)
        filter->count++;
    if (filter->count == 0)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "features: bins=%d are too many: bin %d lies between two frequencies of a %zu-point spectrum",
                       f->settings.bins, bin, f->points);
    filter->weights = malloc(filter->count * sizeof *filter->weights);
    if (!filter->weights) return tw_fail(TW_ERROR_MEMORY, "features: no memory for the mel filters");
    for (size_t i = 0; i < filter->count; i++)
        filter->weights[i] = (float)mel_weight(&f->settings, bin, (double)(filter->first + i) * spacing);
    return TW_OK;
}

static tw_status make_tables(log_mel *f)
{
    size_t half = f->points / 2 + 1;
    f->shape = malloc(f->window * sizeof *f->shape);
    f->frame = calloc(f->points, sizeof *f->frame);
    f->spectrum = malloc(half * sizeof *f->spectrum);
    f->power = malloc(half * sizeof *f->power);
    f->transform = kiss_fftr_alloc((int)f->points, 0, NULL, NULL);
    f->filters = calloc((size_t)f->settings.bins, sizeof *f->filters);
    if (!f->shape || !f->frame || !f->spectrum || !f->power || !f->transform || !f->filters)
        return tw_fail(TW_ERROR_MEMORY, "features: no memory for their tables");
    fill_window(f);
    for (int bin = 0; bin < f->settings.bins; bin++) TW_TRY(make_filter(f, bin, &f->filters[bin]));
    return TW_OK;
}

tw_status log_mel_create(const feature_settings *settings, log_mel **created)
{
    log_mel *f = calloc(1, sizeof *f);
    if (!f) return tw_fail(TW_ERROR_MEMORY, "features: no memory for them");
    f->settings = *settings;
    f->window = feature_window_samples(settings);
    f->hop = feature_hop_samples(settings);
    for (f->points = 2; f->points < f->window;) f->points *= 2;
    tw_status status = make_tables(f);
    if (status != TW_OK) {
        log_mel_destroy(f);
        return status;
    }
    *created = f;
    return TW_OK;
}

void log_mel_destroy(log_mel *f)
{
    if (!f) return;
    for (int bin = 0; f->filters && bin < f->settings.bins; bin++) free(f->filters[bin].weights);
    free(f->filters);
    kiss_fftr_free(f->transform);
    free(f->power);
    free(f->spectrum);
    free(f->frame);
    free(f->shape);
    free(f);
}

static void fill_frame(log_mel *f, const float *samples)
{
    float before = samples[0], emphasis = (float)f->settings.preemphasis;
    for (size_t i = 0; i < f->window; i++) {
        f->frame[i] = (samples[i] - emphasis * before) * f->shape[i];
        before = samples[i];
    }
}

static void measure_power(log_mel *f)
{
    kiss_fftr(f->transform, f->frame, f->spectrum);
    for (size_t i = 0; i <= f->points / 2; i++)
        f->power[i] = f->spectrum[i].r * f->spectrum[i].r + f->spectrum[i].i * f->spectrum[i].i;
}

static void measure_bins(const log_mel *f, float *row)
{
    for (int bin = 0; bin < f->settings.bins; bin++) {
        const mel_filter *filter = &f->filters[bin];
        float sum = 0;
        for (size_t i = 0; i < filter->count; i++) sum += filter->weights[i] * f->power[filter->first + i];
        row[bin] = logf(fmaxf(sum, (float)f->settings.floor));
    }
}

static size_t clamp(size_t index, ptrdiff_t shift, size_t count)
{
    ptrdiff_t moved = (ptrdiff_t)index + shift;
    return moved < 0 ? 0 : moved < (ptrdiff_t)count ? (size_t)moved : count - 1;
}

/* The slopes of `bins` columns from `from` on, into the columns behind them. */
static void add_deltas(float *table, size_t count, size_t columns, size_t from, size_t bins)
{
    for (size_t t = 0; t < count; t++) {
        float *dst = table + t * columns + from + bins;
        memset(dst, 0, bins * sizeof *dst);
        for (int n = 1; n <= 2; n++) {
            const float *after = table + clamp(t, n, count) * columns + from;
            const float *before = table + clamp(t, -n, count) * columns + from;
            for (size_t i = 0; i < bins; i++) dst[i] += (float)n * (after[i] - before[i]) / 10;
        }
    }
}

static void log_mel_normalise(float *column, size_t count, size_t columns, int how)
{
    double sum = 0, squares = 0;
    for (size_t t = 0; t < count; t++) sum += column[t * columns];
    double mean = sum / (double)count;
    for (size_t t = 0; t < count; t++) squares += pow(column[t * columns] - mean, 2);
    double deviation = sqrt(squares / (double)count);
    double scale = how == NORMALISE_VARIANCE && deviation > 1e-5 ? 1 / deviation : 1;
    for (size_t t = 0; t < count; t++) column[t * columns] = (float)((column[t * columns] - mean) * scale);
}

static void stack_frames(const feature_settings *settings, const float *table, size_t count, float *rows)
{
    size_t columns = feature_columns(settings), stack = (size_t)settings->stack;
    for (size_t t = 0; t < count; t += (size_t)settings->stride, rows += stack * columns)
        for (size_t k = 0; k < stack; k++)
            memcpy(rows + k * columns, table + clamp(t, (ptrdiff_t)k, count) * columns, columns * sizeof *rows);
}

tw_status log_mel_extract(log_mel *f, const float *samples, size_t count, float *rows)
{
    const feature_settings *settings = &f->settings;
    size_t bins = (size_t)settings->bins, columns = feature_columns(settings);
    size_t windows = feature_windows(settings, count);
    if (windows == 0) return TW_OK;
    float *table = calloc(windows * columns, sizeof *table);
    if (!table) return tw_fail(TW_ERROR_MEMORY, "no memory for the features of %zu frames", windows);
    for (size_t t = 0; t < windows; t++) {
        fill_frame(f, samples + t * f->hop);
        measure_power(f);
        measure_bins(f, table + t * columns);
    }
    for (int d = 0; d < settings->deltas; d++) add_deltas(table, windows, columns, (size_t)d * bins, bins);
    if (settings->normalise != NORMALISE_NONE)
        for (size_t c = 0; c < columns; c++) log_mel_normalise(table + c, windows, columns, settings->normalise);
    stack_frames(settings, table, windows, rows);
    free(table);
    return TW_OK;
}
