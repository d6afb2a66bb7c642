/* Texts that stay in their files: the same strips as in memory, wherever a window ends, and what happens when a file is
 * not what it was. */
#include "strips.h"
#include "support.h"
#include "support/random.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 300000, STEPS_MOST = 50, STRIPS = 7 };

/* Words of one to 40 letters of one to four bytes, so that windows end at every place of a word and of a letter. */
static void write_noise(const char *name)
{
    static const char *const letters[] = {"a", "b", "\u00e9", "\u20ac", "\U0001F600"};
    static char text[BYTES + 256];
    size_t used = 0;
    for (size_t i = 0; used < BYTES; i++) {
        for (unsigned n = draw(1, i, 40); n-- > 0;)
            used += (size_t)sprintf(text + used, "%s", letters[draw(2 + n, i, 5)]);
        used += (size_t)sprintf(text + used, "%s", draw(50, i, 9) ? " " : "\r\n");
    }
    write_text(name, text);
}

/* All strips from beginning to end, twice, as two epochs are. */
static void check_strips(const corpus *here, const corpus *stays, size_t steps)
{
    static int32_t read[4][STEPS_MOST * STRIPS];
    uint32_t room[STEPS_MOST + 1];
    strip_place places[STRIPS] = {0};
    strips a, b;
    assert_ok(strips_cut(&here->train, "training", 2 * STRIPS, 1, &a));
    assert_ok(strips_cut(&stays->train, "training", 2 * STRIPS, 1, &b));
    a = strips_slice(&a, 3, STRIPS);
    b = strips_slice(&b, 3, STRIPS);
    for (int epoch = 0; epoch < 2; epoch++)
        for (size_t at = 0; at + steps <= a.length; at += steps) {
            strips_read(&a, at, steps, read[0], read[1]);
            assert_ok(strips_read_file(&b, places, room, at, steps, read[2], read[3]));
            assert_memory_equal(read[0], read[2], steps * STRIPS * sizeof(int32_t));
            assert_memory_equal(read[1], read[3], steps * STRIPS * sizeof(int32_t));
        }
    for (size_t i = 0; i < STRIPS; i++) text_window_release(&places[i].window);
}

TEST_IN_FOLDER(strips_are_those_of_a_text_in_memory)
{
    write_noise("noise.txt");
    for (int unit = 0; unit < 2; unit++) {
        corpus here, stays;
        corpus_options options = {.unit = (text_unit)unit, .most = unit == TEXT_WORDS ? 50 : 4};
        assert_ok(corpus_load(in_folder("noise.txt"), &options, &here));
        options.most_bytes = BYTES;
        assert_ok(corpus_load(in_folder("noise.txt"), &options, &stays));
        assert_same_corpus(&here, &stays);
        for (size_t steps = 1; steps <= STEPS_MOST; steps += 49) check_strips(&here, &stays, steps);
        corpus_release(&here);
        corpus_release(&stays);
    }
}

/* A text of five times its size in memory is the most that is held. */
TEST_IN_FOLDER(what_fits_is_held)
{
    corpus c;
    char text[101] = "";
    for (int i = 0; i < 25; i++) strcat(text, "ab \n");
    write_text("hundred.txt", text);
    corpus_options options = {.unit = TEXT_CHARACTERS, .most_bytes = 500};
    assert_ok(corpus_load(in_folder("hundred.txt"), &options, &c));
    assert_non_null(c.train.tokens);
    corpus_release(&c);
    options.most_bytes = 499;
    assert_ok(corpus_load(in_folder("hundred.txt"), &options, &c));
    assert_null(c.train.tokens);
    corpus_release(&c);
}

TEST_IN_FOLDER(a_file_that_has_changed_is_named)
{
    corpus c;
    text_window w = {0};
    uint32_t ids[8];
    write_noise("noise.txt");
    const corpus_options options = {.unit = TEXT_CHARACTERS, .most_bytes = 1};
    assert_ok(corpus_load(in_folder("noise.txt"), &options, &c));
    assert_int_equal(truncate(in_folder("noise.txt"), 1000), 0);
    assert_fails(long_text_read(c.train.text, &w, 0, 8, ids), TW_ERROR_IO, "noise.txt: has become shorter");
    text_window_release(&w);
    write_noise("noise.txt"); /* the same bytes, at another time: who knows whether they are the same? */
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, in_folder("noise.txt"), times, 0), 0);
    assert_fails(long_text_read(c.train.text, &w, 0, 8, ids), TW_ERROR_IO, "noise.txt: has changed");
    text_window_release(&w);
    corpus_release(&c);
}

TEST_IN_FOLDER(a_word_of_a_mebibyte_is_refused)
{
    static char text[3 << 20];
    corpus c;
    memset(text, 'a', sizeof text - 1);
    text[1] = '\n';
    write_text("word.txt", text);
    const corpus_options options = {.unit = TEXT_WORDS, .most_bytes = 1};
    assert_fails(corpus_load(in_folder("word.txt"), &options, &c), TW_ERROR_FORMAT,
                 "word.txt: line 2: more than a MiB");
}

RUN_TESTS(NULL, NULL)
