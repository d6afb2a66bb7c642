#include "scheme.h"
#include "error.h"
#include <stdio.h>
#include <string.h>

static size_t find(const char *spec, const char *(*name)(size_t), size_t count)
{
    size_t length = strcspn(spec, ":"), index = 0;
    while (index < count && (strlen(name(index)) != length || memcmp(name(index), spec, length) != 0)) index++;
    return index;
}

size_t scheme_find(const char *spec)
{
    return find(spec, tw_scheme_name, tw_scheme_count());
}

size_t scheme_find_gossip(const char *spec)
{
    return find(spec, tw_gossip_name, tw_gossip_scheme_count());
}

int scheme_is_exact(const char *spec)
{
    static const char *const exact[] = {"allreduce", "fp16", "bf16"};
    size_t length = strcspn(spec, ":");
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (strlen(exact[i]) == length && memcmp(exact[i], spec, length) == 0) return 1;
    return 0;
}

static void list_names(const char *(*name)(size_t), size_t count, char *text, size_t capacity)
{
    text[0] = '\0';
    for (size_t i = 0, used = 0; i < count && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i ? ", " : "", name(i));
}

tw_status scheme_check(const char *spec)
{
    if (scheme_find(spec) < tw_scheme_count() || scheme_find_gossip(spec) < tw_gossip_scheme_count()) return TW_OK;
    char gradients[384], weights[384];
    list_names(tw_scheme_name, tw_scheme_count(), gradients, sizeof gradients);
    list_names(tw_gossip_name, tw_gossip_scheme_count(), weights, sizeof weights);
    return tw_fail(TW_ERROR_ARGUMENT,
                   "no scheme \"%.*s\"; there are %s, which exchange gradients, and %s, which exchange "
                   "weights",
                   (int)strcspn(spec, ":"), spec, gradients, weights);
}
