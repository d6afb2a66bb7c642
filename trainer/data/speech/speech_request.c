#include "speech_request.h"

#include "sound.h"

tw_status speech_read_sound(const speech_request *request, const speech_utterance *one, float **samples, size_t *count)
{
    sound_request wanted = {.rate = request->features.rate,
                            .channel = one->channel ? one->channel - 1 : request->channel,
                            .offset = one->offset,
                            .duration = one->duration,
                            .most_seconds = request->most_seconds};
    return sound_read(one->path, &wanted, samples, count);
}
