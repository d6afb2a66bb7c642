/* Edit distance against the recursion that tries every alignment, and by its identities. */
#include "edit_distance.h"
#include "support.h"

static uint64_t edits(edit_counts c)
{
    return c.substitutions + c.insertions + c.deletions;
}

static int is_better(edit_counts a, edit_counts b)
{
    return edits(a) != edits(b) ? edits(a) < edits(b) : a.correct > b.correct;
}

static edit_counts plus(edit_counts a, edit_counts b)
{
    edit_add(&a, &b);
    return a;
}

/* The best of all alignments, by trying them. */
static edit_counts try_all(const uint32_t *r, size_t n, const uint32_t *h, size_t m)
{
    if (n == 0) return (edit_counts){.insertions = m};
    if (m == 0) return (edit_counts){.deletions = n};
    edit_counts pair = {.correct = *r == *h, .substitutions = *r != *h};
    edit_counts best = plus(pair, try_all(r + 1, n - 1, h + 1, m - 1));
    edit_counts deleted = plus((edit_counts){.deletions = 1}, try_all(r + 1, n - 1, h, m));
    edit_counts inserted = plus((edit_counts){.insertions = 1}, try_all(r, n, h + 1, m - 1));
    if (is_better(deleted, best)) best = deleted;
    return is_better(inserted, best) ? inserted : best;
}

static edit_counts compare(const uint32_t *r, size_t n, const uint32_t *h, size_t m)
{
    edit_counts counts = {0};
    assert_ok(edit_tokens(r, n, h, m, &counts));
    return counts;
}

static void assert_counts(edit_counts actual, edit_counts expected)
{
    assert_int_equal(actual.correct, expected.correct);
    assert_int_equal(actual.substitutions, expected.substitutions);
    assert_int_equal(actual.insertions, expected.insertions);
    assert_int_equal(actual.deletions, expected.deletions);
}

static size_t random_tokens(uint64_t stream, uint32_t kinds, uint32_t longest, uint32_t *dst)
{
    size_t count = draw(stream, 1000, longest + 1);
    for (size_t i = 0; i < count; i++) dst[i] = draw(stream, i, kinds);
    return count;
}

TEST(the_best_alignment_is_counted)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint32_t r[6], h[6], kinds = 1 + (uint32_t)seed % 4;
        size_t n = random_tokens(2 * seed, kinds, 6, r), m = random_tokens(2 * seed + 1, kinds, 6, h);
        assert_counts(compare(r, n, h, m), try_all(r, n, h, m));
    }
}

TEST(long_texts_keep_the_identities)
{
    enum { LONGEST = 200 };
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint32_t a[LONGEST], b[LONGEST], c[LONGEST];
        size_t n = random_tokens(1000 + 3 * seed, 5, LONGEST, a), m = random_tokens(1001 + 3 * seed, 5, LONGEST, b);
        size_t k = random_tokens(1002 + 3 * seed, 5, LONGEST, c);
        edit_counts there = compare(a, n, b, m), back = compare(b, m, a, n);
        assert_int_equal(there.correct + there.substitutions + there.deletions, n);
        assert_int_equal(there.correct + there.substitutions + there.insertions, m);
        assert_counts(
            back, (edit_counts){there.correct, there.substitutions, there.deletions, there.insertions}); /* swapped */
        assert_counts(compare(a, n, a, n), (edit_counts){.correct = n});
        assert_true(edits(there) <= edits(compare(a, n, c, k)) + edits(compare(c, k, b, m)));
    }
}

static edit_counts words(const char *reference, const char *hypothesis)
{
    edit_counts counts = {0};
    assert_ok(edit_words(reference, hypothesis, &counts));
    return counts;
}

static edit_counts characters(const char *reference, const char *hypothesis)
{
    edit_counts counts = {0};
    assert_ok(edit_characters(reference, hypothesis, &counts));
    return counts;
}

TEST(words_are_what_space_separates)
{
    assert_counts(words("the cat sat on the mat", "the cat sit on mat"),
                  (edit_counts){.correct = 4, .substitutions = 1, .deletions = 1});
    assert_counts(words("  the\tcat \n", "the cat"), (edit_counts){.correct = 2});
    assert_counts(words("a ab abc", "abc a ab"), (edit_counts){.correct = 2, .insertions = 1, .deletions = 1});
    assert_counts(words("", "a b"), (edit_counts){.insertions = 2});
    assert_counts(words("a b", " "), (edit_counts){.deletions = 2});
    assert_counts(words("", ""), (edit_counts){0});
}

TEST(characters_are_code_points)
{
    assert_counts(characters("kitten", "sitting"), (edit_counts){.correct = 4, .substitutions = 2, .insertions = 1});
    assert_counts(characters("na\xc3\xafve", "naive"), (edit_counts){.correct = 4, .substitutions = 1});
    assert_counts(characters("\xe2\x82\xac", "\xf0\x9f\x98\x80"), (edit_counts){.substitutions = 1});
    assert_counts(characters("\xe6\x97\xa5\xe6\x9c\xac", "\xe6\x97\xa5"), (edit_counts){.correct = 1, .deletions = 1});
    assert_counts(characters(" two  words ", "two words"), (edit_counts){.correct = 9});
    assert_counts(characters("two words", "twowords"), (edit_counts){.correct = 8, .deletions = 1});
}

/* A lead without what it announces, a stray byte, and a text that ends within a sequence. */
TEST(broken_utf8_is_taken_byte_by_byte)
{
    assert_counts(characters("\xc3"
                             "a",
                             "\xc3"
                             "b"),
                  (edit_counts){.correct = 1, .substitutions = 1});
    assert_counts(characters("\x80\xff", "\x80"), (edit_counts){.correct = 1, .deletions = 1});
    assert_counts(characters("\xe2\x82", "\xe2"), (edit_counts){.correct = 1, .deletions = 1});
    assert_counts(characters("a\xf0", "a"), (edit_counts){.correct = 1, .deletions = 1});
}

TEST(sums_do_not_depend_on_the_split)
{
    static const char *const pairs[][2] = {{"one two", "one to"}, {"three", "tree"}, {"", "four"}, {"five", ""}};
    edit_counts whole = {0}, parts[2] = {{0}, {0}};
    for (size_t i = 0; i < 4; i++) {
        assert_ok(edit_words(pairs[i][0], pairs[i][1], &whole));
        assert_ok(edit_words(pairs[i][0], pairs[i][1], &parts[i % 2]));
    }
    edit_add(&parts[1], &parts[0]);
    assert_counts(parts[1], whole);
    assert_counts(whole, (edit_counts){.correct = 1, .substitutions = 2, .insertions = 1, .deletions = 1});
    assert_true(edit_rate(&whole) == 1.0);
}

TEST(rates_of_nothing)
{
    assert_true(edit_rate(&(edit_counts){0}) == 0.0);
    assert_true(isinf(edit_rate(&(edit_counts){.insertions = 1})));
    assert_true(edit_rate(&(edit_counts){.correct = 1, .insertions = 3}) == 3.0);
}

RUN_TESTS(NULL, NULL)
