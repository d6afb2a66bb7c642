/* Tempo: every length there may be, the same ones every time, and nothing but interpolation between the rows. */
#include "tempo.h"
#include "speech_batch.h"
#include "support.h"

enum { FRAMES = 40, WIDTH = 3, DRAWS = 10000 };

TEST(lengths_are_spread_evenly)
{
    int seen[2 * FRAMES] = {0};
    for (uint32_t u = 0; u < DRAWS; u++) {
        size_t frames = tempo_frames(0.1, 5, 1, u, FRAMES);
        assert_in_range(frames, FRAMES - 4, FRAMES + 4);
        assert_int_equal(frames, tempo_frames(0.1, 5, 1, u, FRAMES));
        seen[frames]++;
    }
    for (size_t n = FRAMES - 3; n <= FRAMES + 3; n++) assert_in_range(seen[n], DRAWS / 8 - 165, DRAWS / 8 + 165);
    assert_in_range(seen[FRAMES - 4] + seen[FRAMES + 4], DRAWS / 8 - 165, DRAWS / 8 + 165); /* half as likely each */
    assert_int_equal(tempo_frames(0.5, 5, 1, 1, 1), 1);
}

TEST(epochs_utterances_and_seeds_differ)
{
    int same[3] = {0};
    for (uint32_t u = 0; u < 100; u++) {
        size_t frames = tempo_frames(0.5, 5, 1, u, 1000);
        same[0] += frames == tempo_frames(0.5, 5, 2, u, 1000);
        same[1] += frames == tempo_frames(0.5, 5, 1, u + 1, 1000);
        same[2] += frames == tempo_frames(0.5, 6, 1, u, 1000);
    }
    for (int i = 0; i < 3; i++) assert_in_range(same[i], 0, 3);
}

/* What is straight in time stays straight, whatever its new length. */
TEST(straight_lines_stay_straight)
{
    float rows[FRAMES * WIDTH], changed[2 * FRAMES * WIDTH];
    for (int t = 0; t < FRAMES; t++)
        for (int i = 0; i < WIDTH; i++) rows[t * WIDTH + i] = (float)(t * (i + 1) - 7);
    for (size_t count = 2; count <= 2 * FRAMES; count++) {
        tempo_change(rows, FRAMES, WIDTH, changed, count);
        for (size_t t = 0; t < count; t++)
            for (size_t i = 0; i < WIDTH; i++) {
                double exact = (double)t * (FRAMES - 1) / (double)(count - 1) * (double)(i + 1) - 7;
                assert_float_equal(changed[t * WIDTH + i], exact, 1e-4);
            }
    }
}

TEST(an_unchanged_length_is_a_copy)
{
    float rows[FRAMES * WIDTH], changed[FRAMES * WIDTH];
    for (int i = 0; i < FRAMES * WIDTH; i++) rows[i] = 1.0f / (float)(i + 1);
    tempo_change(rows, FRAMES, WIDTH, changed, FRAMES);
    assert_memory_equal(changed, rows, sizeof rows);
    tempo_change(rows, 1, WIDTH, changed, 3);
    for (int t = 0; t < 3; t++) assert_memory_equal(changed + t * WIDTH, rows, WIDTH * sizeof *rows);
}

/* An utterance that CTC can just follow is only ever stretched. */
TEST(transcripts_still_fit)
{
    float rows[6 * WIDTH] = {0};
    uint32_t letters[] = {1, 1, 2, 3}, order[] = {0}; /* 5 frames: a blank between the equal ones */
    speech_item item = {.frames = 6, .rows = rows, .targets = letters, .target_count = 4};
    const speech_set set = {
        .features = {.bins = WIDTH, .stack = 1, .stride = 1}, .width = WIDTH, .count = 1, .items = &item};
    const spec_augmentation augment = {.tempo = 0.5};
    speech_batch batch = {0};
    int seen[10] = {0};
    for (uint64_t epoch = 0; epoch < 200; epoch++) {
        assert_int_equal(speech_fill(&set, order, 1, &augment, 1, epoch, &batch), TW_OK);
        assert_int_equal(batch.time, batch.lengths[0]);
        assert_in_range(batch.lengths[0], 5, 9);
        seen[batch.lengths[0]]++;
    }
    for (int frames = 5; frames <= 9; frames++) assert_true(seen[frames] > 0);
    speech_batch_release(&batch);
}

RUN_TESTS(NULL, NULL)
