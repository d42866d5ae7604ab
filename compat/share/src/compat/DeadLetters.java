package compat;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Dead letter queues of a share group (KIP-1191), in brokers whose share.version is 2. */
final class DeadLetters {
    private static final String QUEUE = "errors.deadletterqueue.";
    private static final Duration MOMENT = Duration.ofMillis(200);
    private static final long PATIENCE_NS = 60_000_000_000L;

    private final Admin admin;
    private final String bootstrap;
    private final String run;

    DeadLetters(Admin admin, String bootstrap, String run) {
        this.admin = admin;
        this.bootstrap = bootstrap;
        this.run = run;
    }

    /** Null where the broker's share.version has no dead letter queues. */
    String written() throws Exception {
        FeatureMetadata features = admin.describeFeatures().featureMetadata().get(30, TimeUnit.SECONDS);
        var level = features.finalizedFeatures().get("share.version");
        if (level == null || level.maxVersionLevel() < 2) {
            return null;
        }
        String topic = "share-dead-" + run, queue = "dlq." + topic, other = "dlq.auto-" + run;
        admin.createTopics(List.of(
            new NewTopic(topic, 3, (short) 1),
            new NewTopic(queue, 2, (short) 1).configs(Map.of(QUEUE + "group.enable", "true"))
        )).all().get(30, TimeUnit.SECONDS);
        try (var producer = Share.producerOf(bootstrap)) {
            for (int i = 0; i < 4; i++) {
                producer.send(new org.apache.kafka.clients.producer.ProducerRecord<>(topic, 2, "key-" + i, "value-" + i)).get();
            }
        }
        Map<String, String> copied = expected(topic, "share-copied-" + run, true);
        consume(topic, group("share-copied-" + run, queue, "true"));
        ensureSame(copied, letters(queue, 3));
        consume(topic, group("share-plain-" + run, queue, "false"));
        Map<String, String> both = new TreeMap<>(copied);
        both.putAll(expected(topic, "share-plain-" + run, false));
        ensureSame(both, letters(queue, 6));
        setAutoCreation("true");
        try {
            consume(topic, group("share-auto-" + run, other, "false"));
            ensureSame(expected(topic, "share-auto-" + run, false), letters(other, 3));
        } finally {
            setAutoCreation("false");
        }
        ConfigResource made = new ConfigResource(ConfigResource.Type.TOPIC, other);
        Config config = admin.describeConfigs(List.of(made)).all().get(30, TimeUnit.SECONDS).get(made);
        Share.ensure("true".equals(config.get(QUEUE + "group.enable").value()), "a queue that is made takes letters");
        consume(topic, group("share-refused-" + run, topic, "false"));
        return "rejected and exhausted records with headers, with and without key and value, in a queue that is made too";
    }

    /** Of the offsets 0 to 3, the first is accepted, the second rejected at once, the others are released until they are given up. */
    private static Map<String, String> expected(String topic, String group, boolean isCopied) {
        Map<String, String> letters = new TreeMap<>();
        for (int offset = 1; offset < 4; offset++) {
            Map<String, String> headers = new LinkedHashMap<>();
            headers.put("__dlq.errors.topic", topic);
            headers.put("__dlq.errors.partition", "2");
            headers.put("__dlq.errors.offset", Integer.toString(offset));
            headers.put("__dlq.errors.group", group);
            headers.put("__dlq.errors.delivery.count", offset == 1 ? "1" : "2");
            headers.put("__dlq.errors.message", offset == 1
                ? "Offset rejected by client." : "Offset delivery count exceeded the threshold.");
            String original = isCopied ? "key-" + offset + "=value-" + offset : "null=null";
            letters.put(group + "-" + offset, original + " " + headers);
        }
        return letters;
    }

    private String group(String group, String queue, String isCopied) throws Exception {
        Map<String, String> settings = Map.of(
            "share.auto.offset.reset", "earliest", "share.delivery.count.limit", "2",
            QUEUE + "topic.name", queue, QUEUE + "copy.record.enable", isCopied);
        alter(new ConfigResource(ConfigResource.Type.GROUP, group), settings);
        return group;
    }

    private void setAutoCreation(String value) throws Exception {
        alter(new ConfigResource(ConfigResource.Type.BROKER, ""), Map.of(QUEUE + "auto.create.topics.enable", value));
        Thread.sleep(1000);
    }

    private void alter(ConfigResource resource, Map<String, String> settings) throws Exception {
        List<AlterConfigOp> ops = new ArrayList<>();
        settings.forEach((name, value) -> ops.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        admin.incrementalAlterConfigs(Map.of(resource, ops)).all().get(30, TimeUnit.SECONDS);
    }

    /** Settle all four records; the group then has none to deliver. */
    private void consume(String topic, String group) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "share.acknowledgement.mode", "explicit");
        try (var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            int settled = 0;
            for (long deadline = System.nanoTime() + PATIENCE_NS; settled < 4; ) {
                Share.ensure(System.nanoTime() < deadline, group + " has settled " + settled + " of 4 records");
                for (var record : consumer.poll(MOMENT)) {
                    boolean isLast = record.offset() < 2 || record.deliveryCount().orElse((short) 0) == 2;
                    settled += isLast ? 1 : 0;
                    consumer.acknowledge(record, record.offset() == 0 ? AcknowledgeType.ACCEPT
                        : record.offset() == 1 ? AcknowledgeType.REJECT : AcknowledgeType.RELEASE);
                }
                consumer.commitSync();
            }
            Share.ensure(consumer.poll(Duration.ofSeconds(1)).isEmpty(), "what is given up comes again");
        }
    }

    /** In the partition whose number is that of the records' partition, modulo the number of the queue's. */
    private Map<String, String> letters(String queue, int count) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest");
        Map<String, String> letters = new TreeMap<>();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<PartitionInfo> partitions = List.of();
            for (int i = 0; partitions.isEmpty() && i < 300; i++) {
                partitions = consumer.partitionsFor(queue);
                Thread.sleep(100);
            }
            consumer.assign(List.of(new TopicPartition(queue, 2 % partitions.size())));
            for (long deadline = System.nanoTime() + PATIENCE_NS; letters.size() < count; ) {
                Share.ensure(System.nanoTime() < deadline, "letters in " + queue + ": " + letters);
                for (ConsumerRecord<String, String> record : consumer.poll(MOMENT)) {
                    Map<String, String> headers = new LinkedHashMap<>();
                    record.headers().forEach(header ->
                        headers.put(header.key(), new String(header.value(), StandardCharsets.UTF_8)));
                    String name = headers.get("__dlq.errors.group") + "-" + headers.get("__dlq.errors.offset");
                    letters.put(name, record.key() + "=" + record.value() + " " + headers);
                }
            }
        }
        return letters;
    }

    private static void ensureSame(Map<String, String> expected, Map<String, String> letters) {
        Share.ensure(expected.equals(letters), "expected " + expected + ", not " + letters);
    }
}
