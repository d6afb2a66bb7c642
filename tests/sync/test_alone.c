/* A rank that fails alone, with the others none the wiser: they learn of it though its process lives and its comm is
 * not destroyed. The deadline is far beyond what ctest allows the whole; in a world, where waiting takes no time, the
 * clock tells. */
#include <string.h>
#include <thinwire/thinwire_clusters.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_outer.h>
#include <thinwire/thinwire_plugin.h>

#include "../comm/group.h"
#include "memory.h"
#include "support/cmocka.h"
#include "wire.h"

#define DEADLINE 600.0

enum { COUNT = 600, MOST_STEPS = 50, MESSAGES = 4, MOST_RANKS = 5 };

static const tw_tensor table[MESSAGES] = {
    {"weight", 2, {20, 30}}, {"second", 2, {20, 30}}, {"third", 2, {20, 30}}, {"last", 2, {20, 30}}};

static int is_victim(tw_comm *comm)
{
    return tw_comm_rank(comm) == tw_comm_size(comm) - 1;
}

static double start(tw_comm *comm)
{
    CHECK(tw_comm_set_timeout(comm, DEADLINE) == TW_OK);
    return tw_clock();
}

/* --- a reducer -------------------------------------------------------------------------------------------------- */

/* A lie: the word fits, and it is no packet. */
static void lie(wire *through, unsigned char *message, size_t *size, uint32_t *check)
{
    (void)through;
    message[0] ^= 1;
    *check = tw_crc32c(0, message, *size);
}

static tw_status reduce(tw_reducer *reducer)
{
    float gradient[MESSAGES][COUNT];
    tw_status status = TW_OK;
    for (size_t left = MESSAGES; status == TW_OK && left > 0; left--) {
        float *of = gradient[left - 1];
        for (size_t i = 0; i < COUNT; i++) of[i] = (float)i;
        status = tw_reducer_submit(reducer, left - 1, of);
    }
    return status == TW_OK ? tw_reducer_wait(reducer) : status;
}

static void reduce_until_it_fails(tw_comm *comm, const void *context)
{
    const char *spec = context;
    tw_reducer *reducer = NULL;
    /* The first packet of a step: create has brought the numbers of channels, and introduced the ranks. */
    wire through = {.fatal = tw_comm_size(comm) + 1, .change = lie};
    double begun = start(comm);
    if (is_victim(comm)) put_between(&through, comm);
    CHECK(tw_reducer_create(comm, spec, table, MESSAGES, &reducer) == TW_OK);
    tw_status status = TW_OK;
    for (int step = 0; step < MOST_STEPS && status == TW_OK; step++) status = reduce(reducer);
    CHECK(status == (is_victim(comm) ? TW_ERROR_PACKET : TW_ERROR_PEER));
    CHECK(tw_clock() - begun < DEADLINE);
    if (is_victim(comm)) CHECK(strstr(tw_last_error(), "broke") == NULL);
    group_meet(); /* all have ended, and no comm is destroyed yet */
    CHECK(tw_comm_barrier(comm) == TW_ERROR_PEER);
    tw_reducer_destroy(reducer);
    if (is_victim(comm)) take_away(&through, comm);
    group_meet();
    tw_comm_destroy(comm);
}

TEST(a_reducer_that_fails_alone_is_noticed)
{
    group_test(2, 5, reduce_until_it_fails, "topk:density=0.01");
    group_test(2, 5, reduce_until_it_fails, "topk:density=0.01,overlap=off");
    group_test(2, 5, reduce_until_it_fails, "topk:density=0.01,message_kb=1");
    group_test(2, 5, reduce_until_it_fails, "topk:density=0.01,message_kb=1,in_flight=4");
}

/* --- a collective ----------------------------------------------------------------------------------------------- */

static void run_out_of_memory(tw_comm *comm, const void *context)
{
    float values[COUNT] = {0};
    (void)context;
    double begun = start(comm);
    tw_fail_allocation(is_victim(comm));
    tw_status status = tw_comm_allreduce(comm, values, COUNT);
    tw_fail_allocation(0);
    CHECK(tw_clock() - begun < DEADLINE);
    CHECK(status == (is_victim(comm) ? TW_ERROR_MEMORY : TW_ERROR_PEER));
    group_meet();
    CHECK(tw_comm_barrier(comm) == TW_ERROR_PEER);
    tw_comm_destroy(comm);
}

TEST(a_collective_without_memory_is_noticed)
{
    group_test(2, 5, run_out_of_memory, NULL);
}

static void make_a_part_without_memory(tw_comm *comm, const void *context)
{
    int ranks[MOST_RANKS], size = tw_comm_size(comm);
    tw_comm *part = NULL;
    double begun = start(comm);
    for (int r = 0; r < size; r++) ranks[r] = r;
    if (is_victim(comm)) tw_fail_allocation(*(const long *)context);
    tw_status status = tw_comm_create_part(comm, ranks, size, &part);
    tw_fail_allocation(0);
    CHECK(!is_victim(comm) || status == TW_ERROR_MEMORY);
    if (status == TW_OK) status = tw_comm_barrier(part);
    CHECK(status == (is_victim(comm) ? TW_ERROR_MEMORY : TW_ERROR_PEER));
    CHECK(tw_clock() - begun < DEADLINE);
    group_meet();
    tw_comm_destroy(part);
    tw_comm_destroy(comm);
}

TEST(a_part_without_memory_is_noticed)
{
    for (long allocation = 1; allocation <= 3; allocation++) group_test(2, 5, make_a_part_without_memory, &allocation);
}

/* --- a gossip ---------------------------------------------------------------------------------------------------- */

typedef struct plan {
    const char *spec;
    int survives, of_hosts;
    long allocation; /* that fails on the victim */
} plan;

/* The victim's weights overflow. */
static tw_status add_until_it_fails(tw_gossip *gossip, float step)
{
    float steps[COUNT];
    const float *parts[1] = {steps};
    tw_status status = TW_OK;
    for (size_t i = 0; i < COUNT; i++) steps[i] = step;
    for (int i = 0; i < MOST_STEPS && status == TW_OK; i++) status = tw_gossip_add(gossip, parts);
    return status;
}

static void gossip_until_it_fails(tw_comm *comm, const void *context)
{
    const plan *all = context;
    float weights[COUNT] = {0}, *parts[1] = {weights};
    tw_gossip *gossip = NULL;
    double begun = start(comm);
    CHECK(tw_gossip_create(comm, all->spec, table, 1, (const float *const *)parts, &gossip) == TW_OK);
    tw_status status = add_until_it_fails(gossip, is_victim(comm) ? 3e38f : 0);
    if (status == TW_OK) status = tw_gossip_finish(gossip, parts);
    if (is_victim(comm) && !all->of_hosts)
        CHECK(status == TW_ERROR_NONFINITE);
    else if (all->survives)
        CHECK(status == TW_OK);
    else /* a host's members learn of it from its first; and weights near the limit have spread before */
        CHECK(status == TW_ERROR_PEER || status == TW_ERROR_NONFINITE);
    CHECK(tw_clock() - begun < DEADLINE);
    group_meet();
    tw_gossip_destroy(gossip);
    tw_comm_destroy(comm);
}

TEST(a_gossip_that_fails_alone_is_noticed)
{
    static const plan plans[] = {{.spec = "dpsgd"}, {.spec = "adpsgd-fixed:survive=off"}};
    static const plan hosts = {.spec = "dpsgd:per_host=2", .of_hosts = 1};
    static const plan survivors = {.spec = "adpsgd-fixed", .survives = 1};
    for (int p = 0; p < 2; p++) group_test(2, 5, gossip_until_it_fails, &plans[p]);
    group_test(4, 4, gossip_until_it_fails, &hosts);
    group_test(3, 5, gossip_until_it_fails, &survivors);
}

/* After its end the victim has no memory for the comm of those that are left. */
static void look_for_survivors(tw_comm *comm, const void *context)
{
    const plan *all = context;
    float weights[COUNT] = {0}, *parts[1] = {weights};
    tw_gossip *gossip = NULL;
    tw_comm *survivors = NULL;
    double begun = start(comm);
    CHECK(tw_gossip_create(comm, all->spec, table, 1, (const float *const *)parts, &gossip) == TW_OK);
    CHECK(tw_gossip_finish(gossip, parts) == TW_OK);
    if (is_victim(comm)) tw_fail_allocation(all->allocation);
    tw_status status = tw_gossip_survivors(gossip, &survivors);
    tw_fail_allocation(0);
    CHECK(!is_victim(comm) || status == TW_ERROR_MEMORY);
    if (status == TW_OK) status = tw_comm_barrier(survivors);
    CHECK(status == (is_victim(comm) ? TW_ERROR_MEMORY : TW_ERROR_PEER));
    CHECK(tw_clock() - begun < DEADLINE);
    group_meet();
    tw_comm_destroy(survivors);
    tw_gossip_destroy(gossip);
    tw_comm_destroy(comm);
}

TEST(survivors_without_memory_are_noticed)
{
    for (long allocation = 1; allocation <= 3; allocation++) {
        group_test(2, 4, look_for_survivors, &(plan){.spec = "adpsgd-fixed", .allocation = allocation});
        group_test(4, 4, look_for_survivors, &(plan){.spec = "adpsgd-fixed:per_host=2", .allocation = allocation});
    }
}

/* --- an outer loop ----------------------------------------------------------------------------------------------- */

/* The last number of a message, whatever it is of, becomes NaN. */
static void spoil(wire *through, unsigned char *message, size_t *size, uint32_t *check)
{
    (void)through;
    for (size_t i = 1; i <= 8 && i <= *size; i++) message[*size - i] = 0xFF;
    *check = tw_crc32c(0, message, *size);
}

static tw_status walk_rounds(tw_outer *outer)
{
    float weights[2][COUNT] = {{0}}, *parts[2] = {weights[0], weights[1]};
    tw_outer_event event;
    tw_status status = tw_outer_begin(outer, parts);
    for (int step = 0; status == TW_OK && step < 4; step++) {
        for (size_t i = 0; i < COUNT; i++) weights[0][i] += 1, weights[1][i] -= 1;
        status = tw_outer_step(outer, parts, &event);
    }
    return status == TW_OK ? tw_outer_finish(outer, parts) : status;
}

/* The message that is spoilt is the fatal one of those that come after create. */
static void spoil_an_outer_loop(tw_comm *comm, const void *context)
{
    const int *fatal = context;
    tw_outer *outer = NULL;
    wire through = {.change = spoil};
    double begun = start(comm);
    if (is_victim(comm)) put_between(&through, comm);
    CHECK(tw_outer_create(comm, "diloco:every=2,merge=rda", table, 2, &outer) == TW_OK);
    through.fatal = through.received + *fatal;
    (void)walk_rounds(outer); /* a part that is NaN is skipped by all */
    CHECK(tw_clock() - begun < DEADLINE);
    group_meet();
    tw_outer_destroy(outer);
    if (is_victim(comm)) take_away(&through, comm);
    group_meet();
    tw_comm_destroy(comm);
}

/* Words, lengths, parts and sums: whatever a rank cannot go on with, it does not leave the others alone. */
TEST(an_outer_loop_that_fails_alone_is_noticed)
{
    for (int fatal = 1; fatal <= 16; fatal++) group_test(2, 3, spoil_an_outer_loop, &fatal);
}

/* The victim's gradients do not lie one behind the other, and it has no memory to pack them. */
static void average_without_memory(tw_comm *comm, const void *context)
{
    float gradients[3][COUNT] = {{0}}, *parts[2] = {gradients[0], gradients[is_victim(comm) ? 2 : 1]};
    tw_outer *outer = NULL;
    (void)context;
    double begun = start(comm);
    CHECK(tw_outer_create(comm, "local:every=2,per_host=2", table, 2, &outer) == TW_OK);
    tw_fail_allocation(is_victim(comm));
    tw_status status = tw_outer_average(outer, parts);
    tw_fail_allocation(0);
    CHECK(!is_victim(comm) || status == TW_ERROR_MEMORY);
    if (status == TW_OK) status = tw_comm_barrier(comm);
    CHECK(status == (is_victim(comm) ? TW_ERROR_MEMORY : TW_ERROR_PEER));
    CHECK(tw_clock() - begun < DEADLINE);
    group_meet();
    tw_outer_destroy(outer);
    tw_comm_destroy(comm);
}

TEST(an_average_without_memory_is_noticed)
{
    group_test(2, 2, average_without_memory, NULL);
    group_test(4, 4, average_without_memory, NULL);
}

/* --- a create without memory ------------------------------------------------------------------------------------- */

typedef struct famine {
    int is_gossip;
    long allocation; /* of the victim's create, the one that fails */
} famine;

static tw_status create_either(const famine *what, tw_comm *comm)
{
    const float start[COUNT] = {0}, *weights = start;
    tw_reducer *reducer = NULL;
    tw_gossip *gossip = NULL;
    tw_status status = what->is_gossip ? tw_gossip_create(comm, "adpsgd-random", table, 1, &weights, &gossip)
                                       : tw_reducer_create(comm, "topk:density=0.01", table, 1, &reducer);
    tw_reducer_destroy(reducer);
    tw_gossip_destroy(gossip);
    return status;
}

static void create_without_memory(tw_comm *comm, const void *context)
{
    const famine *what = context;
    double begun = start(comm);
    if (is_victim(comm)) tw_fail_allocation(what->allocation);
    tw_status status = create_either(what, comm);
    tw_fail_allocation(0);
    if (is_victim(comm)) CHECK(status == TW_ERROR_MEMORY);
    CHECK(status == TW_ERROR_MEMORY || status == TW_ERROR_PEER);
    CHECK(tw_clock() - begun < DEADLINE);
    group_meet();
    tw_comm_destroy(comm);
}

/* The first ones come before the ranks introduce themselves to each other. */
TEST(a_create_without_memory_is_noticed)
{
    for (int is_gossip = 0; is_gossip < 2; is_gossip++)
        for (long allocation = 1; allocation <= 6; allocation++)
            group_test(2, 3, create_without_memory, &(famine){is_gossip, allocation});
}

/* --- a wrong call ------------------------------------------------------------------------------------------------ */

/* It fails on all members of a host alike, and nobody waits: the comm stays whole. */
static void load_what_does_not_fit(tw_comm *comm, const void *context)
{
    const float start_at[COUNT] = {0}, *weights = start_at;
    tw_gossip *gossip = NULL;
    tw_state *state = NULL;
    start(comm);
    CHECK(tw_state_create(&state) == TW_OK);
    CHECK(tw_gossip_create(comm, context, table, 1, &weights, &gossip) == TW_OK);
    CHECK(tw_gossip_load_state(gossip, "", state) == TW_ERROR_STATE);
    CHECK(tw_comm_barrier(comm) == TW_OK);
    tw_gossip_destroy(gossip);
    tw_state_destroy(state);
    tw_comm_destroy(comm);
}

TEST(a_refused_state_ends_nothing)
{
    group_test(4, 4, load_what_does_not_fit, "adpsgd-random");
    group_test(4, 4, load_what_does_not_fit, "adpsgd-random:per_host=2");
}

/* Member 2 of a host has read before. It passes on to member 3 what the first hands out, and has it itself. */
static void load_after_a_read(tw_comm *comm, const void *context)
{
    const int is_late = tw_comm_rank(comm) == 2;
    float weights[COUNT] = {0}, loaded[COUNT], *parts[1] = {weights};
    tw_gossip *gossip = NULL;
    tw_state *state = NULL;
    start(comm);
    for (size_t i = 0; i < COUNT; i++) loaded[i] = (float)i;
    CHECK(tw_state_create(&state) == TW_OK);
    CHECK(tw_state_put(state, "weights/weight", TW_F32, 2, table[0].shape, loaded) == TW_OK);
    CHECK(tw_gossip_create(comm, context, table, 1, (const float *const *)parts, &gossip) == TW_OK);
    if (is_late) CHECK(tw_gossip_read(gossip, parts) == TW_OK);
    CHECK(tw_gossip_load_state(gossip, "", state) == (is_late ? TW_ERROR_ORDER : TW_OK));
    if (is_late) CHECK(strstr(tw_last_error(), "load the state before the first read"));
    CHECK(tw_comm_barrier(comm) == TW_OK);
    CHECK(tw_gossip_read(gossip, parts) == TW_OK);
    CHECK(memcmp(weights, loaded, sizeof weights) == 0);
    group_meet();
    tw_gossip_destroy(gossip);
    tw_state_destroy(state);
    tw_comm_destroy(comm);
}

TEST(a_state_that_one_member_refuses_is_the_others)
{
    group_test(4, 4, load_after_a_read, "adpsgd-random:per_host=4");
}

static void create_beside_a_part(tw_comm *comm, const void *context)
{
    const float start_at[COUNT] = {0}, *weights = start_at;
    const tw_range range = {0, COUNT};
    int ranks[MOST_RANKS], size = tw_comm_size(comm);
    tw_comm *part = NULL;
    tw_reducer *reducer = NULL, *other = NULL;
    tw_gossip *gossip = NULL;
    tw_outer *outer = NULL;
    tw_clusters *clusters = NULL;
    (void)context;
    start(comm);
    for (int r = 0; r < size; r++) ranks[r] = r;
    CHECK(tw_reducer_create(comm, "topk:density=0.01", table, MESSAGES, &reducer) == TW_OK);
    CHECK(tw_comm_create_part(comm, ranks, size, &part) == TW_OK);
    CHECK(tw_reducer_create(comm, "topk", table, MESSAGES, &other) == TW_ERROR_ORDER);
    CHECK(tw_gossip_create(comm, "dpsgd", table, 1, &weights, &gossip) == TW_ERROR_ORDER);
    CHECK(tw_outer_create(comm, "local:every=2", table, 2, &outer) == TW_ERROR_ORDER);
    CHECK(tw_clusters_create(comm, 0, COUNT, &range, 1, &clusters) == TW_ERROR_ORDER);
    CHECK(reduce(reducer) == TW_OK);
    CHECK(tw_comm_barrier(part) == TW_OK);
    CHECK(tw_comm_barrier(comm) == TW_OK);
    group_meet();
    tw_reducer_destroy(reducer);
    tw_comm_destroy(part);
    tw_comm_destroy(comm);
}

TEST(a_create_that_is_refused_beside_a_part_ends_nothing)
{
    group_test(2, 4, create_beside_a_part, NULL);
}

int main(int argc, char **argv)
{
    group_begin(&argc, &argv);
    int failed = cmocka_run_group_tests(all_tests, NULL, NULL);
    group_end();
    return failed;
}
