/* Ranks as threads of this process that see each other over files in a folder. All groups of a program meet in the same
 * one, after each other, and what one of them left there must not hurt the next. */
#include "group.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <thinwire/thinwire_folder.h>

enum { MOST = 5 };

typedef struct player {
    pthread_t thread;
    int rank, size;
    rank_program program;
    const void *context;
} player;

static pthread_barrier_t meeting;
static char folder[] = "/tmp/thinwire-folder-XXXXXX";

void group_begin(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    CHECK(mkdtemp(folder) != NULL);
}

void group_end(void)
{
    char path[sizeof folder + 300];
    DIR *all = opendir(folder);
    for (struct dirent *one; all && (one = readdir(all));) {
        snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
        if (one->d_name[0] != '.' || strlen(one->d_name) > 2) unlink(path);
    }
    if (all) closedir(all);
    rmdir(folder);
}

int group_size(int index)
{
    return index < MOST ? index + 1 : 0;
}

static void *play(void *argument)
{
    player *me = argument;
    tw_comm *comm = NULL;
    tw_status status = tw_folder_join(folder, me->rank, me->size, 60, &comm);
    CHECK(status == TW_OK);
    if (status == TW_OK) me->program(comm, me->context);
    return NULL;
}

void group_run(int size, rank_program program, const void *context)
{
    player players[MOST];
    pthread_barrier_init(&meeting, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        players[r] = (player){.rank = r, .size = size, .program = program, .context = context};
        CHECK(pthread_create(&players[r].thread, NULL, play, &players[r]) == 0);
    }
    for (int r = 0; r < size; r++) pthread_join(players[r].thread, NULL);
    pthread_barrier_destroy(&meeting);
}

void group_meet(void)
{
    pthread_barrier_wait(&meeting);
}

double group_patience(void)
{
    return 600; /* the peers that are gone here have said so */
}
