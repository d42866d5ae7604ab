package compat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.Config;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Flink's serialisers and Confluent's client of registries, with Kafka's Java client. */
final class Schemas {
    private static final int COUNT = 20;
    private static final String AVRO_ALONE = "Flink's formats are Avro alone";
    private static final List<String> NAMES = List.of(
            "avro", "json", "protobuf", "evolution", "refusal", "references", "administration", "interop");

    private final Cases cases;
    private final String url;
    private final CachedSchemaRegistryClient client;

    /** One value, as it is compared. */
    record User(String name, int age, String email) {}

    private Schemas(String[] arguments) {
        cases = new Cases(arguments, NAMES);
        url = cases.bootstrap;
        client = new CachedSchemaRegistryClient(url, 100);
    }

    public static void main(String[] arguments) {
        Schemas schemas = new Schemas(arguments);
        schemas.cases.lack("json", AVRO_ALONE);
        schemas.cases.lack("protobuf", AVRO_ALONE);
        schemas.cases.add("avro", schemas::avro);
        schemas.cases.add("evolution", schemas::evolution);
        schemas.cases.add("refusal", schemas::refusal);
        schemas.cases.add("references", schemas::references);
        schemas.cases.add("administration", schemas::administration);
        schemas.cases.add("interop", schemas::interop);
        schemas.cases.run();
    }

    private static String text(String file) throws IOException {
        return Files.readString(Path.of(System.getenv("COMPAT_SCHEMAS"), file));
    }

    private static Schema parsed(String file) throws IOException {
        return new Schema.Parser().parse(text(file));
    }

    private static List<User> users(int first, String email) {
        return IntStream.range(first, first + COUNT).mapToObj(number -> new User("user " + number, number, email)).toList();
    }

    private static GenericRecord toRecord(Schema schema, User user) {
        GenericRecord made = new GenericData.Record(schema);
        made.put("name", user.name());
        made.put("age", user.age());
        if (schema.getField("email") != null) {
            made.put("email", user.email());
        }
        return made;
    }

    private static User toUser(GenericRecord record) {
        Object email = record.getSchema().getField("email") == null ? null : record.get("email").toString();
        return new User(record.get("name").toString(), (Integer) record.get("age"), (String) email);
    }

    private void send(String topic, Schema schema, List<GenericRecord> values) throws Exception {
        var serializer = ConfluentRegistryAvroSerializationSchema.forGeneric(topic + "-value", schema, url);
        Map<String, Object> settings = Map.of("bootstrap.servers", System.getenv("COMPAT_BOOTSTRAP"));
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (GenericRecord value : values) {
                producer.send(new ProducerRecord<>(topic, serializer.serialize(value))).get();
            }
        }
    }

    /** Reads a topic by the schemas that its values name, resolved to a schema of the reader's. */
    private List<GenericRecord> receive(String topic, int count, Schema schema) throws Exception {
        var deserializer = ConfluentRegistryAvroDeserializationSchema.forGeneric(schema, url);
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", System.getenv("COMPAT_BOOTSTRAP"), "group.id", cases.topic("of-" + topic),
                "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        List<GenericRecord> found = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            Cases.until(() -> found.size() >= count, () -> {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    found.add(deserializer.deserialize(record.value()));
                }
            }, count + " records of " + topic);
        }
        return found;
    }

    private static void same(List<User> found, List<User> wanted) {
        List<User> sorted = found.stream().sorted(Comparator.comparingInt(User::age)).toList();
        Check.ensure(sorted.equals(wanted), sorted + " instead of " + wanted);
    }

    private static List<GenericRecord> toRecords(Schema schema, List<User> users) {
        return users.stream().map(user -> toRecord(schema, user)).toList();
    }

    private List<User> read(String topic, int count, Schema schema) throws Exception {
        return receive(topic, count, schema).stream().map(Schemas::toUser).toList();
    }

    private String avro() throws Exception {
        String topic = cases.topic("avro");
        Schema schema = parsed("user.avsc");
        send(topic, schema, toRecords(schema, users(0, null)));
        same(read(topic, COUNT, schema), users(0, null));
        return COUNT + " records";
    }

    private String evolution() throws Exception {
        String topic = cases.topic("evolution");
        Schema first = parsed("user.avsc");
        Schema wider = parsed("user-wider.avsc");
        send(topic, first, toRecords(first, users(0, null)));
        send(topic, wider, toRecords(wider, users(COUNT, "a@b")));
        List<User> wanted = new ArrayList<>(users(0, "none"));
        wanted.addAll(users(COUNT, "a@b"));
        same(read(topic, 2 * COUNT, wider), wanted);
        List<User> narrow = new ArrayList<>(users(0, null));
        narrow.addAll(users(COUNT, null));
        same(read(topic, 2 * COUNT, first), narrow);
        Check.ensure(client.getAllVersions(topic + "-value").equals(List.of(1, 2)), "versions");
        return "two versions, each read as the other";
    }

    private String refusal() throws Exception {
        String topic = cases.topic("refusal");
        Schema schema = parsed("user.avsc");
        Schema breaking = parsed("user-breaking.avsc");
        send(topic, schema, toRecords(schema, users(0, null)));
        Check.ensure(!client.testCompatibility(topic + "-value", new AvroSchema(breaking)), "the verdict");
        Check.ensure(!client.testCompatibilityVerbose(topic + "-value", new AvroSchema(breaking)).isEmpty(), "the reasons");
        try {
            client.register(topic + "-value", new AvroSchema(breaking));
        } catch (RestClientException error) {
            Check.ensure(error.getStatus() == 409 && error.getErrorCode() == 40901, error.toString());
            return "409, and reasons";
        }
        throw new AssertionError("it was taken");
    }

    private String references() throws Exception {
        String topic = cases.topic("references");
        client.register(topic + "-user", new AvroSchema(text("user.avsc")));
        List<SchemaReference> refers = List.of(new SchemaReference("compat.User", topic + "-user", 1));
        AvroSchema team = new AvroSchema(text("team.avsc"), refers, Map.of("compat.User", text("user.avsc")), null);
        int id = client.register(topic + "-value", team);
        AvroSchema found = (AvroSchema) new CachedSchemaRegistryClient(url, 10).getSchemaById(id);
        Check.ensure(found.references().equals(refers), "references " + found.references());
        Schema schema = found.rawSchema();
        Schema user = schema.getField("lead").schema();
        List<GenericRecord> values = new ArrayList<>();
        for (User one : users(0, null)) {
            GenericRecord value = new GenericData.Record(schema);
            value.put("lead", toRecord(user, one));
            values.add(value);
        }
        // Flink's serialiser registers what it writes by the whole schema, which has the other one in it.
        send(topic + "-whole", schema, values);
        same(receive(topic + "-whole", COUNT, schema).stream().map(one -> toUser((GenericRecord) one.get("lead"))).toList(),
                users(0, null));
        return "of another subject, by the client; Flink's serialiser writes the whole";
    }

    private String administration() throws Exception {
        String subject = cases.topic("administration");
        AvroSchema schema = new AvroSchema(text("user.avsc"));
        int id = client.register(subject, schema);
        Check.ensure(client.getId(subject, schema) == id && client.getVersion(subject, schema) == 1, "looked up");
        Check.ensure(client.getLatestSchemaMetadata(subject).getId() == id, "the newest");
        client.updateConfig(subject, new Config("NONE"));
        Check.ensure(client.getConfig(subject).getCompatibilityLevel().equals("NONE"), "a level");
        client.register(subject, new AvroSchema(text("user-breaking.avsc")));
        Check.ensure(client.getMode().equals("READWRITE"), "a mode");
        Check.ensure(client.getAllSubjectsByPrefix(subject).contains(subject), "subjects");
        Check.ensure(client.getAllSubjectsById(id).contains(subject), "subjects of an id");
        Check.ensure(client.deleteSchemaVersion(subject, "1", false) == 1, "a version is deleted");
        Check.ensure(client.deleteSubject(subject, false).equals(List.of(2)), "a subject is deleted");
        Check.ensure(client.deleteSubject(subject, true).equals(List.of(1, 2)), "for ever");
        try {
            client.getLatestSchemaMetadata(subject);
        } catch (RestClientException error) {
            Check.ensure(error.getStatus() == 404 && error.getErrorCode() == 40401, error.toString());
            return "levels, modes, versions, deletion, 40401";
        }
        throw new AssertionError("it is still there");
    }

    private String interop() throws Exception {
        List<String> topics = List.of(Cases.environment("COMPAT_TOPICS", "").split(",")).stream()
                .filter(one -> one.endsWith(":avro")).map(one -> one.substring(0, one.indexOf(':'))).toList();
        if (topics.isEmpty()) {
            throw new Cases.Skip("no other client has written Avro");
        }
        for (String topic : topics) {
            same(read(topic, COUNT, parsed("user.avsc")), users(0, null));
        }
        return topics.size() + " topics of others";
    }
}
