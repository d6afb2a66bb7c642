/* The gossip schemes there are, in the order help shows them. A new one is a file beside this one that defines
 * `const tw_gossip_ops tw_gossip_NAME`, and NAME on a line here. */
#include "gossip.h"

#define SCHEMES(X)                                                                                                     \
    X(dpsgd)                                                                                                           \
    X(adpsgd_fixed)                                                                                                    \
    X(adpsgd_random)                                                                                                   \
    X(adpsgd_d1)                                                                                                       \
    X(prague)                                                                                                          \
    X(choco)                                                                                                           \
    X(cold)                                                                                                            \
    X(gasloc)

#define DECLARE(name) extern const tw_gossip_ops tw_gossip_##name;
SCHEMES(DECLARE)

#define POINTER(name) &tw_gossip_##name,
static const tw_gossip_ops *const schemes[] = {SCHEMES(POINTER)};

const tw_gossip_ops *tw_gossip_at(size_t index)
{
    return index < sizeof schemes / sizeof *schemes ? schemes[index] : NULL;
}
