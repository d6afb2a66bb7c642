/* Folders of pictures: which are found, what is refused, and that a batch is the same whoever decodes it. */
#include "image_loader.h"
#include "picture_files.h"
#include "shuffle.h"
#include "support.h"
#include "support/png.h"

#include <math.h>
#include <stdlib.h>

enum { SIZE = 8, PLANE = SIZE * SIZE, PIXELS = 3 * PLANE };

static const dataset_options usual = {.image_size = SIZE}, tenth = {.image_size = SIZE, .validation = 0.1};

static void write_class(const char *folder, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s/%03zu.png", folder, i);
        write_png(name, SIZE, SIZE, seed + (unsigned)i);
    }
}

static void make_folder_in(const char *name)
{
    make_parent(name);
    assert_int_equal(mkdir(in_folder(name), 0700), 0);
}

/* Two classes of 6 and 4, one picture each to test with. */
static void write_divided(void)
{
    make_folder_in("train");
    make_folder_in("test");
    write_class("train/cat", 6, 0);
    write_class("train/dog", 4, 20);
    write_class("test/cat", 1, 40);
    write_class("test/dog", 1, 50);
}

static void assert_open_fails(const dataset_options *options, tw_status status, const char *words)
{
    dataset data;
    assert_fails(dataset_open(test_folder, options, &data), status, words);
    assert_null(data.train.files);
    assert_null(data.class_names);
}

static const char *name_of(const image_set *set, size_t i)
{
    return set->files->names + set->files->at[i];
}

static size_t count_label(const image_set *set, size_t label)
{
    size_t count = 0;
    for (size_t i = 0; i < set->count; i++) count += set->labels[i] == label;
    return count;
}

TEST_IN_FOLDER(a_divided_folder_is_found)
{
    dataset data;
    write_divided();
    write_text("train/cat/.hidden.png", "");
    assert_ok(dataset_open(test_folder, &usual, &data));
    assert_string_equal(data.format, "pictures");
    assert_shape(&data.train, 10, 3, SIZE, SIZE, 2);
    assert_string_equal(data.class_names[0], "cat");
    assert_string_equal(data.class_names[1], "dog");
    assert_int_equal(count_label(&data.train, 0), 6);
    assert_int_equal(count_label(&data.train, 1), 4);
    assert_int_equal(data.test.count, 2);
    assert_string_equal(data.note, "");
    dataset_release(&data);
}

/* Every picture is in one of the two, a tenth of each class is held out, the same ones every time. */
TEST_IN_FOLDER(a_share_is_held_out)
{
    dataset data, again;
    write_class("a", 20, 0);
    write_class("b", 30, 100);
    write_class("c", 2, 200);
    write_class("d", 1, 210);
    assert_ok(dataset_open(test_folder, &tenth, &data));
    assert_ok(dataset_open(test_folder, &tenth, &again));
    static const size_t held[] = {2, 3, 1, 0}, kept[] = {18, 27, 1, 1};
    for (size_t label = 0; label < 4; label++) {
        assert_int_equal(count_label(&data.valid, label), held[label]);
        assert_int_equal(count_label(&data.train, label), kept[label]);
    }
    assert_int_equal(data.test.count, 0);
    for (size_t i = 0; i < data.valid.count; i++) {
        assert_string_equal(name_of(&data.valid, i), name_of(&again.valid, i));
        for (size_t k = 0; k < data.train.count; k++)
            assert_true(data.train.labels[k] != data.valid.labels[i] ||
                        strcmp(name_of(&data.train, k), name_of(&data.valid, i)) != 0);
    }
    dataset_release(&data);
    dataset_release(&again);
}

/* What is held out of training does not touch the test; a folder val is for validation, alone or beside a test. */
TEST_IN_FOLDER(three_splits_are_told_apart)
{
    dataset data;
    write_divided();
    assert_ok(dataset_open(test_folder, &(dataset_options){.image_size = SIZE, .validation = 0.5}, &data));
    assert_int_equal(data.train.count, 3 + 2);
    assert_int_equal(count_label(&data.valid, 0), 3);
    assert_int_equal(count_label(&data.valid, 1), 2);
    assert_int_equal(data.test.count, 2);
    dataset_release(&data);
    make_folder_in("val");
    write_class("val/dog", 3, 60);
    assert_ok(dataset_open(test_folder, &usual, &data));
    assert_int_equal(data.train.count, 10);
    assert_int_equal(data.valid.count, 3);
    assert_int_equal(data.valid.labels[0], 1);
    assert_int_equal(data.test.count, 2);
    char path[PICTURE_PATH_MOST];
    assert_non_null(strstr(picture_files_path(&data, &data.valid, 0, path), "/val/dog/"));
    assert_non_null(strstr(picture_files_path(&data, &data.test, 0, path), "/test/"));
    dataset_release(&data);
}

TEST_IN_FOLDER(other_names_are_left_out_and_counted)
{
    dataset data;
    write_divided();
    write_text("train/cat/Thumbs.db", "x");
    write_text("train/dog/notes.txt", "x");
    write_text("train/stray.jpg", "x");
    write_text("train/.stray.jpg", "x");
    write_text("test/stray.png", "x");
    write_text("test/README", "x");
    make_folder_in("train/dog/more.png");
    assert_ok(dataset_open(test_folder, &usual, &data));
    assert_int_equal(data.train.count, 10);
    assert_non_null(strstr(data.note, "5 entries"));
    assert_non_null(strstr(data.note, "train/stray.jpg"));
    dataset_release(&data);
}

TEST_IN_FOLDER(what_is_no_classification_is_refused)
{
    make_folder_in("train");
    write_class("train/cat", 2, 0);
    assert_open_fails(&tenth, TW_ERROR_FORMAT, "train: one class only");
    assert_open_fails(
        &usual, TW_ERROR_ARGUMENT,
        "no pictures to validate or test with, no folder val or test beside train; training with --validation 0.1");
    write_class("train/dog", 2, 5);
    make_folder_in("val");
    assert_open_fails(&usual, TW_ERROR_FORMAT, "val: no picture in its classes");
    assert_open_fails(&tenth, TW_ERROR_ARGUMENT, "val is there already");
    write_class("val/cow", 1, 9);
    assert_open_fails(&usual, TW_ERROR_FORMAT, "val/cow: a class that is not in");
    make_folder_in("train/empty");
    assert_open_fails(&usual, TW_ERROR_FORMAT, "train/empty: a class without a .jpg");
}

TEST_IN_FOLDER(a_class_needs_a_printable_name)
{
    write_class("a", 2, 0);
    write_class("b\nc", 2, 0);
    assert_open_fails(&tenth, TW_ERROR_FORMAT, "\"b\\x0ac\"");
}

TEST_IN_FOLDER(options_are_for_pictures)
{
    uint8_t images[16 + 4] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2}, labels[9] = {0, 0, 8, 1, 0, 0, 0, 1};
    write_bytes("train-images-idx3-ubyte", images, sizeof images);
    write_bytes("train-labels-idx1-ubyte", labels, sizeof labels);
    assert_open_fails(&usual, TW_ERROR_ARGUMENT, "--image-size is for folders of pictures; the data are idx");
}

/* ---- batches ---- */

typedef struct drawn {
    float images[32 * PIXELS];
    uint16_t labels[32];
    size_t count;
} drawn;

static tw_status draw_batch(const dataset *data, const image_order *wanted, drawn *d)
{
    image_batch *b;
    assert_ok(image_batch_create(data, wanted->set, 32, &b));
    image_batch_start(b, wanted);
    tw_status status = image_batch_wait(b);
    if (status == TW_OK) {
        d->count = image_batch_count(b);
        memcpy(d->images, image_batch_images(b), d->count * PIXELS * sizeof(float));
        memcpy(d->labels, image_batch_labels(b), d->count * sizeof *d->labels);
    }
    image_batch_destroy(b);
    return status;
}

/* Pictures of the size wanted come as they are: what write_png made of each, normalised. */
TEST_IN_FOLDER(a_batch_holds_the_pictures)
{
    static drawn d;
    dataset data;
    uint32_t order[10];
    double sum = 0;
    write_divided();
    assert_ok(dataset_open(test_folder, &usual, &data));
    data_shuffle(order, 10, 1, 0);
    const image_order wanted = {.data = &data, .set = &data.train, .images = order, .count = 10, .whole = true};
    assert_ok(draw_batch(&data, &wanted, &d));
    assert_int_equal(d.count, 10);
    for (size_t i = 0; i < 10; i++) {
        unsigned seed = (unsigned)atoi(name_of(&data.train, order[i])) + (d.labels[i] ? 20 : 0);
        assert_int_equal(d.labels[i], data.train.labels[order[i]]);
        for (size_t at = 0; at < PIXELS; at++) {
            size_t c = at / PLANE, stored = at % PLANE * 3 + c;
            uint8_t pixel = (uint8_t)(seed * 31 + stored * 7 + stored / (3 * SIZE) * 13);
            float expected = ((float)pixel / 255.0f - data.mean[c]) / data.deviation[c];
            assert_float_equal(d.images[i * PIXELS + at], expected, 0);
            if (c == 0) sum += pixel / 255.0;
        }
    }
    assert_near(data.mean[0], sum / (10 * PLANE), 1e-6); /* of all training pictures, as these are so few */
    dataset_release(&data);
}

TEST_IN_FOLDER(the_number_of_decoders_changes_no_bit)
{
    static drawn one, many;
    static const size_t threads[] = {2, 7, 64};
    const augmentation augment = {.padding = 1, .flip = 1, .parts = 1};
    uint32_t order[32];
    write_class("a", 20, 0);
    write_class("b", 20, 50);
    for (size_t i = 0; i < 32; i++) order[i] = (uint32_t)(i * 7 % 30);
    for (size_t t = 0; t < 4; t++) {
        dataset data;
        const dataset_options options = {SIZE, 0.1, t ? threads[t - 1] : 1};
        assert_ok(dataset_open(test_folder, &options, &data));
        const image_order wanted = {&data, &data.train, order, 32, &augment, 5, 3, true};
        assert_ok(draw_batch(&data, &wanted, t ? &many : &one));
        if (t) assert_memory_equal(&one, &many, sizeof one);
        dataset_release(&data);
    }
}

/* Parts differ from picture to picture, from epoch to epoch and from seed to seed, and from the whole. */
TEST_IN_FOLDER(parts_are_drawn_anew)
{
    static drawn seen[4];
    static const struct {
        uint64_t seed, epoch;
        int parts;
    } cases[4] = {{5, 3, 1}, {5, 4, 1}, {6, 3, 1}, {5, 3, 0}};
    uint32_t order[3] = {4, 4, 5};
    dataset data;
    write_class("a", 9, 0);
    write_class("b", 9, 50);
    assert_ok(dataset_open(test_folder, &tenth, &data));
    for (size_t i = 0; i < 4; i++) {
        const augmentation augment = {.parts = cases[i].parts};
        const image_order wanted = {&data, &data.train, order, 3, &augment, cases[i].seed, cases[i].epoch, true};
        assert_ok(draw_batch(&data, &wanted, &seen[i]));
        assert_memory_equal(seen[i].images, seen[i].images + PIXELS, PIXELS * sizeof(float));
        for (size_t k = 0; k < i; k++) assert_memory_not_equal(seen[i].images, seen[k].images, sizeof(float) * PIXELS);
    }
    dataset_release(&data);
}

/* A batch that is started again before it is done, many at once, and some that nobody waits for. */
TEST_IN_FOLDER(batches_may_be_given_up)
{
    enum { BATCHES = 5 };
    static drawn expected;
    image_batch *batches[BATCHES];
    uint32_t order[32];
    dataset data;
    write_class("a", 20, 0);
    write_class("b", 20, 50);
    assert_ok(dataset_open(test_folder, &(dataset_options){SIZE, 0.1, 3}, &data));
    for (size_t i = 0; i < 32; i++) order[i] = (uint32_t)i;
    const image_order wanted = {&data, &data.train, order, 32, NULL, 0, 0, true};
    const image_order other = {&data, &data.valid, order, 3, NULL, 0, 0, false};
    assert_ok(draw_batch(&data, &wanted, &expected));
    for (size_t i = 0; i < BATCHES; i++) assert_ok(image_batch_create(&data, &data.train, 32, &batches[i]));
    for (size_t round = 0; round < 20; round++) {
        for (size_t i = 0; i < BATCHES; i++) image_batch_start(batches[i], i % 2 ? &wanted : &other);
        for (size_t i = BATCHES; i-- > 2;) image_batch_start(batches[i], &wanted);
        assert_ok(image_batch_wait(batches[round % 3 + 2]));
        assert_memory_equal(image_batch_images(batches[round % 3 + 2]), expected.images, sizeof expected.images);
    }
    for (size_t i = 0; i < BATCHES; i++) image_batch_destroy(batches[i]);
    dataset_release(&data);
}

/* ---- what cannot be read ---- */

/* Three of class a that are no pictures, of 24; and all of them by name. */
static void write_with_damage(void)
{
    write_class("a", 12, 0);
    write_class("b", 12, 50);
    write_text("a/000.png", "");
    write_text("a/001.jpg", "<html>");
    assert_int_equal(symlink("nowhere", in_folder("a/002.jpeg")), 0);
}

TEST_IN_FOLDER(a_damaged_picture_is_replaced_in_training)
{
    static drawn d, after;
    dataset data;
    size_t replaced = 0;
    write_with_damage();
    assert_ok(dataset_open(test_folder, &tenth, &data));
    for (uint32_t i = 0; i < data.train.count; i++) {
        uint32_t next = (uint32_t)((i + 1) % data.train.count);
        const image_order wanted = {&data, &data.train, &i, 1, NULL, 0, 0, true};
        const image_order following = {&data, &data.train, &next, 1, NULL, 0, 0, true};
        bool damaged = data.train.labels[i] == 0 &&
                       (strcmp(name_of(&data.train, i), "000.png") == 0 || strstr(name_of(&data.train, i), ".jp"));
        assert_ok(draw_batch(&data, &wanted, &d));
        assert_ok(draw_batch(&data, &following, &after));
        assert_int_equal(d.count, 1);
        assert_int_equal(memcmp(d.images, after.images, PIXELS * sizeof(float)) == 0, damaged);
        if (damaged) assert_int_equal(d.labels[0], after.labels[0]);
        replaced += damaged;
    }
    assert_in_range(replaced, 1, 3);
    dataset_release(&data);
}

TEST_IN_FOLDER(a_damaged_picture_is_left_out_of_a_test)
{
    static drawn d;
    dataset data;
    uint32_t order[32];
    make_folder_in("test");
    make_folder_in("train");
    write_class("train/a", 2, 0);
    write_class("train/b", 2, 9);
    write_class("test/a", 3, 20);
    write_class("test/b", 3, 30);
    write_text("test/a/001.png", "damaged");
    assert_ok(dataset_open(test_folder, &usual, &data));
    for (uint32_t i = 0; i < 6; i++) order[i] = i;
    const image_order wanted = {.data = &data, .set = &data.test, .images = order, .count = 6};
    assert_ok(draw_batch(&data, &wanted, &d));
    assert_int_equal(d.count, 5);
    size_t at = 0;
    for (size_t i = 0; i < 6; i++) {
        if (data.test.labels[i] == 0 && strcmp(name_of(&data.test, i), "001.png") == 0) continue;
        assert_int_equal(d.labels[at++], data.test.labels[i]);
    }
    dataset_release(&data);
}

TEST_IN_FOLDER(mostly_damage_is_refused)
{
    write_class("a", 3, 0);
    write_class("b", 3, 9);
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "a/%03d.png", i);
        write_text(name, "GIF89a");
        if (i > 0) snprintf(name, sizeof name, "b/%03d.png", i);
        write_text(name, "");
    }
    assert_open_fails(&tenth, TW_ERROR_FORMAT, "cannot be read, of which one is ");
}

TEST_IN_FOLDER(when_all_are_damaged_training_ends)
{
    static drawn d;
    dataset data;
    uint32_t first = 0;
    write_class("a", 3, 0);
    write_class("b", 3, 9);
    assert_ok(dataset_open(test_folder, &tenth, &data));
    for (int i = 0; i < 6; i++) {
        char name[32];
        snprintf(name, sizeof name, "%c/%03d.png", "ab"[i / 3], i % 3);
        write_text(name, "gone");
    }
    const image_order wanted = {.data = &data, .set = &data.train, .images = &first, .count = 1, .whole = true};
    assert_fails(draw_batch(&data, &wanted, &d), TW_ERROR_FORMAT, "neither a JPEG nor a PNG");
    assert_said("cannot be read either");
    dataset_release(&data);
}

/* Labels wider than a byte: each class is one colour, and a batch has its label. */
TEST_IN_FOLDER(there_may_be_more_classes_than_a_byte_counts)
{
    static drawn d;
    dataset data;
    for (unsigned c = 0; c < 300; c++) {
        char name[32];
        snprintf(name, sizeof name, "c%03u", c);
        write_class(name, 2, c * 3);
    }
    assert_ok(dataset_open(test_folder, &(dataset_options){.image_size = SIZE, .validation = 0.5}, &data));
    assert_int_equal(data.train.classes, 300);
    for (uint32_t i = 0; i < 300; i++) {
        const image_order wanted = {&data, &data.train, &i, 1, NULL, 0, 0, true};
        assert_ok(draw_batch(&data, &wanted, &d));
        unsigned seed = d.labels[0] * 3u + (unsigned)atoi(name_of(&data.train, i));
        float expected = ((float)(uint8_t)(seed * 31) / 255.0f - data.mean[0]) / data.deviation[0];
        assert_float_equal(d.images[0], expected, 0);
    }
    dataset_release(&data);
}

RUN_TESTS(NULL, NULL)
