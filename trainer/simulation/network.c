#include "network.h"
#include "error.h"
#include <stdio.h>
#include <thinwire/thinwire_plan.h>

/* As the latency of some line. */
int network_read_time(const char *text, double *seconds)
{
    char line[NETWORK_TEXT];
    tw_world_options world = {.struct_size = sizeof world};
    if (snprintf(line, sizeof line, "1bit,%s", text) >= (int)sizeof line || tw_line_read(line, &world) != TW_OK)
        return 0;
    *seconds = world.latency;
    return 1;
}

tw_status network_read_link(const char *link, tw_world_options *world)
{
    tw_status status = tw_line_read(link, world);
    return status == TW_OK ? TW_OK : tw_fail(status, "--link %s", tw_last_error());
}

const char *network_link_text(const tw_world_options *world, char text[NETWORK_TEXT])
{
    tw_line_text(world, text, NETWORK_TEXT);
    return text;
}
