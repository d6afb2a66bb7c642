#include "json_file.h"
#include "error.h"
#include "regular_file.h"
#include "whole_file.h"
#include <stdbool.h>
#include <stdlib.h>

static bool is_stdout(const char *path)
{
    return strcmp(path, "-") == 0;
}

static tw_status write_stdout(const char *text)
{
    if (puts(text) >= 0 && fflush(stdout) == 0) return TW_OK;
    return tw_fail(TW_ERROR_IO, "standard output could not be written: %s", strerror(errno));
}

static tw_status json_file_refuse(const char *path, int error)
{
    return tw_fail(TW_ERROR_IO, "%s could not be created: %s", path,
                   error == ENXIO ? "it is a pipe that nobody reads" : strerror(error));
}

/* A terminal, a link to nothing yet, or a pipe that is read, but nobody is waited for to read it. */
static tw_status open_stream(const char *path, FILE **file)
{
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0666);
    if (descriptor < 0) return json_file_refuse(path, errno);
    fcntl(descriptor, F_SETFL, O_WRONLY);
    *file = fdopen(descriptor, "w");
    if (*file) return TW_OK;
    close(descriptor);
    return tw_fail(TW_ERROR_MEMORY, "no memory to write %s", path);
}

static tw_status write_stream(const char *path, const char *text)
{
    FILE *file;
    TW_TRY(open_stream(path, &file));
    bool written = fprintf(file, "%s\n", text) > 0 && fflush(file) == 0;
    int error = errno;
    if (fclose(file) == 0 && written) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s could not be written: %s", path, strerror(written ? errno : error));
}

static tw_status write_line(void *text, FILE *file)
{
    fprintf(file, "%s\n", (const char *)text);
    return TW_OK; /* what could not be written, whole_file_write finds */
}

/* Whether a file stands there, or nothing. */
static bool is_for_a_file(const char *path)
{
    struct stat about;
    return lstat(path, &about) != 0 || S_ISREG(about.st_mode);
}

/* "/dev/stdout" leads to a file that is open, and not to be replaced. */
static bool is_of_the_system(const char *path)
{
    return strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
}

/* JSON takes the place of JSON, and of nothing else: a slip of the hand would cost a run its journal. */
static tw_status check_old(const char *path)
{
    struct stat about;
    cJSON *old = NULL;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size == 0) return TW_OK;
    if (json_read(path, &old) != TW_OK)
        return tw_fail(TW_ERROR_ARGUMENT, "%s is no JSON, and would be lost; name another file", path);
    cJSON_Delete(old);
    return TW_OK;
}

static tw_status json_file_write_text(const char *path, char *text)
{
    if (is_stdout(path)) return write_stdout(text);
    TW_TRY(check_old(path));
    char *target = is_of_the_system(path) ? NULL : realpath(path, NULL); /* a link stays */
    const char *place = target ? target : path;
    tw_status status = is_for_a_file(place) ? whole_file_write(place, write_line, text) : write_stream(place, text);
    free(target);
    return status;
}

tw_status json_write(const char *path, const cJSON *object)
{
    char *text = cJSON_Print(object);
    if (!text) return tw_fail(TW_ERROR_MEMORY, "no memory for the JSON of %s", path);
    tw_status status = json_file_write_text(path, text);
    free(text);
    return status;
}

tw_status json_read(const char *path, cJSON **object)
{
    struct stat about = {0};
    FILE *file;
    TW_TRY(regular_file_stream(path, "r", &file));
    fstat(fileno(file), &about);
    char *text = calloc((size_t)about.st_size + 1, 1);
    size_t got = text ? fread(text, 1, (size_t)about.st_size, file) : 0;
    fclose(file);
    *object = text && got == (size_t)about.st_size ? cJSON_ParseWithOpts(text, NULL, true) : NULL;
    free(text);
    return *object ? TW_OK : tw_fail(TW_ERROR_FORMAT, "%s is not JSON", path);
}

/* A pipe stays open until the process ends: whoever reads it would take this for the end of what is written. */
tw_status json_check(const char *path)
{
    struct stat about;
    if (is_stdout(path)) return TW_OK;
    TW_TRY(check_old(path));
    bool is_new = !path_exists(path), is_pipe = stat(path, &about) == 0 && S_ISFIFO(about.st_mode);
    int descriptor = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
    if (descriptor < 0) return json_file_refuse(path, errno);
    if (!is_pipe) close(descriptor);
    char *made = is_new ? realpath(path, NULL) : NULL; /* and not the link that leads there */
    if (made) remove(made);
    free(made);
    return TW_OK;
}

FILE *json_beside(const char *path)
{
    return path && is_stdout(path) ? stderr : stdout;
}
