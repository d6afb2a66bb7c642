/* Writing a safetensors file. Tensors lie in descending order of their elements' size, so that each is aligned to its
 * own; the header lists them in order of insertion. The old file stays until the new one is on the disk. */
#include "error.h"
#include "json.h"
#include "memory.h"
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors is little-endian and is copied from memory");

enum { PREFIX = 8, MOST_HEADER = 100000000, MOST_ELEMENT = 8, TEMPORARY_NAMES = 100 };

/* The header -------------------------------------------------------------------------------------------------- */

static void add_metadata(tw_text *text, const tw_state *state)
{
    tw_text_add(text, "\"" TW_METADATA "\":{");
    for (size_t i = 0; i < state->line_count; i++) {
        if (i) tw_text_add(text, ",");
        tw_text_add_quoted(text, state->lines[i].key);
        tw_text_add(text, ":");
        tw_text_add_quoted(text, state->lines[i].value);
    }
    tw_text_add(text, "}");
}

static void add_entry(tw_text *text, const tw_state_tensor *tensor, uint64_t begin)
{
    tw_text_add_quoted(text, tensor->name);
    tw_text_add(text, ":{\"dtype\":");
    tw_text_add_quoted(text, tw_dtypes[tensor->dtype].name);
    tw_text_add(text, ",\"shape\":[");
    for (size_t i = 0; i < tensor->dims; i++) {
        if (i) tw_text_add(text, ",");
        tw_text_add_number(text, tensor->shape[i]);
    }
    tw_text_add(text, "],\"data_offsets\":[");
    tw_text_add_number(text, begin);
    tw_text_add(text, ",");
    tw_text_add_number(text, begin + tensor->bytes);
    tw_text_add(text, "]}");
}

/* Where the first tensor of each element size begins. */
static void find_starts(const tw_state *state, uint64_t starts[MOST_ELEMENT + 1])
{
    uint64_t sums[MOST_ELEMENT + 1] = {0}, at = 0;
    for (size_t i = 0; i < state->tensor_count; i++)
        sums[tw_dtypes[state->tensors[i].dtype].bytes] += state->tensors[i].bytes;
    for (int size = MOST_ELEMENT; size > 0; size--) {
        starts[size] = at;
        at += sums[size];
    }
}

static tw_status build_header(const tw_state *state, tw_text *text)
{
    uint64_t next[MOST_ELEMENT + 1];
    find_starts(state, next);
    tw_text_add(text, "{");
    if (state->line_count) add_metadata(text, state);
    for (size_t i = 0; i < state->tensor_count; i++) {
        const tw_state_tensor *tensor = &state->tensors[i];
        uint64_t *begin = &next[tw_dtypes[tensor->dtype].bytes];
        if (i || state->line_count) tw_text_add(text, ",");
        add_entry(text, tensor, *begin);
        *begin += tensor->bytes;
    }
    tw_text_add(text, "}");
    while (text->status == TW_OK && text->size % 8) tw_text_add(text, " ");
    if (text->status == TW_OK && text->size > MOST_HEADER)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "the names and texts of this state take %zu bytes; a safetensors header may "
                       "have %d",
                       text->size, MOST_HEADER);
    return text->status;
}

/* The file ---------------------------------------------------------------------------------------------------- */

static int write_all(int file, const void *src, size_t bytes)
{
    const char *at = src;
    while (bytes) {
        ssize_t written = write(file, at, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return -1;
        at += written;
        bytes -= (size_t)written;
    }
    return 0;
}

static int write_tensors(int file, const tw_state *state)
{
    for (size_t size = MOST_ELEMENT; size > 0; size--)
        for (size_t i = 0; i < state->tensor_count; i++) {
            const tw_state_tensor *tensor = &state->tensors[i];
            if (tw_dtypes[tensor->dtype].bytes == size && write_all(file, tensor->data, tensor->bytes) != 0) return -1;
        }
    return 0;
}

static int write_contents(int file, const tw_state *state, const tw_text *header)
{
    uint64_t bytes = header->size;
    if (write_all(file, &bytes, PREFIX) != 0 || write_all(file, header->bytes, header->size) != 0) return -1;
    if (write_tensors(file, state) != 0) return -1;
    return fsync(file);
}

/* Creates a file nobody else uses beside `path`; its name, which the caller frees, begins with `path`. */
static tw_status create_temporary(const char *path, tw_text *name, int *file)
{
    for (uint64_t attempt = 0; attempt < TEMPORARY_NAMES; attempt++) {
        name->size = 0;
        tw_text_add(name, path);
        tw_text_add(name, ".");
        tw_text_add_number(name, (uint64_t)getpid());
        tw_text_add(name, ".");
        tw_text_add_number(name, attempt);
        tw_text_append(name, ".tmp", sizeof ".tmp");
        TW_TRY(name->status);
        *file = open(name->bytes, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*file >= 0) return TW_OK;
        if (errno != EEXIST) break;
    }
    return tw_fail(TW_ERROR_IO, "%s: cannot be created: %m", path);
}

static tw_status write_temporary(int file, const char *path, const tw_state *state, const tw_text *header)
{
    int failed = write_contents(file, state, header), reason = errno;
    if (close(file) != 0 && !failed) failed = -1, reason = errno;
    errno = reason;
    return failed ? tw_fail(TW_ERROR_IO, "%s: cannot be written: %m", path) : TW_OK;
}

/* Makes the rename last through a power cut; cuts the name off its folder. Some file systems cannot sync a folder: that
 * is no failure of ours. */
static int sync_folder(char *name)
{
    char *slash = strrchr(name, '/');
    if (slash) slash[slash == name] = 0;
    int file = open(slash ? name : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) return -1;
    int failed = fsync(file) != 0 && errno != EINVAL, reason = errno;
    close(file);
    errno = reason;
    return failed ? -1 : 0;
}

/* A rename would put a file in the place of a device or a pipe, which others may use. A folder does not let it. */
static tw_status check_place(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0 || S_ISREG(about.st_mode) || S_ISDIR(about.st_mode)) return TW_OK;
    return tw_fail(TW_ERROR_IO, "%s: cannot be replaced: not a regular file", path);
}

/* Writes beside the old file and puts the new one in its place. */
static tw_status replace_file(const char *path, tw_text *temporary, const tw_state *state, const tw_text *header)
{
    int file;
    TW_TRY(check_place(path));
    TW_TRY(create_temporary(path, temporary, &file));
    tw_status status = write_temporary(file, path, state, header);
    if (status == TW_OK && rename(temporary->bytes, path) != 0)
        status = tw_fail(TW_ERROR_IO, "%s: cannot be replaced: %m", path);
    if (status != TW_OK) {
        unlink(temporary->bytes);
        return status;
    }
    if (sync_folder(temporary->bytes) != 0) return tw_fail(TW_ERROR_IO, "%s: its folder cannot be synced: %m", path);
    return TW_OK;
}

tw_status tw_state_save(const tw_state *state, const char *path)
{
    tw_text header = {0}, temporary = {0};
    TW_TRY(tw_need(state, "state"));
    TW_TRY(tw_need(path, "path"));
    tw_status status = build_header(state, &header);
    if (status == TW_OK) status = replace_file(path, &temporary, state, &header);
    tw_text_release(&temporary);
    tw_text_release(&header);
    return status;
}
