/* e3m0: golden values, its error on normal values, what it weighs and what it refuses. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "gradients.h"
#include "packet.h"
#include "support/assert.h"

/* Levels of a block whose largest magnitude is 4; 3 lies in the middle between 2 and 4. */
TEST(golden_values)
{
    static const tw_tensor table[] = {{"w", 1, {8}}};
    const float given[] = {4, -3, 1.9F, -.9F, .3F, .04F, -.02F, 0}, golden[] = {4, -2, 2, -1, .25F, .0625F, 0, 0};
    loopback group;
    gradients g;
    group_create(&group, &g, "e3m0:min_elements=1,min_dims=1", table, 1, 1);
    memcpy(g.rank[0][0], given, sizeof given);
    assert_false(group_step(&group, &g));
    assert_memory_equal(g.rank[0][0], golden, sizeof golden);
    group_destroy(&group, &g);
}

enum { LEVELS = 8, AROUND = 3 * (LEVELS - 1) + 1 };

static double level(float scale, int i)
{
    return i ? (double)scale / (double)(1 << (LEVELS - 1 - i)) : 0;
}

/* By its distance from each, which is exact; of two as near the smaller. */
static float nearest_level(float scale, float x)
{
    int nearest = 0;
    for (int i = 1; i < LEVELS; i++)
        if (fabs((double)x - level(scale, i)) < fabs((double)x - level(scale, nearest))) nearest = i;
    return (float)level(scale, nearest);
}

/* The scale, and of each middle, which is no float of most scales, the nearest float with those beside it. */
static void put_around(float scale, float x[AROUND])
{
    for (int i = 0; i < LEVELS - 1; i++) {
        float nearest = (float)((level(scale, i) + level(scale, i + 1)) / 2), *around = x + 3 * (size_t)i;
        around[0] = nextafterf(nearest, 0);
        around[1] = nearest;
        around[2] = nextafterf(nearest, INFINITY);
    }
    x[AROUND - 1] = scale;
}

TEST(the_nearest_level_is_taken)
{
    static const tw_tensor table[] = {{"w", 1, {AROUND}}};
    loopback group;
    gradients g;
    group_create(&group, &g, "e3m0:min_elements=1,min_dims=1", table, 1, 1);
    for (float scale = 1; scale < 1 + 64 * FLT_EPSILON; scale += FLT_EPSILON) {
        float x[AROUND];
        put_around(scale, x);
        memcpy(g.rank[0][0], x, sizeof x);
        assert_false(group_step(&group, &g));
        for (int i = 0; i < AROUND; i++) assert_true(g.rank[0][0][i] == nearest_level(scale, x[i]));
    }
    group_destroy(&group, &g);
}

static double normal(size_t i)
{
    uint32_t words[4];
    tw_random(4, 0, i, words);
    return sqrt(-2 * log((words[0] + 1.0) / 4294967297.0)) * cos(6.283185307179586 * words[1] / 4294967296.0);
}

/* A half byte and a 64th, and .04 of the squares. */
TEST(error_and_bytes)
{
    enum { ROWS = 300, COLUMNS = 333 };
    static const tw_tensor table[] = {{"w", 2, {ROWS, COLUMNS}}};
    static float given[ROWS * COLUMNS];
    loopback group;
    gradients g;
    double error = 0, squares = 0;
    group_create(&group, &g, "e3m0", table, 1, 1);
    for (size_t i = 0; i < ROWS * COLUMNS; i++) given[i] = g.rank[0][0][i] = (float)normal(i);
    assert_false(group_step(&group, &g));
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        error += pow((double)given[i] - (double)g.rank[0][0][i], 2);
        squares += (double)given[i] * (double)given[i];
    }
    assert_near(error / squares, 0.038, 0.003);
    assert_near((double)group.packet_bytes, ROWS * COLUMNS * (0.5 + 4.0 / 256), 64);
    group_destroy(&group, &g);
}

/* What is wrong with a packet whose block of an odd number of elements was changed. */
static void refuse(size_t at, unsigned value, const char *words)
{
    static const tw_tensor table[] = {{"w", 1, {7}}};
    unsigned char packet[256], *section;
    float values[7] = {1, 2, 3, 4, 5, 6, 7}, *tensors[] = {values};
    tw_packet_writer writer;
    tw_scheme *scheme;
    tw_round round = {0};
    assert_ok(tw_scheme_create("e3m0:min_elements=1,min_dims=1,exchange=gather", table, 1, 0, 2, &scheme));
    assert_ok(tw_scheme_begin(scheme, tensors, -1));
    assert_ok(tw_scheme_next(scheme, &round));
    tw_packet_begin(&writer, packet, sizeof packet, 0, 0, 0);
    assert_ok(tw_packet_put_block(&writer, 8, &section));
    memset(section, 0, 8);
    section[at] = (unsigned char)value;
    section[at + 1] = (unsigned char)(value >> 8);
    size_t sizes[] = {round.size, tw_packet_end(&writer)};
    const void *packets[] = {round.data, packet};
    round.packets = packets;
    round.sizes = sizes;
    assert_int_equal(tw_scheme_next(scheme, &round), TW_ERROR_PACKET);
    if (!strstr(tw_last_error(), words)) fail_msg("\"%s\" should say \"%s\"", tw_last_error(), words);
    tw_scheme_destroy(scheme);
}

TEST(hostile_sections_are_refused)
{
    refuse(2, 0xBF80, "a block's scale is negative, NaN or infinite");
    refuse(2, 0x7FC0, "a block's scale is negative, NaN or infinite");
    refuse(2, 0x7F80, "a block's scale is negative, NaN or infinite");
    refuse(6, 0x1000, "its last byte has padding that is not zero");
}

RUN_TESTS(NULL, NULL)
