/* Finding the format of a folder, and what is the same for all of them. */
#include "dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "format.h"
#include "hold_out.h"
#include "image_loader.h"
#include "picture_files.h"

#define FORMAT_AT(name) &name##_format,
#define FORMAT_NAME(name) " " #name
static const data_format *const formats[] = {DATA_FORMATS(FORMAT_AT)};
const char dataset_help[] =
    "The folder of a data set, for example of pictures in train/CLASS and test/CLASS, or in CLASS "
    "alone. Without it, Debian's dataset-fashion-mnist is taken. The formats are:" DATA_FORMATS(FORMAT_NAME);
enum { FORMATS = sizeof formats / sizeof formats[0] };

static const char default_folder[] = "/usr/share/datasets/fashion-mnist";

static tw_status check_folder(const char *path, const char *hint)
{
    struct stat about;
    if (strlen(path) >= sizeof((dataset *)0)->path)
        return tw_fail(TW_ERROR_ARGUMENT, "%.100s...: too long for the path of a folder", path);
    int found = stat(path, &about) == 0;
    if (found && !S_ISDIR(about.st_mode))
        return tw_fail(TW_ERROR_IO, "%s: not a folder; name the one with the data in it", path);
    if (found && access(path, R_OK | X_OK) == 0) return TW_OK;
    return tw_fail(TW_ERROR_IO, "the data folder \"%s\" cannot be read: %s%s", path, strerror(errno), hint);
}

static tw_status refuse_folder(const char *path)
{
    char files[256] = "";
    for (size_t i = 0; i < FORMATS; i++) {
        size_t length = strlen(files);
        snprintf(files + length, sizeof files - length, "%s%s", i ? ", " : "", formats[i]->files);
    }
    return tw_fail(TW_ERROR_IO, "%s: no data set in this folder; looked for %s", path, files);
}

/* Over all pixels of a channel. */
static void measure_channel(dataset *data, size_t channel)
{
    const image_set *set = &data->train;
    size_t plane = set->height * set->width;
    uint64_t often[256] = {0};
    for (size_t image = 0; image < set->count; image++) {
        const uint8_t *pixels = set->pixels + (image * set->channels + channel) * plane;
        for (size_t i = 0; i < plane; i++) often[pixels[i]]++;
    }
    dataset_take_statistics(data, channel, often);
}

static tw_status check_options(const data_format *format, const dataset_options *options)
{
    if (options->image_size == 0 || format->in_files) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--image-size is for folders of pictures; the data are %s files, which say it themselves",
                   format->name);
}

/* What is the same for all formats that leave their images in memory. */
static tw_status dataset_complete(const dataset_options *options, dataset *data)
{
    if (options->validation > 0) TW_TRY(hold_out(data, options->validation));
    for (size_t channel = 0; channel < data->train.channels; channel++) measure_channel(data, channel);
    return TW_OK;
}

static tw_status read_folder(const dataset_options *options, dataset *data)
{
    for (size_t i = 0; i < FORMATS; i++) {
        if (!formats[i]->found(data->path)) continue;
        data->format = formats[i]->name;
        TW_TRY(check_options(formats[i], options));
        TW_TRY(formats[i]->read(data->path, options, data));
        return formats[i]->in_files ? TW_OK : dataset_complete(options, data);
    }
    return refuse_folder(data->path);
}

tw_status dataset_open(const char *path, const dataset_options *options, dataset *data)
{
    const char *hint = path ? "; it should hold a data set" : "; apt install dataset-fashion-mnist, or --data DIR";
    memset(data, 0, sizeof *data);
    if (!path) path = default_folder;
    TW_TRY(check_folder(path, hint));
    strcpy(data->path, path);
    tw_status status = read_folder(options, data);
    if (status != TW_OK) dataset_release(data);
    return status;
}

tw_status dataset_load(const char *path, dataset *data)
{
    return dataset_open(path, &(dataset_options){0}, data);
}

static void release_set(image_set *set)
{
    picture_files_free(set->files);
    free(set->pixels);
    free(set->labels);
    *set = (image_set){0};
}

void dataset_release(dataset *data)
{
    for (size_t i = 0; data->class_names && i < data->train.classes; i++) free(data->class_names[i]);
    free(data->class_names);
    image_loader_destroy(data->loader);
    release_set(&data->train);
    release_set(&data->valid);
    release_set(&data->test);
    data->class_names = NULL;
    data->loader = NULL;
}
