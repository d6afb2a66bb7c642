/* rows_lowrank.h - the rows of lowrank.h for a vector level; see rows.h, which includes it. */
static void fill_lowrank(tw_lowrank_rows *table)
{
    (void)table;
}
