#include "interface.h"

#include <stdio.h>
#include <string.h>

/* "  eth0: received-bytes and seven more, sent-bytes and seven more" */
static int read_line(const char *line, char name[INTERFACE_BYTES], double *sent)
{
    return sscanf(line, " %15[^:]: %*f %*f %*f %*f %*f %*f %*f %*f %lf", name, sent) == 2;
}

void interface_read(const char *path, interface_counts *counts)
{
    char line[512];
    FILE *file = fopen(path, "r");
    counts->count = 0;
    if (!file) return;
    while (counts->count < INTERFACES_MOST && fgets(line, sizeof line, file))
        counts->count += read_line(line, counts->names[counts->count], &counts->sent[counts->count]);
    fclose(file);
}

static double sent_before(const interface_counts *before, const char *name)
{
    for (int i = 0; i < before->count; i++)
        if (strcmp(before->names[i], name) == 0) return before->sent[i];
    return 0;
}

void interface_find(const interface_counts *before, const interface_counts *after, double bytes,
                    char name[INTERFACE_BYTES])
{
    name[0] = 0;
    for (int i = 0; i < after->count; i++) {
        double grown = after->sent[i] - sent_before(before, after->names[i]);
        if (grown < bytes) continue;
        bytes = grown;
        memcpy(name, after->names[i], INTERFACE_BYTES);
    }
}
