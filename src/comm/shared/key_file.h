/* key_file.h - keys from files: what tw_seal_read_key does, for the transports that take a key as well. */
#ifndef TW_COMM_SHARED_KEY_FILE_H
#define TW_COMM_SHARED_KEY_FILE_H

#include <thinwire/thinwire_plugin.h>
#include <thinwire/thinwire_sealed.h>

tw_status tw_key_file_read(const char *path, unsigned char key[TW_SEAL_KEY_BYTES], int *exposed);

#endif
