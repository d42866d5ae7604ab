package compat;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/** What all {@code Api}s since 0.11 have: headers, and topics made by the admin client. */
class ApiSince011 {
    static final boolean HEADERS = true;

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
