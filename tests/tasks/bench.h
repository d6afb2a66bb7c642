/* bench.h - a task's data and learners by themselves, with a small set of each kind of data in the test's folder. */
#ifndef TEST_TASKS_BENCH_H
#define TEST_TASKS_BENCH_H

#include "audio/support.h"
#include "support/png.h"
#include "support/random.h"
#include "task.h"

#include <thinwire/thinwire_plugin.h>

enum { IMAGES = 40, TEST_IMAGES = 23, SIDE = 12, UTTERANCES = 9, FRAMES = 48, PHOTOS = 12 };

/* ---- data -------------------------------------------------------------------------------------------------------- */

static inline void write_split(const char *split, size_t count, uint64_t stream)
{
    char name[64];
    uint8_t images[16 + IMAGES * SIDE * SIDE] = {0, 0, 8, 3, 0, 0, 0, (uint8_t)count, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    uint8_t labels[8 + IMAGES] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)count};
    for (size_t i = 0; i < count * SIDE * SIDE; i++) images[16 + i] = (uint8_t)draw(stream, i, 256);
    for (size_t i = 0; i < count; i++) labels[8 + i] = (uint8_t)(i % 10);
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", split);
    write_bytes(name, images, 16 + count * SIDE * SIDE);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", split);
    write_bytes(name, labels, 8 + count);
}

static inline void write_images(void)
{
    write_split("train", IMAGES, 1);
    write_split("t10k", TEST_IMAGES, 2);
}

/* Two classes of six, and 5 to test with. One of each split is damaged. */
static inline void write_photos(void)
{
    write_text("photos/x", "");
    write_text("photos/train/x", "");
    write_text("photos/test/x", "");
    for (unsigned i = 0; i < PHOTOS + 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "photos/%s/%c/%u.png", i < PHOTOS ? "train" : "test", "ab"[i % 2], i);
        if (i == 4 || i == PHOTOS + 2)
            write_text(name, "damaged");
        else
            write_png(name, 15 + i, 30 - i, i);
    }
}

static inline void write_words(const char *name, size_t count, uint64_t stream)
{
    char text[4096];
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "w%u ", draw(stream, i, 7));
    write_text(name, text);
}

static inline void write_texts(void)
{
    write_words("texts/train.txt", 200, 3);
    write_words("texts/valid.txt", 90, 4);
    write_words("texts/test.txt", 70, 5);
}

/* Kaldi's tables of sounds of FRAMES frames, and a manifest of others, each a frame longer or more than another; alike:
 * all sounds are one. */
static inline void write_speech(int alike)
{
    static const char *const texts[UTTERANCES] = {"ab", "ba", "c ab", "ac", "b", "cb a", "bc", "a", "cab"};
    char name[32], line[64], manifest[1024] = "", scp[512] = "", text[512] = "", alignment[4096] = "";
    for (unsigned i = 0; i < UTTERANCES; i++) {
        unsigned as = alike ? 0 : i;
        snprintf(name, sizeof name, "speech/%u.wav", i);
        write_noise(name, as + 1, 4000); /* FRAMES frames */
        snprintf(name, sizeof name, "speech/long-%u.wav", i);
        write_noise(name, as + 1, 4000 + 400 * (as * 5 % UTTERANCES));
        snprintf(line, sizeof line, "{\"audio_filepath\": \"long-%u.wav\", \"text\": \"%s\"}\n", i, texts[as]);
        strcat(manifest, line);
        snprintf(line, sizeof line, "u%u %u.wav\n", i, i);
        strcat(scp, line);
        snprintf(line, sizeof line, "u%u %s\n", i, texts[as]);
        strcat(text, line);
        snprintf(line, sizeof line, "u%u", i);
        strcat(alignment, line);
        for (unsigned frame = 0; frame < FRAMES; frame++) {
            snprintf(line, sizeof line, " %u", (as + frame / 8) % 4);
            strcat(alignment, line);
        }
        strcat(alignment, "\n");
    }
    write_text("speech/manifest.json", manifest);
    write_text("speech/wav.scp", scp);
    write_text("speech/text", text);
    write_text("speech/ali.txt", alignment);
}

/* ---- a task ------------------------------------------------------------------------------------------------------ */

typedef struct bench {
    char words[512];
    max_align_t settings[TASK_SETTINGS_MOST / sizeof(max_align_t)];
    option_page page;
    options set;
    const task_ops *ops;
    task *work;
} bench;

/* `words` begin with the task's name; @ stands for the folder. */
static inline void bench_open(bench *b, const char *words)
{
    char *argv[32], *rest = NULL;
    int argc = 0;
    size_t used = 0;
    *b = (bench){0};
    for (; *words; words++)
        used += (size_t)snprintf(b->words + used, sizeof b->words - used, *words == '@' ? "%s" : "%.1s",
                                 *words == '@' ? test_folder : words);
    for (char *word = strtok_r(b->words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) argv[argc++] = word;
    assert_ok(task_find(argv[0], &b->ops));
    b->page = (option_page){.rows = b->ops->rows, .count = b->ops->row_count};
    assert_ok(options_parse(&b->page, argc - 1, argv + 1, b->settings, &b->set));
    assert_ok(b->ops->load(b->settings, &b->work));
}

static inline void bench_close(bench *b)
{
    b->ops->release(b->work);
    options_release(&b->set);
}

static inline tw_status bench_try_learner(const bench *b, int rank, int size, size_t batch, uint64_t seed, learner **l)
{
    const learner_place place = {.rank = rank, .size = size, .batch = batch, .seed = seed};
    return task_learner_create(b->work, &place, l);
}

static inline learner *bench_learner(const bench *b, int rank, int size, size_t batch)
{
    learner *l;
    assert_ok(bench_try_learner(b, rank, size, batch, 3, &l));
    return l;
}

static inline tw_status ignore(void *context, size_t index, float *gradient)
{
    (void)context, (void)index, (void)gradient;
    return TW_OK;
}

static inline task_score bench_step(learner *l, uint64_t step)
{
    task_score score;
    assert_ok(l->task->ops->step(l, step, ignore, NULL, &score));
    return score;
}

/* The bits of a learner's last gradient. */
static inline uint32_t bench_bits(const learner *l)
{
    return tw_crc32c(0, l->gradients, l->parameter_count * sizeof(float));
}

#endif
