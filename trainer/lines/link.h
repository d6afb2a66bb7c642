/* link.h - what goes from one rank to another and back, timed. */
#ifndef TRAINER_LINK_H
#define TRAINER_LINK_H

#include "interface.h"

#include <thinwire/thinwire_plugin.h>

enum { LINK_WINDOW = 16 }; /* messages under way in each direction */

/* This rank's end of the line to one other rank. */
typedef struct link_end {
    tw_transport_ops ops;
    void *self; /* the transport's */
    int rank, peer;
    double timeout;          /* seconds that the other end may be silent */
    double seconds;          /* that a stream shall take alone */
    unsigned char *out, *in; /* LINK_BYTES each */
    const char *counters;    /* the system's file of interfaces and what they carried */
} link_end;

#define LINK_CHUNK ((size_t)1 << 20)
#define LINK_BYTES (LINK_WINDOW * LINK_CHUNK)

/* What was found of one direction. Rates are bytes a second as they came in at the other end. */
typedef struct link_figures {
    double rate;                     /* with nothing in the other direction */
    double rate_both;                /* with both directions at work */
    double median, worst;            /* seconds that a message of 8 bytes takes: half of there and back */
    char interface[INTERFACE_BYTES]; /* that the bytes left by; "" where none of the system's counted them */
} link_figures;

/* Both ends call it; each gets the figures of what it sent. About seconds * 8.5 in all. TW_ERROR_PEER, naming the other
 * end, when it is silent for the timeout. */
tw_status link_measure(link_end *end, link_figures *figures);

/* Puts times in their order; one at least. */
void link_order_times(double *times, size_t count, double *median, double *worst);

#endif
