/* doctor_report.h - what thinwire doctor --peers found, for a person and for a program. */
#ifndef TRAINER_DOCTOR_REPORT_H
#define TRAINER_DOCTOR_REPORT_H

#include "peers.h"

#include <cJSON.h>
#include <stdio.h>

enum { REPORT_SENTENCE = 512, REPORT_DURATION = 32 };

#define MBIT 125000.0 /* bytes */

/* The slowest direction of all, and what a step would take if every line were like it. */
typedef struct report_verdict {
    int from, to;
    double rate;                 /* bytes a second, the worse of alone and with both directions at work */
    double dense_step, dgc_step; /* seconds */
    char sentence[REPORT_SENTENCE];
} report_verdict;

/* Seconds in which all ranks exchange so many values in fp32, if every line were like the slowest. */
double report_dense_step(const peers_report *report, double parameters);
/* "3.2 ms", "1.5 s"; the text. */
const char *report_duration(double seconds, char text[REPORT_DURATION]);

tw_status report_judge(const peers_report *report, report_verdict *verdict);
void report_print(FILE *stream, const peers_report *report, const report_verdict *verdict);
/* NULL where there is no memory. */
cJSON *report_json(const peers_report *report, const report_verdict *verdict);

#endif
