#include "members_lines.h"

#include "bytes.h"
#include "children.h"
#include "peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 4 };
#define IDLE 60.0 /* seconds, after which a line that nobody speaks on is closed */

/* --- hearing ------------------------------------------------------------------------------------------------- */

static void close_ear(tcp_lines *me, int i)
{
    tcp_close(me->ears[i].fd);
    free(me->ears[i].bytes);
    me->ears[i] = me->ears[--me->ear_count];
}

/* Whoever has said nothing for longest makes room: who has something to say comes again. */
static void make_room_for_ear(tcp_lines *me)
{
    int longest = 0;
    for (int i = 1; i < me->ear_count; i++)
        if (me->ears[i].heard < me->ears[longest].heard) longest = i;
    if (me->ear_count == TCP_LINES) close_ear(me, longest);
}

static const char *admit_ear(void *context, tcp_handshake *handshake, tcp_place place)
{
    tcp_lines *me = context;
    if (place.from || place.to || place.stream) return "it takes a member of a group for a rank";
    make_room_for_ear(me);
    tcp_ear *ear = &me->ears[me->ear_count];
    *ear = (tcp_ear){.fd = handshake->fd, .heard = tw_clock(), .size = LENGTH};
    ear->bytes = malloc(LENGTH);
    tcp_host_name((const struct sockaddr *)&handshake->from, ear->host);
    tcp_session_make(me->acceptor.secret, handshake->challenge, handshake->hello, 0, ear->key);
    if (!ear->bytes || !tcp_acceptor_answer(&me->acceptor, handshake)) {
        free(ear->bytes);
        return "it hung up";
    }
    tcp_keep_from_children(ear->fd);
    me->ear_count++;
    return NULL;
}

/* The word's length is known, and says how much is to come. A byte more is a 0 behind its text. */
static int make_room_for_word(tcp_ear *ear)
{
    size_t length = (size_t)tw_get(ear->bytes, LENGTH);
    unsigned char *larger = length <= TCP_WORD ? realloc(ear->bytes, LENGTH + length + TCP_PROOF + 1) : NULL;
    if (!larger) return 0;
    ear->bytes = larger;
    ear->size = LENGTH + length + TCP_PROOF;
    return 1;
}

/* 0: it is none that a member wrote. */
static int refuse_word(tcp_lines *me, const tcp_ear *ear, const char *reason)
{
    tcp_acceptor_refuse(&me->acceptor, ear->host, reason);
    return 0;
}

static int take_word(tcp_lines *me, tcp_ear *ear)
{
    const char *text;
    unsigned char *word = ear->bytes + LENGTH, *signature = ear->bytes + ear->size - TCP_PROOF;
    size_t length = ear->size - LENGTH - TCP_PROOF;
    if (!tcp_is_signed(ear->key, ear->count++, word, length, signature))
        return refuse_word(me, ear, "what it said was changed on its way, or is not its own");
    *signature = 0;
    if (!tcp_word_read(word, length, &me->heard, &text)) return refuse_word(me, ear, "it says what no member says");
    ear->there = 0;
    ear->size = LENGTH;
    me->hear(me->context, &me->heard, text);
    return 1;
}

/* 0: it has gone, or says what nobody says. */
static int hear_ear(tcp_lines *me, tcp_ear *ear)
{
    ssize_t bytes = recv(ear->fd, ear->bytes + ear->there, ear->size - ear->there, MSG_DONTWAIT);
    if (bytes <= 0) return bytes < 0 && (errno == EAGAIN || errno == EINTR);
    ear->heard = tw_clock();
    ear->there += (size_t)bytes;
    if (ear->there < ear->size) return 1;
    if (ear->size > LENGTH) return take_word(me, ear);
    return make_room_for_word(ear) || refuse_word(me, ear, "it says more than any member");
}

/* --- saying -------------------------------------------------------------------------------------------------- */

static void drop_letters(tcp_mouth *mouth, int from, int count)
{
    for (int i = from; i < from + count; i++) free(mouth->letters[i].bytes);
    mouth->letter_count -= count;
    memmove(&mouth->letters[from], &mouth->letters[from + count],
            (size_t)(mouth->letter_count - from) * sizeof *mouth->letters);
}

/* The line is to be made again. What was half said on it is not said again. */
static void hang_up(tcp_mouth *mouth)
{
    tcp_dial_destroy(&mouth->dial);
    tcp_dial_create(&mouth->dial, (tcp_place){0}, mouth->list);
    if (mouth->said) drop_letters(mouth, 0, 1);
    mouth->said = 0;
    mouth->count = 0;
}

static void close_mouth(tcp_lines *me, int i)
{
    tcp_mouth *mouth = me->mouths[i];
    tcp_dial_destroy(&mouth->dial);
    drop_letters(mouth, 0, mouth->letter_count);
    freeaddrinfo(mouth->list);
    free(mouth);
    me->mouths[i] = me->mouths[--me->mouth_count];
}

/* The least used makes room. NULL: it cannot be spoken to. */
static tcp_mouth *open_mouth(tcp_lines *me, const char *to, int meets)
{
    tcp_address address;
    int least = 0;
    for (int i = 1; i < me->mouth_count; i++)
        if (me->mouths[i]->used < me->mouths[least]->used) least = i;
    if (me->mouth_count == TCP_LINES) close_mouth(me, least);
    if ((meets ? tcp_meeting_read(to, &address) : tcp_address_read(to, "a member", &address)) != TW_OK) return NULL;
    tcp_mouth *mouth = calloc(1, sizeof *mouth);
    if (!mouth || tcp_resolve(address.host, address.port, 0, &mouth->list) != TW_OK) {
        free(mouth);
        return NULL;
    }
    strcpy(mouth->to, to);
    mouth->meets = meets;
    tcp_dial_create(&mouth->dial, (tcp_place){0}, mouth->list);
    return me->mouths[me->mouth_count++] = mouth;
}

static tcp_mouth *mouth_to(tcp_lines *me, const char *to, int meets)
{
    for (int i = 0; i < me->mouth_count; i++)
        if (strcmp(me->mouths[i]->to, to) == 0) return me->mouths[i];
    return open_mouth(me, to, meets);
}

static void say_at(tcp_lines *me, const char *to, int meets, const council_message *message, const char *text)
{
    size_t size;
    tcp_mouth *mouth = mouth_to(me, to, meets);
    unsigned char *word = mouth ? tcp_word_write(message, text, &size) : NULL;
    unsigned char *bytes = word ? malloc(LENGTH + size + TCP_PROOF) : NULL;
    if (bytes) {
        if (mouth->letter_count == TCP_LETTERS) drop_letters(mouth, mouth->said ? 1 : 0, 1);
        tw_put(bytes, size, LENGTH);
        memcpy(bytes + LENGTH, word, size);
        mouth->letters[mouth->letter_count++] = (tcp_letter){bytes, LENGTH + size + TCP_PROOF};
        mouth->used = tw_clock();
    }
    free(word);
}

void tcp_lines_say(tcp_lines *me, const council_message *message, const char *text)
{
    if (*message->to) say_at(me, message->to, 0, message, text);
    for (int i = 0; i < me->meeting_count && !*message->to; i++) say_at(me, me->meetings[i], 1, message, text);
}

/* 0: the line has gone. */
static int say_letters(tcp_mouth *mouth)
{
    while (mouth->letter_count > 0) {
        tcp_letter *first = &mouth->letters[0];
        size_t length = first->size - LENGTH - TCP_PROOF;
        if (mouth->said == 0)
            tcp_sign(mouth->key, mouth->count++, first->bytes + LENGTH, length, first->bytes + first->size - TCP_PROOF);
        ssize_t bytes =
            send(mouth->dial.fd, first->bytes + mouth->said, first->size - mouth->said, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (bytes < 0) return errno == EAGAIN || errno == EINTR;
        mouth->said += (size_t)bytes;
        if (mouth->said < first->size) return 1;
        mouth->said = 0;
        drop_letters(mouth, 0, 1);
    }
    return 1;
}

/* The other end says nothing; when it closes the line, that is read. */
static int is_closed(int fd)
{
    char byte;
    ssize_t bytes = recv(fd, &byte, 1, MSG_DONTWAIT);
    return bytes >= 0 || (errno != EAGAIN && errno != EINTR);
}

static void reach(tcp_lines *me, tcp_mouth *mouth, int happened)
{
    tcp_dial *dial = &mouth->dial;
    int proving = dial->state == TCP_PROVING;
    tcp_dial_serve(dial, happened, tw_clock(), me->acceptor.secret);
    if (dial->state == TCP_CONNECTED) {
        tcp_keep_from_children(dial->fd);
        tcp_session_make(me->acceptor.secret, dial->challenge, dial->hello, 0, mouth->key);
        mouth->turned_away = 0;
    } else if (proving && dial->state == TCP_IDLE && ++mouth->turned_away == TCP_TRIALS && mouth->meets) {
        me->lose(me->context, "");
    }
}

static void serve_mouth(tcp_lines *me, tcp_mouth *mouth, int happened)
{
    if (mouth->dial.state != TCP_IDLE && mouth->dial.state != TCP_CONNECTED) reach(me, mouth, happened);
    if (mouth->dial.refused && !mouth->meets) me->lose(me->context, mouth->to);
    mouth->dial.refused = 0;
    if (mouth->dial.state != TCP_CONNECTED) return;
    if ((happened && is_closed(mouth->dial.fd)) || !say_letters(mouth)) hang_up(mouth);
}

int tcp_lines_have_unsaid(const tcp_lines *me)
{
    for (int i = 0; i < me->mouth_count; i++)
        if (me->mouths[i]->letter_count > 0 && me->mouths[i]->dial.state != TCP_IDLE) return 1;
    return 0;
}

/* --- one round ----------------------------------------------------------------------------------------------- */

static struct pollfd poll_of_mouth(tcp_mouth *mouth)
{
    if (mouth->letter_count > 0) tcp_dial_begin(&mouth->dial, tw_clock());
    if (mouth->dial.state == TCP_IDLE) return (struct pollfd){.fd = -1};
    if (mouth->dial.state != TCP_CONNECTED) return tcp_dial_poll(&mouth->dial);
    return (struct pollfd){.fd = mouth->dial.fd, .events = (short)(mouth->letter_count ? POLLIN | POLLOUT : POLLIN)};
}

int tcp_lines_list(tcp_lines *me, int bell)
{
    int count = 1;
    me->polls[0] = (struct pollfd){.fd = bell, .events = POLLIN};
    for (int i = 0; i < me->ear_count; i++)
        me->polls[count++] = (struct pollfd){.fd = me->ears[i].fd, .events = POLLIN};
    for (int i = 0; i < me->mouth_count; i++) me->polls[count++] = poll_of_mouth(me->mouths[i]);
    me->polled_ears = me->ear_count;
    me->polled_mouths = me->mouth_count;
    return count + tcp_acceptor_list(&me->acceptor, me->polls + count);
}

/* From the last on, because the last takes the place of one that goes. What is heard may open lines, and close them, so
 * the own ones come first. */
void tcp_lines_serve(tcp_lines *me)
{
    const struct pollfd *ears = me->polls + 1, *mouths = ears + me->polled_ears;
    for (int i = me->polled_mouths - 1; i >= 0; i--) {
        tcp_mouth *mouth = me->mouths[i];
        serve_mouth(me, mouth, mouths[i].revents != 0);
        if (!mouth->letter_count && tw_clock() - mouth->used > IDLE) close_mouth(me, i);
    }
    for (int i = me->polled_ears - 1; i >= 0; i--)
        if (ears[i].revents && !hear_ear(me, &me->ears[i])) close_ear(me, i);
    tcp_acceptor_serve(&me->acceptor, mouths + me->polled_mouths, admit_ear, me);
}

void tcp_lines_close(tcp_lines *me)
{
    tcp_acceptor_close(&me->acceptor);
    while (me->ear_count) close_ear(me, me->ear_count - 1);
    while (me->mouth_count) close_mouth(me, me->mouth_count - 1);
}
