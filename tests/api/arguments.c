/* Every pointer of every public function, NULL in turn: refused by name, answered as promised, or nothing happens. Then
 * the other wrong arguments, and structs whose struct_size is not what it should be. */
#include "rows.h"

#include <math.h>
#include <stdlib.h>
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_clusters.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_outer.h>
#include <thinwire/thinwire_plan.h>

enum { COUNT = 6 };
static const tw_tensor table[] = {{"w", 2, {2, 3}}};
static const size_t shape[] = {COUNT};
static float values[COUNT], gathered[COUNT];
static float *const buffers[] = {values};
static float *const holes[] = {NULL};
static const tw_range everything[] = {{0, COUNT}};
static const float *const starts[] = {values};
static const float *const gaps[] = {NULL};

/* One of everything, for a lone rank. */
static tw_comm *comm;
static tw_reducer *reducer;
static tw_gossip *gossip;
static tw_outer *outer;
static tw_clusters *clusters;
static tw_state *saved;
static tw_scheme *scheme;
static tw_world *world;

static int make_all(void **state)
{
    (void)state;
    const tw_world_options options = {.struct_size = sizeof options, .workers = 1};
    assert_int_equal(tw_comm_create_threads(1, &comm), TW_OK);
    assert_int_equal(tw_reducer_create(comm, "topk", table, 1, &reducer), TW_OK);
    assert_int_equal(tw_gossip_create(comm, "dpsgd", table, 1, starts, &gossip), TW_OK);
    assert_int_equal(tw_outer_create(comm, "local", table, 1, &outer), TW_OK);
    assert_int_equal(tw_outer_begin(outer, buffers), TW_OK);
    assert_int_equal(tw_clusters_create(comm, 0, COUNT, everything, 1, &clusters), TW_OK);
    assert_int_equal(tw_state_create(&saved), TW_OK);
    assert_int_equal(tw_state_put(saved, "t", TW_F32, 1, shape, values), TW_OK);
    assert_int_equal(tw_state_put_text(saved, "k", "v"), TW_OK);
    assert_int_equal(tw_scheme_create("topk", table, 1, 0, 1, &scheme), TW_OK);
    assert_int_equal(tw_world_create(&options, &world), TW_OK);
    return 0;
}

static int free_all(void **state)
{
    (void)state;
    tw_world_destroy(world);
    tw_scheme_destroy(scheme);
    tw_state_destroy(saved);
    tw_clusters_destroy(clusters);
    tw_outer_destroy(outer);
    tw_gossip_destroy(gossip);
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
    return 0;
}

static tw_status ignore(void *context, const tw_remembered *entry)
{
    (void)context, (void)entry;
    return TW_OK;
}

static tw_status no_state(void *context, int rank, const tw_state **state)
{
    (void)context, (void)rank, (void)state;
    return TW_ERROR_IO;
}

/* ---- NULL -------------------------------------------------------------------------------------------------------- */

static void test_comm(void **state)
{
    (void)state;
    tw_traffic traffic = {.struct_size = sizeof traffic};
    NEEDED(tw_comm_create_threads, comms, 1, NULL);
    NEEDED(tw_comm_open, name, NULL, &comm);
    NEEDED(tw_comm_open, comm, "mpi", NULL);
    NOTHING(tw_comm_destroy, comm, NULL);
    NOTHING(tw_comm_leave, comm, NULL);
    WITHOUT(tw_comm_rank, comm, tw_comm_rank(NULL) == 0);
    WITHOUT(tw_comm_size, comm, tw_comm_size(NULL) == 0);
    WITHOUT(tw_comm_transport, comm, strcmp(tw_comm_transport(NULL), "") == 0);
    NEEDED(tw_comm_traffic, comm, NULL, &traffic);
    NEEDED(tw_comm_traffic, traffic, comm, NULL);
    NEEDED(tw_comm_set_timeout, comm, NULL, 1);
    NEEDED(tw_comm_set_patience, comm, NULL, 1);
    NEEDED(tw_comm_barrier, comm, NULL);
    NEEDED(tw_comm_allreduce, comm, NULL, values, COUNT);
    NEEDED(tw_comm_allreduce, values, comm, NULL, COUNT);
    NEEDED(tw_comm_broadcast, comm, NULL, 0, values, sizeof values);
    NEEDED(tw_comm_broadcast, data, comm, 0, NULL, sizeof values);
    NEEDED(tw_comm_allgather, comm, NULL, values, sizeof values, gathered);
    NEEDED(tw_comm_allgather, data, comm, NULL, sizeof values, gathered);
    NEEDED(tw_comm_allgather, gathered, comm, values, sizeof values, NULL);
    assert_int_equal(tw_comm_allreduce(comm, NULL, 0), TW_OK); /* nothing needs no place */
    assert_int_equal(tw_comm_broadcast(comm, 0, NULL, 0), TW_OK);
    assert_int_equal(tw_comm_allgather(comm, NULL, 0, NULL), TW_OK);
}

static void test_reducer(void **state)
{
    (void)state;
    const tw_gradient gradient = {.struct_size = sizeof gradient, .data = values};
    const tw_gradient nowhere = {.struct_size = sizeof nowhere};
    int nesterov = 7, done = 7;
    tw_reducer *made = NULL;
    tw_reducer_counts stats = {.struct_size = sizeof stats};
    NEEDED(tw_reducer_create, comm, NULL, "topk", table, 1, &made);
    NEEDED(tw_reducer_create, spec, comm, NULL, table, 1, &made);
    NEEDED(tw_reducer_create, tensors, comm, "topk", NULL, 1, &made);
    NEEDED(tw_reducer_create, reducer, comm, "topk", table, 1, NULL);
    NOTHING(tw_reducer_destroy, reducer, NULL);
    NEEDED(tw_reducer_submit, reducer, NULL, 0, values);
    NEEDED(tw_reducer_submit, gradient, reducer, 0, NULL);
    NEEDED(tw_reducer_wait, reducer, NULL);
    NEEDED(tw_reducer_submit_with, reducer, NULL, 0, &gradient);
    NEEDED(tw_reducer_submit_with, gradient, reducer, 0, NULL);
    NEEDED(tw_reducer_submit_with, gradient, reducer, 0, &nowhere);
    NEEDED(tw_reducer_wait_for, reducer, NULL, 0, &done);
    NEEDED(tw_reducer_wait_for, done, reducer, 0, NULL);
    NEEDED(tw_reducer_wait_tensor, reducer, NULL, 0, 0, &done);
    NEEDED(tw_reducer_wait_tensor, done, reducer, 0, 0, NULL);
    NEEDED(tw_reducer_set_rate, reducer, NULL, 1);
    NEEDED(tw_reducer_set_rates, reducer, NULL, values);
    NEEDED(tw_reducer_set_rates, rates, reducer, NULL);
    NEEDED(tw_reducer_set_gradient_scale, reducer, NULL, 1);
    WITHOUT(tw_reducer_state_bytes, reducer, tw_reducer_state_bytes(NULL) == 0);
    WITHOUT(tw_reducer_momentum, reducer, tw_reducer_momentum(NULL, &nesterov) == 0 && nesterov == 0);
    WITHOUT(tw_reducer_momentum, nesterov, tw_reducer_momentum(reducer, NULL) == 0);
    NEEDED(tw_reducer_stats, reducer, NULL, &stats);
    NEEDED(tw_reducer_stats, stats, reducer, NULL);
    WITHOUT(tw_reducer_plan, reducer, strcmp(tw_reducer_plan(NULL, 0), "") == 0);
    NEEDED(tw_reducer_save_state, reducer, NULL, "", saved);
    NEEDED(tw_reducer_save_state, prefix, reducer, NULL, saved);
    NEEDED(tw_reducer_save_state, state, reducer, "", NULL);
    NEEDED(tw_reducer_load_state, reducer, NULL, "", saved);
    NEEDED(tw_reducer_load_state, prefix, reducer, NULL, saved);
    NEEDED(tw_reducer_load_state, state, reducer, "", NULL);
    NEEDED(tw_reducer_visit_state, reducer, NULL, ignore, NULL);
    NEEDED(tw_reducer_visit_state, visit, reducer, NULL, NULL);
    WITHOUT(tw_reducer_visit_state, context, tw_reducer_visit_state(reducer, ignore, NULL) == TW_OK);
    NEEDED(tw_reducer_regroup_state, spec, NULL, table, 1, 1, no_state, NULL, 0, 1, "", saved);
    NEEDED(tw_reducer_regroup_state, tensors, "topk", NULL, 1, 1, no_state, NULL, 0, 1, "", saved);
    NEEDED(tw_reducer_regroup_state, source, "topk", table, 1, 1, NULL, NULL, 0, 1, "", saved);
    WITHOUT(tw_reducer_regroup_state, context,
            tw_reducer_regroup_state("topk", table, 1, 1, no_state, NULL, 0, 1, "", saved) == TW_ERROR_IO);
    NEEDED(tw_reducer_regroup_state, prefix, "topk", table, 1, 1, no_state, NULL, 0, 1, NULL, saved);
    NEEDED(tw_reducer_regroup_state, state, "topk", table, 1, 1, no_state, NULL, 0, 1, "", NULL);
    assert_null(made);
}

static void test_gossip(void **state)
{
    (void)state;
    tw_gossip *made = NULL;
    tw_comm *survivors = NULL;
    tw_gossip_counts stats = {.struct_size = sizeof stats};
    NEEDED(tw_gossip_create, comm, NULL, "dpsgd", table, 1, starts, &made);
    NEEDED(tw_gossip_create, spec, comm, NULL, table, 1, starts, &made);
    NEEDED(tw_gossip_create, tensors, comm, "dpsgd", NULL, 1, starts, &made);
    NEEDED(tw_gossip_create, weights, comm, "dpsgd", table, 1, NULL, &made);
    NEEDED(tw_gossip_create, weights, comm, "dpsgd", table, 1, gaps, &made);
    NEEDED(tw_gossip_create, gossip, comm, "dpsgd", table, 1, starts, NULL);
    NOTHING(tw_gossip_destroy, gossip, NULL);
    NEEDED(tw_gossip_save_state, gossip, NULL, "", saved);
    NEEDED(tw_gossip_save_state, prefix, gossip, NULL, saved);
    NEEDED(tw_gossip_save_state, state, gossip, "", NULL);
    NEEDED(tw_gossip_load_state, gossip, NULL, "", saved);
    NEEDED(tw_gossip_load_state, prefix, gossip, NULL, saved);
    NEEDED(tw_gossip_load_state, state, gossip, "", NULL);
    NEEDED(tw_gossip_visit_state, gossip, NULL, ignore, NULL);
    NEEDED(tw_gossip_visit_state, visit, gossip, NULL, NULL);
    WITHOUT(tw_gossip_visit_state, context, tw_gossip_visit_state(gossip, ignore, NULL) == TW_OK);
    NEEDED(tw_gossip_regroup_state, spec, NULL, table, 1, 1, no_state, NULL, 0, 1, "", saved);
    NEEDED(tw_gossip_regroup_state, tensors, "dpsgd", NULL, 1, 1, no_state, NULL, 0, 1, "", saved);
    NEEDED(tw_gossip_regroup_state, source, "dpsgd", table, 1, 1, NULL, NULL, 0, 1, "", saved);
    WITHOUT(tw_gossip_regroup_state, context,
            tw_gossip_regroup_state("dpsgd", table, 1, 1, no_state, NULL, 0, 1, "", saved) == TW_ERROR_IO);
    NEEDED(tw_gossip_regroup_state, prefix, "dpsgd", table, 1, 1, no_state, NULL, 0, 1, NULL, saved);
    NEEDED(tw_gossip_regroup_state, state, "dpsgd", table, 1, 1, no_state, NULL, 0, 1, "", NULL);
    NEEDED(tw_gossip_read, gossip, NULL, buffers);
    NEEDED(tw_gossip_read, weights, gossip, NULL);
    NEEDED(tw_gossip_read, weights, gossip, holes);
    NEEDED(tw_gossip_step, gossip, NULL, buffers);
    NEEDED(tw_gossip_step, weights, gossip, NULL);
    NEEDED(tw_gossip_step, weights, gossip, holes);
    NEEDED(tw_gossip_add, gossip, NULL, starts);
    NEEDED(tw_gossip_add, steps, gossip, NULL);
    NEEDED(tw_gossip_add, steps, gossip, gaps);
    NEEDED(tw_gossip_finish, gossip, NULL, buffers);
    NEEDED(tw_gossip_finish, weights, gossip, NULL);
    NEEDED(tw_gossip_finish, weights, gossip, holes);
    NEEDED(tw_gossip_survivors, gossip, NULL, &survivors);
    NEEDED(tw_gossip_survivors, survivors, gossip, NULL);
    NEEDED(tw_gossip_stats, gossip, NULL, &stats);
    NEEDED(tw_gossip_stats, stats, gossip, NULL);
    NEEDED(tw_gossips_option, option, 0, 0, NULL);
    WITHOUT(tw_gossips_help, text, tw_gossips_help(0, NULL, 99) > 0 && tw_gossips_help(999, NULL, 99) == 0);
    assert_null(made);
}

static void test_outer(void **state)
{
    (void)state;
    tw_outer *made = NULL;
    tw_outer_event event;
    tw_outer_counts stats = {.struct_size = sizeof stats};
    NEEDED(tw_outer_create, comm, NULL, "local", table, 1, &made);
    NEEDED(tw_outer_create, spec, comm, NULL, table, 1, &made);
    NEEDED(tw_outer_create, tensors, comm, "local", NULL, 1, &made);
    NEEDED(tw_outer_create, outer, comm, "local", table, 1, NULL);
    NOTHING(tw_outer_destroy, outer, NULL);
    NEEDED(tw_outer_begin, outer, NULL, buffers);
    NEEDED(tw_outer_begin, weights, outer, NULL);
    NEEDED(tw_outer_begin, weights, outer, holes);
    NEEDED(tw_outer_step, outer, NULL, buffers, &event);
    NEEDED(tw_outer_step, weights, outer, NULL, &event);
    NEEDED(tw_outer_step, weights, outer, holes, &event);
    NEEDED(tw_outer_step, event, outer, buffers, NULL);
    NEEDED(tw_outer_set_weight, outer, NULL, 1);
    NEEDED(tw_outer_average, outer, NULL, buffers);
    NEEDED(tw_outer_average, gradients, outer, NULL);
    NEEDED(tw_outer_average, gradients, outer, holes);
    NEEDED(tw_outer_show_moments, outer, NULL, buffers, buffers);
    WITHOUT(tw_outer_show_moments, first, tw_outer_show_moments(outer, NULL, buffers) == TW_ERROR_ORDER);
    WITHOUT(tw_outer_show_moments, second, tw_outer_show_moments(outer, buffers, NULL) == TW_ERROR_ORDER);
    NEEDED(tw_outer_read, outer, NULL, buffers);
    NEEDED(tw_outer_read, shared, outer, NULL);
    NEEDED(tw_outer_read, shared, outer, holes);
    NEEDED(tw_outer_finish, outer, NULL, buffers);
    NEEDED(tw_outer_finish, weights, outer, NULL);
    NEEDED(tw_outer_finish, weights, outer, holes);
    WITHOUT(tw_outer_is_due, outer, tw_outer_is_due(NULL) == 0);
    WITHOUT(tw_outer_plan, outer, strcmp(tw_outer_plan(NULL, 0), "") == 0);
    NEEDED(tw_outer_stats, outer, NULL, &stats);
    NEEDED(tw_outer_stats, stats, outer, NULL);
    NEEDED(tw_outer_save_state, outer, NULL, "", saved);
    NEEDED(tw_outer_save_state, prefix, outer, NULL, saved);
    NEEDED(tw_outer_save_state, state, outer, "", NULL);
    NEEDED(tw_outer_load_state, outer, NULL, "", saved);
    NEEDED(tw_outer_load_state, prefix, outer, NULL, saved);
    NEEDED(tw_outer_load_state, state, outer, "", NULL);
    NEEDED(tw_outer_regroup_state, spec, NULL, table, 1, 1, no_state, NULL, 0, 1, "", saved);
    NEEDED(tw_outer_regroup_state, tensors, "local", NULL, 1, 1, no_state, NULL, 0, 1, "", saved);
    NEEDED(tw_outer_regroup_state, source, "local", table, 1, 1, NULL, NULL, 0, 1, "", saved);
    WITHOUT(tw_outer_regroup_state, context,
            tw_outer_regroup_state("local", table, 1, 1, no_state, NULL, 0, 1, "", saved) == TW_ERROR_IO);
    NEEDED(tw_outer_regroup_state, prefix, "local", table, 1, 1, no_state, NULL, 0, 1, NULL, saved);
    NEEDED(tw_outer_regroup_state, state, "local", table, 1, 1, no_state, NULL, 0, 1, "", NULL);
    NEEDED(tw_outers_option, option, 0, 0, NULL);
    WITHOUT(tw_outers_help, text, tw_outers_help(0, NULL, 99) > 0 && tw_outers_help(999, NULL, 99) == 0);
    assert_null(made);
}

static void test_clusters(void **state)
{
    (void)state;
    tw_clusters *made = NULL;
    NEEDED(tw_clusters_create, comm, NULL, 0, COUNT, everything, 1, &made);
    NEEDED(tw_clusters_create, ranges, comm, 0, COUNT, NULL, 1, &made);
    NEEDED(tw_clusters_create, clusters, comm, 0, COUNT, everything, 1, NULL);
    NOTHING(tw_clusters_destroy, clusters, NULL);
    NEEDED(tw_clusters_average, clusters, NULL, buffers);
    NEEDED(tw_clusters_average, values, clusters, NULL);
    NEEDED(tw_clusters_average, values, clusters, holes);
    assert_null(made);
}

static void test_state(void **state)
{
    (void)state;
    const char *value = NULL;
    tw_state_entry entry;
    tw_state *loaded = NULL;
    NEEDED(tw_state_create, state, NULL);
    NOTHING(tw_state_destroy, state, NULL);
    NEEDED(tw_state_put, state, NULL, "t", TW_F32, 1, shape, values);
    NEEDED(tw_state_put, name, saved, NULL, TW_F32, 1, shape, values);
    NEEDED(tw_state_put, shape, saved, "t", TW_F32, 1, NULL, values);
    NEEDED(tw_state_put, data, saved, "t", TW_F32, 1, shape, NULL);
    NEEDED(tw_state_get, state, NULL, "t", TW_F32, COUNT, values);
    NEEDED(tw_state_get, name, saved, NULL, TW_F32, COUNT, values);
    NEEDED(tw_state_get, data, saved, "t", TW_F32, COUNT, NULL);
    NEEDED(tw_state_put_text, state, NULL, "k", "v");
    NEEDED(tw_state_put_text, key, saved, NULL, "v");
    NEEDED(tw_state_put_text, value, saved, "k", NULL);
    WITHOUT(tw_state_text, state, !tw_state_text(NULL, "k"));
    WITHOUT(tw_state_text, key, !tw_state_text(saved, NULL));
    WITHOUT(tw_state_text_at, state, !tw_state_text_at(NULL, 0, &value) && !value);
    WITHOUT(tw_state_text_at, value, strcmp(tw_state_text_at(saved, 0, NULL), "k") == 0);
    WITHOUT(tw_state_count, state, tw_state_count(NULL) == 0);
    NEEDED(tw_state_at, state, NULL, 0, &entry);
    NEEDED(tw_state_at, entry, saved, 0, NULL);
    NEEDED(tw_state_save, state, NULL, "/nowhere/f");
    NEEDED(tw_state_save, path, saved, NULL);
    NEEDED(tw_state_load, path, NULL, &loaded);
    NEEDED(tw_state_load, state, "/nowhere/f", NULL);
    assert_null(loaded);
    assert_int_equal(tw_state_get(saved, "t", TW_F32, COUNT, values), TW_OK); /* it is still what it was */
    assert_string_equal(tw_state_text(saved, "k"), "v");
}

/* A step of a scheme of its own, to which no list of absent tensors was given. */
static int begin_with_all(void)
{
    tw_scheme *fresh;
    assert_int_equal(tw_scheme_create("allreduce", table, 1, 0, 1, &fresh), TW_OK);
    tw_status status = tw_scheme_begin_without(fresh, buffers, NULL, -1);
    tw_scheme_destroy(fresh);
    return status == TW_OK;
}

static void test_moments(void **state)
{
    (void)state;
    uint64_t steps;
    NEEDED(tw_reducer_state_of_moments, spec, NULL, table, 1, 1, starts, starts, 0, 1, "", saved);
    NEEDED(tw_reducer_state_of_moments, tensors, "dgc-adam", NULL, 1, 1, starts, starts, 0, 1, "", saved);
    NEEDED(tw_reducer_state_of_moments, first, "dgc-adam", table, 1, 1, NULL, starts, 0, 1, "", saved);
    NEEDED(tw_reducer_state_of_moments, first, "dgc-adam", table, 1, 1, gaps, starts, 0, 1, "", saved);
    NEEDED(tw_reducer_state_of_moments, second, "dgc-adam", table, 1, 1, starts, NULL, 0, 1, "", saved);
    NEEDED(tw_reducer_state_of_moments, second, "dgc-adam", table, 1, 1, starts, gaps, 0, 1, "", saved);
    NEEDED(tw_reducer_state_of_moments, prefix, "dgc-adam", table, 1, 1, starts, starts, 0, 1, NULL, saved);
    NEEDED(tw_reducer_state_of_moments, state, "dgc-adam", table, 1, 1, starts, starts, 0, 1, "", NULL);
    NEEDED(tw_reducer_moments_of_state, spec, NULL, table, 1, 1, no_state, NULL, "", &steps, buffers, buffers);
    NEEDED(tw_reducer_moments_of_state, tensors, "dgc-adam", NULL, 1, 1, no_state, NULL, "", &steps, buffers, buffers);
    NEEDED(tw_reducer_moments_of_state, source, "dgc-adam", table, 1, 1, NULL, NULL, "", &steps, buffers, buffers);
    WITHOUT(tw_reducer_moments_of_state, context,
            tw_reducer_moments_of_state("dgc-adam", table, 1, 1, no_state, NULL, "", &steps, buffers, buffers) ==
                TW_ERROR_IO);
    NEEDED(tw_reducer_moments_of_state, prefix, "dgc-adam", table, 1, 1, no_state, NULL, NULL, &steps, buffers,
           buffers);
    NEEDED(tw_reducer_moments_of_state, steps, "dgc-adam", table, 1, 1, no_state, NULL, "", NULL, buffers, buffers);
    NEEDED(tw_reducer_moments_of_state, first, "dgc-adam", table, 1, 1, no_state, NULL, "", &steps, NULL, buffers);
    NEEDED(tw_reducer_moments_of_state, first, "dgc-adam", table, 1, 1, no_state, NULL, "", &steps, holes, buffers);
    NEEDED(tw_reducer_moments_of_state, second, "dgc-adam", table, 1, 1, no_state, NULL, "", &steps, buffers, NULL);
    NEEDED(tw_reducer_moments_of_state, second, "dgc-adam", table, 1, 1, no_state, NULL, "", &steps, buffers, holes);
}

static void test_scheme(void **state)
{
    (void)state;
    static const unsigned char flags[1];
    int nesterov = 7;
    char text[64];
    tw_scheme *made = NULL;
    tw_round round = {0};
    tw_cost cost = {.struct_size = sizeof cost};
    WITHOUT(tw_tensor_count, tensor, tw_tensor_count(NULL) == 0);
    NEEDED(tw_scheme_create, spec, NULL, table, 1, 0, 1, &made);
    NEEDED(tw_scheme_create, tensors, "topk", NULL, 1, 0, 1, &made);
    NEEDED(tw_scheme_create, scheme, "topk", table, 1, 0, 1, NULL);
    NOTHING(tw_scheme_destroy, scheme, NULL);
    NEEDED(tw_scheme_set_rate, scheme, NULL, 1);
    NEEDED(tw_scheme_begin, scheme, NULL, buffers, -1);
    NEEDED(tw_scheme_begin, gradients, scheme, NULL, -1);
    NEEDED(tw_scheme_begin, gradients, scheme, holes, -1);
    NEEDED(tw_scheme_begin_without, scheme, NULL, buffers, flags, -1);
    NEEDED(tw_scheme_begin_without, gradients, scheme, NULL, flags, -1);
    NEEDED(tw_scheme_begin_without, gradients, scheme, holes, flags, -1);
    rows_answered("tw_scheme_begin_without", "absent", begin_with_all());
    NEEDED(tw_scheme_set_rates, scheme, NULL, values);
    NEEDED(tw_scheme_set_rates, rates, scheme, NULL);
    NEEDED(tw_scheme_set_gradient_scale, scheme, NULL, 1);
    WITHOUT(tw_scheme_momentum, scheme, tw_scheme_momentum(NULL, &nesterov) == 0 && nesterov == 0);
    WITHOUT(tw_scheme_momentum, nesterov, tw_scheme_momentum(scheme, NULL) == 0);
    WITHOUT(tw_scheme_plan, scheme, strcmp(tw_scheme_plan(NULL, 0), "") == 0);
    WITHOUT(tw_scheme_state_bytes, scheme, tw_scheme_state_bytes(NULL) == 0);
    NEEDED(tw_scheme_next, scheme, NULL, &round);
    NEEDED(tw_scheme_next, round, scheme, NULL);
    NEEDED(tw_scheme_revert, scheme, NULL);
    NEEDED(tw_scheme_save_state, scheme, NULL, "", saved);
    NEEDED(tw_scheme_save_state, prefix, scheme, NULL, saved);
    NEEDED(tw_scheme_save_state, state, scheme, "", NULL);
    NEEDED(tw_scheme_load_state, scheme, NULL, "", saved);
    NEEDED(tw_scheme_load_state, prefix, scheme, NULL, saved);
    NEEDED(tw_scheme_visit_state, scheme, NULL, ignore, NULL);
    NEEDED(tw_scheme_visit_state, visit, scheme, NULL, NULL);
    WITHOUT(tw_scheme_visit_state, context, tw_scheme_visit_state(scheme, ignore, NULL) == TW_OK);
    NEEDED(tw_scheme_load_state, state, scheme, "", NULL);
    WITHOUT(tw_scheme_clip, scheme, tw_scheme_clip(NULL) == 0);
    NEEDED(tw_scheme_cost, scheme, NULL, &cost);
    NEEDED(tw_scheme_cost, cost, scheme, NULL);
    NEEDED(tw_schemes_option, option, 0, 0, NULL);
    WITHOUT(tw_schemes_help, text, tw_schemes_help(0, NULL, 99) > 0 && tw_schemes_help(999, NULL, 99) == 0);
    WITHOUT(tw_spec_for_run, spec, tw_spec_for_run(NULL, 99, text, sizeof text) == 0 && *text == 0);
    WITHOUT(tw_spec_for_run, text, tw_spec_for_run("topk", 99, NULL, 99) == 4);
    assert_null(made);
}

static void no_worker(void *context, int rank, tw_comm *own)
{
    (void)context, (void)rank, (void)own;
}

static void test_world(void **state)
{
    (void)state;
    tw_world *made = NULL;
    const tw_world_options options = {.struct_size = sizeof options, .workers = 1};
    NEEDED(tw_world_create, options, NULL, &made);
    NEEDED(tw_world_create, world, &options, NULL);
    NOTHING(tw_world_destroy, world, NULL);
    NEEDED(tw_world_run, world, NULL, no_worker, NULL);
    NEEDED(tw_world_run, worker, world, NULL, NULL);
    WITHOUT(tw_world_seconds, world, tw_world_seconds(NULL) == 0);
    WITHOUT(tw_world_bytes, world, tw_world_bytes(NULL, 0) == 0);
    WITHOUT(tw_world_run, context, tw_world_run(world, no_worker, NULL) == TW_OK);
    assert_null(made);
}

static void destroy_nothing(void *self)
{
    (void)self;
}

static tw_status send_nothing(void *self, int peer, unsigned channel, const void *src, size_t size, uint32_t check,
                              void **request)
{
    (void)self, (void)peer, (void)channel, (void)src, (void)size, (void)check, (void)request;
    return TW_ERROR_PEER;
}

static tw_status receive_nothing(void *self, int peer, unsigned channel, void *dst, size_t capacity, void **request)
{
    (void)self, (void)peer, (void)channel, (void)dst, (void)capacity, (void)request;
    return TW_ERROR_PEER;
}

static tw_status wait_for_nothing(void *self, void *request, double timeout, size_t *size, uint32_t *check)
{
    (void)self, (void)request, (void)timeout, (void)size, (void)check;
    return TW_ERROR_PEER;
}

static int poll_nothing(void *self, void *request, double timeout)
{
    (void)self, (void)request, (void)timeout;
    return 1;
}

static void test_plan(void **state)
{
    (void)state;
    static const float noise[2 * COUNT + TW_NOISE_MARGIN];
    float written[COUNT];
    double middle[2] = {1, 1};
    tw_world_options line = {.struct_size = sizeof line};
    tw_phantom *phantom = NULL;
    tw_plan *plan = NULL;
    tw_watch *watch = NULL;
    const tw_plan_question question = {.struct_size = sizeof question,
                                       .tensors = table,
                                       .tensor_count = 1,
                                       .workers = 2,
                                       .steps = 1,
                                       .bandwidth = 1e6};
    tw_plan_row row = {.struct_size = sizeof row};
    NEEDED(tw_line_read, text, NULL, &line);
    NEEDED(tw_line_read, line, "1Gbit,1ms", NULL);
    WITHOUT(tw_line_text, line, tw_line_text(NULL, NULL, 0) == 0);
    WITHOUT(tw_line_text, text, tw_line_text(&line, NULL, 0) == strlen("0Mbit,0ms"));
    NEEDED(tw_plan_make, question, NULL, &plan);
    NEEDED(tw_plan_make, plan, &question, NULL);
    NOTHING(tw_plan_destroy, plan, NULL);
    WITHOUT(tw_plan_count, plan, tw_plan_count(NULL) == 0);
    assert_int_equal(tw_plan_make(&question, &plan), TW_OK);
    NEEDED(tw_plan_row_at, plan, NULL, 0, &row);
    NEEDED(tw_plan_row_at, row, plan, 0, NULL);
    assert_int_equal(tw_plan_row_at(plan, tw_plan_count(plan), &row), TW_ERROR_ARGUMENT);
    WITHOUT(tw_plan_choice, plan, tw_plan_choice(NULL) == 0);
    WITHOUT(tw_plan_why, plan, strcmp(tw_plan_why(NULL), "") == 0);
    WITHOUT(tw_plan_text, plan, tw_plan_text(NULL, NULL, 0) == 0);
    WITHOUT(tw_plan_text, text, tw_plan_text(plan, NULL, 0) > 0);
    tw_plan_destroy(plan);
    NEEDED(tw_plan_can_switch, spec, NULL);
    NEEDED(tw_reducer_hand_over, reducer, NULL, buffers);
    NEEDED(tw_reducer_hand_over, gradients, reducer, NULL);
    NEEDED(tw_watch_create, watch, 3, NULL);
    NOTHING(tw_watch_destroy, watch, NULL);
    assert_int_equal(tw_watch_create(3, &watch), TW_OK);
    WITHOUT(tw_watch_add, watch, tw_watch_add(NULL, 1, 1, middle) == 0);
    WITHOUT(tw_watch_add, middle, tw_watch_add(watch, 1, 1, NULL) == 0);
    WITHOUT(tw_watch_judge, watch, tw_watch_judge(NULL, middle, 1) == 1);
    WITHOUT(tw_watch_judge, middles, tw_watch_judge(watch, NULL, 1) == 1);
    tw_watch_destroy(watch);
    NEEDED(tw_phantom_noise, noise, NULL, COUNT, 1);
    assert_int_equal(tw_phantom_noise(written, COUNT, 1), TW_OK);
    NEEDED(tw_phantom_create, comm, NULL, "topk", table, 1, noise, 1, &phantom);
    NEEDED(tw_phantom_create, spec, comm, NULL, table, 1, noise, 1, &phantom);
    NEEDED(tw_phantom_create, tensors, comm, "topk", NULL, 1, noise, 1, &phantom);
    NEEDED(tw_phantom_create, noise, comm, "topk", table, 1, NULL, 1, &phantom);
    NEEDED(tw_phantom_create, phantom, comm, "topk", table, 1, noise, 1, NULL);
    NOTHING(tw_phantom_destroy, phantom, NULL);
    NEEDED(tw_phantom_step, phantom, NULL, 0, NULL, NULL);
    NEEDED(tw_phantom_finish, phantom, NULL, NULL);
    assert_int_equal(tw_phantom_create(comm, "topk", table, 1, noise, 1, &phantom), TW_OK);
    WITHOUT(tw_phantom_step, ready, tw_phantom_step(phantom, 0, NULL, &line) == TW_OK);
    WITHOUT(tw_phantom_step, context, tw_phantom_step(phantom, 1, NULL, NULL) == TW_OK);
    WITHOUT(tw_phantom_finish, distance, tw_phantom_finish(phantom, NULL) == TW_OK);
    tw_phantom_destroy(phantom);
    tw_phantom_pass(1, 0, 0);
}

static void test_plugin(void **state)
{
    (void)state;
    tw_comm *made = NULL;
    const tw_transport_ops ops = {.struct_size = sizeof(tw_transport_ops),
                                  .version = TW_TRANSPORT_VERSION,
                                  .name = "hollow",
                                  .start_send = send_nothing,
                                  .start_recv = receive_nothing,
                                  .wait = wait_for_nothing,
                                  .poll = poll_nothing,
                                  .destroy = destroy_nothing};
    NEEDED(tw_comm_create_custom, ops, NULL, NULL, 0, 1, &made);
    NEEDED(tw_comm_create_custom, comm, &ops, NULL, 0, 1, NULL);
    WITHOUT(tw_comm_create_custom, self, tw_comm_create_custom(&ops, NULL, 0, 1, &made) == TW_OK);
    tw_comm_destroy(made);
    tw_transport_ops lent = {.struct_size = sizeof lent};
    void *self;
    NEEDED(tw_comm_lend, comm, NULL, &lent, &self);
    NEEDED(tw_comm_lend, ops, comm, NULL, &self);
    NEEDED(tw_comm_lend, self, comm, &lent, NULL);
    WITHOUT(tw_comm_timeout, comm, tw_comm_timeout(NULL) == 0);
    WITHOUT(tw_comm_patience, comm, tw_comm_patience(NULL) == 0);
    const char *none = NULL;
    WITHOUT(tw_fail, format, tw_fail(TW_ERROR_IO, none) == TW_ERROR_IO);
    assert_string_equal(tw_last_error(), tw_status_sentence(TW_ERROR_IO));
    NOTHING(tw_log, format, TW_LOG_NOTE, none);
    WITHOUT(tw_crc32c, data, tw_crc32c(5, NULL, 0) == 5 && tw_crc32c(5, NULL, 9) == 0);
    NOTHING(tw_random, words, 1, 2, 3, NULL);
    NEEDED(tw_set_allocator, allocator, NULL);
    NOTHING(tw_set_log, log, NULL, &made);
    NOTHING(tw_set_log, context, NULL, NULL);
}

/* ---- indices and numbers ----------------------------------------------------------------------------------------- */

static void assert_refused(tw_status got, const char *says)
{
    assert_int_equal(got, TW_ERROR_ARGUMENT);
    if (!strstr(tw_last_error(), says)) fail_msg("\"%s\" does not say \"%s\"", tw_last_error(), says);
}

static void test_what_is_out_of_range(void **state)
{
    (void)state;
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
    assert_string_equal(tw_outer_plan(outer, 1), "");
    assert_int_equal(tw_schemes_floor_bytes(tw_schemes_count()), 0);
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
    assert_int_equal(ask_with(question, size, whole), TW_OK);
    for (size_t asked = sizeof(size_t); asked <= size + 64; asked += 8) {
        size_t kept;
        assert_int_equal(ask_with(question, asked, room), TW_OK);
        memcpy(&kept, room, sizeof kept);
        assert_int_equal(kept, asked);
        size_t known = asked < size ? asked : size;
        assert_memory_equal(room + sizeof kept, whole + sizeof kept, known - sizeof kept);
        for (size_t k = known; k < asked; k++) assert_int_equal(room[k], 0);
        for (size_t k = asked; k < sizeof room; k++) assert_int_equal(room[k], 0xA5);
    }
}

static void test_answers_of_any_size(void **state)
{
    (void)state;
    check_sizes(ask_reducer, sizeof(tw_reducer_counts));
    check_sizes(ask_gossip, sizeof(tw_gossip_counts));
    check_sizes(ask_outer, sizeof(tw_outer_counts));
    check_sizes(ask_scheme, sizeof(tw_cost));
    check_sizes(ask_comm, sizeof(tw_traffic));
    check_sizes(ask_transport, sizeof(tw_transport_ops));
    check_sizes(ask_option, sizeof(tw_option_info));
}

/* Of options that the caller does not know the library takes what 0 means. */
static void test_options_of_any_size(void **state)
{
    (void)state;
    struct {
        tw_world_options known;
        double later[4];
    } given = {.known = {.workers = 2, .bandwidth = 1e9}};
    static const size_t sizes[] = {offsetof(tw_world_options, latency), sizeof(tw_world_options), sizeof given};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tw_world *made;
        given.known.struct_size = sizes[i];
        assert_int_equal(tw_world_create(&given.known, &made), TW_OK);
        assert_int_equal(tw_world_run(made, no_worker, NULL), TW_OK);
        tw_world_destroy(made);
    }
    for (size_t size = 0; size <= sizeof(size_t); size++) {
        tw_world *made = NULL;
        given.known.struct_size = size;
        assert_refused(tw_world_create(&given.known, &made), size < sizeof(size_t) ? "struct_size" : "0 workers");
        assert_null(made);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_comm, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_reducer, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_gossip, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_outer, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_clusters, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_state, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_moments, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_scheme, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_world, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_plan, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_plugin, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_what_is_out_of_range, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_answers_of_any_size, make_all, free_all),
        cmocka_unit_test_setup_teardown(test_options_of_any_size, make_all, free_all),
    };
    return rows_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
