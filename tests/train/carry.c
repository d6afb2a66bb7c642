/* What workers take from one generation of a group to the next: those that stay have to the bit what they had, and who
 * is new has what the donor gives. Steps that no round had yet are in the first one, by how many they are. */
#include "carry.h"
#include "crew.h"
#include "error.h"
#include "small_run.h"
#include "support/parts.h"
#include "tensor_table.h"

#include <math.h>
#include <thinwire/thinwire_outer.h>

enum { OLD = 2, NEW = 3, MANY = 6, NEWCOMER = 2, PERIOD = 4, MOST_VALUES = 1 << 19 };

/* What a worker has, as floats one after the other. */
typedef struct possession {
    float *weights, *theta, *held, *optimiser;
    size_t weight_count, theta_count, held_count, optimiser_count;
    uint64_t step, rounds, taken;
    double items;
    uint64_t sent, plain; /* when it took its place: what it sent, and the bytes that a donor has to give */
} possession;

typedef struct story {
    carry carries[MANY];
    uint64_t steps[MANY]; /* to take before the change */
    int behind[MANY], late[MANY], donor, size;
    const int *leaves; /* of each worker, whether it leaves then */
    possession before[MANY], after[MANY];
} story;

static void collect(const tw_state *state, const char *part, float **values, size_t *count)
{
    if (!*values) *values = calloc(MOST_VALUES, sizeof **values);
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        if (tw_state_at(state, i, &entry) != TW_OK || entry.dtype != TW_F32 || !strstr(entry.name, part)) continue;
        if (*count + entry.bytes / sizeof(float) > MOST_VALUES) return;
        memcpy(*values + *count, entry.data, entry.bytes);
        *count += entry.bytes / sizeof(float);
    }
}

static void possess(const worker *w, const carry *c, possession *p)
{
    totals sums;
    *p = (possession){.step = w->step, .rounds = w->rounds, .taken = w->taken};
    if (worker_totals(w, &sums) == TW_OK) p->items = sums.values[TOTAL_ITEMS];
    collect(c->own, "own/", &p->weights, &p->weight_count);
    collect(c->own, ".theta/", &p->theta, &p->theta_count);
    collect(c->own, "/residual/", &p->held, &p->held_count);
    collect(c->own, "/rounding/", &p->held, &p->held_count);
    collect(c->own, "optimiser.", &p->optimiser, &p->optimiser_count);
}

static tw_status take_steps(crew_member *self)
{
    double loss;
    worker *w = &self->worker;
    story *s = self->context;
    carry *c = &s->carries[self->rank];
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(w));
    for (uint64_t i = 0; i < s->steps[self->rank]; i++) TW_TRY(worker_step(w, &loss));
    TW_TRY(carry_pack(w, 0, c));
    possess(w, c, &s->before[self->rank]);
    return TW_OK;
}

/* Nobody is beside it, and it has not begun. */
static tw_status come_new(crew_member *self)
{
    story *s = self->context;
    TW_TRY(crew_create_worker(self));
    TW_TRY(worker_begin(&self->worker));
    return carry_pack(&self->worker, 0, &s->carries[NEWCOMER]);
}

static uint64_t sent_by(const tw_comm *comm)
{
    tw_traffic traffic = {.struct_size = sizeof traffic};
    return tw_comm_traffic(comm, &traffic) == TW_OK ? traffic.bytes_sent : 0;
}

/* Without the weights that are its own. */
static uint64_t bytes_given(const tw_state *own)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < tw_state_count(own); i++) {
        tw_state_entry entry;
        if (tw_state_at(own, i, &entry) == TW_OK && strncmp(entry.name, "own/", 4) != 0) bytes += entry.bytes;
    }
    return bytes;
}

static tw_status go_on(crew_member *self)
{
    worker *w = &self->worker;
    story *s = self->context;
    carry after = {0};
    const tw_generation place = {.rank = self->rank,
                                 .size = s->size,
                                 .donor = s->donor,
                                 .behind = s->behind[self->rank],
                                 .kept = 1,
                                 .late = s->late[self->rank]};
    TW_TRY(crew_create_worker(self));
    uint64_t before = sent_by(w->comm);
    TW_TRY(carry_take(w, &place, &s->carries[self->rank]));
    uint64_t sent = sent_by(w->comm) - before;
    TW_TRY(worker_begin(w));
    TW_TRY(worker_read(w));
    TW_TRY(carry_pack(w, 0, &after));
    possess(w, &after, &s->after[self->rank]);
    s->after[self->rank].sent = sent;
    s->after[self->rank].plain = bytes_given(s->carries[self->rank].own);
    carry_release(&after);
    return TW_OK;
}

static void play(story *s, const char *sync, tw_status (*part)(crew_member *self), int size)
{
    small_run run;
    crew_member crew[MANY];
    small_run_begin(&run, NULL, "cnn");
    train_settings settings = run.settings;
    settings.sync = (char *)(uintptr_t)sync;
    settings.steps = 12;
    settings.changing = true;
    if (size > NEW) settings.batch = 4; /* of the 32 images that there are */
    crew_run(crew, size, (crew_member){.play = part, .settings = &settings, .work = run.work, .context = s});
    crew_must_succeed(crew, size);
    small_run_end(&run);
}

static void tell_story(story *s, const char *sync)
{
    play(s, sync, take_steps, OLD);
    play(s, sync, come_new, 1);
    play(s, sync, go_on, s->size);
}

static void lose(possession *p)
{
    free(p->weights);
    free(p->theta);
    free(p->held);
    free(p->optimiser);
    *p = (possession){.step = 0};
}

static void end_story(story *s)
{
    for (int r = 0; r < MANY; r++) {
        carry_release(&s->carries[r]);
        lose(&s->before[r]);
        lose(&s->after[r]);
    }
}

static void assert_same(const float *a, const float *b, size_t count)
{
    assert_true(count > 0);
    assert_memory_equal(a, b, count * sizeof *a);
}

static double sum_of_squares(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
    return sum;
}

/* After a round all have theta, and each has held back something of its own. */
TEST(test_who_stays_has_what_it_had_and_who_comes_has_the_donors)
{
    story s = {.steps = {PERIOD, PERIOD}, .behind = {0, 0, 1}, .donor = 1, .size = NEW};
    tell_story(&s, "local:every=4,exchange=topk,density=0.1");
    for (int r = 0; r < OLD; r++) {
        const possession *before = &s.before[r], *after = &s.after[r];
        assert_same(after->weights, before->weights, before->weight_count);
        assert_same(after->held, before->held, before->held_count);
        assert_true(sum_of_squares(before->held, before->held_count) > 0);
        assert_same(after->optimiser, before->optimiser, before->optimiser_count);
        assert_true(after->items == before->items && before->items == 8.0 * PERIOD);
    }
    const possession *new = &s.after[NEWCOMER];
    assert_same(new->weights, s.before[1].weights, s.before[1].weight_count);
    assert_same(new->optimiser, s.before[1].optimiser, s.before[1].optimiser_count);
    assert_true(sum_of_squares(new->held, new->held_count) == 0 && new->items == 0);
    for (int r = 0; r < NEW; r++) {
        assert_int_equal(s.after[r].step, PERIOD);
        assert_int_equal(s.after[r].rounds, 1);
    }
    end_story(&s);
}

/* The shared weights, their momentum and the optimiser's, to all but the donor. */
TEST(test_what_a_newcomer_is_given_travels_packed)
{
    story s = {.steps = {PERIOD, PERIOD}, .behind = {0, 0, 1}, .size = NEW};
    tell_story(&s, "diloco:every=4");
    uint64_t sent = 0;
    for (int r = 0; r < NEW; r++) sent += s.after[r].sent;
    assert_true((double)sent < 0.85 * (NEW - 1) * (double)s.after[0].plain);
    end_story(&s);
}

/* One noticed after a step that somebody was lost, the other after three. */
TEST(test_steps_that_no_round_had_are_in_the_first)
{
    story s = {.steps = {1, 3}, .behind = {0, 0, 1}, .size = NEW};
    tell_story(&s, "local:every=4");
    const float *one = s.before[0].weights, *two = s.before[1].weights, *now = s.after[0].weights;
    size_t count = s.before[0].weight_count;
    for (size_t i = 0; i < count; i++) {
        double wanted = ((double)one[i] + 3 * (double)two[i]) / 4;
        assert_true(fabs((double)now[i] - wanted) <= 1e-6 * fmax(1, fabs(wanted)));
    }
    assert_true(memcmp(one, two, count * sizeof *one) != 0 && memcmp(one, now, count * sizeof *one) != 0);
    for (int r = 0; r < NEW; r++) {
        assert_same(s.after[r].weights, now, count);
        assert_int_equal(s.after[r].step, 3); /* as far as anybody was */
        assert_int_equal(s.after[r].rounds, 1);
        assert_int_equal(s.after[r].taken, 0);
    }
    end_story(&s);
}

/* What it gave to the round that it lacks is in there: it gives its steps no second time. */
TEST(test_who_lacks_a_round_gives_nothing_twice)
{
    story s = {.steps = {3, 1}, .behind = {0, 1}, .size = OLD};
    tell_story(&s, "local:every=4");
    const possession *one = &s.before[0];
    for (size_t i = 0; i < one->weight_count; i++)
        assert_true(fabsf(s.after[0].weights[i] - one->weights[i]) <= 1e-6f * fmaxf(1, fabsf(one->weights[i])));
    assert_same(s.after[1].weights, s.after[0].weights, one->weight_count);
    end_story(&s);
}

/* The others have lost it, and make the round without it. */
static tw_status go_on_alone(crew_member *self)
{
    worker *w = &self->worker;
    story *s = self->context;
    const tw_generation place = {.size = 1, .kept = 1};
    TW_TRY(crew_create_worker(self));
    TW_TRY(carry_take(w, &place, &s->carries[0]));
    TW_TRY(worker_begin(w));
    TW_TRY(carry_pack(w, 0, &s->carries[0]));
    possess(w, &s->carries[0], &s->after[0]);
    return TW_OK;
}

static double sum_of(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)values[i];
    return sum;
}

/* Both have taken steps since a round that they made together: the one has given its own to a round, and the other's
 * come late, when nobody else gives anything. What is not in theta then is held back, which is a share of the mean. */
static void check_late(const char *sync, int holds_back)
{
    story s = {.steps = {PERIOD + 2, PERIOD + 3}, .behind = {0, 1}, .late = {0, 1}, .size = OLD};
    play(&s, sync, take_steps, OLD);
    play(&s, sync, go_on_alone, 1);
    possession *one = &s.before[0], *late = &s.before[1], base = s.after[0];
    s.after[0] = (possession){.step = 0};
    play(&s, sync, go_on, OLD);
    const float *now = s.after[0].weights;
    double missing = 0;
    for (size_t i = 0; i < late->weight_count; i++) {
        double wanted = (double)base.theta[i] + ((double)late->weights[i] - (double)late->theta[i]);
        assert_true(holds_back || fabs((double)now[i] - wanted) <= 1e-6 * fmax(1, fabs(wanted)));
        missing += (double)now[i] - wanted;
    }
    assert_true(memcmp(base.theta, late->theta, late->theta_count * sizeof(float)) != 0);
    assert_true(memcmp(late->weights, late->theta, late->theta_count * sizeof(float)) != 0);
    assert_true(memcmp(one->theta, late->theta, late->theta_count * sizeof(float)) == 0);
    double held = sum_of(base.held, base.held_count) + sum_of(late->held, late->held_count),
           left = sum_of(s.after[0].held, s.after[0].held_count) + sum_of(s.after[1].held, s.after[1].held_count);
    assert_true(!holds_back || sum_of_squares(late->held, late->held_count) > 0);
    assert_true(fabs(missing - (left - held)) <= 1e-4);
    assert_same(s.after[1].weights, now, late->weight_count);
    for (int r = 0; r < OLD; r++) {
        assert_int_equal(s.after[r].rounds, 3);
        assert_int_equal(s.after[r].taken, 0);
    }
    lose(&base);
    end_story(&s);
}

TEST(test_who_comes_back_late_brings_what_it_did)
{
    check_late("local:every=4", 0);
    check_late("diloco:every=4,outer_momentum=0,outer_lr=1", 0);
    check_late("local:every=4,exchange=topk,density=0.1", 1);
    check_late("local:every=4,exchange=e3m0,feedback=on", 1);
    check_late("local:every=4,exchange=powersgd,rank=2,warmup_steps=0", 1);
    check_late("pulseloco:every=4,outer_momentum=0,outer_lr=1", 1);
}

/* A gossip that was cut off: those that had weights of their own begin with the mean of them. */
TEST(test_a_gossip_goes_on_with_the_mean)
{
    story s = {.steps = {2, 2}, .behind = {0, 0, 1}, .size = NEW};
    tell_story(&s, "dpsgd");
    const possession *one = &s.before[0], *two = &s.before[1];
    assert_true(memcmp(one->weights, two->weights, one->weight_count * sizeof(float)) != 0);
    for (size_t i = 0; i < one->weight_count; i++) {
        double wanted = ((double)one->weights[i] + (double)two->weights[i]) / 2;
        assert_true(fabs((double)s.after[NEWCOMER].weights[i] - wanted) <= 1e-6 * fmax(1, fabs(wanted)));
    }
    end_story(&s);
}

/* ---- those that leave -------------------------------------------------------------------------------------------- */

static tw_status leave_or_stay(crew_member *self)
{
    worker *w = &self->worker;
    story *s = self->context;
    carry *c = &s->carries[self->rank];
    TW_TRY(take_steps(self));
    TW_TRY(carry_hand_over(w, s->leaves[self->rank]));
    TW_TRY(carry_pack(w, 0, c));
    possess(w, c, &s->after[self->rank]);
    return TW_OK;
}

static void assert_is_sum(const possession all[NEW], const int *added, const possession *now)
{
    double held = 0;
    assert_int_equal(now->held_count, all[0].held_count);
    for (size_t i = 0; i < now->held_count; i++) {
        float sum = all[added[0]].held[i];
        for (int k = 1; k < NEW && added[k] >= 0; k++) sum += all[added[k]].held[i];
        assert_true(now->held[i] == sum);
        held += (double)(sum * sum);
    }
    assert_true(held > 0);
}

/* Whoever stays has, to the last bit of a sum, what it had and what each before it had that leaves; the first that
 * stays, of all. With nobody to hand it over to each keeps its own. */
TEST(test_who_leaves_hands_over_what_it_holds_back)
{
    static const char *const specs[] = {"sparseloco:every=4",
                                        "pulseloco:every=4",
                                        "diloco:every=4,exchange=powersgd,rank=2,warmup_steps=0",
                                        "diloco:every=4,exchange=dgc,momentum=0,density=0.1",
                                        "diloco:every=4,exchange=e3m0,feedback=on",
                                        "streaming:every=4,fragments=2,delay=0,exchange=topk,density=0.1"};
    static const struct {
        int leaves[NEW], added[NEW][NEW];
    } all[] = {{{0, 0, 1}, {{0, -1}, {1, 2, -1}, {2, -1}}},
               {{1, 0, 1}, {{0, -1}, {1, 0, 2}, {2, -1}}},
               {{1, 1, 1}, {{0, -1}, {1, -1}, {2, -1}}}};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i += (size_t)in_part(2, 1)) {
        for (size_t k = (size_t)in_part(1, 0); k < sizeof all / sizeof *all; k++) {
            story s = {.steps = {PERIOD, PERIOD, PERIOD}, .leaves = all[k].leaves};
            play(&s, specs[i], leave_or_stay, NEW);
            for (int r = 0; r < NEW; r++) {
                assert_is_sum(s.before, all[k].added[r], &s.after[r]);
                assert_same(s.after[r].weights, s.before[r].weights, s.before[r].weight_count);
            }
            end_story(&s);
        }
    }
}

/* From five workers on each sums a piece of every tensor. What it keeps of that is not lost with their number. */
TEST(test_what_is_held_back_has_a_place_among_any_number)
{
    const char *sync = "local:every=4,exchange=e3m0,feedback=on";
    story s = {.size = MANY - 2, .leaves = (const int[MANY]){[MANY - 2] = 1, [MANY - 1] = 1}};
    for (int r = 0; r < MANY; r++) s.steps[r] = PERIOD;
    play(&s, sync, leave_or_stay, MANY);
    assert_is_sum(s.before, (const int[]){MANY - 3, MANY - 2, MANY - 1}, &s.after[MANY - 3]);
    for (int r = 0; r < s.size; r++) {
        lose(&s.before[r]);
        s.before[r] = s.after[r];
        s.after[r] = (possession){.step = 0};
    }
    play(&s, sync, go_on, s.size);
    for (int r = 0; r < s.size; r++) {
        assert_same(s.after[r].held, s.before[r].held, s.before[r].held_count);
        assert_true(sum_of_squares(s.after[r].held, s.after[r].held_count) > 0);
    }
    end_story(&s);
}

/* ---- a donor that lies ------------------------------------------------------------------------------------------- */

static struct {
    char name[512];
    int64_t dtype;
    uint64_t dims, shape[TW_MAX_DIMS];
} lie;
static uint64_t told_epoch;

static tw_status deceive(crew_member *self)
{
    uint64_t words[4 * OLD], own[4] = {0};
    carry_moment moment = {.steps_per_epoch = told_epoch};
    if (self->rank > 0) return go_on(self);
    worker *w = &self->worker;
    TW_TRY(crew_create_worker(self));
    TW_TRY(tw_comm_allgather(w->comm, own, sizeof own, words));
    TW_TRY(tw_comm_broadcast(w->comm, 0, &moment, sizeof moment));
    TW_TRY(tw_comm_broadcast(w->comm, 0, &lie, sizeof lie));
    int is_empty = lie.dims == 1 && lie.shape[0] == 0; /* and comes again and again */
    for (int i = 0; is_empty && i < 200000; i++) {
        TW_TRY(tw_comm_broadcast_packed(w->comm, 0, &lie, 0, sizeof(float)));
        TW_TRY(tw_comm_broadcast(w->comm, 0, &lie, sizeof lie));
    }
    return TW_OK;
}

static void assert_lie_is_refused(const char *wanted)
{
    small_run run;
    crew_member crew[OLD];
    story s = {
        .behind = {0, 1}, .size = OLD, .carries = {{.moment.steps_per_epoch = 2}, {.moment.steps_per_epoch = 2}}};
    small_run_begin(&run, NULL, "cnn");
    train_settings settings = run.settings;
    settings.sync = (char[]){"local:every=4"};
    settings.changing = true;
    crew_member first = {.play = deceive, .settings = &settings, .work = run.work, .context = &s};
    crew_run(crew, OLD, first);
    assert_int_equal(crew[1].status, TW_ERROR_PACKET);
    assert_non_null(strstr(crew[1].text, wanted));
    small_run_end(&run);
    end_story(&s);
}

TEST(test_what_cannot_be_is_refused)
{
    static const struct {
        int64_t dtype;
        uint64_t dims, shape[TW_MAX_DIMS];
    } lies[] = {{TW_F32, 1, {1ULL << 40}}, {TW_F32, 9, {0}}, {TW_F32, 2, {1ULL << 32, 1ULL << 32}},
                {TW_F32, UINT64_MAX, {0}}, {77, 1, {4}},     {-1, 1, {4}},
                {TW_F32, 1, {0}}};
    told_epoch = 4;
    strcpy(lie.name, "scheme.theta/conv1.weight");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        lie.dtype = lies[i].dtype;
        lie.dims = lies[i].dims;
        memcpy(lie.shape, lies[i].shape, sizeof lie.shape);
        assert_lie_is_refused("rank 0 gives scheme.theta/conv1.weight of a size or type");
    }
    told_epoch = 0;
    assert_lie_is_refused("rank 0 tells of epochs without steps");
}

RUN_TESTS(make_folder, remove_folder)
