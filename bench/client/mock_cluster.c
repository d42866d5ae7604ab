/* librdkafka's own mock broker, as a process that others can reach on loopback.
 *
 * Prints "bootstrap HOST:PORT", then obeys lines on standard input until it ends: "create TOPIC PARTITIONS" is
 * answered by "ok" (its CreateTopics API does not exist). */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>

int main(void) {
    char error[512], line[512], topic[256];
    int partitions;
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), error, sizeof error);
    if (!rk) return fprintf(stderr, "mock_cluster: %s\n", error), 1;
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(rk, 1);
    if (!cluster) return fprintf(stderr, "mock_cluster: no cluster\n"), 1;
    printf("bootstrap %s\n", rd_kafka_mock_cluster_bootstraps(cluster));
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        rd_kafka_resp_err_t failed = RD_KAFKA_RESP_ERR__INVALID_ARG;
        if (sscanf(line, "create %255s %d", topic, &partitions) == 2)
            failed = rd_kafka_mock_topic_create(cluster, topic, partitions, 1);
        puts(failed ? rd_kafka_err2str(failed) : "ok");
        fflush(stdout);
    }
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(rk);
    return 0;
}
