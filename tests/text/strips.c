/* Strips partition the stream, the same whatever the number of workers. */
#include "strips.h"
#include "support.h"

enum { COUNT = 1003, STRIPS = 12, LENGTH = (COUNT - 1) / STRIPS };

static token_stream numbered(uint32_t tokens[COUNT])
{
    for (uint32_t i = 0; i < COUNT; i++) tokens[i] = i;
    return (token_stream){.tokens = tokens, .count = COUNT};
}

/* Reads all strips by slices; seen[i] is how often token i was read, and is checked against its place. */
static void read_all(size_t workers, size_t steps, unsigned char seen[COUNT])
{
    uint32_t tokens[COUNT];
    int32_t inputs[COUNT], targets[COUNT];
    token_stream stream = numbered(tokens);
    size_t batch = STRIPS / workers;
    strips all;
    assert_int_equal(strips_cut(&stream, "training", STRIPS, 1, &all), TW_OK);
    assert_int_equal(all.length, LENGTH);
    for (size_t rank = 0; rank < workers; rank++) {
        strips s = strips_slice(&all, rank * batch, batch);
        for (size_t at = 0; at < s.length; at += steps) {
            size_t count = s.length - at < steps ? s.length - at : steps;
            strips_read(&s, at, count, inputs, targets);
            for (size_t i = 0; i < count * batch; i++) {
                assert_int_equal(inputs[i], (rank * batch + i % batch) * LENGTH + at + i / batch);
                assert_int_equal(targets[i], inputs[i] + 1);
                seen[inputs[i]]++;
            }
        }
    }
}

TEST(strips_partition_the_stream)
{
    for (size_t workers = 1; workers <= STRIPS; workers++) {
        for (size_t steps = 1; STRIPS % workers == 0 && steps < 2 * LENGTH; steps += 7) {
            unsigned char seen[COUNT] = {0};
            read_all(workers, steps, seen);
            for (size_t i = 0; i < COUNT; i++) assert_int_equal(seen[i], i < STRIPS * LENGTH);
        }
    }
}

TEST(the_lengths_of_zarembas_strips)
{
    uint32_t none;
    token_stream stream = {.tokens = &none, .count = 929589};
    strips s;
    assert_int_equal(strips_cut(&stream, "training", 20, 35, &s), TW_OK);
    assert_int_equal(s.length / 20, 2323);
    assert_int_equal(s.length / 35, 1327);
}

TEST(short_streams_are_refused)
{
    uint32_t tokens[COUNT];
    token_stream stream = numbered(tokens);
    strips s;
    assert_int_equal(strips_cut(&stream, "training", 100, 10, &s), TW_OK);
    assert_int_equal(s.length, 10);
    assert_int_equal(strips_cut(&stream, "training", 100, 11, &s), TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "the training text has 1003 tokens"));
    assert_non_null(strstr(tw_last_error(), "100 strips of 11 and one to end with take 1101"));
    stream.count = 1;
    assert_int_equal(strips_cut(&stream, "test", 1, 1, &s), TW_ERROR_ARGUMENT);
}

RUN_TESTS(NULL, NULL)
