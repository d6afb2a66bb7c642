/* thinwire_members.h - groups whose members come and go. Link with -lthinwire_tcp -lthinwire.
 *
 * EXPERIMENTAL: it works and is tested as the rest is, and may still change with a release (docs/abi.md).
 *
 * Such a group is a sequence of generations. Each is a tw_comm like any other, whose ranks never change; when somebody
 * wants to come in or to leave, or is lost, its members decide who is in the next one, and connect again. A process can
 * do that between two rounds of local updates (thinwire_outer.h), since nothing else ties the ranks together:
 *
 *     tw_members_join("10.0.0.5:7000", subject, NULL, NULL, &members);
 *     for (int64_t rounds = tw_members_opened(members) ? 0 : -1;;) {
 *         tw_members_next(members, rounds, 0, &generation, &comm);
 *         ... a tw_outer is made on comm; who is behind loads what generation.donor's has saved, with what
 *             tw_outer_regroup_state says is its own, and after tw_outer_begin has its weights by tw_outer_read
 *         ... before each round: tw_members_due(members, comm, TW_MEMBERS_STAY, &due); next, if it is TW_MEMBERS_CHANGE
 *         ... after each round: tw_outer_save_apart, for there is nothing to save once a round has failed
 *         ... TW_ERROR_PEER from anything on comm: this round did not come about here; destroy comm, and next
 *     }
 *
 * A generation is decided once, by those of the one before that answer (single-decree Paxos): more than half of them,
 * or half with the first of them. Others wait until they hear enough again. So a group that was cut in two goes on as
 * one, and no loss ends it that leaves a majority, the one that opened it included. Whoever was cut off, or has another
 * address, is let in again. A thread of its own answers for each process, whatever its program does: one that computes
 * for minutes stays a member, and the others wait for it. The log (tw_set_log) is told who is lost, each with rank and
 * address, in one line, and for whom this process has waited for ten seconds longer than any round took; but not one
 * that finishes, or whose comm's patience is 1e9. The calls below return only when the log's listener has: a slow one
 * holds up rounds.
 *
 * A process that nobody can connect to, as behind a router, finds that out within 3 seconds and takes part even so:
 * what it says to another of its kind goes through a member that both can connect to. If that one is lost, it goes
 * through another in the next generation. A newcomer whose words come through and whose connections do not, as with
 * a firewall around it, keeps a generation from beginning: for up to 10 seconds, once more where another member is
 * lost or leaves meanwhile, and then again after 30 seconds, 60 and so on up to an hour, each time as the only
 * newcomer. The log on both sides says which address was not reached. */
#ifndef THINWIRE_MEMBERS_H
#define THINWIRE_MEMBERS_H

#include <thinwire/thinwire_tcp.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_MEMBERS_MOST 64 /* of a group */

/* One process's part in a group. One thread at a time. */
typedef struct tw_members tw_members;

/* Zero it, set struct_size, and set what you want to differ. */
typedef struct tw_members_options {
    size_t struct_size; /* sizeof(tw_members_options) */
    /* Members of a generation that have to agree on the next; 0: more than half. With one below that a group that is
     * cut in two goes on as two. The same on all, or a newcomer is refused. */
    int quorum;
    /* Seconds, 0: 60. A member of which nothing is heard for so long is lost. It is less where rounds take less: as
     * long as the last one that any member has measured, and at least 10. */
    double grace;
    /* Seconds that a newcomer waits to be let in, members for one whose program is busy, and one that hears too few
     * others until it hears them. 0: 1800. Once a process is a member, it has that of the one that opened the group. */
    double patience;
} tw_members_options;

/* Sets of `options` what the environment says of where to listen, by THINWIRE_BIND, THINWIRE_ADVERTISE, THINWIRE_PORT,
 * THINWIRE_LAST_PORT, THINWIRE_STREAMS and THINWIRE_REACHABLE, as tw_comm_open("tcp") takes it. The texts are the
 * environment's. TW_ERROR_ARGUMENT names a variable that says what cannot be. */
TW_API tw_status tw_members_environment(tw_tcp_options *options);

/* Comes to a group, of which `meeting` ("10.0.0.5:7000") is any member's address. Where it is an address of this
 * machine and its port is free, this process opens the group, as its first member. There may be up to 16 addresses,
 * with commas in between ("10.0.0.5:7000,10.0.0.6:7000"): a process listens at the first of them that is its own,
 * comes to the group where any other of them answers, and opens one only at the first address, if within 3 seconds no
 * other answers. So the process that opened a group can be started again by the same words while the group goes on
 * without it; where that group trains something else by now, it is TW_ERROR_ARGUMENT, and where it has another key,
 * TW_ERROR_PEER. A name that cannot be resolved is passed over while another can. Else it returns at once:
 * tw_members_next is what waits.
 * `subject` is what all members have to train alike, such as the spec and a line for each tensor, up to 1 MiB:
 * newcomers with another, or of another release, are refused, and told of the first line that differs. `options` may
 * be NULL. `tcp` is as for tw_tcp_join, or NULL; its `refused` is called by tw_members_next and tw_members_due, each
 * time of the first 15 since the last one, and of how many came besides. With a key nobody learns anything who does
 * not prove that he knows it, and without one anybody who reaches a member's port can take part. TW_ERROR_ARGUMENT,
 * TW_ERROR_SYSTEM as for tw_tcp_join. */
TW_API tw_status tw_members_join(const char *meeting, const char *subject, const tw_members_options *options,
                                 const tw_tcp_options *tcp, tw_members **members);
/* Leaves without a word, as a crash does, if it has not left before. Only the last member, and one for whom
 * tw_members_due has said TW_MEMBERS_FINISHED, tells newcomers that wait that the run is over: their tw_members_next is
 * TW_ERROR_PEER at once. Of a group whose members go otherwise they hear nothing for a grace first. */
TW_API void tw_members_destroy(tw_members *members);

/* Where newcomers may come, "HOST:PORT": to this process, or where it came itself if it cannot be called. NULL: "". */
TW_API const char *tw_members_address(const tw_members *members);
/* Whether this process has opened the group. */
TW_API int tw_members_opened(const tw_members *members);

/* What a generation is. Set struct_size before the call. */
typedef struct tw_generation {
    size_t struct_size;
    uint64_t number; /* from 1 */
    int rank, size;
    int donor;  /* the rank that has applied most rounds; -1: nobody has a theta any more */
    int behind; /* 1: this rank has applied fewer, or is new, and takes everything from the donor. Where `kept` is 1,
                 * what it gave to the round that it lacks is in there */
    int kept;   /* 1: this rank was in the generation before, with a theta, and not left behind by the group since */
    int late;   /* 1: it was left behind, and is let in again, and what it has done since the last round that it has
                 * applied is in nobody's theta: behind the donor's, with that added to it, it counts once, and so does
                 * what its exchange holds back */
    int lost; /* members of the last generation that this process was in which are lost. The log has told who they are,
                 * and of how many members this one is */
} tw_generation;

/* The next generation with this process in it; the comm of the last one has been destroyed before. `rounds` is how
 * many this process has applied, -1: it has no theta. With `leaves` it returns once the others go on without this
 * process, TW_OK with *comm NULL. The comm's timeout and patience are set. TW_ERROR_PEER: too few of the last
 * generation listen, or have answered for the patience, or nobody lets this process in. TW_ERROR_ARGUMENT: the group
 * trains something else; the text has both. */
TW_API tw_status tw_members_next(tw_members *members, int64_t rounds, int leaves, tw_generation *generation,
                                 tw_comm **comm);

typedef enum tw_members_wish {
    TW_MEMBERS_STAY = 0,
    TW_MEMBERS_LEAVE = 1, /* to be in no generation after this */
    TW_MEMBERS_FINISH = 2 /* no steps of its own are to come; it takes part in the others' rounds until all finish */
} tw_members_wish;
typedef enum tw_members_outcome {
    TW_MEMBERS_SAME = 0,
    TW_MEMBERS_CHANGE = 1,  /* somebody waits to come in, or leaves: on to tw_members_next, before the round */
    TW_MEMBERS_FINISHED = 2 /* all finish */
} tw_members_outcome;
/* A collective of the generation's comm, before each round: 8 bytes from each rank. All get the same. The comm's
 * timeout follows the time that rounds take, unless the program has set another. */
TW_API tw_status tw_members_due(tw_members *members, tw_comm *comm, tw_members_wish wish, tw_members_outcome *due);

#ifdef __cplusplus
}
#endif
#endif
