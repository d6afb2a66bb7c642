/* The container: copies in, copies out, replaces, and stays as it was when memory runs out. */
#include "support.h"

#include "memory.h"

TEST(values_are_copied)
{
    float put[] = {1, 2, 3}, got[3] = {0};
    size_t shape[] = {3};
    tw_state *made;
    assert_int_equal(tw_state_create(&made), TW_OK);
    assert_int_equal(tw_state_put(made, "a", TW_F32, 1, shape, put), TW_OK);
    put[0] = 9;
    assert_int_equal(tw_state_get(made, "a", TW_F32, 3, got), TW_OK);
    assert_true(got[0] == 1 && got[1] == 2 && got[2] == 3);
    tw_state_destroy(made);
    tw_state_destroy(NULL);
}

TEST(get_refuses_what_does_not_fit)
{
    tw_state *made = make_everything();
    float got[6] = {42};
    assert_int_equal(tw_state_get(made, "missing", TW_F32, 6, got), TW_ERROR_STATE);
    assert_non_null(strstr(tw_last_error(), "missing"));
    assert_int_equal(tw_state_get(made, "layer.0/weight", TW_I32, 6, got), TW_ERROR_STATE);
    assert_int_equal(tw_state_get(made, "layer.0/weight", TW_F32, 5, got), TW_ERROR_STATE);
    assert_true(got[0] == 42);
    assert_int_equal(tw_state_get(made, "empty", TW_F32, 0, NULL), TW_OK);
    tw_state_entry entry;
    assert_int_equal(tw_state_at(made, tw_state_count(made), &entry), TW_ERROR_ARGUMENT);
    assert_null(tw_state_text(made, "missing"));
    tw_state_destroy(made);
}

TEST(put_refuses_what_cannot_be_saved)
{
    static const size_t shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, huge[] = {(size_t)1 << 40, (size_t)1 << 40};
    float one = 1;
    tw_state *made;
    assert_int_equal(tw_state_create(&made), TW_OK);
    assert_int_equal(tw_state_put(made, NULL, TW_F32, 1, shape, &one), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_state_put(made, "\xff", TW_F32, 1, shape, &one), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_state_put(made, "__metadata__", TW_F32, 1, shape, &one), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_state_put(made, "a", (tw_dtype)9, 1, shape, &one), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_state_put(made, "a", TW_F32, 9, shape, &one), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_state_put(made, "a", TW_F32, 2, huge, &one), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_state_put(made, "a", TW_F32, 1, NULL, &one), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_state_put_text(made, "a", "\xc3"), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_state_put_text(made, "a", NULL), TW_ERROR_ARGUMENT);
    assert_int_equal(tw_state_count(made), 0);
    tw_state_destroy(made);
}

TEST(put_replaces_in_place)
{
    static const double doubles[] = {4, 5};
    static const size_t two[] = {2};
    double got[2];
    tw_state_entry entry;
    tw_state *made = make_everything();
    size_t count = tw_state_count(made);
    assert_int_equal(tw_state_put(made, "bytes", TW_F64, 1, two, doubles), TW_OK);
    assert_int_equal(tw_state_count(made), count);
    assert_int_equal(tw_state_at(made, 0, &entry), TW_OK);
    assert_string_equal(entry.name, "bytes");
    assert_int_equal(entry.dtype, TW_F64);
    assert_int_equal(tw_state_get(made, "bytes", TW_F64, 2, got), TW_OK);
    assert_memory_equal(got, doubles, sizeof got);
    assert_int_equal(tw_state_put_text(made, "step", "13"), TW_OK);
    assert_string_equal(tw_state_text(made, "step"), "13");
    size_t texts = 0, steps = 0;
    for (const char *key, *value; (key = tw_state_text_at(made, texts, &value)); texts++) {
        assert_string_equal(value, tw_state_text(made, key));
        steps += strcmp(key, "step") == 0;
    }
    assert_true(texts > 1 && steps == 1);
    tw_state_destroy(made);
}

TEST(thousands_of_tensors_are_found)
{
    enum { COUNT = 20000 };
    tw_state *made;
    assert_int_equal(tw_state_create(&made), TW_OK);
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < COUNT; i++) {
            char name[32];
            int32_t value = i * 7 + pass, got = -1;
            snprintf(name, sizeof name, "tensor.%d", i);
            assert_int_equal(tw_state_put(made, name, TW_I32, 0, NULL, &value), TW_OK);
            assert_int_equal(tw_state_get(made, name, TW_I32, 1, &got), TW_OK);
            assert_int_equal(got, value);
        }
    assert_int_equal(tw_state_count(made), COUNT);
    tw_state_destroy(made);
}

static tw_status replace_tensor(tw_state *made)
{
    static const size_t five[] = {5};
    return tw_state_put(made, "bytes", TW_U8, 1, five, "\1\2\3\0\377");
}

static tw_status add_tensor(tw_state *made)
{
    return tw_state_put(made, "new", TW_U64, 0, NULL, "12345678");
}

static tw_status replace_text(tw_state *made)
{
    return tw_state_put_text(made, "step", "12");
}

static tw_status add_text(tw_state *made)
{
    return tw_state_put_text(made, "new", "x");
}

/* Each allocation of each kind of put fails once: the state is as it was, and a sanitizer sees no leak. */
TEST(a_put_without_memory_changes_nothing)
{
    static tw_status (*const puts[])(tw_state *) = {replace_tensor, add_tensor, replace_text, add_text};
    for (size_t kind = 0; kind < sizeof puts / sizeof *puts; kind++) {
        tw_state *made = make_everything(), *same = make_everything();
        long n = 1;
        for (tw_fail_allocation(n); puts[kind](made) != TW_OK; tw_fail_allocation(++n)) {
            assert_same_state(made, same);
            assert_null(tw_state_text(made, "new"));
        }
        tw_fail_allocation(0);
        assert_true(n > 1);
        tw_state_destroy(made);
        tw_state_destroy(same);
    }
}

RUN_TESTS(NULL, NULL)
