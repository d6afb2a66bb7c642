/* Transports that live in shared libraries of their own, so that the core needs none of what they need. */
#include "comm.h"

#include "error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 32, PATH_BYTES = 4096 };

static tw_status check_name(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length > NAME_BYTES || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != length)
        return tw_fail(TW_ERROR_ARGUMENT, "\"%s\" is not the name of a transport: want lower-case letters and digits",
                       name);
    return TW_OK;
}

/* The path of `file` in the folder this code was loaded from; 0 when that is not known. */
static int path_beside(const char *file, char *path, size_t capacity)
{
    Dl_info here;
    if (!dladdr((void *)(uintptr_t)tw_comm_open, &here) || !here.dli_fname) return 0;
    const char *slash = strrchr(here.dli_fname, '/');
    if (!slash) return 0;
    int length = snprintf(path, capacity, "%.*s/%s", (int)(slash - here.dli_fname), here.dli_fname, file);
    return length > 0 && (size_t)length < capacity;
}

static tw_status load(const char *name, void **library)
{
    static const char *const endings[] = {".0", ""}; /* as installed to be run; as built, or somebody else's */
    char file[NAME_BYTES + 32], path[PATH_BYTES];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(file, sizeof file, "libthinwire_%s.so%s", name, endings[i]);
        int beside = path_beside(file, path, sizeof path) && access(path, R_OK) == 0;
        *library = dlopen(beside ? path : file, RTLD_NOW | RTLD_LOCAL);
        if (*library) return TW_OK;
        if (beside) break; /* what is there and cannot be loaded is what has to be told */
    }
    const char *why = dlerror();
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "transport \"%s\" cannot be loaded (%s); install %s beside libthinwire.so or on the library path",
                   name, why ? why : "no reason given", file);
}

tw_status tw_comm_open(const char *name, tw_comm **comm)
{
    void *library;
    TW_TRY(tw_need(name, "name"));
    TW_TRY(tw_need(comm, "comm"));
    TW_TRY(check_name(name));
    TW_TRY(load(name, &library));
    void *symbol = dlsym(library, TW_TRANSPORT_ENTRY);
    if (!symbol) {
        dlclose(library);
        return tw_fail(TW_ERROR_UNSUPPORTED, "libthinwire_%s.so is not a transport: it lacks %s", name,
                       TW_TRANSPORT_ENTRY);
    }
    tw_transport_open_fn open_transport;
    memcpy(&open_transport, &symbol, sizeof open_transport);
    return open_transport(comm); /* the library stays loaded: MPI, for one, does not survive being unloaded */
}
