/* The mean of models that clusters cut in unlike ways: the bits of a plain loop over whole models, the bytes of a ring,
 * and what becomes of maps that cannot be and of ranks that lie or are lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_clusters.h>

#include "agreement.h"
#include "channel.h"
#include "memory.h"
#include "support/parts.h"
#include "support/random.h"
#include "support/ranks.h"
#include "wire.h"

enum { MOST_RANKS = 40, MOST_RANGES = 64, MOST_CLUSTERS = 5, PIECE = 60 << 14 };

#define BANDWIDTH 1e8
#define LATENCY 1e-3

/* One rank of a meeting, and what it got. */
typedef struct member {
    int cluster;
    uint64_t elements;
    tw_range ranges[MOST_RANGES];
    size_t count;
    int forgets; /* to give them */
    tw_status created, averaged;
    char text[256];
    uint64_t sent, received, messages; /* in the average alone */
    double seconds;
} member;

/* All ranks, and the whole model of each cluster, which becomes what its ranks have made of it. */
typedef struct meeting {
    int size, clusters;
    size_t elements;
    member members[MOST_RANKS];
    float *models[MOST_CLUSTERS];
} meeting;

static tw_traffic traffic_of(const tw_comm *comm)
{
    tw_traffic traffic = {.struct_size = sizeof traffic};
    (void)tw_comm_traffic(comm, &traffic);
    return traffic;
}

static void note(member *self, tw_status status)
{
    if (status != TW_OK) snprintf(self->text, sizeof self->text, "%s", tw_last_error());
}

static void average(meeting *all, member *self, const tw_comm *comm, tw_clusters *clusters)
{
    float *values[MOST_RANGES];
    for (size_t i = 0; i < self->count; i++) values[i] = all->models[self->cluster] + self->ranges[i].first;
    tw_traffic before = traffic_of(comm);
    double began = tw_clock();
    self->averaged = tw_clusters_average(clusters, values);
    self->seconds = tw_clock() - began;
    note(self, self->averaged);
    tw_traffic after = traffic_of(comm);
    self->sent = after.bytes_sent - before.bytes_sent;
    self->received = after.bytes_received - before.bytes_received;
    self->messages = after.messages_sent - before.messages_sent;
}

static void attend(void *context, int rank, tw_comm *comm)
{
    meeting *all = context;
    member *self = &all->members[rank];
    tw_clusters *clusters = NULL;
    const tw_range *ranges = self->forgets ? NULL : self->ranges;
    self->created = tw_clusters_create(comm, self->cluster, self->elements, ranges, self->count, &clusters);
    note(self, self->created);
    if (self->created == TW_OK && all->models[0]) average(all, self, comm, clusters);
    tw_clusters_destroy(clusters);
    if (self->created == TW_ERROR_ARGUMENT && tw_comm_barrier(comm) != TW_OK) note(self, self->created = TW_ERROR_PEER);
}

static void meet(meeting *all, tw_world_worker worker)
{
    run_in_world((tw_world_options){.workers = all->size, .bandwidth = BANDWIDTH, .latency = LATENCY}, worker, all);
}

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

static void hold(member *self, int cluster, uint64_t elements, uint64_t first, uint64_t count)
{
    assert_true(self->count < MOST_RANGES);
    self->cluster = cluster;
    self->elements = elements;
    self->ranges[self->count++] = (tw_range){first, count};
}

/* A cluster of ranks in a row, each with the next elements: `shares`, which end with 0, times `unit`. */
static void add_chain(meeting *all, const int *shares, int unit)
{
    uint64_t first = 0;
    for (; *shares; shares++) {
        hold(&all->members[all->size++], all->clusters, all->elements, first, (uint64_t)(*shares * unit));
        first += (uint64_t)(*shares * unit);
    }
    assert_int_equal(first, all->elements);
    all->clusters++;
}

/* Numbers whose sum depends on the order in which they are added up. */
static void fill_models(meeting *all, uint64_t stream)
{
    for (int c = 0; c < all->clusters; c++) {
        all->models[c] = random_floats(100 * stream + (uint64_t)c, all->elements);
        for (size_t i = 0; i < all->elements; i++)
            all->models[c][i] *= (float)(1 << draw(100 * stream + 50 + (uint64_t)c, i, 12));
    }
}

/* The mean of whole models, added up from the first cluster on, or from the last. */
static float *flat_mean(const meeting *all, int backwards)
{
    float *mean = malloc(all->elements * sizeof *mean);
    assert_non_null(mean);
    for (size_t i = 0; i < all->elements; i++) {
        float sum = all->models[backwards ? all->clusters - 1 : 0][i];
        for (int c = 1; c < all->clusters; c++) sum += all->models[backwards ? all->clusters - 1 - c : c][i];
        mean[i] = sum / (float)all->clusters;
    }
    return mean;
}

/* All clusters get the flat mean. Returns whether the order of addition shows in it. */
static int check_mean(meeting *all)
{
    float *mean = flat_mean(all, 0), *other = flat_mean(all, 1);
    size_t bytes = all->elements * sizeof *mean;
    int shows = memcmp(mean, other, bytes) != 0;
    meet(all, attend);
    for (int r = 0; r < all->size; r++)
        if (all->members[r].created != TW_OK || all->members[r].averaged != TW_OK)
            fail_msg("rank %d of %d: %s", r, all->size, all->members[r].text);
    for (int c = 0; c < all->clusters; c++) {
        if (memcmp(all->models[c], mean, bytes) != 0) fail_msg("cluster %d of %d has another mean", c, all->clusters);
        free(all->models[c]);
    }
    free(mean);
    free(other);
    return shows;
}

static uint64_t held_by(const member *self)
{
    uint64_t held = 0;
    for (size_t i = 0; i < self->count; i++) held += self->ranges[i].count;
    return held;
}

/* ---- means and bytes --------------------------------------------------------------------------------------------- */

/* Every way to cut five units: bit b of its number says whether a rank ends behind unit b. */
enum { UNITS = 5, CUTS = 1 << (UNITS - 1), UNIT = 60 };

static void add_cut(meeting *all, unsigned number)
{
    int shares[UNITS + 1] = {0}, last = 0;
    for (int unit = 0; unit < UNITS; unit++) {
        shares[last]++;
        last += number >> unit & 1;
    }
    add_chain(all, shares, UNIT);
}

/* Every part is a whole number of elements with 2 to 5 clusters, so a ring's bytes are a formula. */
static void check_bytes(const meeting *all)
{
    for (int r = 0; r < all->size; r++) {
        const member *self = &all->members[r];
        uint64_t bytes = 2 * (uint64_t)(all->clusters - 1) * held_by(self) * sizeof(float) / (uint64_t)all->clusters;
        assert_int_equal(self->sent, bytes);
        assert_int_equal(self->received, bytes);
    }
}

/* Where there are more clusters than two, some are cut alike. */
TEST(test_every_pair_of_cuts)
{
    const int most = in_part(3, MOST_CLUSTERS);
    unsigned shown = 0;
    for (int clusters = 2; clusters <= most; clusters++)
        for (unsigned a = 0; a < CUTS; a++)
            for (unsigned b = 0; b < CUTS; b++) {
                meeting all = {.elements = UNITS * UNIT};
                for (int c = 0; c < clusters; c++) add_cut(&all, c % 2 ? b : a);
                fill_models(&all, a * CUTS + b);
                shown += (unsigned)check_mean(&all);
                check_bytes(&all);
            }
    assert_int_equal(shown, (unsigned)(most - 2) * CUTS * CUTS); /* two numbers have the same sum either way */
}

/* Any cut, in ranges that lie anywhere, on ranks in any order, of which some hold nothing. */
static void scatter(meeting *all, uint64_t stream)
{
    uint64_t n = 0;
    all->clusters = 1 + (int)draw(stream, n++, MOST_CLUSTERS);
    all->elements = 1 + draw(stream, n++, 400);
    all->size = all->clusters * (1 + (int)draw(stream, n++, 5));
    for (int r = 0; r < all->size; r++)
        all->members[r] = (member){.cluster = (r * 7 + (int)(stream % 3)) % all->clusters, .elements = all->elements};
    for (int c = 0; c < all->clusters; c++)
        for (uint64_t first = 0, count; first < all->elements; first += count) {
            int rank;
            do rank = (int)draw(stream, n++, (uint32_t)all->size);
            while (all->members[rank].cluster != c || (all->members[rank].count == MOST_RANGES));
            count = 1 + draw(stream, n++, 60);
            if (count > all->elements - first) count = all->elements - first;
            hold(&all->members[rank], c, all->elements, first, count);
        }
    for (int r = 0; r < all->size; r++) /* nor need a rank name its ranges in their order */
        for (size_t i = all->members[r].count; i > 1; i--) {
            size_t j = draw(stream, n++, (uint32_t)i);
            tw_range last = all->members[r].ranges[i - 1];
            all->members[r].ranges[i - 1] = all->members[r].ranges[j];
            all->members[r].ranges[j] = last;
        }
}

/* What is uneven for a rank is even for all together. */
TEST(test_any_cut)
{
    for (uint64_t stream = 0; stream < (uint64_t)in_part(50, 200); stream++) {
        meeting all = {0};
        uint64_t sent = 0;
        scatter(&all, stream);
        fill_models(&all, stream);
        check_mean(&all);
        for (int r = 0; r < all.size; r++) sent += all.members[r].sent;
        assert_int_equal(sent, 2 * (uint64_t)(all.clusters - 1) * all.elements * sizeof(float));
    }
}

/* Three turns and a bit, and a rank that has more rings than others. */
TEST(test_many_turns)
{
    static const int thirds[] = {1, 1, 1, 0}, whole[] = {3, 0}, unlike[] = {2, 1, 0};
    meeting all = {.elements = 3 * (PIECE + 60)};
    add_chain(&all, whole, PIECE + 60);
    add_chain(&all, thirds, PIECE + 60);
    add_chain(&all, unlike, PIECE + 60);
    fill_models(&all, 7);
    assert_true(check_mean(&all));
    check_bytes(&all);
    /* A message each way, phase and turn to each peer: rank 1, of cluster 1, has one ring, with ranks 0 and 4. */
    assert_int_equal(all.members[1].messages, 2 * 2 * 2);
}

/* Each rank's cut ends in the middle of another's, so the rings are a chain in which all depend on all. Yet they take
 * no longer than what the fullest rank sends. */
TEST(test_rings_go_side_by_side)
{
    static const int even[] = {4, 4, 4, 4, 4, 0}, between[] = {2, 4, 4, 4, 4, 2, 0};
    meeting all = {.elements = 20 * 30000};
    add_chain(&all, even, 30000);
    add_chain(&all, between, 30000);
    fill_models(&all, 9);
    check_mean(&all);
    double alone = 4 * 30000 * sizeof(float) / BANDWIDTH + 2 * LATENCY;
    for (int r = 0; r < all.size; r++) assert_true(all.members[r].seconds < 1.3 * alone);
}

/* ---- the same as tw_comm_allreduce of whole models --------------------------------------------------------------- */

static void reduce_whole(void *context, int rank, tw_comm *comm)
{
    meeting *all = context;
    all->members[rank].averaged = tw_comm_allreduce(comm, all->models[rank], all->elements);
    for (size_t i = 0; i < all->elements; i++) all->models[rank][i] /= (float)all->size;
}

TEST(test_has_the_bits_of_an_allreduce)
{
    meeting whole = {.elements = UNITS * UNIT, .size = 4, .clusters = 4}, cut = {.elements = UNITS * UNIT};
    for (unsigned c = 0; c < 4; c++) add_cut(&cut, 3 + 4 * c);
    fill_models(&whole, 3);
    fill_models(&cut, 3);
    meet(&whole, reduce_whole);
    meet(&cut, attend);
    for (int c = 0; c < 4; c++) {
        assert_int_equal(whole.members[c].averaged, TW_OK);
        assert_memory_equal(whole.models[c], cut.models[c], whole.elements * sizeof(float));
        free(whole.models[c]);
        free(cut.models[c]);
    }
}

/* ---- maps that cannot be ----------------------------------------------------------------------------------------- */

/* Of a right map of two clusters over 100 elements, on ranks 0 to 2 and 3 to 4, one rank says this instead. */
typedef struct mistake {
    int rank, cluster;
    uint64_t elements;
    tw_range ranges[2];
    size_t count;
    const char *says[3];
} mistake;

static void draw_up(meeting *all)
{
    static const int three[] = {30, 30, 40, 0}, two[] = {50, 50, 0};
    all->elements = 100;
    add_chain(all, three, 1);
    add_chain(all, two, 1);
}

TEST(test_maps_that_cannot_be)
{
    static const mistake mistakes[] = {
        {0, 0, 100, {{5, 25}}, 1, {"cluster 0", "elements 0 to 4"}},
        {1, 0, 100, {{30, 20}}, 1, {"cluster 0", "elements 50 to 59"}},
        {1, 0, 100, {{0}}, 0, {"cluster 0", "elements 30 to 59"}},
        {4, 1, 100, {{50, 49}}, 1, {"cluster 1", "elements 99 to 99"}},
        {3, 1, 100, {{0, 51}}, 1, {"cluster 1", "rank 3 and rank 4", "element 50"}},
        {1, 0, 100, {{29, 31}}, 1, {"rank 0 and rank 1", "element 29"}},
        {2, 0, 100, {{60, 30}, {80, 20}}, 2, {"rank 2 and rank 2", "element 80"}},
        {0, 0, 100, {{0, 100}}, 1, {"rank 0 and rank 1", "element 30"}},
        {4, 1, 90, {{50, 40}}, 1, {"rank 4 has 90 elements", "rank 0 has 100"}},
        {0, 0, 90, {{0, 30}}, 1, {"rank 1 has 100 elements", "rank 0 has 90"}},
        {0, 0, 0, {{0}}, 0, {"rank 0 has no elements"}},
        {4, 1, 100, {{50, 51}}, 1, {"range 0 of rank 4", "below 100"}},
        {4, 1, 100, {{50, 50}, {3, 0}}, 2, {"range 1 of rank 4", "at least one"}},
        {4, 1, 100, {{UINT64_MAX, 2}}, 1, {"range 0 of rank 4", "below 100"}},
        {4, 1, 100, {{2, UINT64_MAX}}, 1, {"range 0 of rank 4", "below 100"}},
        {4, 2, 100, {{50, 50}}, 1, {"cluster 1", "elements 50 to 99"}},
        {4, 5, 100, {{50, 50}}, 1, {"rank 4", "cluster 5", "0 to 4"}},
        {4, -1, 100, {{50, 50}}, 1, {"rank 4", "cluster -1"}},
        {2, 3, 100, {{0, 100}}, 1, {"cluster 0", "elements 60 to 99"}},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const mistake *wrong = &mistakes[i];
        meeting all = {0};
        draw_up(&all);
        member *liar = &all.members[wrong->rank];
        *liar = (member){.cluster = wrong->cluster, .elements = wrong->elements, .count = wrong->count};
        memcpy(liar->ranges, wrong->ranges, sizeof wrong->ranges);
        meet(&all, attend); /* and meets at a barrier, for which the comm has to be whole */
        for (int r = 0; r < all.size; r++) {
            assert_int_equal(all.members[r].created, TW_ERROR_ARGUMENT);
            assert_string_equal(all.members[r].text, all.members[0].text);
            for (int w = 0; w < 3 && wrong->says[w]; w++)
                if (!strstr(all.members[r].text, wrong->says[w]))
                    fail_msg("case %zu: \"%s\" should say \"%s\"", i, all.members[r].text, wrong->says[w]);
        }
    }
}

/* A whole cluster is missing between two. */
TEST(test_clusters_are_numbered_without_a_gap)
{
    meeting all = {0};
    draw_up(&all);
    for (int r = 3; r < all.size; r++) all.members[r].cluster = 2;
    meet(&all, attend);
    for (int r = 0; r < all.size; r++) {
        assert_int_equal(all.members[r].created, TW_ERROR_ARGUMENT);
        assert_non_null(strstr(all.members[r].text, "no rank of cluster 1 holds elements 0 to 99"));
    }
}

TEST(test_one_rank_without_an_argument)
{
    meeting all = {0};
    draw_up(&all);
    all.members[1].forgets = 1;
    meet(&all, attend);
    for (int r = 0; r < all.size; r++) {
        assert_int_equal(all.members[r].created, TW_ERROR_ARGUMENT);
        assert_non_null(strstr(all.members[r].text, r == 1 ? "ranges" : "rank 1 could not make its clusters"));
    }
}

static void come_in_hundreds(void *context, int rank, tw_comm *comm)
{
    tw_status *status = context;
    const tw_range whole = {0, 1};
    tw_clusters *clusters = NULL;
    status[rank] = tw_clusters_create(comm, rank, 1, &whole, 1, &clusters);
    tw_clusters_destroy(clusters);
}

TEST(test_too_many_ranks)
{
    enum { MANY = 257 };
    tw_status status[MANY];
    for (int ranks = MANY - 1; ranks <= MANY; ranks++) {
        run_in_world((tw_world_options){.workers = ranks}, come_in_hundreds, status);
        for (int r = 0; r < ranks; r++) assert_int_equal(status[r], ranks < MANY ? TW_OK : TW_ERROR_UNSUPPORTED);
    }
}

/* ---- ranks that lie, fail or are lost ---------------------------------------------------------------------------- */

/* What rank 1 of three says, as the library would say it. If `other` is not 0 it tells the two others the same elements
 * as ranges that are cut in unlike places. */
typedef struct lie {
    int64_t cluster;
    uint64_t elements, ranges;
    size_t bytes; /* of ranges, that it sends */
    uint64_t other;
    tw_status expected;
    const char *says;
    tw_status status[3];
    char text[3][256];
} lie;

static void send_both(tw_channel *channel, const void *data, size_t size, const void *second, void *into, size_t room)
{
    size_t received;
    for (int peer = 0; peer < 3; peer += 2)
        tw_channel_start_receive(channel, peer, (char *)into + (size_t)peer * room, room, &received);
    tw_channel_start_send(channel, 0, data, size);
    tw_channel_start_send(channel, 2, second, size);
    (void)tw_channel_finish(channel);
}

/* Of what rank 0 hears of all three, if rank 1 has `some`. */
static uint32_t digest_of(const int64_t greeting[3], const uint64_t some[4])
{
    const int64_t greetings[3][3] = {{0, 100, 1}, {greeting[0], greeting[1], greeting[2]}, {1, 100, 1}};
    const uint64_t first[] = {0, 100}, last[] = {0, 50};
    uint32_t digest = tw_crc32c(0, greetings, sizeof greetings);
    digest = tw_crc32c(digest, first, sizeof first);
    digest = tw_crc32c(digest, some, 4 * sizeof *some);
    return tw_crc32c(digest, last, sizeof last);
}

static void tell_lies(const lie *told, tw_comm *comm)
{
    static unsigned char room[3 * 4096];
    tw_channel *channel;
    const int64_t greeting[] = {told->cluster, (int64_t)told->elements, (int64_t)told->ranges};
    const uint64_t ranges[] = {50, 50, 0, 0}, some[] = {50, 10, 60, 40};
    const uint64_t others[] = {50, told->other, 50 + told->other, 50 - told->other};
    if (tw_channel_create_again(comm, 0, &channel) != TW_OK) return;
    (void)tw_agree(channel, "clusters", TW_OK, "", 0, NULL, 0);
    send_both(channel, greeting, sizeof greeting, greeting, room, sizeof greeting);
    send_both(channel, told->other ? some : ranges, told->bytes, told->other ? others : ranges, room, 16);
    (void)tw_agree(channel, "clusters", TW_OK, "", digest_of(greeting, some), NULL, 0);
    tw_channel_destroy(channel);
}

static void listen_to_lies(void *context, int rank, tw_comm *comm)
{
    lie *told = context;
    const tw_range mine[] = {{0, 100}, {0, 50}};
    tw_clusters *clusters = NULL;
    if (rank == 1) {
        tell_lies(told, comm);
        return;
    }
    told->status[rank] = tw_clusters_create(comm, rank > 0, 100, &mine[rank > 0], 1, &clusters);
    snprintf(told->text[rank], sizeof told->text[rank], "%s", tw_last_error());
    tw_clusters_destroy(clusters);
}

TEST(test_ranks_that_lie)
{
    static const lie lies[] = {
        {1, 100, UINT64_MAX, 0, 0, TW_ERROR_PACKET, "rank 1 says what cannot be"},
        {1, 100, (1 << 20) + 1, 0, 0, TW_ERROR_PACKET, "rank 1 says what cannot be"},
        {1, 100, 1, 8, 0, TW_ERROR_PACKET, "rank 1 sent 8 bytes of ranges"},
        {1, 100, 1, 32, 0, TW_ERROR_PACKET, "larger than was agreed"},
        {INT64_MAX, 100, 1, 16, 0, TW_ERROR_ARGUMENT, "rank 1 says that it is of cluster"},
        {1, UINT64_MAX, 1, 16, 0, TW_ERROR_ARGUMENT, "the model of rank 1"},
        {1, 100, 2, 32, 20, TW_ERROR_ARGUMENT, "rank 0"}, /* and rank 2 differ, whoever says it */
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        lie told = lies[i];
        run_in_world((tw_world_options){.workers = 3}, listen_to_lies, &told);
        int seconds = 0; /* who hears that the comm broke before they see why */
        for (int r = 0; r < 3; r += 2) {
            int is_second = told.expected == TW_ERROR_PACKET && told.status[r] == TW_ERROR_PEER;
            seconds += is_second;
            if (!is_second && (told.status[r] != told.expected || !strstr(told.text[r], told.says)))
                fail_msg("lie %zu: rank %d: %s: %s", i, r, tw_status_name(told.status[r]), told.text[r]);
        }
        assert_in_range(seconds, 0, 1);
    }
}

static int kill_at, sends_of_rank_1;

static void count_send(wire *through, int sends)
{
    (void)through;
    sends_of_rank_1 += sends;
    if (sends && sends_of_rank_1 == kill_at) tw_world_kill();
}

static void attend_mortal(void *context, int rank, tw_comm *comm)
{
    wire through = {.before = count_send};
    if (rank == 1) put_between(&through, comm);
    attend(context, rank, comm);
    if (rank == 1) take_away(&through, comm);
}

/* Whoever shares a ring with the lost rank is told. The others may be done with theirs. */
TEST(test_a_lost_rank_is_noticed)
{
    for (kill_at = 0;;) {
        meeting all = {0};
        draw_up(&all);
        fill_models(&all, 1);
        sends_of_rank_1 = 0;
        meet(&all, attend_mortal);
        for (int c = 0; c < all.clusters; c++) free(all.models[c]);
        int died = kill_at > 0 && sends_of_rank_1 >= kill_at;
        for (int r = 0; r < all.size; r++) {
            tw_status got = all.members[r].created != TW_OK ? all.members[r].created : all.members[r].averaged;
            int is_partner = r == 1 || r == 3 || r == 4; /* of elements 30 to 59 */
            assert_true(got == (died && is_partner ? TW_ERROR_PEER : TW_OK) || (died && got == TW_ERROR_PEER));
        }
        if (kill_at++ > 0 && !died) break;
    }
    assert_true(kill_at > 8);
    kill_at = 0;
}

static long fails_at;

static void attend_without_memory(void *context, int rank, tw_comm *comm)
{
    if (rank == 1) tw_fail_allocation(fails_at);
    attend(context, rank, comm);
    if (rank == 1) tw_fail_allocation(0);
}

TEST(test_no_memory_is_a_status)
{
    int done = 0;
    for (fails_at = 1; !done; fails_at++) {
        meeting all = {0};
        draw_up(&all);
        fill_models(&all, 1);
        meet(&all, attend_without_memory);
        for (int c = 0; c < all.clusters; c++) free(all.models[c]);
        done = all.members[1].created == TW_OK;
        for (int r = 0; r < all.size; r++) {
            tw_status got = all.members[r].created;
            assert_true(done ? got == TW_OK && all.members[r].averaged == TW_OK
                             : got == TW_ERROR_MEMORY || (r != 1 && got == TW_ERROR_PEER));
        }
    }
    assert_true(fails_at > 10);
}

RUN_TESTS(NULL, NULL)
