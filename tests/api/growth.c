/* What may grow, and what may not be in it yet: statuses and their numbers, room that is reserved, a table of a
 * transport that is older or newer than the library. */
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_by_hand.h>
#include <thinwire/thinwire_gossip.h>
#include <thinwire/thinwire_plugin.h>
#include <thinwire/thinwire_sim.h>

#include "hollow.h"
#include "support/assert.h"

enum { COUNT = 6 };
static float values[COUNT] = {1, 2, 3, 4, 5, 6};
static int anything;

/* ---- statuses ---------------------------------------------------------------------------------------------------- */

/* The numbers are in programs that were compiled long ago. */
TEST(test_statuses_keep_their_numbers)
{
    static const char *const names[] = {"TW_OK",
                                        "TW_ERROR_ARGUMENT",
                                        "TW_ERROR_SPEC",
                                        "TW_ERROR_MEMORY",
                                        "TW_ERROR_IO",
                                        "TW_ERROR_FORMAT",
                                        "TW_ERROR_PACKET",
                                        "TW_ERROR_PEER",
                                        "TW_ERROR_NONFINITE",
                                        "TW_ERROR_STATE",
                                        "TW_ERROR_UNSUPPORTED",
                                        "TW_ERROR_SYSTEM",
                                        "TW_ERROR_ORDER",
                                        "TW_SKIPPED"};
    enum { KNOWN = sizeof names / sizeof *names };
    for (int i = 0; i < KNOWN; i++) assert_string_equal(tw_status_name((tw_status)i), names[i]);
    assert_string_equal(tw_status_name((tw_status)KNOWN), "TW_UNKNOWN");
}

/* A name says whether it is an error, and so does the function, of statuses that are still to come, too. */
TEST(test_what_is_an_error_is_called_so)
{
#define CHECK_NAME(name, value, sentence)                                                                              \
    assert_int_equal(tw_status_is_error(name), strncmp(#name, "TW_ERROR_", 9) == 0);                                   \
    assert_true(strlen(tw_status_sentence(name)) > 0);
    TW_STATUS_MAP(CHECK_NAME)
#undef CHECK_NAME
    assert_true(tw_status_is_error((tw_status)99));
}

/* ---- reserved room ----------------------------------------------------------------------------------------------- */

TEST(test_tensors_have_nothing_in_their_room)
{
    const float *starts[] = {values};
    for (int slot = 0; slot < 2; slot++) {
        tw_tensor table[] = {{.name = "w", .dims = 1, .shape = {COUNT}}};
        tw_comm *comm;
        tw_scheme *scheme = NULL;
        tw_reducer *reducer = NULL;
        tw_gossip *gossip = NULL;
        table[0].reserved[slot] = &anything;
        assert_ok(tw_comm_create_threads(1, &comm));
        assert_fails(tw_scheme_create("topk", table, 1, 0, 1, &scheme), TW_ERROR_ARGUMENT, "reserved of a tw_tensor");
        assert_fails(tw_reducer_create(comm, "topk", table, 1, &reducer), TW_ERROR_ARGUMENT, "reserved of a tw_tensor");
        assert_fails(tw_gossip_create(comm, "dpsgd", table, 1, starts, &gossip), TW_ERROR_ARGUMENT,
                     "reserved of a tw_tensor");
        assert_true(!scheme && !reducer && !gossip);
        tw_comm_destroy(comm);
    }
}

/* The round can still be answered afterwards: nothing has happened. */
TEST(test_rounds_are_of_host_memory)
{
    const tw_tensor table[] = {{.name = "w", .dims = 1, .shape = {COUNT}}};
    float gradient[COUNT] = {1, 2, 3, 4, 5, 6}, *buffers[] = {gradient};
    tw_round round = {0};
    tw_scheme *scheme;
    assert_ok(tw_scheme_create("allreduce", table, 1, 0, 1, &scheme));
    assert_ok(tw_scheme_begin(scheme, buffers, -1));
    assert_ok(tw_scheme_next(scheme, &round));
    assert_true(round.kind == TW_ROUND_ALLREDUCE && round.memory == TW_MEMORY_HOST && !round.stream);
    round.memory = (tw_memory_kind)1;
    assert_fails(tw_scheme_next(scheme, &round), TW_ERROR_UNSUPPORTED, "host memory");
    round.memory = TW_MEMORY_HOST;
    round.stream = &anything;
    assert_fails(tw_scheme_next(scheme, &round), TW_ERROR_UNSUPPORTED, "streams");
    round.stream = NULL;
    round.reserved[1] = &anything;
    assert_fails(tw_scheme_next(scheme, &round), TW_ERROR_ARGUMENT, "reserved of a tw_round");
    round.reserved[1] = NULL;
    assert_ok(tw_scheme_next(scheme, &round));
    assert_int_equal(round.kind, TW_ROUND_DONE);
    assert_memory_equal(gradient, values, sizeof values);
    tw_scheme_destroy(scheme);
}

TEST(test_entries_leave_their_room_empty)
{
    tw_state *saved;
    tw_state_entry entry;
    const size_t shape[] = {COUNT};
    memset(&entry, 0xA5, sizeof entry);
    assert_ok(tw_state_create(&saved));
    assert_ok(tw_state_put(saved, "t", TW_F32, 1, shape, values));
    assert_ok(tw_state_at(saved, 0, &entry));
    assert_true(!entry.reserved[0] && !entry.reserved[1]);
    tw_state_destroy(saved);
}

/* ---- tables of transports ---------------------------------------------------------------------------------------- */

static void count_destroyed(void *self)
{
    ++*(int *)self;
}

static const tw_transport_ops hollow = HOLLOW(count_destroyed);

/* A newer program's struct: zero where this library knows nothing, or in use. */
#define NEWER(type)                                                                                                    \
    struct {                                                                                                           \
        type known;                                                                                                    \
        double later[2];                                                                                               \
    }

/* Nothing happens under an option, a gradient's word or a function that is not looked at. */
TEST(test_what_is_not_known_may_not_be_used)
{
    const tw_tensor table[] = {{.name = "w", .dims = 1, .shape = {COUNT}}};
    float gradient[COUNT] = {0};
    tw_comm *comm, *other = NULL;
    tw_reducer *reducer;
    tw_world *world = NULL;
    int destroyed = 0;
    NEWER(tw_gradient) word = {.known = {.struct_size = sizeof word, .data = gradient}};
    NEWER(tw_world_options) options = {.known = {.struct_size = sizeof options, .workers = 1}};
    NEWER(tw_transport_ops) ops = {.known = hollow};
    ops.known.struct_size = sizeof ops;
    assert_ok(tw_comm_create_threads(1, &comm));
    assert_ok(tw_reducer_create(comm, "topk", table, 1, &reducer));
    for (int i = 0; i < 2; i++) {
        word.later[i] = options.later[i] = ops.later[i] = 1;
        assert_fails(tw_reducer_submit_with(reducer, 0, &word.known), TW_ERROR_UNSUPPORTED, "a tw_gradient of ");
        assert_fails(tw_world_create(&options.known, &world), TW_ERROR_UNSUPPORTED, "a tw_world_options of ");
        assert_fails(tw_comm_create_custom(&ops.known, &destroyed, 0, 1, &other), TW_ERROR_UNSUPPORTED,
                     "a tw_transport_ops of ");
        word.later[i] = options.later[i] = ops.later[i] = 0;
    }
    assert_true(!world && !other && !destroyed);
    assert_ok(tw_reducer_submit_with(reducer, 0, &word.known));
    assert_ok(tw_reducer_wait(reducer));
    assert_ok(tw_world_create(&options.known, &world));
    assert_ok(tw_comm_create_custom(&ops.known, &destroyed, 0, 1, &other));
    tw_world_destroy(world);
    tw_comm_destroy(other);
    tw_reducer_destroy(reducer);
    tw_comm_destroy(comm);
}

/* A table in a block of exactly its own size, so that reading on would be seen. */
static tw_status create_of_size(size_t size, int *destroyed)
{
    tw_comm *comm = NULL;
    tw_transport_ops *ops = calloc(1, size);
    assert_non_null(ops);
    memcpy(ops, &hollow, size < sizeof hollow ? size : sizeof hollow);
    memcpy(ops, &size, sizeof size);
    tw_status status = tw_comm_create_custom(ops, destroyed, 0, 1, &comm);
    free(ops); /* the comm has a copy */
    tw_comm_destroy(comm);
    return status;
}

/* Of a table that ends before destroy nothing is called. One that ends behind it is that of a transport which an
 * earlier header made shorter; and one that a later header made longer is taken as far as it is known. */
TEST(test_tables_of_any_size)
{
    int destroyed = 0;
    assert_ok(create_of_size(sizeof hollow, &destroyed));
    assert_ok(create_of_size(sizeof hollow + 64, &destroyed));
    assert_ok(create_of_size(offsetof(tw_transport_ops, signs), &destroyed));
    assert_int_equal(destroyed, 3);
    for (size_t size = sizeof size; size <= offsetof(tw_transport_ops, destroy); size += sizeof(void *))
        assert_fails(create_of_size(size, &destroyed), TW_ERROR_ARGUMENT, "version");
    assert_int_equal(destroyed, 3);
}

TEST(test_tables_without_a_size)
{
    static const size_t wrong[] = {0, 4, 7, (size_t)1 << 20, SIZE_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tw_transport_ops ops = hollow;
        tw_comm *comm = NULL;
        int destroyed = 0;
        ops.struct_size = wrong[i];
        assert_fails(tw_comm_create_custom(&ops, &destroyed, 0, 1, &comm), TW_ERROR_ARGUMENT, "struct_size");
        assert_true(!comm && !destroyed);
    }
}

TEST(test_tables_are_of_host_memory)
{
    tw_transport_ops ops = hollow;
    tw_comm *comm = NULL;
    int destroyed = 0;
    ops.memory = (tw_memory_kind)1;
    assert_fails(tw_comm_create_custom(&ops, &destroyed, 0, 1, &comm), TW_ERROR_UNSUPPORTED, "host memory");
    assert_true(!comm && destroyed == 1);
}

RUN_TESTS(NULL, NULL)
