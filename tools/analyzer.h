/* analyzer.h - included before every file that clang-tidy reads. It reads one file at a time, and has to be told that
 * what tw_fail returns is never TW_OK. */
#include <thinwire/thinwire_plugin.h>

#define tw_fail(status, ...) (tw_fail(status, __VA_ARGS__), (status))
