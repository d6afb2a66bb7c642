#include "strips.h"

#include "error.h"

tw_status strips_cut(const token_stream *stream, const char *name, size_t batch, int workers, int rank, size_t unroll,
                     strips *out)
{
    size_t count = batch * (size_t)workers, length = stream->count / count;
    if (length < unroll + 1)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "the %s text has %zu tokens; %zu strips (batch %zu, %d worker%s) of at least %zu (--bptt and "
                       "one) need %zu",
                       name, stream->count, count, batch, workers, workers == 1 ? "" : "s", unroll + 1,
                       count * (unroll + 1));
    *out = (strips){.tokens = stream->tokens + (size_t)rank * batch * length,
                    .length = length,
                    .batch = batch,
                    .unroll = unroll,
                    .steps = (length - 1) / unroll};
    return TW_OK;
}

void strips_read(const strips *s, uint64_t step, int32_t *inputs, int32_t *targets)
{
    const uint32_t *tokens = s->tokens + step * s->unroll;
    for (size_t t = 0; t < s->unroll; t++) {
        for (size_t strip = 0; strip < s->batch; strip++) {
            *inputs++ = (int32_t)tokens[strip * s->length + t];
            *targets++ = (int32_t)tokens[strip * s->length + t + 1];
        }
    }
}
