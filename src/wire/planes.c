/* Each number is turned left by a bit, which brings the exponent of a floating-point number into its upper byte, and
 * the sign, which nobody can foretell, to the other end. Then the bytes of each place that have something to gain are
 * range coded by how often each occurs in the block; the others stay as they are, and so does a block without any. */
#include "planes.h"

#include "range_coder.h"

enum {
    VALUES = 256,
    SCALE = 12,      /* frequencies add up to 2^SCALE */
    COST_SHIFT = 8,  /* costs are in 256ths of a bit */
    LEAST_GAIN = 16, /* of as many bytes one has to be saved: less is not worth its time */
    MOST_TAIL = 16,  /* bytes that a stream may have above its cost: the end, and what rounding loses */
    LENGTH = 4,      /* bytes of a stream's length */
    WIDEST = 2       /* bytes of a frequency */
};

/* Value i has the parts start[i] .. start[i + 1] - 1 of 2^SCALE: those from `first` to `last` have any. */
typedef struct frequencies {
    unsigned first, last;
    uint16_t start[VALUES + 1];
} frequencies;

size_t tw_planes_bound(size_t count, size_t width)
{
    return 1 + count * width;
}

/* ---- bytes of one place ------------------------------------------------------------------------------------------ */

/* As they are once their number has been turned. */
typedef struct plane {
    const unsigned char *upper; /* of the first number: the byte whose lower bits become the upper ones, */
    const unsigned char *lower; /* and the one whose top bit comes in below */
    size_t count, width;
} plane;

static plane plane_of(const void *numbers, size_t count, size_t width, size_t place)
{
    const unsigned char *bytes = numbers;
    return (plane){bytes + place, bytes + (place ? place : width) - 1, count, width};
}

static inline unsigned byte_at(const plane *of, size_t i)
{
    return (of->upper[i * of->width] << 1 | of->lower[i * of->width] >> 7) & (VALUES - 1);
}

static inline void turn_back(unsigned char *number, size_t width)
{
    unsigned lowest = number[0];
    for (size_t p = 0; p + 1 < width; p++) number[p] = (unsigned char)(number[p] >> 1 | number[p + 1] << 7);
    number[width - 1] = (unsigned char)(number[width - 1] >> 1 | lowest << 7);
}

/* ---- how often each occurs --------------------------------------------------------------------------------------- */

static void count_up(const plane *of, uint32_t counts[VALUES])
{
    memset(counts, 0, VALUES * sizeof *counts);
    for (size_t i = 0; i < of->count; i++) counts[byte_at(of, i)]++;
}

/* Every one that occurs has one part at least. */
static void share_out(const uint32_t counts[VALUES], size_t count, frequencies *to)
{
    unsigned different = 0, before = 0;
    for (unsigned v = 0; v < VALUES; v++) different += counts[v] > 0;
    uint64_t factor = ((uint64_t)((1 << SCALE) - different) << 32) / count, below = 0;
    for (to->first = 0; !counts[to->first];) to->first++;
    for (unsigned v = 0; v < VALUES; v++) {
        to->start[v] = (uint16_t)(before == different ? 1 << SCALE : before + (below * factor >> 32));
        if (counts[v]) to->last = v;
        before += counts[v] > 0;
        below += counts[v];
    }
    to->start[VALUES] = 1 << SCALE;
}

static inline unsigned parts_of(const frequencies *by, unsigned value)
{
    return by->start[value + 1] - by->start[value];
}

/* The logarithm between two powers of two is above the line between them, so that this is no less than it is. */
static uint64_t cost_of(unsigned parts)
{
    unsigned whole = tw_floor_log2(parts);
    return ((uint64_t)(SCALE - whole + 1) << COST_SHIFT) - ((uint64_t)parts << COST_SHIFT >> whole);
}

/* No less than the bytes that the plane takes, coded. */
static size_t most_bytes(const uint32_t counts[VALUES], const frequencies *by)
{
    uint64_t cost = 0;
    if (by->first == by->last) return 2;
    for (unsigned v = by->first; v <= by->last; v++)
        if (counts[v]) cost += counts[v] * cost_of(parts_of(by, v));
    return 2 + WIDEST * (by->last - by->first + 1) + LENGTH + (size_t)(cost >> COST_SHIFT) / 8 + MOST_TAIL;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static unsigned char *put_number(unsigned char *at, size_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) *at++ = (unsigned char)(number >> 8 * i);
    return at;
}

static unsigned char *put_frequencies(unsigned char *at, const frequencies *by)
{
    *at++ = (unsigned char)by->first;
    *at++ = (unsigned char)by->last;
    for (unsigned v = by->first; v <= by->last && by->first < by->last; v++)
        at = put_number(at, parts_of(by, v), WIDEST);
    return at;
}

static unsigned char *put_coded(unsigned char *at, const plane *of, const frequencies *by)
{
    at = put_frequencies(at, by);
    if (by->first == by->last) return at;
    tw_range_encoder encoder = tw_range_encode(at + LENGTH);
    for (size_t i = 0; i < of->count; i++) {
        unsigned value = byte_at(of, i);
        tw_range_put(&encoder, SCALE, by->start[value], parts_of(by, value));
    }
    size_t bytes = tw_range_flush(&encoder);
    return put_number(at, bytes, LENGTH) + bytes;
}

static unsigned char *put_plain(unsigned char *at, const plane *of)
{
    for (size_t i = 0; i < of->count; i++) at[i] = (unsigned char)byte_at(of, i);
    return at + of->count;
}

size_t tw_planes_write(unsigned char *dst, const void *numbers, size_t count, size_t width)
{
    frequencies by[TW_PLANES_MOST];
    uint32_t counts[VALUES];
    unsigned coded = 0;
    for (size_t p = 0; p < width && count > 0; p++) {
        plane of = plane_of(numbers, count, width, p);
        count_up(&of, counts);
        share_out(counts, count, &by[p]);
        if (most_bytes(counts, &by[p]) <= count - count / LEAST_GAIN) coded |= 1U << p;
    }
    unsigned char *at = dst;
    *at++ = (unsigned char)coded;
    if (!coded && count > 0) memcpy(at, numbers, count * width);
    if (!coded) return tw_planes_bound(count, width);
    for (size_t p = 0; p < width; p++) {
        plane of = plane_of(numbers, count, width, p);
        at = coded >> p & 1 ? put_coded(at, &of, &by[p]) : put_plain(at, &of);
    }
    return (size_t)(at - dst);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const unsigned char *at, *end;
} reader;

static const char too_short[] = "it ends before its numbers do";

static size_t left_of(const reader *from)
{
    return (size_t)(from->end - from->at);
}

static size_t take_number(reader *from, size_t bytes)
{
    size_t number = 0;
    for (size_t i = 0; i < bytes; i++) number |= (size_t)*from->at++ << 8 * i;
    return number;
}

static const char *take_frequencies(reader *from, frequencies *by)
{
    unsigned sum = 0;
    if (left_of(from) < 2) return too_short;
    by->first = *from->at++;
    by->last = *from->at++;
    if (by->first >= by->last) return by->first == by->last ? NULL : "its last value comes before its first";
    if (left_of(from) < (size_t)WIDEST * (by->last - by->first + 1)) return too_short;
    for (unsigned v = by->first; v <= by->last; v++) {
        by->start[v] = (uint16_t)sum;
        sum += (unsigned)take_number(from, WIDEST);
        if (sum > 1 << SCALE) break;
    }
    by->start[by->last + 1] = (uint16_t)sum;
    return sum == 1 << SCALE ? NULL : "its frequencies do not add up to one";
}

/* The value of each of 2^SCALE parts. */
static void fill_parts(unsigned char *parts, const frequencies *by)
{
    for (unsigned v = by->first; v <= by->last; v++) memset(parts + by->start[v], (int)v, parts_of(by, v));
}

static const char *take_stream(tw_range_decoder *from, const frequencies *by, unsigned char *bytes, size_t count,
                               size_t width)
{
    unsigned char parts[1 << SCALE];
    fill_parts(parts, by);
    for (size_t i = 0; i < count; i++) {
        uint64_t part = tw_range_see(from, SCALE);
        if (part >> SCALE) return "it holds a number that no encoder writes";
        unsigned value = bytes[i * width] = parts[part];
        tw_range_take(from, SCALE, by->start[value], parts_of(by, value));
    }
    return tw_range_ended(from) ? NULL : "it has another length, or another end, than it should";
}

static const char *take_coded(reader *from, unsigned char *bytes, size_t count, size_t width)
{
    frequencies by;
    const char *wrong = take_frequencies(from, &by);
    if (wrong) return wrong;
    if (by.first == by.last) {
        for (size_t i = 0; i < count; i++) bytes[i * width] = (unsigned char)by.first;
        return NULL;
    }
    if (left_of(from) < LENGTH) return too_short;
    size_t length = take_number(from, LENGTH);
    if (left_of(from) < length) return too_short;
    tw_range_decoder decoder = tw_range_decode(from->at, length);
    from->at += length;
    return take_stream(&decoder, &by, bytes, count, width);
}

static const char *take_plain(reader *from, unsigned char *bytes, size_t count, size_t width)
{
    if (left_of(from) < count) return too_short;
    for (size_t i = 0; i < count; i++) bytes[i * width] = from->at[i];
    from->at += count;
    return NULL;
}

const char *tw_planes_read(const unsigned char *src, size_t bytes, void *numbers, size_t count, size_t width)
{
    unsigned char *to = numbers;
    reader from = {src, src + bytes};
    if (bytes == 0) return too_short;
    unsigned coded = *from.at++;
    if (coded >> width) return "it codes bytes that its numbers have not";
    if (!coded && left_of(&from) != count * width) return "it has another length than its numbers";
    if (!coded) {
        if (count) memcpy(to, from.at, count * width);
        return NULL;
    }
    for (size_t p = 0; p < width; p++) {
        const char *wrong = (coded >> p & 1 ? take_coded : take_plain)(&from, to + p, count, width);
        if (wrong) return wrong;
    }
    if (left_of(&from) > 0) return "something follows its numbers";
    for (size_t i = 0; i < count; i++) turn_back(to + i * width, width);
    return NULL;
}
