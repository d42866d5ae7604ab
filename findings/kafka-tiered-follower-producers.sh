#!/bin/bash
# Kafka 4.3.1: a follower that begins after tiered storage deletes the snapshot of producers that it has fetched, and knows none of them.
# Seen: truncateFullyAndStartAt(N) leaves an empty snapshot at N; TierStateMachine puts that of the store in its place and calls
# truncateFullyAndReloadSnapshots, which deletes the snapshots that it knows of by offset, so the one of the store, and loads none. Where
# a transaction was open at N, an abort marker after N names N as its first offset, and once that replica leads, consumers of committed
# records are given those before N. The review of apache/kafka#14652 met it in 2023.
# Beside it: without a snapshot at N of its own it keeps the one of the store.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId>
<version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-storage</artifactId><version>4.3.1</version></dependency>
</dependencies></project>
XML
(cd "$dir" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >&2)
cat >"$dir/Follower.java" <<'JAVA'
import java.io.File;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.*;

public class Follower {
    static final long END = 100;

    static ProducerStateManager manager(File directory) throws Exception {
        directory.mkdirs();
        var settings = new ProducerStateManagerConfig(86_400_000, false);
        return new ProducerStateManager(new TopicPartition("t", 0), directory, 900_000, settings, Time.SYSTEM);
    }

    public static void main(String[] arguments) throws Exception {
        File root = new File(arguments[0]), stored = new File(root, "stored");
        long now = System.currentTimeMillis();
        ProducerStateManager leader = manager(stored);
        leader.loadProducerEntry(new ProducerStateEntry(7L, (short) 0, 0, now, OptionalLong.of(90)));
        leader.updateMapEndOffset(END);
        leader.takeSnapshot();
        File snapshot = stored.listFiles()[0];
        for (boolean hasOwn : List.of(false, true)) {
            File own = new File(root, "follower-" + hasOwn);
            ProducerStateManager follower = manager(own);
            if (hasOwn) {
                follower.truncateAndReload(0, END, now);
                follower.updateMapEndOffset(END);
                follower.takeSnapshot();
            }
            Files.copy(snapshot.toPath(), new File(own, snapshot.getName()).toPath(), StandardCopyOption.REPLACE_EXISTING);
            follower.truncateFullyAndReloadSnapshots();
            follower.truncateAndReload(0, END, now);
            System.out.printf(
                "own snapshot %s: %d producers, %d files%n", hasOwn, follower.activeProducers().size(), own.list().length);
        }
    }
}
JAVA
java -cp "$dir/jars/*" "$dir/Follower.java" "$dir" 2>"$dir/log" >"$dir/seen" || { cat "$dir/log" >&2; exit 1; }
cat "$dir/seen"
diff "$dir/seen" - <<'SEEN'
own snapshot false: 1 producers, 1 files
own snapshot true: 0 producers, 0 files
SEEN
