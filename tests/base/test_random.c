/* Philox 4x32-10 against the known answers that its authors publish with Random123. */
#include <thinwire/thinwire_plugin.h>

#include "support/cmocka.h"

static void assert_words(uint64_t seed, uint64_t stream, uint64_t counter, const uint32_t expected[4])
{
    uint32_t words[4];
    tw_random(seed, stream, counter, words);
    assert_memory_equal(words, expected, sizeof words);
}

TEST(known_answers)
{
    assert_words(0, 0, 0, (const uint32_t[4]){0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8});
    assert_words(UINT64_MAX, UINT64_MAX, UINT64_MAX,
                 (const uint32_t[4]){0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD});
    /* The digits of pi as counter and key: each word lands where it belongs, low half first. */
    assert_words(0x299F31D0A4093822, 0x0370734413198A2E, 0x85A308D3243F6A88,
                 (const uint32_t[4]){0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1});
}

RUN_TESTS(NULL, NULL)
