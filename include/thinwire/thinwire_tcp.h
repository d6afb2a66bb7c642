/* thinwire_tcp.h - thinwire over plain TCP sockets. Link with -lthinwire_tcp -lthinwire. Needs no launcher.
 *
 * Two ways to a comm:
 *
 *  - tw_tcp_join: every process names one HOST:PORT, and how many they are. That is all.
 *  - tw_tcp_listen and tw_tcp_connect: for programs that can tell each other a line of text already (a store, MPI, a
 *    file): every rank listens, gets an address, and connects when it has the addresses of all.
 *
 * Whoever connects has to prove that it knows the key, and so has the one it connects to, before either believes a byte
 * of the other: a keyed hash (BLAKE2b) over random numbers of both, their ranks, and the addresses of the whole group.
 * A proof serves once. Nobody is let in who comes after the group is complete. What then goes over the connections is
 * neither encrypted nor signed: the key keeps strangers out, not those who can read or change packets on the way. */
#ifndef THINWIRE_TCP_H
#define THINWIRE_TCP_H

#include <thinwire/thinwire.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where to listen and what to prove. Zero it, set struct_size, and set what you want to differ. */
typedef struct tw_tcp_options {
    size_t struct_size;    /* sizeof(tw_tcp_options) */
    const char *bind;      /* an address, a host name or an interface ("eth0") to listen on; NULL: all */
    const char *advertise; /* the host name or address that others connect to; NULL: found out from `bind`, or from the
                            * interface that leads out */
    int first_port;        /* the first free one of these is taken; 0: any that is free */
    int last_port;         /* 0: first_port alone */
    int streams;           /* connections to each peer, 1 to 16; 0: 1. Two ranks take the smaller of their two. Several
                            * are faster where one cannot fill a long link */
    const void *key;       /* what all ranks know and others do not, such as 32 random bytes; NULL: the random number in
                            * each address is all there is to prove, so addresses must be kept secret */
    size_t key_size;       /* 16 to 4096 bytes */
    /* (optional) Told each time somebody is turned away who said anything, in the thread of the call that waits: one
     * sentence, which names the address and the reason. Told also that this process itself has to wait: because a group
     * that is about to end has the meeting point, or, once, because nobody has answered there yet. */
    void (*refused)(void *context, const char *text);
    /* (optional) Asked several times a second while a call waits for others: anything but 0 ends it with
     * TW_ERROR_PEER. For programs that can be interrupted. */
    int (*stopped)(void *context);
    void *context; /* of both */
    int sealed;    /* 1: what goes over the comm will be sealed (thinwire_sealed.h). tw_tcp_join lets nobody in who says
                    * otherwise, so that one process that does not seal is named. It seals nothing itself */
    size_t behind; /* 1: nobody can connect to this process, as behind a router: it connects to the others, and to those
                    * of its kind through one that can be reached, which carries what the two say. With 0 tw_tcp_join
                    * and tw_members_join find out, within 3 seconds */
} tw_tcp_options;

/* A rank that listens, and later the record of who came. One thread at a time. */
typedef struct tw_tcp tw_tcp;

/* Begins to listen. `options` may be NULL: all defaults; what it points to is copied. TW_ERROR_ARGUMENT: an option is
 * out of range; TW_ERROR_SYSTEM: no port is free, `bind` is no address of this machine. */
TW_API tw_status tw_tcp_listen(const tw_tcp_options *options, tw_tcp **tcp);

/* What the other ranks need: one line without blanks, such as "10.0.0.5:29400#c0ffee..."; IPv6 in brackets. It is the
 * tcp's. NULL: "". */
TW_API const char *tw_tcp_address(const tw_tcp *tcp);

/* Connects the group: addresses[r] is what tw_tcp_address said on rank r. Every rank makes this call with the same
 * addresses in the same order, and it returns when this rank is connected with all others. TW_ERROR_PEER: `seconds`
 * passed first; the text says who is missing, and who was turned away. TW_ERROR_ARGUMENT: rank, size or seconds cannot
 * be, and the port stays open; or an address cannot be, or addresses[rank] is another than that of `tcp`.
 * TW_ERROR_ORDER: it has been called before. Otherwise the port is closed when it returns, well or not. `tcp` stays the
 * caller's, and has nothing to do with the comm any more. */
TW_API tw_status tw_tcp_connect(tw_tcp *tcp, int rank, int size, const char *const *addresses, double seconds,
                                tw_comm **comm);

/* How many connections were turned away so far, and in *last, where it is not NULL, the sentence about the last one
 * (""; it is the tcp's). NULL: 0. */
TW_API uint64_t tw_tcp_refused(const tw_tcp *tcp, const char **last);

/* NULL does nothing. */
TW_API void tw_tcp_destroy(tw_tcp *tcp);

/* A meeting point: `size` processes call this with the same HOST:PORT ("10.0.0.5:29400", "node1:29400", "[::1]:29400")
 * and the same key. One of them, for whom HOST is the machine it runs on and PORT is free, brings them together. `rank`
 * is the one this process wants, or -1: then the one that brings them together takes the lowest that nobody wants, and
 * the rest go by address, and of one machine by who comes first. Who wants another rank than 0 leaves it to others to
 * bring them together; who wants rank 0 does it whatever HOST is, so that HOST may be a name that only others can use.
 * `options` are as for tw_tcp_listen, for the connections between ranks; without `advertise` they are made to the
 * address that this process reached HOST from. Without a key anybody who reaches the port can take part.
 *
 * TW_ERROR_PEER: `seconds` passed first, or the one that brings them together says why this process may not take part:
 * its rank is taken, its size is another, it seals and the others do not. TW_ERROR_ARGUMENT, TW_ERROR_SYSTEM: as for
 * tw_tcp_listen, or HOST cannot be resolved.
 *
 * As long as the comm lives and no rank has left, whoever comes to the meeting point with the key is told that the
 * group is complete: TW_ERROR_PEER, at once. Where a rank has left, it waits until the one that brought them together
 * has gone, too, and then begins the next group. A process that found PORT taken takes the place of the one that brings
 * them together when that one goes before the group is complete. */
TW_API tw_status tw_tcp_join(const char *meeting, int rank, int size, const tw_tcp_options *options, double seconds,
                             tw_comm **comm);

#ifdef __cplusplus
}
#endif
#endif
