import java.io.FileWriter;
import java.io.IOException;
import java.io.Writer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The worker of worker.py with the Java clients: any error ends the process. */
public final class Worker {
    private Worker() {}

    /** Arguments: HOST:PORT, name, file for the numbers of the orders that are done. */
    public static void main(String[] arguments) throws IOException {
        String bootstrap = arguments[0];
        String name = arguments[1];
        Map<String, Object> produces = Map.of(
            "bootstrap.servers", bootstrap, "transactional.id", name, "transaction.timeout.ms", 20_000,
            "linger.ms", 0, "max.block.ms", 30_000);
        Map<String, Object> consumes = Map.of(
            "bootstrap.servers", bootstrap, "group.id", "clerks", "group.instance.id", name,
            "session.timeout.ms", 6_000, "heartbeat.interval.ms", 500, "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "max.poll.records", 20,
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        try (var producer = new KafkaProducer<>(produces, new StringSerializer(), new StringSerializer());
                var consumer = new KafkaConsumer<>(consumes, new StringDeserializer(), new StringDeserializer());
                var told = new FileWriter(arguments[2], true)) {
            producer.initTransactions();
            consumer.subscribe(List.of("orders"));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    transfer(consumer, producer, records, told);
                }
            }
        } catch (RuntimeException error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void transfer(
            KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer,
            ConsumerRecords<String, String> records, Writer told) throws IOException {
        StringBuilder numbers = new StringBuilder();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            String[] order = record.value().split(" ");
            producer.send(new ProducerRecord<>("ledger", order[1], order[0] + " -" + order[3]));
            producer.send(new ProducerRecord<>("ledger", order[2], order[0] + " " + order[3]));
            numbers.append(order[0]).append(' ');
        }
        producer.sendOffsetsToTransaction(new HashMap<>(records.nextOffsets()), consumer.groupMetadata());
        producer.commitTransaction();
        told.write(numbers.toString().strip() + "\n");
        told.flush();
    }
}
