/* Whatever fails or differs, every rank is told of the first rank, in their order, for which that is so: as if each had
 * told each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_plugin.h>

#include "agreement.h"
#include "channel.h"
#include "error.h"
#include "support/ranks.h"

enum { MOST = 11, CASES = 40 };

static const tw_tensor table[] = {{"w", 1, {5}}};
static const char *const specs[] = {"a", "b", "c"};

typedef struct meeting {
    int size;
    int fails[MOST], spec[MOST];
    tw_status got[MOST];
    char text[MOST][256];
    uint64_t messages;
} meeting;

static void attend(void *context, int rank, tw_comm *comm)
{
    meeting *all = context;
    tw_channel *channel;
    if (tw_channel_create(comm, &channel) != TW_OK) return;
    tw_status prepared = all->fails[rank] ? tw_fail(TW_ERROR_SPEC, "rank %d's own text", rank) : TW_OK;
    all->got[rank] = tw_agree(channel, "thing", prepared, specs[all->spec[rank]], 0, table, 1);
    snprintf(all->text[rank], sizeof all->text[rank], "%s", all->got[rank] == TW_OK ? "" : tw_last_error());
    all->messages += tw_channel_traffic(channel).messages_sent;
    tw_channel_destroy(channel);
}

static void expect(const meeting *all, int self, tw_status *status, char *text, size_t room)
{
    *status = TW_OK;
    *text = '\0';
    if (all->fails[self]) {
        *status = TW_ERROR_SPEC;
        snprintf(text, room, "rank %d's own text", self);
        return;
    }
    for (int rank = 0; rank < all->size; rank++) {
        if (!all->fails[rank] && all->spec[rank] == all->spec[self]) continue;
        *status = all->fails[rank] ? TW_ERROR_SPEC : TW_ERROR_ARGUMENT;
        if (all->fails[rank])
            snprintf(text, room, "rank %d could not make its thing", rank);
        else
            snprintf(text, room, "rank %d and rank %d differ in spec", self, rank);
        return;
    }
}

static void meet(meeting *all)
{
    run_in_world((tw_world_options){.workers = all->size}, attend, all);
    for (int rank = 0; rank < all->size; rank++) {
        tw_status status;
        char text[256];
        expect(all, rank, &status, text, sizeof text);
        if (all->got[rank] != status || strncmp(all->text[rank], text, strlen(text)) != 0)
            fail_msg("rank %d of %d: \"%s\", not \"%s\"", rank, all->size, all->text[rank], text);
    }
}

TEST(test_all_are_told_of_the_first)
{
    for (int size = 1; size <= MOST; size++)
        for (uint64_t number = 0; number < CASES; number++) {
            meeting all = {.size = size};
            for (int rank = 0; rank < size; rank++) {
                uint32_t words[4];
                tw_random(number, (uint64_t)size, (uint64_t)rank, words);
                all.fails[rank] = number % 3 == 0 && words[0] % 4 == 0;
                all.spec[rank] = words[1] % 4 == 0 ? (int)(words[2] % 3) : 0;
            }
            meet(&all);
        }
}

/* One odd rank, wherever it stands. */
TEST(test_one_is_enough)
{
    for (int size = 2; size <= MOST; size++)
        for (int odd = 0; odd < size; odd++)
            for (int fails = 0; fails < 2; fails++) {
                meeting all = {.size = size};
                all.fails[odd] = fails;
                all.spec[odd] = !fails;
                meet(&all);
            }
}

/* ceil(log2(N)) messages a rank. */
TEST(test_messages_are_few)
{
    for (int size = 1; size <= MOST; size++) {
        meeting all = {.size = size};
        uint64_t steps = 0;
        for (int reach = 1; reach < size; reach *= 2) steps++;
        meet(&all);
        assert_int_equal(all.messages, steps * (uint64_t)size);
    }
}

RUN_TESTS(NULL, NULL)
