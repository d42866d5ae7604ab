package compat;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.ClientInstanceIds;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** Telemetry as Kafka's own clients have it (KIP-714): their instance ids, and that they can push. */
public final class Telemetry {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final Duration MOMENT = Duration.ofMillis(200);
    private static final Duration SETTLING = Duration.ofSeconds(2);
    private static final Duration PUSHING = Duration.ofSeconds(3);
    private static final String PUSH_INTERVAL_MS = "500";

    private final String bootstrap;
    private final String run = Long.toString(System.nanoTime() / 1000 % 1_000_000_000);

    interface Case {
        String run() throws Exception;
    }

    private Telemetry(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Telemetry telemetry = new Telemetry(arguments[0]);
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("producer", telemetry::producer);
        cases.put("consumer", () -> telemetry.consumer("classic"));
        cases.put("consumer-848", () -> telemetry.consumer("consumer"));
        cases.put("share-consumer", telemetry::shareConsumer);
        cases.put("admin", telemetry::admin);
        cases.put("streams", telemetry::streams);
        cases.put("push", telemetry::push);
        List<String> wanted = List.of(arguments).subList(1, arguments.length);
        boolean failed = false;
        for (Map.Entry<String, Case> each : cases.entrySet()) {
            if (wanted.isEmpty() || wanted.contains(each.getKey())) {
                try {
                    System.out.println("PASS " + each.getKey() + " " + each.getValue().run());
                } catch (Exception | AssertionError error) {
                    failed = true;
                    System.out.println("FAIL " + each.getKey() + " " + error.toString().replace('\n', ' '));
                }
            }
        }
        System.exit(failed ? 1 : 0);
    }

    // --- cases --------------------------------------------------------------------------------------------------

    private String producer() {
        try (KafkaProducer<String, String> one = producerOf("id-one"); KafkaProducer<String, String> two = producerOf("id-two")) {
            Uuid id = one.clientInstanceId(PATIENCE);
            ensure(id.equals(one.clientInstanceId(PATIENCE)), "another id at the second time");
            return different(id, two.clientInstanceId(PATIENCE));
        }
    }

    private String consumer(String protocol) {
        try (KafkaConsumer<String, String> one = consumerOf("id-one", "group.protocol", protocol);
                KafkaConsumer<String, String> two = consumerOf("id-two", "group.protocol", protocol)) {
            if (protocol.equals("classic")) { // it does nothing but in poll
                for (KafkaConsumer<String, String> consumer : List.of(one, two)) {
                    consumer.subscribe(List.of("ids-" + run));
                    long end = System.nanoTime() + PATIENCE.toNanos();
                    while (System.nanoTime() < end && consumer.groupMetadata().generationId() < 0) {
                        consumer.poll(MOMENT);
                    }
                }
            }
            return different(one.clientInstanceId(PATIENCE), two.clientInstanceId(PATIENCE));
        }
    }

    private String shareConsumer() {
        Map<String, Object> settings = settings("group.id", "share-" + run, "client.id", "id-share");
        try (var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            return different(consumer.clientInstanceId(PATIENCE));
        }
    }

    private String admin() {
        try (Admin admin = Admin.create(settings("enable.metrics.push", "true"))) {
            return different(admin.clientInstanceId(PATIENCE));
        }
    }

    private String streams() throws Exception {
        String topic = "streams-" + run;
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get(30, TimeUnit.SECONDS);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(topic).to(topic + "-out");
        Properties settings = new Properties();
        settings.putAll(settings("application.id", "app-" + run, "enable.metrics.push", "true", "state.dir", stateDir()));
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            long end = System.nanoTime() + PATIENCE.toNanos();
            while (System.nanoTime() < end && streams.state() != KafkaStreams.State.RUNNING) {
                Thread.sleep(MOMENT.toMillis());
            }
            ClientInstanceIds ids = streams.clientInstanceIds(PATIENCE);
            Set<Uuid> all = new HashSet<>(ids.consumerInstanceIds().values());
            all.addAll(ids.producerInstanceIds().values());
            all.add(ids.adminInstanceId());
            int count = ids.consumerInstanceIds().size() + ids.producerInstanceIds().size() + 1;
            ensure(count >= 3 && all.size() == count, "ids " + all + " of " + count + " clients");
            return different(all.toArray(new Uuid[0]));
        }
    }

    /** Subscribes to all metrics, and lets a producer, a consumer and an application push for a while. */
    private String push() throws Exception {
        String topic = "push-" + run;
        ConfigResource subscription = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "push-" + run);
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get(30, TimeUnit.SECONDS);
            change(admin, subscription, AlterConfigOp.OpType.SET);
            int read = 0;
            try (KafkaProducer<String, String> producer = producerOf("java-producer");
                    KafkaConsumer<String, String> consumer = consumerOf("java-consumer")) {
                consumer.subscribe(List.of(topic));
                long start = System.nanoTime();
                while (System.nanoTime() - start < PUSHING.toNanos()
                        || read == 0 && System.nanoTime() - start < PATIENCE.toNanos()) {
                    producer.send(new ProducerRecord<>(topic, "k", "v"));
                    read += consumer.poll(Duration.ofMillis(20)).count();
                }
                producer.flush();
                for (start = System.nanoTime(); System.nanoTime() - start < SETTLING.toNanos(); ) {
                    read += consumer.poll(MOMENT).count(); // and all of it is pushed
                }
            }
            change(admin, subscription, AlterConfigOp.OpType.DELETE);
            ensure(read > 0, "nothing was read");
            return read + " records read while metrics were pushed";
        }
    }

    private static String stateDir() throws Exception {
        Path directory = Files.createTempDirectory("streams-");
        directory.toFile().deleteOnExit();
        return directory.toString();
    }

    // --- what they are made of ----------------------------------------------------------------------------------

    private static void change(Admin admin, ConfigResource subscription, AlterConfigOp.OpType operation) throws Exception {
        List<AlterConfigOp> changes = List.of(
                new AlterConfigOp(new ConfigEntry("metrics", "*"), operation),
                new AlterConfigOp(new ConfigEntry("interval.ms", PUSH_INTERVAL_MS), operation));
        admin.incrementalAlterConfigs(Map.of(subscription, changes)).all().get(30, TimeUnit.SECONDS);
    }

    private KafkaProducer<String, String> producerOf(String clientId) {
        return new KafkaProducer<>(settings("client.id", clientId), new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumerOf(String clientId, String... more) {
        Map<String, Object> settings =
                settings("client.id", clientId, "group.id", clientId + run, "auto.offset.reset", "earliest");
        settings.putAll(settings(more));
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private Map<String, Object> settings(String... options) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        for (int i = 0; i < options.length; i += 2) {
            settings.put(options[i], options[i + 1]);
        }
        return settings;
    }

    private static String different(Uuid... ids) {
        Set<Uuid> all = new HashSet<>(List.of(ids));
        ensure(all.size() == ids.length, "the same id twice");
        ensure(!all.contains(Uuid.ZERO_UUID) && !all.contains(Uuid.ONE_UUID), "an id that nobody can have");
        return String.join(" ", all.stream().map(Uuid::toString).toList());
    }

    private static void ensure(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
