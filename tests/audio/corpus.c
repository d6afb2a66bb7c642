/* Manifests, folders of words and LibriSpeech trees: what is read, and what wrong ones are told. */
#include "speech_corpus.h"
#include "support.h"

#include <limits.h>

static speech_corpus corpus;

static void load(const char *train, const char *test)
{
    if (speech_corpus_load(train, test, &corpus) != TW_OK) fail_msg("%s", tw_last_error());
}

static void assert_utterance(const speech_utterance *one, const char *id, const char *path, const char *text,
                             const char *speaker)
{
    assert_string_equal(one->id, id);
    assert_string_equal(one->path, path);
    assert_string_equal(one->speaker, speaker);
    if (text)
        assert_string_equal(one->text, text);
    else
        assert_null(one->text);
}

static void reads_a_manifest(void **state)
{
    (void)state;
    write_text(
        "train.json",
        "{\"audio_filepath\": \"wav/a.wav\", \"duration\": 1.5, \"text\": \"hello \\u00e9\", \"lang\": [1, {}]}\n"
        "\n"
        "{\"audio_filepath\": \"/abs/b.flac\", \"offset\": 2.25, \"speaker\": \"s1\"}\r\n");
    write_text("test.json", "{\"audio_filepath\": \"c.wav\", \"text\": null, \"duration\": null}");
    load(in_folder("train.json"), in_folder("test.json"));
    assert_string_equal(corpus.format, "manifest");
    assert_int_equal(corpus.train.count, 2);
    assert_utterance(&corpus.train.items[0], "wav/a.wav", in_folder("wav/a.wav"), "hello \u00e9", "");
    assert_true(corpus.train.items[0].duration == 1.5 && corpus.train.items[0].offset == 0);
    assert_utterance(&corpus.train.items[1], "/abs/b.flac@2.25", "/abs/b.flac", NULL, "s1");
    assert_true(corpus.train.items[1].offset == 2.25 && corpus.train.items[1].duration == 0);
    assert_utterance(&corpus.test.items[0], "c.wav", in_folder("c.wav"), NULL, "");
    speech_corpus_release(&corpus);
    load(test_folder, NULL); /* where they are called train.json and test.json */
    assert_int_equal(corpus.train.count, 2);
    assert_int_equal(corpus.test.count, 1);
    speech_corpus_release(&corpus);
}

static void refuses_a_line(const char *line, const char *words)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"audio_filepath\": \"a.wav\", \"text\": \"a\"}\n\n%s\n", line);
    write_text("bad.json", text);
    assert_int_equal(speech_corpus_load(in_folder("bad.json"), in_folder("bad.json"), &corpus), TW_ERROR_FORMAT);
    assert_said(in_folder("bad.json"), "line 3", words);
    assert_null(corpus.train.items);
}

static void refuses_manifests(void **state)
{
    (void)state;
    refuses_a_line("audio_filepath: a.wav", "is not a JSON object: audio_filepath: a.wav");
    refuses_a_line("{\"audio_filepath\": \"a.wav\"", "is not a JSON object");
    refuses_a_line("{\"audio_filepath\": \"a.wav\"} more", "is not a JSON object");
    refuses_a_line("[\"a.wav\"]", "is not a JSON object");
    refuses_a_line("{\"text\": \"a\"}", "no \"audio_filepath\"");
    refuses_a_line("{\"audio_filepath\": \"\"}", "no \"audio_filepath\"");
    refuses_a_line("{\"audio_filepath\": 3}", "\"audio_filepath\" is not a string");
    refuses_a_line("{\"audio_filepath\": \"a\", \"text\": 3}", "\"text\" is not a string");
    refuses_a_line("{\"audio_filepath\": \"a\", \"duration\": \"3\"}", "\"duration\" is not a number");
    refuses_a_line("{\"audio_filepath\": \"a\", \"offset\": -3}", "\"offset\" is not a number");
    refuses_a_line("{\"audio_filepath\": \"a\", \"offset\": 1e999}", "\"offset\" is not a number");
    refuses_a_line("caf\xe9", "is not UTF-8");
    write_text("bad.json", "\n\n");
    assert_int_equal(speech_corpus_load(in_folder("bad.json"), NULL, &corpus), TW_ERROR_FORMAT);
    assert_said("no utterance in it");
}

/* Any byte of a manifest may be wrong: it is read all the same or refused with a line, and nothing else happens. */
static void survives_every_damaged_byte(void **state)
{
    static const char good[] =
        "{\"audio_filepath\": \"a.wav\", \"duration\": 1.5, \"offset\": 2, \"text\": \"a\\u00e9\"}";
    static const char values[] = {0, '"', '}', '\\', '\n', '9', (char)0x80};
    char bytes[sizeof good];
    (void)state;
    for (size_t at = 0; at + 1 < sizeof good; at++) {
        for (size_t v = 0; v < sizeof values; v++) {
            memcpy(bytes, good, sizeof good);
            bytes[at] = values[v];
            write_bytes("damaged", bytes, sizeof good - 1);
            tw_status status = speech_corpus_load(in_folder("damaged"), in_folder("damaged"), &corpus);
            if (status != TW_OK) assert_said(in_folder("damaged"), "line ");
            speech_corpus_release(&corpus);
        }
    }
}

static void splits_every_tenth(void **state)
{
    enum { COUNT = 2000 };
    static char text[COUNT * 64];
    int length = 0;
    (void)state;
    for (int i = 0; i < COUNT; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "{\"audio_filepath\": \"%d.wav\"}\n", i);
    write_text("all.json", text);
    load(in_folder("all.json"), NULL);
    assert_int_equal(corpus.train.count + corpus.test.count, COUNT);
    assert_in_range(corpus.test.count, COUNT / 10 - 60, COUNT / 10 + 60);
    int last = -1;
    for (size_t i = 0; i < corpus.test.count; i++) {
        assert_true(atoi(corpus.test.items[i].id) > last); /* in the order of the file, none twice */
        last = atoi(corpus.test.items[i].id);
    }
    speech_corpus_release(&corpus);

    write_text("one.json", "{\"audio_filepath\": \"a.wav\"}\n");
    assert_int_equal(speech_corpus_load(in_folder("one.json"), NULL, &corpus), TW_ERROR_FORMAT);
    assert_said("name a test set");
}

static void reads_words_with_their_owners_split(void **state)
{
    (void)state;
    mkdir(in_folder("recordings"), 0700);
    write_text("recordings/7_george_4.wav", "x");
    write_text("recordings/7_george_5.wav", "x");
    write_text("recordings/0_de_la_mare_12.wav", "x");
    write_text("recordings/yes_bob_0.wav", "x");
    write_text("recordings/odd.wav", "x");
    write_text("recordings/readme.txt", "x");
    load(test_folder, NULL);
    assert_string_equal(corpus.format, "words");
    assert_int_equal(corpus.train.count, 3);
    assert_utterance(&corpus.train.items[0], "0_de_la_mare_12", in_folder("recordings/0_de_la_mare_12.wav"), "zero",
                     "de_la_mare");
    assert_utterance(&corpus.train.items[1], "7_george_5", in_folder("recordings/7_george_5.wav"), "seven", "george");
    assert_utterance(&corpus.train.items[2], "odd", in_folder("recordings/odd.wav"), NULL, "");
    assert_int_equal(corpus.test.count, 2);
    assert_utterance(&corpus.test.items[0], "7_george_4", in_folder("recordings/7_george_4.wav"), "seven", "george");
    assert_utterance(&corpus.test.items[1], "yes_bob_0", in_folder("recordings/yes_bob_0.wav"), "yes", "bob");
    speech_corpus_release(&corpus);
}

static void keeps_to_names_in_utf_8(void **state)
{
    (void)state;
    write_text("caf\xe9_bob_7.wav", "x");
    write_text("caf\u00e9_bob_7.wav", "x");
    write_text("\x1b[1m_bob_0.wav", "x");
    write_text("yes_bob_0.wav", "x");
    load(test_folder, NULL);
    assert_int_equal(corpus.train.count, 2);
    assert_utterance(&corpus.train.items[0], "caf\u00e9_bob_7", in_folder("caf\u00e9_bob_7.wav"), "caf\u00e9", "bob");
    assert_string_equal(corpus.train.items[1].id, "caf\\xe9_bob_7");
    assert_null(corpus.train.items[1].path);
    assert_non_null(strstr(corpus.train.items[1].fault, "name"));
    assert_int_equal(corpus.test.count, 2);
    assert_string_equal(corpus.test.items[0].id, "\\x1b[1m_bob_0");
    assert_non_null(corpus.test.items[0].fault);
    assert_null(corpus.test.items[1].fault);
    speech_corpus_release(&corpus);
}

static void reads_a_librispeech_tree(void **state)
{
    static const char *const folders[] = {"set",      "set/train",  "set/train/19", "set/train/19/198",
                                          "set/test", "set/test/8", "set/test/8/1"};
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) mkdir(in_folder(folders[i]), 0700);
    write_text("set/SPEAKERS.TXT", "; id | sex\n");
    write_text("set/train/19/198/19-198.trans.txt", "19-198-0000 NORTHANGER ABBEY\n19-198-0001 IT'S\n19-198-0002\n");
    write_text("set/test/8/1/8-1.trans.txt", "8-1-0000 TEST\n");
    load(in_folder("set"), NULL);
    assert_string_equal(corpus.format, "librispeech");
    assert_int_equal(corpus.train.count, 3);
    assert_utterance(&corpus.train.items[0], "19-198-0000", in_folder("set/train/19/198/19-198-0000.flac"),
                     "NORTHANGER ABBEY", "19");
    assert_utterance(&corpus.train.items[2], "19-198-0002", in_folder("set/train/19/198/19-198-0002.flac"), "", "19");
    assert_int_equal(corpus.test.count, 1);
    assert_utterance(&corpus.test.items[0], "8-1-0000", in_folder("set/test/8/1/8-1-0000.flac"), "TEST", "8");
    speech_corpus_release(&corpus);
    load(in_folder("set/test"), in_folder("set/train/19"));
    assert_int_equal(corpus.train.count, 1);
    assert_int_equal(corpus.test.count, 3);
    speech_corpus_release(&corpus);

    write_text("set/test/8/1/8-1.trans.txt", "8-1-0000 CAF\xc9\n");
    assert_int_equal(speech_corpus_load(in_folder("set"), NULL, &corpus), TW_ERROR_FORMAT);
    assert_said(in_folder("set/test/8/1/8-1.trans.txt"), "line 1 is not UTF-8");
}

static void refuses_what_is_no_corpus(void **state)
{
    char long_path[PATH_MAX + 10];
    (void)state;
    assert_int_equal(speech_corpus_load(in_folder("nowhere"), NULL, &corpus), TW_ERROR_IO);
    assert_said(in_folder("nowhere"), "cannot be read");
    write_text("file.txt", "x");
    assert_int_equal(speech_corpus_load(test_folder, NULL, &corpus), TW_ERROR_IO);
    assert_said(test_folder, "wav.scp", ".trans.txt", "LABEL_SPEAKER_INDEX.wav", "manifest");
    memset(long_path, 'a', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = 0;
    assert_int_equal(speech_corpus_load(long_path, NULL, &corpus), TW_ERROR_IO);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        CASE(reads_a_manifest),
        CASE(refuses_manifests),
        CASE(survives_every_damaged_byte),
        CASE(splits_every_tenth),
        CASE(reads_words_with_their_owners_split),
        CASE(keeps_to_names_in_utf_8),
        CASE(reads_a_librispeech_tree),
        CASE(refuses_what_is_no_corpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
