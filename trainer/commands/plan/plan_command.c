/* thinwire plan: which way of exchanging is best for a network, an optimiser and a line. */
#include "plan_command.h"
#include "commands.h"
#include "error.h"
#include "exit.h"
#include "experiment.h"
#include "init_from.h"
#include "json_file.h"
#include "launcher.h"
#include "memory_check.h"
#include "network.h"
#include "plugins.h"

#include <string.h>

#define AT(field) offsetof(plan_settings, field)

/* Options of train that say who the workers are and what they learn. */
static const char *const taken[] = {"workers", "transport", "join", "rank",     "key-file",
                                    "seal",    "timeout",   "link", "init-from"};

static const option_row own_rows[] = {
    {.help = "What to plan"},
    {"parameters", "N", OPTION_TEXT, AT(parameters), .help = LAYOUT_HELP ". The task none takes it"},
    {"step-time", "SECONDS", OPTION_REAL, AT(step_time), "0", 0, 1e6, .help = "The time of a forward and backward pass",
     .stands_for = "what this machine takes"},
    {"codec-rate", "GB/S", OPTION_REAL, AT(codec_rate), "0", 0, 1e6,
     .help = "Gigabytes per second at which a worker's schemes pass over memory, as in thinwire simulate",
     .stands_for = "the time that each takes on this machine"},
    {"unmeasured", NULL, OPTION_FLAG, AT(unmeasured),
     .help = "Take a candidate, too, of which nobody has measured what it costs in accuracy"},
    {"slow", "LIST", OPTION_TEXT, offsetof(plan_settings, train) + offsetof(train_settings, slow),
     .help = "RANK:FACTOR,... makes a pass of RANK take FACTOR times as long, as where machines differ in speed"},
    {"clusters", "FILE", OPTION_TEXT, AT(clusters), .line_only = true,
     .help =
         "Form clusters of the machines in FILE instead of all that. It stands without TASK, and --seed and --json may "
         "stand beside it"},
    {.help = "What is kept"},
    {"json", "FILE", OPTION_TEXT, offsetof(plan_settings, train) + offsetof(train_settings, json), .alone = "-",
     .help = "Write the plan to FILE, too. Without FILE, or with -, write it to standard output"},
    {"config", "FILE", OPTION_TEXT, offsetof(plan_settings, train) + offsetof(train_settings, config),
     .line_only = true, .help = "Read options from a YAML file. The command line wins over it"},
    {"quiet", NULL, OPTION_FLAG, offsetof(plan_settings, train) + offsetof(train_settings, quiet), .line_only = true,
     .help = "Print no progress on standard error"},
};

static bool is_taken(const option_row *row)
{
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(row->name, taken[i]) == 0) return true;
    return row->simulated;
}

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

static tw_status plan_complete(planning *p, plan_settings *s, options *set)
{
    p->has_task = strcmp(set->arguments[0], "none") != 0;
    if (s->train.config) TW_TRY(options_read_file(set, s->train.config));
    s->train.set = set;
    TW_TRY(init_from_shape(set, &s->train));
    TW_TRY(settings_complete(s->train.task, set));
    TW_TRY(sim_check_codec_rate(s->codec_rate));
    if (s->train.link) TW_TRY(network_read_link(s->train.link, &p->line));
    if (p->has_task && s->parameters)
        return tw_fail(TW_ERROR_ARGUMENT, "--parameters %s: task %s has a network of its own; leave one of them out",
                       s->parameters, s->train.task->name);
    if (!p->has_task && !s->parameters)
        return tw_fail(TW_ERROR_ARGUMENT, "none: there is no network to plan for; say --parameters N, or name a task");
    if (!p->has_task) TW_TRY(layout_create(s->parameters, &p->inquiry.tensors));
    if (!p->has_task && s->step_time == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "none: there is no step to measure; say --step-time SECONDS");
    if (!p->has_task && s->train.steps == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "none: a plan is for a run of some length; say --steps N");
    if (s->train.json) TW_TRY(json_check(s->train.json));
    return plugins_load(s->train.plugin);
}

static tw_status ask_of_task(planning *p, const task *work)
{
    const train_settings *s = &p->settings->train;
    learner_place place = {.size = p->workers, .batch = (size_t)s->batch};
    TW_TRY(work->ops->fits(work, &place));
    TW_TRY(plan_ask(s, work, p->workers, &p->inquiry));
    p->inquiry.question.pass_seconds = p->settings->step_time;
    return p->settings->step_time > 0 ? TW_OK : plan_find_pass(s, work, p->comm, &p->inquiry);
}

static tw_status ask_with_data(planning *p)
{
    task *work = NULL;
    const train_settings *s = &p->settings->train;
    TW_TRY(memory_check(s, 1));
    TW_TRY(s->task->load(s->own, &work));
    tw_status status = ask_of_task(p, work);
    s->task->release(work);
    return status;
}

static tw_status ask_of_tensors(planning *p)
{
    p->inquiry.question.pass_seconds = p->settings->step_time;
    plan_ask_of_table(&p->settings->train, p->workers, &p->inquiry);
    return TW_OK;
}

static void plan_progress(void *stream, const char *line)
{
    fprintf(stream, "%s\n", line);
}

static tw_status answer(planning *p)
{
    const train_settings *s = &p->settings->train;
    tw_plan_question *q = &p->inquiry.question;
    TW_TRY(plan_find_line(p));
    TW_TRY(p->has_task ? ask_with_data(p) : ask_of_tensors(p));
    if (p->rank > 0) return TW_OK;
    q->codec_rate = 1e9 * p->settings->codec_rate;
    q->unmeasured = p->settings->unmeasured;
    q->told = s->quiet ? NULL : plan_progress;
    q->context = stderr;
    TW_TRY(plan_answer(s, &p->line, &p->inquiry, &p->answer));
    plan_print(json_beside(s->json), p);
    return s->json ? plan_write_json(p, s->json) : TW_OK;
}

static int plan_run(void *settings, options *set)
{
    planning p = {.settings = settings, .set = set};
    tw_status status = plan_complete(&p, settings, set);
    if (status == TW_OK) status = answer(&p);
    if (status != TW_OK) launcher_refuse();
    plan_forget(&p.inquiry);
    tw_plan_destroy(p.answer);
    tw_comm_destroy(p.comm);
    if (status == TW_ERROR_PEER || status == TW_ERROR_PACKET) return EXIT_PEER_LOST;
    return status == TW_OK ? EXIT_DONE : EXIT_INPUT;
}

static const option_page about = {
    .usage = "thinwire plan TASK [options]",
    .description =
        "Says which way of exchanging suits a network, an optimiser and a line. It times a step and each scheme's code "
        "on this machine, predicts the step of each candidate on the line with the simulator, and adds what each is "
        "known to cost in accuracy. The fastest to the same loss is chosen; of those within 5 % the simplest. The last "
        "line is the command to run. TASK and its options are as in thinwire train; none, with --parameters, is for a "
        "network of another program. Under mpirun, or with --join on each machine, the line is measured. See "
        "docs/planning.md.",
    .examples =
        "  thinwire plan image --workers 4 --link 100Mbit,1ms\n"
        "  thinwire plan lm --model transformer --data input.txt --workers 4 --link 10Mbit/100Mbit,20ms --steps 3000\n"
        "  thinwire plan none --parameters resnet50 --step-time 0.5 --optimizer sgd --steps 20000 --workers 4 \\\n"
        "      --link 1Gbit,0.1ms\n"
        "  thinwire plan image --join 10.0.0.5:29400 --workers 3    # on each of three machines\n",
    .count = sizeof own_rows / sizeof *own_rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .word = task_name,
};

static bool asks_for_clusters(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--clusters") == 0 || strncmp(argv[i], "--clusters=", strlen("--clusters=")) == 0)
            return true;
    return false;
}

/* Fewer than a run may have. */
static void limit_workers(train_page *own)
{
    for (size_t i = own->page.own; i < own->page.count; i++)
        if (strcmp(own->rows[i].name, "workers") == 0) own->rows[i].most = TW_PLAN_WORKERS_MOST;
}

int command_plan(int argc, char **argv)
{
    plan_settings settings = {0};
    if (asks_for_clusters(argc, argv)) return plan_clusters(argc, argv);
    train_page own = {.page = about};
    if (command_task_or_none(argc, argv, &settings.train.task) != TW_OK) return launcher_refuse();
    memcpy(own.rows, own_rows, sizeof own_rows);
    own.page.rows = own.rows;
    if (settings_lend_rows(settings.train.task, is_taken, &own) != TW_OK) return launcher_refuse();
    limit_workers(&own);
    return command_run(&own.page, argc, argv, &settings, plan_run);
}
