#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peer.h"

/* --- texts --------------------------------------------------------------------------------------------------- */

/* "HOST:PORT" or "[HOST]:PORT", up to `end`. */
static int read_host_and_port(const char *text, const char *end, tcp_address *address)
{
    const char *colon = end;
    while (colon > text && *colon != ':') colon--;
    if (colon == text) return 0;
    int in_brackets = *text == '[' && colon[-1] == ']';
    const char *host = text + in_brackets, *behind = colon - in_brackets;
    size_t length = (size_t)(behind - host);
    if (behind <= host || length >= sizeof address->host) return 0;
    memcpy(address->host, host, length);
    address->host[length] = 0;
    if (!in_brackets && strchr(address->host, ':')) return 0; /* whose colon is it? */
    if (strpbrk(address->host, " \t\n[]#/")) return 0;
    char *rest;
    long port = colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &rest, 10) : 0;
    address->port = (int)port;
    return port >= 1 && port <= 65535 && rest == end;
}

static int read_token(const char *text, const char *end, tcp_address *address)
{
    if (end - text != TCP_TOKEN || strspn(text, "0123456789abcdef") < TCP_TOKEN) return 0;
    memcpy(address->token, text, TCP_TOKEN);
    address->token[TCP_TOKEN] = 0;
    return 1;
}

static const char behind[] = "/behind";

static int read_streams(const char *text, tcp_address *address)
{
    char *rest;
    long streams = *text >= '0' && *text <= '9' ? strtol(text, &rest, 10) : 0;
    address->streams = (int)streams;
    if (streams < 1 || streams > TCP_MOST_STREAMS) return 0;
    address->behind = strcmp(rest, behind) == 0;
    return address->behind || *rest == 0;
}

tw_status tcp_address_read(const char *text, const char *what, tcp_address *address)
{
    const char *hash = strchr(text, '#'), *slash = hash ? strchr(hash, '/') : NULL;
    *address = (tcp_address){.streams = 1};
    if (slash && read_host_and_port(text, hash, address) && read_token(hash + 1, slash, address) &&
        read_streams(slash + 1, address))
        return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "%s is \"%.100s\": want what tw_tcp_address says on that rank", what, text);
}

void tcp_meeting_write(const tcp_address *address, char text[TCP_ADDRESS])
{
    const char *format = strchr(address->host, ':') ? "[%s]:%d" : "%s:%d";
    snprintf(text, TCP_ADDRESS, format, address->host, address->port);
}

void tcp_address_write(const tcp_address *address, char text[TCP_ADDRESS])
{
    tcp_meeting_write(address, text);
    size_t used = strlen(text);
    snprintf(text + used, TCP_ADDRESS - used, "#%s/%d%s", address->token, address->streams,
             address->behind ? behind : "");
}

tw_status tcp_meeting_read(const char *text, tcp_address *address)
{
    *address = (tcp_address){.streams = 1};
    if (read_host_and_port(text, text + strlen(text), address)) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "\"%.100s\" is no meeting point: want HOST:PORT, or [HOST]:PORT for IPv6", text);
}

/* --- sockets' addresses -------------------------------------------------------------------------------------- */

tw_status tcp_resolve(const char *host, int port, int flags, struct addrinfo **list)
{
    char service[16];
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    snprintf(service, sizeof service, "%d", port);
    int error = getaddrinfo(host, service, &wanted, list);
    if (error == 0) return TW_OK;
    return tw_fail(TW_ERROR_ARGUMENT, "\"%s\" cannot be resolved: %s", host ? host : "", gai_strerror(error));
}

static socklen_t address_length_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

void tcp_host_name(const struct sockaddr *address, char name[TCP_NAME])
{
    if (getnameinfo(address, address_length_of(address), name, TCP_NAME, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(name, TCP_NAME, "an unknown address");
    if (strncmp(name, "::ffff:", 7) == 0 && strchr(name, '.')) memmove(name, name + 7, strlen(name + 7) + 1);
}

int tcp_port_of(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)(const void *)address)->sin6_port);
    return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
}

/* --- this machine's ------------------------------------------------------------------------------------------ */

static int is_usable(const struct ifaddrs *one, const char *interface)
{
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP)) return 0;
    if (interface && strcmp(one->ifa_name, interface) != 0) return 0;
    if (!interface && one->ifa_flags & IFF_LOOPBACK) return 0;
    if (one->ifa_addr->sa_family == AF_INET) return 1;
    if (one->ifa_addr->sa_family != AF_INET6) return 0;
    return !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)one->ifa_addr)->sin6_addr);
}

/* Of an interface, or of any but the loopback; IPv4 where there is both. */
int tcp_interface_address(const char *interface, char host[TCP_HOST])
{
    struct ifaddrs *all;
    const struct ifaddrs *found = NULL;
    char name[TCP_NAME] = "";
    if (getifaddrs(&all) != 0) return 0;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next)
        if (is_usable(one, interface) &&
            (!found || (found->ifa_addr->sa_family == AF_INET6 && one->ifa_addr->sa_family == AF_INET)))
            found = one;
    if (found) {
        tcp_host_name(found->ifa_addr, name);
        snprintf(host, TCP_HOST, "%s", name);
    }
    freeifaddrs(all);
    return found != NULL;
}

/* A datagram socket that is connected has the address of the way there; nothing is sent. */
int tcp_way_to(const struct sockaddr *there, char host[TCP_HOST])
{
    struct sockaddr_storage here = {0};
    socklen_t size = sizeof here;
    char name[TCP_NAME];
    int fd = socket(there->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    int found =
        connect(fd, there, address_length_of(there)) == 0 && getsockname(fd, (struct sockaddr *)&here, &size) == 0;
    close(fd);
    if (!found) return 0;
    tcp_host_name((const struct sockaddr *)&here, name);
    snprintf(host, TCP_HOST, "%s", name);
    return strcmp(name, "0.0.0.0") != 0;
}

/* Of no name, as a name server may let one wait. */
static int read_number(const char *host, struct addrinfo **list)
{
    struct addrinfo wanted = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST};
    return getaddrinfo(host, "9", &wanted, list) == 0;
}

int tcp_is_own_address(const char *host)
{
    struct addrinfo *list;
    if (!read_number(host, &list)) return 1;
    ((struct sockaddr_in *)(void *)list->ai_addr)->sin_port = 0; /* any; at the same place for IPv6 */
    int fd = socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int is_other = fd >= 0 && bind(fd, list->ai_addr, list->ai_addrlen) != 0 && errno == EADDRNOTAVAIL;
    if (fd >= 0) close(fd);
    freeaddrinfo(list);
    return !is_other;
}

/* 192.0.2.1 is nobody's. */
static int find_way_out(char host[TCP_HOST])
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(9)};
    inet_pton(AF_INET, "192.0.2.1", &there.sin_addr);
    return tcp_way_to((const struct sockaddr *)(const void *)&there, host);
}

int tcp_way_to_host(const char *there, char host[TCP_HOST])
{
    struct addrinfo *list;
    if (!read_number(there, &list)) return find_way_out(host);
    int found = tcp_way_to(list->ai_addr, host);
    freeaddrinfo(list);
    return found;
}

void tcp_own_address(char host[TCP_HOST])
{
    if (!find_way_out(host) && !tcp_interface_address(NULL, host)) snprintf(host, TCP_HOST, "127.0.0.1");
}
