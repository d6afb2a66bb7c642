/* CIFAR folders, 10 and 100. */
#include "support.h"

#include <sys/stat.h>

enum { PIXELS = 3 * 32 * 32, FILES = 6 };

static const char *const names[FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                         "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

static uint8_t pixel(int file, int image, int at)
{
    return (uint8_t)(31 * file + 101 * image + at * (at / 1024 + 1)); /* the three channels differ */
}

/* `count` records, each with `labels` label bytes: 9 - file last, and what is no fine label before it. */
static void make_records(blob *file, int number, int count, int labels)
{
    file->size = 0;
    for (int image = 0; image < count; image++) {
        for (int i = 1; i < labels; i++) file->bytes[file->size++] = 200;
        file->bytes[file->size++] = (uint8_t)(9 - number);
        for (int at = 0; at < PIXELS; at++) file->bytes[file->size++] = pixel(number, image, at);
    }
}

/* File i has i + 1 records. */
static void write_cifar10(void)
{
    static blob file;
    for (int i = 0; i < FILES; i++) {
        make_records(&file, i, i + 1, 1);
        write_bytes(names[i], file.bytes, file.size);
    }
}

static void assert_image(const image_set *set, size_t index, int file, int image)
{
    assert_int_equal(set->labels[index], 9 - file);
    for (int at = 0; at < PIXELS; at++) assert_int_equal(set->pixels[index * PIXELS + at], pixel(file, image, at));
}

TEST_IN_FOLDER(reads_cifar10_in_the_order_of_its_files)
{
    dataset data;
    size_t index = 0;
    write_cifar10();
    assert_int_equal(dataset_load(test_folder, &data), TW_OK);
    assert_string_equal(data.format, "cifar10");
    assert_shape(&data.train, 1 + 2 + 3 + 4 + 5, 3, 32, 32, 10);
    assert_int_equal(data.test.count, 6);
    for (int file = 0; file < 5; file++)
        for (int image = 0; image <= file; image++) assert_image(&data.train, index++, file, image);
    for (int image = 0; image < 6; image++) assert_image(&data.test, (size_t)image, 5, image);
    dataset_release(&data);
}

TEST_IN_FOLDER(measures_each_channel)
{
    dataset data;
    write_cifar10();
    assert_int_equal(dataset_load(test_folder, &data), TW_OK);
    for (int channel = 0; channel < 3; channel++) {
        double sum = 0, squares = 0, count = 15 * 1024;
        for (int file = 0; file < 5; file++) {
            for (int image = 0; image <= file; image++) {
                for (int at = 1024 * channel; at < 1024 * (channel + 1); at++) {
                    double value = pixel(file, image, at) / 255.0;
                    sum += value;
                    squares += value * value;
                }
            }
        }
        double variance = squares / count - sum / count * (sum / count);
        assert_float_equal(data.mean[channel], sum / count, 1e-6);
        assert_float_equal(data.deviation[channel] * data.deviation[channel], variance, 1e-6);
    }
    dataset_release(&data);
}

TEST_IN_FOLDER(reads_the_fine_labels_of_cifar100)
{
    static blob file;
    dataset data;
    make_records(&file, 0, 3, 2);
    file.bytes[1] = 99;
    write_bytes("train.bin", file.bytes, file.size);
    make_records(&file, 5, 2, 2);
    write_bytes("test.bin", file.bytes, file.size);
    assert_int_equal(dataset_load(test_folder, &data), TW_OK);
    assert_string_equal(data.format, "cifar100");
    assert_shape(&data.train, 3, 3, 32, 32, 100);
    assert_int_equal(data.test.count, 2);
    assert_int_equal(data.train.labels[0], 99);
    assert_image(&data.train, 2, 0, 2);
    assert_image(&data.test, 1, 5, 1);
    dataset_release(&data);
}

TEST_IN_FOLDER(refuses_sizes_that_are_not_whole_records)
{
    static blob file;
    for (int i = 0; i < FILES; i++) {
        write_cifar10();
        make_records(&file, i, 2, 1);
        write_bytes(names[i], file.bytes, file.size - 1);
        assert_refused(TW_ERROR_FORMAT, names[i], "records of 3073 bytes");
        write_bytes(names[i], file.bytes, file.size + 1);
        assert_refused(TW_ERROR_FORMAT, names[i], "records of 3073 bytes");
        write_bytes(names[i], file.bytes, 0);
        assert_refused(TW_ERROR_FORMAT, names[i], "empty");
    }
}

TEST_IN_FOLDER(refuses_labels_out_of_range)
{
    static blob file;
    write_cifar10();
    make_records(&file, 5, 3, 1);
    file.bytes[2 * (PIXELS + 1)] = 10;
    write_bytes("test_batch.bin", file.bytes, file.size);
    assert_refused(TW_ERROR_FORMAT, "test_batch.bin", "record 2 has label 10; the largest is 9");
    for (int i = 0; i < FILES; i++) remove(in_folder(names[i]));
    make_records(&file, 0, 1, 2);
    file.bytes[1] = 100;
    write_bytes("train.bin", file.bytes, file.size);
    assert_refused(TW_ERROR_FORMAT, "train.bin", "record 0 has label 100; the largest is 99");
}

TEST_IN_FOLDER(refuses_missing_files_and_folders)
{
    for (int i = 0; i < FILES; i++) {
        write_cifar10();
        remove(in_folder(names[i]));
        assert_refused(TW_ERROR_IO, names[i], "No such file");
        assert_int_equal(mkdir(in_folder(names[i]), 0700), 0);
        assert_refused(TW_ERROR_IO, names[i], "not a regular file");
        remove(in_folder(names[i]));
    }
}

RUN_TESTS(NULL, NULL)
