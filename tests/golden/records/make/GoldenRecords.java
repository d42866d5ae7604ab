import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.*;

/**
 * `write <dir>`: write the fixtures. `read <file>...`: print every record of each file, one line each.
 */
public class GoldenRecords {
    static final long T = 1_700_000_000_000L;

    static byte[] b(String s) {
        return s == null ? null : s.getBytes(StandardCharsets.UTF_8);
    }

    static void append(MemoryRecordsBuilder builder, byte magic, long offset, long timestamp, String key, String value, Header... headers) {
        builder.appendWithOffset(offset, timestamp, b(key), b(value), magic < 2 ? new Header[0] : headers);
    }

    static void write(File dir, String name, byte magic, Compression compression, TimestampType type, long baseOffset,
                      long producerId, boolean transactional, long deleteHorizon) throws Exception {
        org.apache.kafka.common.utils.ByteBufferOutputStream out = new org.apache.kafka.common.utils.ByteBufferOutputStream(1 << 20);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(out, magic, compression, type, baseOffset, T + 99_999,
            producerId, (short) (producerId < 0 ? -1 : 3), producerId < 0 ? -1 : 40, transactional, false, 7, 1 << 20, deleteHorizon);
        append(builder, magic, baseOffset, T, "key-0", "value-0",
            new RecordHeader("h1", b("a")), new RecordHeader("h2", null), new RecordHeader("\u00fcn\u00ef", b("")));
        append(builder, magic, baseOffset + 1, T + 5, null, "v".repeat(300));
        append(builder, magic, baseOffset + 2, T - 10, "tombstone", null);
        append(builder, magic, baseOffset + 3, T + 70_000, "", "");
        append(builder, magic, baseOffset + 5, T + 5, "key-5", "after a gap");
        if (compression.type() != CompressionType.NONE)
            append(builder, magic, baseOffset + 6, T + 6, "long", "0123456789".repeat(10_000));
        ByteBuffer buffer = builder.build().buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        Files.write(new File(dir, name + ".bin").toPath(), bytes);
    }

    static void marker(File dir, String name, ControlRecordType type) throws Exception {
        ByteBuffer buffer = MemoryRecords.withEndTransactionMarker(17L, T, 7, 4000L, (short) 3,
            new EndTransactionMarker(type, 21)).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        Files.write(new File(dir, name + ".bin").toPath(), bytes);
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null)
            return "null";
        StringBuilder out = new StringBuilder("x");
        ByteBuffer copy = buffer.duplicate();
        while (copy.hasRemaining())
            out.append(String.format("%02x", copy.get()));
        return out.toString();
    }

    static void read(String file) throws Exception {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(new File(file).toPath())));
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            System.out.printf("B %d %d %d %d %s %s %d %d %d %b %b %d%n", batch.magic(), batch.baseOffset(), batch.lastOffset(),
                batch.maxTimestamp(), batch.timestampType(), batch.compressionType(), batch.producerId(), batch.producerEpoch(),
                batch.baseSequence(), batch.isTransactional(), batch.isControlBatch(), batch.sizeInBytes());
            for (org.apache.kafka.common.record.Record record : batch) {
                record.ensureValid();
                StringBuilder headers = new StringBuilder();
                for (Header header : record.headers())
                    headers.append(' ').append(hex(ByteBuffer.wrap(b(header.key())))).append('=')
                        .append(header.value() == null ? "null" : hex(ByteBuffer.wrap(header.value())));
                System.out.printf("R %d %d %s %s%s%n", record.offset(), record.timestamp(), hex(record.key()), hex(record.value()), headers);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("read")) {
            for (int i = 1; i < args.length; i++) {
                System.out.println("F " + new File(args[i]).getName());
                try {
                    read(args[i]);
                } catch (Exception e) {
                    System.out.println("E " + e);
                }
            }
            return;
        }
        File dir = new File(args[1]);
        Compression[] codecs = {Compression.NONE, Compression.gzip().build(), Compression.snappy().build(),
            Compression.lz4().build(), Compression.zstd().build()};
        for (byte magic = 0; magic <= 2; magic++) {
            for (Compression codec : codecs) {
                if (magic < 2 && codec.type() == CompressionType.ZSTD)
                    continue;
                String name = "v" + magic + "-" + codec.type().name;
                write(dir, name, magic, codec, magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME, 0, -1, false, -1);
                if (magic > 0)
                    write(dir, name + "-append-time", magic, codec, TimestampType.LOG_APPEND_TIME, 1000, -1, false, -1);
                if (magic < 2)
                    write(dir, name + "-offset", magic, codec, magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME, 1000, -1, false, -1);
            }
        }
        write(dir, "v2-transactional", (byte) 2, Compression.NONE, TimestampType.CREATE_TIME, 0, 4000, true, -1);
        write(dir, "v2-idempotent-gzip", (byte) 2, Compression.gzip().build(), TimestampType.CREATE_TIME, 0, 4000, false, -1);
        write(dir, "v2-delete-horizon", (byte) 2, Compression.NONE, TimestampType.CREATE_TIME, 0, -1, false, T + 1_000_000);
        marker(dir, "v2-commit", ControlRecordType.COMMIT);
        marker(dir, "v2-abort", ControlRecordType.ABORT);
    }
}
