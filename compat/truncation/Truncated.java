import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Truncated BOOTSTRAP RESET COUNT: reads t-0 from its beginning, prints each record, and what is lost of it. */
public class Truncated {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("auto.offset.reset", args[1]);
        settings.put("group.id", "g");
        settings.put("enable.auto.commit", "false");
        settings.put("metadata.max.age.ms", "200");
        settings.put("reconnect.backoff.max.ms", "200");
        TopicPartition partition = new TopicPartition("t", 0);
        long until = System.currentTimeMillis() + 60_000;
        int left = Integer.parseInt(args[2]);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            while (left > 0 && System.currentTimeMillis() < until) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(record.offset() + " " + record.value());
                    left--;
                }
                System.out.flush();
            }
        } catch (LogTruncationException error) {
            System.out.println("truncated to " + error.divergentOffsets().get(partition).offset());
        }
    }
}
