#include "feature_settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "pairs.h"

typedef enum value_kind { VALUE_INTEGER, VALUE_REAL, VALUE_WORD } value_kind;

typedef struct setting_row {
    const char *key;
    size_t offset;
    value_kind kind;
    double fallback, least, most;
    const char *words[4]; /* VALUE_WORD: what the numbers are called */
} setting_row;

#define AT(field) offsetof(feature_settings, field)
static const setting_row rows[] = {
    {"rate", AT(rate), VALUE_INTEGER, 16000, 1000, 192000},
    {"window_ms", AT(window_ms), VALUE_REAL, 25, 1, 1000},
    {"hop_ms", AT(hop_ms), VALUE_REAL, 10, 1, 1000},
    {"window", AT(window), VALUE_WORD, WINDOW_HAMMING, .words = {"hamming", "hann", "povey"}},
    {"preemphasis", AT(preemphasis), VALUE_REAL, 0.97, 0, 1},
    {"bins", AT(bins), VALUE_INTEGER, 40, 1, 1024},
    {"low", AT(low), VALUE_REAL, 20, 0, 96000},
    {"high", AT(high), VALUE_REAL, 0, 0, 96000},
    {"floor", AT(floor), VALUE_REAL, 1e-10, 1e-30, 1},
    {"deltas", AT(deltas), VALUE_INTEGER, 0, 0, 2},
    {"normalise", AT(normalise), VALUE_WORD, NORMALISE_VARIANCE, .words = {"none", "mean", "variance"}},
    {"stack", AT(stack), VALUE_INTEGER, 1, 1, 64},
    {"stride", AT(stride), VALUE_INTEGER, 1, 1, 64},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static double get(const feature_settings *settings, const setting_row *row)
{
    const char *place = (const char *)settings + row->offset;
    return row->kind == VALUE_REAL ? *(const double *)(const void *)place : *(const int *)(const void *)place;
}

static void set(feature_settings *settings, const setting_row *row, double value)
{
    char *place = (char *)settings + row->offset;
    if (row->kind == VALUE_REAL)
        *(double *)(void *)place = value;
    else
        *(int *)(void *)place = (int)value;
}

/* The shortest of "%.15g" and "%.17g" that is read back as the same number. */
static int print_number(char *text, size_t capacity, double value)
{
    int length = snprintf(text, capacity, "%.15g", value);
    return strtod(text, NULL) == value ? length : snprintf(text, capacity, "%.17g", value);
}

const char *feature_settings_text(const feature_settings *settings, char text[FEATURE_SETTINGS_TEXT])
{
    size_t length = 0;
    for (const setting_row *row = rows; row < rows + ROWS; row++) {
        char number[32];
        double value = get(settings, row);
        print_number(number, sizeof number, value);
        length += (size_t)snprintf(text + length, FEATURE_SETTINGS_TEXT - length, "%s%s=%s", row > rows ? "," : "",
                                   row->key, row->kind == VALUE_WORD ? row->words[(int)value] : number);
    }
    return text;
}

static tw_status set_word(feature_settings *settings, const setting_row *row, const char *value, size_t length)
{
    for (int word = 0; row->words[word]; word++) {
        if (strlen(row->words[word]) != length || memcmp(row->words[word], value, length) != 0) continue;
        set(settings, row, word);
        return TW_OK;
    }
    return tw_fail(TW_ERROR_ARGUMENT, "features: %s=%.*s; it may be %s, %s or %s", row->key, (int)length, value,
                   row->words[0], row->words[1], row->words[2]);
}

static tw_status set_number(feature_settings *settings, const setting_row *row, const char *value, size_t length)
{
    char *end;
    double number = strtod(value, &end);
    if (length == 0 || end != value + length || !(number >= row->least && number <= row->most) ||
        (row->kind == VALUE_INTEGER && number != floor(number)))
        return tw_fail(TW_ERROR_ARGUMENT, "features: %s=%.*s; it may be %s from %g to %g", row->key, (int)length, value,
                       row->kind == VALUE_INTEGER ? "a whole number" : "a number", row->least, row->most);
    set(settings, row, number);
    return TW_OK;
}

static tw_status feature_settings_refuse(const pair *p)
{
    char keys[256] = "";
    for (size_t i = 0, used = 0; i < ROWS && used < sizeof keys; i++)
        used += (size_t)snprintf(keys + used, sizeof keys - used, "%s%s", i ? ", " : "", rows[i].key);
    return tw_fail(TW_ERROR_ARGUMENT, "features: \"%.*s\" is not key=value with one of %s", (int)strcspn(p->key, ","),
                   p->key, keys);
}

static tw_status set_pair(feature_settings *settings, const pair *p)
{
    for (const setting_row *row = rows; p->value && row < rows + ROWS; row++) {
        if (!pair_has_key(p, row->key)) continue;
        return row->kind == VALUE_WORD ? set_word(settings, row, p->value, p->value_length)
                                       : set_number(settings, row, p->value, p->value_length);
    }
    return feature_settings_refuse(p);
}

static tw_status feature_settings_check(const feature_settings *settings)
{
    double high = settings->high > 0 ? settings->high : settings->rate / 2.0;
    if (high > settings->rate / 2.0 || settings->low >= high)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "features: low=%g,high=%g; low must be below high, and high not above half of the rate, %g Hz",
                       settings->low, high, settings->rate / 2.0);
    if (settings->stride > settings->stack)
        return tw_fail(TW_ERROR_ARGUMENT, "features: stride=%d leaves out frames that stack=%d does not join",
                       settings->stride, settings->stack);
    return TW_OK;
}

tw_status feature_settings_parse(const char *text, feature_settings *settings)
{
    feature_settings read = {0};
    const char *left = text;
    for (const setting_row *row = rows; row < rows + ROWS; row++) set(&read, row, row->fallback);
    for (pair next; pair_next(&left, &next);) {
        TW_TRY(set_pair(&read, &next));
        if (pair_is_again(text, &next))
            return tw_fail(TW_ERROR_ARGUMENT, "features: %.*s is given twice", (int)next.key_length, next.key);
    }
    TW_TRY(feature_settings_check(&read));
    *settings = read;
    return TW_OK;
}

static size_t samples_of(const feature_settings *settings, double milliseconds)
{
    return (size_t)lround(settings->rate * milliseconds / 1000);
}

size_t feature_window_samples(const feature_settings *settings)
{
    return samples_of(settings, settings->window_ms);
}

size_t feature_hop_samples(const feature_settings *settings)
{
    return samples_of(settings, settings->hop_ms);
}

size_t feature_columns(const feature_settings *settings)
{
    return (size_t)settings->bins * (size_t)(1 + settings->deltas);
}

size_t feature_width(const feature_settings *settings)
{
    return feature_columns(settings) * (size_t)settings->stack;
}

size_t feature_windows(const feature_settings *settings, size_t samples)
{
    size_t window = feature_window_samples(settings);
    return samples < window ? 0 : 1 + (samples - window) / feature_hop_samples(settings);
}

size_t feature_frames(const feature_settings *settings, size_t samples)
{
    size_t stride = (size_t)settings->stride;
    return (feature_windows(settings, samples) + stride - 1) / stride;
}
