/* Four threads minimise sum_r |w - r|^2 together, r being the rank: every weight ends at the mean rank, 1.5. Each sends
 * a tenth of its gradient a step; what it holds back comes later. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <thinwire/thinwire.h>

enum { RANKS = 4, ROWS = 10, COLUMNS = 100, COUNT = ROWS * COLUMNS, STEPS = 1000 };

static void must(tw_status status)
{
    if (status == TW_OK) return;
    fprintf(stderr, "%s: %s\n", tw_status_name(status), tw_last_error());
    exit(1);
}

static void *work(void *argument)
{
    static const tw_tensor table[] = {{"weights", 2, {ROWS, COLUMNS}}};
    float weights[COUNT] = {0}, gradient[COUNT];
    tw_comm *comm = argument;
    tw_reducer *reducer;
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
    return NULL;
}

int main(void)
{
    tw_comm *comms[RANKS];
    pthread_t threads[RANKS];
    must(tw_comm_create_threads(RANKS, comms));
    for (int r = 0; r < RANKS; r++)
        if (pthread_create(&threads[r], NULL, work, comms[r]) != 0) abort();
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    return 0;
}
