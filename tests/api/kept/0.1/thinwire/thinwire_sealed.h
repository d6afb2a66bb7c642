#ifndef THINWIRE_SEALED_H
#define THINWIRE_SEALED_H
#include <thinwire/thinwire.h>
#ifdef __cplusplus
extern "C" {
#endif
#define TW_SEAL_KEY_BYTES 32
#define TW_SEAL_KEY_BYTES_LEAST 16
#define TW_SEAL_KEY_BYTES_MOST 4096
TW_API tw_status tw_comm_create_sealed(tw_comm *inner, const void *key, size_t key_bytes, tw_comm **comm);
TW_API tw_status tw_seal_read_key(const char *path, unsigned char key[TW_SEAL_KEY_BYTES], int *exposed);
#ifdef __cplusplus
}
#endif
#endif
