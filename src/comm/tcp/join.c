/* tw_tcp_join: becomes the meeting's server, or goes to it, whichever comes to something first. */
#include "rendezvous.h"

#include "check.h"

#include <math.h>
#include <poll.h>

enum { MOST_RANKS = 16384 };

#define FIRST_PAUSE 0.02  /* seconds, before a port is tried again that is taken, and nobody listens */
#define LONGEST_PAUSE 0.2 /* how soon a caller that wants no more is heard */

/* A client on the server's machine takes its place when it goes before the group is complete. */
static tw_status rendezvous_meet(tcp_rendezvous *rendezvous, tw_comm **comm)
{
    for (double pause = FIRST_PAUSE;; pause = fmin(pause * 1.5, LONGEST_PAUSE)) {
        tcp_acceptor *acceptor;
        int is_taken, is_free;
        TRY(tcp_rendezvous_try_to_listen(rendezvous, &acceptor, &is_taken));
        if (acceptor) return tcp_rendezvous_serve(rendezvous, acceptor, comm);
        TRY(tcp_rendezvous_ask(rendezvous, is_taken, &is_free, comm));
        if (!is_free) return TW_OK;
        rendezvous->why = "the port is taken, and nobody listens there";
        poll(NULL, 0, (int)(pause * 1e3));
    }
}

static tw_status rendezvous_check(const char *meeting, int rank, int size, double seconds, tw_comm **comm)
{
    TRY(tw_given(meeting, "meeting"));
    TRY(tw_given(comm, "comm"));
    if (size < 1 || size > MOST_RANKS || rank < -1 || rank >= size)
        return tw_fail(TW_ERROR_ARGUMENT, "rank %d of %d: want 1 to %d ranks, counted from 0, or rank -1 for any", rank,
                       size, MOST_RANKS);
    if (!(seconds > 0 && seconds <= 1e9))
        return tw_fail(TW_ERROR_ARGUMENT, "a deadline of %g seconds: want more than 0, at most 1e9", seconds);
    return TW_OK;
}

tw_status tw_tcp_join(const char *meeting, int rank, int size, const tw_tcp_options *options, double seconds,
                      tw_comm **comm)
{
    tcp_rendezvous rendezvous = {.meeting = meeting, .rank = rank, .size = size, .seconds = seconds};
    TRY(rendezvous_check(meeting, rank, size, seconds, comm));
    TRY(tcp_options_read(options, &rendezvous.options));
    TRY(tcp_meeting_read(meeting, &rendezvous.at));
    if (!tcp_hello_begin()) return tw_fail(TW_ERROR_SYSTEM, "this system has no random numbers");
    rendezvous.deadline = tw_clock() + seconds;
    tcp_secret_make(rendezvous.options.key, rendezvous.options.key_size, TCP_OF_A_MEETING, NULL, 0, rendezvous.secret);
    return rendezvous_meet(&rendezvous, comm);
}
