/* w2v-BERT: its losses and all its gradients against a second writing in double; what is drawn; several workers; what
 * the statistics say. */
#include "w2v_bert.h"

#include "contrast.h"
#include "quantiser.h"
#include "training.h"
#include "w2v_bert_reference.h"

enum { FEATURES = 6, CROPS = 3, FRAMES = 78, PROBES = 8 };

/* Rows: 1, 2 and 17. */
static const size_t firsts[] = {0, 3, 10, FRAMES};
static const uint64_t places[] = {4, 5, 6};

static w2v_bert_config small(void)
{
    return (w2v_bert_config){
        .encoder = {.features = FEATURES, .channels = 3, .width = 8, .heads = 2, .kernel = 3, .keep = 0.8f},
        .contrastive_blocks = 1,
        .masked_blocks = 1,
        .groups = 2,
        .codes = 5,
        .code_width = 6,
        .compared_width = 4,
        .code_scale = 1.0f,
        .mask_probability = 0.3,
        .mask_span = 2,
        .distractors = 5,
        .diversity_weight = 0.5f,
        .similarity = 0.3f};
}

static w2v_bert_batch batch_of(const float *frames)
{
    return (w2v_bert_batch){{CROPS, firsts}, frames, places};
}

static w2v_bert_step_options usual(void)
{
    return (w2v_bert_step_options){.draws = {7, 3}, .dropout = {8, 3}, .temperature = 0.7f};
}

/* A model, and what it hears. */
typedef struct fixture {
    w2v_bert *m;
    const parameter_set *set;
    float *frames;
    w2v_bert_batch batch;
    w2v_bert_step_options options;
    w2v_bert_result result;
} fixture;

static fixture open_fixture(const w2v_bert_config *config)
{
    fixture f = {.frames = random_floats(1, (size_t)FRAMES * FEATURES), .options = usual()};
    f.batch = batch_of(f.frames);
    assert_ok(w2v_bert_create(config, &f.m));
    w2v_bert_initialise(f.m, 11);
    f.set = w2v_bert_parameters(f.m);
    return f;
}

static void close_fixture(fixture *f)
{
    w2v_bert_destroy(f->m);
    free(f->frames);
}

/* ---- losses and gradients ---- */

static void check_tensor(reference *r, const parameter_set *set, size_t t)
{
    const size_t begin = set->table->offsets[t], count = nn_table_elements(set->table, t);
    const double step = 1e-5;
    double scale = 0.0;
    for (size_t i = 0; i < count; i++) scale = fmax(scale, fabs((double)set->gradients[begin + i]));
    if (!(scale > 0.0)) fail_msg("%s has no gradient", set->table->tensors[t].name);
    for (size_t i = 0; i < PROBES; i++) {
        const size_t at = begin + draw(t, i, (uint32_t)count);
        const double old = r->values[at];
        r->values[at] = old + step;
        const double above = reference_losses(r);
        r->values[at] = old - step;
        const double expected = (above - reference_losses(r)) / (2.0 * step);
        r->values[at] = old;
        if (!(fabs(set->gradients[at] - expected) <= 1e-4 * scale + 1e-6))
            fail_msg("%s[%zu]: %.9g, by differences %.9g", set->table->tensors[t].name, at - begin,
                     (double)set->gradients[at], expected);
    }
}

static void check_model(const w2v_bert_config *config)
{
    fixture f = open_fixture(config);
    for (size_t i = 0; i < f.set->table->elements; i++) f.set->values[i] += 0.3f * uniform(9, i); /* no bias is 0 */
    fill_uniform(5, 1.0f, f.set->gradients, f.set->table->elements); /* nor matters what was */
    assert_ok(w2v_bert_step(f.m, &f.batch, &f.options, &f.result));
    reference r = {.config = config, .table = f.set->table, .batch = &f.batch, .options = &f.options};
    r.values = malloc(f.set->table->elements * sizeof *r.values);
    for (size_t i = 0; i < f.set->table->elements; i++) r.values[i] = f.set->values[i];
    reference_losses(&r);
    assert_near(f.result.sums.contrastive / f.result.sums.hidden, r.contrastive, 1e-5);
    assert_near(f.result.sums.masked / f.result.sums.hidden, r.masked, 1e-5);
    assert_near(f.result.diversity, r.diversity, 1e-5);
    assert_near(f.result.loss, r.loss, 1e-5);
    for (size_t t = 0; t < f.set->table->count; t++) check_tensor(&r, f.set, t);
    reference_close(&r);
    close_fixture(&f);
}

TEST(test_losses_and_gradients)
{
    const w2v_bert_config config = small();
    check_model(&config);
}

TEST(test_with_relative_positions_and_a_learned_fill)
{
    w2v_bert_config config = small();
    config.encoder.relative = 1;
    config.fill = W2V_BERT_FILL_LEARNED;
    config.groups = 1;
    config.distractors = 100;
    check_model(&config);
}

TEST(test_contrastive_only)
{
    w2v_bert_config config = small();
    config.masked_blocks = 0;
    check_model(&config);
}

TEST(test_masked_only)
{
    w2v_bert_config config = small();
    config.contrastive_blocks = 0;
    check_model(&config);
}

/* ---- the order of gradients ---- */

TEST(test_gradients_are_announced_from_the_last)
{
    w2v_bert_config config = small();
    config.fill = W2V_BERT_FILL_LEARNED;
    fixture f = open_fixture(&config);
    announcements a = announcements_open(f.set);
    f.options.ready = note_announcement;
    f.options.context = &a;
    assert_ok(w2v_bert_step(f.m, &f.batch, &f.options, &f.result));
    assert_int_equal(a.next, 0);
    assert_memory_equal(a.copy, f.set->gradients, f.set->table->elements * sizeof(float));
    free(a.copy);
    close_fixture(&f);
}

/* ---- several workers ---- */

/* The sums that the other worker would bring: worked out beforehand. */
typedef struct other {
    const float *theirs;
    float *mine;
} other;

static tw_status add_other(void *context, float *values, size_t count)
{
    const other *o = context;
    for (size_t i = 0; i < count; i++) {
        if (o->mine) o->mine[i] = values[i];
        values[i] += o->theirs ? o->theirs[i] : 0.0f;
    }
    return TW_OK;
}

/* Two workers with a crop of one and crops of the others are one worker with all. */
TEST(test_two_workers_are_one_with_both_batches)
{
    w2v_bert_config config = small();
    config.encoder.keep = 1.0f;
    float shares[2][11] = {{0}};
    fixture f = open_fixture(&config);
    const size_t late[] = {0, FRAMES - 10};
    const w2v_bert_batch batches[] = {{{2, firsts}, f.frames, places},
                                      {{1, late}, f.frames + (size_t)10 * FEATURES, places + 2}};
    double losses = 0.0;
    const size_t count = f.set->table->elements;
    double *sum = calloc(count, sizeof *sum);
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t w = 0; w < 2; w++) {
            other o = {pass ? shares[1 - w] : NULL, pass ? NULL : shares[w]};
            const w2v_bert_sum both = {add_other, &o, 2};
            f.options.sum = &both;
            assert_ok(w2v_bert_step(f.m, &batches[w], &f.options, &f.result));
            losses += pass ? f.result.loss / 2 : 0.0;
            for (size_t i = 0; i < count && pass; i++) sum[i] += f.set->gradients[i] / 2.0;
        }
    f.options.sum = NULL;
    assert_ok(w2v_bert_step(f.m, &f.batch, &f.options, &f.result));
    assert_near(losses, f.result.loss, 1e-5);
    for (size_t i = 0; i < count; i++) assert_near(sum[i], (double)f.set->gradients[i], 2e-5);
    free(sum);
    close_fixture(&f);
}

/* ---- random targets ---- */

TEST(test_random_targets_stand_still)
{
    w2v_bert_config config = small();
    config.contrastive_blocks = 0;
    config.targets = W2V_BERT_RANDOM;
    double before[10];
    fixture f = open_fixture(&config);
    assert_int_equal(w2v_bert_buffers(f.m)->table->count, 2);
    assert_ok(w2v_bert_step(f.m, &f.batch, &f.options, &f.result));
    memcpy(before, f.result.chosen, sizeof before);
    assert_true(f.result.sums.masked > 0.0 && f.result.diversity == 0.0);
    for (size_t i = 0; i < f.set->table->elements; i++) f.set->values[i] -= 0.1f * f.set->gradients[i];
    const double loss = f.result.sums.masked;
    assert_ok(w2v_bert_step(f.m, &f.batch, &f.options, &f.result));
    assert_true(f.result.sums.masked < loss);
    assert_memory_equal(before, f.result.chosen, sizeof before);
    close_fixture(&f);
}

/* ---- what is drawn ---- */

/* Row t is hidden unless none of the `span` rows up to it begins a span. */
TEST(test_the_share_of_hidden_rows)
{
    enum { LENGTH = 100, CROPS_DRAWN = 2000, SPAN = 5 };
    const double p = 0.12;
    const size_t first[] = {0, LENGTH};
    const nn_rows rows = {1, first};
    hiding h = {0};
    size_t hidden[LENGTH] = {0};
    for (uint64_t crop = 0; crop < CROPS_DRAWN; crop++) {
        assert_ok(hiding_draw(&h, &rows, &crop, &(nn_noise){3, 4}, p, SPAN));
        for (size_t i = 0; i < h.count; i++) hidden[h.rows[i]]++;
    }
    for (size_t t = 0; t < LENGTH; t++) {
        const double share = 1.0 - pow(1.0 - p, (double)(t + 1 < SPAN ? t + 1 : SPAN));
        assert_near((double)hidden[t] / CROPS_DRAWN, share, 4.0 * sqrt(share * (1.0 - share) / CROPS_DRAWN));
    }
    hiding_free(&h);
}

/* A crop hides the same rows wherever it stands in whichever batch. */
TEST(test_a_crop_is_hidden_alike_in_any_batch)
{
    const size_t both[] = {0, 40, 90}, alone[] = {0, 50};
    const uint64_t crops[] = {2, 9};
    hiding h = {0}, single = {0};
    assert_ok(hiding_draw(&h, &(nn_rows){2, both}, crops, &(nn_noise){3, 4}, 0.1, 5));
    assert_ok(hiding_draw(&single, &(nn_rows){1, alone}, crops + 1, &(nn_noise){3, 4}, 0.1, 5));
    assert_true(single.count > 5);
    assert_int_equal(h.count - h.first[1], single.count);
    for (size_t i = 0; i < single.count; i++) assert_int_equal(h.rows[h.first[1] + i] - 40, single.rows[i]);
    hiding_free(&h);
    hiding_free(&single);
}

/* ---- comparing ---- */

typedef struct planted {
    float c[16], q[16];
    int32_t codes[4];
} planted;

static contrast_result contrast_of(const planted *p, size_t distractors)
{
    const size_t first[] = {0, 4};
    const nn_rows crops = {1, first};
    const uint64_t place = 1;
    const nn_noise draws = {1, 2};
    const contrast_options options = {4, 1, distractors, 0.1f};
    float gradients[32];
    const contrast_call call = {&crops, &place, &draws, p->c, p->q, p->codes, 1.0f, gradients, gradients + 16};
    contrast_room room = {0};
    contrast_result result;
    assert_ok(contrast(&options, &call, &room, &result));
    contrast_room_free(&room);
    return result;
}

/* Of orthogonal codes, each at its own row, the loss is ln(1 + K e^(-1 / similarity)); equal codes are left out, and
 * where all are equal nothing is compared: that is no success. */
TEST(test_planted_codes)
{
    planted p = {.codes = {0, 1, 2, 3}};
    for (size_t i = 0; i < 4; i++) p.c[5 * i] = p.q[5 * i] = 2.0f;
    contrast_result r = contrast_of(&p, 100);
    assert_near(r.loss / 4, log(1.0 + 3.0 * exp(-10.0)), 1e-6);
    assert_near(r.chance / 4, log(4.0), 1e-12);
    assert_true(r.compared == 4 && r.correct == 4 && r.distractors == 12 && r.same == 0);
    p.codes[1] = 0;
    r = contrast_of(&p, 100);
    assert_near(r.loss, 2 * log(1.0 + 2.0 * exp(-10.0)) + 2 * log(1.0 + 3.0 * exp(-10.0)), 1e-6);
    assert_true(r.same == 2);
    p.codes[2] = p.codes[3] = 0;
    r = contrast_of(&p, 2);
    assert_true(r.compared == 0 && r.loss == 0 && r.correct == 0 && r.distractors == 8 && r.same == 8);
}

/* ---- codes ---- */

/* Uniform codes have diversity 0, a single one (V - 1) / V. */
TEST(test_diversity_of_certain_codes)
{
    double mean[16], slope[16];
    for (size_t v = 0; v < 16; v++) mean[v] = 1.0 / 8;
    assert_near(quantiser_diversity(mean, 2, 8, slope), 0.0, 1e-5);
    for (size_t v = 0; v < 16; v++) mean[v] = v % 8 == 3;
    assert_near(quantiser_diversity(mean, 2, 8, slope), 7.0 / 8, 1e-6);
}

TEST(test_measures)
{
    const double probabilities[] = {2, 2, 2, 2, 5, 1, 1, 1}, chosen[] = {4, 4, 0, 0, 8, 0, 0, 0};
    const w2v_bert_sums sums = {.hidden = 8, .row_entropy = 8 * 0.5};
    const w2v_bert_metrics m = w2v_bert_measure(&sums, probabilities, chosen, 2, 4);
    const double second = -5.0 / 8 * log(5.0 / 8) - 3.0 / 8 * log(1.0 / 8);
    assert_near(m.masked_chance, log(2.0), 1e-12);
    assert_near(m.soft_perplexity, (4.0 + exp(second)) / 2, 1e-12);
    assert_near(m.hard_perplexity, 1.5, 1e-12);
    assert_near(m.least_perplexity, 1.0, 1e-12);
    assert_near(m.information, (log(4.0) + second) / 2 - 0.25, 1e-12);
    assert_near(m.diversity, 1.0 - (4.0 + exp(second)) / 8, 1e-12);
    const w2v_bert_metrics none = w2v_bert_measure(&(w2v_bert_sums){0}, probabilities, chosen, 2, 4);
    assert_true(none.masked_chance == 0 && none.hard_perplexity == 0);
}

/* ---- evaluation ---- */

/* Without noise it is a function of the draws alone, and changes no gradient. */
TEST(test_evaluation)
{
    const w2v_bert_config config = small();
    w2v_bert_result once, again;
    fixture f = open_fixture(&config);
    assert_ok(w2v_bert_evaluate(f.m, &f.batch, &(nn_noise){1, 2}, &once));
    const double probability = once.probabilities[0];
    assert_ok(w2v_bert_evaluate(f.m, &f.batch, &(nn_noise){1, 2}, &again));
    assert_memory_equal(&once.sums, &again.sums, sizeof once.sums);
    assert_true(probability == again.probabilities[0]);
    assert_true(again.sums.sampled_best == again.sums.hidden * 2 && again.sums.lonely_crops >= 1);
    assert_ok(w2v_bert_evaluate(f.m, &f.batch, &(nn_noise){1, 3}, &again));
    assert_true(once.loss != again.loss);
    close_fixture(&f);
}

/* Nothing hidden is nothing learned, and no NaN. */
TEST(test_nothing_hidden)
{
    w2v_bert_config config = small();
    config.mask_probability = 1e-12;
    fixture f = open_fixture(&config);
    fill_uniform(5, 1.0f, f.set->gradients, f.set->table->elements);
    assert_ok(w2v_bert_step(f.m, &f.batch, &f.options, &f.result));
    assert_true(f.result.loss == 0.0 && f.result.sums.hidden == 0.0 && f.result.sums.lonely_crops == CROPS);
    for (size_t i = 0; i < f.set->table->elements; i++) assert_true(f.set->gradients[i] == 0.0f);
    close_fixture(&f);
}

/* ---- sizes ---- */

static size_t counted(const char *size, size_t features, int relative)
{
    w2v_bert_config config = small();
    nn_table table;
    w2v_bert_take_size(w2v_bert_find_size(size), &config);
    config.encoder.features = features;
    config.encoder.relative = relative;
    assert_ok(w2v_bert_describe(&config, &table));
    const size_t elements = table.elements;
    nn_table_free(&table);
    return elements;
}

/* By the formula of a block, 23 d^2 + (30 + k) d, and d^2 + 2 d more with relative positions, and by hand beside them.
 */
static size_t by_formula(size_t d, size_t k, size_t blocks, int relative, size_t channels, size_t bins, size_t codes,
                         size_t compared)
{
    const size_t block = 23 * d * d + (30 + k) * d + (relative ? d * d + 2 * d : 0), features = channels * bins;
    const size_t front = 10 * channels + channels * channels * 9 + channels + 2 * features + features * d + d;
    const size_t codebook = codes * d + codes * features + codes;
    return blocks * block + front + codebook + 2 * (d * compared + compared) + codes * d + codes;
}

TEST(test_parameters_are_counted_without_taking_memory)
{
    assert_int_equal(counted("tiny", 40, 0), by_formula(128, 15, 8, 0, 32, 10, 128, 64));
    assert_int_equal(counted("tiny", 40, 0) - (size_t)8 * 10 * 128, 3192288); /* the prototype's, with kernels of 5 */
    assert_int_equal(counted("xl", 80, 0), by_formula(1024, 5, 24, 0, 256, 20, 1024, 768));
    assert_int_equal(counted("xl", 80, 1), by_formula(1024, 5, 24, 1, 256, 20, 1024, 768));
    assert_int_equal(counted("xxl", 40, 1), by_formula(1024, 5, 42, 1, 256, 10, 1024, 768));
    assert_null(w2v_bert_find_size("huge"));
}

static void refuses(w2v_bert_config config, const char *word)
{
    w2v_bert *m;
    assert_fails(w2v_bert_create(&config, &m), TW_ERROR_ARGUMENT, word);
}

TEST(test_sizes_that_cannot_be)
{
    w2v_bert_config c = small();
    refuses((c = small(), c.encoder.heads = 3, c), "heads");
    refuses((c = small(), c.encoder.kernel = 4, c), "odd");
    refuses((c = small(), c.groups = 4, c), "groups");
    refuses((c = small(), c.contrastive_blocks = c.masked_blocks = 0, c), "block");
    refuses((c = small(), c.mask_probability = 1.0, c), "probability");
    refuses((c = small(), c.mask_span = 0, c), "span");
    refuses((c = small(), c.distractors = 0, c), "distractor");
    refuses((c = small(), c.targets = W2V_BERT_RANDOM, c), "random targets");
    refuses((c = small(), c.encoder.keep = 0.0f, c), "keeping");
    refuses((c = small(), c.code_scale = 0.0f, c), "scale");
}

RUN_TESTS(NULL, NULL)
