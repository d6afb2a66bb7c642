/* A plan as a table for a person. */
#include "plan.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FIGURE = 32, LINE = 96 };

/* What is written, and how much it would have been. */
typedef struct page {
    char *text;
    size_t capacity, used;
} page;

static void __attribute__((format(printf, 2, 3))) page_add(page *p, const char *form, ...)
{
    size_t room = p->used < p->capacity ? p->capacity - p->used : 0;
    va_list values;
    va_start(values, form);
    int written = vsnprintf(room ? p->text + p->used : NULL, room, form, values);
    va_end(values);
    if (written > 0) p->used += (size_t)written;
}

static const char *seconds_text(double seconds, char text[FIGURE])
{
    int small = seconds < 0.9995;
    snprintf(text, FIGURE, small ? "%.3g ms" : "%.4g s", small ? 1e3 * seconds : seconds);
    return text;
}

static const char *bytes_text(double bytes, char text[FIGURE])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    for (; bytes >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++) bytes /= 1000;
    snprintf(text, FIGURE, "%.*f %s", unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2, bytes, units[unit]);
    return text;
}

static void add_candidate(page *p, const tw_plan_row *row, double seen_from)
{
    char step[FIGURE], bytes[FIGURE], memory[FIGURE] = "-";
    if (isfinite(row->memory_bytes)) bytes_text(row->memory_bytes, memory);
    page_add(p, "%-40s %10s %8.1f%% %10s %10s   ", row->spec, seconds_text(row->step_seconds, step),
             100 * row->utilisation, bytes_text(row->bytes_per_step, bytes), memory);
    if (row->seen)
        page_add(p, "%s (%s)\n", row->seen, row->page);
    else if (seen_from > 0)
        page_add(p, "not measured in runs of fewer than %g steps\n", seen_from);
    else
        page_add(p, "not measured\n");
}

static void add_all(page *p, const tw_plan *plan)
{
    char line[LINE], pass[FIGURE];
    const tw_plan_question *q = &plan->question;
    const tw_world_options world = {
        .bandwidth = q->bandwidth, .bandwidth_down = q->bandwidth_down, .latency = q->latency};
    tw_line_text(&world, line, sizeof line);
    page_add(p, "%d workers, %zu parameters, %llu steps, a pass of %s, the line %s\n\n", q->workers, plan->elements,
             (unsigned long long)q->steps, seconds_text(q->pass_seconds, pass), line);
    page_add(p, "%-40s %10s %9s %10s %10s   %s\n", "candidate", "a step", "computes", "sent", "memory",
             "to the same loss");
    for (size_t i = 0; i < plan->count; i++)
        if (!plan->rows[i].left_out) add_candidate(p, &plan->rows[i], plan->seen_from[i]);
    for (size_t i = 0; i < plan->count; i++)
        if (plan->rows[i].left_out) page_add(p, "%s is left out: %s\n", plan->rows[i].spec, plan->rows[i].left_out);
    page_add(p, "\n%s is chosen. %s\n", plan->chosen->spec, plan->why);
}

size_t tw_plan_text(const tw_plan *plan, char *text, size_t capacity)
{
    page p = {text, text ? capacity : 0, 0};
    if (p.capacity) *text = 0;
    if (plan) add_all(&p, plan);
    return p.used;
}
