#include "error.h"
#include "worker.h"
#include <stdlib.h>
#include <string.h>

/* What one worker saw: of the test set, and of the epoch's training images. */
typedef struct share {
    double loss, train_loss;
    uint64_t correct, images, train_images;
} share;

/* Images [first, last) of the test set, a batch at a time. */
static tw_status evaluate_range(worker *w, size_t first, size_t last, share *sums)
{
    const image_set *test = &w->data->test;
    size_t batch = (size_t)w->settings.batch;
    uint32_t *indices = malloc(batch * sizeof *indices);
    if (!indices) return tw_fail(TW_ERROR_MEMORY, "no memory for %zu test images", batch);
    tw_status status = TW_OK;
    for (size_t at = first; at < last && status == TW_OK; at += batch) {
        size_t count = last - at < batch ? last - at : batch;
        for (size_t i = 0; i < count; i++) indices[i] = (uint32_t)(at + i);
        dataset_batch(w->data, test, indices, count, NULL, 0, 0, w->images, w->labels);
        model_result result = {0};
        status = model_evaluate(w->model, w->images, w->labels, count, &result);
        sums->loss += result.loss;
        sums->correct += result.correct;
        sums->images += result.images;
    }
    free(indices);
    return status;
}

/* Evaluates this worker's share with the averaged statistics in place of its own, which return afterwards. */
static tw_status evaluate_share(worker *w, share *sums)
{
    size_t bytes = w->buffer_count * sizeof(float);
    float *own = malloc(bytes ? bytes : 1);
    if (!own) return tw_fail(TW_ERROR_MEMORY, "no memory for the running statistics");
    memcpy(own, model_buffers(w->model), bytes);
    memcpy(model_buffers(w->model), w->mean_buffers, bytes);
    size_t images = w->data->test.count, size = (size_t)w->size, rank = (size_t)w->rank;
    tw_status status = evaluate_range(w, images * rank / size, images * (rank + 1) / size, sums);
    memcpy(model_buffers(w->model), own, bytes);
    free(own);
    return status;
}

tw_status worker_evaluate_own(worker *w, evaluation *result)
{
    const model_result *epoch = &w->epoch_result;
    share sums = {0};
    TW_TRY(evaluate_range(w, 0, w->data->test.count, &sums));
    *result = (evaluation){.loss = sums.loss / (double)sums.images,
                           .accuracy = (double)sums.correct / (double)sums.images,
                           .train_loss = epoch->loss / (double)epoch->images,
                           .own = 1};
    return TW_OK;
}

tw_status worker_evaluate(worker *w, evaluation *result)
{
    TW_TRY(worker_average_buffers(w));
    share mine = {.train_loss = w->epoch_result.loss, .train_images = w->epoch_result.images};
    TW_TRY(evaluate_share(w, &mine));
    share *all = calloc((size_t)w->size, sizeof *all);
    if (!all) return tw_fail(TW_ERROR_MEMORY, "no memory to hear %d workers", w->size);
    tw_status status = tw_comm_allgather(w->comm, &mine, sizeof mine, all);
    share sum = {0};
    for (int r = 0; r < w->size; r++) {
        sum.loss += all[r].loss;
        sum.train_loss += all[r].train_loss;
        sum.correct += all[r].correct;
        sum.images += all[r].images;
        sum.train_images += all[r].train_images;
    }
    free(all);
    TW_TRY(status);
    *result = (evaluation){.loss = sum.loss / (double)sum.images,
                           .accuracy = (double)sum.correct / (double)sum.images,
                           .train_loss = sum.train_loss / (double)sum.train_images};
    return TW_OK;
}
