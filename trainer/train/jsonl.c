#include "jsonl.h"
#include "error.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct jsonl {
    FILE *file;
    char path[];
};

tw_status jsonl_open(const char *path, jsonl **out)
{
    jsonl *file = malloc(sizeof *file + strlen(path) + 1);
    if (!file) return tw_fail(TW_ERROR_MEMORY, "no memory for %s", path);
    strcpy(file->path, path);
    file->file = fopen(path, "a");
    if (file->file) {
        *out = file;
        return TW_OK;
    }
    free(file);
    return tw_fail(TW_ERROR_IO, "%s could not be opened: %s", path, strerror(errno));
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
