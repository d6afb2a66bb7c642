/* options.h - one table per subcommand: its command line, its --config file and its help page.
 *
 * Every option is one row that says what it is called, what it may be, where its value lands and what it does. From the
 * rows come the parser ("--epochs 5", "--epochs=5"), the page behind --help, and the YAML file that a run leaves behind
 * and --config reads. The command line wins over the file, the file over the defaults.
 *
 *     struct settings { long epochs; char *out, *config; } settings = {0};
 *     static const option_row rows[] = {
 *         {.help = "Training"},
 *         {"epochs", "N", OPTION_INTEGER, offsetof(struct settings, epochs), "5", 1, 1000,
 *          .help = "passes over the images"},
 *         ...
 *     };
 *     static const option_page page = {.usage = "thinwire train TASK [options]", .rows = rows, .count = ...};
 *     options set;
 *     TW_TRY(options_parse(&page, argc, argv, &settings, &set));
 *     if (set.help) ... options_help(&page, stdout);
 *     if (settings.config) status = options_read_file(&set, settings.config);
 *     ...
 *     options_release(&set);
 */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <thinwire/thinwire.h>

#include "words.h"

typedef enum option_kind {
    OPTION_FLAG,    /* bool: --name, or --name=on|off */
    OPTION_TEXT,    /* char *: the set's own copy, freed by options_release; NULL when not set and without a default */
    OPTION_INTEGER, /* long */
    OPTION_REAL,    /* double, never NaN or infinite */
    OPTION_CHOICE   /* int: the position of the word in `choices` */
} option_kind;

/* One option; or, where `name` is NULL, the title (`help`) of the group of options that follows. */
typedef struct option_row {
    const char *name;        /* without the dashes */
    const char *placeholder; /* what stands for the value in the help, "N"; NULL for a flag and a choice */
    option_kind kind;
    size_t offset;        /* of the value in the struct the options fill */
    const char *fallback; /* the default, as a user would write it; NULL: off, nothing, 0, the first choice */
    double least, most;   /* INTEGER and REAL: the range, both ends allowed; INFINITY for no end */
    const char *choices;  /* CHOICE: "cnn|resnet20" */
    const char
        *alone;       /* TEXT: the value where the option ends the line or another option follows; NULL: it needs one */
    const char *help; /* one sentence without a full stop; the default and the range are added to it */
    const char *stands_for; /* what the default means, where its number says nothing to a person: "the model's own" */
    word_at word, word_meaning; /* TEXT: words that a shell may complete; NULL: none */
    bool line_only;    /* belongs to one invocation: neither read from nor written to a file (--config itself) */
    bool list;         /* TEXT: given again on the command line, it adds to what was given before, behind a comma */
    const char *older; /* BINDING: what a run that does not say it had; NULL: every run says it */
    bool binding;      /* decides a run's bits: whoever goes on with the run must have the same value */
    bool file_only;    /* stands in the file that a run leaves behind, not on the command line, nor in the help */
    bool of_start;     /* where and how a run is started: who goes on with the run does not inherit it */
    bool alike;      /* TEXT that is no path, whose value all processes of a run must share; of other kinds all must */
    bool may_differ; /* changes no bit and no message of a run: its processes need not share the value */
    bool path;       /* TEXT: a file or folder, which a written file names from the root on */
    bool kept;       /* of a path: each checkpoint of the run has what stands there, too */
    bool simulated;  /* what a simulation of the run is told, too */
    /* TEXT: the value with all that it leaves out written out, malloc'd; NULL where that cannot be done. Values that
     * are the same in full mean the same. */
    char *(*in_full)(const char *value);
    const char *also; /* another name, which a person may use as well; NULL: none */
    /* "join,transport=tcp": it counts only where one of these is on, or has that value; NULL: always */
    const char *beside;
} option_row;

typedef struct option_page {
    const char *usage;       /* "thinwire train TASK [options]" */
    const char *description; /* what the command does; wrapped when printed */
    const char *examples;    /* printed as it is, every line ending in \n; NULL: none */
    const option_row *rows;
    size_t count, own;  /* of rows, at most OPTIONS_MOST */
    const char *lender; /* prints the page that has the rows behind the first `own`; NULL: all are this page's own */
    size_t least_arguments, most_arguments; /* words that are not options: TASK, RUN... */
    word_at word, word_meaning;             /* what such a word may be, for shells; NULL: files */
} option_page;

enum { OPTIONS_MOST = 96 };

/* Appends a row where a page's are put together of several tables. TW_ERROR_ARGUMENT where there are OPTIONS_MOST. */
tw_status options_add_row(option_row rows[OPTIONS_MOST], size_t *count, const option_row *row);

/* Who set a value, the weakest first: a default, the run that is gone on with, --config, the command line. */
typedef enum option_source { OPTION_FROM_DEFAULT, OPTION_FROM_RUN, OPTION_FROM_FILE, OPTION_FROM_LINE } option_source;

/* What options_parse made of a command line. */
typedef struct options {
    const option_page *page;
    void *target;
    bool help;        /* -h or --help was there: print the page, ignore the rest */
    char **arguments; /* the words that are not options, in their order; borrowed from argv */
    size_t argument_count;
    unsigned char sources[OPTIONS_MOST]; /* option_source, row by row */
} options;

/* Fills `target` (zeroed by the caller) with the defaults and then with the words argv[0 .. argc), the program's and
 * the subcommand's name not among them; argv is reordered. The last of repeated options counts, but for lists; "--"
 * ends the options. TW_ERROR_ARGUMENT: the text names the option, the value and what would be right; nothing is left
 * allocated. */
tw_status options_parse(const option_page *page, int argc, char **argv, void *target, options *set);

/* Sets what the command line left alone from a YAML file: one flat mapping of option names to values. TW_ERROR_IO when
 * it cannot be read; TW_ERROR_FORMAT, with the file, the line and the key, for bad YAML, an unknown or repeated key, or
 * a wrong value. After a failure the values are partly set; release as usual. */
tw_status options_read_file(options *set, const char *path);
/* The same of a file of options_write, which must not have lost its end; one from before there was a mark may have. */
tw_status options_read_whole_file(options *set, const char *path);
/* The same from memory; `name` stands for the file in the texts. */
tw_status options_read_text(options *set, const char *name, const char *text, size_t size);

/* One option's value in such a file, as it stands there, malloc'd; NULL where it does not stand there alone. Of what
 * else is in the file only its being YAML is checked. */
tw_status options_find_in_file(const char *path, const char *name, char **value);

/* Writes every value as YAML that options_read_file reads back to the same values; texts that are NULL and line_only
 * options are left out, paths begin at the root; `name` stands for the file in the texts. TW_ERROR_ARGUMENT when a text
 * is not UTF-8, TW_ERROR_IO when the file cannot be written. */
tw_status options_write(const options *set, const char *name, FILE *file);

/* Copies the word at `position` of a row's choices. */
void options_choice_word(const char *choices, int position, char *word, size_t capacity);

/* TW_ERROR_ARGUMENT where the command line has an option that would be ignored in silence: see `beside`. Files may say
 * what does not count, for a run leaves all its options in one. */
tw_status options_check_beside(const options *set);

/* Gives an option that neither the command line nor a file has set another default than its row's. */
tw_status options_default(options *set, const char *name, const char *text);
/* Gives row `index` a value out of the run that is gone on with, unless the command line or --config has one. */
tw_status options_inherit(options *set, size_t index, const char *text);
/* Whether two values of an option, of which one may be NULL, mean the same. */
bool options_same(const option_row *row, const char *a, const char *b);

/* The row's value in `target`, as a user would write it; NULL for a text that is not set. */
enum { OPTION_TEXT_MOST = 64 };
const char *options_value(const option_row *row, const void *target, char space[OPTION_TEXT_MOST]);

/* True if the command line, a file or an earlier run set the option; false if it has its default. */
bool options_given(const options *set, const char *name);
option_source options_source(const options *set, const char *name);

/* Prints the page: usage, description, the options by groups with defaults and ranges, examples. Of options that are
 * another page's it prints the names. */
void options_help(const option_page *page, FILE *file);

/* The same as a page of man. */
void options_manual(const option_page *page, const char *name, const char *summary, FILE *file);
/* Its parts, for a page without options. */
void options_manual_begin(FILE *file, const char *name, const char *summary, const char *usage);
void options_manual_entry(FILE *file, const char *name, const char *value, const char *meaning);
void options_manual_end(FILE *file);

/* What a shell may complete `begun` to, behind the word `before`: a word, a tab and its meaning a line. Values of an
 * option that takes one, else options where a dash begins, else the page's words. */
void options_candidates(const option_page *page, const char *before, const char *begun, FILE *file);
void options_candidate(FILE *file, const char *begun, const char *word, const char *meaning);

/* Frees the texts in the target and sets them to NULL. */
void options_release(options *set);

#endif
