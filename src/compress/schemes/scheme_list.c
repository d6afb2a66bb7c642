/* The schemes there are, in the order help shows them. A new one is a file beside this one that defines
 * `const tw_scheme_ops tw_scheme_NAME`, and NAME on a line here. */
#include "scheme.h"

#define SCHEMES(X)                                                                                                     \
    X(allreduce)                                                                                                       \
    X(fp16)                                                                                                            \
    X(bf16)                                                                                                            \
    X(topk)                                                                                                            \
    X(chunktopk)                                                                                                       \
    X(pulse)                                                                                                           \
    X(randomk)                                                                                                         \
    X(threshold)                                                                                                       \
    X(dgc)                                                                                                             \
    X(dgc_bold)                                                                                                        \
    X(sdagc)                                                                                                           \
    X(sdagc_bold)                                                                                                      \
    X(scalecom)                                                                                                        \
    X(adacomp)                                                                                                         \
    X(qsgd)                                                                                                            \
    X(terngrad)                                                                                                        \
    X(sign)                                                                                                            \
    X(onebit)                                                                                                          \
    X(natural)                                                                                                         \
    X(fp8)                                                                                                             \
    X(e3m0)                                                                                                            \
    X(powersgd)

#define DECLARE(name) extern const tw_scheme_ops tw_scheme_##name;
SCHEMES(DECLARE)

#define POINTER(name) &tw_scheme_##name,
static const tw_scheme_ops *const schemes[] = {SCHEMES(POINTER)};

const tw_scheme_ops *tw_scheme_own_at(size_t index)
{
    return index < sizeof schemes / sizeof *schemes ? schemes[index] : NULL;
}
