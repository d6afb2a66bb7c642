/* Hand-made texts, and exactly the streams they must become. */
#include "support.h"

#include <thinwire/thinwire_plugin.h>

static const corpus_options words = {.unit = TEXT_WORDS}, characters = {.unit = TEXT_CHARACTERS};

/* The text that stays in its file is the same as the one in memory. */
static corpus load(const char *path, corpus_options options)
{
    corpus c, stays;
    if (corpus_load(path, &options, &c) != TW_OK) fail_msg("%s", tw_last_error());
    options.most_bytes = 1;
    if (corpus_load(path, &options, &stays) != TW_OK) fail_msg("%s", tw_last_error());
    assert_same_corpus(&c, &stays);
    corpus_release(&stays);
    return c;
}

TEST_IN_FOLDER(reads_the_layout_of_ptb)
{
    write_folder(" the cat saw the dog \n the <unk> \n", "the dog saw\n", "a cat\n");
    write_text("README.txt", "neither of the three\n");
    write_text("ptb.train.json", "{}");
    corpus c = load(test_folder, words);
    assert_vocabulary(c.vocabulary, LIST("the", "<eos>", "<unk>", "cat", "dog", "saw"));
    assert_tokens(c.vocabulary, &c.train, LIST("the", "cat", "saw", "the", "dog", "<eos>", "the", "<unk>", "<eos>"));
    assert_tokens(c.vocabulary, &c.valid, LIST("the", "dog", "saw", "<eos>"));
    assert_tokens(c.vocabulary, &c.test, LIST("<unk>", "cat", "<eos>"));
    assert_int_equal(c.valid.unknown, 0);
    assert_int_equal(c.test.unknown, 1);
    corpus_release(&c);
    assert_null(c.vocabulary);
}

/* Blank lines are ends of lines; "= Title =" is three words. */
TEST_IN_FOLDER(reads_the_layout_of_wikitext)
{
    write_text("wiki.train.tokens", " \n = Title = \n \n");
    write_text("wiki.valid.tokens", "=\n");
    write_text("contest.tokens", "the letters of test stand in it, but it is none\n");
    write_text("wiki.test.tokens", "Title\n");
    corpus c = load(test_folder, words);
    assert_tokens(c.vocabulary, &c.train, LIST("<eos>", "=", "Title", "=", "<eos>", "<eos>"));
    corpus_release(&c);
}

TEST_IN_FOLDER(reads_characters)
{
    write_folder("\xEF\xBB\xBFé a\né", "a a", "\né");
    corpus c = load(test_folder, characters);
    assert_vocabulary(c.vocabulary, LIST("é", "\n", " ", "a"));
    assert_tokens(c.vocabulary, &c.train, LIST("é", " ", "a", "\n", "é"));
    assert_tokens(c.vocabulary, &c.valid, LIST("a", " ", "a"));
    assert_tokens(c.vocabulary, &c.test, LIST("\n", "é"));
    corpus_release(&c);
}

/* Whatever the text's frequencies are; what it lacks is counted in every stream. */
TEST_IN_FOLDER(a_vocabulary_that_is_given_numbers_the_text)
{
    write_folder("cat cat ox cat\n", "dog\n", "hen dog\n");
    for (size_t most_bytes = 0; most_bytes < 2; most_bytes++) { /* in memory, and in its files */
        vocabulary *given = make(TEXT_WORDS, LIST("<eos>", "dog", "<unk>", "cat"));
        corpus c;
        assert_ok(corpus_load(test_folder, &(corpus_options){.vocabulary = given, .most_bytes = most_bytes}, &c));
        assert_vocabulary(c.vocabulary, LIST("<eos>", "dog", "<unk>", "cat"));
        assert_int_equal(c.train.count, 5);
        assert_int_equal(c.train.unknown, 1);
        assert_int_equal(c.test.unknown, 1);
        const uint32_t ids[] = {3, 3, 2, 3, 0};
        assert_int_equal(c.train_sum, tw_crc32c(0, ids, sizeof ids));
        corpus_release(&c);
    }
}

/* It is released with the corpus that could not be made. */
TEST_IN_FOLDER(a_vocabulary_that_lacks_a_word_is_refused)
{
    write_folder("cat ox\n", "cat\n", "cat\n");
    for (size_t most_bytes = 0; most_bytes < 2; most_bytes++) {
        vocabulary *given = make(TEXT_WORDS, LIST("<eos>", "cat"));
        corpus c;
        assert_fails(corpus_load(test_folder, &(corpus_options){.vocabulary = given, .most_bytes = most_bytes}, &c),
                     TW_ERROR_FORMAT, "train");
        assert_said("\"ox\"");
    }
}

TEST_IN_FOLDER(a_cap_makes_the_unknown)
{
    write_folder("a a a b b c d\n", "a d z\n", "b\n");
    corpus c = load(test_folder, (corpus_options){.unit = TEXT_WORDS, .most = 3});
    assert_vocabulary(c.vocabulary, LIST("<unk>", "a", "b")); /* <unk> for c, d and the end of the line: 3, as a */
    assert_tokens(c.vocabulary, &c.train, LIST("a", "a", "a", "b", "b", "<unk>", "<unk>", "<unk>"));
    assert_tokens(c.vocabulary, &c.valid, LIST("a", "<unk>", "<unk>", "<unk>"));
    assert_int_equal(c.valid.unknown, 3);
    assert_int_equal(c.test.unknown, 1);
    corpus_release(&c);
    c = load(test_folder, (corpus_options){.unit = TEXT_CHARACTERS, .most = 2});
    assert_vocabulary(c.vocabulary, LIST("<unk>", " "));
    corpus_release(&c);
}

/* Lines of four characters, "aaa\n" to train with, then "aab\n" ...: the cuts stand at line ends behind 90 and 95 %. */
TEST_IN_FOLDER(one_file_is_cut_at_line_ends)
{
    enum { LINES = 200 };
    char text[4 * LINES + 1] = "";
    for (int i = 0; i < LINES; i++) strcat(text, i % 2 ? "ab \n" : "ba\n\n");
    write_text("input.txt", text);
    corpus c = load(in_folder("input.txt"), characters);
    size_t valid = 4 * LINES / 10 * 9 + 1, test = 4 * LINES / 20 * 19; /* 720 begins a line: its end is at 722 */
    while (text[valid - 1] != '\n') valid++;
    do test++;
    while (text[test - 1] != '\n');
    assert_int_equal(c.train.count, valid);
    assert_int_equal(c.valid.count, test - valid);
    assert_int_equal(c.test.count, 4 * LINES - test);
    token_stream streams[3] = {c.train, c.valid, c.test};
    size_t at = 0;
    for (int s = 0; s < 3; s++)
        for (size_t i = 0; i < streams[s].count; i++, at++)
            assert_int_equal(*vocabulary_token(c.vocabulary, streams[s].tokens[i]), text[at]);
    corpus_release(&c);
}

/* A single line is cut behind a word, and where there is none between characters. */
TEST_IN_FOLDER(one_line_is_cut_too)
{
    char text[1001];
    for (int i = 0; i < 1000; i++) text[i] = i % 8 == 7 ? ' ' : (char)('a' + i % 8);
    text[1000] = 0;
    write_text("line.txt", text);
    corpus c = load(in_folder("line.txt"), characters);
    assert_int_equal(c.train.count, 904);
    assert_int_equal(c.valid.count, 952 - 904);
    assert_int_equal(c.test.count, 1000 - 952);
    corpus_release(&c);

    *text = 0;
    for (int i = 0; i < 333; i++) strcat(text, "\u20ac");
    write_text("euros.txt", text);
    c = load(in_folder("euros.txt"), characters); /* 999 bytes: cut at 899.1 and 949.05, that is at 900 and 951 */
    assert_int_equal(c.train.count, 300);
    assert_int_equal(c.valid.count, 17);
    assert_int_equal(c.test.count, 16);
    corpus_release(&c);
}

static void repeat(const char *text, int times, char *all)
{
    while (times-- > 0) strcat(all, text);
}

/* Where no space is near: between tabs, and in a text whose fortieth is shorter than a word. */
TEST_IN_FOLDER(no_word_is_cut)
{
    char text[1001] = "";
    repeat("tab\u20ac\tors\t", 90, text); /* 11 bytes each: 891 begins one, and 940 lies in a letter */
    write_text("tabs.txt", text);
    corpus c = load(in_folder("tabs.txt"), words);
    assert_int_equal(vocabulary_count(c.vocabulary), 2);
    assert_int_equal(c.train.count, 162);
    assert_int_equal(c.valid.count, 9);
    assert_int_equal(c.test.count, 9);
    corpus_release(&c);

    for (int begins = 0; begins < 2; begins++) { /* 400 bytes: 360 lies in the word of 20, or begins it */
        *text = 0;
        repeat("a-word-of-20-letters ", 1, text);
        repeat("aa ", begins, text);
        repeat("a ", 167 + begins, text);
        repeat("a-word-of-20-letters ", 1, text);
        repeat("a ", begins ? 9 : 12, text);
        repeat("a", begins, text);
        assert_int_equal(strlen(text), 400);
        write_text("few.txt", text);
        c = load(in_folder("few.txt"), words);
        assert_int_equal(c.train.count, 169 + begins);
        assert_int_equal(c.valid.count, begins ? 1 : 3);
        assert_int_equal(c.test.count, begins ? 10 : 9);
        corpus_release(&c);
    }
}

RUN_TESTS(NULL, NULL)
