/* Manifests, folders of words and LibriSpeech trees: what is read, and what wrong ones are told. */
#include "speech_corpus.h"
#include "support.h"

#include <limits.h>

static speech_corpus corpus;

static void load(const char *train, const char *test)
{
    if (speech_corpus_load(train, test, &corpus) != TW_OK) fail_msg("%s", tw_last_error());
}

TEST_IN_FOLDER(reads_a_manifest)
{
    write_text(
        "train.json",
        "{\"audio_filepath\": \"wav/a.wav\", \"duration\": 1.5, \"text\": \"hello \\u00e9\", \"lang\": [1, {}]}\n"
        "\n"
        "{\"audio_filepath\": \"/abs/b.flac\", \"offset\": 2.25, \"speaker\": \"s1\", \"channel\": 1}\r\n");
    write_text("test.json", "{\"audio_filepath\": \"c.wav\", \"text\": null, \"duration\": null}");
    load(in_folder("train.json"), in_folder("test.json"));
    assert_string_equal(corpus.format, "manifest");
    assert_int_equal(corpus.train.count, 2);
    assert_utterance(&corpus.train.items[0], "wav/a.wav", in_folder("wav/a.wav"), "hello \u00e9", "");
    assert_true(corpus.train.items[0].duration == 1.5 && corpus.train.items[0].offset == 0);
    assert_utterance(&corpus.train.items[1], "/abs/b.flac@2.25", "/abs/b.flac", NULL, "s1");
    assert_true(corpus.train.items[1].offset == 2.25 && corpus.train.items[1].duration == 0);
    assert_int_equal(corpus.train.items[0].channel, 0);
    assert_int_equal(corpus.train.items[1].channel, 2); /* counted from 1 */
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

TEST_IN_FOLDER(refuses_manifests)
{
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
    refuses_a_line("{\"audio_filepath\": \"a\", \"channel\": -1}", "\"channel\" is not a whole number from 0 to 63");
    refuses_a_line("{\"audio_filepath\": \"a\", \"channel\": 64}", "\"channel\" is not");
    refuses_a_line("{\"audio_filepath\": \"a\", \"channel\": 0.5}", "\"channel\" is not");
    refuses_a_line("{\"audio_filepath\": \"a\", \"channel\": \"left\"}", "\"channel\" is not");
    refuses_a_line("caf\xe9", "is not UTF-8");
    write_text("bad.json", "\n\n");
    assert_fails(speech_corpus_load(in_folder("bad.json"), NULL, &corpus), TW_ERROR_FORMAT, "no utterance in it");
}

/* Any byte of a manifest may be wrong: it is read all the same or refused with a line, and nothing else happens. */
TEST_IN_FOLDER(survives_every_damaged_byte)
{
    static const char good[] =
        "{\"audio_filepath\": \"a.wav\", \"duration\": 1.5, \"offset\": 2, \"text\": \"a\\u00e9\"}";
    static const char values[] = {0, '"', '}', '\\', '\n', '9', (char)0x80};
    char bytes[sizeof good];
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

TEST_IN_FOLDER(splits_every_tenth)
{
    enum { COUNT = 2000 };
    static char text[COUNT * 64];
    int length = 0;
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
    assert_fails(speech_corpus_load(in_folder("one.json"), NULL, &corpus), TW_ERROR_FORMAT, "name a test set");
}

static size_t find(const speech_list *list, const char *id)
{
    size_t found = 0;
    for (size_t i = 0; i < list->count; i++) found += strcmp(list->items[i].id, id) == 0;
    return found;
}

/* What is held out stays so in a corpus that has grown; the test part is not touched. */
TEST_IN_FOLDER(holds_a_share_out_by_id)
{
    enum { COUNT = 1000, MORE = 1500 };
    static char text[MORE * 64];
    speech_corpus small;
    int length = 0;
    for (int i = 0; i < MORE; i++) {
        length += snprintf(text + length, sizeof text - (size_t)length, "{\"audio_filepath\": \"%d.wav\"}\n", i);
        if (i == COUNT - 1) write_text("small.json", text);
    }
    write_text("large.json", text);
    write_text("test.json", "{\"audio_filepath\": \"t.wav\"}\n");
    load(in_folder("small.json"), in_folder("test.json"));
    small = corpus;
    assert_ok(speech_corpus_hold_out(0.2, &small));
    assert_int_equal(small.train.count + small.valid.count, COUNT);
    assert_in_range(small.valid.count, COUNT / 5 - 50, COUNT / 5 + 50);
    assert_int_equal(small.test.count, 1);
    load(in_folder("large.json"), in_folder("test.json"));
    assert_ok(speech_corpus_hold_out(0.2, &corpus));
    for (size_t i = 0; i < small.valid.count; i++) {
        assert_int_equal(find(&corpus.valid, small.valid.items[i].id), 1);
        assert_int_equal(find(&small.train, small.valid.items[i].id), 0);
    }
    speech_corpus_release(&corpus);
    speech_corpus_release(&small);
    load(in_folder("test.json"), in_folder("small.json"));
    assert_int_equal(speech_corpus_hold_out(0.2, &corpus), TW_ERROR_ARGUMENT);
    assert_said("--validation 0.2", "1 training utterances");
    speech_corpus_release(&corpus);
}

TEST_IN_FOLDER(reads_words_with_their_owners_split)
{
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

TEST_IN_FOLDER(keeps_to_names_in_utf_8)
{
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

TEST_IN_FOLDER(reads_a_librispeech_tree)
{
    static const char *const folders[] = {"set",      "set/train",  "set/train/19", "set/train/19/198",
                                          "set/test", "set/test/8", "set/test/8/1"};
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

TEST_IN_FOLDER(refuses_what_is_no_corpus)
{
    char long_path[PATH_MAX + 10];
    assert_int_equal(speech_corpus_load(in_folder("nowhere"), NULL, &corpus), TW_ERROR_IO);
    assert_said(in_folder("nowhere"), "cannot be read");
    write_text("file.txt", "x");
    assert_int_equal(speech_corpus_load(test_folder, NULL, &corpus), TW_ERROR_IO);
    assert_said(test_folder, "wav.scp", ".trans.txt", "LABEL_SPEAKER_INDEX.wav", "manifest");
    memset(long_path, 'a', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = 0;
    assert_int_equal(speech_corpus_load(long_path, NULL, &corpus), TW_ERROR_IO);
}

static size_t count_speakers(const speech_list *list, const char *speaker)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) count += strcmp(list->items[i].speaker, speaker) == 0;
    return count;
}

TEST_IN_FOLDER(a_tree_of_sounds_needs_no_transcripts)
{
    write_text("tree/4.gsm", "");
    write_text("tree/anna/1.wav", "");
    write_text("tree/anna/2.FLAC", "");
    write_text("tree/bert/notes.txt", "");
    write_text("tree/bert/deep/3.ogg", "");
    write_text("tree/.trash/0.wav", "");
    write_text("tree/anna/._1.wav", "");
    assert_fails(speech_corpus_load(in_folder("tree"), NULL, &corpus), TW_ERROR_IO, "no speech corpus here");
    assert_ok(speech_corpus_load_sounds(in_folder("tree"), in_folder("tree"), &corpus));
    assert_string_equal(corpus.format, "tree");
    assert_int_equal(corpus.train.count, 4);
    assert_utterance(&corpus.train.items[0], "4.gsm", in_folder("tree/4.gsm"), NULL, "");
    assert_utterance(&corpus.train.items[1], "anna/1.wav", in_folder("tree/anna/1.wav"), NULL, "anna");
    assert_utterance(&corpus.train.items[3], "bert/deep/3.ogg", in_folder("tree/bert/deep/3.ogg"), NULL, "bert/deep");
    speech_corpus_release(&corpus);
    assert_ok(speech_corpus_load_sounds(in_folder("tree"), NULL, &corpus));
    assert_int_equal(corpus.train.count + corpus.test.count, 4);
    const char *held = corpus.test.items[0].speaker; /* with all that this one says */
    assert_int_equal(count_speakers(&corpus.test, held), corpus.test.count);
    assert_int_equal(count_speakers(&corpus.train, held), 0);
    speech_corpus_release(&corpus);
    assert_ok(speech_corpus_load_sounds(in_folder("tree/anna"), NULL, &corpus)); /* of one speaker, one sound */
    assert_int_equal(corpus.test.count, 1);
    speech_corpus_release(&corpus);
    assert_fails(speech_corpus_load_sounds(in_folder("tree/bert/deep"), NULL, &corpus), TW_ERROR_FORMAT, "one sound");
    write_text("empty/notes.txt", "");
    assert_fails(speech_corpus_load_sounds(in_folder("empty"), NULL, &corpus), TW_ERROR_IO, "no speech corpus here");
}

RUN_TESTS(NULL, NULL)
