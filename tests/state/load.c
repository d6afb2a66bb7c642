/* Loading: the format's own vectors, and refusal of every file that is not exactly right. */
#include "support.h"

#include "memory.h"
#include "names.h"
#include "support/colliding_names.h"

#include <sys/stat.h>

/* Writes a file with this header, its length in front, and `size` bytes of data; loads it. */
static tw_status load_text(const char *header, size_t size, tw_state **loaded)
{
    unsigned char bytes[4096] = {0};
    uint64_t length = strlen(header);
    assert_true(8 + length + size <= sizeof bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < size; i++) bytes[8 + length + i] = (unsigned char)(i + 1);
    write_bytes("f", bytes, 8 + length + size);
    *loaded = NULL;
    return tw_state_load(in_folder("f"), loaded);
}

TEST_IN_FOLDER(known_files_load)
{
    static const unsigned char nothing[] = {8, 0, 0, 0, 0, 0, 0, 0, '{', '}', ' ', ' ', ' ', ' ', ' ', ' '};
    tw_state *loaded;
    tw_state_entry entry;
    write_bytes("f", nothing, sizeof nothing);
    assert_int_equal(tw_state_load(in_folder("f"), &loaded), TW_OK);
    assert_int_equal(tw_state_count(loaded), 0);
    tw_state_destroy(loaded);
    assert_int_equal(
        load_text("{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}", 24, &loaded), TW_OK);
    assert_int_equal(tw_state_at(loaded, 0, &entry), TW_OK);
    assert_string_equal(entry.name, "attn.0");
    assert_int_equal(entry.dtype, TW_F32);
    assert_int_equal(entry.dims, 3);
    assert_int_equal(entry.shape[2], 3);
    assert_int_equal(((const unsigned char *)entry.data)[23], 24);
    tw_state_destroy(loaded);
}

/* The header's order is the state's; the data may lie in another; fields and blanks may too. */
TEST_IN_FOLDER(order_and_blanks_are_free)
{
    tw_state *loaded;
    unsigned char got[3];
    tw_state_entry entry;
    assert_int_equal(load_text("{ \"b\" : { \"shape\":[ 2 ], \"data_offsets\":[1,3],\n\"dtype\":\"U8\" } ,\r\n"
                               "\"e\":{\"dtype\":\"F64\",\"shape\":[7,0],\"data_offsets\":[1,1]},"
                               "\"__metadata__\":{\"x\":\"y\\u00e4\\uD83D\\uDE00\\/\"},"
                               "\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}\t ",
                               3, &loaded),
                     TW_OK);
    assert_int_equal(tw_state_at(loaded, 0, &entry), TW_OK);
    assert_string_equal(entry.name, "b");
    assert_int_equal(tw_state_get(loaded, "b", TW_U8, 2, got), TW_OK);
    assert_int_equal(tw_state_get(loaded, "a", TW_U8, 1, got + 2), TW_OK);
    assert_memory_equal(got, "\2\3\1", 3);
    assert_string_equal(tw_state_text(loaded, "x"), "y\xc3\xa4\xf0\x9f\x98\x80/");
    tw_state_destroy(loaded);
}

#define ENTRY(name, begin, end) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #begin "," #end "]}"
#define FIELDS(fields) "{\"a\":{" fields "}}"

TEST_IN_FOLDER(bad_headers_are_refused)
{
    static const struct {
        const char *header;
        size_t size;
        tw_status expected;
    } cases[] = {
        {"{" ENTRY("a", 0, 4) "," ENTRY("b", 4, 8) "}", 8, TW_OK},
        {"{" ENTRY("a", 0, 4) "," ENTRY("b", 3, 7) "}", 7, TW_ERROR_FORMAT}, /* overlap */
        {"{" ENTRY("a", 0, 4) "," ENTRY("b", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("a", 0, 4) "," ENTRY("b", 5, 9) "}", 9, TW_ERROR_FORMAT}, /* hole */
        {"{" ENTRY("a", 1, 5) "}", 5, TW_ERROR_FORMAT},
        {"{" ENTRY("a", 0, 4) "}", 5, TW_ERROR_FORMAT}, /* trailing byte */
        {"{" ENTRY("a", 0, 4) "}", 3, TW_ERROR_FORMAT},
        {"{" ENTRY("a", 4, 0) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("a", 0, 3) "}", 3, TW_ERROR_FORMAT},                      /* not what the shape takes */
        {"{" ENTRY("a", 0, 4) "," ENTRY("a", 4, 8) "}", 8, TW_ERROR_FORMAT}, /* twice */
        {"{" ENTRY("a", 0, 4) "," ENTRY("\\u0061", 4, 8) "}", 8, TW_ERROR_FORMAT},
        {"{" ENTRY("a\\u0000b", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\\ud800", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\\ud800\\u0041", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\\udc00", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\\x", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\\u12g4", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\n", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\xff", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\xc0\x80", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\xed\xa0\x80", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\xe0\x80\x80", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\xf0\x80\x80\x80", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\xe2\x82", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("\xf4\x90\x80\x80", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("a", 0, 4) ",}", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("a", 0, 4) "} {", 4, TW_ERROR_FORMAT},
        {"{" ENTRY("a", 0, 4), 4, TW_ERROR_FORMAT},
        {" {" ENTRY("a", 0, 4) "}", 4, TW_ERROR_FORMAT},
        {"[]", 0, TW_ERROR_FORMAT},
        {"", 0, TW_ERROR_FORMAT},
        {"{\"a\":1}", 0, TW_ERROR_FORMAT},
        {"{a:{}}", 0, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]"), 4, TW_OK},
        {FIELDS("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]"), 4, TW_OK},
        {FIELDS("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"f16\",\"shape\":[2],\"data_offsets\":[0,4]"), 4, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"shape\":[2]"), 2, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"data_offsets\":[0,1]"), 1, TW_ERROR_FORMAT},
        {FIELDS("\"shape\":[2],\"data_offsets\":[0,2]"), 2, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"x\":1"), 2, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]"), 2, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"shape\":[2],\"shape\":[],\"data_offsets\":[0,2]"), 2, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"data_offsets\":[0,2]"), 2, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"), 1, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"shape\":[02],\"data_offsets\":[0,2]"), 2, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"shape\":[-2],\"data_offsets\":[0,2]"), 2, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"shape\":[2.0],\"data_offsets\":[0,2]"), 2, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"shape\":[2,],\"data_offsets\":[0,2]"), 2, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2,3]"), 2, TW_ERROR_FORMAT},
        /* 2^64 and products beyond it */
        {FIELDS("\"dtype\":\"U8\",\"shape\":[18446744073709551616],\"data_offsets\":[0,0]"), 0, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]"), 0, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0, TW_ERROR_FORMAT},
        {FIELDS("\"dtype\":\"U8\",\"shape\":[18446744073709551615],\"data_offsets\":[0,18446744073709551615]"), 0,
         TW_ERROR_FORMAT},
        {"{" ENTRY("a", 0, 4) ",\"b\":{\"dtype\":\"U8\",\"shape\":[18446744073709551612],\"data_offsets\":[4,0]}}", 0,
         TW_ERROR_FORMAT},
        {"{\"__metadata__\":{}}", 0, TW_OK},
        {"{\"__metadata__\":{\"a\":\"b\"}}", 0, TW_OK},
        {"{\"__metadata__\":{\"a\":1}}", 0, TW_ERROR_FORMAT},
        {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}}", 0, TW_ERROR_FORMAT},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, TW_ERROR_FORMAT},
        {"{\"__metadata__\":{\"a\":\"b\",}}", 0, TW_ERROR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tw_state *loaded;
        tw_status status = load_text(cases[i].header, cases[i].size, &loaded);
        if (status != cases[i].expected) fail_msg("%s: %s", cases[i].header, tw_last_error());
        if (status != TW_OK) assert_non_null(strstr(tw_last_error(), in_folder("f")));
        if (status != TW_OK) assert_null(loaded);
        tw_state_destroy(loaded);
    }
}

TEST_IN_FOLDER(an_unknown_type_is_named)
{
    tw_state *loaded;
    assert_int_equal(load_text(FIELDS("\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]"), 4, &loaded),
                     TW_ERROR_FORMAT);
    assert_non_null(strstr(tw_last_error(), "'a'"));
    assert_non_null(strstr(tw_last_error(), "F8_E4M3"));
}

/* What a file calls something comes to a terminal with the error: as it is, but for control characters. */
TEST_IN_FOLDER(no_name_speaks_to_a_terminal)
{
    tw_state *loaded;
    assert_int_equal(
        load_text(
            "{\"\\u001b]0;\\u009b\\u007f\\u0007\\u00e4\":{\"dtype\":\"\\r\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
            &loaded),
        TW_ERROR_FORMAT);
    assert_non_null(strstr(tw_last_error(), ": tensor '?]0;????\xc3\xa4' has type '?'; "));
}

TEST_IN_FOLDER(impossible_lengths_are_refused)
{
    static const uint64_t lengths[] = {0, 3, 9, 100000001, (uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        unsigned char bytes[16] = "........{}      ";
        tw_state *loaded;
        memcpy(bytes, &lengths[i], 8);
        write_bytes("f", bytes, sizeof bytes);
        assert_int_equal(tw_state_load(in_folder("f"), &loaded), TW_ERROR_FORMAT);
    }
}

/* A file large enough for the length it claims, most of it a hole: the limit refuses it before a byte is read. */
TEST_IN_FOLDER(a_header_beyond_the_limit_is_not_read)
{
    static const uint64_t length = 100000001;
    tw_state *loaded;
    write_bytes("f", &length, sizeof length);
    assert_int_equal(truncate(in_folder("f"), (off_t)(8 + length)), 0);
    assert_int_equal(tw_state_load(in_folder("f"), &loaded), TW_ERROR_FORMAT);
    assert_non_null(strstr(tw_last_error(), "100000001"));
}

TEST_IN_FOLDER(every_truncation_is_refused)
{
    tw_state *made = make_everything(), *loaded;
    size_t size;
    assert_int_equal(tw_state_save(made, in_folder("whole")), TW_OK);
    unsigned char *bytes = read_whole("whole", &size);
    for (size_t cut = 0; cut < size; cut++) {
        write_bytes("f", bytes, cut);
        assert_int_equal(tw_state_load(in_folder("f"), &loaded), TW_ERROR_FORMAT);
    }
    free(bytes);
    tw_state_destroy(made);
}

/* Whatever one byte becomes: refused, or a state that saves and loads again. */
TEST_IN_FOLDER(every_damaged_byte_is_survived)
{
    static const unsigned char flips[] = {0x01, 0x02, 0x08, 0x20, 0x80, 0xFF};
    tw_state *made = make_everything();
    size_t size;
    assert_int_equal(tw_state_save(made, in_folder("whole")), TW_OK);
    unsigned char *bytes = read_whole("whole", &size);
    for (size_t at = 0; at < size; at++)
        for (size_t i = 0; i < sizeof flips; i++) {
            tw_state *loaded = NULL;
            bytes[at] ^= flips[i];
            write_bytes("f", bytes, size);
            tw_status status = tw_state_load(in_folder("f"), &loaded);
            assert_true(status == TW_ERROR_FORMAT ||
                        (status == TW_OK && tw_state_count(loaded) == tw_state_count(made)));
            tw_state_destroy(loaded);
            bytes[at] ^= flips[i];
        }
    free(bytes);
    tw_state_destroy(made);
}

TEST_IN_FOLDER(what_is_no_file_is_an_io_error)
{
    tw_state *loaded;
    assert_int_equal(tw_state_load(in_folder("missing"), &loaded), TW_ERROR_IO);
    assert_non_null(strstr(tw_last_error(), "missing"));
    assert_int_equal(tw_state_load(*state, &loaded), TW_ERROR_IO);
    assert_int_equal(tw_state_load("/dev/zero", &loaded), TW_ERROR_IO);
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0); /* which nobody writes to */
    assert_int_equal(tw_state_load(in_folder("pipe"), &loaded), TW_ERROR_IO);
    assert_non_null(strstr(tw_last_error(), "not a regular file"));
}

TEST_IN_FOLDER(loading_without_memory_leaks_nothing)
{
    tw_state *made = make_everything(), *loaded = NULL;
    const char *path = in_folder("f");
    assert_int_equal(tw_state_save(made, path), TW_OK);
    tw_status status = TW_ERROR_MEMORY;
    for (long n = 1; status != TW_OK; n++) {
        assert_int_equal(status, TW_ERROR_MEMORY);
        assert_null(loaded);
        tw_fail_allocation(n);
        status = tw_state_load(path, &loaded);
    }
    tw_fail_allocation(0);
    assert_same_state(made, loaded);
    tw_state_destroy(loaded);
    tw_state_destroy(made);
}

/* A file of `count` tensors and as many texts, whose names were chosen to have one CRC. */
static void write_chosen(const char *path, unsigned count)
{
    colliding_names all = colliding_find();
    tw_state *made;
    assert_int_equal(tw_state_create(&made), TW_OK);
    for (unsigned i = 0; i < count; i++) {
        char name[COLLIDING_PLACES + 1];
        colliding_name(&all, i, name);
        assert_int_equal(tw_state_put(made, name, TW_U8, 0, NULL, "x"), TW_OK);
        assert_int_equal(tw_state_put_text(made, name, ""), TW_OK);
    }
    assert_int_equal(tw_state_save(made, path), TW_OK);
    tw_state_destroy(made);
}

/* Of a name the header's table and the state's each ask once or twice, and move it at most twice as they grow. */
TEST_IN_FOLDER(chosen_names_load_as_fast_as_any)
{
    enum { PROBES = 8 * 12 /* of a name and its text, with room for bad luck */ };
    for (unsigned count = 100; count <= 6400; count *= 4) {
        tw_state *loaded;
        write_chosen(in_folder("f"), count);
        uint64_t before = tw_names_probes();
        assert_int_equal(tw_state_load(in_folder("f"), &loaded), TW_OK);
        uint64_t probes = tw_names_probes() - before;
        assert_true(probes >= count && probes <= (uint64_t)PROBES * count);
        assert_int_equal(tw_state_count(loaded), count);
        tw_state_destroy(loaded);
    }
}

/* A header of a million times the same text is refused at its first fault: nothing in it is read twice, nothing calls
 * itself. */
TEST_IN_FOLDER(what_never_ends_is_refused)
{
    enum { REPEATS = 1000000 };
    static const char *const endless[] = {"{\"a\":", "{", "[", "\"", "\\u00e4", " ", "{\"a\":["};
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
        tw_state *loaded = NULL;
        size_t length = strlen(endless[i]), size = length * REPEATS;
        uint64_t header = size + 1;
        char *bytes = malloc(8 + size + 1);
        assert_non_null(bytes);
        memcpy(bytes, &header, 8);
        bytes[8] = '{';
        for (size_t r = 0; r < REPEATS; r++) memcpy(bytes + 9 + r * length, endless[i], length);
        write_bytes("f", bytes, 8 + size + 1);
        assert_int_equal(tw_state_load(in_folder("f"), &loaded), TW_ERROR_FORMAT);
        assert_null(loaded);
        free(bytes);
    }
}

RUN_TESTS(NULL, NULL)
