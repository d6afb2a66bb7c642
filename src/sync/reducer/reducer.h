/* reducer.h - the inside of tw_reducer, shared by its files. */
#ifndef TW_REDUCER_H
#define TW_REDUCER_H

#include "driver.h"
#include "submission.h"

/* Tensors that travel together: a range of the table, and a scheme of their own. */
typedef struct tw_message {
    tw_scheme *scheme;
    size_t first, count;
    size_t elements; /* in all of them */
    size_t missing;  /* of them not yet submitted in this step */
    float *room;     /* for all of them, where one was ever of another type than float */
} tw_message;

/* Option per_host; see reducer_host.h. */
typedef struct tw_reducer_host {
    int size;            /* workers of a host; 1: each is a host, and of the rest nothing is there */
    int place;           /* of this rank in its host */
    tw_comm *members;    /* of the host */
    tw_comm *firsts;     /* of all hosts, on these */
    tw_channel *inside;  /* the members': the driver's first for what comes before and after */
    tw_channel *between; /* the first ranks': the driver's first */
    float *values;       /* of all messages: the host's mean, then what was made of it */
    float **parts;       /* each tensor's */
} tw_reducer_host;

struct tw_reducer {
    tw_channel *channel; /* of all ranks; the driver's first, unless the host has one between hosts */
    int rank, size;
    int is_part; /* see tw_reducer_create_part */
    tw_reducer_host host;
    size_t count;             /* tensors */
    size_t elements;          /* in all of them */
    size_t *message_of;       /* which message each tensor belongs to */
    tw_submission *submitted; /* of the step under way */
    float **gradients;        /* of these, as floats */
    float **exchanged;        /* what schemes are given: these, or the host's mean of them */
    unsigned char *absent;    /* of these: 1 if there is no gradient in it */
    double *squares;          /* the sum of squares of each; negative: nobody has looked */
    size_t message_count;
    tw_message *messages;    /* in the order in which backward completes them: the table's end first */
    int clips;               /* the scheme needs the norm of the whole gradient before the first message */
    const void *latest;      /* the gradient handed over last in this step */
    int unmeasured;          /* nobody looked at some tensor of this step when it was submitted */
    size_t missing;          /* tensors not yet submitted */
    size_t ready;            /* messages of which no tensor is missing, and of none before them */
    tw_driver driver;        /* exchanges the messages that are ready */
    tw_reducer_counts stats; /* but for what the driver and the channels count */
};

/* The bytes of a message, at least, of a table where the spec does not say: it has no message_kb. */
size_t tw_reducer_least_message(const tw_scheme_ops *ops, const tw_tensor *tensors, size_t count);

/* TW_ERROR_SPEC where an option names tensors that are not in the table. */
tw_status tw_reducer_check_names(const char *spec, const tw_tensor *tensors, size_t count);
/* tw_reducer_create for some of a table's tensors: the spec may name others, and has been checked with all. */
tw_status tw_reducer_create_part(tw_comm *comm, const char *spec, const tw_tensor *tensors, size_t count,
                                 tw_reducer **reducer);

/* tw_reducer_submit_with for a tensor that the caller has looked at: nothing in it is NaN, and the norm of all tensors
 * of the step that are handed over in this way is below TW_LARGEST_NORM. */
tw_status tw_reducer_submit_sound(tw_reducer *reducer, size_t index, const tw_gradient *gradient);

/* Notes the sums of squares of what the message's scheme is given, where nobody has. */
void tw_reducer_measure(tw_reducer *reducer, const tw_message *message);

/* Whether tw_reducer_load_state would take it. */
tw_status tw_reducer_check_state(tw_reducer *reducer, const char *prefix, const tw_state *state);

/* What the gradients are of, one array a tensor, the same on all ranks: for schemes that look at it in a step, and
 * valid as long as the reducer is. */
void tw_reducer_show_weights(tw_reducer *reducer, const float *const *weights);

/* Whether an element's mean is over the ranks that sent it. Then it is by their shares, one a rank, which all ranks
 * have alike when a step's first tensor is submitted; they are valid as long as the reducer is. */
int tw_reducer_is_by_senders(const tw_reducer *reducer);
void tw_reducer_show_shares(tw_reducer *reducer, const float *shares);

/* What every call on a reducer begins with: it is there, and this is the process that made it. */
tw_status tw_reducer_need(const tw_reducer *reducer);

#endif
