/* What every transport must do when a rank goes missing or breaks the rules: every call ends, with the right status. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "group.h"
#include "support/cmocka.h"

enum { COUNT = 100, MOST = 16 };

static tw_status call_barrier(tw_comm *comm)
{
    return tw_comm_barrier(comm);
}

static tw_status call_allreduce(tw_comm *comm)
{
    float values[COUNT] = {0};
    return tw_comm_allreduce(comm, values, COUNT);
}

static tw_status call_allgather(tw_comm *comm)
{
    static const char data[COUNT];
    char *gathered = malloc(COUNT * (size_t)tw_comm_size(comm));
    tw_status status = tw_comm_allgather(comm, data, COUNT, gathered);
    free(gathered);
    return status;
}

static tw_status call_alltoall(tw_comm *comm)
{
    static const char data[COUNT];
    const void *packets[16], *const *received;
    size_t sizes[16];
    const size_t *received_sizes;
    for (int r = 0; r < tw_comm_size(comm); r++) packets[r] = data, sizes[r] = COUNT;
    return tw_channel_alltoall(comm->channel, packets, sizes, COUNT, &received, &received_sizes);
}

static tw_status call_broadcast(tw_comm *comm)
{
    char data[COUNT] = {0};
    return tw_comm_broadcast(comm, 0, data, COUNT);
}

static tw_status (*const collectives[])(tw_comm *) = {call_barrier, call_allreduce, call_allgather, call_alltoall,
                                                      call_broadcast};
enum { COLLECTIVES = sizeof collectives / sizeof *collectives };

/* Rank 0 takes part once and leaves, the others go on: in all of them everybody depends on rank 0. */
static void play_leave(tw_comm *comm, const void *context)
{
    tw_status (*collective)(tw_comm *) = *(tw_status(*const *)(tw_comm *))context;
    CHECK(tw_comm_barrier(comm) == TW_OK);
    if (tw_comm_rank(comm) != 0) {
        CHECK(collective(comm) == TW_ERROR_PEER);
        CHECK(strstr(tw_last_error(), "rank") != NULL);
        CHECK(call_barrier(comm) == TW_ERROR_PEER);
        CHECK(strstr(tw_last_error(), "broke earlier") != NULL);
        float none;
        CHECK(tw_comm_allreduce(comm, &none, 0) == TW_ERROR_PEER);
    }
    tw_comm_destroy(comm);
    group_meet();
}

TEST(a_rank_that_leaves_is_noticed)
{
    for (int c = 0; c < COLLECTIVES; c++) group_test(2, MOST, play_leave, &collectives[c]);
}

static void *call_back(void *comm)
{
    tw_comm_leave(comm);
    return NULL;
}

/* Another thread of rank 0 leaves: for rank 0 itself and for all others it is over. */
static void play_call_back(tw_comm *comm, const void *context)
{
    tw_status (*collective)(tw_comm *) = *(tw_status(*const *)(tw_comm *))context;
    pthread_t thread;
    CHECK(tw_comm_barrier(comm) == TW_OK);
    if (tw_comm_rank(comm) == 0) {
        CHECK(pthread_create(&thread, NULL, call_back, comm) == 0);
        pthread_join(thread, NULL);
    }
    CHECK(collective(comm) == TW_ERROR_PEER);
    CHECK(call_barrier(comm) == TW_ERROR_PEER);
    group_meet();
    tw_comm_destroy(comm);
}

TEST(a_rank_that_is_called_back_is_noticed)
{
    for (int c = 0; c < COLLECTIVES; c++) group_test(2, MOST, play_call_back, &collectives[c]);
}

/* Rank 0 stays, but does not come. Afterwards it finds that the others did not wait for it, at the latest where it
 * would need what they have not sent. */
static void play_late(tw_comm *comm, const void *context)
{
    (void)context;
    CHECK(tw_comm_set_timeout(comm, 0.05) == TW_OK);
    CHECK(tw_comm_set_patience(comm, 0.05) == TW_OK); /* over sockets it is heard of for as long as it lives */
    if (tw_comm_rank(comm) != 0) CHECK(call_allreduce(comm) == TW_ERROR_PEER);
    group_meet();
    if (tw_comm_rank(comm) == 0) CHECK(call_allreduce(comm) == TW_ERROR_PEER || call_allreduce(comm) == TW_ERROR_PEER);
    group_meet();
    tw_comm_destroy(comm);
}

TEST(a_rank_that_does_not_come_is_given_up)
{
    group_test(2, MOST, play_late, NULL);
}

static void play_long_message(tw_comm *comm, const void *context)
{
    (void)context;
    char data[COUNT] = "too long";
    tw_channel *channel;
    CHECK(tw_channel_create(comm, &channel) == TW_OK);
    if (comm->rank == 0) {
        tw_channel_start_send(channel, 1, data, COUNT);
        CHECK(tw_channel_finish(channel) == TW_OK);
    } else if (comm->rank == 1) {
        tw_channel_start_receive(channel, 0, data, COUNT - 1, NULL);
        CHECK(tw_channel_finish(channel) == TW_ERROR_PACKET);
        CHECK(call_barrier(comm) == TW_ERROR_PEER);
    }
    tw_channel_destroy(channel);
    group_meet();
    tw_comm_destroy(comm);
}

TEST(a_message_that_does_not_fit_is_refused)
{
    group_test(2, MOST, play_long_message, NULL);
}

/* Rank 0 passes another count than the rest. Nobody may take the result for good, nobody may hang, and whoever finds
 * out says what the ranks did. */
static void play_other_count(tw_comm *comm, const void *context)
{
    size_t count = *(const size_t *)context;
    float *values = calloc(2 * COUNT, sizeof *values);
    tw_status status = tw_comm_allreduce(comm, values, tw_comm_rank(comm) == 0 ? count : COUNT);
    CHECK(status == TW_ERROR_PEER ||
          (status == TW_ERROR_PACKET && strstr(tw_last_error(), "every rank must pass the same count")));
    free(values);
    group_meet();
    tw_comm_destroy(comm);
}

TEST(different_counts_are_noticed)
{
    const size_t counts[] = {COUNT / 2, 2 * COUNT};
    for (int c = 0; c < 2; c++) group_test(2, MOST, play_other_count, &counts[c]);
}

static void play_bad_arguments(tw_comm *comm, const void *context)
{
    (void)context;
    char both[64] = {0};
    const void *const *packets;
    const size_t *sizes;
    int ranks = tw_comm_size(comm);
    CHECK(tw_channel_allgather(comm->channel, both, 2, 1, &packets, &sizes) == TW_ERROR_ARGUMENT);
    CHECK(tw_channel_allgather(comm->channel, both, 1, SIZE_MAX - 8, &packets, &sizes) == TW_ERROR_MEMORY);
    const void *parts[16] = {NULL};
    size_t part_sizes[16] = {0};
    CHECK(tw_channel_alltoall(comm->channel, parts, part_sizes, SIZE_MAX - 8, &packets, &sizes) == TW_ERROR_MEMORY);
    part_sizes[ranks - 1] = 2;
    CHECK(tw_channel_alltoall(comm->channel, parts, part_sizes, 1, &packets, &sizes) == TW_ERROR_ARGUMENT);
    CHECK(tw_comm_barrier(comm) == TW_OK); /* none of it did any harm */
    CHECK(tw_comm_rank(comm) >= 0 && tw_comm_rank(comm) < ranks && tw_comm_transport(comm)[0]);
    tw_comm_destroy(comm);
}

TEST(bad_arguments_are_refused)
{
    group_test(1, MOST, play_bad_arguments, NULL);
}

int main(int argc, char **argv)
{
    group_begin(&argc, &argv);
    int failed = cmocka_run_group_tests(all_tests, NULL, NULL);
    group_end();
    return failed;
}
