#include "edit_distance.h"
#include "error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An alignment's cost is EDIT * edits - correct: the fewest edits first, and of those the most correct. */
#define EDIT ((int64_t)1 << 32)
/* The costs of more tokens would overflow; nobody waits for their square of comparisons. */
#define MOST ((size_t)1 << 30)

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* costs[j], of no reference at all to the first j tokens, becomes that of the reference to them. */
static void edit_distance_align(const uint32_t *reference, size_t reference_count, const uint32_t *hypothesis,
                                size_t hypothesis_count, int64_t *costs)
{
    for (size_t i = 0; i < reference_count; i++) {
        int64_t diagonal = costs[0];
        costs[0] += EDIT;
        for (size_t j = 0; j < hypothesis_count; j++) {
            int64_t paired = diagonal + (reference[i] == hypothesis[j] ? -1 : EDIT);
            diagonal = costs[j + 1];
            costs[j + 1] = smaller(paired, smaller(costs[j], diagonal) + EDIT);
        }
    }
}

tw_status edit_tokens(const uint32_t *reference, size_t reference_count, const uint32_t *hypothesis,
                      size_t hypothesis_count, edit_counts *sum)
{
    int fits = reference_count <= MOST && hypothesis_count <= MOST;
    int64_t *costs = fits ? calloc(hypothesis_count + 1, sizeof *costs) : NULL;
    if (!costs)
        return tw_fail(TW_ERROR_MEMORY, "no memory to compare texts of %zu and %zu tokens", reference_count,
                       hypothesis_count);
    for (size_t j = 0; j < hypothesis_count; j++) costs[j + 1] = costs[j] + EDIT;
    edit_distance_align(reference, reference_count, hypothesis, hypothesis_count, costs);
    uint64_t cost = (uint64_t)(costs[hypothesis_count] + EDIT - 1); /* rounds up where it is shifted */
    free(costs);
    /* edits = S + I + D, reference = C + S + D, hypothesis = C + S + I: three equations for the other three. */
    uint64_t edits = cost >> 32, correct = (uint64_t)EDIT - 1 - (cost & (EDIT - 1));
    edit_counts counts = {.correct = correct,
                          .substitutions = reference_count + hypothesis_count - edits - 2 * correct,
                          .insertions = edits + correct - reference_count,
                          .deletions = edits + correct - hypothesis_count};
    edit_add(sum, &counts);
    return TW_OK;
}

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static const char *skip_spaces(const char *text)
{
    while (is_space(*text)) text++;
    return text;
}

static size_t word_length(const char *text)
{
    size_t length = 0;
    while (text[length] && !is_space(text[length])) length++;
    return length;
}

/* The bytes of a code point, or 1: a byte that begins none stands for itself. */
static size_t sequence_length(const char *text)
{
    static const unsigned char masks[] = {0xe0, 0xf0, 0xf8}, leads[] = {0xc0, 0xe0, 0xf0};
    for (size_t more = 1; more <= 3; more++) {
        if (((unsigned char)*text & masks[more - 1]) != leads[more - 1]) continue;
        for (size_t i = 1; i <= more; i++)
            if (((unsigned char)text[i] & 0xc0) != 0x80) return 1;
        return more + 1;
    }
    return 1;
}

/* A code point's bytes, packed, are as good a token as its number. */
static uint32_t edit_distance_pack(const char *bytes, size_t length)
{
    uint32_t token = 0;
    for (size_t i = 0; i < length; i++) token = token << 8 | (unsigned char)bytes[i];
    return token;
}

/* Returns how many there are. */
static size_t split_characters(const char *text, uint32_t *tokens)
{
    size_t count = 0;
    for (text = skip_spaces(text); *text;) {
        size_t length = sequence_length(text);
        tokens[count++] = edit_distance_pack(text, length);
        text += length;
        if (!is_space(*text)) continue;
        text = skip_spaces(text);
        if (*text) tokens[count++] = ' ';
    }
    return count;
}

typedef struct word {
    const char *text;
    size_t length;
} word;

static size_t split_words(const char *text, word *words)
{
    size_t count = 0;
    for (text = skip_spaces(text); *text; text = skip_spaces(text)) {
        words[count] = (word){text, word_length(text)};
        text += words[count++].length;
    }
    return count;
}

/* A word's token is the place of the first that equals it. */
static void number_words(const word *words, size_t count, uint32_t *tokens)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t first = 0;
        while (words[first].length != words[i].length || memcmp(words[first].text, words[i].text, words[i].length) != 0)
            first++;
        tokens[i] = first;
    }
}

tw_status edit_characters(const char *reference, const char *hypothesis, edit_counts *sum)
{
    size_t room = strlen(reference);
    uint32_t *tokens = malloc((room + strlen(hypothesis) + 1) * sizeof *tokens);
    if (!tokens) return tw_fail(TW_ERROR_MEMORY, "no memory to compare the characters of two texts");
    size_t reference_count = split_characters(reference, tokens);
    size_t hypothesis_count = split_characters(hypothesis, tokens + room);
    tw_status status = edit_tokens(tokens, reference_count, tokens + room, hypothesis_count, sum);
    free(tokens);
    return status;
}

tw_status edit_words(const char *reference, const char *hypothesis, edit_counts *sum)
{
    size_t room = strlen(reference) + strlen(hypothesis) + 1;
    word *words = malloc(room * (sizeof *words + sizeof(uint32_t)));
    if (!words) return tw_fail(TW_ERROR_MEMORY, "no memory to compare the words of two texts");
    uint32_t *tokens = (uint32_t *)(words + room);
    size_t reference_count = split_words(reference, words);
    size_t hypothesis_count = split_words(hypothesis, words + reference_count);
    number_words(words, reference_count + hypothesis_count, tokens);
    tw_status status = edit_tokens(tokens, reference_count, tokens + reference_count, hypothesis_count, sum);
    free(words);
    return status;
}

void edit_add(edit_counts *sum, const edit_counts *more)
{
    sum->correct += more->correct;
    sum->substitutions += more->substitutions;
    sum->insertions += more->insertions;
    sum->deletions += more->deletions;
}

double edit_rate(const edit_counts *counts)
{
    uint64_t edits = counts->substitutions + counts->insertions + counts->deletions;
    uint64_t tokens = counts->correct + counts->substitutions + counts->deletions;
    if (tokens == 0) return edits == 0 ? 0.0 : INFINITY;
    return (double)edits / (double)tokens;
}
