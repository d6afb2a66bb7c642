#include "jsonl.h"
#include "error.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    file->file = fopen(path, "a+");
    if (file->file && drop_half_line(file->file) == 0) {
        *out = file;
        return TW_OK;
    }
    int error = errno;
    if (file->file) fclose(file->file);
    free(file);
    return tw_fail(TW_ERROR_IO, "%s could not be opened: %s", path, strerror(error));
}

void jsonl_close(jsonl *file)
{
    if (!file) return;
    fclose(file->file);
    free(file);
}

tw_status jsonl_write(jsonl *file, cJSON *line)
{
    char *text = cJSON_PrintUnformatted(line);
    cJSON_Delete(line);
    if (!text) return tw_fail(TW_ERROR_MEMORY, "no memory for a line of %s", file->path);
    int written = fprintf(file->file, "%s\n", text) > 0 && fflush(file->file) == 0;
    free(text);
    return written ? TW_OK : tw_fail(TW_ERROR_IO, "%s could not be written: %s", file->path, strerror(errno));
}
