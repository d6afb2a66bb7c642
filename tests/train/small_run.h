/* small_run.h - a run small enough for a unit test: noise for images, the cnn, workers that are threads or this one. */
#ifndef TEST_TRAIN_SMALL_RUN_H
#define TEST_TRAIN_SMALL_RUN_H

#include "support.h"
#include "worker.h"

enum { IMAGES = 32, SIDE = 28 };

/* Settings as a command line gives them, and the data. A copy may be changed; it lives no longer than the first. */
typedef struct small_run {
    train_page page;
    options set;
    train_settings settings;
    task *work;
} small_run;

static inline void write_idx(const char *name, const uint8_t *header, size_t header_size, const uint8_t *values,
                             size_t size)
{
    uint8_t *bytes = malloc(header_size + size);
    assert_non_null(bytes);
    memcpy(bytes, header, header_size);
    memcpy(bytes + header_size, values, size);
    write_bytes(name, bytes, header_size + size);
    free(bytes);
}

/* An IDX data set of noise, in the test's folder. */
static inline void write_data(void)
{
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, IMAGES, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static const uint8_t classes[] = {0, 0, 8, 1, 0, 0, 0, IMAGES};
    static uint8_t pixels[IMAGES * SIDE * SIDE], labels[IMAGES];
    for (size_t i = 0; i < sizeof pixels; i++) {
        uint32_t words[4];
        tw_random(1, 2, i, words);
        pixels[i] = (uint8_t)words[0];
    }
    for (size_t i = 0; i < IMAGES; i++) labels[i] = (uint8_t)(i % 10);
    write_idx("data/train-images-idx3-ubyte", images, sizeof images, pixels, sizeof pixels);
    write_idx("data/t10k-images-idx3-ubyte", images, sizeof images, pixels, sizeof pixels);
    write_idx("data/train-labels-idx1-ubyte", classes, sizeof classes, labels, sizeof labels);
    write_idx("data/t10k-labels-idx1-ubyte", classes, sizeof classes, labels, sizeof labels);
}

static inline void small_run_begin(small_run *r, char *out, const char *model)
{
    char line[] = "--sync dgc:density=0.05,momentum=0.5 --lr 0.05 --schedule cosine --epochs 3 --batch 8 --seed 3 "
                  "--warmup 0 --crop 2 --flip --weight-decay 0.01 --check-every 0 --quiet";
    char *words[32] = {"image", "--data", NULL, "--model", (char *)model}, *rest = NULL;
    int count = 5;
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) words[count++] = word;
    *r = (small_run){0};
    write_data();
    words[2] = (char *)in_folder("data");
    assert_ok(task_find("image", &r->settings.task));
    assert_ok(settings_page(r->settings.task, &r->page));
    assert_ok(options_parse(&r->page.page, count, words, &r->settings, &r->set));
    r->settings.set = &r->set;
    r->settings.out = out;
    assert_ok(r->settings.task->load(r->settings.own, &r->work));
}

static inline void small_run_end(small_run *r)
{
    r->settings.task->release(r->work);
    r->settings.out = r->settings.resume = NULL; /* which are the test's */
    options_release(&r->set);
}

#endif
