#include "network.h"
#include "error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct unit {
    const char *name;
    double value;
} unit;

#define SECONDS_MOST 1e6 /* of whatever takes time */

static const unit rates[] = {{"bit", 1}, {"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}};
static const unit times[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

/* A number with one of the units, up to `end`. */
static int read_measure(const char *text, size_t length, const unit *units, size_t count, double *value)
{
    char *rest;
    double number = strtod(text, &rest);
    size_t left = length - (size_t)(rest - text);
    if (rest == text || !(number >= 0 && number <= 1e12)) return 0;
    for (size_t i = 0; i < count; i++)
        if (strlen(units[i].name) == left && memcmp(units[i].name, rest, left) == 0) {
            *value = number * units[i].value;
            return 1;
        }
    return 0;
}

int network_read_time(const char *text, double *seconds)
{
    return read_measure(text, strlen(text), times, sizeof times / sizeof *times, seconds) && *seconds <= SECONDS_MOST;
}

static int read_rate(const char *text, size_t length, double *bytes)
{
    double bits;
    if (!read_measure(text, length, rates, sizeof rates / sizeof *rates, &bits) || bits < 1) return 0;
    *bytes = bits / 8;
    return 1;
}

/* "1Gbit,0.1ms", or with another rate towards the host, "10Mbit/100Mbit,80ms". */
static int read_link(const char *link, tw_world_options *world)
{
    size_t rate = strcspn(link, ",/"), both = strcspn(link, ",");
    if (!link[both] || !read_rate(link, rate, &world->bandwidth)) return 0;
    world->bandwidth_down = world->bandwidth;
    if (rate < both && !read_rate(link + rate + 1, both - rate - 1, &world->bandwidth_down)) return 0;
    return network_read_time(link + both + 1, &world->latency);
}

tw_status network_read_link(const char *link, tw_world_options *world)
{
    if (read_link(link, world)) return TW_OK;
    return tw_fail(
        TW_ERROR_ARGUMENT,
        "--link %s: want RATE,LATENCY, such as 1Gbit,0.1ms, or UP/DOWN,LATENCY, such as 10Mbit/100Mbit,80ms (bit, "
        "kbit, Mbit, Gbit; us, ms, s), of 1bit or more and at most 1e6s",
        link);
}

static int write_rate(char *text, size_t room, double bytes)
{
    double bits = 8 * bytes;
    int large = bits >= 1e9;
    return snprintf(text, room, "%.6g%s", bits / (large ? 1e9 : 1e6), large ? "Gbit" : "Mbit");
}

const char *network_link_text(const tw_world_options *world, char text[NETWORK_TEXT])
{
    int used = write_rate(text, NETWORK_TEXT, world->bandwidth);
    if (world->bandwidth_down > 0 && world->bandwidth_down != world->bandwidth) {
        text[used++] = '/';
        used += write_rate(text + used, NETWORK_TEXT - (size_t)used, world->bandwidth_down);
    }
    snprintf(text + used, NETWORK_TEXT - (size_t)used, ",%.4gms", 1e3 * world->latency);
    return text;
}
