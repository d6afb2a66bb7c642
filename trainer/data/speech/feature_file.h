/* feature_file.h - a file with the features of many sounds: written once, checked when it is opened, then mapped.
 *
 *   header    64 bytes: what it is, counts, and the CRC-32C of all that follows
 *   rows      the floats of all sounds, one behind the other
 *   sounds    for each, how many floats it has (8 bytes) and its seconds (8)
 *   key       the text that tells whose features these are
 *
 * Numbers are in the byte order of the machine that wrote them; one of the other order finds no file there. */
#ifndef TRAINER_SPEECH_FEATURE_FILE_H
#define TRAINER_SPEECH_FEATURE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <thinwire/thinwire.h>

/* A sound's place; without floats, it is not in the file. */
typedef struct feature_sound {
    uint64_t floats;
    double seconds;
} feature_sound;

typedef struct feature_writer {
    FILE *stream;
    uint64_t floats;
    uint32_t checksum;
} feature_writer;

/* All three return false where the disk takes no more; errno says why. `stream` is at its beginning. */
bool feature_file_begin(feature_writer *w, FILE *stream);
bool feature_file_rows(feature_writer *w, const float *rows, size_t count);
bool feature_file_end(feature_writer *w, const feature_sound *sounds, size_t count, const char *key);

typedef struct feature_file {
    void *bytes; /* mapped */
    size_t size;
    const float *rows;
    const feature_sound *sounds;
} feature_file;

/* False where `descriptor` is not, whole and undamaged, the file of `count` sounds with this key. The descriptor may be
 * closed afterwards. */
bool feature_file_open(feature_file *file, int descriptor, size_t count, const char *key);
void feature_file_close(feature_file *file);

#endif
