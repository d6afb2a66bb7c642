#include "json_file.h"
#include "error.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_stdout(const char *path)
{
    return strcmp(path, "-") == 0;
}

static tw_status write_stdout(const char *text)
{
    if (puts(text) >= 0 && fflush(stdout) == 0) return TW_OK;
    return tw_fail(TW_ERROR_IO, "standard output could not be written: %s", strerror(errno));
}

static tw_status open_file(const char *path, const char *mode, FILE **file)
{
    *file = fopen(path, mode);
    return *file ? TW_OK : tw_fail(TW_ERROR_IO, "%s could not be created: %s", path, strerror(errno));
}

static tw_status write_file(const char *path, const char *text)
{
    FILE *file;
    TW_TRY(open_file(path, "w", &file));
    bool written = fprintf(file, "%s\n", text) > 0 && fflush(file) == 0;
    int error = errno;
    if (fclose(file) == 0 && written) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s could not be written: %s", path, strerror(written ? errno : error));
}

tw_status json_write(const char *path, const cJSON *object)
{
    char *text = cJSON_Print(object);
    if (!text) return tw_fail(TW_ERROR_MEMORY, "no memory for the JSON of %s", path);
    tw_status status = is_stdout(path) ? write_stdout(text) : write_file(path, text);
    free(text);
    return status;
}

tw_status json_check(const char *path)
{
    FILE *file;
    if (is_stdout(path)) return TW_OK;
    TW_TRY(open_file(path, "a", &file));
    fclose(file);
    return TW_OK;
}

FILE *json_beside(const char *path)
{
    return path && is_stdout(path) ? stderr : stdout;
}
