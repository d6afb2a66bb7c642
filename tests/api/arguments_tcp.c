/* Options of thinwire_tcp.h and thinwire_members.h that cannot be. (That no pointer may be NULL is smoke.py's.) */
#include <thinwire/thinwire_members.h>

#include "support/assert.h"

TEST(test_members)
{
    tw_members *members = NULL;
    tw_comm *comm = NULL;
    tw_generation generation = {.struct_size = 3};
    tw_members_options options = {.struct_size = sizeof options, .quorum = -1};
    const char *meeting = "127.0.0.1:49999"; /* opens a group */
    assert_fails(tw_members_join(meeting, "", &options, NULL, &members), TW_ERROR_ARGUMENT, "quorum");
    options.quorum = 0;
    options.grace = -1;
    assert_fails(tw_members_join(meeting, "", &options, NULL, &members), TW_ERROR_ARGUMENT, "grace");
    assert_ok(tw_members_join(meeting, "", NULL, NULL, &members));
    assert_fails(tw_members_next(members, 0, 0, &generation, &comm), TW_ERROR_ARGUMENT, "struct_size");
    tw_members_destroy(members);
}

/* One that demands something of which this library has not heard is not served without it. */
TEST(test_options_of_any_size)
{
    tw_tcp *tcp = NULL;
    tw_comm *comm = NULL;
    static const size_t wrong[] = {0, 1, sizeof(size_t) + 1, 1032, SIZE_MAX};
    struct {
        tw_tcp_options known;
        const void *later;
    } newer = {.later = wrong};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        newer.known.struct_size = wrong[i];
        assert_fails(tw_tcp_listen(&newer.known, &tcp), TW_ERROR_ARGUMENT, "struct_size");
    }
    newer.known.struct_size = sizeof newer;
    assert_int_equal(tw_tcp_listen(&newer.known, &tcp), TW_ERROR_UNSUPPORTED);
    assert_fails(tw_tcp_join("127.0.0.1:1", 0, 1, &newer.known, 1, &comm), TW_ERROR_UNSUPPORTED, "newer");
    assert_true(!tcp && !comm);
    newer.later = NULL;
    assert_ok(tw_tcp_listen(&newer.known, &tcp));
    tw_tcp_destroy(tcp);
}

RUN_TESTS(NULL, NULL)
