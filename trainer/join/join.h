/* join.h - workers that were started one by one, each by the same command, and meet at HOST:PORT. How they meet there
 * is the library's: src/comm/tcp/rendezvous.h. */
#ifndef TRAINER_JOIN_H
#define TRAINER_JOIN_H

#include "settings.h"

/* Joins the group of --join, or of the environment, over sockets. Returns when all workers are there. Who is turned
 * away in the meantime is told on standard error. */
tw_status join_open(const train_settings *settings, tw_comm **comm);

/* Whether processes meet by --join, and not by a launcher. */
int join_is_wished(const train_settings *settings);
/* The group of --join where it is wished, else of the launcher, for a command that is no run. */
tw_status join_group(const train_settings *settings, tw_comm **comm);

/* Each worker has a terminal of its own, so each says that it waits, which rank it has become, and how it ended: a line
 * on standard error, unless it is to be quiet. */
void join_tell_begin(const train_settings *settings);
void join_tell_joined(const train_settings *settings, const tw_comm *comm);
void join_tell_end(const train_settings *settings, int rank, int interrupted);

/* What has to be the same on all, a line each: "--lr 0.03". The caller's to free; NULL: no memory. */
char *join_list_options(const train_settings *settings);

/* Nobody but the user says that all were started with the same options: compares those that matter with rank 0's.
 * Called by all ranks; a rank that differs gets TW_ERROR_ARGUMENT, which names the option. */
tw_status join_compare(const train_settings *settings, tw_comm *comm);

#endif
