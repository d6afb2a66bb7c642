/* The hierarchical form, option per_host: the workers of a host act as one, with every scheme of the list. */
#include "gossip_world.h"

#include "memory.h"
#include "support/ranks.h"

#include <thinwire/thinwire_gossip.h>

enum { PLAYED = 12, AGREEMENT = 48 /* bytes to each rank that is a power of two away, when a gossip is made */ };

typedef struct play {
    int per_host;
    int alike;                                      /* all members of a host take the same steps */
    int sick_step;                                  /* rank 1 hands over a NaN; 0: never */
    tw_status sick;                                 /* what rank 1 got for it */
    float starts[MOST_WORKERS][PLAYED][MOST_WIDTH]; /* what each read gave */
} play;

static float step_of(const play *self, int rank, int k, int i)
{
    return scene_draw(5 + (uint64_t)k, self->alike ? rank / self->per_host : rank, i);
}

/* Members of a host take as long as each other, hosts do not. */
static tw_status walk(scene *all, int rank, tw_gossip *gossip)
{
    play *self = all->context;
    tw_status status = TW_OK;
    for (int k = 0; status == TW_OK && k < PLAYED; k++) {
        float step[MOST_WIDTH];
        status = scene_read(all, rank, gossip);
        memcpy(self->starts[rank][k], all->at[rank], sizeof all->at[rank]);
        for (int i = 0; i < all->width; i++) step[i] = step_of(self, rank, k, i);
        if (rank == 1 && self->sick_step && k == self->sick_step) step[all->width - 1] = NAN;
        tw_world_compute(1 + 0.3 * scene_draw(2, rank / self->per_host, k));
        if (status == TW_OK) status = scene_add(gossip, step);
        if (status == TW_SKIPPED && k == self->sick_step) {
            self->sick = rank == 1 ? status : self->sick;
            status = TW_OK;
        }
    }
    return status == TW_OK ? scene_finish(all, rank, gossip) : status;
}

/* `scheme` among `hosts` hosts of `per_host` workers; 0: the plain scheme. */
static scene *run(const char *scheme, int hosts, int per_host, play *self)
{
    char spec[96];
    snprintf(spec, sizeof spec, per_host ? "%s:per_host=%d" : "%s", scheme, per_host);
    self->per_host = per_host ? per_host : 1;
    scene *all = scene_run((scene){.spec = spec,
                                   .workers = hosts * self->per_host,
                                   .bandwidth = 1e4,
                                   .latency = 1e-3,
                                   .per_host = per_host,
                                   .play = walk,
                                   .context = self});
    all->spec = scheme;
    return all;
}

TEST(test_members_hold_the_same_bits)
{
    for (size_t s = 0; s < tw_gossips_count(); s++)
        for (int per_host = 2; per_host <= 3; per_host++) {
            play *self = calloc(1, sizeof *self);
            scene *all = run(tw_gossips_name(s), 3, per_host, self);
            for (int rank = 0; rank < all->workers; rank++) {
                int first = rank / per_host * per_host;
                assert_memory_equal(self->starts[rank], self->starts[first], sizeof self->starts[first]);
                assert_memory_equal(all->at[rank], all->at[0], sizeof all->at[0]);
                assert_int_equal(all->stats[rank].steps, PLAYED);
            }
            assert_memory_not_equal(self->starts[0], self->starts[per_host], sizeof self->starts[0]);
            for (int i = 0; i < all->width; i++) { /* no step is lost: the consensus is the sum of the means */
                double sum = 0;
                for (int rank = 0; rank < all->workers; rank++)
                    for (int k = 0; k < PLAYED; k++) sum += step_of(self, rank, k, i);
                assert_float_equal(all->at[0][i], (float)(sum / all->workers), 2e-6);
            }
            free(all);
            free(self);
        }
}

/* Schemes whose weights at a read are all steps so far: on one host those of synchronous SGD. */
TEST(test_one_host_is_synchronous_sgd)
{
    static const char *const schemes[] = {"dpsgd", "adpsgd-fixed", "adpsgd-random", "prague", "adpsgd-d1"};
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++)
        for (int workers = 1; workers <= 5; workers++) {
            play *self = calloc(1, sizeof *self);
            scene *all = run(schemes[s], 1, workers, self);
            for (int i = 0; i < all->width; i++) {
                float weight = 0;
                for (int k = 0; k < PLAYED; k++) {
                    assert_memory_equal(&self->starts[workers - 1][k][i], &weight, sizeof weight);
                    /* What a reducer of allreduce makes of these: shares, added in rank order. */
                    float share = 1.0f / (float)workers, mean = step_of(self, 0, k, i) * share;
                    for (int rank = 1; rank < workers; rank++) mean += step_of(self, rank, k, i) * share;
                    weight += mean;
                }
                assert_memory_equal(&all->at[0][i], &weight, sizeof weight);
            }
            free(all);
            free(self);
        }
}

/* Alone on its host, the first rank talks to nobody else: all traffic is the members'. In every step each sends its
 * part of the sum, and receives it. */
TEST(test_what_members_send_is_counted)
{
    enum { MEMBERS = 4 };
    play *self = calloc(1, sizeof *self);
    scene *all = run("adpsgd-random", 1, MEMBERS, self);
    uint64_t sent = 0, received = 0;
    for (int rank = 0; rank < MEMBERS; rank++) {
        uint64_t least = PLAYED * 2 * (MEMBERS - 1) * MOST_WIDTH * sizeof(float) / MEMBERS;
        assert_true(all->stats[rank].bytes_sent >= least);
        sent += all->stats[rank].bytes_sent;
        received += all->stats[rank].bytes_received;
    }
    assert_int_equal(sent, received);
    free(all);
    free(self);
}

/* What of that goes from this rank to other hosts. */
static uint64_t agreement_of(int rank, int workers, int per_host)
{
    uint64_t bytes = 0;
    for (int step = 1; step < workers; step *= 2)
        if ((rank + step) % workers / per_host != rank / per_host) bytes += AGREEMENT;
    return bytes;
}

/* A host of one is a worker; a host of two whose members take the same steps is one, too, to the other hosts. */
static void check_equal(const char *scheme, int hosts, int per_host)
{
    play *plain_play = calloc(1, sizeof *plain_play), *play_of_hosts = calloc(1, sizeof *play_of_hosts);
    play_of_hosts->alike = 1;
    plain_play->alike = 1;
    scene *plain = run(scheme, hosts, 0, plain_play), *among = run(scheme, hosts, per_host, play_of_hosts);
    int workers = among->workers;
    for (int host = 0; host < hosts; host++) {
        int first = host * per_host;
        assert_memory_equal(play_of_hosts->starts[first], plain_play->starts[host], sizeof plain_play->starts[host]);
        assert_memory_equal(among->at[first], plain->at[host], sizeof plain->at[host]);
        assert_int_equal(among->stats[first].rounds, plain->stats[host].rounds);
        /* And it sends what one sends; all ranks agree when it is made, once more where there are hosts. */
        uint64_t times = per_host > 1 ? 2 : 1, sent = plain->crossed[host] - agreement_of(host, hosts, 1);
        assert_true(hosts == 1 || sent > PLAYED * 4);
        assert_int_equal(among->crossed[first], sent + times * agreement_of(first, workers, per_host));
        for (int rank = first + 1; rank < first + per_host; rank++)
            assert_int_equal(among->crossed[rank], times * agreement_of(rank, workers, per_host));
    }
    free(plain);
    free(among);
    free(plain_play);
    free(play_of_hosts);
}

TEST(test_to_the_others_a_host_is_a_worker)
{
    for (size_t s = 0; s < tw_gossips_count(); s++)
        for (int hosts = 1; hosts <= 5; hosts += 2) {
            check_equal(tw_gossips_name(s), hosts, 1);
            check_equal(tw_gossips_name(s), hosts, 2);
            check_equal(tw_gossips_name(s), hosts, 4);
        }
}

/* A member that has come to its end answers those of its host that have not. */
static tw_status walk_some_way(scene *all, int rank, tw_gossip *gossip)
{
    tw_status status = TW_OK;
    for (int k = 0; status == TW_OK && k < rank * 3 % 7; k++) {
        float step[MOST_WIDTH];
        status = scene_read(all, rank, gossip);
        if (rank == 0 && k == 1) status = scene_read(all, rank, gossip); /* as often as one likes */
        for (int i = 0; i < all->width; i++) step[i] = scene_draw(5 + (uint64_t)k, rank, i);
        tw_world_compute(1 + rank % 2);
        if (status == TW_OK) status = scene_add(gossip, step);
    }
    return status == TW_OK ? scene_finish(all, rank, gossip) : status;
}

TEST(test_members_may_end_one_after_the_other)
{
    for (size_t s = 0; s < tw_gossips_count(); s++) {
        if (tw_gossips_is_synchronous(s)) continue;
        char spec[96];
        snprintf(spec, sizeof spec, "%s:per_host=3", tw_gossips_name(s));
        scene *all =
            scene_run((scene){.spec = spec, .workers = 9, .per_host = 3, .latency = 1e-3, .play = walk_some_way});
        for (int i = 0; i < all->width; i++) {
            double sum = 0;
            for (int rank = 0; rank < 9; rank++)
                for (int k = 0; k < rank * 3 % 7; k++) sum += scene_draw(5 + (uint64_t)k, rank, i);
            for (int rank = 0; rank < 9; rank++) assert_float_equal(all->at[rank][i], (float)(sum / 9), 1e-6);
        }
        free(all);
    }
}

/* ---- saved and continued ----------------------------------------------------------------------------------------- */

static tw_status descend(scene *all, int rank, tw_gossip *gossip)
{
    tw_status status = TW_OK;
    for (int k = 0; status == TW_OK && k < PLAYED; k++) {
        float step[MOST_WIDTH];
        status = scene_read(all, rank, gossip);
        for (int i = 0; i < all->width; i++) step[i] = -0.1f * (all->at[rank][i] - scene_draw(9, rank, i));
        if (status == TW_OK) status = scene_add(gossip, step);
    }
    tw_world_compute(1); /* nobody leaves while others still ask */
    return status == TW_OK ? scene_read(all, rank, gossip) : status;
}

static tw_status descend_twice(scene *all, int rank, tw_gossip *gossip)
{
    tw_status status = descend(all, rank, gossip);
    return status == TW_OK ? descend(all, rank, gossip) : status;
}

/* The first ranks keep what there is to keep; the others have nothing, and get it from them. */
static tw_status descend_and_save(scene *all, int rank, tw_gossip *gossip)
{
    tw_state **saved = all->context;
    tw_status status = descend(all, rank, gossip);
    if (status == TW_OK) status = tw_state_create(&saved[rank]);
    return status == TW_OK ? tw_gossip_save_state(gossip, "g/", saved[rank]) : status;
}

static tw_status load_and_descend(scene *all, int rank, tw_gossip *gossip)
{
    tw_state **saved = all->context;
    tw_status status = tw_gossip_load_state(gossip, "g/", saved[rank]);
    return status == TW_OK ? descend(all, rank, gossip) : status;
}

TEST(test_a_loaded_synchronous_gossip_continues_bit_for_bit)
{
    static const char *const specs[] = {"dpsgd:per_host=2", "adpsgd-d1:per_host=2", "adpsgd-d1:mode=B,per_host=2",
                                        "choco:per_host=2", "cold:per_host=2"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        tw_state *saved[6] = {0};
        scene set = {.spec = specs[s], .workers = 6, .per_host = 2, .play = descend_twice, .context = saved};
        scene *whole = scene_run(set);
        set.play = descend_and_save;
        free(scene_run(set));
        set.play = load_and_descend;
        scene *cut = scene_run(set);
        for (int rank = 0; rank < 6; rank++) {
            assert_memory_equal(cut->at[rank], whole->at[rank], sizeof whole->at[rank]);
            tw_state_destroy(saved[rank]);
        }
        free(cut);
        free(whole);
    }
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */

/* A NaN in one member's step: the whole host goes without that step, and goes on. */
TEST(test_a_step_that_is_not_finite_is_the_hosts)
{
    for (size_t s = 0; s < tw_gossips_count(); s++) {
        play *self = calloc(1, sizeof *self);
        self->sick_step = 4;
        scene *all = run(tw_gossips_name(s), 3, 2, self);
        assert_int_equal(self->sick, TW_SKIPPED);
        for (int rank = 0; rank < all->workers; rank++) {
            assert_int_equal(all->stats[rank].steps_skipped, rank < 2);
            assert_int_equal(all->stats[rank].steps, PLAYED - (rank < 2));
            assert_memory_equal(all->at[rank], all->at[0], sizeof all->at[0]);
        }
        free(all);
        free(self);
    }
}

static tw_status unreached(scene *all, int rank, tw_gossip *gossip)
{
    (void)all, (void)rank, (void)gossip;
    return TW_ERROR_STATE;
}

TEST(test_hosts_have_to_be_of_one_size)
{
    scene *all = scene_run_freely((scene){.spec = "adpsgd-random:per_host=4", .workers = 6, .play = unreached});
    for (int rank = 0; rank < 6; rank++) {
        assert_int_equal(all->status[rank], TW_ERROR_SPEC);
        assert_non_null(strstr(all->text[rank], "per_host=4 does not divide the 6 workers"));
    }
    free(all);
}

/* ---- hosts that are lost ----------------------------------------------------------------------------------------- */

enum { LEFT_AFTER = 3, HOSTS = 4, MEMBERS = 2 };

/* One member goes in the middle; the others make a few steps more, and those that go on meet without its host. */
typedef struct loss {
    int leaver;
    int met[HOSTS * MEMBERS]; /* ranks of the survivors' comm, by rank of the whole */
    float sum[HOSTS * MEMBERS];
} loss;

static tw_status meet_survivors(loss *self, int rank, tw_gossip *gossip)
{
    tw_comm *survivors;
    tw_status status = tw_gossip_survivors(gossip, &survivors);
    if (status != TW_OK) return status;
    self->met[rank] = tw_comm_rank(survivors);
    self->sum[rank] = (float)rank;
    status = tw_comm_allreduce(survivors, &self->sum[rank], 1);
    tw_comm_destroy(survivors);
    return status;
}

static tw_status leave_early(scene *all, int rank, tw_gossip *gossip)
{
    loss *self = all->context;
    static const float nothing[MOST_WIDTH];
    tw_status status = TW_OK;
    for (int k = 0; status == TW_OK && k < PLAYED; k++) {
        if (rank == self->leaver && k == LEFT_AFTER) return TW_OK;
        status = scene_read(all, rank, gossip);
        tw_world_compute(1);
        if (status == TW_OK) status = scene_add(gossip, nothing);
    }
    if (status == TW_OK) status = scene_finish(all, rank, gossip);
    return status == TW_OK ? meet_survivors(self, rank, gossip) : status;
}

static void check_loss(const char *scheme, int leaver, int survives)
{
    loss self = {.leaver = leaver};
    char spec[96];
    snprintf(spec, sizeof spec, "%s:per_host=%d", scheme, MEMBERS);
    scene *all = scene_run_freely((scene){.spec = spec,
                                          .workers = HOSTS * MEMBERS,
                                          .per_host = MEMBERS,
                                          .latency = 1e-3,
                                          .play = leave_early,
                                          .context = &self});
    int host = leaver / MEMBERS, met = 0, sum = HOSTS * MEMBERS * (HOSTS * MEMBERS - 1) / 2;
    sum -= 2 * host * MEMBERS + 1; /* the two ranks of the lost host */
    for (int rank = 0; rank < all->workers; rank++) {
        if (rank == leaver) continue;
        tw_status want = survives && rank / MEMBERS != host ? TW_OK : TW_ERROR_PEER;
        if (all->status[rank] != want) fail_msg("%s, rank %d: %s", spec, rank, all->text[rank]);
        if (want != TW_OK) continue;
        assert_int_equal(all->stats[rank].ranks_lost, MEMBERS);
        assert_int_equal(all->stats[rank].lowest_rank, host == 0 ? MEMBERS : 0);
        assert_int_equal(self.met[rank], met++);
        assert_true(self.sum[rank] == (float)sum);
    }
    free(all);
}

/* It takes its host with it. The others go on without that host, all of its members, where the scheme can. */
TEST(test_a_member_that_leaves_takes_its_host_along)
{
    for (size_t s = 0; s < tw_gossips_count(); s++)
        for (int leaver = 0; leaver < 2 * MEMBERS; leaver++)
            check_loss(tw_gossips_name(s), leaver, !tw_gossips_is_synchronous(s));
}

/* Wherever memory runs out on a rank while the gossip is made, it says so, and the others' calls end. */
static void create_with_little_memory(void *context, int rank, tw_comm *comm)
{
    scene *all = context;
    const float start[MOST_WIDTH] = {0}, *weights = start;
    const tw_tensor tensor = {"weights", 1, {MOST_WIDTH}};
    tw_gossip *gossip = NULL;
    if (rank == all->width) tw_fail_allocation(all->shown);
    all->status[rank] = tw_gossip_create(comm, all->spec, &tensor, 1, &weights, &gossip);
    tw_fail_allocation(0);
    tw_gossip_destroy(gossip);
}

static int runs_out(int rank, int allocation)
{
    scene all = {.spec = "dpsgd:per_host=2", .width = rank, .shown = allocation};
    run_in_world((tw_world_options){.workers = 4}, create_with_little_memory, &all);
    assert_true(all.status[rank] == TW_OK || all.status[rank] == TW_ERROR_MEMORY);
    return all.status[rank] != TW_OK;
}

TEST(test_create_survives_every_failed_allocation)
{
    for (int rank = 0; rank < 4; rank += 3) {
        int allocation = 1;
        while (runs_out(rank, allocation)) allocation++;
        assert_true(allocation > 10);
    }
}

/* ---- a host that waits for another ---------------------------------------------------------------------- */

static tw_status walk_slowly(scene *all, int rank, tw_gossip *gossip)
{
    float step[MOST_WIDTH] = {0};
    tw_status status = TW_OK;
    for (int k = 0; status == TW_OK && k < PLAYED; k++) {
        tw_world_compute(rank < 2 ? 1 : 500); /* the timeout is 600 */
        step[0] = rank < 2 ? 1 : 3;
        status = scene_add(gossip, step);
    }
    return status == TW_OK ? scene_finish(all, rank, gossip) : status;
}

/* The second host's step comes when the first has waited for long, and its end as much later. */
static tw_status walk_one_step(scene *all, int rank, tw_gossip *gossip)
{
    float step[MOST_WIDTH] = {rank < 2 ? 1 : 3};
    double seconds = rank < 2 ? 1 : 500;
    tw_status status = scene_read(all, rank, gossip);
    tw_world_compute(seconds);
    if (status == TW_OK) status = scene_add(gossip, step);
    if (rank >= 2) tw_world_compute(seconds);
    return status == TW_OK ? scene_finish(all, rank, gossip) : status;
}

static void check_wait(const char *spec, tw_status (*walks)(scene *, int, tw_gossip *), float sum)
{
    scene *all = scene_run((scene){.spec = spec, .workers = 4, .per_host = 2, .bandwidth = 1e6, .play = walks});
    for (int rank = 0; rank < 4; rank++) assert_float_equal(all->at[rank][0], sum, 1e-4);
    free(all);
}

/* The first rank of a host waits in finish as long as others still step, and its members wait for it as long. Where a
 * scheme is synchronous it waits for their last exchange and then for their end. */
TEST(test_members_wait_as_long_as_their_host)
{
    static const char *const specs[] = {"adpsgd-random:per_host=2", "prague:per_host=2",
                                        "adpsgd-fixed:per_host=2,survive=off"};
    static const char *const synchronous[] = {"dpsgd:per_host=2", "choco:per_host=2", "adpsgd-d1:per_host=2"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) check_wait(specs[s], walk_slowly, 2 * PLAYED);
    for (size_t s = 0; s < sizeof synchronous / sizeof *synchronous; s++) check_wait(synchronous[s], walk_one_step, 2);
}

RUN_TESTS(NULL, NULL)
