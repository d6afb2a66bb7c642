/* streaming - diloco in parts: the tensors are cut into fragments that meet one after the other, and while one is under
 * way the workers go on (Streaming DiLoCo; Douillard et al. 2025, arXiv 2501.18512). The bytes are diloco's; what a
 * line has to carry at once is a fragment, and it has `delay` steps of time for it. Fragment p is first sent after
 * (p+1) * every / fragments steps. */
#include "method.h"

static const tw_preset presets[] = {{"fragments", "3"}, {"delay", "1"}, {"mixing", "0.5"}, {NULL, NULL}};

const tw_outer_method tw_outer_streaming = {
    .name = "streaming",
    .summary = "diloco in fragments, which travel while the workers go on",
    .takes_momentum = 1,
    .takes_fragments = 1,
    .presets = presets,
};
