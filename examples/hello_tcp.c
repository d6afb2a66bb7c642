/* hello_threads.c over sockets: the same command four times, on one machine or on four.
 *
 *     hello_tcp 10.0.0.5:29400 4 */
#include <stdio.h>
#include <stdlib.h>
#include <thinwire/thinwire_tcp.h>

enum { ROWS = 10, COLUMNS = 100, COUNT = ROWS * COLUMNS, STEPS = 1000 };

static void must(tw_status status)
{
    if (status == TW_OK) return;
    fprintf(stderr, "%s: %s\n", tw_status_name(status), tw_last_error());
    exit(1);
}

int main(int argc, char **argv)
{
    static const tw_tensor table[] = {{"weights", 2, {ROWS, COLUMNS}}};
    float weights[COUNT] = {0}, gradient[COUNT];
    tw_comm *comm;
    tw_reducer *reducer;
    if (argc != 3) {
        fprintf(stderr, "usage: hello_tcp HOST:PORT RANKS\n");
        return 2;
    }
    must(tw_tcp_join(argv[1], -1, atoi(argv[2]), NULL, 60,
                     &comm)); /* without a key: whoever reaches the port may join */
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
    return 0;
}
