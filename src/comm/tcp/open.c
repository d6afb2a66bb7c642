/* What tw_comm_open("tcp") calls: a meeting point that the environment tells of. */
#include "acceptor.h"
#include "environment.h"
#include "key_file.h"
#include "listener.h"
#include "peer.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <thinwire/thinwire_members.h>

enum { MOST_TOLD = 20, REMEMBERED = 8 };

TW_API tw_status tw_transport_open(tw_comm **comm);

static tw_status read_key(unsigned char key[TW_SEAL_KEY_BYTES], tw_tcp_options *options)
{
    const char *path = getenv("THINWIRE_KEY_FILE");
    if (!path) return TW_OK;
    TRY(tw_key_file_read(path, key, NULL));
    options->key = key;
    options->key_size = TW_SEAL_KEY_BYTES;
    return TW_OK;
}

/* What tw_comm_open("sealed") was told. */
static int will_be_sealed(void)
{
    const char *over = getenv("THINWIRE_SEAL_OVER");
    return over && strcmp(over, "tcp") == 0;
}

static tw_status read_reachable(size_t *behind)
{
    const char *text = getenv("THINWIRE_REACHABLE");
    if (text && strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
        return tw_fail(TW_ERROR_ARGUMENT, "THINWIRE_REACHABLE is \"%.40s\" in the environment: want yes or no", text);
    *behind = text && strcmp(text, "no") == 0;
    return TW_OK;
}

static tw_status read_environment(tw_tcp_options *options)
{
    options->advertise = getenv("THINWIRE_ADVERTISE");
    options->bind = getenv("THINWIRE_BIND");
    TRY(tw_environment_number((const char *const[]){"THINWIRE_STREAMS", NULL}, &options->streams));
    TRY(read_reachable(&options->behind));
    TRY(tw_environment_number((const char *const[]){"THINWIRE_PORT", NULL}, &options->first_port));
    return tw_environment_number((const char *const[]){"THINWIRE_LAST_PORT", NULL}, &options->last_port);
}

tw_status tw_members_environment(tw_tcp_options *options)
{
    tw_tcp_options all = {0};
    TRY(tw_given(options, "options"));
    TRY(tcp_read_known(&all, sizeof all, options, "tw_tcp_options"));
    TRY(read_environment(&all));
    memcpy(options, &all, all.struct_size < sizeof all ? all.struct_size : sizeof all);
    return TW_OK;
}

/* --- who is turned away ---------------------------------------------------------------------------------------- */

/* A person is told the same but once, and of strangers no more than fit on a screen. */
typedef struct news {
    char texts[REMEMBERED][TCP_REASON];
    int count;
} news;

static int is_known(const news *all, const char *text)
{
    for (int i = 0; i < all->count && i < REMEMBERED; i++)
        if (strcmp(all->texts[i], text) == 0) return 1;
    return 0;
}

static void open_tell(void *context, const char *text)
{
    news *all = context;
    if (is_known(all, text) || all->count > MOST_TOLD) return;
    snprintf(all->texts[all->count % REMEMBERED], TCP_REASON, "%s", text);
    if (all->count++ == MOST_TOLD) text = "more connections are refused than are told of here";
    tw_log(TW_LOG_WARNING, "%s", text);
}

/* --- the whole ------------------------------------------------------------------------------------------------- */

tw_status tw_transport_open(tw_comm **comm)
{
    unsigned char key[TW_SEAL_KEY_BYTES];
    news all = {.count = 0};
    tw_tcp_options options = {
        .struct_size = sizeof options, .refused = open_tell, .context = &all, .sealed = will_be_sealed()};
    const char *meeting = getenv("THINWIRE_JOIN");
    int rank = -1, size = 0;
    double seconds = 600;
    TRY(tw_given(comm, "comm"));
    if (!meeting)
        return tw_fail(TW_ERROR_ARGUMENT, "transport \"tcp\" needs a meeting point: set THINWIRE_JOIN to HOST:PORT");
    TRY(tw_environment_group("tcp", &rank, &size, &seconds));
    TRY(read_environment(&options));
    TRY(read_key(key, &options));
    tw_status status = tw_tcp_join(meeting, rank, size, &options, seconds, comm);
    sodium_memzero(key, sizeof key);
    return status;
}
