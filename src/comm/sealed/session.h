/* session.h - how ranks that know a key agree on the keys of a session.
 *
 * Each rank draws a key of its own for X25519 and tells its public half to every other one, signed with the key that
 * all know, with both ranks and the size. The public halves of all, in order of rank, and the common key make the
 * session's key. What a pair alone can compute of its own two halves makes the pair's, and each direction has one
 * derived from that. As each rank has drawn its part just now, nothing that was recorded in another session fits this
 * one; and as it forgets what it has drawn, the common key alone opens nothing that was recorded, neither for a member
 * that carried it nor for one who gets the key later. Then each shows every other one that it has come to the same
 * session, before the first message. */
#ifndef TW_COMM_SEALED_SESSION_H
#define TW_COMM_SEALED_SESSION_H

#include <thinwire/thinwire_plugin.h>

enum { TW_SEAL_KEY = 32 };

/* The comm beneath. */
typedef struct tw_beneath {
    tw_transport_ops ops;
    void *self;
    int rank, size;
    double timeout;
} tw_beneath;

/* Keys of what goes to each rank, and of what comes from it. */
typedef struct tw_session {
    int size;
    unsigned char (*to)[TW_SEAL_KEY], (*from)[TW_SEAL_KEY];
} tw_session;

tw_status tw_session_open(const tw_beneath *beneath, const void *key, size_t key_bytes, tw_session *session);
/* Forgets the keys. Also after an open that failed, or none, if the session is zero. */
void tw_session_close(tw_session *session);

#endif
