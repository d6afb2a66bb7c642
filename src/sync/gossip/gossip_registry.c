/* Which gossip schemes there are, and what a spec of each may say. */
#include "gossip_registry.h"

static const tw_option round_options[] = {
    {"pace", TW_OPTION_CHOICE, offsetof(tw_gossip, paced), "gradient", 0, 0, "gradient|free",
     "a round in the time of the fastest worker's gradient, or one after the other"},
    {"survive", TW_OPTION_SWITCH, offsetof(tw_gossip, survive), "on", 0, 0, NULL, "go on without ranks that are lost"},
};

static const tw_option host_options[] = {
    {"per_host", TW_OPTION_INTEGER, offsetof(tw_gossip, host.size), "1", 1, 16384, NULL,
     "workers in a row that act as one: their steps are averaged, and one of them gossips"},
};

static size_t gossip_option_sets(const void *listed, void *gossip, tw_option_set sets[TW_OPTION_SETS])
{
    const tw_gossip_ops *ops = listed;
    size_t count = 0;
    sets[count++] = (tw_option_set){ops->options, ops->option_count, gossip};
    if (!ops->exchange)
        sets[count++] = (tw_option_set){round_options, sizeof round_options / sizeof *round_options, gossip};
    sets[count++] = (tw_option_set){host_options, sizeof host_options / sizeof *host_options, gossip};
    return count;
}

static tw_named gossip_named(size_t index)
{
    const tw_gossip_ops *ops = tw_gossip_at(index);
    return ops ? (tw_named){ops->name, ops->summary, ops} : (tw_named){0};
}

static const tw_list gossips = {"gossip scheme", "gossip schemes", gossip_named, gossip_option_sets,
                                "schemes are for tw_reducer_create (in Python Reducer), methods of local updates for "
                                "tw_outer_create (OuterLoop)"};

tw_status tw_gossip_find(const char *spec, const tw_gossip_ops **ops)
{
    tw_named found = {0};
    tw_status status = tw_list_find(&gossips, spec, &found);
    *ops = found.ops;
    return status;
}

tw_status tw_gossip_parse(tw_gossip *gossip, const char *spec)
{
    return tw_list_parse(&gossips, gossip->ops, gossip->ops->name, spec, gossip);
}

/* ---- the public list --------------------------------------------------------------------------------------------- */

TW_PUBLIC_LIST(tw_gossips, gossips)

int tw_gossips_is_synchronous(size_t index)
{
    const tw_gossip_ops *ops = tw_gossip_at(index);
    return ops && ops->exchange;
}
