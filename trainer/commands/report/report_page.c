/* The report as HTML: what is written into it comes from files, and so is escaped. */
#include "progress.h"
#include "report.h"

#include <math.h>
#include <string.h>

static void write_escaped(FILE *file, const char *text)
{
    for (; *text; text++) switch (*text) {
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '&':
            fputs("&amp;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        default:
            fputc((unsigned char)*text < ' ' ? ' ' : *text, file);
        }
}

static void write_cell(FILE *file, const char *text)
{
    fputs("<td>", file);
    write_escaped(file, text);
    fputs("</td>", file);
}

/* A dash where there is none. */
static void write_number(FILE *file, double value, const char *format)
{
    char text[64] = "-";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (isfinite(value)) snprintf(text, sizeof text, format, value);
#pragma GCC diagnostic pop
    write_cell(file, text);
}

static void write_bytes(FILE *file, double value)
{
    char text[BYTES_TEXT] = "-";
    if (isfinite(value)) bytes_text(value, text);
    write_cell(file, text);
}

/* --- the figures ---------------------------------------------------------------------------------------------- */

static void write_name(FILE *file, const report_run *run)
{
    fprintf(file, "<td><span class=mark style=\"background:%s\"></span>", run->colour);
    write_escaped(file, run->name);
    fputs("</td>", file);
}

/* What it was told, out of its first line, since a run that has not ended has no other. */
static void write_setting(FILE *file, const run_log *log, const char *key)
{
    write_cell(file, run_log_text(cJSON_GetObjectItem(log->start, "configuration"), key));
}

static double last_of(const run_lines *lines, run_figure figure)
{
    return lines->count ? lines->lines[lines->count - 1].values[figure] : (double)NAN;
}

static double or_else(double value, double other)
{
    return isfinite(value) ? value : other;
}

/* That of all runs that have one; "": they have different ones, or none. */
static const char *common_metric(const report *r)
{
    const char *common = "";
    for (size_t i = 0; i < r->count; i++) {
        const char *metric = r->runs[i].log.metric;
        if (*common && *metric && strcmp(metric, common) != 0) return "";
        if (*metric) common = metric;
    }
    return common;
}

static void write_metric(FILE *file, const run_log *log, bool named)
{
    char text[128] = "-";
    double ended = run_log_number(log->summary, "metric", "value") * (log->percent ? 100 : 1);
    double value = or_else(ended, last_of(&log->evaluations, RUN_METRIC));
    if (isfinite(value))
        snprintf(text, sizeof text, log->percent ? "%s%s%.2f %%" : "%s%s%.4g", named ? log->metric : "",
                 named ? " " : "", value);
    write_cell(file, text);
}

/* What the run ended with, of its best weights where it has chosen some; or what it has come to. */
static void write_result(FILE *file, const run_log *log, bool named)
{
    write_metric(file, log, named);
    write_number(file, or_else(run_log_number(log->summary, NULL, "loss"), last_of(&log->evaluations, RUN_LOSS)),
                 "%.4g");
}

/* Not each step has a line: the summary knows of those behind the last that has. */
static double steps_of(const run_log *log)
{
    return fmax(run_log_number(log->summary, NULL, "steps"), last_of(&log->steps, RUN_STEP));
}

static void write_run(FILE *file, const report_run *run, bool named)
{
    const run_log *log = &run->log;
    fputs("<tr>", file);
    write_name(file, run);
    write_setting(file, log, "sync");
    write_number(file, run_log_number(log->start, NULL, "workers"), "%.0f");
    write_number(file, run_log_number(log->start, NULL, "parameters"), "%.0f");
    write_number(file, steps_of(log), "%.0f");
    write_result(file, log, named);
    write_bytes(file, run_log_number(log->summary, "bytes", "sent"));
    write_number(file, run_log_number(log->summary, "ratio", "message"), "%.0f");
    write_number(file, run_log_number(log->summary, "ratio", "traffic"), "%.0f");
    write_number(file, run_log_number(log->summary, "seconds", "wall"), "%.1f");
    write_number(file, run_log_number(log->summary, NULL, "samples_per_second"), "%.0f");
    fputs("</tr>\n", file);
}

static void write_figures(FILE *file, const report *r)
{
    const char *metric = common_metric(r);
    fputs("<h2>Figures</h2>\n<table>\n<tr><th>run<th>--sync<th>workers<th>parameters<th>steps<th>", file);
    write_escaped(file, *metric ? metric : "metric");
    fputs("<th>loss<th>sent per worker<th>message ratio<th>traffic ratio<th>seconds<th>samples a second</tr>\n", file);
    for (size_t i = 0; i < r->count; i++) write_run(file, &r->runs[i], !*metric);
    fputs(
        "</table>\n<p>The message ratio is the fp32 gradient over what a worker contributes to a step, after the "
        "warm-up. The traffic ratio is what a dense ring would send over what was sent, counted in the transport, "
        "warm-up included. A dash stands where a run has not ended. One that has ended is judged by the weights that "
        "it "
        "has chosen, which need not be the last. Curves of the training loss are means over a tenth of the run.</p>\n",
        file);
}

/* --- where the time went -------------------------------------------------------------------------------------- */

typedef struct part {
    const char *key, *what, *colour;
} part;

/* Coding is part of waiting or of computing, as it overlaps, and so has a row of its own in the text. */
static const part parts[] = {{"compute", "computing", "#0072b2"}, {"wait", "waiting for the exchange", "#d55e00"}};

static void write_bar(FILE *file, const run_log *log)
{
    double training = run_log_number(log->summary, "seconds", "training"), left = 100;
    fputs("<td class=bar>", file);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && training > 0; i++) {
        double share = fmin(100 * run_log_number(log->summary, "seconds", parts[i].key) / training, left);
        if (!(share >= 0)) continue;
        fprintf(file, "<span style=\"width:%.2f%%;background:%s\" title=\"%s\"></span>", share, parts[i].colour,
                parts[i].what);
        left -= share;
    }
    fputs("</td>", file);
}

static void write_times(FILE *file, const report *r)
{
    fputs("<h2>Where the time went</h2>\n<table>\n<tr><th>run<th>seconds of training<th>", file);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        fprintf(file, "<span class=mark style=\"background:%s\"></span>%s<th>", parts[i].colour, parts[i].what);
    fputs("coding<th></tr>\n", file);
    for (size_t i = 0; i < r->count; i++) {
        const run_log *log = &r->runs[i].log;
        if (!log->summary) continue;
        fputs("<tr>", file);
        write_name(file, &r->runs[i]);
        write_number(file, run_log_number(log->summary, "seconds", "training"), "%.1f");
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            write_number(file, run_log_number(log->summary, "seconds", parts[p].key), "%.1f");
        write_number(file, run_log_number(log->summary, "seconds", "codec"), "%.1f");
        write_bar(file, log);
        fputs("</tr>\n", file);
    }
    fputs("</table>\n<p>Seconds are means over the workers. Coding runs beside computing where there is a core for it, "
          "so it is no part of the bar. What is left of a bar is reading data and updating weights.</p>\n",
          file);
}

/* --- tensors -------------------------------------------------------------------------------------------------- */

static void write_tensors(FILE *file, const report_run *run)
{
    const cJSON *entry, *all = cJSON_GetObjectItem(run->log.start, "tensors");
    fputs("<details><summary>", file);
    write_escaped(file, run->name);
    fprintf(file, ": %d tensors</summary>\n<table>\n<tr><th>tensor<th>elements<th>how it travels</tr>\n",
            cJSON_GetArraySize(all));
    cJSON_ArrayForEach(entry, all)
    {
        fputs("<tr>", file);
        write_cell(file, run_log_text(entry, "name"));
        write_number(file, run_log_number(entry, NULL, "elements"), "%.0f");
        write_cell(file, run_log_text(entry, "plan"));
        fputs("</tr>\n", file);
    }
    fputs("</table>\n</details>\n", file);
}

/* --- the page ------------------------------------------------------------------------------------------------- */

static void write_picture(FILE *file, const report *r)
{
    const char *start = r->picture ? strstr(r->picture, "<svg") : NULL;
    if (start) {
        fprintf(file, "<div class=picture>%s</div>\n", start);
        if (r->drawn < r->count) fprintf(file, "<p>The curves are those of the first %zu runs.</p>\n", r->drawn);
        return;
    }
    fputs("<p>There are no curves: ", file);
    write_escaped(file, r->no_picture);
    fputs(".</p>\n", file);
}

static const char *data_of(const report *r, size_t run)
{
    return run_log_text(r->runs[run].log.start, "data");
}

/* Once where it is the same. */
static void write_data(FILE *file, const report *r)
{
    size_t same = 0;
    while (same < r->count && strcmp(data_of(r, same), data_of(r, 0)) == 0) same++;
    for (size_t i = 0; i < (same < r->count ? r->count : 1); i++) {
        fputs("<p>Data", file);
        if (same < r->count) fputs(" of ", file);
        if (same < r->count) write_escaped(file, r->runs[i].name);
        fputs(": ", file);
        write_escaped(file, data_of(r, i));
        fputs("</p>\n", file);
    }
}

void report_write_page(FILE *file, const report *r)
{
    fputs(REPORT_BEGINS
          "\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<title>thinwire report</title>\n<style>\n"
          "body{font:15px sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;color:#222}\n"
          "table{border-collapse:collapse}th,td{padding:.3em .8em;text-align:right;border-bottom:1px solid #ddd}\n"
          "th:first-child,td:first-child,details td,details th{text-align:left}th{font-weight:600}\n"
          ".mark{display:inline-block;width:.8em;height:.8em;margin-right:.4em}\n"
          ".bar{width:20em;background:#f2f2f2;white-space:nowrap;font-size:0}\n"
          ".bar span{display:inline-block;height:16px}\n.picture svg{max-width:100%;height:auto}\n"
          "</style>\n</head>\n<body>\n<h1>thinwire report</h1>\n",
          file);
    write_data(file, r);
    write_figures(file, r);
    fputs("<h2>Curves</h2>\n", file);
    write_picture(file, r);
    write_times(file, r);
    fputs("<h2>What was compressed</h2>\n", file);
    for (size_t i = 0; i < r->count; i++) write_tensors(file, &r->runs[i]);
    fputs("</body>\n</html>\n", file);
}
