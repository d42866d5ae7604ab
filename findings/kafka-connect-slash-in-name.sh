#!/bin/bash
# Kafka Connect 4.3.1: a connector whose name has a slash is created, listed, and then cannot be asked for, paused or deleted.
# Seen: POST /connectors answers 201 for a/b and the connector runs; each request that names it answers 400, with the slash written as
# %2F, before it reaches Connect. KIP-212 decided that such names stay legal, and that clients escape them.
# Beside it: a connector named a.b, which is shown and deleted.
set -euo pipefail
dir=$(mktemp -d)
trap 'kill "${started[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
started=()
cat >"$dir/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId>
<version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId><version>4.3.1</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-file</artifactId><version>4.3.1</version></dependency>
</dependencies></project>
XML
(cd "$dir" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >&2)
ports() { python3 -c 'import socket; s = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]; print(*(x.getsockname()[1] for x in s))'; }
read -r broker controller rest <<<"$(ports)"
cat >"$dir/broker.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$broker,CONTROLLER://127.0.0.1:$controller
controller.listener.names=CONTROLLER
log.dirs=$dir/log
offsets.topic.replication.factor=1
PROPERTIES
cat >"$dir/worker.properties" <<PROPERTIES
bootstrap.servers=127.0.0.1:$broker
listeners=http://127.0.0.1:$rest
plugin.discovery=only_scan
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename=$dir/offsets
PROPERTIES
echo hello >"$dir/input"
kafka() { exec java -Xmx512m -XX:TieredStopAtLevel=1 -cp "$dir/jars/*" "$@"; }
(kafka kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qg -c "$dir/broker.properties") >"$dir/format.log" 2>&1
kafka kafka.Kafka "$dir/broker.properties" >"$dir/broker.log" 2>&1 &
started+=($!)
kafka org.apache.kafka.connect.cli.ConnectStandalone "$dir/worker.properties" >"$dir/worker.log" 2>&1 &
started+=($!)
connect=http://127.0.0.1:$rest/connectors
for _ in $(seq 240); do curl -sf "$connect" >/dev/null && break || sleep 0.5; done
code() { curl -s -o "$dir/answer" -w '%{http_code}' "$@"; }
for name in a.b a/b; do
    config="{\"connector.class\": \"org.apache.kafka.connect.file.FileStreamSourceConnector\", \"file\": \"$dir/input\", \"topic\": \"t\"}"
    echo "create $name $(code -H 'Content-Type: application/json' -d "{\"name\": \"$name\", \"config\": $config}" "$connect")"
done >"$dir/seen"
for _ in $(seq 60); do [ "$(curl -s "$connect" | tr -dc ,)" = , ] && break || sleep 0.5; done
for name in a.b a%2Fb; do
    echo "show $name $(code "$connect/$name")"
    echo "pause $name $(code -X PUT "$connect/$name/pause")"
    echo "delete $name $(code -X DELETE "$connect/$name")"
done >>"$dir/seen"
echo "list $(curl -s "$connect")" >>"$dir/seen"

diff "$dir/seen" - <<'SEEN'
create a.b 201
create a/b 201
show a.b 200
pause a.b 202
delete a.b 204
show a%2Fb 400
pause a%2Fb 400
delete a%2Fb 400
list ["a/b"]
SEEN
