/* rows_chunks.h - the rows of chunks.h for a vector level; see rows.h, which includes it. */
static void fill_chunks(tw_chunks_rows *table)
{
    (void)table;
}
