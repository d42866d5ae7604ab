package barnabas.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class KafkaSecurityTest {
    @RegisterExtension
    static final KafkaBroker LOGINS = new KafkaBroker("--security", "SASL_SSL", "--topic", "orders");

    @RegisterExtension
    static final KafkaBroker CERTIFICATES = new KafkaBroker("--security", "SSL", "--topic", "orders");

    @Test
    void userLogsInOverTls() throws Exception {
        assertEquals("User:alice", principalOf(LOGINS, "alice"));
    }

    @Test
    void userShowsACertificate() throws Exception {
        assertEquals("User:CN=bob", principalOf(CERTIFICATES, "bob"));
    }

    private static String principalOf(KafkaBroker broker, String user) throws Exception {
        Map<String, Object> settings = broker.clientSettings(user);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", "first")).get();
        }
        String request = broker.control("GET", "/v1/requests?api=Produce&limit=1", null);
        return request.replaceAll("(?s).*\"principal\": \"([^\"]*)\".*", "$1");
    }
}
