/* group.h - runs a program on every rank of a group, whatever the ranks are made of. group_threads.c makes them threads
 * of this process, group_mpi.c processes that mpirun started; the same cases run over both. */
#ifndef TEST_GROUP_H
#define TEST_GROUP_H

#include <thinwire/thinwire.h>

/* What one rank does. The comm is the program's to destroy. */
typedef void (*rank_program)(tw_comm *comm, const void *context);

/* Called once before and after everything. */
void group_begin(int *argc, char ***argv);
void group_end(void);

/* The group sizes there are: group_size(0), group_size(1), ... until 0. */
int group_size(int index);
/* Returns when all ranks that live in this process have returned. */
void group_run(int size, rank_program program, const void *context);
/* All ranks of the running program meet here; nothing of it goes over the comm. */
void group_meet(void);

/* Runs it on every size from `least` to `most` ranks, and asserts that none of them has noted a failure: cmocka's
 * assertions jump out of the thread they are used in. */
void group_test(int least, int most, rank_program program, const void *context);
void group_note(int holds, const char *file, int line, const char *text);
int group_failures(void);
#define CHECK(condition) group_note((condition) ? 1 : 0, __FILE__, __LINE__, #condition)

/* With SEALED defined, groups seal what their ranks say to each other. */
#ifdef SEALED
#include <thinwire/thinwire_sealed.h>
static inline void group_seal(tw_comm **comm)
{
    static const unsigned char key[TW_SEAL_KEY_BYTES] = {7};
    tw_comm *inner = *comm;
    CHECK(tw_comm_create_sealed(inner, key, sizeof key, comm) == TW_OK);
}
#else
static inline void group_seal(tw_comm **comm)
{
    (void)comm;
}
#endif

#endif
