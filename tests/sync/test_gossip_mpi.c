/* Gossip between processes: ranks that mpirun started walk, finish, and hold the same mean. */
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_mpi.h>

#include "gossip_players.h"

enum { STEPS = 20 };

static const char *const specs[] = {"dpsgd",     "adpsgd-fixed",   "adpsgd-random:mixing=three",
                                    "adpsgd-d1", "prague:group=3", "choco"};

/* Ranks differ in how many steps they make, unless the scheme is synchronous. */
static int steps_of(const player *self)
{
    int asynchronous = strncmp(self->spec, "adpsgd-fixed", 12) == 0 || strncmp(self->spec, "adpsgd-random", 13) == 0 ||
                       strncmp(self->spec, "prague", 6) == 0;
    return asynchronous ? STEPS * (1 + self->rank) : STEPS;
}

static void check_walk(const char *spec)
{
    player self = {.spec = spec};
    values steps;
    float sum = 0;
    assert_int_equal(tw_comm_create_mpi(MPI_COMM_WORLD, &self.comm), TW_OK);
    self.rank = tw_comm_rank(self.comm);
    self.size = tw_comm_size(self.comm);
    assert_int_equal(players_create(&self), TW_OK);
    for (size_t i = 0; i < ELEMENTS; i++) steps.at[i] = (float)(self.rank + 1);
    for (int step = 0; step < steps_of(&self); step++) {
        assert_int_equal(players_read(&self), TW_OK);
        assert_int_equal(players_add(&self, &steps), TW_OK);
    }
    assert_int_equal(players_finish(&self), TW_OK);
    for (int rank = 0; rank < self.size; rank++)
        sum += (float)((rank + 1) * steps_of(&(player){.spec = spec, .rank = rank}));
    for (size_t i = 0; i < ELEMENTS; i++) assert_float_equal(self.weights.at[i], sum / (float)self.size, 1e-3);
    tw_gossip_destroy(self.gossip);
    tw_comm_destroy(self.comm);
}

TEST(test_no_step_is_lost)
{
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) check_walk(specs[s]);
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    int failed = cmocka_run_group_tests(all_tests, NULL, NULL);
    if (failed) MPI_Abort(MPI_COMM_WORLD, 1); /* the others may wait for this rank in a case it left early */
    MPI_Finalize();
    return 0;
}
