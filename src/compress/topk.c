/* topk - the k largest elements of gradient + residual, with error feedback (Aji and Heafield 2017, Stich et al. 2018).
 * Per tensor: v += g; send the k largest |v|; what was sent leaves v. Momentum stays with the optimiser. */
#include "sparse.h"

typedef struct topk {
    tw_scheme scheme;
    double density;
    long min_sent;
    int feedback, values, indices;
    tw_sparse sparse;
} topk;

static const tw_option options[] = {
    {"density", TW_OPTION_REAL, offsetof(topk, density), "0.01", 1e-7, 1, NULL, "fraction of each tensor that is sent"},
    TW_OPTION_MIN_SENT(topk),
    TW_OPTION_FEEDBACK(topk, "on"),
    TW_OPTION_VALUES(topk),
    TW_OPTION_INDICES(topk),
};

static void take(tw_scheme *scheme);

static tw_status create(tw_scheme *scheme)
{
    topk *self = (topk *)scheme;
    tw_sparse_settings settings = {.most_density = self->density,
                                   .least = self->min_sent,
                                   .feedback = self->feedback,
                                   .coding = {(tw_value_code)self->values, (tw_index_choice)self->indices},
                                   .take = take};
    return tw_sparse_create(&self->sparse, scheme, &settings);
}

static void take(tw_scheme *scheme)
{
    topk *self = (topk *)scheme;
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        tw_accumulation accumulation;
        tw_select_source source = tw_sparse_accumulate(&self->sparse, i, &accumulation);
        tw_sparse_send_top(&self->sparse, i, &source);
    }
}

static tw_status next(tw_scheme *scheme, tw_round *round)
{
    topk *self = (topk *)scheme;
    return tw_sparse_next(&self->sparse, self->density, self->density, round);
}

static void revert(tw_scheme *scheme)
{
    tw_sparse_revert(&((topk *)scheme)->sparse);
}

static tw_status walk(tw_scheme *scheme, tw_walk *visitor)
{
    return tw_sparse_walk(&((topk *)scheme)->sparse, visitor);
}

static void plan(const tw_scheme *scheme, size_t tensor, char *text, size_t capacity)
{
    const topk *self = (const topk *)scheme;
    tw_sparse_plan(&self->sparse, tensor, self->density, text, capacity);
}

static void destroy(tw_scheme *scheme)
{
    tw_sparse_destroy(&((topk *)scheme)->sparse);
}

const tw_scheme_ops tw_scheme_topk = {
    .name = "topk",
    .summary = "the k largest elements, the rest kept for later (error feedback)",
    .floor_bytes = 12,
    .struct_size = sizeof(topk),
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .create = create,
    .next = next,
    .revert = revert,
    .walk = walk,
    .plan = plan,
    .destroy = destroy,
};
