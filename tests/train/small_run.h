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

static inline void write_idx(const char *folder, const char *name, const uint8_t *header, size_t header_size,
                             const uint8_t *values, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(header, 1, header_size, file), header_size);
    assert_int_equal(fwrite(values, 1, size, file), size);
    fclose(file);
}

/* An IDX data set of noise. */
static inline void write_data(const char *folder)
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
    write_idx(folder, "train-images-idx3-ubyte", images, sizeof images, pixels, sizeof pixels);
    write_idx(folder, "t10k-images-idx3-ubyte", images, sizeof images, pixels, sizeof pixels);
    write_idx(folder, "train-labels-idx1-ubyte", classes, sizeof classes, labels, sizeof labels);
    write_idx(folder, "t10k-labels-idx1-ubyte", classes, sizeof classes, labels, sizeof labels);
}

static inline void small_run_begin(small_run *r, char *out, const char *model)
{
    void *folder;
    char *words[] = {"image",
                     "--data",
                     NULL,
                     "--model",
                     (char *)model,
                     "--sync",
                     "dgc:density=0.05,momentum=0.5",
                     "--lr",
                     "0.05",
                     "--schedule",
                     "cosine",
                     "--epochs",
                     "3",
                     "--batch",
                     "8",
                     "--seed",
                     "3",
                     "--warmup",
                     "0",
                     "--crop",
                     "2",
                     "--flip",
                     "--weight-decay",
                     "0.01",
                     "--check-every",
                     "0",
                     "--quiet"};
    *r = (small_run){0};
    assert_int_equal(make_folder(&folder), 0);
    write_data(folder);
    words[2] = folder;
    assert_ok(task_find("image", &r->settings.task));
    settings_page(r->settings.task, &r->page);
    assert_ok(options_parse(&r->page.page, sizeof words / sizeof *words, words, &r->settings, &r->set));
    r->settings.set = &r->set;
    r->settings.out = out;
    assert_ok(r->settings.task->load(r->settings.own, &r->work));
    remove_folder(&folder);
}

static inline void small_run_end(small_run *r)
{
    r->settings.task->release(r->work);
    r->settings.out = NULL;
    options_release(&r->set);
}

#endif
