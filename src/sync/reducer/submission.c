#include "submission.h"

#include "dense.h"
#include "error.h"
#include "sized.h"

static tw_status submission_check(const tw_gradient *gradient, size_t index)
{
    int is_float = gradient->dtype == TW_F32 || gradient->dtype == TW_F64 || gradient->dtype == TW_F16 ||
                   gradient->dtype == TW_BF16;
    if (!gradient->data) return tw_fail(TW_ERROR_ARGUMENT, "the gradient of tensor %zu is NULL", index);
    if (!is_float)
        return tw_fail(TW_ERROR_ARGUMENT, "the gradient of tensor %zu is of dtype %d; it can be F32, F16, BF16 or F64",
                       index, (int)gradient->dtype);
    if (gradient->memory != TW_MEMORY_HOST || gradient->stream)
        return tw_fail(
            TW_ERROR_UNSUPPORTED,
            "the gradient of tensor %zu is in memory %d or on a stream; this version takes host memory alone", index,
            (int)gradient->memory);
    return TW_OK;
}

tw_status tw_submission_read(const tw_gradient *gradient, size_t index, tw_submission *submission)
{
    tw_gradient given;
    TW_TRY(tw_read_sized(&given, sizeof given, gradient, "tw_gradient"));
    TW_TRY(submission_check(&given, index));
    *submission = (tw_submission){.data = given.data,
                                  .dtype = given.dtype,
                                  .absent = given.absent != 0,
                                  .ready = given.ready,
                                  .context = given.context};
    return TW_OK;
}

tw_status tw_submission_ask(tw_submission *submission, size_t index, int *ready)
{
    int answer = submission->ready ? submission->ready(submission->context) : 1;
    *ready = answer > 0;
    if (*ready) submission->ready = NULL;
    if (answer >= 0) return TW_OK;
    return tw_fail(TW_ERROR_SYSTEM, "the gradient of tensor %zu will never be ready: its callback returned %d", index,
                   answer);
}

void tw_submission_get(const tw_submission *submission, float *dst, size_t n)
{
    const double *doubles = submission->data;
    if (submission->absent)
        for (size_t i = 0; i < n; i++) dst[i] = -0.0F;
    else if (submission->dtype == TW_F64)
        for (size_t i = 0; i < n; i++) dst[i] = (float)doubles[i];
    else
        tw_dense_get(submission->dtype, submission->data, 0, dst, n);
}

void tw_submission_put(const tw_submission *submission, const float *src, size_t n)
{
    double *doubles = submission->data;
    if (submission->dtype == TW_F64)
        for (size_t i = 0; i < n; i++) doubles[i] = (double)src[i];
    else
        tw_dense_put(submission->dtype, submission->data, 0, src, n);
}
