/* Whom a gossip waits for: how long a rank may say nothing, and what is not its fault. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/cmocka.h"

#include "error.h"
#include "members.h"
#include "support/absent.h"

#define DEADLINE 600.0 /* never reached by itself */

typedef struct watcher {
    absent peer;
    tw_comm *comm;
    tw_members members;
} watcher;

static void begin(watcher *me, int hears)
{
    *me = (watcher){.peer = {.arrives = (double)INFINITY}};
    me->comm = absent_open(&me->peer, 2, hears);
    assert_int_equal(tw_comm_set_timeout(me->comm, DEADLINE), TW_OK);
    assert_int_equal(tw_members_create(me->comm->channel, &me->members), TW_OK);
    assert_int_equal(tw_members_tend(&me->members), TW_OK);
    tw_members_await(&me->members, 1);
}

static void end(watcher *me)
{
    tw_members_release(&me->members);
    tw_comm_destroy(me->comm);
}

/* The last time that this process did anything was so many seconds ago. */
static void stand_still(watcher *me, double seconds)
{
    me->members.tended -= seconds;
    assert_int_equal(tw_members_tend(&me->members), TW_OK);
}

/* Of so many short standstills the last one is too many. 0: none of a thousand is. */
static int count_looks(watcher *me)
{
    for (int looks = 1; looks <= 1000; looks++) {
        stand_still(me, DEADLINE / 8);
        if (tw_members_silent(&me->members, 1)) return looks;
    }
    return 0;
}

static void write_down(void *context, tw_log_level level, const char *text)
{
    assert_int_equal(level, TW_LOG_WARNING);
    snprintf(context, 256, "%s", text);
}

TEST(a_rank_is_silent_for_the_deadline)
{
    for (int hears = 0; hears < 2; hears++) {
        watcher me;
        begin(&me, hears);
        assert_int_equal(count_looks(&me), 8);
        tw_members_await(&me.members, 1); /* a wait of its own */
        assert_int_equal(count_looks(&me), 8);
        end(&me);
    }
}

TEST(a_rank_that_answers_is_waited_for)
{
    watcher me;
    begin(&me, 1);
    me.peer.lives = (double)INFINITY;
    assert_int_equal(tw_comm_set_patience(me.comm, 5 * DEADLINE), TW_OK);
    tw_members_await(&me.members, 1);
    assert_int_equal(count_looks(&me), 5 * 8);
    end(&me);
}

/* A rank that says nothing, and one that is there and does not come to its turn. The log is told as well. */
TEST(who_is_given_up_is_told_by_the_option)
{
    for (int lives = 0; lives < 2; lives++) {
        watcher me;
        char told[256] = "";
        begin(&me, 1);
        me.peer.lives = lives ? (double)INFINITY : 0;
        assert_int_equal(tw_comm_set_patience(me.comm, 5 * DEADLINE), TW_OK);
        tw_members_await(&me.members, 1);
        assert_int_equal(count_looks(&me), lives ? 5 * 8 : 8);
        tw_set_log(write_down, told);
        assert_int_equal(tw_members_give_up(&me.members, 1), TW_ERROR_PEER);
        tw_set_log(NULL, NULL);
        assert_false(tw_members_has(&me.members, 1));
        assert_string_equal(tw_last_error(),
                            lives ? "rank 1 is there, but did not answer rank 0 within 3000 seconds: where it may be "
                                    "busy for longer, set a longer patience"
                                  : "rank 1 did not answer rank 0: nothing was heard of it for a timeout of 600 "
                                    "seconds");
        assert_non_null(strstr(told, tw_last_error()));
        end(&me);
    }
}

/* A machine that slept for a night has heard nobody, and nobody is lost for that. */
TEST(a_standstill_of_its_own_is_no_silence_of_others)
{
    watcher me;
    begin(&me, 0);
    stand_still(&me, 30000);
    assert_false(tw_members_silent(&me.members, 1));
    assert_true(tw_members_has(&me.members, 1));
    end(&me);
}

/* What ends while a rank resigns has words of its own. */
TEST(who_resigns_says_why)
{
    watcher me;
    begin(&me, 0);
    me.peer.fails = 1;
    (void)tw_fail(TW_ERROR_PACKET, "the reason for it");
    tw_members_resign(&me.members);
    assert_false(tw_members_has(&me.members, 1));
    assert_string_equal(tw_last_error(), "the reason for it");
    end(&me);
}

/* Over sockets a rank that has left could still begin to receive from itself, and would go on as half of the group. */
TEST(a_rank_that_has_left_does_not_go_on_alone)
{
    watcher me;
    uint64_t round;
    begin(&me, 0);
    tw_comm_leave(me.comm);
    tw_members_lose(&me.members, 1);
    assert_int_equal(tw_members_agree(&me.members, &round), TW_ERROR_PEER);
    assert_string_equal(tw_last_error(), "the group broke earlier: this rank has left it");
    end(&me);
}

RUN_TESTS(NULL, NULL)
