/* A stack of LSTM layers: what each layer drops, and the state that each carries on. */
#include "recurrent.h"

#include "parameters.h"
#include "training.h"

#include <math.h>

enum { STEPS = 3, BATCH = 4, WIDTH = 8, VALUES = STEPS * BATCH * WIDTH };

typedef struct stack {
    nn_engine *engine;
    nn_table table;
    recurrent *layers;
    parameter_set parameters;
} stack;

static void stack_open(stack *s, size_t layers)
{
    *s = (stack){0};
    assert_int_equal(nn_engine_create(NN_FP32, &s->engine), TW_OK);
    const recurrent_options options = {
        .layers = layers, .inputs = WIDTH, .hidden = WIDTH, .range = 0.5f, .engine = s->engine};
    assert_int_equal(recurrent_create(&options, &s->table, &s->layers), TW_OK);
    assert_int_equal(parameter_set_allocate(&s->table, &s->parameters), TW_OK);
    nn_table_initialise(&s->table, 5, s->parameters.values);
}

static void stack_close(stack *s)
{
    recurrent_destroy(s->layers);
    nn_engine_destroy(s->engine);
    parameter_set_free(&s->parameters);
    nn_table_free(&s->table);
}

static const float *forward(stack *s, float keep, float *state)
{
    static float x[VALUES];
    const float *y;
    for (size_t i = 0; i < VALUES; i++) x[i] = sinf((float)i);
    const recurrent_batch batch = {
        .steps = STEPS, .batch = BATCH, .x = x, .state = state, .keep = keep, .noise = {.seed = 1, .step = 2}};
    assert_int_equal(recurrent_forward(s->layers, s->parameters.values, &batch, &y), TW_OK);
    return y;
}

/* What a stack of one layer drops at its end, one of two does not. */
TEST(test_each_layer_drops_values_of_its_own)
{
    stack one, two;
    size_t different = 0, dropped = 0;
    stack_open(&one, 1);
    stack_open(&two, 2);
    const float *first = forward(&one, 0.5f, NULL), *second = forward(&two, 0.5f, NULL);
    for (size_t i = 0; i < VALUES; i++) {
        different += (first[i] == 0) != (second[i] == 0);
        dropped += second[i] == 0;
    }
    assert_true(dropped > VALUES / 4 && dropped < 3 * VALUES / 4);
    assert_true(different > VALUES / 4);
    stack_close(&one);
    stack_close(&two);
}

/* All of (layers, h and c, batch, hidden) is written, and no layer's is another's. */
TEST(test_each_layer_carries_a_state_of_its_own)
{
    enum { LAYER = 2 * BATCH * WIDTH };
    float carried[3 * LAYER] = {0};
    stack s;
    stack_open(&s, 3);
    forward(&s, 1, carried);
    for (size_t i = 0; i < 3 * LAYER; i++) assert_true(carried[i] != 0);
    for (size_t i = 0; i < LAYER; i++)
        assert_true(carried[i] != carried[LAYER + i] && carried[LAYER + i] != carried[2 * LAYER + i]);
    stack_close(&s);
}

RUN_TESTS(NULL, NULL)
