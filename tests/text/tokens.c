/* Words and characters; UTF-8 against all two-byte texts and every code point. */
#include "support.h"

static void assert_reads(text_unit unit, const char *text, const char *const *tokens)
{
    token_reader reader = {text, text + strlen(text), unit};
    const char *token;
    size_t length;
    for (; token_next(&reader, &token, &length); tokens++) {
        assert_non_null(*tokens);
        assert_int_equal(length, strlen(*tokens));
        assert_memory_equal(token, *tokens, length);
    }
    assert_null(*tokens);
}

TEST(words_stand_between_spaces)
{
    assert_reads(TEXT_WORDS, " a  bc\td \n\n e\r\nno end",
                 LIST("a", "bc", "d", "<eos>", "<eos>", "e", "<eos>", "no", "end"));
    assert_reads(TEXT_WORDS, "", LIST(NULL));
    assert_reads(TEXT_WORDS, "  ", LIST(NULL));
    assert_reads(TEXT_WORDS, "one", LIST("one"));
}

TEST(characters_are_code_points)
{
    assert_reads(TEXT_CHARACTERS, "a \n\u00e9\u20ac\U0001F600b",
                 LIST("a", " ", "\n", "\u00e9", "\u20ac", "\U0001F600", "b"));
}

/* Writes a code point as the Unicode standard defines it. */
static size_t put_point(uint32_t point, size_t length, char *text)
{
    static const unsigned char leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--, point >>= 6) text[i] = (char)(0x80 | (point & 0x3F));
    text[0] = (char)(leads[length] | point);
    return length;
}

TEST(every_code_point_has_one_form)
{
    for (uint32_t point = 0; point < 0x200000; point++) {
        size_t shortest = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
        int exists = point < 0xD800 || (point > 0xDFFF && point < 0x110000);
        for (size_t length = shortest; length <= 4; length++) {
            char text[4];
            put_point(point, length, text);
            assert_int_equal(utf8_length(text, 4), exists && length == shortest ? length : 0);
            if (exists && length > 1) assert_int_equal(utf8_length(text, length - 1), 0);
        }
    }
}

TEST(follow_up_bytes_are_checked)
{
    for (int second = 0; second < 256; second++) {
        int follows = second >= 0x80 && second < 0xC0;
        char two[] = {(char)0xC3, (char)second}, three[] = {(char)0xE2, (char)0x82, (char)second};
        assert_int_equal(utf8_length(two, 2), follows ? 2 : 0);
        assert_int_equal(utf8_length(three, 3), follows ? 3 : 0);
    }
    for (int first = 0x80; first < 0xC2; first++)
        assert_int_equal(utf8_length((char[]){(char)first, (char)0x80}, 2), 0);
    for (int first = 0xF5; first < 256; first++) {
        char text[] = {(char)first, (char)0x80, (char)0x80, (char)0x80};
        assert_int_equal(utf8_length(text, 4), 0);
    }
}

RUN_TESTS(NULL, NULL)
