import java.time.Duration;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** A consumer that gets answers in another order than they were true in. */
public class Program {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("group.id", "billing");
        settings.put("client.id", "writer");
        settings.put("metadata.max.age.ms", "500");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.send(new ProducerRecord<>("orders", "x")).get();
        producer.close();
        settings.put("client.id", "reader");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        consumer.assign(Collections.singletonList(new TopicPartition("orders", 0)));
        int records = 0;
        try {
            for (long end = System.currentTimeMillis() + 8000; System.currentTimeMillis() < end; ) {
                ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(200));
                records += found.count();
            }
        } catch (NullPointerException error) {
            System.out.println("SHOWN poll threw " + error.getClass().getName() + " at " + error.getStackTrace()[0]);
            Runtime.getRuntime().halt(0);
        }
        System.out.println("NOT SHOWN poll threw nothing; " + records + " record(s)");
        Runtime.getRuntime().halt(0);
    }
}
