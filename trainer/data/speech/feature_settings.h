/* feature_settings.h - how speech is turned into features, and the text by which a checkpoint remembers it. */
#ifndef TRAINER_SPEECH_FEATURE_SETTINGS_H
#define TRAINER_SPEECH_FEATURE_SETTINGS_H

#include <stddef.h>
#include <thinwire/thinwire.h>

typedef enum window_shape { WINDOW_HAMMING, WINDOW_HANN, WINDOW_POVEY } window_shape;
typedef enum normalisation { NORMALISE_NONE, NORMALISE_MEAN, NORMALISE_VARIANCE } normalisation;

typedef struct feature_settings {
    int rate;                 /* samples a second */
    double window_ms, hop_ms; /* a frame's length, and from one to the next */
    int window;               /* window_shape; Povey's is Hann's to the power of 0.85 */
    double preemphasis;       /* x[i] - this * x[i - 1]; 0: none */
    int bins;                 /* of the mel scale, mel(f) = 2595 log10(1 + f / 700) */
    double low, high;         /* Hz; high = 0: half of the rate */
    double floor;             /* the least power, before the logarithm */
    int deltas;               /* 0: none, 1: slopes, 2: their slopes too */
    int normalise;            /* normalisation, of every column of an utterance */
    int stack, stride;        /* frames joined to one, and from one such to the next */
} feature_settings;

/* "rate=16000,window_ms=25,...": every key, in one order. feature_settings_parse reads it back to the same values. */
enum { FEATURE_SETTINGS_TEXT = 512 };
const char *feature_settings_text(const feature_settings *settings, char text[FEATURE_SETTINGS_TEXT]);

/* Reads "key=value,key=value" over the defaults; "" is the defaults. TW_ERROR_ARGUMENT names the key and what it may
 * be, and refuses combinations that make no sense, such as frequencies above half of the rate. */
tw_status feature_settings_parse(const char *text, feature_settings *settings);

size_t feature_window_samples(const feature_settings *settings);
size_t feature_hop_samples(const feature_settings *settings);
/* Values in a row before stacking: bins, and as many for each kind of delta; and in a row that log_mel_extract makes.
 */
size_t feature_columns(const feature_settings *settings);
size_t feature_width(const feature_settings *settings);
/* Windows that fit whole into `samples`; and rows that log_mel_extract makes of them. */
size_t feature_windows(const feature_settings *settings, size_t samples);
size_t feature_frames(const feature_settings *settings, size_t samples);

#endif
