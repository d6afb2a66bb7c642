/* topk - the k largest elements of gradient + residual, with error feedback (Aji and Heafield 2017, Stich et al. 2018).
 * Per tensor: v += g; send the k largest |v|; what was sent leaves v. Momentum stays with the optimiser. */
#include "sparse.h"

typedef struct topk {
    tw_sparse sparse;
    double density;
} topk;

static const tw_option options[] = {
    {"density", TW_OPTION_REAL, offsetof(topk, density), "0.01", 1e-7, 1, NULL, "fraction of each tensor that is sent"},
    TW_OPTION_MIN_SENT(tw_sparse),
    TW_OPTION_FEEDBACK(tw_sparse, "on"),
    TW_OPTION_VALUES("log8"),
    TW_OPTIONS_INDICES,
    TW_OPTIONS_STATE,
    TW_OPTION_SCATTER,
};

static void topk_take(tw_sparse *sparse, size_t tensor)
{
    tw_accumulation accumulation;
    tw_select_source source = tw_sparse_accumulate(sparse, tensor, &accumulation);
    tw_sparse_send_top(sparse, tensor, &source);
}

static tw_status topk_create(tw_scheme *scheme)
{
    const topk *self = (const topk *)scheme;
    tw_sparse_settings settings = {.density = self->density, .most_density = self->density, .take = topk_take};
    return tw_sparse_create(scheme, &settings);
}

const tw_scheme_ops tw_scheme_topk = {
    .name = "topk",
    .summary = "the k largest elements, the rest kept for later (error feedback)",
    .one_pass = 1,
    .floor = tw_sparse_floor,
    .struct_size = sizeof(topk),
    TW_OPTIONS(options),
    .create = topk_create,
    .plan = tw_sparse_plan,
    TW_SPARSE_STEPS,
};
