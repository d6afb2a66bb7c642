/* stage_line.h - arrays from one stage of a pipeline to its neighbour, one way: tw_comm_lend's messages, with a
 * checksum, in the order in which they were sent.
 *
 * What is sent is copied, and the call returns while it travels. A message may be asked for before it is received, so
 * that it travels while this stage computes. */
#ifndef TRAINER_STAGE_LINE_H
#define TRAINER_STAGE_LINE_H

#include "task.h"
#include <thinwire/thinwire_plugin.h>

/* How a value travels. FP16 rounds to nearest; what is beyond its range becomes the largest it has, and infinity and
 * NaN stay what they are. FP8 is tw_fp8_encode's, forth and back. */
typedef enum stage_values { STAGE_FP32, STAGE_FP16, STAGE_FP8, STAGE_VALUES } stage_values;
/* As --pipeline has them: "fp32". */
extern const char *const stage_values_names[STAGE_VALUES];

/* What a rank has in common for all of its lines. */
typedef struct stage_wire {
    tw_comm *comm;
    tw_transport_ops ops; /* lent */
    void *self;
    double sent, received, sent_as_fp32; /* bytes */
    double seconds;                      /* that messages were waited for */
} stage_wire;

tw_status stage_wire_open(tw_comm *comm, stage_wire *wire);

/* What goes with an array. */
typedef struct stage_note {
    task_score score;
    uint64_t ends; /* see exchange_pipeline.c */
} stage_note;

enum { STAGE_SLOTS = 2 }; /* messages under way on a line */

typedef struct stage_slot {
    unsigned char *bytes;
    size_t room;
    void *request; /* NULL: nothing is under way */
} stage_slot;

typedef struct stage_line {
    stage_wire *wire;
    int peer;
    unsigned channel;
    stage_slot slots[STAGE_SLOTS];
    uint64_t turn; /* messages that were sent, or received */
} stage_line;

/* `note` may be NULL. TW_ERROR_PEER: the neighbour is lost. */
tw_status stage_line_send(stage_line *line, stage_values values, const float *x, size_t count, const stage_note *note);
/* `note` may be NULL. TW_ERROR_PACKET: it is not what was sent, or of another size. */
tw_status stage_line_receive(stage_line *line, stage_values values, float *x, size_t count, stage_note *note);
/* The next message, which is sure to come, may come now. */
tw_status stage_line_ask(stage_line *line, stage_values values, size_t count);
/* All that was sent has left. */
tw_status stage_line_flush(stage_line *line);
/* Takes back what is under way. */
void stage_line_close(stage_line *line);

/* For tests. */
uint16_t stage_half(float value);
float stage_single(uint16_t half);

#endif
