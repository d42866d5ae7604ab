#include "common.h"

#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define QUERY_TIMEOUT_S 60

void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

void *checked_alloc(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) die("out of memory");
    return memory;
}

static void set_conf(struct options *options, const char *pair) {
    char name[128], error[256];
    const char *equals = strchr(pair, '=');
    if (!equals || (size_t)(equals - pair) >= sizeof name) die("-X wants name=value, not %s", pair);
    memcpy(name, pair, (size_t)(equals - pair));
    name[equals - pair] = 0;
    if (rd_kafka_conf_set(options->conf, name, equals + 1, error, sizeof error) != RD_KAFKA_CONF_OK) die("%s", error);
}

struct options parse_options(int argc, char **argv) {
    static const struct option names[] = {
        {"bootstrap", required_argument, 0, 'b'}, {"topic", required_argument, 0, 't'},
        {"size", required_argument, 0, 's'},      {"count", required_argument, 0, 'c'},
        {"seconds", required_argument, 0, 'd'},   {"partitions", required_argument, 0, 'p'},
        {"warmup", required_argument, 0, 'w'},    {"frame", required_argument, 0, 'f'},
        {"reply", required_argument, 0, 'r'},     {"spread", required_argument, 0, 'v'},
        {0, 0, 0, 0},
    };
    struct options options = {.size_bytes = 100, .partitions = 1, .conf = rd_kafka_conf_new()};
    int letter;
    while ((letter = getopt_long(argc, argv, "X:", names, NULL)) != -1) {
        switch (letter) {
        case 'b': options.bootstrap = optarg; break;
        case 't': options.topic = optarg; break;
        case 's': options.size_bytes = atoi(optarg); break;
        case 'c': options.count = atoll(optarg); break;
        case 'd': options.seconds = atof(optarg); break;
        case 'p': options.partitions = atoi(optarg); break;
        case 'w': options.warmup_count = atoi(optarg); break;
        case 'f': options.frame_path = optarg; break;
        case 'v': options.spread_percent = atoi(optarg); break;
        case 'r': options.reply_path = optarg; break;
        case 'X': set_conf(&options, optarg); break;
        default: exit(2);
        }
    }
    if (!options.bootstrap) die("--bootstrap is missing");
    if (options.count <= 0 && options.seconds <= 0) die("--count or --seconds is missing");
    if (options.partitions <= 0 || options.size_bytes <= 0) die("--partitions and --size must be positive");
    if (options.spread_percent < 0 || options.spread_percent > 90) die("--spread is a percentage up to 90");
    return options;
}

double monotonic_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double own_cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void sort_samples(double *samples, size_t count) { qsort(samples, count, sizeof *samples, compare_doubles); }

double quantile(const double *sorted, size_t count, double q) {
    size_t index = (size_t)(q * (double)count);
    return sorted[index < count ? index : count - 1];
}

void print_quantiles_us(double *samples, size_t count) {
    sort_samples(samples, count);
    printf("\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f,",
           quantile(samples, count, 0.5) * 1e6, quantile(samples, count, 0.9) * 1e6,
           quantile(samples, count, 0.99) * 1e6, quantile(samples, count, 0.999) * 1e6, samples[count - 1] * 1e6);
}

/* --- librdkafka ------------------------------------------------------------------------------------------------ */

static int throttle_ms_max;

static void on_throttle(rd_kafka_t *rk, const char *broker_name, int32_t broker_id, int throttle_ms, void *opaque) {
    (void)rk, (void)broker_name, (void)broker_id, (void)opaque;
    if (throttle_ms > throttle_ms_max) throttle_ms_max = throttle_ms;
}

int longest_throttle_ms(void) { return throttle_ms_max; }

rd_kafka_t *new_client(struct options *options, rd_kafka_type_t type) {
    char error[512];
    if (!options->topic) die("--topic is missing");
    rd_kafka_conf_set_throttle_cb(options->conf, on_throttle);
    if (rd_kafka_conf_set(options->conf, "bootstrap.servers", options->bootstrap, error, sizeof error) != RD_KAFKA_CONF_OK)
        die("%s", error);
    rd_kafka_t *rk = rd_kafka_new(type, options->conf, error, sizeof error);
    if (!rk) die("%s", error);
    return rk;
}

int64_t query_ends(rd_kafka_t *rk, const struct options *options, int64_t *starts, int64_t *ends) {
    double deadline = monotonic_s() + QUERY_TIMEOUT_S;
    int64_t sum = 0;
    for (int partition = 0; partition < options->partitions; partition++) {
        int64_t low, high;
        for (;;) {
            rd_kafka_resp_err_t error =
                rd_kafka_query_watermark_offsets(rk, options->topic, partition, &low, &high, 5000);
            if (!error) break;
            if (monotonic_s() > deadline) die("offsets of %s-%d: %s", options->topic, partition, rd_kafka_err2str(error));
            usleep(20000);
        }
        if (starts) starts[partition] = low;
        if (ends) ends[partition] = high;
        sum += high;
    }
    return sum;
}

/* --- bare sockets ---------------------------------------------------------------------------------------------- */

int connect_to(const char *bootstrap) {
    char host[256];
    const char *colon = strrchr(bootstrap, ':');
    if (!colon || (size_t)(colon - bootstrap) >= sizeof host) die("not host:port: %s", bootstrap);
    memcpy(host, bootstrap, (size_t)(colon - bootstrap));
    host[colon - bootstrap] = 0;
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    int failed = getaddrinfo(host, colon + 1, &hints, &found);
    if (failed) die("%s: %s", bootstrap, gai_strerror(failed));
    int fd = socket(found->ai_family, found->ai_socktype, 0), on = 1;
    if (fd < 0) die("socket: %s", strerror(errno));
    if (connect(fd, found->ai_addr, found->ai_addrlen)) die("connect to %s: %s", bootstrap, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    freeaddrinfo(found);
    return fd;
}

void send_all(int fd, const void *data, size_t size) {
    const char *at = data;
    while (size) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) die("send: %s", strerror(errno));
        at += sent;
        size -= (size_t)sent;
    }
}

void receive_all(int fd, void *data, size_t size) {
    char *at = data;
    while (size) {
        ssize_t received = recv(fd, at, size, 0);
        if (received < 0 && errno == EINTR) continue;
        if (received < 0) die("recv: %s", strerror(errno));
        if (received == 0) die("the broker closed the connection");
        at += received;
        size -= (size_t)received;
    }
}
