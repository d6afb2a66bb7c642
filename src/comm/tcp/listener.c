#include "listener.h"

#include "peer.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_KEY = 16, LONGEST_KEY = 4096, LARGEST_OPTIONS = 1024 };

/* --- options ------------------------------------------------------------------------------------------------- */

static tw_status check_ports(const tw_tcp_options *options)
{
    int first = options->first_port, last = options->last_port;
    if (first >= 0 && first <= 65535 && last >= 0 && last <= 65535 && (last == 0 || (first && first <= last)))
        return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "ports %d to %d: want 1 to 65535, the first first, or 0 for any", first, last);
}

static tw_status check_options(const tw_tcp_options *options)
{
    TRY(check_ports(options));
    if (options->streams < 0 || options->streams > TCP_MOST_STREAMS)
        return tw_fail(TW_ERROR_ARGUMENT, "%d streams: want 1 to %d", options->streams, TCP_MOST_STREAMS);
    if ((options->key || options->key_size) &&
        (!options->key || options->key_size < LEAST_KEY || options->key_size > LONGEST_KEY))
        return tw_fail(TW_ERROR_ARGUMENT, "a key of %zu bytes: want %d to %d, or no key and 0", options->key_size,
                       LEAST_KEY, LONGEST_KEY);
    return TW_OK;
}

/* As base/sized.h does it: a program that is newer may have options that are not known here, but not use them. */
tw_status tcp_read_known(void *options, size_t known, const void *given, const char *type)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > LARGEST_OPTIONS || size % sizeof size)
        return tw_fail(TW_ERROR_ARGUMENT, "struct_size is %zu; set it to sizeof(%s) before the call", size, type);
    for (size_t i = known; i < size; i++)
        if (((const char *)given)[i])
            return tw_fail(
                TW_ERROR_UNSUPPORTED,
                "a %s of %zu bytes uses what this thinwire (%s) does not know; it was compiled against a newer "
                "one",
                type, size, tw_version());
    memcpy(options, given, size < known ? size : known);
    return TW_OK;
}

tw_status tcp_options_read(const tw_tcp_options *given, tw_tcp_options *options)
{
    *options = (tw_tcp_options){.struct_size = sizeof *options};
    if (given) TRY(tcp_read_known(options, sizeof *options, given, "tw_tcp_options"));
    return check_options(options);
}

int tcp_is_stopped(const tw_tcp_options *options)
{
    return options->stopped && options->stopped(options->context);
}

/* --- listening ----------------------------------------------------------------------------------------------- */

static tw_status set_host(tw_tcp *tcp, const tw_tcp_options *options)
{
    char interface[TCP_HOST];
    const char *host = options->advertise ? options->advertise : options->bind;
    if (host && !options->advertise && tcp_interface_address(host, interface)) host = interface;
    if (host && (strlen(host) >= TCP_HOST || !*host || strpbrk(host, " \t\n[]#/")))
        return tw_fail(TW_ERROR_ARGUMENT, "\"%.100s\" is no host name or address", host);
    if (host)
        strcpy(tcp->address.host, host);
    else
        tcp_own_address(tcp->address.host);
    return TW_OK;
}

static void draw_token(char token[TCP_TOKEN + 1])
{
    unsigned char bytes[TCP_TOKEN / 2];
    randombytes_buf(bytes, sizeof bytes);
    sodium_bin2hex(token, TCP_TOKEN + 1, bytes, sizeof bytes);
}

static tw_status set_key(tw_tcp *tcp, const tw_tcp_options *options)
{
    tcp->options.key = NULL;
    if (!options->key) return TW_OK;
    tcp->key = malloc(options->key_size);
    if (!tcp->key) return tw_fail(TW_ERROR_MEMORY, "no memory for a key");
    memcpy(tcp->key, options->key, options->key_size);
    return TW_OK;
}

static tw_status listener_begin(tw_tcp *tcp, const tw_tcp_options *options)
{
    int why;
    tcp->options = *options;
    tcp->options.bind = tcp->options.advertise = NULL;
    TRY(set_key(tcp, options));
    TRY(set_host(tcp, options));
    TRY(tcp_acceptor_open(&tcp->acceptor, options->bind, options->first_port, options->last_port, &why));
    tcp->acceptor.tell = options->refused;
    tcp->acceptor.context = options->context;
    tcp->address.port = tcp->acceptor.port;
    tcp->address.streams = options->streams ? options->streams : 1;
    tcp->address.behind = options->behind != 0;
    draw_token(tcp->address.token);
    tcp_address_write(&tcp->address, tcp->text);
    return TW_OK;
}

tw_status tw_tcp_listen(const tw_tcp_options *given, tw_tcp **tcp)
{
    tw_tcp_options options;
    TRY(tw_given(tcp, "tcp"));
    TRY(tcp_options_read(given, &options));
    if (!tcp_hello_begin()) return tw_fail(TW_ERROR_SYSTEM, "this system has no random numbers");
    tw_tcp *made = calloc(1, sizeof *made);
    if (!made) return tw_fail(TW_ERROR_MEMORY, "no memory to listen");
    made->acceptor.fd = -1;
    tw_status status = listener_begin(made, &options);
    if (status == TW_OK)
        *tcp = made;
    else
        tw_tcp_destroy(made);
    return status;
}

int tcp_listener_is_at(tw_tcp *tcp, const char *address)
{
    tcp_address own = tcp->address;
    char text[TCP_ADDRESS];
    if (strcmp(address, tcp->text) == 0) return 1;
    own.behind = 1;
    tcp_address_write(&own, text);
    if (strcmp(address, text) != 0) return 0;
    tcp->address = own;
    strcpy(tcp->text, text);
    return 1;
}

const char *tw_tcp_address(const tw_tcp *tcp)
{
    return tcp ? tcp->text : "";
}

uint64_t tw_tcp_refused(const tw_tcp *tcp, const char **last)
{
    if (last) *last = tcp ? tcp->acceptor.last : "";
    return tcp ? tcp->acceptor.refused : 0;
}

void tw_tcp_destroy(tw_tcp *tcp)
{
    if (!tcp) return;
    tcp_latecomers_destroy(tcp->latecomers);
    tcp_acceptor_close(&tcp->acceptor);
    if (tcp->key) {
        sodium_memzero(tcp->key, tcp->options.key_size);
        free(tcp->key);
    }
    sodium_memzero(tcp->acceptor.secret, sizeof tcp->acceptor.secret);
    free(tcp);
}
