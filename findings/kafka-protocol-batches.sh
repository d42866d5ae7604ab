#!/bin/bash
# kafka-protocol 0.18.0 (Rust): a record batch that is decoded and encoded again is another one, and some of it is gone.
# Seen: of headers with one key only the last is kept, where Kafka keeps all; the time of the append is replaced by the producer's and its
# mark cleared; the delete horizon (KIP-534) of a compacted batch is replaced by the first record's time, with its mark kept; a batch
# that compaction has emptied, which keeps a producer's last sequence, vanishes; gzip of two members, which RFC 1952 allows, is refused.
# A proxy that looks into batches with it changes what passes.
# Judge: Kafka's own classes, kafka-clients 4.3.1, which write these batches and read both.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/rust/src" "$dir/batches" "$dir/encoded"
cat >"$dir/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId>
<version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>4.3.1</version></dependency>
</dependencies></project>
XML
(cd "$dir" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >&2)
cat >"$dir/Batches.java" <<'JAVA'
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.zip.GZIPOutputStream;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Crc32C;

public class Batches {
    static final byte[] KEY = {'k'}, VALUE = {'v'};

    static byte[] batch(TimestampType type, long horizon, Header... headers) {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            new ByteBufferOutputStream(1024), (byte) 2, Compression.NONE, type, 100, type == TimestampType.CREATE_TIME ? -1 : 5000,
            -1, (short) -1, -1, false, false, 3, 1024, horizon);
        builder.appendWithOffset(100, 1000, KEY, VALUE, headers);
        return Arrays.copyOf(builder.build().buffer().array(), builder.build().sizeInBytes());
    }

    static byte[] empty() {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(
            buffer, (byte) 2, 7L, (short) 1, 5, 100, 109, 3, TimestampType.CREATE_TIME, 1000, false, false);
        return buffer.array();
    }

    static byte[] members(byte[] plain) throws Exception {
        ByteArrayOutputStream data = new ByteArrayOutputStream();
        data.write(plain, 0, 61);
        for (int[] range : new int[][] {{61, 65}, {65, plain.length}}) {
            GZIPOutputStream member = new GZIPOutputStream(data);
            member.write(plain, range[0], range[1] - range[0]);
            member.finish();
        }
        ByteBuffer buffer = ByteBuffer.wrap(data.toByteArray());
        buffer.putInt(8, buffer.limit() - 12).putShort(21, (short) 1);
        buffer.putInt(17, (int) Crc32C.compute(buffer, 21, buffer.limit() - 21));
        return buffer.array();
    }

    static String text(Path path) throws Exception {
        StringBuilder text = new StringBuilder();
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(path))).batches()) {
            batch.ensureValid();
            text.append("offsets to " + batch.lastOffset() + " " + batch.timestampType());
            batch.deleteHorizonMs().ifPresent(time -> text.append(" horizon " + time));
            for (Record record : batch) {
                text.append(" record " + record.timestamp());
                for (Header header : record.headers()) {
                    text.append(" " + header.key() + "=" + new String(header.value()));
                }
            }
        }
        return text.isEmpty() ? "nothing" : text.toString();
    }

    public static void main(String[] arguments) throws Exception {
        Path written = Path.of(arguments[0], "batches"), encoded = Path.of(arguments[0], "encoded");
        if (arguments.length == 1) {
            Header[] headers = {new RecordHeader("h", "1".getBytes()), new RecordHeader("h", "2".getBytes())};
            byte[] plain = batch(TimestampType.CREATE_TIME, -1);
            Files.write(written.resolve("plain"), plain);
            Files.write(written.resolve("headers"), batch(TimestampType.CREATE_TIME, -1, headers));
            Files.write(written.resolve("append"), batch(TimestampType.LOG_APPEND_TIME, -1));
            Files.write(written.resolve("horizon"), batch(TimestampType.CREATE_TIME, 9000));
            Files.write(written.resolve("empty"), empty());
            Files.write(written.resolve("members"), members(plain));
            return;
        }
        for (String name : new String[] {"plain", "headers", "append", "horizon", "empty", "members"}) {
            boolean isRefused = Files.notExists(encoded.resolve(name));
            System.out.println(name + ": " + text(written.resolve(name)));
            System.out.println("  again: " + (isRefused ? "refused" : text(encoded.resolve(name))));
        }
    }
}
JAVA
java -cp "$dir/jars/*" "$dir/Batches.java" "$dir" 2>"$dir/log" || { cat "$dir/log" >&2; exit 1; }

cd "$dir/rust"
cat >Cargo.toml <<'TOML'
[package]
name = "finding"
version = "0.1.0"
edition = "2021"

[dependencies]
bytes = "1"
kafka-protocol = { version = "=0.18.0", default-features = false, features = ["client", "broker", "gzip"] }
TOML
cat >src/main.rs <<'RUST'
use bytes::BytesMut;
use kafka_protocol::records::{RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions};
use std::fs;

fn main() {
    for entry in fs::read_dir("../batches").unwrap() {
        let path = entry.unwrap().path();
        if let Ok(sets) = RecordBatchDecoder::decode_all(&mut &fs::read(&path).unwrap()[..]) {
            let mut buffer = BytesMut::new();
            for set in &sets {
                let options = RecordEncodeOptions { version: set.version, compression: set.compression };
                RecordBatchEncoder::encode(&mut buffer, set.records.iter(), &options).unwrap();
            }
            fs::write(format!("../encoded/{}", path.file_name().unwrap().to_str().unwrap()), &buffer).unwrap();
        }
    }
}
RUST
cargo run -q
java -cp "$dir/jars/*" "$dir/Batches.java" "$dir" read 2>"$dir/log" >"$dir/seen" || { cat "$dir/log" >&2; exit 1; }

diff "$dir/seen" - <<'SEEN'
plain: offsets to 100 CreateTime record 1000
  again: offsets to 100 CreateTime record 1000
headers: offsets to 100 CreateTime record 1000 h=1 h=2
  again: offsets to 100 CreateTime record 1000 h=2
append: offsets to 100 LogAppendTime record 5000
  again: offsets to 100 CreateTime record 1000
horizon: offsets to 100 CreateTime horizon 9000 record 1000
  again: offsets to 100 CreateTime horizon 1000 record 1000
empty: offsets to 109 CreateTime
  again: nothing
members: offsets to 100 CreateTime record 1000
  again: refused
SEEN
