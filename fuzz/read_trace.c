/* Reads any bytes as the folder of a recorded run, for `thinwire simulate --trace`: summary.json, and after a line
 * "---" config.yaml. What is accepted must be what a simulation can take. */
#include "folder.h"
#include "simulate.h"

#include <math.h>
#include <string.h>

static const char divider[] = "\n---\n";
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
    must(write_file("summary.json", data, first) && write_file("config.yaml", data + second, size - second));
    tw_status status = simulate_read_record(fuzz_folder, &record);
    must(status == TW_OK || status == TW_ERROR_FORMAT || status == TW_ERROR_ARGUMENT || status == TW_ERROR_IO);
    if (status == TW_OK) check_record(&record);
    simulate_release_record(&record);
    return 0;
}
