/* The acoustic model: its gradients under both kinds of loss, lengths, and what it can learn. */
#include "training.h"

#include "acoustic_model.h"

enum { FEATURES = 4, LABELS = 5, STEPS = 7, BATCH = 3, ROWS = STEPS * BATCH, ENCODER_ROWS = 2 * BATCH };

static const nn_noise noise = {5, 17};
static const size_t lengths[BATCH] = {7, 2, 5};

static acoustic_model_config tiny(size_t bottleneck, float keep)
{
    return (acoustic_model_config){
        .features = FEATURES, .layers = 2, .hidden = 6, .bottleneck = bottleneck, .labels = LABELS, .keep = keep};
}

/* Rows of scores: 2, 1 and 2. */
static acoustic_model_config convolved(size_t bottleneck, float keep)
{
    acoustic_model_config config = tiny(bottleneck, keep);
    config.channels = 3;
    return config;
}

static acoustic_model *make(acoustic_model_config config)
{
    acoustic_model *m;
    assert_ok(acoustic_model_create(&config, &m));
    acoustic_model_initialise(m, 42);
    return m;
}

/* Rows of scores: 2, 1 and 2. */
static acoustic_model_config conformer(float keep, speech_encoder_freeze freeze)
{
    return (acoustic_model_config){
        .features = FEATURES,
        .labels = LABELS,
        .keep = keep,
        .encoder = {.channels = 3, .width = 8, .heads = 2, .kernel = 3, .blocks = 2, .relative = 1},
        .freeze = freeze};
}

/* What every test hears, and how the scores of it are weighed: filled by main. */
static float frames[4 * ROWS * FEATURES], direction[ROWS * LABELS];
static int32_t targets[ROWS];

static int is_beyond_end(size_t row)
{
    return row / BATCH >= lengths[row % BATCH];
}

/* ---- losses ---- */

typedef struct probe {
    acoustic_model *m;
    acoustic_model_batch batch;
    double loss;
} probe;

/* A random linear function of the scores within the lengths, and rubbish beyond, which the model has to ignore. */
static tw_status linear_loss(void *context, const acoustic_model_batch *batch, const float *scores, float *gradient)
{
    probe *p = context;
    const size_t rows = acoustic_model_rows(p->m, batch->steps) * BATCH;
    assert_ptr_equal(batch, &p->batch);
    p->loss = 0.0;
    for (size_t row = 0; row < rows; row++) {
        const int beyond = row / BATCH >= acoustic_model_rows(p->m, batch->lengths[row % BATCH]);
        double sum = 0.0;
        for (size_t k = 0; k < LABELS; k++) sum += direction[row * LABELS + k];
        for (size_t k = 0; k < LABELS; k++) {
            size_t at = row * LABELS + k;
            assert_true(gradient[at] == 0.0f);
            gradient[at] = beyond ? 99.0f : direction[at] - (float)(sum * exp(scores[at]));
            if (!beyond) p->loss += (double)direction[at] * scores[at];
        }
    }
    return TW_OK;
}

static double loss_of_utterances(void *context)
{
    probe *p = context;
    const acoustic_model_loss loss = {linear_loss, p};
    assert_ok(acoustic_model_step(p->m, &p->batch, &loss, &noise, NULL, NULL));
    return p->loss;
}

static double loss_of_frames(void *context)
{
    probe *p = context;
    acoustic_model_result result;
    assert_ok(acoustic_model_step_frames(p->m, &p->batch, targets, &noise, NULL, NULL, &result));
    return result.loss / (double)result.frames;
}

static int fill(void **state)
{
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) frames[i] = uniform(1, i);
    for (size_t i = 0; i < sizeof direction / sizeof *direction; i++) direction[i] = uniform(2, i);
    for (size_t i = 0; i < ROWS; i++)
        targets[i] = is_beyond_end(i) || i == 4 ? -1 : (int32_t)(fabsf(uniform(9, i)) * LABELS) % LABELS;
    return 0;
}

static const acoustic_model_batch usual = {STEPS, BATCH, lengths, frames};

static probe probe_open(acoustic_model_config config, acoustic_model_batch batch)
{
    return (probe){.m = make(config), .batch = batch};
}

TEST(gradients_agree_with_differences)
{
    for (int i = 0; i < 4; i++) {
        probe p = probe_open(tiny(i % 2 ? 3 : 0, i / 2 ? 0.7f : 1.0f), usual);
        const parameter_set *set = acoustic_model_parameters(p.m);
        memset(set->gradients, 0x7f, set->table->elements * sizeof(float)); /* old values must not matter */
        loss_of_utterances(&p);
        check_gradients(set, loss_of_utterances, &p);
        memset(set->gradients, 0x7f, set->table->elements * sizeof(float));
        loss_of_frames(&p);
        check_gradients(set, loss_of_frames, &p);
        acoustic_model_destroy(p.m);
    }
}

/* As many rows as there are frames above. Biases keep the convolutions away from the corner of their ReLU, where no
 * difference tells the slope. */
TEST(gradients_through_convolutions_before_the_stack_agree)
{
    static const size_t longer[BATCH] = {28, 8, 17};
    for (int i = 0; i < 4; i++) {
        probe p = probe_open(convolved(i % 2 ? 3 : 0, i / 2 ? 0.7f : 1.0f),
                             (acoustic_model_batch){4 * STEPS, BATCH, longer, frames});
        const parameter_set *set = acoustic_model_parameters(p.m);
        for (size_t k = 0; k < 6; k++) set->values[set->table->offsets[k < 3 ? 1 : 3] + k % 3] = 1.0f;
        memset(set->gradients, 0x7f, set->table->elements * sizeof(float));
        loss_of_utterances(&p);
        check_gradients(set, loss_of_utterances, &p);
        acoustic_model_destroy(p.m);
    }
}

static double loss_without_noise(void *context)
{
    probe *p = context;
    const float *scores;
    float gradient[ENCODER_ROWS * LABELS] = {0};
    assert_ok(acoustic_model_evaluate(p->m, &p->batch, &scores));
    assert_ok(linear_loss(p, &p->batch, scores, gradient));
    return p->loss;
}

/* Behind the encoder as a whole, and with the last layer alone: all that learns agrees, and of what is frozen nothing
 * is written. */
TEST(gradients_through_a_speech_encoder_agree)
{
    static const speech_encoder_freeze freezes[] = {SPEECH_ENCODER_FREEZE_NONE, SPEECH_ENCODER_FREEZE_FEATURES,
                                                    SPEECH_ENCODER_FREEZE_ALL};
    for (int i = 0; i < 3; i++) {
        probe p = probe_open(conformer(1.0f, freezes[i]), usual);
        const parameter_set *set = acoustic_model_parameters(p.m);
        const size_t frozen = acoustic_model_frozen(p.m), first = frozen ? set->table->offsets[frozen] : 0;
        memset(set->gradients, 0x7f, set->table->elements * sizeof(float));
        assert_near(loss_of_utterances(&p), loss_without_noise(&p), 1e-12);
        for (size_t k = 0; k < first * sizeof(float); k++) assert_int_equal(((unsigned char *)set->gradients)[k], 0x7f);
        check_learning_gradients(set, frozen, loss_of_utterances, &p);
        acoustic_model_destroy(p.m);
    }
}

TEST(what_is_held_has_gradients_of_zero)
{
    probe p = probe_open(conformer(1.0f, SPEECH_ENCODER_FREEZE_FEATURES), usual);
    const parameter_set *set = acoustic_model_parameters(p.m);
    const size_t frozen = acoustic_model_frozen(p.m), output = set->table->count - 2;
    loss_of_utterances(&p);
    float *moving = malloc(set->table->elements * sizeof *moving);
    memcpy(moving, set->gradients, set->table->elements * sizeof *moving);
    acoustic_model_hold(p.m, 1);
    loss_of_utterances(&p);
    for (size_t k = set->table->offsets[frozen]; k < set->table->elements; k++)
        assert_true(set->gradients[k] == (k < set->table->offsets[output] ? 0.0f : moving[k]));
    acoustic_model_hold(p.m, 0);
    loss_of_utterances(&p);
    assert_memory_equal(moving, set->gradients, set->table->elements * sizeof *moving);
    acoustic_model_destroy(p.m);
    free(moving);
}

/* Tensors are counted from the first that learns. */
static tw_status note_learning(void *context, size_t index, float *gradient)
{
    probe *p = context;
    const parameter_set *set = acoustic_model_parameters(p->m);
    assert_ptr_equal(gradient, set->gradients + set->table->offsets[acoustic_model_frozen(p->m) + index]);
    p->loss -= 1.0;
    return TW_OK;
}

TEST(announcements_count_from_behind_what_is_frozen)
{
    for (int held = 0; held < 2; held++) {
        probe p = probe_open(conformer(1.0f, SPEECH_ENCODER_FREEZE_FEATURES), usual);
        const acoustic_model_loss loss = {linear_loss, &p};
        acoustic_model_hold(p.m, held);
        double whole = loss_of_utterances(&p);
        assert_ok(acoustic_model_step(p.m, &p.batch, &loss, NULL, note_learning, &p));
        const size_t learning = acoustic_model_parameters(p.m)->table->count - acoustic_model_frozen(p.m);
        assert_int_equal(acoustic_model_frozen(p.m), 6);
        assert_near(whole - p.loss, (double)learning, 1e-9);
        acoustic_model_destroy(p.m);
    }
}

TEST(gradients_are_announced_complete_and_backwards)
{
    acoustic_model *m = make(tiny(3, 0.7f));
    announcements a = announcements_open(acoustic_model_parameters(m));
    acoustic_model_result result;
    assert_ok(acoustic_model_step_frames(m, &usual, targets, &noise, note_announcement, &a, &result));
    assert_int_equal(a.next, 0);
    assert_int_equal(a.set->table->count, 12 + 4);
    assert_string_equal(a.set->table->tensors[12].name, "bottleneck.weight");
    assert_string_equal(a.set->table->tensors[15].name, "output.bias");
    assert_memory_equal(a.copy, a.set->gradients, a.set->table->elements * sizeof(float));
    free(a.copy);
    acoustic_model_destroy(m);
}

TEST(convolutions_before_the_stack_are_announced_last)
{
    probe p = probe_open(convolved(0, 0.7f), usual);
    announcements a = announcements_open(acoustic_model_parameters(p.m));
    const acoustic_model_loss loss = {linear_loss, &p};
    assert_ok(acoustic_model_step(p.m, &p.batch, &loss, &noise, note_announcement, &a));
    assert_int_equal(a.next, 0);
    assert_int_equal(a.set->table->count, 4 + 12 + 2);
    assert_string_equal(a.set->table->tensors[0].name, "feature_extractor.conv_layers.0.conv.weight");
    assert_string_equal(a.set->table->tensors[4].name, "rnn.weight_ih_l0");
    assert_int_equal(a.set->table->tensors[4].shape[1], 3); /* a quarter of 4 features, for each of 3 channels */
    assert_memory_equal(a.copy, a.set->gradients, a.set->table->elements * sizeof(float));
    free(a.copy);
    acoustic_model_destroy(p.m);
}

/* ---- lengths ---- */

static void check_each_alone(acoustic_model *m)
{
    float together[ROWS * LABELS];
    const float *scores;
    assert_ok(acoustic_model_evaluate(m, &usual, &scores));
    memcpy(together, scores, acoustic_model_rows(m, STEPS) * BATCH * LABELS * sizeof *together);
    for (size_t s = 0; s < BATCH; s++) {
        float alone[STEPS * FEATURES];
        for (size_t t = 0; t < lengths[s]; t++)
            memcpy(alone + t * FEATURES, frames + (t * BATCH + s) * FEATURES, FEATURES * sizeof *alone);
        assert_ok(acoustic_model_evaluate(m, &(acoustic_model_batch){lengths[s], 1, NULL, alone}, &scores));
        for (size_t t = 0; t < acoustic_model_rows(m, lengths[s]); t++) {
            double sum = 0.0;
            for (size_t k = 0; k < LABELS; k++) {
                assert_near(scores[t * LABELS + k], together[(t * BATCH + s) * LABELS + k], 1e-6);
                sum += exp(scores[t * LABELS + k]);
            }
            assert_near(sum, 1.0, 1e-6);
        }
    }
    acoustic_model_destroy(m);
}

TEST(an_utterance_gets_what_it_gets_alone)
{
    check_each_alone(make(tiny(3, 0.5f))); /* evaluation drops nothing */
    check_each_alone(make(convolved(3, 0.5f)));
    check_each_alone(make(conformer(0.5f, SPEECH_ENCODER_FREEZE_NONE)));
}

/* ---- sizes ---- */

/* The papers give 165 MB (MiB) for this shape. */
TEST(the_switchboard_model_has_the_published_size)
{
    acoustic_model_config config = {
        .features = 260, .layers = 6, .hidden = 512, .bottleneck = 256, .labels = 32000, .keep = 1.0f};
    acoustic_model *m = make(config);
    assert_near((double)acoustic_model_parameters(m)->table->elements * 4.0 / (1 << 20), 165.0, 0.6);
    acoustic_model_destroy(m);
}

/* ---- learning ---- */

/* The label of a frame is the sign pattern of the frames before and after it, so both directions are needed. */
static int32_t label_of(const float *x, size_t step, size_t steps, size_t sequence, size_t batch)
{
    float before = step > 0 ? x[(step - 1) * batch + sequence] : -1.0f;
    float later = step + 1 < steps ? x[(step + 1) * batch + sequence] : -1.0f;
    return 2 * (before > 0.0f) + (later > 0.0f);
}

TEST(learns_from_both_sides_of_a_frame)
{
    enum { LENGTH = 21, WINDOWS = 16, CALLS = 300 };
    acoustic_model_config config = {
        .features = 1, .layers = 1, .hidden = 16, .bottleneck = 8, .labels = 4, .keep = 1.0f};
    acoustic_model *m = make(config);
    adam optimiser = adam_open(acoustic_model_parameters(m), 2e-2f);
    acoustic_model_result result = {0};
    int32_t labels[LENGTH * WINDOWS];
    for (uint64_t call = 0; call <= CALLS; call++) {
        float *x = random_floats(100 + call, LENGTH * WINDOWS);
        acoustic_model_batch batch = {LENGTH, WINDOWS, NULL, x};
        for (size_t i = 0; i < LENGTH * WINDOWS; i++)
            labels[i] = label_of(x, i / WINDOWS, LENGTH, i % WINDOWS, WINDOWS);
        if (call < CALLS) {
            assert_ok(acoustic_model_step_frames(m, &batch, labels, &noise, NULL, NULL, &result));
            adam_step(&optimiser);
        } else { /* frames never seen */
            assert_ok(acoustic_model_evaluate_frames(m, &batch, labels, &result));
        }
        free(x);
    }
    assert_int_equal(result.frames, LENGTH * WINDOWS);
    assert_true(result.correct > 0.95 * LENGTH * WINDOWS);
    adam_close(&optimiser);
    acoustic_model_destroy(m);
}

/* ---- refusals ---- */

static tw_status failing_loss(void *context, const acoustic_model_batch *batch, const float *scores, float *gradient)
{
    (void)context, (void)batch, (void)scores, (void)gradient;
    return tw_fail(TW_ERROR_IO, "no transcript");
}

TEST(impossible_models_and_calls_are_refused)
{
    acoustic_model_config one_label = tiny(0, 1.0f);
    int32_t wrong[ROWS];
    acoustic_model *m = make(tiny(0, 1.0f)), *none = NULL;
    acoustic_model_result result;
    one_label.labels = 1;
    assert_int_equal(acoustic_model_create(&one_label, &none), TW_ERROR_ARGUMENT);
    assert_int_equal(acoustic_model_create(&(acoustic_model_config){4, 1, 4, 0, 4, 0.0f}, &none), TW_ERROR_ARGUMENT);
    assert_null(none);
    memcpy(wrong, targets, sizeof wrong);
    wrong[1 + 2 * BATCH] = 0;
    assert_int_equal(acoustic_model_evaluate_frames(m, &usual, wrong, &result), TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "beyond its end"));
    wrong[0] = LABELS;
    assert_int_equal(acoustic_model_evaluate_frames(m, &usual, wrong, &result), TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "target 5"));
    assert_int_equal(acoustic_model_step(m, &usual, &(acoustic_model_loss){failing_loss, NULL}, &noise, NULL, NULL),
                     TW_ERROR_IO);
    acoustic_model_destroy(NULL);
    acoustic_model_destroy(m);
    const acoustic_model_config with_convolutions[] = {conformer(1.0f, SPEECH_ENCODER_FREEZE_NONE), convolved(0, 1.0f)};
    for (int i = 0; i < 2; i++) {
        m = make(with_convolutions[i]);
        assert_int_equal(acoustic_model_evaluate_frames(m, &usual, wrong, &result), TW_ERROR_ARGUMENT);
        assert_non_null(strstr(tw_last_error(), "no row for each frame"));
        acoustic_model_destroy(m);
    }
}

TEST(what_is_counted_is_what_is_made)
{
    const acoustic_model_config configs[] = {tiny(3, 1.0f), convolved(3, 1.0f),
                                             conformer(1.0f, SPEECH_ENCODER_FREEZE_ALL)};
    for (int i = 0; i < 3; i++) {
        size_t elements;
        acoustic_model *m = make(configs[i]);
        assert_ok(acoustic_model_elements(&configs[i], &elements));
        assert_int_equal(elements, acoustic_model_parameters(m)->table->elements);
        acoustic_model_destroy(m);
    }
}

RUN_TESTS(fill, NULL)
