#include "pipeline_cut.h"
#include <math.h>

/* Of each version that a micro-batch under way has gone through; and the current one, while another is in its place. */
static size_t stashed(size_t stage, size_t stages)
{
    return stage + 1 < stages ? stages - stage + 1 : 0;
}

size_t pipeline_copies(size_t stage, size_t stages, size_t states)
{
    return 2 + states + stashed(stage, stages);
}

/* least[s][j]: of stages 0 to s on the units before j. */
typedef struct search {
    double least[PIPELINE_STAGES][PIPELINE_UNITS + 1];
    size_t begins[PIPELINE_STAGES][PIPELINE_UNITS + 1];
} search;

/* Stage `stage` ends at `end`: where it begins. From the end back, each unit makes it slower and larger. */
static void extend(const pipeline_problem *p, size_t stage, size_t end, search *s)
{
    const size_t copies = pipeline_copies(stage, p->stages, p->states);
    double seconds = 0, bytes = 0, *least = &s->least[stage][end];
    *least = INFINITY;
    for (size_t begin = end; begin-- > stage;) {
        seconds += p->machines[stage].seconds[begin];
        bytes += (double)(p->elements[begin] * copies * sizeof(float));
        const double before = stage ? s->least[stage - 1][begin] : begin ? INFINITY : 0;
        const double worst = fmax(before, seconds);
        if (bytes > p->machines[stage].room || !(worst < *least)) continue;
        *least = worst;
        s->begins[stage][end] = begin;
    }
}

double pipeline_cut(const pipeline_problem *p, size_t *ends)
{
    static _Thread_local search s;
    if (p->units < p->stages) return INFINITY;
    for (size_t stage = 0; stage < p->stages; stage++)
        for (size_t end = stage + 1; end <= p->units; end++) extend(p, stage, end, &s);
    const double least = s.least[p->stages - 1][p->units];
    for (size_t stage = p->stages, end = p->units; stage-- > 0 && isfinite(least);) {
        ends[stage] = end;
        end = s.begins[stage][end];
    }
    return least;
}
