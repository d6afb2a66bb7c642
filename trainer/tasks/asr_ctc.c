/* asr_ctc.c - letters from whole utterances and their transcripts, by connectionist temporal classification. */
#include "asr.h"
#include "ctc.h"
#include "decode.h"
#include "edit_distance.h"
#include "error.h"
#include "speech_batch.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct ctc_sets {
    alphabet letters; /* of the training transcripts */
    speech_set train;
    speech_set held[TASK_SPLITS]; /* without utterances where the task has no validation set */
} ctc_sets;

/* ---- metrics ---- */

enum { SUBSTITUTIONS, INSERTIONS, DELETIONS, WORDS, CHARACTER_EDITS, CHARACTERS };
_Static_assert((int)CHARACTERS < (int)TASK_PARTS, "a score has a part for each");

static double wer(const task_score *score)
{
    const double *p = score->parts;
    return (p[SUBSTITUTIONS] + p[INSERTIONS] + p[DELETIONS]) / p[WORDS];
}

static double cer(const task_score *score)
{
    return score->parts[CHARACTER_EDITS] / score->parts[CHARACTERS];
}

static const task_metric metrics[] = {{"wer", wer, true, true},
                                      {"cer", cer, true, true},
                                      {"substitutions", .part = SUBSTITUTIONS},
                                      {"insertions", .part = INSERTIONS},
                                      {"deletions", .part = DELETIONS},
                                      {"words", .part = WORDS},
                                      {0}};

static void add_edits(task_score *score, const edit_counts *by_word, const edit_counts *by_character)
{
    double *p = score->parts;
    p[SUBSTITUTIONS] += (double)by_word->substitutions;
    p[INSERTIONS] += (double)by_word->insertions;
    p[DELETIONS] += (double)by_word->deletions;
    p[WORDS] += (double)(by_word->correct + by_word->substitutions + by_word->deletions);
    p[CHARACTER_EDITS] += (double)(by_character->substitutions + by_character->insertions + by_character->deletions);
    p[CHARACTERS] += (double)(by_character->correct + by_character->substitutions + by_character->deletions);
}

/* ---- data ---- */

static void describe_sets(asr_data *d, const ctc_sets *s, asr_parts *parts)
{
    task *t = &d->base;
    uint32_t sum = 0;
    for (size_t i = 0; i < s->train.count; i++)
        sum = tw_crc32c(sum, s->train.items[i].targets, s->train.items[i].target_count * sizeof(uint32_t));
    const speech_set *valid = &s->held[TASK_VALIDATION], *test = &s->held[TASK_TEST];
    *parts = (asr_parts){.counts = {s->train.count, valid->count, test->count}, .sets = {&s->train, valid, test}};
    snprintf(parts->what, sizeof parts->what, "utterances of %zu letters", s->letters.count);
    snprintf(t->identity, sizeof t->identity, "of %zu utterances (transcripts %08x)", s->train.count, sum);
}

/* The letters of all of another corpus; its sounds are not looked at. */
static tw_status letters_of(const char *path, alphabet *letters)
{
    speech_corpus other = {0};
    tw_status status = speech_corpus_load_unsplit(path, &other);
    const speech_list *const parts[] = {&other.train, &other.valid, &other.test};
    for (int i = 0; status == TW_OK && i < 3; i++) status = speech_alphabet(parts[i], letters);
    if (status == TW_OK && letters->count == 0)
        status = tw_fail(TW_ERROR_FORMAT, "--labels-from %s: it has no transcripts", path);
    speech_corpus_release(&other);
    return status;
}

static tw_status find_letters(const asr_data *d, alphabet *letters)
{
    const char *other = asr_settings_of(&d->base)->labels_from;
    return other ? letters_of(other, letters) : speech_alphabet(&d->corpus.train, letters);
}

static tw_status asr_ctc_load(asr_data *d, asr_parts *parts)
{
    ctc_sets *s = d->sets = calloc(1, sizeof *s);
    if (!s) return tw_fail(TW_ERROR_MEMORY, "no memory for a corpus");
    TW_TRY(find_letters(d, &s->letters));
    TW_TRY(speech_load(&d->corpus.train, &s->letters, &d->request, &s->train));
    if (d->base.has_validation)
        TW_TRY(speech_load(&d->corpus.valid, &s->letters, &d->request, &s->held[TASK_VALIDATION]));
    TW_TRY(speech_load(&d->corpus.test, &s->letters, &d->request, &s->held[TASK_TEST]));
    d->labels = s->letters.count + 1;
    describe_sets(d, s, parts);
    return TW_OK;
}

static void asr_ctc_release(asr_data *d)
{
    ctc_sets *s = d->sets;
    speech_release(&s->train);
    for (int i = 0; i < TASK_SPLITS; i++) speech_release(&s->held[i]);
    alphabet_release(&s->letters);
    free(s);
}

static tw_status asr_ctc_describe(const asr_data *d, tw_state *state)
{
    char *text;
    TW_TRY(alphabet_text(&((const ctc_sets *)d->sets)->letters, &text));
    tw_status status = tw_state_put_text(state, ASR_ALPHABET, text);
    free(text);
    return status;
}

/* ---- a worker ---- */

typedef struct ctc_worker {
    speech_batch batch;
    size_t *lengths; /* of the batch, as the network wants them */
    uint32_t *rows;  /* of its scores, as the loss wants them */
    ctc *loss;
    uint32_t *by_length[TASK_SPLITS]; /* what is held out, from short to long */
    uint32_t *own, *letters;          /* indices of a batch; what was recognised */
    char *said, *heard;
} ctc_worker;

static const ctc_sets *sets_of(const asr_learner *l)
{
    return asr_data_of(l)->sets;
}

static size_t asr_ctc_count(const asr_data *d)
{
    return ((const ctc_sets *)d->sets)->train.count;
}

static void grow_to(const speech_set *set, size_t *frames, size_t *targets)
{
    for (size_t i = 0; i < set->count; i++) {
        if (set->items[i].frames > *frames) *frames = set->items[i].frames;
        if (set->items[i].target_count > *targets) *targets = set->items[i].target_count;
    }
}

static tw_status order_held(ctc_worker *w, const ctc_sets *s)
{
    for (int i = 0; i < TASK_SPLITS; i++) {
        size_t count = s->held[i].count;
        if (count == 0) continue;
        w->by_length[i] = malloc(count * sizeof *w->by_length[i]);
        if (!w->by_length[i]) return tw_fail(TW_ERROR_MEMORY, "no memory for the order of %zu utterances", count);
        TW_TRY(speech_order_by_length(&s->held[i], w->by_length[i]));
    }
    return TW_OK;
}

static tw_status asr_ctc_prepare(asr_learner *l)
{
    const ctc_sets *s = sets_of(l);
    size_t frames = 1, targets = 1, batch = l->base.place.batch;
    l->base.steps_per_epoch = speech_steps(&s->train, (size_t)l->base.place.size, batch);
    grow_to(&s->train, &frames, &targets);
    frames += (size_t)ceil((double)frames * asr_settings_of(l->base.task)->tempo);
    for (int i = 0; i < TASK_SPLITS; i++) grow_to(&s->held[i], &frames, &targets);
    ctc_worker *w = l->own = calloc(1, sizeof *w);
    if (!w) return tw_fail(TW_ERROR_MEMORY, "no memory for a worker");
    TW_TRY(ctc_create(frames, s->letters.count + 1, targets, &w->loss));
    size_t text = 4 * (frames > targets ? frames : targets) + 1;
    l->order = malloc(s->train.count * sizeof *l->order);
    w->lengths = malloc(batch * sizeof *w->lengths);
    w->rows = malloc(batch * sizeof *w->rows);
    w->own = malloc(batch * sizeof *w->own);
    w->letters = malloc(frames * sizeof *w->letters);
    w->said = malloc(text);
    w->heard = malloc(text);
    if (!l->order || !w->lengths || !w->rows || !w->own || !w->letters || !w->said || !w->heard)
        return tw_fail(TW_ERROR_MEMORY, "no memory for batches of %zu utterances", batch);
    return order_held(w, s);
}

static void asr_ctc_clear(asr_learner *l)
{
    ctc_worker *w = l->own;
    speech_batch_release(&w->batch);
    ctc_destroy(w->loss);
    free(w->lengths);
    free(w->rows);
    for (int i = 0; i < TASK_SPLITS; i++) free(w->by_length[i]);
    free(w->own);
    free(w->letters);
    free(w->said);
    free(w->heard);
    free(w);
}

static spec_augmentation augmentation_of(const asr_settings *s)
{
    return (spec_augmentation){.frequency_masks = (int)s->frequency_masks,
                               .time_masks = (int)s->time_masks,
                               .widest_band = (int)s->frequency_mask,
                               .longest_span = (int)s->time_mask,
                               .most_of_it = 0.2,
                               .tempo = s->tempo};
}

static acoustic_model_batch show_batch(const asr_learner *l)
{
    ctc_worker *w = l->own;
    for (size_t i = 0; i < w->batch.count; i++) {
        w->lengths[i] = w->batch.lengths[i];
        w->rows[i] = (uint32_t)acoustic_model_rows(l->net, w->lengths[i]);
    }
    return (acoustic_model_batch){w->batch.time, w->batch.count, w->lengths, w->batch.features};
}

/* A batch's loss, with respect to logits: scores are logits too, since they are normalised already. */
static tw_status asr_ctc_lose(const asr_learner *l, const float *scores, float *gradient, task_score *score)
{
    const ctc_worker *w = l->own;
    const speech_batch *b = &w->batch;
    ctc_result result;
    ctc_batch batch = {.time = acoustic_model_rows(l->net, b->time),
                       .batch = b->count,
                       .labels = sets_of(l)->letters.count + 1,
                       .logits = scores,
                       .frames = w->rows,
                       .targets = b->targets,
                       .target_lengths = b->target_counts};
    TW_TRY(ctc_loss(w->loss, &batch, CTC_BY_LABEL, gradient, &result));
    score->loss += result.sum;
    score->count += (double)b->count;
    return TW_OK;
}

typedef struct loss_context {
    const asr_learner *learner;
    task_score *score;
} loss_context;

static tw_status compute_loss(void *context, const acoustic_model_batch *batch, const float *scores, float *gradient)
{
    loss_context *c = context;
    (void)batch;
    return asr_ctc_lose(c->learner, scores, gradient, c->score);
}

/* The first epoch goes from short to long (SortaGrad, Amodei et al. 2016): long utterances are hard to begin with. */
static tw_status order_epoch(asr_learner *l, uint64_t epoch)
{
    if (epoch == l->order_epoch) return TW_OK;
    const learner_place *p = &l->base.place;
    TW_TRY(speech_order(&sets_of(l)->train, (size_t)p->size, p->batch, p->seed, epoch, epoch == 0, l->order));
    l->order_epoch = epoch;
    return TW_OK;
}

static tw_status asr_ctc_step(asr_learner *l, uint64_t number, learner_gradient_ready ready, void *context,
                              task_score *score)
{
    ctc_worker *w = l->own;
    const learner_place *p = &l->base.place;
    uint64_t epoch = number / l->base.steps_per_epoch;
    TW_TRY(order_epoch(l, epoch));
    const uint32_t *own = l->order + task_slice(&l->base, number);
    spec_augmentation augment = augmentation_of(asr_settings_of(l->base.task));
    TW_TRY(speech_fill(&sets_of(l)->train, own, p->batch, &augment, p->seed, epoch, &w->batch));
    acoustic_model_batch batch = show_batch(l);
    loss_context to = {l, score};
    nn_noise noise = noise_of(&l->base.place, number);
    return acoustic_model_step(l->net, &batch, &(acoustic_model_loss){compute_loss, &to}, &noise, ready, context);
}

/* ---- evaluation ---- */

static tw_status asr_ctc_compare(const asr_learner *l, const speech_item *item, const utterance *u, task_score *score)
{
    ctc_worker *w = l->own;
    edit_counts by_word = {0}, by_character = {0};
    size_t count = decode_greedy(u, w->letters);
    alphabet_decode(&sets_of(l)->letters, item->targets, item->target_count, w->said);
    alphabet_decode(&sets_of(l)->letters, w->letters, count, w->heard);
    TW_TRY(edit_words(w->said, w->heard, &by_word));
    TW_TRY(edit_characters(w->said, w->heard, &by_character));
    add_edits(score, &by_word, &by_character);
    return TW_OK;
}

static tw_status asr_ctc_evaluate_batch(asr_learner *l, const speech_set *held, size_t count, task_score *score)
{
    ctc_worker *w = l->own;
    const float *scores;
    TW_TRY(speech_fill(held, w->own, count, NULL, 0, 0, &w->batch));
    acoustic_model_batch batch = show_batch(l);
    TW_TRY(acoustic_model_evaluate(l->net, &batch, &scores));
    TW_TRY(asr_ctc_lose(l, scores, NULL, score));
    size_t labels = sets_of(l)->letters.count + 1;
    for (size_t i = 0; i < count; i++) {
        utterance u = {scores + i * labels, count * labels, w->rows[i], labels};
        TW_TRY(asr_ctc_compare(l, &held->items[w->own[i]], &u, score));
    }
    return TW_OK;
}

/* Every `parts`-th utterance, so that each part has short and long ones. */
static tw_status asr_ctc_evaluate(asr_learner *l, task_split split, size_t part, size_t parts, task_score *score)
{
    ctc_worker *w = l->own;
    const speech_set *held = &sets_of(l)->held[split];
    size_t count = 0, total = held->count;
    for (size_t i = part; i < total && !learner_stops(&l->base); i += parts) {
        w->own[count++] = w->by_length[split][i];
        if (count < l->base.place.batch && i + parts < total) continue;
        TW_TRY(asr_ctc_evaluate_batch(l, held, count, score));
        count = 0;
    }
    return TW_OK;
}

const asr_kind asr_ctc = {
    .name = "ctc",
    .items = "utterances",
    .batch_of = "utterances",
    .metrics = metrics,
    .load = asr_ctc_load,
    .release = asr_ctc_release,
    .count = asr_ctc_count,
    .prepare = asr_ctc_prepare,
    .clear = asr_ctc_clear,
    .step = asr_ctc_step,
    .evaluate = asr_ctc_evaluate,
    .describe = asr_ctc_describe,
};
