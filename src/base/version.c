#include <thinwire/thinwire.h>

#define TEXT(x) #x
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

const char *tw_version(void)
{
    return VERSION(TW_VERSION_MAJOR, TW_VERSION_MINOR, TW_VERSION_PATCH);
}
