/* error.h - passing a failure on. */
#ifndef TW_BASE_ERROR_H
#define TW_BASE_ERROR_H

#include <stdint.h>
#include <thinwire/thinwire_plugin.h>

/* Returns from the calling function if `call` fails; its text is already written. */
#define TW_TRY(call)                                                                                                   \
    do {                                                                                                               \
        tw_status try_status = (call);                                                                                 \
        if (try_status != TW_OK) return try_status;                                                                    \
    } while (0)

/* What a call begins with for each pointer that must be given: TW_ERROR_ARGUMENT, naming the argument as the public
 * header does, if it is NULL. */
static inline tw_status tw_need(const void *pointer, const char *argument)
{
    return pointer ? TW_OK : tw_fail(TW_ERROR_ARGUMENT, "the argument %s is NULL, and this call needs it", argument);
}

/* 1 if a number, such as a peer sent, is a tw_status. */
int tw_status_is_known(uint32_t number);

/* Puts "place: " before the text of a failure that is passed on. Returns its status. */
tw_status tw_fail_in(tw_status status, const char *place);

#endif
