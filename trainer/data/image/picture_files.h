/* picture_files.h - the list of a split's files, and one of them as an image. Private to this folder. */
#ifndef TRAINER_DATA_PICTURE_FILES_H
#define TRAINER_DATA_PICTURE_FILES_H

#include "dataset.h"
#include "picture.h"

#include <stdatomic.h>

enum { PICTURE_PATH_MOST = 4096 + 2 * 256 + 16 };
/* The list is mixed: its first pictures are a sample. */
enum { PICTURE_SAMPLE = 1000 };

/* File i is <root>/<name of its class>/<names + at[i]>. */
typedef struct picture_files {
    char root[PICTURE_PATH_MOST];
    char *names;
    size_t used, capacity; /* bytes of names */
    size_t *at;
    size_t room, label_room; /* entries of `at`, and of the set's labels */
    atomic_uchar *told;      /* 1: a person has been told that it cannot be read */
} picture_files;

void picture_files_free(picture_files *files);

const char *picture_files_path(const dataset *data, const image_set *set, size_t index, char path[PICTURE_PATH_MOST]);

/* One thread's room for reading files. */
typedef struct picture_desk {
    picture_room room;
    picture_buffer file, planes;
    size_t size; /* of the file, which is in `file`, */
    picture_header header;
} picture_desk;

void picture_desk_release(picture_desk *desk);

/* Reads a whole file and says what it is. TW_ERROR_IO and TW_ERROR_FORMAT come with a line that names the file. */
tw_status picture_desk_open(picture_desk *desk, const char *path);
/* Brings a part of the file at `path`, which was opened, to width x height: into the planes (3, height, width). */
tw_status picture_desk_read(picture_desk *desk, const char *path, const picture_box *part, size_t width, size_t height);
/* The largest part in the middle of so many times as wide as high. */
picture_box picture_middle(const picture_header *header, double aspect);

#endif
