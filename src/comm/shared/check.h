/* check.h - how calls of a transport begin and fail. It is as src/base/error.h has it, written again here because a
 * transport sees public headers only. */
#ifndef TW_COMM_SHARED_CHECK_H
#define TW_COMM_SHARED_CHECK_H

#include <thinwire/thinwire_plugin.h>

/* Returns from the calling function if `call` fails; its text is already written. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        tw_status try_status = (call);                                                                                 \
        if (try_status != TW_OK) return try_status;                                                                    \
    } while (0)

static inline tw_status tw_given(const void *pointer, const char *argument)
{
    return pointer ? TW_OK : tw_fail(TW_ERROR_ARGUMENT, "the argument %s is NULL, and this call needs it", argument);
}

#endif
