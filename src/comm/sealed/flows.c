#include "flows.h"

#include <stdlib.h>

void tw_flows_create(tw_flows *flows)
{
    *flows = (tw_flows){.lists = {NULL}};
    pthread_mutex_init(&flows->lock, NULL); /* does not fail with default attributes */
}

void tw_flows_destroy(tw_flows *flows)
{
    for (int i = 0; i < TW_FLOW_LISTS; i++)
        while (flows->lists[i]) {
            tw_flow *first = flows->lists[i];
            flows->lists[i] = first->next;
            free(first);
        }
    pthread_mutex_destroy(&flows->lock);
}

static tw_flow *flows_add(tw_flow **list, tw_flow what)
{
    tw_flow *made = malloc(sizeof *made);
    if (!made) return NULL;
    *made = what;
    made->next = *list;
    *list = made;
    return made;
}

tw_flow *tw_flows_find(tw_flows *flows, int outgoing, int peer, unsigned channel)
{
    unsigned number = ((unsigned)peer * 31 + channel) * 2 + (unsigned)outgoing;
    tw_flow **list = &flows->lists[number % TW_FLOW_LISTS];
    pthread_mutex_lock(&flows->lock);
    tw_flow *one = *list;
    while (one && (one->peer != peer || one->channel != channel || one->outgoing != outgoing)) one = one->next;
    if (!one) one = flows_add(list, (tw_flow){.peer = peer, .outgoing = outgoing, .channel = channel});
    pthread_mutex_unlock(&flows->lock);
    return one;
}
