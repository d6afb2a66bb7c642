/* One of several processes is killed in the middle of a gossip, under a launcher that leaves the others alone: they
 * notice its silence, for MPI tells them nothing, go on, and hold the same mean. */
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_mpi.h>

#include "gossip_players.h"

#include <signal.h>
#include <unistd.h>

enum { VICTIM = 2, FATAL_STEP = 7, WHOLE = 4 };

static const char *const specs[] = {"adpsgd-fixed", "prague:group=3"};

static uint64_t ranks_lost(player *self)
{
    self->stats.struct_size = sizeof self->stats;
    assert_int_equal(tw_gossip_stats(self->gossip, &self->stats), TW_OK);
    return self->stats.ranks_lost;
}

static void walk_until_a_rank_is_lost(player *self, int victim)
{
    values steps;
    for (size_t i = 0; i < ELEMENTS; i++) steps.at[i] = (float)(self->rank + 1);
    for (int step = 0; ranks_lost(self) == 0; step++) {
        if (self->rank == victim && step == FATAL_STEP) raise(SIGKILL);
        assert_int_equal(players_read(self), TW_OK);
        assert_int_equal(players_add(self, &steps), TW_OK);
    }
}

/* Over the comm of those that are left. */
static void check_same_weights(tw_comm *survivors, const player *self)
{
    uint32_t own = tw_crc32c(0, self->weights.at, sizeof self->weights.at), all[WHOLE];
    assert_int_equal(tw_comm_allgather(survivors, &own, sizeof own, all), TW_OK);
    for (int rank = 0; rank < tw_comm_size(survivors); rank++) assert_int_equal(all[rank], own);
}

/* The comm of those that are left after the loss; they may lose another. */
static tw_comm *lose_one(tw_comm *comm, const char *spec, int victim)
{
    tw_comm *survivors;
    player self = {.spec = spec, .comm = comm, .rank = tw_comm_rank(comm), .size = tw_comm_size(comm)};
    assert_int_equal(players_create(&self), TW_OK);
    assert_int_equal(tw_gossip_survivors(self.gossip, &survivors), TW_ERROR_ORDER);
    walk_until_a_rank_is_lost(&self, victim);
    assert_int_equal(players_finish(&self), TW_OK);
    assert_int_equal(ranks_lost(&self), 1);
    assert_int_equal(self.stats.lowest_rank, victim == 0);
    assert_int_equal(tw_gossip_survivors(self.gossip, &survivors), TW_OK);
    assert_int_equal(tw_comm_size(survivors), self.size - 1);
    assert_int_equal(tw_comm_rank(survivors), self.rank - (self.rank > victim));
    check_same_weights(survivors, &self);
    tw_gossip_destroy(self.gossip);
    return survivors;
}

TEST(test_the_others_go_on)
{
    tw_comm *comm;
    assert_int_equal(tw_comm_create_mpi(MPI_COMM_WORLD, &comm), TW_OK);
    assert_int_equal(tw_comm_size(comm), WHOLE);
    assert_int_equal(tw_comm_set_timeout(comm, 6), TW_OK);
    tw_comm *three = lose_one(comm, specs[0], VICTIM);
    tw_comm *two = lose_one(three, specs[1], 0);
    assert_int_equal(tw_comm_barrier(two), TW_OK);
    tw_comm_destroy(two);
    tw_comm_destroy(three);
    tw_comm_destroy(comm);
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    int failed = cmocka_run_group_tests(all_tests, NULL, NULL);
    if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
    fflush(NULL);
    _exit(0); /* finalising would wait for the killed */
}
