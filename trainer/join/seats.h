/* seats.h - a comm of some of another comm's ranks, in an order of their own. */
#ifndef TRAINER_SEATS_H
#define TRAINER_SEATS_H

#include <thinwire/thinwire_plugin.h>

/* Rank i of *comm is ranks[i] of `whole`; this rank is among them. It has whole's timeout and patience. `whole`
 * outlives it; those in it do nothing else with `whole` meanwhile, and leave it where this one fails. */
tw_status seats_open(tw_comm *whole, const int *ranks, int count, tw_comm **comm);

#endif
