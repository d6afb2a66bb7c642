/* SpecAugment: masks where they may be, as often as they should be, and the same ones every time. */
#include "spec_augment.h"
#include "support.h"

enum { BINS = 10, GROUPS = 6, WIDTH = BINS * GROUPS, COUNT = 40, DRAWS = 4000 }; /* 3 stacked frames with deltas */

static const feature_settings settings = {.bins = BINS, .deltas = 1, .stack = 3, .stride = 3};
static float rows[COUNT * WIDTH];

static void draw(const spec_augmentation *augment, uint64_t seed, uint64_t epoch, uint32_t utterance)
{
    for (int i = 0; i < COUNT * WIDTH; i++) rows[i] = 1;
    spec_augment(augment, &settings, seed, epoch, utterance, rows, COUNT);
}

/* A band is masked in every row and in each group of bins. */
TEST(masks_bands)
{
    const spec_augmentation augment = {.frequency_masks = 1, .widest_band = 4};
    int widths[5] = {0};
    for (uint32_t u = 0; u < DRAWS; u++) {
        int width = 0;
        draw(&augment, 5, 1, u);
        for (int b = 0; b < BINS; b++) {
            width += rows[b] == 0;
            for (int i = b; i < COUNT * WIDTH; i += BINS) assert_true(rows[i] == rows[b]);
        }
        assert_in_range(width, 0, 4);
        widths[width]++;
    }
    for (int w = 0; w < 5; w++) assert_in_range(widths[w], DRAWS / 5 - 130, DRAWS / 5 + 130); /* 5 deviations */
}

TEST(masks_spans)
{
    const spec_augmentation augment = {.time_masks = 1, .longest_span = 30, .most_of_it = 0.2};
    int lengths[9] = {0}, first_row = 0;
    for (uint32_t u = 0; u < DRAWS; u++) {
        int length = 0, changes = 0;
        draw(&augment, 5, 1, u);
        for (int t = 0; t < COUNT; t++) {
            length += rows[t * WIDTH] == 0;
            changes += t > 0 && rows[t * WIDTH] != rows[(t - 1) * WIDTH];
            for (int i = 0; i < WIDTH; i++) assert_true(rows[t * WIDTH + i] == rows[t * WIDTH]);
        }
        assert_in_range(length, 0, 8); /* a fifth of 40 */
        assert_in_range(changes, 0, 2);
        lengths[length]++;
        first_row += rows[0] == 0;
    }
    for (int l = 0; l < 9; l++) assert_in_range(lengths[l], DRAWS / 9 - 100, DRAWS / 9 + 100);
    assert_in_range(first_row, 50, 150); /* the mean over lengths of 1 / places, 0.0245, of 4,000 */
}

TEST(depends_on_seed_epoch_and_utterance_alone)
{
    const spec_augmentation augment = {2, 2, 3, 5, 1};
    static float kept[COUNT * WIDTH];
    draw(&augment, 1, 2, 3);
    memcpy(kept, rows, sizeof rows);
    draw(&augment, 9, 9, 9);
    draw(&augment, 1, 2, 3);
    assert_memory_equal(kept, rows, sizeof rows);
    for (int other = 0; other < 3; other++) {
        draw(&augment, 1 + (other == 0), 2 + (other == 1), 3 + (other == 2));
        assert_memory_not_equal(kept, rows, sizeof rows);
    }
}

TEST(zeros_mask_nothing)
{
    const spec_augmentation none = {0}, short_ones = {.time_masks = 3, .longest_span = 9, .most_of_it = 0.02};
    draw(&none, 1, 1, 1);
    for (int i = 0; i < COUNT * WIDTH; i++) assert_true(rows[i] == 1);
    draw(&short_ones, 1, 1, 1);
    for (int i = 0; i < COUNT * WIDTH; i++) assert_true(rows[i] == 1);
}

RUN_TESTS(NULL, NULL)
