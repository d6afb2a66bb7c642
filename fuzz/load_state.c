/* Loads any bytes as a safetensors file, once as they are and once with an 8-byte length of the header put in front
 * that fits. Whatever is accepted must be readable in full. */
#include "fuzz.h"
#include "state.h"

#include <string.h>

static void walk(const tw_state *state, size_t file_bytes)
{
    size_t bytes = 0;
    unsigned sum = 0;
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        must(tw_state_at(state, i, &entry) == TW_OK);
        for (size_t at = 0; at < entry.bytes; at++) sum += ((const unsigned char *)entry.data)[at];
        bytes += entry.bytes + strlen(entry.name);
    }
    must(bytes + (sum & 0) <= file_bytes);
}

static void load(unsigned char *bytes, size_t size)
{
    tw_state *state = NULL;
    FILE *file = fmemopen(bytes, size, "rb");
    must(file != NULL);
    tw_status status = tw_state_read(file, size, "input", &state);
    fclose(file);
    must(status == TW_OK || status == TW_ERROR_FORMAT);
    if (status == TW_OK) walk(state, size);
    tw_state_destroy(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = malloc(8 + size);
    must(copy != NULL);
    const uint8_t *line_end = size ? memchr(data, '\n', size) : NULL; /* a header in front of it, data behind it */
    uint64_t header = line_end ? (uint64_t)(line_end - data) : size;
    memcpy(copy, &header, 8);
    if (size) memcpy(copy + 8, data, size);
    load(copy, 8 + size);
    if (size) load(copy + 8, size);
    free(copy);
    return 0;
}
