package compat;

import java.util.Collection;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Clients before 0.10 know no timestamps; their consumer takes lists. */
final class Times {
    private Times() {}

    static void register(Modern client) {
        client.cases.lack("read-by-timestamp", "messages of 0.9 have no timestamps");
    }

    static ProducerRecord<byte[], byte[]> message(String topic, Numbered record) {
        throw new UnsupportedOperationException("messages of 0.9 have no timestamps");
    }

    static void waitForLeaders(KafkaConsumer<byte[], byte[]> consumer, Collection<TopicPartition> all) {
        consumer.assign(List.copyOf(all));
        consumer.seekToEnd(all.toArray(new TopicPartition[0]));
        all.forEach(consumer::position); // each is asked for until a leader answers
    }

    static void beginWith(KafkaConsumer<byte[], byte[]> consumer, Collection<TopicPartition> all) {
        consumer.assign(List.copyOf(all));
        consumer.seekToBeginning(all.toArray(new TopicPartition[0]));
    }
}
