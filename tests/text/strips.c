/* Strips partition the stream, the same whatever the number of workers. */
#include "strips.h"
#include "support.h"

enum { COUNT = 1003 };

static token_stream numbered(uint32_t tokens[COUNT])
{
    for (uint32_t i = 0; i < COUNT; i++) tokens[i] = i;
    return (token_stream){.tokens = tokens, .count = COUNT};
}

/* Reads a whole pass of all workers; seen[i] is how often token i was read, and is checked against its place. */
static void read_all(size_t strip_count, int workers, size_t unroll, unsigned char seen[COUNT])
{
    uint32_t tokens[COUNT];
    int32_t inputs[COUNT], targets[COUNT];
    token_stream stream = numbered(tokens);
    size_t batch = strip_count / (size_t)workers, length = COUNT / strip_count;
    for (int rank = 0; rank < workers; rank++) {
        strips s;
        assert_int_equal(strips_cut(&stream, "training", batch, workers, rank, unroll, &s), TW_OK);
        assert_int_equal(s.steps, (length - 1) / unroll);
        for (uint64_t step = 0; step < s.steps; step++) {
            strips_read(&s, step, inputs, targets);
            for (size_t i = 0; i < unroll * batch; i++) {
                size_t strip = (size_t)rank * batch + i % batch;
                assert_int_equal(inputs[i], strip * length + step * unroll + i / batch);
                assert_int_equal(targets[i], inputs[i] + 1);
                seen[inputs[i]]++;
            }
        }
    }
}

static void strips_partition_the_stream(void **state)
{
    (void)state;
    for (size_t unroll = 1; unroll < 40; unroll += 6) {
        unsigned char one[COUNT] = {0}, four[COUNT] = {0}, twelve[COUNT] = {0};
        read_all(12, 1, unroll, one);
        read_all(12, 4, unroll, four);
        read_all(12, 12, unroll, twelve);
        assert_memory_equal(one, four, COUNT);
        assert_memory_equal(one, twelve, COUNT);
        size_t length = COUNT / 12, read = (length - 1) / unroll * unroll;
        for (size_t i = 0; i < COUNT; i++) assert_int_equal(one[i], i < 12 * length && i % length < read);
    }
}

static void the_steps_of_zarembas_small_model(void **state)
{
    uint32_t none;
    token_stream stream = {.tokens = &none, .count = 929589};
    strips s;
    (void)state;
    assert_int_equal(strips_cut(&stream, "training", 20, 1, 0, 20, &s), TW_OK);
    assert_int_equal(s.steps, 2323);
    assert_int_equal(strips_cut(&stream, "training", 20, 1, 0, 35, &s), TW_OK);
    assert_int_equal(s.steps, 1327);
}

static void short_streams_are_refused(void **state)
{
    uint32_t tokens[COUNT];
    token_stream stream = numbered(tokens);
    strips s;
    (void)state;
    assert_int_equal(strips_cut(&stream, "training", 50, 2, 1, 9, &s), TW_OK);
    assert_int_equal(s.steps, 1);
    assert_int_equal(strips_cut(&stream, "training", 50, 2, 0, 10, &s), TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "the training text has 1003 tokens; 100 strips"));
    assert_non_null(strstr(tw_last_error(), "need 1100"));
    assert_int_equal(strips_cut(&stream, "training", 65536, 4096, 0, 1, &s), TW_ERROR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strips_partition_the_stream),
        cmocka_unit_test(the_steps_of_zarembas_small_model),
        cmocka_unit_test(short_streams_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
