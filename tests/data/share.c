/* What is one process's of --memory. */
#include "share.h"
#include "support/assert.h"

#include <stdlib.h>

static void check(const char *name, const char *told, size_t expected)
{
    assert_int_equal(setenv(name, told, 1), 0);
    assert_int_equal(share_of_memory(12), expected << 20);
    unsetenv(name);
}

TEST(ranks_of_one_machine_divide_it)
{
    check("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 3);
    check("MPI_LOCALNRANKS", "2", 6);
    check("SLURM_STEP_TASKS_PER_NODE", "3(x2),1", 4);
}

TEST(who_is_alone_or_told_nonsense_has_all)
{
    assert_int_equal(share_of_memory(12), 12 << 20);
    static const char *const wrong[] = {"", "0", "-3", "many", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) check("OMPI_COMM_WORLD_LOCAL_SIZE", wrong[i], 12);
}

int main(void)
{
    unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    unsetenv("MPI_LOCALNRANKS");
    unsetenv("SLURM_STEP_TASKS_PER_NODE");
    return cmocka_run_group_tests(all_tests, NULL, NULL);
}
