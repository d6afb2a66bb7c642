/* exchanges [ROWS]: every scheme in turn makes its workers agree on a matrix of so many rows, in a world of virtual
 * time. The first line of output names the level of the kernels; the others, one a scheme, have a checksum of what all
 * workers ended with, and how many bytes they sent. These must be the same on any processor. */
#include <stdio.h>
#include <stdlib.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_plugin.h>
#include <thinwire/thinwire_sim.h>

enum { RANKS = 3, COLUMNS = 211, BIASES = 131, STEPS = 4 };

static tw_tensor table[] = {{"w", 2, {97, COLUMNS}}, {"b", 1, {BIASES}}};
/* Beside every scheme's defaults. */
static const char *const specs[] = {"topk:density=0.01,values=bf16",
                                    "topk:density=0.01,values=sign,leftovers=fp16",
                                    "dgc:density=0.001,warmup_steps=3,clip=2",
                                    "dgc:density=0.01,nesterov=on,masking=off,values=fp16,min_dims=2",
                                    "dgc:density=0.01,warmup_steps=3,state=bf16",
                                    "sdagc:state=bf16",
                                    "topk:state=bf16"};

typedef struct exchange {
    const char *spec;
    float *at[RANKS]; /* the weights of each: the matrix, then the biases */
    uint64_t bytes;   /* that all of them sent */
} exchange;

static size_t matrix(void)
{
    return tw_tensor_count(&table[0]);
}

static size_t elements(void)
{
    return matrix() + BIASES;
}

static void must(tw_status status)
{
    if (status == TW_OK) return;
    fprintf(stderr, "%s\n", tw_last_error());
    exit(2);
}

static float *allocate(void)
{
    float *block = calloc(elements(), sizeof *block);
    if (block) return block;
    fprintf(stderr, "no memory\n");
    exit(2);
}

/* direction = a * (w - targets). The targets are random numbers, so that a wrong bit spreads. */
static void pull(float *direction, const float *w, float a, int rank, int step)
{
    for (size_t i = 0; i < elements(); i++) {
        uint32_t words[4];
        tw_random(5, (uint64_t)(RANKS * step + rank), i, words);
        direction[i] = a * (w[i] - (float)words[0] / 4294967296.0f);
    }
}

static void count_bytes(exchange *x, const tw_comm *comm)
{
    tw_traffic traffic = {.struct_size = sizeof traffic};
    must(tw_comm_traffic(comm, &traffic));
    x->bytes += traffic.bytes_sent;
}

static void reduce(void *context, int rank, tw_comm *comm)
{
    exchange *x = context;
    tw_reducer *reducer;
    float *w = x->at[rank], *gradient = allocate();
    must(tw_reducer_create(comm, x->spec, table, 2, &reducer));
    for (int step = 0; step < STEPS; step++) {
        pull(gradient, w, 1, rank, step);
        must(tw_reducer_submit(reducer, 1, gradient + matrix()));
        must(tw_reducer_submit(reducer, 0, gradient));
        must(tw_reducer_wait(reducer));
        for (size_t i = 0; i < elements(); i++) w[i] -= 0.25f * gradient[i];
    }
    tw_reducer_destroy(reducer);
    count_bytes(x, comm);
    free(gradient);
}

static void gossip(void *context, int rank, tw_comm *comm)
{
    exchange *x = context;
    tw_gossip *all;
    float *w = x->at[rank], *move = allocate(), *const read[] = {w, w + matrix()};
    const float *const start[] = {w, w + matrix()}, *const moves[] = {move, move + matrix()};
    must(tw_gossip_create(comm, x->spec, table, 2, start, &all));
    for (int step = 0; step < STEPS; step++) {
        must(tw_gossip_read(all, read));
        pull(move, w, -0.25f, rank, step);
        tw_world_compute(0.01 * (rank + 1)); /* unlike, so that asynchronous ones do not keep in step */
        must(tw_gossip_add(all, moves));
    }
    must(tw_gossip_finish(all, read));
    tw_gossip_destroy(all);
    count_bytes(x, comm);
    free(move);
}

/* Prints the line of a scheme. */
static void run(const char *spec, tw_world_worker worker)
{
    tw_world *world;
    tw_world_options options = {.struct_size = sizeof options, .workers = RANKS, .bandwidth = 125e6, .latency = 1e-4};
    exchange x = {.spec = spec};
    for (int rank = 0; rank < RANKS; rank++) x.at[rank] = allocate();
    must(tw_world_create(&options, &world));
    must(tw_world_run(world, worker, &x));
    tw_world_destroy(world);
    uint32_t sum = 0;
    for (int rank = 0; rank < RANKS; rank++) sum = tw_crc32c(sum, x.at[rank], elements() * sizeof(float));
    printf("%s %08x %llu\n", spec, sum, (unsigned long long)x.bytes);
    for (int rank = 0; rank < RANKS; rank++) free(x.at[rank]);
}

int main(int argc, char **argv)
{
    if (argc > 1) table[0].shape[0] = strtoul(argv[1], NULL, 10);
    printf("%s\n", tw_isa());
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) run(specs[i], reduce);
    for (size_t i = 0; i < tw_schemes_count(); i++) run(tw_schemes_name(i), reduce);
    for (size_t i = 0; i < tw_gossips_count(); i++) run(tw_gossips_name(i), gossip);
    return 0;
}
