/* rows_moments.h - the rows of moments.h for a vector level; see rows.h, which includes it. */
static void fill_moments(tw_moments_rows *table)
{
    (void)table;
}
