package compat;

import static compat.Cases.COUNT;
import static compat.Cases.PARTITIONS;
import static compat.Cases.until;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java client from 0.9 on: producer and consumer as its documentation shows them. What differs between
 * releases is in {@code Api} and {@code Features}, of which each release line has its own.
 */
final class Modern {
    final Cases cases;

    private Modern(Cases cases) {
        this.cases = cases;
    }

    public static void main(String[] arguments) {
        Cases cases = new Cases(arguments);
        Modern client = new Modern(cases);
        cases.add("create-topic", client::createTopic);
        for (String codec : Cases.CODECS) {
            cases.add("produce-" + codec, () -> client.produceIn(codec));
        }
        cases.add("consume-group", () -> client.group("consume-group", "heartbeat.interval.ms", "300"));
        cases.add("consume-group-848", () -> client.group("consume-group-848", "group.protocol", "consumer"));
        cases.add("commit-resume", client::commitResume);
        cases.add("broker-restart", () -> client.broker("term"));
        cases.add("broker-kill", () -> client.broker("kill"));
        Times.register(client);
        cases.add("acks", client::acks);
        cases.add("idempotent-produce", client::idempotent);
        cases.add("interop", client::interop);
        new Features(client).register();
        cases.run();
    }

    // --- what the cases are made of -----------------------------------------------------------------------------

    KafkaProducer<byte[], byte[]> producer(String... options) {
        return new KafkaProducer<>(settings(options), new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer(String... options) {
        Map<String, Object> settings = new HashMap<>(Map.of("auto.offset.reset", "earliest"));
        settings.putAll(settings(options));
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    Map<String, Object> settings(String... options) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", cases.bootstrap));
        Cases.security().forEach((name, value) -> settings.put((String) name, value));
        for (int i = 0; i < options.length; i += 2) {
            settings.put(options[i], options[i + 1]);
        }
        return settings;
    }

    static List<TopicPartition> partitions(String topic) {
        return IntStream.range(0, PARTITIONS).mapToObj(number -> new TopicPartition(topic, number)).toList();
    }

    /** Creates a topic, and waits until its partitions are led: a retry just after the creation may reorder records. */
    String create(String topic) throws Exception {
        Api.createTopic(this, topic);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            Times.waitForLeaders(consumer, partitions(topic));
        }
        return topic;
    }

    /** Sends records and waits for each to be acknowledged. */
    static void send(KafkaProducer<byte[], byte[]> producer, String topic, int first, int last, boolean timestamps)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = first; i < last; i++) {
            Numbered record = Numbered.of(i);
            var message = timestamps ? Times.message(topic, record) : new ProducerRecord<>(topic, record.key(), record.value());
            Api.addHeaders(message, record.headers());
            sent.add(producer.send(message));
        }
        producer.flush();
        for (Future<RecordMetadata> future : sent) {
            Check.ensure(future.get(30, TimeUnit.SECONDS).topic().equals(topic), "acknowledged for another topic");
        }
    }

    void produce(String topic, int first, int last, String... options) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(options)) {
            send(producer, topic, first, last, false);
        }
    }

    static List<Read> poll(KafkaConsumer<byte[], byte[]> consumer) {
        List<Read> batch = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : Api.poll(consumer, 200)) {
            batch.add(new Read(record.partition(), record.offset(), record.key(), record.value(), Api.headers(record)));
        }
        return batch;
    }

    /** Reads a whole topic with its partitions assigned by hand. */
    Check read(String topic, int count, boolean headers, String... options) throws Exception {
        Check check = new Check(headers);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(options)) {
            Times.beginWith(consumer, partitions(topic));
            until(() -> check.count() >= count, () -> poll(consumer).forEach(check::add), count + " records of " + topic);
        }
        return check;
    }

    // --- the cases ----------------------------------------------------------------------------------------------

    private String createTopic() throws Exception {
        String topic = create(cases.topic("create-topic"));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            Set<Integer> found = new TreeSet<>();
            consumer.partitionsFor(topic).forEach(partition -> found.add(partition.partition()));
            Check.ensure(found.equals(Set.of(0, 1, 2)), "partitions " + found);
        }
        return PARTITIONS + " partitions" + Api.createTopicAgain(this, topic);
    }

    private String produceIn(String codec) throws Exception {
        String topic = create(cases.topic("produce-" + codec));
        produce(topic, 0, COUNT, "compression.type", codec);
        read(topic, COUNT, Api.HEADERS).finish(0, COUNT);
        return COUNT + " records";
    }

    /** A consumer that subscribes and lets the client commit for it. */
    private final class Subscribed implements Scenarios.Member {
        private final KafkaConsumer<byte[], byte[]> consumer;

        Subscribed(String topic, String... options) {
            consumer = consumer(options);
            consumer.subscribe(List.of(topic));
        }

        @Override
        public List<Read> poll() {
            return Modern.poll(consumer);
        }

        @Override
        public Set<Integer> assigned() {
            return consumer.assignment().stream().map(TopicPartition::partition).collect(Collectors.toSet());
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    private String group(String name, String option, String value) throws Exception {
        String topic = create(cases.topic(name));
        Scenarios.Opener opener = () -> new Subscribed(topic, "group.id", cases.topic(name + "-group"), option, value);
        return Scenarios.share(opener, (first, last) -> produce(topic, first, last), Api.HEADERS);
    }

    private void readAndCommit(String topic, String group, Check check, int goal) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", group, "enable.auto.commit", "false")) {
            consumer.subscribe(List.of(topic));
            until(() -> check.count() >= goal, () -> poll(consumer).forEach(check::add), goal + " records");
            consumer.commitSync();
            for (TopicPartition partition : consumer.assignment()) {
                OffsetAndMetadata committed = Api.committed(consumer, partition);
                Check.ensure(committed.offset() == consumer.position(partition), partition + ": " + committed);
            }
        }
    }

    private String commitResume() throws Exception {
        String topic = create(cases.topic("commit-resume"));
        return Scenarios.resume((first, last) -> produce(topic, first, last),
                (check, goal) -> readAndCommit(topic, cases.topic("resume"), check, goal), Api.HEADERS);
    }

    private String broker(String how) throws Exception {
        String topic = create(cases.topic("broker-" + how));
        String group = cases.topic("broker-" + how + "-group");
        try (KafkaProducer<byte[], byte[]> open =
                producer("acks", "all", "max.in.flight.requests.per.connection", "1", "retries", "100")) {
            return Scenarios.outlive(how, (first, last) -> send(open, topic, first, last, false),
                    () -> new Subscribed(topic, "group.id", group + "-stays"),
                    (check, goal) -> readAndCommit(topic, group, check, goal), Api.HEADERS);
        }
    }

    private String acks() throws Exception {
        for (String level : List.of("0", "1", "all")) {
            String topic = create(cases.topic("acks-" + level));
            produce(topic, 0, 500, "acks", level);
            read(topic, 500, Api.HEADERS).finish(0, 500);
        }
        return "500 records with each of 0, 1, all";
    }

    private String idempotent() throws Exception {
        String topic = create(cases.topic("idempotent"));
        produce(topic, 0, COUNT, "enable.idempotence", "true");
        read(topic, COUNT, Api.HEADERS).finish(0, COUNT);
        return COUNT + " records";
    }

    private String interop() throws Exception {
        List<Cases.Foreign> topics = Cases.interopTopics();
        for (Cases.Foreign foreign : topics) {
            try {
                read(foreign.topic(), foreign.count(), foreign.headers() && Api.HEADERS).finish(0, foreign.count());
            } catch (AssertionError error) {
                throw new AssertionError(foreign.topic() + ": " + error.getMessage(), error);
            }
        }
        return topics.size() + " topics of other clients";
    }
}
