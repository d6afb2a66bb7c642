#include "sized.h"

#include "error.h"

#include <string.h>

enum { MOST = 1 << 16 }; /* bytes: a larger answer has not been set, it has been left to chance */

tw_status tw_copy_sized(void *dst, const void *src, size_t size, const char *type)
{
    size_t room;
    memcpy(&room, dst, sizeof room);
    if (room < sizeof room || room > MOST)
        return tw_fail(TW_ERROR_ARGUMENT, "struct_size is %zu; set it to sizeof(%s) before asking", room, type);
    memset(dst, 0, room);
    memcpy(dst, src, room < size ? room : size);
    memcpy(dst, &room, sizeof room);
    return TW_OK;
}
