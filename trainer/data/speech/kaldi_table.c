#include "kaldi_table.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "room.h"

static int by_key(const void *a, const void *b)
{
    return strcmp(((const kaldi_entry *)a)->key, ((const kaldi_entry *)b)->key);
}

static tw_status kaldi_table_append(const char *path, kaldi_table *table, char *line)
{
    if (!room_make(&table->entries, &table->capacity, table->count + 1, sizeof *table->entries))
        return tw_fail(TW_ERROR_MEMORY, "%s: no memory for %zu of its lines", path, table->count + 1);
    kaldi_entry *entry = &table->entries[table->count++];
    entry->line = table->lines.number;
    entry->value = line;
    entry->key = text_word(&entry->value);
    return TW_OK;
}

static tw_status check_keys(const char *path, const kaldi_table *table)
{
    for (size_t i = 1; i < table->count; i++) {
        const kaldi_entry *one = &table->entries[i - 1], *next = &table->entries[i];
        if (strcmp(one->key, next->key) != 0) continue;
        return tw_fail(TW_ERROR_FORMAT, "%s: \"%s\" stands in line %zu and in line %zu", path, one->key,
                       one->line < next->line ? one->line : next->line,
                       one->line < next->line ? next->line : one->line);
    }
    return TW_OK;
}

static tw_status kaldi_table_read_table(const char *path, kaldi_table *table)
{
    TW_TRY(text_lines_open(path, &table->lines));
    for (char *line; (line = text_lines_next(&table->lines));) TW_TRY(kaldi_table_append(path, table, line));
    if (table->count) qsort(table->entries, table->count, sizeof *table->entries, by_key);
    return check_keys(path, table);
}

tw_status kaldi_table_read(const char *path, kaldi_table *table)
{
    tw_status status = kaldi_table_read_table(path, table);
    if (status != TW_OK) kaldi_table_release(table);
    return status;
}

const kaldi_entry *kaldi_table_find(const kaldi_table *table, const char *key)
{
    kaldi_entry wanted = {.key = key};
    return table->count ? bsearch(&wanted, table->entries, table->count, sizeof wanted, by_key) : NULL;
}

void kaldi_table_release(kaldi_table *table)
{
    text_lines_close(&table->lines);
    free(table->entries);
    *table = (kaldi_table){0};
}
