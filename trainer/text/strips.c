#include "strips.h"

#include "error.h"

tw_status strips_cut(const token_stream *stream, const char *name, size_t count, size_t least, strips *out)
{
    size_t length = (stream->count - 1) / count;
    if (length < least)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "the %s text has %zu tokens, too few: %zu strips of %zu and one to end with take %zu", name,
                       stream->count, count, least, count * least + 1);
    *out = (strips){stream->tokens, length, count};
    return TW_OK;
}

strips strips_slice(const strips *s, size_t first, size_t count)
{
    return (strips){s->tokens + first * s->length, s->length, count};
}

void strips_read(const strips *s, size_t from, size_t steps, int32_t *inputs, int32_t *targets)
{
    for (size_t t = from; t < from + steps; t++) {
        for (size_t strip = 0; strip < s->count; strip++) {
            const uint32_t *token = s->tokens + strip * s->length + t;
            *inputs++ = (int32_t)token[0];
            *targets++ = (int32_t)token[1];
        }
    }
}
