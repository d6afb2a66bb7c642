#include "members_lines.h"

#include "bytes.h"
#include "children.h"
#include "peer.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 4 };
#define IDLE 60.0 /* seconds, after which a line that nobody speaks on is closed */
#define KEPT 1.0
#define UNHEARD 10.0 /* seconds after which a line on which nothing gets through is begun again */
#define UNKNOWN 15.0 /* seconds before a name that was not found is looked up again */

static int cannot_be_called(const char *name)
{
    tcp_address address;
    return *name && tcp_address_read(name, "a member", &address) == TW_OK && address.behind;
}

static void tune_line(int fd)
{
    unsigned milliseconds = (unsigned)(1e3 * UNHEARD);
    tcp_tune(fd);
    tcp_keep_from_children(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

/* --- saying -------------------------------------------------------------------------------------------------- */

static void drop_letters(tcp_mouth *mouth, int from, int count)
{
    for (int i = from; i < from + count; i++) free(mouth->letters[i].bytes);
    mouth->letter_count -= count;
    memmove(&mouth->letters[from], &mouth->letters[from + count],
            (size_t)(mouth->letter_count - from) * sizeof *mouth->letters);
}

/* The oldest that is not half said makes room. */
static void put_letter(tcp_mouth *mouth, const unsigned char *word, size_t size)
{
    unsigned char *bytes = malloc(LENGTH + size + TCP_PROOF);
    if (!bytes) return;
    if (mouth->letter_count == TCP_LETTERS) drop_letters(mouth, mouth->said ? 1 : 0, 1);
    tw_put(bytes, size, LENGTH);
    memcpy(bytes + LENGTH, word, size);
    mouth->letters[mouth->letter_count++] = (tcp_letter){bytes, LENGTH + size + TCP_PROOF, tw_clock()};
}

/* 0: the line has gone. */
static int say_letters(tcp_mouth *mouth, int fd)
{
    while (mouth->letter_count > 0) {
        tcp_letter *first = &mouth->letters[0];
        size_t length = first->size - LENGTH - TCP_PROOF;
        if (mouth->said == 0)
            tcp_sign(mouth->key, mouth->count++, first->bytes + LENGTH, length, first->bytes + first->size - TCP_PROOF);
        ssize_t bytes = send(fd, first->bytes + mouth->said, first->size - mouth->said, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (bytes < 0) {
            mouth->count -= mouth->said == 0; /* none of it has gone: it is signed anew */
            return errno == EAGAIN || errno == EINTR;
        }
        mouth->said += (size_t)bytes;
        if (mouth->said < first->size) return 1;
        mouth->said = 0;
        drop_letters(mouth, 0, 1);
    }
    return 1;
}

/* --- hearing ------------------------------------------------------------------------------------------------- */

/* The last line that one has spoken on, by its whole name: who has another's token has no claim to what is said to that
 * one. NULL: it has begun none. */
static tcp_line_here *last_line_of(tcp_lines *me, const char *name)
{
    tcp_line_here *found = NULL;
    for (int i = 0; i < me->here_count; i++)
        if (strcmp(me->here[i].name, name) == 0 && (!found || me->here[i].heard > found->heard)) found = &me->here[i];
    return found;
}

/* Of one that cannot be called. */
static tcp_line_here *line_of(tcp_lines *me, const char *name)
{
    return cannot_be_called(name) ? last_line_of(me, name) : NULL;
}

/* The word's length is known, and says how much is to come; or nothing is known. A byte more is a 0 behind its text. */
static int make_room_for_word(tcp_ear *ear, size_t most)
{
    size_t length = ear->bytes ? (size_t)tw_get(ear->bytes, LENGTH) : 0;
    unsigned char *larger = length <= most ? realloc(ear->bytes, LENGTH + length + TCP_PROOF + 1) : NULL;
    if (!larger) return 0;
    ear->size = ear->bytes ? LENGTH + length + TCP_PROOF : LENGTH;
    ear->bytes = larger;
    return 1;
}

/* 0: it is none that a member wrote. */
static int refuse_word(tcp_lines *me, const char *host, const char *reason)
{
    tcp_acceptor_refuse(&me->acceptor, host, reason);
    return 0;
}

/* `from` is a line that the speaker has begun, or NULL. */
static int take_word(tcp_lines *me, tcp_ear *ear, const char *host, tcp_line_here *from)
{
    const char *text;
    unsigned char *word = ear->bytes + LENGTH, *signature = ear->bytes + ear->size - TCP_PROOF;
    size_t length = ear->size - LENGTH - TCP_PROOF;
    if (!tcp_is_signed(ear->key, ear->count++, word, length, signature))
        return refuse_word(me, host, "what it said was changed on its way, or is not its own");
    *signature = 0;
    if (!tcp_word_read(word, length, &me->heard, &text)) return refuse_word(me, host, "it says what no member says");
    ear->there = 0;
    ear->size = LENGTH;
    if (from) from->heard = tw_clock();
    if (from) strcpy(from->name, me->heard.seat.name);
    tcp_line_here *to = line_of(me, me->heard.to);
    if (to && length <= TCP_PASSED_ON) put_letter(&to->mouth, word, length);
    me->speaking = from;
    if (!to) me->hear(me->context, &me->heard, text);
    me->speaking = NULL;
    return 1;
}

/* 0: it has gone, or says what nobody says. A subject, which is long, comes as an answer only. */
static int hear_some(tcp_lines *me, int fd, tcp_ear *ear, const char *host, tcp_line_here *from)
{
    const size_t most = from ? TCP_PASSED_ON : TCP_WORD;
    if (!ear->bytes && !make_room_for_word(ear, most)) return 0;
    ssize_t bytes = recv(fd, ear->bytes + ear->there, ear->size - ear->there, MSG_DONTWAIT);
    if (bytes <= 0) return bytes < 0 && (errno == EAGAIN || errno == EINTR);
    ear->there += (size_t)bytes;
    if (ear->there < ear->size) return 1;
    if (ear->size > LENGTH) return take_word(me, ear, host, from);
    return make_room_for_word(ear, most) || refuse_word(me, host, "it says more than any member");
}

/* --- lines that others begin --------------------------------------------------------------------------------- */

static void close_here(tcp_lines *me, int i)
{
    tcp_line_here *line = &me->here[i];
    tcp_close(line->fd);
    free(line->ear.bytes);
    drop_letters(&line->mouth, 0, line->mouth.letter_count);
    *line = me->here[--me->here_count];
}

/* Each member, of which there are fewer than lines, has one that stays, whoever else comes. */
static int may_make_room(tcp_lines *me, const tcp_line_here *line)
{
    return !me->is_member(me->context, line->name) || last_line_of(me, line->name) != line;
}

/* Whoever has said nothing for longest makes room: who has something to say comes again. */
static void make_room_here(tcp_lines *me)
{
    int longest = -1;
    if (me->here_count < TCP_LINES) return;
    for (int i = 0; i < me->here_count; i++)
        if (may_make_room(me, &me->here[i]) && (longest < 0 || me->here[i].heard < me->here[longest].heard))
            longest = i;
    close_here(me, longest);
}

static size_t bytes_held(const tcp_lines *me)
{
    size_t bytes = 0;
    for (int i = 0; i < me->here_count; i++)
        for (int n = 0; n < me->here[i].mouth.letter_count; n++) bytes += me->here[i].mouth.letters[n].size;
    return bytes;
}

/* Who reads has its word within a moment, so that the one for whom one has waited longest does not. */
static void send_away_who_does_not_read(tcp_lines *me)
{
    while (bytes_held(me) > TCP_HELD) {
        int longest = -1;
        for (int i = 0; i < me->here_count; i++) {
            const tcp_mouth *mouth = &me->here[i].mouth;
            if (mouth->letter_count == 0 || !may_make_room(me, &me->here[i])) continue;
            if (longest < 0 || mouth->letters[0].since < me->here[longest].mouth.letters[0].since) longest = i;
        }
        if (longest < 0) return;
        tcp_acceptor_refuse(&me->acceptor, me->here[longest].host, "it does not read what it is told");
        close_here(me, longest);
    }
}

static const char *admit_line(void *context, tcp_handshake *handshake, tcp_place place)
{
    tcp_lines *me = context;
    if (place.from || place.to || place.stream) return "it takes a member of a group for a rank";
    make_room_here(me);
    tcp_line_here *line = &me->here[me->here_count];
    *line = (tcp_line_here){.fd = handshake->fd, .heard = tw_clock()};
    tcp_host_name((const struct sockaddr *)&handshake->from, line->host);
    tcp_session_make(me->acceptor.secret, handshake->challenge, handshake->hello, line->ear.key, line->mouth.key);
    if (!tcp_acceptor_answer(&me->acceptor, handshake)) return "it hung up";
    tune_line(line->fd);
    me->here_count++;
    me->was_called = 1;
    return NULL;
}

/* 0: it has gone. */
static int serve_here(tcp_lines *me, tcp_line_here *line)
{
    return hear_some(me, line->fd, &line->ear, line->host, line) && say_letters(&line->mouth, line->fd);
}

/* --- own lines ----------------------------------------------------------------------------------------------- */

/* The line is to be made again. What was half said on it is not said again. */
static void hang_up(tcp_line_there *line)
{
    tcp_dial_destroy(&line->dial);
    tcp_dial_create(&line->dial, (tcp_place){0}, line->list);
    if (line->mouth.said) drop_letters(&line->mouth, 0, 1);
    line->mouth.said = 0;
}

static void close_there(tcp_lines *me, int i)
{
    tcp_line_there *line = me->there[i];
    tcp_dial_destroy(&line->dial);
    drop_letters(&line->mouth, 0, line->mouth.letter_count);
    free(line->ear.bytes);
    if (line->lookup) tcp_lookup_drop(line->lookup);
    if (line->list) freeaddrinfo(line->list);
    free(line);
    me->there[i] = me->there[--me->there_count];
}

static tw_status read_place(const char *to, int meets, tcp_address *address)
{
    return meets ? tcp_meeting_read(to, address) : tcp_address_read(to, "a member", address);
}

/* Whether its addresses are known. */
static int find_there(tcp_line_there *line)
{
    tcp_address address;
    if (line->list) return 1;
    if (!line->lookup && tw_clock() >= line->unknown && read_place(line->to, line->meets, &address) == TW_OK)
        line->lookup = tcp_lookup_begin(address.host, address.port);
    if (!line->lookup || !tcp_lookup_is_over(line->lookup)) return 0;
    line->list = tcp_lookup_end(line->lookup);
    line->lookup = NULL;
    tcp_dial_create(&line->dial, (tcp_place){0}, line->list);
    if (line->list) return 1;
    line->unknown = tw_clock() + UNKNOWN;
    drop_letters(&line->mouth, 0, line->mouth.letter_count);
    return 0;
}

/* The least used makes room. NULL: it cannot be spoken to. */
static tcp_line_there *open_there(tcp_lines *me, const char *to, int meets)
{
    tcp_address address;
    int least = me->there_count && me->there[0] == me->hearing;
    for (int i = least + 1; i < me->there_count; i++)
        if (me->there[i]->used < me->there[least]->used && me->there[i] != me->hearing) least = i;
    if (me->there_count == TCP_LINES) close_there(me, least);
    tcp_line_there *line = read_place(to, meets, &address) == TW_OK ? calloc(1, sizeof *line) : NULL;
    if (!line) return NULL;
    strcpy(line->to, to);
    line->meets = meets;
    tcp_dial_create(&line->dial, (tcp_place){0}, NULL);
    return me->there[me->there_count++] = line;
}

static tcp_line_there *line_to(tcp_lines *me, const char *to, int meets)
{
    tcp_line_there *line = NULL;
    for (int i = 0; i < me->there_count && !line; i++)
        if (strcmp(me->there[i]->to, to) == 0) line = me->there[i];
    if (!line) line = open_there(me, to, meets);
    if (line) line->used = tw_clock();
    return line;
}

int tcp_lines_keep(tcp_lines *me, const char *to)
{
    tcp_line_there *line = line_to(me, to, 0);
    if (line) line->kept = tw_clock() + KEPT;
    return line && line->dial.state == TCP_CONNECTED;
}

/* By which a word gets to one that cannot be called, where this one cannot be either: they take turns, so that a word
 * that is said again goes another way. */
static tcp_line_there *line_by_others(tcp_lines *me)
{
    for (int i = 0; i < me->there_count; i++) {
        tcp_line_there *line = me->there[me->turn++ % (unsigned)me->there_count];
        if (line->dial.state == TCP_CONNECTED) return line;
    }
    return NULL;
}

/* One whose name was just not found is not spoken to. */
static tcp_mouth *mouth_of(tcp_line_there *line)
{
    return line && (line->list || line->lookup || tw_clock() >= line->unknown) ? &line->mouth : NULL;
}

static tcp_mouth *mouth_to(tcp_lines *me, const char *to)
{
    tcp_line_here *here = line_of(me, to);
    if (here) return &here->mouth;
    tcp_line_there *there = NULL;
    if (!cannot_be_called(to))
        there = line_to(me, to, 0);
    else if (me->behind)
        there = line_by_others(me);
    return mouth_of(there);
}

static void say_by(tcp_mouth *mouth, const council_message *message, const char *text)
{
    size_t size;
    unsigned char *word = mouth ? tcp_word_write(message, text, &size) : NULL;
    if (word) put_letter(mouth, word, size);
    free(word);
}

void tcp_lines_say(tcp_lines *me, const council_message *message, const char *text)
{
    if (*message->to) say_by(mouth_to(me, message->to), message, text);
    for (int i = 0; i < me->meeting_count && !*message->to; i++) {
        tcp_line_there *line = line_to(me, me->meetings[i], 1);
        say_by(mouth_of(line), message, text);
    }
}

void tcp_lines_answer(tcp_lines *me, const council_message *message, const char *text)
{
    tcp_mouth *mouth = me->speaking ? &me->speaking->mouth : NULL;
    if (mouth && mouth->letter_count == 0 && bytes_held(me) <= TCP_HELD) say_by(mouth, message, text);
}

static void begin_line(tcp_lines *me, tcp_line_there *line)
{
    const tcp_dial *dial = &line->dial;
    tune_line(dial->fd);
    free(line->ear.bytes);
    line->ear = (tcp_ear){.count = 0};
    line->mouth.count = 0;
    tcp_session_make(me->acceptor.secret, dial->challenge, dial->hello, line->mouth.key, line->ear.key);
    line->turned_away = 0;
    if (me->met <= 0) me->met = tw_clock();
}

static void reach(tcp_lines *me, tcp_line_there *line, int happened)
{
    tcp_dial *dial = &line->dial;
    int proving = dial->state == TCP_PROVING;
    tcp_dial_serve(dial, happened, tw_clock(), me->acceptor.secret);
    if (dial->state == TCP_CONNECTED)
        begin_line(me, line);
    else if (proving && dial->state == TCP_IDLE && ++line->turned_away == me->trials && line->meets)
        me->lose(me->context, "");
}

static void serve_there(tcp_lines *me, tcp_line_there *line, int happened)
{
    if (line->dial.state != TCP_IDLE && line->dial.state != TCP_CONNECTED) {
        reach(me, line, happened);
        happened = 0; /* that was the proof; what may lie behind it is heard in the next round */
    }
    if (line->dial.refused && !line->meets) me->lose(me->context, line->to);
    line->dial.refused = 0;
    if (line->dial.state != TCP_CONNECTED) return;
    me->hearing = line;
    int goes_on = !happened || hear_some(me, line->dial.fd, &line->ear, line->to, NULL);
    me->hearing = NULL;
    if (!goes_on || !say_letters(&line->mouth, line->dial.fd)) hang_up(line);
}

const tcp_dial *tcp_lines_deserted(const tcp_lines *me)
{
    const tcp_dial *deserted = NULL;
    for (int i = 0; i < me->there_count; i++) {
        const tcp_line_there *line = me->there[i];
        if (line->meets && line->dial.reached) return NULL;
        if (line->meets && line->list) deserted = &line->dial;
    }
    return deserted;
}

int tcp_lines_look_up(const tcp_lines *me)
{
    int looks = 0;
    for (int i = 0; i < me->there_count; i++)
        looks |= me->there[i]->lookup && !tcp_lookup_is_over(me->there[i]->lookup);
    return looks;
}

int tcp_lines_reach(const tcp_lines *me)
{
    int reaches = 0;
    for (int i = 0; i < me->there_count; i++) reaches |= me->there[i]->meets && me->there[i]->dial.state >= TCP_PROVING;
    return reaches;
}

int tcp_lines_have_unsaid(const tcp_lines *me)
{
    for (int i = 0; i < me->there_count; i++)
        if (me->there[i]->mouth.letter_count > 0 && me->there[i]->dial.state != TCP_IDLE) return 1;
    for (int i = 0; i < me->here_count; i++)
        if (me->here[i].mouth.letter_count > 0) return 1;
    return 0;
}

/* --- one round ----------------------------------------------------------------------------------------------- */

static short events_of(const tcp_mouth *mouth)
{
    return (short)(mouth->letter_count ? POLLIN | POLLOUT : POLLIN);
}

static struct pollfd poll_of_there(tcp_line_there *line)
{
    const int is_wanted = line->mouth.letter_count > 0 || tw_clock() < line->kept;
    if (is_wanted && find_there(line)) tcp_dial_begin(&line->dial, tw_clock());
    if (line->dial.state == TCP_IDLE) return (struct pollfd){.fd = -1};
    if (line->dial.state != TCP_CONNECTED) return tcp_dial_poll(&line->dial);
    return (struct pollfd){.fd = line->dial.fd, .events = events_of(&line->mouth)};
}

int tcp_lines_list(tcp_lines *me, int bell)
{
    int count = 1;
    me->polls[0] = (struct pollfd){.fd = bell, .events = POLLIN};
    for (int i = 0; i < me->here_count; i++)
        me->polls[count++] = (struct pollfd){.fd = me->here[i].fd, .events = events_of(&me->here[i].mouth)};
    for (int i = 0; i < me->there_count; i++) me->polls[count++] = poll_of_there(me->there[i]);
    me->polled_here = me->here_count;
    me->polled_there = me->there_count;
    return count + tcp_acceptor_list(&me->acceptor, me->polls + count);
}

/* From the last on, because the last takes the place of one that goes. What is heard may open own lines, and close
 * them: then one is served for another, which finds that nothing has happened. */
void tcp_lines_serve(tcp_lines *me)
{
    const struct pollfd *here = me->polls + 1, *there = here + me->polled_here;
    for (int i = me->polled_there - 1; i >= 0; i--) {
        if (i >= me->there_count) continue;
        tcp_line_there *line = me->there[i];
        serve_there(me, line, there[i].revents != 0);
        if (!line->mouth.letter_count && tw_clock() - line->used > IDLE && me->there[i] == line) close_there(me, i);
    }
    for (int i = me->polled_here - 1; i >= 0; i--)
        if (here[i].revents && !serve_here(me, &me->here[i])) close_here(me, i);
    send_away_who_does_not_read(me);
    tcp_acceptor_serve(&me->acceptor, there + me->polled_there, admit_line, me);
}

void tcp_lines_move(tcp_lines *me)
{
    me->was_called = 0;
    me->met = 0;
    for (int i = 0; i < me->there_count; i++) hang_up(me->there[i]);
}

void tcp_lines_close(tcp_lines *me)
{
    tcp_acceptor_close(&me->acceptor);
    while (me->here_count) close_here(me, me->here_count - 1);
    while (me->there_count) close_there(me, me->there_count - 1);
}
