/* What every mode of the load generator shares: options, clocks, percentiles, and one line of JSON at the end.
 *
 * The rule: a run that lost, repeated or failed a single message ends through die(), with exit code 1. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <librdkafka/rdkafka.h>
#include <stddef.h>
#include <stdint.h>

struct options {
    const char *bootstrap;   /* host:port */
    const char *topic;
    const char *frame_path;  /* replay: the request, size field included */
    const char *reply_path;  /* replay: where the last response goes */
    int size_bytes;          /* of a record's value, on average */
    int spread_percent;      /* produce: by how much sizes differ from that */
    int64_t count;           /* messages, requests or connections */
    double seconds;          /* produce: stop after that long instead */
    int partitions;
    int warmup_count;
    rd_kafka_conf_t *conf;   /* filled by -X name=value */
};

struct options parse_options(int argc, char **argv);
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void *checked_alloc(size_t count, size_t size);

double monotonic_s(void);
double own_cpu_s(void);

/* The value at a quantile (0 to 1) of sorted samples. */
double quantile(const double *sorted, size_t count, double q);
void sort_samples(double *samples, size_t count);
/* Print "p50_us", "p90_us", ... members, each followed by a comma. Samples are seconds. */
void print_quantiles_us(double *samples, size_t count);

/* A client of the given kind from the options; the conf moves into it. */
rd_kafka_t *new_client(struct options *options, rd_kafka_type_t type);
/* The longest that a broker has had a client wait because of a quota, as far as rd_kafka_poll has heard of it. */
int longest_throttle_ms(void);
/* The end offset of every partition; waits until each has a leader. Returns their sum. */
int64_t query_ends(rd_kafka_t *rk, const struct options *options, int64_t *starts, int64_t *ends);

int connect_to(const char *bootstrap);
void send_all(int fd, const void *data, size_t size);
void receive_all(int fd, void *data, size_t size);

int run_produce(struct options *options);
int run_consume(struct options *options);
int run_latency(struct options *options);
int run_idle(struct options *options);
int run_replay(struct options *options);

#endif
