/* Event records against vectors that TensorBoard's own writer made. */
#include "tensorboard.h"
#include "support.h"

#include <glob.h>

static void assert_hex(const uint8_t *bytes, size_t size, const char *hex)
{
    char found[2 * TENSORBOARD_RECORD_MAX + 1] = "";
    for (size_t i = 0; i < size; i++) sprintf(found + 2 * i, "%02x", bytes[i]);
    assert_string_equal(found, hex);
}

TEST(version_record_is_the_known_one)
{
    uint8_t record[TENSORBOARD_RECORD_MAX];
    assert_hex(record, tensorboard_version_record(1.5, record),
               "1800000000000000a37f4b22"
               "09000000000000f83f1a0d627261696e2e4576656e743a32"
               "2a28646c");
}

TEST(scalar_record_is_the_known_one)
{
    uint8_t record[TENSORBOARD_RECORD_MAX];
    assert_hex(record, tensorboard_scalar_record(2.0, 7, "loss", 0.5f, record),
               "1a00000000000000129bd82d"
               "09000000000000004010072a0d0a0b0a046c6f7373150000003f"
               "c33fc24a");
}

/* Step 300 takes two varint bytes, ac 02; the whole is one longer. */
TEST(long_steps_are_varints)
{
    uint8_t record[TENSORBOARD_RECORD_MAX];
    size_t size = tensorboard_scalar_record(2.0, 300, "loss", 0.5f, record);
    assert_int_equal(size, 8 + 4 + 27 + 4);
    assert_int_equal(record[12 + 10], 0xac);
    assert_int_equal(record[12 + 11], 0x02);
}

/* Every record of the file is framed by its length, and a scalar appended later is in it. */
TEST_IN_FOLDER(file_holds_the_records)
{
    tensorboard *board;
    assert_ok(tensorboard_open(*state, &board));
    assert_ok(tensorboard_scalar(board, "loss", 7, 0.5f));
    tensorboard_close(board);

    char pattern[256];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/events.out.tfevents.*", (const char *)*state);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    FILE *file = fopen(found.gl_pathv[0], "rb");
    globfree(&found);
    uint8_t bytes[256];
    size_t size = fread(bytes, 1, sizeof bytes, file), at = 0, records = 0;
    fclose(file);
    for (; at < size; records++) at += 8 + 4 + bytes[at] + 4;
    assert_int_equal(at, size);
    assert_int_equal(records, 2);
}

TEST(missing_folder_is_named)
{
    tensorboard *board;
    assert_fails(tensorboard_open("/nonexistent/run", &board), TW_ERROR_IO, "/nonexistent/run");
}

RUN_TESTS(NULL, NULL)
