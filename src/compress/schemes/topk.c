/* topk - the k largest elements of gradient + residual, with error feedback (Aji and Heafield 2017, Stich et al. 2018).
 * Per tensor: v += g; send the k largest |v|; what was sent leaves v. Momentum stays with the optimiser. */
#include "sparse.h"

typedef struct topk {
    tw_sparse sparse;
    double density, link;
    int64_t min_sent, seed;
    int feedback, values, indices, state, exchange;
} topk;

static const tw_option options[] = {
    {"density", TW_OPTION_REAL, offsetof(topk, density), "0.01", 1e-7, 1, NULL, "fraction of each tensor that is sent"},
    TW_OPTION_MIN_SENT(topk),
    TW_OPTION_FEEDBACK(topk, "on"),
    TW_OPTION_VALUES(topk, "log8"),
    TW_OPTIONS_INDICES(topk),
    TW_OPTIONS_STATE(topk),
    TW_OPTION_SCATTER(topk),
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
    tw_sparse_settings settings = {.density = self->density,
                                   .most_density = self->density,
                                   .least = self->min_sent,
                                   .feedback = self->feedback,
                                   .state = self->state,
                                   .seed = self->seed,
                                   .scatter = self->exchange,
                                   .coding = {(tw_value_code)self->values, (tw_index_choice)self->indices, self->link},
                                   .take = topk_take};
    return tw_sparse_create(scheme, &settings);
}

static unsigned topk_floor(const tw_scheme *scheme)
{
    return tw_kept_floor(((const topk *)scheme)->state, 1);
}

const tw_scheme_ops tw_scheme_topk = {
    .name = "topk",
    .summary = "the k largest elements, the rest kept for later (error feedback)",
    .one_pass = 1,
    .floor = topk_floor,
    .struct_size = sizeof(topk),
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .create = topk_create,
    .next = tw_sparse_next,
    .revert = tw_sparse_revert,
    .walk = tw_sparse_walk,
    .plan = tw_sparse_plan,
    .destroy = tw_sparse_destroy,
};
