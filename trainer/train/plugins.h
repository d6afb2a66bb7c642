/* plugins.h - the option --plugin, which the commands that run schemes share: shared libraries with schemes of others.
 */
#ifndef TRAINER_PLUGINS_H
#define TRAINER_PLUGINS_H

#include "options.h"

/* Its row; `at` is the place of a char * in the command's settings. */
#define PLUGINS_ROW(at)                                                                                                \
    {                                                                                                                  \
        "plugin", "FILE", OPTION_TEXT, at,                                                                             \
            .list = true, .simulated = true,                                                                           \
            .help =                                                                                                    \
                "Load schemes of others from this shared library, such as ./libmine.so. Give the option again, or "    \
                "commas between names, for several"                                                                    \
    }

/* Makes *files, if there are any, what a run in any folder loads them by; those that are not there stay as they are. */
tw_status plugins_resolve(char **files);

/* Loads them, in their order; NULL: none. What is loaded already is passed over. */
tw_status plugins_load(const char *files);

#endif
