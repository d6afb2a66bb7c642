/* network.h - a network between the machines of a world, in words. */
#ifndef TRAINER_NETWORK_H
#define TRAINER_NETWORK_H

#include <thinwire/thinwire_sim.h>

/* "20us", "0.1ms", "2s". 0: it is no time, or more than 1e6 s. */
int network_read_time(const char *text, double *seconds);
/* --link: "1Gbit,0.1ms", or with another rate towards the host, "10Mbit/100Mbit,80ms". TW_ERROR_ARGUMENT. */
tw_status network_read_link(const char *link, tw_world_options *world);
/* The same words for what the world has. */
enum { NETWORK_TEXT = 96 };
const char *network_link_text(const tw_world_options *world, char text[NETWORK_TEXT]);

#endif
