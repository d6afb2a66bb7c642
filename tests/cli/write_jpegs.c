/* A folder of photographs for a test: `write_jpegs FOLDER CLASSES COUNT` writes COUNT JPEGs, the first of them into the
 * first of CLASSES folders, the second into the second, and so on. Each class is a colour under noise; every picture
 * has a size of its own. */
#include <errno.h>
#include <stdio.h> /* jpeglib.h wants it first */

#include <jpeglib.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { LEAST = 18, SPREAD = 30, NOISE = 60 };

/* Knuth's: the same pictures everywhere. */
static unsigned draw(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 16) % below;
}

/* Far from each other: a class takes its channels from its number in base three. */
static void fill_row(JSAMPLE *row, unsigned width, unsigned class, unsigned *state)
{
    for (unsigned x = 0; x < width; x++)
        for (unsigned c = 0, rest = class + 1; c < 3; c++, rest /= 3)
            row[3 * x + c] = (JSAMPLE)(20 + rest % 3 * 85 + draw(state, NOISE));
}

static int write_jpeg(const char *path, unsigned class, unsigned *state)
{
    JSAMPLE row[3 * (LEAST + SPREAD)], *rows[] = {row};
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    FILE *file = fopen(path, "wb");
    if (!file) return 1;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = LEAST + draw(state, SPREAD);
    jpeg.image_height = LEAST + draw(state, SPREAD);
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        fill_row(row, jpeg.image_width, class, state);
        jpeg_write_scanlines(&jpeg, rows, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    return fclose(file);
}

static int make_folder(const char *path)
{
    return mkdir(path, 0777) != 0 && errno != EEXIST;
}

int main(int argc, char **argv)
{
    char path[4096];
    if (argc != 4 || make_folder(argv[1])) return 2;
    unsigned classes = (unsigned)atoi(argv[2]), count = (unsigned)atoi(argv[3]), state = count;
    for (unsigned i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/class%u", argv[1], i % classes);
        if (make_folder(path)) return 2;
        snprintf(path, sizeof path, "%s/class%u/%u.jpg", argv[1], i % classes, i);
        if (write_jpeg(path, i % classes, &state)) return 2;
    }
    return 0;
}
