/* The rounds of an outer loop. */
#include "outer.h"

#include "channel.h"
#include "error.h"
#include "kernels.h"
#include "memory.h"
#include "reducer.h"

#include <math.h>
#include <string.h>

enum { UNSTABLE_ROUNDS = 3 }; /* in a row, of which each undoes half of the ones before or more: a warning */

/* ---- what the ranks tell each other ------------------------------------------------------------------------------ */

/* The steps since the last round are not the same: a rank may skip some. */
uint64_t tw_outer_moment(const tw_outer *outer)
{
    const tw_fragment *fragment = tw_outer_current(outer);
    uint32_t crc = tw_crc32c(0, outer->digests, 2 * outer->count * sizeof *outer->digests);
    if (outer->phase == TW_OUTER_ARRIVED)
        crc = tw_crc32c(crc, outer->delta + fragment->start, fragment->elements * sizeof *outer->delta);
    return outer->round << 32 | crc;
}

static uint32_t digest_of(const tw_outer *outer, const tw_fragment *fragment)
{
    return tw_crc32c(0, outer->digests + 2 * fragment->first, 2 * fragment->count * sizeof *outer->digests);
}

static tw_status gather_words(tw_outer *outer)
{
    tw_outer_word own = {.round = outer->round,
                         .digest = digest_of(outer, tw_outer_current(outer)),
                         .submitted = (uint16_t)(outer->submitted || outer->given > 0),
                         .finishing = (uint16_t)(outer->finishing + outer->gives_last),
                         .weight = outer->given,
                         .saved = outer->saved};
    return tw_channel_gather_into(outer->channel, &own, sizeof own, (unsigned char *)outer->words);
}

/* The first tensor in which rank `other` has other bits. A collective, as all ranks have seen that the digests differ.
 */
static tw_status name_difference(tw_outer *outer, const tw_fragment *fragment, int other)
{
    size_t bytes = 2 * fragment->count * sizeof *outer->digests, tensor = 0;
    const uint32_t *first, *theirs;
    unsigned char *all;
    TW_TRY(tw_allocate((size_t)outer->size, bytes, &all));
    tw_status status = tw_channel_gather_into(outer->channel, outer->digests + 2 * fragment->first, bytes, all);
    first = (const uint32_t *)all;
    theirs = (const uint32_t *)(all + (size_t)other * bytes);
    while (tensor + 1 < fragment->count && memcmp(first + 2 * tensor, theirs + 2 * tensor, 2 * sizeof *first) == 0)
        tensor++;
    tw_free(all);
    TW_TRY(status);
    return tw_fail(
        TW_ERROR_STATE,
        "the shared weights differ before round %llu: rank %d has not the %s that rank 0 has; go on from the "
        "last checkpoint",
        (unsigned long long)outer->round, other, outer->tensors[fragment->first + tensor].name);
}

/* Of a smaller one the shares of a mean would be infinite. */
static int is_weight(double weight)
{
    return weight == 0 || (weight >= 1e-9 && weight <= 1e9);
}

/* Parts that are sent before the others' weights are known are not multiplied by one. */
static int takes_weight(const tw_outer *outer, double weight)
{
    return weight == 0 || weight == 1 || outer->options.delay == 0;
}

/* Words are not trusted: what they say must be possible. */
static tw_status check_word(const tw_outer *outer, int rank)
{
    const tw_outer_word *word = &outer->words[rank], *first = &outer->words[0];
    if (word->round != first->round)
        return tw_fail(TW_ERROR_PACKET, "rank %d is in round %llu and rank 0 in round %llu", rank,
                       (unsigned long long)word->round, (unsigned long long)first->round);
    if (word->submitted <= 1 && word->finishing <= 2 && is_weight(word->weight) && takes_weight(outer, word->weight) &&
        (word->weight == 0 || word->submitted))
        return TW_OK;
    return tw_fail(TW_ERROR_PACKET, "rank %d gives a weight of %g to round %llu, which cannot be", rank, word->weight,
                   (unsigned long long)word->round);
}

static tw_status check_words(tw_outer *outer)
{
    const tw_fragment *fragment = tw_outer_current(outer);
    for (int r = 0; r < outer->size; r++) TW_TRY(check_word(outer, r));
    for (int r = 1; r < outer->size; r++)
        if (outer->words[r].digest != outer->words[0].digest) return name_difference(outer, fragment, r);
    return TW_OK;
}

/* A rank that saves no states is not asked for one. */
static int saved_apart(const tw_outer *outer)
{
    uint64_t first = 0;
    for (int r = 0; r < outer->size; r++) {
        const uint64_t saved = outer->words[r].saved;
        if (first && saved && saved != first) return 1;
        first = first ? first : saved;
    }
    return 0;
}

/* Each rank saves by itself, and so it is here that they learn of it, once, while there is time to save again. */
static void watch_states(tw_outer *outer)
{
    const int before = outer->apart;
    outer->apart = saved_apart(outer);
    if (outer->rank == 0 && outer->apart && !before)
        tw_log(
            TW_LOG_WARNING,
            "the last states that the ranks have saved of %s are of two moments with a round in between, and cannot be "
            "loaded together: where ranks skip steps, save when the count of rounds has changed",
            outer->method->name);
}

/* ---- giving ------------------------------------------------------------------------------------------------------ */

static int any_submits(const tw_outer *outer)
{
    int any = 0;
    for (int r = 0; r < outer->size; r++) any |= outer->words[r].submitted;
    return any;
}

/* The last tensor first, as reducers like it. What is far has been dropped. */
static tw_status submit(tw_outer *outer)
{
    const tw_fragment *fragment = tw_outer_current(outer);
    for (size_t i = fragment->count; i-- > 0;) {
        tw_gradient gradient = {.struct_size = sizeof gradient,
                                .data = outer->delta + outer->places[fragment->first + i],
                                .absent = outer->given == 0};
        TW_TRY(tw_reducer_submit_sound(fragment->reducer, i, &gradient));
    }
    outer->submitted = 1;
    return TW_OK;
}

static void end_round(tw_outer *outer)
{
    outer->phase = TW_OUTER_IDLE;
    outer->round++;
}

/* NaN and infinity go to nobody, nor what no reducer takes. */
static void outer_round_drop(tw_outer *outer)
{
    outer->given = 0;
    outer->heals = !outer->options.eager; /* who goes on from theta at once is healed by it */
    outer->stats.offers_dropped++;
    tw_log(
        TW_LOG_WARNING,
        "rank %d gives nothing to round %llu of %s: its weights are NaN or infinite, or too far from the shared ones",
        outer->rank, (unsigned long long)outer->round, outer->method->name);
}

/* What this rank's steps did. */
static void subtract(tw_outer *outer, float *const *weights)
{
    const tw_fragment *fragment = tw_outer_current(outer);
    const float most =
        nextafterf((float)(TW_FARTHEST / sqrt((double)fragment->elements)), 0); /* whichever way it is rounded */
    int far = 0;
    for (size_t i = fragment->first; i < fragment->first + fragment->count; i++) {
        size_t place = outer->places[i], count = outer->places[i + 1] - place;
        const float *own_part = outer->options.eager ? outer->own_part + place : NULL;
        far |= tw_outer_subtract(outer->began + place, weights[i], own_part, count, most, outer->delta + place);
    }
    if (far) outer_round_drop(outer);
}

static void copy_out(const tw_outer *outer, const float *from, float *const *weights)
{
    for (size_t i = 0; i < outer->count; i++)
        memcpy(weights[i], from + outer->places[i], (outer->places[i + 1] - outer->places[i]) * sizeof *from);
}

/* With eager=on: from this rank's own part, until the others' come. */
static void go_on(tw_outer *outer, float *const *weights)
{
    if (outer->given > 0) memcpy(outer->own_part, outer->delta, outer->elements * sizeof *outer->delta);
    tw_outer_go_on(&outer->options, outer->size / outer->alike, outer->own_part, outer->theta, outer->elements,
                   outer->own_v, outer->began);
    copy_out(outer, outer->began, weights);
}

/* What this rank gives to the next round. Where it goes on meanwhile, the exchange begins now; else when all ranks
 * have said whether they give anything, and how much that counts. */
static tw_status give(tw_outer *outer, float *const *weights)
{
    tw_fragment *fragment = tw_outer_current(outer);
    if (fragment->count == 0) {
        end_round(outer);
        return TW_OK;
    }
    outer->given = fragment->moved ? outer->weight : 0;
    outer->gives_last = outer->finishing;
    outer->heals = 0;
    fragment->moved = 0;
    if (outer->given > 0) subtract(outer, weights);
    if (outer->options.eager) go_on(outer, weights);
    outer->phase = TW_OUTER_GIVEN;
    outer->submitted = 0;
    return outer->options.delay > 0 && !outer->finishing ? submit(outer) : TW_OK;
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

static void scale(const tw_outer *outer, float factor)
{
    const tw_fragment *fragment = tw_outer_current(outer);
    float *values = outer->delta + fragment->start;
    if (factor == 1) return;
    for (size_t i = 0; i < fragment->elements; i++) values[i] *= factor;
}

/* The mean is over those that gave something, by their weights. Where these are known before the exchange, each part is
 * multiplied by its share, so that what a scheme holds back is in the unit of what goes in. Else they are 1 or 0. */
static tw_status reduce(tw_outer *outer, double weights)
{
    int early = outer->options.delay > 0, directions = outer->options.merge && weights > 0;
    for (int r = 0; r < outer->size && weights > 0; r++)
        outer->shares[r] = (float)(outer->words[r].weight * outer->size / weights);
    if (directions) TW_TRY(tw_outer_give_directions(outer, weights));
    if (!early && outer->given > 0) scale(outer, outer->shares[outer->rank]);
    if (!outer->submitted) TW_TRY(submit(outer));
    tw_status status = tw_reducer_wait(tw_outer_current(outer)->reducer);
    if (status == TW_OK && early && weights > 0) scale(outer, (float)(outer->size / weights));
    if (status == TW_OK && directions) tw_outer_take_directions(outer);
    return status;
}

static void arrive(tw_outer *outer)
{
    outer->phase = TW_OUTER_ARRIVED;
    if (!outer->options.eager) return;
    tw_outer_count_own(&outer->options, outer->given > 0 ? outer->own_part : NULL, outer->elements, outer->own_v);
    if (outer->given > 0) memset(outer->own_part, 0, outer->elements * sizeof *outer->own_part);
}

/* Momentum would coast on nothing: the shared weights stay where they are. */
static void end_empty(tw_outer *outer, double weights)
{
    tw_fragment *fragment = tw_outer_current(outer);
    outer->stats.rounds_empty++;
    fragment->moved |= outer->given > 0;
    fragment->lost |= weights > 0;
    if (weights > 0 && outer->rank == 0)
        tw_log(TW_LOG_WARNING,
               "round %llu of %s came to nothing: some rank's part, or the sum, was too large for the exchange",
               (unsigned long long)outer->round, outer->method->name);
    end_round(outer);
}

static tw_status outer_round_exchange(tw_outer *outer)
{
    double weights = 0;
    tw_status status = TW_SKIPPED;
    outer->all_finish = outer->met = 1;
    for (int r = 0; r < outer->size; r++) {
        weights += outer->words[r].weight;
        outer->all_finish &= outer->words[r].finishing == 2;
        outer->met &= outer->words[r].finishing == 0;
    }
    if (any_submits(outer)) status = reduce(outer, weights);
    if (tw_status_is_error(status)) return status;
    if (status == TW_OK && weights > 0)
        arrive(outer);
    else
        end_empty(outer, weights);
    return TW_OK;
}

tw_status tw_outer_await(tw_outer *outer)
{
    if (outer->phase != TW_OUTER_GIVEN) return TW_OK;
    double begun = tw_clock();
    TW_TRY(gather_words(outer));
    tw_status status = check_words(outer);
    if (status == TW_OK) watch_states(outer);
    if (status == TW_OK) status = outer_round_exchange(outer);
    outer->stats.seconds_wait += tw_clock() - begun;
    return status == TW_OK ? TW_OK : tw_channel_give_up(outer->channel, status);
}

/* Between D and the D before, which this one takes the place of. */
static double outer_round_compare(tw_outer *outer)
{
    const tw_fragment *fragment = tw_outer_current(outer);
    double both = 0, now = 0, then = 0;
    for (size_t i = 0; i < fragment->sampled; i++) {
        float d = outer->delta[fragment->start + i * fragment->apart];
        both += (double)d * (double)fragment->before[i];
        now += (double)d * (double)d;
        then += (double)fragment->before[i] * (double)fragment->before[i];
        fragment->before[i] = d;
    }
    return now > 0 && then > 0 ? both / sqrt(now) / sqrt(then) : 0;
}

/* How far the outer step goes along D, and its square beside D's. With v = momentum * the v before + D it is D +
 * momentum * v, or v. */
static void outer_round_measure(tw_outer *outer, const tw_outer_sums *sums)
{
    double m = outer->options.momentum;
    outer->stats.gain = outer->stats.energy = 0;
    if (!(sums->mean > 0 && sums->mean + sums->momentum < (double)INFINITY)) return;
    double both = m * sums->both / sums->mean, along = both + 1;        /* D and v, beside D's square; */
    double square = m * m * sums->momentum / sums->mean + 2 * both + 1; /* and v's */
    outer->stats.gain = outer->options.nesterov ? 1 + m * along : along;
    outer->stats.energy = outer->options.nesterov ? 1 + 2 * m * along + m * m * square : square;
}

/* An outer step that is too long throws the weights from one side to the other. Where it is the mean, the workers' own
 * steps do, or what is left is noise: no option of the method would help. */
static void outer_round_watch(tw_outer *outer, const tw_outer_sums *sums)
{
    outer_round_measure(outer, sums);
    outer->stats.cosine = outer_round_compare(outer);
    outer->against = outer->stats.cosine < -0.5 && outer->method->takes_momentum ? outer->against + 1 : 0;
    if (outer->against != UNSTABLE_ROUNDS) return;
    outer->stats.rounds_unstable++;
    if (outer->rank == 0)
        tw_log(TW_LOG_WARNING,
               "%s: %d rounds in a row have pointed against those before them; a smaller outer_lr or outer_momentum "
               "would be stable",
               outer->method->name, UNSTABLE_ROUNDS);
}

static void outer_round_descend(tw_outer *outer, float mixing, float *const *weights)
{
    tw_fragment *fragment = tw_outer_current(outer);
    tw_outer_sums sums = {0};
    for (size_t i = fragment->first; i < fragment->first + fragment->count; i++) {
        size_t place = outer->places[i], count = outer->places[i + 1] - place;
        tw_outer_arrays arrays = {outer->v + place, outer->theta + place, weights[i], mixing};
        tw_outer_descend(&outer->options, outer->delta + place, count, &arrays, outer->digests + 2 * i, &sums);
    }
    if (!outer->options.eager) fragment->moved = mixing > 0; /* else as from where it began */
    fragment->lost = 0;
    outer_round_watch(outer, &sums);
}

static void stand_at_theta(tw_outer *outer, float *const *weights)
{
    copy_out(outer, outer->theta, weights);
    for (size_t f = 0; f < outer->fragment_count; f++) outer->fragments[f].moved = 0;
}

/* A step through one fragment that is not finite spoils the others, so all of them are healed at once. */
static void heal(tw_outer *outer, float *const *weights)
{
    stand_at_theta(outer, weights);
    outer->heals = 0;
}

/* Ends the round under way. *applied: the weights have changed. */
static tw_status outer_round_take(tw_outer *outer, float mixing, float *const *weights, int *applied)
{
    TW_TRY(tw_outer_await(outer));
    int arrived = outer->phase == TW_OUTER_ARRIVED;
    *applied = arrived || outer->heals;
    if (arrived) outer_round_descend(outer, mixing, weights);
    if (outer->heals) heal(outer, weights);
    if (!arrived) return TW_OK;
    TW_TRY(tw_outer_average_moments(outer));
    end_round(outer);
    return TW_OK;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static tw_status outer_round_check_call(const tw_outer *outer, float *const *tensors, const char *argument)
{
    TW_TRY(tw_outer_need(outer));
    TW_TRY(tw_outer_check_arrays(outer, tensors, argument));
    return tw_channel_check(outer->channel);
}

static tw_status check_begun(const tw_outer *outer, int begun)
{
    if (outer->begun == begun) return TW_OK;
    return tw_fail(TW_ERROR_ORDER,
                   begun ? "tw_outer_begin comes before the first step" : "it has begun; tw_outer_finish comes first");
}

static void begin_own(const tw_outer *outer)
{
    size_t bytes = outer->elements * sizeof *outer->theta;
    memcpy(outer->began, outer->theta, bytes);
    memset(outer->own_v, 0, bytes);
    memset(outer->own_part, 0, bytes);
}

/* Rank 0's weights are where all begin. */
static tw_status spread_start(tw_outer *outer, float *const *weights)
{
    for (size_t i = 0; i < outer->count; i++)
        memcpy(outer->theta + outer->places[i], weights[i],
               (outer->places[i + 1] - outer->places[i]) * sizeof *outer->theta);
    TW_TRY(tw_channel_broadcast_into(outer->channel, 0, outer->theta, outer->elements * sizeof *outer->theta));
    if (!tw_kernels_best()->all_finite(outer->theta, outer->elements))
        return tw_fail(TW_ERROR_ARGUMENT, "rank 0's weights, with which all begin, hold NaN or infinity");
    if (outer->options.eager) begin_own(outer);
    stand_at_theta(outer, weights);
    return TW_OK;
}

/* Each rank has loaded a state, or none has; they are of one moment, and have the same shared bits. */
static tw_status check_loaded(tw_outer *outer)
{
    tw_outer_word own = {
        .round = outer->round, .weight = outer->loaded, .submitted = 1, .saved = tw_outer_moment(outer)};
    TW_TRY(tw_channel_gather_into(outer->channel, &own, sizeof own, (unsigned char *)outer->words));
    for (int r = 0; r < outer->size; r++) {
        const tw_outer_word *word = &outer->words[r], *first = &outer->words[0];
        if (word->weight != first->weight)
            return tw_fail(TW_ERROR_STATE, "rank %d has%s loaded a state, and rank 0 has%s: all do, or none", r,
                           word->weight > 0 ? "" : " not", first->weight > 0 ? "" : " not");
        if (outer->loaded && word->saved != first->saved)
            return tw_fail(TW_ERROR_STATE,
                           "rank %d's state is of another run or moment than rank 0's: %llu rounds have ended there, "
                           "and %llu here%s",
                           r, (unsigned long long)word->round, (unsigned long long)first->round,
                           word->round == first->round ? ", but what all share differs" : "");
    }
    return TW_OK;
}

/* Adds what the channel has carried since to what is no round's. */
static void leave_out(tw_outer *outer, tw_traffic since)
{
    tw_traffic now = tw_channel_traffic(outer->channel);
    outer->start.bytes_sent += now.bytes_sent - since.bytes_sent;
    outer->start.bytes_received += now.bytes_received - since.bytes_received;
}

/* All ranks know what they share. */
static tw_status agree_on_start(tw_outer *outer, float *const *weights)
{
    tw_outer_digest(outer);
    TW_TRY(tw_outer_check_moments(outer));
    TW_TRY(check_loaded(outer));
    if (outer->loaded) return TW_OK;
    outer->is_shared = 0; /* as long as theta is on its way */
    TW_TRY(spread_start(outer, weights));
    tw_outer_digest(outer);
    return TW_OK;
}

tw_status tw_outer_begin(tw_outer *outer, float *const *weights)
{
    TW_TRY(outer_round_check_call(outer, weights, "weights"));
    TW_TRY(check_begun(outer, 0));
    tw_traffic before = outer->stats.steps ? tw_channel_traffic(outer->channel) : outer->start; /* with its making */
    tw_status status = agree_on_start(outer, weights);
    if (status != TW_OK) return tw_channel_give_up(outer->channel, status);
    leave_out(outer, before);
    for (size_t f = 0; f < outer->fragment_count; f++) outer->fragments[f].lost = 0;
    outer->loaded = outer->finishing = outer->all_finish = 0;
    outer->begun = outer->is_shared = 1;
    return TW_OK;
}

tw_status tw_outer_set_weight(tw_outer *outer, double weight)
{
    TW_TRY(tw_outer_need(outer));
    if (!is_weight(weight))
        return tw_fail(TW_ERROR_ARGUMENT, "a weight of %g; it must be 0, or a number from 1e-9 to 1e9", weight);
    if (!takes_weight(outer, weight))
        return tw_fail(
            TW_ERROR_UNSUPPORTED,
            "a weight of %g where parts are sent before the others' weights are known; it must be 0 or 1, or the spec "
            "must have delay=0 and eager=off",
            weight);
    outer->weight = weight;
    return TW_OK;
}

/* What the step does that makes `since` so many. Whoever saves a state may have ended a round that came to nothing. */
static int ends_round(const tw_outer *outer, int64_t since)
{
    return (outer->phase != TW_OUTER_IDLE || outer->heals) && since == outer->options.delay;
}

static int begins_round(const tw_outer *outer, int64_t since)
{
    return since == outer->options.every / outer->options.fragments;
}

int tw_outer_is_due(const tw_outer *outer)
{
    if (tw_outer_need(outer) != TW_OK || !outer->begun) return 0;
    return ends_round(outer, outer->since + 1) || begins_round(outer, outer->since + 1);
}

int tw_outer_has_met(const tw_outer *outer)
{
    return tw_outer_need(outer) == TW_OK && outer->met;
}

tw_status tw_outer_step(tw_outer *outer, float *const *weights, tw_outer_event *event)
{
    int applied = 0, started = 0;
    TW_TRY(outer_round_check_call(outer, weights, "weights"));
    TW_TRY(tw_need(event, "event"));
    TW_TRY(check_begun(outer, 1));
    const tw_outer_options *o = &outer->options;
    outer->stats.steps++;
    outer->since++;
    outer->met = 0;
    for (size_t f = 0; f < outer->fragment_count; f++) outer->fragments[f].moved = 1;
    if (ends_round(outer, outer->since)) TW_TRY(outer_round_take(outer, (float)o->mixing, weights, &applied));
    if (begins_round(outer, outer->since)) {
        outer->since = 0;
        started = 1;
        TW_TRY(give(outer, weights));
        if (o->delay == 0) TW_TRY(outer_round_take(outer, (float)o->mixing, weights, &applied));
    }
    *event = applied || (started && o->eager)           ? TW_OUTER_APPLIED
             : outer->phase != TW_OUTER_IDLE && started ? TW_OUTER_STARTED
                                                        : TW_OUTER_NOTHING;
    return TW_OK;
}

tw_status tw_outer_read(tw_outer *outer, float *const *shared)
{
    TW_TRY(tw_outer_need(outer)); /* and not the others, who may be lost */
    TW_TRY(tw_outer_check_arrays(outer, shared, "shared"));
    TW_TRY(tw_outer_need_shared(outer));
    copy_out(outer, outer->theta, shared);
    return TW_OK;
}

/* Each fragment has met once since nobody takes steps any more. */
static tw_status meet_for_good(tw_outer *outer, float *const *weights)
{
    int applied;
    if (outer->phase != TW_OUTER_IDLE) TW_TRY(outer_round_take(outer, (float)outer->options.mixing, weights, &applied));
    for (size_t fragments = 0; fragments < outer->fragment_count;) {
        TW_TRY(give(outer, weights));
        TW_TRY(outer_round_take(outer, 0, weights, &applied));
        fragments = outer->all_finish ? fragments + 1 : 0;
    }
    return TW_OK;
}

/* A part that came to nothing is given again in the fragment's next round: what counts is its last. */
static int any_lost(const tw_outer *outer)
{
    int any = 0;
    for (size_t f = 0; f < outer->fragment_count; f++) any |= outer->fragments[f].lost;
    return any;
}

tw_status tw_outer_finish(tw_outer *outer, float *const *weights)
{
    TW_TRY(outer_round_check_call(outer, weights, "weights"));
    TW_TRY(check_begun(outer, 1));
    outer->finishing = 1;
    tw_outer_keep_quiet(outer, 1);
    const tw_status status = meet_for_good(outer, weights);
    tw_outer_keep_quiet(outer, 0);
    TW_TRY(status);
    copy_out(outer, outer->theta, weights);
    outer->begun = 0;
    outer->since = 0;
    if (!any_lost(outer)) return TW_OK;
    return tw_fail(TW_SKIPPED, "the last steps are lost: some rank's part, or the sum, was too large for the exchange");
}
