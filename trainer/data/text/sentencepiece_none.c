/* In the place of sentencepiece.cc, where libsentencepiece was not there when this program was built. */
#include "error.h"
#include "sentencepiece.h"

static tw_status refuse(void)
{
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "this thinwire was built without SentencePiece; install libsentencepiece-dev, and build it again");
}

tw_status piece_model_open(const uint8_t *bytes, size_t size, piece_model **out)
{
    (void)bytes, (void)size, (void)out;
    return refuse();
}

void piece_model_close(piece_model *m)
{
    (void)m;
}

tw_status piece_model_encode(const piece_model *m, const char *text, size_t size, uint32_t **ids, size_t *count)
{
    (void)m, (void)text, (void)size, (void)ids, (void)count;
    return refuse();
}

tw_status piece_model_decode(const piece_model *m, const uint32_t *ids, size_t count, char **text, size_t *size)
{
    (void)m, (void)ids, (void)count, (void)text, (void)size;
    return refuse();
}

tw_status piece_model_train(piece_source next, void *context, size_t count, int exactly, uint8_t **bytes, size_t *size)
{
    (void)next, (void)context, (void)count, (void)exactly, (void)bytes, (void)size;
    return refuse();
}
