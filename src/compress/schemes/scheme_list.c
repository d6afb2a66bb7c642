/* The schemes there are, in the order help shows them. A new one is a file beside this one that defines
 * `const tw_scheme_ops tw_scheme_NAME`, and NAME on a line of EXPERIMENTAL. Those of SETTLED stay: their names, their
 * options and what a value does (docs/abi.md). */
#include "scheme.h"

#define SETTLED(X)                                                                                                     \
    X(allreduce)                                                                                                       \
    X(fp16)                                                                                                            \
    X(bf16)                                                                                                            \
    X(topk)                                                                                                            \
    X(dgc)                                                                                                             \
    X(qsgd)                                                                                                            \
    X(powersgd)

#define EXPERIMENTAL(X)                                                                                                \
    X(dgc_bold)                                                                                                        \
    X(dgc_adam)                                                                                                        \
    X(sdagc)                                                                                                           \
    X(sdagc_bold)                                                                                                      \
    X(scalecom)                                                                                                        \
    X(adacomp)                                                                                                         \
    X(fp8)                                                                                                             \
    X(natural)                                                                                                         \
    X(e3m0)                                                                                                            \
    X(sign)                                                                                                            \
    X(onebit)                                                                                                          \
    X(onebit_adam)                                                                                                     \
    X(terngrad)                                                                                                        \
    X(chunktopk)                                                                                                       \
    X(demo)                                                                                                            \
    X(pulse)                                                                                                           \
    X(randomk)                                                                                                         \
    X(threshold)

#define DECLARE(name) extern const tw_scheme_ops tw_scheme_##name;
SETTLED(DECLARE)
EXPERIMENTAL(DECLARE)

#define POINTER(name) &tw_scheme_##name,
static const tw_scheme_ops *const schemes[] = {SETTLED(POINTER) EXPERIMENTAL(POINTER)};

#define ONE(name) +1
enum { SETTLED_SCHEMES = 0 SETTLED(ONE) };

const tw_scheme_ops *tw_scheme_own_at(size_t index)
{
    return index < sizeof schemes / sizeof *schemes ? schemes[index] : NULL;
}

int tw_scheme_is_settled_at(size_t index)
{
    return index < SETTLED_SCHEMES;
}
