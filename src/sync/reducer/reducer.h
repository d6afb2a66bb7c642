/* reducer.h - the inside of tw_reducer, shared by its files. */
#ifndef TW_REDUCER_H
#define TW_REDUCER_H

#include "comm.h"
#include "scheme.h"
#include "thread.h"

/* Tensors that travel together: a range of the table, and a scheme of their own. */
typedef struct tw_message {
    tw_scheme *scheme;
    size_t first, count;
    size_t missing; /* of them not yet submitted in this step */
} tw_message;

struct tw_reducer {
    tw_channel *channel;
    int rank, size;
    size_t count;       /* tensors */
    size_t elements;    /* in all of them */
    size_t *message_of; /* which message each tensor belongs to */
    float **gradients;  /* of the step under way; NULL: not yet submitted */
    double *squares;    /* the sum of squares of each */
    size_t message_count;
    tw_message *messages;    /* in the order in which backward completes them: the table's end first */
    const void *root_packet; /* what the last broadcast brought */
    size_t root_size;
    int clips; /* the scheme needs the norm of the whole gradient before the first message */

    tw_mutex lock; /* guards what stands below */
    tw_condition changed;
    int lock_made, condition_made, thread_made;
    tw_thread thread; /* runs the messages, unless overlap=off */
    size_t missing;   /* tensors not yet submitted */
    size_t done;      /* messages exchanged in this step */
    int stopping;
    int skipped;       /* some message of this step was not finite */
    tw_status failure; /* of the exchange; the reducer is then finished */
    char failure_text[512];
    tw_stats stats;
};

#endif
