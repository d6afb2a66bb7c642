/* What a message weighs: the table of ResNet-50 by arithmetic and by an encode of it, and which code the line makes of
 * the indices. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loopback.h"
#include "support/cmocka.h"

#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_plugin.h>

static const double MIB = 1024 * 1024;

/* ---- ResNet-50 -------------------------------------------------------------------------------------------------- */

enum { RESNET_TENSORS = 161, RESNET_ELEMENTS = 25557032, NAME = 32 };

typedef struct resnet {
    tw_tensor tensor[RESNET_TENSORS];
    char name[RESNET_TENSORS][NAME];
    size_t count;
} resnet;

static void add(resnet *net, tw_tensor tensor)
{
    assert_true(net->count < RESNET_TENSORS);
    snprintf(net->name[net->count], NAME, "%s.%zu", tensor.name, net->count);
    tensor.name = net->name[net->count];
    net->tensor[net->count++] = tensor;
}

static void add_convolution(resnet *net, size_t from, size_t to, size_t size)
{
    add(net, (tw_tensor){"convolution", 4, {to, from, size, size}});
    add(net, (tw_tensor){"norm.scale", 1, {to}});
    add(net, (tw_tensor){"norm.shift", 1, {to}});
}

/* 1x1 down to `width` channels, 3x3, 1x1 up to four times as many; the first of a stage widens its shortcut, too. */
static void add_bottleneck(resnet *net, size_t from, size_t width, int first)
{
    add_convolution(net, from, width, 1);
    add_convolution(net, width, width, 3);
    add_convolution(net, width, 4 * width, 1);
    if (first) add_convolution(net, from, 4 * width, 1);
}

static resnet *make_resnet50(void)
{
    static const int blocks[] = {3, 4, 6, 3};
    resnet *net = calloc(1, sizeof *net);
    size_t from = 64, elements = 0;
    add_convolution(net, 3, 64, 7);
    for (int stage = 0; stage < 4; stage++)
        for (int block = 0; block < blocks[stage]; block++) {
            size_t width = (size_t)64 << stage;
            add_bottleneck(net, from, width, block == 0);
            from = 4 * width;
        }
    add(net, (tw_tensor){"classifier.weight", 2, {1000, 2048}});
    add(net, (tw_tensor){"classifier.bias", 1, {1000}});
    for (size_t t = 0; t < net->count; t++) elements += tw_tensor_count(&net->tensor[t]);
    assert_int_equal(net->count, RESNET_TENSORS);
    assert_int_equal(elements, RESNET_ELEMENTS);
    return net;
}

/* Heavy-tailed, as gradients are, and without any structure an index code could use. */
static float *make_gradient(void)
{
    float *gradient = malloc(RESNET_ELEMENTS * sizeof *gradient);
    for (size_t i = 0; i < RESNET_ELEMENTS; i += 4) {
        uint32_t words[4];
        tw_random(31, 0, i, words);
        for (size_t j = 0; j < 4; j++) {
            float x = (float)words[j] / 4294967296.0F - 0.5F;
            gradient[i + j] = x * x * x / (0.5001F - fabsf(x));
        }
    }
    return gradient;
}

static tw_cost encode(const resnet *net, const char *spec)
{
    float *gradient = make_gradient(), *tensors[RESNET_TENSORS], **ranks[] = {tensors}, *at = gradient;
    tw_cost cost = {.struct_size = sizeof cost};
    loopback group;
    int skipped;
    for (size_t t = 0; t < net->count; at += tw_tensor_count(&net->tensor[t++])) tensors[t] = at;
    assert_int_equal(loopback_create(&group, spec, net->tensor, net->count, 1), TW_OK);
    assert_int_equal(loopback_step(&group, ranks, -1, NULL, &skipped), TW_OK);
    assert_int_equal(tw_scheme_cost(group.scheme[0], &cost), TW_OK);
    assert_int_equal(cost.packet_bytes + cost.exact_bytes, group.packet_bytes); /* a rank alone has one round */
    loopback_destroy(&group);
    free(gradient);
    return cost;
}

/* log2 C(n, k): the least that says which k of n, when all are as likely. */
static double support_bits(double n, double k)
{
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2);
}

typedef struct prediction {
    double elements, packet_bytes, leftover_bytes;
} prediction;

/* What a spec compresses, and what its values weigh. */
typedef struct coding {
    size_t min_dims, min_elements;
    double value_bits, section_bytes;
} coding;

/* A value's bits and the bound on its index, two bytes an element that is not compressed, and the headers. */
static prediction predict(const resnet *net, double density, const coding *how)
{
    enum { MIN_SENT = 16, LEFTOVER_BYTES = 2, HEADER_BYTES = 24 };
    prediction sum = {.packet_bytes = HEADER_BYTES};
    for (size_t t = 0; t < net->count; t++) {
        double n = (double)tw_tensor_count(&net->tensor[t]);
        double k = fmin(n, fmax(MIN_SENT, ceil(n * density)));
        if (net->tensor[t].dims < how->min_dims || n < (double)how->min_elements) {
            sum.leftover_bytes += LEFTOVER_BYTES * n;
            continue;
        }
        sum.elements += k;
        sum.packet_bytes += how->section_bytes + (k * how->value_bits + support_bits(n, k)) / 8;
    }
    return sum;
}

static void check_close(double encoded, double predicted, double share)
{
    if (fabs(encoded - predicted) > share * predicted) fail_msg("%.0f is not near %.0f", encoded, predicted);
}

/* The bold twin; exact biases and eight bits a value; and one without the other. */
TEST(test_resnet50_by_arithmetic_and_by_encode)
{
    resnet *net = make_resnet50();
    static const struct {
        const char *spec;
        coding coding;
        double most_mib;
    } cases[] = {{"dgc-bold:warmup_steps=0", {1, 1, 1, 6}, 97.49 / 2021},
                 {"dgc:density=0.001,warmup_steps=0,values=log8", {2, 128, 8, 6}, 0.20},
                 {"dgc-bold:warmup_steps=0,values=log8", {1, 1, 8, 6}, 97.49 / 1000}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        tw_cost cost = encode(net, cases[c].spec);
        prediction sum = predict(net, 0.001, &cases[c].coding);
        check_close((double)cost.elements_sent, sum.elements, 0);
        check_close((double)cost.exact_bytes, sum.leftover_bytes, 0);
        double message = (double)(cost.packet_bytes + cost.exact_bytes);
        check_close(message, sum.packet_bytes + sum.leftover_bytes, 0.02);
        assert_true(message <= cases[c].most_mib * MIB);
    }
    free(net);
}

/* ---- the line ---------------------------------------------------------------------------------------------------- */

enum { SIDE = 200 };

/* Forty elements of a row in 20, side by side, stand out: gaps of two kinds, which the adaptive code learns. */
static float striped(size_t at)
{
    size_t row = at / SIDE, column = at % SIDE;
    return row % 20 == 3 && column >= 50 && column < 90 ? 1 + (float)(at % 7) / 8 : 1e-6F * (float)(at % 5);
}

/* Bytes of a rank's packet under `scheme:options`. */
static size_t packet_under(const char *scheme, const char *options)
{
    static float gradient[SIDE * SIDE];
    float *tensor = gradient, **ranks[] = {&tensor};
    const tw_tensor table[] = {{"matrix", 2, {SIDE, SIDE}}};
    char spec[128];
    loopback group;
    int skipped;
    for (size_t i = 0; i < SIDE * SIDE; i++) gradient[i] = striped(i);
    snprintf(spec, sizeof spec, "%s,%s", scheme, options);
    assert_int_equal(loopback_create(&group, spec, table, 1, 1), TW_OK);
    assert_int_equal(loopback_step(&group, ranks, -1, NULL, &skipped), TW_OK);
    size_t bytes = group.packet_bytes;
    loopback_destroy(&group);
    return bytes;
}

/* At a Gbit/s, the default, the quick code; where only bytes count the one that is shorter here. */
TEST(test_the_line_chooses_the_indices_of_every_scheme)
{
    static const char *const schemes[] = {"topk:density=0.01", "dgc:density=0.01,warmup_steps=0",
                                          "sdagc:density=0.01,warmup_steps=0", "threshold:tau=0.5", "adacomp:bin=500"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t rice = packet_under(schemes[i], "indices=rice"), adaptive = packet_under(schemes[i], "indices=adaptive");
        assert_true(adaptive < rice);
        assert_int_equal(packet_under(schemes[i], "link=0"), adaptive);
        assert_int_equal(packet_under(schemes[i], "link=1000"), rice);
        assert_int_equal(packet_under(schemes[i], "indices=auto"), rice);
    }
}

RUN_TESTS(NULL, NULL)
