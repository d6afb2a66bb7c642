/* Reads any bytes as a sound file. The first byte chooses the rate wanted, the channel, and whether a piece of the file
 * or all of it. Whatever is accepted must be finite, and not longer than is allowed. */
#include "memory_file.h"
#include "sound.h"

#include <math.h>

static const double most_seconds = 0.5; /* what damage makes long is refused early, so that an input takes no time */

static sound_request request_of(uint8_t choice)
{
    static const int rates[] = {8000, 16000, 44100, 1000};
    sound_request request = {.rate = rates[choice & 3], .channel = (choice >> 2 & 3) - 1, .most_seconds = most_seconds};
    if (choice & 0x10) request.offset = 0.01;
    if (choice & 0x20) request.duration = 0.02;
    return request;
}

static void check(const sound_request *request, const float *samples, size_t count)
{
    must(count > 0 && (double)count <= ceil(most_seconds * request->rate));
    for (size_t i = 0; i < count; i++) must(isfinite(samples[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    int rate = 0;
    size_t count = 0;
    float *samples = NULL;
    sound_request request = request_of(data[0]);
    const char *path = file_of(data + 1, size - 1);
    tw_status status = sound_read(path, &request, &samples, &count);
    must(status == TW_OK || status == TW_ERROR_FORMAT);
    if (status == TW_OK) check(&request, samples, count);
    must(sound_rate(path, &rate) == TW_OK ? rate > 0 : status != TW_OK);
    free(samples);
    return 0;
}
