/* The methods of local updates in groups whose members come and go. A schedule is a group's life in one generation
 * after the other, as thinwire_members.h has it. Each is a world of virtual time in which the real loops meet. Before
 * any of its messages a member is lost, in the middle of a round, too, which some then have and others have not;
 * others are cut off with it. Those that are left go on, and who was cut off comes back as a newcomer, and late, if
 * nobody went on from more rounds than it had: with what it did since then, and holds back. New ones come; some leave,
 * and hand over what they hold back; or all stop and begin again, as many or not. Of each round and each beginning it
 * is checked that theta, its momentum and the count of rounds are one; that what the members did is in theta or held
 * back by one of them, once; and that everybody's part ends. Who is in the next generation, and who may decide that,
 * is test_council's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#include "outer.h"
#include "support/parts.h"
#include "support/random.h"
#include "support/ranks.h"
#include "wire.h"

enum {
    TENSORS = 3,
    FIRST = 704, /* so many that each of twice as many members as there are could sum a piece */
    ELEMENTS = FIRST + 56,
    PLAYERS = 9,
    MOST = 6, /* members */
    GENERATIONS = 8,
    ROUNDS = 3, /* of a generation, at most */
    SCHEDULES = 100
};
#define UNIT 60       /* of a step: what is lost or counts twice of one is a twelfth of that in theta, at least */
#define ROUNDING 0.05 /* of sums of some ten numbers below 2^17 */
#define LATENCY 1e-3
#define STARTS_AT 20000.0F /* where bf16 does not notice every step */
#define BOUND 60.0         /* virtual seconds of a generation; a member that is not heard of is lost after 5 */

static const tw_tensor table[TENSORS] = {{.name = "first", .dims = 1, .shape = {FIRST}},
                                         {.name = "second", .dims = 2, .shape = {4, 8}},
                                         {.name = "third", .dims = 1, .shape = {24}}};
static const size_t places[TENSORS] = {0, FIRST, FIRST + 32};

/* What a spec does, said a second time. */
typedef struct law {
    const char *spec;
    double rate, momentum, decay; /* of the outer step, and of what is held back */
    int nesterov;
    int holds;   /* the exchange may hold back */
    int codes;   /* and sends of an element more or less than all: how much, only the sender knows */
    int early;   /* parts are sent before the weights of others are known */
    int eager;   /* a mean is one round late, and who begins anew begins at theta */
    int mixes;   /* the weights do not become theta */
    int rda;     /* directions and lengths are averaged apart */
    int moments; /* are averaged: the second in every other round */
} law;

#define OUTER "outer_lr=0.5,outer_momentum=0.5,"
#define NESTEROV .rate = 0.5, .momentum = 0.5, .nesterov = 1
#define TOPK "exchange=topk,density=0.25,values=fp32,min_elements=1,min_dims=1,overlap=off"
#define E3M0 "exchange=e3m0,feedback=on,min_elements=100,min_dims=1,leftovers=fp32"
static const law laws[] = {
    {"local:every=2,overlap=off", .rate = 1},
    {"local:every=2," TOPK, .rate = 1, .holds = 1, .decay = 1},
    {"local:every=2,merge=rda,overlap=off", .rate = 1, .rda = 1},
    {"diloco:every=2," OUTER "overlap=off", NESTEROV},
    {"diloco:every=2,nesterov=off,first_moment=1,second_moment=2," OUTER "overlap=off", 0.5, 0.5, .moments = 1},
    {"diloco:every=2,eager=on," OUTER TOPK, NESTEROV, .holds = 1, .decay = 1, .early = 1, .eager = 1},
    {"diloco:every=2," OUTER E3M0, NESTEROV, .holds = 1, .decay = 1, .codes = 1},
    {"streaming:every=6,fragments=3,delay=1,mixing=0.5," OUTER TOPK, NESTEROV, .holds = 1, .decay = 1, .early = 1,
     .mixes = 1},
    {"streaming:every=6,fragments=3,delay=0,mixing=0.5," OUTER TOPK, NESTEROV, .holds = 1, .decay = 1, .mixes = 1},
    {"sparseloco:every=2,chunk=16,k=4,decay=0.75,min_elements=1,overlap=off", .rate = 1, .nesterov = 1, .holds = 1,
     .decay = 0.75, .codes = 1},
    {"pulseloco:every=2," OUTER "min_elements=1,overlap=off", NESTEROV, .holds = 1, .decay = 1},
};

enum { LAWS = sizeof laws / sizeof *laws };

/* ---- who takes part ---------------------------------------------------------------------------------------------- */

typedef enum standing { ABSENT, MEMBER, AWAY /* cut off */, GONE } standing;

typedef struct player {
    standing standing;
    tw_state *kept; /* by its last round; NULL: it has no theta */
    tw_state *left; /* of one that comes back, until it is in: what it had; else NULL */
    uint64_t rounds;
    int stood;      /* the generation of its last round; -1: that is not known any more */
    uint64_t taken; /* steps ever */
    float weights[ELEMENTS], moments[TW_MOMENTS][ELEMENTS];
    double done[ELEMENTS]; /* what its steps came to that no round has */
} player;

/* One round of one member. */
typedef struct meeting {
    double weight, part[ELEMENTS]; /* of what it gave: downhill, as the mean that theta goes against */
    size_t start, elements;        /* of the fragment that met */
    float moments[TW_MOMENTS][ELEMENTS];
    uint64_t turn;
} meeting;

/* One member's part in a generation. */
typedef struct seat {
    wire through; /* first: it stands for the seat */
    int rank, dies_at, sends;
    double lingers;
    player *who;
    int behind, at_theta; /* takes the donor's state; begins with its weights where theta is */
    tw_outer *outer;
    tw_status status;
    char text[256];
    const char *spoilt; /* a promise that was broken on its own thread */
    int saved;
    tw_state *states[ROUNDS + 1]; /* at the beginning, and after each round */
    meeting meetings[ROUNDS];
    float last[ELEMENTS]; /* its weights after the end */
} seat;

/* What a state says. */
typedef struct moment {
    uint64_t rounds; /* that it has a mean of */
    float theta[ELEMENTS], v[ELEMENTS], arrived[ELEMENTS], held[ELEMENTS];
    float began[ELEMENTS], own[2][ELEMENTS]; /* with eager=on: where its steps began, and its own momentum and part */
    int has_arrived;
} moment;

typedef struct world {
    const law *law;
    uint64_t stream, drawn;
    player players[PLAYERS];
    int generation, size, rounds, finishes;
    uint64_t begun[GENERATIONS]; /* with how many rounds each generation has */
    seat seats[MOST];
    int old_size; /* of whose states the next are made; 0: of none */
    const tw_state *olds[MOST];
    int donor;
    double expected[MOST][ELEMENTS]; /* what each should hold back at the beginning */
    int is_sum;                      /* of which only the sum is known */
    tw_state *former[MOST];          /* from which all begin anew */
} world;

/* How often it came about, in all schedules. */
static struct {
    int lost, cut_off, back, late, brought /* of what late ones held back */,
        apart /* a round that some have and others lack */, behind, owed, held, handed_over, anew;
} seen;

static world w;

static uint32_t pick(uint32_t below)
{
    return draw(w.stream, w.drawn++, below);
}

static void point(float *values, float *parts[TENSORS])
{
    for (int i = 0; i < TENSORS; i++) parts[i] = values + places[i];
}

/* ---- on a member's own thread, where nothing may be asserted ----------------------------------------------------- */

static void spoil(seat *self, const char *promise)
{
    if (!self->spoilt) self->spoilt = promise;
}

/* It is lost before one of its messages. Those before that one may have left its line, or not yet. */
static void count_send(wire *through, int sends)
{
    seat *self = (seat *)through;
    self->sends += sends;
    if (!sends || self->sends != self->dies_at) return;
    tw_world_compute(self->lingers);
    tw_world_kill();
}

static tw_status keep(seat *self)
{
    tw_state *state;
    tw_status status = tw_state_create(&state);
    if (status == TW_OK) status = tw_outer_save_apart(self->outer, "", state);
    if (status == TW_OK)
        self->states[self->saved++] = state;
    else
        tw_state_destroy(state);
    return status;
}

/* A member has its own, and who is behind the donor's. Where all begin anew there are those of all. */
static tw_status find_old(void *context, int rank, const tw_state **state)
{
    const seat *self = context;
    *state = w.is_sum || rank == (self->behind ? w.donor : self->rank) ? w.olds[rank] : NULL;
    return TW_OK;
}

static tw_status take_over(seat *self)
{
    tw_state *made;
    tw_status status = tw_state_create(&made);
    if (status != TW_OK) return status;
    status =
        tw_outer_regroup_state(w.law->spec, table, TENSORS, w.old_size, find_old, self, self->rank, w.size, "", made);
    if (status == TW_OK) status = tw_outer_load_state(self->outer, "", made);
    tw_state_destroy(made);
    return status;
}

static tw_status enter(seat *self, tw_comm *comm)
{
    float *weights[TENSORS], *first[TENSORS], *second[TENSORS];
    point(self->who->weights, weights);
    point(self->who->moments[0], first);
    point(self->who->moments[1], second);
    tw_status status = tw_outer_create(comm, w.law->spec, table, TENSORS, &self->outer);
    if (status == TW_OK) status = tw_outer_show_moments(self->outer, first, second);
    if (status == TW_OK && w.old_size > 0) status = take_over(self);
    if (status == TW_OK) status = tw_outer_begin(self->outer, weights);
    if (status == TW_OK && self->at_theta) {
        status = tw_outer_read(self->outer, weights);
        memset(self->who->done, 0, sizeof self->who->done);
    }
    return status == TW_OK ? keep(self) : status;
}

static void move(player *who)
{
    const uint64_t own = w.stream * PLAYERS + (uint64_t)(who - w.players) + 1000000;
    _Alignas(uint32_t) unsigned char dice[16];
    for (size_t i = 0; i < ELEMENTS; i++) {
        if (i % 16 == 0) tw_random(2026, own, who->taken * ELEMENTS + i, (uint32_t *)(void *)dice);
        float step = (float)(UNIT * (dice[i % 16] % 7 - 3));
        who->weights[i] += step;
        who->done[i] += (double)step;
        who->moments[0][i] += step;
        who->moments[1][i] += fabsf(step);
    }
    who->taken++;
}

static int begins_round(const tw_outer *outer)
{
    return outer->since + 1 == outer->options.every / outer->options.fragments;
}

/* Before the step that gives it. */
static void note_part(seat *self, meeting *met)
{
    const tw_fragment *fragment = tw_outer_current(self->outer);
    int64_t next = self->outer->phase == TW_OUTER_IDLE ? 0 : 1; /* it ends in this step, too */
    met->start = fragment->start;
    met->elements = fragment->elements;
    met->weight = self->outer->weight;
    met->turn = (self->outer->round + (uint64_t)next) / self->outer->fragment_count + 1;
    for (size_t i = 0; i < ELEMENTS; i++)
        met->part[i] =
            w.law->mixes ? (double)self->outer->theta[i] - (double)self->who->weights[i] : -self->who->done[i];
}

/* A step that fails leaves the weights as they were, so that what they have is given later. Where moments are averaged
 * behind it, theta may be in them already; the caller sees to that. */
static tw_status step(seat *self, tw_outer_event *event)
{
    float before[ELEMENTS], moments[TW_MOMENTS][ELEMENTS], *weights[TENSORS];
    player *who = self->who;
    memcpy(before, who->weights, sizeof before);
    memcpy(moments, who->moments, sizeof moments);
    point(who->weights, weights);
    tw_status status = tw_outer_step(self->outer, weights, event);
    if (status == TW_OK) return status;
    if (!w.law->moments && memcmp(before, who->weights, sizeof before) != 0)
        spoil(self, "a step that fails leaves the weights as they were");
    memcpy(who->weights, before, sizeof before);
    memcpy(who->moments, moments, sizeof moments);
    return status;
}

/* Until a round's mean, or with eager=on this member's own part, is in its weights. */
static tw_status meet(seat *self, meeting *met)
{
    tw_outer_event event = TW_OUTER_NOTHING;
    while (event != TW_OUTER_APPLIED) {
        tw_world_compute(0.01 * (double)draw(w.stream + 1, self->who->taken * PLAYERS + (uint64_t)self->rank, 3));
        move(self->who);
        if (begins_round(self->outer)) note_part(self, met);
        tw_status status = step(self, &event);
        if (status != TW_OK) return status;
    }
    memset(self->who->done, 0, sizeof self->who->done);
    memcpy(met->moments, self->who->moments, sizeof met->moments);
    return keep(self);
}

static tw_status finish(seat *self)
{
    float *weights[TENSORS], *shared[TENSORS], theta[ELEMENTS];
    point(self->who->weights, weights);
    point(theta, shared);
    tw_status status = tw_outer_finish(self->outer, weights);
    if (status == TW_OK) status = tw_outer_read(self->outer, shared);
    if (status == TW_OK && memcmp(theta, self->who->weights, sizeof theta) != 0)
        spoil(self, "behind the end the weights are theta");
    memcpy(self->last, self->who->weights, sizeof self->last);
    return status;
}

static tw_status live(seat *self, tw_comm *comm)
{
    tw_status status = tw_comm_set_timeout(comm, 5);
    if (status == TW_OK) status = enter(self, comm);
    for (int round = 0; round < w.rounds && status == TW_OK; round++) {
        uint32_t weight = draw(w.stream + 2, self->who->taken * PLAYERS + (uint64_t)self->rank, w.law->early ? 4 : 5);
        status = tw_outer_set_weight(self->outer, self->rank == 0 || weight > 2 ? 1 + (weight == 4) : weight > 0);
        if (status == TW_OK) status = meet(self, &self->meetings[round]);
    }
    return status == TW_OK && w.finishes ? finish(self) : status;
}

static void attend(void *context, int rank, tw_comm *comm)
{
    seat *self = &w.seats[rank];
    (void)context;
    self->through.before = count_send;
    put_between(&self->through, comm);
    self->status = live(self, comm);
    snprintf(self->text, sizeof self->text, "%s", tw_last_error());
    tw_outer_destroy(self->outer);
    take_away(&self->through, comm);
}

/* ---- what states say --------------------------------------------------------------------------------------------- */

static size_t place_of(const char *tensor)
{
    for (int i = 0; i < TENSORS; i++)
        if (strcmp(table[i].name, tensor) == 0) return places[i];
    fail_msg("no tensor is called %s", tensor);
    return 0;
}

static float *part_of(moment *m, const char *name)
{
    const struct {
        const char *what;
        float *values;
    } all[] = {{"theta/", m->theta}, {"outer_momentum/", m->v},    {"arrived/", m->arrived},
               {"began/", m->began}, {"own_momentum/", m->own[0]}, {"own_part/", m->own[1]}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strncmp(name, all[i].what, strlen(all[i].what)) == 0) return all[i].values;
    return strncmp(name, "exchange", 8) == 0 && strstr(name, "/residual/") ? m->held : NULL;
}

static void read_moment(const tw_state *state, moment *m)
{
    uint64_t numbers[5];
    *m = (moment){0};
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        assert_ok(tw_state_at(state, i, &entry));
        float *values = part_of(m, entry.name);
        assert_true(values || !strstr(entry.name, "/section/")); /* nothing is in pieces */
        if (values) memcpy(values + place_of(strrchr(entry.name, '/') + 1), entry.data, entry.bytes);
    }
    assert_ok(tw_state_get(state, "outer/numbers", TW_U64, 5, numbers));
    m->has_arrived = (int)numbers[2];
    m->rounds = numbers[0] + numbers[2];
}

static uint64_t rounds_of(const tw_state *state)
{
    moment m;
    read_moment(state, &m);
    return m.rounds;
}

/* ---- what is checked --------------------------------------------------------------------------------------------- */

static void check_near(const char *what, int round, size_t i, double is, double should)
{
    if (!(fabs(is - should) <= ROUNDING))
        fail_msg("%s, schedule %d, round %d: %s of element %zu is %.9g, and should be %.9g", w.law->spec, (int)w.stream,
                 round, what, i, is, should);
}

static void check_shared(const moment *a, const moment *b)
{
    assert_int_equal(a->rounds, b->rounds);
    assert_int_equal(a->has_arrived, b->has_arrived);
    assert_memory_equal(a->theta, b->theta, sizeof a->theta);
    assert_memory_equal(a->v, b->v, sizeof a->v);
    assert_memory_equal(a->arrived, b->arrived, sizeof a->arrived);
}

/* Those that have come so far, with what they then had. */
static int read_moments(int saved, moment all[MOST], int have[MOST])
{
    int count = 0;
    for (int r = 0; r < w.size; r++) {
        have[r] = w.seats[r].saved > saved;
        if (have[r]) read_moment(w.seats[r].states[saved], &all[r]);
        count += have[r];
    }
    return count;
}

static int check_one_theta(const moment all[MOST], const int have[MOST])
{
    int first = -1;
    for (int r = 0; r < w.size; r++) {
        if (have[r] && first >= 0) check_shared(&all[r], &all[first]);
        if (have[r] && first < 0) first = r;
    }
    return first;
}

/* Nobody has moved from theta. */
static void check_own(const moment *m)
{
    static const float zeros[2][ELEMENTS];
    if (!w.law->eager) return;
    assert_memory_equal(m->began, m->theta, sizeof m->began);
    assert_memory_equal(m->own, zeros, sizeof zeros);
}

/* What is shared is the donor's. What is held back is each one's own, to the bit, or where all begin anew the sum. */
static void check_beginning(void)
{
    moment all[MOST], old;
    int have[MOST], count = read_moments(0, all, have), first = check_one_theta(all, have);
    if (first < 0 || w.old_size == 0) return;
    read_moment(w.olds[w.donor], &old);
    check_shared(&all[first], &old);
    for (int r = 0; r < w.size; r++)
        if (have[r]) check_own(&all[r]);
    for (size_t i = 0; i < ELEMENTS; i++) {
        double sum = 0, expected = 0;
        for (int r = 0; r < w.size; r++) {
            if (have[r] && !w.is_sum) assert_true((double)all[r].held[i] == w.expected[r][i]);
            sum += have[r] ? (double)all[r].held[i] : 0;
        }
        for (int r = 0; r < w.old_size; r++) expected += w.expected[r][i];
        if (w.is_sum && count == w.size) check_near("what is held back at the beginning", 0, i, sum, expected);
        seen.held += sum != 0;
    }
}

/* One round of all members. */
typedef struct whole {
    int number, first; /* a member that has it */
    int have[MOST];    /* others may have been lost behind their last message */
    double weights;
    moment before[MOST], after[MOST];
    double least[ELEMENTS], most[ELEMENTS]; /* that the mean may be */
} whole;

static const meeting *meeting_of(const whole *one, int rank)
{
    return &w.seats[rank].meetings[one->number];
}

/* Of each tensor: L = sum of w |part| / W, u = sum of w part / |part|, D = L u / |u|. */
static void average_apart(const whole *one, size_t start, size_t end, double *mean)
{
    double length = 0, square = 0;
    for (int r = 0; r < w.size; r++) {
        const meeting *met = meeting_of(one, r);
        double own = 0;
        for (size_t i = start; i < end; i++) own += met->part[i] * met->part[i];
        if (met->weight == 0 || own == 0) continue;
        length += met->weight / one->weights * sqrt(own);
        for (size_t i = start; i < end; i++) mean[i] += met->weight * met->part[i] / sqrt(own);
    }
    for (size_t i = start; i < end; i++) square += mean[i] * mean[i];
    for (size_t i = start; i < end && square > 0; i++) mean[i] *= length / sqrt(square);
}

/* What a member gave and had held back, and does not hold back now. Where nobody knows what it does, that is all or
 * nothing, as most of these exchanges send an element. */
static void add_part(whole *one, int rank)
{
    const meeting *met = meeting_of(one, rank);
    const int gives = met->weight > 0, early = w.law->early, open = w.law->holds && !one->have[rank];
    const double share = early ? (double)gives / w.size : met->weight / one->weights;
    const double unit = early ? w.size / one->weights : 1;
    for (size_t i = 0; i < ELEMENTS; i++) {
        double held = (gives ? w.law->decay : 1) * (double)one->before[rank].held[i];
        double sent = share * met->part[i] + held - (open ? 0 : (double)one->after[rank].held[i]);
        one->least[i] += unit * (open ? fmin(0, sent) : sent);
        one->most[i] += unit * (open ? fmax(0, sent) : sent);
    }
}

static void average(whole *one)
{
    for (int r = 0; r < w.size; r++) one->weights += meeting_of(one, r)->weight;
    for (int r = 0; r < w.size && !w.law->rda; r++) add_part(one, r);
    for (int t = 0; t < TENSORS && w.law->rda; t++)
        average_apart(one, places[t], t + 1 < TENSORS ? places[t + 1] : ELEMENTS, one->most);
    if (w.law->rda) memcpy(one->least, one->most, sizeof one->least);
}

/* The mean is what was given to it, and theta goes along it: at once, or with eager=on in the round to come. */
static void check_element(const whole *one, size_t i)
{
    const law *l = w.law;
    const moment *was = &one->before[one->first], *is = &one->after[one->first];
    const double v = (double)is->v[i], taken = v - l->momentum * (double)was->v[i];
    const double theta = (double)was->theta[i] - l->rate * (l->nesterov ? taken + l->momentum * v : v);
    const double mean = l->eager ? (double)is->arrived[i] : taken;
    if (l->eager) check_near("the mean that was taken", one->number, i, taken, (double)was->arrived[i]);
    check_near("theta", one->number, i, (double)is->theta[i], theta);
    check_near("the mean", one->number, i, mean, fmin(fmax(mean, one->least[i]), one->most[i]));
}

/* Of another fragment nothing moves, nor does anything before there is a mean. */
static void check_elements(const whole *one)
{
    const meeting *met = meeting_of(one, one->first);
    const moment *was = &one->before[one->first], *is = &one->after[one->first];
    for (size_t i = 0; i < ELEMENTS; i++) {
        int moves = i >= met->start && i < met->start + met->elements;
        if (moves && (!w.law->eager || was->has_arrived))
            check_element(one, i);
        else
            assert_true(is->theta[i] == was->theta[i] && is->v[i] == was->v[i]);
    }
}

/* In the rounds that have them all have the mean of them. */
static void check_moments(const whole *one)
{
    const meeting *first = meeting_of(one, one->first);
    for (int m = 0; m < TW_MOMENTS && w.law->moments; m++)
        for (int r = 0; r < w.size && first->turn % (uint64_t)(m + 1) == 0; r++)
            if (one->have[r])
                assert_memory_equal(meeting_of(one, r)->moments[m], first->moments[m], sizeof first->moments[m]);
}

static void check_round(int number)
{
    static whole one;
    memset(&one, 0, sizeof one);
    one.number = number;
    read_moments(number, one.before, one.have);
    int all_have = read_moments(number + 1, one.after, one.have) == w.size;
    one.first = check_one_theta(one.after, one.have);
    if (one.first < 0) return;
    assert_int_equal(one.after[one.first].rounds, one.before[one.first].rounds + 1);
    check_moments(&one);
    seen.apart += !all_have;
    if (!all_have && w.law->codes) return;
    average(&one);
    check_elements(&one);
}

static void check_finish(void)
{
    const seat *first = NULL;
    for (int r = 0; r < w.size && w.finishes; r++) {
        const seat *one = &w.seats[r];
        if (one->status != TW_OK) continue;
        if (first) assert_memory_equal(one->last, first->last, sizeof one->last);
        first = one;
    }
}

static int is_lost(const seat *one)
{
    return one->dies_at > 0 && one->sends >= one->dies_at;
}

/* Nobody is told anything but that somebody is lost, and only where somebody is. */
static void check_ends(double seconds)
{
    int lost = 0;
    for (int r = 0; r < w.size; r++) lost += is_lost(&w.seats[r]);
    for (int r = 0; r < w.size; r++) {
        const seat *one = &w.seats[r];
        if (one->spoilt) fail_msg("%s, schedule %d: %s", w.law->spec, (int)w.stream, one->spoilt);
        if (one->status != TW_OK && !(lost > 0 && one->status == TW_ERROR_PEER))
            fail_msg("%s, schedule %d, rank %d: %s: %s", w.law->spec, (int)w.stream, r, tw_status_name(one->status),
                     one->text);
        if (lost == 0) assert_int_equal(one->saved, w.rounds + 1);
    }
    assert_true(seconds < BOUND);
}

/* ---- a generation ------------------------------------------------------------------------------------------------ */

/* Half of them at most, and not all that have theta: the others may go on. */
static void choose_lost(void)
{
    const uint32_t size = (uint32_t)w.size, sends = (size - 1) * (6 + 5 * (uint32_t)w.rounds); /* about all there are */
    uint32_t spared = pick(size);
    while (w.seats[spared].behind) spared = (spared + 1) % size;
    for (uint32_t lost = pick(3) > 0 ? pick(size / 2 + 1) : 0; lost > 0; lost--) {
        uint32_t one = pick(size);
        if (one == spared) continue;
        w.seats[one].dies_at = 1 + (int)pick(sends);
        w.seats[one].lingers = pick(3) ? 10 * LATENCY : 0;
    }
}

static void run_generation(void)
{
    double seconds =
        run_in_world((tw_world_options){.workers = w.size, .bandwidth = 1e6, .latency = LATENCY}, attend, NULL);
    check_ends(seconds);
    check_beginning();
    for (int round = 0; round < w.rounds; round++) check_round(round);
    check_finish();
}

/* What it goes on with; of the states before that nothing is needed any more. */
static void take_last(seat *one)
{
    player *who = one->who;
    if (one->saved == 0) return;
    tw_state_destroy(who->kept);
    who->kept = one->states[--one->saved];
    who->rounds = rounds_of(who->kept);
    who->stood = w.generation;
    while (one->saved > 0) tw_state_destroy(one->states[--one->saved]);
}

/* With those that are lost some are cut off: half of all at most, and not the last that has theta. */
static void cut_off(void)
{
    int lost = 0, have = 0;
    for (int r = 0; r < w.size; r++) {
        lost += is_lost(&w.seats[r]);
        have += !is_lost(&w.seats[r]) && w.seats[r].who->kept;
    }
    for (int r = 0; r < w.size && lost > 0; r++) {
        player *who = w.seats[r].who;
        if (is_lost(&w.seats[r]) || lost >= w.size / 2 || (who->kept && have == 1) || pick(4) > 0) continue;
        have -= who->kept != NULL;
        lost++;
        who->standing = AWAY;
        seen.cut_off++;
    }
}

static void end_generation(void)
{
    for (int r = 0; r < w.size; r++) {
        seat *one = &w.seats[r];
        take_last(one);
        if (is_lost(one)) {
            one->who->standing = pick(2) > 0 ? AWAY : GONE;
            one->who->stood = -1; /* in the middle of a call */
        }
        seen.lost += is_lost(one);
    }
    cut_off();
}

/* ---- from one to the next ---------------------------------------------------------------------------------------- */

static int list_members(player *members[PLAYERS])
{
    int count = 0;
    for (int p = 0; p < PLAYERS; p++)
        if (w.players[p].standing == MEMBER) members[count++] = &w.players[p];
    return count;
}

static void forget(player *who, standing now)
{
    tw_state_destroy(who->kept);
    who->kept = NULL;
    who->standing = now;
}

/* The heir's, and what the exchange of the one that leaves holds back, as two of twice as many that become one. */
typedef struct pair {
    int rank;
    const tw_state *own, *theirs;
} pair;

static tw_status find_of_pair(void *context, int rank, const tw_state **state)
{
    const pair *two = context;
    *state = rank == 2 * two->rank ? two->own : rank == 2 * two->rank + 1 ? two->theirs : NULL;
    return TW_OK;
}

static void hand_over(player *leaver, player *heir, int rank, int size)
{
    moment given, had, has;
    pair two = {rank, heir->kept, leaver->kept};
    tw_state *made;
    assert_ok(tw_state_create(&made));
    assert_ok(tw_outer_regroup_state(w.law->spec, table, TENSORS, 2 * size, find_of_pair, &two, rank, size, "", made));
    read_moment(leaver->kept, &given);
    read_moment(heir->kept, &had);
    read_moment(made, &has);
    check_shared(&has, &had);
    for (size_t i = 0; i < ELEMENTS; i++) {
        assert_true(has.held[i] == had.held[i] + given.held[i]);
        seen.handed_over += given.held[i] != 0;
    }
    tw_state_destroy(heir->kept);
    heir->kept = made;
    forget(leaver, GONE);
}

/* In the round behind which they leave all have given what they had. */
static void let_some_leave(void)
{
    player *members[PLAYERS];
    int size = list_members(members), stay = size;
    for (int m = 0; m < size && stay > 1; m++) {
        if (pick(5) > 0) continue;
        int heir = (m + 1) % size; /* may leave after it */
        while (members[heir]->standing != MEMBER) heir = (heir + 1) % size;
        hand_over(members[m], members[heir], heir, size);
        stay--;
    }
}

static void come_back(player *who)
{
    tw_state *left = who->stood >= 0 ? who->kept : NULL;
    seen.back++;
    if (left) who->kept = NULL;
    forget(who, MEMBER);
    who->left = left;
}

static void let_some_come(void)
{
    player *members[PLAYERS];
    int size = list_members(members);
    for (int p = 0; p < PLAYERS && size < MOST; p++) {
        player *who = &w.players[p];
        if ((who->standing != ABSENT && who->standing != AWAY) || (size > 1 && pick(4) > 0)) continue;
        if (who->standing == AWAY)
            come_back(who);
        else
            forget(who, MEMBER);
        size++;
    }
}

/* In any order. */
static void take_seats(void)
{
    player *members[PLAYERS];
    w.size = list_members(members);
    for (int r = 0; r < w.size; r++) {
        int other = r + (int)pick((uint32_t)(w.size - r));
        player *next = members[other];
        members[other] = members[r];
        w.seats[r] = (seat){.rank = r, .who = next};
    }
}

static tw_status find_first(void *context, int rank, const tw_state **state)
{
    *state = rank == 0 ? context : NULL;
    return TW_OK;
}

/* See council_is_late. What is on its way between two rounds can be told from nothing, and is given up. */
static int is_late(const player *who)
{
    return who->left && !w.law->early && w.begun[who->stood + 1] <= who->rounds;
}

/* It is as far from the donor's theta as it was from its own, and holds back what it did. */
static void rebase_late(player *who, const player *donor)
{
    static moment left, entered, has;
    float before[ELEMENTS], *weights[TENSORS];
    tw_state *made;
    memcpy(before, who->weights, sizeof before);
    point(who->weights, weights);
    assert_ok(tw_state_create(&made));
    assert_ok(tw_outer_regroup_state(w.law->spec, table, TENSORS, 2, find_first, donor->kept, 1, 2, "", made));
    assert_ok(tw_outer_rebase(w.law->spec, table, TENSORS, "", who->left, made, weights));
    read_moment(who->left, &left);
    read_moment(donor->kept, &entered);
    read_moment(made, &has);
    check_shared(&has, &entered);
    assert_memory_equal(has.held, left.held, sizeof has.held);
    for (size_t i = 0; i < ELEMENTS; i++) {
        check_near("what one that is late did", 0, i, (double)who->weights[i] - (double)has.theta[i],
                   (double)before[i] - (double)left.theta[i]);
        seen.brought += has.held[i] != 0;
    }
    who->kept = made;
    who->rounds = donor->rounds;
    seen.late++;
}

/* Who lacks a round, or is new, has what the donor has, and holds nothing back. */
static void go_on(void)
{
    moment own;
    w.old_size = w.size;
    w.donor = -1;
    w.is_sum = 0;
    for (int r = 0; r < w.size; r++) {
        const player *who = w.seats[r].who;
        if (who->kept && (w.donor < 0 || who->rounds > w.seats[w.donor].who->rounds)) w.donor = r;
    }
    assert_true(w.donor >= 0);
    const player *donor = w.seats[w.donor].who;
    w.begun[w.generation] = donor->rounds;
    memset(w.expected, 0, sizeof w.expected);
    for (int r = 0; r < w.size; r++) {
        seat *one = &w.seats[r];
        if (is_late(one->who)) rebase_late(one->who, donor);
        tw_state_destroy(one->who->left);
        one->who->left = NULL;
        w.olds[r] = one->who->kept;
        one->behind = !one->who->kept || one->who->rounds < donor->rounds;
        one->at_theta = one->behind || w.law->eager;
        seen.behind += one->behind && one->who->kept;
        if (one->behind) memcpy(one->who->moments, donor->moments, sizeof donor->moments);
        if (one->behind) continue;
        read_moment(one->who->kept, &own);
        for (size_t i = 0; i < ELEMENTS; i++) {
            w.expected[r][i] = (double)own.held[i];
            seen.owed += one->who->done[i] != 0 && !one->at_theta;
        }
    }
}

static void forget_former(void)
{
    for (int r = 0; r < MOST; r++) {
        tw_state_destroy(w.former[r]);
        w.former[r] = NULL;
    }
}

/* All have stopped, behind one round, and some are lost: others take their places, as many or not. */
static void begin_anew(void)
{
    moment own;
    player *members[PLAYERS];
    w.old_size = list_members(members);
    w.is_sum = 1;
    w.donor = (int)pick((uint32_t)w.old_size);
    memset(w.expected, 0, sizeof w.expected);
    forget_former();
    for (int p = 0; p < PLAYERS; p++) w.players[p].stood = -1;
    for (int r = 0; r < w.old_size; r++) {
        int is_there = r == w.donor || pick(5) > 0;
        w.former[r] = members[r]->kept;
        members[r]->kept = NULL;
        w.olds[r] = is_there ? w.former[r] : NULL;
        if (is_there) read_moment(w.former[r], &own);
        for (size_t i = 0; i < ELEMENTS && is_there; i++) w.expected[r][i] = (double)own.held[i];
        if (pick(3) == 0 && r > 0) members[r]->standing = ABSENT;
    }
    let_some_come();
    take_seats();
    for (int r = 0; r < w.size; r++) w.seats[r].at_theta = 1;
    seen.anew++;
}

/* Then all have the same rounds. */
static int all_went_well(void)
{
    int well = 1;
    for (int r = 0; r < w.size; r++) well &= w.seats[r].status == TW_OK && !is_lost(&w.seats[r]);
    return well;
}

static void next_generation(void)
{
    int well = all_went_well();
    if (well && pick(6) == 0) {
        begin_anew();
        return;
    }
    if (well) let_some_leave();
    let_some_come();
    take_seats();
    go_on();
}

/* ---- schedules --------------------------------------------------------------------------------------------------- */

static void found(const law *l, uint64_t stream)
{
    w = (world){.law = l, .stream = stream};
    for (int p = 0; p < PLAYERS; p++)
        for (size_t i = 0; i < ELEMENTS; i++) w.players[p].weights[i] = STARTS_AT + (float)(UNIT * (i + (size_t)p));
    for (uint32_t p = 1 + pick(MOST - 1); p + 1 > 0; p--) w.players[p].standing = MEMBER;
    take_seats();
}

static void play(const law *l, uint64_t stream)
{
    found(l, stream);
    for (w.generation = 0; w.generation < GENERATIONS; w.generation++) {
        if (w.generation > 0) next_generation();
        w.rounds = 1 + (int)pick(ROUNDS);
        w.finishes = w.generation == GENERATIONS - 1;
        if (w.size > 1 && w.old_size > 0 && !w.is_sum)
            choose_lost(); /* who founds or begins anew has nothing to go back to */
        run_generation();
        end_generation();
    }
    for (int p = 0; p < PLAYERS; p++) forget(&w.players[p], GONE);
    forget_former();
}

TEST(test_every_method_has_schedules)
{
    for (size_t i = 0; i < tw_outers_count(); i++) {
        size_t length = strlen(tw_outers_name(i)), l = 0;
        while (strncmp(laws[l].spec, tw_outers_name(i), length) != 0 || laws[l].spec[length] != ':')
            assert_true(++l < LAWS);
    }
}

TEST(test_members_come_and_go_and_nothing_is_lost_or_counts_twice)
{
    for (int schedule = 0; schedule < in_part(8, SCHEDULES); schedule++)
        for (int l = 0; l < LAWS; l++) play(&laws[l], (uint64_t)(LAWS * schedule + l) * 4);
    assert_true(seen.lost > 0 && seen.cut_off > 0 && seen.back > 0 && seen.apart > 0 && seen.behind > 0);
    print_message("%d of %d came back late, and brought %d numbers\n", seen.late, seen.back, seen.brought);
    assert_true(seen.late > 0 && seen.brought > 0);
    assert_true(seen.owed > 0 && seen.held > 0 && seen.handed_over > 0 && seen.anew > 0);
}

TEST(test_neither_a_mean_under_way_nor_a_host_goes_with_one_that_comes_back)
{
    float values[ELEMENTS] = {0}, *weights[TENSORS];
    tw_state *empty;
    point(values, weights);
    assert_ok(tw_state_create(&empty));
    for (int l = 0; l < LAWS; l++)
        assert_int_equal(tw_outer_rebase(laws[l].spec, table, TENSORS, "", empty, empty, weights),
                         laws[l].early ? TW_ERROR_UNSUPPORTED : TW_ERROR_STATE);
    assert_fails(tw_outer_rebase("local:every=2,per_host=2", table, TENSORS, "", empty, empty, weights),
                 TW_ERROR_UNSUPPORTED, "per_host=1, not per_host=2");
    tw_state_destroy(empty);
}

RUN_TESTS(NULL, NULL)
