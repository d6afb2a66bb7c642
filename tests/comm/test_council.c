/* Who is in the next generation, in virtual time: processes that join, leave, crash, stand still and are cut off from
 * each other, and move, while they train. Some cannot be called, and two of these talk through one that can, if there
 * is one. What a member gives is sent in one of the rounds to come. One that leaves hands over what it still holds
 * back. Of each schedule it is checked that every generation is decided once, that theta is one for each round, that
 * no delta counts twice, that none is lost by a member that goes on or comes back, and that everybody's part ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka.h"
#include "support/parts.h"

#include "council.h"
#include "timers.h"

enum {
    NODES = 9,
    FOUNDERS = 4,
    SCHEDULES = 1000,
    TARGET = 25,
    ROUNDS = 256,
    EVENTS = 1 << 14,
    GENERATIONS = 512,
    HELD = 128
};
#define GRACE 5.0
#define PATIENCE_OF_GROUP 60.0
#define TICK 0.1
#define FAULTS_END 40.0
#define BOUND 400.0   /* of a schedule */
#define GIVES_UP 60.0 /* a newcomer that nobody lets in */

/* --- random numbers ---------------------------------------------------------------------------------------------- */

static uint64_t dice;

static uint64_t draw(void)
{
    dice += 0x9e3779b97f4a7c15u;
    uint64_t z = dice;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double between(double least, double most)
{
    return least + (most - least) * (double)(draw() >> 11) / 9007199254740992.0;
}

static int chance(double p)
{
    return between(0, 1) < p;
}

/* --- what they train --------------------------------------------------------------------------------------------- */

/* theta is the list of the deltas in it, in order of number: what a node has done since it last had theta is one. */
typedef struct theta {
    uint64_t rounds; /* and 1; 0: there is none */
    int count;
    int deltas[ROUNDS * NODES];
} theta;

/* What an exchange holds back of what was given to it. */
typedef struct bag {
    int count, deltas[HELD];
} bag;

static void hold(bag *held, int delta)
{
    assert_true(held->count < HELD);
    held->deltas[held->count++] = delta;
}

static int holds(const bag *held, int delta)
{
    int there = 0;
    for (int i = 0; i < held->count; i++) there += held->deltas[i] == delta;
    return there;
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int theta_has(const theta *there, int delta)
{
    return delta && bsearch(&delta, there->deltas, (size_t)there->count, sizeof delta, by_number) != NULL;
}

static int are_same(const theta *a, const theta *b)
{
    return a->rounds == b->rounds && a->count == b->count &&
           memcmp(a->deltas, b->deltas, (size_t)a->count * sizeof *a->deltas) == 0;
}

/* --- the world --------------------------------------------------------------------------------------------------- */

typedef enum what {
    MESSAGE,
    LOST,
    TICKS,
    WORKED,
    OPENED,
    APPLIED,
    MEETS,
    FAILED,
    STARTS,
    CRASHES,
    STOPS,
    GOES_ON,
    CUTS,
    HEALS,
    LEAVES,
    MOVES
} what;

typedef struct event {
    tw_timer timer; /* first: it stands for the event */
    what kind;
    int node, other, via; /* of a message, who passes it on; or the node itself */
    uint64_t stamp;       /* of the node's wait that it ends */
    council_message *message;
} event;

typedef enum doing { ABSENT, MEETING, CONNECTING, WORKING, IN_ROUND, DONE, DEAD } doing;

typedef struct node {
    doing doing;
    council council;
    int behind, stopped, side, leaving, is_leaver, moves, doors, delta, next;
    uint64_t stamp, generation, gave_in, inherited_in; /* generations */
    double since;
    theta theta;
    bag held;
    const char *why; /* it is done */
} node;

/* What its members hold back, by place, after so many rounds, as in theta. */
typedef struct snapshot {
    uint64_t rounds;
    bag held[NODES];
} snapshot;

/* The connections of one generation: what all of it do together, one thing after the other. */
typedef struct comm {
    council_list list;
    int nodes[COUNCIL_MOST], failed, step;
    uint64_t arrived, leaves;
    int gave[COUNCIL_MOST], wishes;
    theta start, result[2];
    snapshot snapshots[2];
} comm;

typedef struct world {
    double now;
    int reached, late, moved, carried, carriers_lost, handed_over, given_up, brought;
    node nodes[NODES];
    comm comms[GENERATIONS];
} world;

static world w;
static tw_timers events;

static void push(double time, event one)
{
    event *made = malloc(sizeof *made);
    *made = one;
    assert_true(events.count < EVENTS);
    tw_timers_arm(&events, &made->timer, time);
}

static void forget(event *one)
{
    free(one->message);
    free(one);
}

static void later(double seconds, what kind, int n, uint64_t stamp)
{
    push(w.now + seconds, (event){.kind = kind, .node = n, .stamp = stamp});
}

/* "PLACE#nNODE" */
static int node_of(const char *name)
{
    const char *mark = strchr(name, '#');
    return mark ? atoi(mark + 2) : 0;
}

static void write_name(char name[COUNCIL_NAME], int n, int moves)
{
    snprintf(name, COUNCIL_NAME, "%d#n%d", moves, n);
}

static int reaches(int a, int b)
{
    return w.nodes[a].side == w.nodes[b].side;
}

static int is_gone(int n)
{
    return w.nodes[n].doing == DEAD || w.nodes[n].doing == DONE;
}

/* Any that the sender knows and has a line to. -1: there is none. */
static int carrier_of(int from)
{
    const council_list *list = &w.nodes[from].council.list;
    int found = -1, count = 0;
    for (int i = 0; i < list->count; i++) {
        int n = node_of(list->seats[i].name);
        if (!w.nodes[n].behind && !is_gone(n) && reaches(from, n) && draw() % (uint64_t)++count == 0) found = n;
    }
    return found;
}

static int next_to(int from, int to)
{
    return w.nodes[from].behind && w.nodes[to].behind ? carrier_of(from) : to;
}

/* Nobody is where he was any more. Who speaks to one that cannot be called does so on a line that this one began. */
static int has_moved(const char *name)
{
    const node *there = &w.nodes[node_of(name)];
    return name[0] && !there->behind && strcmp(name, there->council.own.name) != 0;
}

static council_message *copy_of(const council_message *message)
{
    size_t size = offsetof(council_message, list.seats) + (size_t)message->list.count * sizeof(council_seat);
    council_message *copy = malloc(sizeof *copy);
    return memcpy(copy, message, size);
}

/* A newcomer knows founders that can be called. One in twenty is lost, one in twenty comes twice. */
static void send(void *context, const council_message *message)
{
    int from = *(const int *)context, to = -1;
    if (message->to[0])
        to = node_of(message->to);
    else
        for (int tries = 0; tries < 20 && (to < 0 || to == from || w.nodes[to].behind); tries++)
            to = (int)(draw() % FOUNDERS);
    if (to < 0 || to == from || w.nodes[to].doing == ABSENT) return;
    if (((is_gone(to) && !w.nodes[to].behind) || (has_moved(message->to) && chance(0.5))) && reaches(from, to)) {
        push(w.now + 0.05, (event){.kind = LOST, .node = from, .message = copy_of(message)});
        return;
    }
    int via = next_to(from, to);
    if (via < 0 || is_gone(to) || has_moved(message->to)) return;
    w.carried += via != to;
    for (int copies = chance(0.05) ? 0 : chance(0.05) ? 2 : 1; copies > 0; copies--) {
        push(w.now + between(0.01, chance(0.05) ? 3 : 0.1),
             (event){.kind = MESSAGE, .node = to, .other = from, .via = via, .message = copy_of(message)});
    }
}

/* --- programs ---------------------------------------------------------------------------------------------------- */

static void fail_comm(comm *one);

static void finish(int n, const char *why)
{
    w.nodes[n].doing = DONE;
    w.nodes[n].why = why;
    w.nodes[n].stamp++;
    if (w.nodes[n].generation) fail_comm(&w.comms[w.nodes[n].generation]);
}

static void meet(int n)
{
    char door[32];
    node *me = &w.nodes[n];
    if (me->generation) fail_comm(&w.comms[me->generation]);
    me->doing = MEETING;
    me->stamp++;
    me->since = w.now;
    snprintf(door, sizeof door, "door %d of %d", ++me->doors, n);
    council_meet(&me->council, door, me->theta.rounds, me->leaving, w.now);
}

static void wake(comm *one, int place, what kind, double seconds)
{
    int n = one->nodes[place];
    if (w.nodes[n].generation == one->list.generation) later(seconds, kind, n, w.nodes[n].stamp);
}

static void fail_comm(comm *one)
{
    if (one->failed) return;
    one->failed = 1;
    for (int i = 0; i < one->list.count; i++) {
        doing there = w.nodes[one->nodes[i]].doing;
        if (there == CONNECTING || there == IN_ROUND) wake(one, i, FAILED, between(0.001, chance(0.2) ? GRACE : 0.1));
    }
}

static int place_in(const comm *one, int n)
{
    for (int i = 0; i < one->list.count; i++)
        if (one->nodes[i] == n) return i;
    fail_msg("node %d is not in generation %d", n, (int)one->list.generation);
    return -1;
}

/* --- what is held back ------------------------------------------------------------------------------------------- */

/* To whom one that leaves hands it over: the next before it that stays, or else the first behind it. -1: to nobody. */
static int heir_of(const comm *one, int place)
{
    int heir = -1;
    for (int i = 0; i < one->list.count && (i < place || heir < 0); i++)
        if (!(one->leaves >> i & 1)) heir = i;
    return heir;
}

/* The collective in which it does. */
static void hand_over(int n)
{
    node *me = &w.nodes[n];
    const comm *one = &w.comms[me->generation];
    int place = place_in(one, n);
    for (int i = 0; i < one->list.count; i++) {
        const bag *held = &one->snapshots[one->step % 2].held[i]; /* the last step was to hear of it */
        for (int k = 0; (one->leaves >> i & 1) && heir_of(one, i) == place && k < held->count; k++)
            hold(&me->held, held->deltas[k]);
    }
    me->inherited_in = me->generation;
}

static int is_kept(const comm *one, int place)
{
    return one->list.seats[place].rounds == one->start.rounds;
}

/* Who has in this generation what a member of an earlier one held back; -1: it is lost. */
static int keeper_of(const comm *one, const comm *before, int place)
{
    int n = before->nodes[place];
    if ((before->leaves >> place & 1) && heir_of(before, place) >= 0) {
        n = before->nodes[heir_of(before, place)];
        if (w.nodes[n].inherited_in != before->list.generation) return -1;
    }
    for (int i = 0; i < one->list.count; i++)
        if (one->nodes[i] == n && is_kept(one, i)) return i;
    return -1;
}

/* It was left behind: what it brings along has nobody else, and is in no theta but its own. */
static void check_late(const comm *one, int place)
{
    const node *me = &w.nodes[one->nodes[place]];
    const bag *brings = &one->snapshots[0].held[place];
    assert_false(theta_has(&one->start, me->delta));
    for (int k = 0; k < brings->count; k++) {
        int keepers = 0;
        for (int i = 0; i < one->list.count; i++) keepers += holds(&one->snapshots[0].held[i], brings->deltas[k]);
        assert_int_equal(keepers, 1);
        assert_false(theta_has(&one->start, brings->deltas[k]));
    }
    w.late += me->delta != 0;
    w.brought += brings->count;
}

/* All are connected: each thing that was held back before has one keeper, and nobody keeps anything else. */
static void check_held(comm *one)
{
    const comm *before = one - 1;
    snapshot *now = &one->snapshots[0];
    int kept = 0;
    now->rounds = one->start.rounds;
    for (int i = 0; i < one->list.count; i++) {
        int late = council_is_late(&w.nodes[one->nodes[i]].council);
        if (late || is_kept(one, i)) now->held[i] = w.nodes[one->nodes[i]].held;
        if (!late) kept += now->held[i].count;
    }
    for (int i = 0; i < one->list.count; i++)
        if (council_is_late(&w.nodes[one->nodes[i]].council)) check_late(one, i);
    while (before > w.comms && !before->step) before--;
    const snapshot *then = &before->snapshots[before->snapshots[0].rounds != now->rounds];
    assert_true(before == w.comms || then->rounds == now->rounds);
    for (int i = 0; i < before->list.count; i++) {
        int keeper = keeper_of(one, before, i);
        for (int k = 0; k < then->held[i].count; k++) {
            if (keeper >= 0) assert_int_equal(holds(&now->held[keeper], then->held[i].deltas[k]), 1);
            kept -= keeper >= 0;
            w.given_up += keeper < 0;
        }
        w.handed_over += keeper >= 0 && (before->leaves >> i & 1) ? then->held[i].count : 0;
    }
    assert_int_equal(kept, 0);
}

/* Of what a member has given some is sent. */
static void send_some(comm *one, int place, theta *result, bag *left)
{
    bag all = w.nodes[one->nodes[place]].held;
    if (one->gave[place]) hold(&all, one->gave[place]);
    left->count = 0;
    for (int k = 0; k < all.count; k++) {
        if (chance(0.5))
            result->deltas[result->count++] = all.deltas[k];
        else
            hold(left, all.deltas[k]);
    }
}

/* All have come: each hears of it some time later, unless the connections fail before. */
static void complete(comm *one)
{
    what kind = one->step == 0 ? OPENED : one->wishes ? MEETS : APPLIED;
    if (kind == OPENED) check_held(one);
    if (kind == APPLIED) {
        theta *result = &one->result[one->step % 2];
        snapshot *after = &one->snapshots[one->step % 2];
        *result = one->step == 1 ? one->start : one->result[(one->step + 1) % 2];
        after->rounds = ++result->rounds;
        for (int i = 0; i < one->list.count; i++) send_some(one, i, result, &after->held[i]);
        qsort(result->deltas, (size_t)result->count, sizeof *result->deltas, by_number);
        for (int i = 1; i < result->count; i++)
            assert_int_not_equal(result->deltas[i - 1], result->deltas[i]); /* once */
    }
    one->arrived = 0;
    one->wishes = 0;
    one->step++;
    for (int i = 0; i < one->list.count; i++) wake(one, i, kind, between(0.01, 0.1));
}

static void arrive(int n)
{
    node *me = &w.nodes[n];
    comm *one = &w.comms[me->generation];
    int place = place_in(one, n);
    me->stamp++;
    if (one->failed) {
        later(0.01, FAILED, n, me->stamp);
        return;
    }
    if (one->step == 0) later(GRACE, FAILED, n, me->stamp); /* nobody waits longer for connections */
    one->arrived |= (uint64_t)1 << place;
    one->gave[place] = me->delta;
    me->gave_in = me->delta && one->step > 0 ? me->generation : me->gave_in;
    if (one->step > 0) one->wishes |= me->leaving || council_has_visitors(&me->council, w.now);
    if (one->step > 0 && me->leaving) one->leaves |= (uint64_t)1 << place;
    if (one->arrived == ((uint64_t)1 << (one->list.count - 1) << 1) - 1) complete(one);
}

static int count_behind(const comm *one)
{
    int count = 0;
    for (int i = 0; i < one->list.count; i++) count += w.nodes[one->nodes[i]].behind;
    return count;
}

/* Every generation is decided once, by a quorum of the one before it: those who stay, and those who leave. */
static void check_decision(const council_list *list)
{
    comm *one = &w.comms[list->generation];
    assert_true(list->generation < GENERATIONS);
    if (one->list.generation) {
        assert_int_equal(one->list.count, list->count);
        for (int i = 0; i < list->count; i++) assert_string_equal(one->list.seats[i].door, list->seats[i].door);
        return;
    }
    const council_list *old = &w.comms[list->generation - 1].list;
    assert_true(list->group && (list->generation == 1 || list->group == old->group));
    int agreed = 0, first = 0;
    for (int i = 0; i < old->count; i++) {
        int n = node_of(old->seats[i].name);
        int may_lack = w.nodes[n].leaving || old->seats[i].rounds == 0; /* that it was new, and comes again */
        if (council_find(list, old->seats[i].name) < 0 && !may_lack) continue;
        agreed++;
        first |= i == 0;
    }
    assert_true(list->generation == 1 || 2 * agreed > old->count || (2 * agreed == old->count && first));
    one->list = *list;
    for (int i = 0; i < list->count; i++) one->nodes[i] = node_of(list->seats[i].name);
    if (count_behind(one) == list->count && list->count > 1) fail_comm(one);
}

static void look_at_verdict(int n)
{
    node *me = &w.nodes[n];
    if (me->doing != MEETING) return;
    if (me->council.verdict == COUNCIL_LEFT) finish(n, "left");
    if (me->council.verdict == COUNCIL_NO_QUORUM) finish(n, "no quorum");
    if (me->council.verdict == COUNCIL_UNWANTED) finish(n, "unwanted");
    if (me->council.verdict == COUNCIL_PENDING && me->council.place < 0 && w.now - me->since > GIVES_UP)
        finish(n, "gave up");
    if (me->council.verdict != COUNCIL_GENERATION) return;
    check_decision(&me->council.list);
    assert_true(me->council.settings.patience == PATIENCE_OF_GROUP);
    me->generation = me->council.list.generation;
    me->doing = CONNECTING;
    comm *one = &w.comms[me->generation];
    if (one->list.seats[place_in(one, n)].rounds == 0) me->theta.rounds = 0; /* until it has the group's */
    if (place_in(one, n) == council_donor(&one->list)) one->start = me->theta;
    arrive(n);
}

static void work(int n)
{
    node *me = &w.nodes[n];
    if (me->theta.rounds > TARGET) {
        w.reached = 1;
        me->leaving = 1;
    }
    me->doing = WORKING;
    me->delta = ++me->next * NODES + n;
    later(chance(0.05) ? between(1, 8) : between(0.5, 1), WORKED, n, ++me->stamp);
}

/* In the round that it lacks. */
static int was_held(int n, int delta)
{
    const comm *one = &w.comms[w.nodes[n].gave_in];
    int place = place_in(one, n);
    return holds(&one->snapshots[0].held[place], delta) || holds(&one->snapshots[1].held[place], delta);
}

/* The connections stand: those that are behind take theta. */
static void opened(int n)
{
    node *me = &w.nodes[n];
    comm *one = &w.comms[me->generation];
    int donor = council_donor(&one->list);
    if (donor < 0) {
        finish(n, "nobody has theta");
        return;
    }
    if (one->list.seats[place_in(one, n)].rounds == one->start.rounds) {
        assert_true(are_same(&me->theta, &one->start));
    } else if (council_is_late(&me->council)) {
        me->theta = one->start;
    } else {
        int lost = me->delta && !theta_has(&one->start, me->delta);
        assert_false(lost && !was_held(n, me->delta));
        me->held.count = 0;
        me->theta = one->start;
        me->delta = 0;
    }
    me->doing = IN_ROUND;
    arrive(n);
}

static void applied(int n)
{
    node *me = &w.nodes[n];
    const comm *one = &w.comms[me->generation];
    if (one->failed && chance(0.5)) { /* what was lost did not come */
        meet(n);
        return;
    }
    const theta *result = &one->result[(one->step + 1) % 2];
    assert_int_equal(result->rounds, me->theta.rounds + 1);
    me->theta = *result;
    me->held = one->snapshots[(one->step + 1) % 2].held[place_in(one, n)];
    work(n);
}

/* --- faults ------------------------------------------------------------------------------------------------------ */

/* Connections across a cut, or with one that stands still, are lost when the grace is over. */
static void lose_comms(void)
{
    for (int g = 1; g < GENERATIONS && w.comms[g].list.generation; g++) {
        comm *one = &w.comms[g];
        for (int i = 0; i < one->list.count && !one->failed; i++) {
            const node *there = &w.nodes[one->nodes[i]];
            if (there->doing == DEAD || (there->stopped && w.now - there->since > GRACE) ||
                !reaches(one->nodes[0], one->nodes[i]))
                fail_comm(one);
        }
    }
}

static void crash(int n)
{
    if (w.nodes[n].doing == ABSENT || w.nodes[n].doing == DONE) return;
    w.nodes[n].doing = DEAD;
    w.carriers_lost += !w.nodes[n].behind && count_behind(&w.comms[w.nodes[n].generation]) > 1;
    lose_comms();
}

static void begin_node(int n, int opens)
{
    static int numbers[NODES];
    char name[COUNCIL_NAME];
    node *me = &w.nodes[n];
    council_settings settings = {
        .grace = GRACE, .patience = opens ? PATIENCE_OF_GROUP : 1, .send = send, .context = &numbers[n]};
    numbers[n] = n;
    write_name(name, n, 0);
    council_begin(&me->council, &settings, name, w.now);
    if (opens) {
        council_open(&me->council);
        me->theta.rounds = 1;
        me->next = 0;
    }
    later(TICK, TICKS, n, 0);
    meet(n);
}

static void plan_faults(void)
{
    for (int n = 1; n < NODES; n++) w.nodes[n].behind = chance(0.4);
    for (int n = 0; n < NODES; n++)
        push(n < FOUNDERS ? between(0, 1) * (n > 0) : between(1, FAULTS_END), (event){.kind = STARTS, .node = n});
    for (int faults = 1 + (int)(draw() % 8); faults > 0; faults--) {
        static const what kinds[] = {CRASHES, STOPS, CUTS, LEAVES, CUTS, MOVES};
        push(between(2, FAULTS_END), (event){.kind = kinds[draw() % 6], .node = (int)(draw() % NODES)});
    }
}

/* Its connections are from where it was. One that waits opens another door. */
static void move(int n)
{
    node *me = &w.nodes[n];
    if (me->doing == ABSENT || is_gone(n)) return;
    w.moved++;
    write_name(me->council.own.name, n, ++me->moves);
    if (me->generation) fail_comm(&w.comms[me->generation]);
    if (me->doing == MEETING) meet(n);
}

static void cut(void)
{
    for (int n = 0; n < NODES; n++) w.nodes[n].side = chance(0.5);
    later(between(0.2, 15), HEALS, 0, 0);
    later(GRACE, CUTS, -1, 0);
}

static void fault(const event *one)
{
    node *me = &w.nodes[one->node < 0 ? 0 : one->node];
    if (one->kind == STARTS) begin_node(one->node, one->node == 0);
    if (one->kind == CRASHES) crash(one->node);
    if (one->kind == LEAVES && me->doing != ABSENT) me->leaving = 1;
    if (one->kind == MOVES) move(one->node);
    if (one->kind == CUTS && one->node >= 0) cut();
    if (one->kind == CUTS && one->node < 0) lose_comms();
    if (one->kind == HEALS)
        for (int n = 0; n < NODES; n++) w.nodes[n].side = 0;
    if (one->kind == GOES_ON) me->stopped = 0;
    if (one->kind != STOPS || me->doing == ABSENT || me->stopped) return;
    me->stopped = 1;
    me->since = w.now;
    later(between(0.5, 20), GOES_ON, one->node, 0);
    later(GRACE + 0.1, CUTS, -1, 0);
}

/* --- a schedule -------------------------------------------------------------------------------------------------- */

static int is_of_program(what kind)
{
    return kind <= FAILED;
}

static void ends_wait(const event *one)
{
    int n = one->node;
    if (one->stamp != w.nodes[n].stamp || w.nodes[n].doing == DONE) return;
    if (one->kind == OPENED) opened(n);
    if (one->kind == APPLIED) applied(n);
    if (one->kind == MEETS) hand_over(n);
    if (one->kind == MEETS || one->kind == FAILED) meet(n);
    if (one->kind != WORKED) return;
    w.nodes[n].doing = IN_ROUND;
    arrive(n);
}

static void tick(int n)
{
    council_tick(&w.nodes[n].council, w.now);
    if (w.nodes[n].doing != DONE) later(TICK, TICKS, n, 0);
}

static int is_heard(const event *one)
{
    return !is_gone(one->via) && reaches(one->other, one->via) && reaches(one->via, one->node);
}

static void step(event *one)
{
    node *me = &w.nodes[one->node < 0 ? 0 : one->node];
    if (!is_of_program(one->kind)) {
        fault(one);
        return;
    }
    if (me->doing == DEAD || me->doing == DONE) return;
    if (me->stopped || (one->kind == MESSAGE && w.nodes[one->via].stopped)) { /* it comes when that is over */
        push(w.now + 0.5, *one);
        one->message = NULL;
        return;
    }
    if (one->kind == MESSAGE && is_heard(one)) council_hear(&me->council, one->message, w.now);
    if (one->kind == LOST) council_lose(&me->council, one->message->to, w.now);
    if (one->kind == TICKS) tick(one->node);
    if (one->kind >= WORKED) ends_wait(one);
    look_at_verdict(one->node);
}

static void run_schedule(uint64_t seed)
{
    static int last; /* generation that a schedule came to */
    memset(&w, 0, offsetof(world, comms) + (size_t)(last + 1) * sizeof *w.comms);
    dice = seed * 7919 + 1;
    plan_faults();
    for (event *one; w.now < BOUND && (one = (event *)tw_timers_take(&events)); forget(one)) {
        w.now = one->timer.time;
        step(one);
    }
    for (event *one; (one = (event *)tw_timers_take(&events));) forget(one);
    for (last = 0; last + 1 < GENERATIONS && w.comms[last + 1].list.generation;) last++;
    for (int n = 0; n < NODES; n++)
        if (w.nodes[n].doing != DONE && w.nodes[n].doing != DEAD)
            fail_msg("seed %d: node %d is at %d in generation %d at the end", (int)seed, n, w.nodes[n].doing,
                     (int)w.nodes[n].generation);
}

TEST(test_schedules)
{
    const int schedules = in_part(200, SCHEDULES);
    int reached = 0, late = 0, moved = 0, carried = 0, carriers_lost = 0, handed_over = 0, given_up = 0, brought = 0;
    assert_int_equal(tw_timers_reserve(&events, EVENTS), TW_OK);
    for (int seed = 1; seed <= schedules; seed++) {
        run_schedule((uint64_t)seed);
        reached += w.reached;
        late += w.late;
        moved += w.moved;
        carried += w.carried > 0;
        carriers_lost += w.carriers_lost;
        handed_over += w.handed_over;
        given_up += w.given_up;
        brought += w.brought;
    }
    tw_timers_free(&events);
    print_message("%d of %d schedules came to their last round; %d deltas of those left behind came late; %d moved\n",
                  reached, schedules, late, moved);
    print_message("in %d of them words were passed on, and %d members were lost that could do that\n", carried,
                  carriers_lost);
    print_message(
        "%d deltas that were held back were handed over, and %d were missing with a member, or with a round that "
        "it lacked, of which %d came back with it\n",
        handed_over, given_up, brought);
    assert_true(handed_over > schedules / 10 && late > schedules / 4 && brought > 0);
    assert_true(reached > schedules * 9 / 10 && moved > schedules / 4);
    assert_true(carried > schedules / 2 && carriers_lost > schedules / 10);
}

/* --- a program that stays busy ------------------------------------------------------------------------------------ */

enum { BUSY_MOST = 3, POST = 256 };
#define PATIENCE 12.0

/* Members of one generation, whose messages all arrive as late, but those to and from one that is cut off, and those to
 * where nobody is any more. */
typedef struct circle {
    council members[BUSY_MOST];
    council_message post[POST];
    double posted[POST];                 /* when each was */
    int count, waiting, cut_off, called; /* cut_off: 0: nobody, or it is the first; called: meeting points */
    double now, late;
} circle;

static void post(void *context, const council_message *message)
{
    circle *all = context;
    assert_true(all->waiting < POST);
    all->posted[all->waiting] = all->now;
    all->post[all->waiting++] = *message;
    all->called += !message->to[0];
}

static int arrives(const circle *all, const council_message *message)
{
    int to = node_of(message->to), from = node_of(message->seat.name);
    if (all->cut_off && (to == all->cut_off || from == all->cut_off)) return 0;
    return to < all->count && strcmp(message->to, all->members[to].own.name) == 0;
}

static void deliver(circle *all)
{
    int kept = 0;
    for (int next = 0; next < all->waiting; next++) {
        if (all->now < all->posted[next] + all->late) {
            all->posted[kept] = all->posted[next];
            all->post[kept++] = all->post[next];
        } else if (arrives(all, &all->post[next])) {
            council_hear(&all->members[node_of(all->post[next].to)], &all->post[next], all->now);
        }
    }
    all->waiting = kept;
}

static void pass_time(circle *all, double until)
{
    for (; all->now < until; all->now += TICK) {
        for (int n = 0; n < all->count; n++) council_tick(&all->members[n], all->now);
        deliver(all);
    }
}

/* All but the first have come to its end. */
static circle *begin_circle(int count)
{
    circle *all = calloc(1, sizeof *all);
    council_settings settings = {.grace = GRACE, .patience = 1, .send = post, .context = all};
    council_message decided = {.kind = COUNCIL_DECIDED,
                               .list = {.generation = 1, .patience = (uint64_t)(1e3 * PATIENCE), .count = count}};
    assert_non_null(all);
    all->count = count;
    for (int n = 0; n < count; n++) {
        write_name(decided.list.seats[n].name, n, 0);
        decided.list.seats[n].rounds = 1;
    }
    for (int n = 0; n < count; n++) {
        council_begin(&all->members[n], &settings, decided.list.seats[n].name, 0);
        write_name(decided.to, n, 0);
        council_hear(&all->members[n], &decided, 0);
        all->members[n].seated = 1; /* by a program, which trains in it */
        if (n > 0) council_meet(&all->members[n], "door", 2, 0, 0);
    }
    return all;
}

TEST(test_others_go_on_without_a_busy_first_member)
{
    circle *all = begin_circle(3);
    pass_time(all, PATIENCE - 0.5);
    for (int n = 1; n < 3; n++) assert_int_equal(all->members[n].verdict, COUNCIL_PENDING);
    pass_time(all, PATIENCE + GRACE);
    for (int n = 1; n < 3; n++) {
        const council *one = &all->members[n];
        assert_int_equal(one->verdict, COUNCIL_GENERATION);
        assert_int_equal(one->list.generation, 2);
        assert_int_equal(one->list.count, 2);
        assert_int_equal(one->place, n - 1);
    }
    free(all);
}

/* The first is the half that counts. */
TEST(test_half_without_a_busy_first_member_is_no_quorum)
{
    circle *all = begin_circle(2);
    pass_time(all, PATIENCE + GRACE - 0.5);
    assert_int_equal(all->members[1].verdict, COUNCIL_PENDING);
    pass_time(all, PATIENCE + GRACE + 1);
    assert_int_equal(all->members[1].verdict, COUNCIL_NO_QUORUM);
    free(all);
}

/* --- whom a wait is for ------------------------------------------------------------------------------------------- */

TEST(test_who_waits_long_knows_for_whom)
{
    circle *all = begin_circle(3);
    pass_time(all, COUNCIL_LONG - 0.5);
    for (int n = 0; n < 3; n++) assert_int_equal(council_waits_for(&all->members[n]), 0);
    pass_time(all, COUNCIL_LONG + 0.5);
    assert_int_equal(council_waits_for(&all->members[0]), 0); /* its program computes */
    for (int n = 1; n < 3; n++) assert_int_equal(council_waits_for(&all->members[n]), 1);
    council_lose(&all->members[2], all->members[0].own.name, all->now);
    assert_int_equal(council_waits_for(&all->members[2]), 0);
    all->cut_off = 1;
    pass_time(all, all->now + 1.5);
    assert_int_equal(council_waits_for(&all->members[1]), 0);
    council_meet(&all->members[1], "another door", 2, 0, all->now); /* in the same wait */
    all->members[1].met = 0;
    assert_int_equal(council_waits_for(&all->members[1]), 0);
    free(all);
}

/* Before a round nobody has an end of the generation to speak of, and nothing is said while a wait is short. Neither
 * one that waits as well nor one that is silent is waited for. */
TEST(test_a_round_waits_for_those_that_do_not_come_to_it)
{
    circle *all = begin_circle(3);
    council *first = &all->members[1], *second = &all->members[2];
    for (int n = 1; n < 3; n++) all->members[n].state = COUNCIL_BUSY;
    council_await(first, 1, 0);
    pass_time(all, COUNCIL_LONG - 1.5);
    assert_true(all->members[0].peers[1].heard == 0);
    pass_time(all, COUNCIL_LONG + 0.5);
    assert_int_equal(council_waits_for(first), 1 << 0 | 1 << 2);
    council_await(second, 1, all->now);
    pass_time(all, all->now + 0.5);
    assert_int_equal(council_waits_for(first), 1 << 0);
    assert_int_equal(council_waits_for(second), 0);
    council_await(second, 0, all->now);
    all->cut_off = 2;
    pass_time(all, all->now + 1.5);
    assert_int_equal(council_waits_for(first), 1 << 0);
    council_await(first, 0, all->now);
    pass_time(all, all->now + COUNCIL_LONG + 0.5);
    assert_int_equal(council_waits_for(first), 0);
    free(all);
}

/* Who is only slower has come by then. */
TEST(test_a_wait_is_long_beyond_the_longest_round)
{
    circle *all = begin_circle(2);
    all->members[1].longest = 7;
    pass_time(all, COUNCIL_LONG + 6.5);
    assert_int_equal(council_waits_for(&all->members[1]), 0);
    pass_time(all, COUNCIL_LONG + 7.5);
    assert_int_equal(council_waits_for(&all->members[1]), 1);
    free(all);
}

/* Then the others are not asked, until the next wait. */
TEST(test_a_wait_is_kept_quiet)
{
    circle *all = begin_circle(2);
    council *one = &all->members[1];
    one->state = COUNCIL_BUSY;
    for (int n = 0; n < 2; n++) {
        council_await(one, 1, all->now);
        pass_time(all, all->now + COUNCIL_LONG + 0.5);
        assert_int_equal(council_waits_for(one), 1);
        council_keep_quiet(one);
        const double before = all->members[0].peers[1].heard;
        pass_time(all, all->now + 0.5);
        assert_int_equal(council_waits_for(one), 0);
        assert_true(all->members[0].peers[1].heard == before);
    }
    council_meet(one, "door", 2, 0, all->now);
    pass_time(all, all->now + COUNCIL_LONG + 0.5);
    assert_int_equal(council_waits_for(one), 1);
    free(all);
}

/* Where members are lost sooner, a wait for one that is there is long sooner. */
TEST(test_a_long_wait_follows_the_grace)
{
    circle *all = begin_circle(2);
    all->members[1].settings.grace = 2;
    pass_time(all, 3.5);
    assert_int_equal(council_waits_for(&all->members[1]), 0);
    pass_time(all, 4.5);
    assert_int_equal(council_waits_for(&all->members[1]), 1);
    free(all);
}

/* --- who hears nobody --------------------------------------------------------------------------------------------- */

/* The others go on, and let it in again when it is heard; what it has done meanwhile is not lost. */
TEST(test_who_is_cut_off_comes_back)
{
    circle *all = begin_circle(3);
    council *back = &all->members[2];
    council_meet(&all->members[0], "door", 2, 0, 0);
    all->cut_off = 2;
    pass_time(all, PATIENCE - 0.5);
    assert_int_equal(all->members[0].list.count, 2);
    assert_int_equal(back->verdict, COUNCIL_PENDING);
    all->cut_off = 0;
    pass_time(all, PATIENCE + 1);
    assert_int_equal(back->verdict, COUNCIL_PENDING);
    assert_int_equal(back->place, -1);
    for (int n = 0; n < 2; n++) council_meet(&all->members[n], "door", 3, 0, all->now);
    pass_time(all, all->now + 1);
    assert_int_equal(back->verdict, COUNCIL_GENERATION);
    assert_int_equal(back->list.count, 3);
    assert_true(council_is_late(back));
    free(all);
}

/* A line that is cut twice ends no wait either. */
TEST(test_who_comes_back_may_be_cut_off_again)
{
    circle *all = begin_circle(3);
    council_meet(&all->members[0], "door", 2, 0, 0);
    all->cut_off = 2;
    pass_time(all, GRACE + 1);
    all->cut_off = 0;
    pass_time(all, GRACE + 1.5);
    all->cut_off = 2;
    assert_int_equal(all->members[2].place, -1);
    pass_time(all, PATIENCE - 0.5);
    assert_int_equal(all->members[2].verdict, COUNCIL_PENDING);
    pass_time(all, PATIENCE + GRACE);
    assert_int_equal(all->members[2].verdict, COUNCIL_NO_QUORUM);
    free(all);
}

/* It is no member twice over that it waits longer than for one that is busy. One that leaves need not be heard. */
TEST(test_who_stays_cut_off_waits_for_the_patience)
{
    circle *all = begin_circle(3);
    all->cut_off = 2;
    pass_time(all, GRACE);
    assert_int_equal(all->called, 0);
    pass_time(all, PATIENCE - 0.5);
    assert_true(all->called > 0); /* whoever is there now may know it as little as it knows them */
    assert_int_equal(all->members[2].verdict, COUNCIL_PENDING);
    pass_time(all, PATIENCE + 0.5);
    assert_int_equal(all->members[2].verdict, COUNCIL_NO_QUORUM);
    council_meet(&all->members[2], "door", 2, 1, all->now);
    pass_time(all, all->now + 2 * GRACE + 0.5);
    assert_int_equal(all->members[2].verdict, COUNCIL_LEFT);
    free(all);
}

TEST(test_nobody_waits_for_a_quorum_of_those_that_are_gone)
{
    circle *all = begin_circle(3);
    all->cut_off = 2;
    for (int n = 0; n < 2; n++) council_lose(&all->members[2], all->members[n].own.name, 0);
    pass_time(all, GRACE - 0.5);
    assert_int_equal(all->members[2].verdict, COUNCIL_PENDING);
    pass_time(all, GRACE + 0.5);
    assert_int_equal(all->members[2].verdict, COUNCIL_NO_QUORUM);
    free(all);
}

/* Somebody else has its address now, and does not listen. */
TEST(test_who_has_moved_is_the_same_member)
{
    circle *all = begin_circle(3);
    char old[COUNCIL_NAME];
    write_name(old, 1, 0);
    write_name(all->members[1].own.name, 1, 1);
    council_meet(&all->members[1], "another door", 2, 0, 0);
    pass_time(all, 1);
    council_lose(&all->members[2], old, all->now);
    council_meet(&all->members[0], "door", 2, 0, all->now);
    pass_time(all, 2);
    for (int n = 0; n < 3; n++) {
        const council_list *list = &all->members[n].list;
        assert_int_equal(list->generation, 2);
        assert_int_equal(list->count, 3);
        assert_int_equal(all->members[n].place, n);
        assert_string_equal(list->seats[1].name, all->members[1].own.name);
        assert_string_equal(list->seats[1].door, "another door");
    }
    free(all);
}

/* All hear so from whoever has decided, and those that only hear it pass it on. */
TEST(test_who_has_left_is_known_to_all)
{
    circle *all = begin_circle(3);
    council_message behind = {.kind = COUNCIL_STATUS, .to = "0#n2", .seat = {.name = "0#n1"}, .generation = 1};
    council_meet(&all->members[0], "door", 2, 0, 0);
    council_meet(&all->members[1], "door", 2, 1, 0);
    pass_time(all, 2);
    assert_int_equal(all->members[1].verdict, COUNCIL_LEFT);
    for (int n = 0; n < 3; n++) {
        assert_int_equal(all->members[n].list.count, 2);
        assert_true(all->members[n].left == 1 << 1);
    }
    all->waiting = 0;
    council_hear(&all->members[2], &behind, all->now);
    assert_int_equal(all->waiting, 1);
    assert_int_equal(all->post[0].kind, COUNCIL_DECIDED);
    assert_true(all->post[0].ballot == 1 << 1);
    free(all);
}

/* --- who lets the others wait ------------------------------------------------------------------------------------ */

#define LONGEST (2 * (PATIENCE + GRACE))

static void expect_end_of_wait(circle *all, int first)
{
    pass_time(all, LONGEST + GRACE - 0.5);
    for (int n = first; n < all->count; n++) assert_int_equal(all->members[n].verdict, COUNCIL_PENDING);
    pass_time(all, LONGEST + GRACE + 0.5);
    for (int n = first; n < all->count; n++) assert_int_equal(all->members[n].verdict, COUNCIL_NO_QUORUM);
    free(all);
}

/* A member says that it may not accept anything below the highest ballot there is, for which nobody has asked. */
TEST(test_a_ballot_beyond_all_others_ends_the_wait)
{
    circle *all = begin_circle(3);
    council_message prepare = {.kind = COUNCIL_PREPARE,
                               .state = COUNCIL_READY,
                               .seat = {.name = "0#n2", .rounds = 2},
                               .generation = 2,
                               .ballot = UINT64_MAX};
    for (int n = 0; n < 2; n++) {
        write_name(prepare.to, n, 0);
        council_hear(&all->members[n], &prepare, 0);
    }
    council_meet(&all->members[0], "door", 2, 0, 0);
    expect_end_of_wait(all, 0);
}

/* It has come and answers, and that is all it does. */
TEST(test_a_first_member_that_proposes_nothing_ends_the_wait)
{
    circle *all = begin_circle(3);
    council_meet(&all->members[0], "door", 2, 0, 0);
    all->members[0].verdict = COUNCIL_NO_QUORUM; /* so that no time passes for it */
    expect_end_of_wait(all, 1);
}

/* A machine that was suspended is not late, and those that it waited for are not either. */
TEST(test_time_that_stood_still_is_no_patience)
{
    circle *all = begin_circle(3);
    pass_time(all, PATIENCE - 1);
    all->now += 10 * LONGEST;
    pass_time(all, all->now + 0.5);
    council_meet(&all->members[0], "door", 2, 0, all->now);
    pass_time(all, all->now + GRACE);
    for (int n = 0; n < 3; n++) {
        assert_int_equal(all->members[n].verdict, COUNCIL_GENERATION);
        assert_int_equal(all->members[n].list.count, 3);
    }
    free(all);
}

/* A ballot takes two round trips, and none of these is too long for those that hear each other. */
TEST(test_a_long_way_keeps_nobody_from_deciding)
{
    static const double ways[] = {0.3, 1};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        circle *all = begin_circle(3);
        all->late = ways[i];
        council_meet(&all->members[0], "door", 2, 0, 0);
        pass_time(all, 2 * PATIENCE);
        for (int n = 0; n < 3; n++) {
            assert_int_equal(all->members[n].verdict, COUNCIL_GENERATION);
            assert_int_equal(all->members[n].list.count, 3);
        }
        free(all);
    }
}

/* --- another group ----------------------------------------------------------------------------------------------- */

/* One that was opened where the own one was, as by a first member that has begun again. */
TEST(test_another_group_is_nobodys_own)
{
    circle *all = begin_circle(2);
    council *member = &all->members[1];
    council_message decided = {
        .kind = COUNCIL_DECIDED, .to = "0#n1", .list = {.group = 6, .generation = 9, .count = 1}};
    council_message join = {.kind = COUNCIL_JOIN, .state = COUNCIL_READY, .seat = {.name = "0#n2", .door = "door"}};
    member->list.group = 5;
    council_hear(member, &decided, 1);
    assert_int_equal(member->list.generation, 1);
    join.list.group = 6;
    council_hear(member, &join, 1);
    assert_int_equal(member->visitor_count, 0);
    join.list.group = 0; /* it has not been in any */
    join.seat.door[0] = 0;
    council_hear(member, &join, 1); /* nobody could call it */
    assert_int_equal(member->visitor_count, 0);
    join.seat.door[0] = 'd';
    council_hear(member, &join, 1);
    assert_int_equal(member->visitor_count, 1);
    decided.list.group = 5;
    council_hear(member, &decided, 1);
    assert_int_equal(member->list.generation, 9);
    free(all);
}

TEST(test_the_patience_of_a_group_stays)
{
    circle *all = begin_circle(2);
    council *member = &all->members[1];
    council_message decided = {.kind = COUNCIL_DECIDED, .to = "0#n1", .list = member->list};
    decided.list.generation = 9;
    decided.list.patience *= 1000;
    council_hear(member, &decided, 1);
    assert_int_equal(member->list.generation, 9);
    assert_true(member->settings.patience == PATIENCE);
    assert_true((double)member->list.patience == 1e3 * PATIENCE); /* which newcomers are told */
    free(all);
}

/* --- newcomers ---------------------------------------------------------------------------------------------------- */

/* A generation that ends before its first member has heard of the newcomer would be followed by one without it. */
TEST(test_a_newcomer_is_introduced_before_a_generation_ends)
{
    circle *all = begin_circle(2);
    council *second = &all->members[1];
    council_message join = {.kind = COUNCIL_JOIN, .state = COUNCIL_BUSY, .seat = {.name = "0#n2", .door = "door"}};
    council_hear(second, &join, 1);
    council_hear(second, &join, 2); /* it asks whether there is a group, and is told */
    assert_int_equal(second->visitor_count, 0);
    assert_int_equal(all->post[0].kind, COUNCIL_DECIDED);
    join.state = COUNCIL_READY;
    council_hear(second, &join, 3);
    assert_false(council_has_visitors(second, 3 + 1.5 * COUNCIL_BEAT));
    council_hear(second, &join, 3 + 1.5 * COUNCIL_BEAT);
    assert_true(council_has_visitors(second, 3 + 2 * COUNCIL_BEAT));
    free(all);
}

/* Members that train answer for as long as they are there, and then it does not wait for them. */
TEST(test_a_newcomer_does_not_wait_for_a_group_that_has_ended)
{
    circle *all = begin_circle(2);
    council *newcomer = &all->members[2];
    council_message decided = {.kind = COUNCIL_DECIDED, .to = "0#n2", .list = all->members[1].list};
    all->members[0].state = all->members[1].state = COUNCIL_BUSY;
    all->count = 3;
    council_begin(newcomer, &all->members[0].settings, "0#n2", 0);
    council_meet(newcomer, "door", 0, 0, 0);
    pass_time(all, 2 * GRACE); /* a group that is not there yet may come */
    council_hear(newcomer, &decided, all->now);
    pass_time(all, 5 * GRACE);
    assert_int_equal(newcomer->verdict, COUNCIL_PENDING);
    all->members[0].place = all->members[1].place = -1;
    pass_time(all, 6 * GRACE - 0.5);
    assert_int_equal(newcomer->verdict, COUNCIL_PENDING);
    pass_time(all, 6 * GRACE + 0.5);
    assert_int_equal(newcomer->verdict, COUNCIL_NO_QUORUM);
    free(all);
}

/* It knows another key, so that no word is exchanged. While it stood still nobody was silent. */
TEST(test_a_newcomer_does_not_wait_for_a_meeting_point_that_no_longer_answers)
{
    circle *all = begin_circle(2);
    council *newcomer = &all->members[2];
    all->count = 3;
    all->members[0].place = all->members[1].place = -1;
    council_begin(newcomer, &all->members[0].settings, "0#n2", 0);
    council_meet(newcomer, "door", 0, 0, 0);
    pass_time(all, 2 * GRACE);
    council_reach(newcomer, all->now);
    pass_time(all, 3 * GRACE - 0.5);
    all->now += 10 * LONGEST;
    const double awake = all->now;
    pass_time(all, awake + GRACE - 0.5);
    assert_int_equal(newcomer->verdict, COUNCIL_PENDING);
    pass_time(all, awake + GRACE + 0.5);
    assert_int_equal(newcomer->verdict, COUNCIL_NO_QUORUM);
    free(all);
}

/* Nor for one whose last member says so, though it is not let in for a while. To one that has gone a line would only
 * hold up the end. */
TEST(test_newcomers_are_told_that_a_group_ends)
{
    circle *all = begin_circle(2);
    council *second = &all->members[1];
    council_message join = {.kind = COUNCIL_JOIN, .state = COUNCIL_READY, .seat = {.name = "0#n2", .door = "door"}};
    council_hear(second, &join, 1);
    snprintf(join.seat.name, COUNCIL_NAME, "0#n3");
    council_hear(second, &join, 1);
    second->visitors[1].barred = 100;
    council_lose(second, "0#n2", 1.5);
    all->waiting = 0;
    council_end(second);
    assert_int_equal(all->waiting, 1);
    assert_int_equal(all->post[0].kind, COUNCIL_OVER);
    assert_string_equal(all->post[0].to, "0#n3");
    free(all);
}

/* A member decides with those that answer, whatever one of them says. A newcomer whose program asks whether there is a
 * group is none that waits. */
TEST(test_only_newcomers_that_wait_hear_that_a_group_has_ended)
{
    circle *all = begin_circle(2);
    council *member = &all->members[1], *newcomer = &all->members[2];
    council_message over = {.kind = COUNCIL_OVER, .to = "0#n1"};
    council_hear(member, &over, 1);
    assert_int_equal(member->verdict, COUNCIL_PENDING);
    council_begin(newcomer, &member->settings, "0#n2", 1);
    snprintf(over.to, COUNCIL_NAME, "0#n2");
    council_hear(newcomer, &over, 1);
    assert_int_equal(newcomer->verdict, COUNCIL_PENDING);
    council_meet(newcomer, "door", 0, 0, 1);
    council_hear(newcomer, &over, 1);
    assert_int_equal(newcomer->verdict, COUNCIL_TOO_LATE);
    free(all);
}

/* One that the first member cannot hear ends ever fewer generations, by which nobody is let in. */
TEST(test_a_newcomer_whom_the_first_cannot_hear_does_not_stop_the_others)
{
    circle *all = begin_circle(2);
    council *second = &all->members[1];
    council_message join = {.kind = COUNCIL_JOIN, .state = COUNCIL_READY, .seat = {.name = "0#n2", .door = "door"}};
    council_message decided = {.kind = COUNCIL_DECIDED, .list = second->list};
    snprintf(decided.to, COUNCIL_NAME, "0#n1");
    int ended = 0;
    for (double now = 1; now < 61; now += COUNCIL_BEAT) {
        council_hear(second, &join, now);
        all->waiting = 0;
        if (!council_has_visitors(second, now)) continue;
        ended++;
        decided.list.generation++;
        council_hear(second, &decided, now);
        assert_int_equal(second->visitor_count, 1);
    }
    assert_int_equal(ended, 7); /* after half a second, one, two, 4, 8, 16 and 32 */
    free(all);
}

/* A member alone, whose rounds take no time, and newcomers that come again and again. The first is never connected.
 * Each generation with that one comes to nothing, and costs the group a wait. */
typedef struct trial {
    council member;
    double now;
    int failed; /* generations with the first newcomer */
    int lost;   /* at this place nobody is, from now on; 0: somebody is at each */
    uint64_t rounds;
} trial;

static void send_to_nobody(void *context, const council_message *message)
{
    (void)context;
    (void)message;
}

static void begin_trial(trial *all)
{
    const council_settings settings = {.quorum = 1, .grace = GRACE, .patience = PATIENCE, .send = send_to_nobody};
    *all = (trial){.rounds = 1};
    council_begin(&all->member, &settings, "0#n0", 0);
    council_open(&all->member);
}

static void hear_newcomers(trial *all, int count)
{
    for (int n = 1; n <= count; n++) {
        council_message join = {.kind = COUNCIL_JOIN, .state = COUNCIL_READY, .seat = {.door = "door"}};
        snprintf(join.seat.name, COUNCIL_NAME, "0#n%d", n);
        if (council_find(&all->member.list, join.seat.name) < 0) council_hear(&all->member, &join, all->now);
    }
}

/* All that are in the generation come to its end. */
static void next_generation(trial *all)
{
    council *member = &all->member;
    council_meet(member, "door", all->rounds, 0, all->now);
    if (all->lost) council_lose(member, member->list.seats[all->lost].name, all->now);
    for (int i = 0; i < member->list.count; i++) {
        council_message status = {.kind = COUNCIL_STATUS,
                                  .state = COUNCIL_READY,
                                  .seat = member->list.seats[i],
                                  .generation = member->list.generation + 1,
                                  .list.group = member->list.group};
        snprintf(status.to, COUNCIL_NAME, "%s", member->own.name);
        if (council_find(&member->list, "0#n1") < 0) status.seat.rounds = all->rounds; /* with its first round */
        if (i != member->place && i != all->lost) council_hear(member, &status, all->now);
    }
    council_tick(member, all->now);
    assert_int_equal(member->verdict, COUNCIL_GENERATION);
}

static void try_until(trial *all, int newcomers, double end)
{
    for (; all->now < end; all->now += COUNCIL_BEAT) {
        hear_newcomers(all, newcomers);
        if (!council_has_visitors(&all->member, all->now)) continue;
        all->rounds++;
        next_generation(all);
        if (council_find(&all->member.list, "0#n1") < 0) continue;
        all->failed++;
        next_generation(all);
        assert_int_equal(council_find(&all->member.list, "0#n1"), -1);
    }
}

TEST(test_a_newcomer_that_is_never_connected_costs_ever_less)
{
    static trial all;
    begin_trial(&all);
    try_until(&all, 1, 4 * 3600);
    print_message("%d generations in four hours came to nothing\n", all.failed);
    assert_in_range(all.failed, 2, 10); /* after 30 seconds, 60, ... 1920, and then each hour */
}

/* Each of them comes alone, and behind the other's turn at once. */
TEST(test_those_that_came_with_one_that_is_never_connected_are_soon_in)
{
    static trial all;
    char name[COUNCIL_NAME];
    begin_trial(&all);
    try_until(&all, 9, 90);
    assert_true(all.failed > 0);
    for (int n = 2; n <= 9; n++) {
        snprintf(name, sizeof name, "0#n%d", n);
        assert_true(council_find(&all.member.list, name) >= 0);
    }
}

TEST(test_a_newcomer_that_is_never_connected_keeps_no_other_out)
{
    static trial all;
    begin_trial(&all);
    try_until(&all, 2, 600);
    assert_true(all.failed > 0);
    assert_true(council_find(&all.member.list, "0#n2") >= 0);
}

static void let_in(trial *all, int newcomers)
{
    for (; all->member.list.count <= newcomers; all->now += COUNCIL_BEAT) {
        hear_newcomers(all, newcomers);
        if (council_has_visitors(&all->member, all->now)) next_generation(all);
    }
}

static void assert_is_new(const trial *all, const char *name)
{
    const council_list *list = &all->member.list;
    const int place = council_find(list, name);
    assert_true(place > 0);
    assert_int_equal(list->seats[place].rounds, 0);
    assert_int_equal(council_donor(list), 0);
}

/* Of its hand-over nothing came, and the member has gone on meanwhile. Nothing comes of the next one, either. */
TEST(test_a_newcomer_that_begins_again_is_in_the_next_generation)
{
    static trial all;
    begin_trial(&all);
    let_in(&all, 1);
    all.rounds++;
    next_generation(&all);
    assert_is_new(&all, "0#n1");
    all.rounds++;
    next_generation(&all);
    assert_int_equal(council_find(&all.member.list, "0#n1"), -1);
}

/* It came to nothing because of the other one. */
TEST(test_a_newcomer_stays_where_another_is_lost)
{
    static trial all;
    begin_trial(&all);
    let_in(&all, 2);
    all.lost = council_find(&all.member.list, "0#n2");
    next_generation(&all);
    assert_is_new(&all, "0#n1");
    assert_int_equal(council_find(&all.member.list, "0#n2"), -1);
}

/* Of two of which nobody knows which one keeps generations from beginning. */
TEST(test_a_newcomer_begins_again_once_and_without_others)
{
    static trial all;
    begin_trial(&all);
    let_in(&all, 3);
    all.lost = council_find(&all.member.list, "0#n3");
    hear_newcomers(&all, 4);
    next_generation(&all);
    assert_is_new(&all, "0#n1");
    assert_is_new(&all, "0#n2");
    assert_int_equal(all.member.list.count, 3);
    all.lost = council_find(&all.member.list, "0#n2");
    next_generation(&all);
    assert_int_equal(all.member.list.count, 2);
    assert_is_new(&all, "0#n4");
}

RUN_TESTS(NULL, NULL)
