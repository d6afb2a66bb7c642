#include "sized.h"

#include "error.h"

#include <string.h>

tw_status tw_copy_sized(void *dst, const void *src, size_t size, const char *type)
{
    size_t room;
    memcpy(&room, dst, sizeof room);
    if (room < sizeof room) return tw_fail(TW_ERROR_ARGUMENT, "set struct_size = sizeof(%s) before asking", type);
    memset(dst, 0, room);
    memcpy(dst, src, room < size ? room : size);
    memcpy(dst, &room, sizeof room);
    return TW_OK;
}
