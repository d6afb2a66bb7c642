/* Saving and loading what an outer loop remembers: the shared weights, their momentum, where in its rounds it is, and
 * what the exchange holds back. A round that is under way is waited for, and its mean is saved: so a saved run goes on
 * with the bits of one that was not. */
#include "compress.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "outer.h"
#include "reducer.h"
#include "state.h"

#include <stdio.h>
#include <string.h>

enum { ROUND, SINCE, HAS_ARRIVED, MOVED, HEALS, NUMBERS }; /* that are saved, in this order */

/* What of a tensor is saved, and where it stands. */
typedef struct saved_array {
    const char *what;
    float *values;
    int of_round; /* only the round's fragment counts */
} saved_array;

enum { ARRAYS = 6 };

/* The last only where a mean has arrived and waits for its step. */
static size_t list_arrays(const tw_outer *outer, int arrived, saved_array arrays[ARRAYS])
{
    size_t count = 0;
    arrays[count++] = (saved_array){"theta", outer->theta, 0};
    arrays[count++] = (saved_array){"outer_momentum", outer->v, 0};
    if (outer->options.eager) {
        arrays[count++] = (saved_array){"began", outer->began, 0};
        arrays[count++] = (saved_array){"own_momentum", outer->own_v, 0};
        arrays[count++] = (saved_array){"own_part", outer->own_part, 0};
    }
    if (arrived) arrays[count++] = (saved_array){"arrived", outer->delta, 1};
    return count;
}

static int outer_state_holds(const tw_outer *outer, const saved_array *array, size_t tensor)
{
    const tw_fragment *current = tw_outer_current(outer);
    return !array->of_round || (tensor >= current->first && tensor < current->first + current->count);
}

static tw_status outer_state_join(char *name, size_t room, const char *prefix, const char *what, const char *tensor)
{
    size_t length = (size_t)snprintf(name, room, "%s%s/%s", prefix, what, tensor);
    if (length < room) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "the prefix of %zu bytes is too long", strlen(prefix));
}

static tw_status join_numbers(char *name, size_t room, const char *prefix)
{
    return outer_state_join(name, room, prefix, "outer", "numbers");
}

/* Each fragment's scheme has a name space of its own. */
tw_status tw_outer_join_exchange(char *text, size_t room, const char *prefix, size_t fragment)
{
    size_t length = (size_t)snprintf(text, room, "%sexchange%zu/", prefix, fragment);
    return length < room ? TW_OK : tw_fail(TW_ERROR_ARGUMENT, "the prefix is too long");
}

static tw_status check_state_call(const tw_outer *outer, const char *prefix, const tw_state *state)
{
    TW_TRY(tw_outer_need(outer));
    TW_TRY(tw_need(prefix, "prefix"));
    return tw_need(state, "state");
}

/* ---- saving ------------------------------------------------------------------------------------------------------ */

static tw_status save_arrays(const tw_outer *outer, const char *prefix, tw_state *state)
{
    char name[1024];
    saved_array arrays[ARRAYS];
    size_t count = list_arrays(outer, outer->phase == TW_OUTER_ARRIVED, arrays);
    for (size_t a = 0; a < count; a++)
        for (size_t i = 0; i < outer->count; i++) {
            const tw_tensor *tensor = &outer->tensors[i];
            if (!outer_state_holds(outer, &arrays[a], i)) continue;
            TW_TRY(outer_state_join(name, sizeof name, prefix, arrays[a].what, tensor->name));
            TW_TRY(tw_state_put(state, name, TW_F32, tensor->dims, tensor->shape, arrays[a].values + outer->places[i]));
        }
    return TW_OK;
}

static tw_status save_numbers(const tw_outer *outer, const char *prefix, tw_state *state)
{
    char name[1024];
    uint64_t moved = 0;
    for (size_t f = 0; f < outer->fragment_count; f++) moved |= (uint64_t)outer->fragments[f].moved << f;
    const uint64_t numbers[] = {[ROUND] = outer->round,
                                [SINCE] = (uint64_t)outer->since,
                                [HAS_ARRIVED] = outer->phase == TW_OUTER_ARRIVED,
                                [MOVED] = moved,
                                [HEALS] = (uint64_t)outer->heals};
    TW_TRY(join_numbers(name, sizeof name, prefix));
    return tw_state_put(state, name, TW_U64, 1, (size_t[]){NUMBERS}, numbers);
}

static tw_status save(tw_outer *outer, const char *prefix, tw_state *state,
                      tw_status (*save_exchange)(tw_reducer *reducer, const char *prefix, tw_state *state))
{
    char text[1024];
    TW_TRY(check_state_call(outer, prefix, state));
    TW_TRY(tw_outer_need_shared(outer));
    TW_TRY(tw_outer_await(outer));
    TW_TRY(save_numbers(outer, prefix, state));
    TW_TRY(save_arrays(outer, prefix, state));
    for (size_t f = 0; f < outer->fragment_count && outer->fragments[f].count > 0; f++) {
        TW_TRY(tw_outer_join_exchange(text, sizeof text, prefix, f));
        TW_TRY(save_exchange(outer->fragments[f].reducer, text, state));
    }
    return TW_OK;
}

tw_status tw_outer_save_state(tw_outer *outer, const char *prefix, tw_state *state)
{
    TW_TRY(save(outer, prefix, state, tw_reducer_save_state));
    outer->saved = tw_outer_moment(outer);
    return TW_OK;
}

/* ---- saving for any number of ranks ------------------------------------------------------------------------------ */

static tw_status take_piece(void *context, const tw_remembered *entry)
{
    const tw_remembered *piece = context;
    int is_there = strcmp(entry->what, piece->joins) == 0 && strcmp(entry->tensor, piece->tensor) == 0;
    if (!is_there || !tw_remembered_adds_up(entry) || piece->first + piece->count > entry->count) return TW_OK;
    for (size_t i = 0; i < piece->count; i++) {
        double before = tw_remembered_value(entry, piece->first + i);
        tw_remembered_put(entry, piece->first + i, before + tw_remembered_value(piece, i));
    }
    memset(piece->data, 0, piece->count * tw_dtypes[piece->dtype].bytes);
    return TW_OK;
}

/* What it joins may be of another type. */
static tw_status join_piece(void *context, const tw_remembered *entry)
{
    tw_remembered piece = *entry;
    if (!piece.is_piece || !piece.joins || !tw_remembered_adds_up(entry)) return TW_OK;
    return tw_reducer_visit_state(context, take_piece, &piece);
}

int tw_outer_is_nothing(const void *data, size_t bytes)
{
    const unsigned char *first = data;
    return bytes == 0 || (first[0] == 0 && memcmp(first, first + 1, bytes - 1) == 0);
}

typedef struct target {
    const char *prefix;
    tw_state *state;
} target;

/* A piece that is not there stands for zeros, whichever it is. */
static tw_status save_entry(void *context, const tw_remembered *entry)
{
    const target *to = context;
    char name[1024];
    if (entry->is_piece && tw_outer_is_nothing(entry->data, entry->count * tw_dtypes[entry->dtype].bytes)) return TW_OK;
    TW_TRY(outer_state_join(name, sizeof name, to->prefix, entry->what, entry->tensor));
    return tw_state_put(to->state, name, entry->dtype, 1, &entry->count, entry->data);
}

static tw_status save_apart(tw_reducer *reducer, const char *prefix, tw_state *state)
{
    target to = {prefix, state};
    TW_TRY(tw_reducer_visit_state(reducer, join_piece, reducer));
    return tw_reducer_visit_state(reducer, save_entry, &to);
}

tw_status tw_outer_save_apart(tw_outer *outer, const char *prefix, tw_state *state)
{
    return save(outer, prefix, state, save_apart);
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static tw_status read_numbers(const tw_outer *outer, const char *prefix, const tw_state *state,
                              uint64_t numbers[NUMBERS])
{
    char name[1024];
    uint64_t between = (uint64_t)(outer->options.every / outer->options.fragments);
    TW_TRY(join_numbers(name, sizeof name, prefix));
    TW_TRY(tw_state_get(state, name, TW_U64, NUMBERS, numbers));
    if (numbers[SINCE] >= between || numbers[HAS_ARRIVED] > 1 || numbers[MOVED] >> outer->fragment_count != 0 ||
        numbers[HEALS] > 1)
        return tw_fail(TW_ERROR_STATE,
                       "%s says %llu steps since a round began, and there are %llu from one to the next", name,
                       (unsigned long long)numbers[SINCE], (unsigned long long)between);
    if (!numbers[HAS_ARRIVED] || numbers[SINCE] < (uint64_t)outer->options.delay) return TW_OK;
    return tw_fail(TW_ERROR_STATE,
                   "%s says that a mean waits %llu steps after its round began, and delay=%lld would have taken it; "
                   "load it with the delay that it was saved with",
                   name, (unsigned long long)numbers[SINCE], (long long)outer->options.delay);
}

static tw_status read_tensor(const tw_outer *outer, size_t i, const char *name, const tw_state *state, float *read)
{
    size_t count = outer->places[i + 1] - outer->places[i];
    TW_TRY(tw_state_get(state, name, TW_F32, count, read));
    if (tw_kernels_best()->all_finite(read, count)) return TW_OK;
    return tw_fail(TW_ERROR_STATE, "%s holds NaN or infinity", name);
}

/* Everything is read, into `read`, before anything changes. */
static tw_status read_arrays(const tw_outer *outer, const char *prefix, const tw_state *state, int arrived, float *read)
{
    char name[1024];
    saved_array arrays[ARRAYS];
    size_t count = list_arrays(outer, arrived, arrays);
    for (size_t a = 0; a < count; a++)
        for (size_t i = 0; i < outer->count; i++) {
            if (!outer_state_holds(outer, &arrays[a], i)) continue;
            TW_TRY(outer_state_join(name, sizeof name, prefix, arrays[a].what, outer->tensors[i].name));
            TW_TRY(read_tensor(outer, i, name, state, read + a * outer->elements + outer->places[i]));
        }
    return TW_OK;
}

/* Once to see whether it can be loaded, and then. */
static tw_status load_reducers(tw_outer *outer, const char *prefix, const tw_state *state,
                               tw_status (*act)(tw_reducer *, const char *, const tw_state *))
{
    char text[1024];
    for (size_t f = 0; f < outer->fragment_count && outer->fragments[f].count > 0; f++) {
        TW_TRY(tw_outer_join_exchange(text, sizeof text, prefix, f));
        TW_TRY(act(outer->fragments[f].reducer, text, state));
    }
    return TW_OK;
}

static void take_numbers(tw_outer *outer, const uint64_t numbers[NUMBERS])
{
    outer->round = numbers[ROUND];
    outer->since = (int64_t)numbers[SINCE];
    outer->phase = numbers[HAS_ARRIVED] ? TW_OUTER_ARRIVED : TW_OUTER_IDLE;
    outer->heals = numbers[HEALS] != 0;
    for (size_t f = 0; f < outer->fragment_count; f++) outer->fragments[f].moved = numbers[MOVED] >> f & 1;
}

static tw_status outer_state_load(tw_outer *outer, const char *prefix, const tw_state *state, float *read)
{
    saved_array arrays[ARRAYS];
    uint64_t numbers[NUMBERS], round = outer->round;
    TW_TRY(read_numbers(outer, prefix, state, numbers));
    outer->round = numbers[ROUND]; /* says which fragment's mean has arrived */
    tw_status status = read_arrays(outer, prefix, state, (int)numbers[HAS_ARRIVED], read);
    if (status == TW_OK) status = load_reducers(outer, prefix, state, tw_reducer_check_state);
    if (status == TW_OK) status = load_reducers(outer, prefix, state, tw_reducer_load_state);
    outer->round = round;
    TW_TRY(status);
    take_numbers(outer, numbers);
    for (size_t a = list_arrays(outer, (int)numbers[HAS_ARRIVED], arrays); a-- > 0;)
        memcpy(arrays[a].values, read + a * outer->elements, outer->elements * sizeof *read);
    outer->loaded = outer->is_shared = 1;
    return TW_OK;
}

tw_status tw_outer_load_state(tw_outer *outer, const char *prefix, const tw_state *state)
{
    float *read;
    TW_TRY(check_state_call(outer, prefix, state));
    if (outer->begun) return tw_fail(TW_ERROR_ORDER, "load the state before tw_outer_begin");
    TW_TRY(tw_allocate(ARRAYS * outer->elements, sizeof *read, &read));
    tw_status status = outer_state_load(outer, prefix, state, read);
    tw_free(read);
    return status;
}

/* ---- for another rank -------------------------------------------------------------------------------------------- */

static tw_status forget_numbers(const char *prefix, tw_state *state)
{
    uint64_t numbers[NUMBERS];
    char name[1024];
    TW_TRY(join_numbers(name, sizeof name, prefix));
    TW_TRY(tw_state_get(state, name, TW_U64, NUMBERS, numbers));
    numbers[MOVED] = numbers[HEALS] = 0;
    return tw_state_put(state, name, TW_U64, 1, (size_t[]){NUMBERS}, numbers);
}

static tw_status put_own(const tw_tensor *tensor, const char *what, const float *values, const char *prefix,
                         tw_state *state)
{
    char name[1024];
    TW_TRY(outer_state_join(name, sizeof name, prefix, what, tensor->name));
    return tw_state_put(state, name, TW_F32, tensor->dims, tensor->shape, values);
}

/* With room for the tensor in `values`. */
static tw_status forget_tensor(const tw_tensor *tensor, const char *prefix, tw_state *state, float *values)
{
    char name[1024];
    size_t count = tw_tensor_count(tensor);
    TW_TRY(outer_state_join(name, sizeof name, prefix, "theta", tensor->name));
    TW_TRY(tw_state_get(state, name, TW_F32, count, values));
    TW_TRY(put_own(tensor, "began", values, prefix, state));
    memset(values, 0, count * sizeof *values);
    TW_TRY(put_own(tensor, "own_momentum", values, prefix, state));
    return put_own(tensor, "own_part", values, prefix, state);
}

tw_status tw_outer_forget_own(const tw_outer *plan, const char *prefix, tw_state *state)
{
    float *values;
    TW_TRY(forget_numbers(prefix, state));
    if (!plan->options.eager) return TW_OK;
    TW_TRY(tw_allocate(plan->elements, sizeof *values, &values));
    tw_status status = TW_OK;
    for (size_t i = 0; status == TW_OK && i < plan->count; i++)
        status = forget_tensor(&plan->tensors[i], prefix, state, values);
    tw_free(values);
    return status;
}
