/* One message in flight: from handing it to librdkafka to its delivery report, again and again. */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_TIMEOUT_MS 30000

static int reported;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err) die("delivery: %s", rd_kafka_err2str(message->err));
    reported = 1;
}

int run_latency(struct options *options) {
    char error[256];
    if (rd_kafka_conf_set(options->conf, "linger.ms", "0", error, sizeof error) != RD_KAFKA_CONF_OK) die("%s", error);
    rd_kafka_conf_set_dr_msg_cb(options->conf, on_delivery);
    rd_kafka_t *rk = new_client(options, RD_KAFKA_PRODUCER);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, options->topic, NULL);
    if (!topic) die("%s", rd_kafka_err2str(rd_kafka_last_error()));
    int64_t before = query_ends(rk, options, NULL, NULL);
    char *payload = checked_alloc(1, (size_t)options->size_bytes);
    memset(payload, 'x', (size_t)options->size_bytes);
    double *samples = checked_alloc((size_t)options->count, sizeof *samples);
    for (int64_t i = -options->warmup_count; i < options->count; i++) {
        double start = monotonic_s();
        reported = 0;
        if (rd_kafka_produce(topic, 0, 0, payload, (size_t)options->size_bytes, NULL, 0, NULL))
            die("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        while (!reported)
            if (!rd_kafka_poll(rk, REPORT_TIMEOUT_MS) && !reported) die("no delivery report");
        if (i >= 0) samples[i] = monotonic_s() - start;
    }
    int64_t stored = query_ends(rk, options, NULL, NULL) - before;
    if (stored != options->count + options->warmup_count) die("%lld messages are there", (long long)stored);
    printf("{\"mode\":\"latency\",");
    print_quantiles_us(samples, (size_t)options->count);
    printf("\"messages\":%lld}\n", (long long)options->count);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    free(payload), free(samples);
    return 0;
}
