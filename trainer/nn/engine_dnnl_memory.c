/* engine_dnnl_memory.c - engine.h on oneDNN: memories, and how an op runs. */
#include "engine_dnnl.h"

#include <stdlib.h>

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

tw_status engine_check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success) return TW_OK;
    if (status == dnnl_out_of_memory) return tw_fail(TW_ERROR_MEMORY, "oneDNN: no memory for %s", what);
    if (status == dnnl_unimplemented) return tw_fail(TW_ERROR_UNSUPPORTED, "oneDNN does not implement %s here", what);
    return tw_fail(TW_ERROR_SYSTEM, "oneDNN: %s failed with status %d", what, (int)status);
}

/* ---- memories ---- */

static tw_status make_memory(nn_engine *e, api_const_layout layout, nn_memory **memory)
{
    nn_memory *m = calloc(1, sizeof *m);
    if (!m) return tw_fail(TW_ERROR_MEMORY, "no memory for an array's description");
    *m = (nn_memory){.engine = e, .next = e->memories, .region = NN_REGIONS};
    e->memories = m;
    *memory = m;
    TW_TRY(engine_check(dnnl_memory_create(&m->handle, layout, e->engine, DNNL_MEMORY_NONE), "an array"));
    return engine_check(dnnl_memory_get_memory_desc(m->handle, &m->layout), "an array");
}

tw_status engine_describe(size_t dims, const size_t *shape, dnnl_data_type_t type, dnnl_format_tag_t tag,
                          api_layout *layout)
{
    dnnl_dims_t sizes = {0};
    for (size_t i = 0; i < dims; i++) sizes[i] = (dnnl_dim_t)shape[i];
    return engine_check(api_describe((int)dims, sizes, type, tag, layout), "an array's layout");
}

tw_status nn_memory_plain(nn_engine *e, size_t dims, const size_t *shape, nn_memory **memory)
{
    static const dnnl_format_tag_t row_major[] = {dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd};
    api_layout layout;
    if (dims < 1 || dims > 4) return tw_fail(TW_ERROR_ARGUMENT, "an array has 1 to 4 dimensions, not %zu", dims);
    TW_TRY(engine_describe(dims, shape, dnnl_f32, row_major[dims], &layout));
    tw_status status = make_memory(e, layout, memory);
    api_forget(layout);
    return status;
}

tw_status nn_memory_like(const nn_memory *other, nn_memory **memory)
{
    return make_memory(other->engine, other->layout, memory);
}

api_const_layout engine_wanted_layout(const_dnnl_primitive_desc_t descriptor, int argument)
{
    return dnnl_primitive_desc_query_md(descriptor, dnnl_query_exec_arg_md, argument);
}

const char *engine_implementation(const_dnnl_primitive_desc_t descriptor)
{
    const char *name = "";
    dnnl_primitive_desc_query(descriptor, dnnl_query_impl_info_str, 0, &name);
    return name;
}

static int present(api_const_layout layout)
{
    return layout && dnnl_memory_desc_get_size(layout) > 0;
}

tw_status nn_memory_for(const nn_op *op, nn_argument argument, nn_memory **memory)
{
    api_const_layout layout = engine_wanted_layout(op->descriptor, argument_ids[argument]);
    *memory = NULL;
    return present(layout) ? make_memory(op->engine, layout, memory) : TW_OK;
}

static void engine_dnnl_grow(size_t *bytes, size_t wanted)
{
    if (*bytes < wanted) *bytes = wanted;
}

/* With the padding of the layout. */
static size_t nn_memory_bytes(const nn_memory *m)
{
    return dnnl_memory_desc_get_size(m->layout);
}

void nn_memory_place(nn_memory *m, nn_region region, size_t offset)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): no op is asked for a temporary copy of what it lacks */
    m->region = region;
    m->offset = offset;
    engine_dnnl_grow(&m->engine->bytes[region], offset + nn_memory_bytes(m));
}

void nn_memory_append(nn_memory *m, nn_region region)
{
    size_t end = nn_aligned(m->engine->bytes[region]);
    nn_memory_place(m, region, region >= NN_DIFF0 ? 0 : end);
}

int nn_memory_same_layout(const nn_memory *a, const nn_memory *b)
{
    return dnnl_memory_desc_equal(a->layout, b->layout);
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
static int has_block(const api_layout_parts *l, dnnl_dim_t block)
{
    const dnnl_dim_t *size = l->padded_size, *stride = l->strides;
    dnnl_dim_t row = size[3] * block, plane = size[2] * row;
    dnnl_dim_t channel = block == size[1] && !l->block_count ? 1 : plane;
    return stride[3] == block && stride[2] == row && stride[1] == channel && stride[0] == plane * (size[1] / block);
}

size_t nn_memory_channel_block(const nn_memory *m)
{
    api_layout_parts l = api_take_apart(m->layout);
    if (l.dims != 4 || !l.strides) return 0;
    if (l.block_count == 0) {
        if (l.size[1] == 1 || has_block(&l, 1)) return 1;
        return has_block(&l, l.size[1]) ? (size_t)l.size[1] : 0;
    }
    int by_channel = l.block_count == 1 && l.blocked_dims[0] == 1;
    return by_channel && has_block(&l, l.blocks[0]) ? (size_t)l.blocks[0] : 0;
}

/* ---- ops ---- */

static void attach(nn_op *op, int id, dnnl_memory_t memory)
{
    op->arguments[op->count++] = (dnnl_exec_arg_t){id, memory};
}

static tw_status attach_scratchpad(nn_op *op)
{
    api_const_layout layout = engine_wanted_layout(op->descriptor, DNNL_ARG_SCRATCHPAD);
    nn_memory *scratchpad;
    if (!present(layout)) return TW_OK;
    TW_TRY(make_memory(op->engine, layout, &scratchpad));
    nn_memory_append(scratchpad, NN_SCRATCHPAD);
    attach(op, DNNL_ARG_SCRATCHPAD, scratchpad->handle);
    return TW_OK;
}

tw_status engine_make_op(nn_engine *e, dnnl_status_t described, dnnl_primitive_desc_t descriptor, const char *what,
                         nn_op **op)
{
    TW_TRY(engine_check(described, what));
    nn_op *made = calloc(1, sizeof *made);
    if (!made) {
        dnnl_primitive_desc_destroy(descriptor);
        return tw_fail(TW_ERROR_MEMORY, "no memory for %s", what);
    }
    *made = (nn_op){.engine = e, .next = e->ops, .descriptor = descriptor};
    e->ops = made;
    TW_TRY(engine_check(dnnl_primitive_create(&made->primitive, descriptor), what));
    TW_TRY(attach_scratchpad(made));
    *op = made;
    return TW_OK;
}

void nn_op_set(nn_op *op, nn_argument argument, const nn_memory *memory)
{
    int id = argument_ids[argument];
    if (memory && api_takes(op, id)) attach(op, id, memory->handle);
}

int nn_op_wants_other_layout(const nn_op *op, nn_argument argument, const nn_memory *memory)
{
    return !dnnl_memory_desc_equal(engine_wanted_layout(op->descriptor, argument_ids[argument]), memory->layout);
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
    TW_TRY(engine_room());
    TW_TRY(engine_check(dnnl_primitive_execute(op->primitive, op->engine->stream, op->count, op->arguments),
                        "running an op"));
    return engine_check(dnnl_stream_wait(op->engine->stream), "running an op");
}

tw_status nn_op_reorder(const nn_memory *src, const nn_memory *dst, nn_op **op)
{
    nn_engine *e = src->engine;
    dnnl_primitive_desc_t descriptor = NULL;
    TW_TRY(engine_room());
    dnnl_status_t described =
        dnnl_reorder_primitive_desc_create(&descriptor, src->layout, e->engine, dst->layout, e->engine, e->plain);
    TW_TRY(engine_make_op(e, described, descriptor, "a change of layout", op));
    nn_op_set(*op, NN_SRC, src);
    nn_op_set(*op, NN_DST, dst);
    return TW_OK;
}
