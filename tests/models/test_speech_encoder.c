/* The speech encoder: utterances of a batch do not touch one another, frozen parts cost nothing, and what it is asked
 * for cannot be wrong in silence. Its numbers are checked with w2v-BERT's. */
#include "front_end.h"
#include "speech_encoder.h"

#include "training.h"

enum { FEATURES = 6, WIDTH = 8, UTTERANCES = 3, FRAMES = 78, ROWS = 21 };

/* Rows: 1, 2 and 17. */
static const size_t firsts[] = {0, 4, 11, FRAMES};

typedef struct fixture {
    nn_engine *engine;
    nn_table table;
    speech_encoder *encoder;
    parameter_set set;
    float *frames, *gradient;
} fixture;

static speech_encoder_config usual(void)
{
    return (speech_encoder_config){.features = FEATURES,
                                   .channels = 3,
                                   .width = WIDTH,
                                   .heads = 2,
                                   .kernel = 5,
                                   .blocks = 2,
                                   .relative = 1,
                                   .keep = 1.0f};
}

static void open_fixture(fixture *f)
{
    *f = (fixture){0};
    const speech_encoder_config config = usual();
    assert_ok(nn_engine_create(NN_FP32, &f->engine));
    assert_ok(speech_encoder_create(&config, f->engine, &f->table, &f->encoder));
    assert_ok(parameter_set_allocate(&f->table, &f->set));
    nn_table_initialise(&f->table, 3, f->set.values);
    f->frames = random_floats(1, (size_t)FRAMES * FEATURES);
    f->gradient = random_floats(2, (size_t)ROWS * WIDTH);
}

static void close_fixture(fixture *f)
{
    speech_encoder_destroy(f->encoder);
    nn_engine_destroy(f->engine);
    parameter_set_free(&f->set);
    nn_table_free(&f->table);
    free(f->frames);
    free(f->gradient);
}

static const float *forward(const fixture *f, nn_rows frames, const float *x, nn_rows *rows)
{
    const float *y;
    assert_ok(speech_encoder_forward(f->encoder, f->set.values, &frames, x, NULL, rows, &y));
    return y;
}

TEST(test_each_utterance_is_as_if_alone)
{
    fixture f;
    open_fixture(&f);
    nn_rows rows;
    float together[ROWS * WIDTH];
    size_t places[UTTERANCES + 1];
    const float *y = forward(&f, (nn_rows){UTTERANCES, firsts}, f.frames, &rows);
    assert_int_equal(nn_rows_total(&rows), 1 + 2 + 17);
    memcpy(together, y, nn_rows_total(&rows) * WIDTH * sizeof *y);
    memcpy(places, rows.first, sizeof places);
    for (size_t u = 0; u < UTTERANCES; u++) {
        const size_t alone[] = {0, firsts[u + 1] - firsts[u]};
        y = forward(&f, (nn_rows){1, alone}, f.frames + firsts[u] * FEATURES, &rows);
        assert_int_equal(nn_rows_total(&rows), places[u + 1] - places[u]);
        assert_int_equal(nn_rows_total(&rows), front_end_rows(alone[1]));
        for (size_t i = 0; i < nn_rows_total(&rows) * WIDTH; i++)
            assert_near((double)y[i], (double)together[places[u] * WIDTH + i], 1e-5);
    }
    close_fixture(&f);
}

/* The gradient of a batch is the sum of those of its utterances. */
TEST(test_gradients_are_those_of_the_utterances)
{
    fixture f;
    open_fixture(&f);
    const speech_encoder_gradients into = {f.set.gradients, NULL, NULL};
    nn_rows rows;
    float gradient[ROWS * WIDTH];
    double *sum = calloc(f.table.elements, sizeof *sum);
    for (size_t u = 0, row = 0; u < UTTERANCES; u++, row += nn_rows_total(&rows)) {
        const size_t alone[] = {0, firsts[u + 1] - firsts[u]};
        forward(&f, (nn_rows){1, alone}, f.frames + firsts[u] * FEATURES, &rows);
        memcpy(gradient, f.gradient + row * WIDTH, nn_rows_total(&rows) * WIDTH * sizeof *gradient);
        assert_ok(speech_encoder_backward(f.encoder, f.set.values, gradient, SPEECH_ENCODER_FREEZE_NONE, &into));
        for (size_t i = 0; i < f.table.elements; i++) sum[i] += f.set.gradients[i];
    }
    forward(&f, (nn_rows){UTTERANCES, firsts}, f.frames, &rows);
    memcpy(gradient, f.gradient, sizeof gradient);
    assert_ok(speech_encoder_backward(f.encoder, f.set.values, gradient, SPEECH_ENCODER_FREEZE_NONE, &into));
    for (size_t i = 0; i < f.table.elements; i++)
        assert_near((double)f.set.gradients[i], sum[i], 1e-5 * (1.0 + 10.0 * fabs(sum[i])));
    free(sum);
    close_fixture(&f);
}

/* The tensors before the point stand still; the others get the gradients that they would get anyway. */
static void check_frozen(fixture *f, speech_encoder_freeze freeze, const float *all)
{
    const size_t point = speech_encoder_frozen(f->encoder, freeze);
    announcements a = announcements_open(&f->set);
    const speech_encoder_gradients into = {f->set.gradients, note_announcement, &a};
    nn_rows rows;
    float gradient[ROWS * WIDTH];
    const size_t begin = point < f->table.count ? f->table.offsets[point] : f->table.elements;
    forward(f, (nn_rows){UTTERANCES, firsts}, f->frames, &rows);
    memcpy(gradient, f->gradient, sizeof gradient);
    memset(f->set.gradients, 0, f->table.elements * sizeof(float));
    assert_ok(speech_encoder_backward(f->encoder, f->set.values, gradient, freeze, &into));
    assert_int_equal(a.next, point);
    for (size_t i = 0; i < begin; i++) assert_true(f->set.gradients[i] == 0.0f);
    for (size_t i = begin; i < f->table.elements; i++) assert_true(f->set.gradients[i] == all[i]);
    free(a.copy);
}

TEST(test_what_is_frozen_has_no_gradient)
{
    fixture f;
    open_fixture(&f);
    nn_rows rows;
    float gradient[ROWS * WIDTH];
    forward(&f, (nn_rows){UTTERANCES, firsts}, f.frames, &rows);
    memcpy(gradient, f.gradient, sizeof gradient);
    const speech_encoder_gradients into = {f.set.gradients, NULL, NULL};
    assert_ok(speech_encoder_backward(f.encoder, f.set.values, gradient, SPEECH_ENCODER_FREEZE_NONE, &into));
    float *all = malloc(f.table.elements * sizeof *all);
    memcpy(all, f.set.gradients, f.table.elements * sizeof *all);
    assert_int_equal(speech_encoder_frozen(f.encoder, SPEECH_ENCODER_FREEZE_FEATURES), 6);
    assert_int_equal(speech_encoder_frozen(f.encoder, SPEECH_ENCODER_FREEZE_ALL), f.table.count);
    check_frozen(&f, SPEECH_ENCODER_FREEZE_NONE, all);
    check_frozen(&f, SPEECH_ENCODER_FREEZE_FEATURES, all);
    check_frozen(&f, SPEECH_ENCODER_FREEZE_ALL, all);
    free(all);
    close_fixture(&f);
}

/* A failure of the one who is told ends the pass. */
TEST(test_a_failure_ends_the_pass)
{
    fixture f;
    open_fixture(&f);
    nn_rows rows;
    forward(&f, (nn_rows){UTTERANCES, firsts}, f.frames, &rows);
    announcements a = announcements_open(&f.set);
    a.stop_at = 9;
    const speech_encoder_gradients into = {f.set.gradients, note_announcement, &a};
    assert_int_equal(speech_encoder_backward(f.encoder, f.set.values, f.gradient, SPEECH_ENCODER_FREEZE_NONE, &into),
                     TW_ERROR_PEER);
    free(a.copy);
    close_fixture(&f);
}

TEST(test_an_utterance_without_a_frame_is_refused)
{
    fixture f;
    open_fixture(&f);
    const size_t empty[] = {0, 4, 4};
    const nn_rows frames = {2, empty};
    nn_rows rows;
    const float *y;
    assert_fails(speech_encoder_forward(f.encoder, f.set.values, &frames, f.frames, NULL, &rows, &y), TW_ERROR_ARGUMENT,
                 "utterance 1");
    close_fixture(&f);
}

TEST(test_names_are_those_of_hugging_face)
{
    static const char *const names[] = {"feature_projection.projection.weight",
                                        "encoder.layers.1.ffn1.intermediate_dense.weight",
                                        "encoder.layers.0.self_attn.linear_k.bias",
                                        "encoder.layers.0.self_attn.pos_bias_u",
                                        "encoder.layers.1.conv_module.depthwise_conv.weight",
                                        "encoder.layers.1.final_layer_norm.bias"};
    fixture f;
    open_fixture(&f);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        size_t found = 0;
        for (size_t i = 0; i < f.table.count; i++) found += strcmp(f.table.tensors[i].name, names[n]) == 0;
        if (found != 1) fail_msg("%zu tensors are named %s", found, names[n]);
    }
    close_fixture(&f);
}

RUN_TESTS(NULL, NULL)
