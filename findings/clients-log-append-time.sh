#!/bin/bash
# kafka-go 0.4.51, @platformatic/kafka 1.35.0, rskafka 0.6.0, kafka-protocol 0.18.0: they ignore `LogAppendTime`.
# Seen: in a topic with that as its `message.timestamp.type`, a record that was produced as of 1970 is dated by Kafka when it is appended,
# in the header of its batch (bit 3 of the attributes, and the largest timestamp); those clients add the record's delta to the first
# timestamp, which is still the producer's. kafka-protocol even hands it out as `TimestampType::LogAppend`. Windows, retention in the
# program and searches by time are off by any amount, and differ from what ListOffsets, which goes by the right time, answers to the
# same client. @platformatic/kafka 2.12.1, for later Node.js, has the same sum in its source.
# Judge: Kafka's own consumer, 4.3.1. Beside it: kafkajs 2.2.4, and franz-go 1.22.3, which see the time of the append.
set -euo pipefail
dir=$(mktemp -d)
trap 'kill "${started[@]}" 2>/dev/null; wait 2>/dev/null; chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
started=()
cat >"$dir/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId>
<version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
</dependencies></project>
XML
(cd "$dir" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >&2)
ports() { python3 -c 'import socket; s = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]; print(*(x.getsockname()[1] for x in s))'; }
read -r broker controller <<<"$(ports)"
export KAFKA=127.0.0.1:$broker
cat >"$dir/broker.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://$KAFKA,CONTROLLER://127.0.0.1:$controller
controller.listener.names=CONTROLLER
log.dirs=$dir/log
offsets.topic.replication.factor=1
PROPERTIES
kafka() { exec java -Xmx512m -XX:TieredStopAtLevel=1 -cp "$dir/jars/*" "$@"; }
(kafka kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qg -c "$dir/broker.properties") >"$dir/format.log" 2>&1
kafka kafka.Kafka "$dir/broker.properties" >"$dir/broker.log" 2>&1 &
started+=($!)

cat >"$dir/Judge.java" <<'JAVA'
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Judge {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", System.getenv("KAFKA"));
        NewTopic topic = new NewTopic("t", Optional.of(1), Optional.empty());
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(topic.configs(Map.of("message.timestamp.type", "LogAppendTime")))).all().get();
        }
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("t", 0, 1000L, null, "hello")).get();
        }
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(new TopicPartition("t", 0)));
            consumer.seek(new TopicPartition("t", 0), 0);
            System.out.println("Kafka " + consumer.poll(Duration.ofSeconds(30)).iterator().next().timestamp());
        }
    }
}
JAVA
java -cp "$dir/jars/*" "$dir/Judge.java" 2>"$dir/log.txt" >"$dir/times" || { cat "$dir/log.txt" >&2; exit 1; }

mkdir "$dir/go" "$dir/node" "$dir/rust" "$dir/rust/src"
cd "$dir/go"
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	brokers := []string{os.Getenv("KAFKA")}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: brokers, Topic: "t"})
	message, _ := reader.ReadMessage(context.Background())
	fmt.Println("kafka-go", message.Time.UnixMilli())
	offsets := map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(0)}}
	client, _ := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumePartitions(offsets))
	fmt.Println("franz-go", client.PollFetches(context.Background()).Records()[0].Timestamp.UnixMilli())
}
GO
export GOFLAGS=-mod=mod
go mod init finding 2>/dev/null
go get github.com/segmentio/kafka-go@v0.4.51 github.com/twmb/franz-go@v1.22.3 2>/dev/null
go run . >>"$dir/times"

cd "$dir/node"
npm install --silent --no-audit --no-fund kafkajs@2.2.4 @platformatic/kafka@1.35.0 >&2
cat >main.mjs <<'JS'
import { Consumer, stringDeserializers } from '@platformatic/kafka'
import { Kafka, logLevel } from 'kafkajs'

const brokers = [process.env.KAFKA]
const consumer = new Consumer({ groupId: 'a', clientId: 'a', bootstrapBrokers: brokers, deserializers: stringDeserializers })
const stream = await consumer.consume({ topics: ['t'], mode: 'earliest' })
for await (const message of stream) {
  console.log('platformatic', String(message.timestamp))
  break
}
const other = new Kafka({ brokers, logLevel: logLevel.NOTHING }).consumer({ groupId: 'b' })
await other.subscribe({ topic: 't', fromBeginning: true })
await other.run({
  eachMessage: async ({ message }) => {
    console.log('kafkajs', message.timestamp)
    process.exit()
  },
})
JS
node main.mjs >>"$dir/times"

cd "$dir/rust"
cat >Cargo.toml <<'TOML'
[package]
name = "finding"
version = "0.1.0"
edition = "2021"

[dependencies]
kafka-protocol = { version = "=0.18.0", default-features = false, features = ["client", "broker"] }
rskafka = { version = "=0.6.0", default-features = false }
tokio = { version = "1", features = ["rt", "macros"] }
TOML
cat >src/main.rs <<'RUST'
use kafka_protocol::records::RecordBatchDecoder;
use rskafka::client::{partition::UnknownTopicHandling, ClientBuilder};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let client = ClientBuilder::new(vec![std::env::var("KAFKA").unwrap()]).build().await.unwrap();
    let partition = client.partition_client("t", 0, UnknownTopicHandling::Retry).await.unwrap();
    let (records, _) = partition.fetch_records(0, 1..1_000_000, 10_000).await.unwrap();
    println!("rskafka {}", records[0].record.timestamp.timestamp_millis());
    let segment = std::fs::read(std::env::args().nth(1).unwrap()).unwrap();
    let set = RecordBatchDecoder::decode(&mut &segment[..]).unwrap();
    println!("kafka-protocol {} {:?}", set.records[0].timestamp, set.records[0].timestamp_type);
}
RUST
cargo run -q -- "$dir/log/t-0/00000000000000000000.log" >>"$dir/times"

sed -E 's/ [0-9]{12,}/ now/' "$dir/times" | diff - <(
    cat <<'SEEN'
Kafka now
kafka-go 1000
franz-go now
platformatic 1000
kafkajs now
rskafka 1000
kafka-protocol 1000 LogAppend
SEEN
)
