/* The methods there are, in the order help shows them. A new one is a file beside this one that defines
 * `const tw_outer_method tw_outer_NAME`, and NAME on a line here. */
#include "method.h"

#define METHODS(X)                                                                                                     \
    X(local)                                                                                                           \
    X(diloco)                                                                                                          \
    X(streaming)                                                                                                       \
    X(sparseloco)                                                                                                      \
    X(pulseloco)

#define DECLARE(name) extern const tw_outer_method tw_outer_##name;
METHODS(DECLARE)

#define POINTER(name) &tw_outer_##name,
static const tw_outer_method *const methods[] = {METHODS(POINTER)};

const tw_outer_method *tw_outer_method_at(size_t index)
{
    return index < sizeof methods / sizeof *methods ? methods[index] : NULL;
}
