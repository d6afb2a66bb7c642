/* Names in a table: found wherever they are, in a number of probes that grows with their number and with nothing else;
 * and the keyed hash behind it against its authors' own results. */
#include "names.h"
#include "siphash.h"

#include <stdlib.h>

#include "support/cmocka.h"
#include "support/colliding_names.h"

enum { COUNT = 20000, MOST_PROBES = 8 /* a search, whatever the names: half of the slots are free */ };

/* From the reference implementation's list (vectors_sip64): of the bytes 0, 1, ... n-1 under the key 00 01 .. 0f. */
TEST(test_the_hash_is_siphash)
{
    static const uint64_t key[2] = {0x0706050403020100u, 0x0F0E0D0C0B0A0908u};
    static const struct {
        size_t size;
        uint64_t hash;
    } known[] = {
        {0, 0x726FDB47DD0E0E31u}, {1, 0x74F839C593DC67FDu}, {8, 0x93F5F5799A932462u}, {15, 0xA129CA6149BE45E5u}};
    unsigned char bytes[16];
    for (unsigned char i = 0; i < sizeof bytes; i++) bytes[i] = i;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        assert_true(tw_siphash(key, bytes, known[k].size) == known[k].hash);
}

TEST(test_colliding_names_collide)
{
    char first[COLLIDING_PLACES + 1], name[COLLIDING_PLACES + 1];
    colliding_names all = colliding_find();
    colliding_name(&all, 0, first);
    for (unsigned i = 1; i < COLLIDING_MOST; i++) {
        colliding_name(&all, i, name);
        assert_true(tw_crc32c(0, name, sizeof name) == tw_crc32c(0, first, sizeof first));
        assert_string_not_equal(name, first);
    }
}

/* Adds `count` names and finds them; returns the probes that took. */
static uint64_t count_probes(unsigned count)
{
    char(*names)[COLLIDING_PLACES + 1] = calloc(count, sizeof *names);
    colliding_names all = colliding_find();
    uint64_t before = tw_names_probes();
    tw_names table = {0};
    for (unsigned i = 0; i < count; i++) {
        colliding_name(&all, i, names[i]);
        assert_true(tw_names_find(&table, names[i]) == TW_NO_NAME);
        assert_int_equal(tw_names_add(&table, names[i], i), TW_OK);
    }
    for (unsigned i = 0; i < count; i++) assert_true(tw_names_find(&table, names[i]) == i);
    tw_names_release(&table);
    free(names);
    return tw_names_probes() - before;
}

/* A name is looked for three times, and moves at most twice when the table grows. */
TEST(test_chosen_names_are_found_as_fast_as_any)
{
    for (unsigned count = 1; count <= COUNT; count *= 2) assert_true(count_probes(count) <= 5 * MOST_PROBES * count);
}

RUN_TESTS(NULL, NULL)
