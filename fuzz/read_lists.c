/* Reads any text as one of the lists that options take: the first byte chooses. What is accepted must be in its range;
 * what is not must be refused as an argument or a spec. (read_speech_text.c has the settings of features.) */
#include "dump_gradients.h"
#include "fuzz.h"
#include "schedule.h"
#include "simulate.h"
#include "slowdown.h"

#include <math.h>
#include <string.h>
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_gossip.h>
#include <unistd.h>

enum { STEPS = 1000, PASS = 10 /* steps of an epoch */, RANKS = 3 };

static const tw_tensor table[] = {{"layer.weight", 2, {40, 30}}, {"layer.bias", 1, {40}}, {"scale", 0, {0}}};
enum { TENSORS = sizeof table / sizeof *table };

/* 1 if the text was accepted. */
static int accepted(tw_status status)
{
    must(status == TW_OK || status == TW_ERROR_ARGUMENT || status == TW_ERROR_SPEC);
    if (status != TW_OK) must(*tw_last_error() != '\0');
    return status == TW_OK;
}

static tw_comm *alone(void)
{
    static tw_comm *comm;
    if (!comm) must(tw_comm_create_threads(1, &comm) == TW_OK);
    return comm;
}

static void read_reducer(const char *spec)
{
    tw_reducer *reducer = NULL;
    (void)accepted(tw_reducer_create(alone(), spec, table, TENSORS, &reducer));
    tw_reducer_destroy(reducer);
}

static void read_scheme(const char *spec)
{
    tw_scheme *scheme = NULL;
    if (accepted(tw_scheme_create(spec, table, TENSORS, 1, RANKS, &scheme))) must(scheme != NULL);
    tw_scheme_destroy(scheme);
}

static void read_gossip(const char *spec)
{
    static const float values[1200];
    const float *weights[TENSORS] = {values, values, values};
    tw_gossip *gossip = NULL;
    (void)accepted(tw_gossip_create(alone(), spec, table, TENSORS, weights, &gossip));
    tw_gossip_destroy(gossip);
}

static void check_slowdown(const slowdown *h)
{
    must(h->factor >= 1 && isfinite(h->factor) && h->pause_count <= SLOWDOWN_PAUSES);
    for (size_t i = 0; i < h->pause_count; i++) {
        must(h->pauses[i].step >= 1 && h->pauses[i].step <= STEPS);
        must(h->pauses[i].seconds >= 0 && isfinite(h->pauses[i].seconds));
    }
}

static void read_slow(const char *text)
{
    slowdown h;
    for (int rank = 0; rank < RANKS; rank++)
        if (accepted(slowdown_parse(text, NULL, rank, RANKS, STEPS, &h))) check_slowdown(&h);
}

static void read_pause(const char *text)
{
    slowdown h;
    for (int rank = 0; rank < RANKS; rank++)
        if (accepted(slowdown_parse(NULL, text, rank, RANKS, STEPS, &h))) check_slowdown(&h);
}

static void read_schedule(const char *text)
{
    schedule s;
    if (!accepted(schedule_parse(text, 0.5, 7, STEPS, PASS, &s))) return;
    for (uint64_t step = 0; step < STEPS; step++) {
        if (step % PASS == PASS - 1) schedule_observe(&s, 1.0);
        must(schedule_rate(&s, step) >= 0 && isfinite(schedule_rate(&s, step)));
    }
}

static void read_dump(const char *text)
{
    gradient_dump c = {0};
    if (!accepted(dump_parse("folder", text, PASS, STEPS, &c))) return;
    must(c.range_count >= 1 && c.range_count <= DUMP_RANGES);
    for (size_t i = 0; i < c.range_count; i++)
        must(c.ranges[i].first > PASS && c.ranges[i].first <= c.ranges[i].last && c.ranges[i].last <= STEPS);
}

static void read_layout(const char *text)
{
    layout t = {0};
    size_t elements = 0;
    if (strlen(text) > 8 || access(text, F_OK) == 0)
        return; /* what takes gigabytes, or is a file, is no list any more */
    if (accepted(layout_create(text, &t)))
        for (size_t i = 0; i < t.count; i++) elements += tw_tensor_count(&t.tensors[i]);
    must(elements == t.elements);
    layout_release(&t);
}

static void read_link(const char *text)
{
    tw_world_options world = {0};
    simulate_settings s = {.link = (char *)text, .overhead = "1us", .workers_per_host = 1};
    if (!accepted(simulate_read_network(&s, &world))) return;
    must(world.bandwidth > 0 && isfinite(world.bandwidth) && world.latency >= 0 && isfinite(world.latency));
}

/* Numbers of workers before a line's end, schemes behind it. */
static void read_rows(const char *text)
{
    char *workers = strdup(text);
    must(workers != NULL);
    char *syncs = strchr(workers, '\n');
    if (syncs) *syncs++ = '\0';
    simulate_settings s = {.workers = workers, .syncs = syncs ? syncs : workers + strlen(workers)};
    simulation all = {.settings = &s};
    if (accepted(simulate_make_rows(&s, &all))) must(all.row_count > 0);
    for (size_t i = 0; i < all.row_count; i++) must(all.rows[i].workers >= 1 && all.rows[i].workers <= WORKERS_MOST);
    free(all.rows);
    free(workers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const char *text) = {read_reducer,  read_scheme, read_gossip, read_slow, read_pause,
                                                        read_schedule, read_dump,   read_layout, read_link, read_rows};
    if (size < 1) return 0;
    char *text = strndup((const char *)data + 1, size - 1);
    must(text != NULL);
    readers[data[0] % (sizeof readers / sizeof *readers)](text);
    free(text);
    return 0;
}
