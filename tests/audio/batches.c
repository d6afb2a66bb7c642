/* The order of epochs and what a batch holds, on a set made by hand. */
#include "speech_batch.h"
#include "support.h"

enum { COUNT = 103, WIDTH = 3, RANKS = 3, BATCH = 4, GLOBAL = RANKS * BATCH, STEPS = COUNT / GLOBAL, LONGEST = 300 };

static speech_item items[COUNT];
static float rows[COUNT][LONGEST * WIDTH];
static uint32_t targets[COUNT][5];
static speech_set set = {
    .features = {.bins = WIDTH, .stack = 1, .stride = 1}, .width = WIDTH, .count = COUNT, .items = items};

static int set_up(void **state)
{
    for (size_t i = 0; i < COUNT; i++) {
        items[i] = (speech_item){.source = i,
                                 .frames = 1 + i * 7919 % LONGEST,
                                 .rows = rows[i],
                                 .targets = targets[i],
                                 .target_count = i % 6};
        for (size_t k = 0; k < items[i].frames * WIDTH; k++) rows[i][k] = (float)(1 + i * 10000 + k);
        for (size_t k = 0; k < 5; k++) targets[i][k] = (uint32_t)(1 + (i + k) % 26);
    }
    return 0;
}

static void order_of(uint64_t seed, uint64_t epoch, bool sorted, uint32_t order[COUNT])
{
    assert_int_equal(speech_order(&set, RANKS, BATCH, seed, epoch, sorted, order), TW_OK);
}

TEST(an_epoch_takes_each_at_most_once)
{
    uint32_t order[COUNT];
    assert_int_equal(speech_steps(&set, RANKS, BATCH), STEPS);
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        bool seen[COUNT] = {false};
        order_of(1, epoch, epoch == 0, order);
        for (int i = 0; i < COUNT; i++) {
            assert_true(order[i] < COUNT && !seen[order[i]]);
            seen[order[i]] = true;
        }
    }
}

TEST(everyone_has_a_turn)
{
    uint32_t order[COUNT];
    int taken[COUNT] = {0};
    for (uint64_t epoch = 0; epoch < 40; epoch++) {
        order_of(1, epoch, false, order);
        for (int i = 0; i < STEPS * GLOBAL; i++) taken[order[i]]++;
    }
    for (int i = 0; i < COUNT; i++) assert_in_range(taken[i], 28, 40); /* 37 expected: 7 of 103 rest */
}

/* The lengths of one step lie within an eighth of each other, or its utterances are neighbours in the whole order. */
TEST(steps_hold_like_lengths)
{
    uint32_t order[COUNT];
    size_t padded = 0, real = 0;
    for (uint64_t epoch = 0; epoch < 10; epoch++) {
        order_of(3, epoch, false, order);
        for (int s = 0; s < STEPS; s++) {
            size_t longest = 0;
            for (int i = 0; i < GLOBAL; i++) {
                size_t frames = items[order[s * GLOBAL + i]].frames;
                longest = frames > longest ? frames : longest;
                real += frames;
            }
            padded += longest * GLOBAL;
        }
    }
    assert_true((double)real / (double)padded > 0.75); /* unsorted, half would be padding */
}

TEST(the_first_epoch_goes_from_short_to_long)
{
    uint32_t order[COUNT];
    order_of(3, 0, true, order);
    for (int s = 1; s < STEPS; s++)
        for (int i = 0; i < GLOBAL; i++)
            for (int j = 0; j < GLOBAL; j++)
                assert_true(items[order[(s - 1) * GLOBAL + i]].frames <= items[order[s * GLOBAL + j]].frames);
    assert_int_equal(speech_order_by_length(&set, order), TW_OK);
    for (int i = 1; i < COUNT; i++) assert_true(items[order[i - 1]].frames <= items[order[i]].frames);
}

/* Dealt like cards: the workers' k-th utterances are neighbours in length, whatever the order within a step. */
TEST(workers_share_short_and_long)
{
    uint32_t order[COUNT];
    order_of(3, 0, true, order);
    for (int s = 0; s < STEPS; s++)
        for (int k = 1; k < BATCH; k++)
            for (int r = 0; r < RANKS; r++)
                for (int q = 0; q < RANKS; q++)
                    assert_true(items[order[(s * RANKS + r) * BATCH + k - 1]].frames <=
                                items[order[(s * RANKS + q) * BATCH + k]].frames);
}

TEST(an_order_depends_on_seed_and_epoch)
{
    uint32_t order[COUNT], other[COUNT];
    order_of(1, 2, false, order);
    order_of(1, 2, false, other);
    assert_memory_equal(order, other, sizeof order);
    order_of(2, 2, false, other);
    assert_memory_not_equal(order, other, sizeof order);
    order_of(1, 3, false, other);
    assert_memory_not_equal(order, other, sizeof order);
}

TEST(refuses_steps_that_are_too_large)
{
    uint32_t order[COUNT];
    assert_int_equal(speech_order(&set, COUNT + 1, 1, 1, 1, false, order), TW_ERROR_ARGUMENT);
    assert_said("103 utterances", "104 x 1");
    assert_int_equal(speech_order(&set, 1, COUNT, 1, 1, false, order), TW_OK);
}

TEST(a_batch_is_padded)
{
    static const uint32_t chosen[] = {17, 3, 60, 12};
    speech_batch batch = {0};
    for (size_t count = 1; count <= 4; count++) { /* buffers grow */
        size_t time = 0, spoken = 0;
        assert_int_equal(speech_fill(&set, chosen, count, NULL, 0, 0, &batch), TW_OK);
        for (size_t i = 0; i < count; i++) time = items[chosen[i]].frames > time ? items[chosen[i]].frames : time;
        assert_int_equal(batch.time, time);
        assert_int_equal(batch.count, count);
        for (size_t i = 0; i < count; i++) {
            const speech_item *item = &items[chosen[i]];
            assert_int_equal(batch.lengths[i], item->frames);
            assert_int_equal(batch.target_counts[i], item->target_count);
            for (size_t k = 0; k < item->target_count; k++) assert_int_equal(batch.targets[spoken++], item->targets[k]);
            for (size_t t = 0; t < time; t++)
                for (size_t c = 0; c < WIDTH; c++)
                    assert_true(batch.features[(t * count + i) * WIDTH + c] ==
                                (t < item->frames ? item->rows[t * WIDTH + c] : 0));
        }
    }
    speech_batch_release(&batch);
}

TEST(masks_do_not_depend_on_the_batch)
{
    static const uint32_t chosen[] = {17, 60}, alone[] = {60};
    const spec_augmentation augment = {.time_masks = 2, .longest_span = 20, .most_of_it = 0.5};
    speech_batch both = {0}, one = {0};
    size_t masked = 0;
    assert_int_equal(speech_fill(&set, chosen, 2, &augment, 4, 5, &both), TW_OK);
    assert_int_equal(speech_fill(&set, alone, 1, &augment, 4, 5, &one), TW_OK);
    for (size_t t = 0; t < items[60].frames; t++) {
        assert_memory_equal(both.features + (t * 2 + 1) * WIDTH, one.features + t * WIDTH, WIDTH * sizeof(float));
        masked += one.features[t * WIDTH] == 0;
    }
    assert_true(masked > 0);
    for (size_t k = 0; k < items[60].frames * WIDTH; k++) assert_true(rows[60][k] != 0); /* the set's own are whole */
    speech_batch_release(&both);
    speech_batch_release(&one);
}

RUN_TESTS(set_up, NULL)
