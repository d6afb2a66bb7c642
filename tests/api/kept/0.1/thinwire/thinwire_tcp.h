#ifndef THINWIRE_TCP_H
#define THINWIRE_TCP_H
#include <thinwire/thinwire.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tw_tcp_options {
    size_t struct_size;
    const char *bind;
    const char *advertise;
    int first_port;
    int last_port;
    int streams;
    const void *key;
    size_t key_size;
    void (*refused)(void *context, const char *text);
    int (*stopped)(void *context);
    void *context;
    int sealed;
} tw_tcp_options;
typedef struct tw_tcp tw_tcp;
TW_API tw_status tw_tcp_listen(const tw_tcp_options *options, tw_tcp **tcp);
TW_API const char *tw_tcp_address(const tw_tcp *tcp);
TW_API tw_status tw_tcp_connect(tw_tcp *tcp, int rank, int size, const char *const *addresses, double seconds,
                                tw_comm **comm);
TW_API uint64_t tw_tcp_refused(const tw_tcp *tcp, const char **last);
TW_API void tw_tcp_destroy(tw_tcp *tcp);
TW_API tw_status tw_tcp_join(const char *meeting, int rank, int size, const tw_tcp_options *options, double seconds,
                             tw_comm **comm);
#ifdef __cplusplus
}
#endif
#endif
