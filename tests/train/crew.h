/* crew.h - the workers of a run as threads, each playing the same part. What a part meets stays in its member;
 * assertions are made on the test's own thread, to which cmocka's belong. */
#ifndef TEST_TRAIN_CREW_H
#define TEST_TRAIN_CREW_H

#include "error.h"
#include "support.h"
#include "worker.h"

#include <pthread.h>

enum { CREW_MOST = 8 };

typedef struct crew_member {
    tw_status (*play)(struct crew_member *self);
    const train_settings *settings;
    const task *work;
    void *context; /* the same for all */
    tw_comm *comm; /* destroyed after the part */
    int rank;
    worker worker; /* the part may make it; released after the part */
    pthread_t thread;
    tw_status status;
    char text[1024];
} crew_member;

static inline void *crew_play(void *argument)
{
    crew_member *self = argument;
    self->status = self->play(self);
    snprintf(self->text, sizeof self->text, "%s", self->status == TW_OK ? "" : tw_last_error());
    if (self->worker.comm) worker_release(&self->worker);
    tw_comm_destroy(self->comm);
    return NULL;
}

/* Plays it on `size` workers; `first` says what they have in common. */
static inline void crew_run(crew_member *crew, int size, crew_member first)
{
    tw_comm *comms[CREW_MOST];
    assert_ok(tw_comm_create_threads(size, comms));
    for (int r = 0; r < size; r++) {
        crew[r] = first;
        crew[r].comm = comms[r];
        crew[r].rank = r;
        assert_ok(tw_comm_set_timeout(comms[r], 60));
        assert_int_equal(pthread_create(&crew[r].thread, NULL, crew_play, &crew[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(crew[r].thread, NULL);
}

static inline void crew_must_succeed(const crew_member *crew, int size)
{
    for (int r = 0; r < size; r++)
        if (crew[r].status != TW_OK) fail_msg("rank %d: %s", r, crew[r].text);
}

static inline tw_status crew_create_worker(crew_member *self)
{
    return worker_create(self->settings, self->work, self->comm, &self->worker);
}

/* Up to step `last`, or until a worker that gossips has diverged. */
static inline tw_status crew_take_steps(worker *w, uint64_t last)
{
    double loss;
    while (w->step < last && !w->spoilt) TW_TRY(worker_step(w, &loss));
    return TW_OK;
}

static inline tw_status crew_take_all_steps(crew_member *self)
{
    worker *w = &self->worker;
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(w));
    TW_TRY(crew_take_steps(w, w->steps));
    return worker_end(w);
}

#endif
