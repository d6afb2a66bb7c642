/* Where a run is kept, and what a member of a group keeps of its own before it leaves. */
#include "checkpoint.h"
#include "error.h"
#include "folder.h"
#include "interrupt.h"
#include "run_state.h"
#include <stdio.h>
#include <string.h>

tw_status keep_tell_unwritten(const run *r)
{
    const worker *w = &r->worker;
    if (r->unwritten == TW_OK) return TW_OK;
    return tw_fail(r->unwritten,
                   "%s; the run has stopped after step %llu, and that step's checkpoint is in %s/checkpoints",
                   r->unwritten_text, (unsigned long long)w->step, w->settings.out);
}

tw_status keep_choose_folder(worker *w)
{
    char out[FOLDER_PATH] = "";
    int taken = 0;
    if (!w->settings.out || *w->settings.out) return TW_OK;
    do {
        TW_TRY(agree_status(w, w->rank == 0 ? folder_choose(w->task->ops->name, out, sizeof out) : TW_OK));
        TW_TRY(agree_text(w->comm, out, sizeof out));
        TW_TRY(folder_check_chosen(w->task->ops->name, out));
        taken = folder_has_checkpoint(out);
        TW_TRY(agree_any(w->comm, &taken));
    } while (taken);
    w->settings.out = w->chosen_out = strdup(out);
    return agree_status(w, w->chosen_out ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory for a folder's name"));
}

tw_status keep_by_itself(run *r, tw_status (*act)(worker *w))
{
    worker *w = &r->worker;
    tw_comm *comm = w->comm;
    int rank = w->rank, size = w->size;
    w->comm = r->alone;
    w->rank = 0;
    w->size = 1;
    tw_status status = act(w);
    w->comm = comm;
    w->rank = rank;
    w->size = size;
    return status;
}

/* The folder of this worker's own, where it has something to keep. */
tw_status keep_folder(run *r)
{
    worker *w = &r->worker;
    if (!w->settings.out || r->journal.shares) return TW_OK;
    if (!*w->settings.out) {
        TW_TRY(keep_by_itself(r, keep_choose_folder));
        r->chosen_out = r->settings.out = w->settings.out;
        w->chosen_out = NULL; /* it is the run's, which outlives the worker */
        if (!w->settings.quiet) fprintf(stderr, "thinwire: this run is kept in %s\n", r->chosen_out);
    }
    return journal_share(&r->journal, w);
}

tw_status keep_alone(run *r)
{
    worker *w = &r->worker;
    if (!w->settings.out) return TW_OK;
    TW_TRY(keep_folder(r));
    TW_TRY(worker_show_own(w)); /* in an evaluation they are shown already */
    TW_TRY(worker_show_shared(w));
    TW_TRY(keep_by_itself(r, checkpoint_write));
    return worker_show_own(w);
}

tw_status keep_look(run *r)
{
    worker *w = &r->worker;
    int asked = interrupt_asked(), changes;
    if (w->spoilt) return worker_spoilt(w);
    if (asked || w->stops) TW_TRY(keep_alone(r));
    TW_TRY(keep_tell_unwritten(r));
    r->leaves = asked;
    TW_TRY(group_look(r->group, w->comm, r->leaves, &changes));
    if (!changes) return TW_OK;
    TW_TRY(carry_hand_over(w, r->leaves));
    return tw_fail(TW_ERROR_PEER, "somebody comes to the group, or leaves it");
}
