#include "feature_cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/file.h>

#include "feature_file.h"
#include "file.h"
#include "folders.h"
#include "log_mel.h"
#include "regular_file.h"

struct feature_cache {
    feature_file file;
    size_t width;
    uint64_t *first; /* each sound's first float */
};

/* One cache that is looked for. */
typedef struct search {
    const speech_list *list;
    const speech_request *request;
    char *key;
    char path[FILE_PATH_MOST], part[FILE_PATH_MOST]; /* the file, and that in which it grows */
    feature_file *file;
} search;

/* --- whose they are --------------------------------------------------------------------------------------------- */

/* A file has one name here, however a person spells it: a run that goes on spells it otherwise. Of a file that is not
 * there the size is -1. */
static void write_sound_key(FILE *out, const speech_utterance *one)
{
    struct stat about = {.st_size = -1};
    const char *spelled = one->path ? one->path : "";
    char *name = realpath(spelled, NULL);
    if (!name || stat(name, &about) != 0) about.st_size = -1;
    fprintf(out, "%s %jd %jd.%09ld %a %a %d\n", name ? name : spelled, (intmax_t)about.st_size,
            (intmax_t)about.st_mtim.tv_sec, about.st_mtim.tv_nsec, one->offset, one->duration, one->channel);
    free(name);
}

static tw_status write_key(search *s)
{
    char settings[FEATURE_SETTINGS_TEXT];
    size_t size;
    FILE *out = open_memstream(&s->key, &size);
    if (!out) return tw_fail(TW_ERROR_MEMORY, "no memory for the names of %zu sounds", s->list->count);
    fprintf(out, "%s channel=%d most_seconds=%a\n", feature_settings_text(&s->request->features, settings),
            s->request->channel, s->request->most_seconds);
    for (size_t i = 0; i < s->list->count; i++) write_sound_key(out, &s->list->items[i]);
    bool failed = ferror(out);
    if (fclose(out) == 0 && !failed) return TW_OK;
    return tw_fail(TW_ERROR_MEMORY, "no memory for the names of %zu sounds", s->list->count);
}

/* --- making the file -------------------------------------------------------------------------------------------- */

typedef struct maker {
    const search *s;
    log_mel *extractor;
    feature_writer writer;
    feature_sound *sounds;
} maker;

static tw_status feature_cache_refuse(const search *s, const char *path, int error)
{
    return tw_fail(TW_ERROR_IO, "%s: cannot write features there: %s; name another folder with %s", path,
                   strerror(error), s->request->cache_option);
}

static tw_status write_rows(maker *m, const float *samples, size_t count, feature_sound *sound)
{
    const feature_settings *features = &m->s->request->features;
    size_t floats = feature_frames(features, count) * feature_width(features);
    if (!floats) return TW_OK;
    float *rows = malloc(floats * sizeof *rows);
    if (!rows) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu features", floats);
    tw_status status = log_mel_extract(m->extractor, samples, count, rows);
    if (status == TW_OK && !feature_file_rows(&m->writer, rows, floats))
        status = feature_cache_refuse(m->s, m->s->part, errno);
    free(rows);
    *sound = (feature_sound){floats, (double)count / features->rate};
    return status;
}

/* A sound that cannot be used has no rows. */
static tw_status write_sound(maker *m, size_t i)
{
    float *samples;
    size_t count;
    const speech_utterance *one = &m->s->list->items[i];
    if (one->fault) return TW_OK;
    tw_status status = speech_read_sound(m->s->request, one, &samples, &count);
    if (status == TW_ERROR_IO || status == TW_ERROR_FORMAT) return TW_OK;
    TW_TRY(status);
    status = write_rows(m, samples, count, &m->sounds[i]);
    free(samples);
    return status;
}

static tw_status write_all(maker *m, FILE *stream)
{
    const search *s = m->s;
    size_t count = s->list->count;
    if (!feature_file_begin(&m->writer, stream)) return feature_cache_refuse(s, s->part, errno);
    for (size_t i = 0; i < count; i++) TW_TRY(write_sound(m, i));
    if (!feature_file_end(&m->writer, m->sounds, count, s->key) || fsync(fileno(stream)) != 0 ||
        rename(s->part, s->path) != 0)
        return feature_cache_refuse(s, s->part, errno);
    return TW_OK;
}

static tw_status make_file(const search *s, FILE *stream)
{
    maker m = {.s = s, .sounds = calloc(s->list->count + 1, sizeof *m.sounds)};
    if (!m.sounds) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu sounds", s->list->count);
    tw_status status = log_mel_create(&s->request->features, &m.extractor);
    if (status == TW_OK) {
        status = write_all(&m, stream);
        log_mel_destroy(m.extractor);
    }
    free(m.sounds);
    return status;
}

/* --- who makes it ----------------------------------------------------------------------------------------------- */

static bool open_there(const search *s)
{
    int descriptor = -1;
    if (regular_file_open(s->path, O_RDONLY, &descriptor) != TW_OK) return false;
    bool good = feature_file_open(s->file, descriptor, s->list->count, s->key);
    close(descriptor);
    return good;
}

/* Whoever had the lock may have renamed the file, or removed it. */
static bool stands_at(int descriptor, const char *path)
{
    struct stat one, other;
    return fstat(descriptor, &one) == 0 && stat(path, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* One process at a time has it; the system takes it from one that dies. */
static tw_status lock_part(const search *s, int *descriptor)
{
    for (;;) {
        TW_TRY(regular_file_open(s->part, O_RDWR | O_CREAT, descriptor));
        int failed;
        while ((failed = flock(*descriptor, LOCK_EX) != 0) && errno == EINTR) {
        }
        if (!failed && stands_at(*descriptor, s->part)) return TW_OK;
        int error = errno;
        close(*descriptor);
        if (failed) return feature_cache_refuse(s, s->part, error);
    }
}

/* What was begun by one that died is overwritten. */
static tw_status make_locked(const search *s, int descriptor)
{
    if (open_there(s)) {
        close(descriptor);
        unlink(s->part);
        return TW_OK;
    }
    FILE *stream = ftruncate(descriptor, 0) == 0 ? fdopen(descriptor, "w") : NULL;
    tw_status status = stream ? make_file(s, stream) : feature_cache_refuse(s, s->part, errno);
    if (status == TW_OK && !open_there(s))
        status = tw_fail(TW_ERROR_IO, "%s: it was written, and reads otherwise: is the disk damaged?", s->path);
    if (status != TW_OK) unlink(s->part);
    if (stream)
        fclose(stream);
    else
        close(descriptor);
    return status;
}

static tw_status make_folder(const search *s, const char *folder)
{
    char part[FOLDERS_PATH];
    int error = folders_make(folder, part);
    return error ? feature_cache_refuse(s, folder, error) : TW_OK;
}

static tw_status find_or_make(search *s)
{
    char name[FILE_NAME_MOST];
    int descriptor = -1;
    const char *folder = s->request->cache;
    TW_TRY(make_folder(s, folder));
    snprintf(name, sizeof name, "features-%08" PRIx32, tw_crc32c(0, s->key, strlen(s->key)));
    file_path(s->path, folder, name);
    strcat(name, ".part");
    file_path(s->part, folder, name);
    if (open_there(s)) return TW_OK;
    TW_TRY(lock_part(s, &descriptor));
    return make_locked(s, descriptor);
}

/* --- the whole -------------------------------------------------------------------------------------------------- */

static tw_status feature_cache_place(feature_cache *cache, const speech_list *list)
{
    uint64_t next = 0;
    cache->first = calloc(list->count + 1, sizeof *cache->first);
    if (!cache->first) return tw_fail(TW_ERROR_MEMORY, "no memory for the places of %zu sounds", list->count);
    for (size_t i = 0; i < list->count; i++) {
        cache->first[i] = next;
        next += cache->file.sounds[i].floats;
    }
    return TW_OK;
}

tw_status feature_cache_open(const speech_list *list, const speech_request *request, feature_cache **cache)
{
    feature_cache *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory for features");
    made->width = feature_width(&request->features);
    search s = {.list = list, .request = request, .file = &made->file};
    tw_status status = write_key(&s);
    if (status == TW_OK) status = find_or_make(&s);
    if (status == TW_OK) status = feature_cache_place(made, list);
    free(s.key);
    if (status != TW_OK) {
        feature_cache_close(made);
        return status;
    }
    *cache = made;
    return TW_OK;
}

void feature_cache_close(feature_cache *cache)
{
    if (!cache) return;
    if (cache->file.bytes) feature_file_close(&cache->file);
    free(cache->first);
    free(cache);
}

bool feature_cache_find(const feature_cache *cache, size_t utterance, feature_rows *found)
{
    const feature_sound *sound = &cache->file.sounds[utterance];
    *found = (feature_rows){.frames = (size_t)(sound->floats / cache->width),
                            .seconds = sound->seconds,
                            .rows = cache->file.rows + cache->first[utterance]};
    return found->frames > 0;
}
