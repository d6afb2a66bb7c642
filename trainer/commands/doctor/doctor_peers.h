/* doctor_peers.h - thinwire doctor --peers. */
#ifndef TRAINER_DOCTOR_PEERS_H
#define TRAINER_DOCTOR_PEERS_H

#include "peers.h"

#include <stdbool.h>

typedef struct doctor_peers_settings {
    int transport;  /* transport_choice */
    long workers;   /* processes that join, or threads where no launcher started several ranks */
    char *join;     /* where processes meet; NULL: there is a launcher, or none */
    char *key_file; /* NULL: none */
    bool seal;
    double timeout;
    const char *json; /* NULL: none */
} doctor_peers_settings;

/* The lines between the ranks of the comm, none of which is busy. A collective, after which the comm is to be
 * destroyed. */
tw_status doctor_measure(tw_comm *comm, double timeout, peers_report *found);

/* Measures the lines between the ranks that a launcher started, or threads. The program's exit code. */
int doctor_peers(const doctor_peers_settings *settings);

#endif
