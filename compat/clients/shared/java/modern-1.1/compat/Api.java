package compat;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** What is different in 1.1: poll with milliseconds, committed offsets of one partition, groups by name in transactions. */
final class Api {
    static final boolean HEADERS = true;

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

    static void addHeaders(ProducerRecord<byte[], byte[]> record, List<Map.Entry<String, byte[]>> headers) {
        headers.forEach(header -> record.headers().add(header.getKey(), header.getValue()));
    }

    static List<Map.Entry<String, byte[]>> headers(ConsumerRecord<byte[], byte[]> record) {
        List<Map.Entry<String, byte[]>> headers = new ArrayList<>();
        record.headers().forEach(header -> headers.add(Map.entry(header.key(), header.value())));
        return headers;
    }

    static void createTopic(Modern client, String topic) throws Exception {
        Topics.create(client, topic);
    }

    static String createTopicAgain(Modern client, String topic) throws Exception {
        return Topics.createAgain(client, topic);
    }
}
