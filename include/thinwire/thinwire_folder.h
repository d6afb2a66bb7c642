/* thinwire_folder.h - groups of processes that share a folder and cannot reach each other. Link with -lthinwire_folder
 * -lthinwire.
 *
 * EXPERIMENTAL: it works and is tested as the rest is, and may still change with a release (docs/abi.md).
 *
 * The folder may lie on a file server, or a program keeps it alike on all machines, or it is a place on a web server
 * that takes PUT, GET and DELETE. Every message is a file there, with a checksum, which its receiver removes.
 * docs/transports.md says when not to take it. */
#ifndef THINWIRE_FOLDER_H
#define THINWIRE_FOLDER_H

#include <thinwire/thinwire.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether to wait no longer: anything but 0. For programs that can be interrupted. */
typedef int (*tw_folder_stopped)(void *context);

/* A collective of `size` processes, at most 64, each with a `rank` of its own from 0 on, in the folder `path`, which is
 * there; or at a URL, "https://host/path" or "http://host/path?what is behind each name", with the headers of
 * THINWIRE_HTTP_HEADERS in the environment, a line each, and a certificate signed by who is in the file that
 * SSL_CERT_FILE names there, where it is set; or "s3+https://host/bucket/path", whose requests are signed as
 * Amazon's S3 wants it, with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION or AWS_DEFAULT_REGION, and, where it
 * is set, AWS_SESSION_TOKEN. Waits up to `seconds` for the others, at most 1e9. `stopped`, where it is not NULL, is
 * asked with `context` when there is nothing else to refuse and the wait begins, and then with each look at the
 * place, of which one follows the other within a second while no server stands still: it may end the call, with
 * TW_ERROR_PEER. What an earlier group of this rank left in a folder is removed. Whoever may write there may take
 * part, and read all, unless the comm is sealed (thinwire_sealed.h). TW_ERROR_PEER: the others did not come in
 * time, or another process has this rank. TW_ERROR_IO: there is no such folder, or nothing can be written there.
 * TW_ERROR_UNSUPPORTED: URLs need libcurl, and it is missing. tw_comm_open("folder", &comm) does the same with what
 * the environment says: THINWIRE_FOLDER, THINWIRE_RANK, THINWIRE_SIZE and THINWIRE_JOIN_SECONDS. */
TW_API tw_status tw_folder_join(const char *path, int rank, int size, double seconds, tw_folder_stopped stopped,
                                void *context, tw_comm **comm);

#ifdef __cplusplus
}
#endif

#endif
