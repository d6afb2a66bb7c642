/* Packets of every scheme that come damaged, of another step, or from a group with other tensors: refused, before a
 * value of them is used. What a stranger says under a checksum that fits is refused or borne. Schemes whose rounds are
 * all all-reduces have none, and nothing to refuse. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "support/cmocka.h"

static const tw_tensor table[] = {{"w", 2, {12, 12}}, {"b", 1, {5}}};
enum { TENSORS = sizeof table / sizeof *table, RANKS = 2, MOST_ROUNDS = 8, MOST_BYTES = 8192 };

/* The packets of a step that went well, as the last rank (or the root) sent them, and what came of it. */
typedef struct recording {
    size_t size[MOST_ROUNDS];
    unsigned char packet[MOST_ROUNDS][MOST_BYTES];
    int rounds;
} recording;

static recording *record; /* being made */
static int rounds_seen;   /* packets' rounds of the step under way */

static void listen(void *packets[], size_t sizes[], int senders)
{
    assert_true(record->rounds < MOST_ROUNDS && sizes[senders - 1] <= MOST_BYTES);
    record->size[record->rounds] = sizes[senders - 1];
    memcpy(record->packet[record->rounds++], packets[senders - 1], sizes[senders - 1]);
}

/* What is done to one packet. */
static struct damage {
    int round;
    enum { FLIP, FORGE, CUT, EXTEND, REPLACE } kind;
    size_t byte;
    int bit;
    const unsigned char *instead;
    size_t instead_size;
} damage;

static int harmed; /* whose packet that was */

static void resize(void **packet, size_t *size, size_t wanted)
{
    unsigned char *copy = calloc(wanted ? wanted : 1, 1); /* exactly: the address sanitizer sees who reads beyond */
    memcpy(copy, *packet, *size < wanted ? *size : wanted);
    free(*packet);
    *packet = copy;
    *size = wanted;
}

static void harm(void *packets[], size_t sizes[], int senders)
{
    void **packet = &packets[senders - 1];
    size_t *size = &sizes[senders - 1];
    if (rounds_seen++ != damage.round) return;
    harmed = senders - 1; /* the first step's root is rank 0 */
    if (damage.kind <= FORGE) ((unsigned char *)*packet)[damage.byte] ^= (unsigned char)(1 << damage.bit);
    if (damage.kind == FORGE) loopback_seal(*packet, *size);
    if (damage.kind == CUT) resize(packet, size, damage.byte);
    if (damage.kind == EXTEND) resize(packet, size, *size + 1);
    if (damage.kind == REPLACE) {
        resize(packet, size, damage.instead_size);
        memcpy(*packet, damage.instead, damage.instead_size);
    }
}

static tw_status run(const char *spec, const tw_tensor *tensors, size_t count, int steps, loopback_damage last)
{
    loopback group;
    int skipped;
    tw_status status = loopback_create(&group, spec, tensors, count, RANKS);
    batch *b = batch_create(tensors, count);
    rounds_seen = 0;
    for (int step = 0; step < steps && status == TW_OK; step++) {
        batch_fill(b, RANKS, normal, step);
        status = loopback_step(&group, b->ranks, -1, step + 1 == steps ? last : NULL, &skipped);
        for (size_t i = 0; status == TW_OK && !skipped && i < b->elements; i++)
            if (!isfinite(b->values[RANKS - 1][i])) fail_msg("%s: %g came out", spec, (double)b->values[RANKS - 1][i]);
    }
    loopback_destroy(&group);
    batch_destroy(b);
    return status;
}

static recording *record_step(const char *spec, const tw_tensor *tensors, size_t count, int steps)
{
    recording *made = record = calloc(1, sizeof *made);
    assert_int_equal(run(spec, tensors, count, steps, listen), TW_OK);
    return made;
}

/* The damage in words. */
static void describe(const struct damage *done, char *text, size_t room)
{
    switch (done->kind) {
    case FLIP:
    case FORGE:
        snprintf(text, room, "bit %d of byte %zu flipped", done->bit, done->byte);
        break;
    case CUT:
        snprintf(text, room, "cut behind %zu bytes", done->byte);
        break;
    case EXTEND:
        snprintf(text, room, "a byte put behind its end");
        break;
    case REPLACE:
        snprintf(text, room, "another group's or step's of %zu bytes in its place", done->instead_size);
        break;
    }
}

static void check_refused(const char *spec, struct damage done)
{
    damage = done;
    tw_status status = run(spec, table, TENSORS, 1, harm);
    if (status != TW_ERROR_PACKET) {
        char words[128];
        describe(&done, words, sizeof words);
        fail_msg("%s: %s, not TW_ERROR_PACKET, for the packet of round %d with %s", spec, tw_status_name(status),
                 done.round, words);
    }
    char sender[16];
    snprintf(sender, sizeof sender, "rank %d", harmed);
    if (!strstr(tw_last_error(), sender)) fail_msg("%s: \"%s\" does not name %s", spec, tw_last_error(), sender);
}

/* As over a channel, which nobody knows it came by. */
static void check_carried_refused(const char *spec, int round, const unsigned char *packet, size_t size)
{
    enum { FLAGS = 3, CARRIED = 2, CHECK = 20 };
    unsigned char carried[MOST_BYTES];
    memcpy(carried, packet, size);
    carried[FLAGS] |= CARRIED;
    memset(carried + CHECK, 0, sizeof(uint32_t));
    check_refused(spec, (struct damage){.round = round, .kind = REPLACE, .instead = carried, .instead_size = size});
}

static void check_damage(const tw_scheme_ops *ops, const char *spec)
{
    recording *sound = record_step(spec, table, TENSORS, 1);
    (void)ops;
    for (int round = 0; round < sound->rounds; round++) {
        check_refused(spec, (struct damage){.round = round, .kind = EXTEND});
        check_carried_refused(spec, round, sound->packet[round], sound->size[round]);
        for (size_t byte = 0; byte < sound->size[round]; byte++) {
            check_refused(spec, (struct damage){round, CUT, byte, 0, NULL, 0});
            for (int bit = 0; bit < 8; bit++) check_refused(spec, (struct damage){round, FLIP, byte, bit, NULL, 0});
        }
    }
    free(sound);
}

TEST(test_every_cut_and_every_flipped_bit_is_refused)
{
    const tw_scheme_ops *ops;
    for (size_t s = first_tried; (ops = tw_scheme_at(s)); s++) {
        char spec[SPEC_LENGTH];
        make_spec(spec, ops, "warmup_steps=0");
        check_damage(ops, spec);
    }
}

/* Of the header no bit may differ but the one that tells of a NaN. In sections some bits are values, of which any will
 * do; others say what cannot be. */
TEST(test_every_forged_bit_is_refused_or_borne)
{
    const tw_scheme_ops *ops;
    enum { CHECKED = 20, TELLS_OF_NAN = 8 * 3 };
    int refused = 0, borne = 0;
    for (size_t s = first_tried; (ops = tw_scheme_at(s)); s++) {
        char spec[SPEC_LENGTH];
        make_spec(spec, ops, "warmup_steps=0");
        recording *sound = record_step(spec, table, TENSORS, 1);
        for (int round = 0; round < sound->rounds; round++)
            for (size_t bit = 0; bit < 8 * sound->size[round]; bit++) {
                damage = (struct damage){.round = round, .kind = FORGE, .byte = bit / 8, .bit = bit % 8};
                tw_status status = run(spec, table, TENSORS, 1, harm);
                if (status != TW_OK && status != TW_ERROR_PACKET) fail_msg("%s: %s", spec, tw_last_error());
                if (status == TW_OK && bit < 8 * CHECKED && bit != TELLS_OF_NAN)
                    fail_msg("%s: a header with another bit %zu is taken", spec, bit);
                refused += status == TW_ERROR_PACKET;
                borne += status == TW_OK;
            }
        free(sound);
    }
    assert_true(refused > 0 && borne > 0);
}

/* Of a tensor that both tables have, a packet may be the same to the last bit. */
static int is_same(const recording *a, const recording *b, int round)
{
    return a->size[round] == b->size[round] && memcmp(a->packet[round], b->packet[round], a->size[round]) == 0;
}

/* Every round of `foreign` in the place of the scheme's own. */
static void check_foreign(const char *spec, const recording *foreign)
{
    recording *own = record_step(spec, table, TENSORS, 1);
    for (int round = 0; round < own->rounds; round++)
        if (!is_same(own, foreign, round))
            check_refused(spec, (struct damage){round, REPLACE, 0, 0, foreign->packet[round], foreign->size[round]});
    free(own);
}

static void check_other_tables(const tw_scheme_ops *ops, const char *spec)
{
    static const tw_tensor larger[] = {{"w", 2, {12, 120}}, {"b", 1, {5}}},
                           more[] = {{"w", 2, {12, 12}}, {"v", 2, {12, 12}}, {"b", 1, {5}}};
    recording *of_larger = record_step(spec, larger, 2, 1), *of_more = record_step(spec, more, 3, 1);
    (void)ops;
    check_foreign(spec, of_larger);
    check_foreign(spec, of_more);
    free(of_larger);
    free(of_more);
}

static void check_other_step(const tw_scheme_ops *ops, const char *spec)
{
    recording *of_step_one = record_step(spec, table, TENSORS, 2);
    (void)ops;
    check_foreign(spec, of_step_one);
    free(of_step_one);
}

static void for_each_spec(spec_check check)
{
    const tw_scheme_ops *ops;
    for (size_t s = first_tried; (ops = tw_scheme_at(s)); s++) {
        char spec[SPEC_LENGTH];
        make_spec(spec, ops, "warmup_steps=0");
        check(ops, spec);
        for_each_variant(ops, "warmup_steps=0", check);
    }
}

TEST(test_packets_of_other_tensors_are_refused)
{
    for_each_spec(check_other_tables);
}

TEST(test_packets_of_another_step_are_refused)
{
    for_each_spec(check_other_step);
}

int main(int argc, char **argv)
{
    load_tried(argc, argv);
    return cmocka_run_group_tests(all_tests, NULL, NULL);
}
