/* The control socket: a command is one line of text, its answer one line of JSON. */
#include "emulation.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS 16
#define LINE_BYTES (64 << 20)  /* the longest command: a schedule */
#define LATEST (INT64_MAX / 4) /* sums of two times fit */

struct text {
    char *at;
    size_t used, capacity;
};

struct client {
    int socket;
    struct text in, out;
};

static struct client clients[CLIENTS];
static int listener;

static void reserve(struct text *text, size_t more) {
    if (text->used + more <= text->capacity) return;
    text->capacity = (text->used + more) * 2;
    text->at = grow(text->at, text->capacity);
}

__attribute__((format(printf, 2, 3))) static void say(struct text *text, const char *format, ...) {
    va_list values;
    reserve(text, 512);
    va_start(values, format);
    int written = vsnprintf(text->at + text->used, 512, format, values);
    va_end(values);
    text->used += written < 512 ? written : 511;
}

/* ---------------------------------------------------------------- commands */

/* A command name as the content of a JSON string: other characters become question marks. */
static const char *quoted(const char *name) {
    static char safe[48];
    size_t i = 0;
    for (; name[i] && i < sizeof safe - 1; i++)
        safe[i] = isprint((unsigned char)name[i]) && name[i] != '"' && name[i] != '\\' ? name[i] : '?';
    safe[i] = 0;
    return safe;
}

static bool read_number(const char **at, nanos *number) {
    char *end;
    errno = 0;
    *number = strtoll(*at, &end, 10);
    if (end == *at || errno) return false;
    *at = end;
    return true;
}

static void answer_status(struct text *out) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    nanos cpu = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * SECOND +
                (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000LL;
    say(out, "{\"now_ns\":%" PRId64 ",\"delivered\":%" PRIu64 ",\"late_mean_ns\":%" PRIu64 ",\"late_max_ns\":%" PRId64,
        clock_now(), totals.delivered, totals.delivered ? totals.late_sum / totals.delivered : 0, totals.late_max);
    say(out, ",\"cpu_ns\":%" PRId64 ",\"changes_ahead\":%d,\"down\":[", cpu, changes_ahead());
    bool comma = false;
    for (int i = 0; i < link_count; i++)
        if (!is_up(&links[i])) say(out, "%s%d", comma ? "," : "", i), comma = true;
    say(out, "]}");
}

static void answer_counters(struct text *out) {
    bool comma = false;
    say(out, "{\"counters\":[");
    for (int i = 0; i < 2 * link_count; i++) {
        struct link *link = &links[i / 2];
        struct direction *direction = &link->directions[i % 2];
        for (int p = 0; p < direction->ports; p++, comma = true) {
            struct tally *t = &direction->tallies[p];
            say(out, "%s{\"link\":%d,\"sender\":%d,\"receiver\":%d,\"port\":%d", comma ? "," : "", link->number,
                i % 2 ? link->b : link->a, i % 2 ? link->a : link->b, t->port);
            say(out, ",\"packets\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"down\":%" PRIu64, t->packets, t->bytes, t->down);
            say(out, ",\"loss\":%" PRIu64, t->loss);
            say(out, ",\"queue\":%" PRIu64 ",\"data\":%" PRIu64, t->queue, t->data);
            say(out, ",\"corrupted\":%" PRIu64 ",\"reordered\":%" PRIu64 "}", t->corrupted, t->reordered);
        }
    }
    say(out, "]}");
}

/* `AT link:from:until ...`, with times after AT. If one outage is invalid, the schedule stays unchanged. */
static const char *schedule(const char *arguments, nanos now) {
    nanos origin, link, from, until;
    struct edge *wanted = NULL;
    int count = 0, capacity = 0;
    if (!read_number(&arguments, &origin) || origin < 0 || origin > LATEST)
        return "schedule needs a start time in nanoseconds";
    for (;;) {
        while (*arguments == ' ') arguments++;
        if (!*arguments) break;
        const char *wrong = NULL;
        if (!read_number(&arguments, &link) || *arguments++ != ':' || !read_number(&arguments, &from) || *arguments++ != ':' ||
            !read_number(&arguments, &until) || (*arguments && *arguments != ' '))
            wrong = "an outage is written link:from:until, in nanoseconds after the start";
        else if (link < 0 || link >= link_count)
            wrong = "the schedule names a link that does not exist";
        else if (from < 0 || until <= from || until > LATEST)
            wrong = "an outage ends after it starts, and starts no earlier than the schedule";
        if (wrong) {
            free(wanted);
            return wrong;
        }
        if (count + 2 > capacity) wanted = grow(wanted, (capacity = 2 * capacity + 64) * sizeof *wanted);
        wanted[count++] = (struct edge){origin + from, link, true};
        wanted[count++] = (struct edge){origin + until, link, false};
    }
    set_schedule(wanted, count, now);
    return NULL;
}

static const char *mark(const char *hex) {
    unsigned char read[MARKER_BYTES];
    size_t bytes = 0;
    unsigned int byte;
    for (; hex[0]; hex += 2) {
        if (!isxdigit((unsigned char)hex[0]) || !isxdigit((unsigned char)hex[1]) || bytes == MARKER_BYTES)
            return "mark needs up to 64 bytes in hexadecimal";
        sscanf(hex, "%2x", &byte);
        read[bytes++] = byte;
    }
    memcpy(marker, read, bytes);
    marker_bytes = bytes;
    return NULL;
}

static const char *cut(const char *arguments, bool down, nanos now) {
    nanos number;
    if (!read_number(&arguments, &number) || *arguments) return "cut and heal need the number of a link";
    if (number < 0 || number >= link_count) return "there is no such link";
    set_cut(&links[number], down, now);
    return NULL;
}

static void obey(char *line, struct text *out) {
    static char nothing[] = "";
    char *arguments = strchr(line, ' ');
    if (arguments)
        *arguments++ = 0;
    else
        arguments = nothing;
    nanos now = clock_now();
    run_schedule(now);
    const char *wrong = NULL;
    size_t begin = out->used;
    if (!strcmp(line, "status"))
        answer_status(out);
    else if (!strcmp(line, "counters"))
        answer_counters(out);
    else if (!strcmp(line, "reset"))
        reset_counters();
    else if (!strcmp(line, "cut") || !strcmp(line, "heal"))
        wrong = cut(arguments, *line == 'c', now);
    else if (!strcmp(line, "schedule"))
        wrong = schedule(arguments, now);
    else if (!strcmp(line, "unschedule"))
        set_schedule(NULL, 0, now);
    else if (!strcmp(line, "mark"))
        wrong = mark(arguments);
    else if (!strcmp(line, "quit"))
        quitting = true;
    else
        say(out, "{\"error\":\"no command is called '%s'\"}", quoted(line));
    if (wrong)
        say(out, "{\"error\":\"%s\"}", wrong);
    else if (out->used == begin)
        say(out, "{\"ok\":true}");
    say(out, "\n");
}

static void hang_up(struct client *client) {
    close(client->socket);
    client->socket = -1;
    client->in.used = client->out.used = 0;
}

static void send_answers(struct client *client) {
    while (client->out.used) {
        ssize_t sent = send(client->socket, client->out.at, client->out.used, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) {
            hang_up(client);
            return;
        }
        if (sent < 0) break;
        memmove(client->out.at, client->out.at + sent, client->out.used -= sent);
    }
    /* While a client does not read its answers, read no more commands from it. */
    struct epoll_event event = {.events = client->out.used ? EPOLLOUT : EPOLLIN};
    event.data.u32 = CLIENT + (client - clients);
    epoll_ctl(poller, EPOLL_CTL_MOD, client->socket, &event);
}

static void read_commands(struct client *client) {
    struct text *in = &client->in;
    reserve(in, 1 << 16);
    ssize_t bytes = recv(client->socket, in->at + in->used, in->capacity - in->used, MSG_DONTWAIT);
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN) || in->used > LINE_BYTES) {
        hang_up(client);
        return;
    }
    size_t begin = 0, searched = in->used;
    in->used += bytes > 0 ? bytes : 0;
    char *end;
    while (searched < in->used && (end = memchr(in->at + searched, '\n', in->used - searched))) {
        *end = 0;
        obey(in->at + begin, &client->out);
        begin = searched = end + 1 - in->at;
    }
    memmove(in->at, in->at + begin, in->used -= begin);
    send_answers(client);
}

void accept_client(void) {
    int socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) return;
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i].socket < 0) {
            struct epoll_event event = {.events = EPOLLIN, .data.u32 = CLIENT + i};
            clients[i].socket = socket;
            epoll_ctl(poller, EPOLL_CTL_ADD, socket, &event);
            return;
        }
    close(socket);
}

void serve(int number, bool writable) {
    if (writable)
        send_answers(&clients[number]);
    else
        read_commands(&clients[number]);
}

void listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) die("%s is too long a name for a socket", path);
    strcpy(address.sun_path, path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(listener, CLIENTS) < 0)
        die("cannot listen at %s: %s", path, strerror(errno));
    for (int i = 0; i < CLIENTS; i++) clients[i].socket = -1;
    poll_file(listener, LISTENER);
}
