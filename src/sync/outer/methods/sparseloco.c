/* sparseloco - of what the local steps did, the largest elements of each chunk, two bits each; the rest is kept, decays
 * and is added to what the next steps do. The outer optimiser is plain SGD: the decaying rest is in the place of its
 * momentum (SparseLoCo; Sarfi et al. 2025, arXiv 2508.15706; equations and 64 of 4096 as in Covenant-72B, arXiv
 * 2603.08163). */
#include "method.h"

static const tw_preset presets[] = {
    {"exchange", "chunktopk"}, {"outer_lr", "1"}, {"outer_momentum", "0"}, {NULL, NULL}};

const tw_outer_method tw_outer_sparseloco = {
    .name = "sparseloco",
    .summary = "local steps; the largest of what they did in each chunk, and the rest later",
    .takes_momentum = 1,
    .presets = presets,
};
