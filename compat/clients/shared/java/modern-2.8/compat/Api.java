package compat;

import java.time.Duration;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

/** What is different since 2.8: poll with a Duration, committed offsets of many partitions, groups with their generation in transactions. */
final class Api extends ApiSince011 {
    private Api() {}

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long milliseconds) {
        return consumer.poll(Duration.ofMillis(milliseconds));
    }

    static OffsetAndMetadata committed(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        return consumer.committed(Set.of(partition)).get(partition);
    }

    static void sendOffsets(KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, OffsetAndMetadata> offsets,
            KafkaConsumer<byte[], byte[]> consumer, String group) {
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }
}
