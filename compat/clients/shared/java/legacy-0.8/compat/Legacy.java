package compat;

import static compat.Cases.COUNT;
import static compat.Cases.PARTITIONS;
import static compat.Cases.until;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import kafka.api.ConsumerMetadataRequest;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.ErrorMapping;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.ConsumerMetadataResponse;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.TopicMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import kafka.network.BlockingChannel;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka 0.8.2: the first Java producer, and the SimpleConsumer as the wiki of the time shows it: it finds leaders,
 * keeps positions and commits offsets by itself.
 */
final class Legacy {
    private static final int TIMEOUT_MS = 10_000;
    private static final int FETCH_BYTES = 1 << 20;
    private static final String CLIENT_ID = "legacy";

    private final Cases cases;
    private final String host;
    private final int port;

    private Legacy(Cases cases) {
        this.cases = cases;
        int colon = cases.bootstrap.lastIndexOf(':');
        host = cases.bootstrap.substring(0, colon);
        port = Integer.parseInt(cases.bootstrap.substring(colon + 1));
    }

    public static void main(String[] arguments) {
        Cases cases = new Cases(arguments);
        Legacy client = new Legacy(cases);
        cases.add("create-topic", client::createTopic);
        for (String codec : List.of("none", "gzip", "snappy", "lz4")) {
            cases.add("produce-" + codec, () -> client.produceIn(codec));
        }
        cases.lack("produce-zstd", "the Java client knows zstd since 2.1");
        cases.lack("consume-group", "groups of 0.8 are coordinated in ZooKeeper");
        cases.lack("consume-group-848", "the Java client knows KIP-848 since 3.7");
        cases.add("commit-resume", client::commitResume);
        cases.add("broker-restart", () -> client.broker("term"));
        cases.add("broker-kill", () -> client.broker("kill"));
        cases.lack("read-by-timestamp", "messages of 0.8 have no timestamps");
        cases.add("acks", client::acks);
        cases.lack("idempotent-produce", "the Java client has an idempotent producer since 0.11");
        cases.lack("transactions", "the Java client has transactions since 0.11");
        cases.lack("admin", "admin calls of 0.8 go to ZooKeeper");
        cases.add("interop", client::interop);
        cases.lack("delete-topic", "admin calls of 0.8 go to ZooKeeper");
        cases.run();
    }

    // --- producer -----------------------------------------------------------------------------------------------

    private KafkaProducer<byte[], byte[]> producer(String... options) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", cases.bootstrap);
        for (int i = 0; i < options.length; i += 2) {
            settings.put(options[i], options[i + 1]);
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, int first, int last)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = first; i < last; i++) {
            Numbered record = Numbered.of(i);
            sent.add(producer.send(new ProducerRecord<>(topic, record.key(), record.value())));
        }
        for (Future<RecordMetadata> future : sent) {
            Check.ensure(future.get(30, TimeUnit.SECONDS).topic().equals(topic), "acknowledged for another topic");
        }
    }

    private void produce(String topic, int first, int last, String... options) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(options)) {
            send(producer, topic, first, last);
        }
    }

    // --- SimpleConsumer -----------------------------------------------------------------------------------------

    private SimpleConsumer simple(String host, int port) {
        return new SimpleConsumer(host, port, TIMEOUT_MS, FETCH_BYTES, CLIENT_ID);
    }

    /** Lets the broker create the topic, and waits until each partition has a leader. */
    private String create(String topic) throws Exception {
        TopicMetadata[] found = {null};
        SimpleConsumer consumer = simple(host, port);
        try {
            until(() -> found[0] != null && isLed(found[0]), () -> {
                found[0] = consumer.send(new TopicMetadataRequest(List.of(topic))).topicsMetadata().get(0);
                Cases.pause();
            }, "leaders of " + topic);
        } finally {
            consumer.close();
        }
        int count = found[0].partitionsMetadata().size();
        if (count != PARTITIONS) {
            throw new Cases.Skip("the broker creates topics with " + count + " partitions: set num.partitions=3");
        }
        return topic;
    }

    private static boolean isLed(TopicMetadata topic) {
        return topic.errorCode() == ErrorMapping.NoError()
                && topic.partitionsMetadata().stream().allMatch(partition -> partition.leader() != null);
    }

    /** One read of a topic: a position per partition. */
    private final class Reader implements AutoCloseable {
        final long[] positions = new long[PARTITIONS];
        private final String topic;
        private final SimpleConsumer consumer = simple(host, port);

        Reader(String topic) {
            this.topic = topic;
        }

        List<Read> poll() {
            FetchRequestBuilder request = new FetchRequestBuilder().clientId(CLIENT_ID).maxWait(200).minBytes(1);
            for (int i = 0; i < PARTITIONS; i++) {
                request.addFetch(topic, i, positions[i], FETCH_BYTES);
            }
            FetchResponse response = consumer.fetch(request.build());
            List<Read> batch = new ArrayList<>();
            for (int i = 0; i < PARTITIONS; i++) {
                short error = response.errorCode(topic, i);
                Check.ensure(error == ErrorMapping.NoError(), topic + " partition " + i + ": error " + error);
                for (MessageAndOffset message : response.messageSet(topic, i)) {
                    // A compressed set comes whole, even when the offset asked for is in its middle.
                    if (message.offset() >= positions[i]) {
                        batch.add(read(i, message));
                        positions[i] = message.nextOffset();
                    }
                }
            }
            return batch;
        }

        private static Read read(int partition, MessageAndOffset message) {
            Check.ensure(message.message().isValid(), "offset " + message.offset() + ": wrong checksum");
            return new Read(partition, message.offset(), bytes(message.message().key()),
                    bytes(message.message().payload()), null);
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private Check read(String topic, int count) throws Exception {
        Check check = new Check(false);
        try (Reader reader = new Reader(topic)) {
            until(() -> check.count() >= count, () -> reader.poll().forEach(check::add), count + " records of " + topic);
        }
        return check;
    }

    private long offset(String topic, int partition, long time) {
        SimpleConsumer consumer = simple(host, port);
        try {
            var wanted = Map.of(new TopicAndPartition(topic, partition), new PartitionOffsetRequestInfo(time, 1));
            var response = consumer.getOffsetsBefore(
                    new OffsetRequest(wanted, kafka.api.OffsetRequest.CurrentVersion(), CLIENT_ID));
            Check.ensure(!response.hasError(), "offsets: error " + response.errorCode(topic, partition));
            return response.offsets(topic, partition)[0];
        } finally {
            consumer.close();
        }
    }

    // --- offsets kept by the broker -----------------------------------------------------------------------------

    private static final short OFFSETS_IN_KAFKA = 1;

    private BlockingChannel coordinator(String group) throws Exception {
        BlockingChannel[] found = {null};
        until(() -> found[0] != null, () -> found[0] = askForCoordinator(group), "the coordinator of " + group);
        return found[0];
    }

    private BlockingChannel askForCoordinator(String group) throws Exception {
        BlockingChannel channel = channel(host, port);
        try {
            channel.send(new ConsumerMetadataRequest(group, ConsumerMetadataRequest.CurrentVersion(), 1, CLIENT_ID));
            ConsumerMetadataResponse answer = ConsumerMetadataResponse.readFrom(channel.receive().buffer());
            if (answer.errorCode() != ErrorMapping.NoError()) {
                Cases.pause();
                return null;
            }
            return channel(answer.coordinator().host(), answer.coordinator().port());
        } finally {
            channel.disconnect();
        }
    }

    private static BlockingChannel channel(String host, int port) {
        BlockingChannel channel = new BlockingChannel(host, port, BlockingChannel.UseDefaultBufferSize(),
                BlockingChannel.UseDefaultBufferSize(), TIMEOUT_MS);
        channel.connect();
        return channel;
    }

    private void commit(String topic, String group, long[] positions) throws Exception {
        Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (int i = 0; i < PARTITIONS; i++) {
            offsets.put(new TopicAndPartition(topic, i), new OffsetAndMetadata(positions[i], "so far", -1L));
        }
        BlockingChannel channel = coordinator(group);
        try {
            channel.send(new OffsetCommitRequest(group, offsets, 2, CLIENT_ID, OFFSETS_IN_KAFKA).underlying());
            var answer = kafka.javaapi.OffsetCommitResponse.readFrom(channel.receive().buffer());
            Check.ensure(!answer.hasError(), "commit: " + answer.errors());
        } finally {
            channel.disconnect();
        }
    }

    /** Moves the positions to what the group has committed; where it has nothing they stay. */
    private void fetchCommitted(String topic, String group, long[] positions) throws Exception {
        List<TopicAndPartition> wanted = new ArrayList<>();
        for (int i = 0; i < PARTITIONS; i++) {
            wanted.add(new TopicAndPartition(topic, i));
        }
        BlockingChannel channel = coordinator(group);
        try {
            Map<TopicAndPartition, OffsetMetadataAndError> found = new HashMap<>();
            until(() -> !found.isEmpty(), () -> found.putAll(fetchOnce(channel, group, wanted)), "committed offsets");
            found.forEach((partition, entry) -> {
                Check.ensure(entry.error() == ErrorMapping.NoError()
                        || entry.error() == ErrorMapping.UnknownTopicOrPartitionCode(), partition + ": " + entry);
                if (entry.offset() >= 0) {
                    Check.ensure(entry.metadata().equals("so far"), partition + ": " + entry);
                    positions[partition.partition()] = entry.offset();
                }
            });
        } finally {
            channel.disconnect();
        }
    }

    private static Map<TopicAndPartition, OffsetMetadataAndError> fetchOnce(
            BlockingChannel channel, String group, List<TopicAndPartition> wanted) throws Exception {
        channel.send(new OffsetFetchRequest(group, wanted, OFFSETS_IN_KAFKA, 3, CLIENT_ID).underlying());
        var offsets = kafka.javaapi.OffsetFetchResponse.readFrom(channel.receive().buffer()).offsets();
        boolean loading = offsets.values().stream()
                .anyMatch(entry -> entry.error() == ErrorMapping.OffsetsLoadInProgressCode());
        if (loading) {
            Cases.pause();
        }
        return loading ? Map.of() : offsets;
    }

    private void readAndCommit(String topic, String group, Check check, int goal) throws Exception {
        try (Reader reader = new Reader(topic)) {
            fetchCommitted(topic, group, reader.positions);
            until(() -> check.count() >= goal, () -> reader.poll().forEach(check::add), goal + " records");
            commit(topic, group, reader.positions);
        }
    }

    // --- the cases ----------------------------------------------------------------------------------------------

    private String createTopic() throws Exception {
        String topic = create(cases.topic("create-topic"));
        produce(topic, 0, 300);
        long total = 0;
        for (int i = 0; i < PARTITIONS; i++) {
            long earliest = offset(topic, i, kafka.api.OffsetRequest.EarliestTime());
            Check.ensure(earliest == 0, "the earliest offset is " + earliest);
            total += offset(topic, i, kafka.api.OffsetRequest.LatestTime());
        }
        Check.ensure(total == 300, "the latest offsets add up to " + total);
        return PARTITIONS + " partitions, created by the broker; earliest and latest offsets";
    }

    private String produceIn(String codec) throws Exception {
        String topic = create(cases.topic("produce-" + codec));
        produce(topic, 0, COUNT, "compression.type", codec);
        read(topic, COUNT).finish(0, COUNT);
        return COUNT + " records";
    }

    private String commitResume() throws Exception {
        String topic = create(cases.topic("commit-resume"));
        return Scenarios.resume((first, last) -> produce(topic, first, last),
                (check, goal) -> readAndCommit(topic, cases.topic("resume"), check, goal), false);
    }

    private String broker(String how) throws Exception {
        String topic = create(cases.topic("broker-" + how));
        String group = cases.topic("broker-" + how + "-group");
        try (KafkaProducer<byte[], byte[]> open =
                producer("acks", "all", "max.in.flight.requests.per.connection", "1", "retries", "100")) {
            return Scenarios.outlive(how, (first, last) -> send(open, topic, first, last), null,
                    (check, goal) -> readAndCommit(topic, group, check, goal), false);
        }
    }

    private String acks() throws Exception {
        for (String level : List.of("0", "1", "all")) {
            String topic = create(cases.topic("acks-" + level));
            produce(topic, 0, 500, "acks", level);
            read(topic, 500).finish(0, 500);
        }
        return "500 records with each of 0, 1, all";
    }

    private String interop() throws Exception {
        List<Cases.Foreign> topics = Cases.interopTopics();
        for (Cases.Foreign foreign : topics) {
            try {
                read(foreign.topic(), foreign.count()).finish(0, foreign.count());
            } catch (AssertionError error) {
                throw new AssertionError(foreign.topic() + ": " + error.getMessage(), error);
            }
        }
        return topics.size() + " topics of other clients";
    }
}
