import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** LedAstray HOST:PORT BOOTSTRAP: offsets in a transaction, groups deleted; after a line is read, one more record. */
public class LedAstray {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic("in", 1, (short) 1))).all().get();
            copy(bootstrap);
            try {
                admin.deleteConsumerGroups(List.of("copiers", "absent")).deletedGroups().get("absent").get();
                throw new IllegalStateException("an absent group was deleted");
            } catch (ExecutionException error) {
                say("absent", error.getCause().getClass().getSimpleName());
            }
            say("groups", admin.listGroups().all().get().size());
            say("node", node(admin));
        }
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        Map<String, Object> writes = Map.of("bootstrap.servers", arguments[1], "acks", "all");
        StringSerializer writer = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(writes, writer, writer)) {
            say("sent", producer.send(new ProducerRecord<>("in", "b")).get().topic());
        }
    }

    private static int node(Admin admin) throws Exception {
        return admin.describeCluster().nodes().get().iterator().next().id();
    }

    private static void copy(String bootstrap) {
        Map<String, Object> reads = Map.of("bootstrap.servers", bootstrap, "group.id", "copiers",
            "group.protocol", "consumer", "auto.offset.reset", "earliest", "enable.auto.commit", false);
        Map<String, Object> writes = Map.of("bootstrap.servers", bootstrap, "transactional.id", "copier");
        StringDeserializer reader = new StringDeserializer();
        StringSerializer writer = new StringSerializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reads, reader, reader);
             KafkaProducer<String, String> producer = new KafkaProducer<>(writes, writer, writer)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("in", "a"));
            producer.commitTransaction();
            consumer.subscribe(List.of("in"));
            ConsumerRecords<String, String> got = consumer.poll(Duration.ofSeconds(1));
            while (got.isEmpty()) {
                got = consumer.poll(Duration.ofSeconds(1));
            }
            producer.beginTransaction();
            TopicPartition in = new TopicPartition("in", 0);
            producer.sendOffsetsToTransaction(
                Map.of(in, new OffsetAndMetadata(consumer.position(in))), consumer.groupMetadata());
            producer.commitTransaction();
            say("committed", consumer.committed(java.util.Set.of(in)).get(in).offset());
        }
    }

    private static void say(String what, Object value) {
        System.out.println(what + " " + value);
        System.out.flush();
    }
}
