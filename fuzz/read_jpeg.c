/* Reads any bytes as a JPEG. The first byte chooses how many times smaller it comes out. */
#include "read_picture.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4) return 0;
    if (memcmp(data + 1, "\xff\xd8\xff", 3) != 0) return 0; /* read_png.c has the others */
    read_picture(data + 1, size - 1, (size_t)1 << (data[0] & 3));
    return 0;
}
