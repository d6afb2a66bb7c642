/* Transports that live in shared libraries of their own, so that the core needs none of what they need. */
#include "comm.h"

#include "error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
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

/* As installed to be run; as built, or somebody else's. */
static const char *const endings[] = {".0", ""};
enum { ENDINGS = sizeof endings / sizeof *endings, FILE_BYTES = NAME_BYTES + 32 };

static void name_file(const char *name, size_t ending, char file[FILE_BYTES])
{
    snprintf(file, FILE_BYTES, "libthinwire_%s.so%s", name, endings[ending]);
}

static int find_beside(const char *name, char path[PATH_BYTES])
{
    char file[FILE_BYTES];
    for (size_t i = 0; i < ENDINGS; i++) {
        name_file(name, i, file);
        if (path_beside(file, path, PATH_BYTES) && access(path, R_OK) == 0) return 1;
    }
    return 0;
}

static void *search(const char *name)
{
    char file[FILE_BYTES];
    void *library = NULL;
    for (size_t i = 0; !library && i < ENDINGS; i++) {
        name_file(name, i, file);
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

static tw_status open_load(const char *name, void **library)
{
    char path[PATH_BYTES];
    *library = find_beside(name, path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : search(name);
    if (*library) return TW_OK;
    const char *why = dlerror();
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "transport \"%s\" cannot be loaded (%s); install libthinwire_%s.so beside libthinwire.so or on the "
                   "library path",
                   name, why ? why : "no reason given", name);
}

static _Thread_local int seals; /* while "sealed" opens what it seals */

static int is_seal(const char *name)
{
    return strcmp(name, "sealed") == 0;
}

/* Who set the variable believes that the line is sealed. */
static tw_status check_seal(const char *name)
{
    const char *over = getenv("THINWIRE_SEAL_OVER");
    if (seals || is_seal(name) || !over || strcmp(over, name) != 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "THINWIRE_SEAL_OVER is %s, and transport \"%s\" by itself seals nothing: open \"sealed\", or unset "
                   "the variable",
                   name, name);
}

static tw_status call(tw_transport_open_fn open_transport, const char *name, tw_comm **comm)
{
    int before = seals;
    seals = is_seal(name);
    tw_status status = open_transport(comm);
    seals = before;
    return status;
}

tw_status tw_comm_open(const char *name, tw_comm **comm)
{
    void *library;
    TW_TRY(tw_need(name, "name"));
    TW_TRY(tw_need(comm, "comm"));
    TW_TRY(check_name(name));
    TW_TRY(check_seal(name));
    TW_TRY(open_load(name, &library));
    void *symbol = dlsym(library, TW_TRANSPORT_ENTRY);
    if (!symbol) {
        dlclose(library);
        return tw_fail(TW_ERROR_UNSUPPORTED, "libthinwire_%s.so is not a transport: it lacks %s", name,
                       TW_TRANSPORT_ENTRY);
    }
    tw_transport_open_fn open_transport;
    memcpy(&open_transport, &symbol, sizeof open_transport);
    return call(open_transport, name,
                comm); /* the library stays loaded: MPI, for one, does not survive being unloaded */
}
