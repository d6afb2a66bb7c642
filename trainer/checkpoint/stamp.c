#include "stamp.h"
#include "error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANK "rank"
#define WORKERS "workers"
#define RUN "run"
#define MODEL_SUM "model checksum"

void stamp_name_run(char name[RUN_NAME])
{
    uint64_t bits;
    if (getentropy(&bits, sizeof bits) != 0) bits = (uint64_t)(1e9 * tw_clock()) << 16 ^ (uint64_t)getpid();
    snprintf(name, RUN_NAME, "%016llx", (unsigned long long)bits);
}

static void copy_text(const char *stored, char *text, size_t room)
{
    snprintf(text, room, "%s", stored ? stored : "");
}

tw_status stamp_put_run(const char *run, tw_state *model)
{
    return tw_state_put_text(model, RUN, run);
}

void stamp_read(const tw_state *model, int workers, stamp *s)
{
    const char *written = tw_state_text(model, WORKERS);
    s->workers = written ? atoi(written) : workers;
    copy_text(tw_state_text(model, RUN), s->run, sizeof s->run);
    copy_text(checksum_sum(model), s->model, sizeof s->model);
}

tw_status stamp_hear(stamp *s)
{
    s->run[sizeof s->run - 1] = s->model[sizeof s->model - 1] = 0;
    if (s->workers >= 1 && s->workers <= WORKERS_MOST) return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "rank 0 tells of a checkpoint of %d workers; there are 1 to %d", s->workers,
                   WORKERS_MOST);
}

/* What a worker's file says of its place. */
enum { STAMPED = 4 };

static void describe_stamp(const stamp *s, int rank, setting_text texts[STAMPED])
{
    texts[0] = (setting_text){.key = RANK, .value = texts[0].space};
    texts[1] = (setting_text){.key = WORKERS, .value = texts[1].space};
    texts[2] = (setting_text){.key = RUN, .value = s->run};
    texts[3] = (setting_text){.key = MODEL_SUM, .value = s->model};
    snprintf(texts[0].space, sizeof texts[0].space, "%d", rank);
    snprintf(texts[1].space, sizeof texts[1].space, "%d", s->workers);
}

tw_status stamp_put(const stamp *s, int rank, tw_state *state)
{
    setting_text texts[STAMPED] = {0};
    describe_stamp(s, rank, texts);
    for (int i = 0; i < STAMPED; i++) TW_TRY(tw_state_put_text(state, texts[i].key, texts[i].value));
    return TW_OK;
}

/* A checkpoint of version 0.1 has no stamp, in any of its files. */
tw_status stamp_check(const stamp *s, int rank, const tw_state *state, const char *path)
{
    setting_text texts[STAMPED] = {0};
    describe_stamp(s, rank, texts);
    for (int i = 0; i < STAMPED; i++) {
        const char *key = texts[i].key, *wanted = *s->run ? texts[i].value : NULL, *stored = tw_state_text(state, key);
        if (stored && !wanted)
            return tw_fail(TW_ERROR_STATE, "%s is of a later version than the model.safetensors beside it", path);
        if (wanted && (!stored || strcmp(stored, wanted) != 0))
            return tw_fail(TW_ERROR_STATE,
                           "%s does not belong to the model.safetensors beside it: its %s is %s, it should be %s", path,
                           key, stored ? stored : "missing", wanted);
    }
    return TW_OK;
}
