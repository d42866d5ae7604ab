#!/bin/bash
# librdkafka 2.16.1 (confluent-kafka 2.16.1): a request for metadata that was on its way to a broker that died is sent to no other one.
# Seen: thirty clients of three brokers ask for metadata without a pause, of the broker to which they are connected. That broker goes
# away, its port refuses connections, and some of the clients wait for all of the five seconds that they have given and end with
# _TIMED_OUT; their next question is answered by another broker at once. The request is put back to the queue of the same broker, where
# an attempt to connect counts as no attempt to send, and each refusal makes the pause before the next one longer, up to ten seconds.
# Beside it: the two other brokers answer all the while, as the next questions of the same clients show.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install confluent-kafka==2.16.1

mkdir "$dir/brokers"
cd "$dir/brokers"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Three brokers; each number on standard input is of a broker that goes away.
func main() {
	cluster := kfake.MustCluster(kfake.NumBrokers(3))
	fmt.Println(cluster.ListenAddrs()[0])
	for {
		var broker int32
		if _, err := fmt.Scan(&broker); err != nil {
			os.Exit(0)
		}
		if err := cluster.RemoveNode(broker); err != nil {
			panic(err)
		}
	}
}
GO
export GOFLAGS=-mod=mod GOMODCACHE="$dir/modules"
go mod init brokers >/dev/null 2>&1
go get github.com/twmb/franz-go/pkg/kfake@v0.0.0-20260918054303-01f206a7e32c >/dev/null 2>&1
go build -o brokers . >/dev/null 2>&1
chmod -R u+w "$dir/modules"

"$dir/venv/bin/python" - >"$dir/seen" <<'PY'
import subprocess
import threading
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

CLIENTS, ROUNDS_MAX, TIMEOUT_S = 30, 20, 5


def ask(client, until, outcomes):
    while time.monotonic() < until:
        begun = time.monotonic()
        try:
            client.list_topics(timeout=TIMEOUT_S)
        except KafkaException as error:
            outcomes.add((error.args[0].name(), round(time.monotonic() - begun)))
            begun = time.monotonic()
            outcomes.add((f"{len(client.list_topics(timeout=TIMEOUT_S).brokers)} brokers", round(time.monotonic() - begun)))


for _ in range(ROUNDS_MAX):
    with subprocess.Popen(["./brokers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as brokers:
        first = brokers.stdout.readline().strip()
        clients = [AdminClient({"bootstrap.servers": first, "log_level": 0}) for _ in range(CLIENTS)]
        for client in clients:
            assert len(client.list_topics(timeout=TIMEOUT_S).brokers) == 3
        outcomes, until = set(), time.monotonic() + 2
        threads = [threading.Thread(target=ask, args=(client, until, outcomes)) for client in clients]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        print(0, file=brokers.stdin, flush=True)
        for thread in threads:
            thread.join()
        brokers.stdin.close()
    if outcomes:
        for answer, seconds in sorted(outcomes):
            print(answer, "after", seconds, "s")
        break
PY

diff - "$dir/seen" <<'SEEN'
2 brokers after 0 s
_TIMED_OUT after 5 s
SEEN
