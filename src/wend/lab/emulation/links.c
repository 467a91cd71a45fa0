/* The links: when they fail, what they do to packets, and what they count. */
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
#define BATCH 32            /* packets read from one device before the others have their turn */
#define IN_FLIGHT 65536     /* packets per direction: a flood fills its own link, not the machine's memory */
#define PORTS 512           /* per direction; what comes beyond is counted under port 0 */
#define SERVICE_PORTS 32768 /* ports from here on are a client's, drawn by the kernel */

struct link *links;
int link_count;
struct totals totals;
unsigned char marker[MARKER_BYTES] = "WENDLAB!";
size_t marker_bytes = 8;

static struct way **heap; /* directions that hold packets, by the time at which their first is due */
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

/* ---------------------------------------------------------------- the order of deliveries */

static bool before(const struct way *a, const struct way *b) {
    return a->first->due < b->first->due || (a->first->due == b->first->due && a < b);
}

static void sink(int i) {
    struct way *moved = heap[i];
    for (int child; (child = 2 * i + 1) < heap_count; i = child) {
        if (child + 1 < heap_count && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], moved)) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

static void rise(struct way *moved) {
    int i = heap_count++;
    for (; i && before(moved, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = moved;
}

/* ---------------------------------------------------------------- links that fail */

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
        else if (link->outages) /* it may have been healed by command */
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

/* At one moment failures come before repairs, so that outages that touch are one outage. */
static int by_time(const void *left, const void *right) {
    const struct edge *a = left, *b = right;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    if (a->fails != b->fails) return a->fails ? -1 : 1;
    return (a->link > b->link) - (a->link < b->link);
}

/* Takes the place of the schedule before it; what that one holds down is up again. */
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

/* The port that names the service; minus the protocol's number where there are no ports (ICMP is -1). */
static int32_t service(const unsigned char *data, size_t bytes) {
    if (bytes < 20 || data[0] >> 4 != 4) return -IPPROTO_IPV6;
    size_t header = (data[0] & 15) * 4;
    int protocol = data[9];
    bool later_fragment = (data[6] & 0x1f) || data[7];
    if ((protocol != IPPROTO_UDP && protocol != IPPROTO_TCP) || later_fragment || bytes < header + 4) return -protocol;
    int source = data[header] << 8 | data[header + 1], target = data[header + 2] << 8 | data[header + 3];
    return target < SERVICE_PORTS ? target : source < SERVICE_PORTS ? source : 0;
}

static struct tally *tally_of(struct way *way, int32_t port) {
    if (way->ports && way->tallies[way->recent].port == port) return &way->tallies[way->recent];
    for (int i = 0; i < way->ports; i++)
        if (way->tallies[i].port == port) return &way->tallies[way->recent = i];
    if (way->ports >= PORTS && port != 0) return tally_of(way, 0);
    way->tallies = grow(way->tallies, (way->ports + 1) * sizeof(struct tally));
    way->tallies[way->ports] = (struct tally){.port = port};
    return &way->tallies[way->recent = way->ports++];
}

/* xorshift64*: one generator per direction, so a link's losses depend on nothing but its own packets. */
static double draw(struct way *way) {
    uint64_t x = way->random;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    way->random = x;
    return (double)((x * 0x2545F4914F6CDD1DULL) >> 11) / 9007199254740992.0;
}

static void enter(struct way *way, const unsigned char *data, size_t bytes, nanos now) {
    struct link *link = way->link;
    struct tally *tally = tally_of(way, service(data, bytes));
    tally->packets++;
    tally->bytes += bytes;
    if (marker_bytes && memmem(data, bytes, marker, marker_bytes)) tally->data++;
    if (!is_up(link)) {
        tally->down++;
        return;
    }
    if (link->loss > 0 && draw(way) < link->loss) {
        tally->loss++;
        return;
    }
    nanos leaves = now;
    if (link->rate_bps) {
        nanos start = way->free_at > now ? way->free_at : now;
        double backlog = (double)(start - now) * link->rate_bps / 8e9;
        if (backlog + bytes > link->queue_bytes) {
            tally->queue++;
            return;
        }
        leaves = way->free_at = start + (nanos)(bytes * 8e9 / link->rate_bps);
    }
    if (way->waiting >= IN_FLIGHT) {
        tally->queue++;
        return;
    }
    struct packet *packet = grow(NULL, sizeof *packet + bytes);
    *packet = (struct packet){.due = leaves + link->delay, .bytes = bytes};
    memcpy(packet->data, data, bytes);
    if (way->waiting++) {
        way->last = way->last->next = packet;
    } else {
        way->first = way->last = packet;
        rise(way);
    }
}

nanos deliver(nanos now) {
    while (heap_count && heap[0]->first->due <= now) {
        struct way *way = heap[0];
        struct packet *packet = way->first;
        /* A device that is not up yet refuses: the packet is gone, as on a wire that ends nowhere. */
        if (write(way->target, packet->data, packet->bytes) < 0 && errno == EAGAIN) tally_of(way, 0)->queue++;
        now = clock_now();
        nanos late = now - packet->due;
        totals.delivered++;
        totals.late_sum += late;
        if (late > totals.late_max) totals.late_max = late;
        way->first = packet->next;
        if (!--way->waiting) heap[0] = heap[--heap_count];
        if (heap_count) sink(0);
        free(packet);
    }
    return now;
}

void read_device(struct way *way) {
    unsigned char data[PACKET_BYTES];
    for (int i = 0; i < BATCH; i++) {
        ssize_t bytes = read(way->source, data, sizeof data);
        if (bytes <= 0) {
            /* A device that went away with its namespace would wake this process for ever. */
            if (errno != EAGAIN && errno != EFAULT && errno != EINTR)
                epoll_ctl(poller, EPOLL_CTL_DEL, way->source, NULL);
            return;
        }
        nanos now = clock_now();
        run_schedule(now);
        enter(way, data, bytes, now);
        deliver(now);
    }
}

/* When something happens by itself: a packet is due, or a link changes. */
nanos next_moment(void) {
    nanos next = heap_count ? heap[0]->first->due : NEVER;
    return edge_next < edge_count && edges[edge_next].at < next ? edges[edge_next].at : next;
}

void reset_counters(void) {
    for (int i = 0; i < 2 * link_count; i++) links[i / 2].ways[i % 2].ports = links[i / 2].ways[i % 2].recent = 0;
    totals = (struct totals){0};
}
