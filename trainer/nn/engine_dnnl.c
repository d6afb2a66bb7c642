/* engine_dnnl.c - engine.h on oneDNN: engines. */
#include "engine_dnnl.h"

#include <stdio.h>
#include <stdlib.h>

/* oneDNN runs on GCC's OpenMP, whichever compiler is at work here; the compiler's own omp.h might be another's. */
void omp_set_num_threads(int count);

static tw_status make_attributes(nn_engine *e)
{
    dnnl_post_ops_t after;
    TW_TRY(engine_check(dnnl_primitive_attr_create(&e->plain), "attributes"));
    TW_TRY(engine_check(dnnl_primitive_attr_create(&e->relu), "attributes"));
    TW_TRY(engine_check(dnnl_primitive_attr_set_scratchpad_mode(e->plain, dnnl_scratchpad_mode_user), "attributes"));
    TW_TRY(engine_check(dnnl_primitive_attr_set_scratchpad_mode(e->relu, dnnl_scratchpad_mode_user), "attributes"));
    TW_TRY(engine_check(dnnl_post_ops_create(&after), "attributes"));
    dnnl_status_t status = api_append_relu(after);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(e->relu, after);
    dnnl_post_ops_destroy(after);
    return engine_check(status, "attributes");
}

static tw_status check_precision(const nn_engine *e)
{
    int native;
    char implementation[64];
    if (e->precision == NN_FP32) return TW_OK;
    TW_TRY(engine_find_bf16(e, &native, implementation, sizeof implementation));
    if (native) return TW_OK;
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "bf16 needs a processor with AVX512_BF16 or AMX; for this one oneDNN has %s%s; compute in fp32",
                   *implementation ? "only " : "nothing", implementation);
}

static tw_status open_engine(nn_engine *e)
{
    TW_TRY(engine_room());
    TW_TRY(engine_check(dnnl_engine_create(&e->engine, dnnl_cpu, 0), "an engine"));
    TW_TRY(check_precision(e));
    TW_TRY(engine_check(dnnl_stream_create(&e->stream, e->engine, dnnl_stream_default_flags), "a stream"));
    return make_attributes(e);
}

tw_status nn_engine_create(nn_precision precision, nn_engine **engine)
{
    nn_engine *e = calloc(1, sizeof *e);
    if (!e) return tw_fail(TW_ERROR_MEMORY, "no memory for an engine");
    e->precision = precision;
    engine_room_count(1);
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
    engine_forget_products(e);
    destroy_ops(e->ops);
    destroy_memories(e->memories);
    if (e->plain) dnnl_primitive_attr_destroy(e->plain);
    if (e->relu) dnnl_primitive_attr_destroy(e->relu);
    if (e->stream) dnnl_stream_destroy(e->stream);
    if (e->engine) dnnl_engine_destroy(e->engine);
    engine_room_count(-1);
    free(e);
}

tw_status nn_find_bf16(int *native, char *implementation, size_t capacity)
{
    nn_engine *e = NULL;
    TW_TRY(nn_engine_create(NN_FP32, &e));
    tw_status status = engine_find_bf16(e, native, implementation, capacity);
    nn_engine_destroy(e);
    return status;
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
            TW_TRY(engine_check(dnnl_memory_set_data_handle(m->handle, (char *)bytes + m->offset), "placing an array"));
    e->bound[region] = bytes;
    return TW_OK;
}

void *nn_engine_bound(const nn_engine *e, nn_region region)
{
    return e->bound[region];
}
