/* Resampling, against sums written out in doubles, and where the result is known. */
#include "support.h"
#include "support/random.h"

enum { WIDTH = 23, HEIGHT = 17, MOST = 40 };

static uint8_t pixels[3 * WIDTH * HEIGHT], planes[3 * MOST * MOST];
static const picture source = {WIDTH, HEIGHT, pixels};

static int fill(void **state)
{
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)draw(1, i, 256);
    return 0;
}

static double tent(double x)
{
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

/* The mean of a line's values, each weighed by a tent around `centre`. */
static double weighed(const double *values, size_t count, double centre, double scale)
{
    double sum = 0, weights = 0, reach = scale > 1 ? scale : 1;
    for (size_t i = 0; i < count; i++) {
        double weight = tent(((double)i + 0.5 - centre) / reach);
        sum += weight * values[i];
        weights += weight;
    }
    return sum / weights;
}

static double expected(const picture_box *part, size_t width, size_t height, size_t c, size_t x, size_t y)
{
    double rows[HEIGHT], line[WIDTH], across = part->width / (double)width, down = part->height / (double)height;
    for (size_t row = 0; row < HEIGHT; row++) {
        for (size_t i = 0; i < WIDTH; i++) line[i] = pixels[3 * (row * WIDTH + i) + c];
        rows[row] = weighed(line, WIDTH, part->left + ((double)x + 0.5) * across, across);
    }
    return weighed(rows, HEIGHT, part->top + ((double)y + 0.5) * down, down);
}

/* Two roundings, of half a step each. */
static void check(picture_box part, size_t width, size_t height)
{
    assert_ok(picture_resample(&source, &part, width, height, &room, planes));
    for (size_t c = 0; c < 3; c++)
        for (size_t y = 0; y < height; y++)
            for (size_t x = 0; x < width; x++)
                assert_near(planes[(c * height + y) * width + x], expected(&part, width, height, c, x, y), 1.01);
}

TEST(any_part_comes_to_any_size)
{
    check((picture_box){0, 0, WIDTH, HEIGHT}, 8, 8);
    check((picture_box){0, 0, WIDTH, HEIGHT}, MOST, MOST);
    check((picture_box){3, 0, HEIGHT, HEIGHT}, 16, 16);
    check((picture_box){2.25, 7.5, 5.5, 3.125}, 7, 11);
    check((picture_box){22.5, 16.5, 0.5, 0.5}, 3, 3);
    check((picture_box){0, 0, WIDTH, HEIGHT}, 1, 1);
}

TEST(its_own_size_changes_nothing)
{
    const picture_box all = {0, 0, WIDTH, HEIGHT};
    assert_ok(picture_resample(&source, &all, WIDTH, HEIGHT, &room, planes));
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < WIDTH * HEIGHT; i++) assert_int_equal(planes[c * WIDTH * HEIGHT + i], pixels[3 * i + c]);
}

TEST(one_colour_stays_itself)
{
    static uint8_t white[3 * 300 * 200];
    const picture plain = {300, 200, white};
    const picture_box part = {10, 3, 271, 190};
    for (int value = 0; value < 256; value += 5) {
        memset(white, value, sizeof white);
        assert_ok(picture_resample(&plain, &part, 33, 17, &room, planes));
        for (size_t i = 0; i < (size_t)3 * 33 * 17; i++) assert_int_equal(planes[i], value);
    }
}

RUN_TESTS(fill, release_room)
