/* What comes from outside: definitions by hand, and shared libraries that hold some. */
#include "error.h"
#include "outside.h"
#include "sized.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <thinwire/thinwire_gossip.h>

/* A spec's name says which kind of scheme it is, so one for gradients must not be called as one for weights. */
static tw_status check_gossips(const tw_scheme_definition *definition)
{
    for (size_t i = 0; definition && definition->name && i < tw_gossips_count(); i++)
        if (strcmp(tw_gossips_name(i), definition->name) == 0)
            return tw_fail(TW_ERROR_ARGUMENT, "there is a scheme %s already, for weights; choose another name",
                           definition->name);
    return TW_OK;
}

static tw_status register_all(const tw_scheme_definition *const *definitions, size_t count)
{
    for (size_t i = 0; i < count; i++) TW_TRY(check_gossips(definitions[i]));
    return tw_outside_register(definitions, count);
}

tw_status tw_scheme_register(const tw_scheme_definition *definition)
{
    TW_TRY(tw_need(definition, "definition"));
    return register_all(&definition, 1);
}

/* ---- shared libraries -------------------------------------------------------------------------------------------- */

enum { MOST_PLUGINS = 256 };

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static void *loaded[MOST_PLUGINS]; /* as the loader knows them: it gives a library that it has by the same handle */
static size_t loaded_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A thread that was loading while another one forked is not in the child, which would wait for it for ever. What it was
 * at counts only when it is done. */
static void begin_anew(void)
{
    pthread_mutex_init(&loading, NULL);
}

static void plugin_watch_forks(void)
{
    pthread_atfork(NULL, NULL, begin_anew);
}

static int is_loaded(const void *library)
{
    for (size_t i = 0; i < loaded_count; i++)
        if (loaded[i] == library) return 1;
    return 0;
}

static tw_status plugin_describe(void *library, tw_plugin *plugin)
{
    tw_plugin_describe_fn entry;
    void *symbol = dlsym(library, TW_PLUGIN_ENTRY);
    if (!symbol) return tw_fail(TW_ERROR_UNSUPPORTED, "it is not a plug-in of thinwire: it lacks " TW_PLUGIN_ENTRY);
    memcpy(&entry, &symbol, sizeof entry);
    const tw_plugin *given = entry();
    if (!given) return tw_fail(TW_ERROR_UNSUPPORTED, "it is a plug-in that does not describe itself");
    TW_TRY(tw_read_known(plugin, sizeof *plugin, given, given->struct_size, "tw_plugin"));
    if (plugin->scheme_count && !plugin->schemes)
        return tw_fail(TW_ERROR_ARGUMENT, "its schemes are NULL, and scheme_count is %zu", plugin->scheme_count);
    return TW_OK;
}

static tw_status plugin_take_in(void *library)
{
    tw_plugin plugin = {0};
    if (loaded_count == MOST_PLUGINS) return tw_fail(TW_ERROR_ARGUMENT, "more than %d plug-ins", MOST_PLUGINS);
    TW_TRY(plugin_describe(library, &plugin));
    TW_TRY(register_all(plugin.schemes, plugin.scheme_count));
    loaded[loaded_count++] = library;
    return TW_OK;
}

static tw_status plugin_load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* what it registers by itself stays, too */
    if (!library) {
        const char *why = dlerror();
        int is_searched = !strchr(path, '/'); /* where libraries are, which is not the current folder */
        return tw_fail(TW_ERROR_UNSUPPORTED, "plug-in %s cannot be loaded (%s)%s%s", path,
                       why ? why : "no reason given", is_searched ? "; a file in the current folder is ./" : "",
                       is_searched ? path : "");
    }
    pthread_mutex_lock(&loading); /* not before: what a library does when it is loaded may be to load another */
    tw_status status = is_loaded(library) ? TW_OK : plugin_take_in(library);
    pthread_mutex_unlock(&loading);
    if (status != TW_OK) {
        tw_fail_in(status, path);
        dlclose(library); /* none of it is used */
    }
    return status;
}

tw_status tw_plugin_load(const char *path)
{
    TW_TRY(tw_need(path, "path"));
    pthread_once(&once, plugin_watch_forks);
    return plugin_load(path);
}
