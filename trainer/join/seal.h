/* seal.h - the option --seal: what ranks say to each other is encrypted, and signed with a key. */
#ifndef TRAINER_SEAL_H
#define TRAINER_SEAL_H

#include "settings.h"

/* 1 if --seal or the environment asks for a seal. In that each rank may differ from the others. */
int seal_is_wished(const train_settings *settings);

/* The name to open `transport` by: its own, or the one that seals it. TW_ERROR_ARGUMENT where --seal lacks a key, and
 * where the environment asks for a seal and --seal is not given. */
tw_status seal_choose(const train_settings *settings, const char *transport, const char **name);

/* TW_ERROR_ARGUMENT where the workers are threads, and there is nothing to seal. */
tw_status seal_refuse_threads(const train_settings *settings);

/* What keeps others off the links, for people, behind a comma: ", sealed"; "" where nobody else can reach them. */
const char *seal_describe(const train_settings *settings, const char *transport);

/* 1 if there is something to seal with, and others than its owner may read it. */
int seal_key_is_exposed(const train_settings *settings);

#endif
