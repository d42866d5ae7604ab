import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * The reader of readers.py with the Java client: it prints "read RECORDS" for each reading, "error TEXT" for what is not as
 * it must be. At the end of its standard input it ends the reading under way, and does a last one.
 */
public final class Reader {
    private static final int PAD_BYTES = 64;
    private static volatile boolean isOver;

    private Reader() {}

    /** Arguments: addresses, topic, partitions. */
    public static void main(String[] arguments) throws InterruptedException {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "auto.offset.reset", "none", "enable.auto.commit", false,
            "isolation.level", "read_committed", "retry.backoff.ms", 50, "reconnect.backoff.ms", 20,
            "reconnect.backoff.max.ms", 200, "metadata.max.age.ms", 1000);
        List<TopicPartition> partitions = IntStream.range(0, Integer.parseInt(arguments[2]))
            .mapToObj(partition -> new TopicPartition(arguments[1], partition)).toList();
        Thread input = new Thread(Reader::awaitEnd);
        input.setDaemon(true);
        input.start();
        try {
            for (boolean isLast = false; !isLast; Thread.sleep(1000)) {
                isLast = isOver;
                try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                    System.out.println("read " + read(consumer, partitions));
                }
            }
        } catch (RuntimeException error) {
            error.printStackTrace();
            System.out.println("error " + error);
            System.exit(1);
        }
    }

    /** Reads all partitions from offset 0 to where they end as it begins. */
    private static long read(KafkaConsumer<String, String> consumer, List<TopicPartition> partitions) {
        consumer.assign(partitions);
        Map<TopicPartition, Long> expected = new HashMap<>();
        for (TopicPartition partition : partitions) {
            consumer.seek(partition, 0);
            expected.put(partition, 0L);
        }
        Map<TopicPartition, Long> ends = ends(consumer, partitions);
        while (partitions.stream().anyMatch(partition -> expected.get(partition) < ends.get(partition))) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                check(record, expected.get(partition));
                expected.merge(partition, 1L, Long::sum);
            }
        }
        return expected.values().stream().mapToLong(Long::longValue).sum();
    }

    private static Map<TopicPartition, Long> ends(
            KafkaConsumer<String, String> consumer, List<TopicPartition> partitions) {
        while (true) {
            try {
                return consumer.endOffsets(partitions, Duration.ofSeconds(5));
            } catch (TimeoutException error) {
                System.err.println(error); // brokers come and go
            }
        }
    }

    private static void check(ConsumerRecord<String, String> record, long expected) {
        String key = record.partition() + "-" + expected;
        String value = expected + " " + "x".repeat((int) (expected % PAD_BYTES));
        if (record.offset() != expected || !key.equals(record.key()) || !value.equals(record.value())) {
            throw new IllegalStateException(record + " in the place of " + key + ": " + value);
        }
    }

    private static void awaitEnd() {
        try {
            while (System.in.read() >= 0) {
                // nothing is said
            }
        } catch (IOException error) {
            System.err.println(error);
        }
        isOver = true;
    }
}
