import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** A producer that gets an answer to a question that it has not asked. */
public class Program {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("request.timeout.ms", "5000");
        settings.put("delivery.timeout.ms", "10000"); // which 2.0 does not know
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.send(new ProducerRecord<>("orders", "first")).get(30, TimeUnit.SECONDS);
        producer.send(new ProducerRecord<>("orders", "second"));
        CompletableFuture<Void> flushed = CompletableFuture.runAsync(producer::flush);
        try {
            flushed.get(40, TimeUnit.SECONDS);
            System.out.println("NOT SHOWN flush returned");
        } catch (TimeoutException error) {
            System.out.println("SHOWN flush has not returned in 40 s, with time limits of 5 and 10 s");
        }
        Runtime.getRuntime().halt(0);
    }
}
