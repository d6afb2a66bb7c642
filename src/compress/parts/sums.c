#include "sums.h"

#include "error.h"
#include "memory.h"

static tw_piece piece_of(const tw_sums *sums, size_t tensor)
{
    return tw_scatter_piece(sums->scatter, tensor, sums->scatter->scheme->rank);
}

tw_status tw_sums_create(tw_sums *sums, const tw_scatter *scatter, int format)
{
    const tw_scheme *scheme = scatter->scheme;
    *sums = (tw_sums){.scatter = scatter};
    TW_TRY(tw_allocate(scheme->count, sizeof *sums->offset, &sums->offset));
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        sums->offset[i] = sums->count;
        sums->count += piece_of(sums, i).count;
    }
    TW_TRY(tw_kept_create(&sums->kept, format, sums->count));
    return tw_kept_create(&sums->before, format, sums->count);
}

void tw_sums_destroy(tw_sums *sums)
{
    tw_kept_destroy(&sums->kept);
    tw_kept_destroy(&sums->before);
    tw_free(sums->offset);
}

tw_kept tw_sums_of(const tw_sums *sums, size_t tensor)
{
    return tw_kept_from(sums->kept, sums->offset[tensor]);
}

float *tw_sums_begin(tw_sums *sums, size_t tensor)
{
    sums->changed = sums->scatter->scheme->begun;
    return tw_kept_from(sums->before, sums->offset[tensor]).fp32;
}

void tw_sums_change(tw_sums *sums, size_t tensor)
{
    tw_sums_begin(sums, tensor);
    tw_kept_copy(tw_kept_from(sums->before, sums->offset[tensor]), tw_sums_of(sums, tensor),
                 piece_of(sums, tensor).count);
}

int tw_sums_revert(tw_sums *sums)
{
    int has_changed = sums->scatter && sums->changed == sums->scatter->scheme->begun;
    if (has_changed) tw_kept_copy(sums->kept, sums->before, sums->count);
    return has_changed;
}

static tw_status walk_piece(const tw_sums *sums, tw_walk *walk, const tw_piece *piece)
{
    tw_kept kept = tw_sums_of(sums, piece->tensor);
    tw_remembered entry = {.what = "section",
                           .tensor = sums->scatter->scheme->tensors[piece->tensor].name,
                           .kind = TW_STATE_ADDS,
                           .dtype = kept.bf16 ? TW_BF16 : TW_F32,
                           .count = piece->count,
                           .data = kept.bf16 ? (void *)kept.bf16 : kept.fp32,
                           .joins = "residual",
                           .is_piece = 1,
                           .first = piece->first};
    return walk->visit(walk, &entry);
}

tw_status tw_sums_walk(const tw_sums *sums, tw_walk *walk)
{
    if (!sums->scatter) return TW_OK;
    const tw_scheme *scheme = sums->scatter->scheme;
    for (size_t i = 0; i < scheme->count; i++) {
        if (!scheme->tensors[i].compressed) continue;
        tw_piece piece = piece_of(sums, i);
        if (piece.count) TW_TRY(walk_piece(sums, walk, &piece));
    }
    return TW_OK;
}
