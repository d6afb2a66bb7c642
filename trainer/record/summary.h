/* summary.h - what a run came to, as summary.json. */
#ifndef TRAINER_SUMMARY_H
#define TRAINER_SUMMARY_H

#include "worker.h"
#include <cJSON.h>

/* In a run's folder. */
#define SUMMARY "summary.json"

/* Brings the workers' totals together: *mean receives the mean over them. Every rank calls it. */
tw_status summary_gather(worker *w, totals *mean);

/* The object that summary.json holds. `result` is what the run is summed up with, and `validation` what models are
 * chosen by, or NULL where the task has no such data; both are of the weights of "chosen_step", the best by validation,
 * while weights_crc32c is of the last ones. metric.value is a fraction, 0 .. 1; a ratio is null where nothing
 * was sent (one worker). Bytes and seconds are the mean over the workers and count over all resumptions, each with the
 * few bytes of its handshake. */
cJSON *summary_json(const worker *w, const evaluation *result, const evaluation *validation, const totals *mean);

/* Writes it to <out>/summary.json and where --json says. */
tw_status summary_write(const train_settings *settings, const cJSON *summary);

#endif
