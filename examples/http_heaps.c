/* A small HTTP server with a heap per request: what a request allocates, in this program or in a library that it calls, ends with
 * the request's heap.
 *
 *   cc -O2 -Iinclude examples/http_heaps.c -lhakmem -pthread -o http_heaps
 *   http_heaps heap|malloc [REQUESTS]
 *
 * It serves on a port of the loopback interface that the system chooses, and asks itself REQUESTS times over connections that stay
 * open: each answer is a page made of the request's parsed header fields, and of a list that is sorted for it. "heap": the request's
 * heap is the thread's default, and is reset after the answer. "malloc": the same blocks by malloc, freed one by one. Prints the
 * bytes answered and the most resident memory. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hakmem.h>

enum { ITEMS = 300, BUFFER = 8192 };

struct field {
    char *name, *value;
    struct field *next;
};

static int in_heaps;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static char *copied(const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    if (copy == NULL)
        fail("malloc");
    memcpy(copy, text, length);
    copy[length] = 0;
    return copy;
}

/* The fields of "Name: value" lines after the first one. */
static struct field *parse(const char *text)
{
    struct field *fields = NULL;
    for (const char *line = strstr(text, "\r\n"); line != NULL && line[2] != '\r' && line[2] != 0; line = strstr(line + 2, "\r\n")) {
        const char *colon = strchr(line + 2, ':'), *end = strstr(line + 2, "\r\n");
        if (colon == NULL || end == NULL || colon > end)
            break;
        struct field *field = malloc(sizeof *field);
        if (field == NULL)
            fail("malloc");
        *field = (struct field){ copied(line + 2, (size_t)(colon - line - 2)), copied(colon + 1, (size_t)(end - colon - 1)), fields };
        fields = field;
    }
    return fields;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static size_t answer(char *out, const struct field *fields)
{
    char *items[ITEMS], number[32];
    size_t length = 0;
    for (int i = 0; i < ITEMS; i++)
        items[i] = copied(number, (size_t)snprintf(number, sizeof number, "item %d", i * 7919 % ITEMS));
    qsort(items, ITEMS, sizeof *items, by_text);
    for (const struct field *field = fields; field != NULL; field = field->next)
        length += (size_t)snprintf(out + length, 200, "%.60s=%.100s\n", field->name, field->value);
    for (int i = 0; i < ITEMS; i++) {
        length += (size_t)snprintf(out + length, 32, "%s\n", items[i]);
        if (!in_heaps)
            free(items[i]);
    }
    return length;
}

static void release(struct field *fields)
{
    while (fields != NULL) {
        struct field *next = fields->next;
        free(fields->name);
        free(fields->value);
        free(fields);
        fields = next;
    }
}

static void serve_one(int connection, const char *request, hak_heap_t *heap)
{
    char body[BUFFER], head[128];
    hak_heap_t *former = heap != NULL ? hak_heap_set_default(heap) : NULL;
    struct field *fields = parse(request);
    size_t length = answer(body, fields);
    if (heap == NULL)
        release(fields);
    else
        hak_heap_set_default(former), hak_heap_reset(heap);
    int head_length = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", length);
    if (write(connection, head, (size_t)head_length) < 0 || write(connection, body, length) < 0)
        fail("write");
}

static void *serve(void *argument)
{
    int connection = accept((int)(intptr_t)argument, NULL, NULL);
    hak_heap_t *heap = in_heaps ? hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .name = "request" }) : NULL;
    char request[BUFFER];
    ssize_t length;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    while (connection >= 0 && (length = read(connection, request, sizeof request - 1)) > 0) {
        request[length] = 0;
        serve_one(connection, request, heap);
    }
    hak_heap_destroy(heap);
    close(connection);
    return NULL;
}

static size_t ask(int connection)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\nUser-Agent: itself\r\n"
                                  "Accept-Language: en\r\nConnection: keep-alive\r\n\r\n";
    char buffer[BUFFER];
    size_t have = 0, want = 0;
    if (write(connection, request, sizeof request - 1) < 0)
        fail("write");
    while (want == 0 || have < want) {
        ssize_t length = read(connection, buffer + have, sizeof buffer - 1 - have);
        if (length <= 0)
            fail("read");
        buffer[have += (size_t)length] = 0;
        const char *end = strstr(buffer, "\r\n\r\n"), *field = strstr(buffer, "Content-Length: ");
        if (end != NULL && field != NULL)
            want = (size_t)(end + 4 - buffer) + strtoul(field + 16, NULL, 10);
    }
    return have;
}

int main(int argc, char **argv)
{
    in_heaps = argc < 2 || strcmp(argv[1], "malloc") != 0;
    long requests = argc > 2 ? atol(argv[2]) : 1000;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), connection = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t server;
    if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1) != 0
        || getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        fail("listen");
    pthread_create(&server, NULL, serve, (void *)(intptr_t)listener);
    if (connect(connection, (struct sockaddr *)&address, size) != 0)
        fail("connect");
    size_t bytes = 0;
    for (long i = 0; i < requests; i++)
        bytes += ask(connection);
    close(connection);
    pthread_join(server, NULL);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%s: requests=%ld bytes=%zu max_rss_kib=%ld\n", in_heaps ? "heap" : "malloc", requests, bytes, usage.ru_maxrss);
    return 0;
}
