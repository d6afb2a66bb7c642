/* The language model in Llama's shape: its gradients, what a token may see, and writing with what it remembers. */
#include "text.h"

#include <stdio.h>

static language_model_config tiny(int tied, float keep)
{
    return (language_model_config){.layers = 2,
                                   .hidden = 8,
                                   .embedding = 8,
                                   .tied = tied,
                                   .keep = keep,
                                   .range = 0.5f,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .inner = 12,
                                   .theta = 10000.0,
                                   .epsilon = 1e-5f};
}

/* With heads of a width of their own, and positions that are scaled; one of the three speeds is between two. */
static language_model_config kin(decoder_family family)
{
    language_model_config config = tiny(0, 1.0f);
    config.family = family;
    config.head = 6;
    config.scaling = (nn_rotary_scaling){8.0, 1.0, 64.0, 32.0};
    return config;
}

/* Norms and biases do not begin where they would matter least. */
static language_model *make_kin(language_model_config config)
{
    language_model *m = make(config);
    const parameter_set *set = language_model_parameters(m);
    for (size_t t = 0; t < set->table->count; t++)
        for (size_t i = 0; i < nn_table_elements(set->table, t) && set->table->tensors[t].dims == 1; i++) {
            uint32_t words[4];
            tw_random(13, t, i, words);
            set->values[set->table->offsets[t] + i] += (float)words[0] * 0x1p-32f - 0.5f;
        }
    return m;
}

/* ---- the table ---- */

TEST(tensors_are_named_as_in_transformers)
{
    static const char *const layer[] = {"input_layernorm",  "self_attn.q_proj", "self_attn.k_proj",
                                        "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
                                        "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
    char name[96];
    for (int tied = 0; tied < 2; tied++) {
        language_model *m = make(tiny(tied, 1.0f));
        const nn_table *table = language_model_parameters(m)->table;
        assert_int_equal(table->count, 2 * 9 + 3 - tied);
        assert_string_equal(table->tensors[0].name, "model.embed_tokens.weight");
        for (size_t i = 0; i < 2 * 9; i++) {
            snprintf(name, sizeof name, "model.layers.%zu.%s.weight", i / 9, layer[i % 9]);
            assert_string_equal(table->tensors[1 + i].name, name);
        }
        assert_string_equal(table->tensors[19].name, "model.norm.weight");
        if (!tied) assert_string_equal(table->tensors[20].name, "lm_head.weight");
        assert_int_equal(table->tensors[3].shape[0], 4); /* two key heads of two features */
        language_model_destroy(m);
    }
}

static size_t rows_called(const nn_table *table, const char *name)
{
    size_t i = 0;
    while (i < table->count && strcmp(table->tensors[i].name, name) != 0) i++;
    return i < table->count ? table->tensors[i].shape[0] : 0;
}

TEST(families_have_biases_or_norms_of_heads)
{
    for (int family = 0; family < DECODER_FAMILIES; family++) {
        language_model *m = make(kin((decoder_family)family));
        const nn_table *table = language_model_parameters(m)->table;
        const size_t biased = family == DECODER_QWEN2, normed = family == DECODER_QWEN3;
        assert_int_equal(table->count, 2 * (9 + 3 * biased + 2 * normed) + 3);
        assert_int_equal(rows_called(table, "model.layers.1.self_attn.q_proj.weight"), 24);
        assert_int_equal(rows_called(table, "model.layers.1.self_attn.q_proj.bias"), biased * 24);
        assert_int_equal(rows_called(table, "model.layers.1.self_attn.k_proj.bias"), biased * 12);
        assert_int_equal(rows_called(table, "model.layers.1.self_attn.v_proj.bias"), biased * 12);
        assert_int_equal(rows_called(table, "model.layers.1.self_attn.q_norm.weight"), normed * 6);
        assert_int_equal(rows_called(table, "model.layers.1.self_attn.k_norm.weight"), normed * 6);
        language_model_destroy(m);
    }
}

TEST(gradients_of_families_agree_with_differences)
{
    for (int family = 0; family < DECODER_FAMILIES; family++) {
        language_model *m = make_kin(kin((decoder_family)family));
        check_differences(m, language_model_parameters(m));
    }
}

/* Weights that end a branch begin smaller, by the root of their number, so that the sum does not grow with it. */
TEST(weights_begin_as_gpt2s)
{
    language_model *m = make(tiny(0, 1.0f));
    const parameter_set *set = language_model_parameters(m);
    for (size_t t = 0; t < set->table->count; t++) {
        const char *name = set->table->tensors[t].name;
        const int ends = strstr(name, "o_proj") || strstr(name, "down_proj"), norm = strstr(name, "norm") != NULL;
        const float *values = set->values + set->table->offsets[t];
        float most = 0.0f;
        for (size_t i = 0; i < nn_table_elements(set->table, t); i++) most = fmaxf(most, fabsf(values[i]));
        if (norm) assert_true(most == 1.0f);
        if (!norm) assert_near((double)most, ends ? 0.25 : 0.5, ends ? 0.025 : 0.05);
    }
    language_model_destroy(m);
}

/* ---- what a token sees ---- */

/* The logits of row `row`, of a text of which token `changed` is another. */
static float *logits_with(language_model *m, sample s, size_t changed)
{
    float *copy = malloc(ROWS * VOCABULARY * sizeof *copy);
    s.tokens[changed] = (s.tokens[changed] + 1) % VOCABULARY;
    assert_ok(language_model_start_evaluation(m, BATCH));
    assert_ok(language_model_evaluate(m, &(language_model_text){.tokens = s.tokens, .steps = STEPS}, NULL));
    memcpy(copy, language_model_logits(m), ROWS * VOCABULARY * sizeof *copy);
    return copy;
}

/* A strip's tokens change what follows them in their strip, and nothing else. */
TEST(a_token_sees_what_came_before_it_in_its_strip)
{
    sample *s = make_sample();
    language_model *m = make(tiny(0, 0.5f));
    float *plain = logits_with(m, *s, ROWS); /* no token of the text */
    for (size_t changed = 0; changed < ROWS; changed++) {
        float *other = logits_with(m, *s, changed);
        for (size_t row = 0; row < ROWS; row++) {
            const int same =
                memcmp(other + row * VOCABULARY, plain + row * VOCABULARY, VOCABULARY * sizeof *other) == 0;
            assert_int_equal(same, row % BATCH != changed % BATCH || row < changed);
        }
        free(other);
    }
    free(plain);
    language_model_destroy(m);
    free(s);
}

/* Calls do not see each other, and training has no state to save. */
TEST(every_call_is_a_text_by_itself)
{
    sample *s = make_sample();
    language_model *m = make(tiny(1, 1.0f));
    size_t count;
    double loss = step(m, &s->text).loss;
    language_model_state(m, &count);
    assert_int_equal(count, 0);
    assert_true(step(m, &s->text).loss == loss);
    assert_ok(language_model_start_evaluation(m, BATCH));
    for (int i = 0; i < 2; i++) assert_near(evaluate(m, &s->text).loss, loss, 1e-5);
    language_model_destroy(m);
    free(s);
}

/* ---- adapters ---- */

enum { Q = 1, V = 4, ALL = 127 };

static language_model_config adapted(unsigned targets, float keep, float adapter_keep)
{
    language_model_config config = tiny(0, keep);
    config.lora = (nn_lora_options){.rank = 3, .alpha = 6.0f, .keep = adapter_keep, .targets = targets};
    return config;
}

/* B, which begins at zero, somewhere else. */
static void fill_adapters(const language_model *m)
{
    const parameter_set *set = language_model_adapters(m);
    for (size_t i = 0; i < set->table->elements; i++) {
        uint32_t words[4];
        tw_random(11, 0, i, words);
        set->values[i] = (float)words[0] * 0x1p-32f - 0.5f;
    }
}

TEST(adapters_are_named_as_in_peft)
{
    language_model *m = make(adapted(Q | V, 1.0f, 1.0f));
    const nn_table *table = language_model_adapters(m)->table;
    assert_int_equal(table->count, 2 * 2 * 2);
    assert_string_equal(table->tensors[0].name, "model.layers.0.self_attn.q_proj.lora_A.weight");
    assert_string_equal(table->tensors[7].name, "model.layers.1.self_attn.v_proj.lora_B.weight");
    assert_int_equal(table->tensors[6].shape[0], 3);
    assert_int_equal(table->tensors[6].shape[1], 8);
    assert_int_equal(table->tensors[7].shape[0], 4);
    assert_int_equal(table->tensors[7].shape[1], 3);
    assert_null(language_model_parameters(m)->gradients);
    language_model_destroy(m);
    m = make(adapted(ALL, 1.0f, 1.0f));
    assert_int_equal(language_model_adapters(m)->table->count, 2 * 7 * 2);
    language_model_destroy(m);
}

/* A is drawn as peft draws it, and B is zero. */
TEST(new_adapters_change_nothing)
{
    sample *s = make_sample();
    language_model *plain = make(tiny(0, 0.6f)), *m = make(adapted(ALL, 0.6f, 0.5f));
    const parameter_set *set = language_model_adapters(m);
    for (size_t t = 0; t < set->table->count; t++) {
        const float *values = set->values + set->table->offsets[t];
        const double range = t % 2 ? 0.0 : 1.0 / sqrt((double)set->table->tensors[t].shape[1]);
        double most = 0.0;
        for (size_t i = 0; i < nn_table_elements(set->table, t); i++) most = fmax(most, fabs((double)values[i]));
        assert_true(most <= range && most >= 0.7 * range);
    }
    assert_true(step(m, &s->text).loss == step(plain, &s->text).loss);
    assert_ok(language_model_start_evaluation(m, BATCH));
    assert_ok(language_model_start_evaluation(plain, BATCH));
    assert_true(evaluate(m, &s->text).loss == evaluate(plain, &s->text).loss);
    language_model_destroy(m);
    language_model_destroy(plain);
    free(s);
}

TEST(gradients_of_adapters_agree_with_differences)
{
    static const unsigned targets[] = {ALL, V, 1 << 5, ALL}; /* the second and the third do not begin at column 0 */
    for (int i = 0; i < 4; i++) {
        language_model *m = make(adapted(targets[i], i == 3 ? 0.6f : 1.0f, i == 3 ? 0.7f : 1.0f));
        fill_adapters(m);
        check_differences(m, language_model_adapters(m));
    }
}

TEST(gradients_of_families_adapters_agree_with_differences)
{
    for (int family = 0; family < DECODER_FAMILIES; family++) {
        language_model_config config = kin((decoder_family)family);
        config.lora = adapted(ALL, 1.0f, 1.0f).lora;
        language_model *m = make_kin(config);
        fill_adapters(m);
        check_differences(m, language_model_adapters(m));
    }
}

TEST(gradients_of_adapters_are_announced)
{
    language_model *m = make(adapted(ALL, 1.0f, 1.0f));
    check_announcements(m, language_model_adapters(m));
}

/* W += alpha / rank * B A, of every matrix. */
static void merge(const parameter_set *adapters, const parameter_set *weights)
{
    for (size_t t = 0; t < adapters->table->count; t += 2) {
        const tw_tensor *a = &adapters->table->tensors[t], *b = a + 1;
        const float *values_a = adapters->values + adapters->table->offsets[t],
                    *values_b = adapters->values + adapters->table->offsets[t + 1];
        const size_t length = strlen(a->name) - strlen("lora_A.weight"), inputs = a->shape[1];
        size_t w = 0;
        while (strncmp(weights->table->tensors[w].name, a->name, length) != 0) w++;
        float *values = weights->values + weights->table->offsets[w];
        for (size_t o = 0; o < b->shape[0]; o++)
            for (size_t i = 0; i < inputs; i++)
                for (size_t r = 0; r < 3; r++)
                    values[o * inputs + i] += 2.0f * values_b[o * 3 + r] * values_a[r * inputs + i];
    }
}

TEST(merged_weights_give_the_same_logits)
{
    sample *s = make_sample();
    language_model *m = make(adapted(ALL, 1.0f, 0.5f)), *merged = make(tiny(0, 1.0f));
    fill_adapters(m);
    merge(language_model_adapters(m), language_model_parameters(merged));
    float *found = logits_with(m, *s, ROWS), *expected = logits_with(merged, *s, ROWS);
    for (size_t i = 0; i < ROWS * VOCABULARY; i++) assert_near((double)found[i], (double)expected[i], 1e-5);
    free(found);
    free(expected);
    language_model_destroy(m);
    language_model_destroy(merged);
    free(s);
}

/* ---- writing ---- */

enum { WRITTEN = 40, ROOM = 12 };

static const float *read_token(language_model *m, int32_t token)
{
    assert_ok(language_model_evaluate(m, &(language_model_text){.tokens = &token, .steps = 1}, NULL));
    return language_model_logits(m);
}

/* The logits after the last of `count` tokens, of a text that is these. */
static const float *read_alone(language_model *m, const int32_t *tokens, size_t count)
{
    assert_ok(language_model_start_evaluation(m, 1));
    assert_ok(language_model_evaluate(m, &(language_model_text){.tokens = tokens, .steps = count}, NULL));
    return language_model_logits(m) + (count - 1) * VOCABULARY;
}

/* Token after token, with a memory that overflows four times, it says what it says of the tokens that it remembers. */
static void check_writing(language_model_config config)
{
    language_model *m = make_sized(config, VOCABULARY, ROOM, 1), *other = make_sized(config, VOCABULARY, ROOM, 1);
    int32_t tokens[WRITTEN];
    size_t first = 0;
    for (size_t i = 0; i < WRITTEN; i++) tokens[i] = any_token(1, i);
    for (int again = 0; again < 2; again++) {
        assert_ok(language_model_start_writing(m));
        for (size_t i = first = 0; i < WRITTEN; i++) {
            if (i - first == ROOM) first = i - ROOM / 2;
            const float *found = read_token(m, tokens[i]), *expected = read_alone(other, tokens + first, i + 1 - first);
            for (size_t v = 0; v < VOCABULARY; v++) assert_near((double)found[v], (double)expected[v], 1e-5);
        }
    }
    assert_int_equal(first, 30);
    language_model_destroy(m);
    language_model_destroy(other);
}

TEST(writing_is_reading_what_is_remembered)
{
    check_writing(tiny(0, 1.0f));
    for (int family = 0; family < DECODER_FAMILIES; family++) check_writing(kin((decoder_family)family));
}

TEST(pieces_of_a_text_can_be_read_at_once)
{
    language_model *m = make_sized(tiny(1, 1.0f), VOCABULARY, ROOM, 1),
                   *other = make_sized(tiny(1, 1.0f), VOCABULARY, ROOM, 1);
    int32_t tokens[ROOM];
    for (size_t i = 0; i < ROOM; i++) tokens[i] = any_token(1, i);
    assert_ok(language_model_start_writing(m));
    assert_ok(language_model_evaluate(m, &(language_model_text){.tokens = tokens, .steps = 5}, NULL));
    assert_ok(language_model_evaluate(m, &(language_model_text){.tokens = tokens + 5, .steps = 4}, NULL));
    const float *found = language_model_logits(m) + 3 * VOCABULARY, *expected = read_alone(other, tokens, 9);
    for (size_t v = 0; v < VOCABULARY; v++) assert_near((double)found[v], (double)expected[v], 1e-5);
    language_model_text much = {.tokens = tokens, .steps = ROOM / 2 + 1};
    assert_fails(language_model_evaluate(m, &much, NULL), TW_ERROR_ARGUMENT, "6 tokens at a time");
    language_model_destroy(m);
    language_model_destroy(other);
}

TEST(a_training_step_ends_writing)
{
    sample *s = make_sample();
    language_model *m = make(tiny(0, 1.0f));
    double loss = step(m, &s->text).loss;
    assert_ok(language_model_start_writing(m));
    read_token(m, 3);
    assert_true(step(m, &s->text).loss == loss);
    assert_int_equal(language_model_evaluate(m, &s->text, NULL), TW_ERROR_ORDER);
    language_model_destroy(m);
    free(s);
}

/* ---- learning ---- */

/* Each strip is eight random tokens, twice: only who looks back knows the second eight. */
TEST(learns_to_copy)
{
    enum { HALF = 8, STRIPS = 16, LENGTH = 2 * HALF, CALLS = 600 };
    static int32_t tokens[(LENGTH + 1) * STRIPS], targets[LENGTH * STRIPS];
    language_model_config config = {.layers = 2,
                                    .hidden = 32,
                                    .embedding = 32,
                                    .keep = 1.0f,
                                    .range = 0.1f,
                                    .heads = 2,
                                    .kv_heads = 1,
                                    .inner = 64,
                                    .theta = 10000.0,
                                    .epsilon = 1e-5f};
    language_model *m = make_sized(config, VOCABULARY, LENGTH, STRIPS);
    adam optimiser = adam_open(language_model_parameters(m), 3e-3f);
    double reached = INFINITY;
    for (size_t call = 0; call < CALLS && reached > 0.1; call++) {
        for (size_t i = 0; i < (LENGTH + 1) * STRIPS; i++)
            tokens[i] = i < HALF * STRIPS ? any_token(20 + call, i) : tokens[i - HALF * STRIPS];
        for (size_t i = 0; i < LENGTH * STRIPS; i++) targets[i] = i < HALF * STRIPS ? -1 : tokens[i + STRIPS];
        const language_model_text text = {tokens, targets, LENGTH};
        assert_ok(language_model_start_evaluation(m, STRIPS));
        const language_model_result result = evaluate(m, &text); /* which it has not seen before */
        reached = result.loss / (double)result.tokens;
        step(m, &text);
        adam_step(&optimiser);
    }
    assert_true(reached < 0.1);
    adam_close(&optimiser);
    language_model_destroy(m);
}

/* ---- refusals ---- */

TEST(impossible_models_are_refused)
{
    language_model_config odd = tiny(0, 1.0f), shared = tiny(0, 1.0f), wide = tiny(0, 1.0f), flat = tiny(0, 1.0f),
                          turning = tiny(0, 1.0f), bent = tiny(0, 1.0f), slow = tiny(0, 1.0f),
                          recurrent = adapted(ALL, 1.0f, 1.0f);
    odd.heads = 3;
    refused(odd, VOCABULARY, "3 heads must divide 8 features into even parts");
    odd.heads = 8;
    refused(odd, VOCABULARY, "even parts");
    shared.kv_heads = 3;
    refused(shared, VOCABULARY, "3 key heads must divide 4 heads");
    wide.embedding = 6;
    refused(wide, VOCABULARY, "6 and 8");
    flat.inner = 0;
    refused(flat, VOCABULARY, "inner feature");
    bent.head = 3;
    refused(bent, VOCABULARY, "even number of features, not 3");
    slow.scaling = (nn_rotary_scaling){8.0, 4.0, 4.0, 32.0};
    refused(slow, VOCABULARY, "a low bound below the high one");
    slow.scaling = (nn_rotary_scaling){0.5, 1.0, 4.0, 32.0};
    refused(slow, VOCABULARY, "a factor from 1 to 1e6");
    turning.theta = 1.0;
    refused(turning, VOCABULARY, "not 1 and 1e-05");
    recurrent.heads = 0;
    refused(recurrent, VOCABULARY, "not with LSTMs");
}

RUN_TESTS(NULL, NULL)
