/* rows_halves.h - the rows of halves.h, and the conversions, for a vector level; see rows.h, which includes it. */
typedef uint16_t half_vector __attribute__((vector_size(WIDTH * 2)));

/* Writes a vector in a format; reads one. */
typedef void (*put_halves)(uint16_t *dst, vector x);
typedef vector (*get_halves)(const uint16_t *src);

TW_INLINE void put_fp16(uint16_t *dst, vector x)
{
    store_fp16(dst, x);
}

TW_INLINE vector get_fp16(const uint16_t *src)
{
    return (vector)load_fp16(src);
}

TW_INLINE void put_bf16(uint16_t *dst, vector x)
{
    word_vector bits = (word_vector)x, is_nan = (word_vector)(x != x);
    word_vector rounded = bits + 0x7FFFu + (bits >> 16 & 1), quiet = bits | 0x400000u;
    half_vector halves = __builtin_convertvector(choose(is_nan, quiet, rounded) >> 16, half_vector);
    memcpy(dst, &halves, sizeof halves);
}

TW_INLINE vector get_bf16(const uint16_t *src)
{
    half_vector halves;
    memcpy(&halves, src, sizeof halves);
    return (vector)(__builtin_convertvector(halves, word_vector) << 16);
}

/* Each of these takes the whole vectors, and returns how many elements that is. */

TW_INLINE size_t put_whole(put_halves put, uint16_t *dst, const float *src, size_t n, float a)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) put(dst + i, a * load(src + i));
    return whole;
}

TW_INLINE size_t get_whole(get_halves get, float *dst, const uint16_t *src, size_t n)
{
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) store(dst + i, get(src + i));
    return whole;
}

TW_INLINE size_t keep_whole(put_halves put, get_halves get, uint16_t *dst, float *v, const float *g, size_t n, float a,
                            float most)
{
    const vector high = broadcast(most), low = -high;
    size_t whole = n / WIDTH * WIDTH;
    for (size_t i = 0; i < whole; i += WIDTH) {
        vector sum = load(v + i) + a * load(g + i);
        put(dst + i, (vector)larger((vector)smaller(sum, high), low));
        store(v + i, sum - get(dst + i));
    }
    return whole;
}

static void to_fp16(uint16_t *dst, const float *src, size_t n)
{
    size_t done = put_whole(put_fp16, dst, src, n, 1);
    tw_kernels_scalar.to_fp16(dst + done, src + done, n - done);
}

static void to_bf16(uint16_t *dst, const float *src, size_t n)
{
    size_t done = put_whole(put_bf16, dst, src, n, 1);
    tw_kernels_scalar.to_bf16(dst + done, src + done, n - done);
}

static void from_fp16(float *dst, const uint16_t *src, size_t n)
{
    size_t done = get_whole(get_fp16, dst, src, n);
    tw_kernels_scalar.from_fp16(dst + done, src + done, n - done);
}

static void from_bf16(float *dst, const uint16_t *src, size_t n)
{
    size_t done = get_whole(get_bf16, dst, src, n);
    tw_kernels_scalar.from_bf16(dst + done, src + done, n - done);
}

static void share_fp16(uint16_t *dst, const float *g, size_t n, float a)
{
    size_t done = put_whole(put_fp16, dst, g, n, a);
    tw_fp16_scalar.share(dst + done, g + done, n - done, a);
}

static void share_bf16(uint16_t *dst, const float *g, size_t n, float a)
{
    size_t done = put_whole(put_bf16, dst, g, n, a);
    tw_bf16_scalar.share(dst + done, g + done, n - done, a);
}

static void share_and_keep_fp16(uint16_t *dst, float *v, const float *g, size_t n, float a, float most)
{
    size_t done = keep_whole(put_fp16, get_fp16, dst, v, g, n, a, most);
    tw_fp16_scalar.share_and_keep(dst + done, v + done, g + done, n - done, a, most);
}

static void share_and_keep_bf16(uint16_t *dst, float *v, const float *g, size_t n, float a, float most)
{
    size_t done = keep_whole(put_bf16, get_bf16, dst, v, g, n, a, most);
    tw_bf16_scalar.share_and_keep(dst + done, v + done, g + done, n - done, a, most);
}

static const tw_half_rows fp16_rows = {.share = share_fp16, .share_and_keep = share_and_keep_fp16};
static const tw_half_rows bf16_rows = {.share = share_bf16, .share_and_keep = share_and_keep_bf16};
