/* tw_world: many workers in one process, under a clock of their own. */
#include "world.h"

#include "error.h"
#include "memory.h"
#include "sized.h"

#include <math.h>
#include <stddef.h>

enum { MOST_WORKERS = 16384 };
#define DEFAULT_STACK ((size_t)1 << 20)
#define LEAST_STACK ((size_t)64 << 10)

static int is_span(double value)
{
    return value >= 0 && value <= 1e15;
}

static tw_status check_options(const tw_world_options *options)
{
    if (options->workers < 1 || options->workers > MOST_WORKERS)
        return tw_fail(TW_ERROR_ARGUMENT, "a world of %d workers: want 1 to %d", options->workers, MOST_WORKERS);
    if (options->workers_per_host < 1)
        return tw_fail(TW_ERROR_ARGUMENT, "workers_per_host is %d: want 1 or more", options->workers_per_host);
    if (!is_span(options->bandwidth) || !is_span(options->bandwidth_down) || !is_span(options->latency) ||
        !is_span(options->overhead) || !is_span(options->time_limit) || !is_span(options->element_seconds) ||
        !is_span(options->byte_seconds))
        return tw_fail(TW_ERROR_ARGUMENT, "bandwidths, latency, overhead and all times of a world are 0 to 1e15");
    if (options->stack_bytes < LEAST_STACK)
        return tw_fail(TW_ERROR_ARGUMENT, "a stack of %zu bytes: want at least %zu", options->stack_bytes, LEAST_STACK);
    return TW_OK;
}

static tw_status read_options(const tw_world_options *given, tw_world_options *options)
{
    TW_TRY(tw_read_sized(options, sizeof *options, given, "tw_world_options"));
    if (!options->workers_per_host) options->workers_per_host = 1;
    if (options->bandwidth_down == 0) options->bandwidth_down = options->bandwidth;
    if (!options->stack_bytes) options->stack_bytes = DEFAULT_STACK;
    return check_options(options);
}

/* --- create -------------------------------------------------------------------------------------------------- */

static void pass_limit(tw_timer *timer)
{
    tw_world *world = (tw_world *)(void *)((char *)timer - offsetof(tw_world, limit));
    world->over = 1;
    for (int r = 0; r < world->options.workers; r++) tw_seat_leave(&world->seats[r]);
}

static tw_status create_seats(tw_world *world)
{
    int count = world->options.workers;
    TW_TRY(tw_allocate((size_t)count, sizeof *world->seats, &world->seats));
    for (int r = 0; r < count; r++) world->seats[r] = (tw_seat){.world = world, .rank = r, .gone_at = (double)INFINITY};
    for (int r = 0; r < count; r++) TW_TRY(tw_seat_join(&world->seats[r]));
    return TW_OK;
}

static tw_status world_build(tw_world *world)
{
    const tw_world_options *options = &world->options;
    TW_TRY(tw_virtual_create(options->stack_bytes, &world->clock));
    world->network = (tw_network){.clock = world->clock,
                                  .bandwidth = options->bandwidth,
                                  .bandwidth_down = options->bandwidth_down,
                                  .latency = options->latency,
                                  .overhead = options->overhead,
                                  .hosts = (options->workers - 1) / options->workers_per_host + 1};
    TW_TRY(tw_messages_create(world));
    TW_TRY(create_seats(world));
    world->limit.fire = pass_limit;
    return tw_timers_reserve(tw_virtual_timers(world->clock), 1);
}

tw_status tw_world_create(const tw_world_options *options, tw_world **created)
{
    tw_world *world;
    TW_TRY(tw_need(options, "options"));
    TW_TRY(tw_need(created, "world"));
    TW_TRY(tw_allocate(1, sizeof *world, &world));
    tw_status status = read_options(options, &world->options);
    if (status == TW_OK) status = world_build(world);
    if (status == TW_OK)
        *created = world;
    else
        tw_world_destroy(world);
    return status;
}

/* Comms of ranks that never ran, or were ended where they stood. */
static void destroy_comms(tw_world *world)
{
    for (int r = 0; world->seats && r < world->options.workers; r++) {
        tw_comm_destroy(world->seats[r].comm);
        world->seats[r].comm = NULL;
    }
}

void tw_world_destroy(tw_world *world)
{
    if (!world) return;
    destroy_comms(world);
    tw_messages_free(world);
    tw_virtual_destroy(world->clock);
    tw_free(world->seats);
    tw_free(world);
}

/* --- run ----------------------------------------------------------------------------------------------------- */

static void *world_live(void *argument)
{
    tw_seat *me = argument;
    tw_world *world = me->world;
    world->worker(world->context, me->rank, me->comm);
    tw_comm_destroy(me->comm);
    me->comm = NULL;
    return NULL;
}

static tw_status start_all(tw_world *world)
{
    for (int r = 0; r < world->options.workers; r++) {
        void *thread;
        tw_virtual_owner owner = {.rank = r,
                                  .element_seconds = world->options.element_seconds,
                                  .byte_seconds = world->options.byte_seconds,
                                  .context = &world->seats[r]};
        TW_TRY(tw_virtual_start(world->clock, owner, world_live, &world->seats[r], &thread));
    }
    return TW_OK;
}

tw_status tw_world_run(tw_world *world, tw_world_worker worker, void *context)
{
    TW_TRY(tw_need(world, "world"));
    TW_TRY(tw_need(worker ? world : NULL, "worker"));
    if (world->ran) return tw_fail(TW_ERROR_ORDER, "a world runs once; make another");
    world->ran = 1;
    world->worker = worker;
    world->context = context;
    TW_TRY(start_all(world));
    if (world->options.time_limit > 0)
        tw_timers_arm(tw_virtual_timers(world->clock), &world->limit, world->options.time_limit);
    tw_status status = tw_virtual_run(world->clock);
    destroy_comms(world);
    return status;
}

tw_status tw_world_play(const tw_world_options *options, tw_world_worker worker, void *context)
{
    tw_world *world;
    TW_TRY(tw_world_create(options, &world));
    tw_status status = tw_world_run(world, worker, context);
    tw_world_destroy(world);
    return status;
}

/* --- inside -------------------------------------------------------------------------------------------------- */

void tw_world_compute(double seconds)
{
    if (tw_virtual_here() && seconds > 0) tw_virtual_pause(seconds);
}

void tw_world_kill(void)
{
    if (tw_virtual_here()) tw_seat_leave(tw_virtual_owned_by().context);
}

double tw_world_seconds(const tw_world *world)
{
    return world ? tw_virtual_now(world->clock) : 0;
}

uint64_t tw_world_bytes(const tw_world *world, int rank)
{
    return world && rank >= 0 && rank < world->options.workers ? world->seats[rank].bytes : 0;
}
