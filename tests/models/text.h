/* text.h - what is true of every language model, LSTMs and transformers alike: its gradients, and when they are
 * announced. A test that includes it says what a small one is: tiny(). */
#ifndef TEST_MODELS_TEXT_H
#define TEST_MODELS_TEXT_H

#include "language_model.h"
#include "training.h"

enum { VOCABULARY = 13, STEPS = 6, BATCH = 3, ROWS = STEPS * BATCH };

static const nn_noise noise = {5, 17};

static language_model_config tiny(int tied, float keep);

static inline language_model *make_sized(language_model_config config, size_t vocabulary, size_t steps, size_t batch)
{
    language_model *m;
    assert_ok(language_model_create(&config, &(language_model_shape){vocabulary, steps, batch}, &m));
    language_model_initialise(m, 42);
    return m;
}

static inline language_model *make(language_model_config config)
{
    return make_sized(config, VOCABULARY, STEPS, BATCH);
}

/* Tokens of a strip each; the target is the next one. */
typedef struct sample {
    int32_t tokens[(STEPS + 1) * BATCH];
    language_model_text text;
} sample;

static inline int32_t any_token(uint64_t stream, size_t i)
{
    uint32_t words[4];
    tw_random(3, stream, i, words);
    return (int32_t)(words[0] % VOCABULARY);
}

static inline sample *make_sample(void)
{
    sample *s = malloc(sizeof *s);
    for (size_t i = 0; i < (STEPS + 1) * BATCH; i++) s->tokens[i] = any_token(0, i);
    s->tokens[ROWS] = -1; /* the last target of the first strip does not count */
    s->text = (language_model_text){s->tokens, s->tokens + BATCH, STEPS};
    return s;
}

static inline language_model_result step(language_model *m, const language_model_text *text)
{
    language_model_result result;
    assert_ok(language_model_step(m, text, &noise, NULL, NULL, &result));
    return result;
}

static inline language_model_result evaluate(language_model *m, const language_model_text *text)
{
    language_model_result result;
    assert_ok(language_model_evaluate(m, text, &result));
    return result;
}

static inline void refused(language_model_config config, size_t vocabulary, const char *because)
{
    language_model *m = NULL;
    assert_fails(language_model_create(&config, &(language_model_shape){vocabulary, 1, 1}, &m), TW_ERROR_ARGUMENT,
                 because);
    assert_null(m);
}

/* ---- gradients ---- */

typedef struct probe {
    language_model *m;
    const language_model_text *text;
} probe;

static inline double mean_loss(void *context)
{
    probe *p = context;
    language_model_reset(p->m);
    language_model_result result = step(p->m, p->text);
    return result.loss / (double)result.tokens;
}

/* Of what learns: `set`, whose old gradients must not matter. */
static inline void check_differences(language_model *m, const parameter_set *set)
{
    sample *s = make_sample();
    probe p = {m, &s->text};
    memset(set->gradients, 0x7f, set->table->elements * sizeof(float));
    mean_loss(&p);
    check_gradients(set, mean_loss, &p);
    language_model_destroy(m);
    free(s);
}

TEST(gradients_agree_with_differences)
{
    for (int i = 0; i < 4; i++) {
        language_model *m = make(tiny(i % 2, i / 2 ? 0.6f : 1.0f));
        check_differences(m, language_model_parameters(m));
    }
}

/* Each gradient once, backwards, and complete when it is announced: as it is at the end. A failure ends the pass. */
static inline void check_announcements(language_model *m, const parameter_set *set)
{
    sample *s = make_sample();
    announcements a = announcements_open(set);
    language_model_result result;
    assert_ok(language_model_step(m, &s->text, &noise, note_announcement, &a, &result));
    assert_int_equal(a.next, 0);
    assert_memory_equal(a.copy, a.set->gradients, a.set->table->elements * sizeof(float));
    a.next = a.set->table->count;
    a.stop_at = 3;
    assert_int_equal(language_model_step(m, &s->text, &noise, note_announcement, &a, &result), TW_ERROR_PEER);
    assert_int_equal(a.next, 3);
    free(a.copy);
    language_model_destroy(m);
    free(s);
}

TEST(gradients_are_announced_complete_and_backwards)
{
    for (int tied = 0; tied < 2; tied++) {
        language_model *m = make(tiny(tied, 0.6f));
        check_announcements(m, language_model_parameters(m));
    }
}

#endif
