package compat;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** What is different before 0.11: no headers, no admin client, poll with milliseconds. */
final class Api {
    static final boolean HEADERS = false;

    private Api() {}

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long milliseconds) {
        return consumer.poll(milliseconds);
    }

    static OffsetAndMetadata committed(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        return consumer.committed(partition);
    }

    static void addHeaders(ProducerRecord<byte[], byte[]> record, List<Map.Entry<String, byte[]>> headers) {}

    static List<Map.Entry<String, byte[]>> headers(ConsumerRecord<byte[], byte[]> record) {
        return null;
    }

    /** Lets the broker create the topic: a producer that asks for its partitions does. */
    static void createTopic(Modern client, String topic) {
        try (KafkaProducer<byte[], byte[]> producer = client.producer()) {
            int count = producer.partitionsFor(topic).size();
            if (count != Cases.PARTITIONS) {
                throw new Cases.Skip("the broker creates topics with " + count + " partitions: set num.partitions=3");
            }
        }
    }

    static String createTopicAgain(Modern client, String topic) {
        return ", created by the broker";
    }
}
