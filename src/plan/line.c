/* A line between machines, in words. */
#include "error.h"
#include "spec.h"

#include <stdio.h>
#include <string.h>
#include <thinwire/thinwire_plan.h>

typedef struct unit {
    const char *name;
    double value;
} unit;

#define SECONDS_MOST 1e6
#define BYTES_MOST 1e15 /* a second, as a world takes them */

static const unit bandwidths[] = {{"bit", 1}, {"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}};
static const unit times[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

/* A number with one of the units, up to `end`. */
static int read_measure(const char *text, size_t length, const unit *units, size_t count, double *value)
{
    char *rest;
    double number = tw_decimal_read(text, &rest);
    size_t left = length - (size_t)(rest - text);
    if (rest == text || !(number >= 0 && number <= 1e12)) return 0;
    for (size_t i = 0; i < count; i++)
        if (strlen(units[i].name) == left && memcmp(units[i].name, rest, left) == 0) {
            *value = number * units[i].value;
            return 1;
        }
    return 0;
}

static int read_bandwidth(const char *text, size_t length, double *bytes)
{
    double bits;
    if (!read_measure(text, length, bandwidths, sizeof bandwidths / sizeof *bandwidths, &bits) || bits < 1) return 0;
    *bytes = bits / 8;
    return *bytes <= BYTES_MOST;
}

/* "1Gbit,0.1ms", or with another bandwidth towards the host, "10Mbit/100Mbit,80ms". */
static int read_line(const char *text, tw_world_options *line)
{
    size_t up = strcspn(text, ",/"), both = strcspn(text, ",");
    if (!text[both] || !read_bandwidth(text, up, &line->bandwidth)) return 0;
    line->bandwidth_down = line->bandwidth;
    if (up < both && !read_bandwidth(text + up + 1, both - up - 1, &line->bandwidth_down)) return 0;
    return read_measure(text + both + 1, strlen(text + both + 1), times, sizeof times / sizeof *times,
                        &line->latency) &&
           line->latency <= SECONDS_MOST;
}

tw_status tw_line_read(const char *text, tw_world_options *line)
{
    TW_TRY(tw_need(text, "text"));
    TW_TRY(tw_need(line, "line"));
    tw_world_options read = {0};
    if (!read_line(text, &read))
        return tw_fail(TW_ERROR_ARGUMENT,
                       "%s: want RATE,LATENCY, such as 1Gbit,0.1ms, or UP/DOWN,LATENCY, such as 10Mbit/100Mbit,80ms "
                       "(bit, kbit, Mbit, Gbit; us, ms, s), of 1bit to 8e6Gbit and at most 1e6s",
                       text);
    line->bandwidth = read.bandwidth;
    line->bandwidth_down = read.bandwidth_down;
    line->latency = read.latency;
    return TW_OK;
}

enum { MEASURE_TEXT = 40 };

static void measure_text(double value, int digits, const char *name, char text[MEASURE_TEXT])
{
    size_t length = tw_decimal_text(value, digits, text, MEASURE_TEXT);
    snprintf(text + length, MEASURE_TEXT - length, "%s", name);
}

static void bandwidth_text(double bytes, char text[MEASURE_TEXT])
{
    double bits = 8 * bytes;
    int large = bits >= 1e9;
    measure_text(bits / (large ? 1e9 : 1e6), 6, large ? "Gbit" : "Mbit", text);
}

size_t tw_line_text(const tw_world_options *line, char *text, size_t capacity)
{
    char up[MEASURE_TEXT], down[MEASURE_TEXT] = "", latency[MEASURE_TEXT];
    if (!line) return (size_t)snprintf(text, capacity, "%s", "");
    int differs = line->bandwidth_down > 0 && line->bandwidth_down != line->bandwidth;
    if (differs) bandwidth_text(line->bandwidth_down, down);
    bandwidth_text(line->bandwidth, up);
    measure_text(1e3 * line->latency, 4, "ms", latency);
    return (size_t)snprintf(text, capacity, "%s%s%s,%s", up, differs ? "/" : "", down, latency);
}
