package compat;

import static compat.Cases.until;

import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Records with timestamps, which clients know since 0.10, and what came with them. */
final class Times {
    private Times() {}

    static void register(Modern client) {
        client.cases.add("read-by-timestamp", () -> readByTimestamp(client));
    }

    static ProducerRecord<byte[], byte[]> message(String topic, Numbered record) {
        return new ProducerRecord<>(topic, null, Numbered.timestampMs(record.number()), record.key(), record.value());
    }

    static void waitForLeaders(KafkaConsumer<byte[], byte[]> consumer, Collection<TopicPartition> all) {
        consumer.endOffsets(all);
    }

    static void beginWith(KafkaConsumer<byte[], byte[]> consumer, Collection<TopicPartition> all) {
        consumer.assign(all);
        consumer.seekToBeginning(all);
    }

    private static String readByTimestamp(Modern client) throws Exception {
        String topic = client.create(client.cases.topic("read-by-timestamp"));
        try (KafkaProducer<byte[], byte[]> producer = client.producer();
                KafkaConsumer<byte[], byte[]> consumer = client.consumer()) {
            Modern.send(producer, topic, 0, 1000, true);
            lookUp(consumer, topic, Numbered.timestampMs(1000)).forEach((partition, found) ->
                    Check.ensure(found == null, partition + ": something is younger than the youngest record"));
            var places = lookUp(consumer, topic, Numbered.timestampMs(500) - 1);
            consumer.assign(Modern.partitions(topic));
            places.forEach((partition, found) -> {
                Check.ensure(found.timestamp() >= Numbered.timestampMs(500), partition + ": " + found);
                consumer.seek(partition, found.offset());
            });
            Check check = new Check(Api.HEADERS);
            until(() -> check.count() >= 500, () -> Modern.poll(consumer).forEach(check::add), "the younger half");
            check.finish(500, 1000);
        }
        return "offsets of the 501st record on, read from there";
    }

    private static Map<TopicPartition, OffsetAndTimestamp> lookUp(
            KafkaConsumer<byte[], byte[]> consumer, String topic, long timestampMs) {
        Map<TopicPartition, Long> wanted = new HashMap<>();
        Modern.partitions(topic).forEach(partition -> wanted.put(partition, timestampMs));
        return Collections.unmodifiableMap(consumer.offsetsForTimes(wanted));
    }
}
