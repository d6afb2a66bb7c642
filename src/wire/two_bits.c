#include "bits.h"
#include "values.h"

const char *tw_values_read_two_bits(const unsigned char *src, const float level[4], float *value, size_t k)
{
    tw_bit_reader reader = {src, (2 * k + 7) / 8, 0};
    for (size_t i = 0; i < k; i++, reader.position += 2) value[i] = level[tw_bits_peek(&reader) & 3];
    return tw_bits_ended(&reader) ? NULL : "its codes have padding that is not zero";
}
