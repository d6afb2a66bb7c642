/* Names at the ends of curves: none covers another, and each stays where it was where it can. What of a run's lines
 * becomes a point. */
#include "plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run_curves.h"
#include "support/assert.h"
#include "support/folder.h"

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
    const plot_point below[] = {{-1, 1}, {NAN, 1}, {1, INFINITY}, {1e-300, 1}, {1, -1e300}};
    const plot_curve curve = {.name = "none", .points = below, .count = sizeof below / sizeof *below};
    const plot_panel panel = {.title = "", .x_logarithmic = true, .curves = &curve, .count = 1};
    const plot_picture picture = {.panels = &panel, .count = 1, .columns = 1};
    assert_int_equal(plot_draw(&picture, "/nowhere", "plot"), TW_ERROR_ARGUMENT);
}

/* ---- runs ---- */

/* A loss that goes up and down is the mean around it, another figure is not; the last line is a point in any case. */
TEST(curves_have_few_points_and_the_last)
{
    static run_line lines[1001]; /* every third is a point; the last would not be */
    const run_lines all = {.lines = lines, .count = 1001};
    for (size_t i = 0; i < all.count; i++) {
        lines[i].values[RUN_STEP] = (double)i;
        lines[i].values[RUN_LOSS] = lines[i].values[RUN_METRIC] = i % 2;
    }
    for (run_figure y = RUN_LOSS; y <= RUN_METRIC; y++) {
        size_t count;
        plot_point *points = run_curve(&all, RUN_STEP, 2, y, &count);
        assert_non_null(points);
        assert_in_range(count, RUN_POINTS / 2, RUN_POINTS + 1);
        assert_true(points[0].x == 0 && points[count - 1].x == 500);
        for (size_t i = 0; i < count; i++)
            assert_true(y == RUN_LOSS ? fabs(points[i].y - 0.5) < 0.02 : points[i].y == fmod(2 * points[i].x, 2));
        free(points);
    }
}

TEST(a_step_without_a_loss_leaves_its_neighbours_theirs)
{
    static run_line lines[100];
    const run_lines all = {.lines = lines, .count = 100};
    for (size_t i = 0; i < all.count; i++) {
        lines[i].values[RUN_STEP] = (double)i;
        lines[i].values[RUN_LOSS] = i == 50 ? (double)NAN : 3;
    }
    size_t count;
    plot_point *points = run_curve(&all, RUN_STEP, 1, RUN_LOSS, &count);
    assert_non_null(points);
    for (size_t i = 0; i < count; i++) assert_true(points[i].y == 3);
    free(points);
}

#define START "{\"kind\":\"start\",\"configuration\":{\"steps\":%d}}\n"
#define STEP "{\"kind\":\"step\",\"step\":%d%s,\"loss\":%d}\n"

typedef struct written {
    int step;
    const char *epoch;
    int loss;
} written;

/* Losses count from 1 where a line stays. */
static void assert_lines(const char *folder, int given, const written *lines, size_t count, size_t kept)
{
    run_log log;
    char text[1024];
    int used = snprintf(text, sizeof text, START, given);
    for (size_t i = 0; i < count; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, STEP, lines[i].step, lines[i].epoch, lines[i].loss);
    write_text("metrics.jsonl", text);
    assert_ok(run_log_read(folder, &log));
    assert_int_equal(log.steps.count, kept);
    for (size_t i = 0; i < kept; i++) assert_true(log.steps.lines[i].values[RUN_LOSS] == (double)(i + 1));
    run_log_release(&log);
}

/* A run that went on from step 2 has the later steps 3 and 4. With twice the workers an epoch has half the steps, and
 * with half of them twice as many: only what is taken again counts once, by epochs where a run was given so many. */
TEST_IN_FOLDER(steps_that_were_taken_again_count_once)
{
    static const written again[] = {{1, "", 1}, {2, "", 2}, {3, "", 30}, {4, "", 40}, {3, "", 3}, {4, "", 4}},
                         more[] = {{100, ",\"epoch\":1", 1}, {200, ",\"epoch\":2", 2}, {150, ",\"epoch\":3", 3}},
                         fewer[] = {{50, ",\"epoch\":1", 1},
                                    {100, ",\"epoch\":2", 2},
                                    {120, ",\"epoch\":2.4", 30},
                                    {210, ",\"epoch\":2.1", 3}},
                         steps[] = {{100, ",\"epoch\":1", 1},
                                    {200, ",\"epoch\":2", 2},
                                    {300, ",\"epoch\":3", 30},
                                    {210, ",\"epoch\":4.2", 3}};
    assert_lines(*state, 0, again, 6, 4);
    assert_lines(*state, 0, more, 3, 3);
    assert_lines(*state, 0, fewer, 4, 3);
    assert_lines(*state, 400, steps, 4, 3);
}

RUN_TESTS(NULL, NULL)
