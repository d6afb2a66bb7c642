/* The text of feature settings: what a checkpoint carries means the same when it is read back. */
#include "feature_settings.h"
#include "support.h"

static feature_settings parsed(const char *text)
{
    feature_settings settings;
    if (feature_settings_parse(text, &settings) != TW_OK) fail_msg("%s", tw_last_error());
    return settings;
}

TEST(writes_what_it_reads)
{
    static const char *const texts[] = {
        "", "rate=8000,high=3800,low=60,window=hann,deltas=2,stack=3,stride=3", "window=povey,preemphasis=0.1",
        "window_ms=20,hop_ms=0012.5,floor=1e-6,normalise=mean", "preemphasis=0.30000000000000004,bins=80"};
    char text[FEATURE_SETTINGS_TEXT], again[FEATURE_SETTINGS_TEXT];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        feature_settings one = parsed(texts[i]), other = parsed(feature_settings_text(&one, text));
        assert_string_equal(text, feature_settings_text(&other, again));
        assert_true(one.preemphasis == other.preemphasis && one.floor == other.floor && one.hop_ms == other.hop_ms);
    }
}

TEST(has_one_form)
{
    char text[FEATURE_SETTINGS_TEXT];
    feature_settings settings = parsed("stack=3,rate=8000,window=hann");
    assert_string_equal(feature_settings_text(&settings, text),
                        "rate=8000,window_ms=25,hop_ms=10,window=hann,preemphasis=0.97,bins=40,low=20,high=0,"
                        "floor=1e-10,deltas=0,normalise=variance,stack=3,stride=1");
}

static void refuses(const char *text, const char *words)
{
    feature_settings settings;
    assert_fails(feature_settings_parse(text, &settings), TW_ERROR_ARGUMENT, words);
}

TEST(refuses_what_makes_no_sense)
{
    refuses("colour=red", "\"colour=red\" is not key=value with one of rate, window_ms, hop_ms, window, preemphasis, "
                          "bins, low, high, floor, deltas, normalise, stack, stride");
    refuses("bins=3,colour=red,low=1", "\"colour=red\" is not");
    refuses("rate", "\"rate\" is not");
    refuses("rate=,bins=3", "rate=;");
    refuses("rate=8e9", "from 1000 to 192000");
    refuses("rate=8000.5", "a whole number");
    refuses("rate=nan", "rate=nan");
    refuses("bins=0", "bins=0");
    refuses("deltas=3", "deltas=3");
    refuses("window=square", "hamming, hann or povey");
    refuses("window=han", "hamming, hann or povey");
    refuses("rate=8000,high=4001", "4000 Hz");
    refuses("low=3000,high=2000", "low must be below high");
    refuses("stride=2", "stride=2 leaves out frames");
    refuses("rate=8000,bins=3,rate=16000", "rate is given twice");
}

TEST(counts_frames)
{
    feature_settings settings = parsed("rate=8000,stack=3,stride=3,deltas=2");
    assert_int_equal(feature_window_samples(&settings), 200);
    assert_int_equal(feature_hop_samples(&settings), 80);
    assert_int_equal(feature_columns(&settings), 120);
    assert_int_equal(feature_width(&settings), 360);
    assert_int_equal(feature_frames(&settings, 199), 0);
    assert_int_equal(feature_frames(&settings, 200), 1);
    assert_int_equal(feature_windows(&settings, 279), 1);
    assert_int_equal(feature_windows(&settings, 200 + 3 * 80), 4);
    assert_int_equal(feature_frames(&settings, 200 + 2 * 80), 1);
    assert_int_equal(feature_frames(&settings, 200 + 3 * 80), 2);
}

RUN_TESTS(NULL, NULL)
