/* A network in stages has the gradients of the whole, to the last bit, wherever it is cut; and of what is another
 * stage's nothing is in memory. */
#include "support/assert.h"

#include "language_model.h"
#include "model.h"

#include <sys/mman.h>
#include <unistd.h>

enum { STEPS = 6, BATCH = 4, VOCABULARY = 3000, WIDEST = 1 << 16, CLASSES = 10 };

/* What passes a cut. A call of the last stage goes back at once; another goes back when its gradient is known. */
typedef struct cut {
    float x[WIDEST], dx[WIDEST];
    size_t count;
} cut;

typedef struct seat {
    nn_stage stage;
    cut *before, *behind;
    int again;
} seat;

static tw_status take_x(void *context, float *x, size_t count)
{
    const seat *s = context;
    assert_int_equal(count, s->before->count);
    memcpy(x, s->before->x, count * sizeof *x);
    return TW_OK;
}

static tw_status give_y(void *context, const float *y, size_t count, float *dy, int *back)
{
    seat *s = context;
    assert_in_range(count, 1, WIDEST);
    s->behind->count = count;
    memcpy(s->behind->x, y, count * sizeof *y);
    if (dy && s->again) memcpy(dy, s->behind->dx, count * sizeof *dy);
    if (back) *back = s->again;
    return TW_OK;
}

static tw_status give_dx(void *context, const float *dx, size_t count)
{
    seat *s = context;
    assert_int_equal(count, s->before->count);
    memcpy(s->before->dx, dx, count * sizeof *dx);
    return TW_OK;
}

/* Each kind of network does one call, and shows its arrays. */
typedef struct kind {
    void *(*make)(const nn_stage *stage);
    void (*destroy)(void *network);
    double (*step)(void *network); /* the sum of losses */
    double (*look)(void *network);
    void (*show)(void *network, float **values, float **gradients, const nn_unit **units, size_t *count);
} kind;

/* ---- a transformer ---- */

static decoder_family family;

static void *make_text(const nn_stage *stage)
{
    const language_model_config config = {.layers = 3,
                                          .hidden = 32,
                                          .embedding = 32,
                                          .keep = 0.7f,
                                          .range = 0.3f,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .inner = 64,
                                          .theta = 10000.0,
                                          .epsilon = 1e-5f,
                                          .family = family};
    const language_model_shape shape = {VOCABULARY, STEPS, BATCH, NN_FP32, stage};
    language_model *m;
    assert_ok(language_model_create(&config, &shape, &m));
    assert_ok(language_model_initialise(m, 3));
    return m;
}

static void destroy_text(void *network)
{
    language_model_destroy(network);
}

static double read_text(void *network, int training)
{
    int32_t tokens[(STEPS + 1) * BATCH];
    const nn_noise noise = {5, 17};
    language_model_result result;
    for (int32_t i = 0; i < (STEPS + 1) * BATCH; i++) tokens[i] = i * 97 % VOCABULARY;
    const language_model_text text = {tokens, tokens + BATCH, STEPS};
    if (training) {
        assert_ok(language_model_step(network, &text, &noise, NULL, NULL, &result));
    } else {
        assert_ok(language_model_start_evaluation(network, BATCH));
        assert_ok(language_model_evaluate(network, &text, &result));
    }
    return result.loss;
}

static double step_text(void *network)
{
    return read_text(network, 1);
}

static double look_text(void *network)
{
    return read_text(network, 0);
}

static void show_text(void *network, float **values, float **gradients, const nn_unit **units, size_t *count)
{
    const parameter_set *p = language_model_parameters(network);
    *values = p->values;
    *gradients = p->gradients;
    *units = language_model_units(network, count);
}

static const kind text = {make_text, destroy_text, step_text, look_text, show_text};

/* ---- networks for images ---- */

static const char *image_name;

static void *make_image(const nn_stage *stage)
{
    const model_shape shape = {
        .channels = 3, .height = 32, .width = 32, .classes = CLASSES, .batch = BATCH, .stage = stage};
    model *m;
    assert_ok(model_create(image_name, &shape, &m));
    assert_ok(model_initialise(m, 3));
    return m;
}

static void destroy_image(void *network)
{
    model_destroy(network);
}

static double see(void *network, int training)
{
    static float images[BATCH * 3 * 32 * 32];
    const uint16_t labels[BATCH] = {3, 1, 4, 1};
    model_result result;
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) images[i] = (float)(i * 37 % 101) / 50 - 1;
    assert_ok(training ? model_step(network, images, labels, BATCH, NULL, NULL, &result)
                       : model_evaluate(network, images, labels, BATCH - 1, &result));
    return result.loss;
}

static double step_image(void *network)
{
    return see(network, 1);
}

static double look_image(void *network)
{
    return see(network, 0);
}

static void show_image(void *network, float **values, float **gradients, const nn_unit **units, size_t *count)
{
    *values = model_parameters(network);
    *gradients = model_gradients(network);
    *units = model_units(network, count);
}

static const kind image = {make_image, destroy_image, step_image, look_image, show_image};

/* ---- in stages ---- */

static size_t resident(const float *values, size_t begin, size_t end)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), each = page / sizeof *values;
    const size_t first = (begin + each - 1) / each, last = end / each;
    size_t found = 0;
    for (size_t i = first; i < last; i++) {
        unsigned char is_there = 0;
        assert_int_equal(mincore((void *)(uintptr_t)(values + i * each), page, &is_there), 0);
        found += is_there & 1;
    }
    return found;
}

typedef struct cast {
    const kind *ops;
    seat seats[16];
    void *networks[16];
    cut cuts[17];
    size_t count;
} cast;

static void seat_all(cast *c, const kind *ops, const size_t *ends, size_t count)
{
    *c = (cast){.ops = ops, .count = count};
    for (size_t s = 0; s < count; s++) {
        seat *own = &c->seats[s];
        own->stage = (nn_stage){s ? ends[s - 1] : 0, ends[s], own, take_x, give_y, give_dx};
        own->before = &c->cuts[s];
        own->behind = &c->cuts[s + 1];
        c->networks[s] = ops->make(&own->stage);
    }
}

/* Forward through all, and each stage forward again and back. */
static double go(cast *c)
{
    double loss = 0;
    for (size_t s = 0; s < c->count; s++) loss += c->ops->step(c->networks[s]);
    for (size_t s = c->count - 1; s-- > 0;) {
        c->seats[s].again = 1;
        assert_true(c->ops->step(c->networks[s]) == 0);
    }
    return loss;
}

static void check_stage(cast *c, size_t s, const float *expected)
{
    float *values, *gradients;
    const nn_unit *units;
    size_t count;
    const nn_stage *stage = &c->seats[s].stage;
    c->ops->show(c->networks[s], &values, &gradients, &units, &count);
    const size_t begin = stage->first ? units[stage->first - 1].parameters : 0;
    const size_t end = units[stage->end - 1].parameters, all = units[count - 1].parameters;
    assert_memory_equal(gradients + begin, expected + begin, (end - begin) * sizeof *expected);
    assert_int_equal(resident(values, 0, begin) + resident(values, end, all), 0);
    assert_int_equal(resident(gradients, 0, begin) + resident(gradients, end, all), 0);
}

static void check_cut(const kind *ops, const size_t *ends, size_t count, double looked, double loss,
                      const float *expected)
{
    static cast c;
    double seen = 0;
    seat_all(&c, ops, ends, count);
    for (size_t s = 0; s < count; s++) seen += ops->look(c.networks[s]);
    assert_true(seen == looked);
    assert_true(go(&c) == loss);
    for (size_t s = 0; s < count; s++) check_stage(&c, s, expected);
    for (size_t s = 0; s < count; s++) ops->destroy(c.networks[s]);
}

/* Into single units, and, where that takes no long time, in two at each place. */
static void check_kind(const kind *ops, size_t least, int in_two)
{
    float *values, *gradients;
    const nn_unit *units;
    size_t count, ends[16];
    void *whole = ops->make(NULL);
    ops->show(whole, &values, &gradients, &units, &count);
    assert_in_range(count, least, 16);
    const double looked = ops->look(whole), loss = ops->step(whole);
    for (size_t u = 1; in_two && u < count; u++) check_cut(ops, (size_t[]){u, count}, 2, looked, loss, gradients);
    for (size_t u = 0; u < count; u++) ends[u] = u + 1;
    check_cut(ops, ends, count, looked, loss, gradients);
    ops->destroy(whole);
}

TEST(test_a_transformer)
{
    for (int i = 0; i < DECODER_FAMILIES; i++) {
        family = (decoder_family)i;
        check_kind(&text, 6, 1);
    }
}

TEST(test_a_small_network_for_images)
{
    image_name = "cnn";
    check_kind(&image, 5, 1);
}

TEST(test_a_residual_network)
{
    image_name = "resnet20";
    check_kind(&image, 12, 0);
}

TEST(test_what_cannot_be_cut)
{
    const nn_stage stage = {0, 1, NULL, take_x, give_y, give_dx};
    const language_model_config lstm = {.layers = 2, .hidden = 8, .embedding = 8, .keep = 1, .range = 1};
    const language_model_shape shape = {VOCABULARY, STEPS, BATCH, NN_FP32, &stage};
    language_model *m;
    assert_fails(language_model_create(&lstm, &shape, &m), TW_ERROR_ARGUMENT, "--model transformer");
}

RUN_TESTS(NULL, NULL)
