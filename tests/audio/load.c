/* Loading: what is kept equals sound, features and transcript by themselves; what is left out is counted. */
#include "log_mel.h"
#include "sound.h"
#include "speech_data.h"
#include "support.h"

static speech_corpus corpus;
static alphabet letters;
static speech_set set;
static speech_request request = {
    .channel = SOUND_MONO, .most_seconds = 1.01, .most_bytes = 1 << 20, .most_bytes_option = "--limit"};

/* What 4,000 samples become: 48 windows are 24 rows. */
#define ROWS (sizeof(float) * 24 * 16)

static int set_up(void **state)
{
    assert_int_equal(feature_settings_parse("rate=8000,bins=8,stack=2,stride=2", &request.features), TW_OK);
    return make_folder(state);
}

static void list_corpus(const char *text)
{
    write_text("train.json", text);
    if (speech_corpus_load(in_folder("train.json"), in_folder("train.json"), &corpus) != TW_OK)
        fail_msg("%s", tw_last_error());
    assert_int_equal(speech_alphabet(&corpus.train, &letters), TW_OK);
}

static void forget(void)
{
    speech_release(&set);
    alphabet_release(&letters);
    speech_corpus_release(&corpus);
}

TEST_BETWEEN(keeps_features_and_targets, set_up, remove_folder)
{
    float *samples, *rows;
    size_t count;
    log_mel *extractor;
    write_noise("a.wav", 1, 4000);
    write_noise("b.wav", 2, 6000);
    list_corpus("{\"audio_filepath\": \"a.wav\", \"text\": \"Abba\"}\n"
                "{\"audio_filepath\": \"b.wav\", \"text\": \"c a\", \"offset\": 0.25}\n");
    assert_int_equal(speech_load(&corpus.train, &letters, &request, &set), TW_OK);
    assert_int_equal(set.count, 2);
    assert_int_equal(set.width, 16);
    assert_float_equal(set.seconds, 1.0, 1e-9);
    static const uint32_t abba[] = {2, 3, 3, 2}, c_a[] = {4, 1, 2};
    assert_int_equal(set.items[0].target_count, 4);
    assert_memory_equal(set.items[0].targets, abba, sizeof abba);
    assert_int_equal(set.items[1].target_count, 3);
    assert_memory_equal(set.items[1].targets, c_a, sizeof c_a);

    const sound_request piece = {.rate = 8000, .channel = SOUND_MONO, .offset = 0.25, .most_seconds = 1};
    assert_int_equal(sound_read(in_folder("b.wav"), &piece, &samples, &count), TW_OK);
    size_t frames = feature_frames(&request.features, count);
    assert_int_equal(set.items[1].frames, frames);
    rows = malloc(frames * 16 * sizeof *rows);
    assert_non_null(rows);
    assert_int_equal(log_mel_create(&request.features, &extractor), TW_OK);
    assert_int_equal(log_mel_extract(extractor, samples, count, rows), TW_OK);
    assert_memory_equal(set.items[1].rows, rows, frames * 16 * sizeof *rows);
    log_mel_destroy(extractor);
    free(rows);
    free(samples);
    assert_int_equal(skips_total(&set.skipped), 0);
    forget();
}

/* The request asks for files of one channel; a line of the manifest may know better. */
TEST_BETWEEN(takes_the_channel_of_the_line, set_up, remove_folder)
{
    static float stereo[2 * 4000];
    write_noise("a.wav", 1, 4000);
    const sound_request all = {.rate = 8000, .channel = SOUND_MONO, .most_seconds = 1};
    float *samples;
    size_t count;
    assert_int_equal(sound_read(in_folder("a.wav"), &all, &samples, &count), TW_OK);
    for (size_t i = 0; i < count; i++) stereo[2 * i + 1] = samples[i];
    free(samples);
    write_sound("two.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 2, 8000, stereo, count);
    list_corpus("{\"audio_filepath\": \"a.wav\", \"text\": \"a\"}\n"
                "{\"audio_filepath\": \"two.wav\", \"text\": \"a\", \"channel\": 1}\n");
    assert_int_equal(speech_load(&corpus.train, &letters, &request, &set), TW_OK);
    assert_int_equal(set.count, 2);
    assert_memory_equal(set.items[0].rows, set.items[1].rows, ROWS);
    forget();
}

TEST_BETWEEN(counts_what_it_leaves_out, set_up, remove_folder)
{
    float stereo[800] = {0};
    char text[SKIPS_TEXT];
    alphabet known = {0};
    write_noise("good.wav", 1, 4000);
    write_noise("long.wav", 1, 8100);
    write_noise("short.wav", 1, 360); /* 3 windows: 2 rows */
    write_text("text.wav", "not a sound");
    write_text("empty.wav", "");
    write_sound("stereo.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 2, 8000, stereo, 400);
    list_corpus("{\"audio_filepath\": \"good.wav\", \"text\": \"ab\"}\n"
                "{\"audio_filepath\": \"silent.wav\"}\n"
                "{\"audio_filepath\": \"good.wav\", \"text\": \" ... \"}\n"
                "{\"audio_filepath\": \"long.wav\", \"text\": \"ab\"}\n"
                "{\"audio_filepath\": \"text.wav\", \"text\": \"ab\"}\n"
                "{\"audio_filepath\": \"empty.wav\", \"text\": \"ab\"}\n"
                "{\"audio_filepath\": \"missing.wav\", \"text\": \"ab\"}\n"
                "{\"audio_filepath\": \"stereo.wav\", \"text\": \"ab\"}\n"
                "{\"audio_filepath\": \"good.wav\", \"text\": \"abx\"}\n"
                "{\"audio_filepath\": \"short.wav\", \"text\": \"ab\"}\n"
                "{\"audio_filepath\": \"short.wav\", \"text\": \"aa\"}\n");
    assert_int_equal(alphabet_parse("ab ", &known), TW_OK);
    assert_int_equal(speech_load(&corpus.train, &known, &request, &set), TW_OK);
    assert_int_equal(set.count, 2);
    assert_int_equal(set.items[1].source, 9);
    static const size_t expected[SKIP_REASONS] = {2, 5, 1, 1, 0};
    assert_memory_equal(set.skipped.count, expected, sizeof expected);
    skips_text(&set.skipped, text);
    assert_null(strchr(text, '\n'));
    assert_non_null(strstr(text, "9 utterances skipped: 2 without a transcript (first: silent.wav), 5 with unusable "
                                 "audio (first: "));
    assert_non_null(strstr(text, "long.wav: longer than 1.01 s"));
    assert_non_null(strstr(text, "1 with characters outside the alphabet (good.wav: the alphabet has no \"x\"), 1 too "
                                 "short (short.wav: 2 frames for 2 letters)"));
    alphabet_release(&known);
    forget();
}

TEST_BETWEEN(leaves_out_what_has_a_fault, set_up, remove_folder)
{
    char text[SKIPS_TEXT];
    write_noise("data/good.wav", 1, 4000);
    write_text("data/text", "u1 ab\nu2 xy\nu3 a\n");
    write_text("data/wav.scp", "u1 good.wav\n");
    assert_int_equal(speech_corpus_load(in_folder("data"), in_folder("data"), &corpus), TW_OK);
    assert_int_equal(speech_alphabet(&corpus.train, &letters), TW_OK);
    assert_int_equal(letters.count, 2); /* x and y cannot be learned */
    assert_int_equal(speech_load(&corpus.train, &letters, &request, &set), TW_OK);
    assert_int_equal(set.count, 1);
    assert_string_equal(skips_text(&set.skipped, text),
                        "2 utterances skipped: 2 with unusable audio (first: u2: in text, but not in wav.scp)");
    forget();
}

TEST_BETWEEN(needs_something_left, set_up, remove_folder)
{
    write_text("text.wav", "not a sound");
    list_corpus("{\"audio_filepath\": \"text.wav\", \"text\": \"ab\"}\n{\"audio_filepath\": \"b.wav\"}\n");
    assert_int_equal(speech_load(&corpus.train, &letters, &request, &set), TW_ERROR_FORMAT);
    assert_said("none of 2 training utterances can be used", "1 without a transcript (b.wav)", "text.wav: not a sound");
    assert_null(set.items);
    forget();
}

/* A byte less, and the second utterance is in a file; the numbers are the same. */
TEST_BETWEEN(keeps_to_its_memory, set_up, remove_folder)
{
    speech_request small = request;
    speech_set held;
    write_noise("a.wav", 1, 4000);
    list_corpus("{\"audio_filepath\": \"a.wav\", \"text\": \"a\"}\n{\"audio_filepath\": \"a.wav\", \"text\": \"b\"}\n");
    small.most_bytes = 2 * ROWS; /* 48 windows are 24 rows */
    assert_int_equal(speech_load(&corpus.train, &letters, &small, &held), TW_OK);
    assert_int_equal(row_store_filed(held.rows), 0);
    small.most_bytes--;
    assert_int_equal(speech_load(&corpus.train, &letters, &small, &set), TW_OK);
    assert_int_equal(row_store_filed(set.rows), ROWS);
    for (size_t i = 0; i < 2; i++) assert_memory_equal(set.items[i].rows, held.items[i].rows, ROWS);
    speech_release(&held);
    forget();
}

TEST_BETWEEN(does_without_transcripts, set_up, remove_folder)
{
    write_noise("a.wav", 1, 4000);
    list_corpus("{\"audio_filepath\": \"a.wav\"}\n");
    assert_int_equal(speech_load(&corpus.train, NULL, &request, &set), TW_OK);
    assert_int_equal(set.count, 1);
    assert_null(set.items[0].targets);
    forget();
}

TEST_BETWEEN(knows_how_many_frames_ctc_needs, set_up, remove_folder)
{
    static const uint32_t targets[] = {1, 1, 2, 2, 2, 1};
    assert_int_equal(speech_least_frames(NULL, 0, 1), 0);
    assert_int_equal(speech_least_frames(NULL, 0, 4), 0);
    assert_int_equal(speech_least_frames(targets, 1, 1), 1);
    assert_int_equal(speech_least_frames(targets, 1, 4), 1); /* a row that was begun */
    assert_int_equal(speech_least_frames(targets, 6, 1), 9);
    assert_int_equal(speech_least_frames(targets, 6, 0), 9);
    assert_int_equal(speech_least_frames(targets, 6, 4), 8 * 4 + 1);
}

RUN_TESTS(NULL, NULL)
