/* pages.h - arrays on pages of their own, which take no memory before they are touched. */
#ifndef TRAINER_PAGES_H
#define TRAINER_PAGES_H

#include <stddef.h>

/* From now on arrays may be larger than all memory there is, as most of their pages never are in it. Before there are
 * threads. */
void pages_leave_unreserved(void);

/* `count` floats, zero; NULL without memory. */
float *pages_take(size_t count);
/* What was taken, with the same count; NULL is nothing. */
/* Elements from `begin` to before `end`, as far as they fill pages, become zeros that take no memory. */
void pages_forget(float *values, size_t begin, size_t end);
void pages_give(float *values, size_t count);

/* Up to whole pages. */
size_t pages_up(size_t bytes);
size_t pages_down(size_t bytes);

#endif
