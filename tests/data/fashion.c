/* The real thing, where Debian's package dataset-fashion-mnist is installed. */
#include <string.h>
#include <unistd.h>

#include "dataset.h"
#include "support/cmocka.h"

static void assert_split(const image_set *set, size_t count)
{
    size_t often[10] = {0};
    assert_int_equal(set->count, count);
    assert_int_equal(set->channels, 1);
    assert_int_equal(set->height, 28);
    assert_int_equal(set->width, 28);
    assert_int_equal(set->classes, 10);
    for (size_t i = 0; i < count; i++) often[set->labels[i]]++;
    for (int label = 0; label < 10; label++) assert_int_equal(often[label], count / 10);
}

/* Mean .2860 and deviation .3530 are the figures commonly given for this set. */
static void reads_fashion_mnist(void **state)
{
    dataset data;
    if (access("/usr/share/datasets/fashion-mnist", F_OK) != 0) skip();
    assert_int_equal(dataset_load(NULL, &data), TW_OK);
    assert_split(&data.train, 60000);
    assert_split(&data.test, 10000);
    assert_float_equal(data.mean[0], 0.2860, 5e-5);
    assert_float_equal(data.deviation[0], 0.3530, 5e-5);
    dataset_release(&data);
}

static void says_how_to_get_it(void **state)
{
    dataset data;
    if (access("/usr/share/datasets/fashion-mnist", F_OK) == 0) skip();
    assert_int_equal(dataset_load(NULL, &data), TW_ERROR_IO);
    assert_non_null(strstr(tw_last_error(), "apt install dataset-fashion-mnist"));
    assert_non_null(strstr(tw_last_error(), "--data DIR"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_fashion_mnist),
        cmocka_unit_test(says_how_to_get_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
