#include "sized.h"

#include "error.h"

#include <string.h>

enum { MOST = 1024 }; /* bytes: a larger size has not been set, it has been left to chance */

/* A struct that begins with a size_t is a multiple of one, which few sizes are that nobody has set. */
static tw_status read_size(const void *sized, const char *type, size_t *size)
{
    memcpy(size, sized, sizeof *size);
    if (*size >= sizeof *size && *size <= MOST && *size % sizeof *size == 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "struct_size is %zu; set it to sizeof(%s) before the call", *size, type);
}

tw_status tw_copy_sized(void *dst, const void *src, size_t size, const char *type)
{
    size_t room;
    TW_TRY(read_size(dst, type, &room));
    memset(dst, 0, room);
    memcpy(dst, src, room < size ? room : size);
    memcpy(dst, &room, sizeof room);
    return TW_OK;
}

tw_status tw_read_sized(void *dst, size_t size, const void *src, const char *type)
{
    size_t given;
    TW_TRY(read_size(src, type, &given));
    return tw_read_known(dst, size, src, given, type);
}

tw_status tw_check_reserved(const void *const reserved[2], const char *type)
{
    if (!reserved[0] && !reserved[1]) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "reserved of a %s is not NULL; set all of it to zero before filling it in", type);
}

tw_status tw_read_known(void *dst, size_t known, const void *src, size_t size, const char *type)
{
    if (size < sizeof(size_t) || size > MOST)
        return tw_fail(TW_ERROR_ARGUMENT, "a %s is said to have %zu bytes; set its size to sizeof(%s)", type, size,
                       type);
    for (size_t i = known; i < size; i++)
        if (((const char *)src)[i])
            return tw_fail(TW_ERROR_UNSUPPORTED,
                           "a %s of %zu bytes uses what this thinwire (%s) does not know; it was compiled against a "
                           "newer one",
                           type, size, tw_version());
    memset(dst, 0, known);
    memcpy(dst, src, size < known ? size : known);
    return TW_OK;
}
