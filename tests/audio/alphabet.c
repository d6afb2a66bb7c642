/* Transcripts and alphabets, and the characters under them. */
#include "alphabet.h"
#include "code_point.h"
#include "support.h"
#include "text_lines.h"

TEST(every_character_there_and_back)
{
    char bytes[CODE_POINT_BYTES];
    uint32_t read;
    for (uint32_t point = 0; point <= 0x10ffff; point++) {
        if (point >= 0xd800 && point < 0xe000) continue;
        size_t length = code_point_write(point, bytes);
        assert_int_equal(code_point_read(bytes, sizeof bytes, &read), length);
        assert_int_equal(read, point);
        if (length > 1) assert_int_equal(code_point_read(bytes, length - 1, &read), 0);
    }
}

static void normalises(const char *src, const char *expected)
{
    char *dst = malloc(transcript_capacity(src));
    assert_non_null(dst);
    assert_int_equal(transcript_normalise(src, dst), TW_OK);
    assert_string_equal(dst, expected);
    free(dst);
}

TEST(transcripts_are_normalised)
{
    normalises("IT'S JUST SO HARD", "it's just so hard");
    normalises("  well-known,\tTHINGS\u2019  (2) ... ", "well known things' 2");
    normalises("\u00c4RGER \u0416\u0415 \u0391\u03a9 \u4f60\u597d",
               "\u00e4rger \u0436\u0435 \u03b1\u03c9 \u4f60\u597d");
    normalises("\u023a\u023a\u023a", "\u2c65\u2c65\u2c65"); /* two bytes become three */
    normalises("...", "");
    normalises("", "");
    char dst[16];
    assert_fails(transcript_normalise("caf\xe9", dst), TW_ERROR_FORMAT, "not UTF-8");
}

TEST(grows_from_transcripts)
{
    alphabet letters = {0}, again = {0};
    uint32_t numbers[32];
    size_t count;
    char *text, spoken[64];
    assert_int_equal(alphabet_add(&letters, "b c\u00e9a'"), TW_OK);
    assert_int_equal(alphabet_add(&letters, "cab"), TW_OK);
    assert_int_equal(alphabet_text(&letters, &text), TW_OK);
    assert_string_equal(text, " 'abc\u00e9");
    assert_int_equal(alphabet_encode(&letters, "a cab\u00e9", numbers, &count), TW_OK);
    static const uint32_t expected[] = {3, 1, 5, 3, 4, 6};
    assert_int_equal(count, 6);
    assert_memory_equal(numbers, expected, sizeof expected);
    alphabet_decode(&letters, numbers, count, spoken);
    assert_string_equal(spoken, "a cab\u00e9");

    assert_int_equal(alphabet_parse(text, &again), TW_OK);
    assert_int_equal(again.count, letters.count);
    assert_memory_equal(again.letters, letters.letters, again.count * sizeof *again.letters);
    free(text);
    alphabet_release(&again);
    assert_int_equal(alphabet_parse("\u00e9cb'a ", &again), TW_OK);
    assert_memory_equal(again.letters, letters.letters, again.count * sizeof *again.letters);
    alphabet_release(&again);
    assert_fails(alphabet_encode(&letters, "abd", numbers, &count), TW_ERROR_FORMAT, "no \"d\"");
    assert_fails(alphabet_encode(&letters, "a\u00fcb", numbers, &count), TW_ERROR_FORMAT, "no \"\u00fc\"");
    alphabet_release(&letters);
}

TEST(holds_thousands_of_letters)
{
    alphabet letters = {0};
    uint32_t numbers[1];
    size_t count;
    for (uint32_t point = 0x4e00 + 4999; point >= 0x4e00; point--) {
        char text[CODE_POINT_BYTES + 1] = "";
        code_point_write(point, text);
        assert_int_equal(alphabet_add(&letters, text), TW_OK);
    }
    assert_int_equal(letters.count, 5000);
    assert_int_equal(alphabet_encode(&letters, "\u4e03", numbers, &count), TW_OK);
    assert_int_equal(numbers[0], 4);
    alphabet_release(&letters);
}

TEST(refuses_alphabets)
{
    alphabet letters = {0};
    assert_int_equal(alphabet_parse("", &letters), TW_ERROR_FORMAT);
    assert_int_equal(alphabet_parse("ab\xff", &letters), TW_ERROR_FORMAT);
    assert_fails(alphabet_parse("aba", &letters), TW_ERROR_FORMAT, "letter twice: \"a\"");
    assert_null(letters.letters);
}

TEST_IN_FOLDER(reads_lines)
{
    text_lines lines;
    write_text("lines", "\xef\xbb\xbf"
                        "first  line\r\n\n \t\n  third\tone");
    assert_int_equal(text_lines_open(in_folder("lines"), &lines), TW_OK);
    char *line = text_lines_next(&lines);
    assert_string_equal(text_word(&line), "first");
    assert_string_equal(text_word(&line), "line");
    assert_string_equal(text_word(&line), "");
    line = text_lines_next(&lines);
    assert_int_equal(lines.number, 4);
    assert_string_equal(line, "third\tone");
    assert_null(text_lines_next(&lines));
    text_lines_close(&lines);
}

TEST_IN_FOLDER(refuses_lines)
{
    text_lines lines;
    write_text("latin", "one\ntwo\ncaf\xe9\n");
    assert_int_equal(text_lines_open(in_folder("latin"), &lines), TW_ERROR_FORMAT);
    assert_said(in_folder("latin"), "line 3 is not UTF-8", "0xe9");
    write_bytes("zero", "one\nt\0o\n", 8);
    assert_fails(text_lines_open(in_folder("zero"), &lines), TW_ERROR_FORMAT, "line 2");
    write_text("empty", "");
    assert_int_equal(text_lines_open(in_folder("empty"), &lines), TW_ERROR_FORMAT);
    assert_said(in_folder("empty"), "empty");
    assert_int_equal(text_lines_open(in_folder("missing"), &lines), TW_ERROR_IO);
}

TEST(shows_any_bytes)
{
    static const struct {
        const char *src;
        size_t capacity;
        const char *shown;
    } cases[] = {
        {"", 1, ""},
        {"a caf\u00e9 \U0001F600", 32, "a caf\u00e9 \U0001F600"},
        {"a\xe9z", 32, "a\\xe9z"},
        {"\xf0\x9f\x98", 32, "\\xf0\\x9f\\x98"},
        {"\x1b[1m\n\x7f\xc2\x85", 32, "\\x1b[1m\\x0a\\x7f\\xc2\\x85"},
        {"caf\u00e9", 6, "caf\u00e9"},
        {"caf\u00e9", 5, "caf"},
        {"a\xff", 5, "a"},
    };
    char shown[32];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(code_point_show(cases[i].src, strlen(cases[i].src), shown, cases[i].capacity),
                            cases[i].shown);
}

RUN_TESTS(NULL, NULL)
