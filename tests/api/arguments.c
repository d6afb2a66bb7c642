/* Arguments that cannot be, and structs whose struct_size is not what it should be. (That no pointer may be NULL is
 * smoke.py's.) */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_outer.h>
#include <thinwire/thinwire_plan.h>
#include <thinwire/thinwire_plugin.h>
#include <thinwire/thinwire_scheme.h>

#include "support/assert.h"

enum { COUNT = 6 };
static const tw_tensor table[] = {{"w", 2, {2, 3}}};
static const size_t shape[] = {COUNT};
static float values[COUNT];
static float *const buffers[] = {values};
static const float *const starts[] = {values};

/* One of everything, for a lone rank. */
static tw_comm *comm;
static tw_reducer *reducer;
static tw_gossip *gossip;
static tw_outer *outer;
static tw_state *saved;
static tw_scheme *scheme;
static tw_world *world;

static int make_all(void **state)
{
    const tw_world_options options = {.struct_size = sizeof options, .workers = 1};
    assert_ok(tw_comm_create_threads(1, &comm));
    assert_ok(tw_reducer_create(comm, "topk", table, 1, &reducer));
    assert_ok(tw_gossip_create(comm, "dpsgd", table, 1, starts, &gossip));
    assert_ok(tw_outer_create(comm, "local", table, 1, &outer));
    assert_ok(tw_outer_begin(outer, buffers));
    assert_ok(tw_state_create(&saved));
    assert_ok(tw_state_put(saved, "t", TW_F32, 1, shape, values));
    assert_ok(tw_state_put_text(saved, "k", "v"));
    assert_ok(tw_scheme_create("topk", table, 1, 0, 1, &scheme));
    assert_ok(tw_world_create(&options, &world));
    return 0;
}

static int free_all(void **state)
{
    tw_world_destroy(world);
    tw_scheme_destroy(scheme);
    tw_state_destroy(saved);
    tw_outer_destroy(outer);
    tw_gossip_destroy(gossip);
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
    return 0;
}

static void no_worker(void *context, int rank, tw_comm *own)
{
    (void)context, (void)rank, (void)own;
}

/* ---- indices and numbers ----------------------------------------------------------------------------------------- */

#define assert_refused(call, says) assert_fails(call, TW_ERROR_ARGUMENT, says)

TEST(test_what_is_out_of_range)
{
    tw_comm *group[2] = {NULL};
    tw_scheme *made = NULL;
    tw_state_entry entry;
    tw_world *other = NULL;
    const char *value = NULL;
    tw_world_options many = {.struct_size = sizeof many, .workers = 16385};
    static const int sizes[] = {0, -1, 16385};
    static const double seconds[] = {0, -1, NAN, INFINITY};
    static const float no_rate = -1;
    tw_gradient odd = {.struct_size = sizeof odd, .data = values, .dtype = TW_I32};
    int done = 7;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_refused(tw_comm_create_threads(sizes[i], group), "1 to 16384");
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
        assert_refused(tw_comm_set_timeout(comm, seconds[i]), "timeout");
    for (size_t i = 1; i < sizeof seconds / sizeof *seconds; i++)
        assert_refused(tw_comm_set_patience(comm, seconds[i]), "patience");
    assert_refused(tw_comm_open("../../lib", group), "../../lib");
    assert_refused(tw_comm_broadcast(comm, 1, values, 4), "root 1");
    assert_refused(tw_comm_broadcast(comm, -1, values, 4), "root -1");
    assert_refused(tw_comm_broadcast_packed(comm, 1, values, 1, 4), "root 1");
    assert_refused(tw_comm_broadcast_packed(comm, -1, values, 1, 4), "root -1");
    assert_refused(tw_comm_broadcast_packed(comm, 0, values, 1, 0), "numbers of 0 bytes; want 1 to 8");
    assert_refused(tw_comm_broadcast_packed(comm, 0, values, 1, 9), "numbers of 9 bytes; want 1 to 8");
    assert_refused(tw_comm_broadcast_packed(comm, 0, values, SIZE_MAX / 2, 4), "count");
    assert_refused(tw_comm_allreduce(comm, values, SIZE_MAX), "count");
    assert_refused(tw_comm_allgather(comm, values, sizeof values, values), "overlaps");
    assert_refused(tw_reducer_submit(reducer, 1, values), "tensor 1");
    assert_refused(tw_reducer_submit(reducer, SIZE_MAX, values), "tensor");
    assert_refused(tw_reducer_submit_with(reducer, 1, &odd), "tensor 1");
    assert_refused(tw_reducer_submit_with(reducer, 0, &odd), "dtype 2");
    odd.dtype = TW_F32;
    odd.struct_size = 0;
    assert_refused(tw_reducer_submit_with(reducer, 0, &odd), "sizeof(tw_gradient)");
    odd.struct_size = sizeof odd;
    odd.stream = &odd;
    assert_int_equal(tw_reducer_submit_with(reducer, 0, &odd), TW_ERROR_UNSUPPORTED);
    odd.stream = NULL;
    odd.memory = (tw_memory_kind)1;
    assert_int_equal(tw_reducer_submit_with(reducer, 0, &odd), TW_ERROR_UNSUPPORTED);
    assert_non_null(strstr(tw_last_error(), "host memory"));
    assert_refused(tw_reducer_wait_for(reducer, -1, &done), "-1 seconds");
    assert_refused(tw_reducer_wait_for(reducer, NAN, &done), "nan");
    assert_refused(tw_reducer_wait_tensor(reducer, 1, 0, &done), "tensor 1");
    assert_refused(tw_reducer_set_rate(reducer, -1), "-1");
    assert_refused(tw_reducer_set_rate(reducer, NAN), "nan");
    assert_refused(tw_reducer_set_rates(reducer, &no_rate), "-1");
    assert_refused(tw_reducer_set_gradient_scale(reducer, 0), "multiplied by 0");
    assert_refused(tw_reducer_set_gradient_scale(reducer, NAN), "1e-06 to 1e+30");
    assert_refused(tw_scheme_set_rates(scheme, &no_rate), "-1");
    assert_refused(tw_scheme_set_gradient_scale(scheme, INFINITY), "inf");
    assert_string_equal(tw_scheme_plan(scheme, 1), "");
    assert_refused(tw_scheme_create("topk", table, 0, 0, 1, &made), "empty");
    assert_refused(tw_scheme_create("topk", table, 1, 1, 1, &made), "rank 1 of 1");
    assert_refused(tw_scheme_create("topk", table, 1, -1, 1, &made), "rank -1");
    assert_refused(tw_scheme_create("topk", table, 1, 0, 16385, &made), "16384");
    assert_refused(tw_state_at(saved, 1, &entry), "number 1");
    assert_refused(tw_state_put(saved, "t", (tw_dtype)99, 1, shape, values), "99");
    assert_refused(tw_state_put(saved, "t", TW_F32, TW_MAX_DIMS + 1, shape, values), "9 dimensions");
    assert_refused(tw_world_create(&many, &other), "16385");
    assert_null(tw_state_text_at(saved, 1, &value));
    assert_string_equal(tw_reducer_plan(reducer, 1), "");
    assert_null(tw_schemes_name(tw_schemes_count()));
    assert_null(tw_schemes_summary(SIZE_MAX));
    assert_null(tw_gossips_name(tw_gossips_count()));
    assert_null(tw_gossips_summary(SIZE_MAX));
    assert_null(tw_outers_name(tw_outers_count()));
    assert_null(tw_outers_summary(SIZE_MAX));
    assert_refused(tw_outer_set_weight(outer, -1), "-1");
    assert_refused(tw_outer_set_weight(outer, NAN), "nan");
    assert_refused(tw_outer_set_weight(outer, 1e-10), "1e-10");
    assert_refused(tw_outer_set_weight(outer, 1e10), "1e+10");
    assert_string_equal(tw_outer_plan(outer, 1), "");
    assert_int_equal(tw_spec_floor_bytes("nonsense"), 0);
    assert_int_equal(tw_spec_floor_bytes("topk:nonsense=1"), 0);
    assert_int_equal(tw_gossips_is_synchronous(tw_gossips_count()), 0);
    assert_true(tw_world_bytes(world, 1) == 0 && tw_world_bytes(world, -1) == 0);
    assert_string_equal(tw_status_name((tw_status)99), "TW_UNKNOWN");
    tw_world_compute(NAN);
    tw_world_kill();
}

/* ---- struct_size ------------------------------------------------------------------------------------------------- */

typedef tw_status (*ask)(void *answer);

static tw_status ask_reducer(void *answer)
{
    return tw_reducer_stats(reducer, answer);
}

static tw_status ask_gossip(void *answer)
{
    return tw_gossip_stats(gossip, answer);
}

static tw_status ask_outer(void *answer)
{
    return tw_outer_stats(outer, answer);
}

static tw_status ask_scheme(void *answer)
{
    return tw_scheme_cost(scheme, answer);
}

static tw_status ask_comm(void *answer)
{
    return tw_comm_traffic(comm, answer);
}

static tw_status ask_transport(void *answer)
{
    void *self;
    return tw_comm_lend(comm, answer, &self);
}

static tw_status ask_option(void *answer)
{
    return tw_schemes_option(0, 0, answer);
}

static tw_status ask_with(ask question, size_t size, unsigned char room[512])
{
    memset(room, 0xA5, 512);
    memcpy(room, &size, sizeof size);
    return question(room);
}

/* Of a smaller struct only as much is written as it has; of a larger one the rest becomes zero; 0, and sizes too small
 * for themselves or left to chance, are refused with nothing written. */
static void check_sizes(ask question, size_t size)
{
    static const size_t wrong[] = {0, 1, sizeof(size_t) - 1, sizeof(size_t) + 1, 1032, 4097, (size_t)1 << 20, SIZE_MAX};
    unsigned char room[512], whole[512];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_refused(ask_with(question, wrong[i], room), "struct_size");
        for (size_t k = sizeof(size_t); k < sizeof room; k++) assert_int_equal(room[k], 0xA5);
    }
    assert_ok(ask_with(question, size, whole));
    for (size_t asked = sizeof(size_t); asked <= size + 64; asked += 8) {
        size_t kept;
        assert_ok(ask_with(question, asked, room));
        memcpy(&kept, room, sizeof kept);
        assert_int_equal(kept, asked);
        size_t known = asked < size ? asked : size;
        assert_memory_equal(room + sizeof kept, whole + sizeof kept, known - sizeof kept);
        for (size_t k = known; k < asked; k++) assert_int_equal(room[k], 0);
        for (size_t k = asked; k < sizeof room; k++) assert_int_equal(room[k], 0xA5);
    }
}

TEST(test_answers_of_any_size)
{
    check_sizes(ask_reducer, sizeof(tw_reducer_counts));
    check_sizes(ask_gossip, sizeof(tw_gossip_counts));
    check_sizes(ask_outer, sizeof(tw_outer_counts));
    check_sizes(ask_scheme, sizeof(tw_cost));
    check_sizes(ask_comm, sizeof(tw_traffic));
    check_sizes(ask_transport, sizeof(tw_transport_ops));
    check_sizes(ask_option, sizeof(tw_option_info));
}

/* Of options that the caller does not know the library takes what 0 means. */
TEST(test_options_of_any_size)
{
    struct {
        tw_world_options known;
        double later[4];
    } given = {.known = {.workers = 2, .bandwidth = 1e9}};
    static const size_t sizes[] = {offsetof(tw_world_options, latency), sizeof(tw_world_options), sizeof given};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tw_world *made;
        given.known.struct_size = sizes[i];
        assert_ok(tw_world_create(&given.known, &made));
        assert_ok(tw_world_run(made, no_worker, NULL));
        tw_world_destroy(made);
    }
    for (size_t size = 0; size <= sizeof(size_t); size++) {
        tw_world *made = NULL;
        given.known.struct_size = size;
        assert_refused(tw_world_create(&given.known, &made), size < sizeof(size_t) ? "struct_size" : "0 workers");
        assert_null(made);
    }
}

/* ---- of a scheme from outside ------------------------------------------------------------------------------------ */

/* Of a scheme of the library's own, whose inside is nobody's: it answers what any scheme does. */
TEST(test_what_a_scheme_may_ask)
{
    tw_scheme *other;
    size_t sides[TW_MAX_DIMS] = {9, 9, 9};
    uint32_t index[COUNT];
    tw_walk *walk = (tw_walk *)values; /* nobody comes to look at it */
    static const char *const taken[] = {"residual", "rounding", "section", "scheme"};
    assert_ok(tw_scheme_create("topk:min_elements=1", table, 1, 2, 3, &other));
    assert_true(tw_scheme_rank(other) == 2 && tw_scheme_size(other) == 3 && tw_scheme_tensors(other) == 1);
    assert_true(tw_scheme_elements(other, 0) == COUNT && tw_scheme_elements(other, 1) == 0);
    assert_true(tw_scheme_step(other) == 0 && !tw_scheme_gradient(other, 0) && !tw_scheme_is_absent(other, 9));
    assert_string_equal(tw_scheme_tensor_name(other, 0), "w");
    assert_string_equal(tw_scheme_tensor_name(other, 1), "");
    assert_true(tw_scheme_shape(NULL, 0, sides) == 0 && sides[0] == 9);
    assert_true(tw_scheme_shape(other, 1, sides) == 0 && tw_scheme_shape(other, 0, NULL) == 2);
    assert_int_equal(tw_scheme_shape(other, 0, sides), 2);
    assert_true(sides[0] == 2 && sides[1] == 3 && sides[2] == 0);
    assert_true(tw_scheme_is_compressed(other, 0) && !tw_scheme_is_compressed(other, 1));
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        assert_refused(tw_walk_visit(walk, taken[i], "w", TW_STATE_ADDS, TW_F32, COUNT, values), taken[i]);
    assert_int_equal(tw_scheme_choose_largest(other, 0, values, 1, 0, index, values), 0); /* outside of choose */
    tw_scheme_destroy(other);
}

RUN_TESTS(make_all, free_all)
