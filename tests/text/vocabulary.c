/* Tokens and ids, their ranking, and the text a checkpoint keeps. */
#include "support.h"
#include "support/colliding_names.h"

TEST(ids_follow_the_order_of_adding)
{
    vocabulary *v = make(TEXT_WORDS, LIST("b", "a", "ab"));
    uint32_t id;
    assert_vocabulary(v, LIST("b", "a", "ab"));
    assert_int_equal(vocabulary_add(v, "a", 1, &id), TW_OK);
    assert_int_equal(id, 1);
    assert_int_equal(vocabulary_count(v), 3);
    assert_int_equal(vocabulary_find(v, "abc", 3), VOCABULARY_NONE);
    assert_int_equal(vocabulary_find(v, "abc", 2), 2);
    vocabulary_destroy(v);
    vocabulary_destroy(NULL);
}

TEST(many_tokens_are_found_again)
{
    enum { MANY = 200000 };
    char token[16];
    uint32_t id;
    vocabulary *v = make(TEXT_WORDS, LIST(NULL));
    for (uint32_t i = 0; i < MANY; i++) {
        int length = snprintf(token, sizeof token, "%u", i);
        assert_int_equal(vocabulary_add(v, token, (size_t)length, &id), TW_OK);
        assert_int_equal(id, i);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        snprintf(token, sizeof token, "%u", i);
        assert_int_equal(id_of(v, token), i);
        assert_string_equal(vocabulary_token(v, i), token);
    }
    assert_int_equal(id_of(v, "200000"), VOCABULARY_NONE);
    vocabulary_destroy(v);
}

/* All have one CRC-32C: where the table were keyed by that, each would be compared with all before it, for an hour. */
TEST(words_that_were_chosen_are_found_as_soon_as_any)
{
    enum { MANY = 400000 };
    const colliding_names all = colliding_find();
    char token[2 * COLLIDING_PLACES + 1];
    uint32_t id;
    vocabulary *v = make(TEXT_WORDS, LIST(NULL));
    for (uint32_t i = 0; i < MANY; i++) {
        colliding_name(&all, i / COLLIDING_MOST, token);
        colliding_name(&all, i % COLLIDING_MOST, token + COLLIDING_PLACES);
        assert_int_equal(vocabulary_add(v, token, 2 * COLLIDING_PLACES, &id), TW_OK);
        assert_int_equal(id, i);
    }
    assert_int_equal(vocabulary_find(v, token, 2 * COLLIDING_PLACES), MANY - 1);
    vocabulary_destroy(v);
}

TEST(the_unknown_stand_behind_one_token)
{
    vocabulary *v = make(TEXT_WORDS, LIST("a"));
    assert_int_equal(vocabulary_find_or_unknown(v, "z", 1), VOCABULARY_NONE);
    vocabulary_destroy(v);
    v = make(TEXT_WORDS, LIST("a", "<unk>"));
    assert_int_equal(vocabulary_find_or_unknown(v, "z", 1), 1);
    assert_int_equal(vocabulary_find_or_unknown(v, "a", 1), 0);
    vocabulary_destroy(v);
}

static void assert_ranks(const char *const *met, const uint64_t *often, size_t most, const char *const *ranked)
{
    vocabulary *from = make(TEXT_WORDS, met), *to;
    assert_int_equal(vocabulary_rank(from, often, most, &to), TW_OK);
    assert_vocabulary(to, ranked);
    assert_int_equal(vocabulary_unit(to), TEXT_WORDS);
    vocabulary_destroy(from);
    vocabulary_destroy(to);
}

TEST(frequent_tokens_come_first)
{
    assert_ranks(LIST("c", "\u00e9", "b", "a"), (uint64_t[]){2, 2, 7, 2}, 0,
                 LIST("b", "a", "c", "\u00e9")); /* bytes above 127 sort behind ASCII */
    assert_ranks(LIST("c", "b", "a"), (uint64_t[]){1, 1, 1}, 3, LIST("a", "b", "c"));
}

/* d, e and f give way: together 6, more than b's 5. */
TEST(the_rarest_become_one)
{
    assert_ranks(LIST("f", "a", "e", "b", "d"), (uint64_t[]){1, 9, 2, 5, 3}, 3, LIST("a", "<unk>", "b"));
    assert_ranks(LIST("<unk>", "a", "b", "c"), (uint64_t[]){4, 9, 2, 1}, 3, LIST("a", "<unk>", "b"));
    assert_ranks(LIST("a", "b", "<unk>"), (uint64_t[]){3, 2, 1}, 3, LIST("a", "b", "<unk>"));
}

static void assert_round_trip(text_unit unit, const char *const *tokens, const char *expected)
{
    vocabulary *v = make(unit, tokens), *back;
    char *text, *again;
    assert_int_equal(vocabulary_write(v, &text), TW_OK);
    assert_string_equal(text, expected);
    assert_int_equal(vocabulary_read(text, &back), TW_OK);
    assert_int_equal(vocabulary_unit(back), unit);
    assert_vocabulary(back, tokens);
    assert_int_equal(vocabulary_write(back, &again), TW_OK);
    assert_string_equal(again, text);
    free(text);
    free(again);
    vocabulary_destroy(v);
    vocabulary_destroy(back);
}

TEST(text_and_back)
{
    assert_round_trip(TEXT_WORDS, LIST("the", "<eos>", "a\\nb", "\\"), "words\nthe\n<eos>\na\\\\nb\n\\\\\n");
    assert_round_trip(TEXT_CHARACTERS, LIST("\n", " ", "\\", "n", "\u20ac", "<unk>"),
                      "characters\n\\n\n \n\\\\\nn\n\u20ac\n<unk>\n");
}

static void assert_unreadable(const char *text, const char *words)
{
    vocabulary *v;
    assert_int_equal(vocabulary_read(text, &v), TW_ERROR_FORMAT);
    if (!strstr(tw_last_error(), words)) fail_msg("\"%s\" should say \"%s\"", tw_last_error(), words);
}

TEST(damaged_texts_are_refused)
{
    assert_unreadable("", "begins neither");
    assert_unreadable("word\na\n", "begins neither");
    assert_unreadable("wordsa\n", "begins neither");
    assert_unreadable("words\n", "empty");
    assert_unreadable("words\na\n\nb\n", "line 3 is not a token");
    assert_unreadable("words\na\nb", "line 3 is not a token");
    assert_unreadable("words\na\\tb\n", "line 2 is not a token");
    assert_unreadable("words\na\\", "line 2 is not a token");
    assert_unreadable("words\na\nb\na\n", "line 4 repeats line 2");
    assert_unreadable("characters\na\nbc\n", "line 3 is not a token");
    assert_unreadable("characters\n\xff\n", "line 2 is not a token");
}

RUN_TESTS(NULL, NULL)
