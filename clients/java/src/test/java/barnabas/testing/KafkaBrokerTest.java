package barnabas.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.api.extension.RegisterExtension;

@TestMethodOrder(MethodOrderer.OrderAnnotation.class)
class KafkaBrokerTest {
    @RegisterExtension static final KafkaBroker BROKER = new KafkaBroker("--topic", "orders:2");

    @Test
    @Order(1)
    void aProducerAndAConsumer() throws Exception {
        try (var producer = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", BROKER.bootstrap()),
                new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", "k", "first")).get();
        }
        BROKER.waitForRecords("orders", 1);
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", BROKER.bootstrap(), "group.id", "g", "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            ConsumerRecords<String, String> records = ConsumerRecords.empty();
            for (int polls = 0; records.isEmpty() && polls < 60; polls++) {
                records = consumer.poll(Duration.ofSeconds(1));
            }
            assertEquals("first", records.iterator().next().value());
            BROKER.waitForGroup("g");
        }
    }

    @Test
    @Order(2)
    void theNextTestBeginsAnew() {
        assertFalse(BROKER.control("GET", "/v1/topics/orders/records", null).contains("first"));
        assertTrue(BROKER.control("GET", "/v1/groups", null).contains("[]"));
    }

    @Test
    @Order(3)
    void aSnapshotIsRestored() {
        BROKER.control("POST", "/v1/topics/orders/records", "{\"records\": [\"kept\"]}");
        BROKER.snapshot("one");
        BROKER.control("POST", "/v1/topics/orders/records", "{\"records\": [\"dropped\"]}");
        BROKER.restore("one");
        String records = BROKER.control("GET", "/v1/topics/orders/records", null);
        assertTrue(records.contains("kept") && !records.contains("dropped"), records);
    }

    @Test
    @Order(4)
    void whatIsRefusedSaysWhy() {
        var error = assertThrows(IllegalStateException.class, () -> BROKER.restore("none"));
        assertTrue(error.getMessage().contains("there is no snapshot none"), error.getMessage());
    }
}
