package compat;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;

/** Record number {@code number} of a topic: the same in every topic and every language. */
record Numbered(int number, byte[] key, byte[] value, List<Map.Entry<String, byte[]>> headers) {
    static final int KEYS = 997;
    static final long TIME_ZERO_MS = 1_700_000_000_000L;
    /** Whether records have headers: message formats before 0.11 have none. */
    private static final boolean HEADERS = !"no".equals(System.getenv("COMPAT_HEADERS"));
    private static final byte[] TEXT = "žluťoučký kůň".getBytes(UTF_8);

    static Numbered of(int number) {
        String key = "key-" + number % KEYS;
        String head = number + ":" + key;
        CRC32 crc = new CRC32();
        crc.update(head.getBytes(UTF_8));
        String value = String.format("%s:%08x:%s", head, crc.getValue(), "x".repeat(number % 64));
        byte[] n = ByteBuffer.allocate(4).putInt(number).array();
        return new Numbered(number, key.getBytes(UTF_8), value.getBytes(UTF_8),
                HEADERS ? List.of(Map.entry("n", n), Map.entry("text", TEXT)) : List.of());
    }

    /** The time that records get where a case sets it: one second apart. */
    static long timestampMs(int number) {
        return TIME_ZERO_MS + number * 1000L;
    }
}
