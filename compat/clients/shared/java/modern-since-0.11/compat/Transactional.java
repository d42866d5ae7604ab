package compat;

import java.util.BitSet;
import org.apache.kafka.clients.producer.KafkaProducer;

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
        return "two committed, one aborted, of 500 records each";
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
