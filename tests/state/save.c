/* Saving: known bytes, nothing lost, and an old file that outlives every failure. */
#include "support.h"

#include "memory.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void check_file(const char *name, const void *expected, size_t expected_size)
{
    size_t size;
    unsigned char *bytes = read_whole(name, &size);
    assert_int_equal(size, expected_size);
    assert_memory_equal(bytes, expected, size);
    free(bytes);
}

/* The vectors of the format's own tests: no tensor; a header of 64 bytes; one of 65, padded to 72. */
TEST_IN_FOLDER(known_states_give_the_known_bytes)
{
    static const unsigned char nothing[] = {8, 0, 0, 0, 0, 0, 0, 0, '{', '}', ' ', ' ', ' ', ' ', ' ', ' '};
    static const char exact[] = "\x40\0\0\0\0\0\0\0{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":"
                                "[0,24]}}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    static const char padded[] = "\x48\0\0\0\0\0\0\0{\"attn0\":{\"dtype\":\"F32\",\"shape\":[1,1,2,3],\"data_offsets\":"
                                 "[0,24]}}       \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    static const size_t three[] = {1, 2, 3}, four[] = {1, 1, 2, 3};
    static const float zeros[6];
    const char *path = in_folder("f");
    tw_state *made;
    assert_int_equal(tw_state_create(&made), TW_OK);
    assert_int_equal(tw_state_save(made, path), TW_OK);
    check_file("f", nothing, sizeof nothing);
    assert_int_equal(tw_state_put(made, "attn.0", TW_F32, 3, three, zeros), TW_OK);
    assert_int_equal(tw_state_save(made, path), TW_OK);
    check_file("f", exact, sizeof exact - 1);
    tw_state_destroy(made);
    assert_int_equal(tw_state_create(&made), TW_OK);
    assert_int_equal(tw_state_put(made, "attn0", TW_F32, 4, four, zeros), TW_OK);
    assert_int_equal(tw_state_save(made, path), TW_OK);
    check_file("f", padded, sizeof padded - 1);
    tw_state_destroy(made);
}

/* Wide elements first, so that all are aligned; text escaped. */
TEST_IN_FOLDER(layout_follows_the_element_size)
{
    static const char expected[] = "\xc8\0\0\0\0\0\0\0{\"__metadata__\":{\"a\\u000a\\\"\":\"\\\\\"},"
                                   "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[12,15]},"
                                   "\"f\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[8,12]},"
                                   "\"d\":{\"dtype\":\"U64\",\"shape\":[1],\"data_offsets\":[0,8]}}     "
                                   "12345678abcdxyz";
    static const size_t one[] = {1}, three[] = {3};
    const char *path = in_folder("f");
    tw_state *made;
    assert_int_equal(tw_state_create(&made), TW_OK);
    assert_int_equal(tw_state_put(made, "b", TW_U8, 1, three, "xyz"), TW_OK);
    assert_int_equal(tw_state_put(made, "f", TW_I32, 0, NULL, "abcd"), TW_OK);
    assert_int_equal(tw_state_put(made, "d", TW_U64, 1, one, "12345678"), TW_OK);
    assert_int_equal(tw_state_put_text(made, "a\n\"", "\\"), TW_OK);
    assert_int_equal(tw_state_save(made, path), TW_OK);
    check_file("f", expected, sizeof expected - 1);
    tw_state_destroy(made);
}

/* Halves by the names other readers of the format know, between the types of four bytes and of one. */
TEST_IN_FOLDER(halves_have_the_known_names)
{
    static const char expected[] = "\xd8\0\0\0\0\0\0\0{\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[10,11]},"
                                   "\"h\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[4,6]},"
                                   "\"g\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[6,10]},"
                                   "\"f\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}  "
                                   "WXYZ\x00\x3c\x80\x3f\xc0\xff!";
    static const uint16_t one = 0x3C00, pair[] = {0x3F80, 0xFFC0};
    static const size_t single[] = {1}, two[] = {2};
    const char *path = in_folder("f");
    tw_state *made;
    assert_int_equal(tw_state_create(&made), TW_OK);
    assert_int_equal(tw_state_put(made, "b", TW_U8, 0, NULL, "!"), TW_OK);
    assert_int_equal(tw_state_put(made, "h", TW_F16, 1, single, &one), TW_OK);
    assert_int_equal(tw_state_put(made, "g", TW_BF16, 1, two, pair), TW_OK);
    assert_int_equal(tw_state_put(made, "f", TW_F32, 0, NULL, "WXYZ"), TW_OK);
    assert_int_equal(tw_state_save(made, path), TW_OK);
    check_file("f", expected, sizeof expected - 1);
    tw_state_destroy(made);
}

TEST_IN_FOLDER(everything_survives_a_file)
{
    const char *path = in_folder("f");
    tw_state *made = make_everything(), *loaded;
    assert_int_equal(tw_state_save(made, path), TW_OK);
    assert_int_equal(tw_state_load(path, &loaded), TW_OK);
    assert_same_state(made, loaded);
    tw_state_destroy(loaded);
    tw_state_destroy(made);
    assert_int_equal(entries_in_folder(), 1);
}

TEST_IN_FOLDER(a_bare_file_name_means_this_folder)
{
    char before[4096];
    tw_state *made = make_everything();
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(*state), 0);
    assert_int_equal(tw_state_save(made, "bare"), TW_OK);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(access(in_folder("bare"), R_OK), 0);
    tw_state_destroy(made);
}

/* Saves over an old file while files may have at most `limit` bytes. */
static tw_status save_limited(const tw_state *made, const char *path, rlim_t limit)
{
    struct rlimit before, now;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    now = (struct rlimit){limit, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    tw_status status = tw_state_save(made, path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    return status;
}

/* Room for every number of bytes short of all: the old file is whole and nothing else is in the folder. */
TEST_IN_FOLDER(a_full_disk_leaves_the_old_file)
{
    const char *path = in_folder("f");
    tw_state *made = make_everything();
    size_t size;
    assert_int_equal(tw_state_save(made, path), TW_OK);
    free(read_whole("f", &size));
    write_bytes("f", "old", 3);
    for (size_t limit = 0; limit < size; limit += 1 + limit % 7) {
        assert_int_equal(save_limited(made, path, limit), TW_ERROR_IO);
        assert_non_null(strstr(tw_last_error(), path));
        check_file("f", "old", 3);
        assert_int_equal(entries_in_folder(), 1);
    }
    assert_int_equal(save_limited(made, path, size), TW_OK);
    tw_state_destroy(made);
}

TEST_IN_FOLDER(a_folder_that_cannot_be_written_is_an_error)
{
    tw_state *made = make_everything();
    assert_int_equal(tw_state_save(made, in_folder("no/such/folder")), TW_ERROR_IO);
    assert_non_null(strstr(tw_last_error(), "no/such/folder: cannot be created")); /* not the file beside it */
    write_bytes("f", "old", 3);
    assert_int_equal(tw_state_save(made, in_folder("f/g")), TW_ERROR_IO);
    assert_int_equal(chmod(*state, 0500), 0);
    if (access(*state, W_OK) != 0) assert_int_equal(tw_state_save(made, in_folder("f")), TW_ERROR_IO);
    assert_int_equal(chmod(*state, 0700), 0);
    check_file("f", "old", 3);
    assert_int_equal(entries_in_folder(), 1);
    tw_state_destroy(made);
}

/* The last step fails: a folder stands where the file should go. */
TEST_IN_FOLDER(a_failed_rename_leaves_nothing_behind)
{
    tw_state *made = make_everything();
    assert_int_equal(mkdir(in_folder("taken"), 0700), 0);
    assert_int_equal(tw_state_save(made, in_folder("taken")), TW_ERROR_IO);
    assert_int_equal(entries_in_folder(), 1);
    tw_state_destroy(made);
}

TEST_IN_FOLDER(what_is_no_file_is_not_replaced)
{
    struct stat about;
    tw_state *made = make_everything();
    const char *path = in_folder("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(tw_state_save(made, path), TW_ERROR_IO);
    assert_non_null(strstr(tw_last_error(), "not a regular file"));
    assert_int_equal(stat(path, &about), 0);
    assert_true(S_ISFIFO(about.st_mode));
    assert_int_equal(entries_in_folder(), 1);
    tw_state_destroy(made);
}

TEST_IN_FOLDER(saving_without_memory_leaves_the_old_file)
{
    const char *path = in_folder("f");
    tw_state *made = make_everything();
    write_bytes("f", "old", 3);
    for (long n = 1;; n++) {
        tw_fail_allocation(n);
        tw_status status = tw_state_save(made, path);
        tw_fail_allocation(0);
        if (status == TW_OK) break;
        assert_int_equal(status, TW_ERROR_MEMORY);
        check_file("f", "old", 3);
        assert_int_equal(entries_in_folder(), 1);
    }
    tw_state_destroy(made);
}

RUN_TESTS(NULL, NULL)
