#include "route.h"
#include "error.h"
#include "link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <math.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thinwire/thinwire_plugin.h>
#include <unistd.h>

enum { HOST_BYTES = 256, PORT_BYTES = 6 };

/* ---- the target ---- */

/* "10.0.0.5:7000", "node1:7000", "[::1]:7000" */
static tw_status read_target(const char *target, char host[HOST_BYTES], char port[PORT_BYTES])
{
    const char *colon = strrchr(target, ':');
    size_t length = colon ? (size_t)(colon - target) : 0;
    char *rest;
    long number = colon ? strtol(colon + 1, &rest, 10) : 0;
    if (length && target[0] == '[' && target[length - 1] == ']') {
        target++;
        length -= 2;
    } else if (memchr(target, ':', length))
        length = 0; /* an IPv6 address has to say where it ends */
    if (!length || length >= HOST_BYTES || number < 1 || number > 65535 || *rest)
        return tw_fail(TW_ERROR_ARGUMENT, "\"%s\" is no HOST:PORT, such as 10.0.0.5:7000 or [::1]:7000", target);
    snprintf(host, HOST_BYTES, "%.*s", (int)length, target);
    snprintf(port, PORT_BYTES, "%ld", number);
    return TW_OK;
}

static tw_status look_up(const char *target, struct addrinfo **list)
{
    char host[HOST_BYTES], port[PORT_BYTES];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    TW_TRY(read_target(target, host, port));
    int failure = getaddrinfo(host, port, &hints, list);
    if (failure)
        return tw_fail(TW_ERROR_ARGUMENT, "%s has no address (%s): give one as numbers, or look at /etc/hosts", host,
                       gai_strerror(failure));
    return TW_OK;
}

/* ---- what the kernel says of the way ---- */

static void write_address(const struct sockaddr *address, socklen_t size, char text[ROUTE_ADDRESS])
{
    if (getnameinfo(address, size, text, ROUTE_ADDRESS, NULL, 0, NI_NUMERICHOST)) text[0] = 0;
}

enum { LONGEST = 16 }; /* bytes of an address */

static size_t bytes_of(const struct sockaddr *address, unsigned char bytes[LONGEST])
{
    if (address->sa_family == AF_INET) {
        memcpy(bytes, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
        return 4;
    }
    memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, LONGEST);
    return LONGEST;
}

static bool in_one_network(const struct sockaddr *one, const struct sockaddr *other, const struct sockaddr *mask)
{
    unsigned char a[LONGEST] = {0}, b[LONGEST] = {0}, m[LONGEST] = {0};
    size_t count = bytes_of(one, a);
    if (bytes_of(other, b) != count || bytes_of(mask, m) != count) return false;
    for (size_t i = 0; i < count; i++)
        if ((a[i] ^ b[i]) & m[i]) return false;
    return true;
}

static int mtu_of(const char *interface)
{
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), mtu = 0;
    if (fd < 0) return 0;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    if (ioctl(fd, SIOCGIFMTU, &request) == 0) mtu = request.ifr_mtu;
    close(fd);
    return mtu;
}

static bool has_address(const struct ifaddrs *one, const struct sockaddr *address)
{
    unsigned char a[LONGEST], b[LONGEST];
    if (!one->ifa_addr || !one->ifa_netmask || one->ifa_addr->sa_family != address->sa_family) return false;
    size_t count = bytes_of(one->ifa_addr, a);
    return bytes_of(address, b) == count && memcmp(a, b, count) == 0;
}

static void find_interface(const struct sockaddr *from, const struct sockaddr *to, route *found)
{
    struct ifaddrs *list, *one;
    if (getifaddrs(&list) != 0) return;
    for (one = list; one && !has_address(one, from); one = one->ifa_next) {
    }
    if (one) {
        snprintf(found->interface, sizeof found->interface, "%s", one->ifa_name);
        found->is_direct = in_one_network(from, to, one->ifa_netmask);
        found->mtu = mtu_of(one->ifa_name);
    }
    freeifaddrs(list);
}

/* A socket of datagrams that is connected sends nothing, and the kernel has chosen its way. */
static void find_way(const struct addrinfo *to, route *found)
{
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof from;
    int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    if (connect(fd, to->ai_addr, to->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)&from, &size) == 0) {
        write_address((struct sockaddr *)&from, size, found->from);
        find_interface((struct sockaddr *)&from, to->ai_addr, found);
    }
    close(fd);
}

/* ---- connections ---- */

static bool wait_for(int fd, short what, double end)
{
    struct pollfd one = {.fd = fd, .events = what};
    for (;;) {
        int ready = poll(&one, 1, (int)fmin(ceil(1e3 * fmax(end - tw_clock(), 0)), INT_MAX));
        if (ready >= 0 || errno != EINTR) return ready > 0;
    }
}

static int wait_for_connection(int fd, double seconds)
{
    int error = ETIMEDOUT;
    socklen_t size = sizeof error;
    if (wait_for(fd, POLLOUT, tw_clock() + seconds)) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
}

/* 0, or the errno that says why not. */
static int connect_once(const struct addrinfo *to, double seconds, double *took)
{
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    if (fd < 0) return errno;
    double began = tw_clock();
    if (connect(fd, to->ai_addr, to->ai_addrlen) != 0)
        error = errno == EINPROGRESS ? wait_for_connection(fd, seconds) : errno;
    *took = tw_clock() - began;
    close(fd);
    return error;
}

static int try_connections(const struct addrinfo *to, double seconds, route *found)
{
    double times[ROUTE_TRIES];
    for (int i = 0; i < ROUTE_TRIES; i++) {
        int error = connect_once(to, seconds, &times[i]);
        if (error) return error;
    }
    link_order_times(times, ROUTE_TRIES, &found->median, &found->worst);
    return 0;
}

/* ---- what it means ---- */

static route_answer answer_of(int error)
{
    if (!error) return ROUTE_ACCEPTED;
    if (error == ECONNREFUSED || error == ECONNRESET) return ROUTE_REFUSED;
    return error == ETIMEDOUT ? ROUTE_SILENT : ROUTE_UNREACHABLE;
}

static void explain(const char *target, int error, double seconds, route *found)
{
    char *text = found->sentence;
    if (found->answer == ROUTE_ACCEPTED)
        snprintf(text, ROUTE_SENTENCE, "%s accepts connections.", target);
    else if (found->answer == ROUTE_REFUSED)
        snprintf(text, ROUTE_SENTENCE,
                 "%s refuses: the machine is there, and nothing listens on that port; start the first member, or "
                 "thinwire doctor --listen, there.",
                 target);
    else if (found->answer == ROUTE_SILENT)
        snprintf(text, ROUTE_SENTENCE,
                 "%s is silent for %g seconds: a firewall there or on the way drops what comes for that port, or no "
                 "machine has that address; open the port for TCP.",
                 target, seconds);
    else
        snprintf(
            text, ROUTE_SENTENCE,
            "%s cannot be reached (%s): this machine or a router knows no way to it, or a firewall says so; is the "
            "other machine on, the VPN up, and the port open?",
            target, strerror(error));
}

const char *route_answer_name(route_answer answer)
{
    static const char *const names[] = {"accepted", "refused", "silent", "unreachable"};
    return names[answer];
}

tw_status route_find(const char *target, double seconds, route *found)
{
    struct addrinfo *list;
    TW_TRY(look_up(target, &list));
    int error = 0;
    for (const struct addrinfo *to = list; to; to = to->ai_next) { /* the first that accepts, else the last */
        *found = (route){.address_bytes = to->ai_addrlen};
        memcpy(&found->address, to->ai_addr, to->ai_addrlen);
        write_address(to->ai_addr, to->ai_addrlen, found->to);
        find_way(to, found);
        error = try_connections(to, seconds, found);
        if (!error) break;
    }
    found->answer = answer_of(error);
    explain(target, error, seconds, found);
    freeaddrinfo(list);
    return TW_OK;
}

/* ---- a word between two ---- */

static const char greeting[] = "thinwire doctor measures\n";
#define THINWIRE "twtcp " /* with which a group greets whoever comes */
enum { GREETING = sizeof greeting - 1, THINWIRE_BYTES = sizeof THINWIRE - 1 };

#define FIRST_WORD 0.5 /* seconds, and some ways there and back, for who speaks first */
#define HESITATION 5.0 /* seconds that a caller may be silent, while others wait behind it */

typedef enum speaker { ANOTHER, A_GROUP, A_DOCTOR } speaker;

/* What has come over a connection so far. */
typedef struct words {
    char text[GREETING];
    size_t count;
} words;

/* Whose words they are, once they tell: ANOTHER's where they do not by then. */
static speaker hear(int fd, words *heard, double end)
{
    for (;;) {
        if (heard->count >= THINWIRE_BYTES && memcmp(heard->text, THINWIRE, THINWIRE_BYTES) == 0) return A_GROUP;
        if (heard->count == GREETING) return memcmp(heard->text, greeting, GREETING) == 0 ? A_DOCTOR : ANOTHER;
        if (!wait_for(fd, POLLIN, end)) return ANOTHER;
        ssize_t more = recv(fd, heard->text + heard->count, GREETING - heard->count, MSG_DONTWAIT);
        if (more <= 0) return ANOTHER;
        heard->count += (size_t)more;
    }
}

static bool says_greeting(int fd)
{
    return send(fd, greeting, GREETING, MSG_NOSIGNAL) == GREETING; /* there is room for a first line */
}

/* A group, which speaks first, is told nothing: it has nobody to turn away, and none of its members says so. One that
 * has too much to do to speak at once is told the greeting, and speaks all the same. */
tw_status route_greet(const route *to, double seconds)
{
    int fd = socket(to->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return tw_fail(TW_ERROR_SYSTEM, "the system has no socket left");
    bool is_there = connect(fd, (const struct sockaddr *)&to->address, to->address_bytes) == 0 ||
                    (errno == EINPROGRESS && wait_for_connection(fd, seconds) == 0);
    words heard = {.count = 0};
    speaker who = is_there ? hear(fd, &heard, tw_clock() + fmin(seconds, FIRST_WORD + 4 * to->median)) : ANOTHER;
    if (is_there && who == ANOTHER && says_greeting(fd)) who = hear(fd, &heard, tw_clock() + seconds);
    close(fd);
    if (who == A_DOCTOR) return TW_OK;
    return tw_fail(TW_ERROR_PEER, who == A_GROUP
                                      ? "a group of thinwire listens there"
                                      : "another program listens there, and a group of thinwire cannot meet there");
}

static int listen_on(int port)
{
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, off = 0;
    bool has_six = fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0;
    if (fd < 0) fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const void *address = has_six ? (const void *)&six : (const void *)&four;
    if (fd >= 0 && bind(fd, address, has_six ? sizeof six : sizeof four) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* The address that the caller knows us by; one of IPv4 is written as such. */
static void write_called(int fd, int port, char meeting[ROUTE_MEETING])
{
    static const char mapped[] = "::ffff:";
    char text[ROUTE_ADDRESS];
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &size);
    write_address((struct sockaddr *)&own, size, text);
    const char *host = strncmp(text, mapped, sizeof mapped - 1) == 0 ? text + sizeof mapped - 1 : text;
    snprintf(meeting, ROUTE_MEETING, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
}

/* When the caller hears the end of the connection, nobody listens any more. */
static bool serve_caller(int *listener, int port, char meeting[ROUTE_MEETING])
{
    int fd = accept4(*listener, NULL, NULL, SOCK_CLOEXEC);
    words heard = {.count = 0};
    bool is_one = fd >= 0 && hear(fd, &heard, tw_clock() + HESITATION) == A_DOCTOR && says_greeting(fd);
    if (is_one) {
        write_called(fd, port, meeting);
        close(*listener);
        *listener = -1;
    }
    if (fd >= 0) close(fd);
    return is_one;
}

tw_status route_listen(int port, int *listener)
{
    *listener = listen_on(port);
    if (*listener >= 0) return TW_OK;
    return tw_fail(TW_ERROR_SYSTEM, "port %d cannot be listened on: %s%s", port, strerror(errno),
                   errno == EADDRINUSE ? "; give another port, here and there" : "");
}

tw_status route_await(int listener, int port, double seconds, char meeting[ROUTE_MEETING])
{
    double end = tw_clock() + seconds;
    while (wait_for(listener, POLLIN, end))
        if (serve_caller(&listener, port, meeting)) return TW_OK;
    close(listener);
    return tw_fail(TW_ERROR_PEER, "nobody came to port %d within %g seconds", port, seconds);
}
