/* table.h - the table of tensors that a reducer, a gossip or a scheme is made from. */
#ifndef TW_TABLE_H
#define TW_TABLE_H

#include "scheme.h"

/* TW_ERROR_ARGUMENT if a table is empty, or a name or a shape in it is not allowed, or two names are the same. */
tw_status tw_table_check(const tw_tensor *tensors, size_t count);

/* Checks a table and copies it, names and all, into one block of memory. */
tw_status tw_table_keep(const tw_tensor *tensors, size_t count, tw_tensor **kept);

/* Copies a table that was checked into the scheme's, and decides which tensors it compresses. */
tw_status tw_table_copy(tw_scheme *scheme, const tw_tensor *tensors);

#endif
