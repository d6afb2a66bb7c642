/* run_log.h - what a run of thinwire train has written of itself into its folder: metrics.jsonl and summary.json. */
#ifndef TRAINER_RUN_LOG_H
#define TRAINER_RUN_LOG_H

#include <cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <thinwire/thinwire.h>

/* Of one line. Not a number where the line has none. */
typedef enum run_figure { RUN_STEP, RUN_EPOCH, RUN_SECONDS, RUN_BYTES, RUN_LOSS, RUN_METRIC, RUN_FIGURES } run_figure;

typedef struct run_line {
    double values[RUN_FIGURES];
} run_line;

typedef struct run_lines {
    run_line *lines;
    size_t count, room;
} run_lines;

typedef struct run_log {
    cJSON *start;          /* the first line; {} where there is none */
    cJSON *summary;        /* NULL: the run has not ended */
    run_lines steps;       /* losses of training */
    run_lines evaluations; /* after epochs, on data that is not trained on */
    char metric[64];       /* the task's figure of merit; "" in a run without an evaluation */
    char split[32];        /* what it was taken on: "validation" or "test" */
    bool percent;          /* RUN_METRIC is in per cent */
} run_log;

/* Where a run was resumed from an earlier step, what follows takes the place of what was there. TW_ERROR_IO,
 * TW_ERROR_FORMAT: the text names file and line, and there is nothing to release. */
tw_status run_log_read(const char *folder, run_log *log);
void run_log_release(run_log *log);

/* A number of a group of an object, or of the object itself where `group` is NULL. Not a number: it has none. */
double run_log_number(const cJSON *object, const char *group, const char *key);
/* A text; "" where there is none. */
const char *run_log_text(const cJSON *object, const char *key);

#endif
