/* Texts that cannot be read, and what is said about them: the file, and where in it. */
#include "support.h"

static const corpus_options words = {.unit = TEXT_WORDS};

static void assert_refused_so(const char *path, corpus_options options, tw_status status, const char *name,
                              const char *said)
{
    corpus c;
    assert_fails(corpus_load(path, &options, &c), status, name);
    assert_said(said);
    assert_null(c.vocabulary);
    assert_null(c.train.tokens);
    assert_null(c.train.text);
}

/* In memory, and in its file. */
static void assert_text_refused(const char *path, corpus_options options, tw_status status, const char *name,
                                const char *said)
{
    assert_refused_so(path, options, status, name, said);
    options.most_bytes = 1;
    assert_refused_so(path, options, status, name, said);
}

TEST_IN_FOLDER(a_folder_must_hold_three)
{
    write_text("ptb.train.txt", "a\n");
    write_text("valid.txt", "a\n");
    assert_text_refused(test_folder, words, TW_ERROR_IO, test_folder, "no test text");
    write_text("test.txt", "a\n");
    write_text("train.tokens", "a\n");
    assert_text_refused(test_folder, words, TW_ERROR_FORMAT, "ptb.train.txt", "both are named as the train text");
    assert_text_refused(in_folder("nowhere"), words, TW_ERROR_IO, "nowhere", "cannot open");
}

TEST_IN_FOLDER(other_encodings)
{
    write_folder("a\nb\xe9\n", "a\n", "a\n");
    assert_text_refused(test_folder, words, TW_ERROR_FORMAT, "ptb.train.txt: line 2, byte offset 3: 0xe9", "not UTF-8");
    write_folder("a\n", "ab \xc3", "a\n");
    assert_text_refused(test_folder, words, TW_ERROR_FORMAT, "ptb.valid.txt: line 1, byte offset 3: 0xc3", "not UTF-8");
    write_bytes("ptb.valid.txt", "a\n\nb\0", 5);
    assert_text_refused(test_folder, words, TW_ERROR_FORMAT, "ptb.valid.txt: line 3, byte offset 4", "zero byte");
}

TEST_IN_FOLDER(empty_texts)
{
    write_folder("a\n", "a\n", "");
    assert_text_refused(test_folder, words, TW_ERROR_FORMAT, "ptb.test.txt", "empty");
    write_folder("  ", "a\n", "a\n");
    assert_text_refused(test_folder, words, TW_ERROR_FORMAT, "ptb.train.txt: line 1, byte offset 0", "no text");
    static const char *const short_ones[] = {"a", "ten bytes\n", "\xEF\xBB\xBFten bytes\n"};
    for (size_t i = 0; i < sizeof short_ones / sizeof *short_ones; i++) {
        write_text("short.txt", short_ones[i]);
        assert_text_refused(in_folder("short.txt"), (corpus_options){.unit = TEXT_CHARACTERS}, TW_ERROR_FORMAT,
                            i < 1 ? "short.txt has 1 bytes" : "short.txt has 10 bytes, too few", "its first 90 %");
    }
}

TEST_IN_FOLDER(too_many_different_words)
{
    write_folder("a b\nc a\nd", "a\n", "a\n"); /* a, b, the end of a line, c, d */
    assert_text_refused(test_folder, (corpus_options){.unit = TEXT_WORDS, .limit = 4}, TW_ERROR_FORMAT,
                        "ptb.train.txt: line 3", "more than 4 different words");
    assert_text_refused(test_folder, (corpus_options){.unit = TEXT_WORDS, .limit = 2}, TW_ERROR_FORMAT,
                        "ptb.train.txt: line 1", "more than 2 different words");
}

TEST_IN_FOLDER(unknown_tokens)
{
    write_folder("a b\n", "a\nb a\nb zwei a\n", "a\n");
    assert_text_refused(test_folder, words, TW_ERROR_FORMAT, "ptb.valid.txt: line 3",
                        "\"zwei\" is not in the vocabulary, which is that of the training text");
    assert_text_refused(test_folder, words, TW_ERROR_FORMAT, "--vocabulary N",
                        "words, or take characters with --unit char");
    write_folder("a b\n", "a\n", "a\n\nb\x1b[m\xc2\x9bm\n"); /* what could steer a terminal is shown, not sent */
    assert_text_refused(test_folder, words, TW_ERROR_FORMAT, "ptb.test.txt: line 3", "\"b\\x1b[m\\xc2\\x9bm\"");
    write_folder("ab", "a", "b\na");
    assert_text_refused(test_folder, (corpus_options){.unit = TEXT_CHARACTERS}, TW_ERROR_FORMAT, "ptb.test.txt: line 1",
                        "\"\\x0a\"");
    assert_text_refused(test_folder, words, TW_ERROR_FORMAT, "ptb.valid.txt: line 1", "\"a\"");
}

/* Of a part of a file, lines count from the file's beginning. */
TEST_IN_FOLDER(lines_of_a_single_file)
{
    char text[512] = "";
    for (int i = 0; i < 99; i++) strcat(text, "same\n");
    strcat(text, "other");
    write_text("input.txt", text);
    assert_text_refused(in_folder("input.txt"), words, TW_ERROR_FORMAT, "input.txt: line 100", "\"other\"");
}

RUN_TESTS(NULL, NULL)
