/* A program that serves its heap profile: answers every request to 127.0.0.1:PORT with a dump, as `go tool pprof` and jeprof ask
 * for it at /debug/pprof/heap. Build it with -lhakmem and start it with HAKMEM_PROFILE=ready. Argument: the port. */
#include <hakmem.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *volatile held[64];   /* what the profile has to show */

static void answer(int connection)
{
    char text[4096], path[] = "/tmp/heap.XXXXXX";
    int file = mkstemp(path);
    const char *head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n", *failed = "HTTP/1.0 500 No Profile\r\n\r\n";
    ssize_t got = read(connection, text, sizeof text);   /* there is one page only: what is asked does not matter */
    if (got > 0 && file >= 0 && hak_profile_dump(path) == 0) {
        FILE *dump = fopen(path, "r");
        dprintf(connection, "%s", head);
        for (size_t n; dump != NULL && (n = fread(text, 1, sizeof text, dump)) > 0;)
            if (write(connection, text, n) != (ssize_t)n)
                break;
        if (dump != NULL)
            fclose(dump);
    } else {
        dprintf(connection, "%s", failed);
    }
    if (file >= 0) {
        close(file);
        unlink(path);
    }
    close(connection);
}

int main(int count, char **arguments)
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int server = socket(AF_INET, SOCK_STREAM, 0), yes = 1, code = hak_profile_start(0);
    here.sin_port = htons((unsigned short)(count > 1 ? atoi(arguments[1]) : 6060));
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (code != 0 || bind(server, (struct sockaddr *)&here, sizeof here) != 0 || listen(server, 8) != 0)
        return 1;
    for (int i = 0; i < 64; i++)
        held[i] = malloc(1 << 20);
    for (int connection; (connection = accept(server, NULL, NULL)) >= 0;)
        answer(connection);
    return 0;
}
