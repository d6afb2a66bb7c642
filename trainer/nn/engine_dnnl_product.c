/* engine_dnnl_product.c - product.h on oneDNN: its sgemm for fp32, a primitive for each shape for bf16. */
#include "engine_dnnl.h"
#include "product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Utterances of many lengths make many shapes. The one used longest ago is forgotten first. */
enum { PRODUCTS_KEPT = 256 };

/* With fewer rows or columns than this, rounding one operand takes longer than multiplying by it. */
enum { NARROW = 32 };

/* An operand as it is given and as it is multiplied. */
typedef struct rounding {
    dnnl_memory_t given, rounded;
    dnnl_primitive_t primitive;
    size_t bytes; /* of the rounded one */
} rounding;

struct engine_product {
    engine_product *next;
    nn_product product;
    int prepared;              /* B is rounded beforehand, into the layout that is fastest */
    dnnl_primitive_t multiply; /* NULL: bf16 is not native for this shape */
    rounding a, b;
    dnnl_memory_t c, scratchpad;
    size_t scratchpad_bytes;
};

/* ---- making ---- */

static tw_status describe_matrix(size_t rows, size_t columns, int transposed, dnnl_data_type_t type, api_layout *layout)
{
    size_t shape[] = {rows, columns};
    return engine_describe(2, shape, type, transposed ? dnnl_ba : dnnl_ab, layout);
}

static tw_status make_attributes(float beta, dnnl_primitive_attr_t *attributes)
{
    dnnl_post_ops_t after;
    TW_TRY(engine_check(dnnl_primitive_attr_create(attributes), "attributes"));
    TW_TRY(engine_check(dnnl_primitive_attr_set_scratchpad_mode(*attributes, dnnl_scratchpad_mode_user), "attributes"));
    if (beta == 0.0f) return TW_OK;
    TW_TRY(engine_check(dnnl_post_ops_create(&after), "attributes"));
    dnnl_status_t status = api_append_sum(after, beta);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(*attributes, after);
    dnnl_post_ops_destroy(after);
    return engine_check(status, "attributes");
}

/* NULL where oneDNN has nothing for it. */
static tw_status describe_product(const nn_engine *e, const nn_product *p, int prepared,
                                  dnnl_primitive_desc_t *descriptor)
{
    size_t b_shape[] = {p->k, p->n};
    dnnl_format_tag_t b_tag = prepared ? dnnl_format_tag_any : p->transpose_b ? dnnl_ba : dnnl_ab;
    api_layout a = NULL, b = NULL, c = NULL;
    dnnl_primitive_attr_t attributes = NULL;
    *descriptor = NULL;
    tw_status status = describe_matrix(p->m, p->k, p->transpose_a, dnnl_bf16, &a);
    if (status == TW_OK) status = engine_describe(2, b_shape, dnnl_bf16, b_tag, &b);
    if (status == TW_OK) status = describe_matrix(p->m, p->n, 0, dnnl_f32, &c);
    if (status == TW_OK) status = make_attributes(p->beta, &attributes);
    if (status == TW_OK) {
        dnnl_status_t described = api_matmul(e, a, b, c, attributes, descriptor);
        if (described != dnnl_unimplemented) status = engine_check(described, "a bf16 product");
    }
    if (attributes) dnnl_primitive_attr_destroy(attributes);
    api_forget(a);
    api_forget(b);
    api_forget(c);
    return status;
}

static tw_status make_memory(const nn_engine *e, api_const_layout layout, dnnl_memory_t *memory)
{
    return engine_check(dnnl_memory_create(memory, layout, e->engine, DNNL_MEMORY_NONE), "a matrix");
}

static tw_status make_rounding(const nn_engine *e, api_const_layout from, api_const_layout to, rounding *r)
{
    dnnl_primitive_desc_t descriptor;
    r->bytes = dnnl_memory_desc_get_size(to);
    TW_TRY(make_memory(e, from, &r->given));
    TW_TRY(make_memory(e, to, &r->rounded));
    TW_TRY(engine_check(dnnl_reorder_primitive_desc_create(&descriptor, from, e->engine, to, e->engine, NULL),
                        "rounding a matrix"));
    dnnl_status_t status = dnnl_primitive_create(&r->primitive, descriptor);
    dnnl_primitive_desc_destroy(descriptor);
    return engine_check(status, "rounding a matrix");
}

static tw_status make_operand(const nn_engine *e, size_t rows, size_t columns, int transposed, api_const_layout to,
                              rounding *r)
{
    api_layout given;
    TW_TRY(describe_matrix(rows, columns, transposed, dnnl_f32, &given));
    tw_status status = make_rounding(e, given, to, r);
    api_forget(given);
    return status;
}

static tw_status engine_dnnl_product_fill(const nn_engine *e, dnnl_primitive_desc_t descriptor, engine_product *made)
{
    const nn_product *p = &made->product;
    api_const_layout scratchpad = engine_wanted_layout(descriptor, DNNL_ARG_SCRATCHPAD);
    TW_TRY(make_operand(e, p->m, p->k, p->transpose_a, engine_wanted_layout(descriptor, DNNL_ARG_SRC), &made->a));
    TW_TRY(make_operand(e, p->k, p->n, p->transpose_b, engine_wanted_layout(descriptor, DNNL_ARG_WEIGHTS), &made->b));
    TW_TRY(make_memory(e, engine_wanted_layout(descriptor, DNNL_ARG_DST), &made->c));
    TW_TRY(make_memory(e, scratchpad, &made->scratchpad));
    made->scratchpad_bytes = dnnl_memory_desc_get_size(scratchpad);
    return engine_check(dnnl_primitive_create(&made->multiply, descriptor), "a bf16 product");
}

static void destroy_memory(dnnl_memory_t memory)
{
    if (memory) dnnl_memory_destroy(memory);
}

static void destroy_rounding(const rounding *r)
{
    if (r->primitive) dnnl_primitive_destroy(r->primitive);
    destroy_memory(r->given);
    destroy_memory(r->rounded);
}

static void destroy_product(engine_product *p)
{
    if (p->multiply) dnnl_primitive_destroy(p->multiply);
    destroy_rounding(&p->a);
    destroy_rounding(&p->b);
    destroy_memory(p->c);
    destroy_memory(p->scratchpad);
    free(p);
}

void engine_forget_products(nn_engine *e)
{
    while (e->products) {
        engine_product *next = e->products->next;
        destroy_product(e->products);
        e->products = next;
    }
    nn_buffer_free(&e->workspace);
}

static tw_status make_product(nn_engine *e, const nn_product *product, int prepared)
{
    dnnl_primitive_desc_t descriptor;
    TW_TRY(engine_room());
    engine_product *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for a product");
    *made = (engine_product){.next = e->products, .product = *product, .prepared = prepared};
    e->products = made;
    tw_status status = describe_product(e, product, prepared, &descriptor);
    if (status == TW_OK && engine_is_native(descriptor)) status = engine_dnnl_product_fill(e, descriptor, made);
    if (descriptor) dnnl_primitive_desc_destroy(descriptor);
    return status;
}

/* ---- keeping ---- */

static int is_same(const nn_product *a, const nn_product *b)
{
    return a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b && a->m == b->m && a->n == b->n &&
           a->k == b->k && a->beta == b->beta;
}

static void forget_oldest(nn_engine *e)
{
    engine_product **last = &e->products;
    size_t count = 0;
    for (; *last && (*last)->next; last = &(*last)->next) count++;
    if (count < PRODUCTS_KEPT) return;
    destroy_product(*last);
    *last = NULL;
}

/* Leaves the one that is wanted at the head of the list. */
static tw_status find_product(nn_engine *e, const nn_product *product, int prepared)
{
    engine_product **place = &e->products;
    while (*place && !((*place)->prepared == prepared && is_same(&(*place)->product, product))) place = &(*place)->next;
    if (!*place) {
        forget_oldest(e);
        return make_product(e, product, prepared);
    }
    engine_product *found = *place;
    *place = found->next;
    found->next = e->products;
    e->products = found;
    return TW_OK;
}

/* ---- running ---- */

/* oneDNN writes the padding of a layout anew whenever a memory moves. */
static tw_status engine_dnnl_product_place(dnnl_memory_t memory, const void *data)
{
    void *old = NULL;
    dnnl_memory_get_data_handle(memory, &old);
    if (old == data) return TW_OK;
    return engine_check(dnnl_memory_set_data_handle(memory, (void *)data), "placing a matrix");
}

static tw_status execute(const nn_engine *e, dnnl_primitive_t primitive, int count, const dnnl_exec_arg_t *arguments)
{
    TW_TRY(engine_room());
    TW_TRY(engine_check(dnnl_primitive_execute(primitive, e->stream, count, arguments), "a bf16 product"));
    return engine_check(dnnl_stream_wait(e->stream), "a bf16 product");
}

static tw_status round_operand(const nn_engine *e, const rounding *r, const float *given, void *rounded)
{
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, r->given}, {DNNL_ARG_DST, r->rounded}};
    TW_TRY(engine_dnnl_product_place(r->given, given));
    TW_TRY(engine_dnnl_product_place(r->rounded, rounded));
    return execute(e, r->primitive, 2, arguments);
}

/* C from A and, in its place already, the rounded B. */
static tw_status multiply_rounded(const nn_engine *e, const engine_product *p, const float *a, void *rounded,
                                  void *scratchpad, float *c)
{
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, p->a.rounded},
                                         {DNNL_ARG_WEIGHTS, p->b.rounded},
                                         {DNNL_ARG_DST, p->c},
                                         {DNNL_ARG_SCRATCHPAD, p->scratchpad}};
    TW_TRY(round_operand(e, &p->a, a, rounded));
    TW_TRY(engine_dnnl_product_place(p->scratchpad, scratchpad));
    TW_TRY(engine_dnnl_product_place(p->c, c));
    return execute(e, p->multiply, 4, arguments);
}

static tw_status multiply_bf16(nn_engine *e, const engine_product *p, const float *a, const float *b, float *c)
{
    size_t a_bytes = nn_aligned(p->a.bytes), b_bytes = nn_aligned(p->b.bytes);
    TW_TRY(nn_buffer_reserve(&e->workspace, (a_bytes + b_bytes + p->scratchpad_bytes) / sizeof(float) + 1));
    char *workspace = (char *)e->workspace.values;
    TW_TRY(round_operand(e, &p->b, b, workspace + a_bytes));
    return multiply_rounded(e, p, a, workspace, workspace + a_bytes + b_bytes, c);
}

tw_status nn_multiply_parts(const nn_product *p, float alpha, const nn_strides *strides, const float *a, const float *b,
                            float *c)
{
    TW_TRY(engine_room());
    return engine_check(dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', (dnnl_dim_t)p->m,
                                   (dnnl_dim_t)p->n, (dnnl_dim_t)p->k, alpha, a, (dnnl_dim_t)strides->a, b,
                                   (dnnl_dim_t)strides->b, p->beta, c, (dnnl_dim_t)strides->c),
                        "a matrix product");
}

static tw_status multiply_fp32(const nn_product *p, const float *a, const float *b, float *c)
{
    const nn_strides strides = {p->transpose_a ? p->m : p->k, p->transpose_b ? p->k : p->n, p->n};
    return nn_multiply_parts(p, 1.0f, &strides, a, b, c);
}

tw_status nn_multiply(nn_engine *e, const nn_product *product, const float *a, const float *b, float *c)
{
    if (e->precision == NN_FP32 || product->m < NARROW || product->n < NARROW) return multiply_fp32(product, a, b, c);
    TW_TRY(find_product(e, product, 0));
    return e->products->multiply ? multiply_bf16(e, e->products, a, b, c) : multiply_fp32(product, a, b, c);
}

/* ---- a factor of many products ---- */

/* Square by square, so that both matrices are read and written by the cache line. */
static void transpose(const float *src, size_t rows, size_t columns, float *dst)
{
    enum { SIDE = 16 };
    for (size_t r = 0; r < rows; r += SIDE)
        for (size_t c = 0; c < columns; c += SIDE)
            for (size_t i = r; i < r + SIDE && i < rows; i++)
                for (size_t j = c; j < c + SIDE && j < columns; j++) dst[j * rows + i] = src[i * columns + j];
}

/* With few rows the fp32 product is twice as fast if B is not stored transposed. */
static tw_status prepare_fp32(const float *b, nn_factor *factor)
{
    nn_product *p = &factor->product;
    factor->values = b;
    if (!p->transpose_b) return TW_OK;
    TW_TRY(nn_buffer_reserve(&factor->own, p->k * p->n));
    transpose(b, p->n, p->k, factor->own.values);
    factor->values = factor->own.values;
    p->transpose_b = 0;
    return TW_OK;
}

tw_status nn_factor_prepare(nn_engine *e, const nn_product *product, const float *b, nn_factor *factor)
{
    factor->engine = e;
    factor->product = *product;
    factor->values = NULL;
    if (e->precision == NN_FP32) return prepare_fp32(b, factor);
    TW_TRY(find_product(e, product, 1));
    if (!e->products->multiply) return prepare_fp32(b, factor);
    TW_TRY(nn_buffer_reserve(&factor->own, e->products->b.bytes / sizeof(float) + 1));
    return round_operand(e, &e->products->b, b, factor->own.values);
}

tw_status nn_factor_multiply(const nn_factor *factor, const float *a, float *c)
{
    nn_engine *e = factor->engine;
    if (factor->values) return multiply_fp32(&factor->product, a, factor->values, c);
    TW_TRY(find_product(e, &factor->product, 1));
    const engine_product *p = e->products;
    size_t a_bytes = nn_aligned(p->a.bytes);
    TW_TRY(nn_buffer_reserve(&e->workspace, (a_bytes + p->scratchpad_bytes) / sizeof(float) + 1));
    TW_TRY(engine_dnnl_product_place(p->b.rounded, factor->own.values));
    char *workspace = (char *)e->workspace.values;
    return multiply_rounded(e, p, a, workspace, workspace + a_bytes, c);
}

void nn_factor_free(nn_factor *factor)
{
    nn_buffer_free(&factor->own);
    *factor = (nn_factor){0};
}

/* ---- whether it pays ---- */

/* What oneDNN says of an architecture other than x86-64 is nothing, and there its name alone counts. */
static int processor_has_bf16(void)
{
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa(), none = (dnnl_cpu_isa_t)0;
    return isa == none || (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

/* By its name: in oneDNN 3 that of an emulation, too, has the type in it. */
int engine_is_native(const_dnnl_primitive_desc_t descriptor)
{
    static const char *const instructions[] = {"bf16", "amx", "avx10"};
    if (!processor_has_bf16()) return 0;
    const char *name = descriptor ? engine_implementation(descriptor) : "";
    for (size_t i = 0; i < sizeof instructions / sizeof *instructions; i++)
        if (strstr(name, instructions[i])) return 1;
    return 0;
}

tw_status engine_find_bf16(const nn_engine *e, int *native, char *implementation, size_t capacity)
{
    const nn_product usual = {.m = 64, .n = 64, .k = 64};
    dnnl_primitive_desc_t descriptor = NULL;
    if (capacity) *implementation = '\0';
    *native = 0;
    TW_TRY(describe_product(e, &usual, 0, &descriptor));
    if (descriptor) {
        *native = engine_is_native(descriptor);
        snprintf(implementation, capacity, "%s", engine_implementation(descriptor));
        dnnl_primitive_desc_destroy(descriptor);
    }
    return TW_OK;
}
