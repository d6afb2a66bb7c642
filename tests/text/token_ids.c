/* Arrays of numpy's: each type, a folder and one file, and what is refused. The header is one that numpy.save wrote. */
#include "token_ids.h"
#include "support.h"

#include <thinwire/thinwire_plugin.h>

enum { BEGIN = 128, MOST = 4096 };

/* The bytes of an array, whose numbers follow at BEGIN. */
static uint8_t *make_header(const char *type, const char *shape)
{
    static uint8_t bytes[BEGIN + MOST];
    char text[BEGIN + 1];
    const int used =
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
    snprintf(text + used, sizeof text - (size_t)used, "%*s", BEGIN - 10 - used, "\n");
    memcpy(bytes, "\x93NUMPY\x01\x00v\x00", 10);
    memcpy(bytes + 10, text, BEGIN - 10);
    return bytes;
}

static void write_array(const char *name, const char *type, size_t each, const int64_t *numbers, size_t count)
{
    char shape[24];
    snprintf(shape, sizeof shape, "%zu,", count);
    uint8_t *bytes = make_header(type, shape);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < each; k++) bytes[BEGIN + i * each + k] = (uint8_t)((uint64_t)numbers[i] >> 8 * k);
    write_bytes(name, bytes, BEGIN + count * each);
}

static void assert_array(const char *type, size_t each, int64_t largest)
{
    const int64_t numbers[] = {0, 1, largest, 77};
    uint32_t *ids;
    size_t count;
    write_array("a.npy", type, each, numbers, 4);
    assert_ok(token_ids_read(in_folder("a.npy"), (size_t)largest + 1, &ids, &count));
    assert_int_equal(count, 4);
    for (size_t i = 0; i < 4; i++) assert_int_equal(ids[i], numbers[i]);
    free(ids);
    assert_fails(token_ids_read(in_folder("a.npy"), (size_t)largest, &ids, &count), TW_ERROR_FORMAT, "a.npy");
    assert_said("its token 2 is");
}

TEST_IN_FOLDER(every_type_is_read)
{
    assert_array("|u1", 1, 255);
    assert_array("<u2", 2, 65535);
    assert_array("<u4", 4, VOCABULARY_IDS_MOST - 1);
    assert_array("<i4", 4, VOCABULARY_IDS_MOST - 1);
    assert_array("<i8", 8, VOCABULARY_IDS_MOST - 1);
}

static void assert_number_refused(const char *type, size_t each, int64_t number, const char *said)
{
    uint32_t *ids;
    size_t count;
    write_array("a.npy", type, each, (int64_t[]){3, number}, 2);
    assert_fails(token_ids_read(in_folder("a.npy"), 10, &ids, &count), TW_ERROR_FORMAT, said);
}

TEST_IN_FOLDER(other_numbers_are_refused)
{
    assert_number_refused("<i4", 4, -1, "its token 1 is -1; there are tokens 0 to 9");
    assert_number_refused("<i8", 8, INT64_MIN, "is -9223372036854775808");
    assert_number_refused("<i8", 8, (int64_t)1 << 32, "is 4294967296"); /* whose lower half is a token */
    assert_number_refused("<u4", 4, UINT32_MAX, "is 4294967295");
}

static void assert_bytes_refused(const uint8_t *bytes, size_t size, const char *said)
{
    uint32_t *ids;
    size_t count;
    write_bytes("a.npy", bytes, size);
    assert_fails(token_ids_read(in_folder("a.npy"), 10, &ids, &count), TW_ERROR_FORMAT, said);
    assert_said("a.npy");
}

/* Two numbers follow. */
static void assert_header_refused(const char *type, const char *shape, const char *said)
{
    assert_bytes_refused(make_header(type, shape), BEGIN + 4, said);
}

TEST_IN_FOLDER(other_arrays_are_refused)
{
    static const char *const types[] = {">u2", "<u8", "<f4", "|S2", "", "<u2x", "|O"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        assert_header_refused(types[i], "2,", "neither uint8 nor little-endian uint16");
    static const char *const shapes[] = {"2, 1", "", "1, 2", "-2,", "99999999999999999999,"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_header_refused("<u2", shapes[i], "not of one dimension");
    assert_header_refused("<u2", "3,", "tells of 3 numbers, and 4 bytes follow");
    assert_header_refused("<u2", "1,", "tells of 1 numbers");
    assert_header_refused("<u2", "9223372036854775810,", "damaged"); /* whose bytes are 4, modulo 2^64 */
    assert_header_refused("<u2", "0,", "has no token");
}

/* No file that is cut off is one, and none that begins otherwise. */
TEST_IN_FOLDER(cut_files_are_refused)
{
    uint8_t *bytes = make_header("<u2", "2,");
    memset(bytes + BEGIN, 0, 4);
    for (size_t size = 1; size < BEGIN; size++) assert_bytes_refused(bytes, size, "no array that numpy.save wrote");
    for (size_t size = BEGIN; size < BEGIN + 6; size++)
        if (size != BEGIN + 4) assert_bytes_refused(bytes, size, "tells of 2 numbers");
    bytes[8] = 255; /* a header that ends behind the file */
    bytes[9] = 255;
    assert_bytes_refused(bytes, BEGIN + 4, "no array that numpy.save wrote");
    assert_bytes_refused((const uint8_t *)"a text, not numbers\n", 20, "no array that numpy.save wrote");
}

/* As numpy writes headers of more than 65,535 bytes, and may write any. */
TEST_IN_FOLDER(the_second_version_is_read)
{
    uint8_t *bytes = make_header("|u1", "2,"), other[BEGIN + 4] = "\x93NUMPY\x02";
    uint32_t *ids;
    size_t count;
    other[8] = BEGIN - 10;
    memcpy(other + 12, bytes + 10, BEGIN - 10);
    other[BEGIN + 2] = 7;
    other[BEGIN + 3] = 5;
    write_bytes("a.npy", other, sizeof other);
    assert_ok(token_ids_read(in_folder("a.npy"), 10, &ids, &count));
    assert_int_equal(count, 2);
    assert_int_equal(ids[0], 7);
    assert_int_equal(ids[1], 5);
    free(ids);
}

static const corpus_options ten = {.unit = TEXT_IDS, .most = 10};

static void assert_stream(const token_stream *stream, uint32_t first, size_t count)
{
    assert_int_equal(stream->count, count);
    for (size_t i = 0; i < count; i++) assert_int_equal(stream->tokens[i], (first + i) % 10);
}

TEST_IN_FOLDER(one_file_is_cut_by_position)
{
    int64_t numbers[101];
    corpus c;
    for (int i = 0; i < 101; i++) numbers[i] = i % 10;
    write_array("all.npy", "<u2", 2, numbers, 101);
    assert_ok(corpus_load(in_folder("all.npy"), &ten, &c));
    assert_stream(&c.train, 0, 90);
    assert_stream(&c.valid, 90, 5);
    assert_stream(&c.test, 95, 6);
    assert_int_equal(vocabulary_count(c.vocabulary), 10);
    assert_int_equal(vocabulary_unit(c.vocabulary), TEXT_IDS);
    assert_int_equal(c.train_sum, tw_crc32c(0, c.train.tokens, 90 * sizeof(uint32_t)));
    assert_int_equal(c.valid_sum, tw_crc32c(0, c.valid.tokens, c.valid.count * sizeof(uint32_t)));
    corpus_release(&c);
    write_array("few.npy", "<u2", 2, numbers, 9);
    assert_fails(corpus_load(in_folder("few.npy"), &ten, &c), TW_ERROR_FORMAT, "few.npy has 9 tokens");
    corpus_options little = ten;
    little.most_bytes = 200;
    assert_fails(corpus_load(in_folder("all.npy"), &little, &c), TW_ERROR_UNSUPPORTED,
                 "a text in ids is held in memory");
}

TEST_IN_FOLDER(a_folder_holds_three)
{
    corpus c;
    write_array("tiny.train.npy", "<u2", 2, (int64_t[]){0, 1, 2}, 3);
    write_array("valid.npy", "<i8", 8, (int64_t[]){4, 5}, 2);
    write_text("test.txt", "1 2 3\n");
    assert_fails(corpus_load(test_folder, &ten, &c), TW_ERROR_IO, "test.npy");
    write_array("test.npy", "|u1", 1, (int64_t[]){9}, 1);
    assert_ok(corpus_load(test_folder, &ten, &c));
    assert_stream(&c.train, 0, 3);
    assert_stream(&c.valid, 4, 2);
    assert_stream(&c.test, 9, 1);
    corpus_release(&c);
    write_array("test.npy", "|u1", 1, (int64_t[]){10}, 1);
    assert_fails(corpus_load(test_folder, &ten, &c), TW_ERROR_FORMAT, "test.npy: its token 0 is 10");
    assert_null(c.train.tokens);
}

TEST_IN_FOLDER(ids_are_a_vocabulary)
{
    vocabulary *v, *back;
    char *text;
    assert_ok(vocabulary_of_ids(12, &v));
    assert_vocabulary(v, LIST("0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"));
    assert_int_equal(vocabulary_begin(v), VOCABULARY_NONE);
    assert_ok(vocabulary_write(v, &text));
    assert_string_equal(text, "ids\n12\n");
    assert_ok(vocabulary_read(text, &back));
    assert_int_equal(vocabulary_count(back), 12);
    assert_int_equal(vocabulary_unit(back), TEXT_IDS);
    free(text);
    vocabulary_destroy(v);
    vocabulary_destroy(back);
    static const char *const damaged[] = {"ids\n",     "ids\n12",        "ids\n12\n3\n",       "ids\n012\n", "ids\n1\n",
                                          "ids\n-2\n", "ids\n4194305\n", "ids\n99999999999\n", "ids\n 12\n", "ids\n\n"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
        assert_fails(vocabulary_read(damaged[i], &v), TW_ERROR_FORMAT, "line 2");
    assert_fails(vocabulary_of_ids(VOCABULARY_IDS_MOST + 1, &v), TW_ERROR_ARGUMENT, "2 to 4194304");
}

TEST_IN_FOLDER(numbers_stand_between_white_space)
{
    static const char text[] = " 1\n\n22\t3 ";
    token_reader reader = {text, text + strlen(text), TEXT_IDS};
    const char *token;
    size_t length;
    for (int i = 1; i <= 3; i++) {
        assert_true(token_next(&reader, &token, &length));
        assert_int_equal(length, i == 2 ? 2 : 1);
        assert_int_equal(token[0], '0' + i);
    }
    assert_false(token_next(&reader, &token, &length));
}

RUN_TESTS(NULL, NULL)
