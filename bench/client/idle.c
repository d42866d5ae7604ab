/* Open connections, say hello on each (ApiVersions v0), and hold them until standard input ends.
 *
 * Then say hello on each once more: a connection that was dropped meanwhile ends the run with an error. */
#include "common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const unsigned char HELLO[] = {0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff};

static void say_hello(int fd) {
    unsigned char head[4], body[65536];
    send_all(fd, HELLO, sizeof HELLO);
    receive_all(fd, head, sizeof head);
    size_t size = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
    if (size < 6 || size > sizeof body) die("an ApiVersions response of %zu bytes", size);
    receive_all(fd, body, size);
    if (body[3] != 7 || body[4] || body[5]) die("ApiVersions failed with error %d", body[4] << 8 | body[5]);
}

int run_idle(struct options *options) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < (rlim_t)options->count + 16)
        die("%lld connections need more than %llu open files", (long long)options->count, (unsigned long long)limit.rlim_cur);
    int *fds = checked_alloc((size_t)options->count, sizeof *fds);
    double start = monotonic_s();
    for (int64_t i = 0; i < options->count; i++) {
        fds[i] = connect_to(options->bootstrap);
        say_hello(fds[i]);
    }
    printf("{\"mode\":\"idle\",\"connections\":%lld,\"seconds\":%.3f}\n", (long long)options->count, monotonic_s() - start);
    fflush(stdout);
    char ignored[64];
    while (read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
    }
    for (int64_t i = 0; i < options->count; i++) {
        say_hello(fds[i]);
        close(fds[i]);
    }
    free(fds);
    return 0;
}
