/* Reads any bytes as a block of numbers. The first byte of the input chooses how wide they are, the next two how many.
 * Whatever is accepted are numbers: written and read again they are the same. */
#include "fuzz.h"
#include "planes.h"

#include <string.h>

enum { CHOICES = 3, MOST_COUNT = 4096 };

static void *exactly(size_t size)
{
    void *room = malloc(size + 1);
    must(room != NULL);
    return room;
}

static void write_again(const unsigned char *numbers, size_t count, size_t width)
{
    unsigned char *block = exactly(tw_planes_bound(count, width)), *again = exactly(count * width);
    size_t size = tw_planes_write(block, numbers, count, width);
    must(size <= tw_planes_bound(count, width));
    must(tw_planes_read(block, size, again, count, width) == NULL);
    must(memcmp(again, numbers, count * width) == 0);
    free(block);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < CHOICES) return 0;
    size_t width = data[0] % TW_PLANES_MOST + 1, count = (data[1] + 256U * data[2]) % MOST_COUNT;
    unsigned char *numbers = exactly(count * width);
    if (!tw_planes_read(data + CHOICES, size - CHOICES, numbers, count, width)) write_again(numbers, count, width);
    write_again(data, size / width < MOST_COUNT ? size / width : MOST_COUNT, width);
    free(numbers);
    return 0;
}
