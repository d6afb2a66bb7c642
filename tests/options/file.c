/* Options in YAML files: read, written, and read back. */
#include <unistd.h>

#include "sample.h"
#include "support/folder.h"

static tw_status read_text(line *l, const char *text)
{
    return options_read_text(&l->set, "run.yaml", text, strlen(text));
}

TEST(a_file_sets_values)
{
    line l;
    assert_parses(&l, "");
    assert_int_equal(read_text(&l, "# a run\nepochs: 9\nlr: 0.5\nflip: yes\nmodel: cnn\nsync: dgc:density=0.001\n"
                                   "out: \"a \\\"b\\\" \\u00e9\"\ndecay: -1.25\nseed: '7'\n"),
                     TW_OK);
    assert_int_equal(l.values.epochs, 9);
    assert_int_equal(l.values.seed, 7);
    assert_float_equal(l.values.lr, 0.5, 0);
    assert_float_equal(l.values.decay, -1.25, 0);
    assert_true(l.values.flip);
    assert_int_equal(l.values.model, 0);
    assert_string_equal(l.values.sync, "dgc:density=0.001");
    assert_string_equal(l.values.out, "a \"b\" \xc3\xa9");
    assert_int_equal(options_source(&l.set, "epochs"), OPTION_FROM_FILE);
    assert_true(options_given(&l.set, "epochs"));
    options_release(&l.set);
}

TEST(the_command_line_wins)
{
    line l;
    assert_parses(&l, "--epochs 5 --sync topk --flip=off");
    assert_int_equal(read_text(&l, "{epochs: 9, sync: dgc, flip: true, lr: 1}"), TW_OK);
    assert_int_equal(l.values.epochs, 5);
    assert_string_equal(l.values.sync, "topk");
    assert_false(l.values.flip);
    assert_float_equal(l.values.lr, 1, 0);
    assert_int_equal(options_source(&l.set, "epochs"), OPTION_FROM_LINE);
    options_release(&l.set);
}

TEST(what_counts_beside_another_option_alone_needs_it_on_the_line)
{
    static const char *const lonely[] = {"--seed 7", "--seed 7 --flip=off", "--seed=0 --model resnet --json out"},
                             *const together[] = {"--seed 7 --flip",  "--seed 7 --model cnn",  "--seed 7 --out x",
                                                  "--seed 7 --out 0", "--lr 1 --model resnet", ""};
    line l;
    for (size_t i = 0; i < sizeof lonely / sizeof *lonely; i++) {
        assert_parses(&l, lonely[i]);
        assert_int_equal(options_check_beside(&l.set), TW_ERROR_ARGUMENT);
        assert_said(i < 2 ? "--seed 7 counts only" : "--seed 0 counts only",
                    "beside --flip, --model cnn or --out: add that, or leave --seed out");
        options_release(&l.set);
    }
    for (size_t i = 0; i < sizeof together / sizeof *together; i++) {
        assert_parses(&l, together[i]);
        assert_int_equal(options_check_beside(&l.set), TW_OK);
        options_release(&l.set);
    }
    assert_parses(&l, "--seed 7");
    assert_int_equal(read_text(&l, "flip: yes\n"), TW_OK);
    assert_int_equal(options_check_beside(&l.set), TW_OK);
    options_release(&l.set);
    assert_parses(&l, "");
    assert_int_equal(read_text(&l, "seed: 7\n"), TW_OK); /* a file has all options */
    assert_int_equal(options_check_beside(&l.set), TW_OK);
    options_release(&l.set);
}

TEST(a_file_may_say_nothing)
{
    static const char *const texts[] = {"", "# nothing\n", "---\n", "{}", "--- ~\n...\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        line l;
        assert_parses(&l, "");
        if (read_text(&l, texts[i]) != TW_OK) fail_msg("\"%s\": %s", texts[i], tw_last_error());
        assert_int_equal(l.values.epochs, 5);
        options_release(&l.set);
    }
}

TEST(mistakes_name_file_line_and_key)
{
    static const struct {
        const char *text, *words;
    } mistakes[] = {
        {"lr: 1\nepochs: many\n", "run.yaml:2: epochs: \"many\" is not a whole number from 1 to 1000"},
        {"lr: 1\n\nepochs: 0\n", "run.yaml:3: epochs: \"0\""},
        {"model: vgg\n", "run.yaml:1: model: \"vgg\" is not one of cnn|resnet20|resnet"},
        {"flip: 3\n", "run.yaml:1: flip: \"3\" is not on or off"},
        {"lr: 1\nepoch: 3\n", "run.yaml:2: unknown option epoch; did you mean epochs?"},
        {"zzzzzzzz: 3\n", "run.yaml:1: unknown option zzzzzzzz; --help lists the options"},
        {"Training: 3\n", "run.yaml:1: unknown option Training"},
        {"lr: 1\nepochs: 3\nlr: 2\n", "run.yaml:3: lr is there twice"},
        {"config: other.yaml\n", "run.yaml:1: config belongs on the command line"},
        {"epochs:\n", "run.yaml:1: epochs: the value must be a whole number from 1 to 1000"},
        {"out: ~\n", "run.yaml:1: out: the value must be a text"},
        {"out: null\n", "run.yaml:1: out: the value must be a text"},
        {"lr: [1, 2]\n", "run.yaml:1: lr: the value must be a number from 0 to 10"},
        {"lr: {a: 1}\n", "run.yaml:1: lr: the value must be"},
        {"lr: &a 1\nepochs: *a\n", "run.yaml:2: epochs: the value must be"},
        {"out: \"a\\0b\"\n", "run.yaml:1: out: the value must be a text"},
        {"[lr]: 1\n", "run.yaml:1: a key must be the name of an option"},
        {"- lr\n- epochs\n", "run.yaml:1: not a list of options"},
        {"epochs\n", "run.yaml:1: not a list of options"},
        {"lr: 1\n---\nlr: 2\n", "run.yaml:2: a second document"},
        {"lr: 1\nepochs: [3\n", "run.yaml:"},
        {"lr: 1\n\tepochs: 3\n", "run.yaml:2: not YAML"},
        {"lr: 1: 2\n", "run.yaml:1: not YAML"},
        {"lr: 1\n...\nepochs: 3\n", "run.yaml:3: a line behind \"...\", where the file ends"},
        {"out: \xff\xfe\n", "run.yaml: not a text in UTF-8"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        line l;
        assert_parses(&l, "");
        assert_fails(read_text(&l, mistakes[i].text), TW_ERROR_FORMAT, mistakes[i].words);
        options_release(&l.set);
    }
}

TEST(a_wrong_value_is_refused_even_where_the_line_wins)
{
    line l;
    assert_parses(&l, "--epochs 5");
    assert_int_equal(read_text(&l, "epochs: many\n"), TW_ERROR_FORMAT);
    options_release(&l.set);
}

static char *page_text(const options *set)
{
    static char *text; /* static: gcc 12 warns of an automatic one, which the stream keeps the address of */
    size_t size;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(options_write(set, "run.yaml", file), TW_OK);
    fclose(file);
    return text;
}

static void assert_same_values(const settings *a, const settings *b)
{
    assert_int_equal(a->epochs, b->epochs);
    assert_int_equal(a->seed, b->seed);
    assert_memory_equal(&a->lr, &b->lr, sizeof a->lr);
    assert_memory_equal(&a->decay, &b->decay, sizeof a->decay);
    assert_int_equal(a->flip, b->flip);
    assert_int_equal(a->model, b->model);
    assert_string_equal(a->sync, b->sync);
    assert_int_equal(!a->out, !b->out);
    if (a->out) assert_string_equal(a->out, b->out);
}

static void check_round_trip(line *l)
{
    line back;
    char *text = page_text(&l->set);
    assert_parses(&back, "");
    if (read_text(&back, text) != TW_OK) fail_msg("%s in\n%s", tw_last_error(), text);
    assert_same_values(&l->values, &back.values);
    char *again = page_text(&back.set);
    assert_string_equal(text, again);
    free(again);
    free(text);
    options_release(&back.set);
}

TEST(what_is_written_reads_back)
{
    static const char *const lines[] = {
        "",
        "--epochs 999 --seed 9223372036854775807 --flip --model cnn",
        "--lr 0.1 --decay 0.30000000000000004 --sync dgc:density=0.001,momentum=0.9 --out runs/dgc",
        "--lr 2.2250738585072014e-308 --decay -1.7976931348623157e308 --sync=~ --out=",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        line l;
        assert_parses(&l, lines[i]);
        check_round_trip(&l);
        options_release(&l.set);
    }
}

TEST(texts_of_any_characters_read_back)
{
    static const char *const texts[] = {
        " ",          "null",           "on", "5",      "a: b",     "- x",     "# no",  "'\"\\", "a\nb\n",
        "\t\x01\x7f", "\xe2\x82\xac x", "{}", "%TAG !", "...\n---", "&a *b !", "a  b ", "\r\n",  "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        line l;
        char *words[] = {(char[]){"--out"}, (char *)texts[i]};
        memset(&l, 0, sizeof l);
        assert_int_equal(options_parse(&page, 2, words, &l.values, &l.set), TW_OK);
        check_round_trip(&l);
        options_release(&l.set);
    }
}

TEST(a_long_text_stays_on_its_line)
{
    static char word[3000];
    char *words[] = {(char[]){"--out"}, word};
    line l;
    for (size_t i = 0; i < sizeof word - 1; i++) word[i] = i % 9 ? 'w' : ' ';
    memset(&l, 0, sizeof l);
    assert_int_equal(options_parse(&page, 2, words, &l.values, &l.set), TW_OK);
    check_round_trip(&l);
    char *text = page_text(&l.set);
    assert_in_range(strcspn(strstr(text, "out:"), "\n"), sizeof word, SIZE_MAX);
    free(text);
    options_release(&l.set);
}

TEST(what_belongs_to_the_line_is_not_written)
{
    line l;
    assert_parses(&l, "--config run.yaml");
    char *text = page_text(&l.set);
    assert_null(strstr(text, "config"));
    assert_null(strstr(text, "out:")); /* nor what has no value */
    assert_non_null(strstr(text, "epochs: 5\n"));
    free(text);
    options_release(&l.set);
}

static void assert_written(char *path, const char *root, const char *rest)
{
    static const option_row row = {"data", "DIR", OPTION_TEXT, 0, .path = true};
    static const option_page about = {.rows = &row, .count = 1};
    char expected[4096], *data = NULL, *words[] = {"--data", path};
    options set;
    snprintf(expected, sizeof expected, "---\ndata: \"%s%s\"\n...\n", root, rest);
    assert_int_equal(options_parse(&about, 2, words, &data, &set), TW_OK);
    char *text = page_text(&set);
    assert_string_equal(text, expected);
    free(text);
    options_release(&set);
}

/* The file may be read from another folder than the command line was. */
TEST(paths_are_written_from_the_root_on)
{
    char *here = getcwd(NULL, 0);
    assert_written("a/b", here, "/a/b");
    assert_written("/a/b", "", "/a/b");
    assert_written("", "", "");
    free(here);
}

TEST(a_text_that_is_no_utf8_is_not_written)
{
    line l;
    FILE *file = tmpfile();
    assert_parses(&l, "--out \xff");
    assert_fails(options_write(&l.set, "run.yaml", file), TW_ERROR_ARGUMENT, "--out");
    fclose(file);
    options_release(&l.set);
}

TEST(a_full_disk_is_noticed)
{
    line l;
    FILE *file = fopen("/dev/full", "w");
    if (!file) skip();
    assert_parses(&l, "");
    assert_fails(options_write(&l.set, "run.yaml", file), TW_ERROR_IO, "run.yaml");
    fclose(file);
    options_release(&l.set);
}

TEST_IN_FOLDER(files_are_read_and_named)
{
    const char *path = in_folder("run.yaml");
    line l;
    write_text("run.yaml", "epochs: 8\nlrr: 2\n");
    assert_parses(&l, "");
    assert_int_equal(options_read_file(&l.set, path), TW_ERROR_FORMAT);
    assert_said(path, ":2: unknown option lrr; did you mean lr?");
    write_text("run.yaml", "epochs: 8\n");
    assert_int_equal(options_read_file(&l.set, path), TW_OK);
    assert_int_equal(l.values.epochs, 8);
    unlink(path);
    assert_fails(options_read_file(&l.set, path), TW_ERROR_IO, path);
    assert_fails(options_read_file(&l.set, "/"), TW_ERROR_IO, "not a regular file");
    options_release(&l.set);
}

/* A file of somebody else's; what it has is passed over as far as lists in lists go. */
TEST_IN_FOLDER(deep_nesting_is_refused)
{
    char text[400], *value;
    for (int deep = 64; deep <= 65; deep++) {
        memset(text, 0, sizeof text);
        strcpy(text, "a: ");
        memset(text + 3, '[', (size_t)deep);
        memset(text + 3 + deep, ']', (size_t)deep);
        strcat(text, "\ntask: image\n");
        write_text("deep.yaml", text);
        assert_int_equal(options_find_in_file(in_folder("deep.yaml"), "task", &value),
                         deep > 64 ? TW_ERROR_FORMAT : TW_OK);
        if (deep == 64) assert_string_equal(value, "image");
        if (deep == 64) free(value);
    }
    assert_said("deep.yaml:1: lists within lists, deeper than 64");
}

RUN_TESTS(NULL, NULL)
