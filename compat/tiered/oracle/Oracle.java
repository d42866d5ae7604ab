package org.apache.kafka.server.log.remote.metadata.storage;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** Answers a JSON line for each JSON line: records, caches and stores of segments by Kafka's own classes. */
public final class Oracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final RemoteLogMetadataSerde SERDE = new RemoteLogMetadataSerde();

    private static RemoteLogMetadataCache cache;
    private static RemoteStorageManager store;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode question = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(question, answer);
            } catch (Throwable e) {
                Throwable cause = e.getCause() == null ? e : e.getCause();
                answer.put("error", e.getClass().getSimpleName()).put("message", e.getMessage() + ": " + cause);
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static void answer(JsonNode question, ObjectNode answer) throws Exception {
        switch (question.get("op").asText()) {
            case "encode" -> answer.put("hex", HEX.formatHex(SERDE.serialize(record(question))));
            case "decode" -> decode(HEX.parseHex(question.get("hex").asText()), answer);
            case "partition" -> answer.put("partition", new RemoteLogMetadataTopicPartitioner(
                question.get("count").asInt()).metadataPartition(partition(question)));
            case "cache" -> {
                cache = new RemoteLogMetadataCache();
                cache.markInitialized();
            }
            case "apply" -> apply(SERDE.deserialize(HEX.parseHex(question.get("hex").asText())));
            case "ask" -> ask(question.get("epochs").asInt(), question.get("offsets").asInt(), answer);
            case "open" -> open(question);
            case "copy" -> copy(question, answer);
            case "read" -> answer.put("hex", HEX.formatHex(all(store.fetchLogSegment(
                segment(question), question.get("first").asInt(), question.get("last").asInt()))));
            case "index" -> answer.put("hex", HEX.formatHex(all(store.fetchIndex(
                segment(question), RemoteStorageManager.IndexType.valueOf(question.get("index").asText())))));
            case "delete" -> store.deleteLogSegmentData(segment(question));
            default -> throw new IllegalArgumentException(question.toString());
        }
    }

    private static RemoteLogMetadata record(JsonNode fields) {
        RemoteLogSegmentState state = RemoteLogSegmentState.forId((byte) fields.get("state").asInt());
        int broker = fields.get("broker").asInt();
        long event = fields.get("event").asLong();
        return switch (fields.get("kind").asText()) {
            case "segment" -> segment(fields);
            case "update" -> new RemoteLogSegmentMetadataUpdate(id(fields), event, custom(fields), state, broker);
            case "delete" -> new RemotePartitionDeleteMetadata(
                partition(fields), RemotePartitionDeleteState.forId((byte) fields.get("state").asInt()), event, broker);
            case "snapshot" -> RemoteLogSegmentMetadataSnapshot.create(segment(fields));
            default -> throw new IllegalArgumentException(fields.toString());
        };
    }

    private static RemoteLogSegmentMetadata segment(JsonNode fields) {
        Map<Integer, Long> epochs = new TreeMap<>();
        fields.get("epochs").forEach(epoch -> epochs.put(epoch.get(0).asInt(), epoch.get(1).asLong()));
        return new RemoteLogSegmentMetadata(
            id(fields), fields.get("start").asLong(), fields.get("end").asLong(), fields.get("max").asLong(),
            fields.get("broker").asInt(), fields.get("event").asLong(), fields.get("size").asInt(), custom(fields),
            RemoteLogSegmentState.forId((byte) fields.get("state").asInt()), epochs, fields.get("empty").asBoolean());
    }

    private static TopicIdPartition partition(JsonNode fields) {
        return new TopicIdPartition(Uuid.fromString(fields.get("topicId").asText()),
            new TopicPartition(fields.get("topic").asText(), fields.get("partition").asInt()));
    }

    private static RemoteLogSegmentId id(JsonNode fields) {
        return new RemoteLogSegmentId(partition(fields), Uuid.fromString(fields.get("segmentId").asText()));
    }

    private static Optional<CustomMetadata> custom(JsonNode fields) {
        JsonNode custom = fields.get("custom");
        return custom.isNull() ? Optional.empty() : Optional.of(new CustomMetadata(HEX.parseHex(custom.asText())));
    }

    private static void decode(byte[] bytes, ObjectNode answer) {
        RemoteLogMetadata metadata = SERDE.deserialize(bytes);
        answer.put("broker", metadata.brokerId()).put("event", metadata.eventTimestampMs());
        if (metadata instanceof RemoteLogSegmentMetadata segment) {
            answer.put("kind", "segment").put("start", segment.startOffset()).put("end", segment.endOffset());
            answer.put("max", segment.maxTimestampMs()).put("size", segment.segmentSizeInBytes());
            answer.put("empty", segment.isTxnIdxEmpty()).put("state", segment.state().id());
            ArrayNode epochs = answer.putArray("epochs");
            segment.segmentLeaderEpochs().forEach((epoch, offset) -> epochs.addArray().add(epoch).add(offset));
            describe(segment.remoteLogSegmentId(), segment.customMetadata(), answer);
        } else if (metadata instanceof RemoteLogSegmentMetadataUpdate update) {
            answer.put("kind", "update").put("state", update.state().id());
            describe(update.remoteLogSegmentId(), update.customMetadata(), answer);
        } else {
            throw new IllegalArgumentException(metadata.toString());
        }
    }

    private static void describe(RemoteLogSegmentId id, Optional<CustomMetadata> custom, ObjectNode answer) {
        answer.put("segmentId", id.id().toString()).put("topicId", id.topicIdPartition().topicId().toString());
        answer.put("topic", id.topicIdPartition().topic()).put("partition", id.topicIdPartition().partition());
        answer.put("custom", custom.map(value -> HEX.formatHex(value.value())).orElse(null));
    }

    private static void apply(RemoteLogMetadata metadata) throws Exception {
        if (metadata instanceof RemoteLogSegmentMetadata segment) {
            cache.addCopyInProgressSegment(segment);
        } else {
            cache.updateRemoteLogSegmentMetadata((RemoteLogSegmentMetadataUpdate) metadata);
        }
    }

    private static void ask(int epochs, int offsets, ObjectNode answer) throws Exception {
        ids(cache.listAllRemoteLogSegments(), answer.putArray("all"));
        ArrayNode byEpoch = answer.putArray("epochs");
        for (int epoch = 0; epoch < epochs; epoch++) {
            ObjectNode of = byEpoch.addObject();
            of.put("highest", cache.highestOffsetForEpoch(epoch).orElse(null));
            ids(cache.listRemoteLogSegments(epoch), of.putArray("segments"));
            ArrayNode held = of.putArray("held");
            ArrayNode next = of.putArray("next");
            for (long offset = 0; offset < offsets; offset++) {
                held.add(cache.remoteLogSegmentMetadata(epoch, offset).map(Oracle::name).orElse(null));
                next.add(cache.nextSegmentWithTxnIndex(epoch, offset).map(Oracle::name).orElse(null));
            }
        }
    }

    private static String name(RemoteLogSegmentMetadata segment) {
        return segment.remoteLogSegmentId().id().toString();
    }

    private static void ids(Iterator<RemoteLogSegmentMetadata> segments, ArrayNode names) {
        segments.forEachRemaining(segment -> names.add(name(segment)));
    }

    private static void open(JsonNode question) throws Exception {
        if (store != null) {
            store.close();
        }
        Map<String, Object> settings = new HashMap<>();
        question.get("settings").fields().forEachRemaining(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        settings.put("broker.id", 1);
        store = (RemoteStorageManager) Class.forName(question.get("class").asText()).getConstructor().newInstance();
        store.configure(settings);
    }

    private static void copy(JsonNode question, ObjectNode answer) throws Exception {
        JsonNode files = question.get("files");
        Optional<Path> transactions = files.get("TRANSACTION").isNull()
            ? Optional.empty() : Optional.of(Path.of(files.get("TRANSACTION").asText()));
        LogSegmentData data = new LogSegmentData(
            Path.of(files.get("LOG").asText()), Path.of(files.get("OFFSET").asText()),
            Path.of(files.get("TIMESTAMP").asText()), transactions, Path.of(files.get("PRODUCER_SNAPSHOT").asText()),
            ByteBuffer.wrap(HEX.parseHex(files.get("LEADER_EPOCH").asText())));
        answer.put("custom", store.copyLogSegmentData(segment(question), data)
            .map(value -> HEX.formatHex(value.value())).orElse(null));
    }

    private static byte[] all(InputStream stream) throws Exception {
        try (stream) {
            return stream.readAllBytes();
        }
    }

    private Oracle() {
    }
}
