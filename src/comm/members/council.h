/* council.h - who takes part in the next generation of a group: one process's part in deciding it. No sockets, no clock
 * and no threads: it is told what came and what time it is, and says what to send.
 *
 * The members of a generation decide on the next one, each when its program has come to the end of this one. Of them
 * the first that answers proposes those that have come, and newcomers behind them; more than half of the old ones have
 * to accept. Each generation is decided once, by single-decree Paxos (Lamport 1998) with the old members as acceptors:
 * a proposal that may have been decided is proposed again, so that whatever is lost, late, cut off or stopped, no two
 * sets of members follow one generation. Messages may be lost, doubled and late. */
#ifndef TW_COMM_MEMBERS_COUNCIL_H
#define TW_COMM_MEMBERS_COUNCIL_H

#include <stddef.h>
#include <stdint.h>

enum {
    COUNCIL_MOST = 64,  /* members; sets of them are bits of a word */
    COUNCIL_NAME = 320, /* bytes of a name and of a door */
    COUNCIL_TOPIC = 32, /* bytes of a digest of what all have to train alike */
    COUNCIL_KNOWN = 32  /* generations of which a list says how they began */
};
#define COUNCIL_BEAT 0.25       /* seconds between two words to the same */
#define COUNCIL_STOOD_STILL 1.0 /* between two looks at the clock, in which others may have spoken unheard */
/* Seconds, or two graces, beyond the longest round, after which a person wants to know for whom a wait is. */
#define COUNCIL_LONG 10.0

/* A name is "WHERE#WHO/HOW": who a process is for as long as it lives, and where and how it is called, which may
 * change. Its door is where it waits for the next generation's connections. */
typedef struct council_seat {
    char name[COUNCIL_NAME], door[COUNCIL_NAME];
    uint64_t rounds; /* that it has applied, and 1; 0: it has no theta */
} council_seat;

typedef struct council_list {
    uint64_t group;      /* the same in all its generations, and in no other group; 0: none is known */
    uint64_t generation; /* 0: it was never decided */
    uint64_t patience;   /* milliseconds, of who opened the group, and so of all; 0: each has its own */
    /* How many rounds, and 1, the last generations began with, at the remainder of each one's number; 0: none had. */
    uint64_t begun[COUNCIL_KNOWN];
    int count;
    council_seat seats[COUNCIL_MOST];
} council_list;

typedef enum council_kind {
    COUNCIL_JOIN = 1, /* let me in: seat, topic; of one that is busy: is there a group? */
    COUNCIL_REFUSED,  /* no: the topic is another */
    COUNCIL_STATUS,   /* where I am: seat, state; answer, if it asks */
    COUNCIL_PREPARE,  /* do not accept what comes below my ballot */
    COUNCIL_PROMISE,  /* the ballot below which I accept nothing, and what I have accepted, with which ballot */
    COUNCIL_ACCEPT,   /* list, with which ballot */
    COUNCIL_ACCEPTED, /* with which ballot */
    COUNCIL_DECIDED,  /* list; as ballot, the bits of those of the one before that left it */
    COUNCIL_OVER,     /* there is no group any more that could let you in */
    COUNCIL_KINDS
} council_kind;

typedef enum council_state {
    COUNCIL_BUSY,  /* its program trains */
    COUNCIL_READY, /* and waits for the next generation */
    COUNCIL_LEAVES,
    COUNCIL_STATES
} council_state;

typedef struct council_message {
    council_kind kind;
    council_state state;
    int asks, awaits;      /* awaits: its program has come to the beginning of a round */
    char to[COUNCIL_NAME]; /* "": whoever reads it, of a newcomer that knows an address only */
    council_seat seat;     /* the sender's; its name always counts */
    uint64_t generation;   /* that the sender wants to see decided, or that was */
    uint64_t ballot, accepted;
    unsigned char topic[COUNCIL_TOPIC];
    council_list list;
} council_message;

typedef struct council_settings {
    int quorum;      /* members of the old generation that have to accept; 0: more than half, or half with the first */
    double grace;    /* seconds without a word from a member after which it counts as gone */
    double patience; /* seconds that those who have come wait for those whose program is busy; then the group's */
    unsigned char topic[COUNCIL_TOPIC];
    void (*send)(void *context, const council_message *message);
    void *context;
} council_settings;

typedef enum council_verdict {
    COUNCIL_PENDING,
    COUNCIL_GENERATION, /* council->list has this process, at council->place */
    COUNCIL_LEFT,       /* the others go on without it, as it wished */
    COUNCIL_NO_QUORUM,  /* too few of the old generation answer, and have not for the patience, or are gone */
    COUNCIL_UNWANTED,   /* the group trains something else */
    COUNCIL_TOO_LATE    /* the group has ended before it let this newcomer in */
} council_verdict;

/* Another one, as it was last heard of. */
typedef struct council_peer {
    double heard;
    double since; /* it was first heard */
    double until; /* a newcomer waits quietly: then others have had the time to hear of it, too */
    council_state state;
    council_seat seat; /* a member's name is in the list */
    int awaits;        /* its program does not keep others from a round */
    double answered;   /* it was heard then indeed, which `heard` may only take for granted */
    int gone;          /* nobody listens where it did */
    double barred;     /* until then, a newcomer with whom a generation came to nothing is not let in */
    int failed;        /* generations that have come to nothing with it */
} council_peer;

typedef struct council {
    council_settings settings;
    council_seat own;
    council_list list; /* who decides: the last generation that this process knows of */
    uint64_t left;     /* of the list before, those that said so */
    int place;         /* its own there; -1: it is a newcomer */
    council_state state;
    int awaits;     /* the others, to begin a round */
    int quiet;      /* nobody wants to know any more for whom this wait is */
    double longest; /* seconds that a round has taken, of all so far */
    council_verdict verdict;
    uint64_t seated;     /* the last generation that its program was to take part in */
    uint64_t stood, had; /* the one from which it last came with a theta, and with how many rounds, and 1 */
    double now, met, beat,
        unable;     /* the time; since when its program waits; the next word; since when too few answer */
    double reached; /* when somebody last listened at a newcomer's meeting point; 0: nobody has */
    council_peer peers[COUNCIL_MOST];
    council_peer visitors[COUNCIL_MOST];
    int visitor_count;
    /* as an acceptor */
    uint64_t promised, accepted;
    council_list choice;
    /* as the proposer */
    uint64_t ballot, seen, best, promises, acceptances;
    int accepting;
    double proposed, lasts; /* when the ballot was begun; how long it goes on */
    council_list value;
} council;

/* A newcomer, who finds the group with JOINs to "" until it knows a list. */
void council_begin(council *me, const council_settings *settings, const char *name, double now);
/* Somebody listens at the meeting point, with whom no word may be exchanged. */
void council_reach(council *me, double now);
/* A newcomer whose program has not come yet asks whether there is a group, which it knows once it has a list or is
 * turned away; where there is none it may open one, as its first generation's only member. */
void council_ask(council *me, double now);
void council_open(council *me);
/* Its program has come to the end of a generation, with so many rounds and 1, or 0: it waits at the door, or leaves. */
void council_meet(council *me, const char *door, uint64_t rounds, int leaves, double now);
/* Its program waits for the others' to begin a round; or it goes on. */
void council_await(council *me, int awaits, double now);
/* Those that keep its program waiting for long though they answer, as bits of the list; none once the wait is kept
 * quiet, which lasts as long as it. Before a round it then does not ask the others, either. */
uint64_t council_waits_for(const council *me);
void council_keep_quiet(council *me);
/* A message has come; a name where nobody listens any more; time has passed. */
void council_hear(council *me, const council_message *message, double now);
void council_lose(council *me, const char *name, double now);
void council_tick(council *me, double now);
/* The group ends with this member: newcomers that wait are told, barred or not. */
void council_end(council *me);
/* The group turns this newcomer away. */
void council_turn_away(council *me);

/* Whether somebody waits to be let in, for long enough that whoever proposes the next generation has heard of it,
 * too; and where it was passed over all the same, for as long again as it had waited. */
int council_has_visitors(council *me, double now);
/* Whether it comes to its generation late: as a newcomer that was in an earlier one, behind which nobody went on from
 * more rounds than it had. So what it has done since then is in no theta but its own. */
int council_is_late(const council *me);
/* Of a list, the first that has applied most rounds: whoever has fewer takes theta from there. -1: nobody has any. */
int council_donor(const council_list *list);
/* Whether both are names of one process. */
int council_is_same(const char *a, const char *b);
/* -1: it is not there. */
int council_find(const council_list *list, const char *name);

#endif
