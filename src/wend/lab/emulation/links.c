/* The links: failures, delays, drops and counters. */
#include "emulation.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define PACKET_BYTES 2048   /* the devices have an MTU of 1500 */
#define BATCH 32            /* packets read from one device before the next device */
#define IN_FLIGHT 65536     /* packets per direction, so that a flood does not fill the machine's memory */
#define PORTS 512           /* per direction; further ports count as port 0 */
#define SERVICE_PORTS 32768 /* the kernel gives ports from here on to clients */

struct link *links;
int link_count;
struct totals totals;
unsigned char marker[MARKER_BYTES] = "WENDLAB!";
size_t marker_bytes = 8;

static struct direction **heap; /* directions with packets, by the due time of their first */
static int heap_count;
static struct edge *edges;
static int edge_count, edge_next;
static int failures;

void open_links(int count, const char *log) {
    link_count = count;
    links = grow(NULL, count * sizeof *links);
    memset(links, 0, count * sizeof *links);
    heap = grow(NULL, 2 * count * sizeof *heap);
    failures = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (failures < 0) die("cannot write %s: %s", log, strerror(errno));
}

/* ---------------------------------------------------------------- order of deliveries */

static bool before(const struct direction *a, const struct direction *b) {
    return a->first->due < b->first->due || (a->first->due == b->first->due && a < b);
}

static void sink(int i) {
    struct direction *moved = heap[i];
    for (int child; (child = 2 * i + 1) < heap_count; i = child) {
        if (child + 1 < heap_count && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], moved)) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

static void rise(struct direction *moved, int i) {
    for (; i && before(moved, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = moved;
}

/* ---------------------------------------------------------------- failures */

bool is_up(const struct link *link) { return !link->cut && !link->outages; }

static void note(const struct link *link, bool was_up, nanos now, const char *cause) {
    if (is_up(link) == was_up) return;
    dprintf(failures, "{\"at_ns\":%" PRId64 ",\"link\":%d,\"a\":%d,\"b\":%d,\"up\":%s,\"cause\":\"%s\"}\n", now,
            link->number, link->a, link->b, was_up ? "false" : "true", cause);
}

void run_schedule(nanos now) {
    for (; edge_next < edge_count && edges[edge_next].at <= now; edge_next++) {
        struct link *link = &links[edges[edge_next].link];
        bool was_up = is_up(link);
        if (edges[edge_next].fails)
            link->outages++;
        else if (link->outages) /* a command may have healed it */
            link->outages--;
        note(link, was_up, now, "schedule");
    }
}

int changes_ahead(void) { return edge_count - edge_next; }

void set_cut(struct link *link, bool cut, nanos now) {
    bool was_up = is_up(link);
    link->cut = cut;
    if (!cut) link->outages = 0;
    note(link, was_up, now, "command");
}

/* At the same time, failures come before repairs: adjacent outages become one. */
static int by_time(const void *left, const void *right) {
    const struct edge *a = left, *b = right;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    if (a->fails != b->fails) return a->fails ? -1 : 1;
    return (a->link > b->link) - (a->link < b->link);
}

/* Replaces the schedule. Links that the previous schedule holds down come up. */
void set_schedule(struct edge *wanted, int count, nanos now) {
    for (int i = 0; i < link_count; i++) {
        bool was_up = is_up(&links[i]);
        links[i].outages = 0;
        note(&links[i], was_up, now, "schedule");
    }
    free(edges);
    edges = wanted, edge_count = count, edge_next = 0;
    if (count) qsort(edges, count, sizeof *edges, by_time);
}

/* ---------------------------------------------------------------- packets */

/* The port of the service; the negative protocol number if the protocol has no ports (ICMP is -1). */
static int32_t service(const unsigned char *data, size_t bytes) {
    if (bytes < 20 || data[0] >> 4 != 4) return -IPPROTO_IPV6;
    size_t header = (data[0] & 15) * 4;
    int protocol = data[9];
    bool later_fragment = (data[6] & 0x1f) || data[7];
    if ((protocol != IPPROTO_UDP && protocol != IPPROTO_TCP) || later_fragment || bytes < header + 4) return -protocol;
    int source = data[header] << 8 | data[header + 1], target = data[header + 2] << 8 | data[header + 3];
    return target < SERVICE_PORTS ? target : source < SERVICE_PORTS ? source : 0;
}

static struct tally *tally_of(struct direction *direction, int32_t port) {
    if (direction->ports && direction->tallies[direction->recent].port == port)
        return &direction->tallies[direction->recent];
    for (int i = 0; i < direction->ports; i++)
        if (direction->tallies[i].port == port) return &direction->tallies[direction->recent = i];
    if (direction->ports >= PORTS && port != 0) return tally_of(direction, 0);
    direction->tallies = grow(direction->tallies, (direction->ports + 1) * sizeof(struct tally));
    direction->tallies[direction->ports] = (struct tally){.port = port};
    return &direction->tallies[direction->recent = direction->ports++];
}

/* xorshift64*: each direction has its own generator, so its losses depend only on its own packets. */
static double draw(struct direction *direction) {
    uint64_t x = direction->random;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    direction->random = x;
    return (double)((x * 0x2545F4914F6CDD1DULL) >> 11) / 9007199254740992.0;
}

/* Flips one bit. Of a UDP datagram it is one of the payload, and the checksum becomes that of a sender without checksums:
 * else the kernel would drop the datagram, and no program would ever see a corrupted one. */
static void corrupt(struct direction *direction, unsigned char *data, size_t bytes) {
    size_t first = bytes >= 20 && data[0] >> 4 == 4 ? (data[0] & 15) * 4 : 0;
    bool later_fragment = first && ((data[6] & 0x1f) || data[7]);
    if (first && data[9] == IPPROTO_UDP && !later_fragment && bytes > first + 8) {
        first += 8;
        data[first - 2] = data[first - 1] = 0;
    }
    if (first >= bytes) first = 0;
    size_t bit = (size_t)(draw(direction) * 8 * (bytes - first));
    data[first + bit / 8] ^= 1 << bit % 8;
}

/* Puts a packet behind those that are due no later. */
static void put(struct direction *direction, struct packet *packet) {
    if (!direction->waiting++) {
        direction->first = direction->last = packet;
        rise(direction, heap_count++);
    } else if (direction->last->due <= packet->due) {
        direction->last = direction->last->next = packet;
    } else if (packet->due < direction->first->due) {
        packet->next = direction->first;
        direction->first = packet;
        int i = 0;
        while (heap[i] != direction) i++;
        rise(direction, i);
    } else {
        struct packet *before = direction->first;
        while (before->next->due <= packet->due) before = before->next;
        packet->next = before->next;
        before->next = packet;
    }
}

static void enter(struct direction *direction, const unsigned char *data, size_t bytes, nanos now) {
    struct link *link = direction->link;
    struct tally *tally = tally_of(direction, service(data, bytes));
    tally->packets++;
    tally->bytes += bytes;
    if (marker_bytes && memmem(data, bytes, marker, marker_bytes)) tally->data++;
    if (!is_up(link)) {
        tally->down++;
        return;
    }
    if (link->loss > 0 && draw(direction) < link->loss) {
        tally->loss++;
        return;
    }
    nanos leaves = now;
    if (link->rate_bps) {
        nanos start = direction->free_at > now ? direction->free_at : now;
        double backlog = (double)(start - now) * link->rate_bps / 8e9;
        if (backlog + bytes > link->queue_bytes) {
            tally->queue++;
            return;
        }
        leaves = direction->free_at = start + (nanos)(bytes * 8e9 / link->rate_bps);
    }
    if (direction->waiting >= IN_FLIGHT) {
        tally->queue++;
        return;
    }
    struct packet *packet = grow(NULL, sizeof *packet + bytes);
    *packet = (struct packet){.due = leaves + link->delay, .bytes = bytes};
    memcpy(packet->data, data, bytes);
    if (link->corruption > 0 && draw(direction) < link->corruption) {
        tally->corrupted++;
        corrupt(direction, packet->data, bytes);
    }
    if (link->reordering > 0 && draw(direction) < link->reordering) {
        tally->reordered++;
        packet->due += 1 + (nanos)(draw(direction) * link->hold);
    }
    put(direction, packet);
}

nanos deliver(nanos now) {
    while (heap_count && heap[0]->first->due <= now) {
        struct direction *direction = heap[0];
        struct packet *packet = direction->first;
        /* A device that is not up yet refuses the packet, which is lost. */
        if (write(direction->target, packet->data, packet->bytes) < 0 && errno == EAGAIN)
            tally_of(direction, 0)->queue++;
        now = clock_now();
        nanos late = now - packet->due;
        totals.delivered++;
        totals.late_sum += late;
        if (late > totals.late_max) totals.late_max = late;
        direction->first = packet->next;
        if (!--direction->waiting) heap[0] = heap[--heap_count];
        if (heap_count) sink(0);
        free(packet);
    }
    return now;
}

void read_device(struct direction *direction) {
    unsigned char data[PACKET_BYTES];
    for (int i = 0; i < BATCH; i++) {
        ssize_t bytes = read(direction->source, data, sizeof data);
        if (bytes <= 0) {
            /* A device that was removed with its namespace would wake this process again and again. */
            if (errno != EAGAIN && errno != EFAULT && errno != EINTR)
                epoll_ctl(poller, EPOLL_CTL_DEL, direction->source, NULL);
            return;
        }
        nanos now = clock_now();
        run_schedule(now);
        enter(direction, data, bytes, now);
        deliver(now);
    }
}

/* The next time at which a packet is due or a link changes. */
nanos next_moment(void) {
    nanos next = heap_count ? heap[0]->first->due : NEVER;
    return edge_next < edge_count && edges[edge_next].at < next ? edges[edge_next].at : next;
}

void reset_counters(void) {
    for (int i = 0; i < 2 * link_count; i++) {
        struct direction *direction = &links[i / 2].directions[i % 2];
        direction->ports = direction->recent = 0;
    }
    totals = (struct totals){0};
}
