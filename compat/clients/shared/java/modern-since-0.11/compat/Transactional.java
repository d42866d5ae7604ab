package compat;

import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** The case transactions, for the releases that have them. */
final class Transactional {
    private Transactional() {}

    static String run(Modern client) throws Exception {
        String topic = client.create(client.cases.topic("transactions"));
        String id = client.cases.topic("txn");
        try (KafkaProducer<byte[], byte[]> producer =
                client.producer("transactional.id", id, "max.block.ms", "20000")) {
            producer.initTransactions();
            transaction(producer, topic, 0, true);
            transaction(producer, topic, 500, false);
            transaction(producer, topic, 1000, true);
        }
        BitSet committed = Check.range(0, 500);
        committed.set(1000, 1500);
        client.read(topic, 1000, true, "isolation.level", "read_committed").finish(committed, false);
        client.read(topic, 1500, true).finish(0, 1500);
        return "two committed, one aborted, of 500 records each; 1000 copied exactly once, " + copy(client) + " aborts";
    }

    /** Copies a topic, offsets and records in one transaction, every third one aborted and done again. */
    private static int copy(Modern client) throws Exception {
        String source = client.create(client.cases.topic("copy-source"));
        String target = client.create(client.cases.topic("copy-target"));
        String group = client.cases.topic("copy-group");
        client.produce(source, 0, 1000);
        int[] done = {0, 0, 0}; // records committed, transactions, aborts
        try (KafkaConsumer<byte[], byte[]> consumer = client.consumer("group.id", group, "enable.auto.commit", "false",
                        "isolation.level", "read_committed", "max.poll.records", "100");
                KafkaProducer<byte[], byte[]> producer =
                        client.producer("transactional.id", client.cases.topic("copy"), "max.block.ms", "20000")) {
            consumer.subscribe(List.of(source));
            producer.initTransactions();
            Cases.until(() -> done[0] == 1000, () -> {
                List<Read> batch = Modern.poll(consumer);
                boolean abort = !batch.isEmpty() && done[1]++ % 3 == 1;
                if (!batch.isEmpty()) {
                    copy(batch, consumer, producer, source, target, group, abort);
                    done[abort ? 2 : 0] += abort ? 1 : batch.size();
                }
            }, "1000 records copied");
        }
        client.read(target, 1000, true, "isolation.level", "read_committed").finish(0, 1000);
        try (KafkaConsumer<byte[], byte[]> consumer = client.consumer("group.id", group)) {
            long committed = 0;
            for (TopicPartition partition : Modern.partitions(source)) {
                committed += Api.committed(consumer, partition).offset();
            }
            Check.ensure(committed == 1000, "the group has committed " + committed + " of 1000");
        }
        return done[2];
    }

    private static void copy(List<Read> batch, KafkaConsumer<byte[], byte[]> consumer,
            KafkaProducer<byte[], byte[]> producer, String source, String target, String group, boolean abort) {
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        Map<TopicPartition, Long> first = new HashMap<>();
        producer.beginTransaction();
        for (Read read : batch) {
            var record = new ProducerRecord<>(target, null, null, read.key(), read.value());
            Api.addHeaders(record, read.headers());
            producer.send(record);
            TopicPartition partition = new TopicPartition(source, read.partition());
            next.put(partition, new OffsetAndMetadata(read.offset() + 1));
            first.putIfAbsent(partition, read.offset());
        }
        Api.sendOffsets(producer, next, consumer, group);
        if (abort) {
            producer.abortTransaction();
            first.forEach(consumer::seek);
        } else {
            producer.commitTransaction();
        }
    }

    private static void transaction(KafkaProducer<byte[], byte[]> producer, String topic, int first, boolean commit)
            throws Exception {
        producer.beginTransaction();
        Modern.send(producer, topic, first, first + 500, false);
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }
}
