#include <thinwire/thinwire_plugin.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

/* The two belong together: no line is told to one function with another's context. */
typedef struct listener {
    tw_log_fn log;
    void *context;
} listener;

static pthread_mutex_t setting = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static listener current;

static void log_hold(void)
{
    pthread_mutex_lock(&setting);
}

static void log_let_go(void)
{
    pthread_mutex_unlock(&setting);
}

/* A thread that told a line while another one forked is not in the child, which would wait for it for ever. */
static void log_watch_forks(void)
{
    pthread_atfork(log_hold, log_let_go, log_let_go);
}

static listener log_exchange(const listener *next)
{
    pthread_once(&once, log_watch_forks);
    pthread_mutex_lock(&setting);
    listener before = current;
    if (next) current = *next;
    pthread_mutex_unlock(&setting);
    return before;
}

void tw_set_log(tw_log_fn log, void *context)
{
    log_exchange(&(listener){log, context});
}

void tw_log(tw_log_level level, const char *format, ...)
{
    char text[1024];
    va_list args;
    listener told = log_exchange(NULL);
    if (!told.log || !format) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    told.log(told.context, level, text);
}
