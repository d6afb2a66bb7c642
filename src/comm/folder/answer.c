#include "answer.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* What S3 calls it, or else the code of any web server; and what follows in the sentence. */
static const struct {
    const char *name;
    long code;
    const char *advice;
} known[] = {
    {"NoSuchBucket", 0, ": there is no such bucket, so make it first"},
    {"InvalidAccessKeyId", 0, ": it does not know the key in AWS_ACCESS_KEY_ID"},
    {"SignatureDoesNotMatch", 0, ": AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are no pair that it knows"},
    {"MalformedXML", 0, ": the URL may lack a bucket, as in s3+https://HOST/BUCKET/run"},
    {"ExpiredToken", 0, ": the token in AWS_SESSION_TOKEN has expired, and a new one has new keys"},
    {"InvalidToken", 0, ": AWS_SESSION_TOKEN is not that of the key in AWS_ACCESS_KEY_ID"},
    {NULL, 401, ", as to one without the right to"},
    {NULL, 403, ", as to one without the right to"},
    {NULL, 404, ": there is no such place, so make the folder first"},
    {NULL, 405, ", as where nobody may write files"},
    {NULL, 409, ", as where a folder is missing, so make it first"},
    {NULL, 413, ": it takes no file of this size, so raise its limit, which nginx calls client_max_body_size"},
    {NULL, 500, ": its own log says why, which is in nginx a folder that is missing, too"},
    {NULL, 507, ", as one that is full"},
};

/* The word that stands there, or "". */
static void read_word(const char *at, char word[ANSWER_WORD])
{
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '-' || at[length] == '_') length++;
    snprintf(word, ANSWER_WORD, "%.*s", (int)length, at);
}

/* The word in <tag>...</tag>, or "". */
static void find_word(const char *body, const char *tag, char word[ANSWER_WORD])
{
    const char *at = strstr(body, tag);
    read_word(at ? at + strlen(tag) : "", word);
}

int answer_is(const answer *said, const char *name)
{
    char word[ANSWER_WORD];
    find_word(said->body, "<Code>", word);
    return strcmp(word, name) == 0;
}

static const char *find_advice(const answer *said)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].name ? answer_is(said, known[i].name) : known[i].code == said->code) return known[i].advice;
    return "";
}

static int is_elsewhere(const answer *said)
{
    return said->code >= 300 && said->code < 400;
}

/* Amazon says it in a header, others in the body. */
static void find_region(const answer *said, char region[ANSWER_WORD])
{
    read_word(said->region, region);
    if (!*region) find_word(said->body, "<Region>", region);
}

void answer_explain(const answer *said, char reason[STORE_REASON])
{
    char name[ANSWER_WORD], region[ANSWER_WORD];
    find_word(said->body, "<Code>", name);
    find_region(said, region);
    int length = snprintf(reason, STORE_REASON, "the server answers %ld%s%s", said->code, *name ? " " : "", name);
    char *rest = reason + length;
    size_t room = STORE_REASON - (size_t)length;
    if (*region && (is_elsewhere(said) || answer_is(said, "AuthorizationHeaderMalformed")))
        snprintf(rest, room,
                 ": the bucket is in the region %s, so write that into AWS_REGION and its host into the URL", region);
    else if (is_elsewhere(said))
        snprintf(rest, room, " and wants to send this process elsewhere, where it does not go");
    else if (answer_is(said, "RequestTimeTooSkewed"))
        snprintf(rest, room, ": set the clock of this machine, or of the server, where it is %s", said->date);
    else
        snprintf(rest, room, "%s", find_advice(said));
}
