/* doctor.c - what this machine offers: one row a fact, as a table or as JSON. */
#include "commands.h"
#include "dataset.h"
#include "engine.h"
#include "error.h"
#include "launch.h"
#include <cJSON.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct doctor_settings {
    char *data;
    bool json;
} doctor_settings;

static const option_row rows[] = {
    {"data", "DIR", OPTION_TEXT, offsetof(doctor_settings, data), .help = "the data set to look for"},
    {"json", NULL, OPTION_FLAG, offsetof(doctor_settings, json), .help = "print one JSON object"},
};

static const option_page page = {
    .usage = "thinwire doctor [options]",
    .description = "Says what thinwire finds on this machine: the instruction set its kernels use, cores, memory "
                   "bandwidth, oneDNN, the MPI transport and the data set.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* ---------------------------------------------------------------------------------------- memory bandwidth ----- */

#define COPY_BYTES ((size_t)64 << 20) /* beyond a private cache */
#define COPY_ROUNDS 4
#define COPY_THREADS 64

typedef struct copier {
    pthread_t thread;
    pthread_barrier_t *start;
    char *src, *dst;
} copier;

static void *copy(void *argument)
{
    copier *c = argument;
    memset(c->src, 1, COPY_BYTES); /* the pages exist before the clock starts */
    memset(c->dst, 2, COPY_BYTES);
    pthread_barrier_wait(c->start);
    for (int i = 0; i < COPY_ROUNDS; i++) {
        memcpy(c->dst, c->src, COPY_BYTES);
        c->src[i] = c->dst[COPY_BYTES - 1 - (size_t)i]; /* so that no round can be left out */
    }
    return NULL;
}

/* Bytes read and written a second while `threads` threads copy, in GB/s; 0 when it could not be measured. */
static double measure_copy(int threads)
{
    copier copiers[COPY_THREADS];
    pthread_barrier_t start;
    char *memory = malloc((size_t)threads * 2 * COPY_BYTES);
    if (!memory || pthread_barrier_init(&start, NULL, (unsigned)threads + 1) != 0) {
        free(memory);
        return 0;
    }
    for (int i = 0; i < threads; i++) {
        char *own = memory + (size_t)i * 2 * COPY_BYTES;
        copiers[i] = (copier){.start = &start, .src = own, .dst = own + COPY_BYTES};
        if (pthread_create(&copiers[i].thread, NULL, copy, &copiers[i]) != 0) abort();
    }
    pthread_barrier_wait(&start);
    double begin = tw_clock();
    for (int i = 0; i < threads; i++) pthread_join(copiers[i].thread, NULL);
    double seconds = tw_clock() - begin;
    pthread_barrier_destroy(&start);
    free(memory);
    return 2.0 * COPY_ROUNDS * (double)COPY_BYTES * threads / seconds / 1e9;
}

/* --------------------------------------------------------------------------------------------------- facts ----- */

static int core_count(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

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

static void add_data(cJSON *facts, const char *folder)
{
    dataset data;
    char text[8192];
    if (dataset_load(folder, &data) != TW_OK) {
        snprintf(text, sizeof text, "not found: %s", tw_last_error());
    } else {
        snprintf(text, sizeof text, "%s: %zu training and %zu test images", data.path, data.train.count,
                 data.test.count);
        dataset_release(&data);
    }
    cJSON_AddStringToObject(facts, "data set", text);
}

static void add_bandwidth(cJSON *facts, int cores)
{
    char key[64];
    int threads = cores < COPY_THREADS ? cores : COPY_THREADS;
    cJSON_AddNumberToObject(facts, "memory copy GB/s, 1 thread", measure_copy(1));
    if (threads == 1) return;
    snprintf(key, sizeof key, "memory copy GB/s, %d threads", threads);
    cJSON_AddNumberToObject(facts, key, measure_copy(threads));
}

static cJSON *examine(const doctor_settings *settings)
{
    char text[64];
    int cores = core_count();
    cJSON *facts = cJSON_CreateObject();
    cJSON_AddStringToObject(facts, "thinwire", tw_version());
    cJSON_AddStringToObject(facts, "kernels", tw_isa());
    cJSON_AddNumberToObject(facts, "cores", cores);
    add_bandwidth(facts, cores);
    nn_engine_version(text, sizeof text);
    cJSON_AddStringToObject(facts, "oneDNN", text);
    cJSON_AddStringToObject(facts, "MPI", mpi_is_there() ? "libthinwire_mpi found" : "libthinwire_mpi not found");
    add_data(facts, settings->data);
    return facts;
}

static void print_table(const cJSON *facts)
{
    for (const cJSON *fact = facts->child; fact; fact = fact->next)
        if (cJSON_IsNumber(fact))
            printf("%-32s %.4g\n", fact->string, fact->valuedouble);
        else
            printf("%-32s %s\n", fact->string, fact->valuestring);
}

static void print_json(const cJSON *facts)
{
    char *text = cJSON_Print(facts);
    if (text) puts(text);
    free(text);
}

int command_doctor(int argc, char **argv)
{
    doctor_settings settings = {0};
    options set;
    if (options_parse(&page, argc, argv, &settings, &set) != TW_OK) return launch_refuse();
    if (set.help) {
        options_help(&page, stdout);
    } else {
        cJSON *facts = examine(&settings);
        if (settings.json)
            print_json(facts);
        else
            print_table(facts);
        cJSON_Delete(facts);
    }
    options_release(&set);
    return EXIT_DONE;
}
