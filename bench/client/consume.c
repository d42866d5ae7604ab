/* Consume every partition from its beginning until `count` messages came, each offset once and in order. */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>

#define BATCH 10000
#define STALL_TIMEOUT_MS 30000

int run_consume(struct options *options) {
    rd_kafka_t *rk = new_client(options, RD_KAFKA_CONSUMER);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, options->topic, NULL);
    if (!topic) die("%s", rd_kafka_err2str(rd_kafka_last_error()));
    int64_t *next = checked_alloc((size_t)options->partitions, sizeof *next);
    int64_t *ends = checked_alloc((size_t)options->partitions, sizeof *ends);
    query_ends(rk, options, next, ends);
    int64_t available = 0;
    for (int i = 0; i < options->partitions; i++) available += ends[i] - next[i];
    if (available < options->count) die("%lld messages wanted, %lld are there", (long long)options->count, (long long)available);

    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_message_t **batch = checked_alloc(BATCH, sizeof *batch);
    int64_t received = 0, bytes = 0;
    double start = monotonic_s(), cpu_start = own_cpu_s();
    for (int i = 0; i < options->partitions; i++)
        if (rd_kafka_consume_start_queue(topic, i, next[i], queue)) die("%s", rd_kafka_err2str(rd_kafka_last_error()));
    while (received < options->count) {
        int64_t left = options->count - received;  /* it would wait for a batch that nobody fills */
        ssize_t got = rd_kafka_consume_batch_queue(queue, STALL_TIMEOUT_MS, batch, left < BATCH ? (size_t)left : BATCH);
        rd_kafka_poll(rk, 0);
        if (got <= 0) die("stalled after %lld messages", (long long)received);
        for (ssize_t i = 0; i < got; i++) {
            rd_kafka_message_t *message = batch[i];
            if (message->err && message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
                die("consume: %s", rd_kafka_message_errstr(message));
            if (!message->err) {
                if (message->offset != next[message->partition])
                    die("partition %d gave offset %lld after %lld", message->partition, (long long)message->offset,
                        (long long)next[message->partition] - 1);
                next[message->partition]++;
                received++;
                bytes += (int64_t)message->len;
            }
            rd_kafka_message_destroy(message);
        }
    }
    double seconds = monotonic_s() - start, cpu = own_cpu_s() - cpu_start;
    if (bytes != received * options->size_bytes) die("%lld messages have %lld bytes", (long long)received, (long long)bytes);
    printf("{\"mode\":\"consume\",\"messages\":%lld,\"seconds\":%.6f,\"messages_per_s\":%.0f,\"bytes_per_s\":%.0f,"
           "\"client_cpu_s\":%.3f,\"throttle_ms_max\":%d}\n",
           (long long)received, seconds, (double)received / seconds, (double)bytes / seconds, cpu, longest_throttle_ms());
    for (int i = 0; i < options->partitions; i++) rd_kafka_consume_stop(topic, i);
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    free(batch), free(next), free(ends);
    return 0;
}
