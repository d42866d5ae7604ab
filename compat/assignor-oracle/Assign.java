import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

/**
 * Asks Kafka's own sticky assignor. A line is a case: REPLICAS SHAPES MEMBERS, shapes as NAME:TASKS:STATEFUL with commas
 * between, members as ID:PROCESS:ACTIVE:STANDBY with commas between, tasks as NAME_NUMBER with semicolons between, or "-".
 * The answer is a line of members as ID:ACTIVE:STANDBY.
 */
public final class Assign {
    private Assign() {}

    private record Shape(int tasks, boolean stateful) {}

    private record Topology(TreeMap<String, Shape> shapes) implements TopologyDescriber {
        @Override
        public List<String> subtopologies() {
            return List.copyOf(shapes.keySet());
        }

        @Override
        public int maxNumInputPartitions(String name) throws NoSuchElementException {
            return shapes.get(name).tasks();
        }

        @Override
        public boolean isStateful(String name) {
            return shapes.get(name).stateful();
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(answer(line.split(" ")));
        }
    }

    private static String answer(String[] parts) {
        TreeMap<String, Shape> shapes = new TreeMap<>();
        for (String shape : parts[1].split(",")) {
            String[] fields = shape.split(":");
            shapes.put(fields[0], new Shape(Integer.parseInt(fields[1]), fields[2].equals("True")));
        }
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        for (String member : parts[2].split(",")) {
            String[] fields = member.split(":");
            members.put(fields[0], new AssignmentMemberSpec(Optional.empty(), Optional.empty(), tasks(fields[2]),
                tasks(fields[3]), Map.of(), fields[1], Map.of(), Map.of(), Map.of()));
        }
        GroupAssignment given = new StickyTaskAssignor().assign(
            new GroupSpecImpl(members, Map.of("num.standby.replicas", parts[0])), new Topology(shapes));
        StringBuilder out = new StringBuilder();
        given.members().forEach((id, member) -> out.append(out.isEmpty() ? "" : ",").append(id).append(':')
            .append(text(member.activeTasks())).append(':').append(text(member.standbyTasks())));
        return out.toString();
    }

    private static Map<String, Set<Integer>> tasks(String text) {
        Map<String, Set<Integer>> tasks = new HashMap<>();
        if (!text.equals("-")) {
            Arrays.stream(text.split(";")).map(task -> task.split("_")).forEach(
                task -> tasks.computeIfAbsent(task[0], name -> new HashSet<>()).add(Integer.parseInt(task[1])));
        }
        return tasks;
    }

    private static String text(Map<String, Set<Integer>> tasks) {
        StringBuilder out = new StringBuilder();
        tasks.forEach((name, numbers) -> numbers.forEach(
            number -> out.append(out.isEmpty() ? "" : ";").append(name).append('_').append(number)));
        return out.isEmpty() ? "-" : out.toString();
    }
}
