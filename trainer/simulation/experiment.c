#include "actor.h"
#include "error.h"
#include "exchange.h"
#include "scheme.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_by_hand.h>
#include <time.h>

#define PATIENCE 1e9       /* virtual seconds a worker waits for another: nobody is lost in a simulation */
#define PROGRESS_SECONDS 5 /* of the real clock */
#define LEAST_A_POINT 16   /* gradients */
#define FULL_POINTS (SIM_POINTS / 2)
#define CODEC_RATE_LEAST 1e-6 /* GB/s: a kilobyte a second */

/* The run as all ranks see it: one thread at a time runs, so nothing here needs a lock. */
typedef struct run {
    const sim_setup *setup;
    sim_result *result;
    double start;       /* virtual; all begin their first step then */
    double ended;       /* when the last gradient that counts came */
    uint64_t limit;     /* steps a worker takes at most, where all take as many */
    uint64_t together;  /* gradients, when each has taken a step */
    uint64_t total;     /* gradients that end the run */
    uint64_t gradients; /* that came */
    uint64_t begun;     /* the most steps any worker has begun */
    uint64_t bytes;     /* all workers sent in their steps */
    double own_seconds, squares;
    uint64_t point_size, point_gradients; /* of the point that is being gathered */
    double point_loss;
    time_t told;
    int only_checks;
    tw_status status;
    char text[512];
} run;

/* --- the loss over time --------------------------------------------------------------------------------------- */

/* All workers stop: after the step that the foremost has begun where they go together, else at once. */
static void stop_all(run *r)
{
    int together = r->setup->synchronous || r->setup->shares;
    r->limit = r->begun;
    r->total = together ? r->begun * r->together : r->gradients;
}

static void add_point(run *r, double now)
{
    sim_result *result = r->result;
    sim_point point = {.seconds = now - r->start, .gradients = r->gradients};
    point.loss = r->point_loss / (double)r->point_gradients;
    if (result->point_count < SIM_POINTS) result->points[result->point_count++] = point;
    r->point_loss = 0;
    r->point_gradients = 0;
    if (!(r->setup->until_loss > 0 && point.loss <= r->setup->until_loss) || result->seconds_to_loss >= 0) return;
    result->seconds_to_loss = point.seconds;
    stop_all(r);
}

static void experiment_tell(run *r, double now)
{
    FILE *stream = r->setup->progress;
    time_t clock = time(NULL);
    if (!stream || clock - r->told < PROGRESS_SECONDS) return;
    r->told = clock;
    const sim_result *result = r->result;
    fprintf(stream, "%s, %ld workers: %.0f %% after %.4g virtual seconds", r->setup->settings.sync,
            r->setup->settings.workers, 100 * (double)r->gradients / (double)r->total, now - r->start);
    if (result->point_count && isfinite(result->points[result->point_count - 1].loss))
        fprintf(stream, ", loss %.4f", result->points[result->point_count - 1].loss);
    fputc('\n', stream);
    fflush(stream);
}

/* Those of a step that count here, whose mean loss it is. */
static void count_gradients(run *r, uint64_t count, double loss)
{
    double now = tw_clock();
    if (count == 0) return;
    if (r->gradients >= r->total && now > r->ended) return; /* it was on its way when the run ended */
    r->gradients += count;
    r->ended = now;
    r->point_loss += (double)count * loss;
    r->point_gradients += count;
    if (r->point_gradients >= r->point_size) add_point(r, now);
    experiment_tell(r, now);
}

double actor_distance(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

/* --- one rank ------------------------------------------------------------------------------------------------- */

/* After what building took, all ranks begin at the same moment. */
static tw_status line_up(run *r, int rank, tw_comm *comm, void *self)
{
    const uint64_t steps = r->setup->kind->steps(self);
    r->together += r->setup->kind->gradients(self);
    TW_TRY(tw_comm_barrier(comm));
    if (rank == 0) {
        r->result->spec = strdup(r->setup->kind->spec(self));
        if (!r->result->spec) return tw_fail(TW_ERROR_MEMORY, "no memory for the spec of --sync");
        r->start = r->ended = tw_clock() + 1 + 1e3 * (r->setup->world.latency + r->setup->world.overhead);
        r->limit = steps;
        r->total = steps * r->together;
        r->point_size = r->total / FULL_POINTS > r->together ? r->total / FULL_POINTS : r->together;
        if (r->point_size < LEAST_A_POINT) r->point_size = LEAST_A_POINT;
        if (r->point_size > r->total) r->point_size = r->total;
    }
    TW_TRY(tw_comm_barrier(comm));
    tw_world_compute(r->start - tw_clock());
    return TW_OK;
}

static int goes_on(const run *r, uint64_t taken)
{
    return r->setup->synchronous || r->setup->shares ? taken < r->limit : r->gradients < r->total;
}

/* The number of a worker's next step, for its data and its learning rate: a slow one keeps up with the others in it. */
static uint64_t next_number(const run *r, uint64_t last, uint64_t taken)
{
    uint64_t group = r->gradients / (uint64_t)r->setup->settings.workers;
    if (r->setup->synchronous || r->setup->shares || taken == 0) return taken;
    return group > last + 1 ? group : last + 1;
}

uint64_t actor_sent(const tw_comm *comm)
{
    tw_traffic traffic = {.struct_size = sizeof traffic};
    tw_comm_traffic(comm, &traffic);
    return traffic.bytes_sent;
}

static tw_status take_steps(run *r, void *self)
{
    const actor_kind *kind = r->setup->kind;
    double begun = tw_clock(), ended = begun;
    uint64_t sent = kind->sent(self), taken = 0, number = 0;
    while (goes_on(r, taken)) {
        double loss = 0;
        number = next_number(r, number, taken);
        if (++taken > r->begun) r->begun = taken;
        TW_TRY(kind->step(self, number, &loss));
        ended = tw_clock();
        count_gradients(r, kind->gradients(self), loss);
    }
    r->bytes += kind->sent(self) - sent;
    r->own_seconds += (ended - begun) / (double)taken;
    r->result->rate += (double)taken / (ended - begun);
    r->result->steps += (double)taken / (double)r->setup->settings.workers;
    return TW_OK;
}

static tw_status experiment_finish(run *r, int rank, void *self)
{
    actor_end end = {0};
    TW_TRY(r->setup->kind->end(self, &end));
    r->squares += end.distance * end.distance;
    if (rank > 0) return TW_OK;
    r->result->parameters = end.parameters;
    r->result->loss = end.loss;
    r->result->metric = end.metric;
    r->result->metric_name = end.metric_name;
    r->result->checksum = end.checksum;
    return TW_OK;
}

static tw_status play_rank(run *r, int rank, tw_comm *comm, void **self)
{
    const actor_kind *kind = r->setup->kind;
    TW_TRY(tw_comm_set_timeout(comm, PATIENCE));
    TW_TRY(kind->create(r->setup, comm, self));
    TW_TRY(kind->begin(*self));
    if (r->only_checks) return tw_comm_barrier(comm); /* whoever leaves earlier fails the others */
    TW_TRY(line_up(r, rank, comm, *self));
    TW_TRY(take_steps(r, *self));
    return experiment_finish(r, rank, *self);
}

/* A loss of peers is what another's failure looks like. */
static void note_failure(run *r, tw_status status)
{
    if (r->status != TW_OK && r->status != TW_ERROR_PEER) return;
    r->status = status;
    snprintf(r->text, sizeof r->text, "%s", tw_last_error());
}

static void play(void *context, int rank, tw_comm *comm)
{
    run *r = context;
    void *self = NULL;
    tw_status status = play_rank(r, rank, comm, &self);
    if (status != TW_OK) note_failure(r, status);
    r->setup->kind->destroy(self);
}

/* --- all of them ---------------------------------------------------------------------------------------------- */

static tw_status run_world(run *r)
{
    tw_world *world;
    tw_world_options model = r->setup->world;
    model.struct_size = sizeof model;
    model.workers = (int)r->setup->settings.workers;
    TW_TRY(tw_world_create(&model, &world));
    tw_status status = tw_world_run(world, play, r);
    tw_world_destroy(world);
    return status != TW_OK ? status : r->status == TW_OK ? TW_OK : tw_fail(r->status, "%s", r->text);
}

static void experiment_conclude(run *r)
{
    sim_result *result = r->result;
    double workers = (double)r->setup->settings.workers;
    result->seconds = r->ended - r->start;
    result->gradients = r->gradients;
    if (r->setup->synchronous) result->rate = (double)r->gradients / result->seconds;
    result->step_seconds = r->own_seconds / workers;
    result->bytes_per_worker_step = (double)r->bytes / (result->steps * workers);
    result->distance = sqrt(r->squares / workers);
}

/* --- the scheme ----------------------------------------------------------------------------------------------- */

double sim_element_bytes(const char *sync)
{
    enum { GOSSIP_BYTES = 24, MEAN_BYTES = 8 };
    const unsigned bytes = tw_spec_floor_bytes(sync);
    return bytes ? bytes + MEAN_BYTES : GOSSIP_BYTES;
}

void sim_take_scheme(sim_setup *setup, const char *sync)
{
    size_t scheme;
    const exchange *way = exchange_find(sync, &scheme);
    setup->synchronous = exchange_is_synchronous(way, scheme);
    setup->settings.sync = (char *)sync;
}

void sim_take_codec_rate(sim_setup *setup, double rate)
{
    setup->world.element_seconds = sim_element_bytes(setup->settings.sync) / rate;
    setup->world.byte_seconds = SIM_BYTE_TOUCHES / rate;
}

tw_status sim_check_codec_rate(double rate)
{
    if (rate == 0 || rate >= CODEC_RATE_LEAST) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "--codec-rate %g: want 0, or %g and more", rate, CODEC_RATE_LEAST);
}

/* What per_host refuses two hosts show as well as many. */
static long enough_workers(const sim_setup *setup)
{
    const long workers = setup->settings.workers;
    const double per_host = scheme_number(setup->settings.sync, "per_host"); /* NaN: it has none */
    const long host = per_host > 1 ? (long)per_host : 1;
    return setup->kind->alike && workers > 2 * host && workers % host == 0 ? 2 * host : workers;
}

tw_status sim_check(const sim_setup *setup)
{
    sim_setup few = *setup;
    run r = {.setup = &few, .only_checks = 1};
    few.settings.workers = enough_workers(setup);
    if (few.settings.workers < setup->settings.workers)
        few.pace.slow = few.pace.pause = NULL; /* of ranks there are not */
    return run_world(&r);
}

tw_status sim_run(const sim_setup *setup, sim_result *result)
{
    run r = {.setup = setup, .result = result, .told = time(NULL)};
    *result = (sim_result){.seconds_to_loss = -1};
    tw_status status = run_world(&r);
    experiment_conclude(&r);
    if (status != TW_ERROR_NONFINITE) return status;
    result->diverged = 1;
    result->loss = result->metric = (double)NAN;
    snprintf(result->why, sizeof result->why, "%s", tw_last_error());
    return TW_OK;
}
