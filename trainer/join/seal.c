#include "seal.h"
#include "error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

tw_status seal_refuse_threads(const train_settings *settings)
{
    if (!settings->seal) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--seal: workers that are threads of one process have no line between them; leave "
                   "--seal out, or start ranks on several machines");
}

/* The transport is loaded by its name, and reads its wishes in the environment. */
static void seal_wish(const train_settings *settings, const char *transport)
{
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%.15g", settings->timeout);
    setenv("THINWIRE_SEAL_OVER", transport, 1);
    setenv("THINWIRE_SEAL_SECONDS", seconds, 1);
    setenv("THINWIRE_KEY_FILE", settings->key_file, 1);
}

int seal_is_wished(const train_settings *settings)
{
    return settings->seal || getenv("THINWIRE_SEAL_OVER");
}

/* Who set the variable believes that the line is sealed. */
static tw_status check_environment(void)
{
    const char *over = getenv("THINWIRE_SEAL_OVER");
    if (!over) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT,
                   "THINWIRE_SEAL_OVER is \"%.40s\" in the environment, and without --seal nothing is sealed: add "
                   "--seal --key-file FILE, or unset the variable",
                   over);
}

tw_status seal_choose(const train_settings *settings, const char *transport, const char **name)
{
    *name = transport;
    if (!settings->seal) return check_environment();
    if (!settings->key_file)
        return tw_fail(TW_ERROR_ARGUMENT, "--seal needs --key-file FILE, the same on all machines; (umask 077; "
                                          "head -c 32 /dev/urandom > FILE) makes one");
    seal_wish(settings, transport);
    *name = "sealed";
    return TW_OK;
}

const char *seal_describe(const train_settings *settings, const char *transport)
{
    if (settings->seal) return ", sealed";
    if (strcmp(transport, "tcp") != 0) return "";
    if (settings->key_file || getenv("THINWIRE_KEY_FILE")) return ", not encrypted, open to those who know the key";
    return ", open to whoever reaches the port";
}

int seal_key_is_exposed(const train_settings *settings)
{
    struct stat about;
    if (!settings->seal || !settings->key_file || stat(settings->key_file, &about) != 0) return 0;
    return (about.st_mode & (S_IRGRP | S_IROTH)) != 0;
}
