/* Reads any bytes as the folder of a recorded run, for `thinwire simulate --trace`: summary.json, and after a line
 * "---" config.yaml. What is accepted must be what a simulation can take. */
#include "fuzz.h"
#include "simulate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char divider[] = "\n---\n";
static char folder[256];

static void remove_folder(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/summary.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    unlink(path);
    rmdir(folder);
}

static void make_folder(void)
{
    const char *root = getenv("TMPDIR");
    if (*folder) return;
    snprintf(folder, sizeof folder, "%s/fuzz-XXXXXX", root ? root : "/tmp");
    must(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
}

static void write_file(const char *name, const uint8_t *bytes, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    must(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

static void check_record(const simulate_record *record)
{
    const double times[] = {record->step_seconds,  record->pass_seconds,   record->jitter,  record->other_seconds,
                            record->codec_seconds, record->bytes_received, record->elements};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) must(times[i] >= 0 && isfinite(times[i]));
    must(record->settings.workers >= 1 && record->settings.workers <= WORKERS_MOST);
    must(record->settings.steps >= 1 && record->pass_seconds > 0 && record->settings.sync);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    simulate_record record = {0};
    const uint8_t *end = size ? memmem(data, size, divider, sizeof divider - 1) : NULL;
    size_t first = end ? (size_t)(end - data) : size, second = end ? first + sizeof divider - 1 : size;
    make_folder();
    write_file("summary.json", data, first);
    write_file("config.yaml", data + second, size - second);
    tw_status status = simulate_read_record(folder, &record);
    must(status == TW_OK || status == TW_ERROR_FORMAT || status == TW_ERROR_ARGUMENT || status == TW_ERROR_IO);
    if (status == TW_OK) check_record(&record);
    simulate_release_record(&record);
    return 0;
}
