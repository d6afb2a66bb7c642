/* How schemes from outside come on the list: all that one call names, or none. */
#include "outside.h"

#include "error.h"
#include "registry.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* As of loading in plugin.c: what was being made is on no list. */
static void begin_anew(void)
{
    pthread_mutex_init(&adding, NULL);
}

static void outside_register_watch_forks(void)
{
    pthread_atfork(NULL, NULL, begin_anew);
}

/* Neither the library nor anybody before has a scheme of the new one's name. */
static tw_status check_name(const tw_outside *made, tw_outside *const *others, size_t count)
{
    const char *name = made->ops.name;
    int taken = tw_scheme_by_name(name) != NULL;
    for (size_t i = 0; i < count; i++) taken |= strcmp(others[i]->ops.name, name) == 0;
    return taken ? tw_fail(TW_ERROR_ARGUMENT, "there is a scheme %s already; choose another name", name) : TW_OK;
}

static tw_status make_all(const tw_scheme_definition *const *definitions, size_t count, tw_outside **made)
{
    if (count > TW_MOST_OUTSIDE - tw_outside_count())
        return tw_fail(TW_ERROR_ARGUMENT, "more than %d schemes from outside", TW_MOST_OUTSIDE);
    for (size_t i = 0; i < count; i++) {
        TW_TRY(tw_outside_make(definitions[i], &made[i]));
        TW_TRY(tw_scheme_options_check(&made[i]->ops));
        TW_TRY(check_name(made[i], made, i));
    }
    return TW_OK;
}

static tw_status make_and_add(const tw_scheme_definition *const *definitions, size_t count)
{
    tw_outside *made[TW_MOST_OUTSIDE] = {NULL};
    tw_status status = make_all(definitions, count, made);
    if (status == TW_OK) tw_outside_add(made, count);
    for (size_t i = 0; status != TW_OK && i < TW_MOST_OUTSIDE; i++) tw_outside_release(made[i]);
    return status;
}

tw_status tw_outside_register(const tw_scheme_definition *const *definitions, size_t count)
{
    pthread_once(&once, outside_register_watch_forks);
    pthread_mutex_lock(&adding);
    tw_status status = make_and_add(definitions, count);
    pthread_mutex_unlock(&adding);
    return status;
}
