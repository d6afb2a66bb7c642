/* members_lines.h - the connections by which members of a group tell each other who is there. Those that others began
 * are only read, but where one of them is turned away, and its own are only written, and begun again when there is
 * something to say. A word may be lost.
 *
 * A member that cannot be called, as behind a router, keeps lines to those that can be. On these it is spoken to as
 * well, and a word to another of its kind goes by any of them, whose member passes it on. */
#ifndef TW_COMM_TCP_MEMBERS_LINES_H
#define TW_COMM_TCP_MEMBERS_LINES_H

#include "acceptor.h"
#include "dial.h"
#include "lookup.h"
#include "members_message.h"

enum {
    TCP_LINES = 2 * COUNCIL_MOST,
    TCP_MEETINGS = 16,         /* places where a newcomer may know somebody */
    TCP_LETTERS = 8,           /* that wait to be sent to one; the oldest are dropped */
    TCP_PASSED_ON = 64 * 1024, /* bytes of a word on a line that another has begun, or by a third member, at most */
    TCP_HELD = 16 << 20        /* bytes of words for those that do not read them, before one of these is sent away */
};

/* Of another's words. */
typedef struct tcp_ear {
    uint64_t count; /* of words that have come */
    unsigned char key[TCP_SECRET];
    unsigned char *bytes; /* a word with its length and its signature; NULL: none has begun */
    size_t size, there;   /* as much of it as is known, and as has come */
} tcp_ear;

typedef struct tcp_letter {
    unsigned char *bytes; /* a word with its length, and room for its signature */
    size_t size;
    double since;
} tcp_letter;

/* For words to another. */
typedef struct tcp_mouth {
    uint64_t count; /* of words that were begun */
    unsigned char key[TCP_SECRET];
    tcp_letter letters[TCP_LETTERS];
    int letter_count;
    size_t said; /* of the first letter */
} tcp_mouth;

/* One that another has begun. */
typedef struct tcp_line_here {
    int fd;
    char host[TCP_NAME], name[COUNCIL_NAME]; /* name: who has spoken here last */
    double heard;
    tcp_ear ear;
    tcp_mouth mouth;
} tcp_line_here;

typedef struct tcp_line_there {
    char to[COUNCIL_NAME];
    int meets;             /* it is a meeting point, and no member's name */
    struct addrinfo *list; /* NULL: it is still to be found, by the lookup, if there is one */
    tcp_lookup *lookup;
    double unknown; /* until then its name is not looked up again: it was not found */
    tcp_dial dial;
    double used, kept; /* until then it is begun although there is nothing to say */
    int turned_away;   /* times, one after the other */
    tcp_ear ear;
    tcp_mouth mouth;
} tcp_line_there;

typedef struct tcp_lines {
    tcp_acceptor acceptor;
    char meetings[TCP_MEETINGS][TCP_ADDRESS]; /* where a newcomer may know somebody; a word to nobody goes there */
    int meeting_count;
    tcp_line_here here[TCP_LINES];
    tcp_line_there *there[TCP_LINES];
    int here_count, there_count;
    int polled_here, polled_there;
    int behind;                    /* this member cannot be called */
    int was_called;                /* it has been */
    double met;                    /* when another was reached first, a meeting point; 0: none was */
    unsigned turn;                 /* of those that pass words on */
    const tcp_line_there *hearing; /* is not closed */
    tcp_line_here *speaking;       /* on which the word came that is heard now; NULL: on an own line */
    council_message heard;         /* the last word; it is large */
    struct pollfd polls[1 + TCP_ACCEPTOR_POLLS + 2 * TCP_LINES]; /* the bell first */
    void (*hear)(void *context, const council_message *message, const char *text);
    void (*lose)(void *context, const char *name); /* nobody listens there any more; "": a meeting point turns away */
    int (*is_member)(void *context, const char *name); /* of the group, and not just one that has its key */
    int trials; /* proofs that a meeting point has turned away one after the other, until that is told */
    void *context;
} tcp_lines;

/* Takes all but the acceptor, which is open, its secret, and who is told, as zeros. */
void tcp_lines_close(tcp_lines *lines);
/* Puts a word among those that wait, also for the address behind a name. What is said to a name that is not found is
 * lost. */
void tcp_lines_say(tcp_lines *lines, const council_message *message, const char *text);
/* To whom is heard now, on the line that it has begun: for a stranger none is made, and no name is looked up. One who
 * has a word there that it has not read gets no second one. */
void tcp_lines_answer(tcp_lines *lines, const council_message *message, const char *text);
/* Keeps a line to one that can be called for a second, whatever there is to say. Whether it stands. */
int tcp_lines_keep(tcp_lines *lines, const char *to);
/* What to wait for besides the bell; returns how many. Then after the wait. Neither waits itself. */
int tcp_lines_list(tcp_lines *lines, int bell);
void tcp_lines_serve(tcp_lines *lines);
/* The last way to a meeting point, if no thinwire has answered at any; NULL: one has. */
const tcp_dial *tcp_lines_deserted(const tcp_lines *lines);
/* Whether a name is being looked up. */
int tcp_lines_look_up(const tcp_lines *lines);
/* Whether somebody listens at a meeting point now who speaks thinwire's language. */
int tcp_lines_reach(const tcp_lines *lines);
/* This machine has another address: own lines are begun anew from there, and whether it can be called is to be seen. */
void tcp_lines_move(tcp_lines *lines);
/* Whether words wait for somebody who listens. */
int tcp_lines_have_unsaid(const tcp_lines *lines);

#endif
