/* Names at the ends of curves: none covers another, and each stays where it was where it can. */
#include "plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka.h"

enum { MOST = 12 };
#define HEIGHT 0.05

static double draw(void)
{
    return rand() / (double)RAND_MAX;
}

/* So few that there is room for all of them one above the other, wherever they are. */
TEST(names_cover_none_other)
{
    srand(1);
    for (int trial = 0; trial < 2000; trial++) {
        size_t count = 1 + (size_t)rand() % MOST;
        bool crowded = trial % 2;
        double given[MOST], parted[MOST];
        for (size_t i = 0; i < count; i++) given[i] = crowded ? 0.5 + 0.01 * draw() : draw();
        memcpy(parted, given, sizeof given);
        plot_part_labels(parted, count, HEIGHT);
        for (size_t i = 0; i < count; i++) {
            assert_true(parted[i] >= HEIGHT / 2 - 1e-9 && parted[i] <= 1 - HEIGHT / 2 + 1e-9);
            for (size_t k = 0; k < i; k++) {
                assert_true(fabs(parted[i] - parted[k]) > HEIGHT - 1e-9);
                assert_true((parted[i] < parted[k]) == (given[i] < given[k]));
            }
        }
    }
}

TEST(what_covers_nothing_stays)
{
    double labels[] = {0.3, 0.3 + HEIGHT, 0.7, 0.9}, kept[4];
    memcpy(kept, labels, sizeof labels);
    plot_part_labels(labels, 4, HEIGHT);
    assert_memory_equal(labels, kept, sizeof labels);
}

TEST(those_at_the_top_go_down_in_their_order)
{
    double labels[] = {0.999, 0.998, 1};
    plot_part_labels(labels, 3, 0.1);
    assert_true(fabs(labels[2] - 0.95) < 1e-9);
    assert_true(fabs(labels[0] - 0.85) < 1e-9);
    assert_true(fabs(labels[1] - 0.75) < 1e-9);
}

TEST(a_picture_of_nothing_is_refused)
{
    const plot_point below[] = {{-1, 1}, {NAN, 1}, {1, INFINITY}};
    const plot_curve curve = {.name = "none", .points = below, .count = 3};
    const plot_panel panel = {.title = "", .x_logarithmic = true, .curves = &curve, .count = 1};
    const plot_picture picture = {.panels = &panel, .count = 1, .columns = 1};
    assert_int_equal(plot_draw(&picture, "/nowhere", "plot"), TW_ERROR_ARGUMENT);
}

RUN_TESTS(NULL, NULL)
