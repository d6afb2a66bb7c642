/* interface.h - which network interface carried bytes, by the system's own counters. */
#ifndef TRAINER_INTERFACE_H
#define TRAINER_INTERFACE_H

enum { INTERFACE_BYTES = 16, INTERFACES_MOST = 64 };

#define INTERFACE_COUNTERS "/proc/net/dev"

typedef struct interface_counts {
    int count;
    char names[INTERFACES_MOST][INTERFACE_BYTES];
    double sent[INTERFACES_MOST]; /* bytes since the system started */
} interface_counts;

/* Reads the counters; none where `path` cannot be read. */
void interface_read(const char *path, interface_counts *counts);

/* The interface that sent most between the two, if it sent at least `bytes`; else "". */
void interface_find(const interface_counts *before, const interface_counts *after, double bytes,
                    char name[INTERFACE_BYTES]);

#endif
