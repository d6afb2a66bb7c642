/* Reading a safetensors file: 8 bytes N, a JSON header of N bytes, then the tensors' bytes without holes or overlap.
 * The file is not trusted: all sizes are checked to add up to the file's before memory is asked for a tensor. */
#include "error.h"
#include "json.h"
#include "memory.h"
#include "state.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors is little-endian and is copied to memory");

enum { PREFIX = 8, MOST_HEADER = 100000000 };

/* A tensor as it stands in the header; begin and end are relative to the first byte behind it. */
typedef struct tw_listed {
    const char *name, *dtype_name;
    tw_dtype dtype;
    size_t dims, shape[TW_MAX_DIMS];
    uint64_t begin, end;
    int has_shape, has_offsets;
} tw_listed;

typedef struct tw_loader {
    FILE *file;
    const char *path;
    uint64_t data_bytes; /* behind the header */
    tw_json json;
    tw_state *state;
    tw_listed *listed; /* in the header's order, which becomes the state's */
    size_t count, capacity;
    const tw_listed **sorted; /* the same by offset */
    tw_names names;           /* of the header's entries, to find one that comes twice */
} tw_loader;

static tw_status read_bytes(FILE *file, const char *path, void *dst, size_t bytes)
{
    if (bytes == 0 || fread(dst, 1, bytes, file) == bytes) return TW_OK;
    if (ferror(file)) return tw_fail(TW_ERROR_IO, "%s: reading failed: %m", path);
    return tw_fail(TW_ERROR_FORMAT, "%s: the file ended early", path);
}

static tw_status bad_header(const tw_loader *loader, const char *wrong)
{
    return tw_fail(TW_ERROR_FORMAT, "%s: not a safetensors header: %s", loader->path, wrong);
}

static tw_status bad_tensor(const tw_loader *loader, const char *name, const char *wrong)
{
    return tw_fail(TW_ERROR_FORMAT, "%s: tensor '%s': %s", loader->path, name, wrong);
}

/* The header's entries ------------------------------------------------------------------------------------------ */

static int read_shape(tw_json *json, tw_listed *tensor)
{
    uint64_t extent;
    if (tensor->has_shape++) return tw_json_refuse(json, "shape comes twice");
    if (!tw_json_expect(json, '[')) return 0;
    if (tw_json_take(json, ']')) return 1;
    do {
        if (tensor->dims == TW_MAX_DIMS) return tw_json_refuse(json, "it has more than 8 dimensions");
        if (!tw_json_whole(json, &extent)) return 0;
        if (extent > SIZE_MAX) return tw_json_refuse(json, "its shape is beyond this machine's memory");
        tensor->shape[tensor->dims++] = (size_t)extent;
    } while (tw_json_take(json, ','));
    return tw_json_expect(json, ']');
}

static int read_offsets(tw_json *json, tw_listed *tensor)
{
    if (tensor->has_offsets++) return tw_json_refuse(json, "data_offsets comes twice");
    return tw_json_expect(json, '[') && tw_json_whole(json, &tensor->begin) && tw_json_expect(json, ',') &&
           tw_json_whole(json, &tensor->end) && tw_json_expect(json, ']');
}

static int read_dtype(tw_json *json, tw_listed *tensor)
{
    if (tensor->dtype_name) return tw_json_refuse(json, "dtype comes twice");
    tensor->dtype_name = tw_json_string(json);
    return tensor->dtype_name != NULL;
}

static int read_field(tw_json *json, tw_listed *tensor)
{
    const char *key = tw_json_string(json);
    if (!key || !tw_json_expect(json, ':')) return 0;
    if (strcmp(key, "dtype") == 0) return read_dtype(json, tensor);
    if (strcmp(key, "shape") == 0) return read_shape(json, tensor);
    if (strcmp(key, "data_offsets") == 0) return read_offsets(json, tensor);
    return tw_json_refuse(json, "it has a field other than dtype, shape and data_offsets");
}

static int read_fields(tw_json *json, tw_listed *tensor)
{
    if (!tw_json_expect(json, '{')) return 0;
    do {
        if (!read_field(json, tensor)) return 0;
    } while (tw_json_take(json, ','));
    if (!tw_json_expect(json, '}')) return 0;
    if (tensor->dtype_name && tensor->has_shape && tensor->has_offsets) return 1;
    return tw_json_refuse(json, "dtype, shape or data_offsets is missing");
}

static tw_status find_dtype(const tw_loader *loader, tw_listed *tensor)
{
    int i = 0;
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): read_fields has refused a tensor without a type */
    while (i < TW_DTYPES && strcmp(tw_dtypes[i].name, tensor->dtype_name) != 0) i++;
    if (i == TW_DTYPES)
        return tw_fail(TW_ERROR_FORMAT,
                       "%s: tensor '%s' has type '%s'; F16 BF16 F32 F64 I32 I64 U8 U32 U64 can be read", loader->path,
                       tensor->name, tensor->dtype_name);
    tensor->dtype = (tw_dtype)i;
    return TW_OK;
}

static tw_status check_extent(const tw_loader *loader, const tw_listed *tensor)
{
    size_t bytes;
    if (!tw_shape_bytes(tensor->dtype, tensor->dims, tensor->shape, &bytes) || tensor->end < tensor->begin ||
        tensor->end - tensor->begin != bytes)
        return bad_tensor(loader, tensor->name, "its data_offsets do not span what its shape and type take");
    return TW_OK;
}

static tw_status list_tensor(tw_loader *loader, const char *name)
{
    tw_listed tensor = {.name = name};
    if (tw_names_find(&loader->names, name) != TW_NO_NAME) return bad_tensor(loader, name, "the name comes twice");
    if (!read_fields(&loader->json, &tensor)) return bad_tensor(loader, name, loader->json.wrong);
    TW_TRY(find_dtype(loader, &tensor));
    TW_TRY(check_extent(loader, &tensor));
    TW_TRY(tw_grow(&loader->listed, loader->count, &loader->capacity, sizeof tensor));
    TW_TRY(tw_names_add(&loader->names, name, loader->count));
    loader->listed[loader->count++] = tensor;
    return TW_OK;
}

static tw_status read_line(tw_loader *loader)
{
    const char *key = tw_json_string(&loader->json), *value = NULL;
    if (key && tw_json_expect(&loader->json, ':')) value = tw_json_string(&loader->json);
    if (!value) return bad_header(loader, loader->json.wrong);
    if (tw_state_text(loader->state, key)) return bad_header(loader, "a key of " TW_METADATA " comes twice");
    return tw_state_put_text(loader->state, key, value);
}

static tw_status read_metadata(tw_loader *loader)
{
    tw_json *json = &loader->json;
    if (tw_names_find(&loader->names, TW_METADATA) != TW_NO_NAME) return bad_header(loader, TW_METADATA " comes twice");
    TW_TRY(tw_names_add(&loader->names, TW_METADATA, 0));
    if (!tw_json_expect(json, '{')) return bad_header(loader, json->wrong);
    if (tw_json_take(json, '}')) return TW_OK;
    do {
        TW_TRY(read_line(loader));
    } while (tw_json_take(json, ','));
    return tw_json_expect(json, '}') ? TW_OK : bad_header(loader, json->wrong);
}

static tw_status read_entry(tw_loader *loader)
{
    const char *name = tw_json_string(&loader->json);
    if (!name || !tw_json_expect(&loader->json, ':')) return bad_header(loader, loader->json.wrong);
    return strcmp(name, TW_METADATA) == 0 ? read_metadata(loader) : list_tensor(loader, name);
}

static tw_status read_header(tw_loader *loader)
{
    tw_json *json = &loader->json;
    if (json->at == json->end || *json->at != '{') return bad_header(loader, "it does not begin with {");
    tw_json_expect(json, '{');
    if (!tw_json_take(json, '}')) {
        do {
            TW_TRY(read_entry(loader));
        } while (tw_json_take(json, ','));
        if (!tw_json_expect(json, '}')) return bad_header(loader, json->wrong);
    }
    return tw_json_ended(json) ? TW_OK : bad_header(loader, "something follows its closing }");
}

/* The tensors --------------------------------------------------------------------------------------------------- */

/* Empty tensors come before the one that begins where they are, so that they leave no hole. */
static int by_offset(const void *first, const void *second)
{
    const tw_listed *a = *(const tw_listed *const *)first, *b = *(const tw_listed *const *)second;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

static tw_status sort_tensors(tw_loader *loader)
{
    TW_TRY(tw_allocate(loader->count, sizeof *loader->sorted, &loader->sorted));
    for (size_t i = 0; i < loader->count; i++) loader->sorted[i] = &loader->listed[i];
    qsort(loader->sorted, loader->count, sizeof *loader->sorted, by_offset);
    return TW_OK;
}

/* Each tensor must begin where the one before ended, and the last must end with the file. */
static tw_status check_layout(const tw_loader *loader)
{
    uint64_t end = 0;
    for (size_t i = 0; i < loader->count; i++) {
        if (loader->sorted[i]->begin != end)
            return bad_tensor(loader, loader->sorted[i]->name, "it overlaps another tensor or leaves a hole before it");
        end = loader->sorted[i]->end;
    }
    if (end == loader->data_bytes) return TW_OK;
    return tw_fail(TW_ERROR_FORMAT, "%s: its header describes %" PRIu64 " bytes of tensors and it holds %" PRIu64,
                   loader->path, end, loader->data_bytes);
}

static tw_status read_tensors(tw_loader *loader)
{
    tw_state_tensor *reserved;
    for (size_t i = 0; i < loader->count; i++) {
        const tw_listed *tensor = &loader->listed[i];
        TW_TRY(tw_state_reserve(loader->state, tensor->name, tensor->dtype, tensor->dims, tensor->shape, &reserved));
    }
    for (size_t i = 0; i < loader->count; i++) {
        reserved = &loader->state->tensors[loader->sorted[i] - loader->listed];
        TW_TRY(read_bytes(loader->file, loader->path, reserved->data, reserved->bytes));
    }
    return TW_OK;
}

static tw_status read_body(tw_loader *loader)
{
    TW_TRY(tw_state_create(&loader->state));
    TW_TRY(read_header(loader));
    TW_TRY(sort_tensors(loader));
    TW_TRY(check_layout(loader));
    return read_tensors(loader);
}

/* The header's length, after which *header holds it; names in the loader point into it. */
static tw_status fetch_header(FILE *file, uint64_t size, const char *path, char **header, size_t *header_bytes)
{
    uint64_t bytes;
    if (size < PREFIX) return tw_fail(TW_ERROR_FORMAT, "%s: too short for a safetensors file", path);
    TW_TRY(read_bytes(file, path, &bytes, PREFIX));
    if (bytes > MOST_HEADER || bytes > size - PREFIX)
        return tw_fail(TW_ERROR_FORMAT, "%s: not a safetensors file: it claims a header of %" PRIu64 " bytes", path,
                       bytes);
    TW_TRY(tw_allocate(bytes, 1, header));
    *header_bytes = (size_t)bytes;
    tw_status status = read_bytes(file, path, *header, *header_bytes);
    if (status != TW_OK) tw_free(*header);
    return status;
}

tw_status tw_state_read(FILE *file, uint64_t size, const char *path, tw_state **state)
{
    char *header;
    size_t bytes = 0;
    TW_TRY(fetch_header(file, size, path, &header, &bytes));
    tw_loader loader = {
        .file = file, .path = path, .data_bytes = size - PREFIX - bytes, .json = {header, header + bytes, NULL}};
    tw_status status = read_body(&loader);
    if (status == TW_OK)
        *state = loader.state;
    else
        tw_state_destroy(loader.state);
    tw_names_release(&loader.names);
    tw_free(loader.sorted);
    tw_free(loader.listed);
    tw_free(header);
    return status;
}

static tw_status load_stream(FILE *file, const char *path, tw_state **state)
{
    struct stat about;
    if (fstat(fileno(file), &about) != 0) return tw_fail(TW_ERROR_IO, "%s: %m", path);
    if (!S_ISREG(about.st_mode)) return tw_fail(TW_ERROR_IO, "%s: not a regular file", path);
    return tw_state_read(file, (uint64_t)about.st_size, path, state);
}

tw_status tw_state_load(const char *path, tw_state **state)
{
    TW_TRY(tw_need(path, "path"));
    TW_TRY(tw_need(state, "state"));
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would wait for somebody to write to it */
    if (descriptor < 0) return tw_fail(TW_ERROR_IO, "%s: cannot be opened: %m", path);
    FILE *file = fdopen(descriptor, "rb");
    if (!file) {
        close(descriptor);
        return tw_fail(TW_ERROR_MEMORY, "%s: no memory to read it", path);
    }
    tw_status status = load_stream(file, path, state);
    fclose(file);
    return status;
}
