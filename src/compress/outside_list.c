/* The schemes from outside that this process knows. They are never taken off the list, so readers need no lock. */
#include "outside.h"

#include "error.h"
#include "registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MOST = 256 };

static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static tw_outside *list[MOST];
static atomic_size_t listed; /* written behind what it counts */

/* As of loading in plugin.c: what stands behind those that are listed, nobody reads. */
static void begin_anew(void)
{
    pthread_mutex_init(&adding, NULL);
}

static void outside_list_watch_forks(void)
{
    pthread_atfork(NULL, NULL, begin_anew);
}

const tw_scheme_ops *tw_outside_at(size_t index)
{
    return index < atomic_load_explicit(&listed, memory_order_acquire) ? &list[index]->ops : NULL;
}

/* Neither the library nor anybody before has a scheme of the new one's name. */
static tw_status check_name(const tw_outside *made, tw_outside *const *others, size_t count)
{
    const char *name = made->ops.name;
    int taken = tw_scheme_by_name(name) != NULL;
    for (size_t i = 0; i < count; i++) taken |= strcmp(others[i]->ops.name, name) == 0;
    return taken ? tw_fail(TW_ERROR_ARGUMENT, "there is a scheme %s already; choose another name", name) : TW_OK;
}

/* Behind the list, where nobody reads yet. */
static tw_status make_all(const tw_scheme_definition *const *definitions, size_t count, tw_outside **made, size_t room)
{
    if (count > room) return tw_fail(TW_ERROR_ARGUMENT, "more than %d schemes from outside", MOST);
    for (size_t i = 0; i < count; i++) {
        TW_TRY(tw_outside_make(definitions[i], &made[i]));
        TW_TRY(check_name(made[i], made, i));
    }
    return TW_OK;
}

static tw_status outside_list_add(const tw_scheme_definition *const *definitions, size_t count)
{
    size_t before = atomic_load_explicit(&listed, memory_order_relaxed);
    tw_outside **made = list + before;
    tw_status status = make_all(definitions, count, made, MOST - before);
    if (status == TW_OK) atomic_store_explicit(&listed, before + count, memory_order_release);
    for (size_t i = 0; status != TW_OK && i < MOST - before; i++) {
        tw_outside_release(made[i]);
        made[i] = NULL;
    }
    return status;
}

tw_status tw_outside_register(const tw_scheme_definition *const *definitions, size_t count)
{
    pthread_once(&once, outside_list_watch_forks);
    pthread_mutex_lock(&adding);
    tw_status status = outside_list_add(definitions, count);
    pthread_mutex_unlock(&adding);
    return status;
}
