#include "exchange.h"
#include "error.h"
#include <string.h>

#define DECLARE_EXCHANGE(name) extern const exchange name##_exchange;
#define EXCHANGE_AT(name) &name##_exchange,

EXCHANGES(DECLARE_EXCHANGE)

static const exchange *const exchanges[] = {EXCHANGES(EXCHANGE_AT) NULL};

const exchange *exchange_at(size_t index)
{
    return exchanges[index];
}

static size_t find(const scheme_list *list, const char *spec)
{
    size_t length = strcspn(spec, ":"), index = 0;
    while (index < list->count() &&
           (strlen(list->name(index)) != length || memcmp(list->name(index), spec, length) != 0))
        index++;
    return index;
}

const exchange *exchange_find(const char *spec, size_t *scheme)
{
    for (size_t i = 0; exchange_at(i); i++) {
        *scheme = find(&exchange_at(i)->schemes, spec);
        if (*scheme < exchange_at(i)->schemes.count()) return exchange_at(i);
    }
    return NULL;
}

int exchange_is_synchronous(const exchange *e, size_t scheme)
{
    return !e->schemes.is_synchronous || e->schemes.is_synchronous(scheme);
}
