/* thinwire simulate: the code that trains for real, on machines and over a network there are not. */
#include "simulate.h"
#include "commands.h"
#include "error.h"
#include "exit.h"
#include "folder.h"
#include "json_file.h"
#include "launcher.h"
#include "memory_check.h"
#include "optimiser.h"
#include "plugins.h"
#include "schedule.h"
#include "scheme.h"
#include "scheme_text.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(simulate_settings, field)
#define TRAIN(field) (offsetof(simulate_settings, train) + offsetof(train_settings, field))

enum { PHANTOM_STEPS = 20 };

static const option_row own_rows[] = {
    {.help = "What to simulate"},
    {"workers", "LIST", OPTION_TEXT, AT(workers), "4", .help = "Numbers of workers, such as 16,64,1024"},
    {"sync", "SPECS", OPTION_TEXT, AT(syncs),
     .help = "Schemes, with semicolons between them. thinwire schemes lists them",
     .stands_for =
         "allreduce;dgc;adpsgd-random, with dgc-adam for dgc beside adamw, and powersgd:rank=16 beside adam and "
         "muon"},
    {"pipeline", "SPECS", OPTION_TEXT, AT(pipelines),
     .help = "Pipelines of stages, with semicolons between them, as in thinwire train: stages=P,cut=A+B+... Each stage "
             "takes a P-th of a pass. Without --sync there are no other runs",
     .stands_for = "none"},
    {"until-loss", "L", OPTION_REAL, AT(until_loss), "0", 0, 1e9,
     .help = "Stop when the training loss, averaged over a few gradients of each worker, is down to L",
     .stands_for = "never"},
    {"gradients", NULL, OPTION_CHOICE, AT(gradients_off), "on", .choices = "on|off",
     .help = "off takes noise in place of a model's gradients, where only bytes and time matter. The task none does "
             "the same. Without --steps it takes 20 steps of a run whose length is unknown"},
    {"parameters", "N", OPTION_TEXT, AT(parameters), "250k", .help = LAYOUT_HELP},

    {.help = "The network"},
    {"link", "RATE,LATENCY", OPTION_TEXT, AT(link), "1Gbit,0.1ms",
     .help =
         "Rate and latency of the line between each host and the switch. UP/DOWN,LATENCY has a rate for each way, such "
         "as 10Mbit/100Mbit,80ms. Units are kbit, Mbit, Gbit; us, ms, s"},
    {"overhead", "TIME", OPTION_TEXT, AT(overhead), "0us",
     .help = "The time for which the start of a message holds its line"},
    {"workers-per-host", "N", OPTION_INTEGER, AT(workers_per_host), "1", 1, WORKERS_MOST,
     .help = "Workers that share a line. What they send to each other costs nothing"},

    {.help = "The machines"},
    {"step-time", "SECONDS", OPTION_REAL, AT(step_time), "0", 0, 1e6, .help = "The time of a forward and backward pass",
     .stands_for = "what this machine takes, so that times differ from run to run"},
    {"jitter", "CV", OPTION_REAL, AT(jitter), "0", 0, 10,
     .help = "The standard deviation of that time over its mean, from step to step"},
    {"jitter-form", NULL, OPTION_CHOICE, AT(form), "lognormal", .choices = "lognormal|exponential",
     .help = "The distribution of that time"},
    {"codec-rate", "GB/S", OPTION_REAL, AT(codec_rate), "10", 0, 1e6,
     .help = "Gigabytes per second at which a worker's schemes pass over memory. 0 means that they take no time"},
    {"slow", "LIST", OPTION_TEXT, TRAIN(slow),
     .help = "RANK:FACTOR,... makes a pass of RANK take FACTOR times as long"},
    {"pause", "LIST", OPTION_TEXT, TRAIN(pause),
     .help = "RANK:STEP:SECONDS,... lets RANK stand still for SECONDS after it has computed STEP"},
    {"trace", "RUN", OPTION_TEXT, AT(trace),
     .help = "Take the times of step and codec from the folder of a recorded run, and predict that run, too"},

    {.help = "What is kept"},
    {"out", "DIR", OPTION_TEXT, TRAIN(out),
     .help = "Write results.json, simulate.svg and the curves in it to folder DIR"},
    {"json", "FILE", OPTION_TEXT, TRAIN(json), .alone = "-",
     .help = "Write the results to FILE, too. Without FILE, or with -, write them to standard output"},
    {"config", "FILE", OPTION_TEXT, TRAIN(config), .line_only = true,
     .help = "Read options from a YAML file. The command line wins over it"},
    {"quiet", NULL, OPTION_FLAG, TRAIN(quiet), .line_only = true, .help = "Print no progress on standard error"},
};

/* Of train's options those that say what to train and how; of the others simulate has its own, or none. */
static bool is_simulated(const option_row *row)
{
    return row->simulated;
}

/* --- reading the options -------------------------------------------------------------------------------------- */

/* dgc has SGD's momentum in it. */
static const char *syncs_beside(int optimizer)
{
    return optimizer == OPTIMISER_SGD     ? "allreduce;dgc;adpsgd-random"
           : optimizer == OPTIMISER_ADAMW ? "allreduce;dgc-adam;adpsgd-random"
                                          : "allreduce;powersgd:rank=16;adpsgd-random";
}

static tw_status simulate_complete(simulate_settings *s, options *set)
{
    if (s->train.config) TW_TRY(options_read_file(set, s->train.config));
    s->train.set = set;
    TW_TRY(settings_complete(s->train.task, set));
    if (!options_given(set, "sync")) TW_TRY(options_default(set, "sync", syncs_beside(s->train.optimizer)));
    if (s->form == PACE_EXPONENTIAL && s->jitter > 1)
        return tw_fail(TW_ERROR_ARGUMENT, "--jitter %g: an exponential one is at most 1", s->jitter);
    if (schedule_is_plateau(s->train.schedule))
        return tw_fail(TW_ERROR_ARGUMENT, "--schedule %s: a simulation evaluates at its end only; use another",
                       s->train.schedule);
    if (s->train.json) TW_TRY(json_check(s->train.json));
    return s->train.out ? folder_make(s->train.out) : TW_OK;
}

/* --- the runs ------------------------------------------------------------------------------------------------- */

/* The work is the same in all stages. */
static void take_stages(sim_setup *setup, const simulate_row *row)
{
    setup->settings.pipeline = (char *)row->sync;
    setup->pace.step_seconds /= row->workers;
    setup->pace.other_seconds /= row->workers;
}

static sim_setup setup_of(const simulation *all, const sim_setup *common, const simulate_row *row)
{
    sim_setup setup = *common;
    sim_take_scheme(&setup, row->micro_batches ? "allreduce" : row->sync);
    if (row->micro_batches) take_stages(&setup, row);
    if (all->codec_rate > 0) sim_take_codec_rate(&setup, all->codec_rate);
    setup.settings.workers = row->workers;
    return setup;
}

static tw_status run_row(const simulation *all, const sim_setup *common, simulate_row *row)
{
    const sim_setup setup = setup_of(all, common, row);
    return sim_run(&setup, &row->result);
}

/* A spec that cannot be is refused before anything is simulated; that of the first run, by the run. */
static tw_status check_specs(const simulation *all)
{
    for (size_t i = all->settings->trace ? 0 : 1; i < all->row_count; i++) {
        const sim_setup setup = setup_of(all, &all->setup, &all->rows[i]);
        TW_TRY(sim_check(&setup));
    }
    return TW_OK;
}

static tw_status run_rows(simulation *all)
{
    FILE *stream = json_beside(all->settings->train.json);
    for (size_t i = 0; i < all->row_count; i++) {
        TW_TRY(run_row(all, &all->setup, &all->rows[i]));
        if (i == 0) simulate_print_head(stream);
        simulate_print_row(stream, all, &all->rows[i]);
    }
    return TW_OK;
}

/* The run that was recorded, again: its own options, each worker with its own share of the steps. */
static tw_status run_record(simulation *all)
{
    const train_settings *recorded = &all->record.settings;
    sim_setup again = all->setup;
    task *work = NULL;
    again.settings = *recorded;
    again.settings.out = again.settings.memory_budget = NULL; /* the pages would be files there */
    again.settings.slow = again.settings.pause = NULL;        /* the pace has them */
    again.pace.slow = recorded->slow;
    again.pace.pause = recorded->pause;
    again.kind = &sim_trainee;
    again.shares = 1;
    again.until_loss = 0;
    all->recorded = (simulate_row){.sync = all->record.spec, .workers = (int)recorded->workers};
    tw_status status = recorded->task->load(recorded->own, &work);
    again.work = work;
    if (status == TW_OK) status = run_row(all, &again, &all->recorded);
    recorded->task->release(work);
    if (status == TW_OK) simulate_print_record(json_beside(all->settings->train.json), all);
    return status;
}

/* --- what they need ------------------------------------------------------------------------------------------- */

/* The codec's rate is the one at which the model takes as long as the recorded run did. */
static double fit_codec_rate(const simulate_record *record)
{
    double bytes =
        record->elements * sim_element_bytes(record->settings.sync) + SIM_BYTE_TOUCHES * record->bytes_received;
    return record->codec_seconds > 0 ? bytes / record->codec_seconds : 0;
}

/* What the recorded run says, and the options leave open. */
static void take_record(simulation *all, const options *set)
{
    const simulate_record *record = &all->record;
    pace_model *machine = &all->setup.pace;
    if (!options_given(set, "jitter")) machine->jitter = record->jitter;
    if (!options_given(set, "codec-rate") && record->codec_seconds > 0) all->codec_rate = fit_codec_rate(record);
    if (options_given(set, "step-time")) return;
    machine->step_seconds = record->pass_seconds;
    machine->other_seconds = record->other_seconds;
}

/* What neither the options nor a recorded run say is measured. */
static tw_status find_pace(simulation *all, const options *set)
{
    const simulate_settings *s = all->settings;
    pace_model *machine = &all->setup.pace;
    *machine = (pace_model){.step_seconds = s->step_time, .jitter = s->jitter, .form = (pace_form)s->form};
    machine->seed = (uint64_t)s->train.seed;
    machine->slow = s->train.slow;
    machine->pause = s->train.pause;
    all->codec_rate = 1e9 * s->codec_rate;
    if (s->trace) take_record(all, set);
    if (machine->step_seconds > 0) return TW_OK;
    if (s->gradients_off)
        return tw_fail(TW_ERROR_ARGUMENT, "--gradients off: there is no step to measure; say --step-time SECONDS");
    fprintf(json_beside(s->train.json),
            "without --step-time the time of a pass is measured on this machine: times will differ from run to run\n");
    return sim_measure(&s->train, all->setup.work, &machine->step_seconds, &machine->other_seconds);
}

/* What every run is told. Phantoms have no data, so no epochs. */
static void prepare_settings(const simulate_settings *s, sim_setup *setup)
{
    setup->settings = s->train;
    setup->settings.out = setup->settings.json = setup->settings.resume = NULL;
    setup->settings.slow = setup->settings.pause = NULL; /* the pace has them */
    setup->sample = s->gradients_off && s->train.steps == 0;
    if (setup->sample) setup->settings.steps = PHANTOM_STEPS;
    setup->kind = s->gradients_off ? &sim_phantom : &sim_trainee;
    setup->until_loss = s->until_loss;
    setup->progress = s->train.quiet ? NULL : stderr;
}

static tw_status write_results(const simulation *all)
{
    const train_settings *s = &all->settings->train;
    if (s->json) TW_TRY(simulate_write_json(all, s->json));
    if (!s->out) return TW_OK;
    char path[FOLDER_PATH];
    snprintf(path, sizeof path, "%s/results.json", s->out);
    TW_TRY(simulate_write_json(all, path));
    if (simulate_plot(all, s->out) == TW_OK)
        fprintf(json_beside(s->json), "\nplot: %s/simulate.svg\n", s->out);
    else
        fprintf(json_beside(s->json), "\nno plot: %s\n", tw_last_error());
    return TW_OK;
}

static tw_status simulate(simulation *all, const options *set)
{
    TW_TRY(find_pace(all, set));
    TW_TRY(check_specs(all));
    if (all->settings->trace) TW_TRY(run_record(all));
    TW_TRY(run_rows(all));
    return write_results(all);
}

/* The noise of phantoms in the place of data. */
static tw_status make_noise(simulation *all)
{
    const simulate_settings *s = all->settings;
    TW_TRY(layout_create(s->parameters, &all->layout));
    TW_TRY(sim_noise(&all->layout, (uint64_t)s->train.seed, &all->noise));
    all->setup.layout = &all->layout;
    all->setup.noise = all->noise;
    return TW_OK;
}

/* A number of workers that is too great is told before any worker is made. */
static tw_status check_rows(const simulation *all, const task *work)
{
    for (size_t i = 0; i < all->row_count; i++) {
        const simulate_row *row = &all->rows[i];
        learner_place place = {.size = row->micro_batches ? 1 : row->workers,
                               .batch = (size_t)all->settings->train.batch};
        TW_TRY(work->ops->fits(work, &place));
    }
    return TW_OK;
}

static tw_status with_data(simulation *all, const options *set)
{
    const simulate_settings *s = all->settings;
    task *work = NULL;
    TW_TRY(memory_check(&s->train, 1));
    TW_TRY(s->train.task->load(s->train.own, &work));
    all->setup.work = work;
    tw_status status = check_rows(all, work);
    if (status == TW_OK) status = simulate(all, set);
    s->train.task->release(work);
    return status;
}

/* That of the whole run, of whose warm-up the steps that are taken have their share: their mean is to be the run's. */
static char *spec_of_replay(const simulate_record *record)
{
    const double share = (double)record->settings.steps / (double)record->steps;
    char *spec = scheme_for_run(record->settings.sync, record->steps);
    const double warmup = spec ? scheme_number(spec, "warmup_steps") : 0;
    if (!(warmup > 0) || share == 1) return spec;
    char text[32];
    snprintf(text, sizeof text, "%.0f", share * warmup);
    char *shorter = scheme_text_with(spec, "warmup_steps", text);
    free(spec);
    return shorter;
}

static tw_status read_record(const char *folder, simulate_record *record)
{
    TW_TRY(simulate_read_record(folder, record));
    TW_TRY(plugins_load(record->settings.plugin));
    tw_status status = scheme_check(record->settings.sync);
    if (status != TW_OK) return tw_fail(status, "--trace %s: %s", folder, tw_last_error());
    record->spec = spec_of_replay(record);
    return record->spec ? TW_OK : tw_fail(TW_ERROR_MEMORY, "--trace %s: no memory for its spec", folder);
}

static tw_status run_all(simulate_settings *s, options *set, simulation *all)
{
    if (strcmp(set->arguments[0], "none") == 0) s->gradients_off = 1;
    TW_TRY(simulate_complete(s, set));
    TW_TRY(plugins_load(s->train.plugin));
    TW_TRY(simulate_read_network(s, &all->setup.world));
    TW_TRY(simulate_make_rows(s, all));
    prepare_settings(s, &all->setup);
    if (s->trace) TW_TRY(read_record(s->trace, &all->record));
    if (!s->gradients_off) return with_data(all, set);
    TW_TRY(make_noise(all));
    return simulate(all, set);
}

static int simulate_run(void *settings, options *set)
{
    simulation all = {.settings = settings};
    tw_status status = run_all(settings, set, &all);
    for (size_t i = 0; i < all.row_count; i++) free(all.rows[i].result.spec);
    free(all.recorded.result.spec);
    free(all.rows);
    free(all.noise);
    layout_release(&all.layout);
    simulate_release_record(&all.record);
    return status == TW_OK ? EXIT_DONE : launcher_refuse();
}

static const option_page about = {
    .usage = "thinwire simulate TASK [options]",
    .description =
        "Runs the code that trains, with its real gradients, on as many workers as you like, under a clock of "
        "its own: threads, waits, messages and their sizes are those of a real run, the times come from a "
        "model of machines and network. TASK is as in thinwire train, or none for gradients of no model. See "
        "docs/simulator.md.",
    .examples = "  thinwire simulate image --workers 16 --slow 0:10 --step-time 0.05 --epochs 1\n"
                "  thinwire simulate none --workers 16,64,256,1024 --parameters 250k --step-time 0.02 \\\n"
                "      --sync \"allreduce;topk;dgc;scalecom;adpsgd-random\" --out runs/scale\n"
                "  thinwire simulate image --trace runs/dgc --link 1Gbit,0.1ms --workers 16,64\n",
    .count = sizeof own_rows / sizeof *own_rows,
    .least_arguments = 1,
    .most_arguments = 1,
};

static tw_status make_page(const task_ops *ops, train_page *own)
{
    *own = (train_page){.page = about};
    memcpy(own->rows, own_rows, sizeof own_rows);
    own->page.rows = own->rows;
    return settings_lend_rows(ops, is_simulated, own);
}

/* Blocks of the size of a model go back to the system when they are freed. Kept for reuse, as they would be by a thread
 * that soon needs them again, they add up over thousands of threads. */
static void save_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
}

int command_simulate(int argc, char **argv)
{
    simulate_settings settings = {0};
    train_page own;
    if (command_task_or_none(argc, argv, &settings.train.task) != TW_OK) return launcher_refuse();
    if (make_page(settings.train.task, &own) != TW_OK) return launcher_refuse();
    save_memory();
    return command_run(&own.page, argc, argv, &settings, simulate_run);
}
