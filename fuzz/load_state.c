/* Loads any bytes as a safetensors file, once as they are and once with an 8-byte length of the header put in front
 * that fits. Whatever is accepted must be readable in full, and be taken over by another number of ranks or refused. */
#include "fuzz.h"
#include "state.h"

#include <string.h>
#include <thinwire/thinwire_gossip.h>

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

static tw_status give(void *context, int rank, const tw_state **state)
{
    (void)rank;
    *state = context;
    return TW_OK;
}

/* The same state of all old ranks: taken over, or refused, by a scheme whose every kind of thing there is. */
static void take_over(const tw_state *state)
{
    static const tw_tensor table[] = {{.name = "w", .dims = 2, .shape = {2, 2}},
                                      {.name = "b", .dims = 1, .shape = {3}}};
    tw_state *next = NULL;
    must(tw_state_create(&next) == TW_OK);
    tw_status status = tw_reducer_regroup_state("sdagc:min_elements=1,min_dims=2", table, 2, 3, give,
                                                (void *)(uintptr_t)state, 1, 2, "", next);
    must(status == TW_OK || status == TW_ERROR_STATE);
    must(status == TW_OK || tw_state_count(next) == 0);
    status = tw_gossip_regroup_state("choco", table, 2, 3, give, (void *)(uintptr_t)state, 1, 2, "", next);
    must(status == TW_OK || status == TW_ERROR_STATE);
    tw_state_destroy(next);
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
    if (status == TW_OK) take_over(state);
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
