package compat;

import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

/** What is different in 1.1: poll with milliseconds, committed offsets of one partition, groups by name in transactions. */
final class Api extends ApiSince011 {
    private Api() {}

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long milliseconds) {
        return consumer.poll(milliseconds);
    }

    static OffsetAndMetadata committed(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        return consumer.committed(partition);
    }

    static void sendOffsets(KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, OffsetAndMetadata> offsets,
            KafkaConsumer<byte[], byte[]> consumer, String group) {
        producer.sendOffsetsToTransaction(offsets, group);
    }
}
