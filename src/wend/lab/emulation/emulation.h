/* Types and functions that the emulator's files share. `main.c` describes the emulator. */
#ifndef WEND_EMULATION_H
#define WEND_EMULATION_H
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECOND 1000000000LL
#define NEVER INT64_MAX
#define MARKER_BYTES 64

typedef int64_t nanos;

struct packet {
    struct packet *next;
    nanos due;
    uint32_t bytes;
    unsigned char data[];
};

struct tally {
    int32_t port;
    uint64_t packets, bytes, down, loss, queue, data, corrupted, reordered;
};

/* One direction of a link. Packets are in the order in which they are due. The delay is constant, so that is the order
 * of their arrival, but for those that are held back. */
struct direction {
    struct link *link;
    int source, target; /* devices */
    struct packet *first, *last;
    uint32_t waiting;
    nanos free_at; /* with a rate: when the last admitted packet has left the queue */
    uint64_t random;
    struct tally *tallies;
    int ports, recent;
};

struct link {
    int number, a, b;
    nanos delay;
    double loss, corruption, reordering;
    nanos hold; /* the longest time for which a reordered packet is held back */
    uint64_t rate_bps, queue_bytes;
    bool cut;
    int outages; /* scheduled outages in effect now */
    struct direction directions[2];
};

struct edge {
    nanos at;
    int link;
    bool fails;
};

/* The source of an epoll event: the number of a direction, or one of these. */
enum { TIMER = 1 << 28, LISTENER, CLIENT };

/* main.c */
extern int poller;
extern bool quitting;
__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);
void *grow(void *old, size_t bytes);
nanos clock_now(void);
void poll_file(int file, uint32_t what);

/* links.c */
extern struct link *links;
extern int link_count;
extern struct totals {
    uint64_t delivered, late_sum;
    nanos late_max;
} totals;
extern unsigned char marker[MARKER_BYTES];
extern size_t marker_bytes;
void open_links(int count, const char *log);
bool is_up(const struct link *link);
void set_cut(struct link *link, bool cut, nanos now);
void set_schedule(struct edge *wanted, int count, nanos now);
int changes_ahead(void);
void run_schedule(nanos now);
void reset_counters(void);
nanos deliver(nanos now);
void read_device(struct direction *direction);
nanos next_moment(void);

/* control.c */
void listen_at(const char *path);
void accept_client(void);
void serve(int number, bool writable);

#endif
