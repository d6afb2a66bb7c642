/* What a shell may complete, made from the rows: a line each, a word, a tab and what it means. */
#include <string.h>

#include "options.h"
#include "value.h"

void options_candidate(FILE *file, const char *begun, const char *word, const char *meaning)
{
    if (strncmp(word, begun, strlen(begun)) == 0) fprintf(file, "%s\t%s\n", word, meaning);
}

static void print_words(FILE *file, const char *begun, word_at word, word_at meaning)
{
    for (size_t i = 0; word && word(i); i++) options_candidate(file, begun, word(i), meaning ? meaning(i) : "");
}

static void print_choices(FILE *file, const char *begun, const char *choices)
{
    char word[OPTION_NAME_MOST];
    int count = 1;
    for (const char *at = choices; *at; at++) count += *at == '|';
    for (int i = 0; i < count; i++) {
        options_choice_word(choices, i, word, sizeof word);
        options_candidate(file, begun, word, "");
    }
}

static void print_values(FILE *file, const char *begun, const option_row *row)
{
    if (row->kind == OPTION_CHOICE) print_choices(file, begun, row->choices);
    print_words(file, begun, row->word, row->word_meaning);
}

static void print_options(FILE *file, const char *begun, const option_page *page)
{
    for (size_t i = 0; i < page->count; i++) {
        char name[OPTION_NAME_MOST];
        const option_row *row = &page->rows[i];
        if (!row->name || row->file_only) continue;
        snprintf(name, sizeof name, "--%s", row->name);
        options_candidate(file, begun, name, row->help);
    }
    options_candidate(file, begun, "--help", "Print the page of help");
}

void options_candidates(const option_page *page, const char *before, const char *begun, FILE *file)
{
    size_t index = strncmp(before, "--", 2) == 0 ? option_find(page, before + 2, strlen(before + 2)) : page->count;
    if (index < page->count && page->rows[index].kind != OPTION_FLAG)
        print_values(file, begun, &page->rows[index]);
    else if (*begun == '-')
        print_options(file, begun, page);
    else
        print_words(file, begun, page->word, page->word_meaning);
}
