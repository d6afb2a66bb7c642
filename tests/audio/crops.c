/* Crops of joined utterances: each frame knows where it comes from, so that every crop can be followed. */
#include "speech_crops.h"
#include "support.h"

enum { ITEMS = 7, WIDTH = 2, CROP = 10, MOST = 40 };

static const char *const names[ITEMS] = {"b", "a", "b", "c", "a", "b", ""};
static const size_t lengths[ITEMS] = {12, 3, 4, 9, 8, 17, 25};

static float numbers[ITEMS][MOST * WIDTH]; /* item, and frame of it */
static speech_utterance spoken[ITEMS];
static speech_item items[ITEMS];
static const speech_list list = {spoken, ITEMS, ITEMS, "training", NULL};
static const speech_set set = {.features = {.hop_ms = 10, .stride = 1}, .width = WIDTH, .count = ITEMS, .items = items};
static speech_crops crops;
static crop_order order;

static int set_up(void **state)
{
    for (size_t i = 0; i < ITEMS; i++) {
        spoken[i] = (speech_utterance){.speaker = (char *)names[i]};
        items[i] = (speech_item){.source = i, .frames = lengths[i], .rows = numbers[i]};
        for (size_t t = 0; t < lengths[i]; t++) {
            numbers[i][t * WIDTH] = (float)i;
            numbers[i][t * WIDTH + 1] = (float)t;
        }
    }
    assert_ok(speech_crops_find(&set, &list, CROP, "--crop", &crops));
    assert_ok(crop_order_create(&crops, &order));
    return 0;
}

static int tear_down(void **state)
{
    crop_order_release(&order);
    speech_crops_release(&crops);
    return 0;
}

/* Marks the frames that it has; those of a crop follow one another, and are one speaker's. */
static void follow(const float *crop, unsigned char seen[ITEMS][MOST])
{
    for (size_t t = 0; t < CROP; t++) {
        size_t item = (size_t)crop[t * WIDTH], frame = (size_t)crop[t * WIDTH + 1];
        assert_string_equal(names[item], names[(size_t)crop[0]]);
        assert_int_equal(seen[item][frame]++, 0);
        if (t == 0 || frame == 0) continue;
        assert_true(crop[(t - 1) * WIDTH] == crop[t * WIDTH] && crop[(t - 1) * WIDTH + 1] == (float)(frame - 1));
    }
}

TEST(every_crop_is_of_one_speaker_and_nothing_comes_twice)
{
    assert_int_equal(crops.speakers, 4);
    assert_int_equal(crops.short_speakers, 1); /* c: 9 frames */
    assert_int_equal(crops.count, 2 + 1 + 3);  /* "": 25, a: 11, b: 33 */
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        unsigned char seen[ITEMS][MOST] = {{0}};
        float rows[CROP * WIDTH];
        crop_order_shuffle(&crops, 7, epoch, &order);
        for (size_t i = 0; i < crops.count; i++) {
            speech_crops_copy(&crops, &order, i, rows);
            follow(rows, seen);
        }
        assert_int_equal(seen[3][0], 0);
    }
}

TEST(an_epoch_is_a_function_of_the_seed_and_its_number)
{
    crop_order other;
    size_t joined = 0, met = 0;
    assert_ok(crop_order_create(&crops, &other));
    crop_order_shuffle(&crops, 7, 5, &other);
    for (uint64_t epoch = 0; epoch < 6; epoch++) {
        crop_order_shuffle(&crops, 7, epoch, &order);
        int same = memcmp(order.items, other.items, ITEMS * sizeof *order.items) == 0;
        joined += !same;
        met += memcmp(order.crops, other.crops, crops.count * sizeof *order.crops) != 0;
        if (epoch == 5) assert_true(same);
    }
    assert_true(joined > 0 && met > 0);
    assert_memory_equal(order.crops, other.crops, crops.count * sizeof *order.crops);
    crop_order_release(&other);
}

TEST(the_plain_order_is_the_corpuss)
{
    float rows[CROP * WIDTH];
    crop_order_plain(&crops, &order);
    speech_crops_copy(&crops, &order, 4, rows); /* b's second: 12 and 4 frames, then 4 of 17 */
    const float from[CROP] = {0, 0, 2, 2, 2, 2, 5, 5, 5, 5}, frames[CROP] = {10, 11, 0, 1, 2, 3, 0, 1, 2, 3};
    for (size_t t = 0; t < CROP; t++) assert_true(rows[t * WIDTH] == from[t] && rows[t * WIDTH + 1] == frames[t]);
}

TEST(no_whole_crop_is_refused)
{
    speech_crops long_ones;
    assert_fails(speech_crops_find(&set, &list, 34, "--crop", &long_ones), TW_ERROR_ARGUMENT,
                 "none of 4 training speakers has a whole crop of 0.34 s: the longest has 0.33 s");
    assert_ok(speech_crops_find(&set, &list, 33, "--crop", &long_ones));
    assert_int_equal(long_ones.count, 1);
    speech_crops_release(&long_ones);
}

RUN_TESTS(set_up, tear_down)
