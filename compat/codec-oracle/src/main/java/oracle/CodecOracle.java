package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Answers one JSON line for each JSON line: what Kafka makes of bytes, and what bytes it makes of values.
 *
 * Asked {"name", "version", "hex", "json"}, it answers with {"json"}, its reading of the bytes, {"hex"}, the bytes
 * that it writes for that reading, and {"fromJson"}, the bytes that it writes for the values in "json" ("json" may be
 * left out). Asked {"name"} alone, it answers with the versions that it knows, if any.
 */
public final class CodecOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final String[] CLASSES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
        "org.apache.kafka.raft.generated.%s",
        "org.apache.kafka.common.metadata.%s",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.%s",
    };

    private static final Map<String, Class<?>> FOUND = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.write(JSON.writeValueAsString(answer(JSON.readTree(line))));
            out.newLine();
            out.flush();
        }
    }

    private static ObjectNode answer(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            Class<?> type = find(question.get("name").asText());
            if (type == null) {
                return answer;
            }
            if (question.has("hex")) {
                compare(type, question, answer);
            } else {
                answer.put("lowest", lowest(type));
                answer.put("highest", highest(type));
            }
        } catch (InvocationTargetException e) {
            answer.put("error", String.valueOf(e.getCause()));
        } catch (Exception e) {
            answer.put("error", String.valueOf(e));
        }
        return answer;
    }

    private static void compare(Class<?> type, JsonNode question, ObjectNode answer) throws Exception {
        short version = (short) question.get("version").asInt();
        ByteBuffer bytes = ByteBuffer.wrap(HEX.parseHex(question.get("hex").asText()));
        Message message = (Message) type.getConstructor().newInstance();
        message.read(new ByteBufferAccessor(bytes), version);
        answer.put("left", bytes.remaining());
        answer.put("hex", encode(message, version));
        Class<?> converter = Class.forName(type.getName() + "JsonConverter");
        Method write = converter.getMethod("write", type, short.class, boolean.class);
        answer.set("json", (JsonNode) write.invoke(null, message, version, true));
        if (question.has("json")) {
            Method read = converter.getMethod("read", JsonNode.class, short.class);
            answer.put("fromJson", encode((Message) read.invoke(null, question.get("json"), version), version));
        }
    }

    private static String encode(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HEX.formatHex(buffer.array(), 0, buffer.position());
    }

    private static int lowest(Class<?> type) throws Exception {
        return type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
    }

    private static int highest(Class<?> type) throws Exception {
        return type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
    }

    private static Class<?> find(String name) {
        return FOUND.computeIfAbsent(name, key -> {
            for (String pattern : CLASSES) {
                try {
                    return Class.forName(String.format(pattern, key));
                } catch (ClassNotFoundException e) {
                    // The next package may have it.
                }
            }
            return null;
        });
    }

    private CodecOracle() {
    }
}
