package barnabas.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.junit.jupiter.api.Test;

@KafkaCluster(brokers = 2, controllers = 1)
class KafkaClusterAnnotationTest {
    @Test
    void clusterHasTheBrokersOfItsAnnotation(KafkaBroker cluster) throws Exception {
        try (var admin = Admin.create(Map.<String, Object>of("bootstrap.servers", cluster.getBootstrapServers()))) {
            assertEquals(2, admin.describeCluster().nodes().get().size());
        }
    }

    @Test
    void missingCommandIsNamedWithAWayOut() {
        var broker = new KafkaBroker("no-such-barnabas", new String[0]);
        var error = assertThrows(IOException.class, broker::start);
        assertTrue(error.getMessage().contains("no-such-barnabas"), error.getMessage());
        assertTrue(error.getMessage().contains("pip install barnabas"), error.getMessage());
    }
}
