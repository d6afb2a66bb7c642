/* small_run.h - a run small enough for a unit test: noise for images, the cnn, workers that are threads or this one. */
#ifndef TEST_TRAIN_SMALL_RUN_H
#define TEST_TRAIN_SMALL_RUN_H

#include "support.h"
#include "worker.h"

#define IMAGES 32
#define SIDE 28

static inline dataset make_data(void)
{
    dataset data = {.format = "test", .path = "memory", .mean = {0.5f}, .deviation = {0.25f}};
    image_set set = {.count = IMAGES, .channels = 1, .height = SIDE, .width = SIDE, .classes = 10};
    set.pixels = malloc(IMAGES * SIDE * SIDE);
    set.labels = malloc(IMAGES);
    for (size_t i = 0; i < IMAGES * SIDE * SIDE; i++) {
        uint32_t words[4];
        tw_random(1, 2, i, words);
        set.pixels[i] = (uint8_t)words[0];
    }
    for (size_t i = 0; i < IMAGES; i++) set.labels[i] = (uint8_t)(i % 10);
    data.train = data.test = set;
    return data;
}

static inline void release_data(dataset *data)
{
    free(data->train.pixels);
    free(data->train.labels);
}

static inline train_settings small_settings(char *out)
{
    return (train_settings){.task = "image",
                            .model = "cnn",
                            .sync = "dgc:density=0.05,momentum=0.5",
                            .out = out,
                            .schedule = "cosine",
                            .epochs = 3,
                            .batch = 8,
                            .seed = 3,
                            .lr = 0.05,
                            .momentum = 0.9,
                            .weight_decay = 0.01,
                            .crop = 2,
                            .flip = true,
                            .quiet = true};
}

#endif
