/* hello_threads.c over MPI: mpirun -np 4 hello_mpi */
#include <stdio.h>
#include <thinwire/thinwire_mpi.h>

enum { ROWS = 10, COLUMNS = 100, COUNT = ROWS * COLUMNS, STEPS = 1000 };

static void must(tw_status status)
{
    if (status == TW_OK) return;
    fprintf(stderr, "%s: %s\n", tw_status_name(status), tw_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    static const tw_tensor table[] = {{"weights", 2, {ROWS, COLUMNS}}};
    float weights[COUNT] = {0}, gradient[COUNT];
    int provided;
    tw_comm *comm;
    tw_reducer *reducer;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    must(tw_comm_create_mpi(MPI_COMM_WORLD, &comm));
    must(tw_reducer_create(comm, "dgc:density=0.1,momentum=0", table, 1, &reducer)); /* borrows comm */
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++) gradient[i] = weights[i] - (float)tw_comm_rank(comm);
        must(tw_reducer_submit(reducer, 0, gradient));
        must(tw_reducer_wait(reducer)); /* the mean over all ranks */
        for (int i = 0; i < COUNT; i++) weights[i] -= 0.01f * gradient[i];
    }
    printf("rank %d: weight %.1f\n", tw_comm_rank(comm), (double)weights[0]);
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
    return MPI_Finalize();
}
