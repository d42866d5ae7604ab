import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;

/** Asks brokers, or controllers, to unregister controllers of these ids, and prints what becomes of each. */
public class Unregister {
    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of(arguments[0], arguments[1]))) {
            for (int i = 2; i < arguments.length; i++) {
                String outcome = "done";
                try {
                    admin.unregisterController(Integer.parseInt(arguments[i])).all().get();
                } catch (ExecutionException refusal) {
                    outcome = refusal.getCause().getClass().getSimpleName();
                }
                System.out.println(outcome);
            }
        }
    }
}
