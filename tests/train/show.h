/* show.h - whole runs of the toy, and what they leave in a folder. */
#ifndef TEST_TRAIN_SHOW_H
#define TEST_TRAIN_SHOW_H

#include "folder.h"
#include "run.h"
#include "toy.h"

#include <cJSON.h>

enum { RANKS = 2 };

typedef struct show {
    toy_run run;
    run_result results[CREW_MOST];
} show;

static inline tw_status run_one(crew_member *self)
{
    return run_worker(self->settings, self->work, self->comm, &((run_result *)self->context)[self->rank]);
}

/* A run of the toy as the test has prepared it. */
static inline void play(show *s, int workers, const char *out, const char *words)
{
    memset(s->run.toy.log, 0, sizeof s->run.toy.log);
    toy_play(&s->run, workers, run_one, s->results, out, words);
}

static inline void play_well(show *s, int workers, const char *out, const char *words)
{
    play(s, workers, out, words);
    crew_must_succeed(s->run.crew, workers);
}

static inline void begin_anew(void **state)
{
    remove_folder(state);
    make_folder(state);
}

static inline cJSON *read_summary(const char *out)
{
    char path[FOLDER_PATH], text[8192];
    snprintf(path, sizeof path, "%s/summary.json", out);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    cJSON *summary = cJSON_Parse(text);
    assert_non_null(summary);
    return summary;
}

static inline double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    assert_non_null(item);
    return item->valuedouble;
}

#endif
