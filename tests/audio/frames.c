/* Windows of frames with their classes, from sounds and an alignment file. */
#include "frame_data.h"
#include "sound.h"
#include "support.h"

enum { LENGTH = 21, BINS = 4 };

static const size_t samples[] = {200 + 41 * 80, 200 + 49 * 80, 200 + 20 * 80,
                                 200 + 10 * 80}; /* 42, 50, 21, 11 frames */
static speech_corpus corpus;
static frame_set set;
static speech_request request = {
    .channel = SOUND_MONO, .most_seconds = 10, .most_bytes = 1 << 20, .most_bytes_option = "--limit"};

static int set_up(void **state)
{
    assert_int_equal(make_folder(state), 0);
    assert_int_equal(feature_settings_parse("rate=8000,bins=4", &request.features), TW_OK);
    mkdir(in_folder("data"), 0700);
    mkdir(in_folder("data/wav"), 0700);
    for (int u = 0; u < 4; u++) {
        char name[32];
        snprintf(name, sizeof name, "data/wav/u%d.wav", u);
        write_noise(name, (unsigned)u, samples[u]);
    }
    write_text("data/text", "u0 a\nu1 b\nu2 c\nu3 d\n");
    assert_int_equal(speech_corpus_load(in_folder("data"), in_folder("data"), &corpus), TW_OK);
    return 0;
}

static int tear_down(void **state)
{
    speech_corpus_release(&corpus);
    return remove_folder(state);
}

/* Frame t of utterance u has class 100 u + t. */
static void align(const size_t counts[4])
{
    static char text[8192];
    int length = 0;
    for (size_t u = 0; u < 4; u++) {
        length += snprintf(text + length, sizeof text - (size_t)length, "u%zu", u);
        for (size_t t = 0; t < counts[u]; t++)
            length += snprintf(text + length, sizeof text - (size_t)length, " %zu", 100 * u + t);
        length += snprintf(text + length, sizeof text - (size_t)length, "\n");
    }
    write_text("ali", text);
}

TEST_BETWEEN(cuts_windows, set_up, tear_down)
{
    static const size_t counts[4] = {42, 50, 21, 11};
    static float features[6 * LENGTH * BINS];
    static int32_t targets[6 * LENGTH];
    static const uint32_t order[] = {5, 0, 1, 2, 3, 4};
    static const struct {
        size_t item, first, own;
    } expected[] = {{2, 0, 0}, {0, 0, 0}, {0, 21, 21}, {1, 0, 0}, {1, 21, 21}, {1, 29, 42}};
    align(counts);
    assert_int_equal(frame_load(&corpus.train, in_folder("ali"), &request, LENGTH, 0, &set), TW_OK);
    assert_int_equal(set.count, 6);
    assert_int_equal(set.classes, 221);
    assert_int_equal(set.speech.skipped.count[SKIP_TOO_SHORT], 1); /* 11 frames */
    frame_fill(&set, order, 6, features, targets);
    for (size_t i = 0; i < 6; i++)
        for (size_t t = 0; t < LENGTH; t++) {
            size_t frame = expected[i].first + t;
            assert_memory_equal(features + (t * 6 + i) * BINS, set.speech.items[expected[i].item].rows + frame * BINS,
                                BINS * sizeof(float));
            assert_int_equal(targets[t * 6 + i],
                             frame < expected[i].own ? FRAME_NONE : (int)(100 * expected[i].item + frame));
        }
    frame_release(&set);
}

TEST_BETWEEN(forgives_two_frames, set_up, tear_down)
{
    static const size_t counts[4] = {40, 52, 24, 0};
    uint32_t order[] = {1};
    float features[LENGTH * BINS];
    int32_t targets[LENGTH];
    align(counts);
    assert_int_equal(frame_load(&corpus.train, in_folder("ali"), &request, LENGTH, 0, &set), TW_OK);
    assert_int_equal(set.speech.count, 2);
    assert_int_equal(set.speech.skipped.count[SKIP_ALIGNMENT], 1); /* 24 for 21 */
    frame_fill(&set, order, 1, features, targets);
    assert_int_equal(targets[18], 39);
    assert_int_equal(targets[20], 39); /* the last one goes on */
    frame_release(&set);
}

TEST_BETWEEN(keeps_to_the_classes_of_training, set_up, tear_down)
{
    static const size_t counts[4] = {42, 50, 21, 11};
    align(counts);
    assert_int_equal(frame_load(&corpus.train, in_folder("ali"), &request, LENGTH, 150, &set), TW_OK);
    assert_int_equal(set.classes, 150);
    assert_int_equal(set.speech.count, 2);
    assert_non_null(strstr(set.speech.skipped.first[SKIP_ALIGNMENT], "u2: training has no class 220"));
    frame_release(&set);
}

static void refuses(const char *text, const char *words)
{
    write_text("ali", text);
    assert_fails(frame_load(&corpus.train, in_folder("ali"), &request, LENGTH, 0, &set), TW_ERROR_FORMAT, words);
    assert_null(set.windows);
    assert_null(set.speech.items);
}

TEST_BETWEEN(refuses_wrong_alignments, set_up, tear_down)
{
    speech_request strided = request;
    refuses("u0 1 2 x\n", "line 1: \"x\" is not a class");
    refuses("v 1\nu0 1 -2\n", "line 2: \"-2\" is not a class");
    refuses("u0 1 99999999999999999999\n", "is not a class");
    refuses("other 1 2 3\n", "none of 4 training utterances can be used");
    refuses("u0\n", "none of 4 training utterances can be used");
    refuses("", "empty");
    strided.features.stack = strided.features.stride = 3;
    assert_int_equal(frame_load(&corpus.train, in_folder("ali"), &strided, LENGTH, 0, &set), TW_ERROR_ARGUMENT);
}

RUN_TESTS(NULL, NULL)
