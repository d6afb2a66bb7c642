/* Groups whose members come and go: a council, a thread that speaks and listens for it, and the calls that wait. */
#include "bytes.h"
#include "children.h"
#include "members_lines.h"
#include "own_thread.h"
#include "peer.h"
#include "rendezvous.h"

#include <math.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <thinwire/thinwire_members.h>
#include <thinwire/thinwire_plugin.h>

#define LEAST_GRACE 10.0
#define SILENCE 0.5     /* of a grace: one that is silent so long in a round is asked, for so long again */
#define NAP 0.1         /* seconds, after which a thread looks around again */
#define FAREWELL 1.0    /* that the last words may take */
#define CALL 3.0        /* in which the group reaches a newcomer, or it takes itself for one that cannot be called */
#define ANSWER 3.0      /* that a group at another address has to answer before one is opened at one's own */
#define PATIENCE 1800.0 /* where none is given, as of every comm */
#define FOREVER 1e9     /* the longest that may be given: for who has it nobody is late */
enum {
    TRIALS = 12,      /* proofs that are turned away one after the other, in some ten seconds */
    ASKED_TRIALS = 3, /* in less than a second, while it is asked whether there is a group */
    FRUITLESS = 5,    /* generations that a member cannot connect for, at least, before it leaves */
    TOLD = 16,        /* of what its program is told at once, lines */
    NOTES = 8,        /* and of what the log is */
    NAMED = 4,        /* members in a line, of any number, */
    NAMES = 640       /* and its bytes for them */
};

_Static_assert((int)TW_MEMBERS_MOST == (int)COUNCIL_MOST, "as the header says");

typedef struct note {
    tw_log_level level;
    char text[TCP_NOBODY_TEXT];
} note;

struct tw_members {
    tw_members_options options;
    tw_tcp_options tcp; /* with texts and key of its own */
    char *bind, *advertise, *subject, *meeting, refusal[512];
    char host[TCP_HOST], address[TCP_ADDRESS], token[TCP_TOKEN + 1];
    tw_status refused; /* the refusal's */
    pid_t process;
    int opened, bell, runs, stops;
    int deserted;          /* that nobody answers is told */
    int meets;             /* it listens at a meeting point, so that it can be called */
    double looked_after;   /* when its lines last were */
    double round_began;    /* 0: there was none yet */
    uint64_t round_took;   /* milliseconds; 0: none was measured yet */
    double limit;          /* that the generation's comm was given, unless its program gave it another */
    uint64_t connecting;   /* the generation whose connections are being made */
    int has_newcomers;     /* it has */
    int finished;          /* as all members have */
    pthread_mutex_t turn;  /* see take_turn */
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t looked; /* the thread has, at what came */
    pthread_t thread, teller;
    int tells; /* the teller does */
    council council;
    tcp_lines lines;
    council_list last;                  /* the last one whose connections were made */
    uint64_t leavers;                   /* of it, as each has said */
    int cut_off;                        /* that it hears too few is told, in this wait, */
    int waits_for;                      /* and whom it is for */
    double patience;                    /* of the wait for a round */
    char untold[TOLD][TCP_NOBODY_TEXT]; /* what its program is still to be told of those who came, */
    uint64_t untold_count;              /* of which the last place has the latest; */
    note notes[NOTES];                  /* and the log, of whatever else */
    int note_count;
};

/* The thread lets go of the mutex for a moment, and takes it again and again while strangers come. Whoever waits for it
 * keeps the door shut behind itself, so that the program does not wait until they have all been seen off. */
static void take_turn(tw_members *me)
{
    pthread_mutex_lock(&me->turn);
    pthread_mutex_lock(&me->mutex);
    pthread_mutex_unlock(&me->turn);
}

/* --- what its program is told -------------------------------------------------------------------------------- */

/* Not by the thread, for which the group would wait where the program listens slowly. */
static void keep_line(void *context, const char *text)
{
    tw_members *me = context;
    const uint64_t place = me->untold_count < TOLD ? me->untold_count : TOLD - 1;
    snprintf(me->untold[place], sizeof me->untold[place], "%s", text);
    me->untold_count++;
}

/* The log's listener may be slow as well: it is told by tell_notes, while nobody has the mutex. */
static void keep_note(tw_members *me, tw_log_level level, const char *format, ...)
{
    va_list words;
    if (me->note_count == NOTES) return;
    note *one = &me->notes[me->note_count++];
    one->level = level;
    va_start(words, format);
    (void)vsnprintf(one->text, sizeof one->text, format, words);
    va_end(words);
}

static void tell_notes(tw_members *me)
{
    note notes[NOTES];
    take_turn(me);
    const int count = me->note_count;
    memcpy(notes, me->notes, (size_t)count * sizeof *notes);
    me->note_count = 0;
    pthread_mutex_unlock(&me->mutex);
    for (int i = 0; i < count; i++) tw_log(notes[i].level, "%s", notes[i].text);
}

static void tell_program(tw_members *me)
{
    tell_notes(me);
    char lines[TOLD][TCP_NOBODY_TEXT], rest[TCP_NOBODY_TEXT + 64];
    take_turn(me);
    const uint64_t count = me->untold_count;
    if (count > 0) memcpy(lines, me->untold, sizeof lines);
    me->untold_count = 0;
    pthread_mutex_unlock(&me->mutex);
    if (!me->tcp.refused) return;
    for (uint64_t i = 0; i < count && i < TOLD - 1; i++) me->tcp.refused(me->tcp.context, lines[i]);
    if (count < TOLD) return;
    const unsigned long long besides = count - (TOLD - 1);
    snprintf(rest, sizeof rest, "refused besides: %llu; the last: %s", besides, lines[TOLD - 1]);
    me->tcp.refused(me->tcp.context, rest);
}

/* Of a list those whose bits are set, since nobody knows which machine has which rank. */
static void write_members(const council_list *list, uint64_t set, char text[NAMES])
{
    char place[TCP_ADDRESS];
    tcp_address address;
    int count = 0, used = 0;
    *text = 0;
    for (int i = 0; i < list->count; i++) {
        if (!(set >> i & 1) || tcp_address_read(list->seats[i].name, "a member", &address) != TW_OK) continue;
        tcp_meeting_write(&address, place);
        if (count++ < NAMED)
            used += snprintf(text + used, NAMES - (size_t)used, "%srank %d at %.100s", used ? ", " : "", i, place);
    }
    if (count > NAMED) snprintf(text + used, NAMES - (size_t)used, " and %d more", count - NAMED);
}

/* Once in each wait, and at another door once more. Whether it is told now. */
static int note_wait(tw_members *me)
{
    char names[NAMES];
    const council *own = &me->council;
    const uint64_t busy = council_waits_for(own);
    if (!busy) return 0;
    me->waits_for = 1;
    council_keep_quiet(&me->council);
    write_members(&own->list, busy, names);
    keep_note(me, TW_LOG_WARNING,
              "this process waits for members whose machines answer and whose programs are busy: %s; for up to %.0f "
              "seconds more",
              names, (own->awaits ? me->patience : own->settings.patience) - (tw_clock() - own->met));
    return 1;
}

static void note_end_of_wait(tw_members *me, int goes_on)
{
    if (me->waits_for && goes_on)
        keep_note(me, TW_LOG_WARNING, "after %.0f seconds the group goes on", tw_clock() - me->council.met);
    me->waits_for = 0;
}

/* Who leaves has said so, before a round or at the door. Returns how many are lost. */
static int note_lost(tw_members *me, const council_list *list)
{
    char names[NAMES];
    int count = 0;
    uint64_t lost = 0;
    for (int i = 0; i < me->last.count; i++)
        if (council_find(list, me->last.seats[i].name) < 0) lost |= (uint64_t)1 << i;
    lost &= ~me->leavers;
    for (uint64_t left = lost; left; left &= left - 1) count++;
    if (!lost) return 0;
    write_members(&me->last, lost, names);
    keep_note(me, TW_LOG_WARNING, "the group goes on without %s and has %d member%s now", names, list->count,
              list->count > 1 ? "s" : "");
    return count;
}

/* --- what the thread does ------------------------------------------------------------------------------------ */

/* By its machine: a program that is started again has another port. */
static void tell_refused(tw_members *me, const char *name)
{
    tcp_address address;
    if (tcp_address_read(name, "a newcomer", &address) != TW_OK) return;
    tcp_acceptor_refuse(&me->lines.acceptor, address.host, "it trains something else than this group");
}

static void members_send(void *context, const council_message *message)
{
    tw_members *me = context;
    if (message->kind == COUNCIL_REFUSED) {
        tell_refused(me, message->to);
        tcp_lines_answer(&me->lines, message, me->subject);
    } else {
        tcp_lines_say(&me->lines, message, "");
    }
}

static size_t length_of_line(const char *text)
{
    return strcspn(text, "\n");
}

/* Where two subjects part, of which one may end there. */
static void tell_difference(tw_members *me, const char *theirs)
{
    const char *own = me->subject;
    size_t length;
    me->refused = TW_ERROR_ARGUMENT;
    while (*own && (length = length_of_line(own)) == length_of_line(theirs) && strncmp(own, theirs, length) == 0) {
        own += length + (own[length] == '\n');
        theirs += length + (theirs[length] == '\n');
    }
    snprintf(me->refusal, sizeof me->refusal, "this process has %.*s where the group at %.100s has %.*s",
             (int)fmin((double)length_of_line(own), 150), *own ? own : "nothing more", me->meeting,
             (int)fmin((double)length_of_line(theirs), 150), *theirs ? theirs : "nothing more");
}

/* A newcomer that wants what this group trains, and could not be called yet: it is tried, and says it again. If it is
 * never reached, it finds that out, and comes under another name. */
static int comes_too_early(tw_members *me, const council_message *message)
{
    tcp_address address;
    if (message->kind != COUNCIL_JOIN || memcmp(message->topic, me->council.settings.topic, COUNCIL_TOPIC) != 0)
        return 0;
    return tcp_address_read(message->seat.name, "a newcomer", &address) == TW_OK && !address.behind &&
           !tcp_lines_keep(&me->lines, message->seat.name);
}

static int is_silent(const council *own, int place)
{
    return place != own->place && tw_clock() - own->peers[place].heard > own->settings.grace;
}

/* Where another process that trains the same listens one that is silent does no more: its program was started again. */
static void look_for_predecessor(tw_members *me, const council_message *message)
{
    tcp_address here, old;
    const council *own = &me->council;
    if (own->state != COUNCIL_READY || memcmp(message->topic, own->settings.topic, COUNCIL_TOPIC) != 0) return;
    if (tcp_address_read(message->seat.name, "another", &here) != TW_OK || here.behind) return;
    for (int i = 0; i < own->list.count; i++) {
        const char *name = own->peers[i].seat.name;
        if (!is_silent(own, i) || council_is_same(name, message->seat.name)) continue;
        if (tcp_address_read(name, "a member", &old) == TW_OK && !old.behind && old.port == here.port &&
            strcmp(old.host, here.host) == 0)
            council_lose(&me->council, name, tw_clock());
    }
}

static void note_leaver(tw_members *me, const char *name)
{
    const int place = council_find(&me->last, name);
    if (place >= 0) me->leavers |= (uint64_t)1 << place;
}

/* Of one that leaves another may hear before it does itself. */
static void note_leavers(tw_members *me, const council_message *message)
{
    const council_list *old = &me->council.list;
    const int is_next = message->kind == COUNCIL_DECIDED && message->list.group == old->group &&
                        message->list.generation == old->generation + 1;
    if (message->state == COUNCIL_LEAVES) note_leaver(me, message->seat.name);
    for (int i = 0; is_next && i < old->count; i++)
        if (message->ballot >> i & 1) note_leaver(me, old->seats[i].name);
}

static void members_hear(void *context, const council_message *message, const char *text)
{
    tw_members *me = context;
    if (comes_too_early(me, message)) return;
    look_for_predecessor(me, message);
    note_leavers(me, message);
    council_hear(&me->council, message, tw_clock());
    if (message->kind == COUNCIL_REFUSED && me->council.verdict == COUNCIL_UNWANTED) tell_difference(me, text);
}

static void members_lose(void *context, const char *name)
{
    tw_members *me = context;
    council_lose(&me->council, name, tw_clock());
    if (*name) return;
    council_turn_away(&me->council);
    me->refused = TW_ERROR_PEER;
    snprintf(me->refusal, sizeof me->refusal, TCP_TURNED_AWAY, me->meeting);
}

static int members_have(void *context, const char *name)
{
    const council *own = &((tw_members *)context)->council;
    for (int i = 0; i < own->list.count; i++)
        if (strcmp(own->peers[i].seat.name, name) == 0) return 1;
    return 0;
}

/* --- a member that cannot be called -------------------------------------------------------------------------- */

static void mark(char text[COUNCIL_NAME])
{
    tcp_address address;
    if (tcp_address_read(text, "an address", &address) != TW_OK) return; /* a door that is not open yet */
    address.behind = 1;
    tcp_address_write(&address, text);
}

/* From here on it speaks and is spoken to on the lines that it begins. */
static void go_behind(tw_members *me)
{
    me->lines.behind = 1;
    mark(me->council.own.name);
    mark(me->council.own.door);
    keep_note(me, TW_LOG_NOTE,
              "this process cannot be called at %s, so it calls the other members, and those of its kind through them",
              me->address);
}

/* Who called while this process stood still was not heard. */
static void look_after_lines(tw_members *me)
{
    const council_list *list = &me->council.list;
    tcp_lines *lines = &me->lines;
    tcp_address address;
    const double now = tw_clock(), passed = now - me->looked_after;
    if (lines->met > 0 && passed > COUNCIL_STOOD_STILL) lines->met = fmin(lines->met + passed, now);
    me->looked_after = now;
    if (!lines->behind && !me->meets && !lines->was_called && lines->met > 0 && now > lines->met + CALL) go_behind(me);
    for (int i = 0; lines->behind && i < list->count; i++)
        if (tcp_address_read(list->seats[i].name, "a member", &address) == TW_OK && !address.behind)
            (void)tcp_lines_keep(&me->lines, list->seats[i].name);
}

/* Said once, to those who may have the wrong port. */
static void tell_deserted(tw_members *me)
{
    char line[TCP_NOBODY_TEXT];
    const council *own = &me->council;
    if (me->deserted || own->state != COUNCIL_READY || own->list.generation || me->lines.met > 0) return;
    const tcp_dial *dial = tcp_lines_deserted(&me->lines);
    const double soon = tcp_soon(me->options.patience);
    if (!dial || own->place >= 0 || tw_clock() - own->met < soon) return;
    if (!tcp_dial_tell(dial, tw_clock(), me->meeting, soon, line)) return;
    me->deserted = 1;
    keep_line(me, line);
}

/* The program waits in a collective, and can be told nothing before that ends. */
static void *tell_meanwhile(void *argument)
{
    tell_notes(argument);
    return NULL;
}

static void look_around(tw_members *me, double nap)
{
    uint64_t rung;
    look_after_lines(me);
    tell_deserted(me);
    if (tcp_lines_reach(&me->lines)) council_reach(&me->council, tw_clock());
    council_tick(&me->council, tw_clock());
    if (me->council.awaits && note_wait(me)) me->tells = tcp_thread_start(&me->teller, tell_meanwhile, me);
    int count = tcp_lines_list(&me->lines, me->bell);
    pthread_mutex_unlock(&me->mutex);
    (void)poll(me->lines.polls, (nfds_t)count, (int)(nap * 1e3)); /* see tcp_lobby_go_round */
    take_turn(me);
    (void)!read(me->bell, &rung, sizeof rung);
    tcp_lines_serve(&me->lines);
    pthread_cond_broadcast(&me->looked);
}

static void *members_run(void *argument)
{
    tw_members *me = argument;
    pthread_mutex_lock(&me->mutex);
    while (!me->stops) look_around(me, NAP);
    double end = tw_clock() + FAREWELL;
    while (tcp_lines_have_unsaid(&me->lines) && tw_clock() < end) look_around(me, NAP / 10);
    pthread_mutex_unlock(&me->mutex);
    return NULL;
}

static void ring(const tw_members *me)
{
    uint64_t one = 1;
    (void)!write(me->bell, &one, sizeof one);
}

/* --- coming -------------------------------------------------------------------------------------------------- */

static tw_status keep_text(const char *text, char **kept)
{
    if (text && !(*kept = strdup(text))) return tw_fail(TW_ERROR_MEMORY, "no memory for a group");
    return TW_OK;
}

static tw_status read_members_options(const tw_members_options *given, tw_members_options *options)
{
    *options = (tw_members_options){.struct_size = sizeof *options};
    if (given) TRY(tcp_read_known(options, sizeof *options, given, "tw_members_options"));
    if (options->grace == 0) options->grace = 60;
    if (options->patience == 0) options->patience = PATIENCE;
    if (options->quorum < 0 || options->quorum > COUNCIL_MOST)
        return tw_fail(TW_ERROR_ARGUMENT, "a quorum of %d members: want 1 to %d, or 0 for more than half",
                       options->quorum, COUNCIL_MOST);
    if (!(options->grace > 0 && options->grace <= 1e9 && options->patience > 0 && options->patience <= 1e9))
        return tw_fail(TW_ERROR_ARGUMENT, "a grace of %g seconds and a patience of %g: want more than 0, at most 1e9",
                       options->grace, options->patience);
    return TW_OK;
}

/* All must have the quorum alike as well. */
static tw_status keep_subject(tw_members *me, const char *subject)
{
    if (strlen(subject) > TCP_SUBJECT)
        return tw_fail(TW_ERROR_ARGUMENT, "a subject of %zu bytes: want at most %d", strlen(subject), TCP_SUBJECT);
    /* In what form a newcomer is handed the state may differ with the release. */
    if (asprintf(&me->subject, "the release %s of thinwire\nquorum=%d\n%s", tw_version(), me->options.quorum,
                 subject) >= 0)
        return TW_OK;
    me->subject = NULL;
    return tw_fail(TW_ERROR_MEMORY, "no memory for a group");
}

static tw_status keep_tcp(tw_members *me, const tw_tcp_options *given)
{
    const tw_status status = tcp_options_read(given, &me->tcp);
    const void *key = me->tcp.key;
    me->tcp.key = NULL; /* the caller's, which is not to be wiped with the rest where this goes wrong */
    TRY(status);
    TRY(keep_text(me->tcp.bind, &me->bind));
    TRY(keep_text(me->tcp.advertise, &me->advertise));
    me->tcp.bind = me->bind;
    me->tcp.advertise = me->advertise;
    if (!key) return TW_OK;
    void *kept = malloc(me->tcp.key_size);
    me->tcp.key = kept;
    if (!kept) return tw_fail(TW_ERROR_MEMORY, "no memory for a key");
    memcpy(kept, key, me->tcp.key_size);
    return TW_OK;
}

static tw_status read_meetings(const char *text, tcp_lines *lines)
{
    for (const char *at = text;; at++) {
        tcp_address address;
        size_t length = strcspn(at, ",");
        if (lines->meeting_count == TCP_MEETINGS || length >= TCP_ADDRESS)
            return tw_fail(TW_ERROR_ARGUMENT, "\"%.100s\" is no meeting point: want HOST:PORT, at most %d of them",
                           text, TCP_MEETINGS);
        char *meeting = lines->meetings[lines->meeting_count++];
        snprintf(meeting, TCP_ADDRESS, "%.*s", (int)length, at);
        TRY(tcp_meeting_read(meeting, &address));
        at += length;
        if (!*at) return TW_OK;
    }
}

/* At the first of the meeting points that is this machine's and free, which is none where others are to be met: *own is
 * its number, or -1. A name that is not known here is passed over. */
static tw_status listen_at_meeting(tw_members *me, int *own)
{
    tcp_acceptor *acceptor = NULL;
    for (*own = 0; *own < me->lines.meeting_count; ++*own) {
        tcp_rendezvous at = {.meeting = me->lines.meetings[*own], .rank = -1};
        int is_taken;
        TRY(tcp_meeting_read(at.meeting, &at.at));
        tw_status status = tcp_rendezvous_try_to_listen(&at, &acceptor, &is_taken);
        if (status == TW_ERROR_ARGUMENT) continue;
        TRY(status);
        if (!acceptor) continue;
        snprintf(me->host, TCP_HOST, "%s", at.at.host);
        me->lines.acceptor = *acceptor;
        free(acceptor);
        memmove(me->lines.meetings[*own], me->lines.meetings[*own + 1],
                (size_t)(--me->lines.meeting_count - *own) * sizeof *me->lines.meetings);
        return TW_OK;
    }
    *own = -1;
    return TW_OK;
}

static tw_status resolve_any(const tcp_lines *lines, struct addrinfo **list)
{
    tw_status status = TW_ERROR_ARGUMENT;
    for (int i = 0; i < lines->meeting_count && status != TW_OK; i++) {
        tcp_address at;
        TRY(tcp_meeting_read(lines->meetings[i], &at));
        status = tcp_resolve(at.host, at.port, 0, list);
    }
    return status;
}

/* Anywhere, and others reach it as it reaches them. */
static tw_status listen_anywhere(tw_members *me)
{
    struct addrinfo *list;
    int why;
    TRY(resolve_any(&me->lines, &list));
    if (!tcp_way_to(list->ai_addr, me->host)) tcp_own_address(me->host);
    freeaddrinfo(list);
    return tcp_acceptor_open(&me->lines.acceptor, me->tcp.bind, me->tcp.first_port, me->tcp.last_port, &why);
}

static void write_name(tw_members *me, char name[TCP_ADDRESS])
{
    tcp_address own = {.port = me->lines.acceptor.port, .streams = 1, .behind = me->lines.behind};
    strcpy(own.host, me->host);
    strcpy(own.token, me->token);
    tcp_meeting_write(&own, me->address);
    tcp_address_write(&own, name);
}

static void begin_council(tw_members *me)
{
    char name[TCP_ADDRESS];
    unsigned char token[TCP_TOKEN / 2];
    const char *const topic[] = {me->subject};
    council_settings settings = {.quorum = me->options.quorum,
                                 .grace = SILENCE * me->options.grace,
                                 .patience = me->options.patience,
                                 .send = members_send,
                                 .context = me};
    tcp_secret_make(NULL, 0, "what a group trains", topic, 1, settings.topic);
    if (me->tcp.advertise) snprintf(me->host, sizeof me->host, "%s", me->tcp.advertise);
    randombytes_buf(token, sizeof token);
    sodium_bin2hex(me->token, sizeof me->token, token, sizeof token);
    write_name(me, name);
    council_begin(&me->council, &settings, name, tw_clock());
    if (me->tcp.behind && !me->meets) go_behind(me);
}

static tw_status begin_thread(tw_members *me)
{
    tcp_acceptor *acceptor = &me->lines.acceptor;
    tcp_secret_make(me->tcp.key, me->tcp.key_size, TCP_OF_MEMBERS, NULL, 0, acceptor->secret);
    tcp_secret_make(me->tcp.key, me->tcp.key_size, TCP_OF_A_MEETING, NULL, 0, acceptor->stray_secret);
    acceptor->stray = "it gives a number of workers, and here they come and go: give workers on all sides or on none";
    acceptor->tell = keep_line;
    acceptor->context = me;
    tcp_keep_from_children(acceptor->fd);
    me->lines.hear = members_hear;
    me->lines.lose = members_lose;
    me->lines.is_member = members_have;
    me->lines.trials = TRIALS;
    me->lines.context = me;
    me->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (me->bell >= 0) tcp_keep_from_children(me->bell);
    me->runs = me->bell >= 0 && tcp_thread_start(&me->thread, members_run, me);
    return me->runs ? TW_OK : tw_fail(TW_ERROR_SYSTEM, "the system has no thread left for a group");
}

/* The thread has looked around, or it is time to do so here. */
static void nap(tw_members *me)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(NAP * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&me->looked, &me->mutex, &until);
}

static tw_status members_fail(const tw_members *me, council_verdict verdict)
{
    if (verdict == COUNCIL_UNWANTED) return tw_fail(me->refused, "%s", me->refusal);
    if (verdict == COUNCIL_TOO_LATE)
        return tw_fail(TW_ERROR_PEER, "the group at %s has ended before it let this process in: its run is over",
                       me->meeting);
    if (verdict == COUNCIL_NO_QUORUM && me->council.place < 0)
        return tw_fail(TW_ERROR_PEER,
                       "no member of the group at %s answers any more: its run has ended, or all of them are lost",
                       me->meeting);
    if (verdict == COUNCIL_NO_QUORUM)
        return tw_fail(TW_ERROR_PEER,
                       "too few of the %d members of generation %llu answer for this one to go on with them: they are "
                       "lost, or go on without it, and nobody let it in again; join them at the address of one that "
                       "trains",
                       me->council.list.count, (unsigned long long)me->council.list.generation);
    return tw_fail(
        TW_ERROR_PEER,
        "no member of a group let this process in at %s within %g seconds: start the first one on the machine "
        "with that address, and give all the same key",
        me->meeting, me->council.stood ? me->council.settings.patience : me->options.patience);
}

/* The others of the meeting points are asked first. Nobody can answer while a name server lets them wait, or while this
 * process stands still. */
static void await_answer(tw_members *me)
{
    double waited = 0;
    me->lines.trials = ASKED_TRIALS;
    while (me->lines.meeting_count > 0 && !me->council.list.generation && me->council.verdict == COUNCIL_PENDING &&
           waited < ANSWER) {
        council_ask(&me->council, tw_clock());
        double asked = tw_clock();
        nap(me);
        if (!tcp_lines_look_up(&me->lines)) waited += fmin(tw_clock() - asked, 2 * NAP);
    }
    me->lines.trials = TRIALS;
}

/* A group that has no place for this process is not left aside for a second one. */
static tw_status open_unless_answered(tw_members *me)
{
    tw_status status = TW_OK;
    take_turn(me);
    await_answer(me);
    if (me->council.verdict != COUNCIL_PENDING) {
        status = members_fail(me, me->council.verdict);
    } else if (!me->council.list.generation) {
        council_open(&me->council);
        me->opened = 1;
    }
    pthread_mutex_unlock(&me->mutex);
    return status;
}

static tw_status come(tw_members *me, const char *meeting, const char *subject, const tw_members_options *options,
                      const tw_tcp_options *tcp)
{
    int own;
    TRY(read_members_options(options, &me->options));
    TRY(keep_tcp(me, tcp));
    TRY(keep_text(meeting, &me->meeting));
    TRY(read_meetings(meeting, &me->lines));
    TRY(keep_subject(me, subject));
    if (!tcp_hello_begin()) return tw_fail(TW_ERROR_SYSTEM, "this system has no random numbers");
    TRY(listen_at_meeting(me, &own));
    me->meets = own >= 0;
    if (!me->meets) TRY(listen_anywhere(me));
    begin_council(me);
    TRY(begin_thread(me));
    return own == 0 ? open_unless_answered(me) : TW_OK;
}

tw_status tw_members_join(const char *meeting, const char *subject, const tw_members_options *options,
                          const tw_tcp_options *tcp, tw_members **members)
{
    TRY(tw_given(meeting, "meeting"));
    TRY(tw_given(subject, "subject"));
    TRY(tw_given(members, "members"));
    tw_members *me = calloc(1, sizeof *me);
    if (!me) return tw_fail(TW_ERROR_MEMORY, "no memory for a group");
    pthread_mutex_init(&me->turn, NULL);
    pthread_mutex_init(&me->mutex, NULL);
    pthread_cond_init(&me->looked, NULL);
    me->process = getpid();
    me->bell = me->lines.acceptor.fd = -1;
    tw_status status = come(me, meeting, subject, options, tcp);
    if (status == TW_OK)
        *members = me;
    else
        tw_members_destroy(me);
    return status;
}

/* Where others may go on without this one, they tell those that wait. */
static int ends_with_this_one(const tw_members *me)
{
    return me->finished || (me->council.place >= 0 && me->council.list.count == 1);
}

void tw_members_destroy(tw_members *me)
{
    if (!me || me->process != getpid()) return; /* a forked child has no thread that could be joined */
    if (me->runs) {
        take_turn(me);
        if (ends_with_this_one(me)) council_end(&me->council);
        me->stops = 1;
        pthread_mutex_unlock(&me->mutex);
        ring(me);
        pthread_join(me->thread, NULL);
    }
    tcp_lines_close(&me->lines);
    sodium_memzero(me->lines.acceptor.secret, TCP_SECRET);
    sodium_memzero(me->lines.acceptor.stray_secret, TCP_SECRET);
    if (me->tcp.key) sodium_memzero((void *)(uintptr_t)me->tcp.key, me->tcp.key_size);
    free((void *)(uintptr_t)me->tcp.key);
    free(me->bind);
    free(me->advertise);
    free(me->subject);
    free(me->meeting);
    if (me->bell >= 0) tcp_close(me->bell);
    pthread_cond_destroy(&me->looked);
    pthread_mutex_destroy(&me->mutex);
    pthread_mutex_destroy(&me->turn);
    free(me);
}

const char *tw_members_address(const tw_members *members)
{
    tw_members *me = (tw_members *)(uintptr_t)members;
    if (!me) return "";
    take_turn(me);
    const char *address = me->lines.behind ? me->lines.meetings[0] : me->address;
    pthread_mutex_unlock(&me->mutex);
    return address;
}

int tw_members_opened(const tw_members *members)
{
    return members && members->opened;
}

/* --- the next generation ------------------------------------------------------------------------------------- */

/* 0: it has none. */
static int other_address(const tw_members *me, char host[TCP_HOST])
{
    const council_list *list = &me->council.list;
    tcp_address address;
    int found = 0;
    if (me->bind && *me->bind) return tcp_interface_address(me->bind, host) && tcp_is_own_address(host);
    for (int i = 0; i < list->count && !found; i++)
        found = i != me->council.place && tcp_address_read(list->seats[i].name, "a member", &address) == TW_OK &&
                tcp_way_to_host(address.host, host);
    return found;
}

static int has_address(const tw_members *me)
{
    return me->tcp.advertise || tcp_is_own_address(me->host);
}

/* Whether this machine has another address by now, such as a laptop in another room: it is the same member there. */
static int has_moved(tw_members *me)
{
    char host[TCP_HOST];
    if (has_address(me) || !other_address(me, host)) return 0;
    keep_note(me, TW_LOG_NOTE, "this machine has the address %s now, and no longer %s", host, me->host);
    strcpy(me->host, host);
    me->meets = 0;
    write_name(me, me->council.own.name);
    tcp_lines_move(&me->lines);
    return 1;
}

static void note_cut_off(tw_members *me)
{
    char names[NAMES];
    uint64_t silent = 0;
    const council *own = &me->council;
    if (me->cut_off || own->verdict != COUNCIL_PENDING || own->unable <= 0 || own->state != COUNCIL_READY ||
        tw_clock() - own->unable <= own->settings.grace + 2 * COUNCIL_BEAT)
        return;
    me->cut_off = 1;
    for (int i = 0; i < own->list.count; i++)
        if (is_silent(own, i)) silent |= (uint64_t)1 << i;
    write_members(&own->list, silent, names);
    keep_note(me, TW_LOG_WARNING,
              "this process hears too few of the %d members of generation %llu to go on with them: it waits up to "
              "%.0f seconds until it hears them again; silent: %s",
              own->list.count, (unsigned long long)own->list.generation,
              own->settings.patience - (tw_clock() - own->met), names);
}

/* The council bounds what members wait, and one that is to be let in again waits as long. A newcomer has a patience of
 * its own. COUNCIL_PENDING: others cannot come to the door any more that they know of. */
static tw_status await_verdict(tw_members *me, council_verdict *verdict)
{
    double begun = tw_clock();
    int stopped = 0, moved = 0;
    take_turn(me);
    while ((*verdict = me->council.verdict) == COUNCIL_PENDING && !stopped && !(moved = has_moved(me)) &&
           (me->council.place >= 0 ||
            tw_clock() - begun < (me->council.stood ? me->council.settings.patience : me->options.patience))) {
        if (me->council.place >= 0) begun = tw_clock();
        nap(me);
        (void)note_wait(me);
        note_cut_off(me);
        pthread_mutex_unlock(&me->mutex);
        stopped = tcp_is_stopped(&me->tcp);
        tell_program(me);
        take_turn(me);
    }
    if (*verdict == COUNCIL_PENDING) { /* the time may be up since the last look */
        tell_deserted(me);
        pthread_mutex_unlock(&me->mutex);
        tell_program(me);
        take_turn(me);
    }
    tw_status status = TW_OK;
    if (stopped)
        status = tw_fail(TW_ERROR_PEER, "joining was stopped by this process's own program");
    else if (!moved && *verdict != COUNCIL_GENERATION && *verdict != COUNCIL_LEFT)
        status = members_fail(me, *verdict);
    pthread_mutex_unlock(&me->mutex);
    return status;
}

/* Who waits for the generation after this one does not connect for this one. */
static int is_outdated(void *context)
{
    tw_members *me = context;
    take_turn(me);
    int outdated = me->council.list.generation != me->connecting;
    for (int i = 0; i < me->council.list.count && !outdated; i++)
        outdated = i != me->council.place && (me->council.peers[i].gone || me->council.peers[i].state != COUNCIL_BUSY);
    pthread_mutex_unlock(&me->mutex);
    return outdated || tcp_is_stopped(&me->tcp);
}

static tw_status try_to_open(tw_members *me, tw_tcp **door, double *patience)
{
    tw_tcp_options options = me->tcp;
    options.advertise = me->host;
    take_turn(me);
    (void)has_moved(me);
    options.behind = (size_t)me->lines.behind;
    *patience = me->council.settings.patience;
    pthread_mutex_unlock(&me->mutex);
    options.stopped = is_outdated;
    options.context = me;
    options.refused = NULL;
    return tw_tcp_listen(&options, door);
}

/* Who listens at one interface waits until that has an address again. */
static tw_status open_door(tw_members *me, int leaves, tw_tcp **door)
{
    const double begun = tw_clock();
    double patience;
    tw_status status;
    while ((status = try_to_open(me, door, &patience)) != TW_OK && me->bind && !has_address(me) && !leaves &&
           !tcp_is_stopped(&me->tcp) && tw_clock() - begun < patience)
        usleep((useconds_t)(1e6 * NAP));
    return status;
}

static void come_to_the_door(tw_members *me, const tw_tcp *door, uint64_t rounds, int leaves)
{
    council_meet(&me->council, tw_tcp_address(door), rounds, leaves, tw_clock());
    ring(me);
}

/* It has waited since it came to the first. Where all know by now where they were to come, they come in vain. */
static tw_status change_door(tw_members *me, uint64_t rounds, int leaves, tw_tcp **door)
{
    tw_tcp_destroy(*door); /* first, as there may be no other port */
    *door = NULL;
    TRY(open_door(me, leaves, door));
    take_turn(me);
    const double met = me->council.met;
    if (me->council.verdict == COUNCIL_PENDING) {
        come_to_the_door(me, *door, rounds, leaves);
        me->council.met = met;
    }
    pthread_mutex_unlock(&me->mutex);
    return TW_OK;
}

static tw_status wait_at_door(tw_members *me, uint64_t rounds, int leaves, tw_tcp **door, council_verdict *verdict)
{
    tw_status status;
    take_turn(me);
    me->cut_off = 0;
    come_to_the_door(me, *door, rounds, leaves);
    pthread_mutex_unlock(&me->mutex);
    do status = await_verdict(me, verdict);
    while (status == TW_OK && *verdict == COUNCIL_PENDING && (status = change_door(me, rounds, leaves, door)) == TW_OK);
    take_turn(me);
    note_end_of_wait(me, status == TW_OK);
    pthread_mutex_unlock(&me->mutex);
    return status;
}

static void describe(const council_list *list, int place, int late, tw_generation *generation)
{
    int donor = council_donor(list);
    uint64_t rounds = list->seats[place].rounds;
    *generation = (tw_generation){.struct_size = sizeof *generation,
                                  .number = list->generation,
                                  .rank = place,
                                  .size = list->count,
                                  .donor = donor,
                                  .kept = rounds > 0,
                                  .behind = donor >= 0 && rounds < list->seats[donor].rounds,
                                  .late = late};
}

/* It has been waited for, and its program is told nothing else of it. */
static void note_unconnected(tw_members *me, const tw_tcp *door, const council_list *list)
{
    char place[TCP_ADDRESS];
    tcp_meeting_write(&door->address, place);
    take_turn(me);
    keep_note(
        me, TW_LOG_WARNING,
        "generation %llu did not begin: %.600s; newcomers and members call each other at ports such as %s, which no "
        "firewall may close: THINWIRE_PORT and THINWIRE_LAST_PORT say which ports are used",
        (unsigned long long)list->generation, tw_last_error(), place);
    pthread_mutex_unlock(&me->mutex);
}

static tw_status connect_all(tw_members *me, tw_tcp *door, tw_generation *generation, tw_comm **comm)
{
    const char *doors[COUNCIL_MOST];
    council_list list;
    take_turn(me);
    list = me->council.list;
    int place = me->council.place, late = council_is_late(&me->council);
    me->connecting = list.generation;
    double silence = me->council.settings.grace, patience = me->council.settings.patience;
    pthread_mutex_unlock(&me->mutex);
    me->has_newcomers = 0;
    if (place < 0) return tw_fail(TW_ERROR_PEER, "the others have gone on without this process meanwhile");
    for (int i = 0; i < list.count; i++) {
        doors[i] = list.seats[i].door;
        me->has_newcomers |= list.seats[i].rounds == 0;
    }
    describe(&list, place, late, generation);
    if (!tcp_listener_is_at(door, doors[place])) /* it may have found out meanwhile that it cannot be called */
        return tw_fail(TW_ERROR_PEER, "the others know a door of this process where it is no more");
    door->is_told_of = 1;
    const double begun = tw_clock(), limit = silence / SILENCE;
    tw_status status =
        tw_tcp_connect(door, place, list.count, doors, me->has_newcomers ? fmin(limit, LEAST_GRACE) : limit, comm);
    const int is_unknown = status == TW_ERROR_ARGUMENT; /* others say where their doors are: a name may not be found */
    if (is_unknown) status = tw_fail(TW_ERROR_PEER, "%s", tw_last_error());
    const int is_told = is_unknown || (me->has_newcomers && tw_clock() - begun > CALL);
    if (status == TW_ERROR_PEER && is_told && !tcp_is_stopped(&me->tcp)) note_unconnected(me, door, &list);
    TRY(status);
    take_turn(me);
    generation->lost = note_lost(me, &list);
    me->last = list;
    me->leavers = 0;
    pthread_mutex_unlock(&me->mutex);
    me->limit = silence;
    tw_comm_set_timeout(*comm, silence);
    return tw_comm_set_patience(*comm, patience);
}

/* *again: it was decided, and somebody was lost before all were connected. *fruitless counts those of which a newcomer
 * cannot be the reason. */
static tw_status try_generation(tw_members *me, uint64_t rounds, int leaves, tw_generation *generation, int *again,
                                int *fruitless, tw_comm **comm)
{
    tw_tcp *door;
    council_verdict verdict;
    *again = 0;
    TRY(open_door(me, leaves, &door));
    tw_status status = wait_at_door(me, rounds, leaves, &door, &verdict);
    if (status == TW_OK && verdict == COUNCIL_GENERATION) {
        status = connect_all(me, door, generation, comm);
        *again = status == TW_ERROR_PEER && !tcp_is_stopped(&me->tcp);
        *fruitless += *again && !me->has_newcomers;
    }
    tw_tcp_destroy(door);
    return status;
}

/* Of two that lack only the way to each other the later one leaves the group sooner, so that the rest goes on. */
static tw_status check_way(const tw_generation *generation, int fruitless)
{
    if (fruitless < FRUITLESS + generation->size - 1 - generation->rank) return TW_OK;
    return tw_fail(TW_ERROR_PEER,
                   "%d times in a row this member was not connected with all the others of its group, which are there: "
                   "it and one of them have lost the way to each other",
                   fruitless);
}

tw_status tw_members_next(tw_members *members, int64_t rounds, int leaves, tw_generation *generation, tw_comm **comm)
{
    TRY(tw_given(members, "members"));
    if (members->process != getpid())
        return tw_fail(TW_ERROR_ORDER, "a process that was forked from a member of a group is none: join anew in it");
    TRY(tw_given(generation, "generation"));
    TRY(tw_given(comm, "comm"));
    tw_generation known = {0};
    TRY(tcp_read_known(&known, sizeof known, generation, "tw_generation"));
    size_t size = generation->struct_size;
    *comm = NULL;
    tell_program(members);
    members->round_began = 0;
    members->finished = 0;
    uint64_t applied = rounds < 0 ? 0 : (uint64_t)rounds + 1;
    tw_status status;
    int again, fruitless = 0;
    do {
        status = try_generation(members, applied, leaves, &known, &again, &fruitless, comm);
        if (again && !known.kept) applied = 0;
        if (again) TRY(check_way(&known, fruitless));
    } while (again);
    if (status == TW_OK) tell_notes(members);
    known.struct_size = size;
    memcpy(generation, &known, size < sizeof known ? size : sizeof known);
    return status;
}

/* --- before each round --------------------------------------------------------------------------------------- */

/* What each tells the others before a round. */
enum { CHANGES, FINISHES, TOOK, WORDS = 8 };
enum { VISITED = 1, LEAVES = 2 }; /* of CHANGES */

static void measure_round(tw_members *me)
{
    double now = tw_clock();
    if (me->round_began > 0) me->round_took = (uint64_t)ceil(1e3 * (now - me->round_began));
    me->round_began = now;
}

static int has_visitors(tw_members *me)
{
    take_turn(me);
    int waits = council_has_visitors(&me->council, tw_clock());
    pthread_mutex_unlock(&me->mutex);
    return waits;
}

/* A member that is silent is not waited for longer than a round takes. All have measured it, but those that are new. */
static tw_status follow_round(tw_members *me, uint64_t took, tw_comm *comm)
{
    if (!took) return TW_OK;
    double silence = SILENCE * fmin(me->options.grace, fmax(LEAST_GRACE, 1e-3 * (double)took));
    take_turn(me);
    me->council.settings.grace = silence;
    me->council.longest = fmax(me->council.longest, 1e-3 * (double)took);
    pthread_mutex_unlock(&me->mutex);
    if (tw_comm_timeout(comm) != me->limit) return TW_OK;
    me->limit = silence;
    return tw_comm_set_timeout(comm, silence);
}

/* Who has no steps to come, or whose patience has no end, follows the others: it is no news that it waits. */
static void begin_wait(tw_members *me, const tw_comm *comm, int finishes)
{
    const double set = tw_comm_patience(comm);
    take_turn(me);
    me->patience = fmax(set > 0 ? set : PATIENCE, tw_comm_timeout(comm));
    council_await(&me->council, 1, tw_clock());
    if (finishes || me->patience >= FOREVER) council_keep_quiet(&me->council);
    pthread_mutex_unlock(&me->mutex);
}

/* Others have their answers from the thread meanwhile, however slow the log's listener is; but this program comes to
 * its round only after it, and so does the group. After an error the program is told that first, and with its next
 * call what was noted. */
static tw_status exchange_words(tw_members *me, tw_comm *comm, const unsigned char *own, unsigned char *words)
{
    begin_wait(me, comm, own[FINISHES]);
    const tw_status status = tw_comm_allgather(comm, own, WORDS, words);
    take_turn(me);
    note_end_of_wait(me, status == TW_OK);
    council_await(&me->council, 0, tw_clock());
    pthread_mutex_unlock(&me->mutex);
    if (me->tells) pthread_join(me->teller, NULL);
    me->tells = 0;
    if (status == TW_OK) tell_notes(me);
    return status;
}

tw_status tw_members_due(tw_members *members, tw_comm *comm, tw_members_wish wish, tw_members_outcome *due)
{
    unsigned char words[WORDS * COUNCIL_MOST], own[WORDS] = {0};
    TRY(tw_given(members, "members"));
    TRY(tw_given(due, "due"));
    if (tw_comm_size(comm) > COUNCIL_MOST)
        return tw_fail(TW_ERROR_ARGUMENT, "a comm of %d ranks is none of this group", tw_comm_size(comm));
    tell_program(members);
    measure_round(members);
    own[CHANGES] = (has_visitors(members) ? VISITED : 0) | (wish == TW_MEMBERS_LEAVE ? LEAVES : 0);
    own[FINISHES] = wish == TW_MEMBERS_FINISH;
    tw_put(own + TOOK, members->round_took, WORDS - TOOK);
    TRY(exchange_words(members, comm, own, words));
    int changes = 0, finished = 1;
    uint64_t longest = 0, leavers = 0;
    for (int r = 0; r < tw_comm_size(comm); r++) {
        const unsigned char *said = words + WORDS * (size_t)r;
        uint64_t took = tw_get(said + TOOK, WORDS - TOOK);
        changes |= said[CHANGES];
        if (said[CHANGES] & LEAVES) leavers |= (uint64_t)1 << r;
        finished &= said[FINISHES];
        if (took > longest) longest = took;
    }
    take_turn(members);
    members->leavers |= leavers;
    pthread_mutex_unlock(&members->mutex);
    TRY(follow_round(members, longest, comm));
    members->finished = finished;
    *due = finished ? TW_MEMBERS_FINISHED : changes ? TW_MEMBERS_CHANGE : TW_MEMBERS_SAME;
    return TW_OK;
}
