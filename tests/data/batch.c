/* The order of an epoch, and the batches drawn in it. */
#include <string.h>

#include "dataset.h"
#include "shuffle.h"
#include "support/cmocka.h"

enum { COUNT = 40, CHANNELS = 3, HEIGHT = 7, WIDTH = 9, AREA = HEIGHT * WIDTH, SIZE = CHANNELS * AREA };

static uint8_t pixels[COUNT * SIZE];
static uint16_t labels[COUNT];

/* Every pixel differs from its neighbours, and none is black. */
static const dataset *sample(void)
{
    static dataset data = {.mean = {0.25f, 0.5f, 0.125f}, .deviation = {0.5f, 0.25f, 1.0f}};
    for (size_t i = 0; i < COUNT * SIZE; i++) pixels[i] = (uint8_t)(1 + (i * 37 + i / AREA * 11) % 255);
    for (size_t i = 0; i < COUNT; i++) labels[i] = (uint16_t)(i % 10);
    data.train = (image_set){COUNT, CHANNELS, HEIGHT, WIDTH, 10, .pixels = pixels, .labels = labels};
    return &data;
}

static float normal(const dataset *data, size_t channel, uint8_t pixel)
{
    return ((float)pixel / 255.0f - data->mean[channel]) / data->deviation[channel];
}

TEST(an_order_is_a_permutation)
{
    enum { MOST = 60000 };
    static uint32_t order[MOST];
    static uint8_t seen[MOST];
    for (size_t count = 0; count <= MOST; count = count < 20 ? count + 1 : count * 20 / 3) {
        memset(seen, 0, sizeof seen);
        data_shuffle(order, count, 3, 1);
        for (size_t i = 0; i < count; i++) {
            assert_in_range(order[i], 0, count - 1);
            assert_int_equal(seen[order[i]]++, 0);
        }
    }
}

TEST(an_order_depends_on_seed_and_epoch)
{
    uint32_t first[COUNT], again[COUNT], other_seed[COUNT], other_epoch[COUNT];
    data_shuffle(first, COUNT, 3, 1);
    data_shuffle(again, COUNT, 3, 1);
    data_shuffle(other_seed, COUNT, 4, 1);
    data_shuffle(other_epoch, COUNT, 3, 2);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other_seed, sizeof first);
    assert_memory_not_equal(first, other_epoch, sizeof first);
    assert_memory_not_equal(other_seed, other_epoch, sizeof first);
}

/* Each of the 24 orders of 4 comes about 1000 times in 24000; a deviation is sqrt(1000), so 200 is beyond 6 of them. */
TEST(every_order_is_as_likely)
{
    int often[256] = {0}, kinds = 0;
    for (uint64_t epoch = 0; epoch < 24000; epoch++) {
        uint32_t order[4];
        data_shuffle(order, 4, 5, epoch);
        often[order[0] << 6 | order[1] << 4 | order[2] << 2 | order[3]]++;
    }
    for (int i = 0; i < 256; i++) {
        if (often[i] == 0) continue;
        kinds++;
        assert_in_range(often[i], 800, 1200);
    }
    assert_int_equal(kinds, 24);
}

TEST(a_batch_is_normalised)
{
    static float images[COUNT * SIZE];
    const dataset *data = sample();
    uint32_t order[COUNT];
    uint16_t drawn[COUNT];
    data_shuffle(order, COUNT, 1, 0);
    dataset_batch(data, &data->train, order, COUNT, NULL, 1, 0, images, drawn);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(drawn[i], labels[order[i]]);
        for (size_t at = 0; at < SIZE; at++) {
            float expected = normal(data, at / AREA, pixels[order[i] * SIZE + at]);
            assert_float_equal(images[i * SIZE + at], expected, 0);
        }
    }
}

TEST(a_batch_does_not_depend_on_how_it_is_split)
{
    static float whole[COUNT * SIZE], parts[COUNT * SIZE];
    static const size_t splits[] = {1, 3, 8, COUNT - 1};
    const augmentation augment = {.padding = 2, .flip = 1};
    const dataset *data = sample();
    uint32_t order[COUNT];
    uint16_t whole_labels[COUNT], part_labels[COUNT];
    data_shuffle(order, COUNT, 6, 9);
    dataset_batch(data, &data->train, order, COUNT, &augment, 6, 9, whole, whole_labels);
    for (size_t s = 0; s < sizeof splits / sizeof splits[0]; s++) {
        memset(parts, 0, sizeof parts);
        for (size_t at = 0; at < COUNT; at += splits[s]) {
            size_t count = COUNT - at < splits[s] ? COUNT - at : splits[s];
            dataset_batch(data, &data->train, order + at, count, &augment, 6, 9, parts + at * SIZE, part_labels + at);
        }
        assert_memory_equal(whole, parts, sizeof whole);
        assert_memory_equal(whole_labels, part_labels, sizeof whole_labels);
    }
}

/* The definition, pixel by pixel: pad with black, cut a window out, mirror it. */
static float window_pixel(const dataset *data, size_t image, size_t channel, int y, int x, int top, int left, int flip)
{
    int row = y + top, column = (flip ? WIDTH - 1 - x : x) + left;
    int inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
    return normal(data, channel, inside ? pixels[image * SIZE + channel * AREA + (size_t)(row * WIDTH + column)] : 0);
}

static int is_window(const dataset *data, size_t image, const float *drawn, int top, int left, int flip)
{
    for (size_t channel = 0; channel < CHANNELS; channel++)
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++)
                if (*drawn++ != window_pixel(data, image, channel, y, x, top, left, flip)) return 0;
    return 1;
}

/* A bit for each of the windows that `drawn` is. */
static int windows_matched(const dataset *data, size_t image, const float *drawn, const augmentation *augment,
                           int *which)
{
    int matches = 0, number = 0;
    for (int flip = 0; flip <= augment->flip; flip++)
        for (int top = -augment->padding; top <= augment->padding; top++)
            for (int left = -augment->padding; left <= augment->padding; left++, number++)
                if (is_window(data, image, drawn, top, left, flip)) {
                    matches++;
                    *which = number;
                }
    return matches;
}

/* Every image drawn is exactly one of the windows there are, and all of them come. */
static void check_augmentation(augmentation augment)
{
    enum { EPOCHS = 40, WINDOWS_MOST = 50 };
    static float images[COUNT * SIZE];
    const dataset *data = sample();
    uint32_t order[COUNT];
    uint16_t drawn[COUNT];
    int often[WINDOWS_MOST] = {0}, windows = (augment.flip + 1) * (2 * augment.padding + 1) * (2 * augment.padding + 1);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        data_shuffle(order, COUNT, 2, epoch);
        dataset_batch(data, &data->train, order, COUNT, &augment, 2, epoch, images, drawn);
        for (size_t i = 0; i < COUNT; i++) {
            int which = 0;
            assert_int_equal(windows_matched(data, order[i], images + i * SIZE, &augment, &which), 1);
            assert_int_equal(drawn[i], labels[order[i]]);
            often[which]++;
        }
    }
    for (int i = 0; i < windows; i++) assert_in_range(often[i], COUNT * EPOCHS / windows / 3, COUNT * EPOCHS);
}

TEST(crops_are_windows_of_the_padded_image)
{
    check_augmentation((augmentation){.padding = 1, .flip = 0});
    check_augmentation((augmentation){.padding = 2, .flip = 0});
}

TEST(flips_are_mirror_images)
{
    check_augmentation((augmentation){.padding = 0, .flip = 1});
    check_augmentation((augmentation){.padding = 2, .flip = 1});
}

TEST(padding_may_exceed_the_image)
{
    static float images[SIZE];
    const dataset *data = sample();
    const augmentation augment = {.padding = 1000000};
    uint32_t order = 7;
    uint16_t drawn;
    dataset_batch(data, &data->train, &order, 1, &augment, 1, 1, images, &drawn);
    for (size_t at = 0; at < SIZE; at++) assert_float_equal(images[at], normal(data, at / AREA, 0), 0);
}

RUN_TESTS(NULL, NULL)
