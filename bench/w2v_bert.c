/* bench_w2v_bert STEPS KEEP [FOLDER]: how long a training step of w2v-BERT's size "tiny" takes on 64 seconds of made-up
 * features, 16 crops of 400 frames: forward, backward, clipping, Adam. Prints JSON. With FOLDER it takes one step
 * instead, and leaves there what w2v_bert_torch.py needs to take the same one: weights, features, hidden rows, what
 * covers them, noise, losses and gradients. */
#include "w2v_bert.h"
#include "hiding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <thinwire/thinwire_plugin.h>
#include <time.h>

enum { CROPS = 16, LENGTH = 400, FEATURES = 40, ROWS = LENGTH / 4, WARM_UP = 2, MOST_STEPS = 1000 };

static w2v_bert_config tiny(float keep)
{
    w2v_bert_config config = {.encoder = {.features = FEATURES, .keep = keep},
                              .code_scale = 1.0f,
                              .mask_probability = 0.12,
                              .mask_span = 5,
                              .distractors = 100,
                              .diversity_weight = 0.1f,
                              .similarity = 0.1f};
    w2v_bert_take_size(w2v_bert_find_size("tiny"), &config);
    return config;
}

static void check(tw_status status)
{
    if (status == TW_OK) return;
    fprintf(stderr, "bench_w2v_bert: %s\n", tw_last_error());
    exit(1);
}

/* ---- a step ---- */

typedef struct bench {
    w2v_bert_config config;
    w2v_bert *model;
    const parameter_set *set;
    float *frames, *first, *second; /* first, second: Adam's moments */
    size_t crops[CROPS + 1];
    uint64_t places[CROPS];
    w2v_bert_step_options options;
    w2v_bert_result result;
} bench;

static void open_bench(bench *b, float keep)
{
    *b = (bench){.config = tiny(keep), .options = {.draws = {1, 0}, .dropout = {2, 0}, .temperature = 0.8f}};
    check(w2v_bert_create(&b->config, &b->model));
    w2v_bert_initialise(b->model, 1);
    b->set = w2v_bert_parameters(b->model);
    b->frames = malloc(sizeof(float) * CROPS * LENGTH * FEATURES);
    b->first = calloc(b->set->table->elements, sizeof *b->first);
    b->second = calloc(b->set->table->elements, sizeof *b->second);
    if (!b->frames || !b->first || !b->second) exit(1);
    for (size_t i = 0; i < (size_t)CROPS * LENGTH * FEATURES; i++) {
        uint32_t words[4];
        tw_random(3, 0, i, words);
        b->frames[i] = 1.7320508f * ((float)words[0] * 0x1p-31f - 1.0f);
    }
    for (size_t u = 0; u < CROPS; u++) {
        b->places[u] = u;
        b->crops[u + 1] = b->crops[u] + LENGTH;
    }
}

static void close_bench(bench *b)
{
    w2v_bert_destroy(b->model);
    free(b->frames);
    free(b->first);
    free(b->second);
}

static void learn(bench *b, size_t step)
{
    const w2v_bert_batch batch = {{CROPS, b->crops}, b->frames, b->places};
    b->options.draws.step = b->options.dropout.step = step;
    check(w2v_bert_step(b->model, &batch, &b->options, &b->result));
}

static void clip(const parameter_set *set, float most)
{
    double squares = 0.0;
    for (size_t i = 0; i < set->table->elements; i++) squares += (double)set->gradients[i] * set->gradients[i];
    const float scale = sqrt(squares) > most ? (float)(most / sqrt(squares)) : 1.0f;
    for (size_t i = 0; i < set->table->elements; i++) set->gradients[i] *= scale;
}

static void adam(bench *b, size_t step)
{
    const double due = 1e-4 * sqrt(1.0 - pow(0.98, (double)step + 1.0)) / (1.0 - pow(0.9, (double)step + 1.0));
    const float rate = (float)due;
    for (size_t i = 0; i < b->set->table->elements; i++) {
        const float g = b->set->gradients[i];
        b->first[i] = 0.9f * b->first[i] + 0.1f * g;
        b->second[i] = 0.98f * b->second[i] + 0.02f * g * g;
        b->set->values[i] -= rate * b->first[i] / (sqrtf(b->second[i]) + 1e-6f);
    }
}

/* ---- timing ---- */

static double milliseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, size_t count)
{
    qsort(times, count, sizeof *times, ascending);
    return (times[(count - 1) / 2] + times[count / 2]) / 2.0;
}

static void measure(bench *b, size_t steps)
{
    double wall[MOST_STEPS], processor[MOST_STEPS];
    for (size_t step = 0; step < steps + WARM_UP; step++) {
        const size_t at = step < WARM_UP ? 0 : step - WARM_UP;
        wall[at] = -milliseconds(CLOCK_MONOTONIC);
        processor[at] = -milliseconds(CLOCK_PROCESS_CPUTIME_ID);
        learn(b, step);
        clip(b->set, 5.0f);
        adam(b, step);
        wall[at] += milliseconds(CLOCK_MONOTONIC);
        processor[at] += milliseconds(CLOCK_PROCESS_CPUTIME_ID);
    }
    printf("{\"step_ms\": %.1f, \"step_cpu_ms\": %.1f, \"parameters\": %zu, \"loss\": %.6f}\n", median(wall, steps),
           median(processor, steps), b->set->table->elements, b->result.loss);
}

/* ---- one step for others to take ---- */

static void leave(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        fprintf(stderr, "bench_w2v_bert: cannot write %s\n", path);
        exit(1);
    }
}

static void leave_table(const char *folder, const nn_table *table)
{
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    if (!file) exit(1);
    for (size_t i = 0; i < table->count; i++) {
        fprintf(file, "%s", table->tensors[i].name);
        for (size_t k = 0; k < table->tensors[i].dims; k++) fprintf(file, " %zu", (size_t)table->tensors[i].shape[k]);
        fprintf(file, "\n");
    }
    fclose(file);
    leave(folder, "tensors.txt", text, size);
    free(text);
}

/* The Gumbel noise of each hidden row and code, by the model's own numbers. */
static float *gumbel_noise(const bench *b, const hiding *h)
{
    const size_t codes = b->config.groups * b->config.codes;
    float *noise = calloc(h->count * codes, sizeof *noise);
    for (size_t u = 0; noise && u < CROPS; u++)
        for (size_t i = h->first[u] * codes; i < h->first[u + 1] * codes; i++) {
            const size_t row = h->rows[i / codes] - u * ROWS, code = i % codes;
            uint32_t words[4];
            tw_random(b->options.draws.seed, hiding_stream(&b->options.draws, HIDING_GUMBEL, u),
                      row * ((codes + 3) / 4) + code / 4, words);
            noise[i] = (float)-log(-log((words[code % 4] + 0.5) * 0x1p-32));
        }
    return noise;
}

static void leave_draws(const bench *b, const char *folder)
{
    const size_t width = (FEATURES + 3) / 4 * b->config.encoder.channels;
    size_t first[CROPS + 1];
    for (size_t u = 0; u <= CROPS; u++) first[u] = u * ROWS;
    const nn_rows rows = {CROPS, first};
    hiding h = {0};
    check(hiding_draw(&h, &rows, b->places, &b->options.draws, b->config.mask_probability, b->config.mask_span));
    float *cover = calloc((size_t)CROPS * ROWS * width, sizeof *cover), *noise = gumbel_noise(b, &h);
    if (!cover || !noise) exit(1);
    hiding_cover(&h, &rows, b->places, &b->options.draws, 0.1f * sqrtf(3.0f), NULL, width, cover);
    leave(folder, "hidden.i64", h.rows, h.count * sizeof *h.rows);
    leave(folder, "cover.f32", cover, (size_t)CROPS * ROWS * width * sizeof *cover);
    leave(folder, "noise.f32", noise, h.count * b->config.groups * b->config.codes * sizeof *noise);
    hiding_free(&h);
    free(cover);
    free(noise);
}

static void leave_step(bench *b, const char *folder)
{
    const size_t bytes = b->set->table->elements * sizeof(float);
    leave_table(folder, b->set->table);
    leave(folder, "values.f32", b->set->values, bytes);
    leave(folder, "frames.f32", b->frames, sizeof(float) * CROPS * LENGTH * FEATURES);
    learn(b, 0);
    leave_draws(b, folder);
    leave(folder, "gradients.f32", b->set->gradients, bytes);
    printf("{\"contrastive\": %.9f, \"diversity\": %.9f, \"masked\": %.9f, \"loss\": %.9f}\n",
           b->result.sums.contrastive / b->result.sums.hidden, b->result.diversity,
           b->result.sums.masked / b->result.sums.hidden, b->result.loss);
}

int main(int count, char **arguments)
{
    const long steps = count > 1 ? strtol(arguments[1], NULL, 10) : 0;
    const float keep = count > 2 ? strtof(arguments[2], NULL) : 1.0f;
    if (count < 3 || count > 4 || steps < 1 || steps > MOST_STEPS) {
        fprintf(stderr, "usage: bench_w2v_bert STEPS KEEP [FOLDER]\n");
        return 2;
    }
    bench b;
    open_bench(&b, keep);
    if (count == 4)
        leave_step(&b, arguments[3]);
    else
        measure(&b, (size_t)steps);
    close_bench(&b);
    return 0;
}
