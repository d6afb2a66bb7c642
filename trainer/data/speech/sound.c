#include "sound.h"

#include <math.h>
#include <samplerate.h>
#include <sndfile.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "error.h"
#include "regular_file.h"
#include "room.h"

static const float loudest = 1e10f;                           /* 32-bit integers as they are; no power overflows */
static const double may_lack = 0.5;                           /* seconds: segments made by hand overshoot a little */
enum { LEAST_RATE = 1000, MOST_RATE = 768000, BLOCK = 4096 }; /* BLOCK: values read at a time */

/* An open file, and the part of it that is wanted. */
typedef struct source {
    const char *path;
    int descriptor;
    SNDFILE *file;
    SF_INFO info;
    int channel;
    sf_count_t first, wanted; /* wanted: INT64_MAX for all there is */
} source;

/* The samples read so far. */
typedef struct samples {
    float *values;
    size_t count, capacity, most;
} samples;

static tw_status open_regular(source *src)
{
    struct stat about;
    TW_TRY(regular_file_open(src->path, O_RDONLY, &src->descriptor));
    if (fstat(src->descriptor, &about) == 0 && about.st_size == 0)
        return tw_fail(TW_ERROR_FORMAT, "%s: empty, 0 bytes", src->path);
    return TW_OK;
}

/* Full-rate GSM (GSM 06.10) has no header. What is called .gsm is that if it begins as each of its frames does; the
 * rest is for libsndfile to find out. */
static void describe_headerless(source *src)
{
    enum { GSM_MARK = 0xD };
    const char *ending = strrchr(src->path, '.');
    unsigned char first;
    if (!ending || strcasecmp(ending, ".gsm") != 0) return;
    if (pread(src->descriptor, &first, 1, 0) == 1 && first >> 4 == GSM_MARK)
        src->info = (SF_INFO){.samplerate = 8000, .channels = 1, .format = SF_FORMAT_RAW | SF_FORMAT_GSM610};
}

/* Whatever becomes of it, close_source follows. */
static tw_status open_source(source *src)
{
    TW_TRY(open_regular(src));
    describe_headerless(src);
    src->file = sf_open_fd(src->descriptor, SFM_READ, &src->info, 0);
    if (!src->file)
        return tw_fail(TW_ERROR_FORMAT, "%s: not a sound file that can be read: %s", src->path, sf_strerror(NULL));
    if (src->info.samplerate < LEAST_RATE || src->info.samplerate > MOST_RATE)
        return tw_fail(TW_ERROR_FORMAT, "%s: its header says %d samples a second; speech has %d to %d", src->path,
                       src->info.samplerate, LEAST_RATE, MOST_RATE);
    return TW_OK;
}

static void close_source(source *src)
{
    if (src->file) sf_close(src->file);
    if (src->descriptor >= 0) close(src->descriptor);
}

static tw_status check_channel(const source *src)
{
    int channels = src->info.channels;
    if (src->channel == SOUND_MONO && channels != 1)
        return tw_fail(TW_ERROR_FORMAT, "%s: %d channels; mix them to one, or name the channel to take", src->path,
                       channels);
    if (src->channel >= channels)
        return tw_fail(TW_ERROR_FORMAT, "%s: there is no channel %d; the file has %d, counted from 0", src->path,
                       src->channel, channels);
    return TW_OK;
}

/* Turns seconds into samples and goes to the first. */
static tw_status go_to_start(source *src, const sound_request *request)
{
    double rate = src->info.samplerate, length = (double)src->info.frames / rate;
    if (request->offset < 0 || request->offset > 1e9 || request->duration < 0 || request->duration > 1e9)
        return tw_fail(TW_ERROR_FORMAT, "%s: %g s from %g s on: not a piece of a sound", src->path, request->duration,
                       request->offset);
    src->first = (sf_count_t)llround(request->offset * rate);
    src->wanted = request->duration > 0 ? (sf_count_t)llround(request->duration * rate) : INT64_MAX;
    if (request->offset > 0 && src->first >= src->info.frames)
        return tw_fail(TW_ERROR_FORMAT, "%s: the piece begins at %.2f s, but there are only %.2f s", src->path,
                       request->offset, length);
    if (src->first > 0 && sf_seek(src->file, src->first, SEEK_SET) != src->first)
        return tw_fail(TW_ERROR_FORMAT, "%s: cannot go to %.2f s: %s", src->path, request->offset,
                       sf_strerror(src->file));
    return TW_OK;
}

/* Appends one channel of a block. The buffer grows with what really comes, never with what the header promises. */
static tw_status sound_append(const source *src, const float *block, size_t count, samples *dst)
{
    if (dst->count + count > dst->most)
        return tw_fail(TW_ERROR_FORMAT, "%s: longer than %.4g s, the most that is taken", src->path,
                       (double)dst->most / src->info.samplerate);
    if (!room_make(&dst->values, &dst->capacity, dst->count + count, sizeof *dst->values))
        return tw_fail(TW_ERROR_MEMORY, "%s: no memory for %zu samples", src->path, dst->count + count);
    size_t step = (size_t)src->info.channels, at = src->channel > 0 ? (size_t)src->channel : 0;
    for (size_t i = 0; i < count; i++, at += step) {
        if (!(fabsf(block[at]) <= loudest)) /* nor is NaN */
            return tw_fail(TW_ERROR_FORMAT, "%s: sample %zu is %g; sound is from -1 to 1", src->path, dst->count,
                           (double)block[at]);
        dst->values[dst->count++] = block[at];
    }
    return TW_OK;
}

static tw_status read_blocks(const source *src, samples *dst)
{
    float block[BLOCK];
    sf_count_t most = BLOCK / src->info.channels, got = most, left = src->wanted;
    while (left > 0 && got > 0) {
        got = sf_readf_float(src->file, block, left < most ? left : most);
        if (got > 0) TW_TRY(sound_append(src, block, (size_t)got, dst));
        left -= got;
    }
    return TW_OK;
}

/* A chunk of a WAV: four letters and the length of what follows them. */
enum { CHUNK = 8, RIFF_HEADER = 12 };

static uint32_t chunk_length(const uint8_t *chunk)
{
    return chunk[4] | (uint32_t)chunk[5] << 8 | (uint32_t)chunk[6] << 16 | (uint32_t)chunk[7] << 24;
}

/* The length that a WAV's header has for its samples, and how much of it is there; false for other files. */
static bool find_riff_data(int descriptor, double *promised, double *there)
{
    struct stat about;
    uint8_t head[RIFF_HEADER];
    off_t at = RIFF_HEADER;
    if (fstat(descriptor, &about) != 0 || pread(descriptor, head, sizeof head, 0) != sizeof head) return false;
    if (memcmp(head, "RIFF", 4) != 0 || memcmp(head + CHUNK, "WAVE", 4) != 0) return false;
    while (pread(descriptor, head, CHUNK, at) == CHUNK) {
        const uint32_t length = chunk_length(head);
        at += CHUNK;
        if (memcmp(head, "data", 4) == 0) {
            *promised = length;
            *there = (double)(about.st_size - at);
            return true;
        }
        at += (off_t)length + length % 2;
    }
    return false;
}

/* How many samples there should be. libsndfile tells what there is of a WAV that was cut off, so the WAV is asked. Who
 * wrote it to a pipe left there about the most that a signed or an unsigned number holds. */
static sf_count_t promised_frames(const source *src)
{
    const double unknown = 0x7f000000;
    double promised, there;
    if (src->info.frames == SF_COUNT_MAX) return 0; /* a FLAC whose writer did not know */
    if (!find_riff_data(src->descriptor, &promised, &there) || promised <= there || there <= 0 || promised >= unknown)
        return src->info.frames;
    return (sf_count_t)((double)src->info.frames * (promised / there));
}

/* Whether all came that the header, or the caller, said would. */
static tw_status check_length(const source *src, const samples *read)
{
    double rate = src->info.samplerate;
    sf_count_t count = (sf_count_t)read->count, promised = promised_frames(src) - src->first;
    if (count == 0) return tw_fail(TW_ERROR_FORMAT, "%s: a sound of zero length", src->path);
    if (sf_error(src->file) != SF_ERR_NO_ERROR || (count < promised && count < src->wanted))
        return tw_fail(TW_ERROR_FORMAT, "%s: damaged or cut off: can be read for %.2f s, not for %.2f s", src->path,
                       (double)count / rate, (double)promised / rate);
    if (src->wanted != INT64_MAX && (double)(src->wanted - count) / rate > may_lack)
        return tw_fail(TW_ERROR_FORMAT, "%s: the piece should have %.2f s, but the file ends after %.2f s of it",
                       src->path, (double)src->wanted / rate, (double)count / rate);
    return TW_OK;
}

/* `values` at another rate; frees what it replaces. */
static tw_status resample(const source *src, int rate, samples *sound)
{
    SRC_DATA data = {
        .data_in = sound->values, .input_frames = (long)sound->count, .src_ratio = (double)rate / src->info.samplerate};
    data.output_frames = (long)ceil((double)sound->count * data.src_ratio);
    data.data_out = malloc((size_t)data.output_frames * sizeof(float));
    if (!data.data_out)
        return tw_fail(TW_ERROR_MEMORY, "%s: no memory for %ld samples at %d Hz", src->path, data.output_frames, rate);
    int failed = src_simple(&data, SRC_SINC_MEDIUM_QUALITY, 1);
    free(sound->values);
    sound->values = data.data_out;
    sound->count = (size_t)data.output_frames_gen;
    if (!failed && sound->count > 0) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s: cannot be brought from %d Hz to %d Hz: %s", src->path, src->info.samplerate,
                   rate, failed ? src_strerror(failed) : "too short");
}

static tw_status read_source(source *src, const sound_request *request, samples *sound)
{
    TW_TRY(check_channel(src));
    TW_TRY(go_to_start(src, request));
    sound->most = (size_t)(request->most_seconds * src->info.samplerate);
    TW_TRY(read_blocks(src, sound));
    TW_TRY(check_length(src, sound));
    return src->info.samplerate == request->rate ? TW_OK : resample(src, request->rate, sound);
}

tw_status sound_read(const char *path, const sound_request *request, float **values, size_t *count)
{
    samples sound = {0};
    source src = {.path = path, .descriptor = -1, .channel = request->channel};
    tw_status status = open_source(&src);
    if (status == TW_OK) status = read_source(&src, request, &sound);
    close_source(&src);
    if (status != TW_OK) {
        free(sound.values);
        return status;
    }
    *values = sound.values;
    *count = sound.count;
    return TW_OK;
}

tw_status sound_rate(const char *path, int *rate)
{
    source src = {.path = path, .descriptor = -1};
    tw_status status = open_source(&src);
    if (status == TW_OK) *rate = src.info.samplerate;
    close_source(&src);
    return status;
}
