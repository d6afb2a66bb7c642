/* members_at.h - processes that join a group whose members come and go, and strangers that come to one. */
#ifndef TEST_MEMBERS_AT_H
#define TEST_MEMBERS_AT_H

#include <stdatomic.h>
#include <stdlib.h>

#include "tcp_players.h"

#include "bytes.h"
#include "members_message.h"

#include <thinwire/thinwire_members.h>

enum { REASONS = 5 };

static const char subject[] = "the spec local:every=8\nthe parameter w of (3,)\n";

/* --- members ----------------------------------------------------------------------------------------------------- */

typedef struct refusals {
    _Atomic int all, counts[REASONS]; /* of those told of by name, in each player's thread */
} refusals;

static const char *const reasons[REASONS] = {
    "does not speak thinwire's language", "did not prove that it knows this group",
    "trains something else than this group", "was changed on its way", "says what no member says"};

static inline void note_refusal(void *context, const char *text)
{
    refusals *all = context;
    int besides = 1;
    (void)sscanf(text, "refused besides: %d; the last: a connection from ", &besides);
    all->all += besides;
    for (int i = 0; i < REASONS; i++)
        if (strstr(text, reasons[i]) && strstr(text, "127.0.0.1")) all->counts[i]++;
}

static tw_members_options options = {.struct_size = sizeof options, .grace = 10, .patience = 60};

static inline tw_status try_to_join(const char *meeting, const char *what, const char *secret, refusals *all,
                                    const char *advertised, tw_members **members)
{
    const tw_tcp_options tcp = {.struct_size = sizeof tcp,
                                .bind = "127.0.0.1",
                                .advertise = advertised,
                                .key = secret,
                                .key_size = strlen(secret),
                                .refused = all ? note_refusal : NULL,
                                .context = all};
    return tw_members_join(meeting, what, &options, &tcp, members);
}

static inline tw_members *join_at(const char *meeting, const char *what, const char *secret, refusals *all,
                                  const char *advertised)
{
    tw_members *members;
    assert_int_equal(try_to_join(meeting, what, secret, all, advertised, &members), TW_OK);
    return members;
}

static inline tw_members *join(const char *meeting, const char *what, const char *secret, refusals *all)
{
    return join_at(meeting, what, secret, all, NULL);
}

static inline void find_meeting(char text[TCP_ADDRESS])
{
    snprintf(text, TCP_ADDRESS, "127.0.0.1:%d", find_port());
}

/* A member's thread: takes part in rounds of nothing, from one generation to the next, until one has the size that is
 * wanted; or until the others go on without it. */
typedef struct player {
    pthread_t thread;
    tw_members *members;
    int64_t rounds;
    int wanted, leaves;
    tw_members_wish wish;
    tw_members_outcome due;
    tw_status status;
    char text[1024];
    tw_generation generation;
    tw_comm *comm;
} player;

static inline void play_generation(player *me)
{
    tw_members_outcome due = TW_MEMBERS_SAME;
    while (me->status == TW_OK && due == TW_MEMBERS_SAME && (me->leaves || me->generation.size != me->wanted)) {
        usleep(2000); /* the step of a program, without which rounds take all cores */
        me->status = tw_members_due(me->members, me->comm, me->leaves ? TW_MEMBERS_LEAVE : TW_MEMBERS_STAY, &due);
    }
    if (me->status == TW_ERROR_PEER) me->status = TW_OK;
    if (!me->leaves && me->generation.size == me->wanted) return;
    tw_comm_destroy(me->comm);
    me->comm = NULL;
}

static inline void *play(void *argument)
{
    player *me = argument;
    me->generation.struct_size = sizeof me->generation;
    me->status = TW_OK;
    if (me->comm) play_generation(me);
    while (me->status == TW_OK && !me->comm) {
        me->status = tw_members_next(me->members, me->rounds, me->leaves, &me->generation, &me->comm);
        if (!me->comm) break;
        me->rounds = 5; /* who was behind has what the others have */
        play_generation(me);
    }
    if (me->status != TW_OK) snprintf(me->text, sizeof me->text, "%s", tw_last_error());
    return NULL;
}

static inline void begin(player *players, int count, int wanted)
{
    for (int i = 0; i < count; i++) {
        players[i].wanted = wanted;
        assert_int_equal(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
    }
}

static inline void end(player *players, int count)
{
    for (int i = 0; i < count; i++) {
        pthread_join(players[i].thread, NULL);
        if (players[i].status != TW_OK) fail_msg("player %d: %s", i, players[i].text);
        assert_int_equal(players[i].generation.number, players[0].generation.number);
    }
}

static inline void *take_part(void *argument)
{
    player *me = argument;
    me->status = tw_members_due(me->members, me->comm, me->wish, &me->due);
    return NULL;
}

static inline void take_part_in_a_round(player *players, int count, tw_members_wish wish)
{
    for (int n = 0; n < count; n++) {
        players[n].wish = wish;
        assert_int_equal(pthread_create(&players[n].thread, NULL, take_part, &players[n]), 0);
    }
    for (int n = 0; n < count; n++) {
        pthread_join(players[n].thread, NULL);
        assert_int_equal(players[n].status, TW_OK);
    }
}

static inline void come(player *me, const char *meeting)
{
    *me = (player){.members = join(meeting, subject, key, NULL), .rounds = -1};
}

static inline void go(player *me)
{
    tw_comm_destroy(me->comm);
    tw_members_destroy(me->members);
}

/* --- strangers --------------------------------------------------------------------------------------------------- */

typedef enum damage { WHOLE, CHANGED, NO_WORD } damage;

/* `number`: of the words that were sent on this line before it. */
static inline void send_next_word(int fd, const unsigned char session[TCP_SECRET], const council_message *message,
                                  damage how, uint64_t number)
{
    size_t size;
    unsigned char *word = tcp_word_write(message, "", &size), *said = malloc(4 + size + TCP_PROOF);
    tw_put(said, size, 4);
    memcpy(said + 4, word, size);
    if (how == NO_WORD) said[4] = 99; /* no kind */
    tcp_sign(session, number, said + 4, size, said + 4 + size);
    if (how == CHANGED) said[4 + size - 1] ^= 1;
    assert_int_equal(send(fd, said, 4 + size + TCP_PROOF, MSG_NOSIGNAL), 4 + size + TCP_PROOF);
    free(said);
    free(word);
}

static inline void send_word(int fd, const unsigned char session[TCP_SECRET], const council_message *message,
                             damage how)
{
    send_next_word(fd, session, message, how, 0);
}

/* If it is damaged, waits until it is turned away. */
static inline void say(int fd, const unsigned char session[TCP_SECRET], const council_message *message, damage how)
{
    char more;
    send_word(fd, session, message, how);
    if (how != WHOLE) assert_int_equal(recv(fd, &more, 1, 0), 0);
    close(fd);
}

/* It says of itself that it is where nobody listens. */
static inline council_message foreign_join(void)
{
    static council_message message = {.kind = COUNCIL_JOIN, .state = COUNCIL_READY};
    strcpy(message.seat.name, "127.0.0.1:1#00112233445566778899aabbccddeeff/1");
    strcpy(message.seat.door, message.seat.name);
    memset(message.topic, 7, sizeof message.topic);
    return message;
}

#endif
