/* Where the library's blocks lie, as the system tells it. */
#include "file_memory.h"
#include "support/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Whether the block of that address is one of a file without a name. */
static int is_in_file(const void *block)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        uintptr_t begin, end;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
        if ((uintptr_t)block >= begin && (uintptr_t)block < end) found = strstr(line, ".thinwire-memory-") != NULL;
    }
    fclose(maps);
    return found;
}

static const void *put(tw_state *s, const char *name, size_t bytes)
{
    tw_state_entry entry;
    char *data = calloc(bytes, 1);
    assert_non_null(data);
    data[bytes - 1] = 7;
    assert_ok(tw_state_put(s, name, TW_U8, 1, &bytes, data));
    free(data);
    assert_ok(tw_state_at(s, tw_state_count(s) - 1, &entry));
    assert_int_equal(((const char *)entry.data)[bytes - 1], 7);
    return entry.data;
}

/* Of the largest the library wants large pages. */
TEST(large_blocks_lie_in_files)
{
    tw_state *s;
    assert_ok(tw_state_create(&s));
    assert_false(is_in_file(put(s, "before", 1 << 20)));
    file_memory_use(".");
    assert_false(is_in_file(put(s, "small", 1000)));
    assert_true(is_in_file(put(s, "large", 1000000)));
    const void *largest = put(s, "largest", 9000000);
    assert_true(is_in_file(largest));
    file_memory_use(NULL);
    assert_false(is_in_file(put(s, "after", 1000000)));
    tw_state_destroy(s);
    assert_false(is_in_file(largest));
}

TEST(where_there_is_no_room_is_no_memory)
{
    tw_state *s;
    const size_t bytes = 1 << 20;
    char *data = calloc(bytes, 1);
    assert_ok(tw_state_create(&s));
    file_memory_use("/proc");
    assert_fails(tw_state_put(s, "large", TW_U8, 1, &bytes, data), TW_ERROR_MEMORY, "no memory");
    file_memory_use(NULL);
    tw_state_destroy(s);
    free(data);
}

int main(void)
{
    file_memory_install();
    return cmocka_run_group_tests(all_tests, NULL, NULL);
}
