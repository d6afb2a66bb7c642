/* line.h - the line between the members of a run, as they find it. */
#ifndef TRAINER_LINE_H
#define TRAINER_LINE_H

#include "peers.h"

#include <thinwire/thinwire_sim.h>

/* Fills the rates and the latency of `world`, the same on every rank, with what the slowest member has. All ranks call
 * it, 2 to 64 of them, with nothing else on its way; it takes about 2.6 s for each other rank. TW_ERROR_PEER as
 * everywhere. */
tw_status line_measure(tw_comm *comm, double timeout, tw_world_options *world);

/* Of what was found once, for line_measure: raises the rates of `world`, and lowers its latency, to what the slowest
 * member has. */
void line_conclude(const peers_report *found, tw_world_options *world);

#endif
