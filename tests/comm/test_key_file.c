/* Keys from files. */
#include "support/folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <thinwire/thinwire_sealed.h>

static const char *write_key(const char *name, const void *bytes, size_t count, mode_t mode)
{
    const char *path = in_folder(name);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0 && write(file, bytes, count) == (ssize_t)count && fchmod(file, mode) == 0);
    close(file);
    return path;
}

static tw_status read_text(const char *text, unsigned char key[TW_SEAL_KEY_BYTES])
{
    return tw_seal_read_key(write_key("text", text, strlen(text), 0600), key, NULL);
}

TEST(test_32_bytes_are_the_key)
{
    unsigned char bytes[TW_SEAL_KEY_BYTES], key[TW_SEAL_KEY_BYTES];
    for (int i = 0; i < TW_SEAL_KEY_BYTES; i++) bytes[i] = (unsigned char)(7 * i);
    int exposed = 9;
    assert_int_equal(tw_seal_read_key(write_key("random", bytes, sizeof bytes, 0600), key, &exposed), TW_OK);
    assert_memory_equal(key, bytes, sizeof key);
    assert_int_equal(exposed, 0);
    assert_int_equal(tw_seal_read_key(write_key("random", bytes, sizeof bytes, 0640), key, &exposed), TW_OK);
    assert_int_equal(exposed, 1);
    assert_int_equal(tw_seal_read_key(write_key("random", bytes, sizeof bytes, 0604), key, &exposed), TW_OK);
    assert_int_equal(exposed, 1);
}

TEST(test_a_line_of_text_is_hashed)
{
    unsigned char plain[TW_SEAL_KEY_BYTES], ended[TW_SEAL_KEY_BYTES], other[TW_SEAL_KEY_BYTES];
    static const char text[] = "thirty-two characters, all plain";
    assert_int_equal(sizeof text - 1, TW_SEAL_KEY_BYTES);
    assert_int_equal(read_text(text, plain), TW_OK);
    assert_int_equal(read_text("thirty-two characters, all plain\n", ended), TW_OK);
    assert_memory_equal(plain, ended, sizeof plain);
    assert_int_equal(read_text("thirty-two characters, all plain\r\n", ended), TW_OK);
    assert_memory_equal(plain, ended, sizeof plain);
    assert_memory_not_equal(plain, text, sizeof plain);
    assert_int_equal(read_text("thirty-two characters, all plait", other), TW_OK);
    assert_memory_not_equal(plain, other, sizeof plain);
}

static void assert_refused(const char *path, tw_status status)
{
    unsigned char key[TW_SEAL_KEY_BYTES] = {5}, before[TW_SEAL_KEY_BYTES] = {5};
    assert_int_equal(tw_seal_read_key(path, key, NULL), status);
    assert_memory_equal(key, before, sizeof key);
    assert_non_null(strstr(tw_last_error(), path));
}

TEST(test_what_is_no_key_is_refused)
{
    static char text[4098];
    unsigned char key[TW_SEAL_KEY_BYTES];
    assert_refused("/nonexistent/key", TW_ERROR_IO);
    assert_refused(test_folder, TW_ERROR_IO);
    assert_refused(write_key("empty", "", 0, 0600), TW_ERROR_FORMAT);
    assert_refused(write_key("short", "nineteen characters\n", 20, 0600), TW_ERROR_FORMAT);
    assert_refused(write_key("two", "two lines of text,\nwhich is one too many", 40, 0600), TW_ERROR_FORMAT);
    assert_refused(write_key("zeros", text, 33, 0600), TW_ERROR_FORMAT);
    assert_refused(write_key("zeros", text, TW_SEAL_KEY_BYTES, 0600), TW_ERROR_FORMAT);
    memset(text, 0xff, sizeof text);
    assert_refused(write_key("erased", text, TW_SEAL_KEY_BYTES, 0600), TW_ERROR_FORMAT);
    memset(text, 'x', sizeof text);
    assert_refused(write_key("long", text, 4097, 0600), TW_ERROR_FORMAT);
    text[4096] = '\n';
    assert_int_equal(tw_seal_read_key(write_key("longest", text, 4097, 0600), key, NULL), TW_OK);
    assert_int_equal(read_text("twenty characters...", key), TW_OK);
}

/* A hang would be the alarm's end. */
TEST(test_a_pipe_is_read_where_somebody_writes)
{
    static const char text[] = "thirty-two characters, all plain\n";
    unsigned char key[TW_SEAL_KEY_BYTES], same[TW_SEAL_KEY_BYTES];
    const char *path = in_folder("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(30);
    assert_refused(path, TW_ERROR_IO);
    int both = open(path, O_RDWR);
    int kept = open(path, O_RDONLY | O_NONBLOCK); /* what is in the pipe stays there when the writer ends first */
    assert_int_equal(write(both, text, sizeof text - 1), sizeof text - 1);
    int end = open(path, O_WRONLY);
    pid_t writer = fork();
    assert_true(kept >= 0 && end >= 0 && writer >= 0);
    close(both);
    if (writer > 0) close(end);
    if (writer == 0) _exit(0);
    assert_int_equal(tw_seal_read_key(in_folder("pipe"), key, NULL), TW_OK);
    alarm(0);
    close(kept);
    assert_int_equal(read_text(text, same), TW_OK);
    assert_memory_equal(key, same, sizeof key);
}

RUN_TESTS(make_folder, remove_folder)
