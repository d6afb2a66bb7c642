#include "feature_file.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thinwire/thinwire_plugin.h>

#define MAGIC "TWFEATS1"
#define ORDER 0x01020304u /* reads otherwise on a machine of the other byte order */

typedef struct header {
    char magic[8];
    uint32_t order, checksum;
    uint64_t floats, sounds, key; /* counts; of the key, bytes */
    char rest[24];
} header;

/* --- writing --------------------------------------------------------------------------------------------------- */

static bool feature_file_put(feature_writer *w, const void *bytes, size_t size)
{
    w->checksum = tw_crc32c(w->checksum, bytes, size);
    return fwrite(bytes, 1, size, w->stream) == size;
}

bool feature_file_begin(feature_writer *w, FILE *stream)
{
    *w = (feature_writer){.stream = stream};
    return fwrite(&(header){{0}}, sizeof(header), 1, stream) == 1;
}

bool feature_file_rows(feature_writer *w, const float *rows, size_t count)
{
    w->floats += count;
    return feature_file_put(w, rows, count * sizeof *rows);
}

/* The sounds' numbers take eight bytes each, and the floats before them four. */
static bool put_gap(feature_writer *w)
{
    return w->floats % 2 == 0 || feature_file_put(w, &(float){0}, sizeof(float));
}

/* The header comes last: what was interrupted has none. */
bool feature_file_end(feature_writer *w, const feature_sound *sounds, size_t count, const char *key)
{
    if (!put_gap(w) || !feature_file_put(w, sounds, count * sizeof *sounds) || !feature_file_put(w, key, strlen(key)))
        return false;
    header top = {.magic = MAGIC,
                  .order = ORDER,
                  .checksum = w->checksum,
                  .floats = w->floats,
                  .sounds = count,
                  .key = strlen(key)};
    return fseek(w->stream, 0, SEEK_SET) == 0 && fwrite(&top, sizeof top, 1, w->stream) == 1 && fflush(w->stream) == 0;
}

/* --- reading --------------------------------------------------------------------------------------------------- */

/* The bytes that stand before the sounds' numbers; 0 where such a file cannot be. */
static size_t bytes_before_sounds(const header *top, size_t size)
{
    if (top->floats > size / sizeof(float)) return 0;
    return sizeof *top + (size_t)(top->floats + top->floats % 2) * sizeof(float);
}

static bool holds_floats(const feature_file *file, size_t count, uint64_t floats)
{
    uint64_t left = floats;
    for (size_t i = 0; i < count; i++) {
        if (file->sounds[i].floats > left) return false;
        left -= file->sounds[i].floats;
    }
    return left == 0;
}

static bool feature_file_is_whole(feature_file *file, size_t count, const char *key)
{
    const unsigned char *bytes = file->bytes;
    const header *top = file->bytes;
    size_t length = strlen(key), before = bytes_before_sounds(top, file->size);
    if (memcmp(top->magic, MAGIC, sizeof top->magic) != 0 || top->order != ORDER) return false;
    if (!before || top->sounds != count || top->key != length) return false;
    if (file->size != before + count * sizeof *file->sounds + length) return false;
    if (memcmp(bytes + file->size - length, key, length) != 0) return false;
    if (tw_crc32c(0, bytes + sizeof *top, file->size - sizeof *top) != top->checksum) return false;
    file->rows = (const float *)(const void *)(bytes + sizeof *top);
    file->sounds = (const feature_sound *)(const void *)(bytes + before);
    return holds_floats(file, count, top->floats);
}

bool feature_file_open(feature_file *file, int descriptor, size_t count, const char *key)
{
    struct stat about;
    if (fstat(descriptor, &about) != 0 || (size_t)about.st_size < sizeof(header)) return false;
    *file = (feature_file){.size = (size_t)about.st_size};
    file->bytes = mmap(NULL, file->size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (file->bytes == MAP_FAILED) file->bytes = NULL;
    if (!file->bytes) return false;
    if (feature_file_is_whole(file, count, key)) return true;
    feature_file_close(file);
    return false;
}

void feature_file_close(feature_file *file)
{
    munmap(file->bytes, file->size);
    file->bytes = NULL;
}
