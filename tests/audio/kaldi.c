/* Kaldi directories: sounds, segments, speakers, and why pipes are refused. */
#include "speech_corpus.h"
#include "support.h"

static speech_corpus corpus;

static void load(void)
{
    if (speech_corpus_load(in_folder("data"), in_folder("data"), &corpus) != TW_OK) fail_msg("%s", tw_last_error());
}

TEST_IN_FOLDER(reads_sounds)
{
    write_text("data/text", "s2-b TWO WORDS\ns1-a ONE\n");
    write_text("data/wav.scp", "s2-b /somewhere/b.wav\ns1-a\twav/a.wav\ns3-c up.wav\ns4-d lost.wav\n");
    write_text("data/utt2spk", "s1-a s1\ns2-b s2\n");
    mkdir(in_folder("data/wav"), 0700);
    write_text("data/wav/a.wav", "x");
    write_text("up.wav", "x");
    load();
    const speech_list *list = &corpus.train;
    assert_string_equal(corpus.format, "kaldi");
    assert_int_equal(list->count, 4);
    assert_utterance(&list->items[0], "s1-a", in_folder("data/wav/a.wav"), "ONE", "s1"); /* in the order of ids */
    assert_utterance(&list->items[1], "s2-b", "/somewhere/b.wav", "TWO WORDS", "s2");
    assert_utterance(&list->items[2], "s3-c", in_folder("data/../up.wav"), NULL, "");
    assert_utterance(&list->items[3], "s4-d", in_folder("data/lost.wav"), NULL, "");
    speech_corpus_release(&corpus);
}

TEST_IN_FOLDER(reads_segments)
{
    write_text("data/text", "u1 one\nu2 two\n");
    write_text("data/wav.scp", "rec /x/rec.wav\nunused cat x |\n");
    write_text("data/segments", "u1 rec 0.25 1.5\nu2 rec 2 2.125\n");
    load();
    assert_int_equal(corpus.train.count, 2);
    assert_true(corpus.train.items[0].offset == 0.25 && corpus.train.items[0].duration == 1.25);
    assert_true(corpus.train.items[1].offset == 2 && corpus.train.items[1].duration == 0.125);
    assert_utterance(&corpus.train.items[1], "u2", "/x/rec.wav", "two", "");
    speech_corpus_release(&corpus);
}

static void assert_fault(const speech_utterance *one, const char *id, const char *fault)
{
    assert_string_equal(one->id, id);
    assert_null(one->path);
    assert_string_equal(one->fault, fault);
}

TEST_IN_FOLDER(lists_texts_without_a_sound)
{
    write_text("data/text", "u1 one\nu0 none\nrec of the whole\n");
    write_text("data/wav.scp", "u1 /x/u1.wav\nrec /x/rec.wav\n");
    load();
    assert_int_equal(corpus.train.count, 3);
    assert_null(corpus.train.items[0].fault);
    assert_fault(&corpus.train.items[2], "u0", "in text, but not in wav.scp");
    speech_corpus_release(&corpus);
    write_text("data/segments", "u1 rec 0 1\n");
    load();
    assert_int_equal(corpus.train.count, 3);
    assert_string_equal(corpus.train.items[0].path, "/x/rec.wav");
    assert_fault(&corpus.train.items[1], "rec", "in text, but not in segments");
    assert_fault(&corpus.train.items[2], "u0", "in text, but not in segments");
    speech_corpus_release(&corpus);
}

TEST_IN_FOLDER(reads_sounds_named_by_id)
{
    write_text("data/text", "1\tIT'S\n2\tSO\n");
    mkdir(in_folder("data/flac"), 0700);
    load();
    assert_int_equal(corpus.train.count, 2);
    assert_utterance(&corpus.train.items[0], "1", in_folder("data/flac/1.flac"), "IT'S", "");
    speech_corpus_release(&corpus);
}

static void refuses(const char *file, const char *line, const char *words)
{
    assert_int_equal(speech_corpus_load(in_folder("data"), in_folder("data"), &corpus), TW_ERROR_FORMAT);
    assert_said(in_folder(file), line, words);
    assert_null(corpus.train.items);
}

TEST_IN_FOLDER(refuses_wrong_tables)
{
    write_text("data/text", "u1 one\n");
    write_text("data/wav.scp", "u0 a.wav\n\nu1 sph2pipe -f wav a.sph |\n");
    refuses("data/wav.scp", "line 3", "a command, which is not run (sph2pipe -f wav a.sph |)");
    write_text("data/wav.scp", "u1\n");
    refuses("data/wav.scp", "line 1", "no file for \"u1\"");
    write_text("data/wav.scp", "u1 a.wav\nu2 b.wav\nu1 c.wav\n");
    refuses("data/wav.scp", "line 1 and in line 3", "\"u1\"");
    write_text("data/wav.scp", "rec a.wav\n");
    static const char *const wrong[] = {"u1 rec 1",    "u1 rec 2 1",   "u1 rec -1 1", "u1 rec a b",
                                        "u1 rec 0 1x", "u1 rec 0 inf", "u1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        write_text("data/segments", wrong[i]);
        refuses("data/segments", "line 1", "begin and end");
    }
    write_text("data/segments", "u1 other 0 1\n");
    refuses("data/segments", "\"other\"", "not in wav.scp");
    write_text("data/text", "u1 caf\xe9\n");
    refuses("data/text", "line 1", "not UTF-8");
    write_text("data/text", "");
    refuses("data/text", "empty", "");
    remove(in_folder("data/text"));
    assert_fails(speech_corpus_load(in_folder("data"), NULL, &corpus), TW_ERROR_IO, in_folder("data/text"));
}

TEST_IN_FOLDER(sounds_need_no_text)
{
    write_text("bare/wav.scp", "a1 /x/1.wav\na2 /x/2.wav\nb1 /x/3.wav\n");
    write_text("bare/utt2spk", "a1 anna\na2 anna\nb1 bert\n");
    assert_ok(speech_corpus_load_sounds(in_folder("bare"), in_folder("bare"), &corpus));
    assert_int_equal(corpus.train.count, 3);
    assert_utterance(&corpus.train.items[1], "a2", "/x/2.wav", NULL, "anna");
    speech_corpus_release(&corpus);
}

RUN_TESTS(NULL, NULL)
