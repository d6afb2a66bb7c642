/* The weights that adapters are trained beside: a rank that has them itself is not sent them, and one that has others,
 * or none, is. Threads stand for ranks on machines of their own. */
#include "base.h"
#include "checksum.h"
#include "crew.h"

enum { RANKS = 2, VALUES = 1000 };

const char *__wrap_tw_comm_transport(const tw_comm *comm);

const char *__wrap_tw_comm_transport(const tw_comm *comm)
{
    (void)comm;
    return "tcp";
}

typedef struct story {
    const char *paths[RANKS];
    float values[RANKS][VALUES]; /* that each ends with */
    uint64_t sent;               /* by rank 0 */
} story;

static const tw_tensor table[] = {{.name = "model.weight", .dims = 1, .shape = {VALUES}}};

static void write_base(const char *path, float first)
{
    float values[VALUES];
    tw_state *state;
    for (int i = 0; i < VALUES; i++) values[i] = first + (float)i;
    assert_ok(tw_state_create(&state));
    assert_ok(tw_state_put(state, table[0].name, TW_F32, 1, table[0].shape, values));
    assert_ok(checksum_put(state));
    assert_ok(tw_state_save(state, path));
    tw_state_destroy(state);
}

static tw_status play(crew_member *self)
{
    story *s = self->context;
    learner l = {.based = true,
                 .buffers = s->values[self->rank],
                 .buffer_tensors = (tw_tensor *)table,
                 .buffer_tensor_count = 1,
                 .buffer_count = VALUES};
    worker *w = calloc(1, sizeof *w);
    if (!w) return TW_ERROR_MEMORY;
    *w = (worker){.comm = self->comm, .rank = self->rank, .size = RANKS, .learner = &l};
    snprintf(w->base.path, sizeof w->base.path, "%s", s->paths[0]);
    uint32_t sum = self->rank == 0 ? checksum_tensor(table[0].name, l.buffers, VALUES * sizeof(float)) : 0;
    snprintf(w->base.sum, sizeof w->base.sum, "%08x", sum);
    tw_traffic traffic = {.struct_size = sizeof traffic};
    tw_status status = base_spread(w, s->paths[self->rank]);
    if (status == TW_OK) status = tw_comm_traffic(self->comm, &traffic);
    if (self->rank == 0) s->sent = traffic.bytes_sent;
    free(w);
    return status;
}

/* What rank 0 sends while the other has the base at `path`. */
static uint64_t sent_beside(const char *path)
{
    static story s;
    crew_member crew[RANKS];
    s = (story){.paths = {"rank 0 has read it", path}};
    for (int i = 0; i < VALUES; i++) s.values[0][i] = 1 + (float)i;
    crew_run(crew, RANKS, (crew_member){.play = play, .context = &s});
    crew_must_succeed(crew, RANKS);
    assert_memory_equal(s.values[0], s.values[1], sizeof s.values[0]);
    assert_true(s.values[1][VALUES - 1] == VALUES);
    return s.sent;
}

TEST_IN_FOLDER(who_has_it_is_not_sent_it)
{
    (void)state;
    write_base(in_folder("own"), 1);
    write_base(in_folder("other"), 2);
    const uint64_t few = sent_beside(in_folder("own")), many = sent_beside(in_folder("other"));
    assert_true(many - few >= VALUES * sizeof(float));
    assert_int_equal(sent_beside(in_folder("missing")), many);
}

RUN_TESTS(NULL, NULL)
