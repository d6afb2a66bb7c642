/* error.h - passing a failure on. */
#ifndef TW_BASE_ERROR_H
#define TW_BASE_ERROR_H

#include <thinwire/thinwire_plugin.h>

/* Returns from the calling function if `call` fails; its text is already written. */
#define TW_TRY(call)                                                                                                   \
    do {                                                                                                               \
        tw_status try_status = (call);                                                                                 \
        if (try_status != TW_OK) return try_status;                                                                    \
    } while (0)

#endif
