/* Files of very many tensors, whose names somebody else chose: what is looked for is found by its name, so that the
 * steps are as many as the tensors. Steps are calls of tw_state_at. */
#include "checksum.h"
#include "support.h"
#include "transformer_folder.h"
#include "transformer_text.h"
#include "weights.h"

enum { LAYERS = 300, OF_A_LAYER = 9, MOST_STEPS = 10 /* a tensor */ };

static size_t steps;

tw_status __real_tw_state_at(const tw_state *state, size_t index, tw_state_entry *entry);
tw_status __wrap_tw_state_at(const tw_state *state, size_t index, tw_state_entry *entry);

tw_status __wrap_tw_state_at(const tw_state *state, size_t index, tw_state_entry *entry)
{
    steps++;
    return __real_tw_state_at(state, index, entry);
}

static const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};

static void put(tw_state *state, size_t layer, const char *name, size_t rows, size_t columns)
{
    char text[96];
    snprintf(text, sizeof text, "model.layers.%zu.%s.weight", layer, name);
    assert_ok(tw_state_put(state, text, TW_F32, columns ? 2 : 1, (size_t[]){rows, columns}, ones));
}

static tw_state *make_transformer(void)
{
    static const char *const squares[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                          "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                          "mlp.down_proj"};
    tw_state *state;
    assert_ok(tw_state_create(&state));
    assert_ok(tw_state_put_text(state, TASK_NETWORK, "heads=1,kv_heads=1,context=64"));
    assert_ok(tw_state_put(state, "model.embed_tokens.weight", TW_F32, 2, (size_t[]){4, 2}, ones));
    for (size_t i = 0; i < LAYERS; i++) {
        put(state, i, "input_layernorm", 2, 0);
        put(state, i, "post_attention_layernorm", 2, 0);
        for (size_t k = 0; k < sizeof squares / sizeof *squares; k++) put(state, i, squares[k], 2, 2);
    }
    assert_ok(tw_state_put(state, "model.norm.weight", TW_F32, 1, (size_t[]){2}, ones));
    assert_ok(tw_state_put(state, "lm_head.weight", TW_F32, 2, (size_t[]){4, 2}, ones));
    return state;
}

static void assert_few_steps(const tw_state *state)
{
    assert_in_range(steps, 1, MOST_STEPS * tw_state_count(state));
    steps = 0;
}

TEST(a_transformers_sizes_are_read)
{
    language_model_config config;
    size_t types, context;
    tw_state *file = make_transformer();
    steps = 0;
    assert_ok(transformer_read(file, &config, &types, &context));
    assert_int_equal(config.layers, LAYERS);
    assert_int_equal(types, 4);
    assert_few_steps(file);
    tw_state_destroy(file);
}

TEST_IN_FOLDER(a_folder_of_transformers_is_read)
{
    static const char config[] = "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"vocab_size\": 4, "
                                 "\"hidden_size\": 2, \"intermediate_size\": 2, \"num_hidden_layers\": %d, "
                                 "\"num_attention_heads\": 1}";
    char text[sizeof config + 8];
    tw_state *file = make_transformer(), *read;
    snprintf(text, sizeof text, config, LAYERS);
    write_text("config.json", text);
    assert_ok(tw_state_save(file, in_folder("model.safetensors")));
    steps = 0;
    assert_ok(lm_read_folder(test_folder, &read));
    assert_int_equal(tw_state_count(read), LAYERS * OF_A_LAYER + 3);
    assert_few_steps(file);
    tw_state_destroy(read);
    put(file, LAYERS, "input_layernorm", 2, 0);
    assert_ok(tw_state_save(file, in_folder("model.safetensors")));
    assert_fails(lm_read_folder(test_folder, &read), TW_ERROR_UNSUPPORTED,
                 "its model.layers.300.input_layernorm.weight");
    assert_few_steps(file);
    tw_state_destroy(file);
}

TEST(adapters_are_merged)
{
    const double scale = 2;
    char sum[16];
    uint32_t all = 0;
    tw_state *weights = make_transformer(), *adapters, *merged;
    for (size_t i = 0; i < tw_state_count(weights); i++) {
        tw_state_entry entry;
        assert_ok(tw_state_at(weights, i, &entry));
        all += checksum_tensor(entry.name, entry.data, entry.bytes);
    }
    snprintf(sum, sizeof sum, "%08x", all);
    assert_ok(tw_state_create(&adapters));
    assert_ok(tw_state_put_text(adapters, "base checksum", sum));
    assert_ok(tw_state_put(adapters, TASK_ADAPTER_SCALE, TW_F64, 1, (size_t[]){1}, &scale));
    for (size_t i = 0; i < LAYERS; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.%zu.mlp.up_proj.lora_A.weight", i);
        assert_ok(tw_state_put(adapters, name, TW_F32, 2, (size_t[]){1, 2}, ones));
        snprintf(name, sizeof name, "model.layers.%zu.mlp.up_proj.lora_B.weight", i);
        assert_ok(tw_state_put(adapters, name, TW_F32, 2, (size_t[]){2, 1}, ones));
    }
    steps = 0;
    assert_ok(weights_merge(adapters, weights, &merged));
    assert_few_steps(weights);
    for (size_t i = 0; i < LAYERS; i++) {
        char name[96];
        float sums[4];
        snprintf(name, sizeof name, "model.layers.%zu.mlp.up_proj.weight", i);
        assert_ok(tw_state_get(merged, name, TW_F32, 4, sums));
        for (size_t k = 0; k < 4; k++) assert_true(sums[k] == 3);
    }
    tw_state_destroy(weights);
    tw_state_destroy(adapters);
    tw_state_destroy(merged);
}

RUN_TESTS(NULL, NULL)
