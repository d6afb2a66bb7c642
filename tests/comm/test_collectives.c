/* What every transport must do, over every group size it offers: results against brute force, to the bit. */
#include <stdlib.h>
#include <string.h>

#include "support/cmocka.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channel.h"
#include "group.h"
#include "half.h"
#include "subset.h"
#include "support/parts.h"

enum { MOST = 16 /* ranks */ };

/* What larger groups do follows from what these do, and NAME_extra shows it, too. */
static int most_ranks(void)
{
    return in_part(5, MOST);
}

/* What all groups of so many ranks do, and with how many values, or bytes. */
typedef struct deed {
    void (*program)(tw_comm *comm, size_t count);
    int least, most;
    size_t count;
} deed;
#define ON_GROUPS(name, least, most)                                                                                   \
    {                                                                                                                  \
#name, on_groups, NULL, NULL, &(deed)                                                                          \
        {                                                                                                              \
            name, least, most, 0                                                                                       \
        }                                                                                                              \
    }
/* With counts of all kinds. */
#define EVERY_COUNT(name)                                                                                              \
    {                                                                                                                  \
#name, with_every_count, NULL, NULL, &(deed)                                                                   \
        {                                                                                                              \
            name, 0, 0, 0                                                                                              \
        }                                                                                                              \
    }

static void act(tw_comm *comm, const void *context)
{
    const deed *what = context;
    what->program(comm, what->count);
    tw_comm_destroy(comm);
}

static void on_groups(void **state)
{
    const deed *what = *state;
    group_test(what->least, what->most < most_ranks() ? what->most : most_ranks(), act, what);
}

static void with_every_count(void **state)
{
    deed what = *(const deed *)*state;
    for (int i = 0; (what.least = what.most = group_size(i)); i++) {
        if (what.most > most_ranks()) continue;
        const size_t ranks = (size_t)what.most, counts[] = {0, 1, 2, 3, ranks - 1, ranks, 1000, 20011, 200003};
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            what.count = counts[c];
            group_test(what.least, what.most, act, &what);
        }
    }
}

/* Values whose sum depends on the order of the summands: magnitudes from 2^-8 to 2^7. Every rank draws
 * those of all others, and tw_random would take most of the test's time: these are mixed from fewer operations. */
static float value_of(int rank, size_t i, uint64_t salt)
{
    uint64_t mixed = (salt << 48 | (uint64_t)rank << 40) + i;
    for (int turn = 0; turn < 2; turn++) mixed = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93U;
    uint32_t bits = (uint32_t)(mixed >> 32), sign_and_exponent = (bits & 1) << 31 | (119 + (bits >> 1) % 16) << 23;
    union {
        uint32_t bits;
        float value;
    } drawn = {sign_and_exponent | bits >> 9};
    return drawn.value;
}

static int is_sum_in_rank_order(const float *values, size_t count, int ranks, uint64_t salt)
{
    for (size_t i = 0; i < count; i++) {
        float sum = value_of(0, i, salt);
        for (int r = 1; r < ranks; r++) sum += value_of(r, i, salt);
        if (memcmp(&sum, &values[i], sizeof sum) != 0) return 0;
    }
    return 1;
}

static float *fill_values(int rank, size_t count, uint64_t salt)
{
    float *values = malloc((count + 1) * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = value_of(rank, i, salt);
    return values;
}

static void allreduce_is_the_sum_in_rank_order(tw_comm *comm, size_t count)
{
    for (uint64_t salt = 0; salt < 2; salt++) {
        float *values = fill_values(tw_comm_rank(comm), count, salt);
        CHECK(tw_comm_allreduce(comm, values, count) == TW_OK);
        CHECK(is_sum_in_rank_order(values, count, tw_comm_size(comm), salt));
        free(values);
    }
}

/* In segments of all lengths: of one value (between two ranks), such that the last ones are empty on some ranks, and of
 * nearly a chunk. Of the short ones there are many, so that they are tried with chunks of unlike lengths alone. */
static void segments_change_no_sum(tw_comm *comm, size_t count)
{
    static const size_t segments[] = {4, 64, 1000, 4096, 65536, 80000};
    size_t ranks = (size_t)tw_comm_size(comm), even = 16384 * ranks;
    for (count = even; count < even + 3; count++)
        for (size_t s = count != even + 1 ? 2 : ranks > 2; s < sizeof segments / sizeof *segments; s++) {
            float *values = fill_values(tw_comm_rank(comm), count, s);
            comm->channel->segment = segments[s];
            CHECK(tw_comm_allreduce(comm, values, count) == TW_OK);
            CHECK(is_sum_in_rank_order(values, count, (int)ranks, s));
            free(values);
        }
}

static uint16_t to_half(tw_dtype dtype, float value)
{
    return dtype == TW_F16 ? tw_to_fp16(value) : tw_to_bf16(value);
}

static float from_half(tw_dtype dtype, uint16_t half)
{
    return dtype == TW_F16 ? tw_from_fp16(half) : tw_from_bf16(half);
}

/* Among the ordinary ones: values whose sum is beyond the range of a half, denormal ones, infinities, NaN. */
static uint16_t half_of(tw_dtype dtype, int rank, size_t i)
{
    float largest = dtype == TW_F16 ? 65504 : 0x1.FEp127f;
    float usual = value_of(rank, i, 2);
    switch (i % 16) {
    case 3:
        return to_half(dtype, usual > 0 ? largest : -largest);
    case 7:
        return to_half(dtype, usual * (dtype == TW_F16 ? 0x1p-24f : 0x1p-130f));
    case 11:
        return to_half(dtype, usual > 64 ? (float)NAN : usual > 0 ? (float)INFINITY : usual);
    default:
        return to_half(dtype, usual);
    }
}

static uint16_t *fill_halves(tw_dtype dtype, int rank, size_t count)
{
    uint16_t *halves = malloc((count + 1) * sizeof *halves);
    for (size_t i = 0; i < count; i++) halves[i] = half_of(dtype, rank, i);
    return halves;
}

/* Summed in fp32, rounded once. Which NaN a NaN is, is not said. */
static int is_rounded_sum(tw_dtype dtype, const uint16_t *halves, size_t count, int ranks)
{
    for (size_t i = 0; i < count; i++) {
        float sum = from_half(dtype, half_of(dtype, 0, i));
        for (int r = 1; r < ranks; r++) sum += from_half(dtype, half_of(dtype, r, i));
        if (isnan(sum) ? !isnan(from_half(dtype, halves[i])) : halves[i] != to_half(dtype, sum)) return 0;
    }
    return 1;
}

/* The same bits everywhere, NaNs included. */
static int is_alike(tw_comm *comm, const void *data, size_t size)
{
    uint32_t own = tw_crc32c(0, data, size), everyone[MOST];
    CHECK(tw_comm_allgather(comm, &own, sizeof own, everyone) == TW_OK);
    for (int r = 0; r < tw_comm_size(comm); r++)
        if (everyone[r] != own) return 0;
    return 1;
}

static void halves_are_summed_in_fp32_and_rounded_once(tw_comm *comm, size_t count)
{
    for (tw_dtype dtype = TW_F16; dtype <= TW_BF16; dtype++) {
        if (dtype == TW_BF16) comm->channel->segment = 5000;
        uint16_t *halves = fill_halves(dtype, tw_comm_rank(comm), count);
        CHECK(tw_channel_allreduce(comm->channel, dtype, halves, count) == TW_OK);
        CHECK(is_rounded_sum(dtype, halves, count, tw_comm_size(comm)));
        CHECK(is_alike(comm, halves, count * sizeof *halves));
        free(halves);
    }
}

/* Refused alike on every rank, and nothing has happened to the group. */
static void other_types_are_refused(tw_comm *comm, size_t count)
{
    double value = 1;
    (void)count;
    CHECK(tw_channel_allreduce(comm->channel, TW_F64, &value, 1) == TW_ERROR_ARGUMENT);
    CHECK(tw_channel_allreduce(comm->channel, (tw_dtype)99, &value, 1) == TW_ERROR_ARGUMENT);
    CHECK(tw_counters_read(&comm->counters).messages_sent == 0);
    CHECK(tw_comm_barrier(comm) == TW_OK);
    CHECK(value == 1);
}

static size_t chunk_length(size_t rank, size_t ranks, size_t count)
{
    return count / ranks + (rank < count % ranks);
}

/* Those that have to do with what a rank sums: its parts, and its sums. A large chunk goes in segments. What is small
 * goes whole, and of two ranks each sums all of it. */
static size_t chunk_messages(size_t rank, size_t ranks, size_t count, size_t width, size_t segment)
{
    size_t values = chunk_length(rank, ranks, count);
    int is_large = chunk_length(0, ranks, count) * width >= (64 << 10);
    if (!is_large && ranks == 2) return count > 0;
    return 2 * (ranks - 1) * (is_large ? (values + segment / width - 1) / (segment / width) : values > 0);
}

/* 2(N-1)/N * count values a rank: exact for each by its chunk, and exact in the sum over ranks. */
static void count_allreduce_bytes(tw_comm *comm, tw_dtype dtype, size_t width, size_t count, size_t segment)
{
    size_t ranks = (size_t)tw_comm_size(comm), rank = (size_t)tw_comm_rank(comm);
    size_t own = chunk_length(rank, ranks, count), largest = chunk_length(0, ranks, count);
    /* Small chunks go straight to everybody, large ones around the ring: all but the next rank's own pass through. */
    size_t spread =
        largest * width < (64 << 10) ? own * (ranks - 1) : count - chunk_length((rank + 1) % ranks, ranks, count);
    float *values = calloc(count + 1, sizeof *values);
    tw_channel *channel;
    CHECK(tw_channel_create(comm, &channel) == TW_OK);
    if (segment)
        channel->segment = segment;
    else
        segment = channel->segment;
    CHECK(tw_channel_allreduce(channel, dtype, values, count) == TW_OK);
    tw_traffic traffic = tw_channel_traffic(channel), everyone[MOST];
    CHECK(traffic.bytes_sent == width * (count - own + spread));
    CHECK(traffic.bytes_received == width * (own * (ranks - 1) + count - own));
    CHECK(tw_comm_allgather(comm, &traffic, sizeof traffic, everyone) == TW_OK);
    uint64_t sent = 0, messages = 0, expected = 0;
    for (size_t r = 0; r < ranks; r++) sent += everyone[r].bytes_sent, messages += everyone[r].messages_sent;
    CHECK(sent == 2 * (ranks - 1) * width * count);
    for (size_t r = 0; r < ranks; r++) expected += chunk_messages(r, ranks, count, width, segment);
    CHECK(messages == expected);
    tw_channel_destroy(channel);
    free(values);
}

static void allreduce_sends_what_a_ring_sends(tw_comm *comm, size_t count)
{
    count_allreduce_bytes(comm, TW_F32, 4, count, 0);
    count_allreduce_bytes(comm, TW_F16, 2, count, 0);
    count_allreduce_bytes(comm, TW_BF16, 2, count, 0);
    count_allreduce_bytes(comm, TW_F32, 4, count, 4096);
    count_allreduce_bytes(comm, TW_F16, 2, count, 2000);
}

/* A packet's length and content tell its sender and round; every third is empty. */
static size_t packet_size(int rank, size_t round, size_t capacity)
{
    size_t mix = (size_t)rank * 7 + round;
    return mix % 3 == 0 ? 0 : capacity - mix % (capacity + 1);
}

static unsigned char packet_byte(int rank, size_t round, size_t i)
{
    return (unsigned char)(rank * 31 + (int)(round * 17 + i * 5));
}

static int is_packet(const unsigned char *packet, size_t size, int rank, size_t round, size_t capacity)
{
    if (size != packet_size(rank, round, capacity)) return 0;
    for (size_t i = 0; i < size; i++)
        if (packet[i] != packet_byte(rank, round, i)) return 0;
    return 1;
}

static size_t fill_packet(unsigned char *packet, int rank, size_t round, size_t capacity)
{
    size_t size = packet_size(rank, round, capacity);
    for (size_t i = 0; i < size; i++) packet[i] = packet_byte(rank, round, i);
    return size;
}

static void gather_packets(tw_channel *channel, size_t round, size_t capacity)
{
    tw_comm *comm = channel->comm;
    unsigned char *own = malloc(capacity + 1);
    const void *const *packets;
    const size_t *sizes;
    size_t size = fill_packet(own, comm->rank, round, capacity);
    CHECK(tw_channel_allgather(channel, own, size, capacity, &packets, &sizes) == TW_OK);
    CHECK(packets[comm->rank] == own); /* it is not copied */
    for (int r = 0; r < comm->size; r++) {
        CHECK(is_packet(packets[r], sizes[r], r, round, capacity));
        CHECK(r == comm->rank || (uintptr_t)packets[r] % 64 == 0);
        if (r == comm->rank) memset(own, 0xEE, capacity + 1); /* the others' do not depend on it */
    }
    free(own);
}

static void allgather_brings_packets_of_any_size(tw_comm *comm, size_t capacity)
{
    size_t sent = 0, ranks = (size_t)tw_comm_size(comm);
    tw_channel *channel;
    CHECK(tw_channel_create(comm, &channel) == TW_OK);
    for (size_t round = 0; round < 4; round++) {
        gather_packets(channel, round, capacity);
        sent += packet_size(tw_comm_rank(comm), round, capacity);
    }
    tw_traffic traffic = tw_channel_traffic(channel);
    CHECK(traffic.bytes_sent == sent * (ranks - 1));
    CHECK(traffic.messages_sent == 4 * (ranks - 1) && traffic.messages_received == 4 * (ranks - 1));
    tw_channel_destroy(channel);
}

/* Of every pair of ranks another packet: its number stands for the round. */
static size_t pair_of(const tw_comm *comm, int from, int to)
{
    return (size_t)from * (size_t)comm->size + (size_t)to;
}

static void exchange_pairs(tw_channel *channel, size_t capacity, size_t *sent)
{
    tw_comm *comm = channel->comm;
    const void *own[MOST], *const *packets;
    size_t own_sizes[MOST];
    const size_t *sizes;
    for (int to = 0; to < comm->size; to++) {
        unsigned char *packet = malloc(capacity + 1);
        own_sizes[to] = fill_packet(packet, comm->rank, pair_of(comm, comm->rank, to), capacity);
        own[to] = packet;
        if (to != comm->rank) *sent += own_sizes[to];
    }
    CHECK(tw_channel_alltoall(channel, own, own_sizes, capacity, &packets, &sizes) == TW_OK);
    CHECK(packets != own && packets[comm->rank] == own[comm->rank]);
    for (int from = 0; from < comm->size; from++) {
        CHECK(is_packet(packets[from], sizes[from], from, pair_of(comm, from, comm->rank), capacity));
        CHECK(from == comm->rank || (uintptr_t)packets[from] % 64 == 0);
    }
    for (int to = 0; to < comm->size; to++) free((void *)(uintptr_t)own[to]);
}

static void alltoall_gives_each_rank_its_own(tw_comm *comm, size_t capacity)
{
    size_t sent = 0, others = (size_t)tw_comm_size(comm) - 1;
    tw_channel *channel;
    CHECK(tw_channel_create(comm, &channel) == TW_OK);
    for (int again = 0; again < 2; again++) exchange_pairs(channel, capacity, &sent);
    tw_traffic traffic = tw_channel_traffic(channel);
    CHECK(traffic.bytes_sent == sent);
    CHECK(traffic.messages_sent == 2 * others && traffic.messages_received == 2 * others);
    tw_channel_destroy(channel);
}

/* Room is reserved for N packets of the agreed capacity; memory is taken by what comes. */
static void allgather_takes_memory_for_what_comes(tw_comm *comm, size_t count)
{
    enum { CAPACITY = 32 << 20, HUGE_PAGE = 2 << 20 };
    (void)count;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), resident = 0;
    tw_channel *channel;
    CHECK(tw_channel_create(comm, &channel) == TW_OK);
    const void *const *packets;
    const size_t *sizes;
    CHECK(tw_channel_allgather(channel, "small", 5, CAPACITY, &packets, &sizes) == TW_OK);
    for (int r = 0; r < comm->size; r++) CHECK(sizes[r] == 5 && memcmp(packets[r], "small", 5) == 0);
    size_t pages = channel->scratch_bytes / page;
    unsigned char *present = calloc(pages, 1);
    CHECK(mincore(channel->scratch, pages * page, present) == 0);
    for (size_t i = 0; i < pages; i++) resident += page * (present[i] & 1);
    CHECK(resident <= (size_t)comm->size * HUGE_PAGE);
    free(present);
    tw_channel_destroy(channel);
}

static void public_allgather_is_in_rank_order(tw_comm *comm, size_t size)
{
    size_t ranks = (size_t)tw_comm_size(comm);
    unsigned char *own = malloc(size + 1), *all = malloc(size * ranks + 1);
    for (size_t i = 0; i < size; i++) own[i] = packet_byte(tw_comm_rank(comm), 0, i);
    CHECK(tw_comm_allgather(comm, own, size, all) == TW_OK);
    for (size_t i = 0; i < size * ranks; i++) CHECK(all[i] == packet_byte((int)(i / size), 0, i % size));
    free(own);
    free(all);
}

static void broadcast_packet(tw_channel *channel, int root, size_t capacity)
{
    unsigned char *data = malloc(capacity + 1);
    size_t size = fill_packet(data, root, 1, capacity), received;
    const void *packet;
    int is_root = channel->comm->rank == root;
    if (!is_root) memset(data, 0xEE, capacity + 1);
    CHECK(tw_channel_broadcast(channel, root, is_root ? data : NULL, is_root ? size : 0, capacity, &packet,
                               &received) == TW_OK);
    CHECK(is_packet(packet, received, root, 1, capacity));
    CHECK(!is_root || packet == data);
    free(data);
}

static void broadcast_reaches_all_from_any_root(tw_comm *comm, size_t capacity)
{
    size_t sent = 0, sum = 0;
    size_t size = (size_t)tw_comm_size(comm);
    tw_channel *channel;
    CHECK(tw_channel_create(comm, &channel) == TW_OK);
    for (int root = 0; root < tw_comm_size(comm); root++) {
        broadcast_packet(channel, root, capacity);
        sum += packet_size(root, 1, capacity) * (size - 1);
    }
    uint64_t own = tw_channel_traffic(channel).bytes_sent, everyone[MOST];
    CHECK(tw_comm_allgather(comm, &own, sizeof own, everyone) == TW_OK);
    for (size_t r = 0; r < size; r++) sent += everyone[r];
    CHECK(sent == sum); /* every rank but the root receives it once */
    tw_channel_destroy(channel);
}

static void public_broadcast_copies_the_root(tw_comm *comm, size_t size)
{
    unsigned char *data = malloc(size + 1);
    for (int root = 0; root < tw_comm_size(comm); root++) {
        for (size_t i = 0; i < size; i++) data[i] = packet_byte(tw_comm_rank(comm), 3, i);
        CHECK(tw_comm_broadcast(comm, root, data, size) == TW_OK);
        for (size_t i = 0; i < size; i++) CHECK(data[i] == packet_byte(root, 3, i));
    }
    free(data);
}

/* Messages of one rank to another, all under way at once, arrive in the order they were started. */
static void messages_stay_in_order(tw_comm *comm, size_t count)
{
    enum { MESSAGES = 20 };
    (void)count;
    int values[MESSAGES], received[MESSAGES], ranks = comm->size;
    void *sends[MESSAGES], *receives[MESSAGES];
    int next = (comm->rank + 1) % ranks, previous = (comm->rank + ranks - 1) % ranks;
    for (int i = 0; i < MESSAGES; i++) {
        values[i] = comm->rank * 100 + i;
        size_t bytes = (size_t)(i % 2) * sizeof(int);
        CHECK(comm->ops.start_send(comm->self, next, 5, &values[i], bytes, (uint32_t)values[i], &sends[i]) == TW_OK);
    }
    for (int i = 0; i < MESSAGES; i++)
        CHECK(comm->ops.start_recv(comm->self, previous, 5, &received[i], sizeof(int), &receives[i]) == TW_OK);
    for (int i = 0; i < MESSAGES; i++) {
        size_t size = 99;
        uint32_t check = 99;
        CHECK(comm->ops.wait(comm->self, receives[i], 60, &size, &check) == TW_OK);
        CHECK(size == (size_t)(i % 2) * sizeof(int) && (size == 0 || received[i] == previous * 100 + i));
        CHECK(check == (uint32_t)(previous * 100 + i)); /* also beside no bytes */
        CHECK(comm->ops.wait(comm->self, sends[i], 60, &size, &check) == TW_OK);
    }
    CHECK(tw_comm_barrier(comm) == TW_OK);
}

static void *use_channel(void *argument)
{
    tw_channel *channel = argument;
    for (size_t round = 0; round < 30; round++) {
        size_t count = 100 + round * (channel->number + 1);
        uint64_t salt = channel->number * 1000 + round;
        float *values = fill_values(channel->comm->rank, count, salt);
        CHECK(tw_channel_allreduce(channel, TW_F32, values, count) == TW_OK);
        CHECK(is_sum_in_rank_order(values, count, channel->comm->size, salt));
        gather_packets(channel, round, 500 * channel->number);
        CHECK(tw_channel_barrier(channel) == TW_OK);
        free(values);
    }
    return NULL;
}

static void channels_run_side_by_side(tw_comm *comm, size_t count)
{
    (void)count;
    tw_channel *channels[2];
    tw_thread thread;
    for (int c = 0; c < 2; c++) CHECK(tw_channel_create(comm, &channels[c]) == TW_OK);
    CHECK(tw_thread_start(&thread, use_channel, channels[1]) == TW_OK);
    use_channel(channels[0]);
    tw_thread_join(thread);
    tw_traffic first = tw_channel_traffic(channels[0]), second = tw_channel_traffic(channels[1]);
    tw_traffic total = {.struct_size = sizeof total};
    CHECK(tw_comm_traffic(comm, &total) == TW_OK);
    CHECK(total.bytes_sent == first.bytes_sent + second.bytes_sent);
    CHECK(total.messages_received == first.messages_received + second.messages_received);
    for (int c = 0; c < 2; c++) tw_channel_destroy(channels[c]);
}

/* --- numbers of channels -------------------------------------------------------------------------------------------
 */

static tw_channel *create_again(tw_comm *comm)
{
    tw_channel *channel = NULL;
    CHECK(tw_channel_create_again(comm, 2, &channel) == TW_OK);
    return channel;
}

static void a_number_is_used_again(tw_comm *comm, size_t count)
{
    (void)count;
    unsigned number = 0;
    for (size_t turn = 0; turn < 20; turn++) {
        tw_channel *channel = create_again(comm);
        CHECK(turn == 0 || channel->number == number);
        number = channel->number;
        gather_packets(channel, turn, 1000);
        CHECK(tw_channel_barrier(channel) == TW_OK);
        tw_channel_destroy(channel);
    }
}

static void a_number_is_given_back_by_all_or_not_at_all(tw_comm *comm, size_t count)
{
    (void)count;
    int is_late = comm->rank == comm->size / 2;
    tw_channel *first = create_again(comm), *second = create_again(comm);
    unsigned number = first->number;
    if (!is_late) tw_channel_destroy(first);
    tw_channel *third = create_again(comm);
    CHECK(third->number > second->number); /* one rank still has the first */
    if (is_late) tw_channel_destroy(first);
    tw_channel *fourth = create_again(comm);
    CHECK(fourth->number == number);
    tw_channel *channels[] = {second, third, fourth};
    for (int c = 0; c < 3; c++) gather_packets(channels[c], (uint64_t)c, 1000);
    for (int c = 0; c < 3; c++) tw_channel_destroy(channels[(c + comm->rank) % 3]);
}

/* Rank 0 has begun to send a message that nobody has received when the channel ends. */
static void a_number_with_a_message_on_its_way_is_left_alone(tw_comm *comm, size_t count)
{
    (void)count;
    static const float stray = 1, right = 2;
    tw_channel *first = create_again(comm), *next = NULL;
    unsigned number = first->number;
    void *request = NULL;
    float got = 0;
    size_t size;
    uint32_t check;
    if (comm->rank == 0) {
        CHECK(comm->ops.start_send(comm->self, 1, number, &stray, sizeof stray, 0, &request) == TW_OK);
        tw_numbers_started(first->numbers, 1);
    }
    tw_channel_destroy(first);
    next = create_again(comm);
    CHECK(next->number != number);
    if (comm->rank == 0) tw_channel_start_send(next, 1, &right, sizeof right);
    if (comm->rank == 1) tw_channel_start_receive(next, 0, &got, sizeof got, NULL);
    CHECK(tw_channel_finish(next) == TW_OK && (comm->rank != 1 || got == right));
    tw_channel_destroy(next);
    if (comm->rank == 1) CHECK(comm->ops.start_recv(comm->self, 0, number, &got, sizeof got, &request) == TW_OK);
    if (request) CHECK(comm->ops.wait(comm->self, request, 60, &size, &check) == TW_OK);
    CHECK(comm->rank != 1 || got == stray);
    CHECK(tw_comm_barrier(comm) == TW_OK);
}

/* The last rank has taken a receive back: what is to come may be agreed on by then. */
static void a_number_with_a_receive_taken_back_is_left_alone(tw_comm *comm, size_t count)
{
    (void)count;
    tw_channel *first = create_again(comm);
    unsigned number = first->number;
    void *request = NULL;
    char byte;
    size_t size;
    uint32_t check;
    if (comm->rank == comm->size - 1) {
        CHECK(comm->ops.start_recv(comm->self, 0, number, &byte, 1, &request) == TW_OK);
        tw_numbers_started(first->numbers, 0);
        tw_numbers_ended(first->numbers, 0, comm->ops.wait(comm->self, request, 0, &size, &check));
    }
    tw_channel_destroy(first);
    tw_channel *next = create_again(comm);
    CHECK(next->number > number);
    gather_packets(next, 1, 1000);
    tw_channel_destroy(next);
}

/* A comm of all ranks in reverse, on a channel's numbers. What is exchanged on it counts, too. */
static void what_a_subset_says_counts(tw_comm *comm, size_t count)
{
    (void)count;
    int ranks[MOST], size = comm->size;
    unsigned number = 0;
    for (int r = 0; r < size; r++) ranks[r] = size - 1 - r;
    for (int turn = 0; turn < 4; turn++) {
        tw_channel *channel = create_again(comm);
        tw_comm *subset = NULL;
        void *request = NULL;
        size_t got;
        uint32_t check;
        CHECK(turn < 1 || turn > 2 || channel->number == number);
        CHECK(turn != 3 || channel->number > number); /* a receive was taken back */
        number = channel->number;
        CHECK(tw_comm_create_subset(comm, ranks, size, number + 1, NULL, &subset) == TW_OK);
        gather_packets(subset->channel, (size_t)turn, 1000);
        if (turn == 2 && comm->rank == 0) {
            CHECK(subset->ops.start_recv(subset->self, 0, 0, &got, 1, &request) == TW_OK);
            CHECK(subset->ops.wait(subset->self, request, 0, &got, &check) == TW_ERROR_PEER);
        }
        tw_comm_destroy(subset);
        tw_channel_destroy(channel);
    }
}

/* Every second rank, in reverse. What is said on the whole beside it meets nothing of it. */
static void a_part_has_ranks_of_its_own(tw_comm *comm, size_t count)
{
    (void)count;
    int ranks[MOST], gathered[MOST], size = 0;
    const int own = comm->rank, next = (own + 1) % comm->size;
    tw_comm *part = NULL;
    for (int r = comm->size - 1; r >= 0; r--)
        if (r % 2 == own % 2) ranks[size++] = r;
    CHECK(tw_comm_create_part(comm, (int[]){own, own}, 2, &part) == TW_ERROR_ARGUMENT);
    CHECK(tw_comm_create_part(comm, (int[]){own, comm->size}, 2, &part) == TW_ERROR_ARGUMENT);
    CHECK(tw_comm_create_part(comm, (int[]){own, -1}, 2, &part) == TW_ERROR_ARGUMENT);
    CHECK(tw_comm_create_part(comm, &next, next != own, &part) == TW_ERROR_ARGUMENT);
    CHECK(next == own || strstr(tw_last_error(), "is not among the 1 of the comm that it makes"));
    CHECK(tw_comm_create_part(comm, ranks, size, &part) == TW_OK);
    CHECK(tw_comm_create_part(comm, ranks, size, &part) == TW_ERROR_ORDER);
    CHECK(tw_comm_size(part) == size && ranks[tw_comm_rank(part)] == own);
    CHECK(tw_comm_barrier(comm) == TW_OK);
    CHECK(tw_comm_allgather(part, &own, sizeof own, gathered) == TW_OK);
    CHECK(memcmp(gathered, ranks, (size_t)size * sizeof *ranks) == 0);
    tw_comm_destroy(part);
    CHECK(tw_comm_barrier(comm) == TW_OK);
}

/* Else two would share messages. */
static void nothing_is_made_beside_a_part(tw_comm *comm, size_t count)
{
    int ranks[MOST];
    tw_comm *part = NULL;
    tw_channel *channel = NULL;
    (void)count;
    for (int r = 0; r < comm->size; r++) ranks[r] = r;
    CHECK(tw_comm_create_part(comm, ranks, comm->size, &part) == TW_OK);
    CHECK(tw_channel_create_again(comm, 0, &channel) == TW_ERROR_ORDER && !channel);
    tw_channel_destroy(create_again(part));
    tw_comm_destroy(part);
    CHECK(tw_channel_create_again(comm, 0, &channel) == TW_ERROR_ORDER && !channel);
    CHECK(tw_comm_create_part(comm, ranks, comm->size, &part) == TW_ERROR_ORDER);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        EVERY_COUNT(allreduce_is_the_sum_in_rank_order),
        ON_GROUPS(segments_change_no_sum, 1, 5),
        EVERY_COUNT(halves_are_summed_in_fp32_and_rounded_once),
        ON_GROUPS(other_types_are_refused, 1, MOST),
        EVERY_COUNT(allreduce_sends_what_a_ring_sends),
        EVERY_COUNT(allgather_brings_packets_of_any_size),
        EVERY_COUNT(alltoall_gives_each_rank_its_own),
        ON_GROUPS(allgather_takes_memory_for_what_comes, 1, 4),
        EVERY_COUNT(public_allgather_is_in_rank_order),
        EVERY_COUNT(broadcast_reaches_all_from_any_root),
        EVERY_COUNT(public_broadcast_copies_the_root),
        ON_GROUPS(messages_stay_in_order, 2, MOST),
        ON_GROUPS(channels_run_side_by_side, 1, MOST),
        ON_GROUPS(a_number_is_used_again, 1, MOST),
        ON_GROUPS(a_number_is_given_back_by_all_or_not_at_all, 1, MOST),
        ON_GROUPS(a_number_with_a_message_on_its_way_is_left_alone, 2, MOST),
        ON_GROUPS(a_number_with_a_receive_taken_back_is_left_alone, 2, MOST),
        ON_GROUPS(what_a_subset_says_counts, 2, MOST),
        ON_GROUPS(a_part_has_ranks_of_its_own, 1, MOST),
        ON_GROUPS(nothing_is_made_beside_a_part, 1, MOST),
    };
    group_begin(&argc, &argv);
    int failed = cmocka_run_group_tests_name("collectives", tests, NULL, NULL);
    group_end();
    return failed;
}
