import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.internals.AsyncKafkaConsumer;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.Assignment;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.Subtopology;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.TaskId;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.TopicInfo;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceListener;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a streams group, as the consumer of Kafka 4.4 is one for Kafka Streams: it takes its tasks and runs none. What
 * it has is printed; "pause" on standard input ends it as a static member that will be back, "leave" for good.
 */
public final class Members {
    private Members() {}

    /** Arguments: HOST:PORT, group, process id, instance id or "-". */
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("group.protocol", "consumer");
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        if (!arguments[3].equals("-")) {
            properties.put("group.instance.id", arguments[3]);
        }
        Subtopology counting = new Subtopology(Set.of("words"), Set.of(), Map.of(),
            Map.of(arguments[1] + "-counts-changelog",
                new TopicInfo(Optional.empty(), Optional.empty(), Map.of("cleanup.policy", "compact"))),
            List.of());
        TaskId some = new TaskId("0", 0);
        StreamsRebalanceData data = new StreamsRebalanceData(UUID.fromString(arguments[2]), Optional.empty(),
            Optional.of("a-rack"), Map.of("0", counting), Map.of("zone", "z"), () -> Map.of(some, 7L), () -> Map.of(some, 9L));
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        AsyncKafkaConsumer<byte[], byte[]> consumer =
            new AsyncKafkaConsumer<>(new ConsumerConfig(properties), bytes, bytes, Optional.of(data));
        consumer.subscribe(List.of("words"), new StreamsRebalanceListener() {
            @Override
            public void onTasksRevoked(Set<TaskId> tasks) {
                Set<TaskId> kept = new HashSet<>(data.reconciledAssignment().activeTasks());
                kept.removeAll(tasks);
                data.setReconciledAssignment(new Assignment(kept, data.reconciledAssignment().standbyTasks(),
                    Set.of(), data.reconciledAssignment().isGroupReady()));
            }

            @Override
            public void onTasksAssigned(Assignment assignment) {
                data.setReconciledAssignment(assignment);
                say("tasks " + assignment.activeTasks().stream().map(TaskId::partitionId).sorted().toList());
            }

            @Override
            public void onAllTasksLost() {
                data.setReconciledAssignment(Assignment.EMPTY);
                say("lost");
            }
        });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (!input.ready()) {
            try {
                consumer.poll(Duration.ofMillis(100));
            } catch (RuntimeException error) {
                say("failed " + error.getClass().getSimpleName());
                break;
            }
        }
        boolean leaves = "leave".equals(input.ready() ? input.readLine() : "leave");
        consumer.close(CloseOptions.timeout(Duration.ofSeconds(10)).withGroupMembershipOperation(
            leaves ? GroupMembershipOperation.LEAVE_GROUP : GroupMembershipOperation.DEFAULT));
        System.exit(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
