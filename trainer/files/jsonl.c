#include "jsonl.h"
#include "regular_file.h"
#include <stdlib.h>

struct jsonl {
    FILE *file;
    char path[];
};

/* A full disk leaves half a line, which would spoil the next. */
static int drop_half_line(FILE *file)
{
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0, end = size;
    int byte = 0;
    for (; end > 0 && fseek(file, end - 1, SEEK_SET) == 0; end--)
        if ((byte = fgetc(file)) == '\n' || byte == EOF) break;
    if (byte == EOF) return -1;
    return end < size ? ftruncate(fileno(file), end) : 0;
}

tw_status jsonl_open(const char *path, jsonl **out)
{
    jsonl *file = malloc(sizeof *file + strlen(path) + 1);
    if (!file) return tw_fail(TW_ERROR_MEMORY, "no memory for %s", path);
    strcpy(file->path, path);
    tw_status status = regular_file_stream(path, "a+", &file->file);
    if (status == TW_OK && drop_half_line(file->file) != 0) {
        status = tw_fail(TW_ERROR_IO, "%s could not be read: %s", path, strerror(errno));
        fclose(file->file);
    }
    if (status == TW_OK)
        *out = file;
    else
        free(file);
    return status;
}

void jsonl_close(jsonl *file)
{
    if (!file) return;
    fclose(file->file);
    free(file);
}

tw_status jsonl_check(const jsonl *file)
{
    struct stat open, named;
    if (fstat(fileno(file->file), &open) != 0 || stat(file->path, &named) != 0 || open.st_ino != named.st_ino ||
        open.st_dev != named.st_dev)
        return tw_fail(TW_ERROR_IO, "%s is gone: it was removed or moved while the run wrote to it", file->path);
    return TW_OK;
}

tw_status jsonl_write(jsonl *file, cJSON *line)
{
    char *text = cJSON_PrintUnformatted(line);
    cJSON_Delete(line);
    if (!text) return tw_fail(TW_ERROR_MEMORY, "no memory for a line of %s", file->path);
    int written = fprintf(file->file, "%s\n", text) > 0 && fflush(file->file) == 0;
    free(text);
    if (!written) return tw_fail(TW_ERROR_IO, "%s could not be written: %s", file->path, strerror(errno));
    return jsonl_check(file);
}
