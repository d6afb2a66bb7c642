#include "plan.h"
#include "compress.h"
#include "error.h"
#include "memory.h"
#include "sized.h"
#include "table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NEARLY 1.05 /* so much slower is as fast, and the simpler one is better */
#define RATE_MOST 1e15
#define DENSE "allreduce"
enum { ELEMENTS = 4000000, KINDS = TW_PLAN_GRADIENTS | TW_PLAN_WEIGHTS | TW_PLAN_UPDATES };

/* What all rows are made with. */
typedef struct planner {
    tw_plan_question q;
    tw_thin thin;
    float *noise;
    tw_plan *plan;
    double end_bytes; /* of the row in hand */
} planner;

/* ---- who is left out --------------------------------------------------------------------------------------------- */

/* The momentum that a scheme applies itself. */
static tw_status momentum_of(const char *spec, float *momentum)
{
    const tw_tensor one = {.name = "one", .dims = 2, .shape = {64, 64}};
    tw_scheme *scheme;
    TW_TRY(tw_scheme_create_between(spec, &one, 1, 0, 1, &scheme));
    *momentum = tw_scheme_momentum(scheme, NULL);
    tw_scheme_destroy(scheme);
    return TW_OK;
}

static tw_status suits_optimizer(const tw_plan_question *q, const tw_plan_row *row)
{
    const int adapts = tw_spec_number(row->spec, "beta2") > 0;
    float momentum = 0;
    if (q->goes_on) TW_TRY(tw_plan_can_switch(row->spec));
    if (row->kind != TW_PLAN_GRADIENTS) return TW_OK; /* weights, and what steps came to, have none */
    TW_TRY(momentum_of(row->spec, &momentum));
    if (momentum > 0 && q->keeps_momentum)
        return tw_fail(
            TW_ERROR_ARGUMENT,
            "scheme %s applies its own momentum before it sends, and another one is asked for; it goes with "
            "thinwire.torch.%s, which leaves momentum to the scheme, or with thinwire train without --momentum and "
            "--nesterov",
            row->spec, adapts ? "AdamW" : "SGD");
    if (adapts)
        return q->optimizer == TW_PLAN_ADAMW
                   ? TW_OK
                   : tw_fail(TW_ERROR_ARGUMENT, "scheme %s gives Adam's direction, which AdamW alone takes", row->spec);
    if (momentum == 0 || q->optimizer == TW_PLAN_SGD) return TW_OK;
    return tw_fail(
        TW_ERROR_ARGUMENT,
        "scheme %s applies momentum before it sends, so what arrives is a direction for SGD, and no gradient "
        "to take moments of",
        row->spec);
}

tw_status tw_plan_can_switch(const char *spec)
{
    float momentum = 0;
    tw_plan_kind kind;
    const char *carrier;
    TW_TRY(tw_need(spec, "spec"));
    TW_TRY(tw_spec_kind(spec, &kind));
    TW_TRY(tw_spec_carrier(spec, &carrier));
    if (!carrier)
        return tw_fail(TW_ERROR_UNSUPPORTED,
                       "with %s each worker is at a step of its own, and there is none at which all could go on with "
                       "another way",
                       spec);
    if (kind == TW_PLAN_UPDATES && strcmp(carrier, DENSE) != 0)
        return tw_fail(TW_ERROR_UNSUPPORTED, "%s holds back some of what local steps came to, which goes nowhere else",
                       spec);
    if (kind == TW_PLAN_GRADIENTS) TW_TRY(momentum_of(spec, &momentum));
    if (momentum == 0 && !(tw_spec_number(spec, "beta2") > 0)) return TW_OK;
    return tw_fail(TW_ERROR_UNSUPPORTED,
                   "%s has moments of its own, which no optimiser takes over in the midst of a run", spec);
}

static tw_status suits_length(const tw_plan_question *q, const tw_plan_row *row)
{
    double every = tw_spec_number(row->spec, "every");
    if (!(every > (double)q->steps)) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "a round takes %g steps, and the run has %llu", every,
                   (unsigned long long)q->steps);
}

/* ---- what is predicted of one ------------------------------------------------------------------------------------ */

/* What gossip costs was measured where workers average their weights about once a step. Over a slow line they do so
 * less often. */
static int averages_each_step(const planner *p, const tw_plan_row *row)
{
    return row->bytes_per_step >= 0.8 * sizeof(float) * (double)p->plan->elements;
}

/* Adds what `share` of the run takes by this spec. */
static tw_status add_share(planner *p, const char *spec, double share, tw_plan_row *row)
{
    tw_prediction found;
    tw_trial trial = {0, (double)NAN};
    double every = tw_spec_number(spec, "every");
    if (row->kind != TW_PLAN_WEIGHTS) TW_TRY(tw_trial_take(&p->thin, p->noise, spec, p->q.codec_rate > 0, &trial));
    TW_TRY(tw_predict(&p->q, &p->thin, p->noise, spec, trial.seconds, &found));
    row->step_seconds += share * found.step_seconds;
    row->bytes_per_step += share * found.bytes_per_step;
    row->end_seconds = found.end_seconds;
    p->end_bytes = found.end_bytes;
    row->codec_seconds += share * trial.seconds / (every >= 1 ? every : 1);
    row->memory_bytes = trial.memory_bytes;
    return TW_OK;
}

static tw_status add_share_with(planner *p, const char *spec, const char *option, double value, double share,
                                tw_plan_row *row)
{
    char text[32], *with;
    tw_decimal_text(value, 9, text, sizeof text);
    TW_TRY(tw_spec_with(spec, option, text, &with));
    tw_status status = add_share(p, with, share, row);
    tw_free(with);
    return status;
}

/* The levels of a warm-up are a quarter of one another and equally long (tw_warmup_density); the run may end before. */
static tw_status add_levels(planner *p, const char *warm, double warmup, double first, tw_plan_row *row)
{
    double steps = (double)p->q.steps, last = tw_spec_number(warm, "density"), left = 1;
    int levels = 0;
    for (double level = first; level > last; level /= 4) levels++;
    for (int i = 0; i < levels && left > 0; i++, first /= 4) {
        double share = fmin(left, warmup / levels / steps);
        TW_TRY(add_share_with(p, warm, "density", first, share, row));
        left -= share;
    }
    return left > 0 ? add_share(p, warm, left, row) : TW_OK;
}

/* One without levels is all alike, and all of a run that it does not leave. */
static tw_status add_beginning(planner *p, const char *warm, double warmup, tw_plan_row *row)
{
    const double NEVER_OVER = 1e8;
    double share = fmin(1, warmup / (double)p->q.steps);
    TW_TRY(add_share_with(p, warm, "warmup_steps", NEVER_OVER, share, row));
    return share < 1 ? add_share(p, warm, 1 - share, row) : TW_OK;
}

static tw_status add_run(planner *p, const char *of_run, tw_plan_row *row)
{
    char *warm;
    double warmup = tw_spec_number(of_run, "warmup_steps"), first = tw_spec_number(of_run, "warmup_density");
    if (!(warmup > 0)) return add_share(p, of_run, 1, row);
    TW_TRY(tw_spec_with(of_run, "warmup_steps", "0", &warm));
    tw_status status = first > 0 ? add_levels(p, warm, warmup, first, row) : add_beginning(p, warm, warmup, row);
    tw_free(warm);
    return status;
}

static tw_status plan_predict(planner *p, tw_plan_row *row)
{
    char of_run[256];
    TW_TRY(tw_spec_kind(row->spec, &row->kind));
    TW_TRY(suits_optimizer(&p->q, row));
    TW_TRY(suits_length(&p->q, row));
    tw_spec_for_run(row->spec, p->q.steps, of_run, sizeof of_run);
    TW_TRY(add_run(p, of_run, row));
    if (row->kind == TW_PLAN_WEIGHTS && row->bytes_per_step == 0 && p->q.workers > 1)
        return tw_fail(TW_ERROR_ARGUMENT, "over this line no exchange ended in the steps that were simulated");
    if (row->kind == TW_PLAN_WEIGHTS && !averages_each_step(p, row)) {
        p->plan->seen_from[row - p->plan->rows] = 0;
        row->seen = NULL;
    }
    row->step_seconds += row->end_seconds / (double)p->q.steps;
    row->bytes_per_step += p->end_bytes / (double)p->q.steps;
    row->utilisation = (p->q.pass_seconds + p->q.other_seconds) / row->step_seconds;
    row->target_seconds = row->step_seconds * (1 + (row->seen ? row->extra : 0));
    return TW_OK;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

static int may_be_chosen(const tw_plan_row *row, int kinds, int unmeasured)
{
    return !row->left_out && (kinds == 0 || kinds & row->kind) && (row->seen || unmeasured);
}

static const tw_plan_row *fastest_of(const tw_plan *plan, int kinds, int unmeasured)
{
    const tw_plan_row *best = NULL;
    for (const tw_plan_row *row = plan->rows; row < plan->rows + plan->count; row++)
        if (may_be_chosen(row, kinds, unmeasured) && (!best || row->target_seconds < best->target_seconds)) best = row;
    return best;
}

static void __attribute__((format(printf, 2, 3))) add_why(tw_plan *plan, const char *form, ...)
{
    size_t used = strlen(plan->why);
    va_list values;
    va_start(values, form);
    vsnprintf(plan->why + used, sizeof plan->why - used, form, values);
    va_end(values);
}

/* A candidate that is faster than any that may be chosen. */
static void explain_unmeasured(tw_plan *plan, const tw_plan_row *row)
{
    const double from = plan->seen_from[row - plan->rows];
    add_why(plan, " %s has faster steps, but what it costs in such a run has not been measured", row->spec);
    if (from > 0) add_why(plan, ", only in runs of %g steps and more", from);
    add_why(plan, ". --unmeasured (in Python unmeasured=True) takes it all the same.");
}

/* `fastest` and `of_all` may be the same. */
static void explain(tw_plan *plan, const tw_plan_row *fastest, const tw_plan_row *of_all)
{
    const tw_plan_row *chosen = plan->chosen, *dense = plan->dense;
    double gain = dense->target_seconds / chosen->target_seconds;
    int percent = (int)lround(100 * (NEARLY - 1));
    *plan->why = 0;
    if (chosen == of_all && chosen == dense)
        add_why(plan, "Nothing is faster, and it is exact: compression would only take time.");
    else if (chosen == dense)
        add_why(plan, "It is exact.");
    else if (chosen->seen)
        add_why(plan, "It is predicted to reach the same loss %.3g times as fast as %s.", gain, dense->spec);
    else
        add_why(
            plan,
            "Its step is predicted to be %.3g times as fast as that of %s. How many steps it takes to the same loss "
            "has not been measured.",
            gain, dense->spec);
    if (chosen != dense && chosen->seen)
        add_why(plan, " Measured on small networks with few seeds, in docs/%s: %s.", chosen->page, chosen->seen);
    if (fastest != chosen) add_why(plan, " %s is less than %d %% faster, and not as simple.", fastest->spec, percent);
    if (of_all->target_seconds * NEARLY < fastest->target_seconds) explain_unmeasured(plan, of_all);
}

tw_status tw_plan_choose(tw_plan *plan, int kinds, int unmeasured)
{
    const tw_plan_row *fastest = fastest_of(plan, kinds, unmeasured), *row = plan->rows;
    if (!fastest)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "none of the candidates that could be taken here has been measured in a run of %llu steps or "
                       "fewer; name one, or let the run be longer",
                       (unsigned long long)plan->question.steps);
    while (!may_be_chosen(row, kinds, unmeasured) || row->target_seconds > NEARLY * fastest->target_seconds) row++;
    plan->chosen = row;
    explain(plan, fastest, fastest_of(plan, kinds, 1));
    return TW_OK;
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static void plan_tell(const planner *p, const tw_plan_row *row)
{
    char line[192];
    if (!p->q.told) return;
    if (row->left_out)
        snprintf(line, sizeof line, "%s: left out", row->spec);
    else
        snprintf(line, sizeof line, "%s: %.4g s a step", row->spec, row->step_seconds);
    p->q.told(p->q.context, line);
}

static void add_row(planner *p, const tw_candidate *c)
{
    size_t index = p->plan->count++;
    tw_plan_row *row = &p->plan->rows[index];
    const tw_candidate_cost *with_adam = p->q.adapters ? &c->adapters : &c->adam;
    const tw_candidate_cost *cost = p->q.optimizer == TW_PLAN_SGD ? &c->sgd : with_adam;
    *row = (tw_plan_row){.struct_size = sizeof *row, .spec = c->spec, .extra = (double)NAN};
    p->plan->seen_from[index] = cost->seen ? cost->steps : 0;
    if (tw_candidate_is_known(cost, (double)p->q.steps)) {
        row->extra = cost->extra;
        row->seen = cost->seen;
        row->page = cost->page;
    }
    if (plan_predict(p, row) != TW_OK) {
        snprintf(p->plan->left_out[index], sizeof p->plan->left_out[index], "%s", tw_last_error());
        row->left_out = p->plan->left_out[index];
    }
    plan_tell(p, row);
}

static tw_status add_rows(planner *p)
{
    p->plan->dense = p->plan->rows;
    for (size_t i = 0; tw_candidate_at(i) && p->plan->count < TW_PLAN_ROWS; i++) {
        add_row(p, tw_candidate_at(i));
        if (p->plan->dense->left_out) return tw_fail(TW_ERROR_ARGUMENT, "%s", p->plan->dense->left_out);
    }
    return tw_plan_choose(p->plan, p->q.kinds, p->q.unmeasured);
}

static tw_status plan_prepare(planner *p)
{
    size_t most = p->q.elements ? p->q.elements : ELEMENTS;
    TW_TRY(tw_thin_create(p->q.tensors, p->q.tensor_count, most, &p->thin));
    size_t count = 2 * p->thin.elements + TW_NOISE_MARGIN;
    TW_TRY(tw_allocate_unset(count * sizeof *p->noise, &p->noise));
    return tw_phantom_noise(p->noise, count, p->q.seed);
}

static void planner_release(planner *p)
{
    tw_thin_release(&p->thin);
    tw_free(p->noise);
}

static int is_time(double seconds)
{
    return seconds >= 0 && seconds <= 1e7;
}

static tw_status check_taste(const tw_plan_question *q)
{
    if ((int)q->optimizer < TW_PLAN_SGD || (int)q->optimizer > TW_PLAN_ADAMW)
        return tw_fail(TW_ERROR_ARGUMENT, "optimizer %d: want one of tw_plan_optimizer, %d to %d", (int)q->optimizer,
                       TW_PLAN_SGD, TW_PLAN_ADAMW);
    if (q->kinds & ~KINDS)
        return tw_fail(TW_ERROR_ARGUMENT, "kinds %d: want a sum of tw_plan_kind, 0 to %d", q->kinds, KINDS);
    if (!(q->codec_rate >= 0 && q->codec_rate <= RATE_MOST))
        return tw_fail(TW_ERROR_ARGUMENT, "codec_rate %g: want bytes a second up to %g, or 0 to time each scheme here",
                       q->codec_rate, RATE_MOST);
    return TW_OK;
}

static tw_status check_question(const tw_plan_question *q)
{
    TW_TRY(tw_need(q->tensors, "tensors"));
    if (!q->simulate)
        return tw_fail(TW_ERROR_ARGUMENT, "simulate is NULL: say tw_world_play, and link with -lthinwire_sim");
    if (q->tensor_count == 0) return tw_fail(TW_ERROR_ARGUMENT, "tensor_count is 0: there is nothing to exchange");
    TW_TRY(tw_table_check(q->tensors, q->tensor_count));
    TW_TRY(check_taste(q));
    if (q->workers < 2)
        return tw_fail(TW_ERROR_ARGUMENT, "%d workers: a worker alone exchanges nothing; say how many there will be",
                       q->workers);
    if (q->workers > TW_PLAN_WORKERS_MOST)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "%d workers: a plan plays each of them for each candidate, and takes at most %d; thinwire "
                       "simulate plays more, with one spec",
                       q->workers, TW_PLAN_WORKERS_MOST);
    if (q->steps == 0) return tw_fail(TW_ERROR_ARGUMENT, "steps is 0: say how many steps the run has");
    if (!is_time(q->pass_seconds) || !is_time(q->other_seconds))
        return tw_fail(TW_ERROR_ARGUMENT, "a pass of %g s and %g s beside it: want 0 to 1e7", q->pass_seconds,
                       q->other_seconds);
    for (int rank = 0; q->factors && rank < q->workers; rank++)
        if (!(q->factors[rank] > 0 && is_time(q->factors[rank] * q->pass_seconds)))
            return tw_fail(TW_ERROR_ARGUMENT, "worker %d: a pass %g times as long takes more than 1e7 s, or none", rank,
                           q->factors[rank]);
    return TW_OK;
}

tw_status tw_plan_make(const tw_plan_question *question, tw_plan **plan)
{
    planner p = {.plan = NULL};
    TW_TRY(tw_need(question, "question"));
    TW_TRY(tw_need(plan, "plan"));
    TW_TRY(tw_read_sized(&p.q, sizeof p.q, question, "tw_plan_question"));
    TW_TRY(check_question(&p.q));
    TW_TRY(tw_allocate(1, sizeof *p.plan, &p.plan));
    p.plan->question = p.q;
    for (size_t i = 0; i < p.q.tensor_count; i++) p.plan->elements += tw_tensor_count(&p.q.tensors[i]);
    tw_status status = plan_prepare(&p);
    if (status == TW_OK) status = add_rows(&p);
    planner_release(&p);
    if (status == TW_OK)
        *plan = p.plan;
    else
        tw_plan_destroy(p.plan);
    return status;
}

static tw_status predict_bytes(planner *p, const char *spec, double *bytes)
{
    tw_prediction found;
    TW_TRY(plan_prepare(p));
    TW_TRY(tw_predict(&p->q, &p->thin, p->noise, spec, 0, &found));
    *bytes = found.bytes_per_step;
    return TW_OK;
}

tw_status tw_plan_bytes(const tw_plan_question *question, const char *spec, double *bytes)
{
    planner p = {.plan = NULL};
    char *warm;
    TW_TRY(tw_need(question, "question"));
    TW_TRY(tw_need(spec, "spec"));
    TW_TRY(tw_need(bytes, "bytes"));
    TW_TRY(tw_read_sized(&p.q, sizeof p.q, question, "tw_plan_question"));
    p.q.steps = (uint64_t)fmax(1, tw_spec_number(spec, "every"));
    TW_TRY(check_question(&p.q));
    TW_TRY(tw_spec_without_warmup(spec, &warm));
    tw_status status = predict_bytes(&p, warm, bytes);
    tw_free(warm);
    planner_release(&p);
    return status;
}

void tw_plan_destroy(tw_plan *plan)
{
    tw_free(plan);
}

/* ---- what it says ------------------------------------------------------------------------------------------------ */

size_t tw_plan_count(const tw_plan *plan)
{
    return plan ? plan->count : 0;
}

tw_status tw_plan_row_at(const tw_plan *plan, size_t index, tw_plan_row *row)
{
    TW_TRY(tw_need(plan, "plan"));
    TW_TRY(tw_need(row, "row"));
    if (index >= plan->count) return tw_fail(TW_ERROR_ARGUMENT, "row %zu of a plan that has %zu", index, plan->count);
    return tw_copy_sized(row, &plan->rows[index], sizeof *row, "tw_plan_row");
}

size_t tw_plan_choice(const tw_plan *plan)
{
    return plan ? (size_t)(plan->chosen - plan->rows) : 0;
}

const char *tw_plan_why(const tw_plan *plan)
{
    return plan ? plan->why : "";
}
