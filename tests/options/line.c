/* The command line and the help page. */
#include "sample.h"

TEST(defaults_are_there)
{
    line l;
    assert_parses(&l, "");
    assert_int_equal(l.values.epochs, 5);
    assert_int_equal(l.values.seed, 0);
    assert_float_equal(l.values.lr, 0.05, 0);
    assert_float_equal(l.values.decay, -0.5, 0);
    assert_false(l.values.flip);
    assert_int_equal(l.values.model, 1);
    assert_string_equal(l.values.sync, "allreduce");
    assert_null(l.values.out);
    for (size_t i = 0; i < page.count; i++) assert_int_equal(l.set.sources[i], OPTION_FROM_DEFAULT);
    options_release(&l.set);
    assert_null(l.values.sync);
}

TEST(both_forms_say_the_same)
{
    static const char *const lines[] = {
        "--epochs 7 --seed 9007199254740993 --lr 1e-3 --decay -2 --flip --model resnet --sync dgc:density=0.001 --out "
        "a",
        "--epochs=7 --seed=9007199254740993 --lr=1e-3 --decay=-2 --flip=on --model=resnet --sync=dgc:density=0.001 "
        "--out=a",
    };
    for (size_t i = 0; i < 2; i++) {
        line l;
        assert_parses(&l, lines[i]);
        assert_int_equal(l.values.epochs, 7);
        assert_int_equal(l.values.seed, 9007199254740993);
        assert_float_equal(l.values.lr, 1e-3, 0);
        assert_float_equal(l.values.decay, -2, 0);
        assert_true(l.values.flip);
        assert_int_equal(l.values.model, 2);
        assert_string_equal(l.values.sync, "dgc:density=0.001");
        assert_string_equal(l.values.out, "a");
        options_release(&l.set);
    }
}

TEST(a_value_may_be_left_out_where_the_row_has_one_for_that)
{
    static const struct {
        const char *text, *json;
    } lines[] = {
        {"image --json", "-"},
        {"--json --flip image", "-"},
        {"--json -", "-"},
        {"--json figures", "figures"},
        {"--json=", ""},
        {"--json --json=figures", "figures"},
        {"--json figures --json", "-"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        line l;
        assert_parses(&l, lines[i].text);
        assert_string_equal(l.values.json, lines[i].json);
        options_release(&l.set);
    }
    line l;
    assert_parses(&l, "image");
    assert_null(l.values.json);
    options_release(&l.set);
}

TEST(ends_of_a_range_are_allowed)
{
    line l;
    assert_parses(&l, "--epochs 1 --lr 0");
    options_release(&l.set);
    assert_parses(&l, "--epochs 1000 --lr 10");
    assert_int_equal(l.values.epochs, 1000);
    assert_float_equal(l.values.lr, 10, 0);
    options_release(&l.set);
}

TEST(the_last_of_repeated_options_counts)
{
    line l;
    assert_parses(&l, "--sync topk --flip --sync dgc --flip=off");
    assert_string_equal(l.values.sync, "dgc");
    assert_false(l.values.flip);
    assert_true(options_given(&l.set, "flip"));
    options_release(&l.set);
}

TEST(what_was_given_is_known)
{
    line l;
    assert_parses(&l, "--epochs 5");
    assert_true(options_given(&l.set, "epochs"));
    assert_false(options_given(&l.set, "lr"));
    assert_int_equal(options_source(&l.set, "epochs"), OPTION_FROM_LINE);
    assert_int_equal(options_source(&l.set, "lr"), OPTION_FROM_DEFAULT);
    options_release(&l.set);
}

TEST(other_words_are_arguments)
{
    line l;
    assert_parses(&l, "image --epochs 7 -");
    assert_int_equal(l.set.argument_count, 2);
    assert_string_equal(l.set.arguments[0], "image");
    assert_string_equal(l.set.arguments[1], "-");
    options_release(&l.set);
    assert_parses(&l, "-- --epochs --help");
    assert_false(l.set.help);
    assert_string_equal(l.set.arguments[0], "--epochs");
    assert_string_equal(l.set.arguments[1], "--help");
    options_release(&l.set);
}

TEST(arguments_are_counted)
{
    option_page strict = page;
    settings values = {0};
    options set;
    strict.least_arguments = 1;
    assert_fails(options_parse(&strict, 0, NULL, &values, &set), TW_ERROR_ARGUMENT, "thinwire train TASK [options]");
    line l;
    assert_fails(parse(&l, "image lm asr"), TW_ERROR_ARGUMENT, "\"asr\"");
}

TEST(mistakes_are_explained)
{
    static const struct {
        const char *text, *words;
    } mistakes[] = {
        {"--epochs abc", "--epochs: \"abc\" is not a whole number from 1 to 1000"},
        {"--epochs 1.5", "--epochs: \"1.5\" is not a whole number"},
        {"--epochs 5x", "\"5x\""},
        {"--epochs=", "--epochs: \"\" is not a whole number"},
        {"--epochs 0", "--epochs: \"0\" is not a whole number from 1 to 1000"},
        {"--epochs 1001", "from 1 to 1000"},
        {"--epochs 99999999999999999999", "from 1 to 1000"},
        {"--seed -1", "--seed: \"-1\" is not a whole number of at least 0"},
        {"--seed 99999999999999999999", "at least 0"},
        {"--lr fast", "--lr: \"fast\" is not a number from 0 to 10"},
        {"--lr nan", "\"nan\""},
        {"--decay inf", "--decay: \"inf\" is not a number"},
        {"--decay 1e999", "\"1e999\""},
        {"--flip=maybe", "--flip: \"maybe\" is not on or off"},
        {"--flip=", "--flip: \"\" is not on or off"},
        {"--model resnet2", "--model: \"resnet2\" is not one of cnn|resnet20|resnet"},
        {"--model=", "\"\" is not one of"},
        {"--model cnn|resnet20", "is not one of"},
        {"--epochs", "--epochs needs a value, a whole number from 1 to 1000: --epochs=N"},
        {"--out --flip", "--out needs a value, a text: --out=DIR"},
        {"--epoch 5", "unknown option --epoch; did you mean --epochs?"},
        {"--epohcs=5", "unknown option --epohcs; did you mean --epochs?"},
        {"--sinc=dgc", "did you mean --sync?"},
        {"--zzzzzzzz", "unknown option --zzzzzzzz; --help lists the options"},
        {"--xy 5", "unknown option --xy; --help lists the options"},
        {"--=5", "unknown option --;"},
        {"-e 5", "unknown option -e; options are words"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        line l;
        assert_fails(parse(&l, mistakes[i].text), TW_ERROR_ARGUMENT, mistakes[i].words);
        assert_null(l.values.sync);
    }
}

TEST(a_value_may_be_empty_or_hold_blanks)
{
    char *words[] = {(char[]){"--out="}, (char[]){"--sync"}, (char[]){"two words"}, (char[]){"--lr"}, (char[]){" 1"}};
    settings values = {0};
    options set;
    assert_int_equal(options_parse(&page, 3, words, &values, &set), TW_OK);
    assert_string_equal(values.out, "");
    assert_string_equal(values.sync, "two words");
    options_release(&set);
    assert_fails(options_parse(&page, 5, words, &values, &set), TW_ERROR_ARGUMENT, "\" 1\" is not a number");
}

TEST(long_words_are_refused_whole)
{
    static char word[4096] = "--";
    char *words[] = {word};
    settings values = {0};
    options set;
    memset(word + 2, 'e', sizeof word - 3);
    assert_fails(options_parse(&page, 1, words, &values, &set), TW_ERROR_ARGUMENT, "unknown option --eee");
}

TEST(help_is_heard_before_mistakes)
{
    static const char *const lines[] = {"-h", "--help", "--epochs abc --help", "image -h"};
    for (size_t i = 0; i < 4; i++) {
        line l;
        assert_parses(&l, lines[i]);
        assert_true(l.set.help);
        options_release(&l.set);
    }
}

TEST(help_teaches_every_row)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    options_help(&page, file);
    fclose(file);
    assert_int_equal(strncmp(text, "Usage: thinwire train TASK [options]\n", 37), 0);
    for (size_t i = 0; i < page.count; i++) {
        assert_non_null(strstr(text, rows[i].help));
        if (rows[i].name) assert_non_null(strstr(text, rows[i].name));
    }
    assert_non_null(strstr(text, "\nExchange:\n"));
    assert_non_null(strstr(text, "--epochs N"));
    assert_non_null(strstr(text, "(default: 5; 1 to 1000)"));
    assert_non_null(strstr(text, "cnn|resnet20|resnet (default: resnet20)"));
    assert_non_null(strstr(text, "Examples:\n  thinwire train image\n"));
    for (const char *at = text; *at; at += strcspn(at, "\n") + 1) assert_in_range(strcspn(at, "\n"), 0, 80);
    free(text);
}

RUN_TESTS(NULL, NULL)
