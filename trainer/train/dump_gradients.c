#include "dump_gradients.h"
#include "error.h"
#include "folder.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define NEIGHBOURS 8

static tw_status refuse_text(const char *text, const char *at)
{
    return tw_fail(TW_ERROR_ARGUMENT, "--dump-steps %s: '%s' is not a list of steps such as 100-107,500", text, at);
}

static int read_step(const char **at, uint64_t *step)
{
    char *end;
    if (!isdigit((unsigned char)**at)) return 0;
    *step = strtoull(*at, &end, 10);
    *at = end;
    return 1;
}

/* "100" or "100-107", up to the comma or the end. */
static tw_status parse_range(const char *text, const char **at, uint64_t *first, uint64_t *last)
{
    const char *begin = *at;
    if (!read_step(at, first)) return refuse_text(text, begin);
    *last = *first;
    if (**at == '-' && ((*at)++, !read_step(at, last))) return refuse_text(text, begin);
    if (**at && **at != ',') return refuse_text(text, begin);
    if (*first == 0 || *last < *first)
        return tw_fail(TW_ERROR_ARGUMENT, "--dump-steps %s: steps count from 1, and a range FIRST-LAST upwards", text);
    return TW_OK;
}

static tw_status check_range(const char *text, uint64_t first, uint64_t last, uint64_t done, uint64_t steps)
{
    if (last > steps)
        return tw_fail(TW_ERROR_ARGUMENT, "--dump-steps %s: the run has %llu steps", text, (unsigned long long)steps);
    if (first <= done)
        return tw_fail(TW_ERROR_ARGUMENT, "--dump-steps %s: the run resumes after step %llu", text,
                       (unsigned long long)done);
    return TW_OK;
}

static tw_status parse_list(const char *text, uint64_t done, uint64_t steps, gradient_dump *c)
{
    const char *at = text;
    do {
        if (c->range_count == DUMP_RANGES)
            return tw_fail(TW_ERROR_ARGUMENT, "--dump-steps %s: at most %d ranges", text, DUMP_RANGES);
        uint64_t first = 0, last = 0;
        TW_TRY(parse_range(text, &at, &first, &last));
        TW_TRY(check_range(text, first, last, done, steps));
        c->ranges[c->range_count].first = first;
        c->ranges[c->range_count++].last = last;
    } while (*at++ == ',');
    return TW_OK;
}

tw_status dump_parse(const char *folder, const char *text, uint64_t done, uint64_t steps, gradient_dump *c)
{
    *c = (gradient_dump){.folder = folder};
    if (text) return parse_list(text, done, steps, c);
    if (done >= steps) return TW_OK; /* a run at its end has no steps to keep */
    uint64_t first = done > steps / 2 ? done + 1 : steps / 2 + 1;
    c->ranges[0].first = first;
    c->ranges[0].last = first + NEIGHBOURS - 1 < steps ? first + NEIGHBOURS - 1 : steps;
    c->range_count = 1;
    return TW_OK;
}

int dump_is_due(const gradient_dump *c, uint64_t step)
{
    for (size_t i = 0; i < c->range_count; i++)
        if (step >= c->ranges[i].first && step <= c->ranges[i].last) return 1;
    return 0;
}

tw_status dump_begin(gradient_dump *c)
{
    return tw_state_create(&c->state);
}

tw_status dump_put(gradient_dump *c, const tw_tensor *tensor, const float *gradient)
{
    return tw_state_put(c->state, tensor->name, TW_F32, tensor->dims, tensor->shape, gradient);
}

tw_status dump_save(gradient_dump *c, uint64_t step)
{
    char path[FOLDER_PATH];
    snprintf(path, sizeof path, "%s/step-%06llu.safetensors", c->folder, (unsigned long long)step);
    tw_status status = tw_state_save(c->state, path);
    dump_release(c);
    return status;
}

void dump_release(gradient_dump *c)
{
    tw_state_destroy(c->state);
    c->state = NULL;
}
