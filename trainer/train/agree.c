#include "agree.h"
#include "error.h"
#include "interrupt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How often the ranks talk about stopping: far above what a message costs, short for a person who waits. */
#define STOP_VOTE_SECONDS 0.5
#define STOP_VOTE_STEPS 1000

/* Gathers `size` bytes from every rank; the caller frees *gathered. */
static tw_status agree_gather(tw_comm *comm, const void *own, size_t size, void **gathered)
{
    void *all = malloc((size_t)tw_comm_size(comm) * size);
    if (!all) return tw_fail(TW_ERROR_MEMORY, "no memory to hear %d workers", tw_comm_size(comm));
    tw_status status = tw_comm_allgather(comm, own, size, all);
    if (status == TW_OK)
        *gathered = all;
    else
        free(all);
    return status;
}

/* The lowest rank that failed, and how; size where none did. */
static tw_status find_failure(tw_comm *comm, tw_status own, int *failed, tw_status *found)
{
    int32_t mine = (int32_t)own;
    void *gathered = NULL;
    TW_TRY(agree_gather(comm, &mine, sizeof mine, &gathered));
    const int32_t *statuses = gathered;
    int rank = 0, size = tw_comm_size(comm);
    while (rank < size && statuses[rank] == TW_OK) rank++;
    *failed = rank;
    *found = rank < size ? (tw_status)statuses[rank] : TW_OK;
    free(gathered);
    return TW_OK;
}

static tw_status agree_text_of(tw_comm *comm, int rank, char *text, size_t room)
{
    TW_TRY(tw_comm_broadcast(comm, rank, text, room));
    text[room - 1] = 0;
    return TW_OK;
}

/* Its own files, memory and options are what another rank speaks of. Those in one process have them in common, and what
 * begins with a rank says whose it is. */
static int speaks_for_itself(const tw_comm *comm, const char *own, const char *text)
{
    return strcmp(own, text) == 0 || strncmp(text, "rank ", 5) == 0 || strcmp(tw_comm_transport(comm), "threads") == 0;
}

tw_status agree_ranks(tw_comm *comm, tw_status own, int *agreed)
{
    int failed;
    tw_status found;
    char mine[512] = "", text[512];
    if (own != TW_OK) snprintf(mine, sizeof mine, "%s", tw_last_error());
    TW_TRY(find_failure(comm, own, &failed, &found));
    if (found == TW_OK) return TW_OK;
    memcpy(text, mine, sizeof text);
    TW_TRY(agree_text_of(comm, failed, text, sizeof text));
    *agreed = 1;
    if (speaks_for_itself(comm, mine, text)) return tw_fail(found, "%s", text);
    return tw_fail(found, "rank %d: %s", failed, text);
}

tw_status agree_text(tw_comm *comm, char *text, size_t room)
{
    return agree_text_of(comm, 0, text, room);
}

/* Who fails in a group whose members come and go ends alone, and the others notice that it is gone. */
tw_status agree_status(worker *w, tw_status own)
{
    if (w->settings.changing) return own;
    return agree_ranks(w->comm, own, &w->agreed);
}

const char *agree_data_text(const task *work, char text[AGREE_DATA_TEXT])
{
    snprintf(text, AGREE_DATA_TEXT, "%s: training data %s%s%s", work->description, work->identity,
             *work->content ? ", " : "", work->content);
    return text;
}

const char *agree_held_out_text(const task *work, char text[AGREE_DATA_TEXT])
{
    snprintf(text, AGREE_DATA_TEXT, work->held_out ? "validation data of checksum %08x" : "no validation data",
             work->held_out);
    return text;
}

tw_status agree_data(tw_comm *comm, const task *work)
{
    char own[2][AGREE_DATA_TEXT] = {{0}}, first[2][AGREE_DATA_TEXT];
    agree_data_text(work, own[0]);
    agree_held_out_text(work, own[1]);
    memcpy(first, own, sizeof first);
    TW_TRY(agree_text(comm, first[0], sizeof first));
    first[0][AGREE_DATA_TEXT - 1] = 0;
    const int line = strcmp(own[0], first[0]) == 0;
    if (strcmp(own[line], first[line]) == 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "rank %d has read other data than rank 0; all ranks read the same, and share it among themselves; "
                   "rank %d has %s; rank 0 has %s",
                   tw_comm_rank(comm), tw_comm_rank(comm), own[line], first[line]);
}

tw_status agree_replicas(worker *w, uint32_t own)
{
    void *gathered = NULL;
    TW_TRY(agree_gather(w->comm, &own, sizeof own, &gathered));
    const uint32_t *checksums = gathered;
    tw_status status = TW_OK;
    for (int r = 1; r < w->size && status == TW_OK; r++) {
        if (checksums[r] == checksums[0]) continue;
        w->agreed = 1;
        w->diverged = 1;
        status = tw_fail(TW_ERROR_STATE,
                         "the replicas differ after step %llu: rank %d's weights have checksum %08x, rank 0's %08x; "
                         "no further step can be trusted, resume from the last checkpoint",
                         (unsigned long long)w->step, r, checksums[r], checksums[0]);
    }
    free(gathered);
    return status;
}

tw_status agree_any(tw_comm *comm, int *any)
{
    int32_t own = *any != 0;
    void *gathered = NULL;
    TW_TRY(agree_gather(comm, &own, sizeof own, &gathered));
    for (int r = 0; r < tw_comm_size(comm); r++) *any |= ((const int32_t *)gathered)[r];
    free(gathered);
    return TW_OK;
}

typedef struct stop_word {
    int32_t asked;
    float seconds_a_step;
} stop_word;

/* Steps until the ranks talk again, from figures all of them have. */
static uint64_t stop_interval(const stop_word *words, int size)
{
    float slowest = 0;
    for (int r = 0; r < size; r++)
        if (words[r].seconds_a_step > slowest) slowest = words[r].seconds_a_step;
    double steps = slowest > 0 ? STOP_VOTE_SECONDS / slowest : 1;
    if (steps < 1) return 1;
    return steps > STOP_VOTE_STEPS ? STOP_VOTE_STEPS : (uint64_t)steps;
}

tw_status agree_to_stop(worker *w, stop_vote *vote, int *stop)
{
    *stop = 0;
    if (w->step < vote->next_step) return TW_OK;
    double now = tw_clock();
    stop_word mine = {.asked = interrupt_asked() || w->spoilt || w->stops};
    if (vote->last_time > 0 && w->step > vote->last_step)
        mine.seconds_a_step = (float)((now - vote->last_time) / (double)(w->step - vote->last_step));
    void *gathered = NULL;
    TW_TRY(agree_gather(w->comm, &mine, sizeof mine, &gathered));
    const stop_word *words = gathered;
    for (int r = 0; r < w->size; r++) *stop |= words[r].asked;
    *vote = (stop_vote){.next_step = w->step + stop_interval(words, w->size), .last_time = now, .last_step = w->step};
    free(gathered);
    return TW_OK;
}
