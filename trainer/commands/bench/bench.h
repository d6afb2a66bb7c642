/* bench.h - the benchmarks behind `thinwire bench`, and what they share. */
#ifndef TRAINER_BENCH_H
#define TRAINER_BENCH_H

#include <stddef.h>

int bench_codec(int argc, char **argv);
int bench_train(int argc, char **argv);

/* Floats for streaming: aligned to 2 MiB and asked for in huge pages, as the library's own arrays are. NULL without
 * memory; free() releases. */
float *bench_floats(size_t count);

/* The seconds of a pass over memory as fast as this processor makes one: what a scheme that touches as many bytes an
 * element is compared with. Up to 8 bytes b = a is timed, up to 12 b += a, beyond it a momentum update of b and c by a,
 * of 20; other numbers are taken in proportion. */
double bench_stream(unsigned bytes_per_element, const float *a, float *b, float *c, size_t count);
/* The same shared among threads, at most BENCH_THREADS: the seconds until the last of them is done. 0 if the system has
 * no thread left. */
enum { BENCH_THREADS = 64 };
double bench_stream_shared(unsigned bytes_per_element, const float *a, float *b, float *c, size_t count,
                           size_t threads);

#endif
