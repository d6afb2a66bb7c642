/* Reads any bytes as a PNG, or as what is neither that nor a JPEG. */
#include "read_picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == 0xff) return 0; /* read_jpeg.c has these */
    read_picture(data, size, 1);
    return 0;
}
