package compat;

import static compat.Cases.COUNT;
import static compat.Cases.PARTITIONS;
import static compat.Cases.until;

import compat.Producing.Reading;
import compat.Producing.ReadingDecoder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.IntStream;
import kafka.admin.AdminUtils;
import kafka.consumer.Blacklist;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.ConsumerTimeoutException;
import kafka.consumer.Whitelist;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndMetadata;
import kafka.producer.KeyedMessage;
import kafka.serializer.StringDecoder;
import kafka.utils.VerifiableProperties;
import kafka.utils.ZKStringSerializer$;
import org.I0Itec.zkclient.ZkClient;

/** Kafka 0.8.2's Scala clients and tools: everything is found, and shared out, through ZooKeeper. */
final class Old {
    private static final List<String> NAMES = List.of(
            "topics", "producer-sync", "producer-async", "producer-own", "group-zookeeper", "group-kafka",
            "group-roundrobin", "resume-zookeeper", "resume-kafka", "dual-commit", "auto-commit", "topic-filter",
            "member-dies", "broker-restart", "broker-kill", "tools");
    private static final String[] IN_KAFKA = {"offsets.storage", "kafka", "dual.commit.enabled", "false"};

    private final Cases cases;
    private final Znodes znodes;
    private final ZkClient client;

    private Old(Cases cases) throws Exception {
        this.cases = cases;
        String connect = Cases.environment("COMPAT_ZOOKEEPER", "");
        znodes = new Znodes(connect);
        client = new ZkClient(connect, 20_000, 20_000, ZKStringSerializer$.MODULE$);
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("member")) { // a child of the case member-dies
            member(new Znodes(arguments[1]), arguments[2], arguments[3]);
        }
        Cases cases = new Cases(arguments, NAMES);
        if (Cases.environment("COMPAT_ZOOKEEPER", "").isEmpty()) {
            NAMES.forEach(name -> cases.lack(name, "COMPAT_ZOOKEEPER does not say which ZooKeeper the brokers use"));
            cases.run();
        }
        Old old = new Old(cases);
        cases.add("topics", old::topics);
        cases.add("producer-sync", old::producerSync);
        cases.add("producer-async", old::producerAsync);
        cases.add("producer-own", old::producerOwn);
        cases.add("group-zookeeper", () -> old.group("zookeeper"));
        cases.add("group-kafka", () -> old.group("kafka", IN_KAFKA));
        cases.add("group-roundrobin", () -> old.group("roundrobin", "partition.assignment.strategy", "roundrobin"));
        cases.add("resume-zookeeper", () -> old.resume("zookeeper"));
        cases.add("resume-kafka", () -> old.resume("kafka", IN_KAFKA));
        cases.add("dual-commit", old::dualCommit);
        cases.add("auto-commit", old::autoCommit);
        cases.add("topic-filter", old::topicFilter);
        cases.add("member-dies", old::memberDies);
        cases.add("broker-restart", () -> old.broker("term"));
        cases.add("broker-kill", () -> old.broker("kill"));
        cases.add("tools", old::tools);
        cases.run();
    }

    /** Makes a topic as the tools of the time do: in ZooKeeper, where the controller finds it. */
    private String create(String topic) throws Exception {
        return create(topic, new Properties());
    }

    private String create(String topic, Properties settings) throws Exception {
        AdminUtils.createTopic(client, topic, PARTITIONS, Math.min(3, znodes.children("/brokers/ids").size()), settings);
        waitForLeaders(topic);
        return topic;
    }

    private void waitForLeaders(String topic) throws Exception {
        String path = "/brokers/topics/" + topic + "/partitions";
        until(() -> IntStream.range(0, PARTITIONS).allMatch(i -> {
            String state = znodes.text(path + "/" + i + "/state");
            return state != null && !state.contains("\"leader\":-1");
        }), Cases::pause, "leaders of " + topic);
    }

    private Check readAll(String topic, int count, String group) throws Exception {
        Check check = new Check(false);
        Group member = Group.join(znodes, group, "reader", topic);
        until(() -> check.count() >= count, () -> member.poll().forEach(check::add), count + " records of " + topic);
        member.close();
        return check;
    }

    // --- topics and producers -----------------------------------------------------------------------------------

    private String topics() throws Exception {
        Properties settings = new Properties();
        settings.put("retention.ms", "123456789");
        String topic = create(cases.topic("topics"), settings);
        Producing.produce(cases.bootstrap, topic, 0, 300);
        readAll(topic, 300, cases.topic("topics-group")).finish(0, 300);
        settings.put("cleanup.policy", "compact");
        AdminUtils.changeTopicConfig(client, topic, settings);
        AdminUtils.deleteTopic(client, topic);
        until(() -> znodes.text("/brokers/topics/" + topic) == null, Cases::pause, "the topic is gone");
        return "made, set and deleted in ZooKeeper";
    }

    private String producerSync() throws Exception {
        for (String acks : List.of("0", "1", "-1")) {
            for (String codec : List.of("none", "gzip", "snappy")) {
                String topic = create(cases.topic("sync-" + acks + "-" + codec));
                // ZooKeeper names a leader before that broker knows; with acks=0 nobody is told that it refuses.
                Producing.produce(cases.bootstrap, topic, 0, 30, "request.required.acks", "1",
                        "compression.codec", codec, "producer.type", "sync");
                Producing.produce(cases.bootstrap, topic, 30, 500, "request.required.acks", acks,
                        "compression.codec", codec, "producer.type", "sync");
                readAll(topic, 500, topic + "-group").finish(0, 500);
            }
        }
        // The broker makes a topic that a producer asks for.
        String topic = cases.topic("sync-created");
        Producing.produce(cases.bootstrap, topic, 0, COUNT);
        readAll(topic, COUNT, topic + "-group").finish(0, COUNT);
        return "acks 0, 1, -1, each with none, gzip, snappy; a topic that the broker makes";
    }

    private String producerAsync() throws Exception {
        String topic = create(cases.topic("async"));
        Producing.produce(cases.bootstrap, topic, 0, COUNT, "producer.type", "async", "queue.buffering.max.ms", "50",
                "batch.num.messages", "100", "queue.enqueue.timeout.ms", "-1", "compression.codec", "snappy",
                "compressed.topics", topic);
        readAll(topic, COUNT, cases.topic("async-group")).finish(0, COUNT);
        return COUNT + " records through a queue, in batches of 100";
    }

    private String producerOwn() throws Exception {
        String topic = create(cases.topic("own"));
        Producer<String, Reading> producer = Producing.open(cases.bootstrap,
                "serializer.class", "compat.Producing$ReadingEncoder",
                "key.serializer.class", "kafka.serializer.StringEncoder",
                "partitioner.class", "compat.Producing$WarmPlaces");
        for (int i = 0; i < 200; i++) {
            String place = (i % 2 == 0 ? "warm-" : "cold-") + i;
            producer.send(new KeyedMessage<>(topic, place, new Reading(place, i)));
        }
        producer.close();
        Properties settings = new Properties();
        settings.put("zookeeper.connect", znodes.connect);
        settings.put("group.id", cases.topic("own-group"));
        settings.put("auto.offset.reset", "smallest");
        settings.put("consumer.timeout.ms", "100");
        var connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        ConsumerIterator<String, Reading> records = connector.createMessageStreams(Map.of(topic, 1),
                new StringDecoder(new VerifiableProperties()), new ReadingDecoder()).get(topic).get(0).iterator();
        Set<Integer> seen = new HashSet<>();
        until(() -> seen.size() == 200, () -> {
            try {
                while (records.hasNext()) {
                    MessageAndMetadata<String, Reading> next = records.next();
                    int partition = next.key().startsWith("warm") ? PARTITIONS - 1 : 0;
                    Check.ensure(next.partition() == partition, next.key() + " is in partition " + next.partition());
                    Check.ensure(next.message().place().equals(next.key()), next.key() + " has " + next.message());
                    seen.add(next.message().degrees());
                }
            } catch (ConsumerTimeoutException nothingYet) {
                // asked again
            }
        }, "200 readings");
        connector.shutdown();
        return "200 readings, partitioned, encoded and decoded by the application's classes";
    }

    // --- groups -------------------------------------------------------------------------------------------------

    private String group(String name, String... options) throws Exception {
        String topic = create(cases.topic("group-" + name));
        String group = topic + "-group";
        int[] members = {0};
        String said = Scenarios.share(() -> Group.join(znodes, group, "m" + members[0]++, topic, options),
                (first, last) -> Producing.produce(cases.bootstrap, topic, first, last), false);
        long kept = znodes.committed(group, topic);
        Check.ensure(name.equals("kafka") ? kept == -1 : kept == 3000, "offsets in ZooKeeper add up to " + kept);
        Check.ensure(znodes.owners(group, topic).isEmpty(), "owners are left: " + znodes.owners(group, topic));
        return said;
    }

    private String resume(String name, String... options) throws Exception {
        String topic = create(cases.topic("resume-" + name));
        return Scenarios.resume((first, last) -> Producing.produce(cases.bootstrap, topic, first, last),
                (check, goal) -> readAndCommit(topic, topic + "-group", check, goal, options), false);
    }

    private void readAndCommit(String topic, String group, Check check, int goal, String... options) throws Exception {
        Group member = Group.join(znodes, group, "one", topic, options);
        until(() -> check.count() >= goal, () -> member.poll().forEach(check::add), goal + " records of " + topic);
        member.close();
    }

    /** The way from offsets in ZooKeeper to offsets in Kafka, as the documentation of 0.8.2 tells it, and back. */
    private String dualCommit() throws Exception {
        String topic = create(cases.topic("dual"));
        String group = topic + "-group";
        Check check = new Check(false);
        Producing.produce(cases.bootstrap, topic, 0, 300);
        readAndCommit(topic, group, check, 300);
        Check.ensure(znodes.committed(group, topic) == 300, "1. ZooKeeper has " + znodes.committed(group, topic));
        Producing.produce(cases.bootstrap, topic, 300, 600);
        readAndCommit(topic, group, check, 600, "offsets.storage", "kafka", "dual.commit.enabled", "true");
        Check.ensure(znodes.committed(group, topic) == 600, "2. ZooKeeper has " + znodes.committed(group, topic));
        Producing.produce(cases.bootstrap, topic, 600, 900);
        readAndCommit(topic, group, check, 900, IN_KAFKA);
        Check.ensure(znodes.committed(group, topic) == 600, "3. ZooKeeper has " + znodes.committed(group, topic));
        // Both are read, and the larger one counts: what only Kafka knows is not read again.
        Producing.produce(cases.bootstrap, topic, 900, 1200);
        readAndCommit(topic, group, check, 1200, "offsets.storage", "kafka", "dual.commit.enabled", "true");
        Check.ensure(znodes.committed(group, topic) == 1200, "4. ZooKeeper has " + znodes.committed(group, topic));
        Producing.produce(cases.bootstrap, topic, 1200, 1500);
        readAndCommit(topic, group, check, 1500);
        check.finish(0, 1500);
        return "ZooKeeper, both, Kafka alone, both, ZooKeeper: 1500 records, each once";
    }

    private String autoCommit() throws Exception {
        String topic = create(cases.topic("auto"));
        String group = topic + "-group";
        Producing.produce(cases.bootstrap, topic, 0, 300);
        Check check = new Check(false);
        Group member = Group.join(znodes, group, "one", topic, "auto.commit.enable", "true",
                "auto.commit.interval.ms", "200");
        until(() -> check.count() >= 300 && znodes.committed(group, topic) == 300,
                () -> member.poll().forEach(check::add), "300 records, committed");
        member.leave();
        return "committed every 200 ms";
    }

    private String topicFilter() throws Exception {
        String prefix = cases.topic("filter");
        String group = prefix + "-group";
        create(prefix + "-a1");
        create(prefix + "-b1");
        Map<String, Set<String>> seen = new TreeMap<>();
        Group wanted = Group.join(znodes, group, "white", new Whitelist(prefix + "-a.*"));
        Group others = Group.join(znodes, group + "2", "black", new Blacklist("__.*|.*-a[0-9]|(?!" + prefix + ").*"));
        Cases.Step step = () -> {
            wanted.pollAll().forEach(one -> one.noteIn(seen, "white"));
            others.pollAll().forEach(one -> one.noteIn(seen, "black"));
        };
        for (String name : List.of("-a1", "-b1")) {
            Producing.produce(cases.bootstrap, prefix + name, 0, 90);
        }
        until(() -> seen.values().stream().mapToInt(Set::size).sum() >= 180, step, "two topics are read");
        create(prefix + "-a2"); // made while both read
        create(prefix + "-b2");
        for (String name : List.of("-a2", "-b2")) {
            Producing.produce(cases.bootstrap, prefix + name, 0, 90);
        }
        until(() -> seen.values().stream().mapToInt(Set::size).sum() >= 360, step, "four topics are read");
        Set<String> all = Set.of("white " + prefix + "-a1", "white " + prefix + "-a2", "black " + prefix + "-b1",
                "black " + prefix + "-b2");
        Check.ensure(seen.keySet().equals(all), "seen: " + seen.keySet());
        wanted.close();
        others.close();
        return "a whitelist and a blacklist, with topics that are made meanwhile";
    }

    // --- what fails ---------------------------------------------------------------------------------------------

    /** The child of {@link #memberDies}: joins, reads, and ends when it is killed. */
    private static void member(Znodes znodes, String group, String topic) {
        Group member = Group.join(znodes, group, "child", topic);
        while (true) {
            member.poll();
        }
    }

    private String memberDies() throws Exception {
        String topic = create(cases.topic("dies"));
        String group = topic + "-group";
        Producing.produce(cases.bootstrap, topic, 0, 300);
        Group stays = Group.join(znodes, group, "stays", topic);
        Check check = new Check(false);
        Process child = new ProcessBuilder(ProcessHandle.current().info().command().orElse("java"), "-Xmx128m", "-cp",
                System.getProperty("java.class.path"), "compat.Old", "member", znodes.connect, group, topic)
                .redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        Cases.Step step = () -> stays.poll().forEach(check::add);
        try {
            until(() -> znodes.owners(group, topic).size() == PARTITIONS && stays.assigned().size() < PARTITIONS
                    && !stays.assigned().isEmpty(), step, "the child has a part");
        } finally {
            child.destroyForcibly().waitFor();
        }
        until(() -> stays.assigned().size() == PARTITIONS, step, "its partitions are taken over");
        Producing.produce(cases.bootstrap, topic, 300, 600);
        until(() -> check.has(0, 600), step, "everything is read");
        stays.close();
        check.finish(Check.range(0, 600), true);
        return "its partitions are taken over when its session with ZooKeeper ends";
    }

    private String broker(String how) throws Exception {
        String topic = create(cases.topic("broker-" + how));
        String group = topic + "-group";
        Producer<byte[], byte[]> producer = Producing.open(cases.bootstrap);
        Group member = Group.join(znodes, group, "stays", topic);
        Check check = new Check(false);
        Cases.Step step = () -> member.poll().forEach(check::add);
        Producing.send(producer, topic, 0, 500);
        until(() -> check.has(0, 500), step, "500 records");
        int number = 500;
        for (int broker = 0; broker < znodes.children("/brokers/ids").size(); broker++) {
            Cases.restartBroker(how);
            int from = number;
            number += 500;
            int to = number;
            Producing.send(producer, topic, from, to);
            until(() -> check.has(0, to), step, to + " records");
        }
        producer.close();
        member.close();
        // A producer without sequence numbers sends again what it has no answer for, so records may be there twice.
        if (how.equals("term")) {
            check.finish(Check.range(0, number), true);
        }
        Check.ensure(znodes.committed(group, topic) >= number, "committed: " + znodes.committed(group, topic));
        return number + " records, each broker in turn";
    }

    // --- tools --------------------------------------------------------------------------------------------------

    /** Runs a tool of Kafka 0.8.2 in a JVM of its own; returns what it says. */
    private String tool(String main, String input, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp",
                System.getProperty("java.class.path"),
                "-Dlog4j.configuration=" + System.getProperty("log4j.configuration"), main));
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        process.getOutputStream().write(input.getBytes());
        process.getOutputStream().close();
        String said = new String(process.getInputStream().readAllBytes());
        process.waitFor();
        Check.ensure(!said.contains("Exception"), main + ": " + said);
        return said;
    }

    private String tools() throws Exception {
        String topic = cases.topic("tools");
        String group = topic + "-group";
        String[] there = {"--zookeeper", znodes.connect};
        tool("kafka.admin.TopicCommand", "", "--zookeeper", znodes.connect, "--create", "--topic", topic,
                "--partitions", "3", "--replication-factor", "2", "--config", "min.insync.replicas=1");
        waitForLeaders(topic);
        String described = tool("kafka.admin.TopicCommand", "", "--zookeeper", znodes.connect, "--describe", "--topic", topic);
        Check.ensure(described.contains("PartitionCount:3\tReplicationFactor:2") && described.contains("min.insync.replicas=1"),
                "described: " + described);
        StringBuilder lines = new StringBuilder();
        IntStream.range(0, 100).forEach(i -> lines.append("line ").append(i).append('\n'));
        tool("kafka.tools.ConsoleProducer", lines.toString(), "--broker-list", cases.bootstrap, "--topic", topic,
                "--sync", "--request-required-acks", "-1");
        Path settings = Files.createTempFile("group", ".properties");
        Files.writeString(settings, "group.id=" + group + "\n");
        String read = tool("kafka.tools.ConsoleConsumer", "", "--zookeeper", znodes.connect, "--topic", topic,
                "--from-beginning", "--max-messages", "100", "--consumer.config", settings.toString());
        Set<String> seen = new TreeSet<>(read.lines().filter(line -> line.startsWith("line ")).toList());
        Check.ensure(seen.size() == 100, "the console consumer has read " + seen.size() + " lines: " + read);
        String lag = tool("kafka.tools.ConsumerOffsetChecker", "", "--zookeeper", znodes.connect, "--group", group,
                "--topic", topic);
        Check.ensure(lag.lines().filter(line -> line.startsWith(group.substring(0, 10))).count() == 3, "lag: " + lag);
        Path kept = Files.createTempFile("offsets", ".txt");
        Files.delete(kept);
        tool("kafka.tools.ExportZkOffsets", "", "--zkconnect", znodes.connect, "--group", group,
                "--output-file", kept.toString());
        Check.ensure(Files.readString(kept).contains("/consumers/" + group + "/offsets/" + topic), "no offsets exported");
        String zero = Files.readString(kept).replaceAll("(?m):\\d+$", ":0");
        Files.writeString(kept, zero);
        tool("kafka.tools.ImportZkOffsets", "", "--zkconnect", znodes.connect, "--input-file", kept.toString());
        Check.ensure(znodes.committed(group, topic) == 0, "imported: " + znodes.committed(group, topic));
        String ends = tool("kafka.tools.GetOffsetShell", "", "--broker-list", cases.bootstrap, "--topic", topic, "--time", "-1");
        Check.ensure(ends.lines().filter(line -> line.startsWith(topic)).mapToInt(
                line -> Integer.parseInt(line.substring(line.lastIndexOf(':') + 1))).sum() == 100, "ends: " + ends);
        String moved = tool("kafka.admin.PreferredReplicaLeaderElectionCommand", "", there);
        tool("kafka.admin.TopicCommand", "", "--zookeeper", znodes.connect, "--alter", "--topic", topic, "--partitions", "4");
        until(() -> znodes.text("/brokers/topics/" + topic + "/partitions/3/state") != null, Cases::pause, "a fourth partition");
        tool("kafka.admin.TopicCommand", "", "--zookeeper", znodes.connect, "--delete", "--topic", topic);
        until(() -> znodes.text("/brokers/topics/" + topic) == null, Cases::pause, "the topic is gone");
        return "topics, console clients, offset checker, export and import, offset shell, preferred leaders";
    }
}
