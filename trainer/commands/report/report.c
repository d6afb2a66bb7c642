/* thinwire report: what runs came to, on one page: curves against training, bytes and time, figures, what was
 * compressed. */
#include "report.h"
#include "commands.h"
#include "error.h"
#include "exit.h"
#include "launcher.h"
#include "whole_file.h"

enum { MOST_RUNS = 1000 };

typedef struct report_settings {
    char *out;
} report_settings;

static const option_row rows[] = {
    {"out", "FILE", OPTION_TEXT, offsetof(report_settings, out), "report.html",
     .help = "Write the page to FILE. A page that is there already is replaced"},
};

static const option_page page = {
    .usage = "thinwire report RUN... [options]",
    .description =
        "Writes one HTML page about runs of thinwire train, side by side: the figure of merit against epochs; the "
        "training "
        "loss against epochs, bytes and seconds; the final figures; how long a worker computed, coded and waited; and "
        "which tensors were compressed. Figures of merit that are not the same have curves of their own. A RUN is the "
        "folder that a run is kept in. The page needs no other file and no "
        "network. A run that has not ended yet is shown as far as it is. Of more than 16 runs the first 16 have "
        "curves.",
    .examples = "  thinwire report runs/image-1\n"
                "  thinwire report runs/demo-1/dense runs/demo-1/dgc --out dense-and-dgc.html\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
    .least_arguments = 1,
    .most_arguments = MOST_RUNS,
};

static tw_status write_page(void *of, FILE *file)
{
    report_write_page(file, of);
    return TW_OK; /* what could not be written, whole_file_write finds */
}

/* A page without curves is still a page. */
static tw_status make(report *r, const report_settings *s, const options *set)
{
    TW_TRY(whole_file_may_replace(s->out, REPORT_BEGINS, "page of thinwire report"));
    TW_TRY(report_read(r, set->arguments, set->argument_count));
    if (report_draw(r) != TW_OK) {
        snprintf(r->no_picture, sizeof r->no_picture, "%s", tw_last_error());
        fprintf(stderr, "thinwire: the report has no curves: %s\n", r->no_picture);
    }
    return whole_file_write(s->out, write_page, r);
}

static int run(void *settings, options *set)
{
    report r = {0};
    const report_settings *s = settings;
    tw_status status = make(&r, s, set);
    report_release(&r);
    if (status != TW_OK) return launcher_refuse();
    printf("report: %s\n", s->out);
    return EXIT_DONE;
}

int command_report(int argc, char **argv)
{
    report_settings settings = {0};
    return command_run(&page, argc, argv, &settings, run);
}
