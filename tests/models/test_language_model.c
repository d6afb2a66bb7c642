/* The language model: its gradients, the state it carries, and what it can learn. */
#include "text.h"

static language_model_config tiny(int tied, float keep)
{
    return (language_model_config){
        .layers = 2, .hidden = 8, .embedding = tied ? 8 : 5, .tied = tied, .keep = keep, .range = 0.5f};
}

/* ---- tables ---- */

TEST(sizes_are_the_published_ones)
{
    static const struct {
        const char *name;
        size_t parameters; /* with one bias a gate */
    } cases[] = {
        {"small", 4651600}, {"medium", 19775200}, {"large", 66022000}, {"tied", 51022000}, {"transformer", 8333568}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const language_model_definition *d = language_model_find(cases[i].name);
        assert_ptr_equal(d, &language_model_definitions[i]);
        language_model *m;
        assert_ok(language_model_create(&d->config, &(language_model_shape){10000, 2, 1}, &m));
        assert_int_equal(language_model_parameters(m)->table->elements, cases[i].parameters);
        language_model_destroy(m);
    }
    assert_null(language_model_definitions[5].name);
    assert_null(language_model_find("enormous"));
}

TEST(tensors_are_named_as_in_pytorch)
{
    static const char *const names[] = {"encoder.weight", "rnn.weight_ih_l0", "rnn.weight_hh_l0",
                                        "rnn.bias_ih_l0", "rnn.weight_ih_l1", "rnn.weight_hh_l1",
                                        "rnn.bias_ih_l1", "decoder.weight",   "decoder.bias"};
    for (int tied = 0; tied < 2; tied++) {
        language_model *m = make(tiny(tied, 1.0f));
        const nn_table *table = language_model_parameters(m)->table;
        assert_int_equal(table->count, 9 - tied);
        for (size_t i = 0; i < table->count; i++)
            assert_string_equal(table->tensors[i].name, names[tied && i == 7 ? 8 : i]);
        assert_int_equal(table->tensors[0].shape[0], VOCABULARY);
        assert_int_equal(table->tensors[4].shape[1], 8);
        language_model_destroy(m);
    }
}

/* ---- state ---- */

TEST(strips_do_not_see_each_other)
{
    sample *s = make_sample();
    language_model *m = make(tiny(0, 0.5f));
    double together, alone = 0.0;
    assert_ok(language_model_start_evaluation(m, BATCH));
    together = evaluate(m, &s->text).loss;
    for (size_t strip = 0; strip < BATCH; strip++) {
        assert_ok(language_model_start_evaluation(m, 1));
        for (size_t t = 0; t < STEPS; t++) { /* a token at a time, as one generates */
            const size_t at = t * BATCH + strip;
            alone += evaluate(m, &(language_model_text){s->tokens + at, s->tokens + at + BATCH, 1}).loss;
        }
    }
    assert_near(alone, together, 1e-4);
    language_model_destroy(m);
    free(s);
}

/* ---- learning ---- */

static double perplexity(language_model *m, const int32_t *tokens, size_t steps, size_t batch)
{
    assert_ok(language_model_start_evaluation(m, batch));
    language_model_result result = evaluate(m, &(language_model_text){tokens, tokens + batch, steps});
    return exp(result.loss / (double)result.tokens);
}

TEST(learns_a_text_by_heart)
{
    enum { TOKENS = 2000, STRIPS = 20, LENGTH = TOKENS / STRIPS, WORDS = 50, UNROLL = 25, EPOCHS = 200 };
    static int32_t tokens[TOKENS + STRIPS]; /* (LENGTH + 1, STRIPS): random, so nothing but memory helps */
    language_model_config config = {.layers = 1, .hidden = 128, .embedding = 64, .keep = 1.0f, .range = 0.1f};
    language_model *m = make_sized(config, WORDS, UNROLL, STRIPS);
    adam optimiser = adam_open(language_model_parameters(m), 5e-3f);
    double reached = INFINITY;
    for (size_t i = 0; i < TOKENS + STRIPS; i++) tokens[i] = (int32_t)(fabsf(uniform(9, i)) * WORDS) % WORDS;
    for (int epoch = 0; epoch < EPOCHS && reached >= 2.0; epoch++) {
        language_model_reset(m);
        for (size_t t = 0; t < LENGTH; t += UNROLL) {
            step(m, &(language_model_text){tokens + t * STRIPS, tokens + (t + 1) * STRIPS, UNROLL});
            adam_step(&optimiser);
        }
        if (epoch % 10 == 9) reached = perplexity(m, tokens, LENGTH, STRIPS);
    }
    assert_true(reached < 2.0);
    adam_close(&optimiser);
    language_model_destroy(m);
}

/* A source whose next token depends on the last one alone. */
enum { STATES = 6 };

static double transition(size_t from, size_t to)
{
    double sum = 0.0;
    for (size_t k = 0; k < STATES; k++) sum += exp(2.0 * uniform(11, from * STATES + k));
    return exp(2.0 * uniform(11, from * STATES + to)) / sum;
}

static int32_t next_state(int32_t from, uint64_t stream, size_t i)
{
    double point = 0.5 * (1.0 + uniform(stream, i));
    for (size_t to = 0; to + 1 < STATES; to++)
        if ((point -= transition((size_t)from, to)) < 0.0) return (int32_t)to;
    return STATES - 1;
}

/* (steps + 1, batch) tokens. */
static int32_t *sample_source(uint64_t stream, size_t steps, size_t batch)
{
    int32_t *tokens = malloc((steps + 1) * batch * sizeof *tokens);
    for (size_t i = 0; i < batch; i++) tokens[i] = (int32_t)(i % STATES);
    for (size_t i = batch; i < (steps + 1) * batch; i++) tokens[i] = next_state(tokens[i - batch], stream, i);
    return tokens;
}

/* What the source itself loses on a sample: the least a model can, but for luck. */
static double source_loss(const int32_t *tokens, size_t steps, size_t batch)
{
    double sum = 0.0;
    for (size_t i = 0; i < steps * batch; i++) sum -= log(transition((size_t)tokens[i], (size_t)tokens[i + batch]));
    return sum / (double)(steps * batch);
}

/* The entropy rate, under the stationary distribution. */
static double entropy(void)
{
    double p[STATES] = {1.0}, sum = 0.0;
    for (int i = 0; i < 200; i++) {
        double q[STATES] = {0};
        for (size_t from = 0; from < STATES; from++)
            for (size_t to = 0; to < STATES; to++) q[to] += p[from] * transition(from, to);
        memcpy(p, q, sizeof p);
    }
    for (size_t from = 0; from < STATES; from++)
        for (size_t to = 0; to < STATES; to++) sum -= p[from] * transition(from, to) * log(transition(from, to));
    return sum;
}

TEST(approaches_the_entropy_of_a_source_and_never_beats_it)
{
    enum { UNROLL = 10, STRIPS = 20, CALLS = 400, FRESH = 1000 };
    language_model_config config = {.layers = 1, .hidden = 24, .embedding = 12, .keep = 1.0f, .range = 0.1f};
    language_model *m = make_sized(config, STATES, UNROLL, STRIPS);
    adam optimiser = adam_open(language_model_parameters(m), 1e-2f);
    int32_t *train = sample_source(12, CALLS * UNROLL, STRIPS), *fresh = sample_source(13, FRESH, STRIPS);
    const double least = source_loss(fresh, FRESH, STRIPS);
    double loss = 0.0;
    assert_near(least, entropy(), 0.02);
    for (size_t call = 0; call < CALLS; call++) {
        const int32_t *tokens = train + call * UNROLL * STRIPS;
        if (call % 100 == 0) assert_true(log(perplexity(m, fresh, FRESH, STRIPS)) > least - 1e-3);
        optimiser.rate = 1e-2f * (1.0f - (float)call / CALLS);
        step(m, &(language_model_text){tokens, tokens + STRIPS, UNROLL});
        adam_step(&optimiser);
    }
    loss = log(perplexity(m, fresh, FRESH, STRIPS));
    assert_true(loss > least - 1e-3);
    assert_near(loss, least, 0.01);
    free(train);
    free(fresh);
    adam_close(&optimiser);
    language_model_destroy(m);
}

/* ---- refusals ---- */

TEST(impossible_models_and_calls_are_refused)
{
    language_model_config odd = tiny(1, 1.0f), none = tiny(0, 1.0f), wrapping = tiny(0, 1.0f), vast = tiny(0, 1.0f);
    language_model_result result;
    sample *s = make_sample();
    language_model *m = make_sized(tiny(0, 1.0f), VOCABULARY, STEPS - 1, BATCH);
    odd.embedding = 7;
    none.layers = 0;
    refused(odd, 10, "tied");
    refused(none, 10, "at least one layer");
    wrapping.hidden = (size_t)1 << 62; /* four times it is 0 */
    refused(wrapping, 10, "2^31");
    vast.hidden = INT32_MAX;
    refused(vast, 10, "addresses");
    refused(tiny(0, 0.0f), 10, "keeping");
    refused(tiny(0, 1.5f), 10, "keeping");
    refused(tiny(0, 1.0f), 1, "2 tokens");
    assert_int_equal(language_model_step(m, &s->text, &noise, NULL, NULL, &result), TW_ERROR_ARGUMENT);
    s->text.steps = 0;
    assert_int_equal(language_model_step(m, &s->text, &noise, NULL, NULL, &result), TW_ERROR_ARGUMENT);
    s->text.steps = 2;
    assert_int_equal(language_model_evaluate(m, &s->text, &result), TW_ERROR_ORDER);
    assert_int_equal(language_model_start_evaluation(m, 0), TW_ERROR_ARGUMENT);
    s->tokens[4] = VOCABULARY;
    assert_int_equal(language_model_step(m, &s->text, &noise, NULL, NULL, &result), TW_ERROR_ARGUMENT);
    assert_non_null(strstr(tw_last_error(), "vocabulary"));
    language_model_destroy(NULL);
    language_model_destroy(m);
    free(s);
}

RUN_TESTS(NULL, NULL)
