/* A shared library that is no transport. */
#include <thinwire/thinwire.h>

TW_API extern const int hollow;

const int hollow = 1;
