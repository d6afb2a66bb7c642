#include "picture_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "code_point.h"
#include "error.h"
#include "file.h"
#include "regular_file.h"

static const size_t most_bytes = (size_t)1 << 28;

void picture_files_free(picture_files *files)
{
    if (!files) return;
    free(files->names);
    free(files->at);
    free(files->told);
    free(files);
}

uint32_t dataset_sum_names(const image_set *set)
{
    uint32_t sum = 0;
    for (size_t i = 0; set->files && i < set->count; i++) {
        const char *name = set->files->names + set->files->at[i];
        sum = tw_crc32c(sum, name, strlen(name) + 1);
    }
    return sum;
}

uint32_t dataset_sum_files(const dataset *data, const image_set *set)
{
    uint32_t sum = 0;
    char path[PICTURE_PATH_MOST];
    for (size_t i = 0; set->files && i < set->count; i++)
        if (file_is_sampled(i, set->count)) sum = file_sum(sum, picture_files_path(data, set, i, path), true);
    return sum;
}

const char *picture_files_path(const dataset *data, const image_set *set, size_t index, char path[PICTURE_PATH_MOST])
{
    const picture_files *f = set->files;
    int length = snprintf(path, PICTURE_PATH_MOST, "%s/%s/%s", f->root, data->class_names[set->labels[index]],
                          f->names + f->at[index]);
    if (length >= PICTURE_PATH_MOST) *path = '\0'; /* there is room for the longest names there are */
    return path;
}

void picture_desk_release(picture_desk *desk)
{
    picture_room_release(&desk->room);
    free(desk->file.bytes);
    free(desk->planes.bytes);
    *desk = (picture_desk){0};
}

/* Names are anybody's: the line may not hold what breaks lines. */
static tw_status show_line(tw_status status)
{
    char shown[1024];
    const char *text = tw_last_error();
    return tw_fail(status, "%s", code_point_show(text, strlen(text), shown, sizeof shown));
}

static tw_status name_file(const char *path, tw_status status)
{
    if (status == TW_OK || status == TW_ERROR_MEMORY) return status;
    return show_line(tw_fail(status, "%s: %s", path, tw_last_error()));
}

static tw_status read_bytes(picture_desk *desk, int descriptor, size_t wanted)
{
    for (desk->size = 0; desk->size < wanted;) {
        ssize_t got = read(descriptor, desk->file.bytes + desk->size, wanted - desk->size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return tw_fail(TW_ERROR_IO, "cannot read it: %s", strerror(errno));
        if (got == 0) return TW_OK;
        desk->size += (size_t)got;
    }
    return TW_OK;
}

static tw_status read_opened(picture_desk *desk, int descriptor)
{
    struct stat about;
    if (fstat(descriptor, &about) != 0) return tw_fail(TW_ERROR_IO, "cannot read it: %s", strerror(errno));
    if ((uint64_t)about.st_size > most_bytes)
        return tw_fail(TW_ERROR_FORMAT, "larger than %zu MiB, the most a picture's file may be", most_bytes >> 20);
    TW_TRY(picture_reserve(&desk->file, (size_t)about.st_size + 1));
    return read_bytes(desk, descriptor, (size_t)about.st_size);
}

tw_status picture_desk_open(picture_desk *desk, const char *path)
{
    int descriptor = -1;
    tw_status status = regular_file_open(path, O_RDONLY, &descriptor);
    if (status != TW_OK) return show_line(status);
    status = read_opened(desk, descriptor);
    if (status == TW_OK) status = picture_measure(desk->file.bytes, desk->size, &desk->header);
    close(descriptor);
    return name_file(path, status);
}

/* How many times smaller the part can be decoded and still has the pixels that are wanted of it. */
static size_t reduction_for(const picture_box *part, size_t width, size_t height)
{
    size_t reduction = 8;
    while (reduction > 1 &&
           (part->width / (double)reduction < (double)width || part->height / (double)reduction < (double)height))
        reduction /= 2;
    return reduction;
}

static tw_status decode_part(picture_desk *desk, const picture_box *part, size_t width, size_t height)
{
    picture decoded;
    const picture_header *header = &desk->header;
    const size_t reduction = reduction_for(part, width, height);
    TW_TRY(picture_decode(desk->file.bytes, desk->size, header, reduction, &desk->room, &decoded));
    double across = (double)decoded.width / (double)header->width;
    double down = (double)decoded.height / (double)header->height;
    picture_box scaled = {part->left * across, part->top * down, part->width * across, part->height * down};
    TW_TRY(picture_reserve(&desk->planes, 3 * width * height));
    return picture_resample(&decoded, &scaled, width, height, &desk->room, desk->planes.bytes);
}

tw_status picture_desk_read(picture_desk *desk, const char *path, const picture_box *part, size_t width, size_t height)
{
    return name_file(path, decode_part(desk, part, width, height));
}

picture_box picture_middle(const picture_header *header, double aspect)
{
    double width = (double)header->width, height = (double)header->height;
    if (width > height * aspect) return (picture_box){(width - height * aspect) / 2, 0, height * aspect, height};
    return (picture_box){0, (height - width / aspect) / 2, width, width / aspect};
}
