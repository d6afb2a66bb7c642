/* engine_dnnl2.c - engine.h on oneDNN 2.x: engines, memories, and how an op runs. */
#include "engine_dnnl2.h"

#include <stdio.h>
#include <stdlib.h>

/* oneDNN runs on GCC's OpenMP, whichever compiler is at work here; the compiler's own omp.h might be another's. */
void omp_set_num_threads(int count);

static const int argument_ids[NN_ARGUMENTS] = {
    [NN_SRC] = DNNL_ARG_SRC,
    [NN_DST] = DNNL_ARG_DST,
    [NN_WEIGHTS] = DNNL_ARG_WEIGHTS,
    [NN_BIAS] = DNNL_ARG_BIAS,
    [NN_MEAN] = DNNL_ARG_MEAN,
    [NN_VARIANCE] = DNNL_ARG_VARIANCE,
    [NN_SCALE] = DNNL_ARG_SCALE,
    [NN_SHIFT] = DNNL_ARG_SHIFT,
    [NN_WORKSPACE] = DNNL_ARG_WORKSPACE,
    [NN_DIFF_SRC] = DNNL_ARG_DIFF_SRC,
    [NN_DIFF_DST] = DNNL_ARG_DIFF_DST,
    [NN_DIFF_WEIGHTS] = DNNL_ARG_DIFF_WEIGHTS,
    [NN_DIFF_BIAS] = DNNL_ARG_DIFF_BIAS,
    [NN_DIFF_SCALE] = DNNL_ARG_DIFF_SCALE,
    [NN_DIFF_SHIFT] = DNNL_ARG_DIFF_SHIFT,
};

tw_status dnnl2_check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success) return TW_OK;
    if (status == dnnl_out_of_memory) return tw_fail(TW_ERROR_MEMORY, "oneDNN: no memory for %s", what);
    if (status == dnnl_unimplemented) return tw_fail(TW_ERROR_UNSUPPORTED, "oneDNN does not implement %s here", what);
    return tw_fail(TW_ERROR_SYSTEM, "oneDNN: %s failed with status %d", what, (int)status);
}

/* ---- engine ---- */

static tw_status make_attributes(nn_engine *e)
{
    dnnl_post_ops_t after;
    TW_TRY(dnnl2_check(dnnl_primitive_attr_create(&e->plain), "attributes"));
    TW_TRY(dnnl2_check(dnnl_primitive_attr_create(&e->relu), "attributes"));
    TW_TRY(dnnl2_check(dnnl_primitive_attr_set_scratchpad_mode(e->plain, dnnl_scratchpad_mode_user), "attributes"));
    TW_TRY(dnnl2_check(dnnl_primitive_attr_set_scratchpad_mode(e->relu, dnnl_scratchpad_mode_user), "attributes"));
    TW_TRY(dnnl2_check(dnnl_post_ops_create(&after), "attributes"));
    dnnl_status_t status = dnnl_post_ops_append_eltwise(after, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(e->relu, after);
    dnnl_post_ops_destroy(after);
    return dnnl2_check(status, "attributes");
}

static tw_status open_engine(nn_engine *e)
{
    TW_TRY(dnnl2_check(dnnl_engine_create(&e->engine, dnnl_cpu, 0), "an engine"));
    TW_TRY(dnnl2_check(dnnl_stream_create(&e->stream, e->engine, dnnl_stream_default_flags), "a stream"));
    return make_attributes(e);
}

tw_status nn_engine_create(nn_engine **engine)
{
    nn_engine *e = calloc(1, sizeof *e);
    if (!e) return tw_fail(TW_ERROR_MEMORY, "no memory for an engine");
    tw_status status = open_engine(e);
    if (status == TW_OK)
        *engine = e;
    else
        nn_engine_destroy(e);
    return status;
}

static void destroy_ops(nn_op *op)
{
    while (op) {
        nn_op *next = op->next;
        if (op->primitive) dnnl_primitive_destroy(op->primitive);
        if (op->descriptor) dnnl_primitive_desc_destroy(op->descriptor);
        free(op);
        op = next;
    }
}

static void destroy_memories(nn_memory *memory)
{
    while (memory) {
        nn_memory *next = memory->next;
        if (memory->handle) dnnl_memory_destroy(memory->handle);
        free(memory);
        memory = next;
    }
}

void nn_engine_destroy(nn_engine *e)
{
    if (!e) return;
    destroy_ops(e->ops);
    destroy_memories(e->memories);
    if (e->plain) dnnl_primitive_attr_destroy(e->plain);
    if (e->relu) dnnl_primitive_attr_destroy(e->relu);
    if (e->stream) dnnl_stream_destroy(e->stream);
    if (e->engine) dnnl_engine_destroy(e->engine);
    free(e);
}

void nn_engine_enter(void)
{
    if (!getenv("OMP_NUM_THREADS")) omp_set_num_threads(1);
}

void nn_engine_version(char *text, size_t capacity)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, capacity, "%d.%d.%d", version->major, version->minor, version->patch);
}

size_t nn_engine_bytes(const nn_engine *e, nn_region region)
{
    return e->bytes[region];
}

tw_status nn_engine_bind(nn_engine *e, nn_region region, void *bytes)
{
    if (e->bound[region] == bytes) return TW_OK;
    for (nn_memory *m = e->memories; m; m = m->next)
        if (m->region == region)
            TW_TRY(dnnl2_check(dnnl_memory_set_data_handle(m->handle, (char *)bytes + m->offset), "placing an array"));
    e->bound[region] = bytes;
    return TW_OK;
}

void *nn_engine_bound(const nn_engine *e, nn_region region)
{
    return e->bound[region];
}

/* ---- memories ---- */

static tw_status make_memory(nn_engine *e, const dnnl_memory_desc_t *layout, nn_memory **memory)
{
    nn_memory *m = calloc(1, sizeof *m);
    if (!m) return tw_fail(TW_ERROR_MEMORY, "no memory for an array's description");
    *m = (nn_memory){.engine = e, .next = e->memories, .layout = *layout, .region = NN_REGIONS};
    e->memories = m;
    *memory = m;
    return dnnl2_check(dnnl_memory_create(&m->handle, layout, e->engine, DNNL_MEMORY_NONE), "an array");
}

tw_status dnnl2_describe(size_t dims, const size_t *shape, dnnl_format_tag_t tag, dnnl_memory_desc_t *layout)
{
    dnnl_dims_t sizes = {0};
    for (size_t i = 0; i < dims; i++) sizes[i] = (dnnl_dim_t)shape[i];
    return dnnl2_check(dnnl_memory_desc_init_by_tag(layout, (int)dims, sizes, dnnl_f32, tag), "an array's layout");
}

tw_status nn_memory_plain(nn_engine *e, size_t dims, const size_t *shape, nn_memory **memory)
{
    static const dnnl_format_tag_t row_major[] = {dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd};
    dnnl_memory_desc_t layout;
    if (dims < 1 || dims > 4) return tw_fail(TW_ERROR_ARGUMENT, "an array has 1 to 4 dimensions, not %zu", dims);
    TW_TRY(dnnl2_describe(dims, shape, row_major[dims], &layout));
    return make_memory(e, &layout, memory);
}

tw_status nn_memory_like(const nn_memory *other, nn_memory **memory)
{
    return make_memory(other->engine, &other->layout, memory);
}

static const dnnl_memory_desc_t *wanted_layout(const nn_op *op, int id)
{
    return dnnl_primitive_desc_query_md(op->descriptor, dnnl_query_exec_arg_md, id);
}

static int present(const dnnl_memory_desc_t *layout)
{
    return layout && dnnl_memory_desc_get_size(layout) > 0;
}

tw_status nn_memory_for(const nn_op *op, nn_argument argument, nn_memory **memory)
{
    const dnnl_memory_desc_t *layout = wanted_layout(op, argument_ids[argument]);
    *memory = NULL;
    return present(layout) ? make_memory(op->engine, layout, memory) : TW_OK;
}

static void grow(size_t *bytes, size_t wanted)
{
    if (*bytes < wanted) *bytes = wanted;
}

void nn_memory_place(nn_memory *m, nn_region region, size_t offset)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): no op is asked for a temporary copy of what it lacks */
    m->region = region;
    m->offset = offset;
    grow(&m->engine->bytes[region], offset + nn_memory_bytes(m));
}

void nn_memory_append(nn_memory *m, nn_region region)
{
    size_t end = nn_aligned(m->engine->bytes[region]);
    nn_memory_place(m, region, region >= NN_DIFF0 ? 0 : end);
}

int nn_memory_same_layout(const nn_memory *a, const nn_memory *b)
{
    return dnnl_memory_desc_equal(&a->layout, &b->layout);
}

size_t nn_memory_bytes(const nn_memory *m)
{
    return dnnl_memory_desc_get_size(&m->layout);
}

size_t nn_memory_floats(const nn_memory *m)
{
    return nn_memory_bytes(m) / sizeof(float);
}

float *nn_memory_data(const nn_memory *m)
{
    void *data = NULL;
    dnnl_memory_get_data_handle(m->handle, &data);
    return data;
}

/* Whether the strides of (n, c, h, w) are those of (n, c/block, h, w, block). */
static int has_block(const dnnl_memory_desc_t *layout, dnnl_dim_t block)
{
    const dnnl_dim_t *size = layout->padded_dims, *stride = layout->format_desc.blocking.strides;
    dnnl_dim_t row = size[3] * block, plane = size[2] * row;
    dnnl_dim_t channel = block == size[1] && !layout->format_desc.blocking.inner_nblks ? 1 : plane;
    return stride[3] == block && stride[2] == row && stride[1] == channel && stride[0] == plane * (size[1] / block);
}

size_t nn_memory_channel_block(const nn_memory *m)
{
    const dnnl_blocking_desc_t *blocking = &m->layout.format_desc.blocking;
    if (m->layout.ndims != 4 || m->layout.format_kind != dnnl_blocked) return 0;
    if (blocking->inner_nblks == 0) {
        if (m->layout.dims[1] == 1 || has_block(&m->layout, 1)) return 1;
        return has_block(&m->layout, m->layout.dims[1]) ? (size_t)m->layout.dims[1] : 0;
    }
    dnnl_dim_t block = blocking->inner_blks[0];
    int by_channel = blocking->inner_nblks == 1 && blocking->inner_idxs[0] == 1;
    return by_channel && has_block(&m->layout, block) ? (size_t)block : 0;
}

/* ---- ops ---- */

static void attach(nn_op *op, int id, dnnl_memory_t memory)
{
    op->arguments[op->count++] = (dnnl_exec_arg_t){id, memory};
}

static tw_status attach_scratchpad(nn_op *op)
{
    const dnnl_memory_desc_t *layout = wanted_layout(op, DNNL_ARG_SCRATCHPAD);
    nn_memory *scratchpad;
    if (!present(layout)) return TW_OK;
    TW_TRY(make_memory(op->engine, layout, &scratchpad));
    nn_memory_append(scratchpad, NN_SCRATCHPAD);
    attach(op, DNNL_ARG_SCRATCHPAD, scratchpad->handle);
    return TW_OK;
}

/* Takes the descriptor over, whatever happens. */
static tw_status finish_op(nn_engine *e, dnnl_primitive_desc_t descriptor, const char *what, nn_op **op)
{
    nn_op *made = calloc(1, sizeof *made);
    if (!made) {
        dnnl_primitive_desc_destroy(descriptor);
        return tw_fail(TW_ERROR_MEMORY, "no memory for %s", what);
    }
    *made = (nn_op){.engine = e, .next = e->ops, .descriptor = descriptor};
    e->ops = made;
    TW_TRY(dnnl2_check(dnnl_primitive_create(&made->primitive, descriptor), what));
    TW_TRY(attach_scratchpad(made));
    *op = made;
    return TW_OK;
}

tw_status dnnl2_make_op(nn_engine *e, const_dnnl_op_desc_t operation, dnnl_primitive_attr_t attributes,
                        const nn_op *forward, const char *what, nn_op **op)
{
    dnnl_primitive_desc_t descriptor;
    TW_TRY(dnnl2_check(
        dnnl_primitive_desc_create(&descriptor, operation, attributes, e->engine, forward ? forward->descriptor : NULL),
        what));
    return finish_op(e, descriptor, what, op);
}

void nn_op_set(nn_op *op, nn_argument argument, const nn_memory *memory)
{
    if (memory) attach(op, argument_ids[argument], memory->handle);
}

int nn_op_wants_other_layout(const nn_op *op, nn_argument argument, const nn_memory *memory)
{
    return !dnnl_memory_desc_equal(wanted_layout(op, argument_ids[argument]), &memory->layout);
}

tw_status nn_op_set_temporary(nn_op *op, nn_argument argument, nn_memory **memory)
{
    TW_TRY(nn_memory_for(op, argument, memory));
    nn_memory_place(*memory, NN_TEMPORARY, op->temporary_bytes);
    op->temporary_bytes += nn_aligned(nn_memory_bytes(*memory));
    nn_op_set(op, argument, *memory);
    return TW_OK;
}

tw_status nn_op_run(nn_op *op)
{
    if (!op) return TW_OK;
    TW_TRY(dnnl2_check(dnnl_primitive_execute(op->primitive, op->engine->stream, op->count, op->arguments),
                       "running an op"));
    return dnnl2_check(dnnl_stream_wait(op->engine->stream), "running an op");
}

tw_status nn_op_reorder(const nn_memory *src, const nn_memory *dst, nn_op **op)
{
    nn_engine *e = src->engine;
    dnnl_primitive_desc_t descriptor;
    TW_TRY(dnnl2_check(
        dnnl_reorder_primitive_desc_create(&descriptor, &src->layout, e->engine, &dst->layout, e->engine, e->plain),
        "a change of layout"));
    TW_TRY(finish_op(e, descriptor, "a change of layout", op));
    nn_op_set(*op, NN_SRC, src);
    nn_op_set(*op, NN_DST, dst);
    return TW_OK;
}
