#include "strips.h"

#include "error.h"

tw_status strips_cut(const token_stream *stream, const char *name, size_t count, size_t least, strips *out)
{
    size_t length = (stream->count - 1) / count;
    if (length < least)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "the %s text has %zu tokens, too few: %zu strips of %zu and one to end with take %zu", name,
                       stream->count, count, least, count * least + 1);
    *out = (strips){stream->tokens, stream->text, 0, length, count};
    return TW_OK;
}

strips strips_slice(const strips *s, size_t first, size_t count)
{
    strips slice = *s;
    slice.count = count;
    if (s->tokens)
        slice.tokens += first * s->length;
    else
        slice.first += first * s->length;
    return slice;
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

/* Tokens `at` and the `steps` behind it; the first of them is mostly the last that was read. */
static tw_status read_strip(const long_text *text, strip_place *p, size_t at, size_t steps, uint32_t *ids)
{
    bool goes_on = p->window.text == text && p->window.token == at + 1;
    ids[0] = p->last;
    TW_TRY(goes_on ? long_text_read(text, &p->window, at + 1, steps, ids + 1)
                   : long_text_read(text, &p->window, at, steps + 1, ids));
    p->last = ids[steps];
    return TW_OK;
}

tw_status strips_read_file(const strips *s, strip_place *places, uint32_t *room, size_t from, size_t steps,
                           int32_t *inputs, int32_t *targets)
{
    for (size_t strip = 0; strip < s->count; strip++) {
        TW_TRY(read_strip(s->text, &places[strip], s->first + strip * s->length + from, steps, room));
        for (size_t t = 0; t < steps; t++) {
            inputs[t * s->count + strip] = (int32_t)room[t];
            targets[t * s->count + strip] = (int32_t)room[t + 1];
        }
    }
    return TW_OK;
}
