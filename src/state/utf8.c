#include "json.h"

/* What may follow a lead byte (Unicode standard, table 3-7): how many bytes, and the range of the first of them, which
 * rules out overlong forms, surrogates and code points that do not exist. */
typedef struct tw_utf8_lead {
    unsigned char first, last, following, least, most;
} tw_utf8_lead;

static const tw_utf8_lead leads[] = {
    {0x00, 0x7F, 0, 0, 0},       {0xC2, 0xDF, 1, 0x80, 0xBF}, {0xE0, 0xE0, 2, 0xA0, 0xBF},
    {0xE1, 0xEC, 2, 0x80, 0xBF}, {0xED, 0xED, 2, 0x80, 0x9F}, {0xEE, 0xEF, 2, 0x80, 0xBF},
    {0xF0, 0xF0, 3, 0x90, 0xBF}, {0xF1, 0xF3, 3, 0x80, 0xBF}, {0xF4, 0xF4, 3, 0x80, 0x8F},
};

static const tw_utf8_lead *find_lead(unsigned char byte)
{
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++)
        if (byte >= leads[i].first && byte <= leads[i].last) return &leads[i];
    return NULL;
}

int tw_utf8_valid(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + bytes;
    while (at < end) {
        const tw_utf8_lead *lead = find_lead(*at++);
        if (!lead || (size_t)(end - at) < lead->following) return 0;
        if (lead->following && (at[0] < lead->least || at[0] > lead->most)) return 0;
        for (unsigned i = 1; i < lead->following; i++)
            if ((at[i] & 0xC0) != 0x80) return 0;
        at += lead->following;
    }
    return 1;
}
