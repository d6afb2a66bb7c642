/* A plug-in that loads another one as it is loaded itself. */
#include <thinwire/thinwire_scheme.h>

__attribute__((constructor)) static void load_another(void)
{
    (void)tw_plugin_load(INNER);
}

TW_PLUGIN_EXPORT const tw_plugin *tw_plugin_describe(void);

TW_PLUGIN_EXPORT const tw_plugin *tw_plugin_describe(void)
{
    static const tw_plugin plugin = {.struct_size = sizeof plugin};
    return &plugin;
}
