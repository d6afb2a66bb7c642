/* What tw_comm_open("sealed") calls: the environment says what to seal, and with which key. */
#include "check.h"
#include "environment.h"

#include <thinwire/thinwire_sealed.h>

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASON = 512 };

TW_API tw_status tw_transport_open(tw_comm **comm);

static tw_status need(const char *name, const char *what, const char **value)
{
    *value = getenv(name);
    if (*value && **value) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "%s is not set in the environment: want %s", name, what);
}

static tw_status limit(tw_comm *inner)
{
    double seconds = tw_comm_timeout(inner);
    TRY(tw_environment_seconds("THINWIRE_SEAL_SECONDS", &seconds));
    return tw_comm_set_timeout(inner, seconds);
}

/* The others are in the group by now, so that one without a key is missed at once, and not after a deadline. */
static tw_status open_seal(tw_comm *inner, const char *path, tw_comm **comm)
{
    unsigned char key[TW_SEAL_KEY_BYTES];
    char reason[REASON];
    tw_status status = limit(inner);
    if (status == TW_OK) status = tw_seal_read_key(path, key, NULL);
    if (status == TW_OK) {
        status = tw_comm_create_sealed(inner, key, sizeof key, comm);
        sodium_memzero(key, sizeof key);
        return status;
    }
    snprintf(reason, sizeof reason, "%s", tw_last_error());
    tw_comm_destroy(inner);
    return tw_fail(status, "%s", reason);
}

tw_status tw_transport_open(tw_comm **comm)
{
    const char *over = NULL, *path = NULL;
    tw_comm *inner;
    TRY(tw_given(comm, "comm"));
    TRY(need("THINWIRE_SEAL_OVER", "the name of the transport to seal, such as mpi", &over));
    TRY(need("THINWIRE_KEY_FILE", "the path of a key", &path));
    if (strcmp(over, "sealed") == 0)
        return tw_fail(TW_ERROR_ARGUMENT, "THINWIRE_SEAL_OVER is sealed: want another transport, such as mpi");
    TRY(tw_comm_open(over, &inner));
    return open_seal(inner, path, comm);
}
