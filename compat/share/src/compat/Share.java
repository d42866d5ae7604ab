package compat;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What a share group promises, asked of a broker with the client as its documentation shows it. */
public final class Share {
    private static final int COUNT = 1000;
    private static final Duration MOMENT = Duration.ofMillis(200);
    private static final long PATIENCE_NS = 60_000_000_000L;

    private final String bootstrap;
    private final String run = Long.toString(System.nanoTime() / 1000 % 1_000_000_000);
    private final Admin admin;

    interface Case {
        String run() throws Exception;
    }

    private Share(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 3 && arguments[1].equals("die")) {
            new Share(arguments[0]).pollAndDie(arguments[2], arguments[3]);
        }
        Share share = new Share(arguments[0]);
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("implicit", share::implicit);
        cases.put("explicit", share::explicit);
        cases.put("member-dies", share::memberDies);
        cases.put("lock-ends", share::lockEnds);
        cases.put("renew", share::renew);
        cases.put("delivery-limit", share::deliveryLimit);
        cases.put("record-limit", share::recordLimit);
        cases.put("read-committed", share::readCommitted);
        cases.put("admin", share::admin);
        cases.put("more-partitions", share::morePartitions);
        cases.put("dead-letters", () -> new DeadLetters(share.admin, share.bootstrap, share.run).written());
        cases.put("broker-restart", () -> share.broker("term"));
        cases.put("broker-kill", () -> share.broker("kill"));
        List<String> wanted = List.of(arguments).subList(1, arguments.length);
        boolean failed = false;
        for (Map.Entry<String, Case> each : cases.entrySet()) {
            if (wanted.isEmpty() || wanted.contains(each.getKey())) {
                failed |= !judge(each.getKey(), each.getValue());
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(failed ? 1 : 0);
    }

    private static boolean judge(String name, Case body) {
        long start = System.nanoTime();
        String verdict;
        try {
            String said = body.run();
            verdict = (said == null ? "SKIP " : "PASS ") + name + " " + (said == null ? "not with this broker" : said);
        } catch (Throwable error) {
            error.printStackTrace();
            verdict = "FAIL " + name + " " + String.valueOf(error).replaceAll("\\s+", " ");
        }
        System.out.printf(Locale.ROOT, "%s (%.1f s)%n", verdict, (System.nanoTime() - start) / 1e9);
        return !verdict.startsWith("FAIL");
    }

    // --- what the cases are made of -----------------------------------------------------------------------------

    private String name(String what) {
        return "share-" + what + "-" + run;
    }

    private String topic(String what, int partitions) throws Exception {
        String topic = name(what);
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get(30, TimeUnit.SECONDS);
        return topic;
    }

    /** A group that begins at the earliest offset, with more settings of its own. */
    private String group(String what, String... settings) throws Exception {
        String group = name(what);
        List<AlterConfigOp> ops = new ArrayList<>();
        ops.add(new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET));
        for (int i = 0; i < settings.length; i += 2) {
            ops.add(new AlterConfigOp(new ConfigEntry(settings[i], settings[i + 1]), AlterConfigOp.OpType.SET));
        }
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        admin.incrementalAlterConfigs(Map.of(resource, ops)).all().get(30, TimeUnit.SECONDS);
        return group;
    }

    private KafkaProducer<String, String> producer(String... settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 5));
        for (int i = 0; i < settings.length; i += 2) {
            all.put(settings[i], settings[i + 1]);
        }
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    static KafkaProducer<String, String> producerOf(String bootstrap) {
        return new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer());
    }

    private void produce(String topic, int first, int last) {
        try (KafkaProducer<String, String> producer = producer()) {
            for (int i = first; i < last; i++) {
                producer.send(new ProducerRecord<>(topic, Integer.toString(i), Integer.toString(i)));
            }
        }
    }

    private KafkaShareConsumer<String, String> consumer(String group, String topic, String... settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group));
        for (int i = 0; i < settings.length; i += 2) {
            all.put(settings[i], settings[i + 1]);
        }
        var consumer = new KafkaShareConsumer<>(all, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    private KafkaShareConsumer<String, String> explicitConsumer(String group, String topic, String... settings) {
        List<String> all = new ArrayList<>(List.of(settings));
        all.addAll(List.of("share.acknowledgement.mode", "explicit"));
        return consumer(group, topic, all.toArray(String[]::new));
    }

    private static int number(ConsumerRecord<String, String> record) {
        return Integer.parseInt(record.value());
    }

    static void ensure(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static void until(BooleanSupplier done, Case step, String what) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_NS;
        while (!done.getAsBoolean()) {
            ensure(System.nanoTime() < deadline, "not in time: " + what);
            step.run();
        }
    }

    /** Nothing comes for a while. */
    private static void quiet(KafkaShareConsumer<String, String> consumer) {
        for (int i = 0; i < 8; i++) {
            var records = consumer.poll(MOMENT);
            ensure(records.isEmpty(), "there should be nothing more, but " + records.count() + " records came");
        }
    }

    private static Set<Integer> numbers(int first, int last) {
        Set<Integer> numbers = new TreeSet<>();
        for (int i = first; i < last; i++) {
            numbers.add(i);
        }
        return numbers;
    }

    private static void commit(KafkaShareConsumer<String, String> consumer) {
        Map<TopicIdPartition, java.util.Optional<KafkaException>> done = consumer.commitSync();
        done.forEach((partition, error) -> error.ifPresent(e -> {
            throw new AssertionError(partition + ": " + e);
        }));
    }

    // --- cases --------------------------------------------------------------------------------------------------

    private String implicit() throws Exception {
        String topic = topic("implicit", 3), group = group("implicit");
        produce(topic, 0, COUNT);
        List<Integer> first = new ArrayList<>(), second = new ArrayList<>();
        try (var one = consumer(group, topic, "max.poll.records", "50");
                var two = consumer(group, topic, "max.poll.records", "50")) {
            until(() -> first.size() + second.size() >= COUNT, () -> {
                one.poll(MOMENT).forEach(record -> first.add(number(record)));
                two.poll(MOMENT).forEach(record -> second.add(number(record)));
                return "";
            }, COUNT + " records; " + first.size() + " and " + second.size() + " came");
            quiet(one);
            quiet(two);
        }
        Set<Integer> all = new TreeSet<>(first);
        all.addAll(second);
        ensure(all.equals(numbers(0, COUNT)), "not all records came");
        ensure(first.size() + second.size() == COUNT, "some records came twice");
        ensure(!first.isEmpty() && !second.isEmpty(), "one member got everything");
        try (var third = consumer(group, topic)) {
            quiet(third);
        }
        return COUNT + " records, " + first.size() + " and " + second.size() + " to two members, none twice";
    }

    private String explicit() throws Exception {
        String topic = topic("explicit", 2), group = group("explicit");
        produce(topic, 0, COUNT);
        Map<Integer, List<Integer>> deliveries = new TreeMap<>();
        try (var one = explicitConsumer(group, topic); var two = explicitConsumer(group, topic)) {
            until(() -> deliveries.size() == COUNT
                    && deliveries.entrySet().stream().allMatch(e -> e.getKey() % 10 != 3 || e.getValue().size() == 2), () -> {
                for (var consumer : List.of(one, two)) {
                    for (var record : consumer.poll(MOMENT)) {
                        int number = number(record);
                        List<Integer> counts = deliveries.computeIfAbsent(number, n -> new ArrayList<>());
                        counts.add((int) record.deliveryCount().orElse((short) -1));
                        boolean again = number % 10 == 3 && counts.size() == 1;
                        consumer.acknowledge(record, number % 10 == 7 ? AcknowledgeType.REJECT
                                : again ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    }
                    commit(consumer);
                }
                return "";
            }, "every record, and the released ones twice");
            quiet(one);
            quiet(two);
        }
        deliveries.forEach((number, counts) -> ensure(
                counts.equals(number % 10 == 3 ? List.of(1, 2) : List.of(1)), number + " came as deliveries " + counts));
        return "100 released came again as delivery 2, 100 rejected did not";
    }

    /** In a process of its own: acquires records, says so, and is gone without a word to the broker. */
    private void pollAndDie(String group, String topic) throws Exception {
        var consumer = consumer(group, topic);
        Set<Integer> got = new HashSet<>();
        until(() -> !got.isEmpty(), () -> {
            consumer.poll(MOMENT).forEach(record -> got.add(number(record)));
            return "";
        }, "some records");
        System.out.println("got " + got.size());
        System.out.flush();
        Runtime.getRuntime().halt(3);
    }

    private String memberDies() throws Exception {
        String topic = topic("dies", 1), group = group("dies");
        produce(topic, 0, 100);
        Process child = new ProcessBuilder("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp",
                System.getProperty("java.class.path"), "compat.Share", bootstrap, "die", group, topic).start();
        String said = new String(child.getInputStream().readAllBytes()).strip();
        ensure(child.waitFor() == 3 && said.startsWith("got "), "the other member failed: " + said);
        long start = System.nanoTime();
        Map<Integer, Integer> deliveries = new TreeMap<>();
        try (var consumer = consumer(group, topic)) {
            until(() -> deliveries.size() == 100, () -> {
                consumer.poll(MOMENT).forEach(r -> deliveries.merge(number(r), (int) r.deliveryCount().orElse((short) 0), Integer::sum));
                return "";
            }, "the records of the member that died");
            quiet(consumer);
        }
        long twice = deliveries.values().stream().filter(count -> count == 2).count();
        ensure(said.equals("got " + twice), said + ", but " + twice + " came as second deliveries");
        return twice + " records came again, " + (System.nanoTime() - start) / 1_000_000 + " ms after";
    }

    private String lockEnds() throws Exception {
        String topic = topic("lock", 1), group = group("lock", "share.record.lock.duration.ms", "2000");
        produce(topic, 0, 10);
        try (var slow = explicitConsumer(group, topic); var quick = explicitConsumer(group, topic)) {
            List<ConsumerRecord<String, String>> held = new ArrayList<>();
            until(() -> held.size() == 10, () -> {
                slow.poll(MOMENT).forEach(held::add);
                return "";
            }, "ten records");
            Map<Integer, Integer> again = new TreeMap<>();
            until(() -> again.size() == 10, () -> {
                for (var record : quick.poll(MOMENT)) {
                    again.put(number(record), (int) record.deliveryCount().orElse((short) 0));
                    // The first one stays open: what is said of records before it would not be looked at any more.
                    quick.acknowledge(record, number(record) == 0 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                }
                commit(quick);
                return "";
            }, "the records whose lock has ended");
            ensure(again.values().stream().allMatch(count -> count >= 2), "deliveries " + again);
            held.forEach(record -> slow.acknowledge(record, AcknowledgeType.ACCEPT));
            boolean refused = slow.commitSync().values().stream().anyMatch(java.util.Optional::isPresent);
            ensure(refused, "a member without the lock was allowed to decide");
        }
        return "10 records to another member, and too late for the first";
    }

    private String renew() throws Exception {
        String topic = topic("renew", 1), group = group("renew", "share.record.lock.duration.ms", "2000");
        produce(topic, 0, 10);
        try (var one = explicitConsumer(group, topic); var two = explicitConsumer(group, topic)) {
            Map<Integer, ConsumerRecord<String, String>> held = new TreeMap<>();
            until(() -> held.size() == 10, () -> {
                for (var record : one.poll(MOMENT)) {
                    held.put(number(record), record);
                    one.acknowledge(record, AcknowledgeType.RENEW);
                }
                return "";
            }, "ten records");
            long end = System.nanoTime() + 5_000_000_000L;
            int renewals = 0;
            while (System.nanoTime() < end) {
                commit(one);
                renewals++;
                ensure(two.poll(MOMENT).isEmpty(), "a renewed record came to another member");
                for (var record : one.poll(MOMENT)) {
                    ensure(held.containsKey(number(record)), "another record");
                    one.acknowledge(record, AcknowledgeType.RENEW);
                }
                Thread.sleep(300);
            }
            commit(one);
            Set<Integer> accepted = new TreeSet<>();
            until(() -> accepted.size() == 10, () -> {
                for (var record : one.poll(MOMENT)) {
                    accepted.add(number(record));
                    one.acknowledge(record, AcknowledgeType.ACCEPT);
                }
                commit(one);
                return "";
            }, "ten records to accept");
            quiet(two);
            return "10 records kept for 5 s with locks of 2 s, " + renewals + " renewals";
        }
    }

    private String deliveryLimit() throws Exception {
        String topic = topic("limit", 1), group = group("limit", "share.delivery.count.limit", "3");
        produce(topic, 0, 5);
        Map<Integer, Integer> deliveries = new TreeMap<>();
        try (var consumer = explicitConsumer(group, topic)) {
            until(() -> deliveries.size() == 5 && deliveries.values().stream().allMatch(count -> count == 3), () -> {
                for (var record : consumer.poll(MOMENT)) {
                    int count = record.deliveryCount().orElse((short) 0);
                    ensure(count == deliveries.merge(number(record), 1, Integer::sum), "delivery count " + count);
                    consumer.acknowledge(record, AcknowledgeType.RELEASE);
                }
                commit(consumer);
                return "";
            }, "three deliveries of each");
            quiet(consumer);
            produce(topic, 5, 6);
            Set<Integer> next = new TreeSet<>();
            until(() -> !next.isEmpty(), () -> {
                for (var record : consumer.poll(MOMENT)) {
                    next.add(number(record));
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
                commit(consumer);
                return "";
            }, "the next record");
            ensure(next.equals(Set.of(5)), "came: " + next);
        }
        return "5 records given up after 3 deliveries";
    }

    private String recordLimit() throws Exception {
        String topic = topic("records", 1), group = group("records");
        produce(topic, 0, 100);
        Set<Integer> seen = new TreeSet<>();
        int polls = 0;
        try (var consumer = consumer(group, topic, "max.poll.records", "7", "share.acquire.mode", "record_limit")) {
            long deadline = System.nanoTime() + PATIENCE_NS;
            while (seen.size() < 100) {
                ensure(System.nanoTime() < deadline, "only " + seen.size());
                var records = consumer.poll(MOMENT);
                ensure(records.count() <= 7, records.count() + " at once");
                polls += records.isEmpty() ? 0 : 1;
                records.forEach(record -> ensure(seen.add(number(record)), "twice: " + number(record)));
            }
        }
        return "100 records in " + polls + " portions of at most 7";
    }

    private String readCommitted() throws Exception {
        String topic = topic("committed", 1), group = group("committed", "share.isolation.level", "read_committed");
        try (var producer = producer("transactional.id", name("producer"))) {
            producer.initTransactions();
            for (int transaction = 0; transaction < 4; transaction++) {
                producer.beginTransaction();
                for (int i = 0; i < 10; i++) {
                    String value = Integer.toString(transaction * 10 + i);
                    producer.send(new ProducerRecord<>(topic, value, value));
                }
                if (transaction % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        Set<Integer> expected = numbers(0, 10), seen = new TreeSet<>();
        expected.addAll(numbers(20, 30));
        try (var consumer = consumer(group, topic)) {
            until(() -> seen.size() >= 20, () -> {
                consumer.poll(MOMENT).forEach(record -> ensure(seen.add(number(record)), "twice: " + number(record)));
                return "";
            }, "the committed records");
            quiet(consumer);
        }
        ensure(seen.equals(expected), "came: " + seen);
        return "20 committed records, none of 20 aborted ones";
    }

    private SharePartitionOffsetInfo offsets(String group, TopicPartition partition) throws Exception {
        return admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group).get(30, TimeUnit.SECONDS).get(partition);
    }

    private static Throwable failure(org.apache.kafka.common.KafkaFuture<?> future) throws Exception {
        try {
            future.get(30, TimeUnit.SECONDS);
            return null;
        } catch (java.util.concurrent.ExecutionException error) {
            return error.getCause();
        }
    }

    private String admin() throws Exception {
        String topic = topic("admin", 1), group = group("admin");
        TopicPartition partition = new TopicPartition(topic, 0);
        produce(topic, 0, 100);
        Set<Integer> seen = new TreeSet<>();
        try (var consumer = consumer(group, topic)) {
            until(() -> seen.size() == 100, () -> {
                consumer.poll(MOMENT).forEach(record -> seen.add(number(record)));
                return "";
            }, "100 records");
            commit(consumer);
            ShareGroupDescription described = admin.describeShareGroups(List.of(group)).all().get(30, TimeUnit.SECONDS).get(group);
            ensure(described.groupState() == GroupState.STABLE && described.members().size() == 1, "" + described);
            ensure(described.members().iterator().next().assignment().topicPartitions().equals(Set.of(partition)), "" + described);
            Throwable refusal = failure(admin.alterShareGroupOffsets(group, Map.of(partition, 0L)).all());
            ensure(refusal != null && refusal.getClass().getSimpleName().equals("GroupNotEmptyException"), "" + refusal);
            refusal = failure(admin.deleteShareGroups(List.of(group)).all());
            ensure(refusal != null && refusal.getClass().getSimpleName().equals("GroupNotEmptyException"), "" + refusal);
        }
        var listed = admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.SHARE))).all().get(30, TimeUnit.SECONDS);
        ensure(listed.stream().anyMatch(l -> l.groupId().equals(group) && l.groupState().orElseThrow() == GroupState.EMPTY), "" + listed);
        SharePartitionOffsetInfo info = offsets(group, partition);
        ensure(info.lag().orElse(-1L) == 0, "lag " + info);
        admin.alterShareGroupOffsets(group, Map.of(partition, 60L)).all().get(30, TimeUnit.SECONDS);
        info = offsets(group, partition);
        ensure(info.startOffset() == 60 && info.lag().orElse(-1L) == 40, "after alter: " + info);
        seen.clear();
        try (var consumer = consumer(group, topic)) {
            until(() -> seen.size() >= 40, () -> {
                consumer.poll(MOMENT).forEach(record -> seen.add(number(record)));
                return "";
            }, "40 records");
            quiet(consumer);
        }
        ensure(seen.equals(numbers(60, 100)), "came: " + seen);
        admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get(30, TimeUnit.SECONDS);
        ensure(offsets(group, partition) == null, "still there: " + offsets(group, partition));
        admin.deleteShareGroups(List.of(group)).all().get(30, TimeUnit.SECONDS);
        Throwable gone = failure(admin.describeShareGroups(List.of(group)).all());
        ensure(gone != null && gone.getClass().getSimpleName().equals("GroupIdNotFoundException"), "" + gone);
        return "describe, list, alter, delete offsets, delete";
    }

    private String morePartitions() throws Exception {
        String topic = topic("more", 1), group = name("more");
        Set<Integer> seen = new TreeSet<>();
        try (var consumer = consumer(group, topic, "metadata.max.age.ms", "500")) {
            // The group begins at the end; what comes before it has its partitions is not for it.
            long[] number = {0};
            until(() -> !seen.isEmpty(), () -> {
                produce(topic, (int) number[0], (int) ++number[0]);
                consumer.poll(MOMENT).forEach(record -> seen.add(number(record)));
                return "";
            }, "a first record");
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get(30, TimeUnit.SECONDS);
            produce(topic, 100_000, 100_200);
            Set<Integer> wanted = numbers(100_000, 100_200);
            until(() -> seen.containsAll(wanted), () -> {
                consumer.poll(MOMENT).forEach(record -> seen.add(number(record)));
                return "";
            }, "records of the new partitions");
        }
        return "200 records, those in new partitions from their beginning";
    }

    private String broker(String how) throws Exception {
        String command = System.getenv("COMPAT_RESTART");
        if (command == null || command.isEmpty()) {
            return null;
        }
        String topic = topic("broker-" + how, 2), group = group("broker-" + how);
        produce(topic, 0, COUNT);
        Map<Integer, Integer> accepted = new TreeMap<>();
        int before;
        try (var consumer = explicitConsumer(group, topic, "max.poll.records", "100")) {
            until(() -> accepted.size() >= COUNT / 2, () -> acceptSome(consumer, accepted), "half of the records");
            before = accepted.size();
            Process process = new ProcessBuilder("sh", "-c", command + " " + how).redirectErrorStream(true).start();
            String said = new String(process.getInputStream().readAllBytes());
            ensure(process.waitFor() == 0, said);
            until(() -> accepted.size() == COUNT, () -> acceptSome(consumer, accepted), "the rest of the records");
            quiet(consumer);
        }
        ensure(accepted.keySet().equals(numbers(0, COUNT)), "not all came");
        return COUNT + " records accepted, " + before + " of them before, each once";
    }

    /** Accepts what comes; what was accepted for certain must not come again. */
    private static String acceptSome(KafkaShareConsumer<String, String> consumer, Map<Integer, Integer> accepted) {
        Collection<Integer> now = new ArrayList<>();
        for (var record : consumer.poll(MOMENT)) {
            ensure(!accepted.containsKey(number(record)), number(record) + " came again after it was accepted");
            consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            now.add(number(record));
        }
        boolean certain = consumer.commitSync().values().stream().allMatch(java.util.Optional::isEmpty);
        if (certain) {
            now.forEach(number -> accepted.merge(number, 1, Integer::sum));
        }
        return "";
    }
}
