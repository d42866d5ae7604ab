package barnabas.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class KafkaClusterTest {
    @RegisterExtension static final KafkaBroker CLUSTER = new KafkaBroker("--brokers", "3");

    @Test
    void aClusterServesWithANodeDown() throws Exception {
        CLUSTER.createTopic("orders", 1);
        CLUSTER.moveLeader("orders", 0, 2);
        try (var producer = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", CLUSTER.bootstrap(), "acks", "all"),
                new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", "before")).get();
            CLUSTER.killNode(2);
            producer.send(new ProducerRecord<>("orders", "without the leader")).get();
            CLUSTER.startNode(2);
            CLUSTER.moveLeader("orders", 0, 2);
            CLUSTER.isolateNode(3, false);
            producer.send(new ProducerRecord<>("orders", "with one cut off")).get();
            CLUSTER.rejoinNode(3);
        }
        CLUSTER.stopNode(1);
        assertEquals(2, CLUSTER.leader("orders", 0));
        assertTrue(CLUSTER.cluster().contains("\"running\": false"), CLUSTER.cluster());
    }

    @Test
    void anotherTestHasAnotherCluster() {
        CLUSTER.createTopic("orders", 3);
        var error = assertThrows(IllegalStateException.class, () -> CLUSTER.moveLeader("orders", 0, 9));
        assertTrue(error.getMessage().contains("has no replica on broker 9"), error.getMessage());
    }
}
