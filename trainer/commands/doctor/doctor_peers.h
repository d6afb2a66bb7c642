/* doctor_peers.h - thinwire doctor --peers. */
#ifndef TRAINER_DOCTOR_PEERS_H
#define TRAINER_DOCTOR_PEERS_H

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

/* Measures the lines between the ranks that a launcher started, or threads. The program's exit code. */
int doctor_peers(const doctor_peers_settings *settings);

#endif
