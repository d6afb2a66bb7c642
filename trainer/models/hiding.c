/* hiding.c - spans of hidden rows. */
#include "hiding.h"

#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

/* Beside the streams of dropout, whose highest bit is set, and those of initial values and batches, counted from 0. */
uint64_t hiding_stream(const nn_noise *draws, hiding_kind kind, uint64_t crop)
{
    return (uint64_t)1 << 62 | (uint64_t)kind << 56 | draws->step << 20 | crop;
}

static uint32_t word_at(const nn_noise *draws, hiding_kind kind, uint64_t crop, size_t index)
{
    uint32_t words[4];
    tw_random(draws->seed, hiding_stream(draws, kind, crop), index / 4, words);
    return words[index % 4];
}

static tw_status hiding_reserve(hiding *h, size_t rows, size_t crops)
{
    if (rows <= h->row_capacity && crops < h->crop_capacity) return TW_OK;
    hiding_free(h);
    h->rows = malloc((rows + 1) * sizeof *h->rows);
    h->flags = malloc(rows + 1);
    h->first = malloc((crops + 1) * sizeof *h->first);
    if (!h->rows || !h->flags || !h->first) {
        hiding_free(h);
        return tw_fail(TW_ERROR_MEMORY, "no memory for the hidden rows of %zu", rows);
    }
    h->row_capacity = rows;
    h->crop_capacity = crops + 1;
    return TW_OK;
}

void hiding_free(hiding *h)
{
    free(h->rows);
    free(h->flags);
    free(h->first);
    *h = (hiding){0};
}

/* Flags of one crop. */
static void draw_spans(size_t length, uint64_t crop, const nn_noise *draws, double probability, size_t span,
                       unsigned char *flags)
{
    size_t hidden_until = 0;
    for (size_t t = 0; t < length; t++) {
        if ((double)word_at(draws, HIDING_SPANS, crop, t) < probability * 0x1p32) hidden_until = t + span;
        flags[t] = t < hidden_until;
    }
}

tw_status hiding_draw(hiding *h, const nn_rows *rows, const uint64_t *crops, const nn_noise *draws, double probability,
                      size_t span)
{
    TW_TRY(hiding_reserve(h, nn_rows_total(rows), rows->count));
    h->count = 0;
    for (size_t u = 0; u < rows->count; u++) {
        h->first[u] = h->count;
        draw_spans(nn_rows_length(rows, u), crops[u], draws, probability, span, h->flags);
        for (size_t t = 0; t < nn_rows_length(rows, u); t++)
            if (h->flags[t]) h->rows[h->count++] = rows->first[u] + t;
    }
    h->first[rows->count] = h->count;
    h->crops = (nn_rows){rows->count, h->first};
    return TW_OK;
}

void hiding_gather(const hiding *h, const float *rows, size_t width, float *gathered)
{
    for (size_t i = 0; i < h->count; i++) memcpy(gathered + i * width, rows + h->rows[i] * width, width * sizeof *rows);
}

void hiding_add(const hiding *h, const float *gathered, size_t width, float *rows)
{
    for (size_t i = 0; i < h->count; i++)
        for (size_t c = 0; c < width; c++) rows[h->rows[i] * width + c] += gathered[i * width + c];
}

/* `row`: in its crop. */
static void cover_randomly(const nn_noise *draws, uint64_t crop, size_t row, float range, size_t width, float *values)
{
    const uint64_t stream = hiding_stream(draws, HIDING_FILL, crop), first = row * ((width + 3) / 4);
    for (size_t c = 0; c < width; c += 4) {
        uint32_t words[4];
        tw_random(draws->seed, stream, first + c / 4, words);
        for (size_t j = 0; j < 4 && c + j < width; j++) values[c + j] = range * ((float)words[j] * 0x1p-31f - 1.0f);
    }
}

void hiding_cover(const hiding *h, const nn_rows *rows, const uint64_t *crops, const nn_noise *draws, float range,
                  const float *fill, size_t width, float *values)
{
    for (size_t u = 0; u < rows->count; u++)
        for (size_t i = h->first[u]; i < h->first[u + 1]; i++) {
            float *row = values + h->rows[i] * width;
            if (fill)
                memcpy(row, fill, width * sizeof *row);
            else
                cover_randomly(draws, crops[u], h->rows[i] - rows->first[u], range, width, row);
        }
}
