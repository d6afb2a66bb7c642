/* rows_quantise.h - the rows of quantise.h for a vector level; see rows.h, which includes it. */
static void fill_quantise(tw_quantise_rows *table)
{
    (void)table;
}
