import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;

/** A tool that asks for a group's offsets just when its coordinator has moved. */
public class Program {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        AdminClient admin = AdminClient.create(settings);
        try {
            admin.listConsumerGroupOffsets("billing").partitionsToOffsetAndMetadata().get(30, TimeUnit.SECONDS);
            System.out.println("NOT SHOWN the offsets are there");
        } catch (ExecutionException error) {
            System.out.println("SHOWN " + error.getCause());
        }
        Runtime.getRuntime().halt(0);
    }
}
