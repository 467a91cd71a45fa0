/* Wide-area links in user space, for kernels without netem.
 *
 * One process holds a TUN device at both ends of every link. It reads a packet that a host sends, drops it if the link
 * is down, loses it or has a full queue, holds it for the delay, and writes it to the device at the other end. If asked
 * to, it also corrupts packets, or holds some for longer, so that later ones overtake them. The emulator decides when the
 * packet enters the link: packets in flight arrive even if the link fails meanwhile, as in the simulator.
 *
 * `emulator FOLDER` reads FOLDER/plan, prints "ready" when every device exists, answers one-line commands on
 * FOLDER/control.sock, and writes each change of a link to FOLDER/failures.jsonl. All times are CLOCK_MONOTONIC
 * nanoseconds, like Python's time.monotonic_ns().
 */
#include "emulation.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 64

int poller;
bool quitting;
static int timer;
static nanos armed = NEVER;

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    printf("\n");
    fflush(stdout);
    exit(1);
}

void *grow(void *old, size_t bytes) {
    void *grown = realloc(old, bytes);
    if (!grown) die("no memory for the emulator");
    return grown;
}

nanos clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

void poll_file(int file, uint32_t what) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = what};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, file, &event) < 0) die("cannot poll a file: %s", strerror(errno));
}

static int open_device(const char *namespace, const char *device) {
    char path[128];
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    int net = open(path, O_RDONLY | O_CLOEXEC);
    if (net < 0 || setns(net, CLONE_NEWNET) < 0) die("cannot enter namespace %s: %s", namespace, strerror(errno));
    close(net);
    int file = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) die("cannot open /dev/net/tun: %s", strerror(errno));
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(request.ifr_name, IFNAMSIZ, "%s", device);
    if (ioctl(file, TUNSETIFF, &request) < 0)
        die("cannot make device %s in %s: %s", device, namespace, strerror(errno));
    return file;
}

static uint64_t mixed(uint64_t x) {
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ x >> 27) * 0x94D049BB133111EBULL;
    return (x ^ x >> 31) | 1;
}

/* First line: the seed and the number of links. Then one line per link: its ends, delay, loss, corruption, reordering,
 * hold, rate, queue, and the namespaces and names of its two devices. */
static void read_plan(const char *path, const char *log) {
    FILE *plan = fopen(path, "r");
    uint64_t seed;
    int count;
    if (!plan || fscanf(plan, "%" SCNu64 " %d", &seed, &count) != 2) die("cannot read %s", path);
    open_links(count, log);
    for (int i = 0; i < count; i++) {
        struct link *link = &links[i];
        char namespaces[2][64], devices[2][16];
        link->number = i;
        if (fscanf(plan, "%d %d %" SCNd64 " %lf %lf %lf %" SCNd64 " %" SCNu64 " %" SCNu64 " %63s %15s %63s %15s",
                   &link->a, &link->b, &link->delay, &link->loss, &link->corruption, &link->reordering, &link->hold,
                   &link->rate_bps, &link->queue_bytes, namespaces[0], devices[0], namespaces[1], devices[1]) != 13)
            die("link %d of %s cannot be read", i, path);
        int ends[2] = {open_device(namespaces[0], devices[0]), open_device(namespaces[1], devices[1])};
        for (int d = 0; d < 2; d++) {
            link->directions[d] = (struct direction){.link = link, .source = ends[d], .target = ends[!d]};
            link->directions[d].random = mixed(mixed(seed) + 2 * i + d);
            poll_file(ends[d], 2 * i + d);
        }
    }
    fclose(plan);
}

/* Real-time priority, so that a packet leaves after its delay. Without it the emulator is less exact. */
static void ask_for_precision(void) {
    struct sched_param priority = {.sched_priority = 10};
    if (sched_setscheduler(0, SCHED_RR, &priority) < 0) setpriority(PRIO_PROCESS, 0, -20);
    mlockall(MCL_CURRENT | MCL_FUTURE);
}

static void arm_timer(void) {
    nanos next = next_moment();
    if (next == armed) return;
    struct itimerspec at = {0};
    if (next != NEVER) {
        nanos wanted = next > 1 ? next : 1; /* 0 would disarm it */
        at.it_value = (struct timespec){wanted / SECOND, wanted % SECOND};
    }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
    armed = next;
}

int main(int count, char **arguments) {
    char path[512], log[512];
    if (count != 2) die("usage: emulator FOLDER");
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    poller = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    poll_file(timer, TIMER);
    snprintf(path, sizeof path, "%s/plan", arguments[1]);
    snprintf(log, sizeof log, "%s/failures.jsonl", arguments[1]);
    read_plan(path, log);
    if (setns(home, CLONE_NEWNET) < 0) die("cannot return from the namespaces: %s", strerror(errno));
    snprintf(path, sizeof path, "%s/control.sock", arguments[1]);
    listen_at(path);
    ask_for_precision();
    printf("ready\n");
    fflush(stdout);
    /* The parent reads stdout up to here; then release the pipe. */
    int nowhere = open("/dev/null", O_RDWR);
    dup2(nowhere, 1);

    struct epoll_event events[EVENTS];
    while (!quitting) {
        arm_timer();
        int ready = epoll_wait(poller, events, EVENTS, -1);
        nanos now = clock_now();
        run_schedule(now);
        deliver(now);
        for (int i = 0; i < ready; i++) {
            uint32_t what = events[i].data.u32;
            uint64_t ticks;
            if (what < TIMER)
                read_device(&links[what / 2].directions[what % 2]);
            else if (what == TIMER)
                armed = read(timer, &ticks, sizeof ticks) < 0 ? armed : NEVER;
            else if (what == LISTENER)
                accept_client();
            else
                serve(what - CLIENT, events[i].events & EPOLLOUT);
        }
    }
    return 0;
}
