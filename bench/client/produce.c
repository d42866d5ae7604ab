/* Produce as fast as the client can, for a number of messages or of seconds.
 *
 * All were acknowledged if none failed, none is left after the flush, and the partitions have grown by exactly
 * as many. Success is not reported message by message: that would measure the reporting. */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 1000           /* messages handed over at once, to one partition */
#define PAYLOADS 512         /* different values, so that a codec has something to do */
#define FLUSH_TIMEOUT_MS 120000

static int64_t failed_count;
static rd_kafka_resp_err_t failed_error;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err) {
        failed_count++;
        failed_error = message->err;
    }
}

/* Half hexadecimal noise, half repetition: compresses by about a half, like JSON does. */
static char *new_payloads(int size_bytes) {
    char *payloads = checked_alloc(PAYLOADS + 1, (size_t)size_bytes);
    uint64_t state = 88172645463325252ull;
    for (size_t at = 0; at < (size_t)(PAYLOADS + 1) * (size_t)size_bytes; at++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        payloads[at] = at / 8 % 2 ? "abcdefgh"[at % 8] : "0123456789abcdef"[state >> 32 & 15];
    }
    return payloads;
}

static void hand_over(rd_kafka_t *rk, rd_kafka_topic_t *topic, int partition, rd_kafka_message_t *messages, int count) {
    int done = 0;
    while (done < count) {
        int taken = rd_kafka_produce_batch(topic, partition, 0, messages + done, count - done);
        if (taken == count - done) break;
        /* The queue being full is the only reason to go on: from the first message that found it so. */
        done += taken;
        for (int i = done; i < count; i++) {
            if (messages[i].err != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce: %s", rd_kafka_err2str(messages[i].err));
            messages[i].err = RD_KAFKA_RESP_ERR_NO_ERROR;
        }
        rd_kafka_poll(rk, 1);
    }
    rd_kafka_poll(rk, 0);
}

int run_produce(struct options *options) {
    char error[256];
    rd_kafka_conf_set_dr_msg_cb(options->conf, on_delivery);
    if (rd_kafka_conf_set(options->conf, "delivery.report.only.error", "true", error, sizeof error) != RD_KAFKA_CONF_OK)
        die("%s", error);
    rd_kafka_t *rk = new_client(options, RD_KAFKA_PRODUCER);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, options->topic, NULL);
    if (!topic) die("%s", rd_kafka_err2str(rd_kafka_last_error()));
    int64_t before = query_ends(rk, options, NULL, NULL);

    char *payloads = new_payloads(options->size_bytes);
    rd_kafka_message_t messages[CHUNK];
    /* Sizes that differ, and repeat with a period that is prime, so that no batch looks like another. */
    int spread = options->size_bytes * options->spread_percent / 100, step = 0;
    int64_t sent = 0, bytes = 0;
    int partition = 0, payload = 0;
    double start = monotonic_s(), cpu_start = own_cpu_s();
    double deadline = options->seconds > 0 ? start + options->seconds : 0;
    while (deadline ? monotonic_s() < deadline : sent < options->count) {
        int count = !deadline && options->count - sent < CHUNK ? (int)(options->count - sent) : CHUNK;
        memset(messages, 0, sizeof *messages * (size_t)count);
        for (int i = 0; i < count; i++) {
            messages[i].payload = payloads + (size_t)payload * (size_t)options->size_bytes;
            messages[i].len = (size_t)options->size_bytes;
            if (spread) messages[i].len += (size_t)(step = (step + 7919) % 10007) * 2 * (size_t)spread / 10006 - (size_t)spread;
            bytes += (int64_t)messages[i].len;
            if (++payload == PAYLOADS) payload = 0;
        }
        hand_over(rk, topic, partition, messages, count);
        sent += count;
        if (++partition == options->partitions) partition = 0;
    }
    if (rd_kafka_flush(rk, FLUSH_TIMEOUT_MS)) die("%d messages were not acknowledged in time", rd_kafka_outq_len(rk));
    double seconds = monotonic_s() - start, cpu = own_cpu_s() - cpu_start;

    if (failed_count) die("%lld messages failed: %s", (long long)failed_count, rd_kafka_err2str(failed_error));
    int64_t stored = query_ends(rk, options, NULL, NULL) - before;
    if (stored != sent) die("%lld messages were acknowledged, %lld are there", (long long)sent, (long long)stored);
    printf("{\"mode\":\"produce\",\"messages\":%lld,\"seconds\":%.6f,\"messages_per_s\":%.0f,\"bytes_per_s\":%.0f,"
           "\"client_cpu_s\":%.3f,\"throttle_ms_max\":%d}\n",
           (long long)sent, seconds, (double)sent / seconds, (double)bytes / seconds, cpu, longest_throttle_ms());
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    free(payloads);
    return 0;
}
