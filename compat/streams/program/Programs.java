import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyQueryMetadata;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * Several Kafka Streams applications. What happens is printed, and a line on standard input asks: "where KEY" which instance
 * has a key, "local" what is in this one's stores, "close" ends it.
 */
public final class Programs {
    private Programs() {}

    /** Arguments: program, HOST:PORT, application id, directory for the state, number, threads, further settings as K=V. */
    public static void main(String[] arguments) throws Exception {
        String program = arguments[0];
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[2]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        properties.put(StreamsConfig.CLIENT_ID_CONFIG, "instance-" + arguments[4]);
        properties.put(StreamsConfig.APPLICATION_SERVER_CONFIG, "instance-" + arguments[4] + ":" + arguments[4]);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[5]);
        properties.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put("producer.transaction.timeout.ms", 10_000);
        properties.put("consumer.auto.offset.reset", "earliest");
        for (int i = 6; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            properties.put(pair[0], pair[1]);
        }

        StreamsBuilder builder = new StreamsBuilder();
        String store = build(program, builder);
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((now, before) -> say("state " + now));
        streams.setUncaughtExceptionHandler(error -> {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            say("failed " + cause.getClass().getSimpleName());
            return program.equals("words") && cause instanceof IllegalStateException
                ? StreamThreadExceptionResponse.SHUTDOWN_APPLICATION
                : StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null && !line.equals("close"); line = input.readLine()) {
            try {
                answer(streams, store, line);
            } catch (RuntimeException error) {
                say("sorry " + error.getClass().getSimpleName());
            }
        }
        streams.close(Duration.ofSeconds(20));
        System.exit(0);
    }

    /** The topology of a program, and the name of the store that can be asked. */
    private static String build(String program, StreamsBuilder builder) {
        Produced<String, String> strings = Produced.with(Serdes.String(), Serdes.String());
        KStream<String, String> words = builder.stream("words");
        switch (program) {
            case "words":
                words.peek((key, word) -> {
                        if (word.equals("poison")) {
                            throw new IllegalStateException(word);
                        }
                    })
                    .groupBy((key, word) -> word)
                    .count(Materialized.as("counts-store"))
                    .toStream()
                    .mapValues(count -> Long.toString(count))
                    .to("counts", strings);
                return "counts-store";
            case "joins":
                // Words by key meet the table of names, which has as many partitions; the result is spread again over three.
                KTable<String, String> names = builder.table("names", Materialized.as("names-store"));
                GlobalKTable<String, String> all = builder.globalTable("names-of-all");
                words.leftJoin(names, (word, name) -> name == null ? word : name + " " + word)
                    .join(all, (key, text) -> key, (text, name) -> name + ": " + text)
                    .selectKey((key, text) -> text)
                    .repartition(Repartitioned.<String, String>as("texts").withNumberOfPartitions(3))
                    .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                    .count(Materialized.as("texts-store"))
                    .toStream()
                    .mapValues(count -> Long.toString(count))
                    .to("counts", strings);
                return "texts-store";
            default:
                words.mapValues(word -> word.toUpperCase()).to("counts", strings);
                return null;
        }
    }

    private static void answer(KafkaStreams streams, String store, String line) {
        if (line.startsWith("where ")) {
            for (String key : line.substring(6).split(" ")) {
                KeyQueryMetadata found = streams.queryMetadataForKey(store, key, new StringSerializer());
                say("where " + key + " " + found.activeHost().port() + " " + found.partition()
                    + " " + found.standbyHosts().stream().map(host -> host.port()).sorted().toList());
            }
        } else if (line.equals("local")) {
            ReadOnlyKeyValueStore<String, Object> local =
                streams.store(StoreQueryParameters.fromNameAndType(store, QueryableStoreTypes.keyValueStore()));
            try (KeyValueIterator<String, Object> entries = local.all()) {
                while (entries.hasNext()) {
                    KeyValue<String, Object> entry = entries.next();
                    say("local " + entry.key + "\t" + entry.value);
                }
            }
        } else if (line.equals("clients")) {
            Map<Integer, String> clients = new java.util.TreeMap<>();
            streams.metadataForAllStreamsClients().forEach(client -> clients.put(client.port(),
                client.topicPartitions().size() + " " + client.standbyTopicPartitions().size()));
            clients.forEach((port, counts) -> say("client " + port + " " + counts));
        }
        say("done");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
