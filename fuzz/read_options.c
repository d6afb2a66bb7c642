/* Reads any bytes as a --config file. What is accepted must be a value of its row, must come back the same from what is
 * written of it, and the second writing must be the first. */
#include "fuzz.h"
#include "options.h"

#include <math.h>
#include <string.h>

typedef struct settings {
    bool flag;
    char *text, *alone;
    long whole;
    double real;
    int choice;
} settings;

#define AT(field) offsetof(settings, field)

static const option_row rows[] = {
    {.help = "Group"},
    {"flag", NULL, OPTION_FLAG, AT(flag), .help = "a flag"},
    {"text", "TEXT", OPTION_TEXT, AT(text), "a: b", .help = "a text"},
    {"alone", "TEXT", OPTION_TEXT, AT(alone), .alone = "-", .help = "a text that may be missing"},
    {"whole", "N", OPTION_INTEGER, AT(whole), "-3", -5, 1e15, .help = "a whole number"},
    {"real", "X", OPTION_REAL, AT(real), "0.1", -INFINITY, INFINITY, .help = "a number"},
    {"choice", "WORD", OPTION_CHOICE, AT(choice), "two", .choices = "one|two|three", .help = "a word of three"},
    {"line", "N", OPTION_INTEGER, AT(whole), "1", 0, 9, .help = "not for files", .line_only = true},
};
static const option_page page = {.usage = "fuzz", .rows = rows, .count = sizeof rows / sizeof *rows};

static void start(settings *target, options *set)
{
    memset(target, 0, sizeof *target);
    must(options_parse(&page, 0, NULL, target, set) == TW_OK);
}

static int same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void must_be_alike(const settings *a, const settings *b)
{
    must(a->flag == b->flag && a->whole == b->whole && a->choice == b->choice);
    must(memcmp(&a->real, &b->real, sizeof a->real) == 0);
    must(same_text(a->text, b->text) && same_text(a->alone, b->alone));
}

static char *write_all(const options *set, size_t *size)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, size);
    must(file != NULL);
    must(options_write(set, "again", file) == TW_OK);
    must(fclose(file) == 0);
    return text;
}

static void check_round_trip(const options *set, const settings *read)
{
    settings again;
    options back;
    size_t size, size_again;
    char *text = write_all(set, &size);
    start(&again, &back);
    must(options_read_text(&back, "again", text, size) == TW_OK);
    must_be_alike(read, &again);
    char *text_again = write_all(&back, &size_again);
    must(size == size_again && memcmp(text, text_again, size) == 0);
    free(text);
    free(text_again);
    options_release(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    settings target;
    options set;
    start(&target, &set);
    tw_status status = options_read_text(&set, "input", (const char *)data, size);
    must(status == TW_OK || status == TW_ERROR_FORMAT);
    if (status == TW_OK) {
        must(target.whole >= -5 && isfinite(target.real) && target.choice >= 0 && target.choice < 3);
        check_round_trip(&set, &target);
    }
    options_release(&set);
    return 0;
}
