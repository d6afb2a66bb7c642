/* thinwire doctor: what this machine offers, as a table or as JSON. */
#include "commands.h"
#include "cores.h"
#include "dataset.h"
#include "doctor_line.h"
#include "doctor_peers.h"
#include "engine.h"
#include "error.h"
#include "exit.h"
#include "json_file.h"
#include "launcher.h"
#include "layout.h"
#include "peers.h"
#include "plugins.h"
#include "precision.h"
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_by_hand.h>

typedef struct doctor_settings {
    char *data, *plugin, *json;
    char *join, *key_file, *parameters;
    bool peers, seal;
    int transport; /* transport_choice */
    long workers, listen;
    double timeout;
} doctor_settings;

static const option_row rows[] = {
    {"data", "DIR", OPTION_TEXT, offsetof(doctor_settings, data), .help = "The data set to look for"},
    PLUGINS_ROW(offsetof(doctor_settings, plugin)),
    {"json", "FILE", OPTION_TEXT, offsetof(doctor_settings, json), .alone = "-",
     .help = "Write the facts to FILE as one JSON object. Without FILE, or with -, write them to standard output"},
    {.help = "The line to one machine"},
    {"listen", "PORT", OPTION_INTEGER, offsetof(doctor_settings, listen), "0", 0, 65535,
     .help =
         "Wait at PORT, for up to an hour, until thinwire doctor HOST:PORT on another machine has measured the line",
     .stands_for = "does not wait"},
    {"parameters", "N", OPTION_TEXT, offsetof(doctor_settings, parameters), "25.6M",
     .help = "With HOST:PORT: say how long a round takes that exchanges so many. " LAYOUT_HELP},
    {.help = "The lines between all machines"},
    {"peers", NULL, OPTION_FLAG, offsetof(doctor_settings, peers),
     .help = "Measure the lines between the ranks that mpirun started, or that joined, pair by pair. This takes two to "
             "three seconds for each other rank"},
    {"transport", NULL, OPTION_CHOICE, offsetof(doctor_settings, transport), "auto", .choices = "auto|threads|mpi|tcp",
     .help = "How ranks reach each other, as in thinwire train"},
    {"join", "HOST:PORT", OPTION_TEXT, offsetof(doctor_settings, join),
     .help = "Meet the other ranks at HOST:PORT, as in thinwire train, with --workers"},
    {"key-file", "FILE", OPTION_TEXT, offsetof(doctor_settings, key_file),
     .help = "The secret of --join, as in thinwire train", .beside = "join,transport=tcp,seal"},
    {"seal", NULL, OPTION_FLAG, offsetof(doctor_settings, seal),
     .help = "Encrypt what ranks send, as in thinwire train"},
    {"workers", "N", OPTION_INTEGER, offsetof(doctor_settings, workers), "0", 0, PEERS_MOST,
     .help = "Measure with N processes that join, or, without --join, with N threads of this process",
     .stands_for = "as many as mpirun started"},
    {"timeout", "SECONDS", OPTION_REAL, offsetof(doctor_settings, timeout), "60", 1, 1e6,
     .help = "How long a rank may be silent"},
};

static const option_page page = {
    .usage = "thinwire doctor [HOST:PORT] [options]",
    .description =
        "Says what thinwire finds on this machine: the instruction sets its kernels can use, cores, memory "
        "bandwidth, oneDNN and whether it computes in bf16, the MPI transport and the data set. With HOST:PORT, says "
        "whether that can be reached, by which way, and, where thinwire doctor --listen PORT runs there, what the line "
        "carries. With --peers, says what the lines between all machines carry.",
    .examples = "  thinwire doctor\n"
                "  thinwire doctor --listen 7000          # on the machine 10.0.0.5\n"
                "  thinwire doctor 10.0.0.5:7000          # on another one\n"
                "  mpirun --host a,b,c thinwire doctor --peers\n"
                "  thinwire doctor --peers --join 10.0.0.5:29400 --workers 3    # on each of three machines\n",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
    .most_arguments = 1,
};

/* ---- memory bandwidth ---- */

#define COPY_BYTES ((size_t)64 << 20) /* beyond a private cache */
#define COPY_ROUNDS 4
#define COPY_THREADS 64

typedef struct copier {
    pthread_t thread;
    sem_t *ready, *start;
    char *src, *dst;
} copier;

static void *doctor_copy(void *argument)
{
    copier *c = argument;
    memset(c->src, 1, COPY_BYTES); /* the pages exist before the clock starts */
    memset(c->dst, 2, COPY_BYTES);
    sem_post(c->ready);
    sem_wait(c->start);
    for (int i = 0; i < COPY_ROUNDS; i++) {
        memcpy(c->dst, c->src, COPY_BYTES);
        c->src[i] = c->dst[COPY_BYTES - 1 - (size_t)i]; /* so that no round can be left out */
    }
    return NULL;
}

/* Seconds in which as many threads as the system gives, up to `threads`, copy; *started receives how many. */
static double time_copies(int threads, char *memory, int *started)
{
    copier copiers[COPY_THREADS];
    sem_t ready, start;
    sem_init(&ready, 0, 0);
    sem_init(&start, 0, 0);
    for (*started = 0; *started < threads; ++*started) {
        char *own = memory + (size_t)*started * 2 * COPY_BYTES;
        copier *c = &copiers[*started];
        *c = (copier){.ready = &ready, .start = &start, .src = own, .dst = own + COPY_BYTES};
        if (pthread_create(&c->thread, NULL, doctor_copy, c) != 0) break;
    }
    for (int i = 0; i < *started; i++) sem_wait(&ready);
    double begin = tw_clock();
    for (int i = 0; i < *started; i++) sem_post(&start);
    for (int i = 0; i < *started; i++) pthread_join(copiers[i].thread, NULL);
    double seconds = tw_clock() - begin;
    sem_destroy(&ready);
    sem_destroy(&start);
    return seconds;
}

/* Bytes read and written a second while `threads` threads copy, in GB/s; 0 when it could not be measured. */
static double measure_copy(int threads)
{
    int started;
    char *memory = malloc((size_t)threads * 2 * COPY_BYTES);
    if (!memory) return 0;
    double seconds = time_copies(threads, memory, &started);
    free(memory);
    return started == threads ? 2.0 * COPY_ROUNDS * (double)COPY_BYTES * threads / seconds / 1e9 : 0;
}

/* ---- facts ---- */

/* Loads the transport's library as tw_comm_open would, without starting MPI. */
static int mpi_is_there(void)
{
    Dl_info info;
    char path[4096] = "";
    if (dladdr((void *)(uintptr_t)tw_version, &info) && info.dli_fname && strrchr(info.dli_fname, '/'))
        snprintf(path, sizeof path, "%.*s/libthinwire_mpi.so", (int)(strrchr(info.dli_fname, '/') - info.dli_fname),
                 info.dli_fname);
    void *library = path[0] ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
    if (!library) library = dlopen("libthinwire_mpi.so", RTLD_LAZY | RTLD_LOCAL);
    if (library) dlclose(library);
    return library != NULL;
}

typedef struct facts {
    int cores, copy_threads;
    double copy_one, copy_all; /* GB/s */
    int mpi;
    char onednn[64];
    int bf16;
    char bf16_implementation[64];
    char bf16_error[256]; /* why the two are not known; "": they are */
    dataset data;         /* without images where data_error says why */
    char data_error[1024];
    char plugins[1024]; /* what --plugin brought, or why it did not; "" without it */
} facts;

static void examine_plugins(const char *files, facts *f)
{
    size_t before = tw_schemes_count(), used = 0;
    if (!files) return;
    if (plugins_load(files) != TW_OK) {
        snprintf(f->plugins, sizeof f->plugins, "not loaded: %s", tw_last_error());
        return;
    }
    used = (size_t)snprintf(f->plugins, sizeof f->plugins, "loaded:");
    for (size_t i = before; i < tw_schemes_count() && used < sizeof f->plugins; i++)
        used += (size_t)snprintf(f->plugins + used, sizeof f->plugins - used, " %s", tw_schemes_name(i));
}

static void examine(const doctor_settings *settings, facts *f)
{
    f->cores = core_count();
    f->copy_threads = f->cores < COPY_THREADS ? f->cores : COPY_THREADS;
    f->copy_one = measure_copy(1);
    f->copy_all = f->copy_threads > 1 ? measure_copy(f->copy_threads) : f->copy_one;
    f->mpi = mpi_is_there();
    examine_plugins(settings->plugin, f);
    nn_engine_version(f->onednn, sizeof f->onednn);
    if (nn_find_bf16(&f->bf16, f->bf16_implementation, sizeof f->bf16_implementation) != TW_OK)
        snprintf(f->bf16_error, sizeof f->bf16_error, "%s", tw_last_error());
    if (dataset_load(settings->data, &f->data) != TW_OK)
        snprintf(f->data_error, sizeof f->data_error, "%s", tw_last_error());
}

static void print_table(const facts *f)
{
    printf("%-32s %s\n", "thinwire", tw_version());
    printf("%-32s %s (this processor has: %s)\n", "kernels", tw_isa(), tw_isa_levels());
    printf("%-32s %d\n", "cores", f->cores);
    printf("%-32s %.4g\n", "memory copy GB/s, 1 thread", f->copy_one);
    if (f->copy_threads > 1) printf("memory copy GB/s, %2d threads     %.4g\n", f->copy_threads, f->copy_all);
    printf("%-32s %s\n", "oneDNN", f->onednn);
    if (*f->bf16_error)
        printf("%-32s not known: %s\n", "--compute bf16", f->bf16_error);
    else
        printf("%-32s %s (oneDNN has %s)\n", "--compute bf16", f->bf16 ? "native" : "not on this processor",
               *f->bf16_implementation ? f->bf16_implementation : "nothing for it");
    printf("%-32s libthinwire_mpi %s\n", "MPI", f->mpi ? "found" : "not found");
    if (*f->plugins) printf("%-32s %s\n", "plug-ins", f->plugins);
    if (*f->data_error)
        printf("%-32s not found: %s\n", "data set", f->data_error);
    else
        printf("%-32s %s: %zu training and %zu test images\n", "data set", f->data.path, f->data.train.count,
               f->data.test.count);
}

static void add_data(cJSON *object, const facts *f)
{
    cJSON *data = cJSON_AddObjectToObject(object, "data");
    if (*f->data_error) {
        cJSON_AddStringToObject(data, "error", f->data_error);
        return;
    }
    cJSON_AddStringToObject(data, "path", f->data.path);
    cJSON_AddStringToObject(data, "format", f->data.format);
    cJSON_AddNumberToObject(data, "train", (double)f->data.train.count);
    cJSON_AddNumberToObject(data, "test", (double)f->data.test.count);
}

static tw_status write_json(const char *path, const facts *f)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "thinwire", tw_version());
    cJSON_AddStringToObject(object, "isa", tw_isa());
    cJSON_AddStringToObject(object, "isa_levels", tw_isa_levels());
    cJSON_AddNumberToObject(object, "cores", f->cores);
    cJSON *copy_speed = cJSON_AddObjectToObject(object, "copy_gb_per_second");
    cJSON_AddNumberToObject(copy_speed, "one_thread", f->copy_one);
    cJSON_AddNumberToObject(copy_speed, "all_cores", f->copy_all);
    cJSON_AddStringToObject(object, "onednn", f->onednn);
    cJSON_AddBoolToObject(object, "bf16", f->bf16);
    cJSON_AddStringToObject(object, "bf16_implementation", f->bf16_implementation);
    cJSON_AddBoolToObject(object, "mpi", f->mpi);
    if (*f->plugins) cJSON_AddStringToObject(object, "plugins", f->plugins);
    add_data(object, f);
    tw_status status = json_write(path, object);
    cJSON_Delete(object);
    return status;
}

/* tw_isa() passes over a THINWIRE_ISA that cannot be; whoever makes a scheme is refused. */
static tw_status check_isa(void)
{
    const tw_tensor tensor = {"one", 1, {1}};
    tw_scheme *scheme;
    TW_TRY(tw_scheme_create("allreduce", &tensor, 1, 0, 1, &scheme));
    tw_scheme_destroy(scheme);
    return TW_OK;
}

typedef struct doctor_form {
    const char *name, *takes; /* what chooses it, and the options that say something in it */
} doctor_form;

static doctor_form form_of(const doctor_settings *settings, const options *set)
{
    if (set->argument_count) return (doctor_form){"HOST:PORT", "--parameters, --timeout and --json"};
    if (settings->listen) return (doctor_form){"--listen", "--timeout"};
    if (settings->peers)
        return (doctor_form){"--peers", "--transport, --join, --key-file, --seal, --workers, --timeout and --json"};
    return (doctor_form){"thinwire doctor alone", "--data, --plugin and --json"};
}

static tw_status refuse_others(const options *set, doctor_form form)
{
    for (size_t i = 0; i < page.count; i++) {
        char word[32];
        if (!rows[i].name || !options_given(set, rows[i].name)) continue;
        snprintf(word, sizeof word, "--%s", rows[i].name);
        if (!strstr(form.takes, word) && strcmp(form.name, word) != 0)
            return tw_fail(TW_ERROR_ARGUMENT, "%s does nothing with %s, which takes %s: leave %s out", word, form.name,
                           form.takes, word);
    }
    return TW_OK;
}

static int doctor_run(void *command_settings, options *set)
{
    const doctor_settings *settings = command_settings;
    if (refuse_others(set, form_of(settings, set)) != TW_OK || options_check_beside(set) != TW_OK)
        return launcher_refuse();
    if (set->argument_count)
        return doctor_line(&(doctor_line_settings){.target = set->arguments[0],
                                                   .parameters = settings->parameters,
                                                   .timeout = settings->timeout,
                                                   .json = settings->json});
    if (settings->listen) return doctor_listen((int)settings->listen, settings->timeout);
    if (settings->peers)
        return doctor_peers(&(doctor_peers_settings){.transport = settings->transport,
                                                     .workers = settings->workers,
                                                     .join = settings->join,
                                                     .key_file = settings->key_file,
                                                     .seal = settings->seal,
                                                     .timeout = settings->timeout,
                                                     .json = settings->json});
    facts f = {0};
    if (check_isa() != TW_OK) return launcher_refuse();
    examine(settings, &f);
    if (!settings->json || strcmp(settings->json, "-") != 0) print_table(&f);
    tw_status status = settings->json ? write_json(settings->json, &f) : TW_OK;
    dataset_release(&f.data);
    return status == TW_OK ? EXIT_DONE : launcher_refuse();
}

int command_doctor(int argc, char **argv)
{
    doctor_settings settings = {0};
    return command_run(&page, argc, argv, &settings, doctor_run);
}
