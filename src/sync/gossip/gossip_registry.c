/* Which gossip schemes there are, and what a spec of each may say. */
#include "gossip_registry.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

enum { OPTION_SETS = 3 };

static const tw_option round_options[] = {
    {"pace", TW_OPTION_CHOICE, offsetof(tw_gossip, paced), "gradient", 0, 0, "gradient|free",
     "a round in the time of the fastest worker's gradient, or one after the other"},
    {"survive", TW_OPTION_SWITCH, offsetof(tw_gossip, survive), "on", 0, 0, NULL, "go on without ranks that are lost"},
};

static const tw_option host_options[] = {
    {"per_host", TW_OPTION_INTEGER, offsetof(tw_gossip, host.size), "1", 1, 16384, NULL,
     "workers in a row that act as one: their steps are averaged, and one of them gossips"},
};

/* All that a spec of this scheme may say, and where it goes. Returns how many sets. */
static size_t list_options(const tw_gossip_ops *ops, void *gossip, tw_option_set sets[OPTION_SETS])
{
    size_t count = 0;
    sets[count++] = (tw_option_set){ops->options, ops->option_count, gossip};
    if (!ops->exchange)
        sets[count++] = (tw_option_set){round_options, sizeof round_options / sizeof *round_options, gossip};
    sets[count++] = (tw_option_set){host_options, sizeof host_options / sizeof *host_options, gossip};
    return count;
}

tw_status tw_gossip_find(const char *spec, const tw_gossip_ops **ops)
{
    char name[64], names[512] = "";
    TW_TRY(tw_spec_name(spec, name, sizeof name));
    for (size_t i = 0, used = 0; (*ops = tw_gossip_at(i)); i++) {
        if (strcmp((*ops)->name, name) == 0) return TW_OK;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", (*ops)->name);
    }
    return tw_fail(TW_ERROR_SPEC, "no gossip scheme \"%s\"; there are: %s", name, names);
}

tw_status tw_gossip_parse(tw_gossip *gossip, const char *spec)
{
    tw_option_set sets[OPTION_SETS];
    tw_status status = tw_spec_parse(spec, sets, list_options(gossip->ops, gossip, sets));
    return status == TW_ERROR_SPEC ? tw_fail_in(status, gossip->ops->name) : status;
}

size_t tw_gossips_count(void)
{
    size_t count = 0;
    while (tw_gossip_at(count)) count++;
    return count;
}

const char *tw_gossips_name(size_t index)
{
    const tw_gossip_ops *ops = tw_gossip_at(index);
    return ops ? ops->name : NULL;
}

const char *tw_gossips_summary(size_t index)
{
    const tw_gossip_ops *ops = tw_gossip_at(index);
    return ops ? ops->summary : NULL;
}

int tw_gossips_is_synchronous(size_t index)
{
    const tw_gossip_ops *ops = tw_gossip_at(index);
    return ops && ops->exchange;
}

size_t tw_gossips_option_count(size_t index)
{
    const tw_gossip_ops *ops = tw_gossip_at(index);
    tw_option_set sets[OPTION_SETS];
    return ops ? tw_options_count(sets, list_options(ops, NULL, sets)) : 0;
}

tw_status tw_gossips_option(size_t index, size_t number, tw_option_info *option)
{
    const tw_gossip_ops *ops = tw_gossip_at(index);
    tw_option_set sets[OPTION_SETS];
    if (!ops)
        return tw_fail(TW_ERROR_ARGUMENT, "there are %zu gossip schemes and no number %zu", tw_gossips_count(), index);
    return tw_options_tell(sets, list_options(ops, NULL, sets), number, option);
}

size_t tw_gossips_help(size_t index, char *text, size_t capacity)
{
    const tw_gossip_ops *ops = tw_gossip_at(index);
    tw_option_set sets[OPTION_SETS];
    if (!ops) return (size_t)snprintf(text, text ? capacity : 0, "%s", "");
    return tw_options_describe(ops->name, ops->summary, sets, list_options(ops, NULL, sets), text, capacity);
}
