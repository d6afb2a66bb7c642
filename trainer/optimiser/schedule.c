#include "schedule.h"
#include "error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMS                                                                                                          \
    "constant, cosine, step, step:A,B with fractions of the run below 1 and epochs from 1 on, decay:F,E with a "       \
    "factor "                                                                                                          \
    "below 1 and epochs before it, plateau:F, isqrt, or isqrt:S with the share of the run to warm up in"

static tw_status parse_milestones(const char *text, uint64_t steps_per_epoch, schedule *s)
{
    const char *at = text;
    for (;;) {
        char *end;
        double value = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !(value > 0 && value < 1e9))
            return tw_fail(TW_ERROR_ARGUMENT, "schedule 'step:%s' has a bad milestone at '%s'; use " FORMS, text, at);
        if (s->milestone_count == SCHEDULE_MILESTONES)
            return tw_fail(TW_ERROR_ARGUMENT, "schedule 'step:%s' has more than %d milestones", text,
                           SCHEDULE_MILESTONES);
        double unit = value < 1 ? (double)s->steps : (double)steps_per_epoch;
        s->milestones[s->milestone_count++] = (uint64_t)llround(value * unit);
        if (!*end) return TW_OK;
        at = end + 1;
    }
}

static tw_status parse_factor(const char *text, schedule *s)
{
    char *end;
    const char *at = strchr(text, ':') + 1;
    double epochs = 0;
    s->factor = strtod(at, &end);
    int good = end != at && s->factor > 0 && s->factor < 1;
    if (good && s->kind == SCHEDULE_DECAY && *end == ',') {
        epochs = strtod(at = end + 1, &end);
        good = end != at && epochs >= 0 && epochs < 1e9 && epochs == floor(epochs);
    } else if (s->kind == SCHEDULE_DECAY) {
        good = 0;
    }
    s->full_epochs = good ? (uint64_t)epochs : 0;
    if (good && !*end) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "schedule '%s' has a bad number at '%s'; use " FORMS, text, at);
}

/* A share of the run, or nothing: then the warm-up is as long as the run's. */
static tw_status parse_warmup(const char *text, schedule *s)
{
    char *end = (char *)text + strlen("isqrt");
    double share = 0;
    s->kind = SCHEDULE_ISQRT;
    if (*end == ':') {
        share = strtod(text + strlen("isqrt:"), &end);
        if (*end || !(share > 0 && share < 1))
            return tw_fail(TW_ERROR_ARGUMENT, "schedule '%s' has a bad share; use " FORMS, text);
        s->warmup = (uint64_t)fmax(1, round(share * (double)s->steps));
    }
    if (s->warmup > 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "schedule '%s' begins at the end of the warm-up, and --warmup is 0", text);
}

int schedule_is_plateau(const char *text)
{
    return text && strncmp(text, "plateau", 7) == 0;
}

tw_status schedule_parse(const char *text, double rate, uint64_t warmup, uint64_t steps, uint64_t steps_per_epoch,
                         schedule *out)
{
    schedule s = {.rate = rate, .warmup = warmup, .steps = steps, .steps_per_epoch = steps_per_epoch};
    s.best_loss = INFINITY;
    if (strcmp(text, "constant") == 0) {
        s.kind = SCHEDULE_CONSTANT;
    } else if (strcmp(text, "cosine") == 0) {
        s.kind = SCHEDULE_COSINE;
    } else if (strcmp(text, "step") == 0 || strncmp(text, "step:", 5) == 0) {
        s.kind = SCHEDULE_STEP;
        TW_TRY(parse_milestones(text[4] ? text + 5 : "0.5,0.75", steps_per_epoch, &s));
    } else if (strncmp(text, "decay:", 6) == 0 || strncmp(text, "plateau:", 8) == 0) {
        s.kind = *text == 'd' ? SCHEDULE_DECAY : SCHEDULE_PLATEAU;
        TW_TRY(parse_factor(text, &s));
    } else if (strcmp(text, "isqrt") == 0 || strncmp(text, "isqrt:", 6) == 0) {
        TW_TRY(parse_warmup(text, &s));
    } else {
        return tw_fail(TW_ERROR_ARGUMENT, "unknown schedule '%s'; use " FORMS, text);
    }
    *out = s;
    return TW_OK;
}

static double stepped(const schedule *s, uint64_t step)
{
    double rate = s->rate;
    for (size_t i = 0; i < s->milestone_count; i++)
        if (step >= s->milestones[i]) rate *= 0.1;
    return rate;
}

static double cosine(const schedule *s, uint64_t step)
{
    if (step >= s->steps) return 0;
    double progress = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    return s->rate * 0.5 * (1 + cos(acos(-1.0) * progress));
}

static double decayed(const schedule *s, uint64_t step)
{
    uint64_t epoch = step / s->steps_per_epoch;
    return epoch < s->full_epochs ? s->rate : s->rate * pow(s->factor, (double)(epoch - s->full_epochs + 1));
}

double schedule_rate(const schedule *s, uint64_t step)
{
    if (step < s->warmup) return s->rate * (double)(step + 1) / (double)s->warmup;
    switch (s->kind) {
    case SCHEDULE_STEP:
        return stepped(s, step);
    case SCHEDULE_COSINE:
        return cosine(s, step);
    case SCHEDULE_DECAY:
        return decayed(s, step);
    case SCHEDULE_ISQRT:
        return s->rate * sqrt((double)s->warmup / (double)(step + 1));
    case SCHEDULE_PLATEAU:
        return s->rate * pow(s->factor, s->falls);
    case SCHEDULE_CONSTANT:
        break;
    }
    return s->rate;
}

void schedule_observe(schedule *s, double validation_loss)
{
    if (!(validation_loss < s->best_loss)) s->falls++;
    s->best_loss = fmin(s->best_loss, validation_loss);
}
