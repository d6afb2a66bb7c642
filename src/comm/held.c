#include "held.h"

#include "error.h"
#include "memory.h"
#include "numbers.h"

tw_status tw_comm_need(const tw_comm *comm)
{
    TW_TRY(tw_need(comm, "comm"));
    return tw_process_check(comm->process);
}

void tw_comm_withdraw(const tw_comm *comm, int because_of)
{
    if (because_of >= 0 && comm->ops.leave_because_of)
        comm->ops.leave_because_of(comm->self, because_of);
    else if (comm->ops.leave)
        comm->ops.leave(comm->self);
}

void tw_comm_hold(tw_comm *comm)
{
    comm->users++;
}

void tw_comm_release(tw_comm *comm)
{
    if (--comm->users != 0) return;
    if (comm->maimed) tw_comm_withdraw(comm, -1);
    comm->ops.destroy(comm->self);
    tw_numbers_free(comm);
    tw_mutex_destroy(&comm->mutex);
    tw_free(comm);
}
