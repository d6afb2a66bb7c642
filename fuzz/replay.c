/* replay FOLDER: gives every file of a corpus to the fuzz entry, in a build without libFuzzer. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>

enum { MOST_BYTES = 1 << 20 };

static int replay_file(const char *folder, const char *name, uint8_t *bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) return -1;
    size_t size = fread(bytes, 1, MOST_BYTES, file);
    fclose(file);
    return LLVMFuzzerTestOneInput(bytes, size);
}

static int replay_folder(const char *folder, uint8_t *bytes)
{
    int count = 0;
    DIR *listing = opendir(folder);
    if (!listing) return 0;
    for (struct dirent *entry; (entry = readdir(listing));)
        if (entry->d_name[0] != '.' && replay_file(folder, entry->d_name, bytes) == 0) count++;
    closedir(listing);
    return count;
}

int main(int argc, char **argv)
{
    uint8_t *bytes = malloc(MOST_BYTES);
    if (argc != 2 || !bytes) return 2;
    int count = replay_folder(argv[1], bytes);
    free(bytes);
    printf("%d files of %s\n", count, argv[1]);
    return count > 0 ? 0 : 1;
}
