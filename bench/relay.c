/* A long cable between two network namespaces: an Ethernet device in each, and every frame that enters one leaves the
 * other so many milliseconds later. For kernels without netem; bench/link.sh uses it.
 *
 *     bench_relay 10 tw-host:eth0 tw-hub:port0          until it is killed; the devices go with it
 *
 * Frames keep their order and are never dropped here: what is under way takes memory of rate x delay. Those that the
 * kernel has not cut into packets yet pass whole (IFF_VNET_HDR), else a gigabit would take more than a core. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>

enum { MOST = 10 + 14 + 65536, AT_ONCE = 64 }; /* bytes of a frame; frames between two looks at the clock */

typedef struct frame {
    struct frame *next;
    long long due; /* nanoseconds */
    size_t size;
    unsigned char bytes[];
} frame;

typedef struct direction {
    int from, to;
    frame *first, **end;
} direction;

static void give_up(const char *what)
{
    fprintf(stderr, "bench_relay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void enter(const char *space)
{
    char path[256];
    snprintf(path, sizeof path, "/var/run/netns/%s", space);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET)) give_up(path);
    close(fd);
}

/* The end of the cable in "NAMESPACE:DEVICE". */
static int plug(char *place)
{
    char *name = strchr(place, ':');
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    if (!name || strlen(name) > IFNAMSIZ) give_up("NAMESPACE:DEVICE");
    *name++ = 0;
    memcpy(request.ifr_name, name, strlen(name));
    enter(place);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) || ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6))
        give_up(name);
    return fd;
}

static void take_in(direction *way, long long delay)
{
    static unsigned char bytes[MOST];
    for (int i = 0; i < AT_ONCE; i++) {
        ssize_t size = read(way->from, bytes, sizeof bytes);
        if (size <= 0) return; /* none, or a device that is not up yet */
        frame *one = malloc(sizeof *one + (size_t)size);
        if (!one) give_up("a frame");
        *one = (frame){.due = now() + delay, .size = (size_t)size};
        memcpy(one->bytes, bytes, one->size);
        *way->end = one;
        way->end = &one->next;
    }
}

static void let_out(direction *way)
{
    while (way->first && way->first->due <= now()) {
        frame *one = way->first;
        (void)!write(way->to, one->bytes, one->size); /* a device that is down takes none */
        way->first = one->next;
        if (!way->first) way->end = &way->first;
        free(one);
    }
}

static void rest(const direction *ways)
{
    struct pollfd fds[2] = {{.fd = ways[0].from, .events = POLLIN}, {.fd = ways[1].from, .events = POLLIN}};
    long long left = 1000000000LL, start = now();
    for (int i = 0; i < 2; i++)
        if (ways[i].first && ways[i].first->due - start < left) left = ways[i].first->due - start;
    if (left < 0) left = 0;
    ppoll(fds, 2, &(struct timespec){left / 1000000000LL, left % 1000000000LL}, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    long long delay = (long long)(strtod(argv[1], NULL) * 1e6);
    int one = plug(argv[2]), other = plug(argv[3]);
    direction ways[2] = {{.from = one, .to = other}, {.from = other, .to = one}};
    for (int i = 0; i < 2; i++) ways[i].end = &ways[i].first;
    for (;;) {
        rest(ways);
        for (int i = 0; i < 2; i++) take_in(&ways[i], delay), let_out(&ways[i]);
    }
}
