#include "council.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BALLOT 4           /* beats that the first ballot has, and each later one twice as many, up to the grace */
#define INTRODUCED 2       /* beats, in the first of which a newcomer learns who the members are */
#define BARRED 30.0        /* seconds, and twice as long with each time, */
#define MOST_BARRED 3600.0 /* but no longer */
enum { MOST_COUNTED = 16 /* such times */ };
#define ANSWER 1.0  /* seconds in which whoever is there answers */
#define UNDECIDED 2 /* patiences and graces without a decision, after which none is expected any more */

static uint64_t bit(int place)
{
    return (uint64_t)1 << place;
}

static int count_bits(uint64_t set)
{
    int count = 0;
    for (; set; set &= set - 1) count++;
    return count;
}

static const char *who(const char *name)
{
    const char *mark = strchr(name, '#');
    return mark ? mark : name;
}

int council_is_same(const char *a, const char *b)
{
    size_t length = strcspn(who(a), "/");
    return length == strcspn(who(b), "/") && strncmp(who(a), who(b), length) == 0;
}

int council_find(const council_list *list, const char *name)
{
    for (int i = 0; i < list->count; i++)
        if (council_is_same(list->seats[i].name, name)) return i;
    return -1;
}

/* Whether those whose bits are set may decide for the list. */
static int is_quorum(const council_list *list, uint64_t present, int quorum)
{
    int there = count_bits(present);
    if (quorum > 0) return there >= (quorum < list->count ? quorum : list->count);
    return 2 * there > list->count || (2 * there == list->count && (present & 1));
}

int council_donor(const council_list *list)
{
    int donor = -1;
    for (int i = 0; i < list->count; i++)
        if (list->seats[i].rounds > (donor < 0 ? 0 : list->seats[donor].rounds)) donor = i;
    return donor;
}

/* 0: it is not known. */
static uint64_t begun_with(const council_list *list, uint64_t generation)
{
    int known = generation <= list->generation && list->generation - generation < COUNCIL_KNOWN;
    return known ? list->begun[generation % COUNCIL_KNOWN] : 0;
}

int council_is_late(const council *me)
{
    uint64_t begun = begun_with(&me->list, me->stood + 1);
    return me->place >= 0 && !me->list.seats[me->place].rounds && begun > 0 && begun <= me->had;
}

/* What was said while this process stood still is no silence of the others'. */
static void look_at_clock(council *me, double now)
{
    int stood_still = now - me->now > COUNCIL_STOOD_STILL;
    for (int i = 0; stood_still && i < me->list.count; i++) me->peers[i].heard = now;
    for (int i = 0; stood_still && i < me->visitor_count; i++) me->visitors[i].heard = now;
    if (stood_still && me->unable) me->unable = now;
    if (stood_still && me->reached) me->reached = now;
    if (stood_still) me->met += now - me->now;
    me->now = now;
}

/* --- saying ------------------------------------------------------------------------------------------------------ */

static council_message word(const council *me, council_kind kind)
{
    council_message message = {
        .kind = kind, .state = me->state, .awaits = me->awaits, .seat = me->own, .generation = me->list.generation + 1};
    message.list.group = me->list.group;
    memcpy(message.topic, me->settings.topic, COUNCIL_TOPIC);
    return message;
}

/* What it says to itself it hears at once. */
static void say(council *me, const char *to, council_message *message)
{
    snprintf(message->to, COUNCIL_NAME, "%s", to);
    if (council_is_same(to, me->own.name))
        council_hear(me, message, me->now);
    else
        me->settings.send(me->settings.context, message);
}

static void say_decided(council *me, const char *to)
{
    council_message message = word(me, COUNCIL_DECIDED);
    message.generation = me->list.generation;
    message.list = me->list;
    message.ballot = me->left;
    if (me->list.generation) say(me, to, &message);
}

static void say_status(council *me, const char *to, int asks)
{
    council_message message = word(me, COUNCIL_STATUS);
    message.asks = asks;
    say(me, to, &message);
}

/* As it was last heard of: whoever has moved says where it is now. */
static const council_seat *seat_of(const council *me, int i)
{
    return i == me->place ? &me->own : &me->peers[i].seat;
}

/* To those of the list whose bits are set. An answer to itself may end the ballot, and the list with it. */
static void say_to(council *me, uint64_t set, council_message *message)
{
    uint64_t generation = me->list.generation;
    for (int i = 0; i < me->list.count && me->list.generation == generation; i++)
        if (set & bit(i)) say(me, seat_of(me, i)->name, message);
}

/* --- what has been decided --------------------------------------------------------------------------------------- */

static void forget_ballots(council *me)
{
    me->promised = me->accepted = me->ballot = me->seen = 0;
    me->unable = me->lasts = 0;
    me->accepting = 0;
}

/* Who has a seat now waits no more. Whoever was passed over, as one that the proposer cannot reach, ends the next
 * generation later, and each one after that later still: it may be so for ever. But where one comes alone, the turn of
 * the next is behind it. */
static void seat_visitors(council *me)
{
    int kept = 0, seated = 0;
    for (int i = 0; i < me->visitor_count; i++) seated += council_find(&me->list, me->visitors[i].seat.name) >= 0;
    for (int i = 0; i < me->visitor_count; i++) {
        council_peer *visitor = &me->visitors[i];
        if (council_find(&me->list, visitor->seat.name) >= 0) continue;
        const int has_turn = seated && visitor->failed;
        if (me->now >= visitor->until && !has_turn) visitor->until = me->now + (me->now - visitor->since);
        me->visitors[kept++] = *visitor;
    }
    me->visitor_count = kept;
}

/* A newcomer that is new once more was in a generation that came to nothing for it. */
static int failures_of(const council *me, const council_seat *seat)
{
    for (int i = 0; i < me->visitor_count; i++)
        if (council_is_same(me->visitors[i].seat.name, seat->name)) return me->visitors[i].failed;
    const int place = seat->rounds ? -1 : council_find(&me->list, seat->name);
    return place < 0 || me->list.seats[place].rounds ? 0 : me->peers[place].failed + 1;
}

static void adopt(council *me, const council_list *list)
{
    const uint64_t patience = list->group == me->list.group ? me->list.patience : 0;
    int failed[COUNCIL_MOST];
    for (int i = 0; i < list->count; i++) failed[i] = failures_of(me, &list->seats[i]);
    me->list = *list;
    me->place = council_find(list, me->own.name);
    if (patience) me->list.patience = patience; /* a group's does not change */
    if (me->list.patience) me->settings.patience = (double)me->list.patience / 1e3;
    forget_ballots(me);
    for (int i = 0; i < list->count; i++)
        me->peers[i] = (council_peer){.heard = me->now, .seat = list->seats[i], .failed = failed[i]};
    seat_visitors(me);
    if (me->state == COUNCIL_BUSY) return;
    if (me->place >= 0) {
        me->verdict = COUNCIL_GENERATION;
        me->state = COUNCIL_BUSY;
        me->seated = list->generation;
    } else if (me->state == COUNCIL_LEAVES) {
        me->verdict = COUNCIL_LEFT;
    }
}

static int is_of_another_group(const council *me, const council_message *message)
{
    return me->list.group && message->list.group && message->list.group != me->list.group;
}

static void hear_decided(council *me, const council_message *message)
{
    if (is_of_another_group(me, message)) return;
    int from = me->place < 0 ? council_find(&me->list, message->seat.name) : -1;
    if (from >= 0) me->peers[from].heard = me->now;
    if (message->list.generation > me->list.generation) {
        council_list list = message->list;
        adopt(me, &list);
        me->left = message->ballot;
    }
}

/* --- as an acceptor ---------------------------------------------------------------------------------------------- */

static void say_promise(council *me, const char *to)
{
    council_message message = word(me, COUNCIL_PROMISE);
    message.ballot = me->promised;
    message.accepted = me->accepted;
    if (me->accepted) message.list = me->choice;
    say(me, to, &message);
}

static void hear_prepare(council *me, const council_message *message)
{
    if (message->ballot > me->promised) me->promised = message->ballot;
    say_promise(me, message->seat.name);
}

static void hear_accept(council *me, const council_message *message)
{
    if (message->ballot < me->promised) {
        say_promise(me, message->seat.name);
        return;
    }
    council_message answer = word(me, COUNCIL_ACCEPTED);
    me->promised = me->accepted = answer.ballot = message->ballot;
    me->choice = message->list;
    say(me, message->seat.name, &answer);
}

/* --- as the proposer --------------------------------------------------------------------------------------------- */

static int is_heard(const council *me, const council_peer *peer)
{
    return !peer->gone && me->now - peer->heard <= me->settings.grace;
}

static int is_alive(const council *me, const council_peer *peer)
{
    return is_heard(me, peer) && me->now >= peer->barred;
}

static uint64_t alive(const council *me)
{
    uint64_t set = bit(me->place);
    for (int i = 0; i < me->list.count; i++)
        if (is_alive(me, &me->peers[i])) set |= bit(i);
    return set;
}

static uint64_t those_in(const council *me, uint64_t set, council_state state)
{
    uint64_t there = 0;
    for (int i = 0; i < me->list.count; i++)
        if ((set & bit(i)) && (i == me->place ? me->state : me->peers[i].state) == state) there |= bit(i);
    return there;
}

/* Whoever has been in a generation that came to nothing comes alone, lest it keep others out: NULL: none has. */
static const council_peer *visitor_on_trial(const council *me)
{
    const council_peer *found = NULL;
    for (int i = 0; i < me->visitor_count; i++) {
        const council_peer *one = &me->visitors[i];
        if (is_alive(me, one) && (!found || one->failed < found->failed)) found = one;
    }
    return found && found->failed ? found : NULL;
}

/* Those that were new in this generation are so once more if that it came to nothing for them is no fault of theirs:
 * rounds were applied, so that they were connected with, or another is lost or leaves. */
static uint64_t those_new_again(const council *me, uint64_t stays)
{
    uint64_t set = 0;
    if (me->own.rounds <= me->list.seats[me->place].rounds && count_bits(stays) == me->list.count) return 0;
    for (int i = 0; i < me->list.count; i++)
        if ((stays & bit(i)) && !seat_of(me, i)->rounds && !me->peers[i].failed) set |= bit(i);
    return set;
}

static void add_visitors(const council *me, council_list *value)
{
    const council_peer *trial = visitor_on_trial(me);
    for (int i = 0; i < me->visitor_count && value->count < COUNCIL_MOST; i++)
        if (is_alive(me, &me->visitors[i]) && (trial ? trial == &me->visitors[i] : !me->visitors[i].failed))
            value->seats[value->count++] = me->visitors[i].seat;
}

/* Those that have come and stay, in the order of their seats, and newcomers behind them: those that begin again, or
 * else those that are at the door. Where nobody stays there is nobody who could give newcomers anything. */
static void make_value(council *me)
{
    const uint64_t stays = those_in(me, alive(me), COUNCIL_READY);
    council_list *value = &me->value;
    value->group = me->list.group;
    value->generation = me->list.generation + 1;
    value->patience = me->list.patience;
    memcpy(value->begun, me->list.begun, sizeof value->begun);
    value->count = 0;
    for (int i = 0; i < me->list.count; i++)
        if ((stays & bit(i)) && seat_of(me, i)->rounds) value->seats[value->count++] = *seat_of(me, i);
    const uint64_t again = value->count ? those_new_again(me, stays) : 0;
    for (int i = 0; i < me->list.count; i++)
        if (again & bit(i)) value->seats[value->count++] = *seat_of(me, i);
    if (value->count && !again) add_visitors(me, value);
    int donor = council_donor(value);
    value->begun[value->generation % COUNCIL_KNOWN] = donor < 0 ? 0 : value->seats[donor].rounds;
}

static void propose(council *me)
{
    council_message message = word(me, COUNCIL_ACCEPT);
    if (!me->best) make_value(me);
    me->accepting = 1;
    me->acceptances = 0;
    message.ballot = me->ballot;
    message.list = me->value;
    say_to(me, alive(me), &message);
}

static void hear_promise(council *me, const council_message *message, int from)
{
    if (message->ballot > me->seen) me->seen = message->ballot;
    if (!me->ballot || me->accepting || message->ballot != me->ballot) return;
    me->promises |= bit(from);
    if (message->accepted > me->best) {
        me->best = message->accepted;
        me->value = message->list;
    }
    if (is_quorum(&me->list, me->promises, me->settings.quorum)) propose(me);
}

/* The new members hear of it, and those of the old ones that leave. Who does not will ask. */
static void decide(council *me)
{
    council_list old = me->list, value = me->value;
    const uint64_t left = those_in(me, UINT64_MAX, COUNCIL_LEAVES);
    adopt(me, &value);
    me->left = left;
    for (int i = 0; i < value.count; i++)
        if (i != me->place) say_decided(me, value.seats[i].name);
    for (int i = 0; i < old.count; i++)
        if (council_find(&value, old.seats[i].name) < 0 && !council_is_same(old.seats[i].name, me->own.name))
            say_decided(me, old.seats[i].name);
}

static void hear_accepted(council *me, const council_message *message, int from)
{
    if (!me->accepting || message->ballot != me->ballot) return;
    me->acceptances |= bit(from);
    if (is_quorum(&me->list, me->acceptances, me->settings.quorum)) decide(me);
}

/* It takes two round trips, and nobody knows how long one is: words of a ballot come too late once there is another. */
static void begin_ballot(council *me, uint64_t there)
{
    council_message message;
    uint64_t highest = me->seen > me->promised ? me->seen : me->promised;
    me->ballot = (highest / COUNCIL_MOST + 1) * COUNCIL_MOST + (uint64_t)me->place;
    me->promises = me->acceptances = me->best = 0;
    me->accepting = 0;
    me->proposed = me->now;
    me->lasts = fmax(BALLOT * COUNCIL_BEAT, fmin(2 * me->lasts, me->settings.grace));
    message = word(me, COUNCIL_PREPARE);
    message.ballot = me->ballot;
    say_to(me, there, &message);
}

/* Those that are silent may only be cut off from this one: for them it waits as long as for one that is busy. Who does
 * not listen any more is lost. */
static int may_be_heard_again(const council *me)
{
    uint64_t there = 0;
    for (int i = 0; i < me->list.count; i++)
        if (!me->peers[i].gone) there |= bit(i);
    return me->now - me->met < me->settings.patience && is_quorum(&me->list, there, me->settings.quorum);
}

/* Nobody waits for a busy member for ever: then it counts as one that does not answer. Nor for a decision, which may
 * be kept from a quorum by one that proposes nothing, or takes part in ballots that nobody has called. */
static void look_around(council *me)
{
    uint64_t there = alive(me);
    const double waited = me->now - me->met;
    if (waited >= me->settings.patience) there &= ~those_in(me, there, COUNCIL_BUSY);
    if (waited >= UNDECIDED * (me->settings.patience + me->settings.grace)) there = 0;
    if (!is_quorum(&me->list, there, me->settings.quorum)) {
        if (!me->unable) me->unable = me->now;
        me->lasts = 0; /* ballots have failed for want of members, and not of time */
        if (me->now - me->unable <= me->settings.grace) return;
        if (me->state == COUNCIL_LEAVES)
            me->verdict = COUNCIL_LEFT;
        else if (!may_be_heard_again(me))
            me->verdict = COUNCIL_NO_QUORUM;
        return;
    }
    me->unable = 0;
    if (there & (bit(me->place) - 1)) return; /* one before this one answers, and proposes */
    if (those_in(me, there, COUNCIL_BUSY)) return;
    if (!me->ballot || me->now - me->proposed > me->lasts) begin_ballot(me, there);
}

/* --- newcomers --------------------------------------------------------------------------------------------------- */

static void note(council *me, council_peer *peer, const council_message *message)
{
    *peer = (council_peer){.heard = me->now,
                           .answered = me->now,
                           .since = peer->since > 0 ? peer->since : me->now,
                           .until = peer->since > 0 ? peer->until : me->now + INTRODUCED * COUNCIL_BEAT,
                           .state = message->state,
                           .awaits = message->awaits,
                           .seat = message->seat,
                           .barred = peer->barred,
                           .failed = peer->failed};
}

/* Its own place, or an empty one; NULL: there is none. */
static council_peer *visitor_of(council *me, const char *name)
{
    council_peer *empty = me->visitor_count < COUNCIL_MOST ? &me->visitors[me->visitor_count] : NULL;
    for (int i = 0; i < me->visitor_count; i++) {
        if (council_is_same(me->visitors[i].seat.name, name)) return &me->visitors[i];
        if (!is_alive(me, &me->visitors[i]) && me->now >= me->visitors[i].barred) empty = &me->visitors[i];
    }
    if (!empty) return NULL;
    me->visitor_count += empty == &me->visitors[me->visitor_count];
    memset(empty, 0, sizeof *empty);
    return empty;
}

/* No round was applied in this generation: it may be that the newcomers in it cannot be connected with. */
static void bar_newcomers(council *me)
{
    for (int i = 0; i < me->list.count; i++) {
        council_peer *visitor = me->list.seats[i].rounds ? NULL : visitor_of(me, me->list.seats[i].name);
        if (!visitor) continue;
        visitor->seat = me->list.seats[i];
        visitor->barred = me->now + fmin(MOST_BARRED, ldexp(BARRED, me->peers[i].failed));
        visitor->failed = me->peers[i].failed + (me->peers[i].failed < MOST_COUNTED);
    }
}

static void hear_join(council *me, const council_message *message)
{
    council_peer *visitor;
    if (me->place < 0) return;
    if (memcmp(message->topic, me->settings.topic, COUNCIL_TOPIC) != 0) {
        council_message answer = word(me, COUNCIL_REFUSED);
        say(me, message->seat.name, &answer);
        return;
    }
    if (message->state == COUNCIL_READY && message->seat.door[0] && council_find(&me->list, message->seat.name) < 0 &&
        !is_of_another_group(me, message) && (visitor = visitor_of(me, message->seat.name))) {
        note(me, visitor, message);
        visitor->seat.rounds = 0; /* if it was here before, the others have gone on without it */
    }
    say_decided(me, message->seat.name);
}

void council_end(council *me)
{
    council_message over = word(me, COUNCIL_OVER);
    for (int i = 0; i < me->visitor_count; i++)
        if (is_heard(me, &me->visitors[i])) say(me, me->visitors[i].seat.name, &over);
}

static void hear_over(council *me)
{
    if (me->place < 0 && me->state == COUNCIL_READY) me->verdict = COUNCIL_TOO_LATE;
}

void council_turn_away(council *me)
{
    if (me->place < 0 && me->state != COUNCIL_LEAVES && !me->list.generation) me->verdict = COUNCIL_UNWANTED;
}

/* --- hearing ----------------------------------------------------------------------------------------------------- */

/* Only members of one generation decide on the next, and only as such. */
static void hear_member(council *me, const council_message *message)
{
    int from = council_find(&me->list, message->seat.name);
    if (from < 0 || me->place < 0) return;
    note(me, &me->peers[from], message);
    if (message->kind == COUNCIL_STATUS && message->asks && from != me->place) say_status(me, message->seat.name, 0);
    if (message->kind == COUNCIL_PREPARE) hear_prepare(me, message);
    if (message->kind == COUNCIL_PROMISE) hear_promise(me, message, from);
    if (message->kind == COUNCIL_ACCEPT) hear_accept(me, message);
    if (message->kind == COUNCIL_ACCEPTED) hear_accepted(me, message, from);
}

void council_hear(council *me, const council_message *message, double now)
{
    int knows = memcmp(message->topic, me->settings.topic, COUNCIL_TOPIC) == 0;
    look_at_clock(me, now);
    if (!council_is_same(message->to, me->own.name) && !(message->kind == COUNCIL_JOIN && !message->to[0])) return;
    if (message->kind == COUNCIL_JOIN)
        hear_join(me, message);
    else if (message->kind == COUNCIL_REFUSED)
        council_turn_away(me);
    else if (!knows)
        return;
    else if (message->kind == COUNCIL_DECIDED)
        hear_decided(me, message);
    else if (message->kind == COUNCIL_OVER)
        hear_over(me);
    else if (message->generation <= me->list.generation)
        say_decided(me, message->seat.name);
    else if (message->generation == me->list.generation + 1)
        hear_member(me, message);
    else
        say_status(me, message->seat.name, 0); /* which is behind, so that it is told of what was decided */
}

void council_lose(council *me, const char *name, double now)
{
    look_at_clock(me, now);
    for (int i = 0; i < me->list.count; i++)
        if (strcmp(me->peers[i].seat.name, name) == 0) me->peers[i].gone = 1;
    for (int i = 0; i < me->visitor_count; i++)
        if (strcmp(me->visitors[i].seat.name, name) == 0) me->visitors[i].gone = 1;
}

/* --- time -------------------------------------------------------------------------------------------------------- */

/* Members that hear too few others look for them as newcomers do. */
static void beat(council *me)
{
    council_message join = word(me, COUNCIL_JOIN);
    me->beat = me->now + COUNCIL_BEAT;
    for (int i = 0; i < me->list.count; i++)
        if (me->place < 0)
            say(me, seat_of(me, i)->name, &join);
        else if (i != me->place)
            say_status(me, seat_of(me, i)->name, 1);
    if (me->place < 0 || me->unable) say(me, "", &join);
}

/* A newcomer whose group no longer answers would wait in vain: it has ended, or is lost. One that knows another key has
 * heard no word of it. One that was a member is rather cut off once more. */
static void look_for_group(council *me)
{
    int silent = 0;
    for (int i = 0; i < me->list.count; i++) {
        if (me->now - me->peers[i].heard <= me->settings.grace) return;
        silent |= !me->peers[i].gone;
    }
    if (me->stood && silent && me->now - me->met < me->settings.patience) return;
    if (me->list.generation || (me->reached && me->now - me->reached > me->settings.grace))
        me->verdict = COUNCIL_NO_QUORUM;
}

/* --- whom a wait is for ------------------------------------------------------------------------------------------ */

/* One that is silent is lost by then, and one that is only slower has come, as to the round before. */
static int waits_long(const council *me, double until)
{
    const double graces = 2 * me->settings.grace;
    return me->place >= 0 && !me->quiet && (me->awaits || me->state != COUNCIL_BUSY) &&
           until - me->met - me->longest >= (graces < COUNCIL_LONG ? graces : COUNCIL_LONG);
}

uint64_t council_waits_for(const council *me)
{
    uint64_t set = 0;
    for (int i = 0; i < me->list.count && waits_long(me, me->now); i++) {
        const council_peer *peer = &me->peers[i];
        const int answers = !peer->gone && me->now - peer->answered <= ANSWER;
        if (i != me->place && answers && peer->state == COUNCIL_BUSY && !peer->awaits) set |= bit(i);
    }
    return set;
}

void council_await(council *me, int awaits, double now)
{
    look_at_clock(me, now);
    me->awaits = awaits;
    me->quiet = 0;
    me->met = now;
}

void council_keep_quiet(council *me)
{
    me->quiet = 1;
}

void council_tick(council *me, double now)
{
    look_at_clock(me, now);
    const int is_busy = me->state == COUNCIL_BUSY;
    if (is_busy ? !waits_long(me, now + ANSWER) : me->verdict != COUNCIL_PENDING) return;
    if (now >= me->beat) beat(me);
    if (is_busy) return;
    if (me->place >= 0)
        look_around(me);
    else
        look_for_group(me);
}

void council_reach(council *me, double now)
{
    look_at_clock(me, now);
    me->reached = now;
}

void council_ask(council *me, double now)
{
    look_at_clock(me, now);
    if (me->place < 0 && now >= me->beat) beat(me);
}

/* Who opens a group has a name that nobody else has: FNV-1a of it. */
static uint64_t number_of_group(const char *name)
{
    uint64_t number = 14695981039346656037u;
    for (; *name; name++) number = (number ^ (unsigned char)*name) * 1099511628211u;
    return number;
}

void council_open(council *me)
{
    me->place = 0;
    me->list.group = number_of_group(me->own.name);
    me->list.count = 1;
    me->list.patience = (uint64_t)(me->settings.patience * 1e3);
    me->list.seats[0] = me->own;
}

void council_begin(council *me, const council_settings *settings, const char *name, double now)
{
    memset(me, 0, sizeof *me);
    me->settings = *settings;
    me->now = now;
    me->place = -1;
    snprintf(me->own.name, COUNCIL_NAME, "%s", name);
}

void council_meet(council *me, const char *door, uint64_t rounds, int leaves, double now)
{
    snprintf(me->own.door, COUNCIL_NAME, "%s", door);
    me->own.rounds = rounds;
    if (rounds) {
        me->stood = me->seated;
        me->had = rounds;
    }
    me->state = leaves ? COUNCIL_LEAVES : COUNCIL_READY;
    me->verdict = leaves && me->place < 0 ? COUNCIL_LEFT : COUNCIL_PENDING;
    look_at_clock(me, now);
    if (me->list.generation && me->place >= 0 && rounds && rounds == me->list.seats[me->place].rounds)
        bar_newcomers(me);
    me->met = now;
    me->quiet = 0;
    me->beat = me->unable = 0;
    for (int i = 0; i < me->list.count; i++) {
        me->peers[i].heard = now;
        me->peers[i].gone = 0;
    }
}

int council_has_visitors(council *me, double now)
{
    int waits = 0;
    look_at_clock(me, now);
    for (int i = 0; i < me->visitor_count; i++) waits |= is_alive(me, &me->visitors[i]) && now >= me->visitors[i].until;
    return waits;
}
