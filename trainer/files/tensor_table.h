/* tensor_table.h - the tensors of a table, which stand one after the other in `values`, into and out of a state, under
 * their names with `prefix` before them. */
#ifndef TRAINER_TENSOR_TABLE_H
#define TRAINER_TENSOR_TABLE_H

#include <thinwire/thinwire.h>

tw_status tensor_table_put(tw_state *state, const char *prefix, const tw_tensor *tensors, size_t count,
                           const float *values);
tw_status tensor_table_get(const tw_state *state, const char *prefix, const tw_tensor *tensors, size_t count,
                           float *values);

/* Where each tensor stands. */
void tensor_table_place(const tw_tensor *tensors, size_t count, float *values, float **places);

/* 1 unless some value is NaN or infinite. */
int tensor_table_is_finite(const float *values, size_t count);

/* TW_ERROR_FORMAT with the name of a tensor that has a NaN or an infinity: nothing can be done with such weights. */
tw_status tensor_table_check_finite(const tw_tensor *tensors, size_t count, const float *values);

#endif
