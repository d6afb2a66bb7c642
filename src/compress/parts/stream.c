#include "scheme.h"

#include <string.h>
#include <thinwire/thinwire_plugin.h>

uint64_t tw_scheme_stream(const tw_scheme *scheme, size_t tensor, int number)
{
    const char *name = scheme->tensors[tensor].name;
    return (uint64_t)number << 32 | tw_crc32c(0, name, strlen(name));
}
