/* IDX folders: what is read, and what every kind of wrong file is told. */
#include "format.h"
#include "support.h"

#include <sys/stat.h>
#include <zlib.h>

enum { TRAIN = 6, TEST = 4, HEIGHT = 2, WIDTH = 3, AREA = HEIGHT * WIDTH };

static const char *const names[4] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                     "t10k-labels-idx1-ubyte"};
enum { TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS };

static blob files[4]; /* a correct data set, for each test to spoil */

static void put_number(blob *file, uint32_t number)
{
    for (int shift = 24; shift >= 0; shift -= 8) file->bytes[file->size++] = (uint8_t)(number >> shift);
}

static void make_images(blob *file, uint32_t count, uint32_t height, uint32_t width)
{
    file->size = 0;
    put_number(file, 0x00000803);
    put_number(file, count);
    put_number(file, height);
    put_number(file, width);
    for (uint32_t i = 0; i < count * height * width; i++) file->bytes[file->size++] = (uint8_t)(7 * i + count);
}

static void make_labels(blob *file, uint32_t count, uint8_t classes)
{
    file->size = 0;
    put_number(file, 0x00000801);
    put_number(file, count);
    for (uint32_t i = 0; i < count; i++) file->bytes[file->size++] = (uint8_t)(classes - 1 - i % classes);
}

static void write_all(void)
{
    for (int i = 0; i < 4; i++) write_bytes(names[i], files[i].bytes, files[i].size);
}

static int set_up(void **state)
{
    make_images(&files[TRAIN_IMAGES], TRAIN, HEIGHT, WIDTH);
    make_labels(&files[TRAIN_LABELS], TRAIN, 3);
    make_images(&files[TEST_IMAGES], TEST, HEIGHT, WIDTH);
    make_labels(&files[TEST_LABELS], TEST, 3);
    return make_folder(state);
}

/* gzip by zlib's own writer, in memory. */
static void pack(const blob *src, blob *dst)
{
    z_stream stream = {.next_in = (Bytef *)src->bytes,
                       .avail_in = (uInt)src->size,
                       .next_out = dst->bytes,
                       .avail_out = sizeof dst->bytes};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    dst->size = stream.total_out;
    deflateEnd(&stream);
}

static void assert_set(const image_set *set, size_t count, const blob *images, const blob *labels)
{
    assert_shape(set, count, 1, HEIGHT, WIDTH, 3);
    assert_memory_equal(set->pixels, images->bytes + 16, count * AREA);
    for (size_t i = 0; i < count; i++) assert_int_equal(set->labels[i], labels->bytes[8 + i]);
}

static void assert_loads(void)
{
    dataset data;
    assert_int_equal(dataset_load(test_folder, &data), TW_OK);
    assert_string_equal(data.format, "idx");
    assert_string_equal(data.path, test_folder);
    assert_set(&data.train, TRAIN, &files[TRAIN_IMAGES], &files[TRAIN_LABELS]);
    assert_set(&data.test, TEST, &files[TEST_IMAGES], &files[TEST_LABELS]);
    dataset_release(&data);
    assert_null(data.train.pixels);
}

TEST_BETWEEN(reads_plain_files, set_up, remove_folder)
{
    write_all();
    assert_loads();
}

TEST_BETWEEN(reads_packed_and_dotted_files, set_up, remove_folder)
{
    static blob packed;
    write_bytes("train-images.idx3-ubyte", files[0].bytes, files[0].size);
    pack(&files[1], &packed);
    write_bytes("train-labels.idx1-ubyte.gz", packed.bytes, packed.size);
    pack(&files[2], &packed);
    write_bytes("t10k-images-idx3-ubyte.gz", packed.bytes, packed.size);
    write_bytes("t10k-labels-idx1-ubyte", files[3].bytes, files[3].size);
    assert_loads();
}

TEST_BETWEEN(a_flat_channel_has_deviation_one, set_up, remove_folder)
{
    dataset data;
    memset(files[TRAIN_IMAGES].bytes + 16, 51, TRAIN * AREA);
    write_all();
    assert_int_equal(dataset_load(test_folder, &data), TW_OK);
    assert_float_equal(data.mean[0], 0.2, 1e-7);
    assert_float_equal(data.deviation[0], 1, 0);
    dataset_release(&data);
}

TEST_BETWEEN(refuses_every_truncation, set_up, remove_folder)
{
    for (int file = 0; file < 4; file++) {
        size_t whole = files[file].size;
        write_all();
        for (size_t size = 0; size < whole; size++) {
            write_bytes(names[file], files[file].bytes, size);
            assert_refused(TW_ERROR_FORMAT, names[file], size ? "" : "empty");
        }
    }
}

TEST_BETWEEN(refuses_trailing_bytes, set_up, remove_folder)
{
    for (int file = 0; file < 4; file++) {
        files[file].bytes[files[file].size++] = 0;
        write_all();
        assert_refused(TW_ERROR_FORMAT, names[file], "its header promises");
        files[file].size--;
    }
}

/* Spoils one byte of a file's header. */
static void refuses_byte(int file, size_t at, uint8_t byte, const char *words)
{
    uint8_t kept = files[file].bytes[at];
    files[file].bytes[at] = byte;
    write_all();
    assert_refused(TW_ERROR_FORMAT, names[file], words);
    files[file].bytes[at] = kept;
}

TEST_BETWEEN(refuses_wrong_headers, set_up, remove_folder)
{
    for (int file = 0; file < 4; file++) {
        refuses_byte(file, 0, 1, "begins with bytes 01 00");
        refuses_byte(file, 1, 0xff, "begins with bytes 00 ff");
        refuses_byte(file, 2, 0x0d, "IDX type 0x0d");
        refuses_byte(file, 3, 2, "2 dimensions");
        refuses_byte(file, 7, 0, "dimension 1 is 0");
        refuses_byte(file, 4, 0xff, "its header promises");
    }
}

/* Beyond 64 bits; and 2^31 x 2^31 x 4 = 2^64, which is 0 in 64 bits, with no data behind it. */
TEST_BETWEEN(refuses_dimensions_that_overflow, set_up, remove_folder)
{
    blob *images = &files[TRAIN_IMAGES];
    memset(images->bytes + 4, 0xff, 12);
    write_all();
    assert_refused(TW_ERROR_FORMAT, names[TRAIN_IMAGES], "its header promises");

    images->size = 4;
    put_number(images, 0x80000000);
    put_number(images, 0x80000000);
    put_number(images, 4);
    write_bytes(names[TRAIN_IMAGES], images->bytes, 16);
    assert_refused(TW_ERROR_FORMAT, names[TRAIN_IMAGES], "its header promises");
}

TEST_BETWEEN(refuses_counts_that_differ, set_up, remove_folder)
{
    make_labels(&files[TEST_LABELS], TEST - 1, 3);
    write_all();
    assert_refused(TW_ERROR_FORMAT, names[TEST_LABELS], "3 labels, but there are 4 images");
}

TEST_BETWEEN(refuses_a_test_set_of_another_kind, set_up, remove_folder)
{
    files[TEST_LABELS].bytes[9] = 3;
    write_all();
    assert_refused(TW_ERROR_FORMAT, names[TEST_LABELS], "label 3, but those for training end at 2");
    make_images(&files[TEST_IMAGES], TEST, WIDTH, HEIGHT);
    write_all();
    assert_refused(TW_ERROR_FORMAT, names[TEST_IMAGES], "3 x 2");
}

TEST_BETWEEN(takes_up_to_256_classes, set_up, remove_folder)
{
    static uint8_t bytes[8 + 256] = {0, 0, 8, 1, 0, 0, 1, 0};
    image_set set = {.count = 256};
    for (size_t i = 0; i < 256; i++) bytes[8 + i] = (uint8_t)i;
    assert_int_equal(idx_parse_labels("labels", bytes, sizeof bytes, &set), TW_OK);
    assert_int_equal(set.classes, 256);
    free(set.labels);
}

TEST_BETWEEN(refuses_a_label_far_beyond_the_others, set_up, remove_folder)
{
    files[TRAIN_LABELS].bytes[8] = 255;
    write_all();
    assert_refused(TW_ERROR_FORMAT, names[TRAIN_LABELS], "label 255, but only");
}

TEST_BETWEEN(refuses_damaged_packed_files, set_up, remove_folder)
{
    static blob packed;
    static const char name[] = "train-images-idx3-ubyte.gz";
    write_all();
    remove(in_folder(names[TRAIN_IMAGES]));
    pack(&files[TRAIN_IMAGES], &packed);
    for (size_t size = 2; size < packed.size; size++) {
        write_bytes(name, packed.bytes, size);
        assert_refused(TW_ERROR_FORMAT, name, "truncated");
    }
    for (size_t at = packed.size - 8; at < packed.size; at++) { /* the checksum and the length */
        packed.bytes[at] ^= 1;
        write_bytes(name, packed.bytes, packed.size);
        assert_refused(TW_ERROR_FORMAT, name, "damaged");
        packed.bytes[at] ^= 1;
    }
    packed.bytes[10] |= 7; /* a reserved kind of block */
    write_bytes(name, packed.bytes, packed.size);
    assert_refused(TW_ERROR_FORMAT, name, "damaged");
}

TEST_BETWEEN(refuses_a_missing_file, set_up, remove_folder)
{
    for (int file = 0; file < 4; file++) {
        write_all();
        remove(in_folder(names[file]));
        assert_refused(TW_ERROR_IO, names[file], "not there");
    }
}

TEST_BETWEEN(refuses_what_is_not_a_file, set_up, remove_folder)
{
    write_all();
    remove(in_folder(names[TEST_IMAGES]));
    assert_int_equal(mkdir(in_folder(names[TEST_IMAGES]), 0700), 0);
    assert_refused(TW_ERROR_IO, names[TEST_IMAGES], "not a regular file");
    remove(in_folder(names[TEST_IMAGES]));
    assert_int_equal(mkfifo(in_folder(names[TEST_IMAGES]), 0600), 0);
    assert_refused(TW_ERROR_IO, names[TEST_IMAGES], "not a regular file");
}

TEST_BETWEEN(refuses_what_cannot_be_read, set_up, remove_folder)
{
    write_all();
    remove(in_folder(names[TRAIN_LABELS]));
    assert_int_equal(symlink("/proc/self/mem", in_folder(names[TRAIN_LABELS])), 0); /* whose first page is not there */
    assert_refused(TW_ERROR_IO, names[TRAIN_LABELS], "cannot read it");
    if (geteuid() == 0) return; /* who may read everything */
    remove(in_folder(names[TRAIN_LABELS]));
    write_all();
    assert_int_equal(chmod(in_folder(names[TEST_LABELS]), 0), 0);
    assert_refused(TW_ERROR_IO, names[TEST_LABELS], "cannot open it");
}

TEST_BETWEEN(refuses_folders, set_up, remove_folder)
{
    dataset data;
    char path[8192];
    assert_int_equal(dataset_load(test_folder, &data), TW_ERROR_IO);
    assert_non_null(strstr(tw_last_error(), "train-images-idx3-ubyte[.gz]"));
    assert_non_null(strstr(tw_last_error(), "data_batch_1.bin"));

    assert_int_equal(dataset_load(in_folder("nowhere"), &data), TW_ERROR_IO);
    assert_non_null(strstr(tw_last_error(), in_folder("nowhere")));
    write_bytes("file", "x", 1);
    assert_int_equal(dataset_load(in_folder("file"), &data), TW_ERROR_IO);
    assert_non_null(strstr(tw_last_error(), "not a folder"));
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = 0;
    assert_int_equal(dataset_load(path, &data), TW_ERROR_ARGUMENT);
}

/* ---- in colour ---- */

/* Four dimensions; the values count up from `count` on, in the order of the file. */
static void make_colours(blob *file, uint32_t count, const uint32_t shape[3])
{
    file->size = 0;
    put_number(file, 0x00000804);
    put_number(file, count);
    for (int i = 0; i < 3; i++) put_number(file, shape[i]);
    for (uint32_t i = 0; i < count * shape[0] * shape[1] * shape[2]; i++)
        file->bytes[file->size++] = (uint8_t)(i + count);
}

static void write_colours(const uint32_t train[3], const uint32_t test[3])
{
    for (int i = 0; i < 4; i++) remove(in_folder(names[i]));
    make_colours(&files[TRAIN_IMAGES], TRAIN, train);
    make_colours(&files[TEST_IMAGES], TEST, test);
    write_bytes("train-images-idx4-ubyte", files[TRAIN_IMAGES].bytes, files[TRAIN_IMAGES].size);
    write_bytes(names[TRAIN_LABELS], files[TRAIN_LABELS].bytes, files[TRAIN_LABELS].size);
    write_bytes("t10k-images-idx4-ubyte", files[TEST_IMAGES].bytes, files[TEST_IMAGES].size);
    write_bytes(names[TEST_LABELS], files[TEST_LABELS].bytes, files[TEST_LABELS].size);
}

/* Value c of the pixel in row y and column x of image i, wherever the file has it. */
static void assert_colours(const image_set *set, size_t count, bool last)
{
    assert_shape(set, count, 3, HEIGHT, 4, 3);
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < 3; c++)
            for (size_t y = 0; y < HEIGHT; y++)
                for (size_t x = 0; x < 4; x++) {
                    size_t in_file = last ? ((i * HEIGHT + y) * 4 + x) * 3 + c : ((i * 3 + c) * HEIGHT + y) * 4 + x;
                    assert_int_equal(set->pixels[((i * 3 + c) * HEIGHT + y) * 4 + x], (uint8_t)(in_file + count));
                }
}

/* The two files may differ in where the colours stand. */
TEST_BETWEEN(reads_colours_wherever_they_stand, set_up, remove_folder)
{
    static const uint32_t last[3] = {HEIGHT, 4, 3}, first[3] = {3, HEIGHT, 4};
    dataset data;
    for (int train_last = 0; train_last < 2; train_last++) {
        write_colours(train_last ? last : first, train_last ? first : last);
        assert_int_equal(dataset_load(test_folder, &data), TW_OK);
        assert_colours(&data.train, TRAIN, train_last);
        assert_colours(&data.test, TEST, !train_last);
        double sum = 0;
        for (size_t i = 0; i < TRAIN * HEIGHT * 4; i++)
            sum += data.train.pixels[(i / (HEIGHT * 4) * 3 + 1) * HEIGHT * 4 + i % (HEIGHT * 4)] / 255.0;
        assert_float_equal(data.mean[1], sum / (TRAIN * HEIGHT * 4), 1e-6);
        dataset_release(&data);
    }
}

TEST_BETWEEN(refuses_wrong_colours, set_up, remove_folder)
{
    static const uint32_t right[3] = {HEIGHT, 4, 3}, four[3] = {HEIGHT, 4, 4}, wide[3] = {HEIGHT, 5, 3};
    static const char train[] = "train-images-idx4-ubyte", test[] = "t10k-images-idx4-ubyte";
    write_colours(four, four);
    assert_refused(TW_ERROR_FORMAT, train, "images of 2 x 4 x 4; in colour they have 3");
    write_colours(right, wide);
    assert_refused(TW_ERROR_FORMAT, test, "images of 2 x 5, but those for training are 2 x 4");
    write_colours(right, right);
    make_images(&files[TEST_IMAGES], TEST, HEIGHT, 4);
    write_bytes(test, files[TEST_IMAGES].bytes, files[TEST_IMAGES].size);
    assert_refused(TW_ERROR_FORMAT, test, "grey images, but those for training are in colour");
    write_colours(right, right);
    for (size_t size = 0; size < files[TRAIN_IMAGES].size; size++) {
        write_bytes(train, files[TRAIN_IMAGES].bytes, size);
        assert_refused(TW_ERROR_FORMAT, train, size ? "" : "empty");
    }
    files[TRAIN_IMAGES].bytes[3] = 5;
    write_bytes(train, files[TRAIN_IMAGES].bytes, files[TRAIN_IMAGES].size);
    assert_refused(TW_ERROR_FORMAT, train, "5 dimensions; images have 3, or 4 in colour");
}

/* 5, 3 and 1 images of three classes: two, one and none of them are held out, the same ones every time; pixels stay
 * with their labels, and all keep their order. */
TEST_BETWEEN(a_share_of_each_class_is_held_out, set_up, remove_folder)
{
    enum { ALL = 9 };
    static const uint8_t classes[ALL] = {0, 1, 0, 0, 2, 1, 0, 1, 0};
    static const dataset_options third = {.validation = 0.35};
    dataset data, again;
    size_t of_class[3] = {0};
    make_images(&files[TRAIN_IMAGES], ALL, HEIGHT, WIDTH);
    make_labels(&files[TRAIN_LABELS], ALL, 3);
    memcpy(files[TRAIN_LABELS].bytes + 8, classes, ALL);
    write_all();
    assert_int_equal(dataset_open(test_folder, &third, &data), TW_OK);
    assert_int_equal(dataset_open(test_folder, &third, &again), TW_OK);
    assert_int_equal(data.train.count, 6);
    assert_int_equal(data.valid.count, 3);
    assert_int_equal(data.test.count, TEST);
    assert_memory_equal(data.valid.pixels, again.valid.pixels, data.valid.count * AREA);
    size_t trained = 0, held = 0;
    for (size_t i = 0; i < ALL; i++) {
        const uint8_t *image = files[TRAIN_IMAGES].bytes + 16 + i * AREA;
        bool trains = trained < 6 && memcmp(data.train.pixels + trained * AREA, image, AREA) == 0;
        const image_set *set = trains ? &data.train : &data.valid;
        size_t at = trains ? trained++ : held++;
        assert_memory_equal(set->pixels + at * AREA, image, AREA);
        assert_int_equal(set->labels[at], classes[i]);
        if (!trains) of_class[classes[i]]++;
    }
    assert_true(of_class[0] == 2 && of_class[1] == 1 && of_class[2] == 0);
    assert_int_equal(data.valid.classes, 3);
    dataset_release(&data);
    dataset_release(&again);
}

/* The real thing, where Debian's package dataset-fashion-mnist is installed. */
static void assert_fashion(const image_set *set, size_t count)
{
    size_t often[10] = {0};
    assert_shape(set, count, 1, 28, 28, 10);
    for (size_t i = 0; i < count; i++) often[set->labels[i]]++;
    for (int label = 0; label < 10; label++) assert_int_equal(often[label], count / 10);
}

/* Mean .2860 and deviation .3530 are the figures commonly given for this set. */
TEST(reads_fashion_mnist_or_says_how_to_get_it)
{
    dataset data;
    if (access("/usr/share/datasets/fashion-mnist", F_OK) != 0) {
        assert_fails(dataset_load(NULL, &data), TW_ERROR_IO, "apt install dataset-fashion-mnist");
        assert_said("--data DIR");
        return;
    }
    assert_ok(dataset_load(NULL, &data));
    assert_fashion(&data.train, 60000);
    assert_fashion(&data.test, 10000);
    assert_float_equal(data.mean[0], 0.2860, 5e-5);
    assert_float_equal(data.deviation[0], 0.3530, 5e-5);
    dataset_release(&data);
}

RUN_TESTS(NULL, NULL)
