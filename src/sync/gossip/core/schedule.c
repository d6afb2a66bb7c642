#include "schedule.h"

#include "memory.h"

#include <string.h>
#include <thinwire/thinwire_plugin.h>

static void line_up(tw_schedule *schedule)
{
    for (int i = 0; i < schedule->count; i++) schedule->ring[i] = schedule->place[i] = i;
}

tw_status tw_schedule_create(tw_schedule *schedule, int ranks, int group, int shuffled, uint64_t seed)
{
    *schedule = (tw_schedule){.count = ranks, .group = group, .shuffled = shuffled, .seed = seed, .drawn = TW_NO_ROUND};
    tw_status status = tw_allocate((size_t)ranks, sizeof(int), &schedule->ring);
    if (status == TW_OK) status = tw_allocate((size_t)ranks, sizeof(int), &schedule->place);
    if (status == TW_OK)
        line_up(schedule);
    else
        tw_schedule_release(schedule);
    return status;
}

void tw_schedule_release(tw_schedule *schedule)
{
    tw_free(schedule->ring);
    tw_free(schedule->place);
    *schedule = (tw_schedule){0};
}

int tw_schedule_most(const tw_schedule *schedule)
{
    int others = schedule->count - 1, most = schedule->group ? schedule->group - 1 : 2;
    return most < others ? most : others;
}

/* Fisher and Yates' shuffle. The draws depend on seed and round alone, so a rank can step into any round. */
static void shuffle(tw_schedule *schedule, uint64_t round)
{
    uint32_t words[4];
    line_up(schedule);
    for (int left = schedule->count; left > 1; left--) {
        int draw = schedule->count - left;
        if (draw % 4 == 0) tw_random(schedule->seed, round, (uint64_t)draw / 4, words);
        int chosen = (int)((uint64_t)words[draw % 4] * (uint64_t)left >> 32), last = schedule->ring[left - 1];
        schedule->ring[left - 1] = schedule->ring[chosen];
        schedule->ring[chosen] = last;
    }
    for (int i = 0; i < schedule->count; i++) schedule->place[schedule->ring[i]] = i;
    schedule->drawn = round;
}

static int neighbours(const tw_schedule *schedule, int place, int *partners)
{
    int count = schedule->count;
    if (count > 1) partners[0] = schedule->ring[(place + count - 1) % count];
    if (count > 2) partners[1] = schedule->ring[(place + 1) % count];
    return count > 2 ? 2 : count - 1;
}

static int block(const tw_schedule *schedule, uint64_t round, int place, int *partners)
{
    uint64_t moved = schedule->shuffled ? 0 : round % (uint64_t)schedule->count * (uint64_t)(schedule->group / 2);
    int count = schedule->count, cut = (int)(moved % (uint64_t)count), found = 0;
    int at = (place + count - cut) % count, start = at / schedule->group * schedule->group;
    for (int i = start; i < start + schedule->group && i < count; i++)
        if (i != at) partners[found++] = schedule->ring[(i + cut) % count];
    return found;
}

int tw_schedule_partners(tw_schedule *schedule, uint64_t round, int rank, int *partners)
{
    if (schedule->shuffled && schedule->drawn != round) shuffle(schedule, round);
    int place = schedule->place[rank];
    return schedule->group ? block(schedule, round, place, partners) : neighbours(schedule, place, partners);
}

/* One round of news: heard[r] becomes 1 if r, or a partner of r, had heard before it. Returns how many have. */
static int spread(tw_schedule *schedule, uint64_t round, const char *before, char *heard, int *partners)
{
    int total = 0;
    for (int rank = 0; rank < schedule->count; rank++) {
        int count = tw_schedule_partners(schedule, round, rank, partners);
        heard[rank] = before[rank];
        for (int p = 0; p < count; p++) heard[rank] |= before[partners[p]];
        total += heard[rank];
    }
    return total;
}

tw_status tw_schedule_heard(tw_schedule *schedule, uint64_t round, int rank, uint64_t *heard)
{
    char *before = NULL, *after = NULL;
    int *partners = NULL;
    size_t ranks = (size_t)schedule->count;
    tw_status status = tw_allocate(ranks, 1, &before);
    if (status == TW_OK) status = tw_allocate(ranks, 1, &after);
    if (status == TW_OK) status = tw_allocate(ranks, sizeof *partners, &partners);
    if (status == TW_OK) {
        before[rank] = 1;
        while (spread(schedule, round, before, after, partners) < schedule->count) {
            memcpy(before, after, ranks);
            round++;
        }
        *heard = round;
    }
    tw_free(before);
    tw_free(after);
    tw_free(partners);
    return status;
}
