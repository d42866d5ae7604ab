package compat;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.ConsumerTimeoutException;
import kafka.consumer.KafkaStream;
import kafka.consumer.TopicFilter;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * A member of a group of the high-level consumer, which shares partitions out with the others through ZooKeeper.
 *
 * <p>One stream; a poll is what comes within a moment. What it owns is read from ZooKeeper, as its tools do.
 */
final class Group implements Scenarios.Member {
    static final int MOMENT_MS = 100;
    static final String SESSION_MS = "4000";

    private final Znodes znodes;
    private final String group;
    private final String id;
    private final String topic;
    private final ConsumerConnector connector;
    private final ConsumerIterator<byte[], byte[]> records;

    private Group(Znodes znodes, String group, String id, String topic, ConsumerConnector connector,
            KafkaStream<byte[], byte[]> stream) {
        this.znodes = znodes;
        this.group = group;
        this.id = id;
        this.topic = topic;
        this.connector = connector;
        this.records = stream.iterator();
    }

    /** Joins a group as the member {@code id} to read one topic. */
    static Group join(Znodes znodes, String group, String id, String topic, String... options) {
        ConsumerConnector connector = connect(znodes, group, id, options);
        return new Group(znodes, group, id, topic, connector,
                connector.createMessageStreams(Map.of(topic, 1)).get(topic).get(0));
    }

    /** Joins a group to read the topics that a filter lets through, those that are made later too. */
    static Group join(Znodes znodes, String group, String id, TopicFilter topics, String... options) {
        ConsumerConnector connector = connect(znodes, group, id, options);
        return new Group(znodes, group, id, topics instanceof Whitelist ? topics.regex() : "", connector,
                connector.createMessageStreamsByFilter(topics, 1).get(0));
    }

    private static ConsumerConnector connect(Znodes znodes, String group, String id, String... options) {
        Properties settings = new Properties();
        settings.put("zookeeper.connect", znodes.connect);
        settings.put("zookeeper.session.timeout.ms", SESSION_MS);
        settings.put("group.id", group);
        settings.put("consumer.id", id);
        settings.put("auto.offset.reset", "smallest");
        settings.put("auto.commit.enable", "false");
        settings.put("consumer.timeout.ms", String.valueOf(MOMENT_MS));
        settings.put("rebalance.backoff.ms", "500");
        settings.put("rebalance.max.retries", "20");
        settings.put("refresh.leader.backoff.ms", "100");
        for (int i = 0; i < options.length; i += 2) {
            settings.put(options[i], options[i + 1]);
        }
        return Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
    }

    /** What came, with the topic that it is from. */
    record From(String topic, Read read) {
        /** Notes the record's place: what was not committed comes again after a rebalance. */
        void noteIn(Map<String, Set<String>> seen, String reader) {
            seen.computeIfAbsent(reader + " " + topic, name -> new HashSet<>())
                    .add(read.partition() + ":" + read.offset());
        }
    }

    List<From> pollAll() {
        List<From> batch = new ArrayList<>();
        try {
            while (batch.size() < 1000 && records.hasNext()) {
                MessageAndMetadata<byte[], byte[]> next = records.next();
                batch.add(new From(next.topic(),
                        new Read(next.partition(), next.offset(), next.key(), next.message(), null)));
            }
        } catch (ConsumerTimeoutException nothingMore) {
            // hasNext has waited for consumer.timeout.ms
        }
        return batch;
    }

    @Override
    public List<Read> poll() {
        return pollAll().stream().map(From::read).toList();
    }

    @Override
    public Set<Integer> assigned() {
        Set<Integer> own = new HashSet<>();
        znodes.owners(group, topic).forEach((partition, owner) -> {
            if (owner.startsWith(group + "_" + id + "-")) {
                own.add(partition);
            }
        });
        return own;
    }

    void commit() {
        connector.commitOffsets(true);
    }

    @Override
    public void close() {
        commit();
        connector.shutdown();
    }

    /** Leaves the group without a commit. */
    void leave() {
        connector.shutdown();
    }
}
