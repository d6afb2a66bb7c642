#ifndef THINWIRE_H
#define THINWIRE_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#define TW_API __attribute__((visibility("default")))
#else
#define TW_API
#endif
#define TW_VERSION_MAJOR 0
#define TW_VERSION_MINOR 1
#define TW_VERSION_PATCH 0
TW_API const char *tw_version(void);
TW_API const char *tw_isa(void);
TW_API const char *tw_isa_levels(void);
#define TW_STATUS_MAP(X)                                                                                               \
    X(TW_OK, 0, "success")                                                                                             \
    X(TW_ERROR_ARGUMENT, 1, "an argument is out of range or does not fit the object")                                  \
    X(TW_ERROR_SPEC, 2, "a spec string names an unknown scheme or option, or a value out of range")                    \
    X(TW_ERROR_MEMORY, 3, "memory could not be allocated")                                                             \
    X(TW_ERROR_IO, 4, "a file could not be read or written")                                                           \
    X(TW_ERROR_FORMAT, 5, "a file is not what it should be")                                                           \
    X(TW_ERROR_PACKET, 6, "a packet from a peer is damaged or not of this step")                                       \
    X(TW_ERROR_PEER, 7, "a peer is gone or did not answer within the deadline")                                        \
    X(TW_ERROR_NONFINITE, 8, "the weights hold NaN or infinity and cannot be averaged any more")                       \
    X(TW_ERROR_STATE, 9, "saved state does not fit this object")                                                       \
    X(TW_ERROR_UNSUPPORTED, 10, "this build, machine or scheme cannot do that")                                        \
    X(TW_ERROR_SYSTEM, 11, "the operating system refused a thread, a library or a resource")                           \
    X(TW_ERROR_ORDER, 12, "the calls came in an order the object does not allow")                                      \
    X(TW_SKIPPED, 13, "the step held NaN or infinity and was skipped; the next one may proceed")
typedef enum tw_status {
#define TW_STATUS_ENUM(name, value, sentence) name = value,
    TW_STATUS_MAP(TW_STATUS_ENUM)
#undef TW_STATUS_ENUM
} tw_status;
TW_API const char *tw_status_name(tw_status status);
TW_API const char *tw_status_sentence(tw_status status);
TW_API int tw_status_is_error(tw_status status);
TW_API const char *tw_last_error(void);
typedef struct tw_comm tw_comm;
TW_API tw_status tw_comm_create_threads(int size, tw_comm **comms);
TW_API tw_status tw_comm_open(const char *name, tw_comm **comm);
TW_API void tw_comm_destroy(tw_comm *comm);
TW_API void tw_comm_leave(tw_comm *comm);
TW_API int tw_comm_rank(const tw_comm *comm);
TW_API int tw_comm_size(const tw_comm *comm);
TW_API const char *tw_comm_transport(const tw_comm *comm);
TW_API tw_status tw_comm_set_timeout(tw_comm *comm, double seconds);
TW_API tw_status tw_comm_set_patience(tw_comm *comm, double seconds);
TW_API tw_status tw_comm_barrier(tw_comm *comm);
TW_API tw_status tw_comm_allreduce(tw_comm *comm, float *values, size_t count);
TW_API tw_status tw_comm_broadcast(tw_comm *comm, int root, void *data, size_t size);
TW_API tw_status tw_comm_allgather(tw_comm *comm, const void *data, size_t size, void *gathered);
typedef struct tw_traffic {
    size_t struct_size;
    uint64_t bytes_sent, bytes_received;
    uint64_t messages_sent, messages_received;
} tw_traffic;
TW_API tw_status tw_comm_traffic(const tw_comm *comm, tw_traffic *traffic);
#define TW_MAX_DIMS 8
typedef struct tw_tensor {
    const char *name;
    size_t dims;
    size_t shape[TW_MAX_DIMS];
    const void *reserved[2];
} tw_tensor;
typedef enum tw_dtype {
    TW_F32 = 0,
    TW_F64 = 1,
    TW_I32 = 2,
    TW_I64 = 3,
    TW_U8 = 4,
    TW_U32 = 5,
    TW_U64 = 6,
    TW_F16 = 7,
    TW_BF16 = 8
} tw_dtype;
typedef enum tw_memory_kind { TW_MEMORY_HOST = 0 } tw_memory_kind;
TW_API size_t tw_tensor_count(const tw_tensor *tensor);
typedef enum tw_option_kind {
    TW_OPTION_REAL = 0,
    TW_OPTION_INTEGER = 1,
    TW_OPTION_SWITCH = 2,
    TW_OPTION_CHOICE = 3,
    TW_OPTION_TEXT = 4
} tw_option_kind;
typedef struct tw_option_info {
    size_t struct_size;
    const char *name;
    tw_option_kind kind;
    int common;
    const char *fallback;
    double least, most;
    const char *choices;
    const char *help;
} tw_option_info;
typedef struct tw_reducer tw_reducer;
TW_API tw_status tw_reducer_create(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count,
                                   tw_reducer **reducer);
TW_API void tw_reducer_destroy(tw_reducer *reducer);
TW_API tw_status tw_reducer_submit(tw_reducer *reducer, size_t index, float *gradient);
typedef struct tw_gradient {
    size_t struct_size;
    void *data;
    tw_dtype dtype;
    tw_memory_kind memory;
    void *stream;
    int absent;
    int (*ready)(void *context);
    void *context;
} tw_gradient;
TW_API tw_status tw_reducer_submit_with(tw_reducer *reducer, size_t index, const tw_gradient *gradient);
TW_API tw_status tw_reducer_wait(tw_reducer *reducer);
TW_API tw_status tw_reducer_wait_for(tw_reducer *reducer, double seconds, int *done);
TW_API tw_status tw_reducer_wait_tensor(tw_reducer *reducer, size_t index, double seconds, int *done);
TW_API tw_status tw_reducer_set_rate(tw_reducer *reducer, float rate);
TW_API tw_status tw_reducer_set_rates(tw_reducer *reducer, const float *rates);
TW_API tw_status tw_reducer_set_gradient_scale(tw_reducer *reducer, double scale);
TW_API float tw_reducer_momentum(const tw_reducer *reducer, int *nesterov);
typedef struct tw_reducer_counts {
    size_t struct_size;
    uint64_t steps;
    uint64_t steps_skipped;
    uint64_t steps_warmup;
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t bytes_dense;
    uint64_t elements_sent;
    uint64_t elements_total;
    uint64_t compressed_fp32;
    uint64_t compressed_packet;
    uint64_t message_fp32;
    uint64_t message_packet;
    double seconds_codec;
    double seconds_exchange;
    double seconds_wait;
    uint64_t bytes_between;
} tw_reducer_counts;
TW_API tw_status tw_reducer_stats(const tw_reducer *reducer, tw_reducer_counts *stats);
TW_API const char *tw_reducer_plan(const tw_reducer *reducer, size_t index);
TW_API uint64_t tw_reducer_state_bytes(const tw_reducer *reducer);
typedef struct tw_state tw_state;
TW_API tw_status tw_state_create(tw_state **state);
TW_API void tw_state_destroy(tw_state *state);
TW_API tw_status tw_state_put(tw_state *state, const char *name, tw_dtype dtype, size_t dims, const size_t *shape,
                              const void *data);
TW_API tw_status tw_state_get(const tw_state *state, const char *name, tw_dtype dtype, size_t count, void *data);
TW_API tw_status tw_state_put_text(tw_state *state, const char *key, const char *value);
TW_API const char *tw_state_text(const tw_state *state, const char *key);
TW_API const char *tw_state_text_at(const tw_state *state, size_t index, const char **value);
typedef struct tw_state_entry {
    const char *name;
    tw_dtype dtype;
    size_t dims;
    const size_t *shape;
    const void *data;
    size_t bytes;
    const void *reserved[2];
} tw_state_entry;
TW_API size_t tw_state_count(const tw_state *state);
TW_API tw_status tw_state_at(const tw_state *state, size_t index, tw_state_entry *entry);
typedef enum tw_state_kind {
    TW_STATE_ADDS = 0,
    TW_STATE_SAME = 1,
    TW_STATE_OWN = 2,
    TW_STATE_AVERAGES = 3
} tw_state_kind;
typedef struct tw_remembered {
    const char *what;
    const char *tensor;
    tw_state_kind kind;
    tw_dtype dtype;
    size_t count;
    void *data;
    const char *joins;
    int is_piece;
    size_t first;
    int is_rounding;
    const void *reserved[2];
} tw_remembered;
TW_API tw_status tw_state_save(const tw_state *state, const char *path);
TW_API tw_status tw_state_load(const char *path, tw_state **state);
TW_API tw_status tw_reducer_save_state(tw_reducer *reducer, const char *prefix, tw_state *state);
TW_API tw_status tw_reducer_load_state(tw_reducer *reducer, const char *prefix, const tw_state *state);
typedef tw_status (*tw_state_visit)(void *context, const tw_remembered *entry);
TW_API tw_status tw_reducer_visit_state(tw_reducer *reducer, tw_state_visit visit, void *context);
TW_API tw_status tw_reducer_fill_state(tw_reducer *reducer, tw_state_visit fill, void *context);
typedef tw_status (*tw_state_source)(void *context, int rank, const tw_state **state);
TW_API tw_status tw_reducer_regroup_state(const char *spec, const tw_tensor *tensors, size_t count, int old_size,
                                          tw_state_source source, void *context, int rank, int size, const char *prefix,
                                          tw_state *state);
TW_API size_t tw_schemes_count(void);
TW_API const char *tw_schemes_name(size_t index);
TW_API int tw_schemes_find(const char *spec, size_t *index);
TW_API const char *tw_schemes_summary(size_t index);
TW_API int tw_schemes_is_experimental(size_t index);
TW_API size_t tw_schemes_option_count(size_t index);
TW_API tw_status tw_schemes_option(size_t index, size_t number, tw_option_info *option);
TW_API size_t tw_schemes_help(size_t index, char *text, size_t capacity);
TW_API size_t tw_spec_for_run(const char *spec, uint64_t steps, char *text, size_t capacity);
typedef struct tw_allocator {
    size_t struct_size;
    void *context;
    void *(*allocate)(void *context, size_t alignment, size_t bytes);
    void (*release)(void *context, void *block);
} tw_allocator;
TW_API tw_status tw_set_allocator(const tw_allocator *allocator);
typedef enum tw_log_level { TW_LOG_NOTE = 0, TW_LOG_WARNING = 1 } tw_log_level;
typedef void (*tw_log_fn)(void *context, tw_log_level level, const char *text);
TW_API void tw_set_log(tw_log_fn log, void *context);
#ifdef __cplusplus
}
#endif
#endif
