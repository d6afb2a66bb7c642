#include "whole_file.h"
#include "error.h"
#include "regular_file.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tw_status whole_file_may_replace(const char *path, const char *begins, const char *what)
{
    char first[64] = "";
    const size_t length = strlen(begins);
    FILE *file;
    if (!path_exists(path)) return TW_OK;
    TW_TRY(regular_file_stream(path, "r", &file));
    size_t read = fread(first, 1, length < sizeof first ? length : sizeof first, file);
    fclose(file);
    if (read == 0 || strncmp(first, begins, sizeof first) == 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "%s is no %s, and would be lost; name another file", path, what);
}

tw_status file_could_not(const char *path, const char *what)
{
    return tw_fail(TW_ERROR_IO, "%s could not be %s: %s", path, what, strerror(errno));
}

int whole_file_keep(FILE *file)
{
    return fflush(file) != 0 || (fsync(fileno(file)) != 0 && errno != EINVAL);
}

static tw_status write_beside(const char *path, const char *partial, tw_status (*write)(void *context, FILE *file),
                              void *context)
{
    FILE *file;
    if (regular_file_stream(partial, "w", &file) != TW_OK) return file_could_not(path, "written");
    tw_status status = write(context, file);
    if (status == TW_OK && (ferror(file) || whole_file_keep(file) != 0)) status = file_could_not(path, "written");
    if (fclose(file) != 0 && status == TW_OK) status = file_could_not(path, "written");
    if (status == TW_OK && rename(partial, path) != 0) status = file_could_not(path, "replaced");
    return status;
}

tw_status whole_file_write(const char *path, tw_status (*write)(void *context, FILE *file), void *context)
{
    char *partial;
    if (!*path) return tw_fail(TW_ERROR_ARGUMENT, "the name of the file to write is empty");
    if (asprintf(&partial, "%s.partial", path) < 0) return tw_fail(TW_ERROR_MEMORY, "no memory to write %s", path);
    tw_status status = write_beside(path, partial, write, context);
    if (status != TW_OK) remove(partial);
    free(partial);
    return status;
}
