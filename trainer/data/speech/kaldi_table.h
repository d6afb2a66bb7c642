/* kaldi_table.h - Kaldi's text tables: a key, and the rest of the line. */
#ifndef TRAINER_SPEECH_KALDI_TABLE_H
#define TRAINER_SPEECH_KALDI_TABLE_H

#include "text_lines.h"

typedef struct kaldi_entry {
    const char *key;
    char *value; /* "" where only the key is there */
    size_t line;
} kaldi_entry;

/* Begin with all zeros. Entries are in the order of their keys' bytes. */
typedef struct kaldi_table {
    text_lines lines;
    kaldi_entry *entries;
    size_t count, capacity;
} kaldi_table;

/* TW_ERROR_IO or TW_ERROR_FORMAT, naming file and line, also for a key that is there twice. */
tw_status kaldi_table_read(const char *path, kaldi_table *table);
/* NULL when the key is not there. */
const kaldi_entry *kaldi_table_find(const kaldi_table *table, const char *key);
void kaldi_table_release(kaldi_table *table);

#endif
