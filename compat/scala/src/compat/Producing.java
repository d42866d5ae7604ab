package compat;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import kafka.javaapi.producer.Producer;
import kafka.producer.KeyedMessage;
import kafka.producer.Partitioner;
import kafka.producer.ProducerConfig;
import kafka.serializer.Decoder;
import kafka.serializer.Encoder;
import kafka.utils.VerifiableProperties;

/** The Scala producer, and an application's own encoder and partitioner. */
final class Producing {
    private static final int BATCH = 200;

    private Producing() {}

    static <K, V> Producer<K, V> open(String bootstrap, String... options) {
        Properties settings = new Properties();
        settings.put("metadata.broker.list", bootstrap);
        settings.put("request.required.acks", "-1");
        settings.put("message.send.max.retries", "20");
        settings.put("retry.backoff.ms", "200");
        settings.put("partitioner.class", "kafka.producer.ByteArrayPartitioner"); // the default hashes the array's address
        for (int i = 0; i < options.length; i += 2) {
            settings.put(options[i], options[i + 1]);
        }
        return new Producer<>(new ProducerConfig(settings));
    }

    /** Sends the records of these numbers; a synchronous producer returns when they are acknowledged. */
    static void send(Producer<byte[], byte[]> producer, String topic, int first, int last) {
        for (int start = first; start < last; start += BATCH) {
            List<KeyedMessage<byte[], byte[]>> batch = new ArrayList<>();
            for (int i = start; i < Math.min(start + BATCH, last); i++) {
                Numbered record = Numbered.of(i);
                batch.add(new KeyedMessage<>(topic, record.key(), record.value()));
            }
            producer.send(batch);
        }
    }

    static void produce(String bootstrap, String topic, int first, int last, String... options) {
        Producer<byte[], byte[]> producer = open(bootstrap, options);
        try {
            send(producer, topic, first, last);
        } finally {
            producer.close();
        }
    }

    /** A temperature of a place, as an application would have it. */
    record Reading(String place, int degrees) {}

    /** Writes a reading as text; made by the producer through reflection. */
    public static final class ReadingEncoder implements Encoder<Reading> {
        public ReadingEncoder(VerifiableProperties settings) {}

        @Override
        public byte[] toBytes(Reading reading) {
            return (reading.place() + "=" + reading.degrees()).getBytes(UTF_8);
        }
    }

    /** Reads what {@link ReadingEncoder} has written. */
    static final class ReadingDecoder implements Decoder<Reading> {
        @Override
        public Reading fromBytes(byte[] bytes) {
            String[] parts = new String(bytes, UTF_8).split("=");
            return new Reading(parts[0], Integer.parseInt(parts[1]));
        }
    }

    /** Warm places go to the last partition, all others to the first. */
    public static final class WarmPlaces implements Partitioner {
        public WarmPlaces(VerifiableProperties settings) {}

        @Override
        public int partition(Object key, int partitions) {
            return key.toString().startsWith("warm") ? partitions - 1 : 0;
        }
    }
}
