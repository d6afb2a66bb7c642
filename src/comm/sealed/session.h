/* session.h - how ranks that know a key agree on the keys of a session.
 *
 * Each rank draws a random number and tells it to every other one, signed with the key, with both ranks and the size.
 * The numbers of all, in order of rank, and the key make the session's key; each ordered pair has one derived from
 * that. As each rank has drawn a part of it just now, nothing that was recorded in another session fits this one. Then
 * each shows every other one that it has come to the same session, before the first message. */
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
